//! Anonymous memory that a page pool carves up.

use std::ptr;

/// `len` bytes of zeroed memory, page-aligned, for the life of the process; `None` if the kernel has none to give.
/// Nothing is resident until it is written.
pub fn anonymous(len: usize) -> Option<&'static mut [u8]> {
    if len == 0 || isize::try_from(len).is_err() {
        return None;
    }
    // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no existing object.
    let p = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is `len` bytes long (checked above to fit isize), readable, writable, zeroed, referenced by
    // nobody else, and never unmapped.
    Some(unsafe { std::slice::from_raw_parts_mut(p.cast::<u8>(), len) })
}

/// Gives the memory of `page` back to the kernel: its contents become zeroes, and it is not resident until it is
/// written again. Bytes outside whole pages are left alone. Only for memory from [`anonymous`]; on memory with a
/// file behind it the contents would come back from there, which is why this takes an exclusive borrow.
pub fn discard(page: &mut [u8]) {
    let start = page.as_mut_ptr().align_offset(4096);
    let whole = page.len().saturating_sub(start) / 4096 * 4096;
    if whole == 0 {
        return;
    }
    let Some(part) = page.get_mut(start..start + whole) else { return };
    // SAFETY: the range lies within `part`, which is borrowed exclusively, so nobody reads it meanwhile; any byte
    // value, zero too, is a valid u8. A failure leaves the contents as they were.
    unsafe {
        libc::madvise(part.as_mut_ptr().cast(), part.len(), libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_zero_again_after_discard() {
        let m = anonymous(8192).unwrap();
        assert!(m.iter().all(|b| *b == 0));
        m.fill(7);
        discard(&mut m[1..8191]);
        assert_eq!(m[0], 7, "the first page is not wholly inside the range");
        assert_eq!(m[8191], 7);
        discard(&mut m[..]);
        assert!(m.iter().all(|b| *b == 0));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(anonymous(0).is_none());
        assert!(anonymous(usize::MAX).is_none());
    }
}

//! Anonymous memory that a page pool carves up.

use std::ops::DerefMut;
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

/// Gives the memory of `pages` back to the kernel, neighbours in one system call: their contents become zeroes, and are
/// not resident until they are written again. Bytes outside whole pages are left alone. Only for memory from
/// [`anonymous`]; on memory with a file behind it the contents would come back from there, which is why this takes an
/// exclusive borrow.
pub fn discard<P: DerefMut<Target = [u8]>>(pages: &mut [P]) {
    // Address and length of the stretch so far.
    let mut run: (*mut u8, usize) = (ptr::null_mut(), 0);
    for page in pages.iter_mut() {
        let start = page.as_mut_ptr().align_offset(4096);
        let whole = page.len().saturating_sub(start) / 4096 * 4096;
        let Some(part) = page.get_mut(start..start.saturating_add(whole)) else { continue };
        if run.0.addr() + run.1 == part.as_ptr().addr() {
            run.1 += part.len();
            continue;
        }
        // SAFETY: see `forget`; the stretch is made of parts of `pages`, which are borrowed exclusively till the end.
        unsafe { forget(run) };
        run = (part.as_mut_ptr(), part.len());
    }
    // SAFETY: as above.
    unsafe { forget(run) };
}

/// # Safety
/// The stretch must consist of whole pages that nobody else reads or writes meanwhile.
unsafe fn forget((at, len): (*mut u8, usize)) {
    if len > 0 {
        // SAFETY: nobody looks at the bytes meanwhile, says the caller, and any value of them, zero too, is a valid u8. A
        // failure leaves them as they were.
        unsafe {
            libc::madvise(at.cast(), len, libc::MADV_DONTNEED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_zero_again_after_discard() {
        let m = anonymous(4 * 4096).unwrap();
        assert!(m.iter().all(|b| *b == 0));
        m.fill(7);
        discard(&mut [&mut m[1..8191]]);
        assert_eq!(m[0], 7, "the first page is not wholly inside the range");
        assert_eq!(m[8191], 7);
        let mut pages: Vec<&mut [u8]> = m.chunks_mut(4096).collect();
        let kept = pages.remove(2);
        discard(&mut pages);
        assert!(kept.iter().all(|b| *b == 7), "not among the neighbours");
        assert!(pages.iter().all(|p| p.iter().all(|b| *b == 0)));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(anonymous(0).is_none());
        assert!(anonymous(usize::MAX).is_none());
    }
}

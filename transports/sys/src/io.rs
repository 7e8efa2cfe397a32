//! File data: positioned vectored reads and writes, size, flushing, residency.

use crate::open::{check, retry};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Options of one read or write (`RWF_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rwf(i32);

impl Rwf {
    /// No option.
    pub const NONE: Rwf = Rwf(0);
    /// `EAGAIN` instead of waiting for a device; `EOPNOTSUPP` where the file system cannot promise that.
    pub const NOWAIT: Rwf = Rwf(libc::RWF_NOWAIT);
    /// Data, and the metadata needed to find them, are stable when the write returns.
    pub const DSYNC: Rwf = Rwf(libc::RWF_DSYNC);
    /// Data and metadata are stable when the write returns.
    pub const SYNC: Rwf = Rwf(libc::RWF_SYNC);
    /// The page cache does not keep the data (Linux 6.14).
    pub const DONTCACHE: Rwf = Rwf(0x80);

    /// Both options.
    pub const fn and(self, other: Rwf) -> Rwf {
        Rwf(self.0 | other.0)
    }
}

/// Buffers that one call takes at most; what lies beyond is not touched.
pub const BUFFERS_MAX: usize = 1024;

/// preadv2(2): reads at `offset` into `bufs` in order; at most [`BUFFERS_MAX`] of them. 0 at the end of the file.
///
/// # Errors
/// Those of preadv2(2).
#[inline]
pub fn read(fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>], offset: i64, how: Rwf) -> io::Result<usize> {
    let n = bufs.len().min(BUFFERS_MAX) as i32;
    retry(|| {
        // SAFETY: `IoSliceMut` is guaranteed to have the layout of `iovec`; each names memory that is borrowed
        // exclusively through the call, and `n` is at most their number.
        let r = unsafe { libc::preadv2(fd.as_raw_fd(), bufs.as_mut_ptr().cast(), n, offset, how.0) };
        check(r as i64).map(|n| n as usize)
    })
}

/// pwritev2(2): writes `bufs` in order at `offset`; at most [`BUFFERS_MAX`] of them.
///
/// # Errors
/// Those of pwritev2(2).
#[inline]
pub fn write(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>], offset: i64, how: Rwf) -> io::Result<usize> {
    let n = bufs.len().min(BUFFERS_MAX) as i32;
    retry(|| {
        // SAFETY: `IoSlice` is guaranteed to have the layout of `iovec`; each names memory that is borrowed through
        // the call, and `n` is at most their number.
        let r = unsafe { libc::pwritev2(fd.as_raw_fd(), bufs.as_ptr().cast(), n, offset, how.0) };
        check(r as i64).map(|n| n as usize)
    })
}

/// Sets the size of a file.
///
/// # Errors
/// Those of ftruncate(2).
pub fn truncate(fd: BorrowedFd<'_>, size: i64) -> io::Result<()> {
    // SAFETY: touches no memory.
    retry(|| check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) }.into()).map(drop))
}

/// fallocate(2) with its mode flags.
///
/// # Errors
/// Those of fallocate(2).
pub fn allocate(fd: BorrowedFd<'_>, mode: i32, offset: i64, len: i64) -> io::Result<()> {
    // SAFETY: touches no memory.
    retry(|| check(unsafe { libc::fallocate(fd.as_raw_fd(), mode, offset, len) }.into()).map(drop))
}

/// Brings data and metadata of one object to stable storage. A failure is never retried: the kernel reports it once.
///
/// # Errors
/// Those of fsync(2); `EBADF` for `O_PATH` descriptors.
pub fn fsync(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::fsync(fd.as_raw_fd()) }.into()).map(drop)
}

/// Brings data, and the metadata needed to find them, to stable storage.
///
/// # Errors
/// Those of fdatasync(2).
pub fn fdatasync(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::fdatasync(fd.as_raw_fd()) }.into()).map(drop)
}

/// Brings the whole file system of `fd` to stable storage.
///
/// # Errors
/// Those of syncfs(2).
pub fn syncfs(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syncfs(fd.as_raw_fd()) }.into()).map(drop)
}

/// sync_file_range(2): starts or awaits writing of pages. Promises nothing about durability.
///
/// # Errors
/// Those of sync_file_range(2).
pub fn sync_range(fd: BorrowedFd<'_>, offset: i64, len: i64, flags: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) }.into()).map(drop)
}

/// posix_fadvise(2) with a `POSIX_FADV_*` value; `len` 0 means to the end.
///
/// # Errors
/// Those of posix_fadvise(2).
pub fn advise(fd: BorrowedFd<'_>, offset: i64, len: i64, advice: i32) -> io::Result<()> {
    // SAFETY: touches no memory.
    match unsafe { libc::posix_fadvise(fd.as_raw_fd(), offset, len, advice) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// What the page cache holds of a range, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Residency {
    /// Cached.
    pub cached: u64,
    /// Changed and not yet written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Dropped from the cache.
    pub evicted: u64,
    /// Dropped a short time ago.
    pub recently_evicted: u64,
}

/// cachestat(2) of `len` bytes at `offset`; `len` 0 means to the end.
///
/// # Errors
/// `ENOSYS` before Linux 6.5.
pub fn residency(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Residency> {
    /// The same number on every architecture, as for all calls since 424.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    let mut out = Residency::default();
    // SAFETY: the kernel reads two u64 from `range` and writes five to `out`, which has exactly these fields in its
    // layout; both live through the call.
    check(unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), &raw mut out, 0u32) })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn vectors_are_written_and_read_in_order() {
        let f = tempfile::tempfile().unwrap();
        let fd = f.as_fd();
        let n = write(fd, &[IoSlice::new(b"abc"), IoSlice::new(b"defg")], 5, Rwf::DSYNC).unwrap();
        assert_eq!(n, 7);
        let (mut a, mut b) = ([9u8; 6], [9u8; 10]);
        let n = read(fd, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 0, Rwf::NONE).unwrap();
        assert_eq!((n, &a[..], &b[..6]), (12, &b"\0\0\0\0\0a"[..], &b"bcdefg"[..]));
        truncate(fd, 3).unwrap();
        assert_eq!(read(fd, &mut [IoSliceMut::new(&mut a)], 3, Rwf::NONE).unwrap(), 0);
        assert!(truncate(fd, -1).is_err());
        allocate(fd, 0, 0, 8192).unwrap();
        fsync(fd).unwrap();
        fdatasync(fd).unwrap();
        syncfs(fd).unwrap();
        advise(fd, 0, 0, libc::POSIX_FADV_WILLNEED).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn more_buffers_than_a_call_takes_are_left_alone() {
        let f = tempfile::tempfile().unwrap();
        let bufs = vec![IoSlice::new(b"x"); BUFFERS_MAX + 5];
        assert_eq!(write(f.as_fd(), &bufs, 0, Rwf::NONE).unwrap(), BUFFERS_MAX);
    }

    #[test]
    fn written_pages_are_resident() {
        let f = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
        write(f.as_fd(), &[IoSlice::new(&[1; 8192])], 0, Rwf::NONE).unwrap();
        match residency(f.as_fd(), 0, 0) {
            Ok(r) => assert_eq!(r.cached, 2),
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOSYS)),
        }
    }
}

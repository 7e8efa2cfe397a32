//! Mode, owner, times, access checks; all of the object that a descriptor is, `O_PATH` included.

use crate::open::{FdTable, check};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets the permission bits (low 12 bits of `mode`).
///
/// # Errors
/// Those of fchmodat2(2): `EOPNOTSUPP` for symbolic links.
pub fn chmod(table: &FdTable, fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    /// Since Linux 6.6; the same number on every architecture.
    const SYS_FCHMODAT2: libc::c_long = 452;
    // SAFETY: a literal C string; touches no other memory.
    let r = check(unsafe {
        libc::syscall(SYS_FCHMODAT2, fd.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH)
    });
    match r {
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => table.with_entry(fd, |t, n| {
            // SAFETY: `n` is a C string that lives through the call.
            check(unsafe { libc::fchmodat(t, n.as_ptr(), mode, 0) }.into()).map(drop)
        }),
        r => r.map(drop),
    }
}

/// Sets owner and group; `None` leaves that one alone.
///
/// # Errors
/// Those of fchownat(2).
pub fn chown(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    const KEEP: u32 = u32::MAX;
    if uid == Some(KEEP) || gid == Some(KEEP) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a literal C string; touches no other memory.
    check(
        unsafe {
            libc::fchownat(
                fd.as_raw_fd(),
                c"".as_ptr(),
                uid.unwrap_or(KEEP),
                gid.unwrap_or(KEEP),
                libc::AT_EMPTY_PATH,
            )
        }
        .into(),
    )
    .map(drop)
}

/// One time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// Leave alone.
    Keep,
    /// The kernel's clock.
    Now,
    /// Seconds and nanoseconds since the epoch; `EINVAL` if the nanoseconds are 10^9 or more.
    At(i64, u32),
}

/// Sets access and modification time.
///
/// # Errors
/// Those of utimensat(2).
pub fn set_times(fd: BorrowedFd<'_>, atime: NewTime, mtime: NewTime) -> io::Result<()> {
    fn spec(t: NewTime) -> io::Result<libc::timespec> {
        let (tv_sec, tv_nsec) = match t {
            NewTime::Keep => (0, libc::UTIME_OMIT),
            NewTime::Now => (0, libc::UTIME_NOW),
            NewTime::At(s, ns) if ns < 1_000_000_000 => (s, i64::from(ns)),
            NewTime::At(..) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        Ok(libc::timespec { tv_sec, tv_nsec })
    }
    let times = [spec(atime)?, spec(mtime)?];
    // SAFETY: a literal C string and an array of two `timespec`, which live through the call.
    check(unsafe {
        libc::syscall(libc::SYS_utimensat, fd.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH)
    })
    .map(drop)
}

/// Whether the calling thread's file-system identity has all of the rights in `mode` (`R_OK | W_OK | X_OK`).
///
/// # Errors
/// Those of faccessat2(2): `EACCES`, or `EROFS`.
pub fn access(fd: BorrowedFd<'_>, mode: i32) -> io::Result<()> {
    // SAFETY: a literal C string; touches no other memory.
    check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EACCESS | libc::AT_EMPTY_PATH,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{open, stat};
    use std::os::fd::AsFd;

    #[test]
    fn attributes_of_a_path_descriptor_are_set() {
        let dir = tempfile::tempdir().unwrap();
        let d = open::directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        let table = FdTable::open().unwrap();
        std::fs::write(dir.path().join("f"), b"").unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("l")).unwrap();
        let f = open::at(d.as_fd(), b"f", libc::O_PATH | libc::O_NOFOLLOW, 0).unwrap();
        chmod(&table, f.as_fd(), 0o4751).unwrap();
        set_times(f.as_fd(), NewTime::At(-5, 7), NewTime::Keep).unwrap();
        let s = stat::of_fd(f.as_fd()).unwrap();
        assert_eq!((s.mode() & 0o7777, s.atime()), (0o4751, (-5, 7)));
        chown(f.as_fd(), Some(s.uid()), None).unwrap();
        access(f.as_fd(), libc::R_OK).unwrap();
        assert!(set_times(f.as_fd(), NewTime::At(0, 1_000_000_000), NewTime::Now).is_err());
        assert!(chown(f.as_fd(), Some(u32::MAX), None).is_err());

        let l = open::at(d.as_fd(), b"l", libc::O_PATH | libc::O_NOFOLLOW, 0).unwrap();
        assert!(chmod(&table, l.as_fd(), 0o600).is_err());
        set_times(l.as_fd(), NewTime::At(1, 0), NewTime::At(2, 0)).unwrap();
        assert_eq!(stat::of_fd(l.as_fd()).unwrap().mtime(), (2, 0));
        assert_eq!(stat::of_fd(f.as_fd()).unwrap().atime(), (-5, 7), "the link's target is untouched");
    }
}

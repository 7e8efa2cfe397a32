//! Opening below a directory, and opening anew what is already open.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// How [`beneath`] may resolve a path; see openat2(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resolve(u64);

impl Resolve {
    /// Any path.
    pub const ANY: Resolve = Resolve(0);
    /// The result stays below the directory, and no symbolic link, magic link or mount point is passed.
    pub const CONFINED: Resolve = Resolve(
        libc::RESOLVE_BENEATH
            | libc::RESOLVE_NO_SYMLINKS
            | libc::RESOLVE_NO_MAGICLINKS
            | libc::RESOLVE_NO_XDEV,
    );
    /// Like [`Resolve::CONFINED`], but `..` may be passed; mounts and links still may not.
    pub const SAME_MOUNT: Resolve =
        Resolve(libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_XDEV);
    /// Only what the kernel's caches know: `EAGAIN` where a device would have to be read.
    pub const CACHED: Resolve = Resolve(libc::RESOLVE_CACHED);

    /// Both restrictions.
    pub const fn and(self, other: Resolve) -> Resolve {
        Resolve(self.0 | other.0)
    }
}

/// Longest path that a door takes, without the NUL.
pub const PATH_MAX: usize = 4095;
/// Longest name of a directory entry.
pub const NAME_MAX: usize = 255;

/// Runs `f` with `bytes` as a C string in a buffer of `N` bytes on the stack.
fn with_c<const N: usize, R>(bytes: &[u8], f: impl FnOnce(&CStr) -> io::Result<R>) -> io::Result<R> {
    let mut buf = [MaybeUninit::<u8>::uninit(); N];
    let (name, rest) = buf
        .split_at_mut_checked(bytes.len())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?;
    let end = rest.first_mut().ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?;
    for (to, from) in name.iter_mut().zip(bytes) {
        to.write(*from);
    }
    end.write(0);
    // SAFETY: the first `len + 1` bytes of the buffer, which lives to the end of this function, were just written.
    let whole = unsafe { std::slice::from_raw_parts(buf.as_ptr().cast::<u8>(), bytes.len() + 1) };
    f(CStr::from_bytes_with_nul(whole).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?)
}

/// A name of at most [`NAME_MAX`] bytes: `ENAMETOOLONG` if longer, `EINVAL` if it holds a NUL.
pub(crate) fn with_name<R>(name: &[u8], f: impl FnOnce(&CStr) -> io::Result<R>) -> io::Result<R> {
    with_c::<{ NAME_MAX + 1 }, R>(name, f)
}

/// A path of at most [`PATH_MAX`] bytes; errors as [`with_name`].
pub(crate) fn with_path<R>(path: &[u8], f: impl FnOnce(&CStr) -> io::Result<R>) -> io::Result<R> {
    if path.len() <= NAME_MAX { with_name(path, f) } else { with_c::<{ PATH_MAX + 1 }, R>(path, f) }
}

/// The result of a raw system call.
pub(crate) fn check(r: libc::c_long) -> io::Result<libc::c_long> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            r => return r,
        }
    }
}

/// Takes ownership of the descriptor that a system call has just returned.
pub(crate) fn own(r: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(check(r)?).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just made this descriptor for this call; nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a directory by its path in the process's name space, for `*at` calls and `open_by_handle_at`.
///
/// # Errors
/// Those of openat(2).
pub fn directory(path: &[u8]) -> io::Result<OwnedFd> {
    const FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    with_path(path, |p| {
        // SAFETY: `p` is a C string that lives through the call.
        retry(|| own(unsafe { libc::openat(libc::AT_FDCWD, p.as_ptr(), FLAGS) }.into()))
    })
}

/// openat(2) of one name below `dir`; `O_CLOEXEC` is added. `mode` counts only with `O_CREAT`.
///
/// # Errors
/// Those of openat(2).
pub fn at(dir: BorrowedFd<'_>, name: &[u8], flags: i32, mode: u32) -> io::Result<OwnedFd> {
    with_name(name, |n| {
        retry(|| {
            // SAFETY: `n` is a C string and `dir` an open descriptor; both live through the call.
            own(unsafe { libc::openat(dir.as_raw_fd(), n.as_ptr(), flags | libc::O_CLOEXEC, mode) }.into())
        })
    })
}

/// openat2(2) of a path below `dir`; `O_CLOEXEC` is added.
///
/// # Errors
/// Those of openat2(2): `EXDEV` or `ELOOP` where `resolve` forbids a step, `EAGAIN` with [`Resolve::CACHED`] where
/// the caches do not suffice.
pub fn beneath(dir: BorrowedFd<'_>, path: &[u8], flags: i32, resolve: Resolve) -> io::Result<OwnedFd> {
    // SAFETY: `open_how` is plain integers; zeroes are its empty value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC) as u32);
    how.resolve = resolve.0;
    with_path(path, |p| {
        retry(|| {
            // SAFETY: `p` is a C string, `how` is a filled structure of the size given; both live through the call.
            own(unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    dir.as_raw_fd(),
                    p.as_ptr(),
                    &raw const how,
                    std::mem::size_of::<libc::open_how>(),
                )
            })
        })
    })
}

/// The process's table of open descriptors as a directory: through it an `O_PATH` descriptor is opened for reading
/// or writing, with the rights of the thread that asks.
#[derive(Debug)]
pub struct FdTable(OwnedFd);

impl FdTable {
    /// Opens the table.
    ///
    /// # Errors
    /// `ENOENT` if no procfs is mounted on /proc.
    pub fn open() -> io::Result<Self> {
        const FLAGS: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        retry(|| {
            // SAFETY: a literal C string.
            own(unsafe { libc::openat(libc::AT_FDCWD, c"/proc/self/fd".as_ptr(), FLAGS) }.into())
        })
        .map(FdTable)
    }

    /// Opens the object of `fd` anew with `flags`; checks permissions. `O_CLOEXEC` is added.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn reopen(&self, fd: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
        self.with_entry(fd, |table, n| {
            retry(|| {
                // SAFETY: `n` is a C string and `table` an open descriptor; both live through the call.
                own(unsafe { libc::openat(table, n.as_ptr(), flags | libc::O_CLOEXEC) }.into())
            })
        })
    }

    /// Runs `f` with the table's descriptor and the name of `fd` in it.
    pub(crate) fn with_entry<R>(
        &self,
        fd: BorrowedFd<'_>,
        f: impl FnOnce(i32, &CStr) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut digits = [0u8; 12];
        let mut at = digits.len() - 1;
        let mut n = fd.as_raw_fd().unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let name = CStr::from_bytes_with_nul(&digits[at..])
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        f(self.0.as_raw_fd(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn a_path_descriptor_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"abc").unwrap();
        let d = directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        let p = at(d.as_fd(), b"f", libc::O_PATH | libc::O_NOFOLLOW, 0).unwrap();
        let table = FdTable::open().unwrap();
        let f = table.reopen(p.as_fd(), libc::O_RDONLY).unwrap();
        let mut s = String::new();
        std::fs::File::from(f).read_to_string(&mut s).unwrap();
        assert_eq!(s, "abc");
    }

    #[test]
    fn nothing_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        let d = directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        for path in [&b".."[..], b"/etc", b"out/passwd"] {
            assert!(beneath(d.as_fd(), path, libc::O_PATH, Resolve::CONFINED).is_err());
        }
        assert!(beneath(d.as_fd(), b"out", libc::O_PATH | libc::O_NOFOLLOW, Resolve::CONFINED).is_ok());
        let e = beneath(d.as_fd(), b"never seen", libc::O_PATH, Resolve::CONFINED.and(Resolve::CACHED));
        let e = e.unwrap_err().raw_os_error();
        assert!(matches!(e, Some(libc::EAGAIN | libc::ENOENT)), "{e:?}");
    }

    #[test]
    fn names_at_the_edge() {
        let dir = tempfile::tempdir().unwrap();
        let d = directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        let create = libc::O_CREAT | libc::O_WRONLY;
        assert!(at(d.as_fd(), &[b'x'; 255], create, 0o600).is_ok());
        let long = at(d.as_fd(), &[b'x'; 256], create, 0o600).unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::ENAMETOOLONG));
        let nul = at(d.as_fd(), b"a\0b", create, 0o600).unwrap_err();
        assert_eq!(nul.raw_os_error(), Some(libc::EINVAL));
        assert!(at(d.as_fd(), &[0xff, 0xfe], create, 0o600).is_ok());
        let path = beneath(d.as_fd(), &[b'y'; PATH_MAX + 1], libc::O_PATH, Resolve::ANY).unwrap_err();
        assert_eq!(path.raw_os_error(), Some(libc::ENAMETOOLONG));
    }
}

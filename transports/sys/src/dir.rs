//! Directory entries: listing, making, linking, renaming, removing.

use crate::open::{FdTable, check, retry, with_name, with_path};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads entries of a directory from its position into `buf`; returns the bytes filled, 0 at the end. The position
/// moves on behind the last entry filled in. Parse them with [`Entries`].
///
/// # Errors
/// Those of getdents64(2): `EINVAL` if `buf` is too small for one entry, `ENOENT` if the directory was removed.
pub fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    let n = check(
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`, which lives through the call.
        unsafe { libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buf.as_mut_ptr(), buf.len()) },
    )?;
    Ok((n as usize).min(buf.len()))
}

/// Moves the position of a directory to a place that an entry named.
///
/// # Errors
/// `EINVAL` for a place that the file system does not know.
pub fn seek(fd: BorrowedFd<'_>, place: i64) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::lseek(fd.as_raw_fd(), place, libc::SEEK_SET) }).map(drop)
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number of the object; of a mount point, that of the directory below the mount.
    pub ino: u64,
    /// Place behind this entry, for [`seek`].
    pub next: i64,
    /// Type (`DT_*`), `DT_UNKNOWN` if the file system does not tell.
    pub kind: u8,
    /// Name.
    pub name: &'a CStr,
    /// Bytes that the entry takes in the buffer.
    pub len: usize,
}

/// The entries in a buffer that [`read`] has filled. Ends at the first thing that is no entry.
#[derive(Debug, Clone)]
pub struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// Entries in the filled part of a buffer.
    pub fn new(filled: &'a [u8]) -> Self {
        Entries(filled)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        // u64 ino, i64 place, u16 length of the record, u8 type, name with NUL
        let (ino, rest) = self.0.split_first_chunk::<8>()?;
        let (next, rest) = rest.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (kind, _) = rest.split_first()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let name = CStr::from_bytes_until_nul(self.0.get(19..len)?).ok()?;
        let entry =
            Entry { ino: u64::from_ne_bytes(*ino), next: i64::from_ne_bytes(*next), kind: *kind, name, len };
        self.0 = self.0.get(len..)?;
        Some(entry)
    }
}

/// Makes a directory.
///
/// # Errors
/// Those of mkdirat(2).
pub fn mkdir(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    with_name(name, |n| {
        // SAFETY: `n` is a C string that lives through the call.
        check(unsafe { libc::mkdirat(dir.as_raw_fd(), n.as_ptr(), mode) }.into()).map(drop)
    })
}

/// Makes a device, fifo or socket: `mode` holds type and permissions, `dev` major and minor number.
///
/// # Errors
/// Those of mknodat(2).
pub fn mknod(dir: BorrowedFd<'_>, name: &[u8], mode: u32, dev: (u32, u32)) -> io::Result<()> {
    with_name(name, |n| {
        // SAFETY: `n` is a C string that lives through the call.
        check(unsafe { libc::mknodat(dir.as_raw_fd(), n.as_ptr(), mode, libc::makedev(dev.0, dev.1)) }.into())
            .map(drop)
    })
}

/// Makes a symbolic link that holds `target`, at most [`crate::open::PATH_MAX`] bytes without NUL.
///
/// # Errors
/// Those of symlinkat(2).
pub fn symlink(target: &[u8], dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    with_path(target, |t| {
        with_name(name, |n| {
            // SAFETY: both are C strings that live through the call.
            check(unsafe { libc::symlinkat(t.as_ptr(), dir.as_raw_fd(), n.as_ptr()) }.into()).map(drop)
        })
    })
}

/// Adds the name `name` in `dir` for the object of `fd`. Needs no capability.
///
/// # Errors
/// Those of linkat(2).
pub fn link_fd(table: &FdTable, fd: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    table.with_entry(fd, |t, o| {
        with_name(name, |n| {
            // SAFETY: both are C strings, the descriptors are open; all live through the call.
            check(
                unsafe { libc::linkat(t, o.as_ptr(), dir.as_raw_fd(), n.as_ptr(), libc::AT_SYMLINK_FOLLOW) }
                    .into(),
            )
            .map(drop)
        })
    })
}

/// Adds the name `new` for what `old` names; a symbolic link is not followed.
///
/// # Errors
/// Those of linkat(2).
pub fn link(old_dir: BorrowedFd<'_>, old: &[u8], new_dir: BorrowedFd<'_>, new: &[u8]) -> io::Result<()> {
    with_name(old, |o| {
        with_name(new, |n| {
            // SAFETY: both are C strings that live through the call.
            check(
                unsafe { libc::linkat(old_dir.as_raw_fd(), o.as_ptr(), new_dir.as_raw_fd(), n.as_ptr(), 0) }
                    .into(),
            )
            .map(drop)
        })
    })
}

/// Removes a name that is not a directory.
///
/// # Errors
/// Those of unlinkat(2).
pub fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    remove(dir, name, 0)
}

/// Removes an empty directory.
///
/// # Errors
/// Those of unlinkat(2).
pub fn rmdir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    remove(dir, name, libc::AT_REMOVEDIR)
}

fn remove(dir: BorrowedFd<'_>, name: &[u8], flags: i32) -> io::Result<()> {
    with_name(name, |n| {
        // SAFETY: `n` is a C string that lives through the call.
        check(unsafe { libc::unlinkat(dir.as_raw_fd(), n.as_ptr(), flags) }.into()).map(drop)
    })
}

/// Renames; `flags` are those of renameat2(2).
///
/// # Errors
/// Those of renameat2(2).
pub fn rename(
    old_dir: BorrowedFd<'_>,
    old: &[u8],
    new_dir: BorrowedFd<'_>,
    new: &[u8],
    flags: u32,
) -> io::Result<()> {
    with_name(old, |o| {
        with_name(new, |n| {
            // SAFETY: both are C strings that live through the call.
            check(unsafe {
                libc::syscall(
                    libc::SYS_renameat2,
                    old_dir.as_raw_fd(),
                    o.as_ptr(),
                    new_dir.as_raw_fd(),
                    n.as_ptr(),
                    flags,
                )
            })
            .map(drop)
        })
    })
}

/// Copies the target of the symbolic link that `fd` (opened with `O_PATH | O_NOFOLLOW`) is; returns the length,
/// cut off at `buf.len()`.
///
/// # Errors
/// `ENOENT` or `EINVAL` if `fd` is no symbolic link.
pub fn readlink(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    let n = retry(|| {
        // SAFETY: a literal C string; the kernel writes at most `buf.len()` bytes into `buf`.
        check(unsafe { libc::readlinkat(fd.as_raw_fd(), c"".as_ptr(), buf.as_mut_ptr().cast(), buf.len()) }
            as i64)
    })?;
    Ok((n as usize).min(buf.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use std::collections::BTreeSet;
    use std::os::fd::AsFd;

    #[test]
    fn a_listing_can_be_resumed_at_every_entry() {
        let dir = tempfile::tempdir().unwrap();
        let d = open::directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        for i in 0..200 {
            mkdir(d.as_fd(), format!("n{i}").as_bytes(), 0o755).unwrap();
        }
        let list = |from: Option<i64>| {
            let fd = open::at(d.as_fd(), b".", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
            if let Some(p) = from {
                seek(fd.as_fd(), p).unwrap();
            }
            let mut buf = [0u8; 512];
            let mut all = Vec::new();
            loop {
                let n = read(fd.as_fd(), &mut buf).unwrap();
                if n == 0 {
                    break all;
                }
                all.extend(Entries::new(&buf[..n]).map(|e| (e.name.to_bytes().to_vec(), e.next)));
            }
        };
        let all = list(None);
        assert_eq!(all.iter().map(|e| &e.0).collect::<BTreeSet<_>>().len(), 202);
        assert_eq!(all.len(), 202);
        for (i, e) in all.iter().enumerate().step_by(17) {
            assert_eq!(list(Some(e.1)), all[i + 1..]);
        }
    }

    #[test]
    fn broken_buffers_end_the_listing() {
        for len in 0..64 {
            assert!(Entries::new(&vec![0u8; len]).next().is_none());
            assert!(Entries::new(&vec![0xffu8; len]).next().is_none());
        }
    }

    #[test]
    fn names_are_made_linked_renamed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let d = open::directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        let d = d.as_fd();
        let table = FdTable::open().unwrap();
        let target = [&b"\xff \n"[..], &[b'x'; 900]].concat();
        symlink(&target, d, b"l").unwrap();
        let l = open::at(d, b"l", libc::O_PATH | libc::O_NOFOLLOW, 0).unwrap();
        let mut buf = [0u8; 4096];
        let n = readlink(l.as_fd(), &mut buf).unwrap();
        assert_eq!(buf[..n], target);
        link_fd(&table, l.as_fd(), d, b"l2").unwrap();
        assert_eq!(crate::stat::at(d, b"l2").unwrap().nlink(), 2);
        mknod(d, b"p", libc::S_IFIFO | 0o600, (0, 0)).unwrap();
        link(d, b"p", d, b"p2").unwrap();
        rename(d, b"p2", d, b"q", libc::RENAME_NOREPLACE).unwrap();
        assert!(rename(d, b"q", d, b"l", libc::RENAME_NOREPLACE).is_err());
        assert!(readlink(d, &mut buf).is_err());
        mkdir(d, b"s", 0o700).unwrap();
        assert_eq!(unlink(d, b"s").unwrap_err().raw_os_error(), Some(libc::EISDIR));
        assert_eq!(rmdir(d, b"p").unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
        rmdir(d, b"s").unwrap();
        for n in [&b"l"[..], b"l2", b"p", b"q"] {
            unlink(d, n).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

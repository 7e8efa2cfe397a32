//! Attributes of objects and of file systems.

use crate::open::{check, with_name};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Attributes of an object as statx(2) tells them.
#[derive(Clone, Copy)]
pub struct Stat(libc::statx);

/// A time as seconds and nanoseconds since the epoch.
pub type Timestamp = (i64, u32);

impl Stat {
    /// Type and permission bits.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.stx_mode)
    }

    /// Type bits of the mode (`S_IFMT`).
    pub fn format(&self) -> u32 {
        self.mode() & libc::S_IFMT
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.format() == libc::S_IFDIR
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.format() == libc::S_IFREG
    }

    /// Hard links.
    pub fn nlink(&self) -> u32 {
        self.0.stx_nlink
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.stx_gid
    }

    /// Number of the object in its file system.
    pub fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// Storage used, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }

    /// Major and minor number of a device file.
    pub fn rdev(&self) -> (u32, u32) {
        (self.0.stx_rdev_major, self.0.stx_rdev_minor)
    }

    /// Major and minor number of the file system's device.
    pub fn dev(&self) -> (u32, u32) {
        (self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// Last access.
    pub fn atime(&self) -> Timestamp {
        (self.0.stx_atime.tv_sec, self.0.stx_atime.tv_nsec)
    }

    /// Last modification.
    pub fn mtime(&self) -> Timestamp {
        (self.0.stx_mtime.tv_sec, self.0.stx_mtime.tv_nsec)
    }

    /// Last change.
    pub fn ctime(&self) -> Timestamp {
        (self.0.stx_ctime.tv_sec, self.0.stx_ctime.tv_nsec)
    }

    /// Creation, where the file system keeps it.
    pub fn btime(&self) -> Option<Timestamp> {
        (self.0.stx_mask & libc::STATX_BTIME != 0)
            .then_some((self.0.stx_btime.tv_sec, self.0.stx_btime.tv_nsec))
    }

    /// Its contents are mapped from the device, without a page cache (`STATX_ATTR_DAX`).
    pub fn is_dax(&self) -> bool {
        self.0.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0
    }

    /// Id of the mount (as in /proc/self/mountinfo); `None` before Linux 5.8.
    pub fn mount_id(&self) -> Option<u64> {
        (self.0.stx_mask & libc::STATX_MNT_ID != 0).then_some(self.0.stx_mnt_id)
    }
}

impl std::fmt::Debug for Stat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Stat {{ ino: {}, mode: {:o}, nlink: {}, size: {} }}",
            self.ino(),
            self.mode(),
            self.nlink(),
            self.size()
        )
    }
}

/// Attributes of an open object, `O_PATH` too. Needs no permission.
///
/// # Errors
/// Those of statx(2).
#[inline]
pub fn of_fd(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    get(fd, c"", libc::AT_EMPTY_PATH)
}

/// Attributes of `name` in `dir`; neither symbolic links nor automounts are followed. Needs search permission.
///
/// # Errors
/// Those of statx(2).
#[inline]
pub fn at(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
    with_name(name, |n| get(dir, n, libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT))
}

/// As [`at`], for a name that is a C string already.
///
/// # Errors
/// Those of statx(2).
#[inline]
pub fn at_c(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Stat> {
    get(dir, name, libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT)
}

#[inline]
fn get(dir: BorrowedFd<'_>, name: &CStr, flags: i32) -> io::Result<Stat> {
    masked(dir, name, flags, libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID)
}

#[inline]
fn masked(dir: BorrowedFd<'_>, name: &CStr, flags: i32, want: u32) -> io::Result<Stat> {
    let mut out = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: `name` is a C string and `out` has room for the structure; both live through the call.
    check(unsafe {
        libc::syscall(libc::SYS_statx, dir.as_raw_fd(), name.as_ptr(), flags, want, out.as_mut_ptr())
    })?;
    // SAFETY: the call succeeded, so the kernel has filled the whole structure.
    Ok(Stat(unsafe { out.assume_init() }))
}

/// Of which memory addresses and file offsets must be multiples for `O_DIRECT` on this file, in bytes. `None` if the file
/// has no direct I/O, or the kernel (before Linux 6.1) or file system does not tell.
///
/// # Errors
/// Those of statx(2).
pub fn direct_align(fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    const STATX_DIOALIGN: u32 = 0x2000;
    let st = masked(fd, c"", libc::AT_EMPTY_PATH, STATX_DIOALIGN)?.0;
    let (mem, offset) = (st.stx_dio_mem_align, st.stx_dio_offset_align);
    Ok((st.stx_mask & STATX_DIOALIGN != 0 && mem != 0 && offset != 0).then_some((mem, offset)))
}

/// Space and limits of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// Magic number of the file system's type.
    pub magic: u32,
    /// Bytes a block.
    pub block: u64,
    /// Blocks: total, free, free for users without privilege.
    pub blocks: (u64, u64, u64),
    /// Object slots: total, free.
    pub files: (u64, u64),
    /// Longest name in bytes.
    pub name_max: u32,
    /// Identity of the file system; 0 where it has none.
    pub fsid: u64,
}

/// What fstatfs(2) tells; works on `O_PATH` descriptors.
///
/// # Errors
/// Those of fstatfs(2).
pub fn fs(fd: BorrowedFd<'_>) -> io::Result<FsInfo> {
    let mut out = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `out` has room for the structure and lives through the call.
    check(unsafe { libc::fstatfs(fd.as_raw_fd(), out.as_mut_ptr()) }.into())?;
    // SAFETY: the call succeeded, so the structure is filled.
    let s = unsafe { out.assume_init() };
    // SAFETY: `fsid_t` is two plain ints, whose fields libc keeps private; any bits are a valid u64.
    let fsid: u64 = unsafe { std::mem::transmute::<libc::fsid_t, u64>(s.f_fsid) };
    // The field types differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    Ok(FsInfo {
        magic: s.f_type as u32,
        block: if s.f_frsize > 0 { s.f_frsize as u64 } else { s.f_bsize as u64 },
        blocks: (s.f_blocks as u64, s.f_bfree as u64, s.f_bavail as u64),
        files: (s.f_files as u64, s.f_ffree as u64),
        name_max: s.f_namelen as u32,
        fsid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn attributes_agree_with_the_standard_library() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"hello").unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("l")).unwrap();
        let d = open::directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        let s = at(d.as_fd(), b"f").unwrap();
        let m = std::fs::metadata(dir.path().join("f")).unwrap();
        assert_eq!((s.ino(), s.size(), s.mode(), s.nlink()), (m.ino(), 5, m.mode(), 1));
        assert_eq!(s.mtime(), (m.mtime(), u32::try_from(m.mtime_nsec()).unwrap()));
        assert!(s.is_file() && !s.is_dir());
        assert_eq!(at(d.as_fd(), b"l").unwrap().format(), libc::S_IFLNK);
        assert!(of_fd(d.as_fd()).unwrap().is_dir());
        assert_eq!(at(d.as_fd(), b"none").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let f = fs(d.as_fd()).unwrap();
        assert!(f.block > 0 && f.name_max >= 255);
    }
}

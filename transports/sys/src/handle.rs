//! Kernel file handles: names for objects that outlive their path and the process.

use crate::open::{check, own, retry, with_name};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Longest handle of any file system, in bytes.
pub const KERNEL_HANDLE_MAX: usize = 128;

/// `AT_HANDLE_FID`: the handle only identifies and need not be openable (Linux 6.5).
const IDENTIFY: i32 = 0x200;

/// A kernel handle; lives on the stack. The layout is that of the kernel's `struct file_handle` with room for the
/// longest.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelHandle {
    len: u32,
    kind: i32,
    bytes: [u8; KERNEL_HANDLE_MAX],
}

impl KernelHandle {
    /// A handle from its parts; `None` if there are more than [`KERNEL_HANDLE_MAX`] bytes.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut h =
            KernelHandle { len: u32::try_from(bytes.len()).ok()?, kind, bytes: [0; KERNEL_HANDLE_MAX] };
        h.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(h)
    }

    /// The file system's type of handle.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The file system's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(KERNEL_HANDLE_MAX)]
    }
}

impl PartialEq for KernelHandle {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.bytes() == other.bytes()
    }
}

impl Eq for KernelHandle {}

impl std::fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.kind)?;
        self.bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The handle of `name` in `dir` (a symbolic link is not followed), and the id of the mount it is on. Needs search
/// permission on `dir`.
///
/// # Errors
/// Those of name_to_handle_at(2): `EOPNOTSUPP` if the file system has no handles.
pub fn by_name(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<(KernelHandle, i32)> {
    with_name(name, |n| get(dir, n, 0))
}

/// The handle of an open object, and the id of the mount it was opened on. Needs no permission.
///
/// # Errors
/// As [`by_name`].
pub fn of_fd(fd: BorrowedFd<'_>) -> io::Result<(KernelHandle, i32)> {
    get(fd, c"", libc::AT_EMPTY_PATH)
}

/// Bytes that identify an open object, also on file systems whose handles cannot be opened (Linux 6.5).
///
/// # Errors
/// `EINVAL` on older kernels.
pub fn identify(fd: BorrowedFd<'_>) -> io::Result<(KernelHandle, i32)> {
    get(fd, c"", libc::AT_EMPTY_PATH | IDENTIFY)
}

fn get(dir: BorrowedFd<'_>, name: &CStr, flags: i32) -> io::Result<(KernelHandle, i32)> {
    let mut h = KernelHandle { len: KERNEL_HANDLE_MAX as u32, kind: 0, bytes: [0; KERNEL_HANDLE_MAX] };
    let mut mount = 0i32;
    // SAFETY: `h` has the layout of `struct file_handle` and says how many bytes follow its head; the kernel writes
    // no more than that, and one int to `mount`. All pointers live through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut h,
            &raw mut mount,
            flags,
        )
    })?;
    Ok((h, mount))
}

/// Opens the object of a handle on the file system of `mount` (not an `O_PATH` descriptor). Needs
/// `CAP_DAC_READ_SEARCH`. `O_CLOEXEC` is added.
///
/// # Errors
/// Those of open_by_handle_at(2): `ESTALE` if the object is gone, `EPERM` without the capability.
pub fn open(mount: BorrowedFd<'_>, handle: &KernelHandle, flags: i32) -> io::Result<OwnedFd> {
    let mut h = *handle;
    retry(|| {
        // SAFETY: `h` has the layout of `struct file_handle` with `len` bytes of its array filled; the kernel reads
        // those only, and `h` lives through the call.
        own(unsafe {
            libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut h, flags | libc::O_CLOEXEC)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use std::os::fd::AsFd;

    #[test]
    fn a_handle_names_the_object_not_its_path() {
        for base in ["/tmp", "/dev/shm"] {
            let Ok(dir) = tempfile::tempdir_in(base) else { continue };
            let d = open::directory(dir.path().as_os_str().as_encoded_bytes()).unwrap();
            std::fs::write(dir.path().join("a"), b"1").unwrap();
            let Ok((h, mount)) = by_name(d.as_fd(), b"a") else {
                eprintln!("SKIPPED: {base} has no handles");
                continue;
            };
            assert_eq!(of_fd(d.as_fd()).unwrap().1, mount);
            std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
            let same = by_name(d.as_fd(), b"b").unwrap().0;
            assert_eq!(same, h);
            assert_eq!(KernelHandle::new(h.kind(), h.bytes()), Some(h));
            match open(d.as_fd(), &h, libc::O_PATH) {
                Ok(fd) => assert_eq!(of_fd(fd.as_fd()).unwrap().0, h),
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                    eprintln!("SKIPPED: opening by handle needs CAP_DAC_READ_SEARCH");
                    continue;
                }
                Err(e) => panic!("{e}"),
            }
            std::fs::remove_file(dir.path().join("b")).unwrap();
            let gone = open(d.as_fd(), &h, libc::O_PATH).unwrap_err();
            assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
        }
    }

    #[test]
    fn too_many_bytes_are_no_handle() {
        assert!(KernelHandle::new(1, &[0; KERNEL_HANDLE_MAX]).is_some());
        assert!(KernelHandle::new(1, &[0; KERNEL_HANDLE_MAX + 1]).is_none());
    }
}

//! What a file system can answer besides a result.

/// Result of a file-system operation.
pub type VfsResult<T> = Result<T, VfsError>;

/// Failure of a file-system operation, in the terms that NFS versions share; each version maps it to its own status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum VfsError {
    #[error("operation not permitted: the caller is neither owner nor privileged")]
    Perm,
    #[error("no such file or directory")]
    NoEnt,
    #[error("input/output error of the device")]
    Io,
    #[error("no such device")]
    NxIo,
    #[error("permission denied")]
    Acces,
    #[error("file exists")]
    Exist,
    #[error("names are on different file systems")]
    XDev,
    #[error("no such device type")]
    NoDev,
    #[error("not a directory")]
    NotDir,
    #[error("is a directory")]
    IsDir,
    #[error("invalid argument")]
    Inval,
    #[error("file too large")]
    FBig,
    #[error("no space left on the device")]
    NoSpc,
    #[error("file system is read-only")]
    RoFs,
    #[error("too many hard links")]
    MLink,
    #[error("name too long")]
    NameTooLong,
    #[error("directory not empty")]
    NotEmpty,
    #[error("disk quota exceeded")]
    DQuot,
    #[error("the object is gone")]
    Stale,
    #[error("handle was never issued here")]
    BadHandle,
    #[error("guard time does not match")]
    NotSync,
    #[error("directory position cannot be resumed")]
    BadCookie,
    #[error("not supported by this file system")]
    NotSupp,
    #[error("file type not supported for this call")]
    BadType,
    #[error("temporarily out of resources; the client should try again")]
    Delay,
    #[error("server fault")]
    Fault,
    /// Non-blocking mode only: nothing was changed; run the call again in blocking mode.
    #[error("the operation would block")]
    WouldBlock,
}

impl VfsError {
    /// Maps an errno of a system call on an object below the export. `EAGAIN` is [`VfsError::WouldBlock`].
    pub fn from_errno(e: i32) -> Self {
        match e {
            libc::EPERM => VfsError::Perm,
            libc::ENOENT => VfsError::NoEnt,
            libc::EIO => VfsError::Io,
            libc::ENXIO => VfsError::NxIo,
            libc::EACCES => VfsError::Acces,
            libc::EEXIST => VfsError::Exist,
            libc::EXDEV => VfsError::XDev,
            libc::ENODEV => VfsError::NoDev,
            libc::ENOTDIR => VfsError::NotDir,
            libc::EISDIR => VfsError::IsDir,
            libc::EINVAL => VfsError::Inval,
            libc::EFBIG | libc::EOVERFLOW => VfsError::FBig,
            libc::ENOSPC => VfsError::NoSpc,
            libc::EROFS => VfsError::RoFs,
            libc::EMLINK => VfsError::MLink,
            libc::ENAMETOOLONG => VfsError::NameTooLong,
            libc::ENOTEMPTY => VfsError::NotEmpty,
            libc::EDQUOT => VfsError::DQuot,
            libc::ESTALE => VfsError::Stale,
            libc::ELOOP => VfsError::Acces,
            libc::ENOSYS | libc::EOPNOTSUPP => VfsError::NotSupp,
            libc::EAGAIN => VfsError::WouldBlock,
            libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EBUSY | libc::ETXTBSY => VfsError::Delay,
            _ => VfsError::Io,
        }
    }
}

impl From<std::io::Error> for VfsError {
    fn from(e: std::io::Error) -> Self {
        match e.raw_os_error() {
            Some(n) => VfsError::from_errno(n),
            None => VfsError::Io,
        }
    }
}

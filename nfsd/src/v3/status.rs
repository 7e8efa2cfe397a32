//! Failures and their numbers.

use crate::context::Denied;
use crate::proto::nfs3::{NFSPROC3_READLINK, nfsstat3};
use crate::vfs::VfsError;
use sunrpc::msg::AuthStat;
use sunrpc::svc::RpcError;
use sunrpc::xdr::XdrError;

/// Why a procedure has no result.
#[derive(Debug)]
pub(super) enum Fail {
    /// It did not run, or could not answer in its own terms.
    Rpc(RpcError),
    /// The file system's answer.
    Vfs(VfsError),
    /// Its own.
    Status(nfsstat3),
}

impl From<RpcError> for Fail {
    fn from(e: RpcError) -> Self {
        Fail::Rpc(e)
    }
}

impl From<VfsError> for Fail {
    fn from(e: VfsError) -> Self {
        Fail::Vfs(e)
    }
}

impl From<nfsstat3> for Fail {
    fn from(s: nfsstat3) -> Self {
        Fail::Status(s)
    }
}

/// Results that do not fit: decoding errors are told apart where arguments are read.
impl From<XdrError> for Fail {
    fn from(_: XdrError) -> Self {
        Fail::Rpc(RpcError::SystemErr)
    }
}

impl From<Denied> for Fail {
    fn from(d: Denied) -> Self {
        match d {
            Denied::BadHandle => nfsstat3::NFS3ERR_BADHANDLE.into(),
            Denied::Stale => nfsstat3::NFS3ERR_STALE.into(),
            Denied::Client => nfsstat3::NFS3ERR_ACCES.into(),
            Denied::Flavor => RpcError::Auth(AuthStat::TooWeak).into(),
            Denied::Vfs(e) => e.into(),
        }
    }
}

/// The status of a file system's answer, as procedure `proc` may give it.
pub(super) fn of(e: VfsError, proc: u32) -> nfsstat3 {
    use nfsstat3::*;
    match e {
        VfsError::Perm => NFS3ERR_PERM,
        VfsError::NoEnt => NFS3ERR_NOENT,
        VfsError::Io => NFS3ERR_IO,
        VfsError::NxIo => NFS3ERR_NXIO,
        VfsError::Acces => NFS3ERR_ACCES,
        VfsError::Exist => NFS3ERR_EXIST,
        VfsError::XDev => NFS3ERR_XDEV,
        VfsError::NoDev => NFS3ERR_NODEV,
        VfsError::NotDir => NFS3ERR_NOTDIR,
        VfsError::IsDir => NFS3ERR_ISDIR,
        // READLINK of what is no link (RFC 1813 section 3.3.5).
        VfsError::BadType if proc == NFSPROC3_READLINK => NFS3ERR_INVAL,
        VfsError::Inval => NFS3ERR_INVAL,
        VfsError::FBig => NFS3ERR_FBIG,
        VfsError::NoSpc => NFS3ERR_NOSPC,
        VfsError::RoFs => NFS3ERR_ROFS,
        VfsError::MLink => NFS3ERR_MLINK,
        VfsError::NameTooLong => NFS3ERR_NAMETOOLONG,
        VfsError::NotEmpty => NFS3ERR_NOTEMPTY,
        VfsError::DQuot => NFS3ERR_DQUOT,
        VfsError::Stale => NFS3ERR_STALE,
        VfsError::BadHandle => NFS3ERR_BADHANDLE,
        VfsError::NotSync => NFS3ERR_NOT_SYNC,
        VfsError::BadCookie => NFS3ERR_BAD_COOKIE,
        VfsError::NotSupp => NFS3ERR_NOTSUPP,
        VfsError::BadType => NFS3ERR_BADTYPE,
        VfsError::Delay | VfsError::WouldBlock => NFS3ERR_JUKEBOX,
        VfsError::Fault => NFS3ERR_SERVERFAULT,
    }
}

//! Failures and their numbers.

use crate::context::Denied;
use crate::proto::nfs3::*;
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

/// The status of a file system's answer, as procedure `proc` may give it: as it is, or the nearest that clients expect
/// from that procedure.
pub(super) fn of(e: VfsError, proc: u32) -> nfsstat3 {
    use nfsstat3::*;
    let exact = match e {
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
    };
    let gives = GIVES.get(proc as usize).copied().unwrap_or(ALWAYS);
    let near: &[nfsstat3] = match exact {
        s if gives & bit(s) != 0 => return s,
        // A handle is all that the caller gave.
        NFS3ERR_NOENT => &[NFS3ERR_STALE],
        // The file system cannot have such a name (section 3.2).
        NFS3ERR_INVAL if matches!(proc, NFSPROC3_LOOKUP | NFSPROC3_REMOVE) => &[NFS3ERR_ACCES],
        NFS3ERR_PERM | NFS3ERR_XDEV | NFS3ERR_ROFS => &[NFS3ERR_ACCES],
        // An object of the wrong type is an invalid argument, and so is what an object of its type cannot have.
        NFS3ERR_ISDIR | NFS3ERR_NOTDIR | NFS3ERR_NOTSUPP | NFS3ERR_BADTYPE => &[NFS3ERR_INVAL],
        _ => &[],
    };
    let last = [NFS3ERR_IO, NFS3ERR_SERVERFAULT];
    near.iter().chain(&last).copied().find(|s| gives & bit(*s) != 0).unwrap_or(NFS3ERR_SERVERFAULT)
}

/// A status as a bit: those of errno first, the protocol's own behind them.
const fn bit(s: nfsstat3) -> u128 {
    let n = s as u32;
    1 << if n < 100 { n } else { n - 9_900 }
}

const fn all(list: &[nfsstat3]) -> u128 {
    let (mut set, mut rest) = (0, list);
    while let [s, more @ ..] = rest {
        set |= bit(*s);
        rest = more;
    }
    set
}

/// What every procedure can answer.
const ALWAYS: u128 = {
    use nfsstat3::*;
    // NFS3ERR_JUKEBOX is in no list, and meant for all (section 2.6).
    all(&[NFS3ERR_STALE, NFS3ERR_BADHANDLE, NFS3ERR_SERVERFAULT, NFS3ERR_JUKEBOX])
};

/// What each procedure can answer: its list in RFC 1813 section 3.3, and what `docs/decisions.md` adds because section
/// 2.6 has a status for just that case.
const GIVES: [u128; 22] = {
    use nfsstat3::*;
    let io = ALWAYS | all(&[NFS3ERR_IO]);
    let object = io | all(&[NFS3ERR_ACCES]);
    let in_dir = object | all(&[NFS3ERR_NOTDIR, NFS3ERR_NAMETOOLONG]);
    let space = all(&[NFS3ERR_NOSPC, NFS3ERR_DQUOT]);
    let change = space | all(&[NFS3ERR_PERM, NFS3ERR_ROFS]);
    let make = in_dir | change | all(&[NFS3ERR_EXIST, NFS3ERR_NOTSUPP, NFS3ERR_INVAL]);
    let take = in_dir | change | all(&[NFS3ERR_NOENT]);
    let list = object | all(&[NFS3ERR_NOTDIR, NFS3ERR_BAD_COOKIE, NFS3ERR_TOOSMALL]);
    let about = ALWAYS | all(&[NFS3ERR_ACCES]);
    [
        0,
        object,
        object | change | all(&[NFS3ERR_INVAL, NFS3ERR_NOT_SYNC, NFS3ERR_FBIG]),
        in_dir | all(&[NFS3ERR_NOENT]),
        object,
        object | all(&[NFS3ERR_INVAL, NFS3ERR_NOTSUPP]),
        object | all(&[NFS3ERR_NXIO, NFS3ERR_INVAL]),
        object | change | all(&[NFS3ERR_FBIG, NFS3ERR_INVAL]),
        make | all(&[NFS3ERR_FBIG]),
        make | all(&[NFS3ERR_MLINK]),
        make,
        make | all(&[NFS3ERR_BADTYPE]),
        take | all(&[NFS3ERR_ISDIR]),
        take | all(&[NFS3ERR_INVAL, NFS3ERR_EXIST, NFS3ERR_NOTEMPTY, NFS3ERR_NOTSUPP]),
        make | take | all(&[NFS3ERR_XDEV, NFS3ERR_ISDIR, NFS3ERR_MLINK, NFS3ERR_NOTEMPTY]),
        make | all(&[NFS3ERR_XDEV, NFS3ERR_MLINK]),
        list,
        list | all(&[NFS3ERR_NOTSUPP]),
        object,
        about,
        about,
        object | space | all(&[NFS3ERR_ROFS, NFS3ERR_INVAL]),
    ]
};

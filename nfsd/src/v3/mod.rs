//! NFS version 3 (RFC 1813).
//!
//! | file | its part |
//! |---|---|
//! | `status` | failures and their numbers |
//! | `wire` | attributes and other pieces of results |
//! | `attrs` | GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF |
//! | `names` | LOOKUP, READLINK, CREATE ... LINK |
//! | `data` | READ, WRITE, COMMIT |
//! | `failure` | what follows the status of a failure |
//! | `listing` | READDIR, READDIRPLUS |

mod attrs;
mod data;
mod failure;
mod listing;
mod names;
mod status;
mod wire;

use crate::context::{Context, Shared};
use crate::proto::nfs3::*;
use crate::vfs::{VfsError, Work};
use status::Fail;
use std::sync::Arc;
use sunrpc::page::PageWriter;
use sunrpc::svc::{Call, Dispatch, Flow, ProcInfo, Program, RpcError, VersionInfo};
use sunrpc::xdr::{Decode, Decoder};
use sunrpc::xprt::PeerAddr;

/// Largest result besides bulk data, in bytes: a handle, attributes of object and directory, and change.
const SMALL: u32 = 512;
const BULK: u32 = NFS3_IOMAX + SMALL;
/// Longest symbolic link target handed out.
const LINK_MAX: usize = 4096;

const PROCS: &[ProcInfo] = &[
    ProcInfo::new("NULL", 0),
    ProcInfo::new("GETATTR", SMALL),
    ProcInfo::new("SETATTR", SMALL).once(),
    ProcInfo::new("LOOKUP", SMALL),
    ProcInfo::new("ACCESS", SMALL),
    ProcInfo::new("READLINK", LINK_MAX as u32 + SMALL),
    ProcInfo::new("READ", BULK),
    ProcInfo::new("WRITE", SMALL),
    ProcInfo::new("CREATE", SMALL).once(),
    ProcInfo::new("MKDIR", SMALL).once(),
    ProcInfo::new("SYMLINK", SMALL).once(),
    ProcInfo::new("MKNOD", SMALL).once(),
    ProcInfo::new("REMOVE", SMALL).once(),
    ProcInfo::new("RMDIR", SMALL).once(),
    ProcInfo::new("RENAME", SMALL).once(),
    ProcInfo::new("LINK", SMALL).once(),
    ProcInfo::new("READDIR", BULK),
    ProcInfo::new("READDIRPLUS", BULK),
    ProcInfo::new("FSSTAT", SMALL),
    ProcInfo::new("FSINFO", SMALL),
    ProcInfo::new("PATHCONF", SMALL),
    ProcInfo::new("COMMIT", SMALL),
];

/// The program.
pub struct Nfs3 {
    shared: Arc<Shared>,
}

impl Nfs3 {
    /// Over the exports in `shared`.
    pub fn new(shared: Arc<Shared>) -> Self {
        Nfs3 { shared }
    }
}

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        NFS_PROGRAM
    }

    fn name(&self) -> &'static str {
        "nfs"
    }

    fn versions(&self) -> &[VersionInfo] {
        const VERSIONS: &[VersionInfo] = &[VersionInfo { vers: NFS_V3, procs: PROCS }];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(Worker { ctx: Context::new(self.shared.clone()) }))
    }

    fn admits(&self, peer: &PeerAddr) -> bool {
        self.shared.exports.load().admits_any(peer)
    }

    fn bulk_at(&self, _vers: u32, proc: u32, args: &mut Decoder<'_>) -> Option<usize> {
        if proc == NFSPROC3_WRITE { data::write_bulk(args).ok() } else { None }
    }
}

struct Worker {
    ctx: Context,
}

/// The arguments of a call: all of them, and nothing after them.
fn args<'a, T: Decode<'a>>(d: &mut Decoder<'a>) -> Result<T, Fail> {
    let v = T::decode(d).map_err(RpcError::GarbageArgs)?;
    d.finish().map_err(RpcError::GarbageArgs)?;
    Ok(v)
}

impl Worker {
    fn run(&mut self, call: &Call<'_>, d: &mut Decoder<'_>, out: &mut PageWriter<'_>) -> Result<(), Fail> {
        let c = &mut self.ctx;
        match call.proc {
            NFSPROC3_NULL => Ok(d.finish().map_err(RpcError::GarbageArgs)?),
            NFSPROC3_GETATTR => attrs::getattr(c, call, args(d)?, out),
            NFSPROC3_SETATTR => attrs::setattr(c, call, args(d)?, out),
            NFSPROC3_LOOKUP => names::lookup(c, call, args(d)?, out),
            NFSPROC3_ACCESS => attrs::access(c, call, args(d)?, out),
            NFSPROC3_READLINK => names::readlink(c, call, args(d)?, out),
            NFSPROC3_READ => data::read(c, call, args(d)?, out),
            NFSPROC3_WRITE => data::write(c, call, args(d)?, out),
            NFSPROC3_CREATE => names::create(c, call, args(d)?, out),
            NFSPROC3_MKDIR => names::mkdir(c, call, args(d)?, out),
            NFSPROC3_SYMLINK => names::symlink(c, call, args(d)?, out),
            NFSPROC3_MKNOD => names::mknod(c, call, args(d)?, out),
            NFSPROC3_REMOVE => names::remove(c, call, args::<REMOVE3argsRef<'_>>(d)?.object, out),
            NFSPROC3_RMDIR => names::rmdir(c, call, args::<RMDIR3argsRef<'_>>(d)?.object, out),
            NFSPROC3_RENAME => names::rename(c, call, args(d)?, out),
            NFSPROC3_LINK => names::link(c, call, args(d)?, out),
            NFSPROC3_READDIR => listing::readdir(c, call, args(d)?, out),
            NFSPROC3_READDIRPLUS => listing::readdirplus(c, call, args(d)?, out),
            NFSPROC3_FSSTAT => attrs::fsstat(c, call, args::<FSSTAT3argsRef<'_>>(d)?.fsroot, out),
            NFSPROC3_FSINFO => attrs::fsinfo(c, call, args::<FSINFO3argsRef<'_>>(d)?.fsroot, out),
            NFSPROC3_PATHCONF => attrs::pathconf(c, call, args::<PATHCONF3argsRef<'_>>(d)?.object, out),
            NFSPROC3_COMMIT => data::commit(c, call, args(d)?, out),
            _ => Err(RpcError::ProcUnavail.into()),
        }
    }
}

impl Dispatch for Worker {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        let start = out.mark();
        let whole = args.clone();
        let status = match self.run(cx, args, out) {
            Ok(()) => return Ok(Flow::Done),
            Err(Fail::Rpc(e)) => return Err(e),
            Err(Fail::Vfs(VfsError::WouldBlock)) if !cx.blocking => return Ok(Flow::WouldBlock),
            Err(Fail::Vfs(e)) => status::of(e, cx.proc),
            Err(Fail::Status(s)) => s,
        };
        out.rewind(start);
        failure::put(&mut self.ctx, cx, whole, status, out).map_err(|_| RpcError::SystemErr)?;
        Ok(Flow::Done)
    }

    fn release(&mut self, export: u64) -> Option<Work> {
        self.ctx.after_reply(export)
    }

    fn tick(&mut self) {
        self.ctx.tick();
    }
}

//! The MOUNT protocol, versions 3 (RFC 1813 appendix I) and 1 (RFC 1094 appendix A).
//!
//! Version 1 hands out handles of exactly 32 bytes; a sealed handle that is longer does not fit, and MNT then answers
//! that it is not supported. Its other procedures are what old `showmount` and `umount` use.

use crate::context::{Context, Denied, Shared};
use crate::fh::FileHandle;
use crate::proto::mount::*;
use crate::vfs::{FileType, VfsError};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};
use sunrpc::page::PageWriter;
use sunrpc::svc::{Call, Dispatch, Flow, ProcInfo, Program, RpcError, VersionInfo};
use sunrpc::xdr::{Decoder, XdrError, XdrWrite, padded};
use sunrpc::xprt::PeerAddr;

/// Mounts remembered for DUMP. The list is for people only; the oldest entry makes room.
const REMEMBERED: usize = 1024;
/// Bytes of the largest DUMP or EXPORT answer.
const LIST: u32 = 1 << 20;
/// Bytes of the longest address in text.
const MAX_HOST: usize = 48;

const V1: &[ProcInfo] = &[
    ProcInfo::new("NULL", 0),
    ProcInfo::new("MNT", 36),
    ProcInfo::new("DUMP", LIST),
    ProcInfo::new("UMNT", 0),
    ProcInfo::new("UMNTALL", 0),
    ProcInfo::new("EXPORT", LIST),
    ProcInfo::new("EXPORTALL", LIST),
];
const V3: &[ProcInfo] = &[
    ProcInfo::new("NULL", 0),
    ProcInfo::new("MNT", 128),
    ProcInfo::new("DUMP", LIST),
    ProcInfo::new("UMNT", 0),
    ProcInfo::new("UMNTALL", 0),
    ProcInfo::new("EXPORT", LIST),
];

/// Who mounted what, as far as clients say so.
#[derive(Debug, Default)]
struct Book {
    mounts: VecDeque<(IpAddr, Vec<u8>)>,
}

/// The program.
pub struct Mount {
    shared: Arc<Shared>,
    book: Arc<Mutex<Book>>,
}

impl Mount {
    /// Over the exports in `shared`.
    pub fn new(shared: Arc<Shared>) -> Self {
        Mount { shared, book: Arc::default() }
    }
}

impl Program for Mount {
    fn number(&self) -> u32 {
        MOUNT_PROGRAM
    }

    fn name(&self) -> &'static str {
        "mountd"
    }

    fn versions(&self) -> &[VersionInfo] {
        const VERSIONS: &[VersionInfo] =
            &[VersionInfo { vers: MOUNT_V1, procs: V1 }, VersionInfo { vers: MOUNT_V3, procs: V3 }];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(Worker { ctx: Context::new(self.shared.clone()), book: self.book.clone() }))
    }

    fn admits(&self, peer: &PeerAddr) -> bool {
        self.shared.exports.load().admits_any(peer)
    }
}

struct Worker {
    ctx: Context,
    book: Arc<Mutex<Book>>,
}

/// Why MNT fails.
enum Fail {
    Status(mountstat3),
    Vfs(VfsError),
}

impl From<VfsError> for Fail {
    fn from(e: VfsError) -> Self {
        Fail::Vfs(e)
    }
}

impl From<Denied> for Fail {
    fn from(d: Denied) -> Self {
        match d {
            Denied::Client | Denied::Flavor => Fail::Status(mountstat3::MNT3ERR_ACCES),
            Denied::Vfs(e) => Fail::Vfs(e),
            Denied::BadHandle | Denied::Stale => Fail::Status(mountstat3::MNT3ERR_NOENT),
        }
    }
}

fn status(e: VfsError) -> mountstat3 {
    use mountstat3::*;
    match e {
        VfsError::Perm => MNT3ERR_PERM,
        VfsError::NoEnt | VfsError::Stale => MNT3ERR_NOENT,
        VfsError::Acces => MNT3ERR_ACCES,
        VfsError::NotDir => MNT3ERR_NOTDIR,
        VfsError::Inval => MNT3ERR_INVAL,
        VfsError::NameTooLong => MNT3ERR_NAMETOOLONG,
        VfsError::Io => MNT3ERR_IO,
        _ => MNT3ERR_SERVERFAULT,
    }
}

fn host(peer: &PeerAddr) -> Option<IpAddr> {
    match peer {
        PeerAddr::Inet(a) => Some(a.ip().to_canonical()),
        PeerAddr::Local { .. } => None,
    }
}

impl Worker {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        // Valid between any two operations on it.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle for a path, and the numbers of the flavors that may use it.
    fn mnt(&mut self, call: &Call<'_>, path: &[u8]) -> Result<(FileHandle, Vec<u32>), Fail> {
        let found = self.ctx.table().resolve(path).map(|(e, rest)| (e.clone(), rest));
        let Some((export, rest)) = found else {
            let text = || format!("{} asks for {}, which is not exported", call.peer, path.escape_ascii());
            self.ctx.shared().refusals.path(text);
            // As for a path that the client may not see: nothing is told about what exists.
            return Err(Fail::Status(mountstat3::MNT3ERR_ACCES));
        };
        let here = self.ctx.enter_root(call, export.id)?;
        let mut dir = here.handle;
        // A directory when the server started, or at any time: backends decide what they serve.
        if here.vfs.getattr(&here.cx, &dir)?.ftype != FileType::Directory {
            return Err(Fail::Status(mountstat3::MNT3ERR_NOTDIR));
        }
        for part in rest.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            if matches!(part, b"." | b"..") || part.contains(&0) {
                return Err(Fail::Status(mountstat3::MNT3ERR_ACCES));
            }
            if part.len() > 255 {
                return Err(Fail::Status(mountstat3::MNT3ERR_NAMETOOLONG));
            }
            let e = here.vfs.lookup(&here.cx, &dir, part)?;
            if e.attr.ftype != FileType::Directory {
                return Err(Fail::Status(mountstat3::MNT3ERR_NOTDIR));
            }
            dir = e.handle;
        }
        let fh = here.sealer.seal(&dir);
        Ok((fh, export.sec.iter().map(|f| f.number()).collect()))
    }

    fn mnt_reply(
        &mut self,
        call: &Call<'_>,
        path: &[u8],
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, XdrError> {
        let failed = match self.mnt(call, path) {
            Ok((fh, flavors)) if call.vers == MOUNT_V3 => {
                if let Some(ip) = host(call.peer) {
                    let entry = (ip, self.plain(path));
                    let mut book = self.book();
                    if !book.mounts.contains(&entry) {
                        if book.mounts.len() >= REMEMBERED {
                            book.mounts.pop_front();
                        }
                        book.mounts.push_back(entry);
                    }
                }
                out.put_u32(0)?;
                out.put_opaque(fh.as_bytes(), FHSIZE3)?;
                out.put_u32(flavors.len() as u32)?;
                flavors.iter().try_for_each(|f| out.put_u32(*f))?;
                return Ok(Flow::Done);
            }
            Ok((fh, _)) if fh.as_bytes().len() == FHSIZE as usize => {
                out.put_u32(0)?;
                out.put(fh.as_bytes())?;
                return Ok(Flow::Done);
            }
            Ok(_) => mountstat3::MNT3ERR_NOTSUPP,
            Err(Fail::Vfs(VfsError::WouldBlock)) if !call.blocking => return Ok(Flow::WouldBlock),
            Err(Fail::Vfs(e)) => status(e),
            Err(Fail::Status(s)) => s,
        };
        out.put_u32(failed as u32)?;
        Ok(Flow::Done)
    }

    /// The one spelling under which a path is remembered: the export's directory, then what lies below, with single
    /// slashes. Otherwise one client could fill the book with one directory.
    fn plain(&mut self, path: &[u8]) -> Vec<u8> {
        let (mut plain, rest) = match self.ctx.table().resolve(path) {
            Some((e, rest)) => (e.path.as_os_str().as_bytes().to_vec(), rest),
            None => (Vec::new(), path),
        };
        for part in rest.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            if plain.last() != Some(&b'/') {
                plain.push(b'/');
            }
            plain.extend_from_slice(part);
        }
        plain
    }

    /// Lists are for everybody, as with other servers, but only where the source of a call is sure: over datagrams a
    /// stranger may be a victim whose address somebody else wrote on a short question with a long answer.
    fn may_list(&mut self, call: &Call<'_>) -> bool {
        call.caps.stream || call.caps.congestion_control || self.ctx.table().admits_any(call.peer)
    }

    fn dump(&self, out: &mut PageWriter<'_>) -> Result<(), XdrError> {
        for (ip, path) in &self.book().mounts {
            // Directories of exports may be long; the newest mounts then stay out of the answer.
            if path.len() > MNTPATHLEN as usize || out.room() < 4 * 4 + MAX_HOST + padded(path.len()) {
                continue;
            }
            out.put_u32(1)?;
            out.put_opaque(ip.to_string().as_bytes(), MNTNAMLEN)?;
            out.put_opaque(path, MNTPATHLEN)?;
        }
        out.put_u32(0)
    }

    fn put_exports(&mut self, out: &mut PageWriter<'_>) -> Result<(), XdrError> {
        for e in self.ctx.table().iter() {
            out.put_u32(1)?;
            out.put_opaque(&e.pseudo, MNTPATHLEN)?;
            for net in e.clients.nets() {
                out.put_u32(1)?;
                out.put_opaque(net.to_string().as_bytes(), MNTNAMLEN)?;
            }
            out.put_u32(0)?;
        }
        out.put_u32(0)
    }

    /// A client takes back its own mounts, nobody else's.
    fn forget(&mut self, call: &Call<'_>, path: Option<&[u8]>) {
        let ip = host(call.peer);
        let path = path.map(|p| self.plain(p));
        self.book().mounts.retain(|(i, p)| Some(*i) != ip || path.as_ref().is_some_and(|path| path != p));
    }
}

impl Dispatch for Worker {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        // The procedures of both versions have the same numbers and arguments.
        let path = match cx.proc {
            MOUNTPROC3_MNT | MOUNTPROC3_UMNT => Some(args.opaque(MNTPATHLEN)?),
            _ => None,
        };
        args.finish()?;
        let done = match (cx.proc, path) {
            (MOUNTPROC3_MNT, Some(path)) => {
                return self.mnt_reply(cx, path, out).map_err(|_| RpcError::SystemErr);
            }
            (MOUNTPROC3_UMNT, path @ Some(_)) => {
                self.forget(cx, path);
                Ok(())
            }
            (MOUNTPROC3_UMNTALL, _) => {
                self.forget(cx, None);
                Ok(())
            }
            (MOUNTPROC3_DUMP | MOUNTPROC3_EXPORT | MOUNTPROC_EXPORTALL, _) if !self.may_list(cx) => {
                out.put_u32(0)
            }
            (MOUNTPROC3_DUMP, _) => self.dump(out),
            (MOUNTPROC3_EXPORT | MOUNTPROC_EXPORTALL, _) => self.put_exports(out),
            _ => Ok(()),
        };
        done.map(|()| Flow::Done).map_err(|_| RpcError::SystemErr)
    }

    fn tick(&mut self) {
        self.ctx.tick();
    }
}

//! A service to call, and calls to make.

use nfsd::context::Shared;
use nfsd::export::{Clients, Export, ExportSettings, ExportTable, Squash};
use nfsd::fh::FhCodec;
use nfsd::mount::Mount;
use nfsd::proto::mount as m;
use nfsd::proto::nfs3::*;
use nfsd::v3::Nfs3;
use nfsd::vfs::mem::{MemFs, MemOptions};
use std::sync::Arc;
use sunrpc::page::{PagePool, XdrBuf};
use sunrpc::record::Record;
use sunrpc::svc::{Delivery, Disposition, Env, Mailbox, Service};
use sunrpc::xdr::{Decode, Decoder, Encode, to_vec};
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

struct NoMail;

impl Mailbox for NoMail {
    fn post(&self, _d: Delivery) {}
}

pub const CAPS: XprtCaps =
    XprtCaps { class: "test", stream: false, congestion_control: true, max_payload: 1 << 20, lends: false };

pub struct Rig {
    service: Service,
    pool: PagePool,
    mailbox: Arc<dyn Mailbox>,
    pub peer: PeerAddr,
    pub fs: MemFs,
    pub uid: u32,
    pub blocking: bool,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Results of a call that was accepted and ran.
    Results(Vec<u8>),
    /// accept_stat other than SUCCESS.
    Rejected(u32),
    /// reject_stat and what follows.
    Denied,
    WouldBlock,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(|_| {})
    }

    pub fn with(tune: impl FnOnce(&mut ExportSettings)) -> Rig {
        let fs = MemFs::new(&MemOptions { root_mode: 0o777, ..MemOptions::default() });
        let mut settings = ExportSettings::new("/srv".into());
        settings.squash = Squash::None;
        settings.insecure = true;
        settings.clients = Clients::parse(["127.0.0.0/8", "10.0.0.0/8"]).unwrap();
        tune(&mut settings);
        let export = Export::new(1, settings, Arc::new(fs.clone()));
        let table = ExportTable::new(vec![Arc::new(export)]).unwrap();
        let shared = Shared::new(table.into_shared(), FhCodec::with_key(&[7; 16])).unwrap();
        let service =
            Service::attach(&[Arc::new(Nfs3::new(shared.clone())), Arc::new(Mount::new(shared))]).unwrap();
        let peer = PeerAddr::Inet("10.1.2.3:999".parse().unwrap());
        let mailbox = Arc::new(NoMail);
        Rig { service, pool: PagePool::standalone(), mailbox, peer, fs, uid: 0, blocking: false }
    }

    /// Runs a whole call message.
    pub fn raw(&mut self, call: &[u8]) -> Answer {
        self.record(Record { head: call, spans: &[] })
    }

    /// Runs a call message that may lie in pages.
    pub fn record(&mut self, call: Record<'_>) -> Answer {
        let xprt = XprtId { slot: 0, generation: 0 };
        let env = Env {
            route: &Route::stream(self.peer),
            caps: &CAPS,
            xprt,
            mailbox: &self.mailbox,
            blocking: self.blocking,
            validated: true,
        };
        let mut out = XdrBuf::new();
        assert!(self.pool.ensure(300));
        let d = self.service.process(call, &env, None, &mut out, &mut self.pool);
        let reply = out.to_vec();
        out.recycle(&mut self.pool);
        match d {
            Disposition::WouldBlock { .. } => return Answer::WouldBlock,
            Disposition::Reply { .. } => {}
            other => panic!("{other:?}"),
        }
        let word = |i: usize| u32::from_be_bytes(reply[4 * i..4 * i + 4].try_into().unwrap());
        match (word(2), reply.len() >= 24) {
            (0, true) if word(5) == 0 => Answer::Results(reply[24..].to_vec()),
            (0, true) => Answer::Rejected(word(5)),
            _ => Answer::Denied,
        }
    }

    /// The call message of a procedure.
    pub fn message(&self, prog: u32, proc: u32, args: &[u8]) -> Vec<u8> {
        let head = [9, 0, 2, prog, 3, proc, 1, 20, 0, 0, self.uid, self.uid, 0, 0, 0];
        let mut m: Vec<u8> = head.into_iter().flat_map(u32::to_be_bytes).collect();
        m.extend_from_slice(args);
        m
    }

    pub fn call<A: Encode, R: for<'a> Decode<'a>>(&mut self, proc: u32, args: &A) -> R {
        let msg = self.message(NFS_PROGRAM, proc, &bytes(args));
        match self.raw(&msg) {
            Answer::Results(r) => decode(&r),
            other => panic!("procedure {proc}: {other:?}"),
        }
    }

    pub fn root(&mut self) -> nfs_fh3 {
        let msg = self.message(m::MOUNT_PROGRAM, m::MOUNTPROC3_MNT, &bytes(&m::dirpath::from("/srv")));
        let Answer::Results(r) = self.raw(&msg) else { panic!("not mounted") };
        match decode::<m::mountres3>(&r) {
            m::mountres3::MNT3_OK(ok) => nfs_fh3 { data: ok.fhandle.0 },
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, dir: &nfs_fh3, n: &str) -> nfs_fh3 {
        let args = CREATE3args { where_: at(dir, n), how: createhow3::UNCHECKED(mode(0o644)) };
        match self.call(NFSPROC3_CREATE, &args) {
            CREATE3res::NFS3_OK(ok) => made(ok.obj),
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, file: &nfs_fh3, offset: u64, data: &[u8]) -> WRITE3res {
        let args = WRITE3args {
            file: file.clone(),
            offset,
            count: data.len() as u32,
            stable: stable_how::FILE_SYNC,
            data: sunrpc::page::Pages::copy_from(data),
        };
        self.call(NFSPROC3_WRITE, &args)
    }
}

pub fn bytes<A: Encode>(args: &A) -> Vec<u8> {
    to_vec(args, 1 << 21).unwrap()
}

/// Decodes results to the last byte.
pub fn decode<R: for<'a> Decode<'a>>(b: &[u8]) -> R {
    let mut d = Decoder::new(b);
    let r = R::decode(&mut d).unwrap();
    d.finish().unwrap();
    r
}

pub fn at(dir: &nfs_fh3, n: &str) -> diropargs3 {
    diropargs3 { dir: dir.clone(), name: filename3::from(n) }
}

pub fn mode(m: u32) -> sattr3 {
    sattr3 {
        mode: set_mode3::True(m),
        uid: set_uid3::False,
        gid: set_gid3::False,
        size: set_size3::False,
        atime: set_atime::Default(time_how::DONT_CHANGE),
        mtime: set_mtime::Default(time_how::DONT_CHANGE),
    }
}

pub fn made(fh: post_op_fh3) -> nfs_fh3 {
    match fh {
        post_op_fh3::True(fh) => fh,
        post_op_fh3::False => panic!("a new object comes with its handle"),
    }
}

//! MOUNT, and what exports keep apart: two exports of one memory file system, clients of all kinds, no sockets.
#![allow(clippy::unwrap_used)]

use nfsd::context::Shared;
use nfsd::export::{Clients, Export, ExportSettings, ExportTable, Exports, SecFlavor, Squash};
use nfsd::fh::FhCodec;
use nfsd::mount::Mount;
use nfsd::proto::mount::{
    self as m, MOUNT_PROGRAM, MOUNT_V1, MOUNT_V3, MOUNTPROC_DUMP, MOUNTPROC_EXPORT, MOUNTPROC_EXPORTALL,
    MOUNTPROC_MNT, MOUNTPROC_UMNTALL, MOUNTPROC3_DUMP, MOUNTPROC3_EXPORT, MOUNTPROC3_MNT, MOUNTPROC3_UMNT,
    MOUNTPROC3_UMNTALL, dirpath, fhstatus, mountres3, mountstat3,
};
use nfsd::proto::nfs3 as n;
use nfsd::v3::Nfs3;
use nfsd::vfs::mem::{MemFs, MemOptions};
use nfsd::vfs::{Backend, CreateHow, Cx, Identity, SetAttr};
use std::sync::Arc;
use sunrpc::page::{PagePool, XdrBuf};
use sunrpc::record::Record;
use sunrpc::svc::{Delivery, Disposition, Env, Mailbox, Program, Service};
use sunrpc::xdr::{Decode, Decoder, Encode, to_vec};
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

struct NoMail;

impl Mailbox for NoMail {
    fn post(&self, _: Delivery) {}
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Results(Vec<u8>),
    /// accept_stat other than SUCCESS.
    Rejected(u32),
    /// auth_stat.
    Auth(u32),
}

const GARBAGE_ARGS: Answer = Answer::Rejected(4);
const AUTH_TOOWEAK: Answer = Answer::Auth(5);

struct Host {
    service: Service,
    pool: PagePool,
    mailbox: Arc<dyn Mailbox>,
    programs: [Arc<dyn Program>; 2],
    exports: Exports,
    fs: MemFs,
    peer: PeerAddr,
    /// User of AUTH_SYS; AUTH_NONE without.
    uid: Option<u32>,
    /// Calls come over a connection.
    stream: bool,
}

fn peer(s: &str) -> PeerAddr {
    PeerAddr::Inet(s.parse().unwrap())
}

/// The export with number `id` and directory `/srv/ID`, known as `/ID` too, to 10.0.0.0/8.
fn export(id: u32, fs: &MemFs, tune: impl FnOnce(&mut ExportSettings)) -> Arc<Export> {
    let mut s = ExportSettings::new(format!("/srv/{id}").into());
    s.pseudo = format!("/{id}").into_bytes();
    s.squash = Squash::None;
    s.clients = Clients::parse(["10.0.0.0/8"]).unwrap();
    tune(&mut s);
    Arc::new(Export::new(id, s, Arc::new(fs.clone())))
}

impl Host {
    /// Exports 1 and 2 are the same file system: `dir/sub`, `dir/file`, `dir/link` to `sub`, `dir/closed/in`, where
    /// `closed` is user 500's alone.
    fn new() -> Host {
        let fs = MemFs::new(&MemOptions { root_mode: 0o777, ..MemOptions::default() });
        plant(&fs);
        let table = ExportTable::new(vec![export(1, &fs, |_| {}), export(2, &fs, |_| {})]).unwrap();
        let exports = table.into_shared();
        let shared = Shared::new(exports.clone(), FhCodec::with_key(&[3; 16])).unwrap();
        let programs: [Arc<dyn Program>; 2] =
            [Arc::new(Nfs3::new(shared.clone())), Arc::new(Mount::new(shared))];
        let service = Service::attach(&programs).unwrap();
        let (pool, mailbox) = (PagePool::standalone(), Arc::new(NoMail));
        let (peer, uid) = (peer("10.0.0.7:900"), Some(500));
        Host { service, pool, mailbox, programs, exports, fs, peer, uid, stream: true }
    }

    fn replace(&self, exports: Vec<Arc<Export>>) {
        self.exports.store(Arc::new(ExportTable::new(exports).unwrap()));
    }

    fn raw(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Answer {
        let mut call: Vec<u8> = [9, 0, 2, prog, vers, proc].into_iter().flat_map(u32::to_be_bytes).collect();
        let cred = match self.uid {
            Some(uid) => vec![1, 20, 0, 0, uid, uid, 0],
            None => vec![0, 0],
        };
        call.extend(cred.into_iter().chain([0, 0]).flat_map(u32::to_be_bytes));
        call.extend_from_slice(args);
        let (stream, congestion_control) = (self.stream, self.stream);
        let caps = XprtCaps { class: "test", stream, congestion_control, max_payload: 1 << 20, lends: false };
        let env = Env {
            route: &Route::stream(self.peer),
            caps: &caps,
            xprt: XprtId { slot: 0, generation: 0 },
            mailbox: &self.mailbox,
            blocking: false,
            validated: true,
        };
        let mut out = XdrBuf::new();
        let d =
            self.service.process(Record { head: &call, spans: &[] }, &env, None, &mut out, &mut self.pool);
        assert!(matches!(d, Disposition::Reply { .. }), "{d:?}");
        // Without the record mark of a stream.
        let reply = out.to_vec().split_off(if self.stream { 4 } else { 0 });
        out.recycle(&mut self.pool);
        let word = |i: usize| u32::from_be_bytes(reply[4 * i..4 * i + 4].try_into().unwrap());
        match word(2) {
            0 if word(5) == 0 => Answer::Results(reply[24..].to_vec()),
            0 => Answer::Rejected(word(5)),
            _ => Answer::Auth(word(4)),
        }
    }

    fn call<R: for<'a> Decode<'a>>(&mut self, prog: u32, proc: u32, args: &[u8]) -> R {
        match self.raw(prog, 3, proc, args) {
            Answer::Results(b) => decode(&b),
            other => panic!("program {prog}, procedure {proc}: {other:?}"),
        }
    }

    fn mnt(&mut self, path: &str) -> Result<(n::nfs_fh3, Vec<i32>), mountstat3> {
        match self.call(MOUNT_PROGRAM, MOUNTPROC3_MNT, &bytes(&dirpath::from(path))) {
            mountres3::MNT3_OK(ok) => Ok((n::nfs_fh3 { data: ok.fhandle.0 }, ok.auth_flavors)),
            mountres3::Default(s) => Err(s),
        }
    }

    fn root(&mut self, id: u32) -> n::nfs_fh3 {
        self.mnt(&format!("/srv/{id}")).unwrap().0
    }

    fn dump(&mut self) -> Vec<(String, String)> {
        let list: m::mountlist = self.call(MOUNT_PROGRAM, MOUNTPROC3_DUMP, &[]);
        list.iter().map(|m| (m.ml_hostname.to_string(), m.ml_directory.to_string())).collect()
    }

    fn lookup(&mut self, dir: &n::nfs_fh3, name: &str) -> n::LOOKUP3res {
        self.call(n::NFS_PROGRAM, n::NFSPROC3_LOOKUP, &bytes(&n::LOOKUP3args { what: at(dir, name) }))
    }

    fn getattr(&mut self, fh: &n::nfs_fh3) -> n::nfsstat3 {
        let args = bytes(&n::GETATTR3args { object: fh.clone() });
        self.call::<n::GETATTR3res>(n::NFS_PROGRAM, n::NFSPROC3_GETATTR, &args).discriminant()
    }
}

fn plant(fs: &MemFs) {
    let mut v = fs.attach().unwrap();
    let ident = Identity { uid: 500, gid: 500, groups: Default::default() };
    let cx = Cx { ident: &ident, blocking: false, sync: false, owner_override: false };
    let mode = |m| SetAttr { mode: Some(m), ..SetAttr::default() };
    let root = v.root().unwrap();
    let dir = v.mkdir(&cx, &root, b"dir", &mode(0o755)).unwrap().handle;
    v.mkdir(&cx, &dir, b"sub", &mode(0o755)).unwrap();
    v.create(&cx, &dir, b"file", &CreateHow::Guarded(mode(0o644))).unwrap();
    v.links().unwrap().symlink(&cx, &dir, b"link", b"sub", &mode(0o777)).unwrap();
    let closed = v.mkdir(&cx, &dir, b"closed", &mode(0o700)).unwrap().handle;
    v.mkdir(&cx, &closed, b"in", &mode(0o755)).unwrap();
}

fn bytes<A: Encode>(args: &A) -> Vec<u8> {
    to_vec(args, 1 << 20).unwrap()
}

fn decode<R: for<'a> Decode<'a>>(b: &[u8]) -> R {
    let mut d = Decoder::new(b);
    let r = R::decode(&mut d).unwrap();
    d.finish().unwrap();
    r
}

fn at(dir: &n::nfs_fh3, name: &str) -> n::diropargs3 {
    n::diropargs3 { dir: dir.clone(), name: n::filename3::from(name) }
}

#[test]
fn real_path_pseudo_path_and_what_lies_below() {
    let mut h = Host::new();
    let (root, flavors) = h.mnt("/srv/1").unwrap();
    assert_eq!(flavors, [1, 0], "AUTH_SYS, then AUTH_NONE");
    assert_eq!(h.getattr(&root), n::nfsstat3::NFS3_OK);
    for same in ["/1", "/1/", "//srv//1/"] {
        assert_eq!(h.mnt(same).unwrap().0, root, "{same}");
    }
    assert_ne!(h.mnt("/2").unwrap().0, root, "each export has its own handles");
    let sub = h.mnt("/1/dir//sub").unwrap().0;
    assert_eq!(h.mnt("/srv/1/dir/sub/").unwrap().0, sub);
    let dir = h.mnt("/1/dir").unwrap().0;
    let n::LOOKUP3res::NFS3_OK(found) = h.lookup(&dir, "sub") else { panic!() };
    assert_eq!(found.object, sub);
}

#[test]
fn paths_that_cannot_be_mounted() {
    use mountstat3::*;
    let mut h = Host::new();
    let long = format!("/1/{}", "n".repeat(256));
    for (path, want) in [
        ("/1/none", MNT3ERR_NOENT),
        ("/1/dir/sub/none", MNT3ERR_NOENT),
        ("/1/dir/file", MNT3ERR_NOTDIR),
        ("/1/dir/file/x", MNT3ERR_NOTDIR),
        ("/1/dir/link", MNT3ERR_NOTDIR),
        (&long, MNT3ERR_NAMETOOLONG),
        ("/3", MNT3ERR_ACCES),
        ("/srv", MNT3ERR_ACCES),
        ("/", MNT3ERR_ACCES),
        ("", MNT3ERR_ACCES),
        ("srv/1", MNT3ERR_ACCES),
        ("/1/..", MNT3ERR_ACCES),
        ("/1/dir/../..", MNT3ERR_ACCES),
        ("/1/d\0r", MNT3ERR_ACCES),
    ] {
        assert_eq!(h.mnt(path), Err(want), "{path}");
    }
    assert!(h.mnt("/1/dir/closed/in").is_ok(), "the owner gets through");
    h.uid = Some(501);
    assert_eq!(h.mnt("/1/dir/closed/in"), Err(MNT3ERR_ACCES), "rights are the caller's");
    assert!(h.dump().iter().all(|(_, path)| path == "/srv/1/dir/closed/in"), "failures are not remembered");
}

#[test]
fn b16a_strangers_ports_and_flavors() {
    use mountstat3::MNT3ERR_ACCES;
    let mut h = Host::new();
    let fh = h.root(1);
    for stranger in ["192.0.2.1:900", "10.0.0.7:1024", "[2001:db8::1]:900"] {
        h.peer = peer(stranger);
        assert_eq!(h.mnt("/1"), Err(MNT3ERR_ACCES), "{stranger}");
        assert_eq!(h.getattr(&fh), n::nfsstat3::NFS3ERR_ACCES, "{stranger}");
        assert!(h.programs.iter().all(|p| !p.admits(&h.peer)), "{stranger}");
        assert!(matches!(h.raw(n::NFS_PROGRAM, 3, 0, &[]), Answer::Results(_)), "NULL is for everybody");
    }
    h.peer = peer("[::ffff:10.0.0.7]:900");
    assert!(h.mnt("/1").is_ok(), "an IPv4 client of an IPv6 socket");
    assert!(h.programs.iter().all(|p| p.admits(&h.peer)));
    // B16a: a flavor that the export does not take, for MNT and for a handle from earlier.
    let sys_only = export(1, &h.fs, |s| s.sec = [SecFlavor::Sys].into_iter().collect());
    h.replace(vec![sys_only]);
    assert_eq!(h.mnt("/1").unwrap().1, [1]);
    h.uid = None;
    assert_eq!(h.mnt("/1"), Err(MNT3ERR_ACCES));
    let args = bytes(&n::GETATTR3args { object: fh });
    assert_eq!(h.raw(n::NFS_PROGRAM, 3, n::NFSPROC3_GETATTR, &args), AUTH_TOOWEAK);
}

/// B16b: one tree exported twice; nothing moves from one export to the other, though it could on disk.
#[test]
fn b16b_names_do_not_cross_exports() {
    let mut h = Host::new();
    let (one, two) = (h.root(1), h.root(2));
    let n::LOOKUP3res::NFS3_OK(dir1) = h.lookup(&one, "dir") else { panic!() };
    let n::LOOKUP3res::NFS3_OK(file1) = h.lookup(&dir1.object, "file") else { panic!() };
    let args = n::RENAME3args { from: at(&dir1.object, "file"), to: at(&two, "moved") };
    let got: n::RENAME3res = h.call(n::NFS_PROGRAM, n::NFSPROC3_RENAME, &bytes(&args));
    assert_eq!(got.discriminant(), n::nfsstat3::NFS3ERR_XDEV);
    let args = n::LINK3args { file: file1.object, link: at(&two, "linked") };
    let got: n::LINK3res = h.call(n::NFS_PROGRAM, n::NFSPROC3_LINK, &bytes(&args));
    assert_eq!(got.discriminant(), n::nfsstat3::NFS3ERR_XDEV);
    for name in ["moved", "linked"] {
        assert_eq!(h.lookup(&two, name).discriminant(), n::nfsstat3::NFS3ERR_NOENT, "{name}");
    }
    assert!(matches!(h.lookup(&dir1.object, "file"), n::LOOKUP3res::NFS3_OK(_)));
}

#[test]
fn a_new_table_holds_from_the_next_call() {
    let mut h = Host::new();
    let (one, two) = (h.root(1), h.root(2));
    h.replace(vec![export(2, &h.fs, |s| s.read_only = true)]);
    assert_eq!(h.getattr(&one), n::nfsstat3::NFS3ERR_STALE);
    assert_eq!(h.mnt("/1"), Err(mountstat3::MNT3ERR_ACCES));
    let args = bytes(&n::REMOVE3args { object: at(&two, "x") });
    let got: n::REMOVE3res = h.call(n::NFS_PROGRAM, n::NFSPROC3_REMOVE, &args);
    assert_eq!(got.discriminant(), n::nfsstat3::NFS3ERR_ROFS);
    let narrow = |s: &mut ExportSettings| s.clients = Clients::parse(["10.0.0.8"]).unwrap();
    h.replace(vec![export(1, &h.fs, |_| {}), export(2, &h.fs, narrow)]);
    assert_eq!(h.getattr(&one), n::nfsstat3::NFS3_OK, "the same number, the same handles");
    assert_eq!(h.getattr(&two), n::nfsstat3::NFS3ERR_ACCES);
}

#[test]
fn the_book_of_mounts() {
    let mut h = Host::new();
    h.root(1);
    h.root(1);
    h.root(2);
    h.peer = peer("10.0.0.8:901");
    h.root(2);
    let entry = |ip: &str, path: &str| (ip.to_owned(), path.to_owned());
    let (a, b, c) = (entry("10.0.0.7", "/srv/1"), entry("10.0.0.7", "/srv/2"), entry("10.0.0.8", "/srv/2"));
    assert_eq!(h.dump(), [a.clone(), b.clone(), c.clone()]);
    // Another client's entry for the same path stays, and so does one's own for another path.
    let umnt = bytes(&dirpath::from("/srv/1"));
    h.call::<()>(MOUNT_PROGRAM, MOUNTPROC3_UMNT, &umnt);
    assert_eq!(h.dump(), [a.clone(), b, c.clone()]);
    h.peer = peer("10.0.0.7:55");
    h.call::<()>(MOUNT_PROGRAM, MOUNTPROC3_UMNT, &bytes(&dirpath::from("/srv/2")));
    assert_eq!(h.dump(), [a, c.clone()], "whatever the port");
    h.call::<()>(MOUNT_PROGRAM, MOUNTPROC3_UMNTALL, &[]);
    assert_eq!(h.dump(), [c]);
}

/// Whatever clients mount, the book stays small and DUMP works.
#[test]
fn the_book_is_bounded() {
    let mut h = Host::new();
    h.peer = peer("10.0.0.9:900");
    h.root(2);
    h.peer = peer("10.0.0.7:900");
    // As many spellings of one directory as fit into 1024 bytes.
    for (path, most) in [("srv/1", 1019), ("1", 1023)] {
        for before in 1..=most {
            let spelt = format!("{}{path}{}", "/".repeat(before), "/".repeat(1024 - before - path.len()));
            h.mnt(&spelt).unwrap();
        }
    }
    let mine = h.dump().into_iter().filter(|(host, _)| host == "10.0.0.7").count();
    assert_eq!(mine, 1, "one directory, one entry");
    assert_eq!(h.dump().len(), 2, "nobody else was pushed out");
    h.call::<()>(MOUNT_PROGRAM, MOUNTPROC3_UMNT, &bytes(&dirpath::from("//1/")));
    assert_eq!(h.dump().len(), 1, "whichever name it is unmounted by");
}

#[test]
fn the_list_of_exports_names_directories_and_clients() {
    let mut h = Host::new();
    let more = |s: &mut ExportSettings| s.clients = Clients::parse(["10.0.0.0/8", "fd00::/8"]).unwrap();
    h.replace(vec![export(1, &h.fs, |_| {}), export(2, &h.fs, more)]);
    let list: m::exports = h.call(MOUNT_PROGRAM, MOUNTPROC3_EXPORT, &[]);
    let got: Vec<(String, Vec<String>)> = list
        .iter()
        .map(|e| (e.ex_dir.to_string(), e.ex_groups.iter().map(|g| g.gr_name.to_string()).collect()))
        .collect();
    assert_eq!(
        got,
        [
            ("/1".to_owned(), vec!["10.0.0.0/8".to_owned()]),
            ("/2".to_owned(), vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()])
        ]
    );
    let v3 = h.raw(MOUNT_PROGRAM, 3, MOUNTPROC3_EXPORT, &[]);
    for proc in [MOUNTPROC_EXPORT, MOUNTPROC_EXPORTALL] {
        assert_eq!(h.raw(MOUNT_PROGRAM, 1, proc, &[]), v3, "version 1, procedure {proc}");
    }
}

/// Version 1 knows handles of 32 bytes only, and says so when one does not fit.
#[test]
fn version_1() {
    let mut h = Host::new();
    let path = bytes(&dirpath::from("/1"));
    let Answer::Results(b) = h.raw(MOUNT_PROGRAM, MOUNT_V1, MOUNTPROC_MNT, &path) else { panic!() };
    let fits = h.mnt("/1").unwrap().0.data.len() == 32;
    match decode::<fhstatus>(&b) {
        fhstatus::Case0(_) => assert!(fits),
        fhstatus::Default(s) => assert_eq!((s, fits), (10004, false)),
    }
    let none = bytes(&dirpath::from("/none"));
    let Answer::Results(b) = h.raw(MOUNT_PROGRAM, MOUNT_V1, MOUNTPROC_MNT, &none) else { panic!() };
    assert_eq!(b, 13u32.to_be_bytes());
    let results = |h: &mut Host, proc| h.raw(MOUNT_PROGRAM, MOUNT_V1, proc, &[]);
    assert_eq!(results(&mut h, MOUNTPROC_UMNTALL), Answer::Results(vec![]));
    assert_eq!(results(&mut h, MOUNTPROC_DUMP), Answer::Results(vec![0; 4]));
    assert_eq!(h.raw(MOUNT_PROGRAM, 2, 0, &[]), Answer::Rejected(2), "PROG_MISMATCH");
    assert_eq!(h.raw(MOUNT_PROGRAM, 3, 6, &[]), Answer::Rejected(3), "EXPORTALL is version 1's alone");
}

#[test]
fn every_truncation_and_every_surplus_is_garbage() {
    let mut h = Host::new();
    let path = bytes(&dirpath::from("/1/dir/sub"));
    for vers in [MOUNT_V1, MOUNT_V3] {
        for proc in 0..=5 {
            let args = if matches!(proc, MOUNTPROC3_MNT | MOUNTPROC3_UMNT) { &path[..] } else { &[] };
            assert!(matches!(h.raw(MOUNT_PROGRAM, vers, proc, args), Answer::Results(_)), "{vers} {proc}");
            for cut in 0..args.len() {
                assert_eq!(
                    h.raw(MOUNT_PROGRAM, vers, proc, &args[..cut]),
                    GARBAGE_ARGS,
                    "{vers} {proc} {cut}"
                );
            }
            let more = [args, &[0; 4]].concat();
            assert_eq!(h.raw(MOUNT_PROGRAM, vers, proc, &more), GARBAGE_ARGS, "{vers} {proc} and a word");
        }
        // A path may have 1024 bytes (RFC 1813 appendix I).
        for (len, fits) in [(1024usize, true), (1025, false), (u32::MAX as usize, false)] {
            let mut args = (len as u32).to_be_bytes().to_vec();
            args.resize(4 + len.min(4096).next_multiple_of(4), b'/');
            let got = h.raw(MOUNT_PROGRAM, vers, MOUNTPROC3_MNT, &args);
            assert_eq!(matches!(got, Answer::Results(_)), fits, "version {vers}, {len} bytes: {got:?}");
            assert!(fits || got == GARBAGE_ARGS);
        }
    }
}

/// Over datagrams nobody is sure to have asked, so a stranger's question gets no answer longer than itself; a client's
/// does, and over a connection everybody's.
#[test]
fn lists_do_not_amplify() {
    let mut h = Host::new();
    h.root(1);
    for (stream, from, told) in
        [(true, "192.0.2.1:900", true), (false, "10.0.0.7:900", true), (false, "192.0.2.1:900", false)]
    {
        (h.stream, h.peer) = (stream, peer(from));
        for (vers, proc) in
            [(3, MOUNTPROC3_DUMP), (3, MOUNTPROC3_EXPORT), (1, MOUNTPROC_DUMP), (1, MOUNTPROC_EXPORTALL)]
        {
            let Answer::Results(b) = h.raw(MOUNT_PROGRAM, vers, proc, &[]) else { panic!() };
            assert_eq!(b.len() > 4, told, "version {vers}, procedure {proc}, {from}");
        }
    }
}

/// Whatever a backend calls its root: only directories are mounted.
#[test]
fn a_root_that_is_a_file_is_not_mounted() {
    use nfsd::vfs::{Attr, FileType, Handle, Vfs, VfsResult};
    #[derive(Clone)]
    struct OneFile(MemFs);
    impl Backend for OneFile {
        fn attach(&self) -> VfsResult<Box<dyn Vfs>> {
            Ok(Box::new(Thread(self.0.attach()?)))
        }
    }
    struct Thread(Box<dyn Vfs>);
    macro_rules! not_here {
        ($($name:ident($($arg:ty),*) -> $out:ty;)*) => {$(
            fn $name(&mut self, $(_: $arg),*) -> VfsResult<$out> { Err(nfsd::vfs::VfsError::NotSupp) }
        )*};
    }
    impl Vfs for Thread {
        fn root(&mut self) -> VfsResult<Handle> {
            self.0.root()
        }
        fn getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
            Ok(Attr { ftype: FileType::Regular, ..self.0.getattr(cx, obj)? })
        }
        not_here! {
            setattr(&Cx<'_>, &Handle, &SetAttr, Option<nfsd::vfs::Time>) -> Attr;
            lookup(&Cx<'_>, &Handle, &[u8]) -> nfsd::vfs::Entry;
            access(&Cx<'_>, &Handle, nfsd::vfs::Access) -> (nfsd::vfs::Access, Attr);
            read(&Cx<'_>, &Handle, u64, &mut [std::io::IoSliceMut<'_>]) -> nfsd::vfs::ReadDone;
            write(&Cx<'_>, &Handle, u64, &[std::io::IoSlice<'_>], nfsd::vfs::Stability) -> nfsd::vfs::WriteDone;
            commit(&Cx<'_>, &Handle, u64, u32) -> Attr;
            create(&Cx<'_>, &Handle, &[u8], &CreateHow) -> nfsd::vfs::Entry;
            mkdir(&Cx<'_>, &Handle, &[u8], &SetAttr) -> nfsd::vfs::Entry;
            remove(&Cx<'_>, &Handle, &[u8]) -> ();
            rmdir(&Cx<'_>, &Handle, &[u8]) -> ();
            rename(&Cx<'_>, (&Handle, &[u8]), (&Handle, &[u8])) -> ();
            readdir(&Cx<'_>, &Handle, u64, nfsd::vfs::ReaddirWant, &mut dyn nfsd::vfs::DirSink) -> bool;
            statfs(&Cx<'_>, &Handle) -> nfsd::vfs::FsStat;
        }
    }
    let mut h = Host::new();
    let mut settings = ExportSettings::new("/srv/1".into());
    settings.clients = Clients::parse(["10.0.0.0/8"]).unwrap();
    let file = Arc::new(Export::new(1, settings, Arc::new(OneFile(h.fs.clone()))));
    h.replace(vec![file]);
    assert_eq!(h.mnt("/srv/1"), Err(mountstat3::MNT3ERR_NOTDIR));
    assert!(h.dump().is_empty());
}

//! A client over a TCP connection: calls put together by hand, arguments and results by the generated types.

use nfsd::proto::mount as m;
use nfsd::proto::nfs3::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use sunrpc::xdr::{Decode, Decoder, Encode, to_vec};

/// Longest wait for something that is certain to come unless the server is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Results of a call that was accepted and ran.
    Results(Vec<u8>),
    /// accept_stat other than SUCCESS.
    Rejected(u32),
    /// auth_stat.
    Denied(u32),
    /// The server closed the connection.
    Closed,
}

pub struct Client {
    s: TcpStream,
    xid: u32,
    /// User and group of AUTH_SYS; AUTH_NONE without.
    pub uid: Option<u32>,
}

/// No two clients of one host begin alike, or one would get the other's cached replies.
fn first_xid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x100);
    NEXT.fetch_add(0x10_0000, Ordering::Relaxed)
}

impl Client {
    pub fn connect(port: u16) -> Client {
        Client::connect_from(Ipv4Addr::LOCALHOST, port)
    }

    /// From another address of this host.
    pub fn connect_from(source: Ipv4Addr, port: u16) -> Client {
        let s = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        s.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        s.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
        let s = TcpStream::from(s);
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        s.set_nodelay(true).unwrap();
        Client { s, xid: first_xid(), uid: Some(0) }
    }

    /// A call message without its record mark.
    pub fn message(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let mut words = vec![self.xid, 0, 2, prog, vers, proc];
        match self.uid {
            Some(uid) => words.extend([1, 20, 0, 0, uid, uid, 0]),
            None => words.extend([0, 0]),
        }
        words.extend([0, 0]);
        let mut m: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        m.extend_from_slice(args);
        m
    }

    /// The next reply is the one to this message, which another connection may have made.
    pub fn expect_xid(&mut self, message: &[u8]) {
        self.xid = u32::from_be_bytes(message[..4].try_into().unwrap());
    }

    /// Bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.s.write_all(bytes).unwrap();
    }

    /// Bytes as they are; false if the server has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.s.write_all(bytes).is_ok()
    }

    pub fn receive(&mut self) -> Answer {
        let mut mark = [0; 4];
        if let Err(e) = self.s.read_exact(&mut mark) {
            assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "no reply in {PATIENCE:?}");
            return Answer::Closed;
        }
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 0x8000_0000 != 0, "replies are one fragment");
        let mut r = vec![0; (mark & 0x7fff_ffff) as usize];
        self.s.read_exact(&mut r).unwrap();
        let word = |i: usize| u32::from_be_bytes(r[4 * i..4 * i + 4].try_into().unwrap());
        assert_eq!((word(0), word(1)), (self.xid, 1), "the reply to this call");
        match word(2) {
            0 if word(5) == 0 => Answer::Results(r[24..].to_vec()),
            0 => Answer::Rejected(word(5)),
            _ => Answer::Denied(word(4)),
        }
    }

    /// The next reply, to whichever call: its xid and its results.
    #[allow(dead_code)] // not in every test
    pub fn receive_any(&mut self) -> (u32, Vec<u8>) {
        let mut xid = [0; 8];
        while self.s.peek(&mut xid).unwrap() < xid.len() {
            std::thread::yield_now();
        }
        self.xid = u32::from_be_bytes([xid[4], xid[5], xid[6], xid[7]]);
        match self.receive() {
            Answer::Results(r) => (self.xid, r),
            _ => panic!("no results"),
        }
    }

    pub fn raw(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Answer {
        let m = self.message(prog, vers, proc, args);
        self.send(&frame(&m));
        self.receive()
    }

    pub fn call<A: Encode, R: for<'a> Decode<'a>>(&mut self, proc: u32, args: &A) -> R {
        match self.raw(NFS_PROGRAM, 3, proc, &bytes(args)) {
            Answer::Results(r) => decode(&r),
            other => panic!("procedure {proc}: {other:?}"),
        }
    }

    pub fn mount<R: for<'a> Decode<'a>>(&mut self, proc: u32, args: &[u8]) -> R {
        match self.raw(m::MOUNT_PROGRAM, 3, proc, args) {
            Answer::Results(r) => decode(&r),
            other => panic!("MOUNT procedure {proc}: {other:?}"),
        }
    }

    pub fn mnt(&mut self, path: &str) -> Result<nfs_fh3, m::mountstat3> {
        match self.mount(m::MOUNTPROC3_MNT, &bytes(&m::dirpath::from(path))) {
            m::mountres3::MNT3_OK(ok) => Ok(nfs_fh3 { data: ok.fhandle.0 }),
            m::mountres3::Default(s) => Err(s),
        }
    }

    pub fn lookup(&mut self, dir: &nfs_fh3, name: impl Into<Name>) -> Result<nfs_fh3, nfsstat3> {
        match self.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(dir, name) }) {
            LOOKUP3res::NFS3_OK(ok) => Ok(ok.object),
            LOOKUP3res::Default(s, _) => Err(s),
        }
    }

    pub fn attr(&mut self, object: &nfs_fh3) -> Result<fattr3, nfsstat3> {
        match self.call(NFSPROC3_GETATTR, &GETATTR3args { object: object.clone() }) {
            GETATTR3res::NFS3_OK(ok) => Ok(ok.obj_attributes),
            GETATTR3res::Default(s) => Err(s),
        }
    }

    pub fn setattr(&mut self, object: &nfs_fh3, new_attributes: sattr3) -> nfsstat3 {
        let args = SETATTR3args { object: object.clone(), new_attributes, guard: sattrguard3::False };
        self.call::<_, SETATTR3res>(NFSPROC3_SETATTR, &args).discriminant()
    }

    pub fn create(&mut self, dir: &nfs_fh3, name: impl Into<Name>) -> Result<nfs_fh3, nfsstat3> {
        self.create_how(dir, name, createhow3::UNCHECKED(mode(0o666)))
    }

    pub fn create_how(
        &mut self,
        dir: &nfs_fh3,
        name: impl Into<Name>,
        how: createhow3,
    ) -> Result<nfs_fh3, nfsstat3> {
        match self.call(NFSPROC3_CREATE, &CREATE3args { where_: at(dir, name), how }) {
            CREATE3res::NFS3_OK(ok) => Ok(made(ok.obj)),
            CREATE3res::Default(s, _) => Err(s),
        }
    }

    pub fn mkdir(&mut self, dir: &nfs_fh3, name: impl Into<Name>) -> Result<nfs_fh3, nfsstat3> {
        let args = MKDIR3args { where_: at(dir, name), attributes: mode(0o777) };
        match self.call(NFSPROC3_MKDIR, &args) {
            MKDIR3res::NFS3_OK(ok) => Ok(made(ok.obj)),
            MKDIR3res::Default(s, _) => Err(s),
        }
    }

    pub fn mknod(&mut self, dir: &nfs_fh3, name: impl Into<Name>, what: mknoddata3) -> nfsstat3 {
        let args = MKNOD3args { where_: at(dir, name), what };
        self.call::<_, MKNOD3res>(NFSPROC3_MKNOD, &args).discriminant()
    }

    pub fn symlink(&mut self, dir: &nfs_fh3, name: impl Into<Name>, target: &str) -> nfsstat3 {
        let symlink = symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: nfspath3::from(target) };
        let args = SYMLINK3args { where_: at(dir, name), symlink };
        self.call::<_, SYMLINK3res>(NFSPROC3_SYMLINK, &args).discriminant()
    }

    pub fn remove(&mut self, dir: &nfs_fh3, name: impl Into<Name>) -> nfsstat3 {
        let args = REMOVE3args { object: at(dir, name) };
        self.call::<_, REMOVE3res>(NFSPROC3_REMOVE, &args).discriminant()
    }

    pub fn rmdir(&mut self, dir: &nfs_fh3, name: impl Into<Name>) -> nfsstat3 {
        let args = RMDIR3args { object: at(dir, name) };
        self.call::<_, RMDIR3res>(NFSPROC3_RMDIR, &args).discriminant()
    }

    pub fn rename(&mut self, from: (&nfs_fh3, impl Into<Name>), to: (&nfs_fh3, impl Into<Name>)) -> nfsstat3 {
        let args = RENAME3args { from: at(from.0, from.1), to: at(to.0, to.1) };
        self.call::<_, RENAME3res>(NFSPROC3_RENAME, &args).discriminant()
    }

    pub fn link(&mut self, file: &nfs_fh3, dir: &nfs_fh3, name: impl Into<Name>) -> nfsstat3 {
        let args = LINK3args { file: file.clone(), link: at(dir, name) };
        self.call::<_, LINK3res>(NFSPROC3_LINK, &args).discriminant()
    }

    pub fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result<READ3resok, nfsstat3> {
        match self.call(NFSPROC3_READ, &READ3args { file: file.clone(), offset, count }) {
            READ3res::NFS3_OK(ok) => Ok(ok),
            READ3res::Default(s, _) => Err(s),
        }
    }

    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, nfsstat3> {
        let (file, count) = (file.clone(), data.len() as u32);
        let data = sunrpc::page::Pages::copy_from(data);
        match self.call(NFSPROC3_WRITE, &WRITE3args { file, offset, count, stable, data }) {
            WRITE3res::NFS3_OK(ok) => Ok(ok),
            WRITE3res::Default(s, _) => Err(s),
        }
    }

    pub fn commit(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result<COMMIT3resok, nfsstat3> {
        match self.call(NFSPROC3_COMMIT, &COMMIT3args { file: file.clone(), offset, count }) {
            COMMIT3res::NFS3_OK(ok) => Ok(ok),
            COMMIT3res::Default(s, _) => Err(s),
        }
    }

    /// Names and cookies of one page of READDIR, and whether it was the last.
    pub fn readdir(&mut self, dir: &nfs_fh3, cookie: u64, count: u32) -> Result<Page, nfsstat3> {
        let args = READDIR3args { dir: dir.clone(), cookie, cookieverf: [0; 8], count };
        match self.call(NFSPROC3_READDIR, &args) {
            READDIR3res::NFS3_OK(ok) => Ok((
                ok.reply.entries.iter().map(|e| (e.name.as_bytes().to_vec(), e.cookie)).collect(),
                ok.reply.eof,
            )),
            READDIR3res::Default(s, _) => Err(s),
        }
    }

    /// One page of READDIRPLUS, whole.
    pub fn readdirplus(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        maxcount: u32,
    ) -> Result<READDIRPLUS3resok, nfsstat3> {
        let dircount = maxcount;
        let args = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf: [0; 8], dircount, maxcount };
        match self.call(NFSPROC3_READDIRPLUS, &args) {
            READDIRPLUS3res::NFS3_OK(ok) => Ok(ok),
            READDIRPLUS3res::Default(s, _) => Err(s),
        }
    }
}

pub type Page = (Vec<(Vec<u8>, u64)>, bool);

/// A name of any bytes.
pub struct Name(pub Vec<u8>);

impl<T: AsRef<[u8]>> From<T> for Name {
    fn from(n: T) -> Name {
        Name(n.as_ref().to_vec())
    }
}

/// The message as a record of one fragment.
pub fn frame(m: &[u8]) -> Vec<u8> {
    fragments(&[m])
}

/// One record of these fragments.
pub fn fragments(parts: &[&[u8]]) -> Vec<u8> {
    let mut r = Vec::new();
    for (i, p) in parts.iter().enumerate() {
        let last = if i + 1 == parts.len() { 0x8000_0000 } else { 0 };
        r.extend_from_slice(&(p.len() as u32 | last).to_be_bytes());
        r.extend_from_slice(p);
    }
    r
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

pub fn at(dir: &nfs_fh3, name: impl Into<Name>) -> diropargs3 {
    diropargs3 { dir: dir.clone(), name: filename3::from(&name.into().0[..]) }
}

/// Sets nothing.
pub fn keep() -> sattr3 {
    sattr3 {
        mode: set_mode3::False,
        uid: set_uid3::False,
        gid: set_gid3::False,
        size: set_size3::False,
        atime: set_atime::Default(time_how::DONT_CHANGE),
        mtime: set_mtime::Default(time_how::DONT_CHANGE),
    }
}

pub fn mode(m: u32) -> sattr3 {
    sattr3 { mode: set_mode3::True(m), ..keep() }
}

pub fn made(fh: post_op_fh3) -> nfs_fh3 {
    match fh {
        post_op_fh3::True(fh) => fh,
        post_op_fh3::False => panic!("a new object comes with its handle"),
    }
}

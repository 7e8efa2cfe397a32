//! A client that reads late, and looks at every byte.

use crate::client::{Client, at, bytes, frame};
use crate::server::PATIENCE;
use nfsd::proto::nfs3::*;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a file holds at an offset: no two aligned 4 KiB are alike.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    let mut v = Vec::with_capacity(len + 8);
    let mut at = offset & !7;
    while v.len() < len + 8 {
        v.extend_from_slice(&(at ^ 0x5eed_0000_0000_0000).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        at += 8;
    }
    let skip = (offset & 7) as usize;
    v[skip..skip + len].to_vec()
}

pub fn make(dir: &Path, name: &str, len: usize) {
    std::fs::write(dir.join(name), pattern(0, len)).unwrap();
}

/// The handle of a file in the exported directory.
pub fn handle(port: u16, dir: &str, name: &str) -> nfs_fh3 {
    let mut c = Client::connect(port);
    let root = c.mnt(dir).unwrap();
    let args = LOOKUP3args { what: at(&root, name) };
    match c.call::<_, LOOKUP3res>(NFSPROC3_LOOKUP, &args) {
        LOOKUP3res::NFS3_OK(ok) => ok.object,
        LOOKUP3res::Default(e, _) => panic!("{e:?}"),
    }
}

pub struct Stalled {
    s: TcpStream,
    xid: u32,
    /// Calls without a reply yet. Replies come in any order.
    open: HashMap<u32, (u64, u32)>,
    /// Flavor of the credential.
    pub flavor: u32,
}

/// A reply to READ.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// What was asked for.
    pub asked: (u64, u32),
    pub eof: bool,
    pub data: Vec<u8>,
    /// What follows the results.
    pub rest: Vec<u8>,
    /// The results as a whole.
    pub results: Vec<u8>,
}

impl Stalled {
    /// With a small receive buffer, so that little is on its way and much waits.
    pub fn connect(port: u16, buffer: usize) -> Stalled {
        let s = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        s.set_recv_buffer_size(buffer).unwrap();
        s.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
        let s = TcpStream::from(s);
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        s.set_nodelay(true).unwrap();
        Stalled { s, xid: u32::from(port) << 16, open: HashMap::new(), flavor: 1 }
    }

    /// Calls READ for each range, all in one piece.
    pub fn ask(&mut self, file: &nfs_fh3, ranges: impl IntoIterator<Item = (u64, u32)>) {
        let mut out = Vec::new();
        for (offset, count) in ranges {
            self.xid += 1;
            self.open.insert(self.xid, (offset, count));
            let words = [self.xid, 0, 2, NFS_PROGRAM, 3, NFSPROC3_READ, self.flavor, 20, 0, 0, 0, 0, 0, 0, 0];
            let mut m: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            m.extend(bytes(&READ3args { file: file.clone(), offset, count }));
            out.extend(frame(&m));
        }
        self.s.write_all(&out).unwrap();
    }

    pub fn send(&mut self, b: &[u8]) {
        self.s.write_all(b).unwrap();
    }

    pub fn finish(&mut self) {
        self.s.shutdown(Shutdown::Write).unwrap();
    }

    pub fn sleep() {
        std::thread::sleep(Duration::from_millis(30));
    }

    /// The next reply; `None` at the end of the connection, of either kind.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut mark = [0; 4];
        match self.s.read_exact(&mut mark) {
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return None;
            }
            r => r.unwrap(),
        }
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 0x8000_0000 != 0 && mark < 0x8010_1000, "a record mark: {mark:#x}");
        let mut r = vec![0; (mark & 0x7fff_ffff) as usize];
        match self.s.read_exact(&mut r) {
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
            r => r.unwrap(),
        }
        let word = |i: usize| u32::from_be_bytes(r[4 * i..4 * i + 4].try_into().unwrap());
        assert_eq!((word(1), word(2), word(5), word(6)), (1, 0, 0, 0), "a reply that succeeded");
        assert_eq!(word(7), 1, "attributes follow");
        let at = 8 + 21;
        let (count, eof, len) = (word(at) as usize, word(at + 1) == 1, word(at + 2) as usize);
        assert_eq!(count, len);
        let data = 4 * (at + 3);
        let padded = data + len.next_multiple_of(4);
        Some(Reply {
            asked: self.open.remove(&word(0)).expect("a reply to one of the calls"),
            eof,
            data: r[data..data + len].to_vec(),
            rest: r[padded..].to_vec(),
            results: r[24..padded].to_vec(),
        })
    }
}

impl Reply {
    /// The data are what [`pattern`] says of their place.
    pub fn right(&self) -> bool {
        self.data == pattern(self.asked.0, self.data.len())
    }
}

/// Ends a loop on another thread, however this one ends.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

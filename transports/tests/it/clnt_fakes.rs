//! Servers that misbehave, made of std sockets.

#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Duration;

pub const PROG: u32 = 7;

/// Serves connections one after the other, each by the next of `scripts`.
pub fn stream(scripts: Vec<fn(&mut Peer)>) -> (String, JoinHandle<Vec<u32>>) {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = l.local_addr().unwrap().to_string();
    let join = std::thread::spawn(move || {
        let mut seen = vec![];
        for script in scripts {
            let stream = l.accept().unwrap().0;
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut p = Peer { stream: Box::new(stream), seen };
            script(&mut p);
            seen = p.seen;
        }
        seen
    });
    (addr, join)
}

/// Serves one connection to a local socket.
pub fn local(l: UnixListener, script: fn(&mut Peer)) -> JoinHandle<Vec<u32>> {
    std::thread::spawn(move || {
        let mut p = Peer { stream: Box::new(l.accept().unwrap().0), seen: vec![] };
        script(&mut p);
        p.seen
    })
}

pub trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The server's end of a connection.
pub struct Peer {
    pub stream: Box<dyn Stream>,
    /// Procedures of the calls received.
    pub seen: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Got {
    pub xid: u32,
    pub proc: u32,
    /// First word of the arguments.
    pub arg: u32,
}

pub fn parse(m: &[u8]) -> Got {
    let w = |i: usize| m.get(4 * i..4 * i + 4).map_or(0, |b| u32::from_be_bytes(b.try_into().unwrap()));
    assert_eq!((w(1), w(2), w(3)), (0, 2, PROG));
    // Flavor and length of the credential are words 6 and 7.
    Got { xid: w(0), proc: w(5), arg: w(10 + w(7) as usize / 4) }
}

impl Peer {
    /// The next call; `None` at the end of the stream.
    pub fn call(&mut self) -> Option<Got> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).ok()?;
        let mut m = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut m).ok()?;
        let got = parse(&m);
        self.seen.push(got.proc);
        Some(got)
    }

    pub fn write(&mut self, bytes: &[u8]) {
        // The client may have given up already.
        let _ = self.stream.write_all(bytes);
    }

    pub fn reply(&mut self, to: Got) {
        self.write(&record(&reply(to.xid, to.arg)));
    }

    /// Answers every call with its argument until the client leaves.
    pub fn serve(&mut self) {
        while let Some(c) = self.call() {
            self.reply(c);
        }
    }
}

pub fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|w| w.to_be_bytes()).collect()
}

pub fn reply(xid: u32, value: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0, value])
}

pub fn record(m: &[u8]) -> Vec<u8> {
    let mut r = (m.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    r.extend_from_slice(m);
    r
}

/// A UDP server: `answer` gets the number of the datagram and the call, and gives the datagrams to send back. Ends
/// with procedure 99, which it does not answer, and returns all calls before.
pub fn datagram(answer: fn(usize, Got) -> Vec<Vec<u8>>) -> (String, JoinHandle<Vec<Got>>) {
    datagram_at("127.0.0.1:0", answer)
}

/// The same at an address.
pub fn datagram_at(addr: &str, answer: fn(usize, Got) -> Vec<Vec<u8>>) -> (String, JoinHandle<Vec<Got>>) {
    let s = UdpSocket::bind(addr).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let addr = s.local_addr().unwrap().to_string();
    let join = std::thread::spawn(move || {
        let mut seen = vec![];
        let mut buf = [0; 1 << 16];
        loop {
            let (n, peer) = s.recv_from(&mut buf).unwrap();
            let got = parse(&buf[..n]);
            if got.proc == 99 {
                return seen;
            }
            for d in answer(seen.len(), got) {
                s.send_to(&d, peer).unwrap();
            }
            seen.push(got);
        }
    });
    (addr, join)
}

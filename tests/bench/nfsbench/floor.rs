//! The floor: a server that only answers. No file system, no permissions, no limits: what is left is what the
//! kernel's sockets and the decoding of a call cost on this machine. Not for any other use than as a yardstick.

use crate::error::{BenchError, Context, Result};
use crate::out::{Out, Payload};
use crate::process;
use crate::records::Records;
use crate::xdr::{Dec, LAST_FRAGMENT, MOUNT, NFS, VERSION, proc3, put_u32};
use crate::{FloorArgs, SendBy};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

const RX_BYTES: usize = 128 << 10;
/// READ replies above this size are sent from where the data lie.
const INLINE: usize = 16 << 10;
/// Largest READ.
const MAX_READ: usize = 1 << 20;
/// Size of the one file without `--file`.
const FILE_SIZE: u64 = 1 << 30;
const LISTENER: Token = Token(usize::MAX);
const HANDLE: &[u8] = b"floorfh1";

struct Conn {
    socket: Socket,
    records: Records,
    out: Out,
}

/// What replies are made of.
struct Floor {
    payload: Payload,
    /// `fattr3` of every object.
    attr: [u8; 84],
    data: Vec<u8>,
}

/// Serves until it is killed.
pub(crate) fn run(args: &FloorArgs) -> Result<()> {
    process::raise_open_files()?;
    if let Some(cpu) = args.cpu {
        process::pin(cpu)?;
    }
    let (payload, size) = match &args.file {
        None => (Payload::Memory(vec![0x5a; MAX_READ]), FILE_SIZE),
        Some(path) => {
            let what = path.display().to_string();
            let file = File::open(path).context(what.as_str())?;
            let size = file.metadata().context(what)?.len();
            let payload = match args.send {
                SendBy::Sendfile => Payload::File(file),
                SendBy::Copy => Payload::Copied(file),
                SendBy::Splice => Payload::Spliced(file),
            };
            (payload, size)
        }
    };
    // The one way for all sizes, where a way is asked for.
    let inline = if args.send == SendBy::Sendfile { INLINE } else { 0 };
    let floor = Floor { payload, attr: attributes(size), data: vec![0x5a; inline] };

    let addr: SocketAddr = (args.host, args.port).into();
    let what = format!("listening on {addr}");
    let listener =
        Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP)).context(&*what)?;
    listener.set_reuse_address(true).context(&*what)?;
    listener.bind(&addr.into()).context(&*what)?;
    listener.listen(4096).context(&*what)?;
    listener.set_nonblocking(true).context(&*what)?;
    let mut poll = Poll::new().context(&*what)?;
    poll.registry()
        .register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)
        .context(&*what)?;
    println!("floor: {what}");

    let mut conns: Slab<Conn> = Slab::new();
    let mut rx = vec![0; RX_BYTES];
    let mut events = Events::with_capacity(1024);
    let nap = args.busy.then_some(Duration::ZERO);
    loop {
        match poll.poll(&mut events, nap) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            other => other.context("polling")?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut conns)?;
                continue;
            }
            let Some(conn) = conns.get_mut(event.token().0) else { continue };
            let open = if event.is_readable() { turn(&floor, conn, &mut rx) } else { flush(&floor, conn) };
            if let Err(e) = open {
                if !matches!(&e, BenchError::Io { source, .. } if source.kind() == ErrorKind::UnexpectedEof) {
                    eprintln!("floor: {e}");
                }
                // Dropping the socket also ends its being watched.
                conns.try_remove(event.token().0);
            }
        }
    }
}

fn accept(listener: &Socket, poll: &Poll, conns: &mut Slab<Conn>) -> Result<()> {
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
            Err(e) => return Err(e).context("accepting"),
        };
        socket.set_nonblocking(true).context("accepting")?;
        socket.set_tcp_nodelay(true).context("accepting")?;
        let entry = conns.vacant_entry();
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut SourceFd(&socket.as_raw_fd()), Token(entry.key()), interest)
            .context("accepting")?;
        entry.insert(Conn { socket, records: Records::new(false), out: Out::default() });
    }
}

/// Answers everything that has arrived, with one send.
fn turn(floor: &Floor, conn: &mut Conn, rx: &mut [u8]) -> Result<()> {
    let Conn { socket, records, out } = conn;
    loop {
        match (&*socket).read(rx) {
            Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof)).context("closed"),
            Ok(n) => {
                records.feed(rx.get(..n).unwrap_or_default(), |call, _| floor.answer(call, out))?;
                if n < RX_BYTES {
                    break;
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("receiving"),
        }
    }
    flush(floor, conn)
}

fn flush(floor: &Floor, conn: &mut Conn) -> Result<()> {
    conn.out.flush(&conn.socket, Some(&floor.payload)).context("sending")
}

impl Floor {
    fn answer(&self, call: &[u8], out: &mut Out) -> Result<()> {
        let mut d = Dec::new(call);
        let xid = d.u32()?;
        let (message, _, program, version, procedure) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        if message != 0 {
            return Err(BenchError::Reply("a REPLY came as a call".into()));
        }
        for _credential_then_verifier in 0..2 {
            d.u32()?;
            d.opaque()?;
        }
        let at = out.buf.len();
        let buf = &mut out.buf;
        // mark, xid, REPLY, MSG_ACCEPTED, AUTH_NONE, SUCCESS, and NFS3_OK; the status goes where there is none
        words(buf, &[0, xid, 1, 0, 0, 0, 0, 0]);
        let mut bulk = None;
        match (program, version, procedure) {
            (NFS | MOUNT, VERSION, proc3::NULL) | (MOUNT, VERSION, 3) => buf.truncate(at + 28),
            (MOUNT, VERSION, 1) => {
                self.handle(buf);
                words(buf, &[1, 1]);
            }
            (NFS, VERSION, proc3::GETATTR) => buf.extend_from_slice(&self.attr),
            (NFS, VERSION, proc3::LOOKUP) => {
                self.handle(buf);
                self.post_op(buf);
                words(buf, &[0]);
            }
            (NFS, VERSION, proc3::ACCESS) => {
                self.post_op(buf);
                words(buf, &[0x3f]);
            }
            (NFS, VERSION, proc3::READ) => {
                d.opaque()?;
                let (offset, count) = (d.u64()?, d.u32()?.min(MAX_READ as u32));
                self.post_op(buf);
                words(buf, &[count, 0, count]);
                let count = count as usize;
                match self.data.get(..count) {
                    Some(data) => {
                        buf.extend_from_slice(data);
                        buf.resize(buf.len().next_multiple_of(4), 0);
                    }
                    None if count.is_multiple_of(4) => bulk = Some((offset as usize, count)),
                    None => return Err(BenchError::Usage("the floor reads multiples of 4 bytes".into())),
                }
            }
            (NFS, VERSION, proc3::WRITE) => {
                d.opaque()?;
                d.u64()?;
                let count = d.u32()?;
                words(buf, &[0]);
                self.post_op(buf);
                words(buf, &[count, 0, 7, 7]);
            }
            (NFS, VERSION, proc3::CREATE) => {
                words(buf, &[1]);
                self.handle(buf);
                self.post_op(buf);
                words(buf, &[0, 0]);
            }
            (NFS, VERSION, proc3::REMOVE) => words(buf, &[0, 0]),
            (NFS, VERSION, proc3::COMMIT) => words(buf, &[0, 0, 7, 7]),
            _ => {
                // PROC_UNAVAIL
                buf.truncate(at + 24);
                words(buf, &[3]);
            }
        }
        let len = buf.len() - at - 4 + bulk.map_or(0, |(_, n)| n);
        put_u32(buf, at, LAST_FRAGMENT | len as u32);
        out.commit();
        if let Some((offset, n)) = bulk {
            out.payload(offset, n);
        }
        Ok(())
    }

    fn handle(&self, buf: &mut Vec<u8>) {
        words(buf, &[HANDLE.len() as u32]);
        buf.extend_from_slice(HANDLE);
    }

    fn post_op(&self, buf: &mut Vec<u8>) {
        words(buf, &[1]);
        buf.extend_from_slice(&self.attr);
    }
}

#[inline]
fn words(buf: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|w| buf.extend_from_slice(&w.to_be_bytes()));
}

/// `fattr3` of a regular file of `size` bytes.
fn attributes(size: u64) -> [u8; 84] {
    let mut v = Vec::with_capacity(84);
    // type, mode, nlink, uid, gid
    words(&mut v, &[1, 0o644, 1, 0, 0]);
    // size, used, rdev, fsid, fileid, atime, mtime, ctime
    [size, size, 0, 1, 2, 3, 4, 5].iter().for_each(|x| v.extend_from_slice(&x.to_be_bytes()));
    let mut attr = [0; 84];
    attr.copy_from_slice(&v);
    attr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{self, Caller, Outcome};

    fn floor() -> Floor {
        Floor { payload: Payload::Memory(vec![1; MAX_READ]), attr: attributes(9), data: vec![2; INLINE] }
    }

    fn ask(procedure: u32, args: &[u32]) -> (Outcome, Vec<u8>) {
        let mut call = xdr::call(Some(Caller { uid: 0, gid: 0 }), NFS, procedure);
        call.opaque(HANDLE);
        words(&mut call.0, args);
        put_u32(&mut call.0, 4, 77);
        let mut out = Out::default();
        floor().answer(&call.0[4..], &mut out).unwrap();
        let mark = u32::from_be_bytes(out.buf[..4].try_into().unwrap());
        assert_eq!(mark & LAST_FRAGMENT, LAST_FRAGMENT);
        let mut d = Dec::new(&out.buf[4..]);
        let (xid, outcome) = xdr::reply(&mut d).unwrap();
        assert_eq!(xid, 77);
        (outcome, out.buf[28..].to_vec())
    }

    #[test]
    fn replies_have_the_length_that_the_protocol_gives_them() {
        assert_eq!(ask(proc3::NULL, &[]), (Outcome::Success, vec![]));
        assert_eq!(ask(proc3::GETATTR, &[]).1.len(), 4 + 84);
        assert_eq!(ask(proc3::READ, &[0, 0, 4096]).1.len(), 4 + 88 + 12 + 4096);
        assert_eq!(ask(proc3::READ, &[0, 0, 1 << 20]).1.len(), 4 + 88 + 12);
        assert_eq!(ask(proc3::COMMIT, &[0, 0, 0]).1.len(), 4 + 8 + 8);
        assert_eq!(ask(proc3::READDIRPLUS, &[]).0, Outcome::Accepted(3));
    }

    #[test]
    fn a_truncated_call_is_an_error() {
        assert!(floor().answer(&[0; 20], &mut Out::default()).is_err());
    }
}

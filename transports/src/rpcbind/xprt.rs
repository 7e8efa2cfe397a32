//! Blocking clients for short conversations on this host: AF_UNIX, and probes of registered addresses.

use std::io::{self, Read, Write};
use std::net::{self, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;
use sunrpc::clnt::{CallXprt, MAX_MESSAGE};
use sunrpc::record::LAST_FRAGMENT;

/// How long an answer may take. A service manager may have to start the server first.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a registered server may take to show that it lives.
const PROBE: Duration = Duration::from_secs(2);

/// A connection with record marks.
pub(super) struct StreamClient<S>(S);

/// A datagram there and one back.
pub(super) struct DatagramClient(UdpSocket);

/// Connects to a path, or to a name in the abstract space if it begins with `@`.
pub(super) fn connect(addr: &str) -> io::Result<StreamClient<UnixStream>> {
    let s = match addr.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => UnixStream::connect(addr)?,
    };
    s.set_read_timeout(Some(TIMEOUT))?;
    s.set_write_timeout(Some(TIMEOUT))?;
    Ok(StreamClient(s))
}

/// Connects to a server on this host that may not be there any more.
pub(super) fn probe_tcp(addr: &net::SocketAddr) -> io::Result<StreamClient<TcpStream>> {
    let s = TcpStream::connect_timeout(addr, PROBE)?;
    s.set_read_timeout(Some(PROBE))?;
    s.set_write_timeout(Some(PROBE))?;
    Ok(StreamClient(s))
}

/// The same for datagrams.
pub(super) fn probe_udp(addr: &net::SocketAddr) -> io::Result<DatagramClient> {
    let any: net::SocketAddr = match addr.is_ipv6() {
        true => (Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    let s = UdpSocket::bind(any)?;
    s.connect(addr)?;
    s.set_read_timeout(Some(PROBE))?;
    Ok(DatagramClient(s))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<S: Read + Write> CallXprt for StreamClient<S> {
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> io::Result<Vec<u8>> {
        let len = u32::try_from(call.len()).ok().filter(|n| n & LAST_FRAGMENT == 0);
        let mark = len.ok_or_else(|| invalid("call exceeds the limit"))? | LAST_FRAGMENT;
        self.0.write_all(&[&mark.to_be_bytes(), call].concat())?;
        loop {
            let rec = self.record()?;
            if rec.first_chunk::<4>() == Some(&xid.to_be_bytes()) {
                return Ok(rec);
            }
        }
    }
}

impl<S: Read + Write> StreamClient<S> {
    fn record(&mut self) -> io::Result<Vec<u8>> {
        let mut rec = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.0.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let len = (mark & !LAST_FRAGMENT) as usize;
            if len > MAX_MESSAGE - rec.len() {
                return Err(invalid("reply exceeds the limit"));
            }
            // Memory follows the bytes that arrive, not the length that is claimed.
            if (&mut self.0).take(len as u64).read_to_end(&mut rec)? < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if mark & LAST_FRAGMENT != 0 {
                return Ok(rec);
            }
            if len == 0 {
                return Err(invalid("empty fragment"));
            }
        }
    }
}

impl CallXprt for DatagramClient {
    fn roundtrip(&mut self, _: u32, call: &[u8]) -> io::Result<Vec<u8>> {
        self.0.send(call)?;
        let mut reply = [0; 1024];
        let n = self.0.recv(&mut reply)?;
        Ok(reply.get(..n).unwrap_or(&reply).to_vec())
    }
}

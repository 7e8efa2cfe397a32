//! A blocking client connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use sunrpc::clnt::{CallXprt, MAX_MESSAGE};
use sunrpc::record::LAST_FRAGMENT;

/// How long a reply may take.
const TIMEOUT: Duration = Duration::from_secs(60);

struct TcpClient(TcpStream);

pub(super) fn connect(addr: &str) -> io::Result<Box<dyn CallXprt + Send>> {
    let s = TcpStream::connect(addr)?;
    s.set_nodelay(true)?;
    s.set_read_timeout(Some(TIMEOUT))?;
    s.set_write_timeout(Some(TIMEOUT))?;
    Ok(Box::new(TcpClient(s)))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl TcpClient {
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

impl CallXprt for TcpClient {
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> io::Result<Vec<u8>> {
        let len = u32::try_from(call.len()).ok().filter(|n| n & LAST_FRAGMENT == 0);
        let mark = len.ok_or_else(|| invalid("call exceeds the limit"))? | LAST_FRAGMENT;
        let mut msg = Vec::with_capacity(call.len() + 4);
        msg.extend_from_slice(&mark.to_be_bytes());
        msg.extend_from_slice(call);
        self.0.write_all(&msg)?;
        loop {
            let rec = self.record()?;
            // A reply to a call that this client gave up on is skipped.
            if rec.first_chunk::<4>() == Some(&xid.to_be_bytes()) {
                return Ok(rec);
            }
        }
    }
}

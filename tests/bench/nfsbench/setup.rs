//! Preparation, one blocking call at a time: mount, look up, create.

use crate::error::{BenchError, Context, Result};
use crate::records::Records;
use crate::xdr::{self, Caller, Dec, Enc, MOUNT, NFS, Outcome, proc3, put_u32};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// A server that needs longer for a call of the preparation hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Page of a directory listing.
const LIST_BYTES: u32 = 64 << 10;

/// A connection for single calls.
pub(crate) struct Rpc {
    socket: Socket,
    xid: u32,
    caller: Caller,
}

impl Rpc {
    /// Connects to `addr`; calls are made in the name of `caller`.
    pub(crate) fn dial(addr: SocketAddr, caller: Caller) -> Result<Self> {
        let what = format!("connecting to {addr}");
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))
            .context(what.as_str())?;
        socket.connect_timeout(&addr.into(), PATIENCE).context(what.as_str())?;
        socket.set_tcp_nodelay(true).context(what.as_str())?;
        socket.set_read_timeout(Some(PATIENCE)).context(what.as_str())?;
        socket.set_write_timeout(Some(PATIENCE)).context(what)?;
        // The load's xids start elsewhere; see there.
        Ok(Self { socket, xid: 0x7000_0000, caller })
    }

    /// The socket, in non-blocking mode.
    pub(crate) fn into_socket(self) -> Result<Socket> {
        self.socket.set_nonblocking(true).context("non-blocking mode")?;
        Ok(self.socket)
    }

    /// The socket, for bytes of one's own between calls.
    #[allow(dead_code)] // for the program that shares this file
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// A call of `procedure`, to be filled with arguments.
    pub(crate) fn call(&self, prog: u32, procedure: u32) -> Enc {
        xdr::call(Some(self.caller), prog, procedure)
    }

    /// Sends `call`, named `name` in errors, and hands the results after the RPC header to `take`.
    pub(crate) fn run<T>(
        &mut self,
        name: &str,
        mut call: Enc,
        take: impl FnOnce(&mut Dec<'_>) -> Result<T>,
    ) -> Result<T> {
        self.xid += 1;
        call.close(0);
        put_u32(&mut call.0, 4, self.xid);
        self.socket.write_all(&call.0).context(format!("{name}: sending"))?;
        let mut records = Records::new(true);
        let mut buf = vec![0; 64 << 10];
        let mut reply = None;
        while reply.is_none() {
            let n = self.socket.read(&mut buf).context(format!("{name}: waiting for the reply"))?;
            if n == 0 {
                return Err(refused(name, "by closing the connection"));
            }
            records.feed(buf.get(..n).unwrap_or_default(), |record, _| {
                reply = Some(record.to_vec());
                Ok(())
            })?;
        }
        let reply = reply.unwrap_or_default();
        let mut d = Dec::new(&reply);
        match xdr::reply(&mut d)? {
            (xid, _) if xid != self.xid => Err(BenchError::Reply(format!("{name}: xid of another call"))),
            (_, Outcome::Success) => take(&mut d),
            (_, outcome) => Err(refused(name, format!("{outcome:?}"))),
        }
    }

    /// The same for a call whose results start with a status.
    fn run_ok<T>(
        &mut self,
        name: &str,
        call: Enc,
        take: impl FnOnce(&mut Dec<'_>) -> Result<T>,
    ) -> Result<T> {
        self.run(name, call, |d| match d.u32()? {
            0 => take(d),
            status => Err(refused(name, format!("status {status}"))),
        })
    }

    /// MOUNT's MNT: the handle of an export's root.
    pub(crate) fn mount(&mut self, export: &str) -> Result<Vec<u8>> {
        let mut c = self.call(MOUNT, 1);
        c.opaque(export.as_bytes());
        self.run_ok(&format!("MNT {export}"), c, |d| Ok(d.handle()?.to_vec()))
    }

    /// LOOKUP of one name.
    pub(crate) fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>> {
        let mut c = self.call(NFS, proc3::LOOKUP);
        c.opaque(dir).opaque(name.as_bytes());
        self.run_ok(&format!("LOOKUP {name}"), c, |d| Ok(d.handle()?.to_vec()))
    }

    /// LOOKUP of a path below `root`, component by component.
    pub(crate) fn walk(&mut self, root: &[u8], path: &str) -> Result<Vec<u8>> {
        path.split('/').filter(|p| !p.is_empty()).try_fold(root.to_vec(), |dir, name| self.lookup(&dir, name))
    }

    /// GETATTR: the size in bytes. Also what makes the server take a new connection for a client's.
    pub(crate) fn size(&mut self, fh: &[u8]) -> Result<u64> {
        let mut c = self.call(NFS, proc3::GETATTR);
        c.opaque(fh);
        self.run_ok("GETATTR", c, |d| {
            d.bytes(20)?;
            d.u64()
        })
    }

    /// CREATE; an existing file is emptied or left as it is.
    pub(crate) fn create(&mut self, dir: &[u8], name: &str, empty: bool) -> Result<Vec<u8>> {
        let mut c = self.call(NFS, proc3::CREATE);
        create_args(&mut c, dir, name, empty);
        let fh = self.run_ok(&format!("CREATE {name}"), c, |d| {
            Ok(if d.u32()? != 0 { Some(d.handle()?.to_vec()) } else { None })
        })?;
        match fh {
            Some(fh) => Ok(fh),
            None => self.lookup(dir, name),
        }
    }

    /// REMOVE of one name.
    pub(crate) fn remove(&mut self, dir: &[u8], name: &str) -> Result<()> {
        let mut c = self.call(NFS, proc3::REMOVE);
        c.opaque(dir).opaque(name.as_bytes());
        self.run_ok(&format!("REMOVE {name}"), c, |_| Ok(()))
    }

    /// Names and handles of the first `max` files of a directory, without dot entries.
    pub(crate) fn list(&mut self, dir: &[u8], max: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        let (mut cookie, mut verf) = (0, [0; 8]);
        loop {
            let mut c = self.call(NFS, proc3::READDIRPLUS);
            c.opaque(dir).u64(cookie).u64(u64::from_be_bytes(verf)).u32(LIST_BYTES).u32(LIST_BYTES);
            let (v, eof) = self.run_ok("READDIRPLUS", c, |d| {
                xdr::entries(d, |e| {
                    cookie = e.cookie;
                    if let Some(fh) = e.handle
                        && !matches!(e.name, b"." | b"..")
                    {
                        found.push((e.name.to_vec(), fh.to_vec()));
                    }
                })
            })?;
            verf = v;
            found.truncate(max);
            if eof || found.len() == max {
                return Ok(found);
            }
        }
    }
}

fn refused(call: &str, status: impl Into<String>) -> BenchError {
    BenchError::Refused { call: call.into(), status: status.into() }
}

/// Arguments of CREATE UNCHECKED with mode 0644, emptying an existing file or leaving it.
pub(crate) fn create_args(e: &mut Enc, dir: &[u8], name: &str, empty: bool) {
    e.opaque(dir).opaque(name.as_bytes()).u32(0);
    e.u32(1).u32(0o644).u32(0).u32(0);
    if empty {
        e.u32(1).u64(0);
    } else {
        e.u32(0);
    }
    e.u32(0).u32(0);
}

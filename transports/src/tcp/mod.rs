//! RPC over TCP (RFC 5531 section 11).

mod xprt;

use crate::class::{Listener, PolledXprt, XprtClass};
use mio::event::Source;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use xprt::TcpXprt;

/// The class `tcp`.
pub(crate) const CLASS: XprtClass = XprtClass { scheme: "tcp", listen, connect: crate::clnt::tcp::connect };

/// Connections that the kernel keeps for us while the acceptor is busy.
const BACKLOG: i32 = 1024;

struct TcpListener {
    socket: mio::net::TcpListener,
    addr: SocketAddr,
}

fn listen(addr: &str) -> io::Result<Box<dyn Listener>> {
    let mut last =
        io::Error::new(io::ErrorKind::InvalidInput, "no address; write HOST:PORT, [::]:2049 for all");
    for addr in addr.to_socket_addrs()? {
        match bind(addr) {
            Ok(l) => return Ok(Box::new(l)),
            // A host without IPv6 still has "every address".
            Err(e) if addr.ip().is_unspecified() && addr.is_ipv6() && no_ipv6(&e) => {
                let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port());
                return Ok(Box::new(bind(v4)?));
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn no_ipv6(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let s = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    s.set_reuse_address(true)?;
    if addr.is_ipv6() {
        s.set_only_v6(!addr.ip().is_unspecified())?;
    }
    s.set_nonblocking(true)?;
    s.bind(&addr.into())?;
    s.listen(BACKLOG)?;
    let socket = mio::net::TcpListener::from_std(s.into());
    let addr = socket.local_addr()?;
    Ok(TcpListener { socket, addr })
}

impl Listener for TcpListener {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.socket
    }

    fn accept(&mut self) -> io::Result<Box<dyn PolledXprt>> {
        let (stream, peer) = self.socket.accept()?;
        Ok(Box::new(TcpXprt::new(stream, peer)?))
    }

    fn url(&self) -> String {
        format!("tcp://{}", self.addr)
    }
}

//! RPC over UDP (RFC 5531 section 10 leaves reliability to the caller): a message is a datagram.
//!
//! Each worker has a socket of its own on the same port; the kernel spreads callers over them.

mod outbox;
mod xprt;

use crate::class::{Datagrams, Endpoint, PolledXprt, XprtClass};
use crate::inet::bind_first;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use sunrpc_sys::datagram;
use xprt::{MAX_PAYLOAD, UdpXprt};

/// The class `udp`.
pub(crate) const CLASS: XprtClass = XprtClass { scheme: "udp", listen, connect: crate::clnt::udp::open };

/// Calls whose payloads a socket's buffers hold, each way.
const IN_BUFFERS: usize = 32;

/// A bound port.
struct UdpEndpoint {
    addr: SocketAddr,
    /// Its first socket, until a worker gets it.
    first: Option<Socket>,
}

fn listen(addr: &str) -> io::Result<Endpoint> {
    let first = bind_first(addr, |a| bind(a, false))?;
    let addr = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(Endpoint::Datagrams(Box::new(UdpEndpoint { addr, first: Some(first) })))
}

/// A socket on `addr`. Only one that comes `later` shares the port from the start: so the first finds out whether
/// somebody else has it.
fn bind(addr: SocketAddr, later: bool) -> io::Result<Socket> {
    let s = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        s.set_only_v6(!addr.ip().is_unspecified())?;
    }
    s.set_nonblocking(true)?;
    let bytes = IN_BUFFERS * MAX_PAYLOAD as usize;
    datagram::set_buffers(s.as_fd(), bytes, bytes)?;
    // Before it is bound: no datagram may arrive without its destination.
    datagram::tell_destination(s.as_fd(), addr.is_ipv6())?;
    s.set_reuse_port(later)?;
    s.bind(&addr.into())?;
    s.set_reuse_port(true)?;
    Ok(s)
}

impl Datagrams for UdpEndpoint {
    fn open(&mut self) -> io::Result<Box<dyn PolledXprt>> {
        let socket = match self.first.take() {
            Some(s) => s,
            None => bind(self.addr, true)?,
        };
        Ok(Box::new(UdpXprt::new(socket, self.addr)?))
    }

    fn url(&self) -> String {
        format!("udp://{}", self.addr)
    }
}

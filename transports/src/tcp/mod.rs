//! RPC over TCP (RFC 5531 section 11).

use crate::class::{Endpoint, Listener, PolledXprt, XprtClass};
use crate::inet::bind_first;
use crate::stream::StreamXprt;
use mio::event::Source;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use sunrpc::xprt::{PeerAddr, XprtCaps};

/// The class `tcp`.
pub(crate) const CLASS: XprtClass = XprtClass { scheme: "tcp", listen, connect: crate::clnt::tcp::open };

const CAPS: XprtCaps =
    XprtCaps { class: "tcp", stream: true, congestion_control: true, max_payload: 1 << 20, lends: true };

/// Connections that the kernel keeps for us while the acceptor is busy.
const BACKLOG: i32 = 1024;

struct TcpListener {
    socket: mio::net::TcpListener,
    addr: SocketAddr,
}

fn listen(addr: &str) -> io::Result<Endpoint> {
    Ok(Endpoint::Listener(Box::new(bind_first(addr, bind)?)))
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
        stream.set_nodelay(true)?;
        // An IPv4 client of a dual-stack socket is an IPv4 client.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        Ok(Box::new(StreamXprt::new(stream, PeerAddr::Inet(peer), &CAPS)))
    }

    fn url(&self) -> String {
        format!("tcp://{}", self.addr)
    }
}

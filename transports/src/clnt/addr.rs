//! Addresses of servers.

use socket2::SockAddr;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Longest path of a local socket, terminator excluded (`sockaddr_un`).
const MAX_PATH: usize = 107;

/// All addresses of `HOST:PORT`, in the resolver's order.
pub(super) fn inet(addr: &str) -> io::Result<Vec<SocketAddr>> {
    let all: Vec<_> = addr.to_socket_addrs()?.collect();
    if all.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    Ok(all)
}

/// The socket at a path, or with `@NAME` in the abstract name space.
pub(super) fn local(path: &str) -> io::Result<SockAddr> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if path.is_empty() || path == "@" {
        return invalid("no socket named; write local:/PATH or local:@NAME");
    }
    if path.len() > MAX_PATH {
        return invalid("the socket's path exceeds 107 bytes");
    }
    match path.strip_prefix('@') {
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(path),
    }
}

//! Binding to internet addresses.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Binds to the first address of `addr` (HOST:PORT) that `bind` takes.
pub(crate) fn bind_first<T>(addr: &str, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last =
        io::Error::new(io::ErrorKind::InvalidInput, "no address; write HOST:PORT, [::]:2049 for all");
    for addr in addr.to_socket_addrs()? {
        match bind(addr) {
            Ok(l) => return Ok(l),
            // A host without IPv6 still has "every address".
            Err(e) if addr.ip().is_unspecified() && addr.is_ipv6() && no_ipv6(&e) => {
                return bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port()));
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn no_ipv6(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

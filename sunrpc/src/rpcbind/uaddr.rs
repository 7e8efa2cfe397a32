//! Network ids and universal addresses (RFC 1833 section 2, RFC 5665).

use crate::xprt::PeerAddr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A kind of transport, by the name that rpcbind knows it under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Netid {
    Tcp,
    Udp,
    Tcp6,
    Udp6,
    /// AF_UNIX.
    Local,
}

impl Netid {
    /// All of them.
    pub const ALL: [Netid; 5] = [Netid::Tcp, Netid::Udp, Netid::Tcp6, Netid::Udp6, Netid::Local];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Netid::Tcp => "tcp",
            Netid::Udp => "udp",
            Netid::Tcp6 => "tcp6",
            Netid::Udp6 => "udp6",
            Netid::Local => "local",
        }
    }

    /// By name; `unix` is another name of `local`.
    pub fn parse(name: &[u8]) -> Option<Netid> {
        match name {
            b"unix" => Some(Netid::Local),
            _ => Netid::ALL.into_iter().find(|n| n.name().as_bytes() == name),
        }
    }

    /// The one for an internet address.
    pub fn of(addr: &SocketAddr, datagrams: bool) -> Netid {
        match (addr.is_ipv6(), datagrams) {
            (false, false) => Netid::Tcp,
            (false, true) => Netid::Udp,
            (true, false) => Netid::Tcp6,
            (true, true) => Netid::Udp6,
        }
    }

    /// The one over which somebody calls.
    pub fn of_peer(peer: &PeerAddr, datagrams: bool) -> Netid {
        match peer {
            PeerAddr::Inet(a) => Netid::of(a, datagrams),
            PeerAddr::Local { .. } => Netid::Local,
        }
    }

    /// True for `udp` and `udp6`.
    pub const fn datagrams(self) -> bool {
        matches!(self, Netid::Udp | Netid::Udp6)
    }

    /// Protocol family and protocol, as /etc/netconfig names them.
    pub const fn family(self) -> (&'static str, &'static str) {
        match self {
            Netid::Tcp => ("inet", "tcp"),
            Netid::Udp => ("inet", "udp"),
            Netid::Tcp6 => ("inet6", "tcp"),
            Netid::Udp6 => ("inet6", "udp"),
            Netid::Local => ("loopback", "-"),
        }
    }
}

impl fmt::Display for Netid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A universal address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Uaddr {
    /// `h.h.h.h.p.p`, or an IPv6 address followed by `.p.p`.
    Inet(SocketAddr),
    /// An absolute path.
    Local(Vec<u8>),
}

/// Longest path of an AF_UNIX socket, in bytes.
const MAX_PATH: usize = 107;

impl Uaddr {
    /// Reads the address of a transport of this kind.
    pub fn parse(netid: Netid, text: &[u8]) -> Option<Uaddr> {
        match netid {
            Netid::Local => {
                let plain = text.starts_with(b"/") && text.len() <= MAX_PATH && !text.contains(&0);
                plain.then(|| Uaddr::Local(text.to_vec()))
            }
            _ => parse_inet(text).filter(|a| Netid::of(a, netid.datagrams()) == netid).map(Uaddr::Inet),
        }
    }

    /// The internet address, if it is one.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Uaddr::Inet(a) => Some(*a),
            Uaddr::Local(_) => None,
        }
    }

    /// As on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Uaddr::Inet(a) => format_inet(a).into_bytes(),
            Uaddr::Local(p) => p.clone(),
        }
    }
}

impl fmt::Display for Uaddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.to_bytes()).fmt(f)
    }
}

/// A universal address of the internet families. Nothing but the one way of writing that the RFCs give: decimal
/// octets without signs, spaces or leading zeros, no scope.
pub fn parse_inet(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([octet(high)?, octet(low)?]);
    let ip = match host.contains(':') {
        true => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?),
        false => IpAddr::V4(host.parse::<Ipv4Addr>().ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

/// The universal address of an internet address.
pub fn format_inet(addr: &SocketAddr) -> String {
    let [high, low] = addr.port().to_be_bytes();
    format!("{}.{high}.{low}", addr.ip())
}

fn octet(s: &str) -> Option<u8> {
    let plain = s.len() == 1 || (s.len() <= 3 && !s.starts_with('0'));
    (plain && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
}

/// Linux's `struct sockaddr_in` and `sockaddr_in6` with the universal address in them, as UADDR2TADDR answers.
pub(super) fn to_sockaddr(addr: &SocketAddr) -> Vec<u8> {
    let mut b = Vec::with_capacity(28);
    match addr {
        SocketAddr::V4(a) => {
            b.extend_from_slice(&AF_INET.to_ne_bytes());
            b.extend_from_slice(&a.port().to_be_bytes());
            b.extend_from_slice(&a.ip().octets());
            b.extend_from_slice(&[0; 8]);
        }
        SocketAddr::V6(a) => {
            b.extend_from_slice(&AF_INET6.to_ne_bytes());
            b.extend_from_slice(&a.port().to_be_bytes());
            b.extend_from_slice(&[0; 4]);
            b.extend_from_slice(&a.ip().octets());
            b.extend_from_slice(&[0; 4]);
        }
    }
    b
}

/// The other way round; `None` for other families and lengths.
pub(super) fn from_sockaddr(b: &[u8]) -> Option<SocketAddr> {
    let port = |b: &[u8]| Some(u16::from_be_bytes(*b.get(2..)?.first_chunk()?));
    match u16::from_ne_bytes(*b.first_chunk()?) {
        AF_INET if b.len() == 16 => {
            let ip: [u8; 4] = *b.get(4..)?.first_chunk()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port(b)?))
        }
        AF_INET6 if b.len() == 28 => {
            let ip: [u8; 16] = *b.get(8..)?.first_chunk()?;
            Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(b)?))
        }
        _ => None,
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internet_addresses_go_both_ways() {
        for (text, addr) in [
            ("127.0.0.1.8.1", "127.0.0.1:2049"),
            ("0.0.0.0.0.111", "0.0.0.0:111"),
            ("255.255.255.255.255.255", "255.255.255.255:65535"),
            ("::.8.1", "[::]:2049"),
            ("fe80::1.3.232", "[fe80::1]:1000"),
            ("::ffff:10.0.0.1.8.1", "[::ffff:10.0.0.1]:2049"),
        ] {
            let addr: SocketAddr = addr.parse().unwrap();
            assert_eq!(parse_inet(text.as_bytes()), Some(addr), "{text}");
            assert_eq!(format_inet(&addr), text);
            assert_eq!(from_sockaddr(&to_sockaddr(&addr)), Some(addr));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ".",
            "1.2",
            "1.2.3.4",
            "1.2.3.4.5",
            "1.2.3.4.5.6.7",
            "1.2.3.4.256.1",
            "1.2.3.4.1.+1",
            "1.2.3.4.1.-1",
            "1.2.3.4.01.1",
            "1.2.3.4.1.",
            "1.2.3.4..1",
            " 1.2.3.4.1.1",
            "1.2.3.4.1.1\n",
            "01.2.3.4.1.1",
            "::1",
            "::1.1",
            "fe80::1%eth0.8.1",
            "g::.8.1",
            "127.0.0.1:2049",
            "/run/x",
            "\u{0661}.2.3.4.1.1",
        ] {
            assert_eq!(parse_inet(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_inet(b"1.2.3.4.1.\xff"), None);
        assert_eq!(from_sockaddr(&[0; 15]), None);
        assert_eq!(from_sockaddr(&to_sockaddr(&"1.2.3.4:5".parse().unwrap())[..15]), None);
    }

    #[test]
    fn an_address_must_be_of_its_netid() {
        assert!(Uaddr::parse(Netid::Tcp, b"1.2.3.4.8.1").is_some());
        assert!(Uaddr::parse(Netid::Udp6, b"::1.8.1").is_some());
        assert!(Uaddr::parse(Netid::Local, b"/run/rpcbind.sock").is_some());
        assert_eq!(Uaddr::parse(Netid::Tcp6, b"1.2.3.4.8.1"), None);
        assert_eq!(Uaddr::parse(Netid::Udp, b"::1.8.1"), None);
        assert_eq!(Uaddr::parse(Netid::Tcp, b"/run/x"), None);
        assert_eq!(Uaddr::parse(Netid::Local, b"run"), None);
        assert_eq!(Uaddr::parse(Netid::Local, b"/a\0b"), None);
        assert_eq!(Uaddr::parse(Netid::Local, &[b'/'; 108]), None);
        for n in Netid::ALL {
            assert_eq!(Netid::parse(n.name().as_bytes()), Some(n));
        }
        assert_eq!(Netid::parse(b"unix"), Some(Netid::Local));
        assert_eq!(Netid::parse(b"sctp"), None);
    }
}

//! Source ports that only privileged programs may use.

use socket2::Socket;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use sunrpc::clnt::{ReservedPortError, random_xid};

/// Source ports of clients that call from a reserved port. Below are too many that servers of this host may want to
/// listen at (printing and directory services among them).
pub const RESERVED_PORTS: RangeInclusive<u16> = 665..=1023;

/// Binds a socket of the given family to a free reserved port of every address.
pub(super) fn bind(s: &Socket, v6: bool) -> io::Result<()> {
    let ip: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    choose(random_xid(), |port| s.bind(&SocketAddr::new(ip, port).into()))
}

/// Tries ports downwards, from 1023 on again after the lowest. Clients that start together, and one that reconnects,
/// begin at different ports: `seed` is random.
fn choose(seed: u32, mut bind: impl FnMut(u16) -> io::Result<()>) -> io::Result<()> {
    let (low, high) = RESERVED_PORTS.into_inner();
    let count = u32::from(high - low) + 1;
    for i in 0..count {
        // Below `count`, which fits.
        let down = (seed % count + i) % count;
        match bind(high - down as u16) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                return Err(ReservedPortError::NotPermitted.into());
            }
            done => return done,
        }
    }
    Err(ReservedPortError::AllInUse { low, high }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How binding ends where only `free` can be had, and the ports tried.
    fn tried(seed: u32, free: Option<u16>) -> (io::Result<()>, Vec<u16>) {
        let mut ports = Vec::new();
        let r = choose(seed, |p| {
            ports.push(p);
            if Some(p) == free { Ok(()) } else { Err(ErrorKind::AddrInUse.into()) }
        });
        (r, ports)
    }

    #[test]
    fn a_port_in_use_leads_to_the_next_one_down() {
        let (r, ports) = tried(0, Some(1021));
        assert!(r.is_ok());
        assert_eq!(ports, [1023, 1022, 1021]);
        let (r, ports) = tried(358, Some(1022));
        assert!(r.is_ok());
        assert_eq!(ports, [665, 1023, 1022], "round the end");
    }

    #[test]
    fn each_port_is_tried_once_before_it_is_said_that_none_is_free() {
        for seed in [0, 1, 358, u32::MAX] {
            let (r, mut ports) = tried(seed, None);
            let e = r.unwrap_err();
            assert_eq!(
                ReservedPortError::of(&e),
                Some(ReservedPortError::AllInUse { low: 665, high: 1023 }),
                "{e}"
            );
            ports.sort_unstable();
            assert!(ports.into_iter().eq(RESERVED_PORTS));
        }
    }

    #[test]
    fn a_user_who_may_not_is_told_at_once_what_to_do() {
        let mut tries = 0;
        let e = choose(7, |_| {
            tries += 1;
            Err(io::Error::from_raw_os_error(libc::EACCES))
        })
        .unwrap_err();
        assert_eq!((ReservedPortError::of(&e), tries), (Some(ReservedPortError::NotPermitted), 1));
        assert!(e.to_string().contains("CAP_NET_BIND_SERVICE"), "{e}");
        let other = choose(7, |_| Err(ErrorKind::OutOfMemory.into())).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::OutOfMemory);
    }
}

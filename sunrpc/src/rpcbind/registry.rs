//! What is registered.

use super::uaddr::{Netid, Uaddr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Program number of rpcbind.
pub const PROGRAM: u32 = 100_000;
/// Most registrations that local processes may hold together.
pub const MAX_ENTRIES: usize = 1024;
/// Most registrations of one user other than root.
pub const MAX_OF_USER: usize = 64;
/// Ports below it are for root to register.
const RESERVED: u16 = 1024;

/// Who registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The server that embeds this rpcbind; nobody can take its registrations away by a call.
    Server,
    /// A local process of this user.
    Uid(u32),
}

impl Owner {
    /// As DUMP shows it.
    fn text(self) -> String {
        match self {
            Owner::Server | Owner::Uid(0) => "superuser".to_owned(),
            Owner::Uid(uid) => uid.to_string(),
        }
    }
}

/// One registration: a version of a program, and where a kind of transport finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Program.
    pub prog: u32,
    /// Version.
    pub vers: u32,
    /// Kind of transport.
    pub netid: Netid,
    /// Where.
    pub addr: Uaddr,
}

/// A mapping with the one who registered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub map: Mapping,
    /// By whom.
    pub owner: Owner,
}

impl Entry {
    /// The owner as DUMP shows it.
    pub fn owner_text(&self) -> String {
        self.owner.text()
    }
}

/// The registrations, shared by all threads. Control plane: a lock held for a short walk over a bounded list.
#[derive(Debug, Default)]
pub struct Registry(RwLock<Vec<Entry>>);

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Entry>> {
        // Valid between any two operations on it.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Entry>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers what the embedding server offers, in place of what it said before.
    pub fn announce(&self, maps: impl IntoIterator<Item = Mapping>) {
        let mut all = self.write();
        all.retain(|e| e.owner != Owner::Server);
        for map in maps {
            let key = (map.prog, map.vers, map.netid);
            all.retain(|e| (e.map.prog, e.map.vers, e.map.netid) != key);
            all.push(Entry { map, owner: Owner::Server });
        }
    }

    /// SET by a local user. False if another address stands there, if the user may not register this, or if there
    /// is no room.
    pub fn set(&self, map: Mapping, uid: u32) -> bool {
        let low = map.addr.inet().is_some_and(|a| a.port() < RESERVED);
        if map.prog == PROGRAM || (low && uid != 0) || map.addr.inet().is_some_and(|a| a.port() == 0) {
            return false;
        }
        let mut all = self.write();
        let same = |e: &&Entry| (e.map.prog, e.map.vers, e.map.netid) == (map.prog, map.vers, map.netid);
        if let Some(e) = all.iter().find(same) {
            return e.map.addr == map.addr && e.owner == Owner::Uid(uid);
        }
        let set = all.iter().filter(|e| e.owner != Owner::Server).count();
        let own = all.iter().filter(|e| e.owner == Owner::Uid(uid)).count();
        if set >= MAX_ENTRIES || (uid != 0 && own >= MAX_OF_USER) {
            return false;
        }
        all.push(Entry { map, owner: Owner::Uid(uid) });
        true
    }

    /// UNSET by a local user, for one netid or for all. True if something was removed. Users remove what is theirs,
    /// root what is anybody's, nobody what the embedding server registered.
    pub fn unset(&self, prog: u32, vers: u32, netids: &[Netid], uid: u32) -> bool {
        let mut all = self.write();
        let before = all.len();
        all.retain(|e| {
            let named = e.map.prog == prog && e.map.vers == vers && netids.contains(&e.map.netid);
            let may = match e.owner {
                Owner::Server => false,
                Owner::Uid(u) => uid == 0 || u == uid,
            };
            !(named && may)
        });
        all.len() < before
    }

    /// The address of a program. With `any_version` another version's address will do if this one is not registered:
    /// the program itself then tells which versions it has.
    pub fn find(&self, prog: u32, vers: u32, netid: Netid, any_version: bool) -> Option<Uaddr> {
        let all = self.read();
        let mut of = all.iter().filter(|e| e.map.prog == prog && e.map.netid == netid);
        let exact = of.clone().find(|e| e.map.vers == vers);
        exact.or_else(|| of.next().filter(|_| any_version)).map(|e| e.map.addr.clone())
    }

    /// A copy of everything.
    pub fn entries(&self) -> Vec<Entry> {
        self.read().clone()
    }
}

/// The address at which a caller reaches an endpoint that is bound to `bound`; `None` if it cannot. `called` is the
/// address of this host that the call came to, `peer` the caller's.
///
/// An endpoint bound to all addresses is reached where the call was sent to. If that is not known, a caller on this
/// host is sent to the loopback address, and another one gets the unspecified address: callers who know the host's
/// address anyway take only the port of it.
pub fn reachable(bound: SocketAddr, called: Option<IpAddr>, peer: Option<IpAddr>) -> Option<SocketAddr> {
    let near = peer.is_none_or(|p| p.is_loopback());
    if bound.ip().is_loopback() && !near {
        return None;
    }
    if !bound.ip().is_unspecified() {
        return Some(bound);
    }
    let ip = match called.map(|ip| ip.to_canonical()) {
        Some(ip) if ip.is_ipv6() == bound.is_ipv6() && !ip.is_unspecified() => ip,
        _ if near && bound.is_ipv6() => Ipv6Addr::LOCALHOST.into(),
        _ if near => Ipv4Addr::LOCALHOST.into(),
        _ => bound.ip(),
    };
    Some(SocketAddr::new(ip, bound.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(prog: u32, vers: u32, netid: Netid, port: u16) -> Mapping {
        let ip: IpAddr = match netid {
            Netid::Tcp6 | Netid::Udp6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        Mapping { prog, vers, netid, addr: Uaddr::Inet(SocketAddr::new(ip, port)) }
    }

    #[test]
    fn owners_and_root_unset_and_nobody_else() {
        let r = Registry::new();
        assert!(r.set(map(7, 1, Netid::Tcp, 5000), 1000));
        assert!(r.set(map(7, 1, Netid::Tcp, 5000), 1000), "the same again");
        assert!(!r.set(map(7, 1, Netid::Tcp, 5001), 1000), "taken, even by the same user");
        assert!(!r.set(map(7, 1, Netid::Tcp, 5000), 1001), "somebody else's");
        assert!(!r.unset(7, 1, &Netid::ALL, 1001));
        assert!(!r.unset(7, 2, &Netid::ALL, 1000));
        assert!(!r.unset(7, 1, &[Netid::Udp], 1000));
        assert!(r.unset(7, 1, &[Netid::Tcp], 1000));
        assert!(r.set(map(7, 1, Netid::Tcp, 5000), 1000) && r.unset(7, 1, &Netid::ALL, 0));
        assert!(r.entries().is_empty());
    }

    #[test]
    fn what_the_server_announces_stays() {
        let r = Registry::new();
        assert!(r.set(map(100_003, 3, Netid::Tcp, 5000), 1000));
        r.announce([map(100_003, 3, Netid::Tcp, 2049), map(PROGRAM, 4, Netid::Tcp, 111)]);
        assert_eq!(r.entries().len(), 2, "its word replaces others'");
        for uid in [0, 1000] {
            assert!(!r.unset(100_003, 3, &Netid::ALL, uid));
            assert!(!r.set(map(100_003, 3, Netid::Tcp, 5000), uid));
            assert!(!r.set(map(PROGRAM, 2, Netid::Tcp, 5000), uid), "rpcbind itself is nobody's to register");
        }
        r.announce([]);
        assert!(r.entries().is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let r = Registry::new();
        let n = (0..MAX_OF_USER as u32 + 5).filter(|v| r.set(map(7, *v, Netid::Tcp, 5000), 1000)).count();
        assert_eq!(n, MAX_OF_USER, "a user's share");
        assert!(r.set(map(8, 1, Netid::Tcp, 5000), 1001), "others have theirs");
        let n = (0..2 * MAX_ENTRIES as u32).filter(|v| r.set(map(9, *v, Netid::Tcp, 5000), 0)).count();
        assert_eq!(n, MAX_ENTRIES - MAX_OF_USER - 1);
        assert!(!r.set(map(10, 1, Netid::Tcp, 5000), 1002));
    }

    #[test]
    fn reserved_ports_are_roots() {
        let r = Registry::new();
        assert!(!r.set(map(7, 1, Netid::Tcp, 1023), 1000));
        assert!(!r.set(map(7, 1, Netid::Tcp, 0), 0));
        assert!(r.set(map(7, 1, Netid::Tcp, 1023), 0) && r.set(map(7, 2, Netid::Tcp, 1024), 1000));
    }

    #[test]
    fn versions() {
        let r = Registry::new();
        r.announce([map(7, 3, Netid::Tcp, 1), map(7, 4, Netid::Tcp, 2)]);
        let port = |v, any| r.find(7, v, Netid::Tcp, any).and_then(|a| a.inet()).map(|a| a.port());
        assert_eq!(
            (port(4, true), port(9, true), port(9, false), port(3, false)),
            (Some(2), Some(1), None, Some(1))
        );
        assert_eq!(r.find(7, 3, Netid::Udp, true), None);
    }

    #[test]
    fn addresses_that_the_caller_can_reach() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        let at = |bound: &str, called: Option<&str>, peer: &str| {
            let r = reachable(bound.parse().unwrap(), called.map(ip), Some(ip(peer)));
            r.map_or("none".to_owned(), |a| a.to_string())
        };
        assert_eq!(at("0.0.0.0:9", Some("10.0.0.1"), "10.0.0.2"), "10.0.0.1:9");
        assert_eq!(at("[::]:9", Some("fd00::1"), "fd00::2"), "[fd00::1]:9");
        assert_eq!(at("0.0.0.0:9", Some("::ffff:10.0.0.1"), "10.0.0.2"), "10.0.0.1:9");
        assert_eq!(at("[::]:9", Some("10.0.0.1"), "10.0.0.2"), "[::]:9", "of the other family");
        assert_eq!(at("0.0.0.0:9", None, "10.0.0.2"), "0.0.0.0:9");
        assert_eq!(at("0.0.0.0:9", None, "127.0.0.1"), "127.0.0.1:9");
        assert_eq!(at("[::]:9", None, "::1"), "[::1]:9");
        assert_eq!(at("10.0.0.7:9", Some("10.0.0.1"), "10.0.0.2"), "10.0.0.7:9");
        assert_eq!(at("127.0.0.1:9", Some("10.0.0.1"), "10.0.0.2"), "none");
        assert_eq!(at("127.0.0.1:9", Some("127.0.0.1"), "127.0.0.1"), "127.0.0.1:9");
    }
}

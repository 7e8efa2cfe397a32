//! Registration with the rpcbind of this host, and what a server registers.

use crate::clnt::{self, ClntConfig};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use sunrpc::clnt::{CallOptions, CallXprt, Client, ClntError, Resend, XprtError};
use sunrpc::msg::AcceptStat;
use sunrpc::rpcbind::{Mapping, Netid, Rpcb, Uaddr};

/// Where the system's rpcbind listens for local processes; `@` is Linux's abstract space.
pub const SYSTEM_SOCKETS: [&str; 3] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock", "@/run/rpcbind.sock"];

/// How long an answer may take. A service manager may have to start rpcbind first.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a registered server may take to show that it lives.
const PROBE: Duration = Duration::from_secs(2);

fn options(timeout: Duration) -> CallOptions {
    CallOptions { timeout, ..CallOptions::default() }
}

/// Why programs could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// No rpcbind runs on this host, or it does not let this process connect.
    #[error("no rpcbind answers on this host (tried {}); start it (systemctl start rpcbind), or do without: --rpcbind embedded, --rpcbind off", SYSTEM_SOCKETS.join(", "))]
    NotRunning,
    /// Another server that is alive holds the registration.
    #[error(
        "program {prog} version {vers} is registered for {netid} by another server at {addr}, which answers; stop that server, or do not register: --rpcbind off"
    )]
    #[allow(missing_docs)]
    Taken { prog: u32, vers: u32, netid: Netid, addr: Uaddr },
    /// It refused.
    #[error(
        "rpcbind refused program {prog} version {vers} for {netid} at {addr}; another user's registration may stand in the way (rpcinfo shows it, as root `rpcinfo -d {prog} {vers}` removes it)"
    )]
    #[allow(missing_docs)]
    Refused { prog: u32, vers: u32, netid: Netid, addr: Uaddr },
    /// The conversation failed.
    #[error("rpcbind did not answer properly: {0}")]
    Client(#[from] ClntError),
}

/// What to register for programs (number, version) that are served at these URLs. There is one address for a kind of
/// transport: the most general of those given. An endpoint on all addresses of both families is one of each.
pub fn mappings(urls: &[String], programs: &[(u32, u32)]) -> Vec<Mapping> {
    let mut best: Vec<(Netid, Uaddr)> = Vec::new();
    for (netid, addr) in urls.iter().flat_map(|u| endpoints(u)) {
        match best.iter_mut().find(|(n, _)| *n == netid) {
            Some((_, have)) if rank(&addr) < rank(have) => *have = addr,
            Some(_) => {}
            None => best.push((netid, addr)),
        }
    }
    let of = |(prog, vers): (u32, u32)| {
        best.iter().map(move |(netid, addr)| Mapping { prog, vers, netid: *netid, addr: addr.clone() })
    };
    programs.iter().copied().flat_map(of).collect()
}

fn rank(a: &Uaddr) -> u8 {
    match a {
        Uaddr::Inet(a) if a.ip().is_unspecified() => 0,
        Uaddr::Inet(a) if a.ip().is_loopback() => 2,
        _ => 1,
    }
}

/// The kinds of transport behind a server's URL. Those that rpcbind has no name for yield nothing.
fn endpoints(url: &str) -> Vec<(Netid, Uaddr)> {
    let Some((scheme, rest)) = url.split_once(':') else { return Vec::new() };
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let datagrams = match scheme {
        "tcp" => false,
        "udp" => true,
        "local" => {
            let addr = Uaddr::parse(Netid::Local, rest.as_bytes());
            return addr.map(|a| (Netid::Local, a)).into_iter().collect();
        }
        _ => return Vec::new(),
    };
    let Ok(addr) = rest.parse::<SocketAddr>() else { return Vec::new() };
    let mut all = vec![(Netid::of(&addr, datagrams), Uaddr::Inet(addr))];
    if addr.is_ipv6() && addr.ip().is_unspecified() {
        // The endpoints of this crate on `[::]` take IPv4 as well.
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port());
        all.insert(0, (Netid::of(&v4, datagrams), Uaddr::Inet(v4)));
    }
    all
}

/// The system's rpcbind, if it answers.
pub fn system() -> Option<Rpcb<impl CallXprt>> {
    SYSTEM_SOCKETS.iter().find_map(|addr| {
        let mut c = Rpcb::new(clnt::local::connect(addr).ok()?);
        c.client().set_options(options(TIMEOUT));
        c.null().ok()?;
        Some(c)
    })
}

/// Programs registered with the system's rpcbind. They are taken back by [`Registration::withdraw`], or when this is
/// dropped.
#[derive(Debug)]
pub struct Registration {
    maps: Vec<Mapping>,
}

impl Registration {
    /// Registers. What a server that died has left is replaced; what belongs to one that is alive is not. The
    /// addresses must be bound by this process already.
    ///
    /// # Errors
    /// Nothing stays registered then.
    pub fn register(maps: Vec<Mapping>) -> Result<Self, RegisterError> {
        let mut c = system().ok_or(RegisterError::NotRunning)?;
        let there = c.dump()?;
        let mut done = Registration { maps: Vec::new() };
        for m in maps {
            let Mapping { prog, vers, netid, ref addr } = m;
            if let Some(old) = there.iter().find(|o| (o.prog, o.vers, o.netid) == (prog, vers, netid)) {
                // An address that this process has bound cannot be another server's.
                if !same_place(&old.addr, addr) && alive(old) {
                    return Err(RegisterError::Taken { prog, vers, netid, addr: old.addr.clone() });
                }
                c.unset(prog, vers, Some(netid))?;
            }
            if !c.set(&m)? {
                return Err(RegisterError::Refused { prog, vers, netid, addr: addr.clone() });
            }
            done.maps.push(m);
        }
        Ok(done)
    }

    /// What is registered.
    pub fn maps(&self) -> &[Mapping] {
        &self.maps
    }

    /// Takes the registrations back.
    pub fn withdraw(self) {}

    fn undo(&mut self) -> Result<(), RegisterError> {
        if self.maps.is_empty() {
            return Ok(());
        }
        let mut c = system().ok_or(RegisterError::NotRunning)?;
        // What rpcbind lost when it was restarted, and what another server has registered since, is not ours.
        let there = c.dump()?;
        for m in self.maps.drain(..).filter(|m| there.contains(m)) {
            c.unset(m.prog, m.vers, Some(m.netid))?;
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(e) = self.undo() {
            tracing::warn!("registrations may be left behind: {e}");
        }
    }
}

/// Whether two addresses cannot be bound by two servers at a time.
fn same_place(a: &Uaddr, b: &Uaddr) -> bool {
    match (a, b) {
        (Uaddr::Inet(a), Uaddr::Inet(b)) => {
            let wild = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() == b.port() && (a.ip() == b.ip() || wild)
        }
        _ => a == b,
    }
}

/// Whether the program is where it is registered. One that has the connection and is silent counts as busy; what
/// answers that it has no such program, or does not speak RPC, has taken over the port of a server that is gone.
fn alive(m: &Mapping) -> bool {
    let config = ClntConfig { connect_timeout: PROBE, ..ClntConfig::default() };
    let near = |a: SocketAddr| match a.ip() {
        ip if !ip.is_unspecified() => a,
        IpAddr::V4(_) => (Ipv4Addr::LOCALHOST, a.port()).into(),
        IpAddr::V6(_) => (Ipv6Addr::LOCALHOST, a.port()).into(),
    };
    let xprt: io::Result<clnt::Blocking> = match &m.addr {
        Uaddr::Local(path) => clnt::local::connect_with(&String::from_utf8_lossy(path), &config),
        Uaddr::Inet(a) if m.netid.datagrams() => clnt::udp::connect_with(&near(*a).to_string(), &config),
        Uaddr::Inet(a) => clnt::tcp::connect_with(&near(*a).to_string(), &config),
    };
    let Ok(xprt) = xprt else { return false };
    let mut c = Client::new(xprt, m.prog, m.vers);
    // Not again on a new connection: one that is closed without an answer is an answer.
    c.set_options(CallOptions { resend: Resend::Never, ..options(PROBE) });
    match c.call::<_, ()>(0, &()) {
        Ok(()) => true,
        Err(ClntError::Transport(XprtError::TimedOut { .. })) => !m.netid.datagrams(),
        Err(ClntError::Transport(_) | ClntError::Reply(_)) => false,
        Err(ClntError::Accept(AcceptStat::ProgUnavail)) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(urls: &[&str]) -> Vec<String> {
        let urls: Vec<String> = urls.iter().map(|u| (*u).to_owned()).collect();
        mappings(&urls, &[(7, 1)]).iter().map(|m| format!("{} {}", m.netid, m.addr)).collect()
    }

    #[test]
    fn what_a_server_registers() {
        assert_eq!(shown(&["tcp://[::]:2049"]), ["tcp 0.0.0.0.8.1", "tcp6 ::.8.1"]);
        assert_eq!(shown(&["tcp://0.0.0.0:2049"]), ["tcp 0.0.0.0.8.1"]);
        assert_eq!(
            shown(&["tcp://127.0.0.1:2049", "udp://[::1]:2050", "local:/run/x", "rdma://10.0.0.1:20049"]),
            ["tcp 127.0.0.1.8.1", "udp6 ::1.8.2", "local /run/x"]
        );
        assert_eq!(
            shown(&["tcp://127.0.0.1:1", "tcp://10.0.0.1:2"]),
            ["tcp 10.0.0.1.0.2"],
            "one for a netid"
        );
        assert_eq!(shown(&["tcp://10.0.0.1:2", "tcp://127.0.0.1:1"]), ["tcp 10.0.0.1.0.2"]);
        assert_eq!(shown(&["local:@name", "nonsense"]), [""; 0]);
        let two = mappings(&["tcp://10.0.0.1:2".to_owned()], &[(7, 1), (8, 3)]);
        assert_eq!(two.iter().map(|m| (m.prog, m.vers)).collect::<Vec<_>>(), [(7, 1), (8, 3)]);
    }

    #[test]
    fn the_dead_are_told_from_the_living() {
        use std::io::{Read, Write};
        let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = l.local_addr().unwrap();
        let m = Mapping { prog: 7, vers: 1, netid: Netid::Tcp, addr: Uaddr::Inet(addr) };
        // What follows the transaction id in the replies of servers that know the program, that do not, and of one
        // that hangs up.
        let served = std::thread::spawn(move || {
            for reply in [Some(0u32), Some(1), None] {
                let (mut s, _) = l.accept().unwrap();
                let mut call = [0; 44];
                s.read_exact(&mut call).unwrap();
                let Some(stat) = reply else { continue };
                let xid = u32::from_be_bytes(*call[4..].first_chunk().unwrap());
                let words = [0x8000_0018, xid, 1, 0, 0, 0, stat];
                s.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
            }
        });
        assert!(alive(&m), "it answers");
        assert!(!alive(&m), "another program");
        assert!(!alive(&m), "no RPC");
        served.join().unwrap();
        assert!(!alive(&m), "closed");
        assert!(!alive(&Mapping { netid: Netid::Udp, ..m.clone() }), "closed");
        let wild = |p| Uaddr::Inet(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), p));
        assert!(same_place(&wild(addr.port()), &m.addr) && !same_place(&wild(1), &m.addr));
    }
}

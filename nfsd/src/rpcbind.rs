//! Who answers as rpcbind (program 100000), so that clients find the ports: the system's, or this server.

use crate::config::RpcbindMode;
use crate::context::Shared;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use sunrpc::drc::DrcLimits;
use sunrpc::rpcbind::{Host, Mapping, Netid, PROGRAM, Registry, Rpcbind};
use sunrpc::svc::Program;
use sunrpc::xprt::PeerAddr;
use sunrpc_transports::rpcbind::{Registration, SYSTEM_SOCKETS, mappings, system};
use sunrpc_transports::{Builder, Handle, ServeError, Server, class};

/// Where the world asks.
const PORT: u16 = 111;
/// Connections to port 111. They are brief, and apart from those to NFS, so that a flood there takes nothing from it.
const MAX_CONNECTIONS: usize = 256;
/// Pages of 4 KiB that calls on port 111 may occupy.
const MAX_PAGES: usize = 4096;
/// Calls on port 111 never wait for anything.
const GRACE: Duration = Duration::from_secs(1);

/// The choice, made before the server is built.
pub enum Finder {
    /// Nobody.
    Off,
    /// The system's rpcbind.
    System {
        /// Without it there is no point in serving.
        required: bool,
    },
    /// This server.
    Embedded {
        /// What it answers.
        registry: Arc<Registry>,
        /// The program, for port 111 as well.
        program: Arc<Rpcbind>,
    },
}

/// In effect as long as it lives.
pub struct Found {
    _registration: Option<Registration>,
    embedded: Option<(Handle, JoinHandle<Result<(), ServeError>>)>,
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Finder::Off => "Off",
            Finder::System { .. } => "System",
            Finder::Embedded { .. } => "Embedded",
        })
    }
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("registration", &self._registration).finish_non_exhaustive()
    }
}

/// This host, for the embedded rpcbind.
struct ThisHost(Arc<Shared>);

impl Host for ThisHost {
    fn admits(&self, peer: &PeerAddr) -> bool {
        self.0.exports.load().admits_any(peer)
    }

    fn now(&self) -> u32 {
        // Seconds wrap in 2106, as the protocol's do.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as u32)
    }

    fn address_towards(&self, peer: IpAddr) -> Option<IpAddr> {
        // Connecting a datagram socket sends nothing: the kernel only looks up its way.
        let any: IpAddr =
            if peer.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let s = UdpSocket::bind((any, 0)).ok()?;
        s.connect((peer, PORT)).ok()?;
        s.local_addr().ok().map(|a| a.ip())
    }
}

impl Finder {
    /// Looks whether the system's rpcbind runs, if that matters.
    pub fn choose(mode: RpcbindMode, shared: &Arc<Shared>) -> Finder {
        match mode {
            RpcbindMode::Off => Finder::Off,
            RpcbindMode::System => Finder::System { required: true },
            RpcbindMode::Auto if system().is_some() => Finder::System { required: false },
            RpcbindMode::Auto | RpcbindMode::Embedded => {
                let registry = Arc::new(Registry::new());
                let program = Arc::new(Rpcbind::new(registry.clone(), ThisHost(shared.clone())));
                Finder::Embedded { registry, program }
            }
        }
    }

    /// Adds what the server itself must offer.
    pub fn join(&self, server: Builder) -> Builder {
        match self {
            Finder::Embedded { program, .. } => server.shared_program(program.clone()),
            _ => server,
        }
    }

    /// Makes the server known: its endpoints are open now.
    ///
    /// # Errors
    /// If the system's rpcbind was asked for by name and does not take the registration, or threads are refused.
    pub fn publish(self, server: &Server) -> Result<Found, Box<dyn std::error::Error>> {
        let (urls, programs) = (server.urls(), server.programs());
        match self {
            Finder::Off => Ok(Found { _registration: None, embedded: None }),
            Finder::System { required } => match Registration::register(mappings(&urls, &programs)) {
                Ok(r) => {
                    tracing::info!("rpcbind: registered {} addresses with the system's", r.maps().len());
                    Ok(Found { _registration: Some(r), embedded: None })
                }
                Err(e) if required => Err(e.into()),
                Err(e) => {
                    tracing::warn!("rpcbind: not registered, so clients must name the ports: {e}");
                    Ok(Found { _registration: None, embedded: None })
                }
            },
            Finder::Embedded { registry, program } => {
                let own = open_well_known(program, &urls)?;
                registry.announce(announced(&urls, &programs, own.as_ref().map(Server::urls)));
                let embedded = own.map(run).transpose()?;
                Ok(Found { _registration: None, embedded })
            }
        }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.embedded.take() {
            handle.stop(GRACE);
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(e)) => tracing::error!("rpcbind: {e}"),
                Err(_) => tracing::error!("rpcbind: its thread failed"),
            }
        }
    }
}

/// What the embedded rpcbind tells: the programs, and itself, at port 111 where that is open.
fn announced(urls: &[String], programs: &[(u32, u32)], well_known: Option<Vec<String>>) -> Vec<Mapping> {
    let (own, others): (Vec<_>, Vec<_>) = programs.iter().copied().partition(|(prog, _)| *prog == PROGRAM);
    let mut all = mappings(&well_known.unwrap_or_default(), &own);
    let there: Vec<Netid> = all.iter().map(|m| m.netid).collect();
    all.extend(mappings(urls, &own).into_iter().filter(|m| !there.contains(&m.netid)));
    all.sort_by_key(|m| std::cmp::Reverse(m.vers));
    all.extend(mappings(urls, &others));
    all
}

/// Port 111 on the same addresses and over the same transports as the server, and the socket for local processes, as
/// far as permitted. One line of the log says what was not.
fn open_well_known(program: Arc<Rpcbind>, urls: &[String]) -> Result<Option<Server>, ServeError> {
    let mut wanted: Vec<String> = urls.iter().filter_map(|u| at_port(u, PORT)).collect();
    wanted.dedup();
    let [local, ..] = SYSTEM_SOCKETS;
    let local = format!("local:{local}");
    if class::find(&local).is_ok() {
        wanted.push(local);
    }
    let mut server = Server::builder()
        .shared_program(program as Arc<dyn Program>)
        .threads(1)
        .helpers(1)
        .max_unvalidated(MAX_CONNECTIONS / 4)
        .max_connections(MAX_CONNECTIONS, MAX_CONNECTIONS / 2)
        .max_pages(MAX_PAGES)
        .duplicate_cache(DrcLimits { bytes: 0, ..DrcLimits::default() });
    let (mut open, mut refused) = (Vec::new(), Vec::new());
    for url in wanted {
        // The endpoint is opened before the builder is touched, which it would not survive.
        match class::listen(&url) {
            Ok(endpoint) => {
                server = server.listener(endpoint);
                open_to_all(&url);
                open.push(url);
            }
            Err(e) => refused.push(e.to_string()),
        }
    }
    let on = if open.is_empty() { String::new() } else { format!(" on {},", open.join(", ")) };
    if refused.is_empty() {
        tracing::info!("rpcbind: embedded,{on} and on the port of NFS");
    } else {
        tracing::info!(
            "rpcbind: embedded,{on} and on the port of NFS; clients that ask elsewhere must name the ports: {}",
            refused.join("; ")
        );
    }
    if open.is_empty() { Ok(None) } else { server.build().map(Some) }
}

/// Every local user may register, as the system's rpcbind lets them.
fn open_to_all(url: &str) {
    if let Some(path) = url.strip_prefix("local:")
        && let Err(e) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
    {
        tracing::warn!("rpcbind: only the server's own user may register at {path}: {e}");
    }
}

/// The same host and transport at another port; `None` if it has no ports.
fn at_port(url: &str, port: u16) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, old) = rest.rsplit_once(':')?;
    (matches!(scheme, "tcp" | "udp") && old != port.to_string()).then(|| format!("{scheme}://{host}:{port}"))
}

fn run(server: Server) -> std::io::Result<(Handle, JoinHandle<Result<(), ServeError>>)> {
    let handle = server.handle();
    let thread = std::thread::Builder::new().name("rpcbind".into()).spawn(move || server.run())?;
    Ok((handle, thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_111_is_asked_for_where_nfs_listens() {
        assert_eq!(at_port("tcp://[::]:2049", 111).as_deref(), Some("tcp://[::]:111"));
        assert_eq!(at_port("udp://127.0.0.1:3049", 111).as_deref(), Some("udp://127.0.0.1:111"));
        assert_eq!(at_port("tcp://[::]:111", 111), None, "there already");
        assert_eq!(at_port("local:/run/nfsd.sock", 111), None);
        assert_eq!(at_port("rdma://10.0.0.1:20049", 111), None);
    }

    #[test]
    fn rpcbind_is_announced_where_it_answers() {
        let programs = [(100_003, 3), (PROGRAM, 2), (PROGRAM, 4)];
        let urls = ["tcp://[::]:2049".to_owned(), "udp://[::]:2049".to_owned()];
        let show = |well_known: Option<Vec<String>>| {
            let all = announced(&urls, &programs, well_known);
            all.iter().map(|m| format!("{} {} {} {}", m.prog, m.vers, m.netid, m.addr)).collect::<Vec<_>>()
        };
        let own = show(None);
        assert!(own.contains(&"100000 4 tcp6 ::.8.1".to_owned()) && own.len() == 12);
        let both = show(Some(vec!["tcp://[::]:111".to_owned()]));
        assert!(both.contains(&"100000 4 tcp6 ::.0.111".to_owned()), "{both:?}");
        assert!(both.contains(&"100000 2 udp 0.0.0.0.8.1".to_owned()), "{both:?}");
        assert!(both.contains(&"100003 3 tcp 0.0.0.0.8.1".to_owned()) && both.len() == 12, "{both:?}");
    }
}

//! The server: program 100000 over a [`Registry`].

use super::proto::*;
use super::registry::{Entry, Mapping, PROGRAM, Registry, reachable};
use super::uaddr::{Netid, Uaddr, from_sockaddr, to_sockaddr};
use crate::page::PageWriter;
use crate::svc::{Call, Dispatch, Flow, Outcome, Program, RpcError, VersionInfo};
use crate::xdr::{Decoder, Encode, XdrString};
use crate::xprt::PeerAddr;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most bytes of a list in a datagram to another host.
pub const MAX_REMOTE_LIST: usize = 1200;
/// Most bytes of a list in a datagram to this host.
const MAX_NEAR_LIST: usize = 8192;
/// Room that replies may need for addresses and names.
const MAX_ADDR: usize = RPCB_UADDR_MAX as usize;

/// The program: rpcbind versions 3 and 4, port mapper version 2.
///
/// | call | answer |
/// |---|---|
/// | CALLIT, BCAST, INDIRECT | never forwarded: PROC_UNAVAIL over a stream, nothing at all to a datagram |
/// | SET, UNSET | from local processes over AF_UNIX only, whose user the kernel vouches for; FALSE to all others |
/// | GETPORT, GETADDR, GETVERSADDR | to everybody: hardly larger than the call |
/// | DUMP, GETADDRLIST | over streams and to this host in full; in a datagram to another host only if that host is admitted, and at most [`MAX_REMOTE_LIST`] bytes; SYSTEM_ERR if it does not fit |
/// | GETSTAT | over streams only |
///
/// So no datagram with a forged source makes this server a useful amplifier or a relay.
pub struct Rpcbind {
    service: Arc<Service>,
}

impl std::fmt::Debug for Rpcbind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rpcbind").field("registry", &self.service.registry).finish_non_exhaustive()
    }
}

/// What the program asks of the server around it.
pub trait Host: Send + Sync + 'static {
    /// Whether calls from there validate their connections, and whether that host gets lists in datagrams.
    fn admits(&self, peer: &PeerAddr) -> bool;

    /// Seconds since 1970, for GETTIME.
    fn now(&self) -> u32;

    /// This host's address as a caller at `peer` reaches it, if the host can tell.
    fn address_towards(&self, peer: IpAddr) -> Option<IpAddr>;
}

struct Service {
    registry: Arc<Registry>,
    host: Box<dyn Host>,
    stats: [Stats; RPCBVERS_STAT as usize],
}

#[derive(Default)]
struct Stats {
    calls: [AtomicU32; RPCBSTAT_HIGHPROC as usize],
    set: AtomicU32,
    unset: AtomicU32,
}

impl Rpcbind {
    /// Answers from `registry`, on this host.
    pub fn new(registry: Arc<Registry>, host: impl Host) -> Self {
        Rpcbind { service: Arc::new(Service { registry, host: Box::new(host), stats: Default::default() }) }
    }
}

impl Program for Rpcbind {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn name(&self) -> &'static str {
        "rpcbind"
    }

    fn versions(&self) -> &[VersionInfo] {
        const VERSIONS: &[VersionInfo] = &[
            VersionInfo { vers: PMAPVERS, procs: RpcbprogV2Server::<Service>::PROCEDURES },
            VersionInfo { vers: RPCBVERS, procs: RpcbprogV3Server::<Service>::PROCEDURES },
            VersionInfo { vers: RPCBVERS4, procs: RpcbprogV4Server::<Service>::PROCEDURES },
        ];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        let s = &self.service;
        Ok(Box::new(Worker {
            service: s.clone(),
            versions: [
                RpcbprogV2Server::from_arc(s.clone()).attach()?,
                RpcbprogV3Server::from_arc(s.clone()).attach()?,
                RpcbprogV4Server::from_arc(s.clone()).attach()?,
            ],
        }))
    }

    fn admits(&self, peer: &PeerAddr) -> bool {
        self.service.host.admits(peer)
    }
}

/// A thread's dispatchers, in the order of versions 2, 3, 4.
struct Worker {
    service: Arc<Service>,
    versions: [Box<dyn Dispatch>; 3],
}

impl Dispatch for Worker {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        let at = cx.vers.wrapping_sub(PMAPVERS) as usize;
        let (Some(version), Some(stats)) = (self.versions.get_mut(at), self.service.stats.get(at)) else {
            return Err(RpcError::ProcUnavail);
        };
        if let Some(n) = stats.calls.get(cx.proc as usize) {
            n.fetch_add(1, Ordering::Relaxed);
        }
        // Before the arguments are looked at, so that bad ones get no answer either.
        match (cx.vers, cx.proc) {
            (_, RPCBPROC_CALLIT) | (RPCBVERS4, RPCBPROC_INDIRECT) => return Err(not_here(cx)),
            (RPCBVERS4, RPCBPROC_GETSTAT) if !cx.caps.stream => return Err(RpcError::ProcUnavail),
            _ => {}
        }
        version.call(cx, args, out)
    }
}

/// The refusal of what would make this server work for strangers.
fn not_here(cx: &Call<'_>) -> RpcError {
    if cx.caps.stream { RpcError::ProcUnavail } else { RpcError::Drop }
}

fn netid_of(cx: &Call<'_>) -> Netid {
    Netid::of_peer(cx.peer, !cx.caps.stream)
}

fn peer_ip(cx: &Call<'_>) -> Option<IpAddr> {
    match cx.peer {
        PeerAddr::Inet(a) => Some(a.ip()),
        PeerAddr::Local { .. } => None,
    }
}

/// The user whose process calls, as the kernel vouches; `None` for whoever calls from elsewhere.
fn local_uid(cx: &Call<'_>) -> Option<u32> {
    match cx.peer {
        PeerAddr::Local { uid, .. } => Some(*uid),
        PeerAddr::Inet(_) => None,
    }
}

impl Service {
    /// The address of this host that the call came to; where the transport does not tell, the one from which packets go
    /// back to the caller.
    fn called_ip(&self, cx: &Call<'_>) -> Option<IpAddr> {
        let peer = peer_ip(cx).filter(|ip| !ip.is_loopback())?;
        cx.called().map(|ip| ip.to_canonical()).or_else(|| self.host.address_towards(peer))
    }

    fn reachable(&self, cx: &Call<'_>, addr: SocketAddr) -> Option<SocketAddr> {
        let called = if addr.ip().is_unspecified() { self.called_ip(cx) } else { None };
        reachable(addr, called, peer_ip(cx))
    }

    /// The address for this caller, as text; empty if there is none for it.
    fn for_caller(&self, cx: &Call<'_>, addr: Option<Uaddr>) -> Vec<u8> {
        match addr {
            Some(Uaddr::Inet(a)) => {
                self.reachable(cx, a).map_or_else(Vec::new, |a| Uaddr::Inet(a).to_bytes())
            }
            Some(Uaddr::Local(p)) if local_uid(cx).is_some() => p,
            _ => Vec::new(),
        }
    }

    /// What a list may take, in bytes; an error where none is given.
    fn list_room(&self, cx: &Call<'_>) -> Result<usize, RpcError> {
        match cx.peer {
            _ if cx.caps.stream => Ok(usize::MAX),
            PeerAddr::Local { .. } => Ok(MAX_NEAR_LIST),
            // The kernel takes no packet from the network that claims to come from here.
            PeerAddr::Inet(a) if a.ip().is_loopback() => Ok(MAX_NEAR_LIST),
            peer if self.host.admits(peer) => Ok(MAX_REMOTE_LIST),
            PeerAddr::Inet(_) => Err(RpcError::Drop),
        }
    }

    fn list<T: Encode>(&self, cx: &Call<'_>, list: T) -> Outcome<T> {
        let fits = match self.list_room(cx) {
            Ok(usize::MAX) => true,
            // Less than the call itself, so the error is safe to send.
            Ok(room) => crate::xdr::to_vec(&list, room).is_ok(),
            Err(e) => return Outcome::Fail(e),
        };
        if fits { Outcome::Done(list) } else { Outcome::Fail(RpcError::SystemErr) }
    }

    fn count(&self, cx: &Call<'_>, of: fn(&Stats) -> &AtomicU32) {
        if let Some(s) = self.stats.get(cx.vers.wrapping_sub(PMAPVERS) as usize) {
            of(s).fetch_add(1, Ordering::Relaxed);
        }
    }

    fn set(&self, cx: &Call<'_>, map: Option<Mapping>) -> Outcome<bool> {
        let done = match (local_uid(cx), map) {
            (Some(uid), Some(map)) => self.registry.set(map, uid),
            _ => false,
        };
        if done {
            self.count(cx, |s| &s.set);
        }
        Outcome::Done(done)
    }

    fn unset(&self, cx: &Call<'_>, prog: u32, vers: u32, netids: &[Netid]) -> Outcome<bool> {
        let done = local_uid(cx).is_some_and(|uid| self.registry.unset(prog, vers, netids, uid));
        if done {
            self.count(cx, |s| &s.unset);
        }
        Outcome::Done(done)
    }

    fn set34(&self, cx: &Call<'_>, arg: &rpcb) -> Outcome<bool> {
        let map = Netid::parse(arg.r_netid.as_bytes()).and_then(|netid| {
            let addr = Uaddr::parse(netid, arg.r_addr.as_bytes())?;
            Some(Mapping { prog: arg.r_prog, vers: arg.r_vers, netid, addr })
        });
        self.set(cx, map)
    }

    fn unset34(&self, cx: &Call<'_>, arg: &rpcb) -> Outcome<bool> {
        let one;
        let netids: &[Netid] = match (arg.r_netid.as_bytes(), Netid::parse(arg.r_netid.as_bytes())) {
            ([], _) => &Netid::ALL,
            (_, Some(n)) => {
                one = [n];
                &one
            }
            (_, None) => &[],
        };
        self.unset(cx, arg.r_prog, arg.r_vers, netids)
    }

    /// For the transport of the call (RFC 1833 section 2.2.1). A local process asks for whichever it names, since
    /// hardly a program listens on AF_UNIX.
    fn getaddr(&self, cx: &Call<'_>, arg: &rpcb, any_version: bool) -> Outcome<rpcb_uaddr> {
        let named = local_uid(cx).and_then(|_| Netid::parse(arg.r_netid.as_bytes()));
        let netid = named.unwrap_or_else(|| netid_of(cx));
        let addr = self.registry.find(arg.r_prog, arg.r_vers, netid, any_version);
        Outcome::Done(rpcb_uaddr(XdrString(self.for_caller(cx, addr))))
    }

    fn dump34(&self, cx: &Call<'_>) -> Outcome<rpcblist_ptr> {
        if let Err(e) = self.list_room(cx) {
            return Outcome::Fail(e);
        }
        let row = |e: Entry| rpcblist {
            rpcb_map: rpcb {
                r_prog: e.map.prog,
                r_vers: e.map.vers,
                r_netid: e.map.netid.name().into(),
                r_addr: XdrString(e.map.addr.to_bytes()),
                r_owner: e.owner_text().into(),
            },
        };
        self.list(cx, rpcblist_ptr(self.registry.entries().into_iter().map(row).collect()))
    }

    fn uaddr2taddr(&self, arg: &rpcb_uaddr) -> Outcome<rpcb_netbuf> {
        let buf = super::parse_inet(arg.as_bytes()).map_or_else(Vec::new, |a| to_sockaddr(&a));
        Outcome::Done(rpcb_netbuf { maxlen: buf.len() as u32, buf })
    }

    fn taddr2uaddr(&self, arg: &rpcb_netbuf) -> Outcome<rpcb_uaddr> {
        let text = from_sockaddr(&arg.buf).map_or_else(Vec::new, |a| Uaddr::Inet(a).to_bytes());
        Outcome::Done(rpcb_uaddr(XdrString(text)))
    }
}

/// The transport of a protocol number of version 2.
fn netid2(prot: u32) -> Option<Netid> {
    match prot {
        PMAP_IPPROTO_TCP => Some(Netid::Tcp),
        PMAP_IPPROTO_UDP => Some(Netid::Udp),
        _ => None,
    }
}

impl RpcbprogV2 for Service {
    fn pmapproc_set(&self, cx: &mut Call<'_>, arg: pmap) -> Outcome<bool> {
        let map = netid2(arg.prot).and_then(|netid| {
            let port = u16::try_from(arg.port).ok()?;
            let addr = Uaddr::Inet((std::net::Ipv4Addr::UNSPECIFIED, port).into());
            Some(Mapping { prog: arg.prog, vers: arg.vers, netid, addr })
        });
        self.set(cx, map)
    }

    fn pmapproc_unset(&self, cx: &mut Call<'_>, arg: pmap) -> Outcome<bool> {
        // Protocol and port are ignored (RFC 1833 section 3.2).
        self.unset(cx, arg.prog, arg.vers, &[Netid::Tcp, Netid::Udp])
    }

    fn pmapproc_getport(&self, cx: &mut Call<'_>, arg: pmap) -> Outcome<u32> {
        let found = netid2(arg.prot).and_then(|n| self.registry.find(arg.prog, arg.vers, n, true));
        let addr = found.and_then(|a| a.inet()).and_then(|a| reachable(a, None, peer_ip(cx)));
        Outcome::Done(addr.map_or(0, |a| a.port().into()))
    }

    fn pmapproc_dump(&self, cx: &mut Call<'_>) -> Outcome<pmaplist_ptr> {
        if let Err(e) = self.list_room(cx) {
            return Outcome::Fail(e);
        }
        let row = |e: Entry| {
            let prot = match e.map.netid {
                Netid::Tcp => PMAP_IPPROTO_TCP,
                Netid::Udp => PMAP_IPPROTO_UDP,
                _ => return None,
            };
            let port = e.map.addr.inet()?.port().into();
            Some(pmaplist { map: pmap { prog: e.map.prog, vers: e.map.vers, prot, port } })
        };
        self.list(cx, pmaplist_ptr(self.registry.entries().into_iter().filter_map(row).collect()))
    }

    fn pmapproc_callit(&self, cx: &mut Call<'_>, _: pmap_callargs) -> Outcome<pmap_callres> {
        Outcome::Fail(not_here(cx))
    }
}

impl RpcbprogV3 for Service {
    fn rpcbproc_set(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<bool> {
        self.set34(cx, &arg)
    }

    fn rpcbproc_unset(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<bool> {
        self.unset34(cx, &arg)
    }

    fn rpcbproc_getaddr(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<rpcb_uaddr> {
        self.getaddr(cx, &arg, true)
    }

    fn rpcbproc_dump(&self, cx: &mut Call<'_>) -> Outcome<rpcblist_ptr> {
        self.dump34(cx)
    }

    fn rpcbproc_callit(&self, cx: &mut Call<'_>, _: rpcb_rmtcallargs) -> Outcome<rpcb_rmtcallres> {
        Outcome::Fail(not_here(cx))
    }

    fn rpcbproc_gettime(&self, _: &mut Call<'_>) -> Outcome<u32> {
        Outcome::Done(self.host.now())
    }

    fn rpcbproc_uaddr2taddr(&self, _: &mut Call<'_>, arg: rpcb_uaddr) -> Outcome<rpcb_netbuf> {
        self.uaddr2taddr(&arg)
    }

    fn rpcbproc_taddr2uaddr(&self, _: &mut Call<'_>, arg: rpcb_netbuf) -> Outcome<rpcb_uaddr> {
        self.taddr2uaddr(&arg)
    }
}

impl RpcbprogV4 for Service {
    fn rpcbproc_set(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<bool> {
        self.set34(cx, &arg)
    }

    fn rpcbproc_unset(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<bool> {
        self.unset34(cx, &arg)
    }

    fn rpcbproc_getaddr(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<rpcb_uaddr> {
        self.getaddr(cx, &arg, true)
    }

    fn rpcbproc_dump(&self, cx: &mut Call<'_>) -> Outcome<rpcblist_ptr> {
        self.dump34(cx)
    }

    fn rpcbproc_bcast(&self, cx: &mut Call<'_>, _: rpcb_rmtcallargs) -> Outcome<rpcb_rmtcallres> {
        Outcome::Fail(not_here(cx))
    }

    fn rpcbproc_gettime(&self, _: &mut Call<'_>) -> Outcome<u32> {
        Outcome::Done(self.host.now())
    }

    fn rpcbproc_uaddr2taddr(&self, _: &mut Call<'_>, arg: rpcb_uaddr) -> Outcome<rpcb_netbuf> {
        self.uaddr2taddr(&arg)
    }

    fn rpcbproc_taddr2uaddr(&self, _: &mut Call<'_>, arg: rpcb_netbuf) -> Outcome<rpcb_uaddr> {
        self.taddr2uaddr(&arg)
    }

    fn rpcbproc_getversaddr(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<rpcb_uaddr> {
        self.getaddr(cx, &arg, false)
    }

    fn rpcbproc_indirect(&self, cx: &mut Call<'_>, _: rpcb_rmtcallargs) -> Outcome<rpcb_rmtcallres> {
        Outcome::Fail(not_here(cx))
    }

    fn rpcbproc_getaddrlist(&self, cx: &mut Call<'_>, arg: rpcb) -> Outcome<rpcb_entry_list_ptr> {
        if let Err(e) = self.list_room(cx) {
            return Outcome::Fail(e);
        }
        let row = |e: Entry| {
            let (family, proto) = e.map.netid.family();
            // Addresses of the caller's own protocol family only: others would be useless to it.
            if family != netid_of(cx).family().0 && local_uid(cx).is_none() {
                return None;
            }
            let addr = self.for_caller(cx, Some(e.map.addr));
            let semantics = if e.map.netid.datagrams() { NC_TPI_CLTS } else { NC_TPI_COTS_ORD };
            (!addr.is_empty() && addr.len() <= MAX_ADDR).then(|| rpcb_entry_list {
                rpcb_entry_map: rpcb_entry {
                    r_maddr: XdrString(addr),
                    r_nc_netid: e.map.netid.name().into(),
                    r_nc_semantics: semantics,
                    r_nc_protofmly: family.into(),
                    r_nc_proto: proto.into(),
                },
            })
        };
        let all = self.registry.entries().into_iter();
        let of = all.filter(|e| e.map.prog == arg.r_prog && e.map.vers == arg.r_vers);
        self.list(cx, rpcb_entry_list_ptr(of.filter_map(row).collect()))
    }

    fn rpcbproc_getstat(&self, _: &mut Call<'_>) -> Outcome<rpcb_stat_byvers> {
        let n = |a: &AtomicU32| a.load(Ordering::Relaxed) as i32;
        Outcome::Done(std::array::from_fn(|i| match self.stats.get(i) {
            Some(s) => rpcb_stat {
                info: std::array::from_fn(|p| s.calls.get(p).map_or(0, n)),
                setinfo: n(&s.set),
                unsetinfo: n(&s.unset),
                // Kept for each program asked for, these lists would grow with what strangers ask.
                addrinfo: Vec::new(),
                rmtinfo: Vec::new(),
            },
            None => rpcb_stat::default(),
        }))
    }
}

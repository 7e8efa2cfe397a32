//! rpcbind, called procedure by procedure through the service loop as from every kind of transport.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::Arc;
use sunrpc::clnt::{CallXprt, ClntError, XprtError};
use sunrpc::msg::AcceptStat;
use sunrpc::page::{PagePool, XdrBuf};
use sunrpc::record::Record;
use sunrpc::rpcbind::proto::*;
use sunrpc::rpcbind::{Host, MAX_REMOTE_LIST, Mapping, Netid, PROGRAM, Pmap, Registry, Rpcb, Rpcbind, Uaddr};
use sunrpc::svc::{Delivery, Disposition, Env, Mailbox, Program, Service};
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

struct NoMail;

impl Mailbox for NoMail {
    fn post(&self, d: Delivery) {
        panic!("nothing is deferred: {d:?}");
    }
}

const STREAM: XprtCaps =
    XprtCaps { class: "tcp", stream: true, congestion_control: true, max_payload: 1 << 20, lends: false };
const DATAGRAM: XprtCaps =
    XprtCaps { class: "udp", stream: false, congestion_control: false, max_payload: 32 << 10, lends: false };

/// A caller of a server in this process. `NotConnected` stands for a call that got no answer.
struct Caller {
    service: Service,
    pool: PagePool,
    mailbox: Arc<dyn Mailbox>,
    caps: XprtCaps,
    peer: PeerAddr,
    /// Bytes of the last call and of its reply.
    sizes: (usize, usize),
}

impl CallXprt for &mut Caller {
    fn roundtrip(&mut self, _: u32, call: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut out = XdrBuf::new();
        let env = Env {
            route: &Route::stream(self.peer),
            caps: &self.caps,
            xprt: XprtId { slot: 0, generation: 0 },
            mailbox: &self.mailbox,
            blocking: false,
            validated: false,
        };
        match self.service.process(Record { head: call, spans: &[] }, &env, None, &mut out, &mut self.pool) {
            Disposition::Reply { .. } => {
                let bytes = out.to_vec();
                out.recycle(&mut self.pool);
                let reply = bytes[if self.caps.stream { 4 } else { 0 }..].to_vec();
                self.sizes = (call.len(), reply.len());
                Ok(reply)
            }
            Disposition::Nothing => Err(std::io::ErrorKind::NotConnected.into()),
            other => panic!("{other:?}"),
        }
    }
}

fn addr(netid: Netid, port: u16) -> Uaddr {
    let host = if matches!(netid, Netid::Tcp6 | Netid::Udp6) { "[::]" } else { "0.0.0.0" };
    match netid {
        Netid::Local => Uaddr::Local(b"/run/rpcbind.sock".to_vec()),
        _ => Uaddr::Inet(format!("{host}:{port}").parse().unwrap()),
    }
}

fn map(prog: u32, vers: u32, netid: Netid, port: u16) -> Mapping {
    Mapping { prog, vers, netid, addr: addr(netid, port) }
}

/// What nfsd announces: NFS, MOUNT and rpcbind itself on all transports.
fn announced() -> Vec<Mapping> {
    let mut all = Vec::new();
    for netid in Netid::ALL {
        all.extend([2, 3, 4].map(|v| map(PROGRAM, v, netid, 111)));
        all.extend([1, 3].map(|v| map(100_005, v, netid, 2049)));
        all.push(map(100_003, 3, netid, 2049));
    }
    all
}

/// A host with two addresses that admits all but one network.
struct Example;

impl Host for Example {
    fn admits(&self, peer: &PeerAddr) -> bool {
        !peer.to_string().starts_with("192.0.2.")
    }

    fn now(&self) -> u32 {
        1_700_000_000
    }

    fn address_towards(&self, peer: IpAddr) -> Option<IpAddr> {
        match peer {
            IpAddr::V4(_) => "198.51.100.1".parse().ok(),
            IpAddr::V6(ip) if ip.to_string().starts_with("2001:db8::") => "2001:db8::1".parse().ok(),
            IpAddr::V6(_) => None,
        }
    }
}

struct Place {
    registry: Arc<Registry>,
    program: Arc<dyn Program>,
}

impl Place {
    fn new() -> Place {
        let registry = Arc::new(Registry::new());
        registry.announce(announced());
        let program = Arc::new(Rpcbind::new(registry.clone(), Example));
        Place { registry, program }
    }

    fn caller(&self, caps: XprtCaps, peer: PeerAddr) -> Caller {
        Caller {
            service: Service::attach(std::slice::from_ref(&self.program)).unwrap(),
            pool: PagePool::standalone(),
            mailbox: Arc::new(NoMail),
            caps,
            peer,
            sizes: (0, 0),
        }
    }

    fn tcp(&self, from: &str) -> Caller {
        self.caller(STREAM, PeerAddr::Inet(from.parse().unwrap()))
    }

    fn udp(&self, from: &str) -> Caller {
        self.caller(DATAGRAM, PeerAddr::Inet(from.parse().unwrap()))
    }

    fn local(&self, uid: u32) -> Caller {
        self.caller(XprtCaps { class: "local", ..STREAM }, PeerAddr::Local { uid, pid: 1 })
    }
}

fn silent<T>(r: Result<T, ClntError>) -> bool {
    matches!(r, Err(ClntError::Transport(XprtError::Io(e))) if e.kind() == std::io::ErrorKind::NotConnected)
}

fn unavailable<T>(r: Result<T, ClntError>) -> bool {
    matches!(r, Err(ClntError::Accept(AcceptStat::ProcUnavail)))
}

fn ask(prog: u32, vers: u32, netid: &str) -> rpcb {
    rpcb { r_prog: prog, r_vers: vers, r_netid: netid.into(), r_addr: "".into(), r_owner: "".into() }
}

#[test]
fn version_2() {
    let h = Place::new();
    let mut c = h.tcp("127.0.0.1:900");
    RpcbprogV2Client::new(&mut c).pmapproc_null().unwrap();
    let mut p = Pmap::new(&mut c);
    assert_eq!(p.getport(100_003, 3, false).unwrap(), Some(2049));
    assert_eq!(p.getport(100_003, 3, true).unwrap(), Some(2049));
    assert_eq!(p.getport(100_003, 9, false).unwrap(), Some(2049), "NFS itself says which versions it has");
    assert_eq!(p.getport(100_021, 4, false).unwrap(), None);
    let odd = pmap { prog: 100_003, vers: 3, prot: 132, port: 0 };
    assert_eq!(RpcbprogV2Client::new(&mut c).pmapproc_getport(&odd).unwrap(), 0);
    let all = Pmap::new(&mut c).dump().unwrap();
    assert_eq!(all.len(), 12, "tcp and udp only");
    assert!(all.contains(&(100_003, 3, 6, 2049)) && all.contains(&(100_000, 2, 17, 111)));

    let mut c = h.local(1000);
    let mine = pmap { prog: 7, vers: 1, prot: 17, port: 5000 };
    let mut p = RpcbprogV2Client::new(&mut c);
    assert!(p.pmapproc_set(&mine).unwrap());
    assert!(!p.pmapproc_set(&pmap { port: 5001, ..mine }).unwrap(), "taken");
    assert!(!p.pmapproc_set(&pmap { vers: 2, port: 70_000, ..mine }).unwrap(), "no port");
    assert_eq!(p.pmapproc_getport(&mine).unwrap(), 5000);
    assert!(p.pmapproc_unset(&pmap { prot: 6, port: 1, ..mine }).unwrap(), "protocol and port are ignored");
    assert_eq!(p.pmapproc_getport(&mine).unwrap(), 0);
}

#[test]
fn versions_3_and_4() {
    let h = Place::new();
    let mut c = h.tcp("127.0.0.1:900");
    let text = |a: rpcb_uaddr| String::from_utf8(a.0.0).unwrap();
    let mut v3 = RpcbprogV3Client::new(&mut c);
    v3.rpcbproc_null().unwrap();
    // The netid in the call is ignored: it asks for its own transport.
    assert_eq!(text(v3.rpcbproc_getaddr(&ask(100_003, 3, "udp6")).unwrap()), "127.0.0.1.8.1");
    assert_eq!(text(v3.rpcbproc_getaddr(&ask(100_021, 3, "tcp")).unwrap()), "");
    assert_eq!(v3.rpcbproc_gettime().unwrap(), 1_700_000_000);
    let taddr = v3.rpcbproc_uaddr2taddr(&rpcb_uaddr("10.0.0.1.8.1".into())).unwrap();
    assert_eq!((taddr.buf.len(), &taddr.buf[2..8]), (16, &[8, 1, 10, 0, 0, 1][..]));
    assert_eq!(text(v3.rpcbproc_taddr2uaddr(&taddr).unwrap()), "10.0.0.1.8.1");
    assert!(v3.rpcbproc_uaddr2taddr(&rpcb_uaddr("nonsense".into())).unwrap().buf.is_empty());
    assert_eq!(v3.rpcbproc_dump().unwrap().len(), 30);

    let mut v4 = RpcbprogV4Client::new(&mut c);
    v4.rpcbproc_null().unwrap();
    assert_eq!(v4.rpcbproc_gettime().unwrap(), 1_700_000_000);
    assert_eq!(text(v4.rpcbproc_taddr2uaddr(&taddr).unwrap()), "10.0.0.1.8.1");
    assert_eq!(v4.rpcbproc_uaddr2taddr(&rpcb_uaddr("10.0.0.1.8.1".into())).unwrap(), taddr);
    assert_eq!(text(v4.rpcbproc_getaddr(&ask(100_003, 4, "")).unwrap()), "127.0.0.1.8.1");
    assert_eq!(text(v4.rpcbproc_getversaddr(&ask(100_003, 4, "")).unwrap()), "", "this version or none");
    assert_eq!(text(v4.rpcbproc_getversaddr(&ask(100_003, 3, "")).unwrap()), "127.0.0.1.8.1");
    let list = v4.rpcbproc_getaddrlist(&ask(100_003, 3, "")).unwrap();
    let list: Vec<_> = list.iter().map(|e| &e.rpcb_entry_map).collect();
    let seen: Vec<_> = list.iter().map(|e| (e.r_nc_netid.as_str().unwrap(), e.r_nc_semantics)).collect();
    assert_eq!(seen, [("tcp", NC_TPI_COTS_ORD), ("udp", NC_TPI_CLTS)], "the caller's family");
    assert_eq!(list[0].r_maddr.as_bytes(), b"127.0.0.1.8.1");
    assert_eq!(
        (list[1].r_nc_protofmly.as_bytes(), list[1].r_nc_proto.as_bytes()),
        (&b"inet"[..], &b"udp"[..])
    );
    let stat = v4.rpcbproc_getstat().unwrap();
    assert_eq!((stat[1].info[3], stat[2].info[9], stat[2].info[12]), (2, 2, 1), "calls are counted");

    for (from, to) in [
        ("10.0.0.1:900", "198.51.100.1.8.1"),
        ("[2001:db8::7]:900", "2001:db8::1.8.1"),
        ("[fd00::7]:900", "::.8.1"),
        ("[::1]:900", "::1.8.1"),
    ] {
        let mut c = h.tcp(from);
        let got = RpcbprogV4Client::new(&mut c).rpcbproc_getaddr(&ask(100_003, 3, "")).unwrap();
        assert_eq!(text(got), to, "for {from}");
    }
}

#[test]
fn local_users_register_for_all_transports() {
    let h = Place::new();
    let mut c = h.local(1000);
    let mut r = Rpcb::new(&mut c);
    r.null().unwrap();
    for netid in Netid::ALL {
        let m = Mapping { prog: 7, ..map(7, 1, netid, 5000) };
        assert!(r.set(&m).unwrap(), "{netid}");
        let got = r.getaddr(7, 1, netid).unwrap().unwrap();
        assert_eq!(got.inet().map(|a| a.port()), m.addr.inet().map(|a| a.port()), "{netid}");
    }
    assert_eq!(r.dump().unwrap().len(), 35);
    let set = [
        ("sctp", "1.2.3.4.8.1"),
        ("tcp", "::1.8.1"),
        ("tcp", "nonsense"),
        ("local", "relative"),
        ("", "1.2.3.4.8.1"),
    ];
    for (netid, addr) in set {
        let arg = rpcb { r_addr: addr.into(), ..ask(8, 1, netid) };
        assert!(!RpcbprogV4Client::new(&mut c).rpcbproc_set(&arg).unwrap(), "{netid} {addr}");
        assert!(!RpcbprogV3Client::new(&mut c).rpcbproc_set(&arg).unwrap(), "{netid} {addr}");
    }
    let owner = |c: &mut Caller| {
        let all = RpcbprogV3Client::new(c).rpcbproc_dump().unwrap();
        all.iter().find(|e| e.rpcb_map.r_prog == 7).map(|e| e.rpcb_map.r_owner.to_string())
    };
    assert_eq!(owner(&mut c).as_deref(), Some("1000"));
    let mut other = h.local(1001);
    assert!(!Rpcb::new(&mut other).unset(7, 1, None).unwrap());
    assert!(!RpcbprogV4Client::new(&mut c).rpcbproc_unset(&ask(7, 1, "sctp")).unwrap());
    assert!(Rpcb::new(&mut c).unset(7, 1, Some(Netid::Udp)).unwrap());
    assert!(RpcbprogV3Client::new(&mut c).rpcbproc_unset(&ask(7, 1, "tcp")).unwrap());
    assert_eq!(h.registry.entries().iter().filter(|e| e.map.prog == 7).count(), 3);
    let mut root = h.local(0);
    assert!(Rpcb::new(&mut root).unset(7, 1, None).unwrap());
    assert!(!Rpcb::new(&mut root).unset(100_003, 3, None).unwrap(), "the server's own stay");
    let stat = RpcbprogV4Client::new(&mut root).rpcbproc_getstat().unwrap();
    assert_eq!((stat[2].setinfo, stat[2].unsetinfo, stat[1].unsetinfo), (5, 2, 1), "successful ones");
}

/// B15: no indirect calls, over TCP with an error, over UDP without any answer, whatever the arguments.
#[test]
fn b15_indirect_calls_are_refused_and_datagrams_get_no_answer() {
    let h = Place::new();
    let call = |c: &mut Caller, good: bool| {
        let v2 = pmap_callargs { prog: 100_003, vers: 3, proc: 0, args: vec![0; 64] };
        let v4 = rpcb_rmtcallargs { prog: 100_003, vers: 3, proc: 0, args: vec![0; 64] };
        let mut all: Vec<Result<(), ClntError>> = Vec::new();
        if good {
            all.push(RpcbprogV2Client::new(&mut *c).pmapproc_callit(&v2).map(|_| ()));
            all.push(RpcbprogV3Client::new(&mut *c).rpcbproc_callit(&v4).map(|_| ()));
            all.push(RpcbprogV4Client::new(&mut *c).rpcbproc_bcast(&v4).map(|_| ()));
            all.push(RpcbprogV4Client::new(&mut *c).rpcbproc_indirect(&v4).map(|_| ()));
        } else {
            all.push(RpcbprogV2Client::new(&mut *c).client().call(5, &7u32));
            all.push(RpcbprogV3Client::new(&mut *c).client().call(5, &7u32));
            all.push(RpcbprogV4Client::new(&mut *c).client().call(5, &7u32));
            all.push(RpcbprogV4Client::new(&mut *c).client().call(10, &7u32));
        }
        all
    };
    for good in [true, false] {
        for from in ["127.0.0.1:900", "10.0.0.1:900", "192.0.2.1:900", "[::1]:900"] {
            for r in call(&mut h.udp(from), good) {
                assert!(silent(r), "a datagram of {from} was answered");
            }
            for r in call(&mut h.tcp(from), good) {
                assert!(unavailable(r), "{from}");
            }
        }
        for r in call(&mut h.local(0), good) {
            assert!(unavailable(r));
        }
    }
}

/// B15: SET and UNSET only by local processes, whatever the source address claims.
#[test]
fn b15_nobody_registers_over_the_network() {
    let h = Place::new();
    assert!(h.registry.set(map(7, 1, Netid::Tcp, 5000), 0));
    let before = h.registry.entries();
    for from in ["127.0.0.1:900", "[::1]:900", "10.0.0.1:900"] {
        for mut c in [h.tcp(from), h.udp(from)] {
            let m = map(8, 1, Netid::Tcp, 5000);
            let p = pmap { prog: 8, vers: 1, prot: 6, port: 5000 };
            let set =
                rpcb { r_addr: "1.2.3.4.19.136".into(), r_owner: "superuser".into(), ..ask(8, 1, "tcp") };
            assert!(!Rpcb::new(&mut c).set(&m).unwrap());
            assert!(!Rpcb::new(&mut c).unset(7, 1, None).unwrap());
            assert!(!RpcbprogV3Client::new(&mut c).rpcbproc_set(&set).unwrap());
            assert!(!RpcbprogV3Client::new(&mut c).rpcbproc_unset(&ask(7, 1, "tcp")).unwrap());
            assert!(!RpcbprogV2Client::new(&mut c).pmapproc_set(&p).unwrap());
            assert!(!RpcbprogV2Client::new(&mut c).pmapproc_unset(&pmap { prog: 7, ..p }).unwrap());
        }
    }
    assert_eq!(h.registry.entries(), before);
}

/// B15: lists in datagrams go to this host and to admitted hosts only, and to those in one packet.
#[test]
fn b15_lists_in_datagrams_are_limited() {
    let h = Place::new();
    let lists = |c: &mut Caller| {
        [
            RpcbprogV2Client::new(&mut *c).pmapproc_dump().map(|l| l.len()),
            RpcbprogV3Client::new(&mut *c).rpcbproc_dump().map(|l| l.len()),
            RpcbprogV4Client::new(&mut *c).rpcbproc_dump().map(|l| l.len()),
            RpcbprogV4Client::new(&mut *c).rpcbproc_getaddrlist(&ask(100_003, 3, "")).map(|l| l.len()),
        ]
    };
    for r in lists(&mut h.udp("192.0.2.1:900")) {
        assert!(silent(r), "a host that is not admitted");
    }
    let near: Vec<_> = lists(&mut h.udp("127.0.0.1:900")).into_iter().map(Result::unwrap).collect();
    assert_eq!(near, [12, 30, 30, 2]);
    let mut c = h.udp("10.0.0.1:900");
    let all = Pmap::new(&mut c).dump().unwrap();
    assert_eq!(all.len(), 12);
    assert!(c.sizes.1 <= MAX_REMOTE_LIST + 24);
    let full = lists(&mut h.udp("10.0.0.1:900"));
    for r in &full[1..3] {
        assert!(matches!(r, Err(ClntError::Accept(AcceptStat::SystemErr))), "30 entries do not fit: {r:?}");
    }
    for from in ["127.0.0.1:900", "10.0.0.1:900", "192.0.2.1:900"] {
        assert!(unavailable(RpcbprogV4Client::new(&mut h.udp(from)).rpcbproc_getstat()));
    }
}

/// B15: what everybody gets in a datagram is no larger than the call.
#[test]
fn b15_single_answers_do_not_amplify() {
    let h = Place::new();
    for from in ["192.0.2.1:900", "10.0.0.1:900"] {
        let mut c = h.udp(from);
        RpcbprogV4Client::new(&mut c).rpcbproc_getaddr(&ask(100_003, 3, "")).unwrap();
        assert!(c.sizes.1 <= c.sizes.0, "GETADDR: {:?}", c.sizes);
        Pmap::new(&mut c).getport(100_003, 3, true).unwrap();
        assert!(c.sizes.1 <= c.sizes.0, "GETPORT: {:?}", c.sizes);
        assert!(unavailable(RpcbprogV4Client::new(&mut c).rpcbproc_getstat()));
        assert!(c.sizes.1 <= c.sizes.0, "errors: {:?}", c.sizes);
    }
}

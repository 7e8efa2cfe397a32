//! One call to many servers.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::clnt_fakes::*;
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::time::Duration;
use sunrpc::clnt::{ClntError, ProcId};
use sunrpc::msg::AcceptStat;
use sunrpc_transports::clnt::broadcast;

const OF: ProcId = ProcId { prog: PROG, vers: 1, proc: 1 };

fn stop(at: &[&str]) {
    let s = UdpSocket::bind("127.0.0.1:0").unwrap();
    for a in at {
        s.send_to(&words(&[1, 0, 2, PROG, 1, 99, 0, 0, 0, 0]), a).unwrap();
    }
}

#[test]
fn every_server_is_heard_once() {
    // The first answers twice, the second only when it is asked again, the third refuses, the fourth is silent; junk
    // and a stranger's transaction come along.
    let (a, ja) = datagram(|_, c| vec![vec![1], reply(c.xid ^ 1, 9), reply(c.xid, 10), reply(c.xid, 10)]);
    let (b, jb) = datagram(|n, c| if n == 0 { vec![] } else { vec![reply(c.xid, 20)] });
    let (c, jc) = datagram(|_, c| vec![words(&[c.xid, 1, 0, 0, 0, 1])]);
    let (d, jd) = datagram(|_, _| vec![]);
    let addrs: Vec<SocketAddr> = [&a, &b, &c, &d].map(|s| s.parse().unwrap()).to_vec();
    let mut heard = vec![];
    let n = broadcast::<_, u32>(&addrs, OF, &5u32, Duration::from_secs(30), |peer, r| {
        heard.push((addrs.iter().position(|x| *x == peer).unwrap(), r));
        if heard.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(n.unwrap(), 3);
    heard.sort_by_key(|(i, _)| *i);
    let [(0, Ok(10)), (1, Ok(20)), (2, Err(ClntError::Accept(AcceptStat::ProgUnavail)))] = &heard[..] else {
        panic!("{heard:?}")
    };
    stop(&[&a, &b, &c, &d]);
    let seen = [ja, jb, jc, jd].map(|j| j.join().unwrap());
    assert!(seen.iter().all(|calls| calls[0].arg == 5 && calls.iter().all(|c| c.xid == calls[0].xid)));
    assert!(seen[1].len() >= 2);
}

#[test]
fn silence_ends_with_the_time() {
    let (a, j) = datagram(|_, _| vec![]);
    let addrs = [a.parse().unwrap()];
    let n =
        broadcast::<_, u32>(&addrs, OF, &5u32, Duration::from_millis(50), |_, _| panic!("nobody answers"));
    assert_eq!(n.unwrap(), 0);
    stop(&[&a]);
    j.join().unwrap();
}

#[test]
fn both_families_at_once_and_no_address_at_all() {
    let (a, j) = datagram(|_, c| vec![reply(c.xid, 10)]);
    let addrs: Vec<SocketAddr> = vec![a.parse().unwrap(), "[::1]:1".parse().unwrap()];
    let r = broadcast::<_, u32>(&addrs, OF, &5u32, Duration::from_secs(30), |peer, r| {
        assert_eq!((peer, r.unwrap()), (addrs[0], 10));
        ControlFlow::Break(())
    });
    match r {
        Ok(n) => assert_eq!(n, 1),
        Err(e) => eprintln!("skipped: this host has no IPv6 ({e})"),
    }
    let none = broadcast::<_, u32>(&[], OF, &5u32, Duration::from_secs(1), |_, _| ControlFlow::Break(()));
    assert!(matches!(none, Err(ClntError::Transport(_))));
    stop(&[&a]);
    j.join().unwrap();
}

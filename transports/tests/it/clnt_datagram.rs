//! UDP clients against servers and networks that misbehave.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::clnt_fakes::*;
use std::time::Duration;
use sunrpc::clnt::{CallOptions, CallXprt, Client, ClntError, Repeat, Retransmit, XprtError};
use sunrpc_transports::clnt::{Blocking, ClntConfig, udp};

fn client(addr: &str) -> Client<Blocking> {
    let ms = Duration::from_millis;
    let config =
        ClntConfig { retransmit: Retransmit { first: ms(20), most: ms(100) }, ..ClntConfig::default() };
    Client::new(udp::connect_with(addr, &config).unwrap(), PROG, 1)
}

fn quick() -> CallOptions {
    CallOptions { timeout: Duration::from_millis(300), ..CallOptions::default() }
}

fn end<T: CallXprt>(mut c: Client<T>) {
    c.call_oneway(99, &()).unwrap();
}

#[test]
fn lost_datagrams_are_sent_again_with_their_transaction_id() {
    let (addr, server) = datagram(|n, c| if n < 2 { vec![] } else { vec![reply(c.xid, c.arg)] });
    let mut c = client(&addr);
    assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5);
    end(c);
    let seen = server.join().unwrap();
    // A reply that takes longer than the machine's mood allows may cost one more.
    assert!(seen.len() >= 3 && seen.iter().all(|g| *g == seen[0]), "{seen:?}");
}

#[test]
fn what_must_not_run_twice_is_sent_once() {
    let (addr, server) = datagram(|_, _| vec![]);
    let mut c = client(&addr);
    let mut v = c.with(quick());
    let call = v.start_with::<u32>(1, Repeat::Harmful, |_| Ok(())).unwrap();
    let e = v.finish(call).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::TimedOut { sends: 1 })), "{e:?}");
    end(c);
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn duplicates_strangers_and_garbage_are_dropped() {
    let (addr, server) = datagram(|_, c| {
        let right = reply(c.xid, c.arg);
        let call = words(&[c.xid, 0, 2, PROG, 1, 1, 0, 0, 0, 0]);
        vec![vec![], vec![1, 2], reply(c.xid ^ 1, 9), call, vec![7; 60_000], right.clone(), right]
    });
    let mut c = client(&addr);
    for i in 0..20u32 {
        assert_eq!(c.call::<_, u32>(1, &i).unwrap(), i);
    }
    assert!(c.xprt_mut().stray() >= 19 * 6);
    end(c);
    server.join().unwrap();
}

#[test]
fn a_damaged_reply_is_a_typed_error() {
    let (addr, server) = datagram(|_, c| vec![words(&[c.xid, 1, 0, 0, 0])]);
    let mut c = client(&addr);
    assert!(matches!(c.call::<_, u32>(1, &5u32), Err(ClntError::Reply(_))));
    end(c);
    server.join().unwrap();
}

#[test]
fn pipelined_calls_are_answered_in_any_order() {
    let (addr, server) = datagram(|_, c| vec![reply(c.xid, c.arg)]);
    let mut c = client(&addr);
    let calls: Vec<_> = (0..40u32).map(|i| c.start::<_, u32>(1, &i).unwrap()).collect();
    for (i, p) in calls.into_iter().enumerate().rev() {
        assert_eq!(c.finish(p).unwrap(), i as u32);
    }
    end(c);
    server.join().unwrap();
}

#[test]
fn a_port_where_nobody_listens_is_refused_at_once() {
    let addr = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut c = client(&addr);
    let e = c.call::<_, u32>(1, &5u32).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::Refused)), "{e:?}");
}

#[test]
fn a_restart_is_outlived() {
    let answer: fn(usize, Got) -> Vec<Vec<u8>> = |_, c| vec![reply(c.xid, c.arg)];
    let (addr, server) = datagram(answer);
    let mut c = client(&addr);
    assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5);
    c.call_oneway(99, &()).unwrap();
    server.join().unwrap();
    // The port is closed: the first sends are refused, one of the next finds the new server.
    let call = c.start::<_, u32>(1, &6u32).unwrap();
    c.flush().unwrap();
    let (_, server) = datagram_at(&addr, answer);
    assert_eq!(c.finish(call).unwrap(), 6);
    end(c);
    server.join().unwrap();
}

#[test]
fn a_call_too_large_for_a_datagram_is_not_sent() {
    let (addr, server) = datagram(|_, _| vec![]);
    let mut c = client(&addr);
    let e = c.call_with::<u32>(1, |w| sunrpc::xdr::XdrWrite::put(w, &[0; 70_000])).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::TooLarge { max: 65_507, .. })), "{e:?}");
    end(c);
    assert!(server.join().unwrap().is_empty());
}

#[test]
fn connect_knows_the_scheme() {
    let (addr, server) = datagram(|_, c| vec![reply(c.xid, c.arg)]);
    let mut c = Client::new(sunrpc_transports::connect(&format!("udp://{addr}")).unwrap(), PROG, 1);
    assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5);
    end(c);
    server.join().unwrap();
}

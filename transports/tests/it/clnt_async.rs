//! Calls as futures, with an executor of twenty lines.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::clnt_fakes::*;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use sunrpc::clnt::{CallOptions, Client, ClntError, Repeat, XprtError};
use sunrpc::msg::AcceptStat;
use sunrpc_transports::ConnectError;
use sunrpc_transports::clnt::{AsyncCall, AsyncClient, ClntConfig, Driver};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(f: F) -> F::Output {
    let mut f = pin!(f);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match f.as_mut().poll(&mut cx) {
            Poll::Ready(v) => return v,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Outcomes in the order in which the calls complete.
async fn all(calls: Vec<AsyncCall<u32>>) -> Vec<Result<u32, ClntError>> {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut out = vec![];
    poll_fn(move |cx| {
        calls.retain_mut(|c| match c.as_mut().poll(cx) {
            Poll::Ready(r) => {
                out.push(r);
                false
            }
            Poll::Pending => true,
        });
        if calls.is_empty() { Poll::Ready(std::mem::take(&mut out)) } else { Poll::Pending }
    })
    .await
}

fn client(d: &Driver, url: &str) -> AsyncClient {
    let config = ClntConfig { max_calls: 600, ..ClntConfig::default() };
    AsyncClient::new(block_on(d.connect(url, &config).unwrap()).unwrap(), PROG, 1)
}

#[test]
fn many_calls_on_several_connections_of_one_thread() {
    let d = Driver::new().unwrap();
    let (tcp, server) = stream(vec![|p| {
        let calls: Vec<_> = (0..500).map(|_| p.call().unwrap()).collect();
        calls.iter().rev().for_each(|c| p.reply(*c));
        p.serve();
    }]);
    let (udp, other) = datagram(|_, c| vec![reply(c.xid, c.arg)]);
    let (a, b) = (client(&d, &format!("tcp://{tcp}")), client(&d, &format!("udp://{udp}")));
    drop(d);
    let calls: Vec<AsyncCall<u32>> =
        (0..500u32).map(|i| a.call(1, &i)).chain((0..50u32).map(|i| b.call(1, &(1000 + i)))).collect();
    let mut got: Vec<u32> = block_on(all(calls)).into_iter().map(Result::unwrap).collect();
    got.sort_unstable();
    assert!(got.into_iter().eq((0..500).chain(1000..1050)));
    block_on(b.call_oneway(99, &())).unwrap();
    assert_eq!(block_on(a.call::<_, u32>(1, &7u32)).unwrap(), 7);
    drop((a, b));
    assert_eq!(server.join().unwrap().len(), 501, "the connection closes with its last handle");
    other.join().unwrap();
}

#[test]
fn a_dropped_call_is_given_up_and_its_reply_dropped() {
    let (addr, server) = stream(vec![|p| {
        let first = p.call().unwrap();
        let second = p.call().unwrap();
        p.reply(first);
        p.reply(second);
        p.serve();
    }]);
    let d = Driver::new().unwrap();
    let c = AsyncClient::new(
        block_on(
            d.connect(&format!("tcp://{addr}"), &ClntConfig { max_calls: 2, ..ClntConfig::default() })
                .unwrap(),
        )
        .unwrap(),
        PROG,
        1,
    );
    let mut first = Box::pin(c.call::<_, u32>(1, &5u32));
    // Polled once, so that a waker is stored.
    block_on(poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    let second = c.call::<_, u32>(2, &6u32);
    // The table is full.
    assert!(matches!(block_on(c.call::<_, u32>(3, &7u32)), Err(ClntError::Transport(XprtError::Busy(2)))));
    drop(first);
    // Given up before or after it was sent: the server waits for two calls.
    let third = c.call::<_, u32>(3, &7u32);
    assert_eq!(block_on(second).unwrap(), 6);
    assert_eq!(block_on(third).unwrap(), 7);
    drop(c);
    let seen = server.join().unwrap();
    assert!(seen == [1, 2, 3] || seen == [2, 3], "{seen:?}");
}

#[test]
fn failures_are_typed() {
    let d = Driver::new().unwrap();
    let (addr, server) = stream(vec![
        |p| {
            let c = p.call().unwrap();
            p.write(&record(&words(&[c.xid, 1, 0, 0, 0, 3])));
            p.call().unwrap();
            p.write(&[0xff; 4]);
            assert!(p.call().is_none());
        },
        |p| assert!(p.call().is_some()),
        |p| while p.call().is_some() {},
    ]);
    let c = client(&d, &format!("tcp://{addr}"));
    let fails = |c: &AsyncClient| block_on(c.call::<_, u32>(1, &5u32)).unwrap_err();
    assert!(matches!(fails(&c), ClntError::Accept(AcceptStat::ProcUnavail)));
    assert!(matches!(fails(&c), ClntError::Transport(XprtError::BadStream(_))));
    assert!(matches!(fails(&c), ClntError::Transport(XprtError::Lost { maybe_ran: true, .. })));
    let quick = c.with(CallOptions { timeout: Duration::from_secs(2), ..CallOptions::default() });
    assert!(matches!(fails(&quick), ClntError::Transport(XprtError::TimedOut { sends: 1 })));
    let large = c.call_with::<u32>(1, Repeat::Harmless, |w| sunrpc::xdr::XdrWrite::put(w, &[0; 2 << 20]));
    assert!(matches!(block_on(large), Err(ClntError::Arguments(_))));
    drop((c, quick));
    server.join().unwrap();
}

#[test]
fn connecting_fails_with_the_reason() {
    let d = Driver::new().unwrap();
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let e = block_on(d.connect(&format!("tcp://{addr}"), &ClntConfig::default()).unwrap()).unwrap_err();
    assert!(
        matches!(&e, ConnectError::Io { err, .. } if err.kind() == std::io::ErrorKind::ConnectionRefused),
        "{e}"
    );
    assert!(matches!(d.connect("quic://x", &ClntConfig::default()), Err(ConnectError::Class(_))));
    assert!(matches!(d.connect("x", &ClntConfig::default()), Err(ConnectError::Class(_))));
}

#[test]
fn clients_of_every_kind_share_a_connection() {
    let d = Driver::new().unwrap();
    let (addr, server) = stream(vec![Peer::serve]);
    let connecting = d.connect(&format!("tcp://{addr}"), &ClntConfig::default()).unwrap();
    let xprt = block_on(connecting).unwrap();
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let xprt = &xprt;
            s.spawn(move || {
                let mut c = Client::new(xprt.clone(), PROG, 1);
                for i in 0..100 {
                    assert_eq!(c.call::<_, u32>(1, &(1000 * t + i)).unwrap(), 1000 * t + i);
                }
                let started = c.start::<_, u32>(1, &t).unwrap();
                assert_eq!(block_on(xprt.complete(started)).unwrap(), t);
                let given_up = c.start::<_, u32>(1, &t).unwrap();
                c.cancel(given_up);
            });
        }
    });
    drop((xprt, d));
    assert!(server.join().unwrap().len() >= 404);
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    const TIMES: usize = 100;
    let close: fn(&mut Peer) = |p| {
        if let Some(c) = p.call() {
            p.write(&record(&reply(c.xid ^ 1, 0)));
        }
    };
    let (addr, server) = stream(vec![close; TIMES]);
    let d = Driver::new().unwrap();
    for _ in 0..TIMES {
        let c = client(&d, &format!("tcp://{addr}"));
        let e = block_on(c.call::<_, u32>(1, &5u32)).unwrap_err();
        assert!(matches!(e, ClntError::Transport(XprtError::Lost { maybe_ran: true, .. })), "{e:?}");
    }
    server.join().unwrap();
}

/// One connection of the driver has 10000 calls queued at a server that does not read them; another is not kept waiting.
#[test]
fn calls_that_nobody_answers_do_not_hold_up_other_connections() {
    const MANY: u32 = 10_000;
    const FEW: u32 = 500;
    let d = Driver::new().unwrap();
    let (slow, server) = gated();
    let (quick, other) = stream(vec![Peer::serve]);
    let config = ClntConfig { max_calls: MANY as usize, ..ClntConfig::default() };
    let connect = |addr| {
        AsyncClient::new(block_on(d.connect(&format!("tcp://{addr}"), &config).unwrap()).unwrap(), PROG, 1)
    };
    let (a, b) = (connect(slow), connect(quick));
    let mut queued: Vec<_> = (0..MANY).map(|i| Box::pin(a.call::<_, u32>(1, &i))).collect();
    assert!(matches!(
        block_on(a.call::<_, u32>(1, &0u32)),
        Err(ClntError::Transport(XprtError::Busy(n))) if n == MANY as usize
    ));
    for i in 0..FEW {
        assert_eq!(block_on(b.call::<_, u32>(1, &i)).unwrap(), i);
    }
    block_on(poll_fn(|cx| {
        let done = queued.iter_mut().filter_map(|c| c.as_mut().poll(cx).is_ready().then_some(())).count();
        assert_eq!(done, 0, "the slow server has not answered anything yet");
        Poll::Ready(())
    }));
    let (open, server) = server;
    open.send(()).unwrap();
    for (i, call) in (0..MANY).zip(queued) {
        assert_eq!(block_on(call).unwrap(), i);
    }
    drop((a, b, d));
    assert_eq!(server.join().unwrap(), MANY as usize);
    assert_eq!(other.join().unwrap().len(), FEW as usize);
}

/// A server that reads nothing until it is told to, and then answers everything: its address, and how to tell it.
fn gated() -> (String, (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<usize>)) {
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = l.local_addr().unwrap().to_string();
    let (open, gate) = std::sync::mpsc::channel();
    let join = std::thread::spawn(move || {
        let stream = l.accept().unwrap().0;
        gate.recv().unwrap();
        let mut p = Peer { stream: Box::new(stream), seen: vec![] };
        p.serve();
        p.seen.len()
    });
    (addr, (open, join))
}

/// One connection is kept as full of calls as it can be, by a thread that never stops before the other is done.
#[test]
fn a_flood_of_answered_calls_does_not_hold_up_other_connections() {
    let d = Driver::new().unwrap();
    let (flooded, server) = stream(vec![Peer::serve]);
    let (quick, other) = stream(vec![Peer::serve]);
    let (a, b) = (client(&d, &format!("tcp://{flooded}")), client(&d, &format!("tcp://{quick}")));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let answered = std::thread::scope(|s| {
        let flood = s.spawn(|| {
            let mut under_way = std::collections::VecDeque::new();
            let mut answered = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                under_way.extend((under_way.len() as u32..600).map(|_| a.call::<_, u32>(1, &7u32)));
                answered += u32::from(block_on(under_way.pop_front().unwrap()).unwrap() == 7);
            }
            answered + under_way.into_iter().map(|c| u32::from(block_on(c).unwrap() == 7)).sum::<u32>()
        });
        for i in 0..300u32 {
            assert_eq!(block_on(b.call::<_, u32>(1, &i)).unwrap(), i);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        flood.join().unwrap()
    });
    drop((a, b, d));
    assert_eq!(server.join().unwrap().len(), answered as usize, "every call of the flood is answered, once");
    assert_eq!(other.join().unwrap().len(), 300);
}

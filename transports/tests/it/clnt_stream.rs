//! Stream clients against servers that misbehave.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::clnt_fakes::*;
use std::time::Duration;
use sunrpc::clnt::{CallOptions, Client, ClntError, Pending, Repeat, Resend, XprtError};
use sunrpc_transports::clnt::{Blocking, ClntConfig, tcp};

fn client(addr: &str) -> Client<Blocking> {
    Client::new(tcp::connect_with(addr, &ClntConfig::default()).unwrap(), PROG, 1)
}

fn quick() -> CallOptions {
    CallOptions { timeout: Duration::from_millis(300), ..CallOptions::default() }
}

fn start(c: &mut Client<Blocking>, proc: u32, repeat: Repeat, arg: u32) -> Pending<u32> {
    c.start_with(proc, repeat, |w| sunrpc::xdr::XdrWrite::put_u32(w, arg)).unwrap()
}

fn transport(r: Result<u32, ClntError>) -> XprtError {
    match r {
        Err(ClntError::Transport(e)) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn replies_in_any_order_reach_their_calls() {
    let (addr, server) = stream(vec![|p| {
        let calls: Vec<_> = (0..50).map(|_| p.call().unwrap()).collect();
        calls.iter().rev().for_each(|c| p.reply(*c));
        p.serve();
    }]);
    let mut c = client(&addr);
    let calls: Vec<_> = (0..50).map(|i| start(&mut c, 1, Repeat::Harmful, i)).collect();
    let got: Vec<u32> = calls.into_iter().map(|p| c.finish(p).unwrap()).collect();
    assert!(got.into_iter().eq(0..50));
    // More than fit in the table at a time.
    let many = c.call_many::<u32, u32>(1, 0..1000);
    assert!(many.into_iter().map(Result::unwrap).eq(0..1000));
    drop(c);
    assert_eq!(server.join().unwrap().len(), 1050);
}

#[test]
fn wrong_and_repeated_replies_are_dropped() {
    let (addr, server) = stream(vec![|p| {
        let c = p.call().unwrap();
        p.write(&record(&reply(c.xid.wrapping_add(1), 1)));
        p.write(&record(&words(&[c.xid, 0, 2, PROG, 1, 1, 0, 0, 0, 0])));
        p.write(&record(&[9; 100]));
        p.reply(c);
        p.reply(c);
        p.serve();
    }]);
    let mut c = client(&addr);
    assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5);
    assert_eq!(c.call::<_, u32>(1, &6u32).unwrap(), 6);
    assert_eq!(c.xprt_mut().stray(), 4);
    drop(c);
    server.join().unwrap();
}

#[test]
fn claimed_lengths_and_endless_fragments_close_the_connection() {
    let scripts: Vec<fn(&mut Peer)> = vec![
        |p| {
            p.call();
            p.write(&[0xff; 4]);
            assert!(p.call().is_none(), "closed");
        },
        |p| {
            p.call();
            p.write(&[0; 4 * 300]);
            assert!(p.call().is_none(), "closed");
        },
        |p| {
            p.call();
            p.write(&record(&[1; 4]));
            assert!(p.call().is_none(), "closed");
        },
        Peer::serve,
    ];
    let (addr, server) = stream(scripts);
    let mut c = client(&addr);
    for _ in 0..3 {
        // Even a call that may be repeated is not: this peer would do the same again.
        let call = start(&mut c, 1, Repeat::Harmless, 5);
        let e = transport(c.finish(call));
        assert!(matches!(e, XprtError::BadStream(_)) && e.maybe_ran(), "{e:?}");
    }
    assert_eq!(c.call::<_, u32>(1, &6u32).unwrap(), 6);
    drop(c);
    assert_eq!(server.join().unwrap().len(), 4);
}

#[test]
fn only_what_is_safe_is_sent_again_when_the_server_closes_mid_reply() {
    let (addr, server) = stream(vec![
        |p| {
            let calls = [p.call().unwrap(), p.call().unwrap(), p.call().unwrap()];
            p.write(&record(&reply(calls[0].xid, 0))[..13]);
        },
        Peer::serve,
    ]);
    let mut c = client(&addr);
    let calls = [(1, Repeat::Harmless), (2, Repeat::Harmful), (3, Repeat::Unknown)];
    let calls = calls.map(|(proc, repeat)| start(&mut c, proc, repeat, proc));
    let [one, two, three] = calls.map(|p| c.finish(p));
    assert_eq!(one.unwrap(), 1);
    for lost in [two, three] {
        assert!(matches!(transport(lost), XprtError::Lost { maybe_ran: true, .. }));
    }
    drop(c);
    assert_eq!(server.join().unwrap(), [1, 2, 3, 1]);
}

#[test]
fn the_caller_decides_what_is_sent_again() {
    let close: fn(&mut Peer) = |p| assert!(p.call().is_some());
    let (addr, server) = stream(vec![close, close, close, Peer::serve]);
    let mut c = client(&addr);
    let always = CallOptions { resend: Resend::Always, ..CallOptions::default() };
    let never = CallOptions { resend: Resend::Never, ..CallOptions::default() };
    let e = c.with(never).call::<_, u32>(0, &5u32).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::Lost { maybe_ran: true, .. })), "{e:?}");
    assert_eq!(c.with(always).call::<_, u32>(1, &6u32).unwrap(), 6);
    drop(c);
    assert_eq!(server.join().unwrap(), [0, 1, 1, 1]);
}

#[test]
fn a_server_that_closed_an_idle_connection_costs_no_call() {
    let (addr, server) = stream(vec![
        |p| {
            let c = p.call().unwrap();
            p.reply(c);
        },
        Peer::serve,
    ]);
    let mut c = client(&addr);
    assert_eq!(start_and_finish(&mut c, 1), 1);
    // The end of the first connection is seen before the second call is written.
    await_end(&mut c);
    assert_eq!(start_and_finish(&mut c, 2), 2);
    drop(c);
    assert_eq!(server.join().unwrap(), [1, 2]);

    fn start_and_finish(c: &mut Client<Blocking>, proc: u32) -> u32 {
        let p = start(c, proc, Repeat::Harmful, proc);
        c.finish(p).unwrap()
    }

    /// Lets the server's FIN arrive: turns until the client has no connection.
    fn await_end(c: &mut Client<Blocking>) {
        while c.xprt_mut().is_connected() {
            c.flush().unwrap();
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_server_that_hangs_is_a_time_out_and_a_late_reply_is_dropped() {
    let (addr, server) = stream(vec![|p| {
        let first = p.call().unwrap();
        let second = p.call().unwrap();
        p.reply(first);
        p.reply(second);
        p.serve();
    }]);
    let mut c = client(&addr);
    let e = c.with(quick()).call::<_, u32>(1, &5u32).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::TimedOut { sends: 1 })), "{e:?}");
    assert!(e.maybe_ran());
    assert_eq!(c.call::<_, u32>(1, &6u32).unwrap(), 6);
    assert_eq!(c.xprt_mut().stray(), 1);
    drop(c);
    server.join().unwrap();
}

#[test]
fn half_a_record_and_silence_is_a_time_out_too() {
    let (addr, server) = stream(vec![|p| {
        let c = p.call().unwrap();
        p.write(&record(&reply(c.xid, 1))[..20]);
        p.call();
    }]);
    let mut c = client(&addr);
    let e = c.with(quick()).call::<_, u32>(1, &5u32).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::TimedOut { .. })), "{e:?}");
    drop(c);
    server.join().unwrap();
}

#[test]
fn a_flood_of_strangers_replies_does_not_outlast_the_time() {
    let (addr, server) = stream(vec![|p| {
        let c = p.call().unwrap();
        let junk = record(&reply(c.xid.wrapping_add(1), 1)).repeat(1000);
        while std::io::Write::write_all(&mut p.stream, &junk).is_ok() {}
    }]);
    let mut c = client(&addr);
    let e = c.with(quick()).call::<_, u32>(1, &5u32).unwrap_err();
    assert!(matches!(e, ClntError::Transport(XprtError::TimedOut { .. })), "{e:?}");
    drop(c);
    server.join().unwrap();
}

#[test]
fn a_port_where_nobody_listens_is_refused() {
    let addr = {
        let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        l.local_addr().unwrap()
    };
    let e = tcp::connect_with(&addr.to_string(), &ClntConfig::default()).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::ConnectionRefused);
    let e = sunrpc_transports::connect(&format!("tcp://{addr}")).err().unwrap();
    assert!(e.to_string().contains(&addr.to_string()), "{e}");
}

#[test]
fn every_address_of_a_host_is_tried() {
    // `localhost` has ::1 and 127.0.0.1 where both exist; the server listens at the latter only.
    let (addr, server) = stream(vec![Peer::serve]);
    let port = addr.rsplit(':').next().unwrap();
    let mut c = client(&format!("localhost:{port}"));
    assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5);
    drop(c);
    server.join().unwrap();
}

#[test]
fn a_server_that_is_gone_for_good_is_named_as_the_reason() {
    let (addr, server) = stream(vec![|p| assert!(p.call().is_some())]);
    let mut c = client(&addr);
    let kept = start(&mut c, 1, Repeat::Harmless, 1);
    c.set_options(quick());
    let late = c.start_with::<u32>(2, Repeat::Harmless, |_| Ok(())).unwrap();
    c.flush().unwrap();
    server.join().unwrap();
    // Both were sent; the listener is gone, so that reconnecting fails until their time is over.
    let e = transport(c.finish(late));
    assert!(
        matches!(&e, XprtError::Lost { maybe_ran: true, err } if err.kind() == std::io::ErrorKind::ConnectionRefused),
        "{e:?}"
    );
    c.cancel(kept);
    let e = c.call::<_, u32>(1, &5u32).unwrap_err();
    assert!(matches!(&e, ClntError::Transport(XprtError::Connect(_))), "{e:?}");
    assert!(!e.maybe_ran());
}

#[test]
fn one_way_calls_are_sent_and_not_waited_for() {
    let (addr, server) = stream(vec![Peer::serve]);
    let mut c = client(&addr);
    c.call_oneway(3, &7u32).unwrap();
    c.call_oneway(3, &8u32).unwrap();
    assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5);
    assert_eq!(c.xprt_mut().stray(), 2, "this server answers all the same");
    drop(c);
    assert_eq!(server.join().unwrap(), [3, 3, 1]);
}

#[test]
fn a_server_that_reads_all_before_it_answers_gets_all() {
    const CALLS: usize = 24;
    static FULL: std::sync::Barrier = std::sync::Barrier::new(2);
    let (addr, server) = stream(vec![|p| {
        FULL.wait();
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                // Slower than the client, so that it finds the buffers full again and again.
                std::thread::sleep(Duration::from_millis(5));
                p.call().unwrap()
            })
            .collect();
        calls.iter().for_each(|c| p.reply(*c));
        p.serve();
    }]);
    let mut c = client(&addr);
    let calls: Vec<_> = (0..CALLS as u32)
        .map(|i| {
            let call = c.start_with::<u32>(1, Repeat::Harmful, |w| {
                sunrpc::xdr::XdrWrite::put_u32(w, i)?;
                sunrpc::xdr::XdrWrite::put(w, &[0; 1 << 20])
            });
            call.unwrap()
        })
        .collect();
    // Fills the socket buffers; the rest must wait for room.
    c.flush().unwrap();
    FULL.wait();
    assert!(calls.into_iter().map(|p| c.finish(p).unwrap()).eq(0..CALLS as u32));
    drop(c);
    server.join().unwrap();
}

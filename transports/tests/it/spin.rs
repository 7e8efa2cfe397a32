//! Spinning before sleeping: while it pays, and never when nothing happens. Counts, not durations.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::*;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;
use sunrpc_transports::{PollStats, Zerocopy};

/// Long enough that the next call of a test comes in time on the busiest machine, and shorter than a worker's sleep of a
/// second.
const LIMIT: Duration = Duration::from_millis(20);

fn call_and_wait(s: &mut TcpStream, proc: u32, args: &[u8]) {
    s.write_all(&call(1, 1, proc, args)).unwrap();
    record(s).expect("a reply");
}

/// What the polls did once the workers have been to sleep `n` more times.
fn after_sleeps(r: &Running, n: u64) -> PollStats {
    let before = r.handle.polls().sleeps;
    loop {
        let stats = r.handle.polls();
        if stats.sleeps >= before + n {
            return stats;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ping_pong_is_found_by_spinning_and_an_idle_server_does_not_spin() {
    let r = start(|b| b.threads(1).spin(LIMIT));
    let mut s = r.raw();
    let mut calls = 0;
    while r.handle.polls().spin_hits == 0 {
        call_and_wait(&mut s, NULL, &[]);
        calls += 1;
        assert!(calls < 1_000_000, "{:?}", r.handle.polls());
    }
    // The last call is over. The worker may spin once more; its sleep of a second then tells it that nobody calls.
    after_sleeps(&r, 3);
    let idle = after_sleeps(&r, 1);
    assert!(idle.spin_hits > 0 && idle.spins >= idle.spin_hits);
    assert_eq!(after_sleeps(&r, 2).spins, idle.spins, "an idle server does not spin");
    call_and_wait(&mut s, NULL, &[]);
    r.stop();
}

/// Calls, one at a time, until the transport that is called has left the poll.
fn until_it_left(r: &Running, mut call: impl FnMut()) {
    let mut calls = 0;
    while r.handle.polls().unwatched == 0 {
        call();
        calls += 1;
        assert!(calls < 1_000_000, "{:?}", r.handle.polls());
        // The counters are shown when the worker sleeps.
        if calls % 1000 == 0 {
            after_sleeps(r, 1);
        }
    }
}

/// A connection that has left the poll.
fn alone(r: &Running) -> TcpStream {
    let mut s = r.raw();
    until_it_left(r, || call_and_wait(&mut s, NULL, &[]));
    s
}

#[test]
fn who_left_the_poll_is_heard_after_a_pause_and_its_end_noticed() {
    let r = start(|b| b.threads(1).spin(LIMIT));
    let mut s = alone(&r);
    for _ in 0..3 {
        after_sleeps(&r, 1);
        (0..200).for_each(|_| call_and_wait(&mut s, NULL, &[]));
    }
    assert!(r.handle.stats().worker().closed == 0);
    drop(s);
    while r.handle.stats().worker().closed == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    r.stop();
}

#[cfg(feature = "udp")]
#[test]
fn a_datagram_transport_that_left_the_poll_is_heard_after_a_pause() {
    let r = start(|b| b.threads(1).spin(LIMIT).listen("udp://127.0.0.1:0").unwrap());
    let s = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    s.connect(r.urls[1].trim_start_matches("udp://")).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let null = call(1, 1, NULL, &[]).split_off(4);
    let call_and_wait = || {
        s.send(&null).unwrap();
        assert_eq!(s.recv(&mut [0; 64]).expect("a reply in time"), 24);
    };
    until_it_left(&r, call_and_wait);
    for _ in 0..3 {
        after_sleeps(&r, 1);
        (0..200).for_each(|_| call_and_wait());
    }
    r.stop();
}

#[test]
fn others_are_heard_while_one_has_left_the_poll() {
    let r = start(|b| b.threads(1).spin(LIMIT));
    let mut s = alone(&r);
    let mut other = r.raw();
    for n in 0..300u32 {
        (0..80).for_each(|_| call_and_wait(&mut s, NULL, &[]));
        call_and_wait(&mut other, NULL, &[]);
        call_and_wait(&mut s, SLOW, &n.to_be_bytes());
        call_and_wait(&mut s, LATER, &n.to_be_bytes());
    }
    assert_serves(&r);
    r.stop();
}

/// Room to write is told by events alone.
#[test]
fn a_reply_that_does_not_fit_goes_on_when_there_is_room() {
    let r = start(|b| b.threads(1).spin(LIMIT));
    let mut s = alone(&r);
    for _ in 0..5 {
        (0..80).for_each(|_| call_and_wait(&mut s, NULL, &[]));
        let calls: Vec<u8> = (0..24).flat_map(|_| call(1, 1, FILL, &(1u32 << 20).to_be_bytes())).collect();
        s.write_all(&calls).unwrap();
        // The server has filled what the kernel holds for a reader who does not read.
        std::thread::sleep(Duration::from_millis(50));
        (0..24).for_each(|_| assert_eq!(record(&mut s).expect("a reply").len(), (1 << 20) + 28));
    }
    r.stop();
}

#[test]
fn off_is_the_default() {
    let r = start(|b| b.threads(1));
    let mut s = r.raw();
    for _ in 0..200 {
        call_and_wait(&mut s, NULL, &[]);
    }
    let stats = after_sleeps(&r, 2);
    let svc = r.handle.stats().worker();
    assert_eq!((stats.spins, svc.opened), (0, 1));
    assert!(stats.sleeps > 0 && svc.records == 200);
    r.stop();
}

#[test]
fn messages_of_other_threads_and_ticks_are_not_missed() {
    let r = start(|b| b.threads(1).spin(LIMIT));
    let mut s = r.raw();
    for n in 0..300u32 {
        // A helper answers, and another thread.
        call_and_wait(&mut s, SLOW, &n.to_be_bytes());
        call_and_wait(&mut s, LATER, &n.to_be_bytes());
        // A new connection comes by the mailbox, too.
        if n % 30 == 0 {
            call_and_wait(&mut r.raw(), NULL, &[]);
        }
    }
    let stats = after_sleeps(&r, 1);
    // Not every answer needed a system call to wake the worker: some found it spinning.
    assert!(r.handle.stats().worker().delivered == 600 && stats.wakeups < 600, "{stats:?}");
    r.stop();
}

/// The event that tells of a completion is no hang-up: a worker once went on reading the idle socket without a pause.
#[test]
fn a_connection_whose_sends_have_completed_is_left_alone() {
    let r = start(|b| b.threads(1).zerocopy(Zerocopy::On));
    let mut s = r.raw();
    for _ in 0..20 {
        call_and_wait(&mut s, FILL, &(1u32 << 20).to_be_bytes());
    }
    let nap = || std::thread::sleep(Duration::from_millis(300));
    nap();
    let before = r.handle.stats();
    assert!(before.threads.iter().any(|t| t.send.zc_notifications > 0), "{before:?}");
    nap();
    let turns = r.handle.stats().worker().turns - before.worker().turns;
    assert!(turns < 50, "{turns} turns in which nobody called");
    r.stop();
}

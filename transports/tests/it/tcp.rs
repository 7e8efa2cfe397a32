//! The service loop over real sockets.

#![cfg(feature = "tcp")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use crate::common::*;
use std::io::Write;
use std::time::Duration;
use sunrpc::clnt::{Client, ClntError};
use sunrpc::msg::AcceptStat;
use sunrpc::svc::SvcLimits;
use sunrpc_transports::connect;

#[test]
fn every_kind_of_procedure_answers() {
    let r = start(|b| b);
    let mut c = Client::new(connect(&r.url()).unwrap(), PROG, 1);
    c.call::<(), ()>(NULL, &()).unwrap();
    assert_eq!(c.call::<u32, u32>(SLOW, &5).unwrap(), 6);
    assert_eq!(c.call::<u32, u32>(LATER, &5).unwrap(), 7);
    assert!(matches!(c.call::<(), u32>(FORGET, &()), Err(ClntError::Accept(AcceptStat::SystemErr))));
    assert!(matches!(c.call::<(), ()>(9, &()), Err(ClntError::Accept(AcceptStat::ProcUnavail))));
    let mut c = Client::new(connect(&r.url()).unwrap(), PROG, 2);
    assert!(matches!(
        c.call::<(), ()>(NULL, &()),
        Err(ClntError::Accept(AcceptStat::ProgMismatch { low: 1, high: 3 }))
    ));
    let mut c = Client::new(connect(&r.url()).unwrap(), 99, 1);
    assert!(matches!(c.call::<(), ()>(NULL, &()), Err(ClntError::Accept(AcceptStat::ProgUnavail))));
    r.stop();
}

#[test]
fn payloads_of_every_size_come_back_whole() {
    let r = start(|b| b);
    let mut s = r.raw();
    for n in
        [0usize, 1, 3, 4, 4000, 4095, 4096, 4097, 60_000, 65_536, 100_001, 300_000, (1 << 20) - 1, 1 << 20]
    {
        let data: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut args = (n as u32).to_be_bytes().to_vec();
        args.extend_from_slice(&data);
        args.resize(args.len().next_multiple_of(4), 0);
        s.write_all(&call(n as u32, 1, ECHO, &args)).unwrap();
        let rec = record(&mut s).unwrap();
        assert_eq!(words(&rec[..24]), [n as u32, 1, 0, 0, 0, 0]);
        assert!(rec[24..] == args[..], "{n} bytes");
    }
    r.stop();
}

#[test]
fn connections_are_dealt_evenly() {
    for _ in 0..5 {
        let r = start(|b| b.threads(2));
        let mut open: Vec<_> = (0..4).map(|_| r.raw()).collect();
        let owners = open.iter_mut().map(|s| {
            s.write_all(&call(1, 1, WORKER, &[])).unwrap();
            words(&record(s).unwrap())[6]
        });
        let mut owners: Vec<u32> = owners.collect();
        owners.sort_unstable();
        assert_eq!(owners, [0, 0, 1, 1]);
        drop(open);
        r.stop();
    }
}

#[test]
fn pipelined_calls_in_one_segment_are_all_answered() {
    let r = start(|b| b);
    let mut s = r.raw();
    // More than one turn's budget, then silence: nothing but the turns themselves can answer the rest.
    let burst: Vec<u8> =
        (0..1000).flat_map(|i| call(i, 1, if i % 10 == 9 { SLOW } else { NULL }, &args(i))).collect();
    fn args(i: u32) -> Vec<u8> {
        if i % 10 == 9 { i.to_be_bytes().to_vec() } else { vec![] }
    }
    s.write_all(&burst).unwrap();
    let mut seen: Vec<u32> = (0..1000).map(|_| words(&record(&mut s).unwrap())[0]).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    r.stop();
}

#[test]
fn a_reader_that_stalls_gets_right_bytes_and_is_not_read_meanwhile() {
    let r = start(|b| b.limits(SvcLimits { send_queue: 1 << 20, ..SvcLimits::default() }));
    let mut s = r.raw();
    let n = 200_000u32;
    for i in 0..100 {
        s.write_all(&call(i, 1, FILL, &n.to_be_bytes())).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    for i in 0..100 {
        let rec = record(&mut s).unwrap();
        assert_eq!(words(&rec[..28]), [i, 1, 0, 0, 0, 0, n]);
        assert!(rec[28..].iter().all(|b| *b == b'f'));
    }
    r.stop();
}

#[test]
fn stopping_finishes_what_is_in_progress() {
    let r = start(|b| b);
    let mut s = r.raw();
    s.write_all(&call(1, 1, LATER, &1u32.to_be_bytes())).unwrap();
    assert_eq!(words(&record(&mut s).unwrap()).last(), Some(&3));
    r.stop();
    assert_eq!(record(&mut s), None);
}

/// One worker, one connection that never stops sending calls and another that asks now and then.
#[test]
fn a_connection_that_floods_does_not_starve_another() {
    let r = start(|b| b.threads(1));
    let flood = r.raw();
    let mut write = flood.try_clone().unwrap();
    let mut read = flood;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = stop.clone();
    let sending = std::thread::spawn(move || {
        let mut sent = 0u32;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            let batch: Vec<u8> = (sent..sent + 500).flat_map(|x| call(x, 1, NULL, &[])).collect();
            write.write_all(&batch).unwrap();
            sent += 500;
        }
        write.shutdown(std::net::Shutdown::Write).unwrap();
        sent
    });
    let reading = std::thread::spawn(move || {
        let replies = std::iter::from_fn(|| record(&mut read).map(|rec| words(&rec)[0]));
        replies.zip(0..).map(|(xid, n)| assert_eq!(xid, n, "in order")).count()
    });
    let mut c = Client::new(connect(&r.url()).unwrap(), PROG, 1);
    for i in 0..300 {
        assert_eq!(c.call::<u32, u32>([SLOW, LATER][i as usize % 2], &i).unwrap(), i + 1 + i % 2);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        sending.join().unwrap() as usize,
        reading.join().unwrap(),
        "each call of the flood is answered"
    );
    r.stop();
}

//! Bytes that no honest client sends.

#![cfg(feature = "tcp")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use crate::common::*;
use std::io::Write;
use std::net::TcpStream;

/// Resident memory of this process, in KiB.
fn rss() -> i64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = s.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn closed(mut s: TcpStream) {
    assert_eq!(record(&mut s), None);
}

#[test]
fn r1_claimed_lengths_close_the_connection_and_take_no_memory() {
    let r = start(|b| b);
    assert_serves(&r);
    let before = rss();
    for _ in 0..100 {
        let mut s = r.raw();
        s.write_all(&[0xff; 4]).unwrap();
        closed(s);
    }
    for mark in [0x7fff_ffffu32, 0x8020_0000, 0x0020_0000, 0xc000_0000, 0x8010_1001] {
        let mut s = r.raw();
        s.write_all(&mark.to_be_bytes()).unwrap();
        closed(s);
    }
    // The largest claim that is permitted, on many connections, with nothing behind it.
    let idle: Vec<_> = (0..100)
        .map(|_| {
            let mut s = r.raw();
            s.write_all(&0x8010_0000u32.to_be_bytes()).unwrap();
            s.write_all(&[0; 8]).unwrap();
            s
        })
        .collect();
    assert_serves(&r);
    drop(idle);
    assert!(rss() - before < 8 << 10, "grew by {} KiB", rss() - before);
    r.stop();
}

#[test]
fn r1_empty_fragments_end_at_the_limit() {
    let r = start(|b| b);
    let mut s = r.raw();
    // The server closes long before all of these are written.
    for _ in 0..1000 {
        if s.write_all(&[0; 4000]).is_err() {
            break;
        }
    }
    closed(s);
    assert_serves(&r);
    r.stop();
}

#[test]
fn r1_fragments_of_one_byte_are_reassembled() {
    let r = start(|b| b);
    let mut s = r.raw();
    let m = call(5, 1, NULL, &[]);
    let body = &m[4..];
    for (i, b) in body.iter().enumerate() {
        let last = if i + 1 == body.len() { 0x8000_0000u32 } else { 0 };
        s.write_all(&(1 | last).to_be_bytes()).unwrap();
        s.write_all(&[*b]).unwrap();
    }
    assert_eq!(words(&record(&mut s).unwrap()), [5, 1, 0, 0, 0, 0]);
    r.stop();
}

#[test]
fn every_truncation_of_a_call_gets_an_error_or_a_close() {
    let r = start(|b| b);
    let mut cred = Vec::new();
    for w in [9u32, 0, 2, PROG, 1, ECHO, 1, 24, 1, 1, u32::from_be_bytes(*b"a\0\0\0"), 0, 0, 0, 0, 0, 4] {
        cred.extend_from_slice(&w.to_be_bytes());
    }
    cred.extend_from_slice(b"data");
    for n in 0..cred.len() {
        let mut s = r.raw();
        s.write_all(&frame(&cred[..n])).unwrap();
        match record(&mut s) {
            None => assert!(n < 8, "closed at {n}"),
            Some(rec) => {
                assert!(n >= 8, "answered at {n}");
                let w = words(&rec);
                // MSG_ACCEPTED / GARBAGE_ARGS.
                assert_eq!(w, [9, 1, 0, 0, 0, 4], "at {n}");
                // The connection lives on.
                s.write_all(&frame(&cred)).unwrap();
                assert_eq!(words(&record(&mut s).unwrap())[..6], [9, 1, 0, 0, 0, 0]);
            }
        }
    }
    r.stop();
}

#[test]
fn bad_headers_get_the_answer_of_the_rfc() {
    let r = start(|b| b);
    let mut s = r.raw();
    let mut ask = |w: &[u32]| {
        let m: Vec<u8> = w.iter().flat_map(|w| w.to_be_bytes()).collect();
        s.write_all(&frame(&m)).unwrap();
        words(&record(&mut s).unwrap())
    };
    // RPC version 3: MSG_DENIED, RPC_MISMATCH, 2..2.
    assert_eq!(ask(&[1, 0, 3, PROG, 1, 0, 0, 0, 0, 0]), [1, 1, 1, 0, 2, 2]);
    // Unknown flavor: AUTH_ERROR, AUTH_BADCRED.
    assert_eq!(ask(&[2, 0, 2, PROG, 1, 0, 99, 0, 0, 0]), [2, 1, 1, 1, 1]);
    // Seventeen groups.
    let mut w = vec![3, 0, 2, PROG, 1, 0, 1, 20 + 17 * 4, 0, 0, 0, 0, 17];
    w.extend(0..17);
    w.extend([0, 0]);
    assert_eq!(ask(&w), [3, 1, 1, 1, 1]);
    // A credential of 401 bytes.
    assert_eq!(ask(&[4, 0, 2, PROG, 1, 0, 0, 401])[..5], [4, 1, 1, 1, 1]);
    // Bytes behind the arguments.
    assert_eq!(ask(&[5, 0, 2, PROG, 1, 0, 0, 0, 0, 0, 7]), [5, 1, 0, 0, 0, 4]);
    // Claimed lengths in the arguments.
    for len in [1u32 << 20, (1 << 20) + 1, 1 << 31, u32::MAX] {
        assert_eq!(ask(&[6, 0, 2, PROG, 1, ECHO, 0, 0, 0, 0, len]), [6, 1, 0, 0, 0, 4]);
    }
    r.stop();
}

#[test]
fn r1_a_reply_on_a_server_connection_closes_it() {
    let r = start(|b| b);
    let mut s = r.raw();
    s.write_all(&frame(&[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0])).unwrap();
    closed(s);
    assert_serves(&r);
    r.stop();
}

#[test]
fn b14_the_oldest_connection_that_nothing_validated_makes_room() {
    let r = start(|b| b.max_unvalidated(64));
    let mut valid = r.raw();
    valid.write_all(&call(1, 1, NULL, &[])).unwrap();
    record(&mut valid).unwrap();
    let mut idle: Vec<_> = (0..64).map(|_| r.raw()).collect();
    // Each of these proves that it was accepted, and is validated at once; the first one evicted idle[0].
    for i in 0..5 {
        let mut s = r.raw();
        s.write_all(&call(i, 1, NULL, &[])).unwrap();
        assert!(record(&mut s).is_some());
    }
    closed(idle.remove(0));
    valid.write_all(&call(2, 1, NULL, &[])).unwrap();
    assert!(record(&mut valid).is_some());
    // The youngest of the idle ones was left alone.
    let mut last = idle.pop().unwrap();
    last.write_all(&call(3, 1, NULL, &[])).unwrap();
    assert!(record(&mut last).is_some());
    r.stop();
}

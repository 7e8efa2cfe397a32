//! RPC over UDP, by plain sockets.

#![cfg(feature = "udp")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use crate::common::*;
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use sunrpc::clnt::Client;
use sunrpc_transports::{Builder, Server, connect};

/// A server on every address of both families (where there are both), and its UDP port.
fn server(tune: impl FnOnce(Builder) -> Builder) -> (Running, u16) {
    let r = start(|b| tune(b.listen("udp://[::]:0").unwrap()));
    let port = r.urls[1].rsplit_once(':').unwrap().1.parse().unwrap();
    (r, port)
}

/// A socket that takes datagrams only from the address that it calls.
fn client(server: &str, port: u16) -> UdpSocket {
    let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let s = UdpSocket::bind(any).unwrap();
    s.connect((server, port)).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    s
}

/// The message of a call, without a record mark.
fn message(xid: u32, proc: u32, args: &[u32]) -> Vec<u8> {
    let args: Vec<u8> = args.iter().flat_map(|w| w.to_be_bytes()).collect();
    call(xid, 1, proc, &args).split_off(4)
}

fn reply(s: &UdpSocket) -> Vec<u8> {
    let mut buf = vec![0; 65_536];
    let n = s.recv(&mut buf).expect("a reply in time");
    buf.truncate(n);
    buf
}

fn assert_answers(s: &UdpSocket, xid: u32) {
    s.send(&message(xid, NULL, &[])).unwrap();
    assert_eq!(words(&reply(s)), [xid, 1, 0, 0, 0, 0]);
}

#[test]
fn replies_come_from_the_address_that_was_called() {
    let (r, port) = server(|b| b);
    for host in ["127.0.0.1", "127.0.0.2", "127.9.8.7"] {
        assert_answers(&client(host, port), 7);
    }
    if UdpSocket::bind("[::1]:0").is_ok() {
        assert_answers(&client("::1", port), 8);
    }
    r.stop();
    let r = start(|b| b.listen("udp://0.0.0.0:0").unwrap());
    let port = r.urls[1].rsplit_once(':').unwrap().1.parse().unwrap();
    assert_answers(&client("127.0.0.3", port), 9);
    r.stop();
}

#[test]
fn our_own_client_calls() {
    let (r, port) = server(|b| b);
    let mut c = Client::new(connect(&format!("udp://127.0.0.1:{port}")).unwrap(), PROG, 1);
    c.call::<(), ()>(NULL, &()).unwrap();
    assert_eq!(c.call::<u32, u32>(SLOW, &5).unwrap(), 6);
    assert_eq!(c.call::<u32, u32>(LATER, &5).unwrap(), 7);
    r.stop();
}

#[test]
fn sizes_up_to_the_largest_datagram() {
    let (r, port) = server(|b| b);
    let s = client("127.0.0.1", port);
    for n in [0usize, 1, 4000, 4096, 8192, 30_000, 32_768, 36_000] {
        let data: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut args = (n as u32).to_be_bytes().to_vec();
        args.extend_from_slice(&data);
        args.resize(args.len().next_multiple_of(4), 0);
        s.send(&call(n as u32, 1, ECHO, &args)[4..]).unwrap();
        let rec = reply(&s);
        assert_eq!(words(&rec[..24]), [n as u32, 1, 0, 0, 0, 0]);
        assert!(rec[24..] == args[..], "{n} bytes");
    }
    // The call fits into a datagram; the answer is more than this transport promises.
    let mut args = 65_000u32.to_be_bytes().to_vec();
    args.resize(65_004, 1);
    s.send(&call(1, 1, ECHO, &args)[4..]).unwrap();
    assert_eq!(words(&reply(&s)), [1, 1, 0, 0, 0, 5]);
    r.stop();
}

#[test]
fn a_burst_of_large_replies_arrives_whole() {
    const N: u32 = 64;
    let (r, port) = server(|b| b);
    let s = client("127.0.0.1", port);
    sunrpc_sys::datagram::set_buffers(s.as_fd(), 8 << 20, 1 << 20).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut missing: BTreeSet<u32> = (0..N).collect();
    let mut buf = vec![0; 65_536];
    // Where the system allows no buffer for all of them, they have to be asked for again, as any caller does.
    for _ in 0..N {
        for xid in &missing {
            s.send(&message(*xid, FILL, &[32_768])).unwrap();
        }
        while let Ok(n) = s.recv(&mut buf) {
            assert_eq!(n, 24 + 4 + 32_768);
            assert!(buf[28..n].iter().all(|b| *b == b'f'));
            missing.remove(&words(&buf[..4])[0]);
            if missing.is_empty() {
                return r.stop();
            }
        }
    }
    panic!("never answered: {missing:?}");
}

fn resident_pages() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn odd_datagrams_leave_no_trace() {
    let (r, port) = server(|b| b);
    let s = client("127.0.0.1", port);
    assert_answers(&s, 1);
    let before = resident_pages();
    let null = message(3, NULL, &[]);
    let reply_message: Vec<u8> = [3u32, 1, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    let mut noise = 0x2545_f491u32;
    for i in 0..100_000usize {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        let sent = match i % 4 {
            0 => s.send(&null[..i % 24]),
            1 => s.send(&reply_message),
            2 => s.send(&noise.to_be_bytes().repeat(i % 9)),
            // Begins as a call.
            _ => s.send(&[&null[..16], &vec![noise as u8; i % 1300]].concat()),
        };
        sent.unwrap();
    }
    // What looked like a call was answered with an error; a call sent now may be lost behind all that.
    s.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut buf = vec![0; 65_536];
    let answered = (0..20).any(|_| {
        s.send(&message(99, NULL, &[])).unwrap();
        std::iter::from_fn(|| s.recv(&mut buf).ok().map(|n| words(&buf[..n])))
            .any(|reply| reply == [99, 1, 0, 0, 0, 0])
    });
    assert!(answered);
    // A page for each of them would be 400 MB; other tests of this process have some of their own.
    let grown = resident_pages().saturating_sub(before);
    assert!(grown < 16_384, "{grown} pages more");
    r.stop();
}

#[test]
fn what_is_no_call_is_counted() {
    let (r, port) = server(|b| b.threads(1));
    let s = client("127.0.0.1", port);
    for noise in [&[][..], &[1; 7], &[0xff; 40]] {
        s.send(noise).unwrap();
    }
    // One reads the datagrams of a sender in order.
    assert_answers(&s, 1);
    let counted = (0..2000).any(|_| {
        let n = r.handle.stats().worker();
        std::thread::sleep(Duration::from_millis(10));
        (n.ignored, n.records, n.unsent) == (3, 1, 0)
    });
    assert!(counted, "{:?}", r.handle.stats());
    r.stop();
}

#[test]
fn callers_get_their_own_replies_when_these_come_late() {
    let (r, port) = server(|b| b);
    let clients: Vec<_> = (0..8).map(|_| client("127.0.0.1", port)).collect();
    for round in 0..20u32 {
        for (i, s) in (0u32..).zip(&clients) {
            s.send(&message(i, SLOW, &[1000 * i + round])).unwrap();
            s.send(&message(100 + i, LATER, &[1000 * i + round])).unwrap();
        }
        for (i, s) in (0u32..).zip(&clients) {
            let mut got = [words(&reply(s)), words(&reply(s))];
            got.sort();
            assert_eq!(got[0], [i, 1, 0, 0, 0, 0, 1000 * i + round + 1]);
            assert_eq!(got[1], [100 + i, 1, 0, 0, 0, 0, 1000 * i + round + 2]);
        }
    }
    r.stop();
}

#[test]
fn stopping_answers_what_is_in_progress() {
    let (r, port) = server(|b| b);
    let s = client("127.0.0.1", port);
    for xid in 0..16 {
        s.send(&message(xid, if xid % 2 == 0 { SLOW } else { LATER }, &[0])).unwrap();
    }
    r.stop();
    let xids: BTreeSet<u32> = (0..16).map(|_| words(&reply(&s))[0]).collect();
    assert_eq!(xids, (0..16).collect());
}

#[test]
fn every_worker_has_a_socket_and_nobody_else_the_port() {
    let b = Server::builder().program(Test).listen("udp://127.0.0.1:0").unwrap().threads(3);
    let server = b.build().unwrap();
    let url = server.urls().remove(0);
    let taken = sunrpc_transports::class::listen(&url).map(|_| ()).unwrap_err();
    assert!(taken.to_string().contains("another server"), "{taken}");
    let addr: SocketAddr = url.trim_start_matches("udp://").parse().unwrap();
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let bound = format!("0100007F:{:04X}", addr.port());
    assert_eq!(table.matches(&bound).count(), 3);
    let handle = server.handle();
    let join = std::thread::spawn(move || server.run());
    // Callers of different ports land on different sockets.
    for xid in 0..32 {
        assert_answers(&client("127.0.0.1", addr.port()), xid);
    }
    handle.stop(Duration::ZERO);
    join.join().unwrap().unwrap();
}

#[test]
fn hundreds_of_callers_at_once() {
    let (r, port) = server(|b| b);
    let clients: Vec<_> = (0..300).map(|_| client("127.0.0.1", port)).collect();
    for (i, s) in (0u32..).zip(&clients) {
        s.send(&message(i, if i % 5 == 0 { SLOW } else { NULL }, &[i][..usize::from(i % 5 == 0)])).unwrap();
    }
    for (i, s) in (0u32..).zip(&clients) {
        assert_eq!(words(&reply(s))[..6], [i, 1, 0, 0, 0, 0]);
    }
    r.stop();
}

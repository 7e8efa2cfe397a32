//! Bytes that no honest client sends, against the whole server.

use crate::server::{Server, exchange, receive};
use crate::wire::{Msg, NFS, Reply};
use std::io::Write;

fn serves(s: &Server) {
    assert!(exchange(&mut s.connect(), &Msg::null(3).0).is_some(), "the next client is not served");
}

#[test]
fn r1_all_ones_on_a_hundred_connections_take_no_memory() {
    let s = Server::start(&[]);
    serves(&s);
    let before = s.memory("VmRSS");
    let mut conns: Vec<_> = (0..100).map(|_| s.connect()).collect();
    conns.iter_mut().for_each(|c| drop(c.write_all(&[0xff; 4])));
    for len in [0x7fff_ffffu32, 0x4000_0000, 0x0020_0000] {
        let mut c = s.connect();
        c.write_all(&len.to_be_bytes()).unwrap();
        c.write_all(&(len | 0x8000_0000).to_be_bytes()).unwrap();
        conns.push(c);
    }
    for c in &mut conns {
        assert_eq!(receive(c), None, "such a record ends the connection");
    }
    serves(&s);
    let grown = s.memory("VmRSS") - before;
    assert!(grown < 1024, "{grown} KiB more after claims of gigabytes");
}

#[test]
fn r1_a_million_empty_fragments_end_in_a_close() {
    let s = Server::start(&[]);
    let mut c = s.connect();
    let chunk = vec![0u8; 4000];
    // The server closes long before the end, so a later write fails; that is the point.
    for _ in 0..1000 {
        if c.write_all(&chunk).is_err() {
            break;
        }
    }
    assert_eq!(receive(&mut c), None);
    serves(&s);
}

#[test]
fn seventeen_groups_are_refused_by_the_flavor_and_the_connection_lives() {
    let s = Server::start(&[]);
    let mut c = s.connect();
    let cred = [0u32, 0, 0, 0, 17].into_iter().chain(0..17);
    let cred: Vec<u8> = cred.flat_map(u32::to_be_bytes).collect();
    let head = [5, 0, 2, NFS, 3, 0, 1].into_iter().fold(Msg(Vec::new()), Msg::u32);
    let call = head.opaque(&cred).u32(0).u32(0);
    let reply = exchange(&mut c, &call.0).unwrap();
    let words: Vec<u32> = reply.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect();
    assert_eq!(words, [5, 1, 1, 1, 1], "MSG_DENIED, AUTH_ERROR, AUTH_BADCRED");
    assert!(exchange(&mut c, &Msg::null(6).0).is_some());
}

#[test]
fn handles_of_every_length_that_were_never_issued_get_badhandle() {
    let s = Server::start(&[]);
    let mut c = s.connect();
    for len in 0..=64usize {
        let call = Msg::call(1, NFS, 3, 1, 0).opaque(&vec![0xa5; len]);
        let status = Reply::results(exchange(&mut c, &call.0).unwrap()).u32();
        assert_eq!(status, 10_001, "handle of {len} bytes");
    }
    let too_long = Msg::call(2, NFS, 3, 1, 0).opaque(&[0xa5; 65]);
    let reply = exchange(&mut c, &too_long.0).unwrap();
    assert_eq!(reply[20..24], 4u32.to_be_bytes(), "GARBAGE_ARGS");
    serves(&s);
}

#[test]
fn every_truncation_of_a_call_is_answered_with_an_error_or_a_close() {
    let s = Server::start(&[]);
    let whole = Msg::call(9, NFS, 3, 7, 0).opaque(&[1; 40]).u64(0).u32(5).u32(0).opaque(b"hello").0;
    for n in 0..whole.len() {
        let mut c = s.connect();
        if let Some(reply) = exchange(&mut c, &whole[..n]) {
            let word = |i: usize| u32::from_be_bytes(reply[4 * i..4 * i + 4].try_into().unwrap());
            let denied = word(2) == 1;
            assert!(denied || word(5) != 0, "a call cut at {n} of {} was carried out", whole.len());
        }
    }
    serves(&s);
}

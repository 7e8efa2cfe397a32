//! Clients against this project's own server.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::common::*;
use std::sync::Arc;
use sunrpc::auth::AuthSysParams;
use sunrpc::clnt::{AuthSys, CallOptions, Client, Pending, Repeat};
use sunrpc::page::Pages;
use sunrpc::xdr::XdrWrite;
use sunrpc_transports::clnt::{Blocking, ClntConfig, tcp};

fn client(addr: &str) -> Client<Blocking> {
    Client::new(tcp::connect_with(addr, &ClntConfig::default()).unwrap(), PROG, 1)
}

#[test]
fn large_calls_and_replies_pass_each_other() {
    let r = start(|b| b);
    let mut c = client(&r.addr);
    // Far more than both socket buffers and the server's queue hold: a client that only wrote would wait forever.
    let data: Vec<Vec<u8>> = (0..64u8).map(|i| vec![i; (1 << 20) - usize::from(i)]).collect();
    let calls: Vec<Pending<Pages>> = data
        .iter()
        .map(|d| c.start_with(ECHO, Repeat::Unknown, |w| w.put_opaque(d, 1 << 20)).unwrap())
        .collect();
    for (p, d) in calls.into_iter().zip(&data) {
        assert!(c.finish(p).unwrap().to_vec() == *d);
    }
    r.stop();
}

#[test]
fn slow_calls_do_not_hold_up_quick_ones() {
    let r = start(|b| b);
    let mut c = client(&r.addr);
    let mut mixed = vec![];
    for i in 0..100u32 {
        mixed.push((i + 1, c.start::<_, u32>(SLOW, &i).unwrap()));
        if mixed.len() == 30 {
            mixed.drain(..).rev().for_each(|(want, p)| assert_eq!(c.finish(p).unwrap(), want));
        }
    }
    mixed.drain(..).for_each(|(want, p)| assert_eq!(c.finish(p).unwrap(), want));
    r.stop();
}

#[test]
fn a_server_restarted_between_calls_is_found_again() {
    let r = start(|b| b);
    let (addr, url) = (r.addr.clone(), r.url());
    let mut c = client(&addr);
    assert_eq!(c.call::<u32, u32>(SLOW, &5).unwrap(), 6);
    r.stop();
    let r = start(|b| b.listen(&url).unwrap());
    let call = c.start_with::<u32>(SLOW, Repeat::Harmless, |w| w.put_u32(6)).unwrap();
    assert_eq!(c.finish(call).unwrap(), 7);
    r.stop();
}

#[test]
fn credentials_for_one_call() {
    let r = start(|b| b);
    let mut c = client(&r.addr);
    let who = AuthSysParams { stamp: 1, machine: "host".into(), uid: 5, gid: 6, gids: vec![7, 8] };
    let options = CallOptions { cred: Some(Arc::new(AuthSys::new(&who).unwrap())), ..CallOptions::default() };
    assert_eq!(c.with(options).call::<u32, u32>(SLOW, &5).unwrap(), 6);
    c.set_auth_sys(&who).unwrap();
    assert_eq!(c.call::<u32, u32>(SLOW, &5).unwrap(), 6);
    let long = AuthSysParams { machine: "x".repeat(256), ..who };
    assert!(c.set_auth_sys(&long).is_err());
    r.stop();
}

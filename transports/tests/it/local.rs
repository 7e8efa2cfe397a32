//! RPC over local sockets, by plain ones.

#![cfg(feature = "local")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use crate::common::*;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;
use sunrpc::clnt::Client;
use sunrpc_transports::{class, connect};

/// A path of this test's own, where there is nothing.
fn path(name: &str) -> PathBuf {
    let p = std::env::temp_dir().join(format!("sunrpc-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&p);
    p
}

fn url(p: &std::path::Path) -> String {
    format!("local:{}", p.display())
}

fn exchange(s: &mut UnixStream, proc: u32, args: &[u8]) -> Vec<u8> {
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    s.write_all(&call(5, 1, proc, args)).unwrap();
    let mut mark = [0; 4];
    s.read_exact(&mut mark).unwrap();
    let mut rec = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    s.read_exact(&mut rec).unwrap();
    rec
}

#[test]
fn the_kernel_tells_who_calls() {
    let p = path("who");
    let r = start(|b| b.listen(&url(&p)).unwrap());
    assert_eq!(r.urls[1], url(&p));
    let mut s = UnixStream::connect(&p).unwrap();
    let uid = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap();
    let pid = std::process::id();
    assert_eq!(words(&exchange(&mut s, WHO, &[])), [5, 1, 0, 0, 0, 0, uid, pid]);
    let big = [&(1u32 << 20).to_be_bytes()[..], &vec![9; 1 << 20]].concat();
    assert!(exchange(&mut s, ECHO, &big)[24..] == big);
    assert_eq!(words(&exchange(&mut s, SLOW, &7u32.to_be_bytes()))[6], 8);
    let mut c = Client::new(connect(&r.urls[1]).unwrap(), PROG, 1);
    assert_eq!(c.call::<u32, u32>(LATER, &5).unwrap(), 7);
    r.stop();
    assert!(!p.exists(), "the file is removed at the end");
}

#[test]
fn abstract_names_leave_no_file() {
    let name = format!("sunrpc-test-{}", std::process::id());
    let r = start(|b| b.listen(&format!("local:@{name}")).unwrap());
    assert_eq!(r.urls[1], format!("local:@{name}"));
    let addr = SocketAddr::from_abstract_name(&name).unwrap();
    let mut s = UnixStream::connect_addr(&addr).unwrap();
    assert_eq!(words(&exchange(&mut s, NULL, &[])), [5, 1, 0, 0, 0, 0]);
    let taken = class::listen(&r.urls[1]).unwrap_err().to_string();
    assert!(taken.contains("another server"), "{taken}");
    r.stop();
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else() {
    let p = path("stale");
    drop(UnixListener::bind(&p).unwrap());
    assert!(
        std::fs::symlink_metadata(&p).unwrap().file_type().is_socket(),
        "nobody listens, the file is there"
    );
    let r = start(|b| b.listen(&url(&p)).unwrap());
    let taken = class::listen(&url(&p)).unwrap_err().to_string();
    assert!(taken.contains("another server"), "{taken}");
    let mut s = UnixStream::connect(&p).unwrap();
    assert_eq!(words(&exchange(&mut s, NULL, &[])), [5, 1, 0, 0, 0, 0]);
    // Somebody takes the place over: it is theirs.
    std::fs::remove_file(&p).unwrap();
    let theirs = UnixListener::bind(&p).unwrap();
    r.stop();
    assert!(p.exists());
    drop(theirs);
    std::fs::remove_file(&p).unwrap();
    std::fs::write(&p, "precious").unwrap();
    let refused = class::listen(&url(&p)).unwrap_err().to_string();
    assert!(refused.contains("is no socket"), "{refused}");
    assert_eq!(std::fs::read(&p).unwrap(), b"precious");
    std::fs::remove_file(&p).unwrap();
    assert!(class::listen("local:").unwrap_err().to_string().contains("no path"));
}

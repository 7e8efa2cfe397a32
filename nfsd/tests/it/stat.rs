//! `nfsd stat`, against a running server.

use crate::server::{How, Server, command, exchange};
use crate::wire::{MOUNT, Msg, NFS, Reply};
use std::fs::{Permissions, set_permissions};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

fn socket(s: &Server) -> PathBuf {
    s.state().join("control")
}

fn run(mut c: Command, s: &Server, args: &[&str]) -> Output {
    c.arg("stat").args(args).arg("--control").arg(socket(s)).output().unwrap()
}

/// What `nfsd stat ARGS` prints.
fn stat(s: &Server, args: &[&str]) -> String {
    let out = run(command(), s, args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    String::from_utf8(out.stdout).unwrap()
}

/// What `nfsd stat` says when it fails.
fn fails(out: &Output) -> String {
    assert!(!out.status.success() && out.stdout.is_empty(), "{out:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The number after the first `"key":` behind `from`.
fn number(json: &str, from: &str, key: &str) -> u64 {
    let rest = &json[json.find(from).unwrap_or_else(|| panic!("no {from} in {json}"))..];
    let key = format!("\"{key}\":");
    let at = rest.find(&key).unwrap_or_else(|| panic!("no {key} behind {from} in {json}"));
    let digits: String = rest[at + key.len()..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// One call; adds the bytes of its reply.
fn call(c: &mut TcpStream, call: &Msg, bytes: &mut u64) -> Vec<u8> {
    let reply = exchange(c, &call.0).unwrap();
    *bytes += 4 + reply.len() as u64;
    reply
}

#[test]
fn calls_and_pages_are_counted() {
    let s = Server::start(&["--squash", "none", "--threads", "2"]);
    std::fs::write(s.dir.path().join("f"), vec![7; 10_000]).unwrap();
    let mut c = s.connect();
    let mut bytes = 0;
    let path = s.dir.path().to_str().unwrap().as_bytes();
    let mut r = Reply::results(call(&mut c, &Msg::call(1, MOUNT, 3, 1, 0).opaque(path), &mut bytes));
    assert_eq!(r.u32(), 0);
    let root = r.opaque();
    let lookup = Msg::call(2, NFS, 3, 3, 0).opaque(&root).opaque(b"f");
    let mut r = Reply::results(call(&mut c, &lookup, &mut bytes));
    assert_eq!(r.u32(), 0);
    let file = r.opaque();
    (0..3).for_each(|i| drop(call(&mut c, &Msg::null(10 + i), &mut bytes)));
    for i in 0..5 {
        let getattr = Msg::call(20 + i, NFS, 3, 1, 0).opaque(&file);
        assert_eq!(Reply::results(call(&mut c, &getattr, &mut bytes)).u32(), 0);
    }
    for i in 0..4 {
        let read = Msg::call(30 + i, NFS, 3, 6, 0).opaque(&file).u64(0).u32(10_000);
        assert_eq!(Reply::results(call(&mut c, &read, &mut bytes)).u32(), 0);
    }
    // Arguments that are none, and a procedure that does not exist.
    call(&mut c, &Msg::call(40, NFS, 3, 1, 0), &mut bytes);
    call(&mut c, &Msg::call(41, NFS, 3, 99, 0), &mut bytes);

    let json = stat(&s, &["calls", "--json"]);
    assert_eq!(json.lines().count(), 1);
    for (name, calls, errors) in [
        ("nfs v3 NULL", 3, 0),
        ("nfs v3 GETATTR", 6, 1),
        ("nfs v3 LOOKUP", 1, 0),
        ("nfs v3 READ", 4, 0),
        ("nfs v3 WRITE", 0, 0),
        ("mountd v3 MNT", 1, 0),
        ("mountd v1 MNT", 0, 0),
    ] {
        let row = format!("{{\"name\":\"{name}\",\"current\":true,");
        assert_eq!((number(&json, &row, "calls"), number(&json, &row, "errors")), (calls, errors), "{name}");
    }
    assert_eq!(number(&json, "{\"calls\":{\"total\"", "calls\":{\"total\":{\"calls"), 15, "{json}");

    let json = stat(&s, &["pages", "--json"]);
    let total = |key| number(&json, "{\"pages\":{\"total\"", key);
    let sent = total("send_copied") + total("send_zerocopy") + total("send_lent");
    assert_eq!(sent, bytes, "every byte of a reply is counted where it left: {json}");
    // What is not in use came back; a page under a small reply may stay for the next.
    assert!(total("taken") >= 4 * 3 && total("returned") <= total("taken"), "{json}");
    assert_eq!(total("payload"), 4 * 3, "{json}");
    // No page is lost. A thread may trim its pool between its answer and the depot's: then ask again.
    let balance = |json: String| {
        let total = |key| number(&json, "{\"pages\":{\"total\"", key);
        let depot = |key| number(&json, "\"depot\":", key);
        let in_use = total("taken") - total("returned");
        assert_eq!(depot("leaked"), 0, "{json}");
        (depot("cut"), depot("free") + total("held") + in_use)
    };
    let balances: Vec<_> = (0..5).map(|_| balance(stat(&s, &["pages", "--json"]))).collect();
    assert!(balances.iter().any(|(cut, known)| cut == known), "{balances:?}");

    let text = stat(&s, &["pages"]);
    for word in ["taken", "returned", "fresh", "trimmed", "refills", "held", "cut", "free", "leaked"] {
        let line = text.lines().find(|l| l.split_whitespace().next() == Some(word));
        let line = line.unwrap_or_else(|| panic!("no {word} in\n{text}"));
        let numbers = line.split_whitespace().skip(1).filter(|n| n.parse::<u64>().is_ok()).count();
        assert!(numbers >= 1, "{line}");
    }
    assert!(text.contains("fresh pages per payload page: "), "{text}");
    let text = stat(&s, &["calls"]);
    assert!(text.contains("nfs v3 READ") && !text.contains("WRITE"), "procedures in use only:\n{text}");
    let all = stat(&s, &[]);
    for word in ["calls", "pages", "depot", "drc", "threads", "io"] {
        assert!(all.lines().any(|l| l.split_whitespace().next() == Some(word)), "no {word} in\n{all}");
    }
}

#[test]
fn io_of_each_export_is_counted() {
    let s = Server::start(&["--squash", "none", "--threads", "2"]);
    std::fs::write(s.dir.path().join("f"), vec![7; 300_000]).unwrap();
    let mut c = s.connect();
    let path = s.dir.path().to_str().unwrap();
    let mut ask = |m: Msg| Reply::results(exchange(&mut c, &m.0).unwrap());
    let mut r = ask(Msg::call(1, MOUNT, 3, 1, 0).opaque(path.as_bytes()));
    assert_eq!(r.u32(), 0);
    let root = r.opaque();
    let mut r = ask(Msg::call(2, NFS, 3, 3, 0).opaque(&root).opaque(b"f"));
    assert_eq!(r.u32(), 0);
    let file = r.opaque();
    for i in 0..3 {
        assert_eq!(ask(Msg::call(10 + i, NFS, 3, 6, 0).opaque(&file).u64(0).u32(1000)).u32(), 0);
    }
    assert_eq!(ask(Msg::call(20, NFS, 3, 6, 0).opaque(&file).u64(0).u32(262_144)).u32(), 0);
    let write = Msg::call(30, NFS, 3, 7, 0).opaque(&file).u64(0).u32(4).u32(0).opaque(b"what");
    assert_eq!(ask(write).u32(), 0);

    let json = stat(&s, &["io", "--json"]);
    let row = format!("\"name\":\"{}\"", &path[path.len().saturating_sub(61)..]);
    let of = |key| number(&json, &row, key);
    assert_eq!((of("write_buffered"), of("fallbacks"), of("kicks")), (1, 0, 0), "{json}");
    // Whether large READs lend is the file system's affair.
    assert_eq!((of("read_buffered") + of("read_lent"), of("read_buffered") >= 3), (4, true), "{json}");
}

#[test]
fn others_are_refused_and_the_socket_is_the_owners() {
    let s = Server::start(&[]);
    let m = std::fs::symlink_metadata(socket(&s)).unwrap();
    assert!(m.file_type().is_socket() && m.mode() & 0o777 == 0o600, "{:o}", m.mode());
    if m.uid() != 0 {
        return eprintln!("SKIPPED: only root can be somebody else");
    }
    set_permissions(s.state(), Permissions::from_mode(0o755)).unwrap();
    // Where this was built, nobody else may look.
    let place = tempfile::tempdir().unwrap();
    set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let nfsd = place.path().join("nfsd");
    std::fs::copy(command().get_program(), &nfsd).unwrap();
    let nobody = || {
        let mut c = Command::new(&nfsd);
        c.uid(65_534).gid(65_534).current_dir("/");
        c
    };
    let refused = fails(&run(nobody(), &s, &[]));
    assert!(refused.contains("root and its own user only"), "{refused}");
    assert_eq!(
        s.log().iter().filter(|l| l.contains("asks at the control socket")).count(),
        0,
        "the mode did it"
    );
    // Who gets past the mode is still known to the kernel.
    set_permissions(socket(&s), Permissions::from_mode(0o666)).unwrap();
    let refused = fails(&run(nobody(), &s, &[]));
    assert!(refused.contains("root and its own user only"), "{refused}");
    let line = "local:uid=65534";
    assert!(s.wait_for_log(|l| l.contains(line) && l.contains("asks at the control socket")));
    assert!(!stat(&s, &[]).is_empty(), "root is answered");
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let mut s = Server::start(&[]);
    s.crash_and_restart();
    assert!(exchange(&mut s.connect(), &Msg::null(1).0).is_some());
    let nulls = |s: &Server| number(&stat(s, &["calls", "--json"]), "\"nfs v3 NULL\"", "calls");
    assert_eq!(nulls(&s), 1, "the new server answers at the place of the killed one");

    // Asked for by name, the place has to be free.
    let mut other = command();
    other.arg(s.dir.path()).args(["--listen", "tcp://127.0.0.1:0", "--rpcbind", "off", "--control"]);
    other.arg(socket(&s)).arg("--state-dir").arg(tempfile::tempdir().unwrap().path());
    assert!(fails(&other.output().unwrap()).contains("another server is running there"));
    // At the default place it is not worth failing for.
    let state = Some(s.state().to_owned());
    let mut other = Server::start_how(How { state, ..How::default() });
    assert!(other.wait_for_log(|l| l.contains("--control PATH")));
    assert!(exchange(&mut other.connect(), &Msg::null(1).0).is_some());
    assert_eq!(nulls(&s), 1, "the first one still answers");
    assert!(other.terminate().success());
    assert_eq!(nulls(&s), 1, "and after the end of the other");

    assert!(s.terminate().success());
    assert!(!socket(&s).exists(), "taken away at the end");
    let gone = fails(&run(command(), &s, &[]));
    assert!(gone.contains("no server is running at") && gone.contains("--control"), "{gone}");
}

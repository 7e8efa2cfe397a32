//! NFS over UDP and over a local socket, with calls put together by hand.

use super::server::Server;
use super::wire::{MOUNT, Msg, NFS, Reply};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

/// Sends a call and returns the reply to it.
type Exchange<'a> = &'a mut dyn FnMut(Msg) -> Vec<u8>;

fn over_udp(s: &Server) -> impl FnMut(Msg) -> Vec<u8> + use<> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", s.udp_port())).unwrap();
    socket.set_read_timeout(Some(super::server::PATIENCE)).unwrap();
    move |m| {
        socket.send(&m.0).unwrap();
        let mut buf = vec![0; 65_536];
        let n = socket.recv(&mut buf).expect("a reply in time");
        buf.truncate(n);
        buf
    }
}

const OK: u32 = 0;
/// Bytes of fattr3.
const FATTR: usize = 84;

fn mount(x: Exchange<'_>, s: &Server) -> Vec<u8> {
    let path = s.dir.path().to_str().unwrap();
    let mut r = Reply::results(x(Msg::call(1, MOUNT, 3, 1, 0).opaque(path.as_bytes())));
    assert_eq!(r.u32(), OK);
    r.opaque()
}

fn lookup(x: Exchange<'_>, dir: &[u8], name: &str) -> Vec<u8> {
    let mut r = Reply::results(x(Msg::call(2, NFS, 3, 3, 0).opaque(dir).opaque(name.as_bytes())));
    assert_eq!(r.u32(), OK);
    r.opaque()
}

/// What every transport must do; `most` is its largest READ.
fn conversation(x: Exchange<'_>, s: &Server, most: u32) {
    Reply::results(x(Msg::null(7)));
    let data: Vec<u8> = (0..3 * most).map(|i| (i * 7 + i / 251) as u8).collect();
    let file = s.dir.path().join("f");
    std::fs::write(&file, &data).unwrap();
    // For whom root is squashed to.
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let root = mount(x, s);
    let f = lookup(x, &root, "f");

    let mut r = Reply::results(x(Msg::call(3, NFS, 3, 1, 0).opaque(&f)));
    assert_eq!(r.u32(), OK);
    r.skip(20);
    assert_eq!((r.u32(), r.u32()), (0, data.len() as u32), "size in GETATTR");

    let mut r = Reply::results(x(Msg::call(4, NFS, 3, 19, 0).opaque(&root)));
    assert_eq!((r.u32(), r.u32()), (OK, 1));
    r.skip(FATTR);
    let sizes: Vec<u32> = (0..6).map(|_| r.u32()).collect();
    assert_eq!(sizes, [most, most, 4096, most, most, 4096], "rtmax to wtmult in FSINFO");

    // More than the transport carries is asked for.
    let mut r = Reply::results(x(Msg::call(5, NFS, 3, 6, 0).opaque(&f).u64(1000).u32(2 * most)));
    assert_eq!((r.u32(), r.u32()), (OK, 1));
    r.skip(FATTR);
    assert_eq!((r.u32(), r.u32()), (most, 0), "count and eof of READ");
    assert!(r.opaque() == data[1000..1000 + most as usize], "READ");

    let new: Vec<u8> = (0..most).map(|i| (i % 249) as u8).collect();
    let write = Msg::call(6, NFS, 3, 7, 0).opaque(&f).u64(u64::from(most)).u32(most).u32(2).opaque(&new);
    let mut r = Reply::results(x(write));
    assert_eq!((r.u32(), r.u32(), r.u32()), (OK, 0, 1));
    r.skip(FATTR);
    assert_eq!((r.u32(), r.u32()), (most, 2), "count and stability of WRITE");
    let on_disk = std::fs::read(&file).unwrap();
    assert!(on_disk[most as usize..2 * most as usize] == new && on_disk.len() == data.len());
}

/// The names that READDIRPLUS lists, in how many calls.
fn list(x: Exchange<'_>, dir: &[u8]) -> (Vec<String>, usize) {
    let (mut names, mut calls, mut cookie) = (Vec::new(), 0, 0u64);
    loop {
        calls += 1;
        let call = Msg::call(9, NFS, 3, 17, 0).opaque(dir).u64(cookie).u64(0).u32(1 << 20).u32(1 << 20);
        let rec = x(call);
        assert!(rec.len() <= 32_768 + 512);
        let mut r = Reply::results(rec);
        assert_eq!((r.u32(), r.u32()), (OK, 1));
        r.skip(FATTR + 8);
        while r.u32() == 1 {
            r.skip(8);
            names.push(String::from_utf8(r.opaque()).unwrap());
            cookie = u64::from(r.u32()) << 32 | u64::from(r.u32());
            if r.u32() == 1 {
                r.skip(FATTR);
            }
            if r.u32() == 1 {
                r.opaque();
            }
        }
        if r.u32() == 1 {
            return (names, calls);
        }
    }
}

#[test]
fn nfs_over_udp() {
    let s = Server::start(&["--listen", "udp://127.0.0.1:0"]);
    let mut x = over_udp(&s);
    conversation(&mut x, &s, 32_768);
    for i in 0..600 {
        std::fs::write(s.dir.path().join(format!("some-name-of-a-file-{i}")), b"").unwrap();
    }
    let root = mount(&mut x, &s);
    let (mut names, calls) = list(&mut x, &root);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 603, "with `f` and the dots");
    assert!(calls > 2);
}

/// The sender of a datagram may be made up: whom no export admits, gets no more than was sent in its name.
#[test]
fn no_amplifier_for_strangers() {
    let s = Server::start(&["--listen", "udp://127.0.0.1:0", "--clients", "192.0.2.0/24"]);
    for i in 0..600 {
        std::fs::write(s.dir.path().join(format!("some-name-of-a-file-{i}")), b"").unwrap();
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", s.udp_port())).unwrap();
    socket.set_read_timeout(Some(super::server::PATIENCE)).unwrap();
    let path = s.dir.path().to_str().unwrap().as_bytes();
    let mut buf = vec![0; 65_536];
    let procs = (0..=22).map(|p| (NFS, 3, p)).chain((0..=6).flat_map(|p| [(MOUNT, 1, p), (MOUNT, 3, p)]));
    for (prog, vers, proc) in procs.chain([(NFS, 2, 0), (NFS, 9, 1), (100_024, 1, 1)]) {
        // Nothing, a path, a handle that is none, and what a READ or READDIRPLUS needs.
        let call = || Msg::call(5, prog, vers, proc, 0);
        let whole = call().opaque(&[1; 40]).u64(0).u64(0).u32(1 << 20).u32(1 << 20);
        for m in [
            call(),
            call().opaque(path),
            call().opaque(&[1; 40]),
            call().opaque(&[1; 40]).u64(0).u32(4096),
            whole,
        ] {
            socket.send(&m.0).unwrap();
            // Its answer comes before that of a call after it, if any does.
            socket.send(&Msg::null(6).0).unwrap();
            let mut got = 0;
            loop {
                let n = socket.recv(&mut buf).expect("a reply in time");
                if buf[..4] == 6u32.to_be_bytes() {
                    break;
                }
                got += n;
            }
            assert!(got <= m.0.len(), "{prog}/{vers}/{proc}: {got} bytes for {}", m.0.len());
        }
    }
}

#[test]
fn nfs_over_a_local_socket() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nfsd.sock");
    let s = Server::start(&["--listen", &format!("local:{}", path.display())]);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(super::server::PATIENCE)).unwrap();
    let mut x = move |m: Msg| {
        let mark = (m.0.len() as u32 | 0x8000_0000).to_be_bytes();
        stream.write_all(&[&mark[..], &m.0].concat()).unwrap();
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mut rec = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut rec).unwrap();
        rec
    };
    conversation(&mut x, &s, 1 << 20);
}

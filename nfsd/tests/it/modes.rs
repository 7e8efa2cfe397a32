//! I/O modes of a running server: SIGHUP changes them, and what calls leave is done after their replies.

use crate::lifecycle::{create, mount};
use crate::server::{PATIENCE, Server, exchange};
use crate::wire::{Msg, NFS, Reply};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use sunrpc_sys::io as file;

const MIB: u32 = 1 << 20;

/// Waits until `f` gives something; what the server does after a reply nobody is told of.
fn wait_for<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(start.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Writes the configuration, sends SIGHUP and waits for a new line of the log that says `answer`.
fn reload(s: &Server, config: &Path, export: &str, answer: &str) {
    let before = s.log().len();
    std::fs::write(config, export.replace('@', s.dir.path().canonicalize().unwrap().to_str().unwrap()))
        .unwrap();
    assert!(Command::new("kill").args(["-HUP", &s.pid().to_string()]).status().unwrap().success());
    wait_for(answer, || {
        s.log()[before..].iter().any(|l| l.contains("SIGHUP") && l.contains(answer)).then_some(())
    });
}

fn cached(path: &Path) -> u64 {
    file::residency(File::open(path).unwrap().as_fd(), 0, 0).unwrap().cached
}

fn make_cold(path: &Path) {
    let f = File::open(path).unwrap();
    file::fsync(f.as_fd()).unwrap();
    file::advise(f.as_fd(), 0, 0, libc::POSIX_FADV_DONTNEED).unwrap();
    assert_eq!(cached(path), 0);
}

/// READ of a MiB at the start of a file.
fn read(c: &mut TcpStream, file: &[u8]) -> Vec<u8> {
    let call = Msg::call(4, NFS, 3, 6, 0).opaque(file).u64(0).u32(MIB);
    let mut r = Reply::results(exchange(c, &call.0).unwrap());
    assert_eq!(r.u32(), 0);
    let post = r.u32();
    r.skip(84 * post as usize);
    assert_eq!((r.u32(), r.u32()), (MIB, 1), "count and eof");
    r.opaque()
}

/// An unstable WRITE of a MiB at the start of a file, and a COMMIT of all of it.
fn write_and_commit(c: &mut TcpStream, file: &[u8], data: &[u8]) {
    let call = Msg::call(5, NFS, 3, 7, 0).opaque(file).u64(0).u32(MIB).u32(0).opaque(data);
    assert_eq!(Reply::results(exchange(c, &call.0).unwrap()).u32(), 0);
    let call = Msg::call(6, NFS, 3, 21, 0).opaque(file).u64(0).u32(0);
    assert_eq!(Reply::results(exchange(c, &call.0).unwrap()).u32(), 0);
}

#[test]
fn sighup_changes_the_modes_of_a_running_server() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("c");
    std::fs::write(&config, "").unwrap();
    let s = Server::start(&["--squash", "none", "--config", config.to_str().unwrap()]);
    let mut c = s.connect();
    let root = mount(&mut c, s.dir.path().to_str().unwrap(), 0).unwrap();
    let handle = create(&mut c, &root, "f", 0).unwrap();
    let path = s.dir.path().join("f");
    let data: Vec<u8> = (0..MIB).map(|i| (i / 7) as u8).collect();

    const EXPORT: &str = "[[export]]\npath = \"@\"\n";
    reload(&s, &config, EXPORT, "no I/O mode has changed");
    write_and_commit(&mut c, &handle, &data);
    let direct = sunrpc_sys::stat::direct_align(File::open(&path).unwrap().as_fd()).unwrap().is_some();
    if cached(&path) != 256 || !direct {
        eprintln!("SKIPPED: the directory for temporary files is on no disk with O_DIRECT");
        return;
    }
    make_cold(&path);
    assert!(read(&mut c, &handle) == data);
    assert_eq!(cached(&path), 256);

    reload(
        &s,
        &config,
        &format!("{EXPORT}read = \"direct\"\nwrite = \"hybrid\"\n"),
        "now read direct, write hybrid",
    );
    make_cold(&path);
    assert!(read(&mut c, &handle) == data);
    assert_eq!(cached(&path), 0, "read past the page cache");
    // Twice: fresh pages and overwritten ones.
    for _ in 0..2 {
        write_and_commit(&mut c, &handle, &data);
        wait_for("the page cache lets go", || (cached(&path) == 0).then_some(()));
    }

    reload(&s, &config, &format!("{EXPORT}read = \"fast\"\n"), "stays as it was");
    assert!(s.log().iter().any(|l| l.contains("/c:3: read cannot be \"fast\"")), "{:?}", s.log());
    assert!(read(&mut c, &handle) == data);
    assert_eq!(cached(&path), 0, "a broken file changes nothing");

    reload(&s, &config, EXPORT, "now read buffered, write buffered");
    assert!(read(&mut c, &handle) == data);
    assert_eq!(cached(&path), 256);
    write_and_commit(&mut c, &handle, &data);
    assert_eq!(cached(&path), 256);
}

#[test]
fn sighup_without_a_file_does_not_end_the_server() {
    let s = Server::start(&[]);
    assert!(Command::new("kill").args(["-HUP", &s.pid().to_string()]).status().unwrap().success());
    wait_for("a word in the log", || s.log().iter().any(|l| l.contains("--config")).then_some(()));
    mount(&mut s.connect(), s.dir.path().to_str().unwrap(), 0).unwrap();
}

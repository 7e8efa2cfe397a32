//! Start, stop, crash, refusal.

use crate::server::{Server, command, exchange};
use crate::wire::{MOUNT, Msg, NFS, Reply};
use std::net::TcpStream;

pub fn mount(c: &mut TcpStream, path: &str, uid: u32) -> Result<Vec<u8>, u32> {
    let call = Msg::call(1, MOUNT, 3, 1, uid).opaque(path.as_bytes());
    let mut r = Reply::results(exchange(c, &call.0).unwrap());
    match r.u32() {
        0 => Ok(r.opaque()),
        status => Err(status),
    }
}

pub fn create(c: &mut TcpStream, dir: &[u8], name: &str, uid: u32) -> Result<Vec<u8>, u32> {
    let call = Msg::call(2, NFS, 3, 8, uid).opaque(dir).opaque(name.as_bytes());
    let call = call.u32(1).u32(1).u32(0o644).u32(0).u32(0).u32(0).u32(0).u32(0);
    let mut r = Reply::results(exchange(c, &call.0).unwrap());
    match r.u32() {
        0 => {
            assert_eq!(r.u32(), 1, "a new object comes with its handle");
            Ok(r.opaque())
        }
        status => Err(status),
    }
}

/// A stable WRITE; its status and the verifier.
fn write(c: &mut TcpStream, file: &[u8], data: &[u8], uid: u32) -> (u32, Vec<u8>) {
    let n = data.len() as u32;
    let call = Msg::call(3, NFS, 3, 7, uid).opaque(file).u64(0).u32(n).u32(2).opaque(data);
    let mut r = Reply::results(exchange(c, &call.0).unwrap());
    let status = r.u32();
    if status != 0 {
        return (status, Vec::new());
    }
    let pre = r.u32();
    r.skip(24 * pre as usize);
    let post = r.u32();
    r.skip(84 * post as usize);
    assert_eq!(r.u32(), n, "count");
    assert_eq!(r.u32(), 2, "FILE_SYNC");
    (0, [r.u32().to_be_bytes(), r.u32().to_be_bytes()].concat())
}

#[test]
fn handles_outlive_kill_9_and_the_verifier_does_not() {
    let mut s = Server::start(&["--squash", "none"]);
    let path = s.dir.path().to_str().unwrap().to_owned();
    let mut c = s.connect();
    let root = mount(&mut c, &path, 0).unwrap();
    let file = create(&mut c, &root, "kept", 0).unwrap();
    let (status, verf) = write(&mut c, &file, b"before", 0);
    assert_eq!(status, 0);
    std::fs::rename(s.dir.path().join("kept"), s.dir.path().join("renamed")).unwrap();
    s.crash_and_restart();
    let mut c = s.connect();
    let (status, again) = write(&mut c, &file, b"after!", 0);
    assert_eq!(status, 0, "the handle still names the file, under its new name");
    assert_ne!(verf, again, "unstable data may have been lost in between: clients must notice");
    assert_eq!(std::fs::read(s.dir.path().join("renamed")).unwrap(), b"after!");
    assert!(create(&mut c, &root, "second", 0).is_ok());
}

#[test]
fn sigterm_ends_cleanly() {
    let mut s = Server::start(&[]);
    let mut c = s.connect();
    assert!(exchange(&mut c, &Msg::null(1).0).is_some());
    assert!(s.terminate().success());
    assert!(exchange(&mut c, &Msg::null(2).0).is_none());
}

#[test]
fn read_only_refuses_every_change() {
    let s = Server::start(&["--read-only", "--squash", "none"]);
    std::fs::write(s.dir.path().join("f"), "x").unwrap();
    let mut c = s.connect();
    let root = mount(&mut c, s.dir.path().to_str().unwrap(), 0).unwrap();
    assert_eq!(create(&mut c, &root, "new", 0), Err(30), "NFS3ERR_ROFS");
    assert!(!s.dir.path().join("new").exists());
}

#[test]
fn root_is_squashed_by_default() {
    use std::os::unix::fs::MetadataExt;
    let s = Server::start(&[]);
    let mut c = s.connect();
    let root = mount(&mut c, s.dir.path().to_str().unwrap(), 0).unwrap();
    let me = std::fs::metadata("/proc/self").unwrap().uid();
    let made = create(&mut c, &root, "new", 0);
    if me == 0 {
        made.unwrap();
        let m = std::fs::metadata(s.dir.path().join("new")).unwrap();
        assert_eq!((m.uid(), m.gid()), (65534, 65534));
        assert_eq!(m.mode() & 0o7777, 0o644);
    }
}

#[test]
fn only_the_exported_path_and_what_is_below_can_be_mounted() {
    let s = Server::start(&[]);
    std::fs::create_dir(s.dir.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("/etc", s.dir.path().join("out")).unwrap();
    std::fs::write(s.dir.path().join("file"), "x").unwrap();
    let path = s.dir.path().to_str().unwrap();
    let mut c = s.connect();
    let root = mount(&mut c, path, 1000).unwrap();
    assert_eq!(mount(&mut c, &format!("{path}/"), 1000).unwrap(), root);
    assert_ne!(mount(&mut c, &format!("{path}/sub"), 1000).unwrap(), root);
    for bad in ["", "/", "/etc", "..", &format!("{path}/.."), &format!("{path}/../.."), &format!("{path}x")] {
        assert!(mount(&mut c, bad, 1000).is_err(), "{bad:?} was mounted");
    }
    assert!(mount(&mut c, &format!("{path}/out"), 1000).is_err(), "a symbolic link led out");
    assert_eq!(mount(&mut c, &format!("{path}/file"), 1000), Err(20), "MNT3ERR_NOTDIR");
    assert_eq!(mount(&mut c, &format!("{path}/absent"), 1000), Err(2), "MNT3ERR_NOENT");
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    for (args, says) in [
        (&["/no/such/directory"][..], "/no/such/directory"),
        (&["/tmp", "--listen", "tcp//x"], "tcp"),
        (&["/tmp", "--listen", "quic://127.0.0.1:0"], "udp"),
        (&["/tmp", "--clients", "10.0.0.0/99"], "10.0.0.0/99"),
        (&["/tmp", "--squash", "maybe"], "none"),
        (&[], "nfsd"),
    ] {
        let out = command().args(args).output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "{args:?} was accepted");
        assert!(err.contains(says), "{args:?} was answered with: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
    let help = command().arg("--help").output().unwrap();
    assert!(help.status.success());
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for flag in ["--listen", "--clients", "--insecure", "--read-only", "--squash", "--threads", "--state-dir"]
    {
        assert!(help.contains(flag), "--help does not name {flag}");
    }
}

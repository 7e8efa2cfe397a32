//! What exports keep apart.

use crate::client::*;
use crate::in_process::{InProcess, export};
use crate::server::{How, Server};
use nfsd::export::Squash;
use nfsd::proto::mount as m;
use nfsd::proto::nfs3::*;
use nfsd::vfs::passthrough::{Passthrough, PassthroughOptions};
use std::net::Ipv4Addr;
use std::sync::Arc;

fn tree() -> (tempfile::TempDir, Arc<Passthrough>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let fs = Arc::new(Passthrough::open(dir.path(), PassthroughOptions::default()).unwrap());
    (dir, fs)
}

/// B16b (RFC 1813 sections 3.3.14 and 3.3.15): one tree exported twice, with root's rights and without. RENAME and LINK
/// between the two are NFS3ERR_XDEV both ways, although the directory is the same; within each they work. The krb5-only
/// target waits for that flavor; B16a (the flavor of MNT) is in `mount_policy.rs`.
#[test]
fn b16b_nothing_moves_between_two_exports_of_one_tree() {
    let (dir, fs) = tree();
    let exports = vec![export(1, fs.clone(), |_| {}), export(2, fs, |s| s.squash = Squash::Root)];
    let s = InProcess::start(exports);
    let mut c = Client::connect(s.port);
    let (open, squashed) = (c.mnt("/1").unwrap(), c.mnt("/2").unwrap());
    for (from, to) in [(&open, &squashed), (&squashed, &open)] {
        let file = c.create(from, "file").unwrap();
        assert_eq!(c.rename((from, "file"), (to, "moved")), nfsstat3::NFS3ERR_XDEV);
        assert_eq!(c.link(&file, to, "linked"), nfsstat3::NFS3ERR_XDEV);
        for n in ["moved", "linked"] {
            assert!(!dir.path().join(n).exists(), "{n}");
        }
        assert_eq!(c.rename((from, "file"), (from, "moved")), nfsstat3::NFS3_OK);
        assert_eq!(c.link(&file, from, "linked"), nfsstat3::NFS3_OK);
        for n in ["moved", "linked"] {
            assert_eq!(c.remove(from, n), nfsstat3::NFS3_OK);
        }
    }
    // The squash of the export that a handle belongs to holds, whatever the other one permits.
    let private = c.create_how(&open, "private", createhow3::GUARDED(mode(0o600))).unwrap();
    let again = c.lookup(&squashed, "private").unwrap();
    assert_ne!(private, again);
    c.read(&private, 0, 1).unwrap();
    assert_eq!(c.read(&again, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_ACCES);
}

/// B16b as the program serves it: a directory, and one below it, in two exports.
#[test]
fn b16b_nothing_moves_into_an_export_from_the_one_above() {
    let below = tempfile::tempdir().unwrap();
    std::fs::set_permissions(below.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let inner = below.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let s = Server::start(&["--squash", "none", below.path().to_str().unwrap(), inner.to_str().unwrap()]);
    let mut c = Client::connect(s.port);
    let outer_root = c.mnt(below.path().to_str().unwrap()).unwrap();
    let inner_root = c.mnt(inner.to_str().unwrap()).unwrap();
    let file = c.create(&outer_root, "file").unwrap();
    assert_eq!(c.rename((&outer_root, "file"), (&inner_root, "moved")), nfsstat3::NFS3ERR_XDEV);
    assert_eq!(c.link(&file, &inner_root, "linked"), nfsstat3::NFS3ERR_XDEV);
    assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
}

fn dump(c: &mut Client) -> Vec<(String, String)> {
    let list: m::mountlist = c.mount(m::MOUNTPROC3_DUMP, &[]);
    list.iter().map(|m| (m.ml_hostname.to_string(), m.ml_directory.to_string())).collect()
}

/// B16c (RFC 1813 section 5.2.4): UMNTALL removes the caller's own entries, as UMNT its own entry.
#[test]
fn b16c_umntall_takes_back_the_callers_mounts_only() {
    let s = Server::start(&[]);
    std::fs::create_dir(s.dir.path().join("sub")).unwrap();
    let path = s.dir.path().to_str().unwrap().to_owned();
    let sub = format!("{path}/sub");
    let mut first = Client::connect(s.port);
    let mut second = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), s.port);
    for c in [&mut first, &mut second] {
        c.mnt(&path).unwrap();
        c.mnt(&sub).unwrap();
    }
    let of = |host: &str, p: &str| (host.to_owned(), p.to_owned());
    assert_eq!(dump(&mut second).len(), 4);
    first.mount::<()>(m::MOUNTPROC3_UMNT, &bytes(&m::dirpath::from(&*sub)));
    assert_eq!(dump(&mut second), [of("127.0.0.1", &path), of("127.0.0.2", &path), of("127.0.0.2", &sub)]);
    first.mount::<()>(m::MOUNTPROC3_UMNTALL, &[]);
    assert_eq!(dump(&mut second), [of("127.0.0.2", &path), of("127.0.0.2", &sub)]);
}

/// A refusal, of an NFS call as of MNT, is a proper error plus a log line that names the flag, one for each kind however
/// many there are.
#[test]
fn refusals_are_logged_with_the_flag_that_admits() {
    let args = ["--squash", "none", "--clients", "127.0.0.1"].map(str::to_owned).to_vec();
    let s = Server::start_how(How { args: args.clone(), ..How::default() });
    let mut friend = Client::connect(s.port);
    let root = friend.mnt(s.dir.path().to_str().unwrap()).unwrap();
    let mut stranger = Client::connect_from(Ipv4Addr::new(127, 0, 0, 9), s.port);
    for _ in 0..100 {
        assert_eq!(stranger.attr(&root).unwrap_err(), nfsstat3::NFS3ERR_ACCES);
        assert_eq!(stranger.remove(&root, "x"), nfsstat3::NFS3ERR_ACCES);
    }
    let told = |s: &Server, what: &str| {
        let n = || s.log().iter().filter(|l| l.contains(what)).count();
        while n() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        n()
    };
    assert_eq!(told(&s, "--clients 127.0.0.9/32"), 1);
    // A failure that policy decides shows nothing of the object.
    let LOOKUP3res::Default(_, none) = stranger.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "x") })
    else {
        panic!()
    };
    assert_eq!(none.dir_attributes, post_op_attr::False);
    assert_eq!(stranger.mnt("/nowhere"), Err(m::mountstat3::MNT3ERR_ACCES));
    assert_eq!(told(&s, "/nowhere"), 1, "another kind has a line of its own");

    let s = Server::start_how(How { args, secure: true, ..How::default() });
    // The handle of another server: its key is not this one's, so first of all it is no handle here.
    let mut c = Client::connect(s.port);
    assert_eq!(c.attr(&root).unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE);
    assert_eq!(c.mnt(s.dir.path().to_str().unwrap()), Err(m::mountstat3::MNT3ERR_ACCES));
    assert_eq!(told(&s, "--insecure"), 1);
}

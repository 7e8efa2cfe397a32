//! What names and handles lead to, and what is on stable storage.

use crate::client::*;
use crate::flaky::Flaky;
use crate::in_process::{InProcess, export};
use crate::server::Server;
use nfsd::proto::mount::mountstat3;
use nfsd::proto::nfs3::*;
use nfsd::vfs::mem::{MemFs, MemOptions};
use nfsd::vfs::passthrough::{Passthrough, PassthroughOptions};
use nfsd::vfs::{Backend, VfsError};
use nfsstat3::*;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn mount(s: &Server) -> (Client, nfs_fh3) {
    let mut c = Client::connect(s.port);
    let root = c.mnt(s.dir.path().to_str().unwrap()).unwrap();
    (c, root)
}

fn start() -> (Server, Client, nfs_fh3) {
    let s = Server::start(&["--squash", "none"]);
    let (c, root) = mount(&s);
    (s, c, root)
}

/// B26 (RFC 1813 section 3.3.14): onto a hard link of the same file nothing happens, and that is success; into the own
/// subtree is NFS3ERR_INVAL; onto a directory in use NFS3ERR_NOTEMPTY or NFS3ERR_EXIST.
#[test]
fn b26_renames_with_a_catch() {
    let (s, mut c, root) = start();
    let file = c.create(&root, "a").unwrap();
    assert_eq!(c.link(&file, &root, "b"), NFS3_OK);
    assert_eq!(c.rename((&root, "a"), (&root, "b")), NFS3_OK);
    for n in ["a", "b"] {
        assert_eq!(c.lookup(&root, n).unwrap(), file, "{n} stays");
    }
    assert_eq!(c.attr(&file).unwrap().nlink, 2);
    assert_eq!(c.rename((&root, "a"), (&root, "a")), NFS3_OK);
    assert_eq!(c.attr(&file).unwrap().nlink, 2);

    let d = c.mkdir(&root, "d").unwrap();
    let e = c.mkdir(&d, "e").unwrap();
    assert_eq!(c.rename((&root, "d"), (&e, "f")), NFS3ERR_INVAL);
    assert_eq!(c.rename((&root, "d"), (&d, "f")), NFS3ERR_INVAL);
    assert_eq!(c.lookup(&root, "d").unwrap(), d);
    assert_eq!(c.lookup(&d, "e").unwrap(), e);

    c.mkdir(&root, "g").unwrap();
    let got = c.rename((&root, "g"), (&root, "d"));
    assert!([NFS3ERR_NOTEMPTY, NFS3ERR_EXIST].contains(&got), "{got:?}");
    // Onto an empty directory it succeeds; a file and a directory never replace each other.
    assert_eq!(c.rename((&root, "g"), (&d, "e")), NFS3_OK);
    let got = c.rename((&root, "a"), (&root, "d"));
    assert!([NFS3ERR_ISDIR, NFS3ERR_EXIST].contains(&got), "{got:?}");
    let got = c.rename((&root, "d"), (&root, "a"));
    assert!([NFS3ERR_NOTDIR, NFS3ERR_EXIST].contains(&got), "{got:?}");
    assert!(s.dir.path().join("d/e").is_dir() && s.dir.path().join("a").is_file());
}

/// Keeps handles across renames and across `restart`, which starts the server again and connects to it.
fn handles_live_on(dir: &Path, mut c: Client, root: &nfs_fh3, restart: impl FnOnce() -> Client) {
    let d = c.mkdir(root, "d").unwrap();
    let file = c.create(&d, "file").unwrap();
    let gone = c.create(&d, "gone").unwrap();
    let number = c.attr(&gone).unwrap().fileid;
    assert_eq!(c.rename((root, "d"), (root, "e")), NFS3_OK);
    let made = c.create(&d, "made").unwrap();
    assert!(dir.join("e/made").exists(), "made through the handle of d");
    assert_eq!(c.rename((&d, "file"), (root, "moved")), NFS3_OK);
    c.write(&file, 0, b"before", stable_how::FILE_SYNC).unwrap();
    // Files that may get the number of the one removed.
    assert_eq!(c.remove(&d, "gone"), NFS3_OK);
    let mut reused = false;
    for i in 0..50 {
        let new = c.create(&d, format!("new-{i}")).unwrap();
        reused |= c.attr(&new).unwrap().fileid == number;
        assert_ne!(new, gone);
    }
    eprintln!("object number used again: {reused}");
    assert_eq!(c.attr(&gone).unwrap_err(), NFS3ERR_STALE);

    let mut c = restart();
    assert_eq!(c.attr(root).unwrap().type_, ftype3::NF3DIR);
    assert_eq!(c.attr(&file).unwrap().size, 6);
    c.write(&file, 0, b"after!", stable_how::FILE_SYNC).unwrap();
    assert_eq!(std::fs::read(dir.join("moved")).unwrap(), b"after!");
    c.write(&made, 0, b"made", stable_how::FILE_SYNC).unwrap();
    assert_eq!(std::fs::read(dir.join("e/made")).unwrap(), b"made");
    c.create(&d, "later").unwrap();
    assert!(dir.join("e/later").exists());
    assert_eq!(c.attr(&gone).unwrap_err(), NFS3ERR_STALE, "never another object");
    assert_eq!(c.write(&gone, 0, b"x", stable_how::FILE_SYNC).unwrap_err(), NFS3ERR_STALE);
}

/// B27 (RFC 1813 section 2.5): handles belong to objects, not to names or to a run of the server, which here is killed.
#[test]
fn b27_handles_outlive_rename_and_restart() {
    let (mut s, c, root) = start();
    let dir = s.dir.path().to_owned();
    handles_live_on(&dir, c, &root, || {
        s.crash_and_restart();
        Client::connect(s.port)
    });
}

/// B27 where handles are kept on disk, because the server has no right to open by the kernel's.
#[test]
fn b27_handles_outlive_rename_and_restart_without_privileges() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let serve = || {
        let state_dir = Some(state.path().to_owned());
        let opts = PassthroughOptions { state_dir, unprivileged: true, ..PassthroughOptions::default() };
        InProcess::start(vec![export(1, Arc::new(Passthrough::open(dir.path(), opts).unwrap()), |_| {})])
    };
    let s = serve();
    let mut c = Client::connect(s.port);
    let root = c.mnt("/1").unwrap();
    let mut again = None;
    handles_live_on(dir.path(), c, &root, || {
        drop(s);
        Client::connect(again.insert(serve()).port)
    });
}

/// B29: nothing leads above an export that is a directory in the middle of a tree. The version 4 half (LOOKUPP) waits.
#[test]
fn b29_nothing_leads_above_the_root() {
    let (s, mut c, root) = start();
    let above = s.dir.path().parent().unwrap().to_owned();
    let own = c.attr(&root).unwrap();
    assert_eq!(own.fileid, std::fs::metadata(s.dir.path()).unwrap().ino());
    assert_eq!(c.lookup(&root, "..").unwrap(), root, ".. of the root is the root");
    assert_eq!(c.lookup(&root, ".").unwrap(), root);
    let LOOKUP3res::NFS3_OK(up) = c.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "..") }) else {
        panic!()
    };
    let post_op_attr::True(a) = up.obj_attributes else { panic!() };
    assert_eq!(a.fileid, own.fileid);
    let sub = c.mkdir(&root, "sub").unwrap();
    assert_eq!(c.lookup(&sub, "..").unwrap(), root);

    let args = READDIR3args { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count: 4096 };
    let READDIR3res::NFS3_OK(l) = c.call(NFSPROC3_READDIR, &args) else { panic!() };
    let up = l.reply.entries.iter().find(|e| e.name.as_bytes() == b"..").unwrap();
    assert_eq!(up.fileid, own.fileid, "READDIR: not the number of the directory above");
    let l = c.readdirplus(&root, 0, 32768).unwrap();
    let up = l.reply.entries.iter().find(|e| e.name.as_bytes() == b"..").unwrap();
    assert_eq!(up.fileid, own.fileid);
    if let post_op_attr::True(a) = &up.name_attributes {
        assert_eq!(a.fileid, own.fileid, "READDIRPLUS: not the attributes of the directory above");
    }
    if let post_op_fh3::True(fh) = &up.name_handle {
        assert_eq!(*fh, root, "READDIRPLUS: not the handle of the directory above");
    }
    // By MOUNT neither.
    let path = s.dir.path().to_str().unwrap();
    for p in [above.to_str().unwrap(), &format!("{path}/.."), &format!("{path}/sub/../..")] {
        assert_eq!(c.mnt(p), Err(mountstat3::MNT3ERR_ACCES), "{p}");
    }
    // A directory that somebody moves out of the export has no way up for a client that still has its handle.
    let outside = tempfile::tempdir_in(&above).unwrap();
    std::fs::create_dir(s.dir.path().join("sub/deep")).unwrap();
    let deep = c.lookup(&sub, "deep").unwrap();
    std::fs::rename(s.dir.path().join("sub"), outside.path().join("sub")).unwrap();
    assert!(c.lookup(&sub, "..").is_err(), "the directory above is nobody's business");
    let l = c.readdirplus(&sub, 0, 32768).unwrap();
    let up = l.reply.entries.iter().find(|e| e.name.as_bytes() == b"..").unwrap();
    assert_eq!((&up.name_handle, &up.name_attributes), (&post_op_fh3::False, &post_op_attr::False));
    assert_eq!(c.lookup(&deep, "..").err(), Some(NFS3ERR_ACCES));
}

/// B30: a symbolic link in the exported tree is an object of its own for every procedure. The version 4 half (OPEN) waits.
#[test]
fn b30_links_are_not_followed() {
    let (s, mut c, root) = start();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    std::fs::write(&target, "untouched").unwrap();
    let before = std::fs::metadata(&target).unwrap();
    symlink(&target, s.dir.path().join("evil")).unwrap();
    symlink(outside.path(), s.dir.path().join("evil-dir")).unwrap();
    symlink(outside.path().join("absent"), s.dir.path().join("dangling")).unwrap();

    for name in ["evil", "dangling"] {
        let empty = || sattr3 { size: set_size3::True(0), ..mode(0o777) };
        for how in
            [createhow3::UNCHECKED(empty()), createhow3::GUARDED(empty()), createhow3::EXCLUSIVE([1; 8])]
        {
            let e = c.create_how(&root, name, how).unwrap_err();
            assert!([NFS3ERR_EXIST, NFS3ERR_INVAL].contains(&e), "CREATE {name}: {e:?}");
        }
    }
    let link = c.lookup(&root, "evil").unwrap();
    assert_eq!(c.attr(&link).unwrap().type_, ftype3::NF3LNK);
    // SETATTR acts on the link.
    let t = |seconds| nfstime3 { seconds, nseconds: 5 };
    let times = sattr3 {
        atime: set_atime::SET_TO_CLIENT_TIME(t(1000)),
        mtime: set_mtime::SET_TO_CLIENT_TIME(t(2000)),
        ..keep()
    };
    assert_eq!(c.setattr(&link, times), NFS3_OK);
    let a = c.attr(&link).unwrap();
    assert_eq!((a.atime, a.mtime), (t(1000), t(2000)));
    assert_eq!(
        c.setattr(&link, sattr3 { uid: set_uid3::True(7), gid: set_gid3::True(8), ..keep() }),
        NFS3_OK
    );
    let a = c.attr(&link).unwrap();
    assert_eq!((a.uid, a.gid), (7, 8));
    for set in [mode(0o777), sattr3 { size: set_size3::True(0), ..keep() }] {
        assert_ne!(c.setattr(&link, set), NFS3_OK, "a link has neither mode nor size");
    }
    assert_eq!(c.read(&link, 0, 100).unwrap_err(), NFS3ERR_INVAL);
    assert_eq!(c.write(&link, 0, b"x", stable_how::FILE_SYNC).unwrap_err(), NFS3ERR_INVAL);
    // Nothing is reached through a link to a directory.
    let dir = c.lookup(&root, "evil-dir").unwrap();
    assert_eq!(c.lookup(&dir, "target").unwrap_err(), NFS3ERR_NOTDIR);
    assert_eq!(c.create(&dir, "new").unwrap_err(), NFS3ERR_NOTDIR);
    assert_eq!(c.readdir(&dir, 0, 4096).unwrap_err(), NFS3ERR_NOTDIR);
    assert_eq!(c.mnt(&format!("{}/evil-dir", s.dir.path().display())), Err(mountstat3::MNT3ERR_NOTDIR));

    let after = std::fs::metadata(&target).unwrap();
    let told = |m: &std::fs::Metadata| (m.size(), m.mode(), m.uid(), m.gid(), m.mtime_nsec(), m.ctime_nsec());
    assert_eq!(told(&after), told(&before), "the target is untouched");
    assert_eq!(std::fs::read(&target).unwrap(), b"untouched");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was made outside");
}

/// B30: a socket deeper than the 108 bytes of a socket's address. The row asks for NFS3ERR_NAMETOOLONG instead of an
/// overflow; by RFC 1813 section 3.2 that is for components longer than name_max, and this one is not: it is made, where it
/// should be, because it is made by its name in an open directory, never by a path.
#[test]
fn b30_a_socket_below_a_long_path() {
    let (s, mut c, root) = start();
    let (mut dir, mut path) = (root, s.dir.path().to_owned());
    for _ in 0..3 {
        let n = "d".repeat(200);
        dir = c.mkdir(&dir, &*n).unwrap();
        path.push(n);
    }
    for n in ["s".repeat(109), "s".repeat(255)] {
        assert_eq!(c.mknod(&dir, &*n, mknoddata3::NF3SOCK(mode(0o600))), NFS3_OK);
        let made = std::fs::symlink_metadata(path.join(&n)).unwrap();
        assert!(made.file_type().is_socket());
        let fh = c.lookup(&dir, &*n).unwrap();
        let a = c.attr(&fh).unwrap();
        assert_eq!((a.type_, a.fileid), (ftype3::NF3SOCK, made.ino()));
    }
    assert_eq!(c.mknod(&dir, "s".repeat(256), mknoddata3::NF3SOCK(mode(0o600))), NFS3ERR_NAMETOOLONG);
}

/// B30: a directory changes places with a link to a directory outside while clients look it up, make files in it and
/// mount below it. Whatever they catch, nothing outside is reached.
#[test]
fn b30_a_directory_swapped_for_a_link_leads_nowhere() {
    let (s, mut c, root) = start();
    let outside = tempfile::tempdir().unwrap();
    std::fs::set_permissions(outside.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::fs::create_dir(outside.path().join("secret-dir")).unwrap();
    let dir = s.dir.path();
    std::fs::create_dir(dir.join("swap")).unwrap();
    std::fs::write(dir.join("swap/inside"), "").unwrap();
    symlink(outside.path(), dir.join("other")).unwrap();
    let stop = AtomicBool::new(false);
    let path = dir.to_str().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let d = std::fs::File::open(dir).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let (from, to) = (&b"swap"[..], &b"other"[..]);
                sunrpc_sys::dir::rename(d.as_fd(), from, d.as_fd(), to, libc::RENAME_EXCHANGE).unwrap();
            }
        });
        let (mut dirs, mut links) = (0, 0);
        for i in 0..3000 {
            let fh = c.lookup(&root, "swap").unwrap();
            match c.lookup(&fh, "secret").unwrap_err() {
                NFS3ERR_NOENT => {
                    assert!(c.lookup(&fh, "inside").is_ok());
                    if i % 50 == 0 {
                        c.create(&fh, format!("made-{i}")).unwrap();
                    }
                    dirs += 1;
                }
                NFS3ERR_NOTDIR => {
                    assert_eq!(c.create(&fh, "made").unwrap_err(), NFS3ERR_NOTDIR);
                    links += 1;
                }
                e => panic!("{e:?}"),
            }
            let e = c.mnt(&format!("{path}/swap/secret-dir")).unwrap_err();
            assert!([mountstat3::MNT3ERR_NOENT, mountstat3::MNT3ERR_NOTDIR].contains(&e), "{e:?}");
            if dirs > 100 && links > 100 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(dirs > 0 && links > 0, "{dirs} directories, {links} links: the race was run");
    });
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2, "nothing was made outside");
}

/// B31 (RFC 1813 sections 3.3.7 and 3.3.21): a flush that fails reaches the client that commits, and others by a new
/// verifier; WRITE and COMMIT give the same one.
#[test]
fn b31_a_failed_flush_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let fs = Flaky::new(Passthrough::open(dir.path(), PassthroughOptions::default()).unwrap());
    let s = InProcess::start(vec![export(1, Arc::new(fs.clone()), |_| {})]);
    let (mut a, mut b) = (Client::connect(s.port), Client::connect(s.port));
    let root = a.mnt("/1").unwrap();
    let file = a.create(&root, "f").unwrap();
    let mut seen = Vec::new();
    for error in [VfsError::Io, VfsError::NoSpc, VfsError::DQuot] {
        let before = a.write(&file, 0, b"data", stable_how::UNSTABLE).unwrap();
        let other = b.write(&file, 4, b"more", stable_how::UNSTABLE).unwrap();
        assert_eq!((before.verf, other.committed), (other.verf, before.committed));
        assert!(!seen.contains(&before.verf), "{error:?}");
        seen.push(before.verf);
        fs.fail_next_flush(error);
        let e = a.commit(&file, 0, 0).unwrap_err();
        assert!([NFS3ERR_IO, NFS3ERR_NOSPC, NFS3ERR_DQUOT].contains(&e), "{e:?}");
        // The system forgets the failure; the other client has to learn of it all the same.
        let after = b.commit(&file, 0, 0).unwrap();
        assert_ne!(after.verf, before.verf, "{error:?}: b believes that its data is safe");
        assert_eq!(a.write(&file, 0, b"data", stable_how::UNSTABLE).unwrap().verf, after.verf);
    }
    // A stable write has a flush of its own.
    for how in [stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
        let before = b.commit(&file, 0, 0).unwrap().verf;
        fs.fail_next_flush(VfsError::Io);
        assert_eq!(a.write(&file, 0, b"data", how).unwrap_err(), NFS3ERR_IO);
        assert_ne!(b.commit(&file, 0, 0).unwrap().verf, before);
    }
}

/// B31 with the program itself: three starts as fast as they go, a verifier each; WRITE and COMMIT agree.
#[test]
fn b31_the_verifier_differs_from_start_to_start() {
    let (mut s, mut c, root) = start();
    let file = c.create(&root, "f").unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let w = c.write(&file, 0, b"unstable", stable_how::UNSTABLE).unwrap();
        let verf = c.commit(&file, 0, 0).unwrap().verf;
        assert_eq!(w.verf, verf);
        let w = c.write(&file, 0, b"stable", stable_how::FILE_SYNC).unwrap();
        assert_eq!((w.committed, w.verf), (stable_how::FILE_SYNC, verf));
        assert!(!seen.contains(&verf));
        seen.push(verf);
        s.crash_and_restart();
        c = Client::connect(s.port);
    }
}

/// B31: two servers of one backend in one process are two starts as well.
#[test]
fn b31_every_start_has_its_own_verifier() {
    let fs: Arc<dyn Backend> =
        Arc::new(MemFs::new(&MemOptions { root_mode: 0o777, ..MemOptions::default() }));
    let verifiers = (0..8).map(|_| {
        let s = InProcess::start(vec![export(1, fs.clone(), |_| {})]);
        let mut c = Client::connect(s.port);
        let root = c.mnt("/1").unwrap();
        let file = c.create(&root, "f").unwrap();
        c.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap().verf
    });
    let verifiers: std::collections::BTreeSet<_> = verifiers.collect();
    assert_eq!(verifiers.len(), 8);
}

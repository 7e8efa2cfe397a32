//! READ, WRITE, listings, names.

use crate::client::*;
use crate::in_process::{InProcess, export};
use crate::server::Server;
use nfsd::proto::nfs3::*;
use nfsd::vfs::passthrough::{Passthrough, PassthroughOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn start() -> (Server, Client, nfs_fh3) {
    let s = Server::start(&["--squash", "none", "--no-sync"]);
    let mut c = Client::connect(s.port);
    let root = c.mnt(s.dir.path().to_str().unwrap()).unwrap();
    (s, c, root)
}

/// B19: offsets and sizes that do not fit into a signed 64-bit number. READ (RFC 1813 section 3.3.6): a read at or past
/// the end succeeds with 0 bytes and eof; a client would repeat it for ever on NFS3ERR_INVAL.
#[test]
fn b19_offsets_beyond_2_63() {
    let (s, mut c, root) = start();
    let file = c.create(&root, "f").unwrap();
    c.write(&file, 0, b"abc", stable_how::FILE_SYNC).unwrap();
    for (offset, count) in [
        (0x7fff_ffff_ffff_f000, 4096),
        (i64::MAX as u64, 1),
        (1 << 63, 4096),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
    ] {
        let r = c.read(&file, offset, count).unwrap();
        assert_eq!((r.count, r.eof, r.data.len()), (0, true, 0), "READ at {offset:#x}");
    }
    let refused = [nfsstat3::NFS3ERR_FBIG, nfsstat3::NFS3ERR_INVAL];
    for (offset, len) in [
        (i64::MAX as u64, 2),
        (i64::MAX as u64 - 1, 2),
        (1 << 63, 1),
        (u64::MAX - 1, 2),
        (u64::MAX, 1),
        (u64::MAX, 4096),
    ] {
        for how in [stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
            let e = c.write(&file, offset, &vec![1; len], how).unwrap_err();
            assert!(refused.contains(&e), "WRITE at {offset:#x}: {e:?}");
        }
    }
    for size in [i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX] {
        let set = || sattr3 { size: set_size3::True(size), ..keep() };
        let e = c.setattr(&file, set());
        assert!(refused.contains(&e), "SETATTR size {size:#x}: {e:?}");
        // CREATE of what exists sets the size too; of what does not, it leaves no file of another size behind.
        let e = c.create_how(&root, "f", createhow3::UNCHECKED(set())).unwrap_err();
        assert!(refused.contains(&e), "CREATE size {size:#x}: {e:?}");
        let e = c.create_how(&root, "new", createhow3::GUARDED(set())).unwrap_err();
        assert!(refused.contains(&e), "CREATE size {size:#x}: {e:?}");
        assert!(!s.dir.path().join("new").exists(), "CREATE size {size:#x}");
    }
    for (offset, count) in [(u64::MAX, 0), (u64::MAX, u32::MAX), (i64::MAX as u64, 4096), (1 << 63, 1)] {
        match c.commit(&file, offset, count) {
            Ok(_) | Err(nfsstat3::NFS3ERR_INVAL) => {}
            Err(e) => panic!("COMMIT at {offset:#x}: {e:?}"),
        }
    }
    assert_eq!(c.attr(&file).unwrap().size, 3);
    assert_eq!(std::fs::read(s.dir.path().join("f")).unwrap(), b"abc");
}

/// B20 (RFC 1813 section 3.3.6): `count` is the number of bytes, and eof is said in the read that reaches the end.
#[test]
fn b20_reads_across_the_end() {
    let (_s, mut c, root) = start();
    let file = c.create(&root, "f").unwrap();
    c.write(&file, 0, b"0123456789", stable_how::UNSTABLE).unwrap();
    for (offset, count, want, eof) in [
        (4, 4096, &b"456789"[..], true),
        (10, 1, b"", true),
        (0, 10, b"0123456789", true),
        (5, 5, b"56789", true),
        (9, 1, b"9", true),
        (11, 100, b"", true),
        (10, 0, b"", true),
        (0, 9, b"012345678", false),
        (0, 0, b"", false),
    ] {
        let r = c.read(&file, offset, count).unwrap();
        assert_eq!((r.count as usize, r.eof), (want.len(), eof), "READ {offset} {count}");
        assert_eq!(r.data.to_vec(), want, "READ {offset} {count}");
    }
}

/// Lists 2,500 names page by page, READDIR and READDIRPLUS in turn, while names are made and removed between the pages,
/// the one that the next page continues from among them.
fn walk(c: &mut Client, root: &nfs_fh3, dir: &Path) {
    for i in 0..2500 {
        std::fs::write(dir.join(format!("stable-{i}")), "").unwrap();
    }
    for i in 0..200 {
        std::fs::write(dir.join(format!("doomed-{i}")), "").unwrap();
    }
    let mut seen = BTreeSet::new();
    let (mut cookie, mut pages, mut resumed) = (0, 0, 0);
    loop {
        let (mut names, mut eof): Page = if pages % 2 == 0 {
            c.readdir(root, cookie, 1200).unwrap()
        } else {
            let l = c.readdirplus(root, cookie, 6000).unwrap();
            (l.reply.entries.iter().map(|e| (e.name.as_bytes().to_vec(), e.cookie)).collect(), l.reply.eof)
        };
        assert!(!names.is_empty() || eof, "a page without progress");
        // Go on from a name that is gone by then.
        if let Some(at) = names.iter().position(|(n, _)| n.starts_with(b"doomed")) {
            let name = String::from_utf8(names[at].0.clone()).unwrap();
            assert_eq!(c.remove(root, &*name), nfsstat3::NFS3_OK);
            names.truncate(at + 1);
            (eof, resumed) = (false, resumed + 1);
        }
        for (n, at) in names {
            assert_ne!(at, 0, "0 is where a listing begins");
            cookie = at;
            assert!(seen.insert(n.clone()) || !n.starts_with(b"stable"), "{} twice", n.escape_ascii());
        }
        if eof {
            break;
        }
        c.create(root, format!("made-{pages}")).unwrap();
        pages += 1;
    }
    let stable = seen.iter().filter(|n| n.starts_with(b"stable")).count();
    assert_eq!(stable, 2500, "every name that was there all the time");
    assert!(seen.contains(&b"."[..]) && seen.contains(&b".."[..]));
    assert!(pages > 50 && resumed > 100, "{pages} pages, {resumed} resumed behind a removed name");
}

/// B22 (RFC 1813 sections 3.3.16 and 3.3.17) on the file system of the temporary directory. The first entry may be resumed
/// with any verifier, for a change of the directory does not spoil a cookie.
#[test]
fn b22_a_listing_in_pages_names_everything_once() {
    let (s, mut c, root) = start();
    walk(&mut c, &root, s.dir.path());
    let (names, _) = c.readdir(&root, 0, 400).unwrap();
    let args = READDIR3args { dir: root, cookie: names[0].1, cookieverf: *b"whatever", count: 4096 };
    let READDIR3res::NFS3_OK(rest) = c.call(NFSPROC3_READDIR, &args) else { panic!("verifier refused") };
    assert_eq!(rest.reply.entries.first().unwrap().name.as_bytes(), names[1].0);
}

/// B22 on tmpfs, whose cookies are of another kind.
#[test]
fn b22_a_listing_in_pages_names_everything_once_on_tmpfs() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no /dev/shm here");
        return;
    };
    let fs = Passthrough::open(dir.path(), PassthroughOptions::default()).unwrap();
    let s = InProcess::start(vec![export(1, Arc::new(fs), |_| {})]);
    let mut c = Client::connect(s.port);
    let root = c.mnt("/1").unwrap();
    walk(&mut c, &root, dir.path());
}

/// B25. RFC 1813 section 3.2: the empty name, and characters that the server cannot handle, are NFS3ERR_ACCES; a name
/// longer than name_max is NFS3ERR_NAMETOOLONG; `.` and `..` are found. Making them is NFS3ERR_EXIST (3.3.9), RMDIR has an
/// error of its own for each (3.3.13). Section 2.4: names are bytes. The row asks for no more than one of ACCES, INVAL,
/// EXIST. Its version 4 half waits.
#[test]
fn b25_names_at_the_edge() {
    use nfsstat3::*;
    let (s, mut c, root) = start();
    let file = c.create(&root, "file").unwrap();
    let long = vec![b'n'; 255];
    for good in [&long[..], &[0xff, 0xfe], b"\\", b"...", b" ", b"a\n", b"\xc3\x28"] {
        let fh = c.create(&root, good).unwrap();
        assert_eq!(c.lookup(&root, good).unwrap(), fh);
        assert_eq!(c.rename((&root, good), (&root, "x")), NFS3_OK);
        assert_eq!(c.rename((&root, "x"), (&root, good)), NFS3_OK);
        assert_eq!(c.remove(&root, good), NFS3_OK);
        assert_eq!(c.link(&file, &root, good), NFS3_OK);
        let (names, _) = c.readdir(&root, 0, 65536).unwrap();
        assert!(names.iter().any(|(n, _)| n == good), "{} as it was given", good.escape_ascii());
        assert_eq!(c.remove(&root, good), NFS3_OK);
        assert!(c.mkdir(&root, good).is_ok());
        assert_eq!(c.rmdir(&root, good), NFS3_OK);
    }
    // The name; LOOKUP; CREATE, MKDIR, SYMLINK, MKNOD, LINK; RENAME from, to; REMOVE; RMDIR.
    let bad: [(&[u8], _, _, _, _, _); 8] = [
        (b"", NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES),
        (b"a/b", NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES),
        (b"/", NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES),
        (b"../x", NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES),
        (b"a\0b", NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES, NFS3ERR_ACCES),
        (
            &[b'n'; 256],
            NFS3ERR_NAMETOOLONG,
            NFS3ERR_NAMETOOLONG,
            NFS3ERR_NAMETOOLONG,
            NFS3ERR_NAMETOOLONG,
            NFS3ERR_NAMETOOLONG,
        ),
        (b".", NFS3_OK, NFS3ERR_EXIST, NFS3ERR_INVAL, NFS3ERR_ACCES, NFS3ERR_INVAL),
        (b"..", NFS3_OK, NFS3ERR_EXIST, NFS3ERR_INVAL, NFS3ERR_ACCES, NFS3ERR_EXIST),
    ];
    let status = |r: Result<nfs_fh3, nfsstat3>| r.err().unwrap_or(NFS3_OK);
    for (name, lookup, make, rename, remove, rmdir) in bad {
        let shown = name.escape_ascii().to_string();
        assert_eq!(status(c.lookup(&root, name)), lookup, "LOOKUP {shown}");
        for how in [
            createhow3::UNCHECKED(mode(0o600)),
            createhow3::GUARDED(mode(0o600)),
            createhow3::EXCLUSIVE([1; 8]),
        ] {
            assert_eq!(status(c.create_how(&root, name, how)), make, "CREATE {shown}");
        }
        assert_eq!(status(c.mkdir(&root, name)), make, "MKDIR {shown}");
        assert_eq!(c.symlink(&root, name, "target"), make, "SYMLINK {shown}");
        assert_eq!(c.mknod(&root, name, mknoddata3::NF3FIFO(mode(0o600))), make, "MKNOD {shown}");
        assert_eq!(c.link(&file, &root, name), make, "LINK {shown}");
        assert_eq!(c.rename((&root, name), (&root, "new")), rename, "RENAME from {shown}");
        assert_eq!(c.rename((&root, "file"), (&root, name)), rename, "RENAME to {shown}");
        assert_eq!(c.remove(&root, name), remove, "REMOVE {shown}");
        assert_eq!(c.rmdir(&root, name), rmdir, "RMDIR {shown}");
    }
    let left: Vec<_> = std::fs::read_dir(s.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["file"], "nothing made, nothing lost");
    assert_eq!(c.attr(&file).unwrap().nlink, 1);
}

/// 0xFFFFFFFF as owner or group means "leave alone" to the system: it is refused, with all that comes with it, instead of
/// being taken for a change that was made.
#[test]
fn nobodys_number_is_no_owner() {
    let (s, mut c, root) = start();
    let file = c.create(&root, "f").unwrap();
    c.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    let before = c.attr(&file).unwrap();
    let uid = || sattr3 { uid: set_uid3::True(u32::MAX), size: set_size3::True(1), ..mode(0o600) };
    let gid = || sattr3 { gid: set_gid3::True(u32::MAX), size: set_size3::True(1), ..mode(0o600) };
    for set in [uid(), gid()] {
        assert_eq!(c.setattr(&file, set), nfsstat3::NFS3ERR_INVAL);
    }
    assert_eq!(c.attr(&file).unwrap(), before, "nothing of it was done");
    for how in [createhow3::GUARDED(uid()), createhow3::UNCHECKED(gid())] {
        assert_eq!(c.create_how(&root, "new", how).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    }
    assert_eq!(c.mknod(&root, "new", mknoddata3::NF3FIFO(uid())), nfsstat3::NFS3ERR_INVAL);
    assert!(!s.dir.path().join("new").exists());
    // The number below it is one like others.
    let set = sattr3 { uid: set_uid3::True(u32::MAX - 1), gid: set_gid3::True(u32::MAX - 1), ..keep() };
    assert_eq!(c.setattr(&file, set), nfsstat3::NFS3_OK);
    let a = c.attr(&file).unwrap();
    assert_eq!((a.uid, a.gid), (u32::MAX - 1, u32::MAX - 1));
}

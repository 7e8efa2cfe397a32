//! Where servers have been wrong before, and bytes that no honest client sends.

use crate::rig::*;
use nfsd::proto::mount as m;
use nfsd::proto::nfs3::*;
use std::collections::BTreeSet;

/// A call of every procedure, in good form.
pub fn samples(root: &nfs_fh3) -> Vec<(u32, Vec<u8>)> {
    let (dir, obj) = (root.clone(), root.clone());
    vec![
        (NFSPROC3_GETATTR, bytes(&GETATTR3args { object: obj.clone() })),
        (
            NFSPROC3_SETATTR,
            bytes(&SETATTR3args {
                object: obj.clone(),
                new_attributes: mode(0o777),
                guard: sattrguard3::False,
            }),
        ),
        (NFSPROC3_LOOKUP, bytes(&LOOKUP3args { what: at(root, "abc") })),
        (NFSPROC3_ACCESS, bytes(&ACCESS3args { object: obj.clone(), access: 1 })),
        (NFSPROC3_READLINK, bytes(&READLINK3args { symlink: obj.clone() })),
        (NFSPROC3_READ, bytes(&READ3args { file: obj.clone(), offset: 0, count: 1 })),
        (
            NFSPROC3_WRITE,
            bytes(&WRITE3args {
                file: obj.clone(),
                offset: 0,
                count: 5,
                stable: stable_how::UNSTABLE,
                data: sunrpc::page::Pages::copy_from(b"12345"),
            }),
        ),
        (NFSPROC3_CREATE, bytes(&CREATE3args { where_: at(root, "c"), how: createhow3::EXCLUSIVE([1; 8]) })),
        (NFSPROC3_MKDIR, bytes(&MKDIR3args { where_: at(root, "d"), attributes: mode(0o755) })),
        (
            NFSPROC3_SYMLINK,
            bytes(&SYMLINK3args {
                where_: at(root, "s"),
                symlink: symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: nfspath3::from("t") },
            }),
        ),
        (
            NFSPROC3_MKNOD,
            bytes(&MKNOD3args { where_: at(root, "n"), what: mknoddata3::NF3SOCK(mode(0o600)) }),
        ),
        (NFSPROC3_REMOVE, bytes(&REMOVE3args { object: at(root, "x") })),
        (NFSPROC3_RMDIR, bytes(&RMDIR3args { object: at(root, "x") })),
        (NFSPROC3_RENAME, bytes(&RENAME3args { from: at(root, "x"), to: at(root, "y") })),
        (NFSPROC3_LINK, bytes(&LINK3args { file: obj.clone(), link: at(root, "l") })),
        (
            NFSPROC3_READDIR,
            bytes(&READDIR3args { dir: dir.clone(), cookie: 0, cookieverf: [0; 8], count: 512 }),
        ),
        (
            NFSPROC3_READDIRPLUS,
            bytes(&READDIRPLUS3args { dir, cookie: 0, cookieverf: [0; 8], dircount: 512, maxcount: 1024 }),
        ),
        (NFSPROC3_FSSTAT, bytes(&FSSTAT3args { fsroot: obj.clone() })),
        (NFSPROC3_FSINFO, bytes(&FSINFO3args { fsroot: obj.clone() })),
        (NFSPROC3_PATHCONF, bytes(&PATHCONF3args { object: obj.clone() })),
        (NFSPROC3_COMMIT, bytes(&COMMIT3args { file: obj, offset: 0, count: 0 })),
    ]
}

const GARBAGE_ARGS: Answer = Answer::Rejected(4);

#[test]
fn every_truncation_and_every_surplus_is_garbage() {
    let mut r = Rig::new();
    let root = r.root();
    let samples = samples(&root);
    assert_eq!(samples.len(), 21, "all procedures but NULL");
    for (proc, args) in samples {
        for n in 0..args.len() {
            let msg = r.message(NFS_PROGRAM, proc, &args[..n]);
            assert_eq!(r.raw(&msg), GARBAGE_ARGS, "procedure {proc} cut at {n} of {}", args.len());
        }
        let mut more = args.clone();
        more.extend_from_slice(&[0; 4]);
        let msg = r.message(NFS_PROGRAM, proc, &more);
        assert_eq!(r.raw(&msg), GARBAGE_ARGS, "procedure {proc} with a word too many");
        let msg = r.message(NFS_PROGRAM, proc, &args);
        assert!(matches!(r.raw(&msg), Answer::Results(_)), "procedure {proc} in good form");
    }
    let msg = r.message(NFS_PROGRAM, 22, &[]);
    assert_eq!(r.raw(&msg), Answer::Rejected(3), "PROC_UNAVAIL");
}

/// B04: a megabyte behind the arguments takes nothing of the reply.
#[test]
fn b04_junk_after_the_arguments_is_garbage() {
    let mut r = Rig::new();
    let root = r.root();
    let mut args = bytes(&READ3args { file: root, offset: 0, count: u32::MAX });
    args.resize(1 << 20, 0x55);
    let msg = r.message(NFS_PROGRAM, NFSPROC3_READ, &args);
    assert_eq!(r.raw(&msg), GARBAGE_ARGS);
}

/// B19: offsets and sizes beyond the largest file.
#[test]
fn b19_offsets_beyond_2_63() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "f");
    r.write(&file, 0, b"abc");
    for offset in [0x7fff_ffff_ffff_f000, i64::MAX as u64, u64::MAX] {
        let args = READ3args { file: file.clone(), offset, count: 4096 };
        match r.call(NFSPROC3_READ, &args) {
            READ3res::NFS3_OK(ok) => assert_eq!((ok.count, ok.eof, ok.data.len()), (0, true, 0)),
            other => panic!("offset {offset:#x}: {other:?}"),
        }
    }
    for offset in [i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        let got = r.write(&file, offset, b"xy");
        assert!(matches!(got, WRITE3res::Default(nfsstat3::NFS3ERR_FBIG, _)), "offset {offset:#x}: {got:?}");
    }
    let set = sattr3 { size: set_size3::True(u64::MAX), ..mode(0o644) };
    let args = SETATTR3args { object: file.clone(), new_attributes: set, guard: sattrguard3::False };
    let got: SETATTR3res = r.call(NFSPROC3_SETATTR, &args);
    assert!(
        matches!(got, SETATTR3res::Default(nfsstat3::NFS3ERR_FBIG | nfsstat3::NFS3ERR_INVAL, _)),
        "{got:?}"
    );
    let args = COMMIT3args { file: file.clone(), offset: u64::MAX, count: u32::MAX };
    let got: COMMIT3res = r.call(NFSPROC3_COMMIT, &args);
    assert!(matches!(got, COMMIT3res::NFS3_OK(_) | COMMIT3res::Default(nfsstat3::NFS3ERR_INVAL, _)));
    match r.call(NFSPROC3_GETATTR, &GETATTR3args { object: file }) {
        GETATTR3res::NFS3_OK(ok) => assert_eq!(ok.obj_attributes.size, 3),
        other => panic!("{other:?}"),
    }
}

/// B20: a read across the end.
#[test]
fn b20_reads_at_the_end_say_so_and_hold_what_they_count() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "f");
    r.write(&file, 0, b"0123456789");
    for (offset, count, want) in [(4, 4096, 6), (10, 1, 0), (0, 10, 10), (11, 1, 0), (9, 1, 1)] {
        match r.call(NFSPROC3_READ, &READ3args { file: file.clone(), offset, count }) {
            READ3res::NFS3_OK(ok) => {
                assert_eq!((ok.count, ok.data.len(), ok.eof), (want, want as usize, true), "at {offset}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// B22: pages of a listing, small ones, of both kinds mixed, while the directory changes.
#[test]
fn b22_a_listing_in_pieces_names_every_stable_name_once() {
    let mut r = Rig::new();
    let root = r.root();
    for i in 0..500 {
        r.create(&root, &format!("stable-{i}"));
    }
    let mut seen = BTreeSet::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let (names, eof): (Vec<(Vec<u8>, u64)>, bool) = if round % 2 == 0 {
            let args = READDIR3args { dir: root.clone(), cookie, cookieverf: [round as u8; 8], count: 700 };
            match r.call(NFSPROC3_READDIR, &args) {
                READDIR3res::NFS3_OK(ok) => (
                    ok.reply.entries.iter().map(|e| (e.name.as_bytes().to_vec(), e.cookie)).collect(),
                    ok.reply.eof,
                ),
                other => panic!("{other:?}"),
            }
        } else {
            let args = READDIRPLUS3args {
                dir: root.clone(),
                cookie,
                cookieverf: [0; 8],
                dircount: 300,
                maxcount: 1500,
            };
            match r.call(NFSPROC3_READDIRPLUS, &args) {
                READDIRPLUS3res::NFS3_OK(ok) => (
                    ok.reply.entries.iter().map(|e| (e.name.as_bytes().to_vec(), e.cookie)).collect(),
                    ok.reply.eof,
                ),
                other => panic!("{other:?}"),
            }
        };
        assert!(!names.is_empty() || eof);
        for (n, c) in names {
            if n.starts_with(b"stable") {
                assert!(seen.insert(n), "named twice");
            }
            cookie = c;
        }
        if eof {
            break;
        }
        // Names come and go meanwhile, the one that the cookie stands for too.
        r.create(&root, &format!("passing-{round}"));
        if round > 0 {
            let args = REMOVE3args { object: at(&root, &format!("passing-{}", round - 1)) };
            let _: REMOVE3res = r.call(NFSPROC3_REMOVE, &args);
        }
        round += 1;
    }
    assert_eq!(seen.len(), 500);
}

/// Replies never exceed what the client asked for, and always hold something if there is anything.
#[test]
fn listings_keep_to_the_size_that_was_asked_for() {
    let mut r = Rig::new();
    let root = r.root();
    for i in 0..40 {
        r.create(&root, &"x".repeat(1 + i * 6));
    }
    for count in 0..2000 {
        let args = bytes(&READDIR3args { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count });
        let msg = r.message(NFS_PROGRAM, NFSPROC3_READDIR, &args);
        let Answer::Results(plain) = r.raw(&msg) else { panic!() };
        let args = bytes(&READDIRPLUS3args {
            dir: root.clone(),
            cookie: 0,
            cookieverf: [0; 8],
            dircount: count,
            maxcount: count,
        });
        let msg = r.message(NFS_PROGRAM, NFSPROC3_READDIRPLUS, &args);
        let Answer::Results(plus) = r.raw(&msg) else { panic!() };
        match decode::<READDIR3res>(&plain) {
            READDIR3res::NFS3_OK(ok) => {
                assert!(plain.len() - 4 <= count as usize, "{} bytes for count {count}", plain.len() - 4);
                assert!(!ok.reply.entries.is_empty());
            }
            READDIR3res::Default(s, _) => assert!(s == nfsstat3::NFS3ERR_TOOSMALL && count < 200),
        }
        match decode::<READDIRPLUS3res>(&plus) {
            READDIRPLUS3res::NFS3_OK(ok) => {
                assert!(plus.len() - 4 <= count as usize, "{} bytes for maxcount {count}", plus.len() - 4);
                assert!(!ok.reply.entries.is_empty());
            }
            READDIRPLUS3res::Default(s, _) => assert!(s == nfsstat3::NFS3ERR_TOOSMALL && count < 400),
        }
    }
}

/// B25: names at the edge.
#[test]
fn b25_component_names_at_the_edge() {
    let mut r = Rig::new();
    let root = r.root();
    let long = "n".repeat(255);
    r.create(&root, &long);
    let raw = diropargs3 { dir: root.clone(), name: filename3::from(&[0xff, 0xfe][..]) };
    let args = CREATE3args { where_: raw.clone(), how: createhow3::GUARDED(mode(0o644)) };
    assert!(matches!(r.call(NFSPROC3_CREATE, &args), CREATE3res::NFS3_OK(_)), "raw bytes are kept");
    let found: LOOKUP3res = r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: raw });
    assert!(matches!(found, LOOKUP3res::NFS3_OK(_)));
    let before = listing_len(&mut r, &root);
    for (n, want) in [
        ("", nfsstat3::NFS3ERR_ACCES),
        (".", nfsstat3::NFS3ERR_EXIST),
        ("..", nfsstat3::NFS3ERR_EXIST),
        ("a/b", nfsstat3::NFS3ERR_ACCES),
        ("a\0b", nfsstat3::NFS3ERR_ACCES),
        (&"n".repeat(256), nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        let args = CREATE3args { where_: at(&root, n), how: createhow3::UNCHECKED(mode(0o644)) };
        match r.call(NFSPROC3_CREATE, &args) {
            CREATE3res::Default(s, _) => assert_eq!(s, want, "CREATE {n:?}"),
            other => panic!("CREATE {n:?}: {other:?}"),
        }
        for (from, to) in [(n, "new"), (&*long, n)] {
            let args = RENAME3args { from: at(&root, from), to: at(&root, to) };
            let got: RENAME3res = r.call(NFSPROC3_RENAME, &args);
            assert!(matches!(got, RENAME3res::Default(..)), "RENAME {from:?} {to:?}");
        }
    }
    assert_eq!(listing_len(&mut r, &root), before);
}

fn listing_len(r: &mut Rig, dir: &nfs_fh3) -> usize {
    let args = READDIR3args { dir: dir.clone(), cookie: 0, cookieverf: [0; 8], count: 1 << 16 };
    match r.call(NFSPROC3_READDIR, &args) {
        READDIR3res::NFS3_OK(ok) => ok.reply.entries.len(),
        other => panic!("{other:?}"),
    }
}

/// B16c: a client takes back its own mounts only.
#[test]
fn b16c_umntall_forgets_the_callers_mounts_only() {
    let mut r = Rig::new();
    r.root();
    let other = sunrpc::xprt::PeerAddr::Inet("10.9.9.9:800".parse().unwrap());
    let first = std::mem::replace(&mut r.peer, other);
    r.root();
    let msg = r.message(m::MOUNT_PROGRAM, m::MOUNTPROC3_UMNTALL, &[]);
    assert!(matches!(r.raw(&msg), Answer::Results(_)));
    r.peer = first;
    let msg = r.message(m::MOUNT_PROGRAM, m::MOUNTPROC3_DUMP, &[]);
    let Answer::Results(b) = r.raw(&msg) else { panic!() };
    assert!(b.windows(8).any(|w| w == b"10.1.2.3") && !b.windows(8).any(|w| w == b"10.9.9.9"));
}

/// B31: WRITE and COMMIT speak of the same start, and a failing flush reaches the client.
#[test]
fn b31_commit_reports_failure_and_the_verifier_is_one() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "f");
    let WRITE3res::NFS3_OK(w) = r.write(&file, 0, b"x") else { panic!() };
    let args = COMMIT3args { file, offset: 0, count: 0 };
    let COMMIT3res::NFS3_OK(c) = r.call(NFSPROC3_COMMIT, &args) else { panic!() };
    assert_eq!(w.verf, c.verf);
    r.fs.faults().fail_next(nfsd::vfs::mem::Op::Commit, 1, nfsd::vfs::VfsError::Io);
    let got: COMMIT3res = r.call(NFSPROC3_COMMIT, &args);
    assert!(matches!(got, COMMIT3res::Default(nfsstat3::NFS3ERR_IO, _)), "{got:?}");
    let mut again = Rig::new();
    let root = again.root();
    let file = again.create(&root, "f");
    let WRITE3res::NFS3_OK(w2) = again.write(&file, 0, b"x") else { panic!() };
    assert_ne!(w.verf, w2.verf, "two starts within a second");
}

#[test]
fn strangers_and_read_only_exports() {
    let mut r = Rig::with(|s| s.read_only = true);
    let root = r.root();
    for (proc, args) in samples(&root) {
        let modifies = matches!(proc, 2 | 7..=15 | 21);
        let msg = r.message(NFS_PROGRAM, proc, &args);
        let Answer::Results(b) = r.raw(&msg) else { panic!() };
        let rofs = b[..4] == 30u32.to_be_bytes();
        assert_eq!(rofs, modifies, "procedure {proc}");
    }
    r.peer = sunrpc::xprt::PeerAddr::Inet("192.0.2.1:800".parse().unwrap());
    for (proc, args) in samples(&root) {
        let msg = r.message(NFS_PROGRAM, proc, &args);
        let Answer::Results(b) = r.raw(&msg) else { panic!() };
        assert_eq!(b[..4], 13u32.to_be_bytes(), "procedure {proc}: NFS3ERR_ACCES");
    }
}

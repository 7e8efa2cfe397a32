//! What NFSv3 answers when a call cannot succeed, and where exactly a listing ends: over the memory file system,
//! without sockets, results decoded to the last byte by the generated types.
#![allow(clippy::unwrap_used, unreachable_pub)]

#[allow(dead_code)] // shared with the other tests
#[path = "v3/rig.rs"]
mod rig;

use nfsd::fh::FhCodec;
use nfsd::proto::nfs3::*;
use nfsd::vfs::VfsError;
use nfsd::vfs::mem::Op;
use nfsstat3::*;
use rig::*;
use sunrpc::page::Pages;

/// A call of procedure `proc` (1 to 21) on the object `fh`, well formed.
fn sample(proc: u32, fh: &nfs_fh3) -> Vec<u8> {
    let object = fh.clone();
    match proc {
        NFSPROC3_GETATTR => bytes(&GETATTR3args { object }),
        NFSPROC3_SETATTR => {
            bytes(&SETATTR3args { object, new_attributes: mode(0o700), guard: sattrguard3::False })
        }
        NFSPROC3_LOOKUP => bytes(&LOOKUP3args { what: at(fh, "n") }),
        NFSPROC3_ACCESS => bytes(&ACCESS3args { object, access: 0x3f }),
        NFSPROC3_READLINK => bytes(&READLINK3args { symlink: object }),
        NFSPROC3_READ => bytes(&READ3args { file: object, offset: 0, count: 10 }),
        NFSPROC3_WRITE => bytes(&write(fh, 0, 3, b"abc")),
        NFSPROC3_CREATE => bytes(&CREATE3args { where_: at(fh, "n"), how: createhow3::GUARDED(mode(0o644)) }),
        NFSPROC3_MKDIR => bytes(&MKDIR3args { where_: at(fh, "n"), attributes: mode(0o755) }),
        NFSPROC3_SYMLINK => bytes(&symlink(fh, "n", "target")),
        NFSPROC3_MKNOD => bytes(&MKNOD3args { where_: at(fh, "n"), what: mknoddata3::NF3FIFO(mode(0o600)) }),
        NFSPROC3_REMOVE => bytes(&REMOVE3args { object: at(fh, "n") }),
        NFSPROC3_RMDIR => bytes(&RMDIR3args { object: at(fh, "n") }),
        NFSPROC3_RENAME => bytes(&RENAME3args { from: at(fh, "n"), to: at(fh, "m") }),
        NFSPROC3_LINK => bytes(&LINK3args { file: object, link: at(fh, "n") }),
        NFSPROC3_READDIR => bytes(&READDIR3args { dir: object, cookie: 0, cookieverf: [0; 8], count: 4096 }),
        NFSPROC3_READDIRPLUS => bytes(&plus(fh, 0, 4096, 8192)),
        NFSPROC3_FSSTAT => bytes(&FSSTAT3args { fsroot: object }),
        NFSPROC3_FSINFO => bytes(&FSINFO3args { fsroot: object }),
        NFSPROC3_PATHCONF => bytes(&PATHCONF3args { object }),
        NFSPROC3_COMMIT => bytes(&COMMIT3args { file: object, offset: 0, count: 0 }),
        other => panic!("no procedure {other}"),
    }
}

/// The status of a result, which must be whole and in the form of its procedure.
fn status(proc: u32, b: &[u8]) -> nfsstat3 {
    match proc {
        NFSPROC3_GETATTR => decode::<GETATTR3res>(b).discriminant(),
        NFSPROC3_SETATTR => decode::<SETATTR3res>(b).discriminant(),
        NFSPROC3_LOOKUP => decode::<LOOKUP3res>(b).discriminant(),
        NFSPROC3_ACCESS => decode::<ACCESS3res>(b).discriminant(),
        NFSPROC3_READLINK => decode::<READLINK3res>(b).discriminant(),
        NFSPROC3_READ => decode::<READ3res>(b).discriminant(),
        NFSPROC3_WRITE => decode::<WRITE3res>(b).discriminant(),
        NFSPROC3_CREATE => decode::<CREATE3res>(b).discriminant(),
        NFSPROC3_MKDIR => decode::<MKDIR3res>(b).discriminant(),
        NFSPROC3_SYMLINK => decode::<SYMLINK3res>(b).discriminant(),
        NFSPROC3_MKNOD => decode::<MKNOD3res>(b).discriminant(),
        NFSPROC3_REMOVE => decode::<REMOVE3res>(b).discriminant(),
        NFSPROC3_RMDIR => decode::<RMDIR3res>(b).discriminant(),
        NFSPROC3_RENAME => decode::<RENAME3res>(b).discriminant(),
        NFSPROC3_LINK => decode::<LINK3res>(b).discriminant(),
        NFSPROC3_READDIR => decode::<READDIR3res>(b).discriminant(),
        NFSPROC3_READDIRPLUS => decode::<READDIRPLUS3res>(b).discriminant(),
        NFSPROC3_FSSTAT => decode::<FSSTAT3res>(b).discriminant(),
        NFSPROC3_FSINFO => decode::<FSINFO3res>(b).discriminant(),
        NFSPROC3_PATHCONF => decode::<PATHCONF3res>(b).discriminant(),
        NFSPROC3_COMMIT => decode::<COMMIT3res>(b).discriminant(),
        other => panic!("no procedure {other}"),
    }
}

fn run(r: &mut Rig, proc: u32, args: &[u8]) -> nfsstat3 {
    let msg = r.message(NFS_PROGRAM, proc, args);
    match r.raw(&msg) {
        Answer::Results(b) => status(proc, &b),
        other => panic!("procedure {proc}: {other:?}"),
    }
}

fn write(fh: &nfs_fh3, offset: u64, count: u32, data: &[u8]) -> WRITE3args {
    let (file, data) = (fh.clone(), Pages::copy_from(data));
    WRITE3args { file, offset, count, stable: stable_how::UNSTABLE, data }
}

fn symlink(dir: &nfs_fh3, name: &str, target: &str) -> SYMLINK3args {
    let symlink = symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: nfspath3::from(target) };
    SYMLINK3args { where_: at(dir, name), symlink }
}

fn plus(dir: &nfs_fh3, cookie: u64, dircount: u32, maxcount: u32) -> READDIRPLUS3args {
    READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf: [0; 8], dircount, maxcount }
}

fn mkdir(r: &mut Rig, dir: &nfs_fh3, name: &str) -> nfs_fh3 {
    match r.call(NFSPROC3_MKDIR, &MKDIR3args { where_: at(dir, name), attributes: mode(0o755) }) {
        MKDIR3res::NFS3_OK(ok) => made(ok.obj),
        other => panic!("{other:?}"),
    }
}

fn attr(r: &mut Rig, fh: &nfs_fh3) -> fattr3 {
    match r.call(NFSPROC3_GETATTR, &GETATTR3args { object: fh.clone() }) {
        GETATTR3res::NFS3_OK(ok) => ok.obj_attributes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handles_that_were_never_issued_or_lost_their_export_or_object() {
    let mut r = Rig::new();
    let root = r.root();
    let mut forged = root.clone();
    *forged.data.last_mut().unwrap() ^= 1;
    let cut = nfs_fh3 { data: root.data[..root.data.len() - 1].to_vec() };
    let empty = nfs_fh3 { data: Vec::new() };
    // The key of the rig: the seal is right, the export is none.
    let codec = FhCodec::with_key(&[7; 16]);
    let (_, inner) = codec.decode(&root.data).unwrap();
    let elsewhere = nfs_fh3 { data: codec.encode(99, &inner).as_bytes().to_vec() };
    let gone_dir = mkdir(&mut r, &root, "gone");
    assert_eq!(run(&mut r, NFSPROC3_RMDIR, &bytes(&RMDIR3args { object: at(&root, "gone") })), NFS3_OK);
    for (fh, want) in [
        (forged, NFS3ERR_BADHANDLE),
        (cut, NFS3ERR_BADHANDLE),
        (empty, NFS3ERR_BADHANDLE),
        (elsewhere, NFS3ERR_STALE),
        (gone_dir, NFS3ERR_STALE),
    ] {
        for proc in 1..=21 {
            assert_eq!(run(&mut r, proc, &sample(proc, &fh)), want, "procedure {proc} on {fh:?}");
        }
    }
    // A second handle is looked at as well as the first.
    let bad = nfs_fh3 { data: vec![1; 40] };
    let to = RENAME3args { from: at(&root, "a"), to: at(&bad, "b") };
    assert_eq!(run(&mut r, NFSPROC3_RENAME, &bytes(&to)), NFS3ERR_BADHANDLE);
    let file = LINK3args { file: bad, link: at(&root, "b") };
    assert_eq!(run(&mut r, NFSPROC3_LINK, &bytes(&file)), NFS3ERR_BADHANDLE);
}

#[test]
fn objects_of_the_wrong_type_and_names_that_are_there_or_not() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "file");
    let dir = mkdir(&mut r, &root, "dir");
    r.create(&dir, "inside");
    let there = |n: &str| at(&root, n);
    let guarded = CREATE3args { where_: there("file"), how: createhow3::GUARDED(mode(0o644)) };
    let cases: Vec<(u32, Vec<u8>, &[nfsstat3])> = vec![
        (NFSPROC3_LOOKUP, bytes(&LOOKUP3args { what: there("none") }), &[NFS3ERR_NOENT]),
        (NFSPROC3_LOOKUP, sample(NFSPROC3_LOOKUP, &file), &[NFS3ERR_NOTDIR]),
        (NFSPROC3_READLINK, sample(NFSPROC3_READLINK, &file), &[NFS3ERR_INVAL]),
        (NFSPROC3_READ, sample(NFSPROC3_READ, &dir), &[NFS3ERR_ISDIR, NFS3ERR_INVAL]),
        (NFSPROC3_WRITE, sample(NFSPROC3_WRITE, &dir), &[NFS3ERR_ISDIR, NFS3ERR_INVAL]),
        (NFSPROC3_CREATE, bytes(&guarded), &[NFS3ERR_EXIST]),
        (NFSPROC3_CREATE, sample(NFSPROC3_CREATE, &file), &[NFS3ERR_NOTDIR]),
        (
            NFSPROC3_MKDIR,
            bytes(&MKDIR3args { where_: there("dir"), attributes: mode(0o755) }),
            &[NFS3ERR_EXIST],
        ),
        (NFSPROC3_MKDIR, sample(NFSPROC3_MKDIR, &file), &[NFS3ERR_NOTDIR]),
        (NFSPROC3_SYMLINK, bytes(&symlink(&root, "file", "t")), &[NFS3ERR_EXIST]),
        (NFSPROC3_SYMLINK, bytes(&symlink(&root, "new", "")), &[NFS3ERR_INVAL]),
        (NFSPROC3_SYMLINK, bytes(&symlink(&root, "new", &"t".repeat(4096))), &[NFS3ERR_NAMETOOLONG]),
        (NFSPROC3_SYMLINK, bytes(&symlink(&root, "long", &"t".repeat(4095))), &[NFS3_OK]),
        (
            NFSPROC3_MKNOD,
            bytes(&MKNOD3args { where_: there("file"), what: mknoddata3::NF3SOCK(mode(0o600)) }),
            &[NFS3ERR_EXIST],
        ),
        (NFSPROC3_REMOVE, bytes(&REMOVE3args { object: there("none") }), &[NFS3ERR_NOENT]),
        (NFSPROC3_REMOVE, bytes(&REMOVE3args { object: there("dir") }), &[NFS3ERR_ISDIR, NFS3ERR_PERM]),
        (NFSPROC3_REMOVE, sample(NFSPROC3_REMOVE, &file), &[NFS3ERR_NOTDIR]),
        (NFSPROC3_RMDIR, bytes(&RMDIR3args { object: there("none") }), &[NFS3ERR_NOENT]),
        (NFSPROC3_RMDIR, bytes(&RMDIR3args { object: there("file") }), &[NFS3ERR_NOTDIR]),
        (NFSPROC3_RMDIR, bytes(&RMDIR3args { object: there("dir") }), &[NFS3ERR_NOTEMPTY, NFS3ERR_EXIST]),
        (NFSPROC3_RENAME, bytes(&RENAME3args { from: there("none"), to: there("x") }), &[NFS3ERR_NOENT]),
        (NFSPROC3_LINK, bytes(&LINK3args { file: file.clone(), link: there("dir") }), &[NFS3ERR_EXIST]),
        (
            NFSPROC3_LINK,
            bytes(&LINK3args { file: dir.clone(), link: there("x") }),
            &[NFS3ERR_PERM, NFS3ERR_ISDIR, NFS3ERR_INVAL],
        ),
        (NFSPROC3_READDIR, sample(NFSPROC3_READDIR, &file), &[NFS3ERR_NOTDIR]),
        (NFSPROC3_READDIRPLUS, sample(NFSPROC3_READDIRPLUS, &file), &[NFS3ERR_NOTDIR]),
        (NFSPROC3_COMMIT, sample(NFSPROC3_COMMIT, &dir), &[NFS3ERR_ISDIR, NFS3ERR_INVAL]),
    ];
    for (i, (proc, args, want)) in cases.iter().enumerate() {
        let got = run(&mut r, *proc, args);
        assert!(want.contains(&got), "case {i}, procedure {proc}: {got:?}, not one of {want:?}");
    }
    // Regular files, directories and links are not made by MKNOD: the discriminant alone decides.
    for kind in [ftype3::NF3REG, ftype3::NF3DIR, ftype3::NF3LNK] {
        let args = MKNOD3args { where_: there("node"), what: mknoddata3::Default(kind) };
        assert_eq!(run(&mut r, NFSPROC3_MKNOD, &bytes(&args)), NFS3ERR_BADTYPE, "{kind:?}");
    }
    let found = bytes(&LOOKUP3args { what: there("node") });
    assert_eq!(run(&mut r, NFSPROC3_LOOKUP, &found), NFS3ERR_NOENT);
}

#[test]
fn arguments_that_contradict_themselves_change_nothing() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "file");
    r.write(&file, 0, b"0123456789");
    let before = attr(&mut r, &file);
    for (count, data) in [(2, &b"abc"[..]), (4, b"abc"), (0, b"abc"), (3, b""), (u32::MAX, b"abc")] {
        let got = run(&mut r, NFSPROC3_WRITE, &bytes(&write(&file, 0, count, data)));
        assert_eq!(got, NFS3ERR_INVAL, "count {count}, {} bytes", data.len());
    }
    // Nanoseconds that the system would take for "now" or "keep", and others out of range.
    for nseconds in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2, u32::MAX] {
        let t = nfstime3 { seconds: 5, nseconds };
        let set = sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(t), ..mode(0o600) };
        let args = SETATTR3args { object: file.clone(), new_attributes: set, guard: sattrguard3::False };
        assert_eq!(run(&mut r, NFSPROC3_SETATTR, &bytes(&args)), NFS3ERR_INVAL, "{nseconds}");
    }
    let guard = nfstime3 { seconds: before.ctime.seconds.wrapping_add(1), ..before.ctime };
    let args =
        SETATTR3args { object: file.clone(), new_attributes: mode(0o600), guard: sattrguard3::True(guard) };
    assert_eq!(run(&mut r, NFSPROC3_SETATTR, &bytes(&args)), NFS3ERR_NOT_SYNC);
    assert_eq!(attr(&mut r, &file), before);
    let args = SETATTR3args { guard: sattrguard3::True(before.ctime), ..args };
    assert_eq!(run(&mut r, NFSPROC3_SETATTR, &bytes(&args)), NFS3_OK, "the guard is the object's ctime");
    // Nothing to write is no contradiction.
    assert_eq!(run(&mut r, NFSPROC3_WRITE, &bytes(&write(&file, 3, 0, b""))), NFS3_OK);
    assert_eq!(attr(&mut r, &file).size, 10);
}

#[test]
fn an_exclusive_create_is_repeatable_and_exclusive() {
    let mut r = Rig::new();
    let root = r.root();
    let exclusive = |v: u8| CREATE3args { where_: at(&root, "x"), how: createhow3::EXCLUSIVE([v; 8]) };
    let CREATE3res::NFS3_OK(first) = r.call(NFSPROC3_CREATE, &exclusive(1)) else { panic!() };
    let CREATE3res::NFS3_OK(again) = r.call(NFSPROC3_CREATE, &exclusive(1)) else { panic!() };
    assert_eq!(made(first.obj), made(again.obj));
    assert_eq!(run(&mut r, NFSPROC3_CREATE, &bytes(&exclusive(2))), NFS3ERR_EXIST);
}

/// B26: onto a link of the same file; into the own subtree; onto a directory in use.
#[test]
fn b26_renames_with_a_catch() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "a");
    let args = LINK3args { file: file.clone(), link: at(&root, "b") };
    assert_eq!(run(&mut r, NFSPROC3_LINK, &bytes(&args)), NFS3_OK);
    let args = RENAME3args { from: at(&root, "a"), to: at(&root, "b") };
    assert_eq!(run(&mut r, NFSPROC3_RENAME, &bytes(&args)), NFS3_OK);
    for n in ["a", "b"] {
        let args = bytes(&LOOKUP3args { what: at(&root, n) });
        assert_eq!(run(&mut r, NFSPROC3_LOOKUP, &args), NFS3_OK, "{n} stays");
    }
    assert_eq!(attr(&mut r, &file).nlink, 2);
    let d = mkdir(&mut r, &root, "d");
    let e = mkdir(&mut r, &d, "e");
    let args = RENAME3args { from: at(&root, "d"), to: at(&e, "f") };
    assert_eq!(run(&mut r, NFSPROC3_RENAME, &bytes(&args)), NFS3ERR_INVAL);
    mkdir(&mut r, &root, "g");
    let args = RENAME3args { from: at(&root, "g"), to: at(&root, "d") };
    let got = run(&mut r, NFSPROC3_RENAME, &bytes(&args));
    assert!(matches!(got, NFS3ERR_NOTEMPTY | NFS3ERR_EXIST), "{got:?}");
}

/// A change that is made is reported as made, even if the attributes for the reply are not to be had without waiting:
/// the call must not be run again.
#[test]
fn attributes_after_a_change_are_left_out_rather_than_waited_for() {
    let mut r = Rig::new();
    let root = r.root();
    r.fs.faults().hold(Op::Getattr);
    let args = CREATE3args { where_: at(&root, "f"), how: createhow3::GUARDED(mode(0o644)) };
    let CREATE3res::NFS3_OK(ok) = r.call(NFSPROC3_CREATE, &args) else { panic!() };
    assert_eq!(ok.dir_wcc.after, post_op_attr::False);
    let args = RENAME3args { from: at(&root, "f"), to: at(&root, "g") };
    let RENAME3res::NFS3_OK(ok) = r.call(NFSPROC3_RENAME, &args) else { panic!() };
    assert_eq!(ok.todir_wcc.after, post_op_attr::False);
    let REMOVE3res::NFS3_OK(_) = r.call(NFSPROC3_REMOVE, &REMOVE3args { object: at(&root, "g") }) else {
        panic!()
    };
    r.fs.faults().release(Op::Getattr);
}

/// Each modifying procedure, held up before it changes anything: it asks to be run again, and then succeeds.
#[test]
fn held_calls_leave_nothing_behind() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "n");
    let made_by = [
        (NFSPROC3_SETATTR, Op::Setattr, sample(NFSPROC3_SETATTR, &file)),
        (NFSPROC3_WRITE, Op::Write, sample(NFSPROC3_WRITE, &file)),
        (NFSPROC3_RENAME, Op::Rename, sample(NFSPROC3_RENAME, &root)),
        (NFSPROC3_LINK, Op::Link, bytes(&LINK3args { file: file.clone(), link: at(&root, "n") })),
        (NFSPROC3_REMOVE, Op::Remove, sample(NFSPROC3_REMOVE, &root)),
        (NFSPROC3_MKDIR, Op::Mkdir, sample(NFSPROC3_MKDIR, &root)),
        (NFSPROC3_RMDIR, Op::Rmdir, sample(NFSPROC3_RMDIR, &root)),
        (NFSPROC3_SYMLINK, Op::Symlink, sample(NFSPROC3_SYMLINK, &root)),
        (NFSPROC3_REMOVE, Op::Remove, sample(NFSPROC3_REMOVE, &root)),
        (NFSPROC3_MKNOD, Op::Mknod, sample(NFSPROC3_MKNOD, &root)),
    ];
    for (proc, op, args) in made_by {
        let before = attr(&mut r, &root);
        let msg = r.message(NFS_PROGRAM, proc, &args);
        r.fs.faults().hold(op);
        assert_eq!(r.raw(&msg), Answer::WouldBlock, "procedure {proc}");
        assert_eq!(attr(&mut r, &root), before, "procedure {proc} changed the directory");
        r.fs.faults().release(op);
        r.blocking = true;
        assert_eq!(run(&mut r, proc, &args), NFS3_OK, "procedure {proc}");
        r.blocking = false;
    }
}

/// B31: a flush that fails is told to one client only, and the system forgets the failure with that. The others learn
/// from a new verifier that what they wrote may be lost.
#[test]
fn b31_a_failed_flush_renews_the_verifier() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "f");
    let written = |r: &mut Rig| match r.call(NFSPROC3_WRITE, &write(&file, 0, 3, b"abc")) {
        WRITE3res::NFS3_OK(ok) => ok.verf,
        other => panic!("{other:?}"),
    };
    let committed = |r: &mut Rig| match r
        .call(NFSPROC3_COMMIT, &COMMIT3args { file: file.clone(), offset: 0, count: 0 })
    {
        COMMIT3res::NFS3_OK(ok) => ok.verf,
        other => panic!("{other:?}"),
    };
    let first = written(&mut r);
    assert_eq!(committed(&mut r), first);
    let mut seen = vec![first];
    for error in [VfsError::Io, VfsError::NoSpc, VfsError::DQuot] {
        r.fs.faults().fail_next(Op::Commit, 1, error);
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        assert!(matches!(r.call(NFSPROC3_COMMIT, &args), COMMIT3res::Default(..)));
        let now = committed(&mut r);
        assert!(!seen.contains(&now), "{error:?}");
        assert_eq!(written(&mut r), now, "WRITE and COMMIT speak of the same time");
        seen.push(now);
    }
    // A write that the device refuses may have been stable, and have met an earlier write's failure.
    r.fs.faults().fail_next(Op::Write, 1, VfsError::Io);
    assert_eq!(run(&mut r, NFSPROC3_WRITE, &bytes(&write(&file, 0, 3, b"abc"))), NFS3ERR_IO);
    let now = committed(&mut r);
    assert!(!seen.contains(&now));
    // What says nothing about the data changes nothing.
    for (proc, op, error) in [
        (NFSPROC3_COMMIT, Op::Commit, VfsError::Stale),
        (NFSPROC3_COMMIT, Op::Commit, VfsError::Delay),
        (NFSPROC3_WRITE, Op::Write, VfsError::NoSpc),
        (NFSPROC3_WRITE, Op::Write, VfsError::Acces),
    ] {
        r.fs.faults().fail_next(op, 1, error);
        assert_ne!(run(&mut r, proc, &sample(proc, &file)), NFS3_OK);
        assert_eq!(committed(&mut r), now, "{error:?}");
    }
}

/// For a time the file system has no room: the client is told to come again.
#[test]
fn a_file_system_that_is_busy_is_jukebox() {
    let mut r = Rig::new();
    let root = r.root();
    r.fs.faults().fail_next(Op::Lookup, 1, VfsError::Delay);
    assert_eq!(run(&mut r, NFSPROC3_LOOKUP, &sample(NFSPROC3_LOOKUP, &root)), NFS3ERR_JUKEBOX);
    assert_eq!(run(&mut r, NFSPROC3_LOOKUP, &sample(NFSPROC3_LOOKUP, &root)), NFS3ERR_NOENT);
}

#[test]
fn read_to_the_byte() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "f");
    r.write(&file, 0, b"hello");
    let msg = r.message(NFS_PROGRAM, NFSPROC3_READ, &bytes(&READ3args { file, offset: 0, count: 512 }));
    let Answer::Results(b) = r.raw(&msg) else { panic!() };
    let READ3res::NFS3_OK(ok) = decode::<READ3res>(&b) else { panic!() };
    let post_op_attr::True(a) = ok.file_attributes else { panic!("no attributes") };
    // RFC 1813 section 3.3.6: status, post_op_attr, count, eof, data with its length and padding.
    let mut want = [0u32, 1].iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
    want.extend(bytes(&a));
    want.extend([5u32, 1, 5].iter().flat_map(|w| w.to_be_bytes()));
    want.extend(b"hello\0\0\0");
    assert_eq!(b, want);
    assert_eq!((a.type_, a.size, want.len()), (ftype3::NF3REG, 5, 4 + 88 + 12 + 8));
}

/// Bytes of the results of READDIR and READDIRPLUS without entries: attributes, verifier, end of list, eof.
const AROUND: usize = 88 + 8 + 4 + 4;

fn sizes(entries: impl Iterator<Item = usize>) -> Vec<usize> {
    entries
        .scan(AROUND, |sum, n| {
            *sum += n;
            Some(*sum)
        })
        .collect()
}

/// A listing holds every entry that fits into what the client asked for, and none that does not: at the exact size
/// of the first k entries there are k, one byte below k - 1.
#[test]
fn listings_end_exactly_where_the_size_does() {
    let mut r = Rig::new();
    let root = r.root();
    for i in 0..30usize {
        r.create(&root, &format!("{i:02}{}", "x".repeat(i * 7 % 40)));
    }
    let all = READDIR3args { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count: 1 << 20 };
    let READDIR3res::NFS3_OK(whole) = r.call(NFSPROC3_READDIR, &all) else { panic!() };
    assert!(whole.reply.eof);
    let total = whole.reply.entries.len();
    assert_eq!(total, 32);
    let ends = sizes(whole.reply.entries.iter().map(|e| 24 + e.name.as_bytes().len().next_multiple_of(4)));
    for (k, end) in ends.iter().enumerate() {
        for (count, want) in [(*end, k + 1), (*end - 1, k)] {
            let args = READDIR3args { count: count as u32, ..all.clone() };
            match r.call(NFSPROC3_READDIR, &args) {
                READDIR3res::NFS3_OK(ok) => {
                    assert_eq!(ok.reply.entries.len(), want, "count {count}");
                    assert_eq!(ok.reply.eof, want == total, "count {count}");
                }
                READDIR3res::Default(s, _) => assert_eq!((s, want), (NFS3ERR_TOOSMALL, 0), "count {count}"),
            }
        }
    }
    let READDIRPLUS3res::NFS3_OK(whole) = r.call(NFSPROC3_READDIRPLUS, &plus(&root, 0, 1 << 20, 1 << 20))
    else {
        panic!()
    };
    assert_eq!((whole.reply.entries.len(), whole.reply.eof), (total, true));
    let ends = sizes(whole.reply.entries.iter().map(|e| {
        let handle = bytes(&e.name_handle).len();
        24 + e.name.as_bytes().len().next_multiple_of(4) + bytes(&e.name_attributes).len() + handle
    }));
    for (k, end) in ends.iter().enumerate() {
        for (maxcount, want) in [(*end, k + 1), (*end - 1, k)] {
            match r.call(NFSPROC3_READDIRPLUS, &plus(&root, 0, 1 << 20, maxcount as u32)) {
                READDIRPLUS3res::NFS3_OK(ok) => {
                    assert_eq!(ok.reply.entries.len(), want, "maxcount {maxcount}");
                    assert_eq!(ok.reply.eof, want == total, "maxcount {maxcount}");
                }
                READDIRPLUS3res::Default(s, _) => {
                    assert_eq!((s, want), (NFS3ERR_TOOSMALL, 0), "maxcount {maxcount}");
                }
            }
        }
    }
    // `dircount` is a limit too, but one that always lets the first entry through.
    let READDIRPLUS3res::NFS3_OK(one) = r.call(NFSPROC3_READDIRPLUS, &plus(&root, 0, 0, 1 << 20)) else {
        panic!()
    };
    assert_eq!(one.reply.entries.len(), 1);
}

/// Past the last entry there is nothing, and that is no error.
#[test]
fn the_last_cookie_leads_to_an_empty_end() {
    let mut r = Rig::new();
    let root = r.root();
    r.create(&root, "f");
    let all = READDIR3args { dir: root, cookie: 0, cookieverf: [0; 8], count: 4096 };
    let READDIR3res::NFS3_OK(ok) = r.call(NFSPROC3_READDIR, &all) else { panic!() };
    let cookie = ok.reply.entries.iter().last().unwrap().cookie;
    let READDIR3res::NFS3_OK(ok) = r.call(NFSPROC3_READDIR, &READDIR3args { cookie, ..all }) else {
        panic!()
    };
    assert_eq!((ok.reply.entries.len(), ok.reply.eof), (0, true));
}

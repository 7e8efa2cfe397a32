//! What each procedure does.

use crate::rig::*;
use nfsd::proto::nfs3::*;

macro_rules! ok {
    ($res:ident, $e:expr) => {
        match $e {
            $res::NFS3_OK(ok) => ok,
            other => panic!("{other:?}"),
        }
    };
}

#[test]
fn every_procedure_answers_in_the_form_of_the_rfc() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "file");
    ok!(WRITE3res, r.write(&file, 0, b"hello world"));
    let attr = ok!(GETATTR3res, r.call(NFSPROC3_GETATTR, &GETATTR3args { object: file.clone() }));
    assert_eq!((attr.obj_attributes.size, attr.obj_attributes.mode), (11, 0o644));
    let args = SETATTR3args { object: file.clone(), new_attributes: mode(0o600), guard: sattrguard3::False };
    ok!(SETATTR3res, r.call(NFSPROC3_SETATTR, &args));
    let found = ok!(LOOKUP3res, r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "file") }));
    assert_eq!(found.object, file);
    let a = ok!(ACCESS3res, r.call(NFSPROC3_ACCESS, &ACCESS3args { object: file.clone(), access: 0x3f }));
    assert_eq!(a.access & ACCESS3_READ, ACCESS3_READ);
    let read = READ3args { file: file.clone(), offset: 6, count: 100 };
    let got = ok!(READ3res, r.call(NFSPROC3_READ, &read));
    assert_eq!((got.count, got.eof, got.data.to_vec().as_slice()), (5, true, &b"world"[..]));
    let link = symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: nfspath3::from("a/b") };
    let soft = ok!(
        SYMLINK3res,
        r.call(NFSPROC3_SYMLINK, &SYMLINK3args { where_: at(&root, "soft"), symlink: link })
    );
    let t = ok!(READLINK3res, r.call(NFSPROC3_READLINK, &READLINK3args { symlink: made(soft.obj) }));
    assert_eq!(t.data.as_bytes(), b"a/b");
    let dir = ok!(
        MKDIR3res,
        r.call(NFSPROC3_MKDIR, &MKDIR3args { where_: at(&root, "dir"), attributes: mode(0o755) })
    );
    let dir = made(dir.obj);
    let fifo = MKNOD3args { where_: at(&dir, "fifo"), what: mknoddata3::NF3FIFO(mode(0o600)) };
    ok!(MKNOD3res, r.call(NFSPROC3_MKNOD, &fifo));
    let args = LINK3args { file: file.clone(), link: at(&dir, "hard") };
    ok!(LINK3res, r.call(NFSPROC3_LINK, &args));
    let args = RENAME3args { from: at(&root, "file"), to: at(&dir, "moved") };
    ok!(RENAME3res, r.call(NFSPROC3_RENAME, &args));
    let args = READDIR3args { dir: dir.clone(), cookie: 0, cookieverf: [0; 8], count: 4096 };
    let l = ok!(READDIR3res, r.call(NFSPROC3_READDIR, &args));
    let mut names: Vec<String> =
        l.reply.entries.iter().map(|e| String::from_utf8(e.name.as_bytes().to_vec()).unwrap()).collect();
    names.sort();
    assert_eq!(names, [".", "..", "fifo", "hard", "moved"]);
    let args =
        READDIRPLUS3args { dir: dir.clone(), cookie: 0, cookieverf: [0; 8], dircount: 4096, maxcount: 32768 };
    let l = ok!(READDIRPLUS3res, r.call(NFSPROC3_READDIRPLUS, &args));
    let moved = l.reply.entries.iter().find(|e| e.name.as_bytes() == b"moved").unwrap();
    assert_eq!(made(moved.name_handle.clone()), file);
    ok!(FSSTAT3res, r.call(NFSPROC3_FSSTAT, &FSSTAT3args { fsroot: root.clone() }));
    let i = ok!(FSINFO3res, r.call(NFSPROC3_FSINFO, &FSINFO3args { fsroot: root.clone() }));
    assert_eq!((i.rtmax, i.wtmax), (1 << 20, 1 << 20));
    ok!(PATHCONF3res, r.call(NFSPROC3_PATHCONF, &PATHCONF3args { object: root.clone() }));
    ok!(COMMIT3res, r.call(NFSPROC3_COMMIT, &COMMIT3args { file, offset: 0, count: 0 }));
    for n in ["fifo", "hard", "moved"] {
        ok!(REMOVE3res, r.call(NFSPROC3_REMOVE, &REMOVE3args { object: at(&dir, n) }));
    }
    ok!(RMDIR3res, r.call(NFSPROC3_RMDIR, &RMDIR3args { object: at(&root, "dir") }));
    let gone = r.call(NFSPROC3_GETATTR, &GETATTR3args { object: dir });
    assert!(matches!(gone, GETATTR3res::Default(nfsstat3::NFS3ERR_STALE)), "{gone:?}");
}

#[test]
fn getattr_to_the_byte() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "f");
    ok!(WRITE3res, r.write(&file, 0, &[1; 5]));
    let msg = r.message(NFS_PROGRAM, NFSPROC3_GETATTR, &bytes(&GETATTR3args { object: file }));
    let Answer::Results(b) = r.raw(&msg) else { panic!() };
    assert_eq!(b.len(), 4 + 84, "status and fattr3 (RFC 1813 section 2.6)");
    let word = |i: usize| u32::from_be_bytes(b[4 * i..4 * i + 4].try_into().unwrap());
    let ids = [word(0), word(1), word(2), word(3), word(4), word(5)];
    assert_eq!(ids, [0, 1, 0o644, 1, 0, 0], "NFS3_OK, NF3REG, mode, nlink, uid, gid");
    assert_eq!([word(6), word(7)], [0, 5], "size");
}

#[test]
fn a_call_that_would_wait_changes_nothing_and_is_repeated_in_blocking_mode() {
    let mut r = Rig::new();
    let root = r.root();
    r.fs.faults().hold(nfsd::vfs::mem::Op::Create);
    let args = bytes(&CREATE3args { where_: at(&root, "f"), how: createhow3::GUARDED(mode(0o644)) });
    let msg = r.message(NFS_PROGRAM, NFSPROC3_CREATE, &args);
    assert_eq!(r.raw(&msg), Answer::WouldBlock);
    r.fs.faults().release(nfsd::vfs::mem::Op::Create);
    r.blocking = true;
    let Answer::Results(b) = r.raw(&msg) else { panic!() };
    assert!(matches!(decode::<CREATE3res>(&b), CREATE3res::NFS3_OK(_)), "the first try left nothing behind");
}

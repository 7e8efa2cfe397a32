//! What failures say: which status each procedure may give, and which attributes come with it.

use crate::edges::samples;
use crate::rig::*;
use nfsd::proto::nfs3::*;
use nfsd::vfs::VfsError;
use nfsd::vfs::mem::Op;
use nfsstat3::*;

/// The procedures' lists of errors in RFC 1813 section 3.3, without those that each has (NFS3ERR_STALE, BADHANDLE,
/// SERVERFAULT).
const LISTED: [(u32, Op, &[nfsstat3]); 21] = {
    const MAKE: &[nfsstat3] = &[
        NFS3ERR_IO,
        NFS3ERR_ACCES,
        NFS3ERR_EXIST,
        NFS3ERR_NOTDIR,
        NFS3ERR_NOSPC,
        NFS3ERR_ROFS,
        NFS3ERR_NAMETOOLONG,
        NFS3ERR_DQUOT,
        NFS3ERR_NOTSUPP,
    ];
    [
        (NFSPROC3_GETATTR, Op::Getattr, &[NFS3ERR_IO]),
        (
            NFSPROC3_SETATTR,
            Op::Setattr,
            &[
                NFS3ERR_PERM,
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_INVAL,
                NFS3ERR_NOSPC,
                NFS3ERR_ROFS,
                NFS3ERR_DQUOT,
                NFS3ERR_NOT_SYNC,
            ],
        ),
        (
            NFSPROC3_LOOKUP,
            Op::Lookup,
            &[NFS3ERR_IO, NFS3ERR_NOENT, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_NAMETOOLONG],
        ),
        (NFSPROC3_ACCESS, Op::Access, &[NFS3ERR_IO]),
        (NFSPROC3_READLINK, Op::Readlink, &[NFS3ERR_IO, NFS3ERR_INVAL, NFS3ERR_ACCES, NFS3ERR_NOTSUPP]),
        (NFSPROC3_READ, Op::Read, &[NFS3ERR_IO, NFS3ERR_NXIO, NFS3ERR_ACCES, NFS3ERR_INVAL]),
        (
            NFSPROC3_WRITE,
            Op::Write,
            &[
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_FBIG,
                NFS3ERR_DQUOT,
                NFS3ERR_NOSPC,
                NFS3ERR_ROFS,
                NFS3ERR_INVAL,
            ],
        ),
        (NFSPROC3_CREATE, Op::Create, MAKE),
        (NFSPROC3_MKDIR, Op::Mkdir, MAKE),
        (NFSPROC3_SYMLINK, Op::Symlink, MAKE),
        (
            NFSPROC3_MKNOD,
            Op::Mknod,
            &[
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_EXIST,
                NFS3ERR_NOTDIR,
                NFS3ERR_NOSPC,
                NFS3ERR_ROFS,
                NFS3ERR_NAMETOOLONG,
                NFS3ERR_DQUOT,
                NFS3ERR_NOTSUPP,
                NFS3ERR_BADTYPE,
            ],
        ),
        (
            NFSPROC3_REMOVE,
            Op::Remove,
            &[NFS3ERR_NOENT, NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_NAMETOOLONG, NFS3ERR_ROFS],
        ),
        (
            NFSPROC3_RMDIR,
            Op::Rmdir,
            &[
                NFS3ERR_NOENT,
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_INVAL,
                NFS3ERR_EXIST,
                NFS3ERR_NOTDIR,
                NFS3ERR_NAMETOOLONG,
                NFS3ERR_ROFS,
                NFS3ERR_NOTEMPTY,
                NFS3ERR_NOTSUPP,
            ],
        ),
        (
            NFSPROC3_RENAME,
            Op::Rename,
            &[
                NFS3ERR_NOENT,
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_EXIST,
                NFS3ERR_XDEV,
                NFS3ERR_NOTDIR,
                NFS3ERR_ISDIR,
                NFS3ERR_INVAL,
                NFS3ERR_NOSPC,
                NFS3ERR_ROFS,
                NFS3ERR_MLINK,
                NFS3ERR_NAMETOOLONG,
                NFS3ERR_NOTEMPTY,
                NFS3ERR_DQUOT,
                NFS3ERR_NOTSUPP,
            ],
        ),
        (
            NFSPROC3_LINK,
            Op::Link,
            &[
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_EXIST,
                NFS3ERR_XDEV,
                NFS3ERR_NOTDIR,
                NFS3ERR_INVAL,
                NFS3ERR_NOSPC,
                NFS3ERR_ROFS,
                NFS3ERR_MLINK,
                NFS3ERR_NAMETOOLONG,
                NFS3ERR_DQUOT,
                NFS3ERR_NOTSUPP,
            ],
        ),
        (
            NFSPROC3_READDIR,
            Op::Readdir,
            &[NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_BAD_COOKIE, NFS3ERR_TOOSMALL],
        ),
        (
            NFSPROC3_READDIRPLUS,
            Op::Readdir,
            &[
                NFS3ERR_IO,
                NFS3ERR_ACCES,
                NFS3ERR_NOTDIR,
                NFS3ERR_BAD_COOKIE,
                NFS3ERR_TOOSMALL,
                NFS3ERR_NOTSUPP,
            ],
        ),
        (NFSPROC3_FSSTAT, Op::Statfs, &[NFS3ERR_IO]),
        (NFSPROC3_FSINFO, Op::Statfs, &[]),
        (NFSPROC3_PATHCONF, Op::Statfs, &[]),
        (NFSPROC3_COMMIT, Op::Commit, &[NFS3ERR_IO]),
    ]
};

/// What a procedure gives although its list leaves it out, each with its reason in `docs/decisions.md`.
fn added(proc: u32, s: nfsstat3) -> bool {
    let makes = matches!(proc, NFSPROC3_CREATE..=NFSPROC3_MKNOD);
    let takes = matches!(proc, NFSPROC3_REMOVE | NFSPROC3_RMDIR);
    match s {
        NFS3ERR_JUKEBOX => true,
        NFS3ERR_ACCES => true,
        NFS3ERR_PERM => makes || takes || matches!(proc, NFSPROC3_WRITE | NFSPROC3_RENAME | NFSPROC3_LINK),
        NFS3ERR_NOSPC | NFS3ERR_DQUOT => takes || proc == NFSPROC3_COMMIT,
        NFS3ERR_FBIG => matches!(proc, NFSPROC3_SETATTR | NFSPROC3_CREATE),
        NFS3ERR_INVAL => makes || proc == NFSPROC3_COMMIT,
        NFS3ERR_ISDIR => proc == NFSPROC3_REMOVE,
        NFS3ERR_MLINK => proc == NFSPROC3_MKDIR,
        NFS3ERR_ROFS => proc == NFSPROC3_COMMIT,
        _ => false,
    }
}

const ERRORS: [(VfsError, nfsstat3); 26] = [
    (VfsError::Perm, NFS3ERR_PERM),
    (VfsError::NoEnt, NFS3ERR_NOENT),
    (VfsError::Io, NFS3ERR_IO),
    (VfsError::NxIo, NFS3ERR_NXIO),
    (VfsError::Acces, NFS3ERR_ACCES),
    (VfsError::Exist, NFS3ERR_EXIST),
    (VfsError::XDev, NFS3ERR_XDEV),
    (VfsError::NoDev, NFS3ERR_NODEV),
    (VfsError::NotDir, NFS3ERR_NOTDIR),
    (VfsError::IsDir, NFS3ERR_ISDIR),
    (VfsError::Inval, NFS3ERR_INVAL),
    (VfsError::FBig, NFS3ERR_FBIG),
    (VfsError::NoSpc, NFS3ERR_NOSPC),
    (VfsError::RoFs, NFS3ERR_ROFS),
    (VfsError::MLink, NFS3ERR_MLINK),
    (VfsError::NameTooLong, NFS3ERR_NAMETOOLONG),
    (VfsError::NotEmpty, NFS3ERR_NOTEMPTY),
    (VfsError::DQuot, NFS3ERR_DQUOT),
    (VfsError::Stale, NFS3ERR_STALE),
    (VfsError::BadHandle, NFS3ERR_BADHANDLE),
    (VfsError::NotSync, NFS3ERR_NOT_SYNC),
    (VfsError::BadCookie, NFS3ERR_BAD_COOKIE),
    (VfsError::NotSupp, NFS3ERR_NOTSUPP),
    (VfsError::BadType, NFS3ERR_BADTYPE),
    (VfsError::Delay, NFS3ERR_JUKEBOX),
    (VfsError::Fault, NFS3ERR_SERVERFAULT),
];

/// Whatever a file system answers, a procedure gives a status of its list, or one of the few that are added to it; one
/// that is in the list as it is.
#[test]
fn no_procedure_gives_a_status_that_clients_do_not_expect() {
    let mut r = Rig::new();
    let root = r.root();
    // What the calls work on, so that they reach the operation that fails.
    r.create(&root, "x");
    let link = symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: nfspath3::from("t") };
    let _: SYMLINK3res = r.call(NFSPROC3_SYMLINK, &SYMLINK3args { where_: at(&root, "link"), symlink: link });
    for (proc, args) in samples(&root) {
        let (_, op, listed) = *LISTED.iter().find(|(p, ..)| *p == proc).unwrap();
        for (error, exact) in ERRORS {
            r.fs.faults().fail_next(op, 1, error);
            let msg = r.message(NFS_PROGRAM, proc, &args);
            let Answer::Results(b) = r.raw(&msg) else { panic!("procedure {proc}: {error:?}") };
            let got = decode_status(&b);
            let always = matches!(got, NFS3ERR_STALE | NFS3ERR_BADHANDLE | NFS3ERR_SERVERFAULT);
            assert_ne!(got, NFS3_OK, "procedure {proc}: {error:?} did not arrive");
            assert!(
                always || listed.contains(&got) || added(proc, got),
                "procedure {proc} gives {got:?} for {error:?}"
            );
            if listed.contains(&exact) || always && got == exact {
                assert_eq!(got, exact, "procedure {proc}: {error:?} is in its list");
            }
        }
        r.fs.faults().clear();
    }
}

fn decode_status(b: &[u8]) -> nfsstat3 {
    decode(&b[..4])
}

/// RFC 1813 section 2.6: results have attributes wherever the server can have them, those of failures too.
#[test]
fn failures_carry_the_attributes_of_what_they_concern() {
    let mut r = Rig::new();
    let root = r.root();
    let file = r.create(&root, "file");
    r.write(&file, 0, b"12345");
    let dir_id = attr(&mut r, &root).fileid;
    let file_id = attr(&mut r, &file).fileid;
    let after = |a: &post_op_attr| match a {
        post_op_attr::True(a) => Some(a.fileid),
        post_op_attr::False => None,
    };

    let LOOKUP3res::Default(NFS3ERR_NOENT, f) =
        r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "none") })
    else {
        panic!()
    };
    assert_eq!(after(&f.dir_attributes), Some(dir_id), "LOOKUP: the directory's");
    let LOOKUP3res::Default(NFS3ERR_NOTDIR, f) =
        r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&file, "none") })
    else {
        panic!()
    };
    assert_eq!(after(&f.dir_attributes), Some(file_id), "whatever the handle is");
    let args = CREATE3args { where_: at(&root, "file"), how: createhow3::GUARDED(mode(0o600)) };
    let CREATE3res::Default(NFS3ERR_EXIST, f) = r.call(NFSPROC3_CREATE, &args) else { panic!() };
    assert_eq!(after(&f.dir_wcc.after), Some(dir_id), "CREATE");
    assert_eq!(f.dir_wcc.before, pre_op_attr::False);
    let args = MKDIR3args { where_: at(&root, "file"), attributes: mode(0o600) };
    let MKDIR3res::Default(NFS3ERR_EXIST, f) = r.call(NFSPROC3_MKDIR, &args) else { panic!() };
    assert_eq!(after(&f.dir_wcc.after), Some(dir_id), "MKDIR");
    let REMOVE3res::Default(NFS3ERR_NOENT, f) =
        r.call(NFSPROC3_REMOVE, &REMOVE3args { object: at(&root, "none") })
    else {
        panic!()
    };
    assert_eq!(after(&f.dir_wcc.after), Some(dir_id), "REMOVE");
    let dir = MKDIR3args { where_: at(&root, "dir"), attributes: mode(0o755) };
    let MKDIR3res::NFS3_OK(ok) = r.call(NFSPROC3_MKDIR, &dir) else { panic!() };
    let dir = made(ok.obj);
    let other_id = attr(&mut r, &dir).fileid;
    // The second handle lies behind a name: of a length that is padded.
    let args = RENAME3args { from: at(&root, "none!"), to: at(&dir, "x") };
    let RENAME3res::Default(NFS3ERR_NOENT, f) = r.call(NFSPROC3_RENAME, &args) else { panic!() };
    assert_eq!((after(&f.fromdir_wcc.after), after(&f.todir_wcc.after)), (Some(dir_id), Some(other_id)));
    let args = LINK3args { file: file.clone(), link: at(&root, "dir") };
    let LINK3res::Default(NFS3ERR_EXIST, f) = r.call(NFSPROC3_LINK, &args) else { panic!() };
    assert_eq!((after(&f.file_attributes), after(&f.linkdir_wcc.after)), (Some(file_id), Some(dir_id)));
    let args = READLINK3args { symlink: file.clone() };
    let READLINK3res::Default(NFS3ERR_INVAL, f) = r.call(NFSPROC3_READLINK, &args) else { panic!() };
    assert_eq!(after(&f.symlink_attributes), Some(file_id), "READLINK");
    let READ3res::Default(_, f) =
        r.call(NFSPROC3_READ, &READ3args { file: root.clone(), offset: 0, count: 1 })
    else {
        panic!()
    };
    assert_eq!(after(&f.file_attributes), Some(dir_id), "READ");
    let WRITE3res::Default(NFS3ERR_FBIG, f) = r.write(&file, u64::MAX, b"x") else { panic!() };
    assert_eq!(after(&f.file_wcc.after), Some(file_id), "WRITE");
    let args = READDIR3args { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count: 10 };
    let READDIR3res::Default(NFS3ERR_TOOSMALL, f) = r.call(NFSPROC3_READDIR, &args) else { panic!() };
    assert_eq!(after(&f.dir_attributes), Some(dir_id), "READDIR");

    // Where they would have to be waited for, or there is no object, the answer goes without.
    r.fs.faults().hold(Op::Getattr);
    let LOOKUP3res::Default(NFS3ERR_NOENT, f) =
        r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "none") })
    else {
        panic!()
    };
    assert_eq!(after(&f.dir_attributes), None);
    r.fs.faults().release(Op::Getattr);
    let mut forged = root.clone();
    forged.data[10] ^= 1;
    let LOOKUP3res::Default(NFS3ERR_BADHANDLE, f) =
        r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&forged, "file") })
    else {
        panic!()
    };
    assert_eq!(after(&f.dir_attributes), None);
    // A caller that the export does not admit learns nothing.
    r.peer = sunrpc::xprt::PeerAddr::Inet("192.0.2.1:800".parse().unwrap());
    let LOOKUP3res::Default(NFS3ERR_ACCES, f) =
        r.call(NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "none") })
    else {
        panic!()
    };
    assert_eq!(after(&f.dir_attributes), None);
}

fn attr(r: &mut Rig, fh: &nfs_fh3) -> fattr3 {
    match r.call(NFSPROC3_GETATTR, &GETATTR3args { object: fh.clone() }) {
        GETATTR3res::NFS3_OK(ok) => ok.obj_attributes,
        other => panic!("{other:?}"),
    }
}

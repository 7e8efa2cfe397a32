//! A client that others wrote (crate `nfs3_client`), from MOUNT to REMOVE.

use crate::server::Server;
use nfs3_client::Nfs3ConnectionBuilder;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::{auth_flavor, auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::TokioConnector;
use std::collections::BTreeSet;

fn name(s: &str) -> filename3<'_> {
    filename3::from(s.as_bytes())
}

fn at<'a>(dir: &nfs_fh3, n: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name(n) }
}

fn handle(h: Nfs3Option<nfs_fh3>) -> nfs_fh3 {
    match h {
        Nfs3Option::Some(h) => h,
        Nfs3Option::None => panic!("a new object comes with its handle"),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_foreign_client_works_with_files_directories_and_links() {
    let s = Server::start(&[]);
    let cred = auth_unix {
        uid: 1000,
        gid: 1000,
        machinename: Opaque::owned(b"elsewhere".to_vec()),
        ..auth_unix::default()
    };
    let mut c = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", s.dir.path().to_str().unwrap())
        .connect_from_privileged_port(false)
        .mount_port(s.port)
        .nfs3_port(s.port)
        .credential(opaque_auth::auth_unix(&cred))
        .mount()
        .await
        .unwrap();
    assert!(c.mount_resok.auth_flavors.contains(&(auth_flavor::AUTH_UNIX as u32)), "AUTH_SYS is offered");
    let root = c.root_nfs_fh3();
    c.null().await.unwrap();

    // A file: created, written in two pieces, read across its end.
    let how = createhow3::GUARDED(sattr3 { mode: Nfs3Option::Some(0o640), ..sattr3::default() });
    let made = c.create(&CREATE3args { where_: at(&root, "file"), how }).await.unwrap().unwrap();
    let file = handle(made.obj);
    let body: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    for (i, part) in body.chunks(150_000).enumerate() {
        let args = WRITE3args {
            file: file.clone(),
            offset: 150_000 * i as u64,
            count: part.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(part),
        };
        let done = c.write(&args).await.unwrap().unwrap();
        assert_eq!(done.count as usize, part.len());
    }
    c.commit(&COMMIT3args { file: file.clone(), offset: 0, count: 0 }).await.unwrap().unwrap();
    let read = |offset, count| READ3args { file: file.clone(), offset, count };
    let got = c.read(&read(0, 300_000)).await.unwrap().unwrap();
    assert!(got.eof && got.data.as_ref() == body, "what was written comes back");
    let tail = c.read(&read(299_990, 4096)).await.unwrap().unwrap();
    assert_eq!((tail.count, tail.data.as_ref().len(), tail.eof), (10, 10, true));

    let attr = c.getattr(&GETATTR3args { object: file.clone() }).await.unwrap().unwrap().obj_attributes;
    assert_eq!((attr.size, attr.mode & 0o7777, attr.nlink), (300_000, 0o640, 1));
    let again = CREATE3args { where_: at(&root, "file"), how: createhow3::GUARDED(sattr3::default()) };
    assert!(matches!(c.create(&again).await.unwrap(), Nfs3Result::Err((nfsstat3::NFS3ERR_EXIST, _))));

    // Names: a directory, a hard link, a symbolic link, a rename.
    let args = MKDIR3args { where_: at(&root, "dir"), attributes: sattr3::default() };
    let dir = handle(c.mkdir(&args).await.unwrap().unwrap().obj);
    c.link(&LINK3args { file: file.clone(), link: at(&dir, "hard") }).await.unwrap().unwrap();
    let symlink =
        symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: nfspath3::from(&b"../file"[..]) };
    let soft = c.symlink(&SYMLINK3args { where_: at(&dir, "soft"), symlink }).await.unwrap().unwrap();
    let target = c.readlink(&READLINK3args { symlink: handle(soft.obj) }).await.unwrap().unwrap();
    assert_eq!(target.data.0.as_ref(), b"../file");
    c.rename(&RENAME3args { from: at(&root, "file"), to: at(&dir, "moved") }).await.unwrap().unwrap();
    let found = c.lookup(&LOOKUP3args { what: at(&dir, "moved") }).await.unwrap().unwrap();
    assert_eq!(found.object, file, "a handle belongs to the file, not to its name");
    let attr = c.getattr(&GETATTR3args { object: file.clone() }).await.unwrap().unwrap().obj_attributes;
    assert_eq!(attr.nlink, 2);

    // Listings in small pieces name everything once.
    for i in 0..200 {
        let n = format!("n{i}");
        let args = CREATE3args { where_: at(&dir, &n), how: createhow3::UNCHECKED(sattr3::default()) };
        c.create(&args).await.unwrap().unwrap();
    }
    let mut names = BTreeSet::new();
    let (mut cookie, mut cookieverf) = (0, cookieverf3::default());
    loop {
        let args = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: 1024, maxcount: 4096 };
        let part = c.readdirplus(&args).await.unwrap().unwrap();
        cookieverf = part.cookieverf;
        for e in part.reply.entries.0 {
            assert!(names.insert(e.name.0.as_ref().to_vec()), "named twice");
            assert!(e.name_attributes.is_some() && e.name_handle.is_some());
            cookie = e.cookie;
        }
        if part.reply.eof {
            break;
        }
    }
    assert_eq!(names.len(), 205, "200 files, two links, the moved file, . and ..");

    // Taking it down again.
    assert!(matches!(
        c.rmdir(&RMDIR3args { object: at(&root, "dir") }).await.unwrap(),
        Nfs3Result::Err((nfsstat3::NFS3ERR_NOTEMPTY, _))
    ));
    for n in names.iter().filter(|n| !n.starts_with(b".")) {
        let object = diropargs3 { dir: dir.clone(), name: filename3::from(n.as_slice()) };
        c.remove(&REMOVE3args { object }).await.unwrap().unwrap();
    }
    c.rmdir(&RMDIR3args { object: at(&root, "dir") }).await.unwrap().unwrap();
    let gone = c.getattr(&GETATTR3args { object: file }).await.unwrap();
    assert!(matches!(gone, Nfs3Result::Err((nfsstat3::NFS3ERR_STALE, _))), "no name left, no file left");
    c.unmount().await.unwrap();
}

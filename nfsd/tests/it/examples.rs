//! The examples, run as a reader would, and used by a foreign client.

use nfs3_client::Nfs3ConnectionBuilder;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::tokio::TokioConnector;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of an example: cargo builds it beside the tests, unless only this test was asked for.
fn example(name: &str) -> PathBuf {
    let mut target = std::env::current_exe().unwrap();
    target.pop();
    target.pop();
    let exe = target.join("examples").join(name);
    if !exe.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "-p", "nfsd", "--example", name]);
        assert!(build.status().unwrap().success());
    }
    exe
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_system_of_ones_own() {
    let mut child =
        Command::new(example("hello")).arg("tcp://127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let _running = Running(child);
    let port = url.trim().rsplit(':').next().unwrap().parse().unwrap();
    let mut c = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/hello")
        .connect_from_privileged_port(false)
        .mount_port(port)
        .nfs3_port(port)
        .credential(opaque_auth::auth_unix(&auth_unix { uid: 1234, gid: 7, ..auth_unix::default() }))
        .mount()
        .await
        .unwrap();
    let root = c.root_nfs_fh3();
    let list = READDIRPLUS3args {
        dir: root.clone(),
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 4096,
        maxcount: 4096,
    };
    let list = c.readdirplus(&list).await.unwrap().unwrap();
    let names: Vec<_> = list.reply.entries.0.iter().map(|e| e.name.0.as_ref()).collect();
    assert_eq!(names, [&b"."[..], b"..", b"hello.txt"]);
    let what = |n: &'static str| diropargs3 { dir: root.clone(), name: filename3::from(n.as_bytes()) };
    let file = c.lookup(&LOOKUP3args { what: what("hello.txt") }).await.unwrap().unwrap().object;
    let all = c.read(&READ3args { file: file.clone(), offset: 0, count: 4096 }).await.unwrap().unwrap();
    assert!(all.eof);
    assert_eq!(all.data.as_ref(), b"Hello, user 1234!\n");
    let part = c.read(&READ3args { file: file.clone(), offset: 7, count: 4 }).await.unwrap().unwrap();
    assert_eq!((part.data.as_ref(), part.eof), (&b"user"[..], false));
    let rights = c.access(&ACCESS3args { object: file, access: 0x3f }).await.unwrap().unwrap().access;
    assert_eq!(rights, ACCESS3_READ);
    // What it does not offer cannot be done.
    let r = c.remove(&REMOVE3args { object: what("hello.txt") }).await.unwrap();
    assert!(matches!(r, Nfs3Result::Err((nfsstat3::NFS3ERR_ROFS, _))));
}

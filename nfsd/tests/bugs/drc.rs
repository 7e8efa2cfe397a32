//! Area drc: calls that come again. Two workers serve; a connection that is opened while another one is open is dealt to
//! the other worker.

use super::client::{Answer, Client, at, bytes, decode, frame, mode};
use super::in_process::{InProcess, export};
use nfsd::proto::nfs3::*;
use nfsd::vfs::mem::{MemFs, MemOptions, Op};
use std::sync::Arc;
use std::time::Duration;

struct Rig {
    server: InProcess,
    fs: MemFs,
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A call that is held would keep the server from ending.
        self.fs.faults().clear();
    }
}

fn rig() -> (Rig, Client, nfs_fh3) {
    let fs = MemFs::new(&MemOptions { root_mode: 0o777, ..MemOptions::default() });
    let server = InProcess::start(vec![export(1, Arc::new(fs.clone()), |_| {})]);
    let mut c = Client::connect(server.port);
    let root = c.mnt("/1").unwrap();
    (Rig { server, fs }, c, root)
}

/// Sends a message that `from` made over this connection.
fn again(c: &mut Client, message: &[u8]) -> Answer {
    c.expect_xid(message);
    c.send(&frame(message));
    c.receive()
}

fn remove_of(c: &mut Client, dir: &nfs_fh3, name: &str) -> Vec<u8> {
    c.message(NFS_PROGRAM, 3, NFSPROC3_REMOVE, &bytes(&REMOVE3args { object: at(dir, name) }))
}

fn removed(a: &Answer) -> nfsstat3 {
    match a {
        Answer::Results(r) => decode::<REMOVE3res>(r).discriminant(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn b32_a_lost_reply_is_given_again_over_another_connection() {
    let (rig, mut first, root) = rig();
    first.create(&root, "f").unwrap();
    let call = remove_of(&mut first, &root, "f");
    let answer = again(&mut first, &call);
    assert_eq!(removed(&answer), nfsstat3::NFS3_OK);
    // Another port, another worker; then, with the first connection gone, one more.
    let mut second = Client::connect(rig.server.port);
    assert_eq!(again(&mut second, &call), answer);
    drop(first);
    let mut third = Client::connect(rig.server.port);
    assert_eq!(again(&mut third, &call), answer);
    assert_eq!(rig.server.duplicates().hits, 2);
    // A call of its own finds the file gone.
    let fresh = remove_of(&mut third, &root, "f");
    assert_eq!(removed(&again(&mut third, &fresh)), nfsstat3::NFS3ERR_NOENT);
}

#[test]
fn b32_a_repeat_of_a_running_call_is_dropped() {
    let (rig, mut first, root) = rig();
    let args = MKDIR3args { where_: at(&root, "d"), attributes: mode(0o755) };
    let call = first.message(NFS_PROGRAM, 3, NFSPROC3_MKDIR, &bytes(&args));
    let made = |a: &Answer| match a {
        Answer::Results(r) => decode::<MKDIR3res>(r).discriminant(),
        other => panic!("{other:?}"),
    };
    rig.fs.faults().hold(Op::Mkdir);
    first.send(&frame(&call));
    assert!(rig.fs.faults().wait_for(Op::Mkdir, 1, Duration::from_secs(60)));
    let mut second = Client::connect(rig.server.port);
    second.send(&frame(&call));
    // Answered by the same connection in order: the repeat has been looked at when this reply is here.
    second.attr(&root).unwrap();
    assert_eq!(rig.fs.faults().waiting(Op::Mkdir), 1);
    rig.fs.faults().release(Op::Mkdir);
    first.expect_xid(&call);
    let answer = first.receive();
    assert_eq!(made(&answer), nfsstat3::NFS3_OK);
    // The repeat that was dropped had no reply: the next one on that connection is this one's.
    assert_eq!(again(&mut second, &call), answer);
    assert_eq!(second.attr(&root).unwrap().nlink, 3);
    let d = rig.server.duplicates();
    assert_eq!((d.misses, d.in_progress, d.hits), (1, 1, 1));
}

#[test]
fn b33_another_caller_or_another_body_is_another_call() {
    let (rig, mut c, root) = rig();
    for name in ["f", "g"] {
        c.create(&root, name).unwrap();
    }
    let call = remove_of(&mut c, &root, "f");
    assert_eq!(removed(&again(&mut c, &call)), nfsstat3::NFS3_OK);
    let mut second = Client::connect(rig.server.port);

    // Same xid, same arguments, another user (the words behind stamp and empty machine name).
    let mut other_user = call.clone();
    other_user[40..48].copy_from_slice(&[0, 0, 3, 232, 0, 0, 3, 232]);
    assert_eq!(removed(&again(&mut second, &other_user)), nfsstat3::NFS3ERR_NOENT);

    // Same xid, same caller, another name.
    let mut other_body = call.clone();
    let at = other_body.len() - 4;
    assert_eq!(other_body[at], b'f');
    other_body[at] = b'g';
    assert_eq!(removed(&again(&mut second, &other_body)), nfsstat3::NFS3_OK);
    assert_eq!(c.lookup(&root, "g").unwrap_err(), nfsstat3::NFS3ERR_NOENT);

    // The first one is still remembered.
    assert_eq!(removed(&again(&mut second, &call)), nfsstat3::NFS3_OK);
}

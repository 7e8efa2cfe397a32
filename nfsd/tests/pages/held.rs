//! A call that waits holds up nobody else, though there is one worker.

use crate::client::{Answer, Client, bytes, frame};
use crate::in_process::{InProcess, export};
use crate::server::PATIENCE;
use nfsd::proto::nfs3::*;
use nfsd::vfs::mem::{MemFs, MemOptions, Op};
use std::sync::Arc;

#[test]
fn a_held_flush_stalls_no_other_connection() {
    let fs = MemFs::new(&MemOptions { root_mode: 0o777, ..MemOptions::default() });
    let s = InProcess::start_with(vec![export(1, Arc::new(fs.clone()), |_| {})], |b| b.threads(1));
    let (mut a, mut b) = (Client::connect(s.port), Client::connect(s.port));
    let root = a.mnt("/1").unwrap();
    let file = a.create(&root, "f").unwrap();
    fs.faults().hold(Op::Commit);
    let commit = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    let m = a.message(NFS_PROGRAM, 3, NFSPROC3_COMMIT, &bytes(&commit));
    a.send(&frame(&m));
    assert!(fs.faults().wait_for(Op::Commit, 1, PATIENCE), "the flush has begun");
    for _ in 0..100 {
        b.attr(&file).unwrap();
    }
    // All of them were answered while it was held.
    assert_eq!(fs.faults().waiting(Op::Commit), 1);
    fs.faults().release(Op::Commit);
    assert!(matches!(a.receive(), Answer::Results(_)));
}

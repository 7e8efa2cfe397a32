//! Pages outside of pools, and payloads that arrive in any pieces.
#![allow(clippy::unwrap_used)]

use sunrpc::page::{PagePool, PageWriter, Pages, XdrBuf, leaked};
use sunrpc::xdr::XdrWrite;

/// Resident memory of this process, in KiB.
fn resident() -> i64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = s.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn pages_of_the_allocator_are_freed_wherever_they_end() {
    let data = vec![7; 1 << 20];
    let mut pool = PagePool::standalone();
    let mut buf = XdrBuf::new();
    let mut round = |n: usize| {
        for _ in 0..n {
            // Dropped by a client, cloned, recycled into a pool, sent as a reply.
            drop(Pages::copy_from(&data).clone());
            Pages::copy_from(&data).recycle(&mut pool);
            PageWriter::new(&mut buf, &mut pool, 2 << 20).put_pages(Pages::copy_from(&data)).unwrap();
            buf.recycle(&mut pool);
        }
        pool.held()
    };
    let held = round(4);
    let (before, lost) = (resident(), leaked());
    assert_eq!(round(100), held, "the pool holds what is its own");
    assert_eq!(leaked(), lost);
    let grown = resident() - before;
    assert!(grown < 50 << 10, "{grown} KiB more after 400 MiB of pages");
}

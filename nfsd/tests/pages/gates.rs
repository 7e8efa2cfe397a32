//! A page is used again only when the network has let go of it.

use crate::server::Server;
use crate::stalled::{Stalled, handle, make};

const BLOCK: u32 = 64 << 10;
const BLOCKS: u64 = 256;

fn served(args: &[&str]) -> (Server, nfsd::proto::nfs3::nfs_fh3) {
    let s = Server::start(&[&["--threads", "1"], args].concat());
    make(s.dir.path(), "big", (BLOCKS * u64::from(BLOCK)) as usize);
    let h = handle(s.port, s.dir.path().to_str().unwrap(), "big");
    (s, h)
}

/// Offsets of the next `n` blocks, far apart.
fn blocks(round: u64, n: u64) -> impl Iterator<Item = (u64, u32)> {
    (0..n).map(move |i| ((round * n + i) * 97 % BLOCKS * u64::from(BLOCK), BLOCK))
}

/// Reads block by block, late; how many replies were not what the file holds.
fn wrong_replies(c: &mut Stalled, h: &nfsd::proto::nfs3::nfs_fh3, rounds: u64, window: u64) -> usize {
    let mut wrong = 0;
    for round in 0..rounds {
        c.ask(h, blocks(round, window));
        Stalled::sleep();
        for _ in 0..window {
            let r = c.reply().expect("the server keeps the connection");
            assert_eq!(r.data.len(), r.asked.1 as usize);
            wrong += usize::from(!r.right());
        }
    }
    wrong
}

#[test]
fn pages_sent_by_reference_wait_for_the_acknowledgement() {
    let (s, h) = served(&["--zerocopy", "on"]);
    let mut c = Stalled::connect(s.port, 8 << 10);
    assert_eq!(wrong_replies(&mut c, &h, 20, 8), 0, "of 160 replies");
}

#[test]
fn pages_of_queued_replies_wait_for_the_socket() {
    let (s, h) = served(&[]);
    let mut c = Stalled::connect(s.port, 8 << 10);
    assert_eq!(wrong_replies(&mut c, &h, 3, 128), 0, "of 384 replies");
}

/// A connection that the server closes while the kernel still sends from its pages: the peer sees right bytes, or a reset,
/// but never wrong bytes.
#[test]
fn a_closed_connection_sends_nothing_from_pages_used_again() {
    let (s, h) = served(&["--zerocopy", "on"]);
    for round in 0..10 {
        let mut c = Stalled::connect(s.port, 8 << 10);
        c.ask(&h, blocks(round, 8));
        Stalled::sleep();
        // No record mark: the server closes.
        c.send(&[0xff; 4]);
        Stalled::sleep();
        // Another client's replies take whatever pages are free.
        let mut other = Stalled::connect(s.port, 1 << 20);
        other.ask(&h, blocks(round + 100, 32));
        for _ in 0..32 {
            other.reply().unwrap();
        }
        while let Some(r) = c.reply() {
            assert!(r.right(), "wrong bytes in round {round}");
        }
    }
}

#[test]
fn a_peer_that_has_finished_gets_all_its_replies() {
    for args in [&["--zerocopy", "on"][..], &[]] {
        let (s, h) = served(args);
        let mut c = Stalled::connect(s.port, 8 << 10);
        c.ask(&h, blocks(3, 16));
        c.finish();
        Stalled::sleep();
        for _ in 0..16 {
            let r = c.reply().unwrap_or_else(|| panic!("replies are missing, {args:?}"));
            assert!(r.right());
        }
        assert_eq!(c.reply(), None);
    }
}

//! Replies on their way out of one socket.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use sunrpc::page::{PagePool, PageSpan, Span, XdrBuf};
use sunrpc::xprt::{PeerAddr, Route};
use sunrpc_sys::datagram::{BATCH, Outgoing};

/// Pieces of one batch that are gathered without allocation.
const GATHER: usize = 320;

/// A reply that waits to be sent; its pages lie in the queue of pages.
struct Waiting {
    pieces: usize,
    bytes: usize,
    peer: SocketAddr,
    local: Option<(IpAddr, u32)>,
    /// It met an error that was not its own.
    again: bool,
}

/// The queue, oldest first.
#[derive(Default)]
pub(super) struct Outbox {
    tx: VecDeque<Waiting>,
    pages: VecDeque<PageSpan>,
    queued: usize,
    sent: u64,
    unsent: u64,
}

impl Outbox {
    /// Bytes that wait.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes ever handed to the system.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Replies that the system refused since the last call.
    pub(super) fn take_unsent(&mut self) -> u64 {
        std::mem::take(&mut self.unsent)
    }

    /// Queues a reply; its pages move.
    pub(super) fn push(&mut self, reply: &mut XdrBuf, route: &Route) {
        let (before, bytes) = (self.pages.len(), reply.len());
        self.pages.extend(reply.drain().filter_map(|s| match s {
            Span::Page(s) => Some(s),
            // Nobody lends to this class (`XprtCaps::lends`).
            Span::Lent(_) => None,
        }));
        let pieces = self.pages.len() - before;
        let peer = match route.peer {
            PeerAddr::Inet(a) => a,
            // No such route comes from here; `flush` drops what nobody can be sent.
            PeerAddr::Local { .. } => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        self.tx.push_back(Waiting { pieces, bytes, peer, local: route.local, again: false });
        self.queued += bytes;
    }

    /// The oldest reply leaves the queue.
    fn pop(&mut self, pool: &mut PagePool) -> Option<Waiting> {
        let w = self.tx.pop_front()?;
        self.pages.drain(..w.pieces.min(self.pages.len())).for_each(|s| pool.put(s.into_page()));
        self.queued -= w.bytes;
        Some(w)
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, pool: &mut PagePool) {
        while self.pop(pool).is_some() {}
    }

    /// Hands replies to `send`, which takes some of a batch or refuses its first, until the queue is empty or the socket's
    /// buffer full. Only that keeps replies waiting, because only of that the system tells when it is over; any other
    /// error (no route, a firewall, too long, no buffers in a device) costs its reply, and the caller asks again.
    pub(super) fn flush(
        &mut self,
        pool: &mut PagePool,
        mut send: impl FnMut(&mut dyn Iterator<Item = Outgoing<'_>>) -> io::Result<usize>,
    ) {
        while !self.tx.is_empty() {
            let total = self.tx.iter().take(BATCH).map(|w| w.pieces).sum();
            let iov: SmallVec<[IoSlice<'_>; GATHER]> =
                self.pages.iter().take(total).map(|s| IoSlice::new(s.as_slice())).collect();
            let mut rest = &iov[..];
            let mut batch = self.tx.iter().take(BATCH).map_while(|w| {
                let (pieces, later) = rest.split_at_checked(w.pieces)?;
                rest = later;
                let local = w.local.filter(|_| !sunrpc::mutate::on("no-pktinfo"));
                Some(Outgoing { pieces, peer: w.peer, local })
            });
            let r = send(&mut batch);
            drop(iov);
            match r {
                Ok(n) => {
                    for _ in 0..n {
                        self.sent += self.pop(pool).map_or(0, |w| w.bytes as u64);
                    }
                    // Something wrong with nothing said would come round for ever.
                    if n == 0 {
                        self.unsent += u64::from(self.pop(pool).is_some());
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => match self.tx.front_mut() {
                    // Somebody who had an earlier reply is gone; this one was not tried.
                    Some(w) if e.kind() == ErrorKind::ConnectionRefused && !w.again => w.again = true,
                    _ => {
                        let w = self.pop(pool);
                        self.unsent += 1;
                        tracing::debug!(peer = ?w.map(|w| w.peer), "a reply is dropped: {e}");
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunrpc::page::PageWriter;
    use sunrpc::xdr::XdrWrite;

    /// An outbox whose replies are 8 bytes of 0, 1, 2, ... and go to ports 1, 2, 3, ...
    struct Rig {
        pool: PagePool,
        out: Outbox,
    }

    fn rig(replies: u8) -> Rig {
        let mut r = Rig { pool: PagePool::standalone(), out: Outbox::default() };
        for i in 0..replies {
            let mut buf = XdrBuf::new();
            PageWriter::new(&mut buf, &mut r.pool, 8).put(&[i; 8]).unwrap();
            let peer = PeerAddr::Inet(SocketAddr::from(([127, 0, 0, 1], 1 + u16::from(i))));
            r.out.push(&mut buf, &Route { peer, local: None });
        }
        assert_eq!(r.out.queued(), 8 * usize::from(replies));
        r
    }

    impl Rig {
        /// Flushes through a socket that answers with `script`, then takes everything; which replies it took, in order,
        /// and how often it was asked.
        fn flush(&mut self, script: &[Result<usize, i32>]) -> (Vec<u8>, usize) {
            let (mut taken, mut asked) = (Vec::new(), 0);
            self.out.flush(&mut self.pool, |batch| {
                let step = script.get(asked).copied();
                asked += 1;
                let room = match step {
                    Some(Err(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                    Some(Ok(n)) => n,
                    None => usize::MAX,
                };
                let mut n = 0;
                for d in batch.take(room) {
                    let bytes: Vec<u8> = d.pieces.iter().flat_map(|p| p.iter().copied()).collect();
                    let first = bytes[0];
                    assert_eq!((bytes, d.peer.port()), (vec![first; 8], 1 + u16::from(first)));
                    taken.push(first);
                    n += 1;
                }
                Ok(n)
            });
            (taken, asked)
        }

        /// Nothing waits, and every page is home.
        fn ends(&self, sent: u64) {
            assert_eq!((self.out.queued(), self.out.sent()), (0, 8 * sent));
            assert!(self.out.tx.is_empty() && self.out.pages.is_empty());
            assert_eq!(self.pool.stats().taken, self.pool.stats().returned);
        }
    }

    #[test]
    fn a_full_buffer_keeps_the_queue_and_it_drains_later() {
        let mut r = rig(40);
        assert_eq!(r.flush(&[Ok(3), Err(libc::EAGAIN)]), (vec![0, 1, 2], 2));
        assert_eq!((r.out.queued(), r.out.sent()), (8 * 37, 24));
        assert_eq!(r.flush(&[Err(libc::EAGAIN)]), (vec![], 1));
        let (taken, asked) = r.flush(&[]);
        assert_eq!((taken, asked), ((3..40).collect(), 2), "in order, by batches");
        assert_eq!(r.out.take_unsent(), 0);
        r.ends(40);
    }

    #[test]
    fn a_stranger_who_is_gone_costs_an_innocent_reply_one_more_try() {
        let mut r = rig(3);
        assert_eq!(r.flush(&[Err(libc::ECONNREFUSED)]), (vec![0, 1, 2], 2));
        assert_eq!(r.out.take_unsent(), 0);
        r.ends(3);
        // One whose own try fails is dropped; the others have a first error each to spare.
        let mut r = rig(3);
        let gone = Err(libc::ECONNREFUSED);
        assert_eq!(r.flush(&[gone, gone, gone]), (vec![1, 2], 4));
        assert_eq!(r.out.take_unsent(), 1);
        r.ends(2);
    }

    #[test]
    fn what_is_too_long_is_dropped_alone() {
        let mut r = rig(3);
        assert_eq!(r.flush(&[Ok(1), Err(libc::EMSGSIZE)]), (vec![0, 2], 3));
        assert_eq!((r.out.take_unsent(), r.out.take_unsent()), (1, 0));
        r.ends(2);
    }

    #[test]
    fn without_buffers_in_a_device_nothing_waits_for_a_wake_up_that_never_comes() {
        for errno in [libc::ENOBUFS, libc::ENOMEM, libc::ENETUNREACH, libc::EPERM] {
            let mut r = rig(3);
            assert_eq!(r.flush(&[Err(errno), Err(errno)]), (vec![2], 3));
            assert_eq!(r.out.take_unsent(), 2);
            r.ends(1);
        }
    }

    #[test]
    fn a_system_that_takes_nothing_and_says_nothing_does_not_hold_the_worker() {
        let mut r = rig(2);
        assert_eq!(r.flush(&[Ok(0), Ok(0)]), (vec![], 2));
        assert_eq!(r.out.take_unsent(), 2);
        r.ends(0);
    }
}

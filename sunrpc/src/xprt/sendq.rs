//! Replies on their way into a stream, and the gates through which their pages come back.
//!
//! A page is free again when its *gate* opens:
//! - bytes that the kernel copied: when the last of them is written;
//! - bytes that it only refers to (MSG_ZEROCOPY): when it says that it is done with the send call that took the last of
//!   them, which for TCP is the peer's acknowledgement. Until then a retransmission may read them again.
//!
//! The kernel numbers zero-copy sends from 0, wrapping, and announces their completion in ranges, mostly in order.

use crate::mutate;
use crate::page::{Page, PagePool, PageSpan, Span, XdrBuf};
use crate::stats::Histogram;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pages that one zero-copy send, and those before it, have to release.
#[derive(Debug, Clone, Copy)]
struct SendCtxt {
    /// Number of the last send that refers to them.
    last: u32,
    pages: usize,
    /// When they were handed over, in microseconds of the owner's clock.
    at: u64,
}

/// Most ranges that are remembered ahead of a send not yet complete. Beyond, pages wait for later notifications.
const EARLY_MAX: usize = 64;

crate::counters! {
    /// What the queue has done. Pages and histogram count what went through gates of zero-copy sends.
    pub struct SendStats {
        /// Bytes that the kernel copied.
        pub copied: u64,
        /// Bytes that it took by reference from pages.
        pub zerocopy: u64,
        /// Zero-copy sends.
        pub zc_sends: u64,
        /// Messages that announced completions.
        pub zc_notifications: u64,
        /// Sends that the kernel copied after all.
        pub zc_copied: u64,
        /// Sends that found no locked memory left, and were copied.
        pub zc_enobufs: u64,
        /// Bytes that moved from a lender to the network.
        pub lent: u64,
        /// Pages that came back through a gate.
        pub gated: u64,
        /// Passes over the waiting contexts.
        pub scans: u64,
        /// Contexts that they looked at.
        pub scanned: u64,
        /// Pages whose gate never opened: given up when the transport closed.
        pub quarantined: u64,
        /// How long contexts waited, in microseconds.
        pub gate_wait_us: Histogram,
    }
}

/// What the network can take next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// Nothing is queued.
    Empty,
    /// Pieces in pages, and whether more follows them.
    Pages(bool),
    /// A loan: its class, its id, bytes left, and whether more follows it.
    Lent(&'static str, u64, usize, bool),
}

/// The replies of one stream.
#[derive(Debug, Default)]
pub struct SendQueue {
    /// Not completely taken by the network, oldest first.
    waiting: VecDeque<Span>,
    queued: usize,
    sent: u64,
    /// The last zero-copy send that took bytes of the first waiting page.
    front: Option<u32>,
    /// Taken by reference, oldest first, and the pages that belong to them in the same order.
    ctxts: VecDeque<SendCtxt>,
    held: VecDeque<Page>,
    /// Number of the next zero-copy send.
    next: u32,
    /// All sends before this one are complete.
    done: u32,
    /// Complete sends beyond it.
    early: SmallVec<[(u32, u32); 2]>,
    stats: SendStats,
}

impl SendQueue {
    /// Queues replies: moves everything out of `replies`.
    pub fn push(&mut self, replies: &mut XdrBuf) {
        self.queued += replies.len();
        self.waiting.extend(replies.drain());
    }

    /// Bytes that the network has not taken.
    #[inline]
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes that it ever took.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Pages that it still refers to.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.held.len()
    }

    /// Counters.
    pub fn stats(&self) -> &SendStats {
        &self.stats
    }

    /// Counts a zero-copy send for which there was no locked memory.
    pub fn count_enobufs(&mut self) {
        self.stats.zc_enobufs += 1;
    }

    /// What comes first: at most `N` pieces of pages, which are put into the empty list `iov`, or one loan. The list is the
    /// caller's because it is long: to return it would copy it.
    pub fn front<'q, const N: usize>(&'q self, iov: &mut SmallVec<[IoSlice<'q>; N]>) -> Front {
        match self.waiting.front() {
            None => Front::Empty,
            Some(Span::Lent(l)) => Front::Lent(l.class(), l.id(), l.len(), self.waiting.len() > 1),
            Some(Span::Page(_)) => {
                let pages = self.waiting.iter().take(N).map_while(Span::page);
                iov.extend(pages.map(|s| IoSlice::new(s.as_slice())));
                Front::Pages(iov.len() < self.waiting.len())
            }
        }
    }

    /// Replaces the loan in front by a copy of what is left of it. False if that cannot be had.
    pub fn copy_front(&mut self, pool: &mut PagePool) -> bool {
        let Some(Span::Lent(l)) = self.waiting.front() else { return true };
        let Some(pages) = l.to_pages(pool) else { return false };
        self.waiting.pop_front();
        for s in pages.into_iter().rev() {
            self.waiting.push_front(Span::Page(s));
        }
        true
    }

    fn took(&mut self, n: usize) {
        self.queued -= n.min(self.queued);
        self.sent += n as u64;
    }

    /// The network copied the first `n` bytes.
    pub fn wrote(&mut self, n: usize, pool: &mut PagePool, now: u64) {
        self.took(n);
        self.stats.copied += n as u64;
        let mut left = n;
        while let Some(Span::Page(s)) = self.waiting.front_mut() {
            left -= s.advance(left);
            if !s.is_empty() {
                break;
            }
            let Some(Span::Page(s)) = self.waiting.pop_front() else { break };
            match self.front.take() {
                // Its first bytes went by reference.
                Some(last) => self.hold(last, s, now, pool),
                None => pool.put(s.into_page()),
            }
        }
    }

    /// The network took the first `n` bytes by reference, in one send.
    pub fn wrote_zerocopy(&mut self, n: usize, pool: &mut PagePool, now: u64) {
        if n == 0 {
            return;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.took(n);
        self.stats.zerocopy += n as u64;
        self.stats.zc_sends += 1;
        let mut left = n;
        while let Some(Span::Page(s)) = self.waiting.front_mut() {
            let took = s.advance(left);
            left -= took;
            if !s.is_empty() {
                if took > 0 {
                    self.front = Some(number);
                }
                break;
            }
            let Some(Span::Page(s)) = self.waiting.pop_front() else { break };
            self.front = None;
            self.hold(number, s, now, pool);
        }
    }

    fn hold(&mut self, last: u32, s: PageSpan, now: u64, pool: &mut PagePool) {
        if mutate::on("no-gate") {
            return pool.put(s.into_page());
        }
        match self.ctxts.back_mut() {
            Some(c) if c.last == last => c.pages += 1,
            _ => self.ctxts.push_back(SendCtxt { last, pages: 1, at: now }),
        }
        self.held.push_back(s.into_page());
    }

    /// The loan in front gave `n` bytes to the network.
    pub fn gave(&mut self, n: usize) {
        self.took(n);
        self.stats.lent += n as u64;
        if let Some(Span::Lent(l)) = self.waiting.front_mut() {
            l.advance(n);
            if l.is_empty() {
                self.waiting.pop_front();
            }
        }
    }

    /// The network is done with the sends `from` to `to`, both included. `copied`: it had copied them.
    pub fn complete(&mut self, from: u32, to: u32, copied: bool) {
        self.stats.zc_notifications += 1;
        if copied {
            self.stats.zc_copied += u64::from(to.wrapping_sub(from)) + 1;
        }
        if self.early.len() < EARLY_MAX {
            self.early.push((from, to));
        }
        // A range that begins at or before the first incomplete send moves it; that may bring others up to it.
        while let Some(i) = self.early.iter().position(|(from, _)| !after(*from, self.done)) {
            let (_, to) = self.early.swap_remove(i);
            if !after(self.done, to) {
                self.done = to.wrapping_add(1);
            }
        }
    }

    /// Takes every send for complete: what the faults `gate-transmitted` and `plain-close` do.
    #[cold]
    pub fn complete_all(&mut self) {
        self.done = self.next;
    }

    /// True while zero-copy sends are not complete.
    pub fn incomplete(&self) -> bool {
        self.done != self.next
    }

    /// Gives back every page whose gate has opened, in one batch; how many. The sends are in order, so the first context
    /// that is not ready ends the pass.
    pub fn release(&mut self, pool: &mut PagePool, now: u64) -> usize {
        if self.ctxts.is_empty() {
            return 0;
        }
        self.stats.scans += 1;
        let mut n = 0;
        while let Some(c) = self.ctxts.front().copied() {
            self.stats.scanned += 1;
            if !after(self.done, c.last) {
                break;
            }
            self.ctxts.pop_front();
            n += c.pages;
            self.stats.gate_wait_us.record(now.saturating_sub(c.at));
        }
        if mutate::on("scan-all") {
            self.stats.scanned += self.ctxts.iter().filter(|c| !after(self.done, c.last)).count() as u64;
        }
        if n > 0 && mutate::on("lose-page") {
            n -= 1;
            if let Some(page) = self.held.pop_front() {
                page.quarantine();
            }
        }
        self.held.drain(..n.min(self.held.len())).for_each(|p| pool.put(p));
        self.stats.gated += n as u64;
        // An idle connection owns no queue.
        if self.ctxts.is_empty() && self.held.capacity() > 64 {
            (self.ctxts, self.held) = (VecDeque::new(), VecDeque::new());
        }
        n
    }

    /// Lets go of memory that an idle connection does not need.
    pub fn trim(&mut self) {
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
    }

    /// The fault `gate-queued`: what is queued is treated as if its pages were free, and overwritten.
    #[cold]
    pub fn scribble(&mut self) {
        self.waiting.iter_mut().filter_map(Span::page_mut).for_each(|s| s.as_mut_slice().fill(0x6b));
    }

    /// Ends the queue: everything not sent is dropped. Pages that the network still refers to, which only happens if it
    /// never says that it is done, are lost on purpose: somebody may still read them. How many.
    pub fn close(&mut self, pool: &mut PagePool, now: u64) -> usize {
        self.release(pool, now);
        let refers = self.front.take().is_some_and(|last| !after(self.done, last));
        if refers && let Some(Span::Page(s)) = self.waiting.pop_front() {
            self.held.push_back(s.into_page());
        }
        self.waiting.drain(..).for_each(|s| s.recycle(pool));
        self.queued = 0;
        let n = self.held.len();
        self.stats.quarantined += n as u64;
        self.held.drain(..).for_each(Page::quarantine);
        self.ctxts.clear();
        n
    }
}

/// `a` comes after `b` on the circle of numbers.
#[inline]
fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Lender, Lent, PAGE_SIZE, PageWriter};
    use crate::xdr::XdrWrite;
    use proptest::prelude::*;
    use std::io::IoSliceMut;

    fn reply(pool: &mut PagePool, len: usize) -> XdrBuf {
        let mut b = XdrBuf::new();
        PageWriter::new(&mut b, pool, len).put(&vec![7; len]).unwrap();
        b
    }

    /// What comes first, and the sizes of its pieces.
    fn front(q: &SendQueue) -> (Front, Vec<usize>) {
        let mut iov: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        let front = q.front(&mut iov);
        (front, iov.iter().map(|s| s.len()).collect())
    }

    /// Pages that are neither free nor given back.
    fn out(pool: &PagePool) -> u64 {
        pool.stats().taken - pool.stats().returned
    }

    #[test]
    fn copied_bytes_free_their_pages_at_once() {
        let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
        q.push(&mut reply(&mut pool, 3 * PAGE_SIZE));
        q.wrote(PAGE_SIZE + 1, &mut pool, 0);
        assert_eq!((out(&pool), q.queued()), (2, 2 * PAGE_SIZE - 1));
        q.wrote(2 * PAGE_SIZE - 1, &mut pool, 0);
        assert_eq!((out(&pool), q.queued(), q.outstanding()), (0, 0, 0));
    }

    #[test]
    fn borrowed_pages_wait_for_the_last_send_that_took_of_them() {
        let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
        q.push(&mut reply(&mut pool, 3 * PAGE_SIZE));
        // Number 0 ends in the second page, 1 in the third, whose rest is copied.
        q.wrote_zerocopy(PAGE_SIZE + 10, &mut pool, 0);
        q.wrote_zerocopy(PAGE_SIZE, &mut pool, 0);
        q.wrote(PAGE_SIZE - 10, &mut pool, 0);
        assert_eq!((q.queued(), q.outstanding(), out(&pool)), (0, 3, 3));
        assert_eq!(q.release(&mut pool, 0), 0);
        q.complete(0, 0, false);
        assert_eq!((q.release(&mut pool, 0), out(&pool), q.incomplete()), (1, 2, true));
        q.complete(1, 1, true);
        assert_eq!((q.release(&mut pool, 0), out(&pool), q.incomplete()), (2, 0, false));
        assert_eq!((q.stats().zc_copied, q.stats().gated), (1, 3));
    }

    #[test]
    fn frozen_completions_cost_one_look_a_pass() {
        let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
        for _ in 0..50 {
            q.push(&mut reply(&mut pool, PAGE_SIZE));
            q.wrote_zerocopy(PAGE_SIZE, &mut pool, 0);
            assert_eq!(q.release(&mut pool, 0), 0);
        }
        assert_eq!((q.stats().scans, q.stats().scanned), (50, 50));
        q.complete(0, 49, false);
        assert_eq!(q.release(&mut pool, 1000), 50);
        assert_eq!(q.stats().gate_wait_us.count(), 50);
        assert_eq!(q.stats().gate_wait_us.buckets()[10], 50, "1000 us are below 2^10: {:?}", q.stats());
    }

    #[test]
    fn numbers_wrap() {
        let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
        (q.next, q.done) = (u32::MAX, u32::MAX);
        for _ in 0..3 {
            q.push(&mut reply(&mut pool, PAGE_SIZE));
            q.wrote_zerocopy(PAGE_SIZE, &mut pool, 0);
        }
        q.complete(u32::MAX, 0, false);
        assert_eq!(q.release(&mut pool, 0), 2);
        q.complete(1, 1, false);
        assert_eq!((q.release(&mut pool, 0), q.incomplete()), (1, false));
    }

    #[test]
    fn what_never_completes_is_never_used_again() {
        let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
        q.push(&mut reply(&mut pool, 4 * PAGE_SIZE));
        q.wrote_zerocopy(PAGE_SIZE + 1, &mut pool, 0);
        assert_eq!(q.close(&mut pool, 0), 2, "the page sent, and the one begun");
        assert_eq!(out(&pool), 2, "the others came back");
        assert_eq!(q.stats().quarantined, 2);
    }

    static RELEASED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    struct Vault;

    impl Lender for Vault {
        fn class(&self) -> &'static str {
            "vault"
        }

        fn copy_to(&self, id: u64, bufs: &mut [IoSliceMut<'_>]) -> bool {
            bufs.iter_mut().for_each(|b| b.fill(id as u8));
            id != 0
        }

        fn release(&self, id: u64) {
            RELEASED.fetch_add(id + 1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[test]
    fn loans_go_in_their_place_and_end_once() {
        let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
        let mut b = XdrBuf::new();
        let mut w = PageWriter::new(&mut b, &mut pool, 100_000);
        w.put(b"head").unwrap();
        w.put_shared(Lent::new(&Vault, 5, 10_000).into()).unwrap();
        w.put(b"tail").unwrap();
        w.put_shared(Lent::new(&Vault, 0, 10_000).into()).unwrap();
        q.push(&mut b);
        assert_eq!(q.queued(), 20_008);
        assert_eq!(front(&q), (Front::Pages(true), vec![4]));
        q.wrote(4, &mut pool, 0);
        assert_eq!(front(&q), (Front::Lent("vault", 5, 10_000, true), vec![]));
        q.gave(4_000);
        assert_eq!(front(&q), (Front::Lent("vault", 5, 6_000, true), vec![]));
        // A transport that does not know the lender sends a copy.
        assert!(q.copy_front(&mut pool));
        assert_eq!(RELEASED.load(std::sync::atomic::Ordering::SeqCst), 6);
        assert_eq!(front(&q), (Front::Pages(true), vec![4096, 1904, 4]));
        let mut iov: SmallVec<[IoSlice<'_>; 1]> = SmallVec::new();
        q.front(&mut iov);
        assert_eq!(iov[0][..], [5; 4096]);
        drop(iov);
        q.wrote(6_004, &mut pool, 0);
        assert_eq!(front(&q), (Front::Lent("vault", 0, 10_000, false), vec![]));
        assert!(!q.copy_front(&mut pool), "the lender cannot");
        assert_eq!(q.close(&mut pool, 0), 0);
        assert_eq!(RELEASED.load(std::sync::atomic::Ordering::SeqCst), 7);
        assert_eq!(out(&pool), 0);
    }

    proptest! {
        /// Whatever is written how, and completes in whatever order: no page comes back before the sends that took of it
        /// are complete, and all are back at the end.
        #[test]
        fn no_page_is_lost_or_early(ops in prop::collection::vec((0u8..4, 1usize..20_000), 1..200)) {
            let (mut pool, mut q) = (PagePool::standalone(), SendQueue::default());
            let mut open: Vec<u32> = Vec::new();
            let mut number = 0;
            for (op, n) in ops {
                match op {
                    0 => q.push(&mut reply(&mut pool, n)),
                    1 => q.wrote(n.min(q.queued()), &mut pool, 0),
                    2 if q.queued() > 0 => {
                        q.wrote_zerocopy(n.min(q.queued()), &mut pool, 0);
                        open.push(number);
                        number += 1;
                    }
                    3 if !open.is_empty() => {
                        let at = open.swap_remove(n % open.len());
                        q.complete(at, at, false);
                    }
                    _ => {}
                }
                let before = q.outstanding();
                let released = q.release(&mut pool, 0);
                prop_assert_eq!(before - released, q.outstanding());
                // In order: what waits belongs to a send at or after the oldest that is open.
                if let (Some(oldest), Some(c)) = (open.iter().min(), q.ctxts.front()) {
                    prop_assert!(c.last >= *oldest);
                }
                if open.is_empty() {
                    prop_assert_eq!(q.outstanding(), 0);
                }
            }
            let left = q.queued();
            q.wrote(left, &mut pool, 0);
            open.into_iter().rev().for_each(|n| q.complete(n, n, false));
            q.release(&mut pool, 0);
            prop_assert_eq!(q.close(&mut pool, 0), 0);
            prop_assert_eq!(out(&pool), 0);
        }
    }
}

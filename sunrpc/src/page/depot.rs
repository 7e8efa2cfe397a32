//! The pages that no worker holds, and where their memory comes from.

use super::{PAGE_SIZE, Page};
use crate::mutate;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Supplies slabs of memory.
pub trait PageSource: Send + Sync {
    /// `len` bytes of zeroed memory, for the life of the process; `None` if there is none to be had.
    fn slab(&self, len: usize) -> Option<&'static mut [u8]>;

    /// Tells that the contents of `pages`, sorted by address, are not needed any more, so that their memory may be taken
    /// back until it is written again.
    fn idle(&self, pages: &mut [Page]) {
        let _ = pages;
    }
}

/// Slabs of the global allocator.
#[derive(Debug, Default)]
pub struct BoxedSource;

impl PageSource for BoxedSource {
    fn slab(&self, len: usize) -> Option<&'static mut [u8]> {
        Some(Box::leak(vec![0; len].into_boxed_slice()))
    }
}

/// Bytes in a slab: 512 pages, two 1 MiB replies.
const SLAB: usize = 2 << 20;
/// Fewer idle pages than these are not worth the system calls that give their memory back.
const IDLE_MIN: usize = 64;

/// The pages that no pool holds, shared by the workers of one server.
pub struct PageDepot {
    source: Box<dyn PageSource>,
    free: Mutex<Free>,
    /// Pages cut from slabs so far.
    cut: AtomicUsize,
    limit: usize,
    recycling: bool,
}

#[derive(Default)]
struct Free {
    /// Memory that was in use a while ago.
    warm: Vec<Page>,
    /// Memory that nobody has written yet, or that the source was told to be idle: its next user pays for it anew.
    blank: Vec<Page>,
    /// Fewest warm pages since the last tick.
    low: usize,
}

impl std::fmt::Debug for PageDepot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageDepot")
            .field("cut", &self.cut)
            .field("limit", &self.limit)
            .field("recycling", &self.recycling)
            .finish_non_exhaustive()
    }
}

impl PageDepot {
    /// A depot that cuts at most `limit` pages from slabs of `source`.
    pub fn new(source: impl PageSource + 'static, limit: usize) -> Arc<Self> {
        Self::with_recycling(source, limit, true)
    }

    /// The same; without `recycling`, the memory of a page goes back to the source each time the page comes home. That
    /// shows what recycling is worth, and is of no other use.
    pub fn with_recycling(source: impl PageSource + 'static, limit: usize, recycling: bool) -> Arc<Self> {
        Arc::new(PageDepot {
            source: Box::new(source),
            free: Mutex::default(),
            cut: AtomicUsize::new(0),
            limit,
            recycling,
        })
    }

    /// Whether pages are used again as they are.
    pub fn recycling(&self) -> bool {
        self.recycling
    }

    /// Pages in existence.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    /// Pages lying in the depot.
    pub fn free(&self) -> usize {
        let free = self.lock();
        free.warm.len() + free.blank.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        // The lists of free pages are valid between any two operations on them.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves up to `want` pages out: those in use before below what `warm` holds, the others to `blank`.
    pub(super) fn refill(&self, warm: &mut Vec<Page>, blank: &mut Vec<Page>, want: usize) {
        let mut free = self.lock();
        let at = free.warm.len().saturating_sub(want);
        let mut left = want - (free.warm.len() - at);
        // The pool's own are warmer, and leave first.
        warm.splice(..0, free.warm.drain(at..));
        free.low = free.low.min(free.warm.len());
        while left > 0 {
            if free.blank.is_empty() && !self.cut_slab(&mut free.blank) {
                return;
            }
            let at = free.blank.len().saturating_sub(left);
            left -= free.blank.len() - at;
            blank.extend(free.blank.drain(at..));
        }
    }

    fn cut_slab(&self, out: &mut Vec<Page>) -> bool {
        if self.cut() + SLAB / PAGE_SIZE > self.limit {
            return false;
        }
        let Some(slab) = self.source.slab(SLAB) else { return false };
        let (pages, _) = slab.as_chunks_mut::<PAGE_SIZE>();
        self.cut.fetch_add(pages.len(), Ordering::Relaxed);
        // The list is a stack, and low addresses first keep touched memory dense.
        out.extend(pages.iter_mut().rev().map(Page::new));
        true
    }

    pub(super) fn give_back(&self, pages: impl Iterator<Item = Page>) {
        self.lock().warm.extend(pages);
    }

    /// Takes back pages that nobody has written since [`refill`](Self::refill).
    pub(super) fn give_back_blank(&self, pages: impl Iterator<Item = Page>) {
        self.lock().blank.extend(pages);
    }

    /// Takes pages back, and gives their memory to the source.
    pub(super) fn retire(&self, mut pages: Vec<Page>) {
        // Neighbours go in one call. Descending, so that the lowest ends on top of the stack.
        pages.sort_unstable_by_key(|p| p.as_ptr().addr());
        self.source.idle(&mut pages);
        self.lock().blank.extend(pages.into_iter().rev());
    }

    /// To be called by one thread about once a second: gives memory back to the source, half of what has not been needed
    /// since the last tick.
    pub fn tick(&self) {
        let mut free = self.lock();
        let surplus = free.low.min(free.warm.len()) / 2;
        free.low = free.warm.len() - surplus;
        if surplus < IDLE_MIN || mutate::on("no-trim") {
            return;
        }
        // Those with the highest addresses: what stays in memory is dense, and what goes has neighbours.
        let keep = free.low;
        free.warm.select_nth_unstable_by_key(keep, |p| p.as_ptr().addr());
        let idle = free.warm.split_off(keep);
        drop(free);
        self.retire(idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PagePool;
    use std::sync::atomic::AtomicU64;

    /// Counts what it is told, by pages and by stretches of neighbours.
    #[derive(Clone, Default)]
    struct Counting(Arc<(AtomicU64, AtomicU64)>);

    impl PageSource for Counting {
        fn slab(&self, len: usize) -> Option<&'static mut [u8]> {
            BoxedSource.slab(len)
        }

        fn idle(&self, pages: &mut [Page]) {
            let apart = pages.windows(2).filter(|w| w[0].as_ptr_range().end != w[1].as_ptr()).count() + 1;
            self.0.0.fetch_add(pages.len() as u64, Ordering::Relaxed);
            self.0.1.fetch_add(apart as u64, Ordering::Relaxed);
        }
    }

    impl Counting {
        fn idle(&self) -> u64 {
            self.0.0.load(Ordering::Relaxed)
        }
    }

    /// Takes `n` pages and puts them back in another order.
    fn churn(pool: &mut PagePool, n: usize) {
        let mut pages: Vec<_> = (0..n).map(|_| pool.take().expect("limit not reached")).collect();
        while let Some(p) = pages.pop() {
            pool.put(p);
            if pages.len() > 1 {
                pool.put(pages.swap_remove(pages.len() / 2));
            }
        }
    }

    #[test]
    fn memory_of_an_idle_server_goes_back_and_a_steady_one_keeps_it() {
        let source = Counting::default();
        let depot = PageDepot::new(source.clone(), 1 << 16);
        let mut pool = PagePool::new(depot.clone());
        churn(&mut pool, 8192);
        assert_eq!(source.idle(), 0);
        // What the load needs is found after some ticks, and then nothing goes back or comes fresh.
        let steady = |pool: &mut PagePool, ticks: usize| {
            for _ in 0..ticks {
                churn(pool, 1500);
                pool.tick();
                depot.tick();
            }
            (source.idle(), pool.stats().fresh)
        };
        let settled = steady(&mut pool, 40);
        assert!(settled.0 > 8192 - 1500 - 4 * 1024, "{settled:?}");
        assert_eq!(steady(&mut pool, 40), settled);
        for _ in 0..40 {
            pool.tick();
            depot.tick();
        }
        let resident = depot.cut() as u64 - source.idle();
        assert!(resident < 512, "{resident} pages of an idle server still have memory");
        let calls = source.0.1.load(Ordering::Relaxed);
        assert!(calls * 3 < source.idle(), "{calls} stretches for {} pages", source.idle());
    }

    #[test]
    fn without_recycling_every_page_is_fresh() {
        for recycling in [false, true] {
            let source = Counting::default();
            let mut pool = PagePool::new(PageDepot::with_recycling(source.clone(), 4096, recycling));
            (0..100).for_each(|_| churn(&mut pool, 128));
            let (fresh, taken) = (pool.stats().fresh, pool.stats().taken);
            assert_eq!(taken, 12_800);
            assert_eq!(fresh, if recycling { 128 } else { taken });
            assert_eq!(source.idle() > 0, !recycling);
        }
    }
}

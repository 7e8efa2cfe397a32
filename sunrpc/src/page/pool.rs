//! The pages that one thread holds.

use super::taken::Home;
use super::{BoxedSource, PAGE_SIZE, Page, PageDepot};
use crate::mutate;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Pages dropped without going back to a pool, since the process began.
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

#[cold]
pub(super) fn count_leak() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

/// Pages that move between a pool and the depot at a time.
const BATCH: usize = 256;
/// Pages that a pool keeps beyond those in use: 4 MiB.
const HELD_MAX: usize = 1024;

crate::counters! {
    /// Counters of one pool.
    pub struct PoolStats {
        /// Pages handed out whose memory nobody had written before, or had been given back: the kernel makes them anew.
        pub fresh: u64,
        /// Pages handed out.
        pub taken: u64,
        /// Pages that came back.
        pub returned: u64,
        /// Pages given back to the depot because the pool held too many.
        pub trimmed: u64,
        /// Refills from the depot.
        pub refills: u64,
        /// Pages of bulk data written into replies from private pages.
        pub payload: u64,
        /// Bytes copied because a flavor protects replies and the data was lent.
        pub made_private: u64,
        /// Bytes of bulk data that replies borrowed instead of copying.
        pub lent: u64,
        /// Bytes of large records that were received straight into pages.
        pub placed: u64,
        /// Bytes of records copied behind a receive: heads, and what came with them.
        pub copied: u64,
    }
}

/// One worker's pages.
#[derive(Debug)]
pub struct PagePool {
    /// Memory that was in use before; the last one most recently.
    free: Vec<Page>,
    /// Memory that would be fresh.
    blank: Vec<Page>,
    /// Without recycling: what came back.
    spent: Vec<Page>,
    recycling: bool,
    depot: Arc<PageDepot>,
    stats: PoolStats,
    /// Fewest free pages since the last tick: what was not needed in all that time.
    low: usize,
    /// Where pages come back that an argument took along.
    home: Arc<Home>,
    /// Records so far that lent pages to arguments.
    records: u64,
}

impl PagePool {
    /// An empty pool that refills from `depot`.
    pub fn new(depot: Arc<PageDepot>) -> Self {
        let home = Home::new(depot.clone());
        PagePool {
            free: Vec::new(),
            blank: Vec::new(),
            spent: Vec::new(),
            recycling: depot.recycling(),
            depot,
            stats: PoolStats::default(),
            low: 0,
            home,
            records: 0,
        }
    }

    /// A pool with a depot of its own on the global allocator, for clients and tests.
    pub fn standalone() -> Self {
        PagePool::new(PageDepot::new(BoxedSource, usize::MAX / 2))
    }

    /// Makes sure that `n` pages can be taken without a further refill. Either all are there, or nothing is
    /// promised and the caller must not start what needs them.
    #[inline]
    pub fn ensure(&mut self, n: usize) -> bool {
        self.ready() >= n || self.refill(n) || mutate::on("half-filled")
    }

    #[inline]
    fn ready(&self) -> usize {
        self.free.len() + self.blank.len()
    }

    #[cold]
    fn refill(&mut self, n: usize) -> bool {
        self.reclaim();
        if !self.spent.is_empty() {
            self.depot.retire(std::mem::take(&mut self.spent));
        }
        if self.ready() < n {
            let want = (n - self.ready()).next_multiple_of(BATCH);
            self.depot.refill(&mut self.free, &mut self.blank, want);
            self.stats.refills += 1;
        }
        self.ready() >= n
    }

    /// Takes back what arguments took along that have been dropped since.
    fn reclaim(&mut self) {
        self.home.clone().drain().into_iter().for_each(|s| self.put(s.into_page()));
    }

    /// For the pages of one record: where they come back, and the record's number.
    pub(super) fn home(&mut self) -> (Arc<Home>, u64) {
        self.records += 1;
        (self.home.clone(), self.records)
    }

    /// Takes one page. Its contents are whatever its last user left.
    #[inline]
    pub fn take(&mut self) -> Option<Page> {
        let page = self.free.pop();
        if page.is_none() {
            return self.take_blank();
        }
        self.stats.taken += 1;
        self.low = self.low.min(self.free.len());
        page
    }

    #[cold]
    fn take_blank(&mut self) -> Option<Page> {
        self.low = 0;
        if self.blank.is_empty() && !self.refill(1) {
            return None;
        }
        let page = match self.free.pop() {
            None => {
                let page = self.blank.pop()?;
                self.stats.fresh += 1;
                page
            }
            Some(page) => page,
        };
        self.stats.taken += 1;
        Some(page)
    }

    /// Takes a page back; one of the global allocator is freed.
    #[inline]
    pub fn put(&mut self, page: Page) {
        self.stats.returned += 1;
        if page.is_heap() {
            return;
        }
        if !self.recycling {
            return self.spend(page);
        }
        self.free.push(page);
        if self.free.len() > HELD_MAX && !mutate::on("no-cap") {
            self.spill();
        }
    }

    #[cold]
    fn spend(&mut self, page: Page) {
        self.spent.push(page);
        if self.spent.len() >= BATCH {
            self.depot.retire(std::mem::take(&mut self.spent));
        }
    }

    #[cold]
    fn spill(&mut self) {
        let n = BATCH.min(self.free.len());
        self.stats.trimmed += n as u64;
        // The bottom of the stack has been idle longest.
        self.depot.give_back(self.free.drain(..n));
    }

    /// About once a second: gives back half of what has not been needed since the last tick. The depot decides about its
    /// memory.
    pub fn tick(&mut self) {
        self.reclaim();
        let unused = self.blank.len() / 2;
        self.depot.give_back_blank(self.blank.drain(..unused));
        let surplus = self.low.min(self.free.len()) / 2;
        self.low = self.free.len() - surplus;
        if surplus >= 16 && !mutate::on("no-trim") {
            self.stats.trimmed += surplus as u64;
            self.depot.give_back(self.free.drain(..surplus));
        }
    }

    /// Where this pool's pages come from.
    pub fn depot(&self) -> &PageDepot {
        &self.depot
    }

    pub(super) fn count_made_private(&mut self, bytes: usize) {
        self.stats.made_private += bytes as u64;
    }

    pub(super) fn count_payload(&mut self, bytes: usize) {
        self.stats.payload += bytes.div_ceil(PAGE_SIZE) as u64;
    }

    pub(super) fn count_lent(&mut self, bytes: usize) {
        self.stats.lent += bytes as u64;
    }

    pub(crate) fn count_placed(&mut self, bytes: usize) {
        self.stats.placed += bytes as u64;
    }

    pub(crate) fn count_copied(&mut self, bytes: usize) {
        self.stats.copied += bytes as u64;
    }

    /// Pages held and not in use.
    pub fn held(&self) -> usize {
        self.ready() + self.spent.len()
    }

    /// Counters since the pool was made.
    pub fn stats(&self) -> PoolStats {
        self.stats
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        self.depot.give_back_blank(self.blank.drain(..));
        self.depot.give_back(self.free.drain(..).chain(self.spent.drain(..)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_comes_home() {
        let depot = PageDepot::new(BoxedSource, 4096);
        {
            let mut a = PagePool::new(depot.clone());
            let mut b = PagePool::new(depot.clone());
            let mut out = Vec::new();
            for _ in 0..1500 {
                out.push(a.take().expect("limit not reached"));
            }
            for p in out.drain(..) {
                b.put(p);
            }
            assert!(b.held() <= HELD_MAX);
            assert_eq!(b.stats().returned, 1500);
        }
        assert_eq!(depot.free(), depot.cut());
    }

    #[test]
    fn limit_is_never_exceeded_and_ensure_is_all_or_nothing() {
        let depot = PageDepot::new(BoxedSource, 512);
        let mut a = PagePool::new(depot.clone());
        assert!(a.ensure(512));
        assert!(!a.ensure(513));
        assert_eq!(depot.cut(), 512);
    }

    #[test]
    fn idle_pool_shrinks() {
        let depot = PageDepot::new(BoxedSource, 4096);
        let mut a = PagePool::new(depot.clone());
        let used: Vec<_> = (0..1024).map(|_| a.take().expect("limit not reached")).collect();
        used.into_iter().for_each(|p| a.put(p));
        for _ in 0..20 {
            a.tick();
        }
        assert!(a.held() < 64, "{} pages held after 20 idle ticks", a.held());
    }

    #[test]
    fn pages_are_distinct() {
        let mut a = PagePool::standalone();
        let pages: Vec<_> = (0..600).map(|_| a.take().expect("unlimited")).collect();
        let mut addrs: Vec<_> = pages.iter().map(|p| p.as_ptr()).collect();
        addrs.sort_unstable();
        addrs.dedup();
        assert_eq!(addrs.len(), 600);
        pages.into_iter().for_each(|p| a.put(p));
    }
}

//! Where pages come from.

use super::taken::Home;
use super::{PAGE_SIZE, Page};
use crate::mutate;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Pages dropped without going back to a pool, since the process began.
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

#[cold]
pub(super) fn count_leak() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

/// Supplies slabs of memory.
pub trait PageSource: Send + Sync {
    /// `len` bytes of zeroed memory, for the life of the process; `None` if there is none to be had.
    fn slab(&self, len: usize) -> Option<&'static mut [u8]>;

    /// Tells that the contents of `page` are not needed any more, so that its memory may be taken back until it
    /// is written again.
    fn idle(&self, page: &mut [u8]) {
        let _ = page;
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
/// Pages that move between a pool and the depot at a time.
const BATCH: usize = 256;
/// Pages that a pool keeps beyond those in use: 4 MiB.
const HELD_MAX: usize = 1024;

/// The pages that no pool holds, shared by the workers of one server.
pub struct PageDepot {
    source: Box<dyn PageSource>,
    free: Mutex<Vec<Page>>,
    /// Pages cut from slabs so far.
    cut: AtomicUsize,
    limit: usize,
}

impl std::fmt::Debug for PageDepot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageDepot")
            .field("cut", &self.cut)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl PageDepot {
    /// A depot that cuts at most `limit` pages from slabs of `source`.
    pub fn new(source: impl PageSource + 'static, limit: usize) -> Arc<Self> {
        Arc::new(PageDepot {
            source: Box::new(source),
            free: Mutex::new(Vec::new()),
            cut: AtomicUsize::new(0),
            limit,
        })
    }

    /// Pages in existence.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    /// Pages lying in the depot.
    pub fn free(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Page>> {
        // The list of free pages is valid between any two operations on it.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves up to `want` pages into `out`; how many were fresh from a new slab.
    fn refill(&self, out: &mut Vec<Page>, want: usize) -> usize {
        let mut free = self.lock();
        let take = want.min(free.len());
        let at = free.len() - take;
        out.extend(free.drain(at..));
        if take == want {
            return 0;
        }
        let mut fresh = 0;
        while take + fresh < want && self.cut() + SLAB / PAGE_SIZE <= self.limit {
            let Some(slab) = self.source.slab(SLAB) else { break };
            let (pages, _) = slab.as_chunks_mut::<PAGE_SIZE>();
            self.cut.fetch_add(pages.len(), Ordering::Relaxed);
            // Highest address last out: the free list is a stack, and low addresses first keeps touched memory dense.
            for page in pages.iter_mut().rev().map(Page::new) {
                free.push(page);
            }
            let n = (want - take - fresh).min(free.len());
            let at = free.len() - n;
            out.extend(free.drain(at..).rev());
            fresh += n;
        }
        // The pool pops from the end, so keep what was taken first on top.
        fresh
    }

    pub(super) fn give_back(&self, pages: impl Iterator<Item = Page>) {
        self.lock().extend(pages);
    }

    /// Gives back pages that nobody has wanted for a while, and their memory to the source.
    fn retire(&self, pages: impl Iterator<Item = Page>) {
        self.lock().extend(pages.map(|mut p| {
            self.source.idle(&mut p);
            p
        }));
    }
}

crate::counters! {
    /// Counters of one pool.
    pub struct PoolStats {
        /// Pages that came fresh from a slab.
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
    free: Vec<Page>,
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
        PagePool { free: Vec::new(), depot, stats: PoolStats::default(), low: 0, home, records: 0 }
    }

    /// A pool with a depot of its own on the global allocator, for clients and tests.
    pub fn standalone() -> Self {
        PagePool::new(PageDepot::new(BoxedSource, usize::MAX / 2))
    }

    /// Makes sure that `n` pages can be taken without a further refill. Either all are there, or nothing is
    /// promised and the caller must not start what needs them.
    #[inline]
    pub fn ensure(&mut self, n: usize) -> bool {
        self.free.len() >= n || self.refill(n) || mutate::on("half-filled")
    }

    #[cold]
    fn refill(&mut self, n: usize) -> bool {
        self.reclaim();
        if self.free.len() >= n {
            return true;
        }
        let want = (n - self.free.len()).next_multiple_of(BATCH);
        let mut got = Vec::with_capacity(want);
        self.stats.fresh += self.depot.refill(&mut got, want) as u64;
        self.stats.refills += 1;
        // New pages go below the ones already held: those are warm.
        got.append(&mut self.free);
        self.free = got;
        self.free.len() >= n
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
        if self.free.is_empty() && !self.refill(1) {
            return None;
        }
        self.stats.taken += 1;
        let p = self.free.pop();
        self.low = self.low.min(self.free.len());
        p
    }

    /// Takes a page back; one of the global allocator is freed.
    #[inline]
    pub fn put(&mut self, page: Page) {
        self.stats.returned += 1;
        if page.is_heap() {
            return;
        }
        self.free.push(page);
        if self.free.len() > HELD_MAX && !mutate::on("no-cap") {
            self.spill();
        }
    }

    #[cold]
    fn spill(&mut self) {
        let n = BATCH.min(self.free.len());
        self.stats.trimmed += n as u64;
        // The bottom of the stack has been idle longest.
        self.depot.give_back(self.free.drain(..n));
    }

    /// About once a second: gives back half of what has not been needed since the last tick.
    pub fn tick(&mut self) {
        self.reclaim();
        let surplus = self.low.min(self.free.len()) / 2;
        self.low = self.free.len() - surplus;
        if surplus >= 16 && !mutate::on("no-trim") {
            self.stats.trimmed += surplus as u64;
            self.depot.retire(self.free.drain(..surplus));
        }
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
        self.free.len()
    }

    /// Counters since the pool was made.
    pub fn stats(&self) -> PoolStats {
        self.stats
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        self.depot.give_back(self.free.drain(..));
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
        assert!(a.ensure(1024));
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

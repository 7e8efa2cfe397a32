//! Reply pages: who owns them, where they come from, when they may be used again.
//!
//! A [`Page`] has one owner at any time; it is moved, never shared. Pages are cut from slabs that a [`PageSource`]
//! hands out for the life of the process, so there is no dangling page to be afraid of: a page that is lost is a
//! leak, counted in [`leaked`], never a use after free. Each worker has a [`PagePool`] of its own; pools refill
//! from and give back to a shared [`PageDepot`] in batches.
//!
//! A reply is an [`XdrBuf`]: a chain of spans. Several replies of one turn share a page, so that a batch of small
//! ones leaves in one system call from few pages.

mod buf;
mod payload;
mod pool;

pub use buf::{Mark, PageWriter, Slot, XdrBuf};
pub use payload::{PageSpan, Pages, Payload};
pub use pool::{BoxedSource, PageDepot, PagePool, PageSource, PoolStats, leaked};

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;

/// One page of memory with exactly one owner.
///
/// A page goes back by [`PagePool::put`]. Dropping it instead loses it until the process ends.
pub struct Page(Option<&'static mut [u8; PAGE_SIZE]>);

impl Page {
    fn new(mem: &'static mut [u8; PAGE_SIZE]) -> Self {
        Page(Some(mem))
    }

    /// A page of the global allocator, for code that has no pool at hand (clients, tests). Once put into a pool it
    /// is like any other.
    pub fn heap() -> Self {
        Page::new(Box::leak(Box::new([0; PAGE_SIZE])))
    }
}

impl std::ops::Deref for Page {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Some(m) => &m[..],
            None => &[],
        }
    }
}

impl std::ops::DerefMut for Page {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Some(m) => &mut m[..],
            None => &mut [],
        }
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({:p})", self.as_ptr())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.0.is_some() {
            pool::count_leak();
        }
    }
}

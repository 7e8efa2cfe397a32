//! Reply pages: who owns them, where they come from, when they may be used again.
//!
//! A [`Page`] has one owner at any time; it is moved, never shared. Pages are cut from slabs that a [`PageSource`]
//! hands out for the life of the process, so there is no dangling page to be afraid of: one that is lost is a
//! leak, counted in [`leaked`], never a use after free. Each worker has a [`PagePool`] of its own; pools refill
//! from and give back to a shared [`PageDepot`] in batches.
//!
//! A reply is an [`XdrBuf`]: a chain of spans. Several replies of one turn share a page, so that a batch of small
//! ones leaves in one system call from few pages.

mod buf;
mod depot;
mod payload;
mod pool;
mod span;
mod taken;

pub use buf::{Mark, PageWriter, Slot, XdrBuf};
pub use depot::{BoxedSource, PageDepot, PageSource};
pub use payload::{Kind, Pages, PagesRef, Payload, Private, Shared};
pub use pool::{PagePool, PoolStats, leaked};
pub use span::{Lender, Lent, PageSpan, Span};
pub use taken::RecordPages;

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;

/// One page of memory with exactly one owner.
///
/// A page goes back by [`PagePool::put`]. Dropping one of a slab instead loses it until the process ends; one of the global
/// allocator is freed.
pub struct Page(Memory);

enum Memory {
    /// Cut from a slab of a [`PageSource`].
    Slab(&'static mut [u8; PAGE_SIZE]),
    /// Of the global allocator.
    Heap(Box<[u8; PAGE_SIZE]>),
}

impl Page {
    fn new(mem: &'static mut [u8; PAGE_SIZE]) -> Self {
        Page(Memory::Slab(mem))
    }

    /// A page of the global allocator, for code that has no pool at hand (clients, tests). It is freed wherever it ends,
    /// in a pool too, whose bound is on pages of slabs.
    pub fn heap() -> Self {
        Page(Memory::Heap(Box::new([0; PAGE_SIZE])))
    }

    /// Loses the page on purpose, memory and all: somebody may read it whenever they like.
    pub fn quarantine(self) {
        pool::count_leak();
        std::mem::forget(self);
    }

    #[inline]
    fn is_heap(&self) -> bool {
        matches!(self.0, Memory::Heap(_))
    }
}

impl std::ops::Deref for Page {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Slab(m) => &m[..],
            Memory::Heap(m) => &m[..],
        }
    }
}

impl std::ops::DerefMut for Page {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Slab(m) => &mut m[..],
            Memory::Heap(m) => &mut m[..],
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
        if !self.is_heap() {
            pool::count_leak();
        }
    }
}

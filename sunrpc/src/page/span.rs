//! Pieces of a reply: parts of pages, and bytes that somebody else keeps.

use super::{PAGE_SIZE, Page, PagePool};
use std::io::IoSliceMut;

/// The used part of a page.
#[derive(Debug)]
pub struct PageSpan {
    page: Page,
    start: u16,
    end: u16,
}

impl PageSpan {
    /// The bytes `start..end` of `page`; both are clamped to the page.
    pub fn new(page: Page, start: usize, end: usize) -> Self {
        let end = end.min(PAGE_SIZE);
        // PAGE_SIZE fits in u16.
        PageSpan { page, start: start.min(end) as u16, end: end as u16 }
    }

    /// Bytes in use.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// True without bytes in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Room behind the used bytes.
    #[inline]
    pub fn room(&self) -> usize {
        PAGE_SIZE - usize::from(self.end)
    }

    /// Offset in the page of the first byte behind the used ones.
    #[inline]
    pub fn end(&self) -> usize {
        usize::from(self.end)
    }

    /// The bytes in use.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.page.get(usize::from(self.start)..usize::from(self.end)).unwrap_or(&[])
    }

    /// The bytes in use, for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.page.get_mut(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }

    /// The whole page, for writing.
    #[inline]
    pub fn page_mut(&mut self) -> &mut [u8] {
        &mut self.page
    }

    /// Moves the end of the used part; clamped to start and page.
    #[inline]
    pub fn set_end(&mut self, end: usize) {
        self.end = end.clamp(usize::from(self.start), PAGE_SIZE) as u16;
    }

    /// Drops up to `n` bytes from the front; how many.
    pub fn advance(&mut self, n: usize) -> usize {
        let n = n.min(self.len());
        self.start += n as u16;
        n
    }

    /// The page itself.
    pub fn into_page(self) -> Page {
        self.page
    }
}

/// Keeps bytes for replies that are not in pages of the pool: page-cache pages in a pipe, say. Others may change such
/// bytes until they are sent.
///
/// A lender is known by reference for the life of the process; what it lends, by a number that means something to it
/// alone. So the core holds no descriptor.
pub trait Lender: Sync {
    /// What kind of lender this is; a transport that knows the kind sends the bytes without copying them.
    fn class(&self) -> &'static str;

    /// Copies what is left of a loan into `bufs`, which have exactly its length, and leaves the loan as it is. False if
    /// that cannot be done.
    fn copy_to(&self, id: u64, bufs: &mut [IoSliceMut<'_>]) -> bool;

    /// Ends a loan, whether or not all of it was used.
    fn release(&self, id: u64);
}

/// A loan. It ends when this is dropped.
pub struct Lent {
    lender: &'static dyn Lender,
    id: u64,
    len: usize,
}

impl Lent {
    /// `len` bytes that `lender` keeps under `id`.
    pub fn new(lender: &'static dyn Lender, id: u64, len: usize) -> Self {
        Lent { lender, id, len }
    }

    /// The kind of its lender.
    pub fn class(&self) -> &'static str {
        self.lender.class()
    }

    /// Its name at the lender.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Bytes left.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Notes that the lender gave out up to `n` bytes; how many were left to give.
    pub fn advance(&mut self, n: usize) -> usize {
        let n = n.min(self.len);
        self.len -= n;
        n
    }

    /// Copies what is left into pages of `pool`; `None` if there are not enough of them, or the lender cannot.
    pub fn to_pages(&self, pool: &mut PagePool) -> Option<Vec<PageSpan>> {
        let n = self.len.div_ceil(PAGE_SIZE);
        if !pool.ensure(n) {
            return None;
        }
        let mut spans = Vec::with_capacity(n);
        let mut left = self.len;
        while left > 0 {
            let k = left.min(PAGE_SIZE);
            spans.push(PageSpan::new(pool.take()?, 0, k));
            left -= k;
        }
        let mut bufs: Vec<_> = spans.iter_mut().map(|s| IoSliceMut::new(s.as_mut_slice())).collect();
        let ok = self.lender.copy_to(self.id, &mut bufs);
        drop(bufs);
        if ok {
            return Some(spans);
        }
        spans.into_iter().for_each(|s| pool.put(s.into_page()));
        None
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lender.release(self.id);
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({} {:#x}, {} bytes)", self.class(), self.id, self.len)
    }
}

/// A piece of a reply.
#[derive(Debug)]
pub enum Span {
    /// In a page that only this reply uses.
    Page(PageSpan),
    /// Kept by somebody else.
    Lent(Lent),
}

impl Span {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Span::Page(s) => s.len(),
            Span::Lent(l) => l.len(),
        }
    }

    /// True without bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that can be appended in place.
    #[inline]
    pub fn room(&self) -> usize {
        match self {
            Span::Page(s) => s.room(),
            Span::Lent(_) => 0,
        }
    }

    /// The piece, if it lies in a page.
    #[inline]
    pub fn page(&self) -> Option<&PageSpan> {
        match self {
            Span::Page(s) => Some(s),
            Span::Lent(_) => None,
        }
    }

    /// The piece, if it lies in a page.
    #[inline]
    pub fn page_mut(&mut self) -> Option<&mut PageSpan> {
        match self {
            Span::Page(s) => Some(s),
            Span::Lent(_) => None,
        }
    }

    /// Gives the page back, or ends the loan.
    #[inline]
    pub fn recycle(self, pool: &mut PagePool) {
        match self {
            Span::Page(s) => pool.put(s.into_page()),
            Span::Lent(_) => {}
        }
    }
}

impl From<PageSpan> for Span {
    fn from(s: PageSpan) -> Self {
        Span::Page(s)
    }
}

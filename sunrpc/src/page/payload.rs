//! Bulk data in pages.

use super::taken::Return;
use super::{Lent, Page, PagePool, PageSpan, Span};
use crate::xdr::{Decode, Decoder, Encode, XdrError, XdrWrite};
use std::io::IoSlice;

/// The bulk opaque of a call (the data of a WRITE) where it lies: first bytes behind the header, the rest in pages.
#[derive(Debug, Clone, Copy)]
pub struct PagesRef<'a> {
    head: &'a [u8],
    spans: &'a [PageSpan],
    len: usize,
}

impl<'a> PagesRef<'a> {
    /// A payload that lies in one piece.
    pub fn from_slice(s: &'a [u8]) -> Self {
        PagesRef { head: s, spans: &[], len: s.len() }
    }

    pub(crate) fn new(head: &'a [u8], spans: &'a [PageSpan], len: usize) -> Self {
        PagesRef { head, spans, len }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order; together exactly [`len`](Self::len) bytes.
    pub fn slices(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.len;
        // The head may hold none of it, and is passed over; what is behind the last byte ends the list.
        let pieces = std::iter::once(self.head).chain(self.spans.iter().map(PageSpan::as_slice));
        pieces.filter(|s| !s.is_empty()).map_while(move |s| {
            let n = s.len().min(left);
            left -= n;
            s.get(..n).filter(|s| !s.is_empty())
        })
    }

    /// Adds the pieces to a gather list, at most `N` of them; what does not fit is left out. The list is the caller's
    /// because it is long: to return it would copy it.
    pub fn io_slices<const N: usize>(&self, list: &mut smallvec::SmallVec<[IoSlice<'a>; N]>) {
        list.extend(self.slices().take(N).map(IoSlice::new));
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(self.len);
        self.slices().for_each(|s| v.extend_from_slice(s));
        v
    }
}

impl PartialEq for PagesRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.slices().flatten().eq(other.slices().flatten())
    }
}

impl Encode for PagesRef<'_> {
    /// Length, bytes, padding.
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        w.put_count(self.len, u32::MAX)?;
        self.slices().try_for_each(|s| w.put(s))?;
        w.put_padding(self.len)
    }
}

/// What may happen to the bytes of a [`Payload`] while it is sent.
pub trait Kind: sealed::Sealed {
    /// What it consists of.
    type Piece: std::fmt::Debug;

    /// The pieces that are pages of a record go home.
    #[doc(hidden)]
    fn pages(pieces: Vec<Self::Piece>) -> Vec<PageSpan>;
}

/// Only this reply uses the bytes: they are in pages of its own.
#[derive(Debug, Clone, Copy)]
pub enum Private {}

/// Somebody else may change the bytes until they are sent: page-cache pages, mapped files.
#[derive(Debug, Clone, Copy)]
pub enum Shared {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Private {}
    impl Sealed for super::Shared {}
}

impl Kind for Private {
    type Piece = PageSpan;

    fn pages(pieces: Vec<PageSpan>) -> Vec<PageSpan> {
        pieces
    }
}

impl Kind for Shared {
    type Piece = Span;

    fn pages(pieces: Vec<Span>) -> Vec<PageSpan> {
        let page = |s| if let Span::Page(s) = s { Some(s) } else { None };
        pieces.into_iter().filter_map(page).collect()
    }
}

/// Bulk data on its way into a reply.
///
/// A flavor that signs or encrypts replies does so for `Payload<Private>` alone: of bytes that may change between the
/// signature and the wire, it would sign something else than it sends.
///
/// ```compile_fail,E0308
/// use sunrpc::page::{PagePool, Payload, Private, Shared};
/// fn protect(_: &mut Payload<Private>) {}
/// let mut spliced = Payload::<Shared>::default();
/// protect(&mut spliced);
/// ```
///
/// [`make_private`](Payload::make_private) is the one bridge, a counted copy:
///
/// ```
/// use sunrpc::page::{PagePool, Payload, Private, Shared};
/// fn protect(_: &mut Payload<Private>) {}
/// let mut pool = PagePool::standalone();
/// let spliced = Payload::<Shared>::default();
/// protect(&mut spliced.make_private(&mut pool).unwrap());
/// ```
#[derive(Debug)]
pub struct Payload<K: Kind> {
    spans: Vec<K::Piece>,
    len: usize,
    /// Of pages that an argument took from its record, should they be dropped.
    home: Option<Return>,
}

impl<K: Kind> Drop for Payload<K> {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.give(K::pages(std::mem::take(&mut self.spans)));
        }
    }
}

/// Owned bulk data: the type of a field marked `pages` in the .x file. It moves into a reply without a copy.
pub type Pages = Payload<Private>;

impl<K: Kind> Default for Payload<K> {
    fn default() -> Self {
        Payload { spans: Vec::new(), len: 0, home: None }
    }
}

impl<K: Kind> Payload<K> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces, to be moved elsewhere.
    pub fn into_spans(mut self) -> Vec<K::Piece> {
        std::mem::take(&mut self.spans)
    }
}

impl From<Lent> for Payload<Shared> {
    fn from(l: Lent) -> Self {
        let len = l.len();
        Payload { spans: vec![Span::Lent(l)], len, home: None }
    }
}

impl From<Payload<Private>> for Payload<Shared> {
    fn from(p: Payload<Private>) -> Self {
        let (len, spans) = (p.len, p.into_spans());
        Payload { spans: spans.into_iter().map(Span::Page).collect(), len, home: None }
    }
}

impl Payload<Shared> {
    pub(super) fn from_pieces(spans: Vec<Span>) -> Self {
        let len = spans.iter().map(Span::len).sum();
        Payload { spans, len, home: None }
    }

    /// The same bytes in pages that only this reply uses: what is lent is copied, and counted in
    /// [`PoolStats::made_private`](super::PoolStats::made_private). `None`, and all pages back in `pool`, if there are
    /// not enough pages.
    pub fn make_private(self, pool: &mut PagePool) -> Option<Payload<Private>> {
        let mut spans = Vec::with_capacity(self.spans.len());
        let (len, mut failed) = (self.len, false);
        for s in self.into_spans() {
            match s {
                s if failed => s.recycle(pool),
                Span::Page(s) => spans.push(s),
                Span::Lent(l) => match l.to_pages(pool) {
                    Some(pages) => {
                        pool.count_made_private(l.len());
                        spans.extend(pages);
                    }
                    None => failed = true,
                },
            }
        }
        if failed {
            spans.into_iter().for_each(|s| pool.put(s.into_page()));
            return None;
        }
        Some(Payload { spans, len, home: None })
    }

    /// A copy in pages of its own, which leaves these as they are.
    pub(crate) fn copy_private(&self, pool: &mut PagePool) -> Option<Payload<Private>> {
        let mut bytes = Vec::with_capacity(self.len);
        for s in &self.spans {
            match s {
                Span::Page(s) => bytes.extend_from_slice(s.as_slice()),
                Span::Lent(l) => {
                    let pages = l.to_pages(pool)?;
                    pages.iter().for_each(|s| bytes.extend_from_slice(s.as_slice()));
                    pages.into_iter().for_each(|s| pool.put(s.into_page()));
                }
            }
        }
        Some(Pages::copy_from(&bytes))
    }

    /// Gives the pages to a pool and ends the loans.
    pub fn recycle(self, pool: &mut PagePool) {
        self.into_spans().into_iter().for_each(|s| s.recycle(pool));
    }
}

impl Pages {
    /// Takes over the spans.
    pub fn from_spans(spans: Vec<PageSpan>) -> Self {
        let len = spans.iter().map(PageSpan::len).sum();
        Pages { spans, len, home: None }
    }

    /// Those of a record, with the way home.
    pub(super) fn of_record(spans: Vec<PageSpan>, home: Return) -> Self {
        let mut p = Pages::from_spans(spans);
        p.home = Some(home);
        p
    }

    /// Copies `bytes` into pages of the global allocator.
    pub fn copy_from(bytes: &[u8]) -> Self {
        Self::copy_slices(std::iter::once(bytes))
    }

    fn copy_slices<'s>(slices: impl Iterator<Item = &'s [u8]>) -> Self {
        let mut spans: Vec<PageSpan> = Vec::new();
        for mut s in slices {
            while !s.is_empty() {
                if spans.last().is_none_or(|l| l.room() == 0) {
                    spans.push(PageSpan::new(Page::heap(), 0, 0));
                }
                let Some(last) = spans.last_mut() else { break };
                let at = last.end();
                let n = s.len().min(last.room());
                let (now, later) = s.split_at(n);
                if let Some(dst) = last.page_mut().get_mut(at..at + n) {
                    dst.copy_from_slice(now);
                }
                last.set_end(at + n);
                s = later;
            }
        }
        Pages::from_spans(spans)
    }

    /// Reads length, bytes and padding; at most `max` bytes. Pages of a record that a server received move, if nothing
    /// borrowed them before; everything else is copied.
    pub fn decode_max(d: &mut Decoder<'_>, max: u32) -> Result<Self, XdrError> {
        if let Some(pages) = d.take_payload(max) {
            return Ok(pages);
        }
        d.payload(max).map(|p| Self::copy_slices(p.slices()))
    }

    /// The pieces in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(PageSpan::as_slice)
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices().flatten().copied().collect()
    }

    /// Gives the pages to a pool.
    pub fn recycle(self, pool: &mut PagePool) {
        self.into_spans().into_iter().for_each(|s| pool.put(s.into_page()));
    }
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        Self::copy_slices(self.slices())
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.slices().flatten().eq(other.slices().flatten())
    }
}

impl Eq for Pages {}

impl From<&[u8]> for Pages {
    fn from(b: &[u8]) -> Self {
        Pages::copy_from(b)
    }
}

impl Encode for Pages {
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        w.put_count(self.len, u32::MAX)?;
        self.slices().try_for_each(|s| w.put(s))?;
        w.put_padding(self.len)
    }

    fn encode_owned<W: XdrWrite>(self, w: &mut W) -> Result<(), XdrError> {
        w.put_count(self.len, u32::MAX)?;
        w.put_pages(self)
    }
}

impl<'a> Decode<'a> for Pages {
    const MIN_SIZE: usize = 4;
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Pages::decode_max(d, u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the pieces in a gather list.
    fn sizes(p: &PagesRef<'_>) -> Vec<usize> {
        let mut list: smallvec::SmallVec<[IoSlice<'_>; 8]> = smallvec::SmallVec::new();
        p.io_slices(&mut list);
        list.iter().map(|s| s.len()).collect()
    }

    #[test]
    fn payload_across_head_and_pages() {
        let data: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
        let mut head = 9000u32.to_be_bytes().to_vec();
        head.extend_from_slice(&data[..100]);
        let pages = Pages::copy_from(&data[100..]).into_spans();
        let mut d = Decoder::with_pages(&head, &pages);
        assert_eq!(d.remaining(), 9004);
        let p = d.payload(10_000).unwrap();
        d.finish().unwrap();
        assert_eq!(p.to_vec(), data);
        assert_eq!(sizes(&p).iter().sum::<usize>(), 9000);
        // Anything but the payload has to be contiguous.
        let mut d = Decoder::with_pages(&head[..2], &pages);
        assert_eq!(d.u32(), Err(XdrError::Split));
    }

    #[test]
    fn payload_may_begin_with_the_pages() {
        let data: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
        let head = 9000u32.to_be_bytes();
        let pages = Pages::copy_from(&data).into_spans();
        let mut d = Decoder::with_pages(&head, &pages);
        let p = d.payload(10_000).unwrap();
        d.finish().unwrap();
        assert_eq!(p.to_vec(), data);
        assert_eq!(sizes(&p).len(), 3);
    }

    #[test]
    fn padding_may_lie_in_the_pages() {
        let mut head = 5u32.to_be_bytes().to_vec();
        head.extend_from_slice(b"abc");
        let spans = Pages::copy_from(b"de\0\0\0").into_spans();
        let mut d = Decoder::with_pages(&head, &spans);
        assert_eq!(d.payload(5).unwrap().to_vec(), b"abcde");
        d.finish().unwrap();
    }
}

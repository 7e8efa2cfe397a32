//! The reply under construction.

use super::{PAGE_SIZE, PagePool, PageSpan, Pages, Payload, Shared, Span};
use crate::xdr::{XdrError, XdrWrite, pad};
use smallvec::SmallVec;
use std::io::IoSliceMut;

/// A chain of spans: one reply, or the replies of one turn in a row.
#[derive(Debug, Default)]
pub struct XdrBuf {
    spans: Vec<Span>,
    len: usize,
}

/// A position in an [`XdrBuf`] to which it can be cut back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    spans: usize,
    end: usize,
    len: usize,
}

/// A contiguous stretch that was reserved and will be filled in later.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    span: usize,
    at: usize,
    len: usize,
}

impl XdrBuf {
    /// An empty buffer.
    pub const fn new() -> Self {
        XdrBuf { spans: Vec::new(), len: 0 }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The spans in order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Where the buffer ends now.
    #[inline]
    pub fn mark(&self) -> Mark {
        let end = self.spans.last().and_then(Span::page).map_or(0, PageSpan::end);
        Mark { spans: self.spans.len(), end, len: self.len }
    }

    /// Cuts back to `mark`, giving freed pages to `pool`.
    pub fn truncate(&mut self, mark: Mark, pool: &mut PagePool) {
        for s in self.spans.drain(mark.spans.min(self.spans.len())..) {
            s.recycle(pool);
        }
        if let Some(last) = self.last_page() {
            last.set_end(mark.end);
        }
        self.len = mark.len;
    }

    /// The page that the buffer ends in.
    #[inline]
    fn last_page(&mut self) -> Option<&mut PageSpan> {
        self.spans.last_mut().and_then(Span::page_mut)
    }

    /// Bytes that can be appended without another page.
    #[inline]
    fn last_room(&self) -> usize {
        self.spans.last().map_or(0, Span::room)
    }

    /// Takes out what lies behind `mark`, which must be where a piece begins (as after
    /// [`PageWriter::begin_page`]).
    fn split_off(&mut self, mark: Mark) -> Payload<Shared> {
        let tail = self.spans.split_off(mark.spans.min(self.spans.len()));
        self.len = mark.len;
        Payload::from_pieces(tail)
    }

    /// The bytes of a reserved stretch.
    #[inline]
    pub fn slot_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.spans
            .get_mut(slot.span)
            .and_then(Span::page_mut)
            .and_then(|s| s.page_mut().get_mut(slot.at..slot.at + slot.len))
            .unwrap_or_default()
    }

    /// Copies what lies in pages behind the first `from` bytes into `to`.
    pub fn copy_tail<const N: usize>(&self, from: usize, to: &mut SmallVec<[u8; N]>) {
        let mut skip = from;
        for s in self.spans.iter().filter_map(Span::page) {
            let bytes = s.as_slice();
            match bytes.get(skip..) {
                Some(b) => {
                    to.extend_from_slice(b);
                    skip = 0;
                }
                None => skip -= bytes.len(),
            }
        }
    }

    /// Takes the spans out, leaving the buffer empty (its allocation stays).
    pub fn drain(&mut self) -> impl Iterator<Item = Span> + '_ {
        self.len = 0;
        self.spans.drain(..)
    }

    /// Appends the spans of another buffer.
    pub fn append(&mut self, other: &mut XdrBuf) {
        self.len += other.len;
        other.len = 0;
        self.spans.append(&mut other.spans);
    }

    /// Gives all pages to `pool` and ends all loans.
    pub fn recycle(&mut self, pool: &mut PagePool) {
        self.drain().for_each(|s| s.recycle(pool));
    }

    /// A copy in one piece of what lies in pages.
    pub fn to_vec(&self) -> Vec<u8> {
        self.spans.iter().filter_map(Span::page).flat_map(|s| s.as_slice()).copied().collect()
    }
}

/// Appends to an [`XdrBuf`] with pages of a pool, up to a limit.
#[derive(Debug)]
pub struct PageWriter<'a> {
    buf: &'a mut XdrBuf,
    pool: &'a mut PagePool,
    /// Value of `buf.len` that must not be exceeded.
    limit: usize,
}

impl<'a> PageWriter<'a> {
    /// A writer that appends at most `limit` bytes to `buf`.
    #[inline]
    pub fn new(buf: &'a mut XdrBuf, pool: &'a mut PagePool, limit: usize) -> Self {
        let limit = buf.len.saturating_add(limit);
        PageWriter { buf, pool, limit }
    }

    /// Bytes that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit - self.buf.len
    }

    /// Where the output stands.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.buf.mark()
    }

    /// Cuts back to `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.buf.truncate(mark, self.pool);
    }

    /// Goes on at the start of a page, so that what follows can be taken out again by itself.
    pub(crate) fn begin_page(&mut self) -> Result<Mark, XdrError> {
        let mark = self.mark();
        self.next_page()?;
        Ok(mark)
    }

    /// Takes out what was written since [`begin_page`](Self::begin_page).
    pub(crate) fn split_off(&mut self, begin: Mark) -> Payload<Shared> {
        self.buf.split_off(begin)
    }

    /// Copies what lies in pages behind the first `from` bytes of the buffer into `to`.
    pub(crate) fn copy_tail<const N: usize>(&self, from: usize, to: &mut SmallVec<[u8; N]>) {
        self.buf.copy_tail(from, to);
    }

    /// Appends bulk data that may lie with a lender, without padding.
    pub fn put_shared(&mut self, payload: Payload<Shared>) -> Result<(), XdrError> {
        let len = payload.len();
        if len > self.room() {
            payload.recycle(self.pool);
            return Err(XdrError::Full);
        }
        self.pool.count_lent(len);
        self.buf.spans.extend(payload.into_spans());
        self.buf.len += len;
        Ok(())
    }

    /// The pool that pages come from.
    pub fn pool(&mut self) -> &mut PagePool {
        self.pool
    }

    #[cold]
    fn next_page(&mut self) -> Result<(), XdrError> {
        let page = self.pool.take().ok_or(XdrError::Full)?;
        self.buf.spans.push(PageSpan::new(page, 0, 0).into());
        Ok(())
    }

    /// Appends `N` contiguous bytes and returns them for filling; the fast way for fixed-size structures. May leave
    /// the tail of a page unused.
    #[inline]
    pub fn chunk<const N: usize>(&mut self) -> Result<&mut [u8; N], XdrError> {
        if N > self.room() || N > PAGE_SIZE {
            return Err(XdrError::Full);
        }
        if self.buf.last_room() < N {
            self.next_page()?;
        }
        self.buf.len += N;
        let last = self.buf.last_page().ok_or(XdrError::Full)?;
        let at = last.end();
        last.set_end(at + N);
        last.page_mut().get_mut(at..).and_then(|s| s.first_chunk_mut::<N>()).ok_or(XdrError::Full)
    }

    /// Reserves `len` contiguous bytes (at most a page) to be filled by [`slot_mut`](Self::slot_mut) when their
    /// value is known. They hold stale bytes until then.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Slot, XdrError> {
        if len > self.room() || len > PAGE_SIZE {
            return Err(XdrError::Full);
        }
        if self.buf.last_room() < len {
            self.next_page()?;
        }
        let span = self.buf.spans.len() - 1;
        let last = self.buf.last_page().ok_or(XdrError::Full)?;
        let at = last.end();
        last.set_end(at + len);
        self.buf.len += len;
        Ok(Slot { span, at, len })
    }

    /// The bytes of a reserved stretch.
    #[inline]
    pub fn slot_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.buf.slot_mut(slot)
    }

    /// Lends space for up to `len` bytes of bulk data to `fill` (a read from a file), which returns how many it
    /// placed, and appends that many, without padding. The buffers together have exactly `len` bytes.
    pub fn payload<E: From<XdrError>, T>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<(usize, T), E>,
    ) -> Result<(usize, T), E> {
        if len > self.room() {
            return Err(XdrError::Full.into());
        }
        let start = self.buf.mark();
        let first_room = self.buf.last_room();
        let first = self.buf.spans.len() - usize::from(first_room > 0);
        let mut have = first_room;
        while have < len {
            self.next_page()?;
            have += PAGE_SIZE;
        }
        let mut iov: SmallVec<[IoSliceMut<'_>; 260]> = SmallVec::new();
        let mut left = len;
        for s in self.buf.spans.get_mut(first..).unwrap_or_default().iter_mut().filter_map(Span::page_mut) {
            let at = s.end();
            let n = left.min(s.room());
            left -= n;
            if let Some(b) = s.page_mut().get_mut(at..at + n) {
                iov.push(IoSliceMut::new(b));
            }
        }
        let r = fill(&mut iov);
        drop(iov);
        let got = match &r {
            Ok((n, _)) => (*n).min(len),
            Err(_) => 0,
        };
        let mut left = got;
        for s in self.buf.spans.get_mut(first..).unwrap_or_default().iter_mut().filter_map(Span::page_mut) {
            let n = left.min(s.room());
            s.set_end(s.end() + n);
            left -= n;
        }
        self.buf.len = start.len + got;
        self.pool.count_payload(got);
        // Pages that the data did not reach.
        while self.buf.spans.len() > start.spans && self.buf.spans.last().is_some_and(Span::is_empty) {
            if let Some(s) = self.buf.spans.pop() {
                s.recycle(self.pool);
            }
        }
        r
    }
}

impl XdrWrite for PageWriter<'_> {
    #[inline]
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), XdrError> {
        if bytes.len() > self.room() {
            return Err(XdrError::Full);
        }
        loop {
            if let Some(last) = self.buf.last_page() {
                let at = last.end();
                let n = bytes.len().min(last.room());
                if n > 0 || bytes.is_empty() {
                    let (now, later) = bytes.split_at(n);
                    if let Some(dst) = last.page_mut().get_mut(at..at + n) {
                        dst.copy_from_slice(now);
                    }
                    last.set_end(at + n);
                    self.buf.len += n;
                    bytes = later;
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
            self.next_page()?;
        }
    }

    #[inline]
    fn put_u32(&mut self, v: u32) -> Result<(), XdrError> {
        if self.room() >= 4
            && let Some(last) = self.buf.last_page()
        {
            let at = last.end();
            if let Some(dst) = last.page_mut().get_mut(at..).and_then(|s| s.first_chunk_mut::<4>()) {
                *dst = v.to_be_bytes();
                last.set_end(at + 4);
                self.buf.len += 4;
                return Ok(());
            }
        }
        self.put(&v.to_be_bytes())
    }

    fn written(&self) -> usize {
        self.buf.len
    }

    fn put_pages(&mut self, pages: Pages) -> Result<(), XdrError> {
        let len = pages.len();
        if len + pad(len) > self.room() {
            pages.recycle(self.pool);
            return Err(XdrError::Full);
        }
        for s in pages.into_spans() {
            self.buf.spans.push(s.into());
        }
        self.buf.len += len;
        self.put_padding(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(w: &mut PageWriter<'_>, len: usize, got: usize) -> usize {
        let r: Result<(usize, ()), XdrError> = w.payload(len, |iov| {
            assert_eq!(iov.iter().map(|s| s.len()).sum::<usize>(), len);
            iov.iter_mut().for_each(|s| s.fill(7));
            Ok((got, ()))
        });
        r.unwrap().0
    }

    #[test]
    fn bytes_cross_pages() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        let data: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
        let mut w = PageWriter::new(&mut buf, &mut pool, 20_000);
        w.put(&data[..4094]).unwrap();
        w.put_u32(0xdead_beef).unwrap();
        w.put(&data[4094..]).unwrap();
        let got = buf.to_vec();
        assert_eq!(got.len(), buf.len());
        assert_eq!(&got[..4094], &data[..4094]);
        assert_eq!(&got[4094..4098], &[0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(&got[4098..], &data[4094..]);
        buf.recycle(&mut pool);
        assert_eq!(pool.stats().taken, pool.stats().returned);
    }

    #[test]
    fn limit_counts_from_the_start_of_the_writer() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        PageWriter::new(&mut buf, &mut pool, 8).put(&[1; 8]).unwrap();
        let mut w = PageWriter::new(&mut buf, &mut pool, 8);
        w.put_u64(1).unwrap();
        assert_eq!(w.put_u32(1), Err(XdrError::Full));
        assert!(w.chunk::<4>().is_err() && w.reserve(4).is_err());
        buf.recycle(&mut pool);
    }

    #[test]
    fn rewind_frees_pages_and_restores_bytes() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        let mut w = PageWriter::new(&mut buf, &mut pool, 100_000);
        w.put(b"abcd").unwrap();
        let m = w.mark();
        w.put(&[9; 50_000]).unwrap();
        w.rewind(m);
        w.put(b"efgh").unwrap();
        assert_eq!(buf.to_vec(), b"abcdefgh");
        assert_eq!(buf.spans().len(), 1);
        buf.recycle(&mut pool);
        assert_eq!(pool.stats().taken, pool.stats().returned);
    }

    #[test]
    fn short_payload_gives_back_what_it_did_not_reach() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        let mut w = PageWriter::new(&mut buf, &mut pool, 2 << 20);
        w.put(&[1; 100]).unwrap();
        assert_eq!(payload(&mut w, 1 << 20, 5000), 5000);
        w.put_u32(5).unwrap();
        let v = buf.to_vec();
        assert_eq!(v.len(), 5104);
        assert!(v[100..5100].iter().all(|b| *b == 7));
        assert_eq!(buf.spans().len(), 2);
        // Nothing read at all.
        let mut w = PageWriter::new(&mut buf, &mut pool, 2 << 20);
        assert_eq!(payload(&mut w, 8192, 0), 0);
        assert_eq!(payload(&mut w, 0, 0), 0);
        assert_eq!(buf.len(), 5104);
        buf.recycle(&mut pool);
        assert_eq!(pool.stats().taken, pool.stats().returned);
    }

    #[test]
    fn failed_payload_leaves_the_buffer_as_it_was() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        let mut w = PageWriter::new(&mut buf, &mut pool, 1 << 20);
        w.put(b"head").unwrap();
        let r: Result<(usize, ()), XdrError> = w.payload(9000, |_| Err(XdrError::TooDeep));
        assert_eq!(r, Err(XdrError::TooDeep));
        assert_eq!(buf.to_vec(), b"head");
        buf.recycle(&mut pool);
    }

    #[test]
    fn slots_are_contiguous() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        let mut w = PageWriter::new(&mut buf, &mut pool, 20_000);
        w.put(&[0; 4090]).unwrap();
        let s = w.reserve(12).unwrap();
        w.put(b"tail").unwrap();
        w.slot_mut(s).copy_from_slice(b"twelve bytes");
        let v = buf.to_vec();
        assert_eq!(&v[4090..], b"twelve bytestail");
        buf.recycle(&mut pool);
    }

    #[test]
    fn moved_pages_are_not_copied() {
        let mut pool = PagePool::standalone();
        let mut buf = XdrBuf::new();
        let pages = Pages::copy_from(&[3; 5001]);
        let addr = pages.slices().next().map(|s| s.as_ptr());
        let mut w = PageWriter::new(&mut buf, &mut pool, 20_000);
        w.put_u32(5001).unwrap();
        w.put_pages(pages).unwrap();
        assert_eq!(buf.len(), 5008);
        assert_eq!(buf.spans().get(1).and_then(Span::page).map(|s| s.as_slice().as_ptr()), addr);
        assert_eq!(buf.to_vec().len(), 5008);
        buf.recycle(&mut pool);
    }
}

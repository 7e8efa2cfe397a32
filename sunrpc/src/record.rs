//! Record marking on streams (RFC 5531 section 11) as a state machine over bytes.
//!
//! A record that arrives whole in one fragment within one read is never copied: it is handed out as a slice of the
//! receive buffer. Any other record is *collected*: its first [`HEAD_MAX`] bytes in one piece, the rest in pool
//! pages. Memory follows the bytes that arrive, never the length that is claimed.
//!
//! Who knows what a record means may tell, from its first bytes, where [`Bulk`] data begins. That is where the head then
//! ends, and the data starts where in a page it is wanted, so that it can go to a device as it lies.

use crate::mutate;
use crate::page::{PAGE_SIZE, PagePool, PageSpan};
use smallvec::SmallVec;
use std::io::IoSliceMut;

/// Bytes of a collected record that are kept contiguous; headers and arguments of every procedure without bulk data
/// fit.
pub const HEAD_MAX: usize = 4096;

/// Pieces of a scattered read: a record of 1 MiB and more with a page at each end, and the tail.
const IOV: usize = (1 << 20) / PAGE_SIZE + 4;

/// Top bit of a record mark: last fragment.
pub const LAST_FRAGMENT: u32 = 0x8000_0000;

/// Bounds of what a peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLimits {
    /// Bytes in a record.
    pub max_record: usize,
    /// Fragments in a record.
    pub max_fragments: u32,
}

impl Default for RecordLimits {
    /// 1 MiB of payload and a header; 256 fragments.
    fn default() -> Self {
        RecordLimits { max_record: (1 << 20) + HEAD_MAX, max_fragments: 256 }
    }
}

/// Why a stream cannot be continued. There is no way to resynchronise, so the connection closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// More bytes than permitted, claimed or real.
    #[error("record of {0} bytes or more exceeds the limit")]
    TooLarge(usize),
    /// More fragments than permitted.
    #[error("record has too many fragments")]
    TooManyFragments,
    /// Too short to carry a transaction id and a direction.
    #[error("record of {0} bytes is too short for an RPC message")]
    TooShort(usize),
    /// The page pool is exhausted.
    #[error("no page to receive into")]
    NoPages,
}

/// Where the bulk data of a record begins, and where in a page it is wanted. A hint: any value gives the same record, in
/// other pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulk {
    /// Offset in the record of the first byte.
    pub at: usize,
    /// Offset in a page where that byte is to lie, modulo [`PAGE_SIZE`].
    pub lead: usize,
}

/// What [`RecordReader::read_direct`] received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direct {
    /// Bytes in all; 0 at the end of the stream.
    pub bytes: usize,
    /// Bytes that lie in the tail buffer: those behind the open fragment.
    pub tail: usize,
    /// Every byte that was asked for: there may be more.
    pub full: bool,
    /// The record is complete.
    pub done: bool,
}

/// A complete record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its first bytes, in one piece; all of them if `spans` is empty.
    pub head: &'a [u8],
    /// The rest.
    pub spans: &'a [PageSpan],
}

/// What [`RecordReader::next`] found.
#[derive(Debug)]
pub enum Next<'a> {
    /// A record that lies in the input; it has been consumed.
    Whole(&'a [u8]),
    /// A collected record is complete; get it by [`RecordReader::collected`], then call
    /// [`RecordReader::recycle`].
    Collected,
    /// All input was consumed.
    More,
}

/// The receive side of one stream. Idle, it owns no memory.
#[derive(Debug, Default)]
pub struct RecordReader {
    limits: RecordLimits,
    mark: [u8; 4],
    mark_have: u8,
    /// Bytes of the current fragment still to come.
    left: usize,
    last: bool,
    fragments: u32,
    /// A mark was read and the record is being collected.
    open: bool,
    total: usize,
    head: Vec<u8>,
    /// The head is complete: what follows goes to pages.
    split: bool,
    spans: Vec<PageSpan>,
}

impl RecordReader {
    /// A reader at the start of a stream.
    pub fn new(limits: RecordLimits) -> Self {
        RecordReader { limits, ..Default::default() }
    }

    /// Takes the next record from the front of `input`, or consumes all of it.
    pub fn next<'i>(&mut self, input: &mut &'i [u8], pool: &mut PagePool) -> Result<Next<'i>, RecordError> {
        self.next_placed(input, pool, |_| None)
    }

    /// The same; `place` gets the first [`HEAD_MAX`] bytes of a record that is collected and longer, and may tell where
    /// its bulk data is.
    pub fn next_placed<'i>(
        &mut self,
        input: &mut &'i [u8],
        pool: &mut PagePool,
        mut place: impl FnMut(&[u8]) -> Option<Bulk>,
    ) -> Result<Next<'i>, RecordError> {
        loop {
            if !self.open && self.mark_have == 0 && self.fragments == 0 {
                match whole(input, &self.limits)? {
                    Some(record) => return Ok(Next::Whole(record)),
                    None if input.is_empty() => return Ok(Next::More),
                    None => {}
                }
            }
            if !self.open && !self.take_mark(input)? {
                return Ok(Next::More);
            }
            let n = self.left.min(input.len());
            let (now, later) = input.split_at(n);
            self.collect(now, pool, &mut place)?;
            *input = later;
            if self.left > 0 {
                return Ok(Next::More);
            }
            self.open = false;
            if self.last {
                self.fragments = 0;
                return if self.total < 8 {
                    Err(RecordError::TooShort(self.total))
                } else {
                    Ok(Next::Collected)
                };
            }
        }
    }

    /// Completes the mark in `self.mark` and opens its fragment; false if the input ended first.
    fn take_mark(&mut self, input: &mut &[u8]) -> Result<bool, RecordError> {
        while self.mark_have < 4 {
            let Some((b, rest)) = input.split_first() else { return Ok(false) };
            if let Some(m) = self.mark.get_mut(usize::from(self.mark_have)) {
                *m = *b;
            }
            self.mark_have += 1;
            *input = rest;
        }
        self.mark_have = 0;
        let mark = u32::from_be_bytes(self.mark);
        self.left = (mark & !LAST_FRAGMENT) as usize;
        self.last = mark & LAST_FRAGMENT != 0;
        self.fragments += 1;
        if self.fragments > self.limits.max_fragments && !mutate::on("any-fragments") {
            return Err(RecordError::TooManyFragments);
        }
        if self.left > self.limits.max_record - self.total {
            return Err(RecordError::TooLarge(self.total.saturating_add(self.left)));
        }
        self.open = true;
        Ok(true)
    }

    fn collect(
        &mut self,
        mut bytes: &[u8],
        pool: &mut PagePool,
        place: impl FnOnce(&[u8]) -> Option<Bulk>,
    ) -> Result<(), RecordError> {
        self.left -= bytes.len();
        self.total += bytes.len();
        if !bytes.is_empty() {
            pool.count_copied(bytes.len());
        }
        if !self.split {
            bytes = self.collect_head(bytes, pool, place)?;
        }
        self.append(bytes, pool)
    }

    /// Takes what belongs to the head off the front of `bytes`.
    fn collect_head<'b>(
        &mut self,
        bytes: &'b [u8],
        pool: &mut PagePool,
        place: impl FnOnce(&[u8]) -> Option<Bulk>,
    ) -> Result<&'b [u8], RecordError> {
        if let Some(head) = bytes.get(..HEAD_MAX).filter(|_| self.head.is_empty()) {
            let (now, later) = bytes.split_at(self.cut(place(head), pool)?);
            self.head.extend_from_slice(now);
            return Ok(later);
        }
        let (now, later) = bytes.split_at(bytes.len().min(HEAD_MAX - self.head.len()));
        self.head.extend_from_slice(now);
        if self.head.len() == HEAD_MAX {
            let cut = self.cut(place(&self.head), pool)?;
            let mut head = std::mem::take(&mut self.head);
            let moved = head.len() - cut;
            pool.count_copied(moved);
            self.append(head.get(cut..).unwrap_or_default(), pool)?;
            head.truncate(cut);
            self.head = head;
        }
        Ok(later)
    }

    /// Completes the head; how many bytes it has. With bulk data, the first page for it is in place.
    fn cut(&mut self, bulk: Option<Bulk>, pool: &mut PagePool) -> Result<usize, RecordError> {
        self.split = true;
        let Some(bulk) = bulk.filter(|b| b.at < HEAD_MAX) else { return Ok(HEAD_MAX) };
        let lead = bulk.lead % PAGE_SIZE;
        let page = pool.take().ok_or(RecordError::NoPages)?;
        self.spans.push(PageSpan::new(page, lead, lead));
        Ok(bulk.at)
    }

    fn append(&mut self, mut bytes: &[u8], pool: &mut PagePool) -> Result<(), RecordError> {
        while !bytes.is_empty() {
            if self.spans.last().is_none_or(|s| s.room() == 0) {
                let page = pool.take().ok_or(RecordError::NoPages)?;
                self.spans.push(PageSpan::new(page, 0, 0));
            }
            let Some(span) = self.spans.last_mut() else { break };
            let at = span.end();
            let n = bytes.len().min(span.room());
            let (now, later) = bytes.split_at(n);
            if let Some(dst) = span.page_mut().get_mut(at..at + n) {
                dst.copy_from_slice(now);
            }
            span.set_end(at + n);
            bytes = later;
        }
        Ok(())
    }

    /// Bytes of the open fragment that could be received straight into pages: nonzero once the record's head is complete.
    pub fn direct(&self) -> usize {
        if self.open && self.split { self.left } else { 0 }
    }

    /// Bytes of the open record, as far as its marks have told: those received, and those that its fragment lacks.
    pub fn claimed(&self) -> usize {
        if self.open { self.total + self.left } else { self.total }
    }

    /// True if `input` completes no record, so that [`next`](Self::next) would find none in it.
    pub fn begins_only(&self, input: &[u8]) -> bool {
        !self.mid_record()
            && input
                .split_first_chunk::<4>()
                .is_none_or(|(mark, rest)| (u32::from_be_bytes(*mark) & !LAST_FRAGMENT) as usize > rest.len())
    }

    /// Lends page space for up to `max` bytes of the open fragment to `read`, and behind that, if it holds all that the
    /// fragment lacks, `tail` for what follows. `read` returns how many bytes it placed in all. Pages that it left empty
    /// go back at once: between two calls, a peer holds only what it has filled.
    pub fn read_direct<E: From<RecordError>>(
        &mut self,
        max: usize,
        pool: &mut PagePool,
        tail: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Direct, E> {
        let mut want = self.left.min(max);
        let mut have = self.spans.last().map_or(0, PageSpan::room);
        let first = self.spans.len() - usize::from(have > 0);
        self.spans.reserve(want.saturating_sub(have).div_ceil(PAGE_SIZE));
        while have < want {
            match pool.take() {
                Some(page) => self.spans.push(PageSpan::new(page, 0, 0)),
                None if have == 0 => return Err(RecordError::NoPages.into()),
                // What there is; the rest when others have given pages back.
                None => {
                    want = have;
                    break;
                }
            }
            have += PAGE_SIZE;
        }
        let mut iov: SmallVec<[IoSliceMut<'_>; IOV]> = SmallVec::new();
        let mut left = want;
        for s in self.spans.get_mut(first..).unwrap_or_default() {
            let at = s.end();
            let n = left.min(s.room());
            left -= n;
            if let Some(b) = s.page_mut().get_mut(at..at + n) {
                iov.push(IoSliceMut::new(b));
            }
        }
        let mut asked = want;
        if want == self.left && !tail.is_empty() {
            asked += tail.len();
            iov.push(IoSliceMut::new(tail));
        }
        let r = read(&mut iov);
        drop(iov);
        let bytes = r.as_ref().map_or(0, |n| (*n).min(asked));
        let got = bytes.min(want);
        let mut left = got;
        for s in self.spans.get_mut(first..).unwrap_or_default() {
            let n = left.min(s.room());
            s.set_end(s.end() + n);
            left -= n;
        }
        while self.spans.last().is_some_and(PageSpan::is_empty) {
            if let Some(s) = self.spans.pop() {
                pool.put(s.into_page());
            }
        }
        pool.count_placed(got);
        self.left -= got;
        self.total += got;
        r?;
        let done = self.left == 0 && self.last;
        if self.left == 0 {
            self.open = false;
            if done {
                self.fragments = 0;
            }
        }
        Ok(Direct { bytes, tail: bytes - got, full: bytes == asked, done })
    }

    /// The record that was collected.
    pub fn collected(&self) -> Record<'_> {
        Record { head: &self.head, spans: &self.spans }
    }

    /// Takes the pages of the collected record out for a while.
    pub(crate) fn take_spans(&mut self) -> Vec<PageSpan> {
        std::mem::take(&mut self.spans)
    }

    /// Puts them back, or what is left of them.
    pub(crate) fn put_spans(&mut self, spans: Vec<PageSpan>) {
        self.spans = spans;
    }

    /// Takes the collected record out, to be owned elsewhere.
    pub fn take_collected(&mut self) -> (Vec<u8>, Vec<PageSpan>) {
        self.total = 0;
        self.split = false;
        (std::mem::take(&mut self.head), std::mem::take(&mut self.spans))
    }

    /// Frees a collected record's memory.
    pub fn recycle(&mut self, pool: &mut PagePool) {
        self.total = 0;
        self.split = false;
        self.spans.drain(..).for_each(|s| pool.put(s.into_page()));
        self.head = Vec::new();
        self.spans = Vec::new();
    }

    /// Bytes received so far of the record that is not complete, marks included; `None` between records.
    pub fn partial(&self) -> Option<usize> {
        let marks = 4 * self.fragments as usize + usize::from(self.mark_have);
        self.mid_record().then_some(self.total + marks)
    }

    /// True in the middle of a record.
    pub fn mid_record(&self) -> bool {
        self.open || self.mark_have > 0 || self.fragments > 0
    }
}

/// A record of one fragment that lies completely in the input.
#[inline]
fn whole<'i>(input: &mut &'i [u8], limits: &RecordLimits) -> Result<Option<&'i [u8]>, RecordError> {
    let Some((mark, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let mark = u32::from_be_bytes(*mark);
    let len = (mark & !LAST_FRAGMENT) as usize;
    if len > limits.max_record {
        return Err(RecordError::TooLarge(len));
    }
    if mark & LAST_FRAGMENT == 0 || rest.len() < len {
        return Ok(None);
    }
    if len < 8 {
        return Err(RecordError::TooShort(len));
    }
    let (record, rest) = rest.split_at(len);
    *input = rest;
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{BoxedSource, PageDepot};

    fn mark(len: usize, last: bool) -> [u8; 4] {
        (len as u32 | if last { LAST_FRAGMENT } else { 0 }).to_be_bytes()
    }

    /// Feeds `stream` in pieces of `step` bytes and returns the records found.
    fn run(stream: &[u8], step: usize) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut pool = PagePool::standalone();
        let mut r = RecordReader::new(RecordLimits::default());
        let mut out = Vec::new();
        let mut go = || {
            for piece in stream.chunks(step) {
                let mut input = piece;
                loop {
                    match r.next(&mut input, &mut pool)? {
                        Next::Whole(rec) => out.push(rec.to_vec()),
                        Next::Collected => {
                            let rec = r.collected();
                            let mut v = rec.head.to_vec();
                            rec.spans.iter().for_each(|s| v.extend_from_slice(s.as_slice()));
                            out.push(v);
                            r.recycle(&mut pool);
                        }
                        Next::More => break,
                    }
                }
            }
            Ok(())
        };
        let res = go();
        r.recycle(&mut pool);
        assert_eq!(pool.stats().taken, pool.stats().returned);
        res.map(|()| out)
    }

    #[test]
    fn r1_any_cut_reassembles_exactly_once() {
        let a: Vec<u8> = (0..40).collect();
        let b: Vec<u8> = (0..20_000u32).map(|i| (i % 253) as u8).collect();
        let mut s = Vec::new();
        s.extend(mark(40, true));
        s.extend(&a);
        // b in fragments cut inside the xid, inside an integer, with an empty last one.
        for (from, to) in [(0, 2), (2, 13), (13, 13), (13, 9000), (9000, 20_000)] {
            s.extend(mark(to - from, false));
            s.extend(&b[from..to]);
        }
        s.extend(mark(0, true));
        s.extend(mark(40, true));
        s.extend(&a);
        for step in [1, 2, 3, 5, 7, 44, 64, 1000, 4096, s.len()] {
            assert_eq!(run(&s, step).unwrap(), [a.clone(), b.clone(), a.clone()], "step {step}");
        }
    }

    #[test]
    fn r1_claimed_lengths_are_refused_before_memory_is_taken() {
        assert!(matches!(run(&[0xff; 4], 4), Err(RecordError::TooLarge(_))));
        assert!(matches!(run(&[0xff; 4], 1), Err(RecordError::TooLarge(_))));
        assert!(matches!(run(&mark(0x7fff_ffff, false), 4), Err(RecordError::TooLarge(_))));
        // The sum counts, not one fragment.
        let mut s = Vec::new();
        s.extend(mark(1 << 20, false));
        s.extend(vec![0; 1 << 20]);
        s.extend(mark(1 << 20, true));
        assert!(matches!(run(&s, 65536), Err(RecordError::TooLarge(_))));
    }

    #[test]
    fn r1_fragments_are_counted_even_when_empty() {
        let s = mark(0, false).repeat(300);
        assert_eq!(run(&s, 4096), Err(RecordError::TooManyFragments));
        let mut s = mark(0, false).repeat(255);
        s.extend(mark(8, true));
        s.extend([1; 8]);
        assert_eq!(run(&s, 4096).unwrap(), [[1; 8]]);
    }

    #[test]
    fn r1_short_records_close() {
        for step in [1, 100] {
            let mut s = mark(4, true).to_vec();
            s.extend([0; 4]);
            assert_eq!(run(&s, step), Err(RecordError::TooShort(4)));
        }
    }

    #[test]
    fn direct_reads_fill_pages() {
        let mut pool = PagePool::standalone();
        let mut r = RecordReader::new(RecordLimits::default());
        let data: Vec<u8> = (0..300_000u32).map(|i| (i % 241) as u8).collect();
        let mut s = mark(data.len(), true).to_vec();
        s.extend(&data[..10_000]);
        let mut input = &s[..];
        assert!(matches!(r.next(&mut input, &mut pool), Ok(Next::More)));
        // What follows: the beginning of another record.
        let mut behind = mark(5000, true).to_vec();
        behind.extend([9; 30]);
        let (mut at, mut tail) = (10_000, [0; 100]);
        let got = loop {
            assert_eq!(r.direct(), data.len() - at);
            assert_eq!(r.claimed(), data.len());
            let got = r
                .read_direct::<RecordError>(65_536, &mut pool, &mut tail, |iov| {
                    // At most 50 000 bytes at a time, except at the end.
                    let rest = &data[at..];
                    let wire =
                        if rest.len() > 50_000 { rest[..50_000].to_vec() } else { [rest, &behind].concat() };
                    let mut n = 0;
                    for v in iov.iter_mut() {
                        let k = v.len().min(wire.len() - n);
                        v[..k].copy_from_slice(&wire[n..n + k]);
                        n += k;
                    }
                    Ok(n)
                })
                .unwrap();
            assert!(!got.full);
            let held = pool.stats().taken - pool.stats().returned;
            at += got.bytes - got.tail;
            assert!(held as usize <= (at - HEAD_MAX).div_ceil(PAGE_SIZE), "empty pages go back at once");
            if got.done {
                break got;
            }
        };
        assert_eq!(tail[..got.tail], behind);
        assert!(
            r.begins_only(&tail[..got.tail]) && !r.begins_only(&[0x80, 0, 0, 0]) && r.begins_only(&[0x80])
        );
        let rec = r.collected();
        let mut v = rec.head.to_vec();
        rec.spans.iter().for_each(|s| v.extend_from_slice(s.as_slice()));
        assert!(v == data);
        assert!(!r.mid_record());
        r.recycle(&mut pool);
        assert_eq!(pool.stats().taken, pool.stats().returned);
        // Head, and what came with it; all else went straight to where it lies.
        assert_eq!((pool.stats().copied, pool.stats().placed), (10_000, 290_000));
    }

    #[test]
    fn few_pages_make_short_reads_and_none_ends_the_stream() {
        let depot = PageDepot::new(BoxedSource, 512);
        let mut pool = PagePool::new(depot);
        let mut r = RecordReader::new(RecordLimits::default());
        let mut s = mark(1 << 20, true).to_vec();
        s.extend([7; HEAD_MAX]);
        assert!(matches!(r.next(&mut &s[..], &mut pool), Ok(Next::More)));
        let mut others: Vec<_> = (0..509).map(|_| pool.take().unwrap()).collect();
        let mut tail = [0; 10];
        let mut read = |r: &mut RecordReader, pool: &mut PagePool, n: usize| {
            r.read_direct::<RecordError>(1 << 20, pool, &mut tail, |iov| {
                assert_eq!(iov.iter().map(|v| v.len()).sum::<usize>(), 3 * PAGE_SIZE);
                Ok(n)
            })
        };
        // Nothing arrived: all of them are back.
        assert_eq!(read(&mut r, &mut pool, 0), Ok(Direct { bytes: 0, tail: 0, full: false, done: false }));
        let all = 3 * PAGE_SIZE;
        assert_eq!(read(&mut r, &mut pool, all), Ok(Direct { bytes: all, tail: 0, full: true, done: false }));
        assert_eq!(read(&mut r, &mut pool, 0), Err(RecordError::NoPages));
        others.drain(..).for_each(|p| pool.put(p));
        r.recycle(&mut pool);
        assert_eq!(pool.stats().taken, pool.stats().returned);
    }
}

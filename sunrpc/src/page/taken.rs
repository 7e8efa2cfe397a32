//! The pages of a received record, which an owned argument may take with it instead of copying them.

use super::{PAGE_SIZE, Page, PageDepot, PagePool, PageSpan, Pages};
use std::cell::{Cell, OnceCell};
use std::sync::{Arc, Mutex, PoisonError};

/// Where taken pages go that are dropped instead of being sent: back to the pool that they came from.
#[derive(Debug)]
pub(super) struct Home {
    depot: Arc<PageDepot>,
    /// By record.
    back: Mutex<Vec<(u64, Vec<PageSpan>)>>,
}

impl Home {
    pub(super) fn new(depot: Arc<PageDepot>) -> Arc<Self> {
        Arc::new(Home { depot, back: Mutex::default() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Vec<PageSpan>)>> {
        // The list is valid between any two operations on it.
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages of one record, if they came back.
    fn find(&self, record: u64) -> Option<Vec<PageSpan>> {
        let mut back = self.lock();
        let at = back.iter().position(|(r, _)| *r == record)?;
        Some(back.swap_remove(at).1)
    }

    /// All that came back.
    pub(super) fn drain(&self) -> Vec<PageSpan> {
        std::mem::take(&mut *self.lock()).into_iter().flat_map(|(_, spans)| spans).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The pool is gone.
        let pages = self.drain().into_iter().map(PageSpan::into_page);
        self.depot.give_back(pages.filter(|p| !p.is_heap()));
    }
}

/// The way home of taken pages.
#[derive(Debug)]
pub(super) struct Return {
    home: Arc<Home>,
    record: u64,
}

impl Return {
    pub(super) fn give(self, spans: Vec<PageSpan>) {
        if !spans.is_empty() {
            self.home.lock().push((self.record, spans));
        }
    }
}

/// The pages of a record while its call runs. They are lent to decoders until an owned argument, [`Pages`], takes them.
pub struct RecordPages {
    spans: Cell<Vec<PageSpan>>,
    /// Once lent, they cannot be taken any more.
    lent: OnceCell<Vec<PageSpan>>,
    /// For the argument's first bytes, which lie in the record's head.
    spare: Cell<Option<Page>>,
    home: Arc<Home>,
    record: u64,
    bytes: usize,
    /// What was taken: pages, and bytes of padding cut off; whether the first page is the spare one.
    taken: Cell<Option<(usize, usize, bool)>>,
}

impl std::fmt::Debug for RecordPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, taken) = (self.bytes, self.is_taken());
        f.debug_struct("RecordPages").field("bytes", &bytes).field("taken", &taken).finish_non_exhaustive()
    }
}

impl RecordPages {
    /// The pages of a record; `pool` is where they came from.
    pub fn new(spans: Vec<PageSpan>, pool: &mut PagePool) -> Self {
        let bytes = spans.iter().map(PageSpan::len).sum();
        let spare = if bytes > 0 { pool.take() } else { None };
        let (home, record) = pool.home();
        RecordPages {
            spans: Cell::new(spans),
            lent: OnceCell::new(),
            spare: Cell::new(spare),
            home,
            record,
            bytes,
            taken: Cell::new(None),
        }
    }

    /// Bytes in the pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pages, for borrowing; none if they were taken.
    pub(crate) fn lend(&self) -> &[PageSpan] {
        self.lent.get_or_init(|| self.spans.take())
    }

    /// The pages as an argument: `head`, then `len` bytes that lie in them, then padding that stays behind. `None` if they
    /// are lent or taken already.
    pub(crate) fn take(&self, head: &[u8], len: usize) -> Option<Pages> {
        let mut cut = self.bytes.checked_sub(len).filter(|cut| *cut < 4)?;
        if self.lent.get().is_some()
            || self.taken.get().is_some()
            || head.len() > PAGE_SIZE
            || self.bytes == 0
        {
            return None;
        }
        let mut spans = self.spans.take();
        let padding = cut;
        for s in spans.iter_mut().rev() {
            let n = cut.min(s.len());
            s.set_end(s.end() - n);
            cut -= n;
        }
        if !head.is_empty() {
            // The one copy there is: up to a page.
            let mut page = self.spare.take().unwrap_or_else(Page::heap);
            if let Some(to) = page.get_mut(..head.len()) {
                to.copy_from_slice(head);
            }
            spans.insert(0, PageSpan::new(page, 0, head.len()));
        }
        self.taken.set(Some((spans.len(), padding, !head.is_empty())));
        Some(Pages::of_record(spans, Return { home: self.home.clone(), record: self.record }))
    }

    /// True if an argument took the pages.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.get().is_some()
    }

    /// Puts the record together again, whose argument was dropped. False if it still lives somewhere.
    pub(crate) fn restore(&self) -> bool {
        let Some((pages, mut padding, spare)) = self.taken.get() else { return true };
        let Some(mut spans) = self.home.find(self.record) else { return false };
        if spans.len() != pages {
            Return { home: self.home.clone(), record: self.record }.give(spans);
            return false;
        }
        if spare {
            self.spare.set(Some(spans.remove(0).into_page()));
        }
        // Every page but the last was full.
        for s in &mut spans {
            let n = padding.min(s.room());
            s.set_end(s.end() + n);
            padding -= n;
        }
        self.spans.set(spans);
        self.taken.set(None);
        true
    }

    /// What is left of the record. Pages of an argument that was dropped go to `pool`.
    pub fn into_spans(self, pool: &mut PagePool) -> Vec<PageSpan> {
        if let Some(p) = self.spare.take() {
            pool.put(p);
        }
        if self.is_taken() {
            self.home.find(self.record).into_iter().flatten().for_each(|s| pool.put(s.into_page()));
        }
        self.lent.into_inner().unwrap_or_else(|| self.spans.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decoder, XdrError};

    /// Head and pages of a record whose argument has `len` bytes, of which up to `first` lie in the head.
    fn record(len: usize, first: usize, pool: &mut PagePool) -> (Vec<u8>, Vec<PageSpan>, Vec<u8>) {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 253) as u8).collect();
        let mut wire = (len as u32).to_be_bytes().to_vec();
        wire.extend_from_slice(&data);
        wire.resize(wire.len().next_multiple_of(4), 0);
        let rest = wire.split_off((4 + first).min(wire.len()));
        let spans = rest.chunks(PAGE_SIZE).map(|c| {
            let mut page = pool.take().unwrap();
            page[..c.len()].copy_from_slice(c);
            PageSpan::new(page, 0, c.len())
        });
        (wire, spans.collect(), data)
    }

    fn settled(pool: &PagePool) {
        assert_eq!(pool.stats().taken, pool.stats().returned);
    }

    #[test]
    fn an_argument_takes_the_pages_and_they_come_home_however_it_ends() {
        let mut pool = PagePool::standalone();
        for len in [4000, 4096, 8191, 8193, 20_000, 4096 + 101, 4096 + 102, 4096 + 103, 8194] {
            for first in [0, 1, 100, 4096] {
                let (head, spans, data) = record(len, first, &mut pool);
                let second = spans.get(1).map(|s| s.as_slice().as_ptr());
                let pages = RecordPages::new(spans, &mut pool);
                let mut d = Decoder::with_record(&head, &pages);
                let arg = Pages::decode_max(&mut d, 1 << 20).unwrap();
                d.finish().unwrap();
                assert!(arg.to_vec() == data, "{len} {first}");
                if second.is_some() && len > 2 * 4096 + first + 4 {
                    assert!(arg.slices().any(|s| Some(s.as_ptr()) == second), "not copied");
                }
                match len % 3 {
                    // Sent.
                    0 => arg.recycle(&mut pool),
                    // Dropped while the call runs.
                    1 => drop(arg),
                    // Dropped later, by anybody.
                    _ => {
                        assert!(pages.into_spans(&mut pool).is_empty());
                        std::thread::spawn(move || drop(arg)).join().unwrap();
                        pool.tick();
                        settled_after(&mut pool);
                        continue;
                    }
                }
                pages.into_spans(&mut pool).into_iter().for_each(|s| pool.put(s.into_page()));
                settled(&pool);
            }
        }
    }

    fn settled_after(pool: &mut PagePool) {
        pool.tick();
        settled(pool);
    }

    #[test]
    fn a_call_that_would_block_gets_its_record_back() {
        let mut pool = PagePool::standalone();
        for len in 8185..8205 {
            let (head, spans, data) = record(len, 5, &mut pool);
            let whole: Vec<u8> = spans.iter().flat_map(|s| s.as_slice().to_vec()).collect();
            let pages = RecordPages::new(spans, &mut pool);
            let arg = Pages::decode_max(&mut Decoder::with_record(&head, &pages), 1 << 20).unwrap();
            assert!(pages.is_taken() && !pages.restore(), "it lives");
            drop(arg);
            assert!(pages.restore() && !pages.is_taken());
            // Again, for a helper.
            let arg = Pages::decode_max(&mut Decoder::with_record(&head, &pages), 1 << 20).unwrap();
            assert!(arg.to_vec() == data);
            drop(arg);
            assert!(pages.restore());
            let spans = pages.into_spans(&mut pool);
            assert!(spans.iter().flat_map(|s| s.as_slice()).eq(&whole), "{len}");
            spans.into_iter().for_each(|s| pool.put(s.into_page()));
            settled(&pool);
        }
    }

    #[test]
    fn what_is_lent_is_copied_and_limits_hold() {
        let mut pool = PagePool::standalone();
        let (head, spans, data) = record(9000, 10, &mut pool);
        let pages = RecordPages::new(spans, &mut pool);
        let d = Decoder::with_record(&head, &pages);
        let too_long = Err(XdrError::TooLong { len: 9000, max: 8999 });
        assert_eq!(Pages::decode_max(&mut d.clone(), 8999), too_long);
        assert!(!pages.is_taken());
        assert!(d.clone().payload(9000).unwrap().to_vec() == data);
        assert!(Pages::decode_max(&mut d.clone(), 9000).unwrap().to_vec() == data);
        assert!(!pages.is_taken());
        pages.into_spans(&mut pool).into_iter().for_each(|s| pool.put(s.into_page()));
        settled(&pool);
    }
}

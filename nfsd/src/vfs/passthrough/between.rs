//! What threads tell each other: removed objects, and files that a helper opened for a worker.
//!
//! Both are bounded and best effort. A removal that is missed is noticed by the object's link count, a file that is
//! not handed over is opened again.

use super::cache::{Grant, Open};
use crate::vfs::passthrough::sync::lock;
use crate::vfs::{HANDLE_MAX, Handle, Identity};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, Weak};

const WORDS: usize = (HANDLE_MAX + 1).div_ceil(8);
const REMOVALS: u64 = 1024;

/// Handles of removed objects: a ring that any thread writes and every thread reads at its own pace.
#[derive(Debug)]
pub(super) struct Removals {
    head: AtomicU64,
    slots: Box<[Slot]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// `2 i + 1` while entry `i` is written, `2 i + 2` afterwards.
    seq: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for Removals {
    fn default() -> Self {
        Removals { head: AtomicU64::new(0), slots: (0..REMOVALS).map(|_| Slot::default()).collect() }
    }
}

impl Removals {
    /// Tells everybody that the object may be gone.
    pub(super) fn push(&self, h: &Handle) {
        let i = self.head.fetch_add(1, Ordering::AcqRel);
        let Some(slot) = self.slots.get((i % REMOVALS) as usize) else { return };
        let mut bytes = [0u8; WORDS * 8];
        let len = h.as_bytes().len();
        bytes[0] = len as u8;
        if let Some(b) = bytes.get_mut(1..=len) {
            b.copy_from_slice(h.as_bytes());
        }
        slot.seq.store(2 * i + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (w, b) in slot.words.iter().zip(bytes.as_chunks::<8>().0) {
            w.store(u64::from_ne_bytes(*b), Ordering::Relaxed);
        }
        slot.seq.store(2 * i + 2, Ordering::Release);
    }

    /// Where a new reader begins.
    pub(super) fn now(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Hands every entry from `at` on to `f` and moves `at` forward. False if some were overwritten meanwhile.
    #[inline]
    pub(super) fn drain(&self, at: &mut u64, f: impl FnMut(&Handle)) -> bool {
        let head = self.head.load(Ordering::Acquire);
        *at == head || self.drain_to(head, at, f)
    }

    #[cold]
    fn drain_to(&self, head: u64, at: &mut u64, mut f: impl FnMut(&Handle)) -> bool {
        let mut complete = true;
        if head - *at > REMOVALS {
            *at = head;
            return false;
        }
        while *at < head {
            let Some(slot) = self.slots.get((*at % REMOVALS) as usize) else { break };
            let done = 2 * *at + 2;
            let seq = slot.seq.load(Ordering::Acquire);
            if seq < done {
                break; // still being written; the next reading gets it
            }
            let mut bytes = [0u8; WORDS * 8];
            for (b, w) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&slot.words) {
                *b = w.load(Ordering::Relaxed).to_ne_bytes();
            }
            fence(Ordering::Acquire);
            let whole = seq == done && slot.seq.load(Ordering::Relaxed) == done;
            let h = bytes.get(1..=usize::from(bytes[0])).and_then(Handle::new);
            match h {
                Some(h) if whole => f(&h),
                _ => complete = false,
            }
            *at += 1;
        }
        complete
    }
}

/// What a helper hands to a worker about one object.
#[derive(Debug)]
pub(super) struct Gift {
    pub(super) handle: Handle,
    pub(super) format: u32,
    pub(super) path: Arc<OwnedFd>,
    /// Whom the rest is for.
    pub(super) ident: Identity,
    pub(super) opens: smallvec::SmallVec<[Open; 2]>,
    pub(super) grant: Option<Grant>,
}

/// Most gifts that wait for one worker.
const INBOX: usize = 64;

/// Gifts for one worker.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    any: AtomicBool,
    gifts: Mutex<VecDeque<Gift>>,
}

impl Inbox {
    /// Adds a gift; drops it if too many wait already.
    pub(super) fn put(&self, gift: Gift) {
        let mut q = lock(&self.gifts);
        if q.len() < INBOX {
            q.push_back(gift);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Takes all that wait.
    pub(super) fn take(&self) -> VecDeque<Gift> {
        if !self.any.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut q = lock(&self.gifts);
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *q)
    }
}

const WANTED: usize = 1024;

/// Who waits for which object.
#[derive(Debug)]
pub(super) struct Handoff {
    /// Upper 48 bits: hash of the handle; lower 16: the worker's number plus one.
    wanted: Box<[AtomicU64]>,
    inboxes: Mutex<Vec<Weak<Inbox>>>,
}

impl Default for Handoff {
    fn default() -> Self {
        Handoff { wanted: (0..WANTED).map(|_| AtomicU64::new(0)).collect(), inboxes: Mutex::default() }
    }
}

impl Handoff {
    /// Makes an inbox; its number is `None` if there are too many.
    pub(super) fn join(&self) -> (Arc<Inbox>, Option<u16>) {
        let inbox = Arc::new(Inbox::default());
        let mut all = lock(&self.inboxes);
        let at = all.iter().position(|w| w.strong_count() == 0).unwrap_or(all.len());
        let Some(number) = u16::try_from(at + 1).ok() else { return (inbox, None) };
        match all.get_mut(at) {
            Some(w) => *w = Arc::downgrade(&inbox),
            None => all.push(Arc::downgrade(&inbox)),
        }
        (inbox, Some(number))
    }

    /// Notes that the worker with this number would like to have the object.
    pub(super) fn want(&self, h: &Handle, number: u16) {
        let (slot, tag) = self.slot(h);
        if let Some(s) = slot {
            s.store(tag | u64::from(number), Ordering::Release);
        }
    }

    /// The inbox of the worker that wants the object; a wish is granted once.
    #[inline]
    pub(super) fn wanted(&self, h: &Handle) -> Option<Arc<Inbox>> {
        let (slot, tag) = self.slot(h);
        let slot = slot?;
        let v = slot.load(Ordering::Acquire);
        if v & !0xffff != tag || v & 0xffff == 0 {
            return None;
        }
        slot.compare_exchange(v, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        lock(&self.inboxes).get((v & 0xffff) as usize - 1)?.upgrade()
    }

    fn slot(&self, h: &Handle) -> (Option<&AtomicU64>, u64) {
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        h.hash(&mut hasher);
        let hash = hasher.finish();
        (self.wanted.get((hash >> 16) as usize % WANTED), hash & !0xffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(n: u64) -> Handle {
        Handle::new(&n.to_be_bytes()).unwrap()
    }

    #[test]
    fn every_reader_sees_every_removal() {
        let r = Arc::new(Removals::default());
        let (mut a, mut b) = (r.now(), r.now());
        let writers: Vec<_> = (0..4)
            .map(|t| {
                let r = r.clone();
                std::thread::spawn(move || (0..100).for_each(|i| r.push(&handle(t * 1000 + i))))
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        for at in [&mut a, &mut b] {
            let mut seen = Vec::new();
            assert!(r.drain(at, |h| seen.push(*h)));
            seen.sort_by_key(|h| h.as_bytes().to_vec());
            let all: Vec<_> = (0..4).flat_map(|t| (0..100).map(move |i| handle(t * 1000 + i))).collect();
            assert_eq!(seen, all);
        }
        let longest = Handle::new(&[0xee; HANDLE_MAX]).unwrap();
        r.push(&longest);
        assert!(r.drain(&mut a, |h| assert_eq!(*h, longest)));
        (0..=REMOVALS).for_each(|i| r.push(&handle(i)));
        assert!(!r.drain(&mut a, |_| panic!("overrun")));
        assert!(r.drain(&mut a, |_| panic!("nothing new")));
    }

    #[test]
    fn a_wish_is_granted_once_to_the_one_who_had_it() {
        let h = Handoff::default();
        let (inbox, number) = h.join();
        let (_other, second) = h.join();
        assert_eq!((number, second), (Some(1), Some(2)));
        assert!(h.wanted(&handle(1)).is_none());
        h.want(&handle(1), 1);
        assert!(h.wanted(&handle(2)).is_none());
        assert!(Arc::ptr_eq(&h.wanted(&handle(1)).unwrap(), &inbox));
        assert!(h.wanted(&handle(1)).is_none());
        h.want(&handle(1), 1);
        drop(inbox);
        assert!(h.wanted(&handle(1)).is_none(), "its worker is gone");
        assert_eq!(h.join().1, Some(1), "numbers are used again");
    }
}

//! A thread's cache of open objects.
//!
//! One [`Object`] for each handle in use: a descriptor that pins it, what was opened of it for reading and writing,
//! and which rights callers were found to have. An operation on a cached object needs neither a lookup by handle nor
//! an identity. Everything is bounded by the number of descriptors; the least recently used object goes first.

use super::ident::Who;
use crate::vfs::Handle;
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use sunrpc_sys::stat::{Stat, Timestamp};

/// Position of an object in the cache. Stays valid within an operation: objects in use are the most recent ones.
pub(super) type Ix = u32;
const NIL: Ix = Ix::MAX;

/// Most descriptors opened for data, and most rights remembered, for one object.
const PER_OBJECT: usize = 8;

/// The state of an object in which a caller was found to have a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof {
    perms: (u32, u32, u32),
    ctime: Timestamp,
    at: u32,
}

impl Proof {
    pub(super) fn new(st: &Stat, tick: u32) -> Self {
        Proof { perms: (st.mode(), st.uid(), st.gid()), ctime: st.ctime(), at: tick }
    }

    /// Whether the right still holds. Any change to mode, owner or group ends it at once. Other changes (an access
    /// control list shows in the ctime only, but so does every write) end it after a tick or two.
    pub(super) fn holds(&self, st: &Stat, tick: u32) -> bool {
        self.perms == (st.mode(), st.uid(), st.gid())
            && (self.ctime == st.ctime() || tick.wrapping_sub(self.at) <= 1)
    }

    /// After a change of ours, which is none of the permissions. If something else had changed before it, that is not
    /// forgotten.
    pub(super) fn follow(&mut self, before: &Stat, after: &Stat) {
        if self.ctime == before.ctime() && self.perms == (before.mode(), before.uid(), before.gid()) {
            (self.ctime, self.perms) = (after.ctime(), (after.mode(), after.uid(), after.gid()));
        }
    }
}

/// A descriptor opened for data.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) who: Who,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) proof: Proof,
    /// Permission bits may have said no: the caller owns the file, or may execute it (RFC 1813 section 4.4).
    pub(super) lenient: bool,
    /// For `O_DIRECT` descriptors, of which offset, length and address of the data must be multiples; else 0.
    pub(super) align: u32,
    pub(super) used: u32,
}

/// Rights (`R_OK`, `W_OK`, `X_OK`) that a caller was found to have or to lack, while the ctime is this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) who: Who,
    pub(super) ctime: Timestamp,
    pub(super) known: u8,
    pub(super) granted: u8,
}

/// An object in use.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) handle: Handle,
    /// `S_IFMT` bits; an object never changes its type.
    pub(super) format: u32,
    /// Pins the object; opened with `O_PATH`, or the descriptor that created the file.
    pub(super) path: Arc<OwnedFd>,
    pub(super) opens: SmallVec<[Open; 2]>,
    pub(super) grants: SmallVec<[Grant; 2]>,
    used: u32,
    newer: Ix,
    older: Ix,
}

impl Object {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    pub(super) fn is_dir(&self) -> bool {
        self.format == libc::S_IFDIR
    }

    pub(super) fn grant(&self, who: Who) -> Option<&Grant> {
        self.grants.iter().find(|g| g.who == who)
    }

    /// Remembers rights; those known for the same ctime are kept.
    pub(super) fn remember(&mut self, new: Grant) {
        if let Some(g) = self.grants.iter_mut().find(|g| g.who == new.who) {
            if g.ctime == new.ctime {
                g.known |= new.known;
                g.granted = g.granted & !new.known | new.granted;
            } else {
                *g = new;
            }
        } else {
            if self.grants.len() >= PER_OBJECT {
                self.grants.remove(0);
            }
            self.grants.push(new);
        }
    }
}

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    objects: Slab<Object>,
    index: FxHashMap<Handle, Ix>,
    newest: Ix,
    oldest: Ix,
    /// Descriptors held.
    fds: usize,
    limit: usize,
}

impl Cache {
    /// A cache of at most `limit` descriptors (at least 64).
    pub(super) fn new(limit: usize) -> Self {
        Cache {
            objects: Slab::new(),
            index: FxHashMap::default(),
            newest: NIL,
            oldest: NIL,
            fds: 0,
            limit: limit.max(8),
        }
    }

    /// Finds an object and makes it the most recent one.
    #[inline]
    pub(super) fn find(&mut self, h: &Handle, tick: u32) -> Option<Ix> {
        let ix = *self.index.get(h)?;
        if self.newest != ix {
            self.unlink(ix);
            self.link(ix);
        }
        if let Some(o) = self.objects.get_mut(ix as usize) {
            o.used = tick;
        }
        Some(ix)
    }

    /// Adds an object, or finds the one that is there already.
    pub(super) fn insert(&mut self, h: &Handle, format: u32, path: Arc<OwnedFd>, tick: u32) -> Ix {
        if let Some(ix) = self.find(h, tick) {
            return ix;
        }
        while self.fds >= self.limit && self.oldest != NIL {
            self.remove(self.oldest);
        }
        let ix = self.objects.insert(Object {
            handle: *h,
            format,
            path,
            opens: SmallVec::new(),
            grants: SmallVec::new(),
            used: tick,
            newer: NIL,
            older: NIL,
        }) as Ix;
        self.index.insert(*h, ix);
        self.fds += 1;
        self.link(ix);
        ix
    }

    #[inline]
    pub(super) fn get(&self, ix: Ix) -> Option<&Object> {
        self.objects.get(ix as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ix: Ix) -> Option<&mut Object> {
        self.objects.get_mut(ix as usize)
    }

    /// Adds an opened descriptor; returns its position.
    pub(super) fn add_open(&mut self, ix: Ix, open: Open) -> Option<usize> {
        let o = self.objects.get_mut(ix as usize)?;
        if o.opens.len() >= PER_OBJECT.min(self.limit / 4) {
            let stalest = (0..o.opens.len()).min_by_key(|i| o.opens.get(*i).map(|x| x.used))?;
            o.opens.remove(stalest);
            self.fds -= 1;
        }
        o.opens.push(open);
        let at = o.opens.len() - 1;
        self.fds += 1;
        while self.fds > self.limit && self.oldest != ix && self.oldest != NIL {
            self.remove(self.oldest);
        }
        Some(at)
    }

    /// Closes one opened descriptor.
    pub(super) fn close(&mut self, ix: Ix, at: usize) {
        if let Some(o) = self.objects.get_mut(ix as usize)
            && at < o.opens.len()
        {
            o.opens.remove(at);
            self.fds -= 1;
        }
    }

    /// Forgets an object.
    pub(super) fn forget(&mut self, h: &Handle) {
        if let Some(ix) = self.index.get(h) {
            self.remove(*ix);
        }
    }

    fn remove(&mut self, ix: Ix) {
        if self.objects.contains(ix as usize) {
            self.unlink(ix);
            let o = self.objects.remove(ix as usize);
            self.index.remove(&o.handle);
            self.fds -= 1 + o.opens.len();
        }
    }

    /// Gives up half of all descriptors, never the most recent objects.
    pub(super) fn shrink(&mut self) {
        let keep = (self.fds / 2).max(16);
        while self.fds > keep && self.objects.len() > 8 {
            self.remove(self.oldest);
        }
    }

    /// Closes objects not used for `idle` ticks, and descriptors opened for writing not used for two (while one is
    /// open, the file cannot be executed on this machine).
    pub(super) fn expire(&mut self, tick: u32, idle: u32) {
        while let Some(o) = self.get(self.oldest)
            && tick.wrapping_sub(o.used) > idle
        {
            self.remove(self.oldest);
        }
        let mut closed = 0;
        let mut whole = SmallVec::<[Ix; 16]>::new();
        for (ix, o) in &mut self.objects {
            let before = o.opens.len();
            let path = &o.path;
            o.opens.retain(|x| {
                let keep = !x.write || tick.wrapping_sub(x.used) <= 2;
                if !keep && Arc::ptr_eq(&x.fd, path) {
                    whole.push(ix as Ix);
                }
                keep
            });
            closed += before - o.opens.len();
        }
        self.fds -= closed;
        for ix in whole {
            self.remove(ix);
        }
        if self.objects.is_empty() {
            // An idle server gives its memory back.
            self.objects = Slab::new();
            self.index = FxHashMap::default();
        }
    }

    /// Forgets every object for which `gone` holds.
    pub(super) fn sweep(&mut self, mut gone: impl FnMut(&Object) -> bool) {
        let mut at = self.oldest;
        while let Some(o) = self.get(at) {
            let next = o.newer;
            if gone(o) {
                self.remove(at);
            }
            at = next;
        }
    }

    /// Descriptors held, and objects.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let fds = self.objects.iter().map(|(_, o)| 1 + o.opens.len()).sum::<usize>();
        assert_eq!(fds, self.fds);
        assert_eq!(self.objects.len(), self.index.len());
        (self.fds, self.objects.len())
    }

    fn link(&mut self, ix: Ix) {
        let was = std::mem::replace(&mut self.newest, ix);
        if let Some(o) = self.objects.get_mut(ix as usize) {
            (o.newer, o.older) = (NIL, was);
        }
        match self.objects.get_mut(was as usize) {
            Some(o) => o.newer = ix,
            None => self.oldest = ix,
        }
    }

    fn unlink(&mut self, ix: Ix) {
        let Some(o) = self.objects.get(ix as usize) else { return };
        let (newer, older) = (o.newer, o.older);
        match self.objects.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
        match self.objects.get_mut(older as usize) {
            Some(n) => n.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn handle(n: u32) -> Handle {
        Handle::new(&n.to_be_bytes()).unwrap()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let null: Arc<OwnedFd> = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let mut c = Cache::new(64);
        let mut model: VecDeque<u32> = VecDeque::new();
        let mut x = 12345u32;
        for _ in 0..20_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = x >> 24;
            match x >> 8 & 15 {
                0 => {
                    c.forget(&handle(n));
                    model.retain(|m| *m != n);
                }
                _ => {
                    assert_eq!(c.find(&handle(n), 0).is_some(), model.contains(&n));
                    c.insert(&handle(n), 0, null.clone(), 0);
                    model.retain(|m| *m != n);
                    model.push_back(n);
                    if model.len() > 64 {
                        model.pop_front();
                    }
                }
            }
            assert_eq!(c.held(), (model.len(), model.len()));
        }
        for n in &model {
            assert!(c.find(&handle(*n), 0).is_some());
        }
    }

    #[test]
    fn descriptors_are_counted_closed_when_idle_and_bounded() {
        let null: Arc<OwnedFd> = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let st = sunrpc_sys::stat::of_fd(null.as_fd()).unwrap();
        let other: Arc<OwnedFd> = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let open = |who, write, used| Open {
            who,
            read: true,
            write,
            fd: other.clone(),
            proof: Proof::new(&st, 0),
            lenient: false,
            align: 0,
            used,
        };
        let mut c = Cache::new(64);
        let ix = c.insert(&handle(1), 0, null.clone(), 5);
        for who in 0..20 {
            c.add_open(ix, open(who, who % 2 == 0, 5)).unwrap();
        }
        assert_eq!(c.held(), (1 + PER_OBJECT, 1));
        c.expire(8, 10);
        assert_eq!(c.held(), (1 + PER_OBJECT / 2, 1), "writers are closed after two ticks");
        c.close(ix, 0);
        c.close(ix, 99);
        assert_eq!(c.held().0, PER_OBJECT / 2);
        for n in 2..200 {
            let ix = c.insert(&handle(n), 0, null.clone(), 5);
            c.add_open(ix, open(1, false, 5)).unwrap();
            assert!(c.held().0 <= 64 + 1);
        }
        c.shrink();
        assert!(c.held().0 <= 33);
        c.sweep(|o| o.handle == handle(199));
        assert!(c.find(&handle(199), 5).is_none());
        c.expire(16, 10);
        assert_eq!(c.held(), (0, 0));
        assert_eq!((Arc::strong_count(&null), Arc::strong_count(&other)), (1, 1));
        let ix = c.insert(&handle(1), 0, other.clone(), 20);
        c.add_open(ix, open(1, true, 20)).unwrap();
        c.expire(23, 10);
        assert_eq!(c.held(), (0, 0), "the descriptor that created a file is not kept as its path");
    }
}

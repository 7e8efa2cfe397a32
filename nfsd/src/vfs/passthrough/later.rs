//! What calls leave to be done after their replies: beginning to write, letting go of cached pages.

use super::Worker;
use super::cache::Ix;
use super::modes::{Count, WriteMode};
use super::shared::{Kind, Shared};
use super::sync::lock;
use crate::vfs::{Handle, Work};
use rustc_hash::FxHashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use sunrpc::mutate;
use sunrpc_sys::io as file;

/// Bytes written that are worth a kick: fewer would make small requests to the device.
const KICK_BYTES: u64 = 1 << 20;
/// Most files of a shard that have writes which are not kicked yet. Beyond, such writes wait for the system's own time.
const FILES: usize = 64;
/// The page cache lets go of whole folios only, and a folio is at most this large and a multiple of its size from the
/// start of the file. What a client writes piece by piece, it commits piece by piece, and neighbours share folios.
const FOLIO_MAX: u64 = 2 << 20;
/// Most things left to do; more are there only if nobody asks for them.
const LEFT_MAX: usize = 256;
const SHARDS: usize = 16;

/// Writes to one file since its last kick.
#[derive(Debug, Default)]
struct Pending {
    running: bool,
    bytes: u64,
    /// First and last byte, the latter exclusive. What lies between and is clean costs the kernel a look.
    range: Option<(u64, u64)>,
}

/// Kicks in progress and in the making, by file.
#[derive(Debug, Default)]
pub(super) struct Kicks {
    shards: [Mutex<FxHashMap<Handle, Pending>>; SHARDS],
}

impl Kicks {
    /// Takes note of a write. With enough of them and no kick in progress, the range of the next one; whoever gets it
    /// must call [`Kicks::ended`].
    fn note(&self, obj: &Handle, start: u64, len: u64) -> Option<(u64, u64)> {
        let mut files = lock(self.shard(obj));
        if files.len() >= FILES && !files.contains_key(obj) {
            files.retain(|_, p| p.running);
        }
        let p = files.entry(*obj).or_default();
        let end = start.saturating_add(len);
        let (from, to) = p.range.unwrap_or((start, end));
        p.range = Some((from.min(start), to.max(end)));
        p.bytes = p.bytes.saturating_add(len);
        let running = p.running && !mutate::on("kick-many");
        if running || p.bytes < KICK_BYTES {
            return None;
        }
        (p.running, p.bytes) = (true, 0);
        p.range.take()
    }

    fn ended(&self, obj: &Handle) {
        let mut files = lock(self.shard(obj));
        if let Some(p) = files.get_mut(obj) {
            p.running = false;
            if p.bytes == 0 {
                files.remove(obj);
            }
        }
    }

    /// Everything written so far is on the device.
    fn settled(&self, obj: &Handle) {
        let mut files = lock(self.shard(obj));
        if let Some(p) = files.get_mut(obj) {
            (p.bytes, p.range) = (0, None);
            if !p.running {
                files.remove(obj);
            }
        }
    }

    fn shard(&self, obj: &Handle) -> &Mutex<FxHashMap<Handle, Pending>> {
        &self.shards[super::sync::shard_of(obj) % SHARDS]
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.shards.iter().map(|s| lock(s).len()).sum()
    }
}

/// Lets the next kick of the file happen, whatever became of this one.
struct Ended {
    shared: Arc<Shared>,
    obj: Handle,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.shared.kicks.ended(&self.obj);
    }
}

/// One thing left to do.
pub(super) enum Left {
    Kick { fd: Arc<OwnedFd>, range: (u64, u64), ended: KickEnd },
    Drop { fd: Arc<OwnedFd>, offset: u64, len: u64 },
}

pub(super) struct KickEnd(Ended);

impl Left {
    /// May wait for a device: for room in its queue, or to read how the file lies on it.
    fn run(self, shared: &Shared, shard: usize) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        match self {
            Left::Kick { fd, range: (start, end), ended } => {
                // A hint: what it fails at shows again at COMMIT.
                let len = signed(end.saturating_sub(start));
                let _ = file::sync_range(fd.as_fd(), signed(start), len, libc::SYNC_FILE_RANGE_WRITE);
                shared.modes.count(shard, Count::Kicks, 1);
                drop(ended.0);
            }
            Left::Drop { fd, offset, len } => {
                // A hint, too. Pages that are not written yet stay; the flush was of the whole file.
                let start = offset - offset % FOLIO_MAX;
                let end = offset.saturating_add(len).div_ceil(FOLIO_MAX).saturating_mul(FOLIO_MAX);
                let len = if len == 0 { 0 } else { signed(end - start) };
                let _ = file::advise(fd.as_fd(), signed(start), len, libc::POSIX_FADV_DONTNEED);
                shared.modes.count(shard, Count::Drops, 1);
            }
        }
    }
}

impl Worker {
    /// After an unstable write through the page cache.
    pub(super) fn kick_later(&mut self, ix: Ix, at: usize, offset: u64, len: usize) {
        if self.shared.kind == Kind::Memory || len == 0 || self.left.len() >= LEFT_MAX {
            return;
        }
        let Some(o) = self.cache.get(ix) else { return };
        let (Some(x), obj) = (o.opens.get(at), o.handle) else { return };
        let fd = x.fd.clone();
        match self.shared.kicks.note(&obj, offset, len as u64) {
            None => self.count(Count::KicksMerged, 1),
            Some(range) => {
                let ended = KickEnd(Ended { shared: self.shared.clone(), obj });
                self.left.push(Left::Kick { fd, range, ended });
            }
        }
    }

    /// After a COMMIT, which flushed the whole file; `count` 0 means to its end.
    pub(super) fn committed(&mut self, ix: Ix, offset: u64, count: u32) {
        if self.shared.kind == Kind::Memory {
            return;
        }
        let modes = self.shared.modes.get();
        if modes.kick
            && let Ok(obj) = self.handle(ix)
        {
            self.shared.kicks.settled(&obj);
        }
        if modes.write == WriteMode::Hybrid
            && self.left.len() < LEFT_MAX
            && let Ok(Some(fd)) = self.flushable(ix)
        {
            self.left.push(Left::Drop { fd, offset, len: count.into() });
        }
    }

    pub(super) fn do_after_reply(&mut self) -> Option<Work> {
        if self.left.is_empty() {
            return None;
        }
        let (left, shared, shard) = (std::mem::take(&mut self.left), self.shared.clone(), self.shard);
        Some(Box::new(move || left.into_iter().for_each(|l| l.run(&shared, shard))))
    }

    #[inline]
    pub(super) fn count(&self, what: Count, n: u64) {
        self.shared.modes.count(self.shard, what, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obj(n: u32) -> Handle {
        Handle::new(&n.to_be_bytes()).unwrap()
    }

    #[test]
    fn writes_join_until_they_are_worth_a_kick() {
        let kicks = Kicks::default();
        let quarter = KICK_BYTES / 4;
        for i in [3, 0, 1] {
            assert_eq!(kicks.note(&obj(1), i * quarter, quarter), None);
        }
        assert_eq!(kicks.note(&obj(2), 0, quarter), None, "another file is another matter");
        assert_eq!(kicks.note(&obj(1), 2 * quarter, quarter), Some((0, KICK_BYTES)));
        // One is in progress: the others wait for its end, however much they are.
        assert_eq!(kicks.note(&obj(1), 8 * KICK_BYTES, KICK_BYTES), None);
        assert_eq!(kicks.note(&obj(1), 5 * KICK_BYTES, KICK_BYTES), None);
        kicks.ended(&obj(1));
        assert_eq!(kicks.note(&obj(1), 6 * KICK_BYTES, 1), Some((5 * KICK_BYTES, 9 * KICK_BYTES)));
        kicks.ended(&obj(1));
        kicks.settled(&obj(2));
        assert_eq!(kicks.files(), 0, "nothing stays behind");
    }

    #[test]
    fn files_without_enough_writes_are_bounded() {
        let kicks = Kicks::default();
        for i in 0..100_000 {
            assert_eq!(kicks.note(&obj(i), 0, 1), None);
        }
        assert!(kicks.files() <= FILES * SHARDS);
        assert_eq!(kicks.note(&obj(7), u64::MAX - 1, KICK_BYTES), Some((u64::MAX - 1, u64::MAX)));
    }
}

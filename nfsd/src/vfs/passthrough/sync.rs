//! Putting changes on stable storage, once for all who wait.
//!
//! Twenty helpers that each create a file in one directory need its flush, but not twenty of them: a flush serves
//! everybody whose change was made before it **began**. So whoever arrives while one is running waits for the next,
//! and the first of those to wake performs it.

use crate::vfs::{Handle, VfsError, VfsResult};
use rustc_hash::FxHashMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Outcome of a flush, shared by its waiters: an errno on failure.
type Outcome = Result<(), i32>;

/// Locks that guard plain data stay usable after a panic elsewhere.
pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waiters on one thing that can be flushed.
#[derive(Debug, Default)]
pub(super) struct Group {
    state: Mutex<GroupState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GroupState {
    running: bool,
    /// The flush that has not begun yet.
    next: Arc<OnceLock<Outcome>>,
}

impl Group {
    /// Returns after a flush that began after this call did; runs `flush` itself if nobody else does.
    pub(super) fn run(&self, flush: impl FnOnce() -> Outcome) -> Outcome {
        let mut st = lock(&self.state);
        let mine = st.next.clone();
        loop {
            if let Some(done) = mine.get() {
                return *done;
            }
            if !st.running {
                break;
            }
            st = self.changed.wait(st).unwrap_or_else(PoisonError::into_inner);
        }
        // Not running and no result: `mine` is still the next one, since only its runner replaces it.
        st.running = true;
        st.next = Arc::default();
        drop(st);
        // A flush that unwinds must not leave the others waiting for ever.
        let mut finish = Finish { group: self, flight: mine, outcome: Err(libc::EIO) };
        finish.outcome = flush();
        finish.outcome
    }
}

struct Finish<'a> {
    group: &'a Group,
    flight: Arc<OnceLock<Outcome>>,
    outcome: Outcome,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut st = lock(&self.group.state);
        let _ = self.flight.set(self.outcome);
        st.running = false;
        self.group.changed.notify_all();
    }
}

/// How much of a file a flush covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Depth {
    /// Data, and the metadata needed to find them.
    Data,
    /// Everything.
    All,
}

const SHARDS: usize = 16;
type Shard = FxHashMap<(Handle, Depth), Arc<Group>>;

/// Flushes in progress, by object.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    shards: [Mutex<Shard>; SHARDS],
}

impl Flushes {
    /// Brings `fd`, which is `obj`, to stable storage. Waits; shares the wait with others on the same object.
    ///
    /// # Errors
    /// Whatever fsync(2) says; an error is reported to everyone the flush was for.
    pub(super) fn flush(&self, obj: &Handle, fd: BorrowedFd<'_>, depth: Depth) -> VfsResult<()> {
        let key = (*obj, depth);
        let shard = &self.shards[shard_of(obj)];
        let group = lock(shard).entry(key).or_default().clone();
        let r = group.run(|| {
            let r = match depth {
                Depth::Data => sunrpc_sys::io::fdatasync(fd),
                Depth::All => sunrpc_sys::io::fsync(fd),
            };
            probe::flushed(fd.as_raw_fd(), r.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO)))
        });
        let mut map = lock(shard);
        // Held by the map and by us: nobody else waits, and nobody can start to while the shard is locked.
        if Arc::strong_count(&group) == 2 {
            map.remove(&key);
        }
        drop(map);
        r.map_err(|e| match VfsError::from_errno(e) {
            VfsError::WouldBlock | VfsError::Delay | VfsError::Inval => VfsError::Io,
            other => other,
        })
    }

    #[cfg(test)]
    pub(super) fn in_progress(&self) -> usize {
        self.shards.iter().map(|s| lock(s).len()).sum()
    }
}

pub(super) fn shard_of(h: &Handle) -> usize {
    // The last bytes of a kernel handle differ most between objects.
    h.as_bytes().iter().rev().take(8).fold(0usize, |a, b| a.wrapping_mul(31) ^ usize::from(*b)) % SHARDS
}

/// Records flushes for tests and lets a test make them fail; nothing at all otherwise.
pub(super) mod probe {
    #[cfg(not(test))]
    #[inline]
    pub(in super::super) fn flushed(_fd: i32, r: Result<(), i32>) -> Result<(), i32> {
        r
    }

    #[cfg(not(test))]
    #[inline]
    pub(in super::super) fn changed(_what: &'static str) {}

    #[cfg(test)]
    pub(in super::super) use recording::*;

    #[cfg(test)]
    mod recording {
        use std::cell::{Cell, RefCell};

        /// What happened on this thread, in order.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(in super::super::super) enum Event {
            /// A change of the file system, by the name of its call.
            Changed(&'static str),
            /// A flush of the object with this inode number.
            Flushed(u64),
        }

        thread_local! {
            static LOG: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
            static FAIL: Cell<Option<i32>> = const { Cell::new(None) };
        }

        pub(in super::super::super) fn changed(what: &'static str) {
            LOG.with_borrow_mut(|l| l.push(Event::Changed(what)));
        }

        pub(in super::super::super) fn flushed(fd: i32, r: Result<(), i32>) -> Result<(), i32> {
            use std::os::unix::fs::MetadataExt;
            let ino = std::fs::metadata(format!("/proc/self/fd/{fd}")).map(|m| m.ino()).unwrap_or(0);
            LOG.with_borrow_mut(|l| l.push(Event::Flushed(ino)));
            FAIL.take().map_or(r, Err)
        }

        pub(in super::super::super) fn take() -> Vec<Event> {
            LOG.take()
        }

        /// Makes the next flush on this thread report `errno`.
        pub(in super::super::super) fn fail_next(errno: i32) {
            FAIL.set(Some(errno));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn those_who_arrive_during_a_flush_share_the_next_one() {
        let group = Arc::new(Group::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let (begun_tx, begun) = mpsc::channel();
        let (release, hold) = mpsc::channel::<()>();
        let first = {
            let (g, n) = (group.clone(), runs.clone());
            std::thread::spawn(move || {
                g.run(|| {
                    n.fetch_add(1, Ordering::SeqCst);
                    begun_tx.send(()).unwrap();
                    hold.recv().unwrap();
                    Ok(())
                })
            })
        };
        begun.recv().unwrap();
        let late: Vec<_> = (0..8)
            .map(|_| {
                let (g, n) = (group.clone(), runs.clone());
                std::thread::spawn(move || {
                    g.run(|| {
                        n.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                })
            })
            .collect();
        // All eight hold the next flight (the group's own reference makes nine) before the first one ends.
        while Arc::strong_count(&lock(&group.state).next) < 9 {
            std::thread::yield_now();
        }
        release.send(()).unwrap();
        first.join().unwrap().unwrap();
        for t in late {
            t.join().unwrap().unwrap();
        }
        assert_eq!(runs.load(Ordering::SeqCst), 2, "one flush for the first, one for the eight");
    }

    #[test]
    fn an_error_reaches_all_its_waiters_and_only_them() {
        let group = Arc::new(Group::default());
        let (begun_tx, begun) = mpsc::channel();
        let (release, hold) = mpsc::channel::<()>();
        let g = group.clone();
        let first = std::thread::spawn(move || {
            g.run(|| {
                begun_tx.send(()).unwrap();
                hold.recv().unwrap();
                Ok(())
            })
        });
        begun.recv().unwrap();
        let late: Vec<_> = (0..4)
            .map(|_| {
                let g = group.clone();
                std::thread::spawn(move || g.run(|| Err(libc::EIO)))
            })
            .collect();
        while Arc::strong_count(&lock(&group.state).next) < 5 {
            std::thread::yield_now();
        }
        release.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
        for t in late {
            assert_eq!(t.join().unwrap(), Err(libc::EIO));
        }
        assert_eq!(group.run(|| Ok(())), Ok(()));
    }

    #[test]
    fn finished_flushes_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let f = std::fs::File::create(dir.path().join("x")).unwrap();
        let flushes = Flushes::default();
        let h = Handle::new(&[1, 2, 3, 4]).unwrap();
        use std::os::fd::AsFd;
        flushes.flush(&h, f.as_fd(), Depth::All).unwrap();
        probe::fail_next(libc::EIO);
        assert_eq!(flushes.flush(&h, f.as_fd(), Depth::Data), Err(VfsError::Io));
        assert_eq!(flushes.in_progress(), 0);
        assert_eq!(probe::take().len(), 2);
    }
}

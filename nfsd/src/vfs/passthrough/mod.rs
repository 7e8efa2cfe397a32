//! A local directory, served through the kernel.
//!
//! | file | its part |
//! |---|---|
//! | `handle` | the bytes of a handle |
//! | `map` | handles that the kernel cannot open, kept on disk |
//! | `ident` | whose rights a thread has |
//! | `cache` | open objects of a thread |
//! | `known` | handles by object number |
//! | `between` | what threads tell each other |
//! | `shared` | what all threads share; opening |
//! | `object` | from a handle to an open object, and back |
//! | `names` | looking up, making, renaming, removing |
//! | `listing` | reading directories |
//! | `data` | reading, writing, committing |
//! | `lend` | page-cache pages lent to replies |
//! | `modes` | how data is read and written, and counters of it |
//! | `direct` | reading and writing past the page cache |
//! | `later` | what is done after replies |
//! | `attrs` | attributes, access rights, space |
//! | `sync` | stable storage |
//!
//! # Confinement
//! Objects are found by handle or by one name in an open directory, never by a path; symbolic links are not followed,
//! mounts not crossed, `..` leads no further than the root.
//!
//! # What may wait
//! On a memory file system everything is done at once. On a disk, a call in non-blocking mode uses only what the
//! kernel has cached (`RESOLVE_CACHED`, `RWF_NOWAIT`, objects pinned by a descriptor) and leaves the rest to a helper,
//! which hands what it opened back to the worker that wanted it. One exception is accepted: the first permission check
//! on an object that a descriptor pins may have to read its access control list. On any other file system, and where
//! handles go through the map, every call may wait.

mod attrs;
mod between;
mod cache;
mod data;
mod direct;
mod handle;
mod ident;
mod known;
mod later;
mod lend;
mod listing;
mod map;
mod modes;
mod names;
mod object;
mod shared;
mod sync;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_io;
#[cfg(test)]
mod tests_rules;

pub use modes::{IoCounts, IoModes, ReadMode, SPLICE_MIN, WriteMode};
pub use shared::{PassthroughError, PassthroughOptions};

use super::*;
use between::Inbox;
use cache::Cache;
use known::Known;
use listing::Streams;
use shared::{Kind, Shared};
use std::path::Path;
use std::sync::Arc;

/// Ticks after which an unused object is closed.
const IDLE_TICKS: u32 = 15;

/// A local directory as a backend.
#[derive(Debug, Clone)]
pub struct Passthrough {
    shared: Arc<Shared>,
}

impl Passthrough {
    /// Opens the directory at `path`. Sets the process's file mode creation mask to 0, because clients say which mode
    /// they want.
    ///
    /// # Errors
    /// [`PassthroughError`], which says what to do.
    pub fn open(path: &Path, opts: PassthroughOptions) -> Result<Self, PassthroughError> {
        let shared = Shared::open(path, &opts)?;
        sunrpc_sys::thread::umask(0);
        Ok(Passthrough { shared: Arc::new(shared) })
    }

    /// True if callers are served with their own rights. Otherwise everything is done as the user that this process
    /// runs as, whoever asks, and what is made belongs to that user.
    pub fn privileged(&self) -> bool {
        self.shared.switch
    }

    /// True if handles survive a restart of the server.
    pub fn persistent(&self) -> bool {
        self.shared.map.as_ref().is_none_or(map::Map::persistent)
    }

    /// How data goes between files and memory.
    pub fn modes(&self) -> IoModes {
        self.shared.modes.get()
    }

    /// Changes that, for operations that begin from now on.
    pub fn set_modes(&self, modes: IoModes) {
        self.shared.modes.set(modes);
    }

    /// What the modes came to, over all threads.
    pub fn io_counts(&self) -> IoCounts {
        self.shared.modes.counts()
    }

    /// Identity of the file system, as in [`Attr::fsid`].
    pub fn fsid(&self) -> u64 {
        self.shared.fsid
    }
}

impl Backend for Passthrough {
    fn attach(&self) -> VfsResult<Box<dyn Vfs>> {
        Ok(Box::new(Worker::new(self.shared.clone())))
    }

    fn always_blocks(&self) -> bool {
        self.shared.kind == Kind::Remote || self.shared.map.is_some()
    }

    fn counters(&self) -> Option<Box<dyn Counters>> {
        Some(Box::new(self.io_counts()))
    }
}

/// One thread's view of the directory.
struct Worker {
    shared: Arc<Shared>,
    cache: Cache,
    known: Known,
    streams: Streams,
    /// Made when a call first had to be left to a helper.
    inbox: Option<(Arc<Inbox>, Option<u16>)>,
    removals_seen: u64,
    tick: u32,
    /// What calls left to be done after their replies.
    left: Vec<later::Left>,
    /// Where this thread counts.
    shard: usize,
    bounce: direct::Bounce,
}

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        Worker {
            cache: Cache::new(shared.max_open),
            known: Known::default(),
            streams: Streams::default(),
            inbox: None,
            removals_seen: shared.removals.now(),
            tick: 0,
            left: Vec::new(),
            shard: shared.modes.join(),
            bounce: direct::Bounce::default(),
            shared,
        }
    }

    /// True if waiting is allowed, or never happens on this file system.
    #[inline]
    fn may_wait(&self, cx: &Cx<'_>) -> bool {
        cx.blocking || self.shared.memory()
    }

    /// For what always may wait on a disk.
    #[inline]
    fn must_wait(&self, cx: &Cx<'_>) -> VfsResult<()> {
        if self.may_wait(cx) { Ok(()) } else { Err(VfsError::WouldBlock) }
    }

    /// Before an operation: lets go of what others removed.
    #[inline]
    fn begin(&mut self) {
        let cache = &mut self.cache;
        if !self.shared.removals.drain(&mut self.removals_seen, |h| cache.forget(h)) {
            self.sweep();
        }
    }

    /// After an operation on `obj`: hands it to the worker that waits for it, and keeps the promises of both modes.
    #[inline]
    fn end<T>(&mut self, cx: &Cx<'_>, obj: &Handle, r: VfsResult<T>) -> VfsResult<T> {
        if cx.blocking {
            if !self.shared.memory() {
                self.hand_over(cx, obj);
            }
            if let Some(map) = &self.shared.map
                && r.is_ok()
            {
                map.settle()?;
            }
        }
        match r {
            Err(VfsError::WouldBlock) if cx.blocking => Err(VfsError::Delay),
            r => r,
        }
    }

    /// Lets go of objects that have lost their last name without our doing.
    fn sweep(&mut self) {
        if self.shared.counts_links {
            self.cache.sweep(|o| sunrpc_sys::stat::of_fd(o.fd()).is_ok_and(|st| st.nlink() == 0));
        }
    }
}

macro_rules! op {
    ($self:ident, $cx:ident, $obj:expr, $body:expr) => {{
        $self.begin();
        let r = $body;
        $self.end($cx, $obj, r)
    }};
}

impl Vfs for Worker {
    fn root(&mut self) -> VfsResult<Handle> {
        Ok(self.shared.root_handle)
    }

    fn getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        op!(self, cx, obj, self.do_getattr(cx, obj))
    }

    fn setattr(&mut self, cx: &Cx<'_>, obj: &Handle, set: &SetAttr, guard: Option<Time>) -> VfsResult<Attr> {
        op!(self, cx, obj, self.do_setattr(cx, obj, set, guard))
    }

    fn lookup(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        op!(self, cx, dir, self.do_lookup(cx, dir, name))
    }

    fn access(&mut self, cx: &Cx<'_>, obj: &Handle, want: Access) -> VfsResult<(Access, Attr)> {
        op!(self, cx, obj, self.do_access(cx, obj, want))
    }

    fn read(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> VfsResult<ReadDone> {
        op!(self, cx, obj, self.do_read(cx, obj, offset, bufs))
    }

    fn lend(&mut self, cx: &Cx<'_>, obj: &Handle, offset: u64, len: usize) -> VfsResult<Option<LendDone>> {
        op!(self, cx, obj, self.do_lend(cx, obj, offset, len))
    }

    fn write(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &[IoSlice<'_>],
        stable: Stability,
    ) -> VfsResult<WriteDone> {
        op!(self, cx, obj, self.do_write(cx, obj, offset, bufs, stable))
    }

    fn commit(&mut self, cx: &Cx<'_>, obj: &Handle, offset: u64, count: u32) -> VfsResult<Attr> {
        op!(self, cx, obj, self.do_commit(cx, obj, offset, count))
    }

    fn create(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], how: &CreateHow) -> VfsResult<Entry> {
        op!(self, cx, dir, self.do_create(cx, dir, name, how))
    }

    fn mkdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], set: &SetAttr) -> VfsResult<Entry> {
        op!(self, cx, dir, self.do_mkdir(cx, dir, name, set))
    }

    fn remove(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        op!(self, cx, dir, self.do_remove(cx, dir, name, false))
    }

    fn rmdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        op!(self, cx, dir, self.do_remove(cx, dir, name, true))
    }

    fn rename(&mut self, cx: &Cx<'_>, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> VfsResult<()> {
        op!(self, cx, from.0, self.do_rename(cx, from, to))
    }

    fn readdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        op!(self, cx, dir, self.do_readdir(cx, dir, cookie, want, sink))
    }

    fn statfs(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<FsStat> {
        op!(self, cx, obj, self.do_statfs(cx, obj))
    }

    fn links(&mut self) -> Option<&mut dyn Links> {
        Some(self)
    }

    fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    fn after_reply(&mut self) -> Option<Work> {
        self.do_after_reply()
    }

    fn tick(&mut self) {
        self.bounce.tick();
        self.tick = self.tick.wrapping_add(1);
        self.begin();
        self.sweep();
        self.cache.expire(self.tick, IDLE_TICKS);
        self.known.tick();
        self.streams.tick();
    }
}

impl Links for Worker {
    fn symlink(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        op!(self, cx, dir, self.do_symlink(cx, dir, name, target, set))
    }

    fn readlink(&mut self, cx: &Cx<'_>, obj: &Handle, buf: &mut [u8]) -> VfsResult<usize> {
        op!(self, cx, obj, self.do_readlink(cx, obj, buf))
    }

    fn link(&mut self, cx: &Cx<'_>, obj: &Handle, dir: &Handle, name: &[u8]) -> VfsResult<Attr> {
        op!(self, cx, obj, self.do_link(cx, obj, dir, name))
    }

    fn mknod(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        op!(self, cx, dir, self.do_mknod(cx, dir, name, node, set))
    }
}

//! A file system in memory, shared by all threads: for tests, scratch space, and as a model of a backend.
//!
//! Everything lives in one tree behind one lock that is held for memory work only, so operations never wait unless
//! [`Faults`] tell them to. Memory is bounded by [`MemOptions::max_bytes`]. Nothing outlives the process; handles
//! from before a restart are stale.

mod data;
mod dir;
mod faults;
mod ops;
mod perm;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_random;
mod tree;

pub use faults::{Faults, Op};

use crate::vfs::{
    Access, Attr, Backend, CreateHow, Cx, DirSink, Entry, FsStat, Handle, Links, Node, ReadDone, ReaddirWant,
    SetAttr, Stability, Time, Vfs, VfsError, VfsResult, WriteDone,
};
use std::hash::{BuildHasher, RandomState};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tree::Tree;

/// How a file system in memory is made.
#[derive(Debug, Clone)]
pub struct MemOptions {
    /// Most bytes for contents, names and objects together; then `NOSPC`.
    pub max_bytes: u64,
    /// Most objects.
    pub max_files: u32,
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Answer [`Backend::always_blocks`] with this; then every non-blocking call answers `WouldBlock`.
    pub always_blocks: bool,
}

impl Default for MemOptions {
    /// 256 MiB, a million objects, a root directory that only uid 0 may write.
    fn default() -> Self {
        MemOptions {
            max_bytes: 256 << 20,
            max_files: 1 << 20,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            always_blocks: false,
        }
    }
}

#[derive(Debug)]
struct Shared {
    tree: RwLock<Tree>,
    faults: Faults,
    always_blocks: bool,
}

/// A file system in memory. Clones are the same file system.
#[derive(Debug, Clone)]
pub struct MemFs {
    shared: Arc<Shared>,
}

impl MemFs {
    /// An empty file system.
    pub fn new(options: &MemOptions) -> Self {
        // Randomly keyed, so that no two file systems, also of different runs, take each other's handles.
        let instance = RandomState::new().hash_one(SystemTime::now());
        let tree = RwLock::new(Tree::new(options, instance));
        MemFs {
            shared: Arc::new(Shared {
                tree,
                faults: Faults::default(),
                always_blocks: options.always_blocks,
            }),
        }
    }

    /// Its faults.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }
}

impl Backend for MemFs {
    fn attach(&self) -> VfsResult<Box<dyn Vfs>> {
        Ok(Box::new(MemVfs { shared: self.shared.clone() }))
    }

    fn always_blocks(&self) -> bool {
        self.shared.always_blocks
    }
}

struct MemVfs {
    shared: Arc<Shared>,
}

impl MemVfs {
    /// Passes the faults and locks the tree for reading.
    #[inline]
    fn shared(&self, op: Op, cx: &Cx<'_>) -> VfsResult<RwLockReadGuard<'_, Tree>> {
        self.gate(op, cx)?;
        Ok(self.shared.tree.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Passes the faults and locks the tree for changing it.
    #[inline]
    fn exclusive(&self, op: Op, cx: &Cx<'_>) -> VfsResult<RwLockWriteGuard<'_, Tree>> {
        self.gate(op, cx)?;
        Ok(self.write_lock())
    }

    fn write_lock(&self) -> RwLockWriteGuard<'_, Tree> {
        self.shared.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn gate(&self, op: Op, cx: &Cx<'_>) -> VfsResult<()> {
        if self.shared.always_blocks && !cx.blocking {
            return Err(VfsError::WouldBlock);
        }
        self.shared.faults.pass(op, cx.blocking)
    }
}

fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

impl Vfs for MemVfs {
    fn root(&mut self) -> VfsResult<Handle> {
        Ok(self.shared.tree.read().unwrap_or_else(PoisonError::into_inner).root())
    }

    fn getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        let t = self.shared(Op::Getattr, cx)?;
        t.attr(t.find(obj)?)
    }

    fn setattr(&mut self, cx: &Cx<'_>, obj: &Handle, set: &SetAttr, guard: Option<Time>) -> VfsResult<Attr> {
        self.exclusive(Op::Setattr, cx)?.setattr(cx, obj, set, guard)
    }

    fn lookup(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        self.shared(Op::Lookup, cx)?.lookup(cx, dir, name)
    }

    fn access(&mut self, cx: &Cx<'_>, obj: &Handle, want: Access) -> VfsResult<(Access, Attr)> {
        let t = self.shared(Op::Access, cx)?;
        let ino = t.find(obj)?;
        let o = t.get(ino)?;
        Ok((perm::access(o, cx.ident, want), t.attr_of(ino, o)))
    }

    fn read(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> VfsResult<ReadDone> {
        let t = self.shared(Op::Read, cx)?;
        let ino = t.find(obj)?;
        let o = t.get(ino)?;
        let data = o.data()?;
        perm::need_read(o, cx)?;
        let len = data.read(offset, bufs);
        let eof = offset.saturating_add(len as u64) >= data.size();
        let mut attr = t.attr_of(ino, o);
        if Tree::atime_is_due(o, seconds()) {
            drop(t);
            // Somebody may have removed the file meanwhile; the read was good all the same.
            attr = self.write_lock().touch_atime(obj).unwrap_or(attr);
        }
        Ok(ReadDone { len, eof, attr })
    }

    fn write(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &[IoSlice<'_>],
        _stable: Stability,
    ) -> VfsResult<WriteDone> {
        let (len, attr) = self.exclusive(Op::Write, cx)?.write(cx, obj, offset, bufs)?;
        // Memory does not get any more stable than this.
        Ok(WriteDone { len, committed: Stability::FileSync, attr })
    }

    fn commit(&mut self, cx: &Cx<'_>, obj: &Handle, _offset: u64, _count: u32) -> VfsResult<Attr> {
        let t = self.shared(Op::Commit, cx)?;
        let ino = t.find(obj)?;
        t.get(ino)?.data()?;
        t.attr(ino)
    }

    fn create(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], how: &CreateHow) -> VfsResult<Entry> {
        self.exclusive(Op::Create, cx)?.create(cx, dir, name, how)
    }

    fn mkdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], set: &SetAttr) -> VfsResult<Entry> {
        self.exclusive(Op::Mkdir, cx)?.mkdir(cx, dir, name, set)
    }

    fn remove(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        self.exclusive(Op::Remove, cx)?.remove(cx, dir, name)
    }

    fn rmdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        self.exclusive(Op::Rmdir, cx)?.rmdir(cx, dir, name)
    }

    fn rename(&mut self, cx: &Cx<'_>, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> VfsResult<()> {
        self.exclusive(Op::Rename, cx)?.rename(cx, from, to)
    }

    fn readdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        let t = self.shared(Op::Readdir, cx)?;
        let end = t.readdir(cx, dir, cookie, want, sink)?;
        if Tree::atime_is_due(t.get(t.find(dir)?)?, seconds()) {
            drop(t);
            let _ = self.write_lock().touch_atime(dir); // gone meanwhile: the listing was good all the same
        }
        Ok(end)
    }

    fn statfs(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<FsStat> {
        self.shared(Op::Statfs, cx)?.statfs(obj)
    }

    fn links(&mut self) -> Option<&mut dyn Links> {
        Some(self)
    }
}

impl Links for MemVfs {
    fn symlink(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        self.exclusive(Op::Symlink, cx)?.symlink(cx, dir, name, target, set)
    }

    fn readlink(&mut self, cx: &Cx<'_>, obj: &Handle, buf: &mut [u8]) -> VfsResult<usize> {
        self.shared(Op::Readlink, cx)?.readlink(obj, buf)
    }

    fn link(&mut self, cx: &Cx<'_>, obj: &Handle, dir: &Handle, name: &[u8]) -> VfsResult<Attr> {
        self.exclusive(Op::Link, cx)?.link(cx, obj, dir, name)
    }

    fn mknod(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        self.exclusive(Op::Mknod, cx)?.mknod(cx, dir, name, node, set)
    }
}

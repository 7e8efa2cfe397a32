//! A file system whose flushes fail on demand.

use nfsd::vfs::{
    Access, Attr, Backend, CreateHow, Cx, DirSink, Entry, FsStat, Handle, Links, ReadDone, ReaddirWant,
    SetAttr, Stability, Time, Vfs, VfsError, VfsResult, WriteDone,
};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

/// Another file system, and the answer to its next COMMIT or stable WRITE.
#[derive(Clone)]
pub struct Flaky {
    inner: Arc<dyn Backend>,
    next: Arc<Mutex<Option<VfsError>>>,
}

impl Flaky {
    pub fn new(inner: impl Backend) -> Self {
        Flaky { inner: Arc::new(inner), next: Arc::default() }
    }

    /// The next flush writes nothing and answers `e`; those after it find nothing wrong, as with a kernel that reports a
    /// failure once.
    pub fn fail_next_flush(&self, e: VfsError) {
        *self.next.lock().unwrap() = Some(e);
    }
}

impl Backend for Flaky {
    fn attach(&self) -> VfsResult<Box<dyn Vfs>> {
        Ok(Box::new(Thread { vfs: self.inner.attach()?, next: self.next.clone() }))
    }

    fn always_blocks(&self) -> bool {
        self.inner.always_blocks()
    }
}

struct Thread {
    vfs: Box<dyn Vfs>,
    next: Arc<Mutex<Option<VfsError>>>,
}

impl Thread {
    fn flush(&self) -> VfsResult<()> {
        self.next.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

impl Vfs for Thread {
    fn root(&mut self) -> VfsResult<Handle> {
        self.vfs.root()
    }

    fn getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        self.vfs.getattr(cx, obj)
    }

    fn setattr(&mut self, cx: &Cx<'_>, obj: &Handle, set: &SetAttr, guard: Option<Time>) -> VfsResult<Attr> {
        self.vfs.setattr(cx, obj, set, guard)
    }

    fn lookup(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        self.vfs.lookup(cx, dir, name)
    }

    fn access(&mut self, cx: &Cx<'_>, obj: &Handle, want: Access) -> VfsResult<(Access, Attr)> {
        self.vfs.access(cx, obj, want)
    }

    fn read(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> VfsResult<ReadDone> {
        self.vfs.read(cx, obj, offset, bufs)
    }

    fn write(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &[IoSlice<'_>],
        stable: Stability,
    ) -> VfsResult<WriteDone> {
        if stable != Stability::Unstable {
            self.flush()?;
        }
        self.vfs.write(cx, obj, offset, bufs, stable)
    }

    fn commit(&mut self, cx: &Cx<'_>, obj: &Handle, offset: u64, count: u32) -> VfsResult<Attr> {
        self.flush()?;
        self.vfs.commit(cx, obj, offset, count)
    }

    fn create(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], how: &CreateHow) -> VfsResult<Entry> {
        self.vfs.create(cx, dir, name, how)
    }

    fn mkdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], set: &SetAttr) -> VfsResult<Entry> {
        self.vfs.mkdir(cx, dir, name, set)
    }

    fn remove(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        self.vfs.remove(cx, dir, name)
    }

    fn rmdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        self.vfs.rmdir(cx, dir, name)
    }

    fn rename(&mut self, cx: &Cx<'_>, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> VfsResult<()> {
        self.vfs.rename(cx, from, to)
    }

    fn readdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        self.vfs.readdir(cx, dir, cookie, want, sink)
    }

    fn statfs(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<FsStat> {
        self.vfs.statfs(cx, obj)
    }

    fn links(&mut self) -> Option<&mut dyn Links> {
        self.vfs.links()
    }

    fn tick(&mut self) {
        self.vfs.tick();
    }
}

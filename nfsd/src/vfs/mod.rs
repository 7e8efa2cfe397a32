//! The seam between NFS procedures and file systems.
//!
//! A file system is a [`Backend`]: shared, `Send + Sync`, one for each export. Every worker and every helper thread
//! attaches to it once and gets a [`Vfs`] of its own, so an implementation can keep caches without locks.
//!
//! # The contract of non-blocking mode
//! A worker serves many connections and must never wait. With [`Cx::blocking`] false an operation
//! 1. finishes without waiting for a device, a lock that may be held over I/O, or another process; or
//! 2. answers [`VfsError::WouldBlock`], **having changed nothing**. The call is then run again from its start on a
//!    helper thread, against the helper's own `Vfs`, with `blocking` true; there it must not answer `WouldBlock`.
//!
//! # What is checked where
//! The procedures check export policy (client address, read-only, squash) and the form of names: `name` arguments
//! are 1 to 255 bytes, without `/` and NUL, and never `.` or `..` except in [`Vfs::lookup`], where both are legal
//! and `..` of the root is the root. Permission of the caller ([`Cx::ident`]) is the backend's business.

mod error;
pub mod mem;
pub mod passthrough;
mod types;

pub use error::{VfsError, VfsResult};
pub use types::*;

use std::io::{IoSlice, IoSliceMut};
use sunrpc::stats::Counters;
pub use sunrpc::svc::Work;

/// A file system that can be exported.
pub trait Backend: Send + Sync + 'static {
    /// Makes the calling thread's instance.
    fn attach(&self) -> VfsResult<Box<dyn Vfs>>;

    /// True if every operation may wait (a file system behind a network, say): its calls go straight to helpers.
    fn always_blocks(&self) -> bool {
        false
    }

    /// What all threads together counted since the export was opened, for `nfsd stat io`.
    fn counters(&self) -> Option<Box<dyn Counters>> {
        None
    }
}

/// What an operation knows of its caller.
#[derive(Debug)]
pub struct Cx<'a> {
    /// Who asks, after squashing.
    pub ident: &'a Identity,
    /// False on a worker, true on a helper; see the module's contract.
    pub blocking: bool,
    /// The export's `sync`: metadata operations answer only after object and directory are on stable storage.
    pub sync: bool,
    /// NFSv3 has no OPEN, so the owner of a file may READ and WRITE it and set its size whatever the mode bits say,
    /// and execute permission implies READ (RFC 1813 section 4.4). [`Vfs::access`] is not affected.
    pub owner_override: bool,
}

/// One thread's view of a file system.
///
/// Handles are the backend's own (at most [`HANDLE_MAX`] bytes); the server wraps them with export and MAC before a
/// client sees them, so a backend gets back only what it once handed out, though perhaps for an object that is
/// gone ([`VfsError::Stale`]) or from a time before a restart.
///
/// A file system that is only read needs [`root`](Vfs::root), [`getattr`](Vfs::getattr), [`lookup`](Vfs::lookup),
/// [`read`](Vfs::read) and [`readdir`](Vfs::readdir): what changes something answers [`VfsError::RoFs`] unless it is
/// there. `nfsd/examples/hello.rs` is one.
pub trait Vfs {
    /// The export's root directory.
    fn root(&mut self) -> VfsResult<Handle>;

    /// Attributes of an object. Needs no permission (RFC 1813 section 3.3.1).
    fn getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr>;

    /// Changes attributes; with `guard`, only if the object's ctime equals it ([`VfsError::NotSync`]). Setting the
    /// size follows the rules of truncate, including `EFBIG` and `EINVAL` for absurd sizes, never a silent cap.
    fn setattr(&mut self, cx: &Cx<'_>, obj: &Handle, set: &SetAttr, guard: Option<Time>) -> VfsResult<Attr> {
        let _ = (cx, obj, set, guard);
        Err(VfsError::RoFs)
    }

    /// Finds `name` in `dir`. Symbolic links are returned, not followed.
    fn lookup(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry>;

    /// Which of the rights in `want` the caller has: what owner, group and mode bits say, unless told otherwise.
    fn access(&mut self, cx: &Cx<'_>, obj: &Handle, want: Access) -> VfsResult<(Access, Attr)> {
        let attr = self.getattr(cx, obj)?;
        Ok((attr.access(cx.ident, want), attr))
    }

    /// Reads into `bufs`, in order, at most their total length. Short only at end of file; `offset` at or past
    /// the end answers 0 bytes and `eof`. `eof` is judged by a size taken **after** the read.
    fn read(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> VfsResult<ReadDone>;

    /// Lends up to `len` bytes at `offset` to the reply instead of reading them; only asked where others may change them
    /// until they are sent. `None`: read them. May be shorter than asked at any place; `eof` is judged as in
    /// [`read`](Vfs::read), of what was lent.
    fn lend(&mut self, cx: &Cx<'_>, obj: &Handle, offset: u64, len: usize) -> VfsResult<Option<LendDone>> {
        let _ = (cx, obj, offset, len);
        Ok(None)
    }

    /// Writes `bufs` at `offset`. The answer's `committed` is at least `stable`. Set-id bits are cleared as a local
    /// write by the same caller would.
    fn write(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &[IoSlice<'_>],
        stable: Stability,
    ) -> VfsResult<WriteDone> {
        let _ = (cx, obj, offset, bufs, stable);
        Err(VfsError::RoFs)
    }

    /// Brings earlier unstable writes to stable storage; `count` 0 means to the end of the file.
    fn commit(&mut self, cx: &Cx<'_>, obj: &Handle, offset: u64, count: u32) -> VfsResult<Attr> {
        let _ = (offset, count);
        self.getattr(cx, obj)
    }

    /// Creates a regular file (RFC 1813 section 3.3.8). An exclusive create that is repeated with the same verifier
    /// succeeds again.
    fn create(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], how: &CreateHow) -> VfsResult<Entry> {
        let _ = (cx, dir, name, how);
        Err(VfsError::RoFs)
    }

    /// Creates a directory.
    fn mkdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8], set: &SetAttr) -> VfsResult<Entry> {
        let _ = (cx, dir, name, set);
        Err(VfsError::RoFs)
    }

    /// Removes a name that is not a directory.
    fn remove(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        let _ = (cx, dir, name);
        Err(VfsError::RoFs)
    }

    /// Removes an empty directory.
    fn rmdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        let _ = (cx, dir, name);
        Err(VfsError::RoFs)
    }

    /// Renames, atomically replacing the target as rename(2) does.
    fn rename(&mut self, cx: &Cx<'_>, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> VfsResult<()> {
        let _ = (cx, from, to);
        Err(VfsError::RoFs)
    }

    /// Lists `dir` from after `cookie` (0 = start), `.` and `..` included, until the sink breaks. Returns true if
    /// the end was reached. Names that exist throughout are reported exactly once over a sequence of calls, even
    /// when others come and go; [`VfsError::BadCookie`] only if the position cannot be resumed.
    fn readdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool>;

    /// Space and limits of the file system that holds `obj`.
    fn statfs(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<FsStat> {
        let _ = (cx, obj);
        Ok(FsStat::default())
    }

    /// Links and special files, if there are any on this file system; without them those calls answer NOTSUPP.
    fn links(&mut self) -> Option<&mut dyn Links> {
        None
    }

    /// True if an operation of this thread left something to be done after its reply. The procedures of WRITE and COMMIT
    /// ask this after their operation, and then see to [`Vfs::after_reply`].
    fn has_left(&self) -> bool {
        false
    }

    /// After the replies of calls that left something: does it, for all of them at once. It must not wait; what might is
    /// returned, and runs on a helper. If the helpers are overrun or the server ends, it may be dropped instead.
    fn after_reply(&mut self) -> Option<Work> {
        None
    }

    /// Called about once a second on the owning thread: close what was idle, apply invalidations.
    fn tick(&mut self) {}
}

/// Symbolic links, hard links and special files.
pub trait Links {
    /// Creates a symbolic link; `target` is kept byte for byte.
    fn symlink(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry>;

    /// Copies the link's target into `buf` and returns its length; [`VfsError::Inval`] if `obj` is no link.
    fn readlink(&mut self, cx: &Cx<'_>, obj: &Handle, buf: &mut [u8]) -> VfsResult<usize>;

    /// Adds a name for `obj`; returns its new attributes.
    fn link(&mut self, cx: &Cx<'_>, obj: &Handle, dir: &Handle, name: &[u8]) -> VfsResult<Attr>;

    /// Creates a device, fifo or socket; [`VfsError::BadType`] for other types.
    fn mknod(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttr,
    ) -> VfsResult<Entry>;
}

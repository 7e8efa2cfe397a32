//! What all threads share: the exported directory and what was found out about its file system.

use super::between::{Handoff, Removals};
use super::handle;
use super::ident;
use super::later::Kicks;
use super::map::Map;
use super::modes::{IoModes, Modes, ReadMode};
use super::sync::Flushes;
use crate::vfs::{Attr, FileType, Handle, Time};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sunrpc_sys::cred;
use sunrpc_sys::handle as kernel;
use sunrpc_sys::open::{self, FdTable};
use sunrpc_sys::stat::{self, Stat};

/// How a directory is served.
#[derive(Debug, Clone, Default)]
pub struct PassthroughOptions {
    /// Where handles are kept that cannot be rebuilt from the kernel's own: those of a server without the capability
    /// to open by handle, and of file systems whose handles are too long or missing. Made if it does not exist.
    /// Without it such handles do not survive a restart.
    pub state_dir: Option<PathBuf>,
    /// Identity of the file system as clients see it; by default the kernel's.
    pub fsid: Option<u64>,
    /// Behave as a process without capabilities would.
    pub unprivileged: bool,
    /// Descriptors that one thread keeps open; by default 1024, or a share of the process's limit.
    pub max_open: Option<usize>,
    /// How data goes between files and memory; [`Passthrough::set_modes`](super::Passthrough::set_modes) changes it.
    pub io: IoModes,
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassthroughError {
    /// The path leads to no directory that this process may read.
    #[error("cannot serve {}: {source}; check that it is a directory and that this user may list and enter it", path.display())]
    Root {
        /// The path given.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No procfs.
    #[error("cannot open /proc/self/fd: {0}; mount procfs on /proc")]
    Proc(io::Error),
    /// The handle map cannot be used.
    #[error("cannot keep file handles in {}: {source}; choose a writable directory with --state-dir", path.display())]
    State {
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The handle map is not ours.
    #[error("{} is not a handle map of this version; move it away (handles given out before become stale)", .0.display())]
    Foreign(PathBuf),
}

/// File systems by whether a call can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing waits for a device.
    Memory,
    /// A device; what the kernel has cached does not wait.
    Disk,
    /// A network or another process: anything can wait.
    Remote,
}

const BTRFS: u32 = 0x9123_683e;
const BCACHEFS: u32 = 0xca45_1a4e;

fn kind(magic: u32) -> Kind {
    match magic {
        // tmpfs, ramfs, hugetlbfs
        0x0102_1994 | 0x8584_58f6 | 0x9584_58f6 => Kind::Memory,
        // ext2-4, xfs, btrfs, f2fs, bcachefs, zfs, overlayfs, squashfs, erofs, iso9660, vfat, exfat
        0xef53 | 0x5846_5342 | BTRFS | 0xf2f5_2010 | BCACHEFS | 0x2fc1_2fc1 | 0x794c_7630 | 0x7371_7368
        | 0xe0f5_e1e2 | 0x9660 | 0x4d44 | 0x2011_bab0 => Kind::Disk,
        _ => Kind::Remote,
    }
}

/// Shared by all threads that serve one directory.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) root: Arc<OwnedFd>,
    pub(super) root_handle: Handle,
    /// Device and number of the root: on some file systems subvolumes use the same numbers.
    pub(super) root_id: ((u32, u32), u64),
    /// Id of the root's mount, as `name_to_handle_at` and `statx` tell it.
    pub(super) mount: Option<u64>,
    pub(super) table: FdTable,
    pub(super) kind: Kind,
    pub(super) magic: u32,
    pub(super) fsid: u64,
    /// Acts for callers with their rights; else everything is done as the process's user.
    pub(super) switch: bool,
    pub(super) own_uid: u32,
    /// Objects are opened by their kernel handle.
    pub(super) by_handle: bool,
    /// A link count of 0 means that the object is gone (not so on some FUSE file systems).
    pub(super) counts_links: bool,
    /// The file system can lend pages of the page cache; see [`Shared::lends`].
    pub(super) lend: AtomicBool,
    pub(super) modes: Modes,
    pub(super) kicks: Kicks,
    pub(super) no_nowait_read: AtomicBool,
    pub(super) no_nowait_write: AtomicBool,
    pub(super) map: Option<Map>,
    pub(super) flushes: Flushes,
    pub(super) removals: Removals,
    pub(super) handoff: Handoff,
    pub(super) max_open: usize,
}

impl Shared {
    pub(super) fn open(path: &Path, opts: &PassthroughOptions) -> Result<Self, PassthroughError> {
        let bad_root = |source| PassthroughError::Root { path: path.into(), source };
        let table = FdTable::open().map_err(PassthroughError::Proc)?;
        let root = open::directory(path.as_os_str().as_encoded_bytes()).map_err(bad_root)?;
        let st = stat::of_fd(root.as_fd()).map_err(bad_root)?;
        let fs = stat::fs(root.as_fd()).map_err(bad_root)?;
        let (_, _, own_uid) = cred::current();
        let switch = !opts.unprivileged && cred::capabilities().is_ok_and(|c| c.effective.has(ident::NEEDED));
        let named = kernel::of_fd(root.as_fd()).ok();
        let direct = named.as_ref().and_then(|(h, _)| handle::kernel(0, h.kind(), h.bytes()));
        // In a container, even root may lack the right to open by handle: only trying tells.
        let opens = |h: &kernel::KernelHandle| kernel::open(root.as_fd(), h, libc::O_PATH).is_ok();
        let by_handle = switch && direct.is_some() && named.as_ref().is_some_and(|(h, _)| opens(h));
        let (map, root_handle) = match direct {
            Some(h) if by_handle => (None, h),
            _ => {
                let (map, h) = Map::open(opts.state_dir.as_deref(), path, root.as_fd())?;
                (Some(map), h)
            }
        };
        let (major, minor) = st.dev();
        let kernel_fsid = if fs.fsid != 0 { fs.fsid } else { u64::from(major) << 32 | u64::from(minor) };
        // Half of what the process may open, shared by about three threads for each core.
        let limit = sunrpc_sys::thread::raise_open_files().unwrap_or(1024);
        let threads = 3 * std::thread::available_parallelism().map_or(1, usize::from) + 2;
        let share = (usize::try_from(limit / 2).unwrap_or(usize::MAX) / threads).clamp(8, 1024);
        Ok(Shared {
            root_handle,
            root_id: (st.dev(), st.ino()),
            mount: st.mount_id().or(named.map(|(_, m)| m as u64)),
            table,
            kind: kind(fs.magic),
            magic: fs.magic,
            fsid: opts.fsid.unwrap_or(kernel_fsid),
            switch,
            own_uid,
            by_handle,
            counts_links: st.nlink() != 0,
            lend: AtomicBool::new(super::lend::lends(fs.magic)),
            modes: Modes::new(opts.io, path.into()),
            kicks: Kicks::default(),
            no_nowait_read: AtomicBool::new(false),
            no_nowait_write: AtomicBool::new(false),
            map,
            flushes: Flushes::default(),
            removals: Removals::default(),
            handoff: Handoff::default(),
            max_open: opts.max_open.unwrap_or(share),
            root: Arc::new(root),
        })
    }

    /// Reads of `len` bytes lend pages of the page cache.
    #[inline]
    pub(super) fn lends(&self, len: usize) -> bool {
        let m = self.modes.get();
        m.splice.is_some_and(|min| len >= min as usize)
            && m.read == ReadMode::Buffered
            && self.lend.load(Ordering::Relaxed)
    }

    /// Calls may be made that never wait on this file system, though they do on others.
    pub(super) fn memory(&self) -> bool {
        self.kind == Kind::Memory
    }

    /// True if the object is on the exported file system, not on one mounted below.
    #[inline]
    pub(super) fn here(&self, st: &Stat) -> bool {
        match (self.mount, st.mount_id()) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }

    pub(super) fn is_root(&self, st: &Stat) -> bool {
        self.root_id == (st.dev(), st.ino())
    }

    /// Clients take objects of equal `fsid` and `fileid` for one, so subvolumes that number alike need their own.
    #[inline]
    fn fsid_of(&self, st: &Stat) -> u64 {
        let (major, minor) = st.dev();
        if self.root_id.0 == (major, minor) || !matches!(self.magic, BTRFS | BCACHEFS) {
            return self.fsid;
        }
        self.fsid ^ (u64::from(major) << 32 | u64::from(minor)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    pub(super) fn attr(&self, st: &Stat) -> Attr {
        let time = |(sec, nsec)| Time { sec, nsec };
        Attr {
            ftype: file_type(st.format()),
            mode: st.mode() & 0o7777,
            nlink: st.nlink(),
            uid: st.uid(),
            gid: st.gid(),
            size: st.size(),
            used: st.blocks().saturating_mul(512),
            rdev: st.rdev(),
            fsid: self.fsid_of(st),
            fileid: st.ino(),
            atime: time(st.atime()),
            mtime: time(st.mtime()),
            ctime: time(st.ctime()),
        }
    }
}

fn file_type(format: u32) -> FileType {
    match format {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFBLK => FileType::Block,
        libc::S_IFCHR => FileType::Char,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFIFO => FileType::Fifo,
        _ => FileType::Regular,
    }
}

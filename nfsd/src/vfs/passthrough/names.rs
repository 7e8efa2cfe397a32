//! Names in directories: looking up, making, linking, renaming, removing.

use super::Worker;
use super::attrs::limits;
use super::cache::{Ix, Open, Proof};
use super::handle;
use super::object::{PATH, name_error};
use super::sync::{Depth, probe};
use crate::vfs::{Attr, CreateHow, Cx, Entry, Handle, Node, SetAttr, SetTime, Time, VfsError, VfsResult};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use sunrpc_sys::attr::{self, NewTime};
use sunrpc_sys::handle as kernel;
use sunrpc_sys::open::{self, PATH_MAX, Resolve};
use sunrpc_sys::stat::{self, Stat};
use sunrpc_sys::{dir, io as file};

/// Mode of what is made without one: the owner's alone until somebody says otherwise.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
const PERMS: u32 = 0o7777;

/// A name that can be made or removed: the procedures have checked its form, this keeps what would lead elsewhere from
/// the kernel in any case.
fn component(name: &[u8]) -> VfsResult<()> {
    match name {
        b"" | b"." | b".." => Err(VfsError::Inval),
        n if n.len() > open::NAME_MAX => Err(VfsError::NameTooLong),
        n if n.iter().any(|b| matches!(b, b'/' | 0)) => Err(VfsError::Inval),
        _ => Ok(()),
    }
}

fn is(e: &io::Error, errno: i32) -> bool {
    e.raw_os_error() == Some(errno)
}

impl Worker {
    pub(super) fn do_lookup(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        if handle::is_covered(dir) {
            return self.lookup_covered(cx, dir, name);
        }
        let ix = self.dir(cx, dir)?;
        match name {
            b"." => {
                self.search(cx, ix, |d| stat::at(d, b"."))?.map_err(|e| self.in_dir(ix, e))?;
                let st = self.stat(ix)?;
                Ok(Entry { handle: *dir, attr: self.attr(&st) })
            }
            b".." => self.parent(cx, ix),
            _ => {
                component(name)?;
                if self.may_wait(cx) { self.find(cx, ix, name) } else { self.find_cached(cx, ix, name) }
            }
        }
    }

    /// Looks up a name; may wait.
    fn find(&mut self, cx: &Cx<'_>, ix: Ix, name: &[u8]) -> VfsResult<Entry> {
        let st = self.search(cx, ix, |d| stat::at(d, name))?.map_err(|e| self.in_dir(ix, e))?;
        if !self.shared.here(&st) {
            return self.covered_entry(cx, ix, name, None);
        }
        match self.handle_at(cx, ix, name, &st) {
            Ok((handle, st)) => Ok(Entry { handle, attr: self.attr(&st) }),
            // Mounted on in between, or a kernel that does not tell mounts by statx.
            Err(VfsError::XDev) => self.covered_entry(cx, ix, name, None),
            Err(e) => Err(e),
        }
    }

    /// Looks up a name in the kernel's caches only, and takes what was found into use: what follows on it is then
    /// warm.
    fn find_cached(&mut self, cx: &Cx<'_>, ix: Ix, name: &[u8]) -> VfsResult<Entry> {
        const CACHED: Resolve = Resolve::CONFINED.and(Resolve::CACHED);
        let fd = self.search(cx, ix, |d| open::beneath(d, name, PATH, CACHED))?.map_err(|e| {
            match e.raw_os_error() {
                Some(libc::EAGAIN | libc::EXDEV | libc::EMFILE | libc::ENFILE) => VfsError::WouldBlock,
                _ => self.in_dir(ix, e),
            }
        })?;
        let st = stat::of_fd(fd.as_fd())?;
        let dir = self.handle(ix)?;
        Ok(self.take_in(fd, &st, (&dir, name))?.1)
    }

    pub(super) fn do_create(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> VfsResult<Entry> {
        component(name)?;
        self.must_wait(cx)?;
        let dx = self.dir(cx, dir)?;
        const FLAGS: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let set = match how {
            CreateHow::Unchecked(s) | CreateHow::Guarded(s) => *s,
            CreateHow::Exclusive(v) => {
                let (atime, mtime) = verifier_times(v);
                SetAttr { atime: SetTime::To(atime), mtime: SetTime::To(mtime), ..SetAttr::default() }
            }
        };
        if let Some(size) = set.size.filter(|s| *s > u64::from(u32::MAX)) {
            // Only the size could fail after the file is made.
            let block = stat::fs(self.shared.root.as_fd())?.block;
            if size > limits(self.shared.magic, block).1 {
                return Err(VfsError::FBig);
            }
        }
        let mode = set.mode.unwrap_or(FILE_MODE) & PERMS;
        // The name may come and go while we look.
        for _ in 0..4 {
            self.as_caller(cx)?;
            match self.with_room(|w| open::at(w.fd(dx).map_err(|_| io::ErrorKind::Other)?, name, FLAGS, mode))
            {
                Ok(fd) => return self.created(cx, dx, name, fd, &set),
                Err(e) if is(&e, libc::EEXIST) => match self.create_existing(cx, dx, name, how) {
                    Err(VfsError::NoEnt) => {}
                    r => return r,
                },
                Err(e) => return Err(self.in_dir(dx, e)),
            }
        }
        Err(VfsError::Delay)
    }

    fn created(&mut self, cx: &Cx<'_>, dx: Ix, name: &[u8], fd: OwnedFd, set: &SetAttr) -> VfsResult<Entry> {
        probe::changed("create");
        let st = stat::of_fd(fd.as_fd())?;
        let dir = self.handle(dx)?;
        let handle = self.handle_of(fd.as_fd(), &st, Some((&dir, name)))?;
        let fd = Arc::new(fd);
        // An object of the same number may have been cached; it is gone.
        self.cache.forget(&handle);
        let ix = self.cache.insert(&handle, st.format(), fd.clone(), self.tick);
        let open = Open {
            who: self.who(cx)?,
            read: true,
            write: true,
            fd,
            proof: Proof::new(&st, self.tick),
            lenient: true,
            align: 0,
            used: self.tick,
        };
        self.cache.add_open(ix, open);
        self.made(cx, dx, ix, &st, set)
    }

    /// CREATE of a name that exists.
    fn create_existing(&mut self, cx: &Cx<'_>, dx: Ix, name: &[u8], how: &CreateHow) -> VfsResult<Entry> {
        if matches!(how, CreateHow::Guarded(_)) {
            return Err(VfsError::Exist);
        }
        let fd = match self.search(cx, dx, |d| open::beneath(d, name, PATH, Resolve::CONFINED))? {
            Err(e) if is(&e, libc::EXDEV) => return Err(VfsError::Exist),
            Err(e) => return Err(self.in_dir(dx, e)),
            Ok(fd) => fd,
        };
        let st = stat::of_fd(fd.as_fd())?;
        // Neither through a link nor onto anything but a file.
        if !st.is_file() {
            return Err(VfsError::Exist);
        }
        let dir = self.handle(dx)?;
        let (ix, entry) = self.take_in(fd, &st, (&dir, name))?;
        match how {
            CreateHow::Unchecked(SetAttr { size: Some(size), .. }) => {
                self.set_size(cx, ix, *size)?;
                if cx.sync {
                    self.flush(ix, Depth::All)?;
                }
                let st = self.stat(ix)?;
                Ok(Entry { attr: self.attr(&st), ..entry })
            }
            CreateHow::Exclusive(v) => {
                let same = verifier_times(v) == (entry.attr.atime, entry.attr.mtime) && st.size() == 0;
                if same { Ok(entry) } else { Err(VfsError::Exist) }
            }
            _ => Ok(entry),
        }
    }

    pub(super) fn do_mkdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        let mode = set.mode.unwrap_or(DIR_MODE) & PERMS;
        self.make(cx, dir, name, set, "mkdir", |d| dir::mkdir(d, name, mode))
    }

    pub(super) fn do_symlink(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        if target.is_empty() || target.contains(&0) {
            return Err(VfsError::Inval);
        }
        if target.len() > PATH_MAX {
            return Err(VfsError::NameTooLong);
        }
        // Links have no mode of their own.
        let set = SetAttr { mode: None, size: None, ..*set };
        self.make(cx, dir, name, &set, "symlink", |d| dir::symlink(target, d, name))
    }

    pub(super) fn do_mknod(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        let (kind, dev) = match node {
            Node::Char(a, b) => (libc::S_IFCHR, (a, b)),
            Node::Block(a, b) => (libc::S_IFBLK, (a, b)),
            Node::Socket => (libc::S_IFSOCK, (0, 0)),
            Node::Fifo => (libc::S_IFIFO, (0, 0)),
        };
        // The kernel's device numbers have 12 and 20 bits.
        if dev.0 >= 1 << 12 || dev.1 >= 1 << 20 {
            return Err(VfsError::Inval);
        }
        let mode = kind | set.mode.unwrap_or(FILE_MODE) & PERMS;
        let set = SetAttr { size: None, ..*set };
        self.make(cx, dir, name, &set, "mknod", |d| dir::mknod(d, name, mode, dev))
    }

    fn make(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        set: &SetAttr,
        what: &'static str,
        make: impl Fn(std::os::fd::BorrowedFd<'_>) -> io::Result<()>,
    ) -> VfsResult<Entry> {
        component(name)?;
        self.must_wait(cx)?;
        let dx = self.dir(cx, dir)?;
        self.as_caller(cx)?;
        make(self.fd(dx)?).map_err(|e| self.in_dir(dx, e))?;
        probe::changed(what);
        let fd = self.with_room(|w| {
            open::beneath(w.fd(dx).map_err(|_| io::ErrorKind::Other)?, name, PATH, Resolve::CONFINED)
        });
        let fd = fd.map_err(|e| self.in_dir(dx, e))?;
        let st = stat::of_fd(fd.as_fd())?;
        let (ix, _) = self.take_in(fd, &st, (dir, name))?;
        self.made(cx, dx, ix, &st, set)
    }

    /// Gives what was just made the attributes asked for, and makes it durable.
    fn made(&mut self, cx: &Cx<'_>, dx: Ix, ix: Ix, st: &Stat, set: &SetAttr) -> VfsResult<Entry> {
        let mut now = *st;
        let root = self.shared.switch && cx.ident.uid == 0;
        let mut changed = false;
        if let Some(size) = set.size.filter(|s| *s != 0 && st.is_file()) {
            self.set_size(cx, ix, size)?;
            changed = true;
        }
        // Others than root are given what they make and cannot give it away.
        let (uid, gid) =
            (set.uid.filter(|u| root && *u != st.uid()), set.gid.filter(|g| root && *g != st.gid()));
        if uid.is_some() || gid.is_some() {
            self.as_caller(cx)?;
            attr::chown(self.fd(ix)?, uid, gid)?;
            changed = true;
        }
        if let Some(mode) = set.mode.filter(|m| m & 0o6000 != 0) {
            // mkdir leaves out set-id bits, chown clears them; what a default access control list or the directory's
            // set-group-id bit made of the rest stays.
            let lost = mode & 0o6000 & !stat::of_fd(self.fd(ix)?)?.mode();
            if lost != 0 && st.format() != libc::S_IFLNK {
                self.as_caller(cx)?;
                attr::chmod(&self.shared.table, self.fd(ix)?, st.mode() & PERMS | lost)?;
                changed = true;
            }
        }
        let (atime, mtime) = (new_time(set.atime), new_time(set.mtime));
        if matches!(set.atime, SetTime::To(_)) || matches!(set.mtime, SetTime::To(_)) {
            self.as_caller(cx)?;
            attr::set_times(self.fd(ix)?, atime, mtime)?;
            changed = true;
        }
        if changed {
            now = self.stat(ix)?;
            let tick = self.tick;
            if let Some(o) = self.cache.get_mut(ix) {
                o.opens.iter_mut().for_each(|x| x.proof = Proof::new(&now, tick));
            }
        }
        if cx.sync && !self.shared.memory() {
            // Links and special files have nothing of their own to flush that is not in the directory's journal.
            if now.is_file() || now.is_dir() {
                self.flush(ix, Depth::All)?;
            }
            self.flush(dx, Depth::All)?;
        }
        Ok(Entry { handle: self.handle(ix)?, attr: self.attr(&now) })
    }

    pub(super) fn do_remove(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        is_dir: bool,
    ) -> VfsResult<()> {
        component(name)?;
        self.must_wait(cx)?;
        let dx = self.dir(cx, dir)?;
        let victim = self.peek(cx, dx, name)?;
        self.as_caller(cx)?;
        let d = self.fd(dx)?;
        let r = if is_dir { dir::rmdir(d, name) } else { dir::unlink(d, name) };
        r.map_err(|e| match e.raw_os_error() {
            Some(libc::EEXIST) if is_dir => VfsError::NotEmpty,
            _ => self.in_dir(dx, e),
        })?;
        probe::changed(if is_dir { "rmdir" } else { "remove" });
        self.gone(victim);
        if let Some(map) = &self.shared.map {
            map.removed(dir, name);
        }
        self.settle_dir(cx, dx)
    }

    pub(super) fn do_rename(
        &mut self,
        cx: &Cx<'_>,
        (from, old): (&Handle, &[u8]),
        (to, new): (&Handle, &[u8]),
    ) -> VfsResult<()> {
        component(old)?;
        component(new)?;
        self.must_wait(cx)?;
        let (fx, tx) = (self.dir(cx, from)?, self.dir(cx, to)?);
        let victim = match self.peek(cx, tx, new) {
            Ok(v) => v,
            Err(VfsError::NoEnt) => None,
            Err(e) => return Err(e),
        };
        self.as_caller(cx)?;
        dir::rename(self.fd(fx)?, old, self.fd(tx)?, new, 0).map_err(|e| match e.raw_os_error() {
            Some(libc::EEXIST) => VfsError::NotEmpty,
            Some(libc::ENOENT) if self.stat(tx).is_err() => VfsError::Stale,
            _ => self.in_dir(fx, e),
        })?;
        probe::changed("rename");
        self.gone(victim);
        if let Some(map) = &self.shared.map {
            map.moved((from, old), (to, new));
        }
        self.settle_dir(cx, tx)?;
        if fx != tx { self.settle_dir(cx, fx) } else { Ok(()) }
    }

    pub(super) fn do_link(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        dir: &Handle,
        name: &[u8],
    ) -> VfsResult<Attr> {
        component(name)?;
        self.must_wait(cx)?;
        let (ix, dx) = (self.object(cx, obj)?, self.dir(cx, dir)?);
        self.stat(ix)?;
        self.as_caller(cx)?;
        dir::link_fd(&self.shared.table, self.fd(ix)?, self.fd(dx)?, name).map_err(|e| {
            if is(&e, libc::ENOENT) && self.stat(ix).is_err() { VfsError::Stale } else { self.in_dir(dx, e) }
        })?;
        probe::changed("link");
        if let Some(map) = &self.shared.map {
            map.assign(&super::map::key_of(self.fd(ix)?)?, dir, name)?;
        }
        let st = self.stat(ix)?;
        if cx.sync && st.is_file() {
            self.flush(ix, Depth::All)?;
        }
        self.settle_dir(cx, dx)?;
        Ok(self.attr(&st))
    }

    pub(super) fn do_readlink(&mut self, cx: &Cx<'_>, obj: &Handle, buf: &mut [u8]) -> VfsResult<usize> {
        let ix = self.object(cx, obj)?;
        if self.cache.get(ix).is_none_or(|o| o.format != libc::S_IFLNK) {
            return Err(VfsError::Inval);
        }
        // A long target is kept in a block of its own.
        let st = self.stat(ix)?;
        if st.blocks() > 0 {
            self.must_wait(cx)?;
        }
        Ok(dir::readlink(self.fd(ix)?, buf)?)
    }

    fn settle_dir(&mut self, cx: &Cx<'_>, dx: Ix) -> VfsResult<()> {
        if cx.sync { self.flush(dx, Depth::All) } else { Ok(()) }
    }

    /// The handle of what is about to lose a name, if it can be told.
    fn peek(&mut self, cx: &Cx<'_>, dx: Ix, name: &[u8]) -> VfsResult<Option<Handle>> {
        if let Some(map) = &self.shared.map {
            return Ok(map.at(&self.handle(dx)?, name));
        }
        match self.search(cx, dx, |d| kernel::by_name(d, name))? {
            Ok((k, mount)) if self.shared.mount.is_none_or(|m| m == mount as u64) => {
                Ok(handle::kernel(0, k.kind(), k.bytes()))
            }
            Err(e) if is(&e, libc::ENOENT) => Err(self.in_dir(dx, e)),
            _ => Ok(None),
        }
    }

    /// An object lost a name: every thread lets go of it, so that its space is freed if it was the last.
    fn gone(&mut self, victim: Option<Handle>) {
        if let Some(h) = victim {
            self.cache.forget(&h);
            self.shared.removals.push(&h);
        }
    }

    /// The entry of a directory that a mount covers; `fileid` is its number below the mount, if known.
    pub(super) fn covered_entry(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        name: &[u8],
        fileid: Option<u64>,
    ) -> VfsResult<Entry> {
        let fileid = match fileid {
            Some(n) => n,
            None => self.number_below(cx, ix, name)?,
        };
        let parent = self.handle(ix)?;
        let handle = handle::covered(0, fileid, &parent).ok_or(VfsError::Acces)?;
        let st = self.stat(ix)?;
        Ok(Entry { handle, attr: self.covered_attr(&st, fileid) })
    }

    /// The object number that a directory lists for a mount point: only the listing tells what is below the mount.
    fn number_below(&mut self, cx: &Cx<'_>, ix: Ix, name: &[u8]) -> VfsResult<u64> {
        self.must_wait(cx)?;
        self.as_service()?;
        const FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY;
        let fd =
            self.with_room(|w| w.shared.table.reopen(w.fd(ix).map_err(|_| io::ErrorKind::Other)?, FLAGS))?;
        let mut buf = [0u8; 4096];
        loop {
            let n = dir::read(fd.as_fd(), &mut buf)?;
            if n == 0 {
                return Err(VfsError::NoEnt);
            }
            let filled = buf.get(..n).unwrap_or_default();
            if let Some(e) = dir::Entries::new(filled).find(|e| e.name.to_bytes() == name) {
                return Ok(e.ino);
            }
        }
    }

    fn lookup_covered(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        let (fileid, parent) = handle::covered_parts(dir).ok_or(VfsError::BadHandle)?;
        let px = self.dir(cx, &parent)?;
        let st = self.stat(px)?;
        match name {
            b"." => Ok(Entry { handle: *dir, attr: self.covered_attr(&st, fileid) }),
            b".." => Ok(Entry { handle: parent, attr: self.attr(&st) }),
            _ => Err(VfsError::NoEnt),
        }
    }

    /// Sets the size of a file as truncate(2) by the caller would.
    pub(super) fn set_size(&mut self, cx: &Cx<'_>, ix: Ix, size: u64) -> VfsResult<()> {
        let at = self.open_data(cx, ix, true)?;
        let before = self.stat(ix)?;
        self.still_allowed(cx, ix, at, true, &before)?;
        let size = i64::try_from(size).map_err(|_| VfsError::FBig)?;
        self.as_writer(cx)?;
        let x = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?;
        file::truncate(x.fd.as_fd(), size).map_err(name_error)?;
        let after = self.stat(ix)?;
        if let Some(x) = self.cache.get_mut(ix).and_then(|o| o.opens.get_mut(at)) {
            x.proof.follow(&before, &after);
        }
        Ok(())
    }
}

/// A create verifier as the two times that keep it; without the sign bits, which not every file system keeps.
fn verifier_times(v: &[u8; 8]) -> (Time, Time) {
    let [a, b, c, d, e, f, g, h] = *v;
    let sec = |b: [u8; 4]| Time { sec: i64::from(u32::from_be_bytes(b) & 0x7fff_ffff), nsec: 0 };
    (sec([a, b, c, d]), sec([e, f, g, h]))
}

pub(super) fn new_time(t: SetTime) -> NewTime {
    match t {
        SetTime::Keep => NewTime::Keep,
        SetTime::ServerNow => NewTime::Now,
        SetTime::To(t) => NewTime::At(t.sec, t.nsec),
    }
}

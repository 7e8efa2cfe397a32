//! From a handle to an open object, and from what was found to its handle.

use super::between::Gift;
use super::cache::{Grant, Ix, Open, Proof};
use super::handle::{self, Decoded};
use super::ident::{self, SERVICE, Who};
use super::{Worker, map};
use crate::vfs::{Attr, Cx, Entry, Handle, VfsError, VfsResult};
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use sunrpc_sys::handle::{self as kernel, KernelHandle};
use sunrpc_sys::open::{self, Resolve};
use sunrpc_sys::stat::{self, Stat};

pub(super) const PATH: i32 = libc::O_PATH | libc::O_NOFOLLOW;
const X: u8 = libc::X_OK as u8;
/// Deepest directory whose way to the root is checked.
const DEPTH_MAX: usize = 4096;

fn is(e: &io::Error, errno: i32) -> bool {
    e.raw_os_error() == Some(errno)
}

/// Attributes as a system call gave them, or the error that the object itself has.
pub(super) fn name_error(e: io::Error) -> VfsError {
    match e.raw_os_error() {
        // A mount point that would have to go, or a name that the kernel uses at the moment.
        Some(libc::EBUSY) => VfsError::Acces,
        _ => e.into(),
    }
}

impl Worker {
    /// The caller's number on this thread.
    #[inline]
    pub(super) fn who(&self, cx: &Cx<'_>) -> VfsResult<Who> {
        if self.shared.switch { Ok(ident::number(cx.ident)?) } else { Ok(SERVICE) }
    }

    /// Takes on the caller's rights.
    #[inline]
    pub(super) fn as_caller(&self, cx: &Cx<'_>) -> VfsResult<()> {
        if self.shared.switch { Ok(ident::become_user(cx.ident)?) } else { Ok(()) }
    }

    /// Takes on the server's rights.
    pub(super) fn as_service(&self) -> VfsResult<()> {
        if self.shared.switch { Ok(ident::become_service()?) } else { Ok(()) }
    }

    /// For changing contents through an open descriptor.
    #[inline]
    pub(super) fn as_writer(&self, cx: &Cx<'_>) -> VfsResult<()> {
        if self.shared.switch { Ok(ident::become_writer(cx.ident)?) } else { Ok(()) }
    }

    /// True if the caller owns the object.
    #[inline]
    pub(super) fn owns(&self, cx: &Cx<'_>, st: &Stat) -> bool {
        st.uid() == if self.shared.switch { cx.ident.uid } else { self.shared.own_uid }
    }

    /// Runs a call that opens a descriptor; if there are no more, gives some up and tries again.
    pub(super) fn with_room<R>(&mut self, f: impl Fn(&Self) -> io::Result<R>) -> io::Result<R> {
        match f(self) {
            Err(e) if is(&e, libc::EMFILE) || is(&e, libc::ENFILE) => {
                self.streams.clear();
                self.cache.shrink();
                f(self)
            }
            r => r,
        }
    }

    /// The open object of a handle.
    #[inline]
    pub(super) fn object(&mut self, cx: &Cx<'_>, h: &Handle) -> VfsResult<Ix> {
        match self.cache.find(h, self.tick) {
            Some(ix) => Ok(ix),
            None => self.object_cold(cx, h),
        }
    }

    #[cold]
    fn object_cold(&mut self, cx: &Cx<'_>, h: &Handle) -> VfsResult<Ix> {
        if *h == self.shared.root_handle {
            let root = self.shared.root.clone();
            return Ok(self.cache.insert(h, libc::S_IFDIR, root, self.tick));
        }
        self.adopt();
        if let Some(ix) = self.cache.find(h, self.tick) {
            return Ok(ix);
        }
        let decoded = handle::decode(h).ok_or(VfsError::BadHandle)?;
        if matches!(decoded, Decoded::Covered { .. }) {
            // Nothing can be done in a directory whose contents are hidden.
            return Err(VfsError::RoFs);
        }
        if !self.may_wait(cx) {
            self.want(h);
            return Err(VfsError::WouldBlock);
        }
        let fd = match decoded {
            Decoded::Kernel { mount: 0, kind, bytes } if self.shared.by_handle => {
                let k = KernelHandle::new(i32::from(kind), bytes).ok_or(VfsError::BadHandle)?;
                self.as_service()?;
                let open = |w: &Self| kernel::open(w.shared.root.as_fd(), &k, PATH);
                let mut r = self.with_room(open);
                for _ in 0..8 {
                    // Also the answer while the number of a removed object is being given to a new one, which takes
                    // no more than a moment.
                    if r.as_ref().is_err_and(|e| is(e, libc::ENOMEM)) {
                        std::thread::yield_now();
                        r = open(self);
                    }
                }
                r.map_err(|e| match e.raw_os_error() {
                    Some(libc::ESTALE | libc::ENOENT) => VfsError::Stale,
                    Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EOVERFLOW) => VfsError::BadHandle,
                    _ => e.into(),
                })?
            }
            Decoded::Mapped { mount: 0, id, epoch } => {
                let shared = self.shared.clone();
                let map = shared.map.as_ref().ok_or(VfsError::Stale)?;
                self.as_service()?;
                match map.find(shared.root.as_fd(), id, epoch) {
                    Err(VfsError::Delay) => {
                        self.cache.shrink();
                        map.find(shared.root.as_fd(), id, epoch)?
                    }
                    r => r?,
                }
            }
            // Made when this server could open by handle, or by one with more mounts.
            Decoded::Kernel { mount: 0, .. } => return Err(VfsError::Stale),
            _ => return Err(VfsError::BadHandle),
        };
        let st = stat::of_fd(fd.as_fd())?;
        if st.nlink() == 0 && self.shared.counts_links {
            return Err(VfsError::Stale);
        }
        Ok(self.cache.insert(h, st.format(), Arc::new(fd), self.tick))
    }

    /// The open directory of a handle.
    #[inline]
    pub(super) fn dir(&mut self, cx: &Cx<'_>, h: &Handle) -> VfsResult<Ix> {
        let ix = self.object(cx, h)?;
        if self.cache.get(ix).is_some_and(|o| o.is_dir()) { Ok(ix) } else { Err(VfsError::NotDir) }
    }

    /// A descriptor of an object in use.
    #[inline]
    pub(super) fn fd(&self, ix: Ix) -> VfsResult<BorrowedFd<'_>> {
        self.cache.get(ix).map(|o| o.fd()).ok_or(VfsError::Fault)
    }

    /// Handle of an object in use.
    #[inline]
    pub(super) fn handle(&self, ix: Ix) -> VfsResult<Handle> {
        self.cache.get(ix).map(|o| o.handle).ok_or(VfsError::Fault)
    }

    /// Attributes of an object in use; it is stale once its last name is gone.
    #[inline]
    pub(super) fn stat(&mut self, ix: Ix) -> VfsResult<Stat> {
        let st = stat::of_fd(self.fd(ix)?)?;
        self.alive(ix, &st)?;
        Ok(st)
    }

    #[inline]
    pub(super) fn alive(&mut self, ix: Ix, st: &Stat) -> VfsResult<()> {
        if st.nlink() == 0 && self.shared.counts_links {
            let h = self.handle(ix)?;
            self.cache.forget(&h);
            return Err(VfsError::Stale);
        }
        Ok(())
    }

    pub(super) fn attr(&self, st: &Stat) -> Attr {
        self.shared.attr(st)
    }

    /// What a failed call in directory `ix` means: a removed directory answers ENOENT to everything.
    pub(super) fn in_dir(&mut self, ix: Ix, e: io::Error) -> VfsError {
        if is(&e, libc::ENOENT)
            && let Err(VfsError::Stale) = self.stat(ix)
        {
            return VfsError::Stale;
        }
        name_error(e)
    }

    /// Runs a call that needs search permission on directory `ix` and nothing else, and changes nothing. Another
    /// caller's rights will do if this one was found to have the permission and the directory has not changed since;
    /// that saves a switch where callers alternate.
    #[inline]
    pub(super) fn search<R>(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        f: impl Fn(BorrowedFd<'_>) -> io::Result<R>,
    ) -> VfsResult<io::Result<R>> {
        if !self.shared.switch || ident::is(cx.ident) {
            return Ok(f(self.fd(ix)?));
        }
        self.search_as_other(cx, ix, f)
    }

    fn search_as_other<R>(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        f: impl Fn(BorrowedFd<'_>) -> io::Result<R>,
    ) -> VfsResult<io::Result<R>> {
        let who = self.who(cx)?;
        let st = self.stat(ix)?;
        let o = self.cache.get(ix).ok_or(VfsError::Fault)?;
        if o.grant(who).is_some_and(|g| g.ctime == st.ctime() && g.granted & X != 0) {
            match f(o.fd()) {
                Err(e) if is(&e, libc::EACCES) => {}
                r => return Ok(r),
            }
        }
        self.as_caller(cx)?;
        let o = self.cache.get_mut(ix).ok_or(VfsError::Fault)?;
        let r = f(o.fd());
        if r.as_ref().is_ok_and(|_| true) || r.as_ref().is_err_and(|e| is(e, libc::ENOENT)) {
            o.remember(Grant { who, ctime: st.ctime(), known: X, granted: X });
        }
        Ok(r)
    }

    /// Handle and attributes of `name` in directory `ix`, of which `st` was just learned; both of the same object.
    pub(super) fn handle_at(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        name: &[u8],
        st: &Stat,
    ) -> VfsResult<(Handle, Stat)> {
        if let Some(h) = self.known.get(st) {
            return Ok((h, *st));
        }
        if self.shared.by_handle {
            let (k, mount) =
                self.search(cx, ix, |d| kernel::by_name(d, name))?.map_err(|e| self.in_dir(ix, e))?;
            if names_inode(&k, st.ino())
                && self.shared.mount.is_none_or(|m| m == mount as u64)
                && let Some(h) = handle::kernel(0, k.kind(), k.bytes())
            {
                self.known.put(st, &h);
                return Ok((h, *st));
            }
        }
        // The handle does not show its inode, or the name came to mean another object in between: ask about a
        // descriptor, which stays the same object.
        let fd = self
            .search(cx, ix, |d| open::beneath(d, name, PATH, Resolve::CONFINED))?
            .map_err(|e| self.in_dir(ix, e))?;
        let st = stat::of_fd(fd.as_fd())?;
        let dir = self.handle(ix)?;
        let h = self.handle_of(fd.as_fd(), &st, Some((&dir, name)))?;
        Ok((h, st))
    }

    /// The handle of an open object that was found at `place`.
    pub(super) fn handle_of(
        &mut self,
        fd: BorrowedFd<'_>,
        st: &Stat,
        place: Option<(&Handle, &[u8])>,
    ) -> VfsResult<Handle> {
        if let Some(h) = self.known.get(st) {
            return Ok(h);
        }
        let h = match &self.shared.map {
            None => {
                let (k, _) = kernel::of_fd(fd)?;
                handle::kernel(0, k.kind(), k.bytes()).ok_or(VfsError::NotSupp)?
            }
            Some(map) => {
                let key = map::key_of(fd)?;
                match place {
                    Some((dir, name)) => map.assign(&key, dir, name)?,
                    None => map.known(&key).ok_or(VfsError::Stale)?,
                }
            }
        };
        // The map wants to hear of every place, so its handles are not remembered.
        if self.shared.map.is_none() {
            self.known.put(st, &h);
        }
        Ok(h)
    }

    /// Takes an open object into use and answers its entry.
    pub(super) fn take_in(
        &mut self,
        fd: OwnedFd,
        st: &Stat,
        place: (&Handle, &[u8]),
    ) -> VfsResult<(Ix, Entry)> {
        let handle = self.handle_of(fd.as_fd(), st, Some(place))?;
        let ix = self.cache.insert(&handle, st.format(), Arc::new(fd), self.tick);
        Ok((ix, Entry { handle, attr: self.attr(st) }))
    }

    /// The parent of directory `ix`; the root is its own.
    pub(super) fn parent(&mut self, cx: &Cx<'_>, ix: Ix) -> VfsResult<Entry> {
        let h = self.handle(ix)?;
        if h == self.shared.root_handle {
            let st = self.stat(ix)?;
            return Ok(Entry { handle: h, attr: self.attr(&st) });
        }
        self.must_wait(cx)?;
        const UP: i32 = PATH | libc::O_DIRECTORY;
        let fd =
            self.search(cx, ix, |d| open::beneath(d, b"..", UP, Resolve::SAME_MOUNT))?.map_err(
                |e| match e.raw_os_error() {
                    Some(libc::EXDEV) => VfsError::Acces,
                    _ => self.in_dir(ix, e),
                },
            )?;
        let st = stat::of_fd(fd.as_fd())?;
        self.below_root(&fd, &st)?;
        if self.shared.is_root(&st) {
            return Ok(Entry { handle: self.shared.root_handle, attr: self.attr(&st) });
        }
        let handle = self.handle_of(fd.as_fd(), &st, None)?;
        self.cache.insert(&handle, st.format(), Arc::new(fd), self.tick);
        Ok(Entry { handle, attr: self.attr(&st) })
    }

    /// Checks that a directory is the root or below it. One that was moved out of the export is not, and its parent is
    /// nobody's business.
    fn below_root(&self, fd: &OwnedFd, st: &Stat) -> VfsResult<()> {
        const UP: i32 = PATH | libc::O_DIRECTORY;
        self.as_service()?;
        let (mut at, mut above) = (*st, None);
        for _ in 0..DEPTH_MAX {
            if self.shared.is_root(&at) {
                return Ok(());
            }
            let from: &OwnedFd = above.as_ref().unwrap_or(fd);
            let up =
                open::beneath(from.as_fd(), b"..", UP, Resolve::SAME_MOUNT).map_err(|_| VfsError::Acces)?;
            let next = stat::of_fd(up.as_fd())?;
            if (next.dev(), next.ino()) == (at.dev(), at.ino()) {
                return Err(VfsError::Acces);
            }
            (at, above) = (next, Some(up));
        }
        Err(VfsError::Acces)
    }

    /// The position of a descriptor of a regular file that the caller may read, or write. Whether the permission still
    /// holds is for [`Worker::still_allowed`] to say.
    #[inline]
    pub(super) fn open_data(&mut self, cx: &Cx<'_>, ix: Ix, write: bool) -> VfsResult<usize> {
        let who = self.who(cx)?;
        match self.find_open(ix, who, write) {
            Some(at) => Ok(at),
            None => self.open_cold(cx, ix, who, write),
        }
    }

    #[inline]
    fn find_open(&mut self, ix: Ix, who: Who, write: bool) -> Option<usize> {
        let tick = self.tick;
        let o = self.cache.get_mut(ix)?;
        let fits = |x: &Open| x.who == who && x.align == 0 && if write { x.write } else { x.read };
        let (at, x) = o.opens.iter_mut().enumerate().find(|(_, x)| fits(x))?;
        x.used = tick;
        Some(at)
    }

    #[cold]
    fn open_cold(&mut self, cx: &Cx<'_>, ix: Ix, who: Who, write: bool) -> VfsResult<usize> {
        let st = self.stat(ix)?;
        match st.format() {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(VfsError::IsDir),
            _ => return Err(VfsError::Inval),
        }
        self.adopt();
        if let Some(at) = self.find_open(ix, who, write) {
            return Ok(at);
        }
        if !self.may_wait(cx) {
            let h = self.handle(ix)?;
            self.want(&h);
            return Err(VfsError::WouldBlock);
        }
        let flags = libc::O_NONBLOCK | if write { libc::O_WRONLY } else { libc::O_RDONLY };
        self.as_caller(cx)?;
        let reopen = |w: &Self| w.shared.table.reopen(w.fd(ix).map_err(|_| io::ErrorKind::Other)?, flags);
        let mut lenient = false;
        let fd = match self.with_room(reopen) {
            Err(e) if is(&e, libc::EACCES) && cx.owner_override => {
                let may = self.owns(cx, &st)
                    || !write && sunrpc_sys::attr::access(self.fd(ix)?, libc::X_OK).is_ok();
                if !may {
                    return Err(VfsError::Acces);
                }
                lenient = true;
                self.as_service()?;
                match self.with_room(reopen) {
                    Err(e) if is(&e, libc::EACCES) && self.owns(cx, &st) => {
                        self.reopen_own(ix, &st, flags)?
                    }
                    r => r?,
                }
            }
            r => r?,
        };
        let proof = Proof::new(&st, self.tick);
        let open =
            Open { who, read: !write, write, fd: Arc::new(fd), proof, lenient, align: 0, used: self.tick };
        self.cache.add_open(ix, open).ok_or(VfsError::Fault)
    }

    /// Opens an own file against its mode bits without the privilege to overrule them: for a moment they are others.
    fn reopen_own(&mut self, ix: Ix, st: &Stat, flags: i32) -> VfsResult<OwnedFd> {
        use sunrpc_sys::attr::chmod;
        let mode = st.mode() & 0o7777;
        chmod(&self.shared.table, self.fd(ix)?, mode | 0o600)?;
        let fd =
            self.with_room(|w| w.shared.table.reopen(w.fd(ix).map_err(|_| io::ErrorKind::Other)?, flags));
        chmod(&self.shared.table, self.fd(ix)?, mode)?;
        Ok(fd?)
    }

    /// Checks that what was opened earlier may still be used, the object's attributes being `st` now.
    #[inline]
    pub(super) fn still_allowed(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        at: usize,
        write: bool,
        st: &Stat,
    ) -> VfsResult<()> {
        let tick = self.tick;
        let x = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?;
        if x.proof.holds(st, tick) && (!x.lenient || cx.owner_override)
            || cx.owner_override && self.owns(cx, st)
        {
            return Ok(());
        }
        self.ask_again(cx, ix, at, write, st)
    }

    #[cold]
    fn ask_again(&mut self, cx: &Cx<'_>, ix: Ix, at: usize, write: bool, st: &Stat) -> VfsResult<()> {
        use sunrpc_sys::attr::access;
        self.as_caller(cx)?;
        let fd = self.fd(ix)?;
        let strict = access(fd, if write { libc::W_OK } else { libc::R_OK }).is_ok();
        let executes = || cx.owner_override && !write && access(fd, libc::X_OK).is_ok();
        if !strict && !executes() {
            if cx.owner_override {
                self.cache.close(ix, at);
            }
            return Err(VfsError::Acces);
        }
        let tick = self.tick;
        if let Some(x) = self.cache.get_mut(ix).and_then(|o| o.opens.get_mut(at)) {
            x.proof = Proof::new(st, tick);
            x.lenient = !strict;
        }
        Ok(())
    }

    /// Notes that this worker would like to have an object that it leaves to a helper.
    fn want(&mut self, h: &Handle) {
        let shared = &self.shared;
        let (_, number) = self.inbox.get_or_insert_with(|| shared.handoff.join());
        if let Some(n) = number {
            shared.handoff.want(h, *n);
        }
    }

    /// Takes in what helpers opened for this worker.
    pub(super) fn adopt(&mut self) {
        let Some((inbox, _)) = &self.inbox else { return };
        for gift in inbox.take() {
            let Ok(who) = ident::number(&gift.ident) else { continue };
            let who = if self.shared.switch { who } else { SERVICE };
            let ix = self.cache.insert(&gift.handle, gift.format, gift.path, self.tick);
            for x in gift.opens {
                if self.find_open(ix, who, x.write).is_none() {
                    self.cache.add_open(ix, Open { who, used: self.tick, ..x });
                }
            }
            if let (Some(g), Some(o)) = (gift.grant, self.cache.get_mut(ix)) {
                o.remember(Grant { who, ..g });
            }
        }
    }

    /// Hands an object, and what this caller may do with it, to the worker that wants it.
    #[inline]
    pub(super) fn hand_over(&mut self, cx: &Cx<'_>, h: &Handle) {
        if let Some(inbox) = self.shared.handoff.wanted(h) {
            let Ok(who) = self.who(cx) else { return };
            let Some(o) = self.cache.find(h, self.tick).and_then(|ix| self.cache.get(ix)) else { return };
            inbox.put(Gift {
                handle: *h,
                format: o.format,
                path: o.path.clone(),
                ident: cx.ident.clone(),
                opens: o
                    .opens
                    .iter()
                    .filter(|x| x.who == who && x.align == 0)
                    .cloned()
                    .collect::<SmallVec<_>>(),
                grant: o.grant(who).copied(),
            });
        }
    }
}

/// Whether a handle shows that it is of this inode: on the common file systems its number is one of the words.
fn names_inode(k: &KernelHandle, ino: u64) -> bool {
    let low = (ino as u32).to_ne_bytes();
    k.bytes().as_chunks::<4>().0.contains(&low)
}

//! Operations on the tree. Each one checks everything before it changes anything.

use super::data::Data;
use super::dir::{COOKIE_DOT, COOKIE_DOTDOT, Dir};
use super::perm::{self, R, W, X};
use super::tree::{Kind, LINK_MAX, Object, ROOT, SIZE_MAX, Tree};
use crate::vfs::{
    Attr, CreateHow, Cx, DirEntry, DirSink, Entry, FileType, FsStat, Handle, Node, ReaddirWant, SetAttr,
    Time, VfsError, VfsResult,
};
use std::io::IoSlice;

/// Longest name, in bytes.
const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
const TARGET_MAX: usize = 4095;

const DAY: i64 = 86_400;

impl Tree {
    pub(super) fn lookup(&self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        let at = self.find(dir)?;
        let o = self.get(at)?;
        let d = o.dir()?;
        perm::need(o, cx.ident, X)?;
        match name {
            b"." => self.entry(at),
            b".." => self.entry(d.parent),
            _ => self.entry(d.get(name).ok_or(VfsError::NoEnt)?),
        }
    }

    pub(super) fn setattr(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> VfsResult<Attr> {
        let ino = self.find(obj)?;
        let o = self.get(ino)?;
        if guard.is_some_and(|g| g != o.ctime) {
            return Err(VfsError::NotSync);
        }
        if *set == SetAttr::default() {
            return self.attr(ino);
        }
        if set.size.is_some() {
            o.data()?;
        }
        perm::may_set(o, cx, set)?;
        if let Some(size) = set.size {
            self.resize(ino, size)?;
        }
        let now = self.now();
        let o = self.get_mut(ino)?;
        if set.size.is_some() {
            perm::drop_set_id(o, cx.ident);
            o.modified(now);
        }
        perm::set_owner_and_mode(o, cx.ident, set);
        o.attributes_set(set, now);
        self.attr(ino)
    }

    /// Sets the size of a file and settles what that frees.
    fn resize(&mut self, ino: u32, size: u64) -> VfsResult<()> {
        if size > SIZE_MAX {
            return Err(VfsError::FBig);
        }
        let data = self.get_mut(ino)?.data_mut()?;
        let before = data.used();
        data.set_size(size);
        let after = data.used();
        self.refund(before - after);
        Ok(())
    }

    /// True if a read at this moment is to show in the access time: it is the first one after a change, or after a
    /// day. Recording every read would make reads exclude each other.
    pub(super) fn atime_is_due(o: &Object, real: i64) -> bool {
        o.atime <= o.mtime || o.atime <= o.ctime || real - o.atime.sec >= DAY
    }

    pub(super) fn touch_atime(&mut self, obj: &Handle) -> VfsResult<Attr> {
        let ino = self.find(obj)?;
        let now = self.now();
        self.get_mut(ino)?.atime = now;
        self.attr(ino)
    }

    pub(super) fn write(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> VfsResult<(usize, Attr)> {
        let ino = self.find(obj)?;
        let o = self.get(ino)?;
        o.data()?;
        perm::need_write(o, cx)?;
        let len = bufs.iter().map(|b| b.len() as u64).sum::<u64>();
        if len == 0 {
            return Ok((0, self.attr(ino)?));
        }
        if offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(VfsError::FBig);
        }
        let room = self.max_bytes.saturating_sub(self.used);
        let now = self.now();
        let o = self.get_mut(ino)?;
        let data = o.data_mut()?;
        let before = data.used();
        let done = data.write(offset, bufs, room);
        let more = data.used() - before;
        if done == 0 {
            return Err(VfsError::NoSpc);
        }
        perm::drop_set_id(o, cx.ident);
        o.modified(now);
        self.charge(more)?;
        Ok((done, self.attr(ino)?))
    }

    /// The directory, if the caller may add and remove names in it.
    fn writable_dir(&self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<(u32, &Object)> {
        let at = self.find(dir)?;
        let o = self.get(at)?;
        o.dir()?;
        perm::need(o, cx.ident, W | X)?;
        if name.len() > NAME_MAX { Err(VfsError::NameTooLong) } else { Ok((at, o)) }
    }

    /// Makes an object and its name.
    fn make(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        (kind, rdev): (Kind, (u32, u32)),
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        let (at, parent) = self.writable_dir(cx, dir, name)?;
        if matches!(name, b"." | b"..") || parent.dir()?.get(name).is_some() {
            return Err(VfsError::Exist);
        }
        let id = cx.ident;
        let (mut gid, inherited) = perm::inherit(parent, id);
        let mut uid = id.uid;
        // Only the superuser gives objects away; anybody else gets the object under an own name.
        if id.uid == 0 {
            uid = set.uid.unwrap_or(uid);
            gid = set.gid.unwrap_or(gid);
        } else if let Some(g) = set.gid.filter(|g| perm::in_group(id, *g)) {
            gid = g;
        }
        let is_dir = matches!(kind, Kind::Dir(_));
        let default_mode = if is_dir { 0o755 } else { 0o644 };
        let mode = perm::mode_at_birth(set.mode.unwrap_or(default_mode), gid, id)
            | if is_dir { inherited } else { 0 };
        let now = self.now();
        let nlink = if is_dir { 2 } else { 1 };
        let mut o =
            Object { kind, mode, nlink, uid, gid, rdev, atime: now, mtime: now, ctime: now, verf: None };
        o.attributes_set(set, now);
        let ino = self.add_object(o)?;
        if let Err(e) = self.add_name(at, name, ino, now) {
            self.free_object(ino);
            return Err(e);
        }
        if is_dir {
            self.get_mut(at)?.nlink += 1;
        }
        self.entry(ino)
    }

    pub(super) fn create(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> VfsResult<Entry> {
        let at = self.find(dir)?;
        let parent = self.get(at)?;
        let d = parent.dir()?;
        perm::need(parent, cx.ident, X)?;
        if let Some(ino) = d.get(name) {
            let o = self.get(ino)?;
            return match how {
                CreateHow::Exclusive(v) if o.verf == Some(*v) => self.entry(ino),
                CreateHow::Unchecked(set) if matches!(o.kind, Kind::File(_)) => {
                    if set.size.is_some() {
                        let size = SetAttr { size: set.size, ..SetAttr::default() };
                        self.setattr(cx, &self.handle(ino), &size, None)?;
                    }
                    self.entry(ino)
                }
                _ => Err(VfsError::Exist),
            };
        }
        let (set, verf) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => (*set, None),
            // The attributes come with the SETATTR that follows; until then nobody else gets at it.
            CreateHow::Exclusive(v) => (SetAttr { mode: Some(0), ..SetAttr::default() }, Some(*v)),
        };
        let mut data = Data::default();
        match set.size {
            Some(size) if size > SIZE_MAX => return Err(VfsError::FBig),
            Some(size) => data.set_size(size),
            None => {}
        }
        let made = self.make(cx, dir, name, (Kind::File(data), (0, 0)), &set)?;
        if verf.is_some() {
            let ino = self.find(&made.handle)?;
            self.get_mut(ino)?.verf = verf;
        }
        Ok(made)
    }

    pub(super) fn mkdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        let parent = self.find(dir)?;
        self.make(cx, dir, name, (Kind::Dir(Box::new(Dir::new(parent))), (0, 0)), set)
    }

    pub(super) fn symlink(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        match target.len() {
            0 => return Err(VfsError::NoEnt),
            n if n > TARGET_MAX => return Err(VfsError::NameTooLong),
            _ => {}
        }
        let set = SetAttr { mode: Some(0o777), ..*set };
        self.make(cx, dir, name, (Kind::Symlink(target.into()), (0, 0)), &set)
    }

    pub(super) fn mknod(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttr,
    ) -> VfsResult<Entry> {
        let (ftype, rdev) = match node {
            Node::Char(a, b) => (FileType::Char, (a, b)),
            Node::Block(a, b) => (FileType::Block, (a, b)),
            Node::Socket => (FileType::Socket, (0, 0)),
            Node::Fifo => (FileType::Fifo, (0, 0)),
        };
        if matches!(ftype, FileType::Char | FileType::Block) && cx.ident.uid != 0 {
            return Err(VfsError::Perm);
        }
        self.make(cx, dir, name, (Kind::Special(ftype), rdev), set)
    }

    pub(super) fn remove(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        let (at, parent) = self.writable_dir(cx, dir, name)?;
        let ino = parent.dir()?.get(name).ok_or(VfsError::NoEnt)?;
        let o = self.get(ino)?;
        perm::need_unlink(parent, o, cx.ident)?;
        if o.is_dir() {
            return Err(VfsError::IsDir);
        }
        let now = self.now();
        self.drop_name(at, name, now)?;
        self.unlinked(ino, now)
    }

    pub(super) fn rmdir(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<()> {
        let (at, parent) = self.writable_dir(cx, dir, name)?;
        match name {
            b"." => return Err(VfsError::Inval),
            b".." => return Err(VfsError::NotEmpty),
            _ => {}
        }
        let ino = parent.dir()?.get(name).ok_or(VfsError::NoEnt)?;
        let o = self.get(ino)?;
        perm::need_unlink(parent, o, cx.ident)?;
        if !o.dir()?.is_empty() {
            return Err(VfsError::NotEmpty);
        }
        let now = self.now();
        self.drop_name(at, name, now)?;
        self.get_mut(at)?.nlink -= 1;
        self.free_object(ino);
        Ok(())
    }

    pub(super) fn link(&mut self, cx: &Cx<'_>, obj: &Handle, dir: &Handle, name: &[u8]) -> VfsResult<Attr> {
        let ino = self.find(obj)?;
        let (at, parent) = self.writable_dir(cx, dir, name)?;
        let o = self.get(ino)?;
        if matches!(name, b"." | b"..") || parent.dir()?.get(name).is_some() {
            return Err(VfsError::Exist);
        }
        if o.is_dir() {
            return Err(VfsError::Perm);
        }
        if o.nlink >= LINK_MAX {
            return Err(VfsError::MLink);
        }
        let now = self.now();
        self.add_name(at, name, ino, now)?;
        let o = self.get_mut(ino)?;
        o.nlink += 1;
        o.ctime = now;
        self.attr(ino)
    }

    pub(super) fn rename(
        &mut self,
        cx: &Cx<'_>,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) -> VfsResult<()> {
        let (from_at, from_dir) = self.writable_dir(cx, from.0, from.1)?;
        let (to_at, to_dir) = self.writable_dir(cx, to.0, to.1)?;
        if [from.1, to.1].iter().any(|n| matches!(*n, b"." | b"..")) {
            return Err(VfsError::Inval);
        }
        let ino = from_dir.dir()?.get(from.1).ok_or(VfsError::NoEnt)?;
        let target = to_dir.dir()?.get(to.1);
        if target == Some(ino) {
            return Ok(()); // two names of one object: nothing is to be done
        }
        let o = self.get(ino)?;
        let moves_dir = o.is_dir();
        if moves_dir && self.is_at_or_above(ino, to_at)? {
            return Err(VfsError::Inval);
        }
        perm::need_unlink(from_dir, o, cx.ident)?;
        if moves_dir && from_at != to_at {
            perm::need(o, cx.ident, W)?; // its `..` changes
        }
        let replaced = target.map(|t| self.get(t).map(|o| (t, o))).transpose()?;
        if let Some((_, t)) = replaced {
            perm::need_unlink(to_dir, t, cx.ident)?;
            match (moves_dir, t.is_dir()) {
                (true, false) => return Err(VfsError::NotDir),
                (false, true) => return Err(VfsError::IsDir),
                (true, true) if !t.dir()?.is_empty() => return Err(VfsError::NotEmpty),
                _ => {}
            }
        }
        let replaced = replaced.map(|(t, o)| (t, o.is_dir()));

        let now = self.now();
        if replaced.is_some() {
            let d = self.get_mut(to_at)?;
            d.dir_mut()?.put(to.1, ino);
            d.modified(now);
        } else {
            self.add_name(to_at, to.1, ino, now)?;
        }
        self.drop_name(from_at, from.1, now)?;
        match replaced {
            Some((t, true)) => {
                self.get_mut(to_at)?.nlink -= 1;
                self.free_object(t);
            }
            Some((t, false)) => self.unlinked(t, now)?,
            None => {}
        }
        if moves_dir {
            self.get_mut(from_at)?.nlink -= 1;
            self.get_mut(to_at)?.nlink += 1;
            self.get_mut(ino)?.dir_mut()?.parent = to_at;
        }
        self.get_mut(ino)?.ctime = now;
        Ok(())
    }

    pub(super) fn readdir(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        let at = self.find(dir)?;
        let o = self.get(at)?;
        let d = o.dir()?;
        perm::need(o, cx.ident, R)?;
        let mut tell = |name: &[u8], ino: u32, cookie: u64| -> VfsResult<bool> {
            let entry = if want.plus { Some(self.entry(ino)?) } else { None };
            let e = DirEntry { name, fileid: u64::from(ino) + 1, cookie, entry: entry.as_ref() };
            Ok(sink.entry(&e).is_continue())
        };
        if cookie < COOKIE_DOT && !tell(b".", at, COOKIE_DOT)? {
            return Ok(false);
        }
        if cookie < COOKIE_DOTDOT && !tell(b"..", d.parent, COOKIE_DOTDOT)? {
            return Ok(false);
        }
        for (cookie, e) in d.after(cookie.max(COOKIE_DOTDOT)) {
            if !tell(&e.name, e.ino, cookie)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn readlink(&self, obj: &Handle, buf: &mut [u8]) -> VfsResult<usize> {
        let Kind::Symlink(target) = &self.get(self.find(obj)?)?.kind else { return Err(VfsError::Inval) };
        buf.get_mut(..target.len()).ok_or(VfsError::NameTooLong)?.copy_from_slice(target);
        Ok(target.len())
    }

    pub(super) fn statfs(&self, obj: &Handle) -> VfsResult<FsStat> {
        self.find(obj)?;
        let free = self.max_bytes.saturating_sub(self.used);
        let slots = self.max_files - self.files();
        Ok(FsStat {
            bytes: (self.max_bytes, free, free),
            files: (u64::from(self.max_files), u64::from(slots), u64::from(slots)),
            name_max: NAME_MAX as u32,
            link_max: LINK_MAX,
            max_file_size: SIZE_MAX,
            time_delta_ns: 1,
            chown_restricted: true,
            links: true,
        })
    }

    pub(super) fn root(&self) -> Handle {
        self.handle(ROOT)
    }
}

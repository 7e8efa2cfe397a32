//! Objects of the file system: the table of them, their attributes, handles and cost.

use super::MemOptions;
use super::data::Data;
use super::dir::Dir;
use crate::vfs::{Attr, Entry, FileType, Handle, SetAttr, SetTime, Time, VfsError, VfsResult};
use std::time::{SystemTime, UNIX_EPOCH};

/// Slot of the root directory.
pub(super) const ROOT: u32 = 0;
/// Most links to an object that is no directory.
pub(super) const LINK_MAX: u32 = 65_000;
/// Largest file.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

/// What an object, and a name besides its bytes, count for in the budget.
const OBJECT_COST: u64 = 256;
const NAME_COST: u64 = 96;

#[derive(Debug)]
pub(super) enum Kind {
    File(Data),
    Dir(Box<Dir>),
    Symlink(Box<[u8]>),
    Special(FileType),
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: (u32, u32),
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    /// Verifier of the exclusive create that made it, until something else is done with it.
    pub(super) verf: Option<[u8; 8]>,
}

impl Object {
    pub(super) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir(_))
    }

    /// The directory's names.
    pub(super) fn dir(&self) -> VfsResult<&Dir> {
        match &self.kind {
            Kind::Dir(d) => Ok(d),
            _ => Err(VfsError::NotDir),
        }
    }

    pub(super) fn dir_mut(&mut self) -> VfsResult<&mut Dir> {
        match &mut self.kind {
            Kind::Dir(d) => Ok(d),
            _ => Err(VfsError::NotDir),
        }
    }

    /// The file's contents.
    pub(super) fn data(&self) -> VfsResult<&Data> {
        match &self.kind {
            Kind::File(d) => Ok(d),
            Kind::Dir(_) => Err(VfsError::IsDir),
            _ => Err(VfsError::Inval),
        }
    }

    pub(super) fn data_mut(&mut self) -> VfsResult<&mut Data> {
        match &mut self.kind {
            Kind::File(d) => Ok(d),
            Kind::Dir(_) => Err(VfsError::IsDir),
            _ => Err(VfsError::Inval),
        }
    }

    /// The contents changed.
    pub(super) fn modified(&mut self, now: Time) {
        (self.mtime, self.ctime, self.verf) = (now, now, None);
    }

    fn set_times(&mut self, set: &SetAttr, now: Time) {
        for (what, field) in [(set.atime, &mut self.atime), (set.mtime, &mut self.mtime)] {
            match what {
                SetTime::Keep => {}
                SetTime::ServerNow => *field = now,
                SetTime::To(t) => *field = t,
            }
        }
    }

    /// Takes over the times that are to be set; the attributes changed.
    pub(super) fn attributes_set(&mut self, set: &SetAttr, now: Time) {
        self.set_times(set, now);
        (self.ctime, self.verf) = (now, None);
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    object: Option<Object>,
}

/// The whole file system, behind one lock.
#[derive(Debug)]
pub(super) struct Tree {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Tells this file system from its like before a restart, whose handles may still come in.
    instance: u64,
    /// Last time given out.
    clock: Time,
    pub(super) used: u64,
    pub(super) max_bytes: u64,
    pub(super) max_files: u32,
}

impl Tree {
    pub(super) fn new(o: &MemOptions, instance: u64) -> Self {
        let mut t = Tree {
            slots: Vec::new(),
            free: Vec::new(),
            instance,
            clock: Time::default(),
            used: 0,
            max_bytes: o.max_bytes,
            max_files: o.max_files.max(1),
        };
        let now = t.now();
        let root = Object {
            kind: Kind::Dir(Box::new(Dir::new(ROOT))),
            mode: o.root_mode & 0o7777,
            nlink: 2,
            uid: o.root_uid,
            gid: o.root_gid,
            rdev: (0, 0),
            atime: now,
            mtime: now,
            ctime: now,
            verf: None,
        };
        t.slots.push(Slot { generation: 1, object: Some(root) });
        t
    }

    /// The time, later than any that was given out before: every change shows in ctime.
    pub(super) fn now(&mut self) -> Time {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let real = Time { sec: real.as_secs() as i64, nsec: real.subsec_nanos() };
        let next = match self.clock {
            Time { sec, nsec: 999_999_999 } => Time { sec: sec + 1, nsec: 0 },
            Time { sec, nsec } => Time { sec, nsec: nsec + 1 },
        };
        self.clock = real.max(next);
        self.clock
    }

    pub(super) fn files(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    #[inline]
    pub(super) fn handle(&self, ino: u32) -> Handle {
        let generation = self.slots.get(ino as usize).map_or(0, |s| s.generation);
        let mut b = [0u8; 16];
        b[..8].copy_from_slice(&self.instance.to_be_bytes());
        b[8..12].copy_from_slice(&ino.to_be_bytes());
        b[12..].copy_from_slice(&generation.to_be_bytes());
        Handle::new(&b).unwrap_or_else(|| unreachable!("16 bytes fit"))
    }

    /// The slot of the object that a handle names.
    #[inline]
    pub(super) fn find(&self, h: &Handle) -> VfsResult<u32> {
        let b: &[u8; 16] = h.as_bytes().try_into().map_err(|_| VfsError::BadHandle)?;
        let [i0, i1, i2, i3, i4, i5, i6, i7, a, b, c, d, g0, g1, g2, g3] = *b;
        if u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]) != self.instance {
            return Err(VfsError::Stale);
        }
        let ino = u32::from_be_bytes([a, b, c, d]);
        match self.slots.get(ino as usize) {
            Some(s) if s.object.is_some() && s.generation == u32::from_be_bytes([g0, g1, g2, g3]) => Ok(ino),
            _ => Err(VfsError::Stale),
        }
    }

    #[inline]
    pub(super) fn get(&self, ino: u32) -> VfsResult<&Object> {
        self.slots.get(ino as usize).and_then(|s| s.object.as_ref()).ok_or(VfsError::Stale)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ino: u32) -> VfsResult<&mut Object> {
        self.slots.get_mut(ino as usize).and_then(|s| s.object.as_mut()).ok_or(VfsError::Stale)
    }

    #[inline]
    pub(super) fn attr(&self, ino: u32) -> VfsResult<Attr> {
        Ok(self.attr_of(ino, self.get(ino)?))
    }

    #[inline]
    pub(super) fn attr_of(&self, ino: u32, o: &Object) -> Attr {
        let (ftype, size, used) = match &o.kind {
            Kind::File(d) => (FileType::Regular, d.size(), d.used()),
            Kind::Dir(d) => (FileType::Directory, d.len() as u64 * 32, d.len() as u64 * NAME_COST),
            Kind::Symlink(t) => (FileType::Symlink, t.len() as u64, t.len() as u64),
            Kind::Special(t) => (*t, 0, 0),
        };
        Attr {
            ftype,
            mode: o.mode,
            nlink: o.nlink,
            uid: o.uid,
            gid: o.gid,
            size,
            used,
            rdev: o.rdev,
            fsid: self.instance,
            fileid: u64::from(ino) + 1,
            atime: o.atime,
            mtime: o.mtime,
            ctime: o.ctime,
        }
    }

    #[inline]
    pub(super) fn entry(&self, ino: u32) -> VfsResult<Entry> {
        Ok(Entry { handle: self.handle(ino), attr: self.attr(ino)? })
    }

    /// Takes bytes from the budget.
    pub(super) fn charge(&mut self, bytes: u64) -> VfsResult<()> {
        let used = self.used.checked_add(bytes).filter(|u| *u <= self.max_bytes).ok_or(VfsError::NoSpc)?;
        self.used = used;
        Ok(())
    }

    pub(super) fn refund(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(super) fn name_cost(name: &[u8]) -> u64 {
        // Stored twice: by name and by position.
        NAME_COST + 2 * name.len() as u64
    }

    /// Adds a name to a directory.
    pub(super) fn add_name(&mut self, dir: u32, name: &[u8], ino: u32, now: Time) -> VfsResult<()> {
        self.get(dir)?.dir()?;
        self.charge(Self::name_cost(name))?;
        let d = self.get_mut(dir)?;
        d.modified(now);
        d.dir_mut()?.put(name, ino);
        Ok(())
    }

    /// Takes a name out of a directory.
    pub(super) fn drop_name(&mut self, dir: u32, name: &[u8], now: Time) -> VfsResult<u32> {
        let d = self.get_mut(dir)?;
        let ino = d.dir_mut()?.remove(name).ok_or(VfsError::NoEnt)?;
        d.modified(now);
        self.refund(Self::name_cost(name));
        Ok(ino)
    }

    /// Puts a new object into the table, charged, without a name.
    pub(super) fn add_object(&mut self, o: Object) -> VfsResult<u32> {
        if self.files() >= self.max_files {
            return Err(VfsError::NoSpc);
        }
        self.charge(OBJECT_COST + Self::weight(&o))?;
        let ino = match self.free.pop() {
            Some(ino) => ino,
            None => {
                self.slots.push(Slot { generation: 1, object: None });
                (self.slots.len() - 1) as u32
            }
        };
        if let Some(s) = self.slots.get_mut(ino as usize) {
            s.object = Some(o);
        }
        Ok(ino)
    }

    /// Frees an object that has no name any more. Its handles are stale from here on.
    pub(super) fn free_object(&mut self, ino: u32) {
        let Some(s) = self.slots.get_mut(ino as usize) else { return };
        let Some(o) = s.object.take() else { return };
        s.generation = s.generation.wrapping_add(1);
        self.free.push(ino);
        self.refund(OBJECT_COST + Self::weight(&o));
    }

    fn weight(o: &Object) -> u64 {
        match &o.kind {
            Kind::File(d) => d.used(),
            Kind::Symlink(t) => t.len() as u64,
            Kind::Dir(_) | Kind::Special(_) => 0,
        }
    }

    /// One name of an object that is no directory is gone.
    pub(super) fn unlinked(&mut self, ino: u32, now: Time) -> VfsResult<()> {
        let o = self.get_mut(ino)?;
        o.nlink = o.nlink.saturating_sub(1);
        o.ctime = now;
        if o.nlink == 0 {
            self.free_object(ino);
        }
        Ok(())
    }

    /// True if `ino` is `dir` or one of the directories above it.
    pub(super) fn is_at_or_above(&self, ino: u32, mut dir: u32) -> VfsResult<bool> {
        loop {
            if dir == ino {
                return Ok(true);
            }
            if dir == ROOT {
                return Ok(false);
            }
            dir = self.get(dir)?.dir()?.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_when_the_clock_does_not() {
        let mut t = Tree::new(&MemOptions::default(), 1);
        let ahead = Time { sec: t.clock.sec + 1000, nsec: 999_999_998 };
        t.clock = ahead;
        assert_eq!(t.now(), Time { nsec: 999_999_999, ..ahead });
        assert_eq!(t.now(), Time { sec: ahead.sec + 1, nsec: 0 });
        assert_eq!(t.now(), Time { sec: ahead.sec + 1, nsec: 1 });
    }
}

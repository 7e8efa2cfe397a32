//! Attributes, access rights, space.

use super::Worker;
use super::cache::{Grant, Ix};
use super::handle;
use super::names::new_time;
use super::sync::{Depth, probe};
use crate::vfs::{Access, Attr, Cx, FileType, FsStat, Handle, SetAttr, SetTime, Time, VfsError, VfsResult};
use sunrpc_sys::attr::{self, NewTime};
use sunrpc_sys::stat::{self, Stat};

const R: u8 = libc::R_OK as u8;
const W: u8 = libc::W_OK as u8;
const X: u8 = libc::X_OK as u8;

impl Worker {
    #[inline]
    pub(super) fn do_getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        if handle::is_covered(obj) {
            return self.covered(cx, obj);
        }
        let ix = self.object(cx, obj)?;
        let st = self.stat(ix)?;
        Ok(self.attr(&st))
    }

    fn covered(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        let (fileid, parent) = handle::covered_parts(obj).ok_or(VfsError::BadHandle)?;
        let px = self.dir(cx, &parent)?;
        let st = self.stat(px)?;
        Ok(self.covered_attr(&st, fileid))
    }

    /// What a covered directory looks like: an empty one that nobody can change, as old as its parent.
    pub(super) fn covered_attr(&self, parent: &Stat, fileid: u64) -> Attr {
        Attr {
            ftype: FileType::Directory,
            mode: 0o555,
            nlink: 2,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fileid,
            ..self.attr(parent)
        }
    }

    pub(super) fn do_setattr(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> VfsResult<Attr> {
        self.must_wait(cx)?;
        let ix = self.object(cx, obj)?;
        let st = self.stat(ix)?;
        let (sec, nsec) = st.ctime();
        if guard.is_some_and(|g| g != Time { sec, nsec }) {
            return Err(VfsError::NotSync);
        }
        if *set == SetAttr::default() {
            return Ok(self.attr(&st));
        }
        let root = self.shared.switch && cx.ident.uid == 0;
        let owner = root || self.owns(cx, &st);
        let explicit = |t: SetTime| matches!(t, SetTime::To(_));
        let times = set.atime != SetTime::Keep || set.mtime != SetTime::Keep;
        // Refuse before anything is changed what could only fail half-way.
        if !owner && (set.mode.is_some() || explicit(set.atime) || explicit(set.mtime)) {
            return Err(VfsError::Perm);
        }
        if set.mode.is_some() && st.format() == libc::S_IFLNK {
            return Err(VfsError::NotSupp);
        }
        if set.size.is_some() && !st.is_file() {
            return Err(if st.is_dir() { VfsError::IsDir } else { VfsError::Inval });
        }
        if let Some(size) = set.size {
            self.set_size(cx, ix, size)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            self.as_caller(cx)?;
            attr::chown(self.fd(ix)?, set.uid, set.gid)?;
        }
        if let Some(mode) = set.mode {
            self.as_caller(cx)?;
            attr::chmod(&self.shared.table, self.fd(ix)?, mode & 0o7777)?;
        }
        if times {
            self.set_times(cx, ix, set, owner)?;
        }
        probe::changed("setattr");
        if cx.sync {
            self.flush(ix, Depth::All)?;
        }
        let st = self.stat(ix)?;
        Ok(self.attr(&st))
    }

    fn set_times(&mut self, cx: &Cx<'_>, ix: Ix, set: &SetAttr, owner: bool) -> VfsResult<()> {
        let (atime, mtime) = (new_time(set.atime), new_time(set.mtime));
        self.as_caller(cx)?;
        let fd = self.fd(ix)?;
        if !owner && (atime == NewTime::Keep || mtime == NewTime::Keep) {
            // Whoever may write a file may set its times to now. The kernel grants that for both at once only, NFS
            // for each.
            attr::access(fd, libc::W_OK)?;
            self.as_service()?;
        }
        Ok(attr::set_times(fd, atime, mtime)?)
    }

    pub(super) fn do_access(&mut self, cx: &Cx<'_>, obj: &Handle, want: Access) -> VfsResult<(Access, Attr)> {
        if handle::is_covered(obj) {
            let attr = self.covered(cx, obj)?;
            return Ok((Access(want.0 & (Access::READ | Access::LOOKUP)), attr));
        }
        let ix = self.object(cx, obj)?;
        let st = self.stat(ix)?;
        // What the kernel must be asked for each right.
        let need: [(u32, u8); 6] = match st.format() {
            libc::S_IFDIR => [
                (Access::READ, R),
                (Access::LOOKUP, X),
                (Access::MODIFY, W | X),
                (Access::EXTEND, W | X),
                (Access::DELETE, W | X),
                (0, 0),
            ],
            _ => [
                (Access::READ, R),
                (Access::MODIFY, W),
                (Access::EXTEND, W),
                (Access::EXECUTE, X),
                (0, 0),
                (0, 0),
            ],
        };
        let asked = need.iter().filter(|(a, _)| want.0 & a != 0).fold(0, |m, (_, n)| m | n);
        let granted = self.rights(cx, ix, &st, asked)?;
        let got = need.iter().filter(|(_, n)| granted & n == *n).fold(0, |m, (a, _)| m | a);
        Ok((Access(want.0 & got), self.attr(&st)))
    }

    /// Which of `asked` (`R_OK`, `W_OK`, `X_OK`) the caller has on an object.
    fn rights(&mut self, cx: &Cx<'_>, ix: Ix, st: &Stat, asked: u8) -> VfsResult<u8> {
        let who = self.who(cx)?;
        let o = self.cache.get(ix).ok_or(VfsError::Fault)?;
        let (known, mut granted) = match o.grant(who) {
            Some(g) if g.ctime == st.ctime() => (g.known, g.granted),
            _ => (0, 0),
        };
        if asked & !known == 0 {
            return Ok(granted & asked);
        }
        self.as_caller(cx)?;
        let fd = self.fd(ix)?;
        for right in [R, W, X] {
            if asked & !known & right == 0 {
                continue;
            }
            match attr::access(fd, i32::from(right)) {
                Ok(()) => granted |= right,
                Err(e) => match e.raw_os_error() {
                    Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::ETXTBSY) => {}
                    _ => return Err(e.into()),
                },
            }
        }
        if let Some(o) = self.cache.get_mut(ix) {
            o.remember(Grant { who, ctime: st.ctime(), known: known | asked, granted });
        }
        Ok(granted & asked)
    }

    pub(super) fn do_statfs(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<FsStat> {
        let covered = handle::is_covered(obj);
        let fs = if covered {
            self.covered(cx, obj)?;
            stat::fs(std::os::fd::AsFd::as_fd(&*self.shared.root))?
        } else {
            let ix = self.object(cx, obj)?;
            self.stat(ix)?;
            stat::fs(self.fd(ix)?)?
        };
        let bytes = |blocks: u64| blocks.saturating_mul(fs.block);
        let (total, free, avail) = fs.blocks;
        let root = self.shared.switch && cx.ident.uid == 0;
        let (link_max, max_file_size) = limits(self.shared.magic, fs.block);
        Ok(FsStat {
            bytes: (bytes(total), bytes(free), bytes(if root { free } else { avail })),
            files: (fs.files.0, fs.files.1, fs.files.1),
            name_max: fs.name_max.clamp(1, 255),
            link_max,
            max_file_size,
            time_delta_ns: 1,
            chown_restricted: true,
            links: true,
        })
    }
}

/// Most links and largest file of a file system: the kernel does not tell user space.
pub(super) fn limits(magic: u32, block: u64) -> (u32, u64) {
    match magic {
        // ext4: extents count blocks in 32 bits
        0xef53 => (65_000, block.saturating_mul(u64::from(u32::MAX))),
        // xfs
        0x5846_5342 => (i32::MAX as u32, i64::MAX as u64),
        // btrfs
        0x9123_683e => (65_535, i64::MAX as u64),
        _ => (32_000, i64::MAX as u64),
    }
}

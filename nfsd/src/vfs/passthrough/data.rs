//! Reading, writing, committing.

use super::Worker;
use super::cache::{Ix, Open, Proof};
use super::ident::SERVICE;
use super::modes::{ReadMode, Way, WriteMode, unsupported};
use super::sync::Depth;
use crate::vfs::{Attr, Cx, Handle, ReadDone, Stability, VfsError, VfsResult, WriteDone};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sunrpc_sys::io::{self as file, Rwf};
use sunrpc_sys::stat;

impl Worker {
    pub(super) fn do_read(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> VfsResult<ReadDone> {
        let ix = self.object(cx, obj)?;
        let mut at = self.open_data(cx, ix, false)?;
        let wait = self.may_wait(cx);
        let how = if wait { Rwf::NONE } else { Rwf::NOWAIT };
        let wanted = match self.shared.modes.get().read {
            ReadMode::Buffered => Way::Buffered,
            ReadMode::DontCache => Way::DontCache,
            ReadMode::Direct => Way::Direct,
        };
        let mut way = self.shared.modes.open_way(wanted, false);
        if !wait && (way == Way::Direct || self.shared.no_nowait_read.load(Ordering::Relaxed)) {
            return Err(VfsError::WouldBlock);
        }
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        let mut direct = None;
        if way == Way::Direct && total > 0 {
            if let Some(d) = self.direct(ix, at, false)? {
                direct = self.direct_read(&d, offset, bufs, total)?;
            }
            if direct.is_none() {
                way = Way::Buffered;
            }
            at = self.open_data(cx, ix, false)?;
        }
        let x = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?;
        let mut got = match (direct, i64::try_from(offset)) {
            (Some(n), _) => Ok(n),
            // No file reaches that far.
            (None, Err(_)) => Ok(0),
            (None, Ok(_)) if total == 0 => Ok(0),
            (None, Ok(from)) => self.read_cached(x.fd.as_fd(), bufs, from, how, &mut way),
        };
        let mut st = stat::of_fd(x.fd.as_fd())?;
        if let Err(e) = &got {
            match e.raw_os_error() {
                Some(libc::EOPNOTSUPP) if !wait => {
                    self.shared.no_nowait_read.store(true, Ordering::Relaxed);
                    return Err(VfsError::WouldBlock);
                }
                // Beyond what this file system can hold is beyond the end of the file.
                Some(libc::EINVAL | libc::EOVERFLOW) if offset >= st.size() => got = Ok(0),
                _ => {}
            }
        }
        let mut len = got?;
        let end = |len: usize| offset.saturating_add(len as u64);
        if len < total && end(len) < st.size() {
            if !wait {
                return Err(VfsError::WouldBlock);
            }
            let fd = x.fd.clone();
            let how = if way == Way::DontCache { Rwf::DONTCACHE } else { Rwf::NONE };
            len += read_on(&fd, bufs, len, end(len), how)?;
            st = stat::of_fd(fd.as_fd())?;
        }
        self.alive(ix, &st)?;
        self.still_allowed(cx, ix, at, false, &st)?;
        self.shared.modes.was_read(self.shard, wanted, way);
        Ok(ReadDone { len, eof: end(len) >= st.size(), attr: self.attr(&st) })
    }

    /// A read through the page cache; `way` says whether it is to keep what comes in, and afterwards whether it does.
    fn read_cached(
        &self,
        fd: BorrowedFd<'_>,
        bufs: &mut [IoSliceMut<'_>],
        from: i64,
        how: Rwf,
        way: &mut Way,
    ) -> io::Result<usize> {
        if *way == Way::DontCache {
            match file::read(fd, bufs, from, how.and(Rwf::DONTCACHE)) {
                Err(e) if unsupported(&e) => {
                    *way = Way::Buffered;
                    let plain = file::read(fd, bufs, from, how);
                    self.blame(&e, &plain, false);
                    return plain;
                }
                r => return r,
            }
        }
        file::read(fd, bufs, from, how)
    }

    /// As [`Self::read_cached`], for writes.
    fn write_cached(
        &self,
        fd: BorrowedFd<'_>,
        bufs: &[IoSlice<'_>],
        from: i64,
        how: Rwf,
        way: &mut Way,
    ) -> io::Result<usize> {
        if *way == Way::DontCache {
            match file::write(fd, bufs, from, how.and(Rwf::DONTCACHE)) {
                Err(e) if unsupported(&e) => {
                    *way = Way::Buffered;
                    let plain = file::write(fd, bufs, from, how);
                    self.blame(&e, &plain, true);
                    return plain;
                }
                r => return r,
            }
        }
        file::write(fd, bufs, from, how)
    }

    /// `DONTCACHE` is to blame for an error only if it does not come without it, too.
    #[cold]
    fn blame(&self, e: &io::Error, plain: &io::Result<usize>, write: bool) {
        if !plain.as_ref().is_err_and(|p| p.raw_os_error() == e.raw_os_error()) {
            self.shared.modes.refused(Way::DontCache, write);
        }
    }

    pub(super) fn do_write(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &[IoSlice<'_>],
        stable: Stability,
    ) -> VfsResult<WriteDone> {
        let ix = self.object(cx, obj)?;
        let memory = self.shared.memory();
        let wait = self.may_wait(cx);
        let modes = self.shared.modes.get();
        let unstable = stable == Stability::Unstable;
        let wanted = match modes.write {
            WriteMode::Buffered => Way::Buffered,
            WriteMode::Hybrid if unstable => Way::Buffered,
            WriteMode::DontCache | WriteMode::Hybrid => Way::DontCache,
            WriteMode::Direct => Way::Direct,
        };
        let mut way = self.shared.modes.open_way(wanted, true);
        let no_nowait = self.shared.no_nowait_write.load(Ordering::Relaxed);
        if !wait && (!unstable || no_nowait || way == Way::Direct) {
            return Err(VfsError::WouldBlock);
        }
        let mut at = self.open_data(cx, ix, true)?;
        let st = self.stat(ix)?;
        self.still_allowed(cx, ix, at, true, &st)?;
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        let from = i64::try_from(offset).map_err(|_| VfsError::FBig)?;
        if i64::try_from(total).ok().and_then(|t| from.checked_add(t)).is_none() {
            return Err(VfsError::FBig);
        }
        let how = match stable {
            _ if memory => Rwf::NONE,
            _ if !wait => Rwf::NOWAIT,
            Stability::Unstable => Rwf::NONE,
            Stability::DataSync => Rwf::DSYNC,
            Stability::FileSync => Rwf::SYNC,
        };
        let depth = if stable == Stability::DataSync { Depth::Data } else { Depth::All };
        let mut flush = None;
        let mut direct = None;
        if way == Way::Direct && total > 0 {
            direct = self.direct(ix, at, true)?;
            at = self.open_data(cx, ix, true)?;
            way = Way::Buffered;
        }
        self.as_writer(cx)?;
        let x = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?;
        let written = match &direct {
            _ if total == 0 => Ok(0),
            Some(d) => {
                let fd = x.fd.clone();
                self.direct_write(d, fd.as_fd(), offset, (bufs, total), how).map(|w| {
                    way = w.way;
                    flush = (w.flush && !unstable).then_some(depth);
                    w.len
                })
            }
            None => match self.write_cached(x.fd.as_fd(), bufs, from, how, &mut way) {
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) && how != Rwf::NONE => {
                    if !wait {
                        self.shared.no_nowait_write.store(true, Ordering::Relaxed);
                        return Err(VfsError::WouldBlock);
                    }
                    flush = Some(depth);
                    way = Way::Buffered;
                    file::write(x.fd.as_fd(), bufs, from, Rwf::NONE)
                }
                r => r,
            },
        };
        let len = written?;
        if let Some(depth) = flush {
            self.flush(ix, depth)?;
        }
        let before = st;
        let st = self.stat(ix)?;
        if let Some(x) = self.cache.get_mut(ix).and_then(|o| o.opens.get_mut(at)) {
            x.proof.follow(&before, &st);
        }
        // A write without a whole page goes through the page cache in any mode.
        self.shared.modes.was_written(self.shard, if direct.is_some() { way } else { wanted }, way);
        if modes.kick && unstable && way == Way::Buffered {
            self.kick_later(ix, at, offset, len);
        }
        // Nothing in memory becomes any more stable.
        let committed = if memory { Stability::FileSync } else { stable };
        Ok(WriteDone { len, committed, attr: self.attr(&st) })
    }

    pub(super) fn do_commit(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        count: u32,
    ) -> VfsResult<Attr> {
        let ix = self.object(cx, obj)?;
        let st = self.stat(ix)?;
        match st.format() {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(VfsError::IsDir),
            _ => return Err(VfsError::Inval),
        }
        self.must_wait(cx)?;
        self.flush(ix, Depth::All)?;
        self.committed(ix, offset, count);
        let st = self.stat(ix)?;
        Ok(self.attr(&st))
    }

    /// Brings an object to stable storage, if there is any. Waits.
    pub(super) fn flush(&mut self, ix: Ix, depth: Depth) -> VfsResult<()> {
        if self.shared.memory() {
            return Ok(());
        }
        let handle = self.handle(ix)?;
        match self.flushable(ix)? {
            Some(fd) => self.shared.flushes.flush(&handle, fd.as_fd(), depth),
            // Links and special files cannot be opened, others not by this user.
            None => file::syncfs(self.shared.root.as_fd()).map_err(|_| VfsError::Io),
        }
    }

    /// A descriptor for fsync.
    pub(super) fn flushable(&mut self, ix: Ix) -> VfsResult<Option<Arc<OwnedFd>>> {
        let o = self.cache.get(ix).ok_or(VfsError::Fault)?;
        if let Some(x) = o.opens.first() {
            return Ok(Some(x.fd.clone()));
        }
        if o.format != libc::S_IFREG && o.format != libc::S_IFDIR {
            return Ok(None);
        }
        let st = stat::of_fd(o.fd())?;
        self.as_service()?;
        const FLAGS: i32 = libc::O_RDONLY | libc::O_NONBLOCK;
        let opened =
            self.with_room(|w| w.shared.table.reopen(w.fd(ix).map_err(|_| io::ErrorKind::Other)?, FLAGS));
        let fd = match opened {
            Ok(fd) => Arc::new(fd),
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        self.cache.add_open(
            ix,
            Open {
                who: SERVICE,
                read: true,
                write: false,
                fd: fd.clone(),
                proof: Proof::new(&st, self.tick),
                lenient: false,
                align: 0,
                used: self.tick,
            },
        );
        Ok(Some(fd))
    }
}

/// Reads what is missing after `have` bytes.
fn read_on(
    fd: &OwnedFd,
    bufs: &mut [IoSliceMut<'_>],
    have: usize,
    offset: u64,
    how: Rwf,
) -> io::Result<usize> {
    let mut rest = bufs;
    IoSliceMut::advance_slices(&mut rest, have);
    let mut got = 0;
    while !rest.is_empty() {
        let Ok(from) = i64::try_from(offset.saturating_add(got as u64)) else { break };
        let n = file::read(fd.as_fd(), rest, from, how)?;
        if n == 0 {
            break;
        }
        got += n;
        IoSliceMut::advance_slices(&mut rest, n);
    }
    Ok(got)
}

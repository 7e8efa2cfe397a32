//! Reading, writing, committing.

use super::Worker;
use super::cache::{Ix, Open, Proof};
use super::ident::SERVICE;
use super::sync::Depth;
use crate::vfs::{Attr, Cx, Handle, ReadDone, Stability, VfsError, VfsResult, WriteDone};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
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
        let at = self.open_data(cx, ix, false)?;
        let wait = self.may_wait(cx);
        let how = if wait { Rwf::NONE } else { Rwf::NOWAIT };
        if !wait && self.shared.no_nowait_read.load(Ordering::Relaxed) {
            return Err(VfsError::WouldBlock);
        }
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        let x = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?;
        let mut got = match i64::try_from(offset) {
            // No file reaches that far.
            Err(_) => Ok(0),
            Ok(_) if total == 0 => Ok(0),
            Ok(from) => file::read(x.fd.as_fd(), bufs, from, how),
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
            len += read_on(&fd, bufs, len, end(len))?;
            st = stat::of_fd(fd.as_fd())?;
        }
        self.alive(ix, &st)?;
        self.still_allowed(cx, ix, at, false, &st)?;
        Ok(ReadDone { len, eof: end(len) >= st.size(), attr: self.attr(&st) })
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
        if !wait && (stable != Stability::Unstable || self.shared.no_nowait_write.load(Ordering::Relaxed)) {
            return Err(VfsError::WouldBlock);
        }
        let at = self.open_data(cx, ix, true)?;
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
        self.as_writer(cx)?;
        let fd = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?.fd.as_fd();
        let mut flush = None;
        let written = match total {
            0 => Ok(0),
            _ => match file::write(fd, bufs, from, how) {
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) && how != Rwf::NONE => {
                    if !wait {
                        self.shared.no_nowait_write.store(true, Ordering::Relaxed);
                        return Err(VfsError::WouldBlock);
                    }
                    flush = Some(if stable == Stability::DataSync { Depth::Data } else { Depth::All });
                    file::write(fd, bufs, from, Rwf::NONE)
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
        // Nothing in memory becomes any more stable.
        let committed = if memory { Stability::FileSync } else { stable };
        Ok(WriteDone { len, committed, attr: self.attr(&st) })
    }

    pub(super) fn do_commit(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        let ix = self.object(cx, obj)?;
        let st = self.stat(ix)?;
        match st.format() {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(VfsError::IsDir),
            _ => return Err(VfsError::Inval),
        }
        self.must_wait(cx)?;
        self.flush(ix, Depth::All)?;
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
    fn flushable(&mut self, ix: Ix) -> VfsResult<Option<Arc<OwnedFd>>> {
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
                used: self.tick,
            },
        );
        Ok(Some(fd))
    }
}

/// Reads what is missing after `have` bytes.
fn read_on(fd: &OwnedFd, bufs: &mut [IoSliceMut<'_>], have: usize, offset: u64) -> io::Result<usize> {
    let mut rest = bufs;
    IoSliceMut::advance_slices(&mut rest, have);
    let mut got = 0;
    while !rest.is_empty() {
        let Ok(from) = i64::try_from(offset.saturating_add(got as u64)) else { break };
        let n = file::read(fd.as_fd(), rest, from, Rwf::NONE)?;
        if n == 0 {
            break;
        }
        got += n;
        IoSliceMut::advance_slices(&mut rest, n);
    }
    Ok(got)
}

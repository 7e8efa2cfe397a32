//! Lending page-cache pages to replies.

use super::Worker;
use super::modes::Count;
use super::shared::Kind;
use crate::vfs::{Cx, Handle, LendDone, VfsError, VfsResult};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use sunrpc::page::PAGE_SIZE;
use sunrpc_sys::stat::{self, Stat};
use sunrpc_transports::lend;

/// ext2-4, xfs, btrfs, f2fs and tmpfs: what a splice takes from them are pages of the page cache. Others allocate pages
/// and copy (FUSE, network and stacked file systems), which reading straight into the reply's pages does once.
pub(super) fn lends(magic: u32) -> bool {
    matches!(magic, 0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0x0102_1994)
}

/// All of `len` bytes at `offset` is in the page cache, so that taking it does not wait.
fn resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let page = PAGE_SIZE as u64;
    let pages = (offset + len).div_ceil(page) - offset / page;
    sunrpc_sys::io::residency(fd, offset, len).is_ok_and(|r| r.cached >= pages)
}

impl Worker {
    pub(super) fn do_lend(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        len: usize,
    ) -> VfsResult<Option<LendDone>> {
        if !self.shared.lends(len) {
            return Ok(None);
        }
        let ix = self.object(cx, obj)?;
        let at = self.open_data(cx, ix, false)?;
        if self.shared.kind != Kind::Memory {
            // The kernel tells only those who might write the file what of it is cached.
            self.as_service()?;
        }
        let x = self.cache.get(ix).and_then(|o| o.opens.get(at)).ok_or(VfsError::Fault)?;
        let fd = x.fd.as_fd();
        if self.shared.kind != Kind::Memory {
            let st = stat::of_fd(fd)?;
            let Some(there) = st.size().checked_sub(offset).filter(|n| *n > 0) else { return Ok(None) };
            if st.is_dax() || !resident(fd, offset, there.min(len as u64)) {
                return Ok(None);
            }
        }
        let data = match lend::splice(fd, offset, len) {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(None),
            Err(e) => {
                tracing::debug!("no splicing from this file system: {e}");
                self.shared.lend.store(false, Ordering::Relaxed);
                return Ok(None);
            }
        };
        let end = offset + data.len() as u64;
        let st: Stat = stat::of_fd(fd)?;
        self.alive(ix, &st)?;
        self.still_allowed(cx, ix, at, false, &st)?;
        self.shared.modes.count(self.shard, Count::ReadLent, 1);
        Ok(Some(LendDone { data, eof: end >= st.size(), attr: self.attr(&st) }))
    }
}

//! Reading and writing past the page cache.
//!
//! The device takes whole blocks at aligned addresses. A read is widened to them, into aligned memory, and what was
//! asked for is copied out of it. Of a write, the whole pages in its middle go to the device, as they lie if their memory
//! is aligned, which is how large calls are received (`bulk_at` of NFSv3), else by a copy; the head and the tail go
//! through the page cache; nothing but the caller's bytes is ever written. Since no page is written both ways, the
//! kernel, which drops cached pages of what is written directly, loses nothing.

use super::Worker;
use super::cache::{Ix, Open};
use super::modes::{Count, Way, unsupported};
use super::shared::Kind;
use crate::vfs::{VfsError, VfsResult};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use sunrpc::mutate;
use sunrpc::page::PAGE_SIZE;
use sunrpc_sys::io::{self as file, Rwf};
use sunrpc_sys::stat;

/// Bytes that one system call moves at most; a multiple of every alignment that is used.
const PIECE: usize = 1 << 20;
/// Pieces that one system call takes (`IOV_MAX`).
const PIECES: usize = 1024;
/// Largest alignment that is used, in bytes.
const ALIGN_MAX: u32 = 64 << 10;

/// Aligned memory, kept while it is in use.
#[derive(Debug, Default)]
pub(super) struct Bounce {
    mem: Vec<u8>,
    used: bool,
}

impl Bounce {
    /// `len` bytes at an address that is a multiple of `align`, a power of two. They hold whatever was there before.
    fn take(&mut self, len: usize, align: usize) -> io::Result<&mut [u8]> {
        self.used = true;
        if self.mem.len() < len + align {
            self.mem = vec![0; len + align];
        }
        let skip = self.mem.as_ptr().align_offset(align);
        self.mem.get_mut(skip..skip.saturating_add(len)).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// An idle thread gives the memory back.
    pub(super) fn tick(&mut self) {
        if !std::mem::take(&mut self.used) {
            self.mem = Vec::new();
        }
    }
}

/// A descriptor for direct I/O, and the alignment that it needs.
pub(super) struct Direct {
    fd: Arc<OwnedFd>,
    align: u32,
}

/// What a direct write came to.
pub(super) struct Written {
    pub(super) len: usize,
    pub(super) way: Way,
    /// It was done in pieces that are not stable yet, though that was asked for.
    pub(super) flush: bool,
}

impl Worker {
    /// The counterpart for direct I/O of the descriptor at `at`, whose right is that of its owner. `None` where the file
    /// has none. Positions of descriptors may change.
    pub(super) fn direct(&mut self, ix: Ix, at: usize, write: bool) -> VfsResult<Option<Direct>> {
        let tick = self.tick;
        let o = self.cache.get_mut(ix).ok_or(VfsError::Fault)?;
        let x = o.opens.get(at).ok_or(VfsError::Fault)?.clone();
        let fits = |d: &Open| d.who == x.who && d.align != 0 && if write { d.write } else { d.read };
        if let Some(d) = o.opens.iter_mut().find(|d| fits(d)) {
            d.used = tick;
            return Ok(Some(Direct { fd: d.fd.clone(), align: d.align }));
        }
        let Some((mem, offset)) = stat::direct_align(x.fd.as_fd())? else {
            if self.shared.kind == Kind::Memory {
                self.shared.modes.refused(Way::Direct, write);
            }
            return Ok(None);
        };
        let align = mem.max(offset);
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Ok(None);
        }
        let flags = libc::O_DIRECT | libc::O_NONBLOCK | if write { libc::O_WRONLY } else { libc::O_RDONLY };
        // The right was shown when the other descriptor was opened, and is checked anew with it.
        self.as_service()?;
        match self.with_room(|w| w.shared.table.reopen(x.fd.as_fd(), flags)) {
            Ok(fd) => {
                let fd = Arc::new(fd);
                let open = Open { read: !write, write, fd: fd.clone(), align, used: tick, ..x };
                self.cache.add_open(ix, open).ok_or(VfsError::Fault)?;
                Ok(Some(Direct { fd, align }))
            }
            Err(e) => {
                if unsupported(&e) {
                    self.shared.modes.refused(Way::Direct, write);
                }
                Ok(None)
            }
        }
    }

    /// Reads at `offset` into `bufs`, which hold `total` bytes. `None` if it has to be done otherwise.
    pub(super) fn direct_read(
        &mut self,
        d: &Direct,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
        total: usize,
    ) -> VfsResult<Option<usize>> {
        let align = d.align as usize;
        let down = !(u64::from(d.align) - 1);
        let Some(end) =
            offset.checked_add(total as u64).filter(|e| *e <= i64::MAX as u64 - u64::from(ALIGN_MAX))
        else {
            return Ok(None);
        };
        let mut done = 0;
        while done < total {
            let at = offset + done as u64;
            let start = at & down;
            let stop = end.min(start + PIECE as u64);
            let len = (stop.next_multiple_of(u64::from(d.align)) - start) as usize;
            let buf = self.bounce.take(len, align)?;
            let n = match file::read(d.fd.as_fd(), &mut [IoSliceMut::new(buf)], start as i64, Rwf::NONE) {
                Ok(n) => n,
                // What comes next does the rest, and meets the error.
                Err(_) if done > 0 => break,
                Err(e) if unsupported(&e) => return Ok(None),
                Err(e) => return Err(e.into()),
            };
            // From what was read, not what was asked for: the file may end before.
            let from = (at - start) as usize;
            let wanted = if mutate::on("direct-untrimmed") { n } else { n.min((stop - start) as usize) };
            let got = buf.get(from..wanted).unwrap_or_default();
            scatter(got, bufs, done);
            done += got.len();
            let (got, ended) = (got.len(), n < len && n % align != 0);
            self.count(Count::Bounced, got as u64);
            if got == 0 || ended {
                break;
            }
        }
        Ok(Some(done))
    }

    /// Writes `bufs`, which hold `total` bytes, at `offset`: whole pages directly, the rest through `cached`.
    pub(super) fn direct_write(
        &mut self,
        d: &Direct,
        cached: BorrowedFd<'_>,
        offset: u64,
        (bufs, total): (&[IoSlice<'_>], usize),
        how: Rwf,
    ) -> io::Result<Written> {
        let grain = u64::from(d.align).max(PAGE_SIZE as u64);
        // Neither sum passes 2^63 by more than a grain: offset and length were checked.
        let end = offset + total as u64;
        let (first, last) = (offset.next_multiple_of(grain), end & !(grain - 1));
        let whole = first <= offset && last >= end && total <= PIECE;
        let how = if whole { how } else { Rwf::NONE };
        let mut out = Written { len: 0, way: Way::Buffered, flush: !whole };
        while out.len < total {
            let at = offset + out.len as u64;
            let (stop, direct) = match () {
                _ if first >= last => (end.min(at + PIECE as u64), false),
                _ if at < first => (first, false),
                _ if at < last => (last.min(at + PIECE as u64), true),
                _ => (end, false),
            };
            let len = (stop - at) as usize;
            let mut piece = cut(bufs, out.len, len);
            // The page cache takes any memory.
            let bounced = direct && !aligned(&piece, d.align as usize);
            if bounced {
                let buf = self.bounce.take(len, d.align as usize)?;
                gather(bufs, out.len, buf);
                piece.clear();
                piece.push(IoSlice::new(buf));
            }
            let mut way = if direct { Way::Direct } else { Way::Buffered };
            let fd = if direct { d.fd.as_fd() } else { cached };
            let mut r = file::write(fd, &piece, at as i64, how);
            if direct && r.as_ref().is_err_and(unsupported) {
                way = Way::Buffered;
                out.flush = true;
                self.shared.modes.count(self.shard, Count::Fallbacks, 1);
                r = file::write(cached, &piece, at as i64, Rwf::NONE);
            }
            drop(piece);
            match r {
                Ok(n) => {
                    out.len += n;
                    if bounced {
                        self.count(Count::Bounced, n as u64);
                    }
                    if way == Way::Direct {
                        out.way = way;
                    }
                    if n < len {
                        break;
                    }
                }
                // The client sends the rest again, and meets the error.
                Err(_) if out.len > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }
}

/// Copies `data` to `bufs`, after their first `skip` bytes.
fn scatter(mut data: &[u8], bufs: &mut [IoSliceMut<'_>], mut skip: usize) {
    for b in bufs {
        let Some(room) = b.get_mut(skip..) else {
            skip -= b.len();
            continue;
        };
        skip = 0;
        let n = room.len().min(data.len());
        let (now, rest) = data.split_at(n);
        if let Some(to) = room.get_mut(..n) {
            to.copy_from_slice(now);
        }
        data = rest;
        if data.is_empty() {
            return;
        }
    }
}

/// `len` bytes of `bufs` after the first `skip`, where they lie.
fn cut<'b>(bufs: &'b [IoSlice<'_>], mut skip: usize, mut len: usize) -> SmallVec<[IoSlice<'b>; 260]> {
    let mut out = SmallVec::new();
    for b in bufs {
        let Some(data) = b.get(skip..) else {
            skip -= b.len();
            continue;
        };
        skip = 0;
        let n = data.len().min(len);
        if let Some(data) = data.get(..n).filter(|d| !d.is_empty()) {
            out.push(IoSlice::new(data));
        }
        len -= n;
        if len == 0 {
            break;
        }
    }
    out
}

/// True if a device takes these pieces as they lie.
fn aligned(pieces: &[IoSlice<'_>], align: usize) -> bool {
    pieces.len() <= PIECES && pieces.iter().all(|b| b.as_ptr().addr() % align == 0 && b.len() % align == 0)
}

/// Fills `to` from `bufs`, after their first `skip` bytes.
fn gather(bufs: &[IoSlice<'_>], mut skip: usize, mut to: &mut [u8]) {
    for b in bufs {
        let Some(data) = b.get(skip..) else {
            skip -= b.len();
            continue;
        };
        skip = 0;
        let n = data.len().min(to.len());
        let (now, rest) = to.split_at_mut(n);
        if let Some(data) = data.get(..n) {
            now.copy_from_slice(data);
        }
        to = rest;
        if to.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_find_their_buffers() {
        let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 0], [0u8; 4]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        scatter(&[1, 2], &mut bufs, 0);
        scatter(&[3, 4, 5], &mut bufs, 2);
        scatter(&[6], &mut bufs, 5);
        scatter(&[7, 8, 9], &mut bufs, 6);
        assert_eq!((a, c), ([1, 2, 3], [4, 5, 6, 7]));
        let bufs = [IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)];
        for skip in 0..7 {
            let mut to = vec![0; 7 - skip];
            gather(&bufs, skip, &mut to);
            assert_eq!(to, [1, 2, 3, 4, 5, 6, 7][skip..]);
            for len in 0..=7 - skip {
                let piece = cut(&bufs, skip, len);
                assert!(piece.iter().all(|b| !b.is_empty()));
                assert_eq!(piece.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), to[..len]);
            }
        }
    }

    #[test]
    fn memory_is_aligned_and_given_back() {
        let mut b = Bounce::default();
        for align in [512, 4096, ALIGN_MAX as usize] {
            let m = b.take(PIECE, align).unwrap();
            assert_eq!((m.len(), m.as_ptr().addr() % align), (PIECE, 0));
        }
        b.tick();
        assert!(!b.mem.is_empty(), "used since the last tick");
        b.tick();
        assert!(b.mem.is_empty());
    }
}

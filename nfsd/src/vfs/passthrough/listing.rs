//! Reading directories.
//!
//! A cookie is the place that the file system itself names behind an entry, so it stays good while others come and
//! go. A listing that goes on where it stopped continues from entries that were read already; only one that resumes
//! elsewhere has to seek.

use super::Worker;
use super::cache::{Ix, Proof};
use super::handle;
use super::ident::Who;
use crate::vfs::{Attr, Cx, DirEntry, DirSink, Entry, Handle, ReaddirWant, VfsError, VfsResult};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use sunrpc_sys::stat::{self, Stat};
use sunrpc_sys::{attr, dir};

/// Bytes of entries read at once.
const BUFFER: usize = 32 << 10;
/// Listings under way that a thread keeps open.
const STREAMS_MAX: usize = 8;
/// Ticks after which entries read ahead are read again.
const FRESH_TICKS: u32 = 2;

/// A listing under way.
struct Stream {
    dir: Handle,
    who: Who,
    fd: OwnedFd,
    proof: Proof,
    buf: Vec<u8>,
    /// Entries not reported yet are `buf[at..filled]`.
    at: usize,
    filled: usize,
    /// Place behind the last entry reported.
    cookie: u64,
    used: u32,
}

/// Listings under way on one thread.
#[derive(Default)]
pub(super) struct Streams {
    list: Vec<Stream>,
    spare: Option<Vec<u8>>,
    tick: u32,
}

impl Streams {
    fn take(&mut self, dir: &Handle, who: Who, cookie: u64) -> Option<Stream> {
        let at = self.list.iter().position(|s| s.cookie == cookie && s.who == who && s.dir == *dir)?;
        Some(self.list.swap_remove(at))
    }

    fn keep(&mut self, mut s: Stream, most: usize) {
        s.used = self.tick;
        if self.list.len() >= most
            && let Some((oldest, _)) = self.list.iter().enumerate().min_by_key(|(_, s)| s.used)
        {
            self.list.swap_remove(oldest);
        }
        self.list.push(s);
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.take().unwrap_or_else(|| vec![0; BUFFER])
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        let now = self.tick;
        self.list.retain(|s| now.wrapping_sub(s.used) <= super::IDLE_TICKS);
        if self.list.is_empty() && now.is_multiple_of(16) {
            self.spare = None;
        }
    }
}

impl Worker {
    pub(super) fn do_readdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        if handle::is_covered(dir) {
            return self.list_covered(cx, dir, cookie, want, sink);
        }
        self.must_wait(cx)?;
        let ix = self.dir(cx, dir)?;
        let st = self.stat(ix)?;
        let who = self.who(cx)?;
        let taken = if cookie == 0 { None } else { self.streams.take(dir, who, cookie) };
        let mut s = match taken {
            Some(s) => self.resume(cx, ix, s, &st)?,
            None => self.start(cx, ix, who, cookie, &st)?,
        };
        let done = self.list(cx, ix, &mut s, &st, want, sink);
        match done {
            // Fewer where descriptors are rare.
            Ok(false) => self.streams.keep(s, (self.shared.max_open / 8).clamp(1, STREAMS_MAX)),
            _ => self.streams.spare = Some(s.buf),
        }
        done
    }

    fn start(&mut self, cx: &Cx<'_>, ix: Ix, who: Who, cookie: u64, st: &Stat) -> VfsResult<Stream> {
        const FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY;
        self.as_caller(cx)?;
        let fd =
            self.with_room(|w| w.shared.table.reopen(w.fd(ix).map_err(|_| io::ErrorKind::Other)?, FLAGS))?;
        if cookie != 0 {
            seek(&fd, cookie)?;
        }
        Ok(Stream {
            dir: self.handle(ix)?,
            who,
            fd,
            proof: Proof::new(st, self.tick),
            buf: self.streams.buffer(),
            at: 0,
            filled: 0,
            cookie,
            used: 0,
        })
    }

    fn resume(&mut self, cx: &Cx<'_>, ix: Ix, mut s: Stream, st: &Stat) -> VfsResult<Stream> {
        if !s.proof.holds(st, self.tick) {
            self.as_caller(cx)?;
            attr::access(self.fd(ix)?, libc::R_OK)?;
            s.proof = Proof::new(st, self.tick);
        }
        if s.at < s.filled && self.streams.tick.wrapping_sub(s.used) > FRESH_TICKS {
            (s.at, s.filled) = (0, 0);
            seek(&s.fd, s.cookie)?;
        }
        Ok(s)
    }

    fn list(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        s: &mut Stream,
        st: &Stat,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        loop {
            if s.at >= s.filled {
                // Little is read for a reply with little room; the rest of a large buffer would only get old.
                let room = (want.bytes as usize).clamp(2 << 10, BUFFER).min(s.buf.len());
                let buf = s.buf.get_mut(..room).ok_or(VfsError::Fault)?;
                s.filled = dir::read(s.fd.as_fd(), buf).map_err(|e| match e.raw_os_error() {
                    Some(libc::ENOENT) => VfsError::Stale,
                    _ => e.into(),
                })?;
                s.at = 0;
                if s.filled == 0 {
                    return Ok(true);
                }
            }
            let Some(e) = s.buf.get(s.at..s.filled).and_then(|b| dir::Entries::new(b).next()) else {
                return Err(VfsError::Io);
            };
            let (fileid, entry) = match self.describe(cx, ix, st, &e, want.plus) {
                // It vanished in between.
                Err(VfsError::NoEnt) => (None, None),
                Err(VfsError::Stale) => return Err(VfsError::Stale),
                Err(_) => (Some(e.ino), None),
                Ok((fileid, entry)) => (Some(fileid), entry),
            };
            let next = e.next as u64;
            if let Some(fileid) = fileid
                && sink
                    .entry(&DirEntry { name: e.name.to_bytes(), fileid, cookie: next, entry: entry.as_ref() })
                    .is_break()
            {
                return Ok(false);
            }
            s.at += e.len;
            s.cookie = next;
        }
    }

    /// Object number and, if wanted, handle and attributes of an entry.
    #[inline]
    fn describe(
        &mut self,
        cx: &Cx<'_>,
        ix: Ix,
        dir: &Stat,
        e: &dir::Entry<'_>,
        plus: bool,
    ) -> VfsResult<(u64, Option<Entry>)> {
        match e.name.to_bytes() {
            b"." => {
                let entry = Entry { handle: self.handle(ix)?, attr: self.attr(dir) };
                Ok((dir.ino(), plus.then_some(entry)))
            }
            b".." => {
                let at_root = self.handle(ix)? == self.shared.root_handle;
                let entry = if plus || at_root { self.parent(cx, ix).ok() } else { None };
                let fileid = entry.map_or(e.ino, |p| p.attr.fileid);
                Ok((fileid, entry.filter(|_| plus)))
            }
            _ if !plus => Ok((e.ino, None)),
            name => {
                let st = self.search(cx, ix, |d| stat::at_c(d, e.name))?.map_err(VfsError::from)?;
                if !self.shared.here(&st) {
                    return Ok((e.ino, self.covered_entry(cx, ix, name, Some(e.ino)).ok()));
                }
                if let Some(handle) = self.known.get(&st) {
                    return Ok((st.ino(), Some(Entry { handle, attr: self.attr(&st) })));
                }
                let (handle, st) = self.handle_at(cx, ix, name, &st)?;
                Ok((st.ino(), Some(Entry { handle, attr: self.attr(&st) })))
            }
        }
    }

    /// A covered directory has only itself and its parent to show.
    fn list_covered(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        want: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        let (fileid, parent) = handle::covered_parts(dir).ok_or(VfsError::BadHandle)?;
        let px = self.dir(cx, &parent)?;
        let st = self.stat(px)?;
        let own: Attr = self.covered_attr(&st, fileid);
        let both = [
            (&b"."[..], Entry { handle: *dir, attr: own }),
            (&b".."[..], Entry { handle: parent, attr: self.attr(&st) }),
        ];
        for (next, (name, entry)) in (1u64..).zip(&both) {
            let e =
                DirEntry { name, fileid: entry.attr.fileid, cookie: next, entry: want.plus.then_some(entry) };
            if next > cookie && sink.entry(&e).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn seek(fd: &OwnedFd, cookie: u64) -> VfsResult<()> {
    dir::seek(fd.as_fd(), cookie as i64).map_err(|_| VfsError::BadCookie)
}

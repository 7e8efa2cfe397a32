//! One connection of a server, over any byte stream.

use crate::class::{PolledXprt, SendOptions, Zerocopy};
use crate::lend;
use mio::event::Source;
use smallvec::SmallVec;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Instant;
use sunrpc::mutate;
use sunrpc::page::{PAGE_SIZE, PagePool, XdrBuf};
use sunrpc::record::{Direct, HEAD_MAX, Next, RecordLimits, RecordReader};
use sunrpc::xprt::{
    Front, Incoming, PeerAddr, RecordSink, Recv, Room, Route, SendQueue, SendStats, Xprt, XprtCaps, XprtError,
};
use sunrpc_sys::zerocopy;

/// Fewest bytes that one scattered receive asks for.
const DIRECT_MIN: usize = 64 << 10;
/// Most bytes of pages that one scattered receive takes: all of the largest record.
const DIRECT_MAX: usize = (1 << 20) + 2 * HEAD_MAX;
/// Bytes looked at before a large record: its mark and what tells where its bulk data begins. They are copied.
const PEEK: usize = 4 + HEAD_MAX;
/// Pieces that one gathering send takes (`IOV_MAX`).
const GATHER: usize = 1024;
/// Sends of fewer bytes are copied: pinning pages and reading a completion cost more.
const ZEROCOPY_MIN: usize = 32 << 10;
/// `auto` gives zero-copy up on a connection after this many sends in a row that the kernel copied all the same.
const COPIED_MAX: u32 = 8;

/// The zero-copy sends of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zc {
    Off,
    /// As long as it helps, with the number of sends in a row that did not.
    Auto(u32),
    On,
}

/// A connection. Idle, it owns no buffer.
pub(crate) struct StreamXprt<S> {
    stream: S,
    peer: PeerAddr,
    caps: &'static XprtCaps,
    reader: RecordReader,
    /// Bytes received and not yet looked at, because a turn's budget was used up.
    stash: Vec<u8>,
    stash_at: usize,
    /// Large records come in: only [`PEEK`] bytes are received elsewhere than in pages.
    bulk: bool,
    /// Bytes that the next scattered receive asks for, by what the last one brought: where little comes at a time, few
    /// pages are taken.
    ask: usize,
    tx: SendQueue,
    zc: Zc,
    /// Zero of the clock by which waiting pages are timed.
    born: Instant,
}

impl<S> StreamXprt<S> {
    /// A connection with `peer` over a stream that does not block.
    pub(crate) fn new(stream: S, peer: PeerAddr, caps: &'static XprtCaps) -> Self {
        StreamXprt {
            stream,
            peer,
            caps,
            reader: RecordReader::new(RecordLimits::default()),
            stash: Vec::new(),
            stash_at: 0,
            bulk: false,
            ask: DIRECT_MIN * 4,
            tx: SendQueue::default(),
            zc: Zc::Off,
            born: Instant::now(),
        }
    }

    fn now(&self) -> u64 {
        self.born.elapsed().as_micros() as u64
    }
}

impl<S: Source + Read + AsFd + Send> PolledXprt for StreamXprt<S> {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.stream
    }

    fn configure(&mut self, o: &SendOptions) {
        let tcp = matches!(self.peer, PeerAddr::Inet(_));
        self.zc = match o.zerocopy {
            Zerocopy::Auto if tcp && !self.local_peer() => Zc::Auto(0),
            Zerocopy::On if tcp => Zc::On,
            _ => Zc::Off,
        };
        if self.zc != Zc::Off
            && let Err(e) = zerocopy::enable(self.stream.as_fd())
        {
            tracing::debug!("no zero-copy sends: {e}");
            self.zc = Zc::Off;
        }
    }
}

impl<S> StreamXprt<S> {
    /// The kernel copies what goes to a process of this host.
    fn local_peer(&self) -> bool {
        match self.peer {
            PeerAddr::Inet(a) => a.ip().is_loopback(),
            PeerAddr::Local { .. } => true,
        }
    }
}

impl<S: AsFd> StreamXprt<S> {
    /// Sends what lies in pages at the front of the queue: bytes asked for, and taken.
    fn send_pages(&mut self, pool: &mut PagePool) -> io::Result<Option<(usize, usize)>> {
        let now = if self.zc == Zc::Off && !self.tx.incomplete() { 0 } else { self.now() };
        let mut iov: SmallVec<[IoSlice<'_>; GATHER]> = SmallVec::new();
        let Front::Pages(more) = self.tx.front(&mut iov) else { return Ok(None) };
        let asked: usize = iov.iter().map(|s| s.len()).sum();
        let socket = self.stream.as_fd();
        if self.zc != Zc::Off && asked >= ZEROCOPY_MIN {
            match zerocopy::send(socket, &iov, more) {
                Ok(n) => {
                    drop(iov);
                    self.tx.wrote_zerocopy(n, pool, now);
                    return Ok(Some((asked, n)));
                }
                // No locked memory left, in this user's limit: this one by copy.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    let n = zerocopy::send_copy(socket, &iov, more)?;
                    drop(iov);
                    self.tx.count_enobufs();
                    self.tx.wrote(n, pool, now);
                    return Ok(Some((asked, n)));
                }
                Err(e) => return Err(e),
            }
        }
        let n = zerocopy::send_copy(socket, &iov, more)?;
        drop(iov);
        self.tx.wrote(n, pool, now);
        Ok(Some((asked, n)))
    }

    /// Moves a loan at the front of the queue to the socket: bytes asked for, and taken.
    fn send_lent(&mut self, pool: &mut PagePool) -> io::Result<Option<(usize, usize)>> {
        let Front::Lent(class, id, len, more) = self.tx.front::<1>(&mut SmallVec::new()) else {
            return Ok(None);
        };
        if class != lend::CLASS {
            return if self.tx.copy_front(pool) { Ok(Some((0, 0))) } else { Err(io::Error::other(LOST)) };
        }
        let n = lend::send(id, self.stream.as_fd(), len, more)?;
        if n == 0 {
            // The record's length is on the wire already: the stream cannot go on.
            return Err(io::Error::other(LOST));
        }
        self.tx.gave(n);
        Ok(Some((len, n)))
    }

    /// Reads what the kernel says of zero-copy sends.
    fn completions(&mut self) {
        if mutate::on("gate-transmitted")
            && zerocopy::untransmitted(self.stream.as_fd()).is_ok_and(|n| n == 0)
        {
            self.tx.complete_all();
        }
        while self.tx.incomplete() {
            match zerocopy::completion(self.stream.as_fd()) {
                Ok(Some(c)) => {
                    self.tx.complete(c.from, c.to, c.copied);
                    self.zc = match self.zc {
                        Zc::Auto(n) if c.copied && n + 1 >= COPIED_MAX => Zc::Off,
                        Zc::Auto(n) => Zc::Auto(if c.copied { n + 1 } else { 0 }),
                        zc => zc,
                    };
                }
                Ok(None) => return,
                Err(e) => return tracing::debug!("cannot read completions: {e}"),
            }
        }
    }
}

impl<S: Read> StreamXprt<S> {
    /// The part of the scratch buffer to receive into.
    fn buffer<'b>(&self, scratch: &'b mut [u8]) -> &'b mut [u8] {
        let n = if self.bulk { PEEK.min(scratch.len()) } else { scratch.len() };
        scratch.get_mut(..n).unwrap_or_default()
    }

    /// What a receive that was `full`, all that was asked for, leaves behind.
    fn after(&mut self, full: bool) -> Recv {
        if full && self.reader.claimed() <= PEEK {
            self.bulk = false;
        }
        if full || !self.stash.is_empty() { Recv::More } else { Recv::Drained }
    }

    /// Hands the records in `input` to `sink`; keeps what its budget does not allow.
    fn feed_all(
        &mut self,
        mut input: &[u8],
        pool: &mut PagePool,
        sink: &mut dyn RecordSink,
    ) -> Result<ControlFlow<()>, XprtError> {
        let flow = feed(&mut self.reader, &mut input, pool, sink)?;
        self.keep(input, pool, sink)?;
        Ok(flow)
    }

    /// Keeps `input` for another turn: the beginning of a record where it belongs, else as it is.
    fn keep(
        &mut self,
        mut input: &[u8],
        pool: &mut PagePool,
        sink: &mut dyn RecordSink,
    ) -> Result<(), XprtError> {
        if !input.is_empty()
            && self.reader.begins_only(input)
            && pool.ensure(input.len().div_ceil(PAGE_SIZE) + 1)
        {
            let _no_record = feed(&mut self.reader, &mut input, pool, sink)?;
        }
        if !input.is_empty() {
            self.stash = input.to_vec();
            self.stash_at = 0;
        }
        Ok(())
    }

    /// Receives the rest of the open fragment into pages, and with the same call the beginning of what follows.
    fn receive_direct(
        &mut self,
        pool: &mut PagePool,
        scratch: &mut [u8],
        sink: &mut dyn RecordSink,
    ) -> Result<Recv, XprtError> {
        // It could not have been received in one piece.
        self.bulk |= self.reader.claimed() >= scratch.len();
        let tail = self.buffer(scratch);
        let stream = &mut self.stream;
        let r = self
            .reader
            .read_direct::<XprtError>(self.ask, pool, tail, |iov| Ok(retry(|| stream.read_vectored(iov))?));
        let got = match r {
            Ok(Direct { bytes: 0, .. }) => return Err(XprtError::Eof),
            Ok(got) => got,
            Err(XprtError::Io(e)) if e.kind() == ErrorKind::WouldBlock => return Ok(Recv::Drained),
            Err(e) => return Err(e),
        };
        if got.full || !got.done {
            let brought = if got.full { self.ask } else { got.bytes };
            self.ask = (4 * brought).clamp(DIRECT_MIN, DIRECT_MAX);
        }
        let behind = tail.get(..got.tail).unwrap_or(&[]);
        if got.done && collected(&mut self.reader, pool, sink).is_break() {
            self.keep(behind, pool, sink)?;
        } else if !behind.is_empty() {
            let _ = self.feed_all(behind, pool, sink)?;
        }
        Ok(self.after(got.full))
    }
}

/// What a lender promised is not to be had any more.
const LOST: &str = "lent bytes of a reply are gone";

/// Hands the records at the front of `input` to `sink` until the input or the sink's budget ends.
fn feed(
    reader: &mut RecordReader,
    input: &mut &[u8],
    pool: &mut PagePool,
    sink: &mut dyn RecordSink,
) -> Result<ControlFlow<()>, XprtError> {
    loop {
        let flow = match reader.next_placed(input, pool, |head| sink.bulk_at(head))? {
            Next::More => return Ok(ControlFlow::Continue(())),
            Next::Whole(rec) => sink.record(&mut Incoming::Whole(rec), pool),
            Next::Collected => collected(reader, pool, sink),
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
}

fn collected(reader: &mut RecordReader, pool: &mut PagePool, sink: &mut dyn RecordSink) -> ControlFlow<()> {
    let flow = sink.record(&mut Incoming::Collected(reader), pool);
    reader.recycle(pool);
    flow
}

fn retry<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            r => return r,
        }
    }
}

impl<S: Read + AsFd> Xprt for StreamXprt<S> {
    fn caps(&self) -> &XprtCaps {
        self.caps
    }

    fn peer(&self) -> &PeerAddr {
        &self.peer
    }

    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError> {
        if !self.stash.is_empty() {
            let stash = std::mem::take(&mut self.stash);
            let mut input = stash.get(self.stash_at..).unwrap_or(&[]);
            let flow = feed(&mut self.reader, &mut input, &mut room.pool, sink)?;
            let left = input.len();
            if left > 0 {
                self.stash_at = stash.len() - left;
                self.stash = stash;
            }
            if flow.is_break() {
                return Ok(Recv::More);
            }
        }
        let Room { pool, scratch } = room;
        if self.reader.direct() == 0 {
            let buf = self.buffer(scratch);
            let n = match retry(|| self.stream.read(buf)) {
                Ok(0) => return Err(XprtError::Eof),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Recv::Drained),
                Err(e) => return Err(e.into()),
            };
            let full = n == buf.len();
            let flow = self.feed_all(buf.get(..n).unwrap_or(&[]), pool, sink)?;
            if flow.is_break() || !full || self.reader.direct() == 0 {
                return Ok(self.after(full));
            }
            // The beginning of a large record, and there is more of it.
        }
        self.receive_direct(pool, scratch, sink)
    }

    fn sendto(&mut self, replies: &mut XdrBuf, _route: &Route) {
        self.tx.push(replies);
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        while self.tx.queued() > 0 {
            let r = match self.send_pages(pool) {
                Ok(None) => self.send_lent(pool),
                r => r,
            };
            match r {
                Ok(Some((asked, n))) if n >= asked => {}
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e.into()),
                // Less than asked, or nothing: the socket is full, and tells when it is not.
                _ => {
                    if mutate::on("gate-queued") {
                        self.tx.scribble();
                    }
                    return Ok(());
                }
            }
        }
        self.tx.trim();
        Ok(())
    }

    fn queued(&self) -> usize {
        self.tx.queued()
    }

    fn sent(&self) -> u64 {
        self.tx.sent()
    }

    fn outstanding(&self) -> usize {
        self.tx.outstanding()
    }

    fn send_stats(&self) -> Option<&SendStats> {
        Some(self.tx.stats())
    }

    fn partial(&self) -> Option<usize> {
        self.reader.partial()
    }

    fn release_ctxt(&mut self, event: bool, pool: &mut PagePool) -> usize {
        if !self.tx.incomplete() && self.tx.outstanding() == 0 {
            return 0;
        }
        if event {
            self.completions();
        }
        let now = self.now();
        self.tx.release(pool, now)
    }

    fn detach(&mut self, pool: &mut PagePool) {
        self.reader.recycle(pool);
        if self.tx.incomplete() && !mutate::on("plain-close") {
            // Closing would go on sending from pages whose completions nobody could see any more.
            if let Err(e) = zerocopy::abort(self.stream.as_fd()) {
                tracing::debug!("cannot abort: {e}");
            }
            self.completions();
        }
        if mutate::on("plain-close") {
            self.tx.complete_all();
        }
        let now = self.now();
        let lost = self.tx.close(pool, now);
        if lost > 0 {
            tracing::warn!(
                pages = lost,
                "the kernel still refers to pages of a closed connection; they are not used again"
            );
        }
    }
}

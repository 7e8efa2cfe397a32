//! One connection of a server, over any byte stream.

use crate::class::{PolledXprt, SendOptions, Zerocopy};
use crate::lend;
use mio::event::Source;
use std::io::{self, ErrorKind, Read};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Instant;
use sunrpc::mutate;
use sunrpc::page::{PagePool, XdrBuf};
use sunrpc::record::{Next, RecordLimits, RecordReader};
use sunrpc::xprt::{
    Front, Incoming, PeerAddr, RecordSink, Recv, Room, Route, SendQueue, SendStats, Xprt, XprtCaps, XprtError,
};
use sunrpc_sys::zerocopy;

/// Bytes that one scattered receive asks for.
const DIRECT: usize = 256 << 10;
/// Pieces that one gathering send takes (`IOV_MAX`).
const GATHER: usize = 1024;
/// Pieces that one zero-copy send takes. It has one completion, so its first page waits for the acknowledgement of its
/// last; and the kernel joins the completions of sends that wait together, up to 512 KiB. A little more than half of that
/// keeps two full ones apart, and a call is still cheap beside its bytes.
const PINNED: usize = 66;
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
        if self.zc != Zc::Off
            && let Some(sent) = self.send_by_reference(pool)?
        {
            return Ok(Some(sent));
        }
        let now = if self.zc == Zc::Off && !self.tx.incomplete() { 0 } else { self.now() };
        let Front::Pages(iov, more) = self.tx.front::<GATHER>() else { return Ok(None) };
        let asked: usize = iov.iter().map(|s| s.len()).sum();
        let n = zerocopy::send_copy(self.stream.as_fd(), &iov, more)?;
        drop(iov);
        self.tx.wrote(n, pool, now);
        Ok(Some((asked, n)))
    }

    /// The same without copying; `None` if that does not pay.
    fn send_by_reference(&mut self, pool: &mut PagePool) -> io::Result<Option<(usize, usize)>> {
        let Front::Pages(iov, more) = self.tx.front::<PINNED>() else { return Ok(None) };
        let asked: usize = iov.iter().map(|s| s.len()).sum();
        if asked < ZEROCOPY_MIN {
            return Ok(None);
        }
        let r = zerocopy::send(self.stream.as_fd(), &iov, more);
        drop(iov);
        let n = match r {
            // No locked memory left, in this user's limit: this one by copy.
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                self.tx.count_enobufs();
                return Ok(None);
            }
            r => r?,
        };
        let now = self.now();
        self.tx.wrote_zerocopy(n, pool, now);
        Ok(Some((asked, n)))
    }

    /// Moves a loan at the front of the queue to the socket: bytes asked for, and taken.
    fn send_lent(&mut self, pool: &mut PagePool) -> io::Result<Option<(usize, usize)>> {
        let Front::Lent(class, id, len, more) = self.tx.front::<1>() else { return Ok(None) };
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
        let flow = match reader.next(input, pool)? {
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
        let want = self.reader.direct();
        if want > 0 {
            let max = want.min(DIRECT);
            let stream = &mut self.stream;
            let r = self.reader.read_direct::<XprtError>(max, &mut room.pool, |iov| {
                Ok(retry(|| stream.read_vectored(iov))?)
            });
            let (n, done) = match r {
                Ok(x) => x,
                Err(XprtError::Io(e)) if e.kind() == ErrorKind::WouldBlock => return Ok(Recv::Drained),
                Err(e) => return Err(e),
            };
            if n == 0 {
                return Err(XprtError::Eof);
            }
            if done && collected(&mut self.reader, &mut room.pool, sink).is_break() {
                return Ok(Recv::More);
            }
            return Ok(if n < max { Recv::Drained } else { Recv::More });
        }
        let n = match retry(|| self.stream.read(&mut room.scratch)) {
            Ok(0) => return Err(XprtError::Eof),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Recv::Drained),
            Err(e) => return Err(e.into()),
        };
        let full = n == room.scratch.len();
        let mut input = room.scratch.get(..n).unwrap_or(&[]);
        let flow = feed(&mut self.reader, &mut input, &mut room.pool, sink)?;
        if !input.is_empty() {
            self.stash = input.to_vec();
            self.stash_at = 0;
        }
        Ok(if full || flow.is_break() { Recv::More } else { Recv::Drained })
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

//! One connection of a server, over any byte stream.

use crate::class::PolledXprt;
use mio::event::Source;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::ControlFlow;
use sunrpc::page::{PagePool, PageSpan, XdrBuf};
use sunrpc::record::{Next, RecordLimits, RecordReader};
use sunrpc::xprt::{Incoming, PeerAddr, RecordSink, Recv, Room, Route, Xprt, XprtCaps, XprtError};

/// Bytes that one scattered receive asks for.
const DIRECT: usize = 256 << 10;
/// Pieces that one gathering send takes (`IOV_MAX`).
const GATHER: usize = 1024;

/// A connection. Idle, it owns no buffer.
pub(crate) struct StreamXprt<S> {
    stream: S,
    peer: PeerAddr,
    caps: &'static XprtCaps,
    reader: RecordReader,
    /// Bytes received and not yet looked at, because a turn's budget was used up.
    stash: Vec<u8>,
    stash_at: usize,
    /// Replies that the socket has not taken, oldest first. A page leaves when its last byte is written: that is
    /// its gate, for the kernel has copied it.
    tx: VecDeque<PageSpan>,
    queued: usize,
    sent: u64,
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
            tx: VecDeque::new(),
            queued: 0,
            sent: 0,
        }
    }
}

impl<S: Source + Read + Write + Send> PolledXprt for StreamXprt<S> {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.stream
    }
}

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

impl<S: Read + Write> Xprt for StreamXprt<S> {
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
        self.queued += replies.len();
        self.tx.extend(replies.drain());
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        while self.queued > 0 {
            let iov: SmallVec<[IoSlice<'_>; GATHER]> =
                self.tx.iter().take(GATHER).map(|s| IoSlice::new(s.as_slice())).collect();
            let asked: usize = iov.iter().map(|s| s.len()).sum();
            let n = match retry(|| self.stream.write_vectored(&iov)) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            drop(iov);
            self.queued -= n;
            self.sent += n as u64;
            let mut left = n;
            while let Some(s) = self.tx.front_mut() {
                left -= s.advance(left);
                if !s.is_empty() {
                    break;
                }
                if let Some(s) = self.tx.pop_front() {
                    pool.put(s.into_page());
                }
            }
            if n < asked {
                return Ok(());
            }
        }
        // An idle connection owns no queue.
        if self.tx.capacity() > 64 {
            self.tx = VecDeque::new();
        }
        Ok(())
    }

    fn queued(&self) -> usize {
        self.queued
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn partial(&self) -> Option<usize> {
        self.reader.partial()
    }

    fn release_ctxt(&mut self, _pool: &mut PagePool) {
        // Pages leave in `flush`, as the kernel copies them.
    }

    fn detach(&mut self, pool: &mut PagePool) {
        self.reader.recycle(pool);
        self.tx.drain(..).for_each(|s| pool.put(s.into_page()));
        self.queued = 0;
    }
}

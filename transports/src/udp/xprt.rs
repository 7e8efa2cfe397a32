//! One socket of a server.

use crate::class::PolledXprt;
use mio::event::Source;
use mio::net::UdpSocket;
use smallvec::SmallVec;
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use sunrpc::page::{PagePool, PageSpan, Span, XdrBuf};
use sunrpc::xprt::{Incoming, PeerAddr, RecordSink, Recv, Room, Route, Xprt, XprtCaps, XprtError};
use sunrpc_sys::datagram::{self, BATCH, Inbox, Outgoing, Received};

/// Largest bulk payload: with all around it, it fits into a datagram twice.
pub(super) const MAX_PAYLOAD: u32 = 32 << 10;

const CAPS: XprtCaps = XprtCaps {
    class: "udp",
    stream: false,
    congestion_control: false,
    max_payload: MAX_PAYLOAD,
    lends: false,
};

/// Bytes of the shortest message: transaction id and type.
const SHORTEST: usize = 8;
/// Pieces of one batch that are gathered without allocation.
const GATHER: usize = 320;

/// A reply that waits to be sent; its pages lie in the queue of pages.
struct Waiting {
    pieces: usize,
    bytes: usize,
    peer: SocketAddr,
    local: Option<(IpAddr, u32)>,
    /// It met an error that was not its own.
    again: bool,
}

/// A bound socket, and the calls and replies on their way through it.
pub(super) struct UdpXprt {
    socket: UdpSocket,
    v6: bool,
    /// Its own address: it has no peer.
    addr: PeerAddr,
    inbox: Inbox,
    /// Datagrams in `inbox`, and which is next: a turn's budget may end before the batch does.
    filled: usize,
    next: usize,
    tx: VecDeque<Waiting>,
    pages: VecDeque<PageSpan>,
    queued: usize,
    queue_max: usize,
    sent: u64,
    /// Datagrams that were no call, or had no way back.
    ignored: u64,
    /// Replies that the system refused to send.
    refused: u64,
}

impl UdpXprt {
    pub(super) fn new(socket: Socket, addr: SocketAddr) -> io::Result<Self> {
        // What Linux tells is twice what was set.
        let queue_max = (socket.send_buffer_size()? / 2).max(MAX_PAYLOAD as usize);
        Ok(UdpXprt {
            socket: UdpSocket::from_std(socket.into()),
            v6: addr.is_ipv6(),
            addr: PeerAddr::Inet(addr),
            inbox: Inbox::default(),
            filled: 0,
            next: 0,
            tx: VecDeque::new(),
            pages: VecDeque::new(),
            queued: 0,
            queue_max,
            sent: 0,
            ignored: 0,
            refused: 0,
        })
    }

    /// The oldest waiting reply leaves the queue.
    fn pop(&mut self, pool: &mut PagePool) -> Option<Waiting> {
        let w = self.tx.pop_front()?;
        self.pages.drain(..w.pieces.min(self.pages.len())).for_each(|s| pool.put(s.into_page()));
        self.queued -= w.bytes;
        Some(w)
    }
}

impl PolledXprt for UdpXprt {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.socket
    }
}

/// The call in a datagram, and its way back; `None` if it is none, or cannot be answered.
fn call(d: Received<'_>) -> Option<(&[u8], Route)> {
    const CALL: [u8; 4] = [0; 4];
    let kind = d.bytes.get(..SHORTEST)?.last_chunk::<4>()?;
    let (ip, _) = d.local?;
    let fit = *kind == CALL && !d.truncated && d.peer.port() != 0 && !ip.is_multicast();
    fit.then_some((d.bytes, Route { peer: PeerAddr::Inet(d.peer), local: d.local }))
}

impl Xprt for UdpXprt {
    fn caps(&self) -> &XprtCaps {
        &CAPS
    }

    fn peer(&self) -> &PeerAddr {
        &self.addr
    }

    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError> {
        if self.next >= self.filled {
            (self.next, self.filled) = (0, 0);
            self.filled = match self.inbox.receive(self.socket.as_fd()) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Recv::Drained),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT)) => {
                    return Err(e.into());
                }
                // An error of the network, about an earlier reply, or one that passes.
                Err(_) => return Ok(Recv::More),
            };
        }
        while self.next < self.filled {
            let d = self.inbox.get(self.next).and_then(call);
            self.next += 1;
            let Some((bytes, route)) = d else {
                self.ignored += 1;
                continue;
            };
            if sink.record(&mut Incoming::Datagram(bytes, &route), &mut room.pool).is_break() {
                return Ok(Recv::More);
            }
        }
        // One batch a turn, whatever was in it: ignoring is work too.
        Ok(if self.filled < BATCH { Recv::Drained } else { Recv::More })
    }

    fn sendto(&mut self, replies: &mut XdrBuf, route: &Route) {
        let (pieces, bytes) = (replies.spans().len(), replies.len());
        let before = self.pages.len();
        self.pages.extend(replies.drain().filter_map(|s| match s {
            Span::Page(s) => Some(s),
            Span::Lent(_) => None,
        }));
        // Nobody lends to this class (`XprtCaps::lends`).
        debug_assert_eq!(self.pages.len(), before + pieces);
        let peer = match route.peer {
            PeerAddr::Inet(a) => a,
            // No such route comes from here; `flush` drops what nobody can be sent.
            PeerAddr::Local { .. } => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        self.tx.push_back(Waiting { pieces, bytes, peer, local: route.local, again: false });
        self.queued += bytes;
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        while !self.tx.is_empty() {
            let total = self.tx.iter().take(BATCH).map(|w| w.pieces).sum();
            let iov: SmallVec<[IoSlice<'_>; GATHER]> =
                self.pages.iter().take(total).map(|s| IoSlice::new(s.as_slice())).collect();
            let mut rest = &iov[..];
            let batch = self.tx.iter().take(BATCH).map_while(|w| {
                let (pieces, later) = rest.split_at_checked(w.pieces)?;
                rest = later;
                Some(Outgoing { pieces, peer: w.peer, local: w.local })
            });
            let r = datagram::send(self.socket.as_fd(), self.v6, batch);
            drop(iov);
            match r {
                Ok(n) => {
                    for _ in 0..n {
                        self.sent += self.pop(pool).map_or(0, |w| w.bytes as u64);
                    }
                    // Something wrong with nothing said would come round for ever.
                    if n == 0 {
                        self.refused += u64::from(self.pop(pool).is_some());
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => match self.tx.front_mut() {
                    // Somebody who had an earlier reply is gone; this one was not tried.
                    Some(w) if e.kind() == ErrorKind::ConnectionRefused && !w.again => w.again = true,
                    _ => {
                        // Its address cannot be reached, or the firewall forbids it: the caller will ask again.
                        let w = self.pop(pool);
                        self.refused += 1;
                        tracing::debug!(peer = ?w.map(|w| w.peer), "a reply is dropped: {e}");
                    }
                },
            }
        }
        Ok(())
    }

    fn queued(&self) -> usize {
        self.queued
    }

    fn queue_max(&self) -> usize {
        self.queue_max
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn release_ctxt(&mut self, _event: bool, _pool: &mut PagePool) -> usize {
        // Pages leave in `flush`, as the kernel copies them.
        0
    }

    fn detach(&mut self, pool: &mut PagePool) {
        while self.pop(pool).is_some() {}
        if self.ignored + self.refused > 0 {
            let (ignored, refused) = (self.ignored, self.refused);
            tracing::debug!(ignored, refused, "datagrams that were no call, replies not sent");
        }
    }
}

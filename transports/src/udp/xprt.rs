//! One socket of a server.

use super::outbox::Outbox;
use crate::class::PolledXprt;
use mio::event::Source;
use mio::net::UdpSocket;
use socket2::Socket;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use sunrpc::page::{PagePool, XdrBuf};
use sunrpc::xprt::{Incoming, PeerAddr, RecordSink, Recv, Room, Route, Xprt, XprtCaps, XprtError, XprtStats};
use sunrpc_sys::datagram::{self, BATCH, Inbox, Received};

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
    outbox: Outbox,
    queue_max: usize,
    /// Datagrams that were no call, or had no way back, since the last [`take_stats`](Xprt::take_stats).
    ignored: u64,
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
            outbox: Outbox::default(),
            queue_max,
            ignored: 0,
        })
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
        self.outbox.push(replies, route);
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        let (socket, v6) = (self.socket.as_fd(), self.v6);
        self.outbox.flush(pool, |batch| datagram::send(socket, v6, batch));
        Ok(())
    }

    fn queued(&self) -> usize {
        self.outbox.queued()
    }

    fn queue_max(&self) -> usize {
        self.queue_max
    }

    fn sent(&self) -> u64 {
        self.outbox.sent()
    }

    fn take_stats(&mut self) -> XprtStats {
        XprtStats { ignored: std::mem::take(&mut self.ignored), unsent: self.outbox.take_unsent() }
    }

    fn release_ctxt(&mut self, _event: bool, _pool: &mut PagePool) -> usize {
        // Pages leave in `flush`, as the kernel copies them.
        0
    }

    fn detach(&mut self, pool: &mut PagePool) {
        self.outbox.clear(pool);
    }
}

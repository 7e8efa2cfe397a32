//! What a transport must do, and what the service state machine knows about it.

mod sendq;

pub use sendq::{Front, SendQueue, SendStats};

use crate::page::{PagePool, XdrBuf};
use crate::record::{Bulk, Record, RecordError, RecordReader};
use crate::svc::OwnedRecord;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

/// Names a transport of one worker. The generation tells a reused slot from its former tenant, so a late reply can
/// never reach a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct XprtId {
    /// Slot in the worker's table.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// The other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerAddr {
    /// An internet address.
    Inet(SocketAddr),
    /// A local process, as the kernel vouches for it.
    Local {
        /// Its user.
        uid: u32,
        /// Its process id.
        pid: u32,
    },
}

impl std::fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerAddr::Inet(a) => a.fmt(f),
            PeerAddr::Local { uid, pid } => write!(f, "local:uid={uid},pid={pid}"),
        }
    }
}

/// Where a call came from, and so where its reply goes. On a stream that is the connection; a datagram brings its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The other end.
    pub peer: PeerAddr,
    /// The address of this host that was called, and the interface index that an IPv6 link-local address needs (0 =
    /// any). The reply leaves from there, since a client takes it from no other. `None` on streams.
    pub local: Option<(IpAddr, u32)>,
}

impl Route {
    /// The route of every call on a connection with `peer`.
    pub const fn stream(peer: PeerAddr) -> Self {
        Route { peer, local: None }
    }
}

/// Properties of a transport that procedures and the state machine ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XprtCaps {
    /// Class name (`tcp`).
    pub class: &'static str,
    /// A byte stream: messages carry record marks.
    pub stream: bool,
    /// The transport controls congestion (NFSv4 is offered only then).
    pub congestion_control: bool,
    /// Largest bulk payload, in bytes.
    pub max_payload: u32,
    /// Sends lent bytes ([`Lent`](crate::page::Lent)) without copying them into pages.
    pub lends: bool,
}

/// Event bits. An event only sets bits and queues the transport.
pub mod bits {
    /// There may be something to receive.
    pub const DATA: u8 = 1;
    /// There is room to send again.
    pub const WSPACE: u8 = 2;
    /// The peer closed its side or the transport failed: read until that shows, then close.
    pub const HUP: u8 = 4;
    /// Close now.
    pub const CLOSE: u8 = 8;
    /// The error queue has completions.
    pub const ERRQ: u8 = 16;
}

/// Why a transport ends. Always fatal to the transport, never to the server.
#[derive(Debug, thiserror::Error)]
pub enum XprtError {
    /// The peer finished.
    #[error("peer closed the connection")]
    Eof,
    /// The byte stream is no sequence of acceptable records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The operating system's error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The message was not for a server.
    #[error("peer sent what is no call")]
    NotACall,
    /// The peer took no byte for too long.
    #[error("peer takes no data")]
    Stalled,
    /// The peer began a record and sent nothing more of it for too long.
    #[error("peer does not finish its record")]
    Unfinished,
    /// Closed to make room.
    #[error("closed to make room for newer connections")]
    Evicted,
    /// Nothing happened for too long.
    #[error("idle")]
    Idle,
    /// The server stops.
    #[error("server is stopping")]
    Stopping,
}

/// State of a transport's input after a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recv {
    /// Everything that had arrived was taken; wait for the next event.
    Drained,
    /// There may be more.
    More,
}

/// What a receive works with: the worker's pages and its one scratch buffer.
#[derive(Debug)]
pub struct Room {
    /// The worker's pages.
    pub pool: PagePool,
    /// Where small records are received.
    pub scratch: Box<[u8]>,
}

/// A record as it lies after a receive.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// In one piece in the scratch buffer.
    Whole(&'a [u8]),
    /// In a reader's own memory.
    Collected(&'a mut RecordReader),
    /// A datagram, with its own way back.
    Datagram(&'a [u8], &'a Route),
}

impl Incoming<'_> {
    /// The record's bytes.
    pub fn record(&self) -> Record<'_> {
        match self {
            Incoming::Whole(head) | Incoming::Datagram(head, _) => Record { head, spans: &[] },
            Incoming::Collected(r) => r.collected(),
        }
    }

    /// The record, to be kept beyond the receive. What lies in pages moves; what lies in the scratch is copied.
    pub fn to_owned_record(&mut self) -> OwnedRecord {
        match self {
            Incoming::Whole(head) | Incoming::Datagram(head, _) => {
                OwnedRecord { head: head.to_vec(), spans: Vec::new() }
            }
            Incoming::Collected(r) => {
                let (head, spans) = r.take_collected();
                OwnedRecord { head, spans }
            }
        }
    }
}

/// What a transport of datagrams counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XprtStats {
    /// Datagrams that were no call, or had no way back.
    pub ignored: u64,
    /// Replies that the system refused to send.
    pub unsent: u64,
}

/// Takes the records of one receive, one by one.
pub trait RecordSink {
    /// Handles a record. `Break` ends the receive: the turn's budget is used up.
    fn record(&mut self, rec: &mut Incoming<'_>, pool: &mut PagePool) -> ControlFlow<()>;

    /// Where the bulk data begins of a large record that begins with `head`, if the sink can tell.
    fn bulk_at(&mut self, head: &[u8]) -> Option<Bulk> {
        let _ = head;
        None
    }
}

/// One endpoint, owned by one worker for life.
pub trait Xprt {
    /// Its properties.
    fn caps(&self) -> &XprtCaps;

    /// The other end.
    fn peer(&self) -> &PeerAddr;

    /// Hands every complete record that has arrived to `sink`, until the sink breaks. Keeps partial state.
    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError>;

    /// Queues replies for sending: moves the pages out of `replies`, sends nothing yet. A transport of datagrams is
    /// called once for each reply, with the route of its call; to a stream the route says nothing new.
    fn sendto(&mut self, replies: &mut XdrBuf, route: &Route);

    /// Hands queued bytes to the network, as many as it takes, in one system call if it can. Pages whose gate has
    /// opened go back to `pool`.
    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError>;

    /// Bytes queued and not yet taken by the network.
    fn queued(&self) -> usize;

    /// Bytes of queued replies beyond which no more calls are to be taken, if it has a bound of its own below
    /// [`SvcLimits::send_queue`](crate::svc::SvcLimits::send_queue). Asked once.
    fn queue_max(&self) -> usize {
        usize::MAX
    }

    /// Bytes ever handed to the network; shows progress.
    fn sent(&self) -> u64;

    /// Bytes received so far of a record that is not complete; `None` between records, and where records arrive whole.
    fn partial(&self) -> Option<usize> {
        None
    }

    /// What it counted since the last call. A transport of datagrams is asked after every turn, others never.
    fn take_stats(&mut self) -> XprtStats {
        XprtStats::default()
    }

    /// Pages that the network still refers to, though it took their bytes. A transport whose peer has finished lives on
    /// until there are none.
    fn outstanding(&self) -> usize {
        0
    }

    /// What it sent, and how; `None` if it does not count.
    fn send_stats(&self) -> Option<&SendStats> {
        None
    }

    /// The release-context hook: gives every page whose gate has opened back to `pool`, in one batch; how many. Called
    /// after every turn, and with `event` when completions were announced; finding nothing to do is normal.
    fn release_ctxt(&mut self, event: bool, pool: &mut PagePool) -> usize;

    /// Ends the transport: no more events, all pages back to `pool`.
    fn detach(&mut self, pool: &mut PagePool);
}

impl<X: Xprt + ?Sized> Xprt for Box<X> {
    fn caps(&self) -> &XprtCaps {
        (**self).caps()
    }

    fn peer(&self) -> &PeerAddr {
        (**self).peer()
    }

    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError> {
        (**self).recvfrom(room, sink)
    }

    fn sendto(&mut self, replies: &mut XdrBuf, route: &Route) {
        (**self).sendto(replies, route);
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        (**self).flush(pool)
    }

    fn queued(&self) -> usize {
        (**self).queued()
    }

    fn queue_max(&self) -> usize {
        (**self).queue_max()
    }

    fn sent(&self) -> u64 {
        (**self).sent()
    }

    fn partial(&self) -> Option<usize> {
        (**self).partial()
    }

    fn take_stats(&mut self) -> XprtStats {
        (**self).take_stats()
    }

    fn outstanding(&self) -> usize {
        (**self).outstanding()
    }

    fn send_stats(&self) -> Option<&SendStats> {
        (**self).send_stats()
    }

    fn release_ctxt(&mut self, event: bool, pool: &mut PagePool) -> usize {
        (**self).release_ctxt(event, pool)
    }

    fn detach(&mut self, pool: &mut PagePool) {
        (**self).detach(pool);
    }
}

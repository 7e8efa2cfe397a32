//! Calls that leave their worker, and what comes back.

use crate::drc::Claim;
use crate::page::{PagePool, PageSpan, XdrBuf};
use crate::record::Record;
use crate::xprt::{Route, XprtCaps, XprtId};
use std::sync::Arc;

/// A record that owns its memory.
#[derive(Debug)]
pub struct OwnedRecord {
    /// First bytes, in one piece.
    pub head: Vec<u8>,
    /// The rest.
    pub spans: Vec<PageSpan>,
}

impl OwnedRecord {
    /// Its bytes.
    pub fn record(&self) -> Record<'_> {
        Record { head: &self.head, spans: &self.spans }
    }

    /// Gives its pages to `pool`.
    pub fn recycle(self, pool: &mut PagePool) {
        self.spans.into_iter().for_each(|s| pool.put(s.into_page()));
    }
}

/// A call on its way to a helper thread.
pub struct Job {
    /// The call.
    pub record: OwnedRecord,
    /// Where it came from.
    pub from: XprtId,
    /// The way back.
    pub route: Route,
    /// The transport's properties.
    pub caps: XprtCaps,
    /// The owner's mailbox.
    pub mailbox: Arc<dyn Mailbox>,
    /// The right to run it, if it must not run twice.
    pub claim: Option<Claim>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("from", &self.from)
            .field("peer", &self.route.peer)
            .finish_non_exhaustive()
    }
}

/// Where jobs go. The queue is bounded: a refused job comes back, and its transport is not read until there is room.
pub trait Offload: Send + Sync {
    /// Queues a job for a helper thread.
    #[allow(clippy::result_large_err)] // a refused job moves back to its owner; boxing it would allocate each time
    fn submit(&self, job: Job) -> Result<(), Job>;

    /// Queues work that belongs to no call any more.
    fn submit_work(&self, work: Work) -> Result<(), Work>;
}

/// What is left to do after a call and may wait for a device.
pub type Work = Box<dyn FnOnce() + Send>;

/// A finished call on its way home.
#[derive(Debug)]
pub enum Reply {
    /// In pages, record mark included on streams.
    Pages(XdrBuf),
    /// In plain memory, record mark included on streams.
    Bytes(Vec<u8>),
    /// The call has no reply.
    Nothing,
    /// The transport has to be closed.
    Close,
}

/// A reply and the transport that it belongs to.
pub struct Delivery {
    /// The transport.
    pub to: XprtId,
    /// The way of its call.
    pub route: Route,
    /// The reply.
    pub reply: Reply,
    /// What the call left to do once its reply was flushed. It goes to a helper then, also if the transport is gone.
    pub after: Vec<Work>,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("to", &self.to).field("reply", &self.reply).finish_non_exhaustive()
    }
}

/// Brings finished calls back to the worker that owns their transport.
pub trait Mailbox: Send + Sync {
    /// Delivers and, if need be, wakes the worker.
    fn post(&self, d: Delivery);
}

//! Who is connected: counts, validation, and what is given back when a connection ends.

use crate::class::PolledXprt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sunrpc::page::{PagePool, XdrBuf};
use sunrpc::xprt::{
    PeerAddr, RecordSink, Recv, Room, Route, SendStats, Xprt, XprtCaps, XprtError, XprtId, XprtStats,
};

/// Connection counts of a server, shared by acceptor and workers. Only counters: nothing is decided by reading two
/// of them together.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) open: AtomicUsize,
    pub(super) unvalidated: AtomicUsize,
}

const NO_ID: u64 = u64::MAX;

/// One connection's state as the acceptor sees it.
#[derive(Debug)]
pub(super) struct ConnState {
    totals: Arc<Totals>,
    load: Arc<AtomicUsize>,
    per_peer: Arc<AtomicUsize>,
    validated: AtomicBool,
    /// Counted in `Totals::unvalidated`.
    counted: AtomicBool,
    /// The acceptor wants it closed.
    doomed: AtomicBool,
    open: AtomicBool,
    id: AtomicU64,
    /// Index of its worker.
    pub(super) worker: usize,
}

impl ConnState {
    pub(super) fn new(
        totals: Arc<Totals>,
        load: Arc<AtomicUsize>,
        per_peer: Arc<AtomicUsize>,
        worker: usize,
    ) -> Arc<Self> {
        for c in [&totals.open, &totals.unvalidated, &*load, &*per_peer] {
            c.fetch_add(1, Ordering::Relaxed);
        }
        Arc::new(ConnState {
            totals,
            load,
            per_peer,
            validated: AtomicBool::new(false),
            counted: AtomicBool::new(true),
            doomed: AtomicBool::new(false),
            open: AtomicBool::new(true),
            id: AtomicU64::new(NO_ID),
            worker,
        })
    }

    /// The state of a transport that is there for the server's life: in nobody's counts, and never in the way.
    pub(super) fn fixed(worker: usize) -> Arc<Self> {
        let s = ConnState::new(Arc::default(), Arc::default(), Arc::default(), worker);
        s.validate();
        s
    }

    pub(super) fn validate(&self) {
        self.validated.store(true, Ordering::Relaxed);
        self.uncount();
    }

    fn uncount(&self) {
        if self.counted.swap(false, Ordering::Relaxed) {
            self.totals.unvalidated.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Marks it for closing; from now on it does not count as unvalidated.
    pub(super) fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
        self.uncount();
    }

    /// Marked for closing, and still not validated.
    pub(super) fn doomed(&self) -> bool {
        self.doomed.load(Ordering::Relaxed) && self.evictable()
    }

    /// Open and not validated: may be closed to make room.
    pub(super) fn evictable(&self) -> bool {
        self.open.load(Ordering::Relaxed)
            && (!self.validated.load(Ordering::Relaxed) || sunrpc::mutate::on("evict-any"))
    }

    pub(super) fn set_id(&self, id: XprtId) {
        self.id.store(u64::from(id.slot) << 32 | u64::from(id.generation), Ordering::Relaxed);
    }

    pub(super) fn id(&self) -> Option<XprtId> {
        match self.id.load(Ordering::Relaxed) {
            NO_ID => None,
            v => Some(XprtId { slot: (v >> 32) as u32, generation: v as u32 }),
        }
    }

    fn end(&self) {
        if self.open.swap(false, Ordering::Relaxed) {
            self.uncount();
            for c in [&self.totals.open, &*self.load, &*self.per_peer] {
                c.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// A transport with its place in the counts, which it gives back when it is dropped.
pub(super) struct Managed {
    pub(super) x: Box<dyn PolledXprt>,
    pub(super) state: Arc<ConnState>,
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.state.end();
    }
}

impl Xprt for Managed {
    fn caps(&self) -> &XprtCaps {
        self.x.caps()
    }

    fn peer(&self) -> &PeerAddr {
        self.x.peer()
    }

    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError> {
        self.x.recvfrom(room, sink)
    }

    fn sendto(&mut self, replies: &mut XdrBuf, route: &Route) {
        self.x.sendto(replies, route);
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        self.x.flush(pool)
    }

    fn queued(&self) -> usize {
        self.x.queued()
    }

    fn queue_max(&self) -> usize {
        self.x.queue_max()
    }

    fn sent(&self) -> u64 {
        self.x.sent()
    }

    fn partial(&self) -> Option<usize> {
        self.x.partial()
    }

    fn take_stats(&mut self) -> XprtStats {
        self.x.take_stats()
    }

    fn outstanding(&self) -> usize {
        self.x.outstanding()
    }

    fn send_stats(&self) -> Option<&SendStats> {
        self.x.send_stats()
    }

    fn release_ctxt(&mut self, event: bool, pool: &mut PagePool) -> usize {
        self.x.release_ctxt(event, pool)
    }

    fn detach(&mut self, pool: &mut PagePool) {
        self.x.detach(pool);
    }
}

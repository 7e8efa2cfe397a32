//! The service loop of one worker as a state machine: events in, turns out.
//!
//! A transport belongs to one worker for life. Events only set bits and queue the transport; a turn handles what
//! has arrived, within a budget, and ends with one flush. Nothing here waits: what would is handed to a helper with
//! its record, and comes back as a [`Delivery`].

use super::job::{Delivery, Job, Mailbox, Offload, Reply, Work};
use super::service::{Disposition, Env, Service};
use crate::mutate;
use crate::page::{PAGE_SIZE, PagePool, PageWriter, RecordPages, XdrBuf};
use crate::record::Bulk;
use crate::xdr::XdrWrite;
use crate::xprt::{
    Incoming, PeerAddr, RecordSink, Recv, Room, Route, SendStats, Xprt, XprtCaps, XprtError, XprtId,
    XprtStats, bits,
};
use slab::Slab;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bounds of one worker's transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SvcLimits {
    /// Calls of one transport that may be with helpers or responders at a time; beyond, it is not read.
    pub in_flight: u32,
    /// Records handled in one turn.
    pub turn_records: u32,
    /// Bytes of calls and replies handled in one turn.
    pub turn_bytes: usize,
    /// Bytes of replies queued on one transport; beyond, no call is taken from it until half has drained.
    pub send_queue: usize,
    /// Milliseconds without one byte of progress after which a transport with queued replies, or with half a record, is
    /// closed.
    pub stall_ms: u64,
    /// Milliseconds without a call after which a transport is closed; 0 = never.
    pub idle_ms: u64,
    /// Bytes of the receive scratch buffer.
    pub scratch: usize,
}

impl Default for SvcLimits {
    fn default() -> Self {
        SvcLimits {
            in_flight: 32,
            turn_records: 32,
            turn_bytes: 256 << 10,
            send_queue: 1 << 20,
            stall_ms: 30_000,
            idle_ms: 360_000,
            scratch: 64 << 10,
        }
    }
}

/// Pages that must be at hand before a call is taken: the largest reply, its header, and a page lost to alignment.
const PAGES_PER_CALL: usize = (1 << 20) / PAGE_SIZE + 4;

crate::counters! {
    /// Counters of one worker.
    #[allow(missing_docs)]
    pub struct WorkerStats {
        pub opened: u64,
        pub closed: u64,
        pub turns: u64,
        pub records: u64,
        pub offloaded: u64,
        pub offload_full: u64,
        pub delivered: u64,
        /// Deliveries whose transport was gone.
        pub orphaned: u64,
        pub no_pages: u64,
        /// Datagrams that were no call.
        pub ignored: u64,
        /// Replies in datagrams that the system refused to send.
        pub unsent: u64,
    }
}

struct Entry<X> {
    x: X,
    generation: u32,
    /// Its calls come from one peer, and it ends with it. Nothing of a peer closes a transport of datagrams.
    stream: bool,
    /// Bytes of queued replies beyond which it is not read.
    send_queue: usize,
    bits: u8,
    /// In the ready queue.
    ready: bool,
    /// A flush left bytes behind; only WSPACE helps.
    blocked: bool,
    /// Not read because the send queue was full; ends when half has drained.
    throttled: bool,
    validated: bool,
    /// The peer has finished, and gets what it asked for before; since when.
    ending: Option<u64>,
    in_flight: u32,
    /// A call that no helper queue had room for.
    parked: Option<Job>,
    last_call: u64,
    last_progress: u64,
    sent: u64,
    /// What there was of an incomplete record at the last tick, and since when it has not grown.
    partial: Option<usize>,
    partial_since: u64,
}

/// A transport that ended.
#[derive(Debug)]
pub struct Closed {
    /// Which.
    pub id: XprtId,
    /// Its peer.
    pub peer: PeerAddr,
    /// Why.
    pub why: XprtError,
    /// Whether a call had validated it.
    pub validated: bool,
}

/// The state machine.
pub struct SvcWorker<X> {
    xprts: Slab<Entry<X>>,
    generations: Vec<u32>,
    ready: VecDeque<u32>,
    parked: Vec<u32>,
    service: Service,
    room: Room,
    out: XdrBuf,
    /// Replies of one turn that go their own ways. The buffers stay.
    datagrams: Vec<(XdrBuf, Route)>,
    mailbox: Arc<dyn Mailbox>,
    offload: Arc<dyn Offload>,
    limits: SvcLimits,
    stats: WorkerStats,
    /// Of transports that ended.
    sent: SendStats,
    closed: Vec<Closed>,
    validated: Vec<XprtId>,
    /// What calls left to do, for helpers. It stays while their queue has no room.
    work: Vec<Work>,
    /// What calls that helpers ran left to do once their replies are flushed.
    after: Vec<Work>,
}

impl<X> std::fmt::Debug for SvcWorker<X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SvcWorker").field("xprts", &self.xprts.len()).field("stats", &self.stats).finish()
    }
}

impl<X: Xprt> SvcWorker<X> {
    /// A worker without transports.
    pub fn new(
        service: Service,
        pool: PagePool,
        limits: SvcLimits,
        mailbox: Arc<dyn Mailbox>,
        offload: Arc<dyn Offload>,
    ) -> Self {
        SvcWorker {
            xprts: Slab::new(),
            generations: Vec::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            service,
            room: Room { pool, scratch: vec![0; limits.scratch].into_boxed_slice() },
            out: XdrBuf::new(),
            datagrams: Vec::new(),
            mailbox,
            offload,
            limits,
            stats: WorkerStats::default(),
            sent: SendStats::default(),
            closed: Vec::new(),
            validated: Vec::new(),
            work: Vec::new(),
            after: Vec::new(),
        }
    }

    /// Takes over a transport. It is looked at in the next turn, whether or not an event comes.
    pub fn add(&mut self, x: X, now: u64) -> XprtId {
        let slot = self.xprts.vacant_key();
        if self.generations.len() <= slot {
            self.generations.resize(slot + 1, 0);
        }
        let generation = self.generations.get(slot).copied().unwrap_or(0);
        let (stream, send_queue) = (x.caps().stream, self.limits.send_queue.min(x.queue_max()));
        self.xprts.insert(Entry {
            x,
            generation,
            stream,
            send_queue,
            bits: bits::DATA,
            ready: true,
            blocked: false,
            throttled: false,
            validated: false,
            ending: None,
            in_flight: 0,
            parked: None,
            last_call: now,
            last_progress: now,
            sent: 0,
            partial: None,
            partial_since: now,
        });
        // Slots count transports; there are never 2^32 of them.
        let slot = slot as u32;
        self.ready.push_back(slot);
        self.stats.opened += 1;
        XprtId { slot, generation }
    }

    /// Access to a transport, to register it with a poller.
    pub fn xprt_mut(&mut self, id: XprtId) -> Option<&mut X> {
        self.entry(id).map(|e| &mut e.x)
    }

    /// Who is in `slot` now.
    pub fn id(&self, slot: u32) -> Option<XprtId> {
        self.xprts.get(slot as usize).map(|e| XprtId { slot, generation: e.generation })
    }

    fn entry(&mut self, id: XprtId) -> Option<&mut Entry<X>> {
        self.xprts.get_mut(id.slot as usize).filter(|e| e.generation == id.generation)
    }

    /// Sets event bits of the transport in `slot` and queues it. Events for an empty slot are stale and ignored.
    pub fn event(&mut self, slot: u32, set: u8) {
        let Some(e) = self.xprts.get_mut(slot as usize) else { return };
        e.bits |= set;
        if !e.ready {
            e.ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Gives the transport in `slot` a turn as if an event had come, for who looks instead of waiting for events. True if
    /// that brought a call or an end, or more turns are due; else it does not count as a turn.
    pub fn look(&mut self, slot: u32, now: u64) -> bool {
        let WorkerStats { turns, records, closed, .. } = self.stats;
        self.event(slot, bits::DATA);
        self.run(now);
        let found = (records, closed) != (self.stats.records, self.stats.closed) || self.has_ready();
        if !found {
            self.stats.turns = turns;
        }
        found
    }

    /// Closes a transport in its next turn.
    pub fn close(&mut self, id: XprtId) {
        if self.entry(id).is_some() {
            self.event(id.slot, bits::CLOSE);
        }
    }

    /// Takes a finished call home.
    pub fn deliver(&mut self, d: Delivery) {
        self.stats.delivered += 1;
        self.after.extend(d.after);
        let Some(e) = self.xprts.get_mut(d.to.slot as usize).filter(|e| e.generation == d.to.generation)
        else {
            self.stats.orphaned += 1;
            if let Reply::Pages(mut buf) = d.reply
                && !mutate::on("lose-orphan")
            {
                buf.recycle(&mut self.room.pool);
            }
            return;
        };
        e.in_flight = e.in_flight.saturating_sub(1);
        match d.reply {
            Reply::Pages(mut buf) => e.x.sendto(&mut buf, &d.route),
            Reply::Bytes(bytes) => {
                let mut buf = XdrBuf::new();
                match PageWriter::new(&mut buf, &mut self.room.pool, bytes.len()).put(&bytes) {
                    Ok(()) => e.x.sendto(&mut buf, &d.route),
                    Err(_) => {
                        buf.recycle(&mut self.room.pool);
                        if e.stream {
                            e.bits |= bits::CLOSE;
                        }
                    }
                }
            }
            Reply::Close if e.stream => e.bits |= bits::CLOSE,
            Reply::Nothing | Reply::Close => {}
        }
        if !e.ready {
            e.ready = true;
            self.ready.push_back(d.to.slot);
        }
    }

    /// True while a turn is due.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.after.is_empty()
    }

    /// True while calls wait for room in the helpers' queue, which nobody announces: call [`run`](Self::run) again
    /// within milliseconds.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty() || !self.work.is_empty()
    }

    /// Gives every transport that is queued now one turn. `now` is in milliseconds of any monotonic clock.
    pub fn run(&mut self, now: u64) {
        self.retry_parked();
        for _ in 0..self.ready.len() {
            let Some(slot) = self.ready.pop_front() else { break };
            self.turn(slot, now);
        }
        // Each transport that something was delivered to has had its turn.
        self.work.append(&mut self.after);
        self.submit_work();
    }

    fn submit_work(&mut self) {
        while let Some(work) = self.work.pop() {
            if let Err(work) = self.offload.submit_work(work) {
                self.work.push(work);
                break;
            }
        }
    }

    fn retry_parked(&mut self) {
        for slot in std::mem::take(&mut self.parked) {
            let Some(e) = self.xprts.get_mut(slot as usize) else { continue };
            let Some(job) = e.parked.take() else { continue };
            match self.offload.submit(job) {
                Ok(()) => {
                    self.stats.offloaded += 1;
                    if !e.ready {
                        e.ready = true;
                        self.ready.push_back(slot);
                    }
                }
                Err(job) => {
                    e.parked = Some(job);
                    self.parked.push(slot);
                }
            }
        }
    }

    fn turn(&mut self, slot: u32, now: u64) {
        let Some(e) = self.xprts.get_mut(slot as usize) else { return };
        self.stats.turns += 1;
        e.ready = false;
        let id = XprtId { slot, generation: e.generation };
        if e.bits & bits::CLOSE != 0 {
            return self.end(id, XprtError::Stopping);
        }
        if e.bits & bits::WSPACE != 0 {
            e.bits &= !bits::WSPACE;
            e.blocked = false;
        }
        if e.bits & bits::ERRQ != 0 {
            e.bits &= !bits::ERRQ;
            if e.x.release_ctxt(true, &mut self.room.pool) == 0 {
                // No completion but an error, which a read will show.
                e.bits |= bits::DATA;
            }
        }
        // Drain first: a full queue must not keep the transport from being read in the same turn.
        if e.throttled && !e.blocked && e.x.queued() > 0 {
            if let Err(why) = e.x.flush(&mut self.room.pool) {
                return self.end(id, why);
            }
            e.blocked = e.x.queued() > 0;
        }
        if e.throttled && e.x.queued() < e.send_queue / 2 {
            e.throttled = false;
        }
        let readable = e.bits & (bits::DATA | bits::HUP) != 0
            && !e.throttled
            && e.ending.is_none()
            && e.parked.is_none()
            && e.in_flight < self.limits.in_flight;
        let mut failed = None;
        let mut again = false;
        if readable && !self.room.pool.ensure(PAGES_PER_CALL) {
            self.stats.no_pages += 1;
            again = true;
        } else if readable {
            let hup = e.bits & bits::HUP != 0 && e.stream;
            e.bits &= !bits::DATA;
            if !e.stream {
                e.bits &= !bits::HUP;
            }
            let (route, caps) = (Route::stream(*e.x.peer()), *e.x.caps());
            let mut sink = Turn {
                service: &mut self.service,
                out: &mut self.out,
                datagrams: &mut self.datagrams,
                replies: 0,
                mailbox: &self.mailbox,
                offload: &*self.offload,
                limits: &self.limits,
                send_queue: e.send_queue,
                stats: &mut self.stats,
                id,
                route,
                caps,
                queued: e.x.queued(),
                records: 0,
                bytes: 0,
                in_flight: e.in_flight,
                parked: None,
                validated: e.validated,
                close: false,
            };
            let r = e.x.recvfrom(&mut self.room, &mut sink);
            if sink.records > 0 {
                e.last_call = now;
            }
            e.in_flight = sink.in_flight;
            e.parked = sink.parked.take();
            let (validated, not_a_call, replies) = (sink.validated, sink.close, sink.replies);
            if e.parked.is_some() {
                self.parked.push(slot);
            }
            if validated && !e.validated {
                e.validated = true;
                self.validated.push(id);
            }
            if !self.out.is_empty() {
                e.x.sendto(&mut self.out, &route);
            }
            for (buf, route) in self.datagrams.iter_mut().take(replies) {
                e.x.sendto(buf, route);
            }
            match r {
                _ if not_a_call => failed = Some(XprtError::NotACall),
                Ok(Recv::More) if mutate::on("data-cleared") => {}
                Ok(Recv::More) => e.bits |= bits::DATA,
                Ok(Recv::Drained) if hup => {
                    // The event said that the peer is gone, yet the read found neither data nor its end.
                    e.bits |= bits::DATA;
                }
                Ok(Recv::Drained) => {}
                Err(why) => failed = Some(why),
            }
        }
        if e.x.queued() > 0 && !e.blocked {
            // A failing read still lets the replies of earlier calls out.
            match e.x.flush(&mut self.room.pool) {
                Ok(()) => e.blocked = e.x.queued() > 0,
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        e.x.release_ctxt(false, &mut self.room.pool);
        let left = &mut self.work;
        self.service.release(|work| left.push(work));
        if !e.stream {
            let XprtStats { ignored, unsent } = e.x.take_stats();
            self.stats.ignored += ignored;
            self.stats.unsent += unsent;
        }
        if e.x.queued() >= e.send_queue && !mutate::on("no-backpressure") {
            e.throttled = true;
        }
        if e.x.queued() == 0 || e.x.sent() != e.sent {
            e.sent = e.x.sent();
            e.last_progress = now;
        }
        match failed {
            Some(XprtError::Eof) if !mutate::on("linger-not") => e.ending = e.ending.or(Some(now)),
            Some(why) => return self.end(id, why),
            None => {}
        }
        if e.ending.is_some() {
            if e.in_flight == 0 && e.parked.is_none() && e.x.queued() == 0 && e.x.outstanding() == 0 {
                self.end(id, XprtError::Eof);
            }
            return;
        }
        let can_read = !e.throttled && e.parked.is_none() && e.in_flight < self.limits.in_flight;
        if (again || (e.bits & bits::DATA != 0 && can_read)) && !e.ready {
            e.ready = true;
            self.ready.push_back(slot);
        }
    }

    fn end(&mut self, id: XprtId, why: XprtError) {
        let slot = id.slot as usize;
        if !self.xprts.contains(slot) {
            return;
        }
        let mut e = self.xprts.remove(slot);
        if let Some(g) = self.generations.get_mut(slot) {
            *g = g.wrapping_add(1);
        }
        self.out.recycle(&mut self.room.pool);
        if let Some(job) = e.parked.take() {
            job.record.recycle(&mut self.room.pool);
        }
        let peer = *e.x.peer();
        e.x.detach(&mut self.room.pool);
        if let Some(s) = e.x.send_stats() {
            self.sent.add(s);
        }
        self.stats.closed += 1;
        self.closed.push(Closed { id, peer, why, validated: e.validated });
    }

    /// About once a second: closes what is stalled or idle, offers queued datagrams again, trims the pool, ticks the
    /// programs.
    pub fn tick(&mut self, now: u64) {
        // Nothing closes a transport of datagrams, so a wake-up that is lost must not silence it for ever.
        let stuck = self.xprts.iter().filter(|(_, e)| !e.stream && e.x.queued() > 0);
        let stuck: Vec<u32> = stuck.map(|(slot, _)| slot as u32).collect();
        stuck.into_iter().for_each(|slot| self.event(slot, bits::WSPACE));
        let mut ends = Vec::new();
        for (slot, e) in self.xprts.iter_mut().filter(|(_, e)| e.stream) {
            let id = XprtId { slot: slot as u32, generation: e.generation };
            let partial = e.x.partial();
            // Nothing is held against a peer that is not being read.
            let unread = e.bits & bits::DATA != 0
                || e.throttled
                || e.parked.is_some()
                || e.in_flight >= self.limits.in_flight;
            if partial != e.partial || unread {
                (e.partial, e.partial_since) = (partial, now);
            }
            if e.ending
                .is_some_and(|since| now.saturating_sub(since.max(e.last_progress)) > self.limits.stall_ms)
            {
                ends.push((id, XprtError::Stalled));
            } else if e.ending.is_some() {
                // It will not send anything any more.
            } else if partial.is_some()
                && now.saturating_sub(e.partial_since.max(e.last_call)) > self.limits.stall_ms
            {
                ends.push((id, XprtError::Unfinished));
            } else if e.x.queued() > 0 && now.saturating_sub(e.last_progress) > self.limits.stall_ms {
                ends.push((id, XprtError::Stalled));
            } else if self.limits.idle_ms > 0
                && e.in_flight == 0
                && e.x.queued() == 0
                && now.saturating_sub(e.last_call) > self.limits.idle_ms
            {
                ends.push((id, XprtError::Idle));
            }
        }
        for (id, why) in ends {
            self.end(id, why);
        }
        self.service.tick(now);
        self.room.pool.tick();
    }

    /// True when no call is in progress, no reply is queued, and the network refers to no page.
    pub fn quiet(&self) -> bool {
        let done = |e: &Entry<X>| e.in_flight == 0 && e.x.queued() == 0 && e.x.outstanding() == 0;
        self.work.is_empty() && self.xprts.iter().all(|(_, e)| done(e))
    }

    /// Closes everything.
    pub fn close_all(&mut self) {
        let ids: Vec<_> =
            self.xprts.iter().map(|(s, e)| XprtId { slot: s as u32, generation: e.generation }).collect();
        for id in ids {
            self.end(id, XprtError::Stopping);
        }
    }

    /// Transports that ended since the last call.
    pub fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    /// Transports that a call validated since the last call.
    pub fn take_validated(&mut self) -> Vec<XprtId> {
        std::mem::take(&mut self.validated)
    }

    /// Live transports.
    pub fn len(&self) -> usize {
        self.xprts.len()
    }

    /// True without transports.
    pub fn is_empty(&self) -> bool {
        self.xprts.is_empty()
    }

    /// Counters of the worker.
    pub fn stats(&self) -> WorkerStats {
        self.stats
    }

    /// What all transports sent, those that ended included.
    pub fn send_stats(&self) -> SendStats {
        let mut all = self.sent;
        self.xprts.iter().filter_map(|(_, e)| e.x.send_stats()).for_each(|s| all.add(s));
        all
    }

    /// The service's counters.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The worker's pages.
    pub fn pool(&self) -> &PagePool {
        &self.room.pool
    }
}

/// Runs the calls of one receive.
struct Turn<'a> {
    service: &'a mut Service,
    out: &'a mut XdrBuf,
    datagrams: &'a mut Vec<(XdrBuf, Route)>,
    /// How many of `datagrams` are of this turn.
    replies: usize,
    mailbox: &'a Arc<dyn Mailbox>,
    offload: &'a dyn Offload,
    limits: &'a SvcLimits,
    send_queue: usize,
    stats: &'a mut WorkerStats,
    id: XprtId,
    /// Of the connection, or of the datagram at hand.
    route: Route,
    caps: XprtCaps,
    queued: usize,
    records: u32,
    bytes: usize,
    in_flight: u32,
    parked: Option<Job>,
    validated: bool,
    close: bool,
}

impl Turn<'_> {
    /// Sets the reply in `out` aside: it goes its own way, when the receive is over.
    fn set_aside(&mut self) {
        self.bytes += self.out.len();
        self.queued += self.out.len();
        match self.datagrams.get_mut(self.replies) {
            Some((buf, route)) => {
                std::mem::swap(buf, self.out);
                *route = self.route;
            }
            None => self.datagrams.push((std::mem::take(self.out), self.route)),
        }
        self.replies += 1;
    }
}

impl RecordSink for Turn<'_> {
    fn record(&mut self, rec: &mut Incoming<'_>, pool: &mut PagePool) -> ControlFlow<()> {
        self.records += 1;
        self.stats.records += 1;
        if let Incoming::Datagram(_, route) = rec {
            self.route = **route;
        }
        let env = Env {
            route: &self.route,
            caps: &self.caps,
            xprt: self.id,
            mailbox: self.mailbox,
            blocking: false,
            validated: self.validated,
        };
        let r = rec.record();
        self.bytes += r.head.len() + r.spans.len() * PAGE_SIZE;
        let done = match &mut *rec {
            Incoming::Collected(reader) if !reader.collected().spans.is_empty() => {
                let pages = RecordPages::new(reader.take_spans(), pool);
                let head = reader.collected().head;
                let done = self.service.process_owned(head, &pages, &env, None, self.out, pool);
                reader.put_spans(pages.into_spans(pool));
                done
            }
            rec => self.service.process(rec.record(), &env, None, self.out, pool),
        };
        match done {
            Disposition::Reply { validated } => self.validated |= validated,
            Disposition::Nothing => {}
            Disposition::Later { validated } => {
                self.validated |= validated;
                self.in_flight += 1;
            }
            Disposition::Close if !self.caps.stream => self.stats.ignored += 1,
            Disposition::Close => {
                self.close = true;
                return ControlFlow::Break(());
            }
            Disposition::WouldBlock { validated, claim } => {
                self.validated |= validated;
                self.in_flight += 1;
                let job = Job {
                    record: rec.to_owned_record(),
                    from: self.id,
                    route: self.route,
                    caps: self.caps,
                    mailbox: self.mailbox.clone(),
                    claim,
                };
                match self.offload.submit(job) {
                    Ok(()) => self.stats.offloaded += 1,
                    Err(job) => {
                        self.stats.offload_full += 1;
                        self.parked = Some(job);
                        return ControlFlow::Break(());
                    }
                }
            }
        }
        if !self.caps.stream {
            // Another caller's datagram may be next.
            self.validated = false;
            if !self.out.is_empty() {
                self.set_aside();
            }
        }
        let spent = self.records >= self.limits.turn_records
            || self.bytes + self.out.len() >= self.limits.turn_bytes
            || self.queued + self.out.len() >= self.send_queue
            || self.in_flight >= self.limits.in_flight
            || !pool.ensure(PAGES_PER_CALL);
        if spent { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn bulk_at(&mut self, head: &[u8]) -> Option<Bulk> {
        self.service.bulk_at(head)
    }
}

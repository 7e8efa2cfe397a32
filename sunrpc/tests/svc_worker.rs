//! The service loop against a transport that the test plays itself: no sockets, no threads, no clock.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use sunrpc::page::{BoxedSource, PageDepot, PagePool, PageWriter, Span, XdrBuf};
use sunrpc::svc::{
    Call, Delivery, Dispatch, Flow, Job, Mailbox, Offload, ProcInfo, Program, Reply, RpcError, Service,
    SvcLimits, SvcWorker, VersionInfo, Work,
};
use sunrpc::xdr::{Decoder, XdrWrite};
use sunrpc::xprt::{
    Incoming, PeerAddr, RecordSink, Recv, Room, Route, Xprt, XprtCaps, XprtError, XprtId, bits,
};

const PROG: u32 = 0x2000_0001;
const NULL: u32 = 0;
const FILL: u32 = 1;
const WAIT: u32 = 2;
/// Leaves its transaction id to be released, and ends as its argument says.
const KEEP: u32 = 3;

thread_local! {
    /// What happened, in order.
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn log(what: impl Into<String>) {
    LOG.with_borrow_mut(|l| l.push(what.into()));
}

struct Test;

impl Program for Test {
    fn number(&self) -> u32 {
        PROG
    }

    fn name(&self) -> &'static str {
        "test"
    }

    fn versions(&self) -> &[VersionInfo] {
        const PROCS: &[ProcInfo] = &[
            ProcInfo::new("NULL", 0),
            ProcInfo::new("FILL", 1 << 20),
            ProcInfo::new("WAIT", 4),
            ProcInfo::new("KEEP", 4),
        ];
        const VERSIONS: &[VersionInfo] = &[VersionInfo { vers: 1, procs: PROCS }];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(Test))
    }

    fn admits(&self, peer: &PeerAddr) -> bool {
        matches!(peer, PeerAddr::Local { uid: 0, .. })
    }
}

impl Dispatch for Test {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        match cx.proc {
            WAIT if !cx.blocking => return Ok(Flow::WouldBlock),
            FILL => {
                let n = args.u32()?;
                (0..n / 4).try_for_each(|_| out.put_u32(0x66)).map_err(|_| RpcError::SystemErr)?;
            }
            KEEP => {
                cx.release_later(cx.xid.into());
                match args.u32()? {
                    0 => {}
                    1 => return Err(RpcError::Drop),
                    2 => return Err(RpcError::SystemErr),
                    3 => return Ok(Flow::WouldBlock),
                    4 => return Ok(Flow::Later),
                    // More than its results may be.
                    5 => (0..200).try_for_each(|_| out.put_u32(0)).map_err(|_| RpcError::SystemErr)?,
                    // Arguments are missing.
                    _ => drop(args.u32()?),
                }
            }
            _ => {}
        }
        args.finish()?;
        Ok(Flow::Done)
    }

    fn release(&mut self, token: u64) -> Option<Work> {
        log(format!("release {token}"));
        (token >= 100).then(|| -> Work { Box::new(move || log(format!("work {token}"))) })
    }
}

/// What the test sees and decides of one transport.
#[derive(Default)]
struct Wire {
    input: VecDeque<Vec<u8>>,
    eof: bool,
    /// Bytes that the network takes before it is full.
    window: usize,
    sent: Vec<u8>,
    flushes: usize,
    detached: bool,
    /// Bytes of a record that is not complete.
    partial: Option<usize>,
}

#[derive(Clone)]
struct FakeXprt {
    wire: Rc<RefCell<Wire>>,
    tx: Rc<RefCell<VecDeque<Span>>>,
    peer: PeerAddr,
}

impl FakeXprt {
    fn new(uid: u32) -> Self {
        let wire = Rc::new(RefCell::new(Wire { window: usize::MAX, ..Wire::default() }));
        FakeXprt { wire, tx: Rc::default(), peer: PeerAddr::Local { uid, pid: 1 } }
    }

    fn push(&self, calls: impl IntoIterator<Item = Vec<u8>>) {
        self.wire.borrow_mut().input.extend(calls);
    }

    fn xids(&self) -> Vec<u32> {
        let w = self.wire.borrow();
        let (mut at, mut xids) = (0, Vec::new());
        while let Some(head) = w.sent.get(at..at + 8) {
            xids.push(u32::from_be_bytes(head[4..8].try_into().unwrap()));
            at += 4 + (u32::from_be_bytes(head[..4].try_into().unwrap()) & 0x7fff_ffff) as usize;
        }
        xids
    }
}

impl Xprt for FakeXprt {
    fn caps(&self) -> &XprtCaps {
        &XprtCaps {
            class: "fake",
            stream: true,
            congestion_control: true,
            max_payload: 1 << 20,
            lends: false,
        }
    }

    fn peer(&self) -> &PeerAddr {
        &self.peer
    }

    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError> {
        loop {
            let Some(rec) = self.wire.borrow_mut().input.pop_front() else {
                return if self.wire.borrow().eof { Err(XprtError::Eof) } else { Ok(Recv::Drained) };
            };
            if let ControlFlow::Break(()) = sink.record(&mut Incoming::Whole(&rec), &mut room.pool) {
                return Ok(Recv::More);
            }
        }
    }

    fn sendto(&mut self, replies: &mut XdrBuf, _route: &Route) {
        self.tx.borrow_mut().extend(replies.drain());
    }

    fn flush(&mut self, pool: &mut PagePool) -> Result<(), XprtError> {
        let mut w = self.wire.borrow_mut();
        w.flushes += 1;
        log("flush");
        let mut tx = self.tx.borrow_mut();
        while let Some(s) = tx.front_mut() {
            let s = s.page_mut().expect("nothing is lent here");
            let n = s.len().min(w.window);
            w.window -= n;
            w.sent.extend_from_slice(&s.as_slice()[..n]);
            s.advance(n);
            if !s.is_empty() {
                break;
            }
            tx.pop_front().unwrap().recycle(pool);
        }
        Ok(())
    }

    fn queued(&self) -> usize {
        self.tx.borrow().iter().map(|s| s.len()).sum()
    }

    fn sent(&self) -> u64 {
        self.wire.borrow().sent.len() as u64
    }

    fn partial(&self) -> Option<usize> {
        self.wire.borrow().partial
    }

    fn release_ctxt(&mut self, _event: bool, _pool: &mut PagePool) -> usize {
        0
    }

    fn detach(&mut self, pool: &mut PagePool) {
        self.tx.borrow_mut().drain(..).for_each(|s| s.recycle(pool));
        self.wire.borrow_mut().detached = true;
    }
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Vec<Job>>,
    room: Mutex<usize>,
}

impl Offload for Queue {
    fn submit(&self, job: Job) -> Result<(), Job> {
        let mut room = self.room.lock().unwrap();
        if *room == 0 {
            return Err(job);
        }
        *room -= 1;
        self.jobs.lock().unwrap().push(job);
        Ok(())
    }

    fn submit_work(&self, work: Work) -> Result<(), Work> {
        if *self.room.lock().unwrap() == 0 {
            return Err(work);
        }
        work();
        Ok(())
    }
}

struct NoMail;

impl Mailbox for NoMail {
    fn post(&self, _d: Delivery) {}
}

struct Rig {
    w: SvcWorker<FakeXprt>,
    queue: Arc<Queue>,
    depot: Arc<PageDepot>,
    now: u64,
}

impl Rig {
    fn new(limits: SvcLimits) -> Self {
        let depot = PageDepot::new(BoxedSource, 4096);
        let queue = Arc::new(Queue::default());
        *queue.room.lock().unwrap() = usize::MAX;
        let service = Service::attach(&[Arc::new(Test)]).unwrap();
        let w =
            SvcWorker::new(service, PagePool::new(depot.clone()), limits, Arc::new(NoMail), queue.clone());
        Rig { w, queue, depot, now: 0 }
    }

    fn add(&mut self, uid: u32) -> (FakeXprt, XprtId) {
        let x = FakeXprt::new(uid);
        let id = self.w.add(x.clone(), self.now);
        (x, id)
    }

    /// Everything that can be done without further events.
    fn settle(&mut self) {
        while self.w.has_ready() {
            self.w.run(self.now);
        }
    }

    fn answer(&mut self, job: &Job) {
        self.answer_leaving(job, vec![]);
    }

    fn answer_leaving(&mut self, job: &Job, after: Vec<Work>) {
        let reply = Reply::Bytes(vec![0x80, 0, 0, 4, 0, 0, 0, 99]);
        self.w.deliver(Delivery { to: job.from, route: job.route, reply, after });
    }

    /// After everything is closed, every page is back.
    fn end(mut self) {
        self.w.close_all();
        drop(self.w);
        assert_eq!(self.depot.free(), self.depot.cut(), "pages are missing");
    }
}

fn call(xid: u32, proc: u32, args: &[u32]) -> Vec<u8> {
    let head = [xid, 0, 2, PROG, 1, proc, 0, 0, 0, 0];
    head.iter().chain(args).flat_map(|w| w.to_be_bytes()).collect()
}

fn nulls(xids: std::ops::Range<u32>) -> impl Iterator<Item = Vec<u8>> {
    xids.map(|x| call(x, NULL, &[]))
}

#[test]
fn a_turn_ends_with_one_flush_and_a_busy_transport_goes_to_the_tail() {
    let mut r = Rig::new(SvcLimits::default());
    let (a, _) = r.add(0);
    let (b, _) = r.add(0);
    a.push(nulls(0..100));
    b.push(nulls(0..1));
    r.w.run(0);
    assert_eq!(a.xids(), (0..32).collect::<Vec<_>>(), "one turn's records");
    assert_eq!(b.xids(), [0], "the other transport had its turn in the same round");
    assert_eq!(a.wire.borrow().flushes, 1);
    r.settle();
    assert_eq!(a.xids(), (0..100).collect::<Vec<_>>());
    assert_eq!(a.wire.borrow().flushes, 4);
    r.end();
}

#[test]
fn a_flood_of_small_calls_leaves_others_their_turn_in_every_round() {
    let mut r = Rig::new(SvcLimits::default());
    let (a, _) = r.add(0);
    let (b, id) = r.add(0);
    a.push(nulls(0..10_000));
    for round in 1..=20u32 {
        b.push(nulls(round..round + 1));
        r.w.event(id.slot, bits::DATA);
        r.w.run(0);
        assert_eq!(a.xids().len(), 32 * round as usize);
        assert!(b.xids().into_iter().eq(1..=round), "round {round}");
    }
    r.settle();
    assert!(a.xids().into_iter().eq(0..10_000), "in order, each once");
    r.end();
}

#[test]
fn a_flood_of_large_replies_leaves_others_their_turn_in_every_round() {
    let limits = SvcLimits::default();
    let mut r = Rig::new(limits);
    let (a, _) = r.add(0);
    let (b, id) = r.add(0);
    a.push((0..200).map(|x| call(x, FILL, &[100_000])));
    for round in 1..=10u32 {
        b.push(nulls(round..round + 1));
        r.w.event(id.slot, bits::DATA);
        r.w.run(0);
        // Three of them exceed 256 KiB.
        assert_eq!(a.xids().len(), 3 * round as usize);
        assert!(b.xids().into_iter().eq(1..=round), "round {round}");
    }
    r.settle();
    assert!(a.xids().into_iter().eq(0..200));
    r.end();
}

#[test]
fn a_flood_of_calls_that_wait_leaves_room_for_others_at_the_helpers() {
    let mut r = Rig::new(SvcLimits::default());
    // One helper takes a call at a time, and its queue is shorter than one connection's share.
    *r.queue.room.lock().unwrap() = 8;
    let (a, flood) = r.add(0);
    let (b, _) = r.add(0);
    a.push((0..1000).map(|x| call(x, WAIT, &[])));
    b.push([call(0, WAIT, &[])]);
    let mut order = Vec::new();
    for _ in 0..40 {
        r.w.run(0);
        r.settle();
        let jobs = std::mem::take(&mut *r.queue.jobs.lock().unwrap());
        *r.queue.room.lock().unwrap() += jobs.len();
        order.extend(jobs.iter().map(|j| j.from.slot == flood.slot));
        jobs.iter().for_each(|j| r.answer(j));
    }
    let before = order.iter().position(|a| !a).expect("the other's call got a helper");
    assert!(before <= 32, "{before} calls of the flood came first");
    assert!(order.len() > 200, "the flood goes on, {} calls", order.len());
    r.end();
}

#[test]
fn a_full_send_queue_stops_reading_until_half_has_drained() {
    let limits = SvcLimits { send_queue: 64 << 10, ..SvcLimits::default() };
    let mut r = Rig::new(limits);
    let (a, id) = r.add(0);
    a.wire.borrow_mut().window = 0;
    a.push((0..20).map(|x| call(x, FILL, &[16 << 10])));
    r.settle();
    let left = a.wire.borrow().input.len();
    assert!(left > 12, "{} calls were taken beyond the bound", 20 - left);
    // A little room is not enough to read again.
    a.wire.borrow_mut().window = 1000;
    r.w.event(id.slot, bits::WSPACE | bits::DATA);
    r.settle();
    assert_eq!(a.wire.borrow().input.len(), left);
    a.wire.borrow_mut().window = 48 << 10;
    r.w.event(id.slot, bits::WSPACE);
    r.settle();
    assert!(a.wire.borrow().input.len() < left, "half has drained: calls are taken again");
    a.wire.borrow_mut().window = usize::MAX;
    r.w.event(id.slot, bits::WSPACE);
    r.settle();
    assert_eq!(a.xids(), (0..20).collect::<Vec<_>>(), "no call is lost or repeated");
    r.end();
}

#[test]
fn calls_in_flight_are_bounded_and_their_end_lets_the_next_in() {
    let mut r = Rig::new(SvcLimits { in_flight: 3, ..SvcLimits::default() });
    let (a, _) = r.add(0);
    a.push((0..5).map(|x| call(x, WAIT, &[])));
    r.settle();
    let jobs: Vec<Job> = r.queue.jobs.lock().unwrap().drain(..).collect();
    assert_eq!(jobs.len(), 3);
    r.answer(&jobs[0]);
    r.settle();
    assert_eq!(r.queue.jobs.lock().unwrap().len(), 1);
    assert_eq!(a.xids(), [99]);
    r.end();
}

#[test]
fn a_full_helper_queue_parks_the_call_and_the_transport() {
    let mut r = Rig::new(SvcLimits::default());
    *r.queue.room.lock().unwrap() = 0;
    let (a, _) = r.add(0);
    a.push([call(1, WAIT, &[]), call(2, NULL, &[])]);
    r.settle();
    assert!(r.w.has_parked());
    assert_eq!(a.xids(), [0u32; 0], "nothing behind the parked call is read");
    r.w.run(1);
    assert!(r.w.has_parked());
    *r.queue.room.lock().unwrap() = 1;
    r.w.run(2);
    r.settle();
    assert!(!r.w.has_parked());
    assert_eq!(r.queue.jobs.lock().unwrap().len(), 1);
    assert_eq!(a.xids(), [2]);
    r.end();
}

#[test]
fn a_late_reply_never_reaches_the_next_tenant_of_the_slot() {
    let mut r = Rig::new(SvcLimits::default());
    let (a, id) = r.add(0);
    a.push([call(1, WAIT, &[])]);
    r.settle();
    r.w.close(id);
    r.settle();
    assert!(a.wire.borrow().detached);
    let (b, next) = r.add(0);
    assert_eq!(next.slot, id.slot);
    let job = r.queue.jobs.lock().unwrap().pop().unwrap();
    r.answer(&job);
    // And one in pages, which a helper's pool gave.
    let mut pages = XdrBuf::new();
    let mut pool = PagePool::new(r.depot.clone());
    PageWriter::new(&mut pages, &mut pool, 10_000).put(&[7; 10_000]).unwrap();
    drop(pool);
    r.w.deliver(Delivery { to: job.from, route: job.route, reply: Reply::Pages(pages), after: vec![] });
    r.settle();
    assert_eq!(b.xids(), [0u32; 0]);
    assert_eq!(r.w.stats().orphaned, 2);
    r.end();
}

#[test]
fn replies_of_earlier_calls_leave_before_the_end_of_input_closes() {
    let mut r = Rig::new(SvcLimits::default());
    let (a, _) = r.add(0);
    a.push(nulls(0..3));
    a.wire.borrow_mut().eof = true;
    r.settle();
    assert_eq!(a.xids(), [0, 1, 2]);
    assert!(a.wire.borrow().detached);
    assert!(matches!(r.w.take_closed()[..], [ref c] if matches!(c.why, XprtError::Eof) && c.validated));
    r.end();
}

#[test]
fn only_a_peer_that_the_program_admits_is_validated() {
    let mut r = Rig::new(SvcLimits::default());
    let (a, good) = r.add(0);
    let (b, _) = r.add(1000);
    let (c, _) = r.add(0);
    let (d, _) = r.add(1000);
    a.push([call(1, NULL, &[])]);
    b.push([call(1, NULL, &[]), call(2, WAIT, &[])]);
    c.push([call(1, 77, &[]), call(2, NULL, &[0])]);
    d.push([call(1, WAIT, &[])]);
    r.settle();
    assert_eq!(r.w.take_validated(), [good], "an error reply or a strange peer validates nothing");
    r.end();
}

#[test]
fn stalled_and_idle_transports_end_and_working_ones_stay() {
    let mut r = Rig::new(SvcLimits { stall_ms: 1000, idle_ms: 5000, ..SvcLimits::default() });
    let (stalled, _) = r.add(0);
    let (slow, slow_id) = r.add(0);
    let (waiting, _) = r.add(0);
    let (idle, _) = r.add(0);
    for x in [&stalled, &slow] {
        x.wire.borrow_mut().window = 10;
        x.push([call(1, FILL, &[4096])]);
    }
    waiting.push([call(1, WAIT, &[])]);
    r.settle();
    for now in (500..=6000).step_by(500) {
        r.now = now;
        slow.wire.borrow_mut().window += 10;
        r.w.event(slow_id.slot, bits::WSPACE);
        r.settle();
        r.w.tick(now);
    }
    assert!(stalled.wire.borrow().detached, "no byte of progress");
    assert!(!slow.wire.borrow().detached, "progress, if slow");
    assert!(!waiting.wire.borrow().detached, "its call is in progress");
    assert!(idle.wire.borrow().detached);
    let why: Vec<_> = r.w.take_closed().into_iter().map(|c| c.why.to_string()).collect();
    assert_eq!(why, [XprtError::Stalled.to_string(), XprtError::Idle.to_string()]);
    r.end();
}

/// B14: half a record holds pages, so its sender has to go on. It does not count as silent while it is not read.
#[test]
fn b14_a_record_that_does_not_grow_ends_its_transport() {
    let mut r = Rig::new(SvcLimits { in_flight: 1, stall_ms: 30_000, ..SvcLimits::default() });
    let (silent, _) = r.add(0);
    let (slow, _) = r.add(0);
    let (unread, _) = r.add(0);
    let (busy, _) = r.add(0);
    unread.push([call(1, WAIT, &[])]);
    for x in [&silent, &slow, &unread, &busy] {
        x.wire.borrow_mut().partial = Some(4);
    }
    r.settle();
    for now in (1000..=62_000).step_by(1000) {
        r.now = now;
        slow.wire.borrow_mut().partial = Some(4 + now as usize / 20_000);
        if now % 20_000 == 0 {
            // Between two ticks a record was completed, and the next begun to the same length.
            busy.push(nulls(2..3));
            r.w.event(3, bits::DATA);
        }
        r.settle();
        r.w.tick(now);
        assert_eq!(silent.wire.borrow().detached, now > 31_000, "after {now} ms");
    }
    assert!(!slow.wire.borrow().detached && !unread.wire.borrow().detached && !busy.wire.borrow().detached);
    let why: Vec<_> = r.w.take_closed().into_iter().map(|c| c.why.to_string()).collect();
    assert_eq!(why, [XprtError::Unfinished.to_string()]);
    r.end();
}

/// B14: a byte now and then is no call. The time of a connection that never completes one runs out, whether or not it made
/// one before; one that calls stays.
#[test]
fn b14_bytes_without_a_call_do_not_keep_a_transport() {
    let mut r = Rig::new(SvcLimits::default());
    let (drips, drips_id) = r.add(0);
    let (fell_silent, silent_id) = r.add(0);
    let (works, works_id) = r.add(0);
    fell_silent.push(nulls(1..2));
    r.settle();
    for now in (30_000..=420_000).step_by(30_000) {
        r.now = now;
        works.push(nulls(2..3));
        for id in [drips_id, silent_id, works_id] {
            r.w.event(id.slot, bits::DATA);
        }
        r.settle();
        r.w.tick(now);
    }
    assert!(drips.wire.borrow().detached && fell_silent.wire.borrow().detached);
    assert!(!works.wire.borrow().detached);
    assert_eq!(r.w.take_closed().len(), 2);
    r.end();
}

#[test]
fn without_pages_no_call_is_taken_and_none_is_lost() {
    let mut r = Rig::new(SvcLimits::default());
    let (a, _) = r.add(0);
    // Somebody else holds nearly all pages.
    let mut other = PagePool::new(r.depot.clone());
    assert!(other.ensure(4096 - 256));
    let hog: Vec<_> = (0..4096 - 256).map(|_| other.take().unwrap()).collect();
    a.push(nulls(0..2));
    r.w.run(0);
    assert_eq!(a.xids(), [0u32; 0]);
    assert!(r.w.stats().no_pages > 0 && r.w.has_ready());
    hog.into_iter().for_each(|p| other.put(p));
    drop(other);
    r.settle();
    assert_eq!(a.xids(), [0, 1]);
    r.end();
}

#[test]
fn what_calls_left_is_released_once_each_after_the_flush_whatever_became_of_them() {
    let mut r = Rig::new(SvcLimits::default());
    let (x, _) = r.add(0);
    x.push((0..7).map(|how| call(how + 1, KEEP, &[how])));
    r.settle();
    let log = LOG.take();
    let releases: Vec<_> = (1..=7).map(|xid| format!("release {xid}")).collect();
    assert_eq!(log[0], "flush", "{log:?}");
    assert_eq!(log[1..], releases, "the replies of the turn went first: {log:?}");
    assert_eq!(x.xids(), [1, 3, 6, 7]);
    assert_eq!(r.w.service().stats().released, 7);
    // A turn without such calls releases nothing.
    x.push(nulls(50..51));
    r.w.event(0, bits::DATA);
    r.settle();
    assert_eq!(LOG.take(), ["flush"]);
    let jobs = std::mem::take(&mut *r.queue.jobs.lock().unwrap());
    jobs.iter().for_each(|job| r.answer(job));
    r.settle();
    r.end();
}

#[test]
fn a_failing_transport_does_not_keep_calls_from_being_released() {
    let mut r = Rig::new(SvcLimits::default());
    let (x, _) = r.add(0);
    x.push([call(1, KEEP, &[0]), call(2, KEEP, &[1])]);
    x.wire.borrow_mut().eof = true;
    r.settle();
    assert!(x.wire.borrow().detached);
    assert_eq!(LOG.take().iter().filter(|l| l.starts_with("release")).count(), 2);
    r.end();
}

#[test]
fn long_work_goes_to_a_helper_and_waits_for_room_there() {
    let mut r = Rig::new(SvcLimits::default());
    let (x, _) = r.add(0);
    *r.queue.room.lock().unwrap() = 0;
    x.push([call(100, KEEP, &[0])]);
    r.settle();
    assert_eq!(LOG.take(), ["flush", "release 100"]);
    assert!(r.w.has_parked() && !r.w.quiet());
    *r.queue.room.lock().unwrap() = 1;
    r.w.run(0);
    assert_eq!(LOG.take(), ["work 100"]);
    assert!(!r.w.has_parked() && r.w.quiet());
    r.end();
}

#[test]
fn what_a_helpers_call_left_waits_for_the_flush_of_its_reply_and_outlives_its_transport() {
    let mut r = Rig::new(SvcLimits::default());
    let (x, id) = r.add(0);
    x.push([call(1, WAIT, &[]), call(2, WAIT, &[])]);
    r.settle();
    LOG.take();
    let jobs = std::mem::take(&mut *r.queue.jobs.lock().unwrap());
    let work = |what: &'static str| -> Work { Box::new(move || log(what)) };
    r.answer_leaving(&jobs[0], vec![work("work")]);
    assert_eq!(LOG.take(), [""; 0]);
    r.settle();
    assert_eq!(LOG.take(), ["flush", "work"]);
    r.w.close(id);
    r.settle();
    LOG.take();
    r.answer_leaving(&jobs[1], vec![work("work of an orphan")]);
    r.settle();
    assert_eq!(LOG.take(), ["work of an orphan"]);
    assert!(r.w.quiet());
    r.end();
}

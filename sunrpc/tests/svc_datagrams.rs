//! The service loop on a transport of datagrams: each reply by itself, the way its call came.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use sunrpc::page::{BoxedSource, PageDepot, PagePool, PageWriter, XdrBuf};
use sunrpc::svc::{
    Call, Delivery, Dispatch, Flow, Job, Mailbox, Offload, ProcInfo, Program, Reply, Responder, RpcError,
    Service, SvcLimits, SvcWorker, VersionInfo, Work,
};
use sunrpc::xdr::{Decoder, XdrWrite};
use sunrpc::xprt::{
    Incoming, PeerAddr, RecordSink, Recv, Room, Route, Xprt, XprtCaps, XprtError, XprtStats, bits,
};

const PROG: u32 = 0x2000_0001;
const NULL: u32 = 0;
const FILL: u32 = 1;
const WAIT: u32 = 2;
const LATER: u32 = 3;

#[derive(Clone, Default)]
struct Test(Arc<Mutex<Vec<Responder<u32>>>>);

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
            ProcInfo::new("LATER", 4),
        ];
        const VERSIONS: &[VersionInfo] = &[VersionInfo { vers: 1, procs: PROCS }];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(self.clone()))
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
            LATER => {
                self.0.lock().unwrap().push(cx.defer().1);
                return Ok(Flow::Later);
            }
            FILL => {
                let n = args.u32()?;
                (0..n / 4).try_for_each(|_| out.put_u32(0x66)).map_err(|_| RpcError::SystemErr)?;
            }
            _ => {}
        }
        args.finish()?;
        Ok(Flow::Done)
    }
}

#[derive(Default)]
struct Wire {
    input: VecDeque<(Vec<u8>, Route)>,
    sent: Vec<(Vec<u8>, Route)>,
    flushes: usize,
    /// Bytes that a flush leaves behind.
    stuck: usize,
    stats: XprtStats,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Wire>>);

const PEER: PeerAddr = PeerAddr::Local { uid: 0, pid: 0 };

impl Xprt for Fake {
    fn caps(&self) -> &XprtCaps {
        &XprtCaps {
            class: "fake",
            stream: false,
            congestion_control: false,
            max_payload: 32768,
            lends: false,
        }
    }

    fn peer(&self) -> &PeerAddr {
        &PEER
    }

    fn recvfrom(&mut self, room: &mut Room, sink: &mut dyn RecordSink) -> Result<Recv, XprtError> {
        loop {
            let Some((rec, route)) = self.0.borrow_mut().input.pop_front() else { return Ok(Recv::Drained) };
            if let ControlFlow::Break(()) = sink.record(&mut Incoming::Datagram(&rec, &route), &mut room.pool)
            {
                return Ok(Recv::More);
            }
        }
    }

    fn sendto(&mut self, replies: &mut XdrBuf, route: &Route) {
        self.0.borrow_mut().sent.push((replies.to_vec(), *route));
        replies.drain().for_each(|s| s.recycle(&mut PagePool::standalone()));
    }

    fn flush(&mut self, _pool: &mut PagePool) -> Result<(), XprtError> {
        self.0.borrow_mut().flushes += 1;
        Ok(())
    }

    fn queued(&self) -> usize {
        self.0.borrow().stuck
    }

    fn take_stats(&mut self) -> XprtStats {
        std::mem::take(&mut self.0.borrow_mut().stats)
    }

    fn sent(&self) -> u64 {
        0
    }

    fn release_ctxt(&mut self, _event: bool, _pool: &mut PagePool) -> usize {
        0
    }

    fn detach(&mut self, _pool: &mut PagePool) {}
}

#[derive(Default)]
struct Desk {
    jobs: Mutex<Vec<Job>>,
    mail: Mutex<Vec<Delivery>>,
}

impl Mailbox for Desk {
    fn post(&self, d: Delivery) {
        self.mail.lock().unwrap().push(d);
    }
}

impl Offload for Desk {
    fn submit(&self, job: Job) -> Result<(), Job> {
        self.jobs.lock().unwrap().push(job);
        Ok(())
    }

    fn submit_work(&self, work: Work) -> Result<(), Work> {
        Err(work)
    }
}

struct Rig {
    w: SvcWorker<Fake>,
    x: Fake,
    desk: Arc<Desk>,
    test: Test,
}

fn rig() -> Rig {
    let (test, desk) = (Test::default(), Arc::new(Desk::default()));
    let service = Service::attach(&[Arc::new(test.clone()) as Arc<dyn Program>]).unwrap();
    let pool = PagePool::new(PageDepot::new(BoxedSource, 4096));
    let mut w = SvcWorker::new(service, pool, SvcLimits::default(), desk.clone(), desk.clone());
    let x = Fake::default();
    w.add(x.clone(), 0);
    Rig { w, x, desk, test }
}

fn route(i: u16) -> Route {
    let peer = PeerAddr::Inet(SocketAddr::from(([10, 0, 0, 1], 700 + i)));
    Route { peer, local: Some(([127, 0, 0, 2].into(), u32::from(i))) }
}

fn call(xid: u32, proc: u32, args: &[u32]) -> Vec<u8> {
    let head = [xid, 0, 2, PROG, 1, proc, 0, 0, 0, 0];
    head.iter().chain(args).flat_map(|w| w.to_be_bytes()).collect()
}

impl Rig {
    fn settle(&mut self) {
        while self.w.has_ready() {
            self.w.run(0);
        }
    }

    /// Transaction ids of what was sent, and whether each went back where its call (of the same number) came from.
    fn sent(&self) -> Vec<u32> {
        let wire = self.x.0.borrow();
        wire.sent
            .iter()
            .map(|(b, r)| {
                let xid = u32::from_be_bytes(b[..4].try_into().unwrap());
                assert_eq!(*r, route(xid as u16), "reply {xid} went astray");
                xid
            })
            .collect()
    }
}

#[test]
fn each_reply_goes_by_itself_the_way_its_call_came() {
    let mut r = rig();
    let calls = (0..20).map(|i| {
        (call(i, if i % 3 == 0 { FILL } else { NULL }, &[5000][..(i % 3 == 0) as usize]), route(i as u16))
    });
    r.x.0.borrow_mut().input.extend(calls);
    r.settle();
    assert_eq!(r.sent(), (0..20).collect::<Vec<_>>());
    assert_eq!(r.x.0.borrow().sent[3].0.len(), 24 + 5000);
    assert_eq!(r.x.0.borrow().sent[4].0.len(), 24);
}

#[test]
fn calls_that_wait_are_answered_the_way_they_came() {
    let mut r = rig();
    let procs = [WAIT, LATER, NULL, WAIT, LATER];
    r.x.0.borrow_mut().input.extend((0u16..).zip(procs).map(|(i, p)| (call(i.into(), p, &[]), route(i))));
    r.settle();
    assert_eq!(r.sent(), [2]);
    for job in std::mem::take(&mut *r.desk.jobs.lock().unwrap()).into_iter().rev() {
        let reply = Reply::Bytes(job.record.head[..4].to_vec());
        r.w.deliver(Delivery { to: job.from, route: job.route, reply, after: vec![] });
    }
    for responder in std::mem::take(&mut *r.test.0.lock().unwrap()).into_iter().rev() {
        responder.complete(Ok(7));
    }
    for d in std::mem::take(&mut *r.desk.mail.lock().unwrap()) {
        r.w.deliver(d);
    }
    r.settle();
    assert_eq!(r.sent(), [2, 3, 0, 4, 1]);
    assert!(r.w.quiet());
}

#[test]
fn nothing_of_a_peer_ends_it() {
    let mut r = rig();
    let reply: Vec<u8> = [9u32, 1, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    r.x.0.borrow_mut().input.extend([
        (reply, route(9)),
        (vec![1; 9], route(1)),
        (call(2, NULL, &[]), route(2)),
    ]);
    r.w.event(0, bits::DATA | bits::HUP);
    r.settle();
    assert_eq!(r.sent(), [2]);
    assert_eq!((r.w.stats().ignored, r.w.len()), (2, 1));
    r.w.tick(10_000_000);
    assert_eq!(r.w.len(), 1, "it is never idle");
    assert!(r.w.take_validated().is_empty(), "nobody validates it for others");
}

#[test]
fn a_queue_without_a_wake_up_is_offered_again_by_the_tick() {
    let mut r = rig();
    r.x.0.borrow_mut().stuck = 100;
    r.settle();
    assert_eq!(r.x.0.borrow().flushes, 1);
    r.w.event(0, bits::DATA);
    r.settle();
    assert_eq!(r.x.0.borrow().flushes, 1, "the socket was full, and nobody said that it is not any more");
    r.w.tick(1000);
    r.settle();
    assert_eq!(r.x.0.borrow().flushes, 2);
    r.x.0.borrow_mut().stuck = 0;
    r.w.tick(2000);
    assert!(!r.w.has_ready(), "an empty queue is left alone");
}

#[test]
fn what_the_transport_counts_is_added_up() {
    let mut r = rig();
    for n in 1..=3 {
        r.x.0.borrow_mut().stats = XprtStats { ignored: n, unsent: 10 * n };
        r.w.event(0, bits::DATA);
        r.settle();
    }
    assert_eq!((r.w.stats().ignored, r.w.stats().unsent), (6, 60));
}

#[test]
fn a_reply_that_no_datagram_carries_is_a_system_error() {
    let mut r = rig();
    r.x.0.borrow_mut().input.push_back((call(1, FILL, &[60_000]), route(1)));
    r.settle();
    assert_eq!(r.sent(), [1]);
    assert_eq!(r.x.0.borrow().sent[0].0[20..24], 5u32.to_be_bytes());
}

//! The duplicate request cache below the service: which calls are remembered, for how long their claims live, and what a
//! duplicate gets. No sockets, no threads, no clock.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use sunrpc::drc::{Claim, Drc, DrcLimits, DrcStats};
use sunrpc::page::{Page, PagePool, PageSpan, PageWriter, XdrBuf};
use sunrpc::record::Record;
use sunrpc::svc::{
    Call, Delivery, Dispatch, Disposition, Env, Flow, Mailbox, ProcInfo, Program, Reply, Responder, RpcError,
    Service, VersionInfo,
};
use sunrpc::xdr::{Decoder, XdrWrite};
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

const PROG: u32 = 0x2000_0002;
/// Counts its runs; the argument tells how it ends.
const ONCE: u32 = 1;
/// The same, idempotent.
const OFTEN: u32 = 2;

const DONE: u32 = 0;
const WAIT: u32 = 1;
const LATER: u32 = 2;
const DROP: u32 = 3;
const FAIL: u32 = 4;
/// Done, with a result longer than the cache keeps.
const LONG: u32 = 5;

#[derive(Clone, Default)]
struct Counter {
    runs: Arc<Mutex<u32>>,
    open: Arc<Mutex<Vec<Responder<u32>>>>,
}

impl Program for Counter {
    fn number(&self) -> u32 {
        PROG
    }

    fn name(&self) -> &'static str {
        "counter"
    }

    fn versions(&self) -> &[VersionInfo] {
        const PROCS: &[ProcInfo] = &[
            ProcInfo::new("NULL", 0),
            ProcInfo::new("ONCE", 1024).once(),
            ProcInfo::new("OFTEN", 1024),
            ProcInfo::new("HELPED", 1024).once().blocking(),
        ];
        const VERSIONS: &[VersionInfo] = &[VersionInfo { vers: 1, procs: PROCS }];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(self.clone()))
    }

    fn admits(&self, peer: &PeerAddr) -> bool {
        matches!(peer, PeerAddr::Inet(_))
    }
}

impl Dispatch for Counter {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        let how = args.u32()?;
        while args.remaining() > 0 {
            args.u32()?;
        }
        if how == WAIT && !cx.blocking {
            return Ok(Flow::WouldBlock);
        }
        let mut runs = self.runs.lock().unwrap();
        *runs += 1;
        let full = |_| RpcError::SystemErr;
        match how {
            LATER => {
                self.open.lock().unwrap().push(cx.defer().1);
                return Ok(Flow::Later);
            }
            DROP => return Err(RpcError::Drop),
            FAIL => return Err(RpcError::SystemErr),
            LONG => (0..128).try_for_each(|_| out.put_u32(0)).map_err(full)?,
            _ => {}
        }
        out.put_u32(*runs).map_err(full)?;
        Ok(Flow::Done)
    }
}

#[derive(Default)]
struct Letters(Mutex<Vec<Delivery>>);

impl Mailbox for Letters {
    fn post(&self, d: Delivery) {
        self.0.lock().unwrap().push(d);
    }
}

/// One thread of a server.
struct Thread {
    service: Service,
    pool: PagePool,
    letters: Arc<Letters>,
    mailbox: Arc<dyn Mailbox>,
    peer: PeerAddr,
    stream: bool,
    blocking: bool,
}

/// What came of a call: its reply without mark.
#[derive(Debug)]
enum Got {
    Reply(Vec<u8>),
    Nothing,
    Later,
    WouldBlock(Option<Claim>),
}

impl Thread {
    fn try_with(&mut self, rec: Record<'_>, claim: Option<Claim>) -> Got {
        let caps = XprtCaps {
            class: "test",
            stream: self.stream,
            congestion_control: true,
            max_payload: 1 << 20,
            lends: false,
        };
        let env = Env {
            route: &Route::stream(self.peer),
            caps: &caps,
            xprt: XprtId { slot: 0, generation: 0 },
            mailbox: &self.mailbox,
            blocking: self.blocking,
            validated: self.blocking,
        };
        let mut out = XdrBuf::new();
        let d = self.service.process(rec, &env, claim, &mut out, &mut self.pool);
        let bytes = out.to_vec();
        out.recycle(&mut self.pool);
        match d {
            Disposition::Reply { .. } if self.stream => {
                let mark = 0x8000_0000 | (bytes.len() as u32 - 4);
                assert_eq!(bytes[..4], mark.to_be_bytes());
                Got::Reply(bytes[4..].to_vec())
            }
            Disposition::Reply { .. } => Got::Reply(bytes),
            Disposition::Nothing => Got::Nothing,
            Disposition::Later { .. } => Got::Later,
            Disposition::WouldBlock { claim, .. } => Got::WouldBlock(claim),
            Disposition::Close => panic!("closed"),
        }
    }

    fn call(&mut self, message: &[u8]) -> Got {
        self.try_with(Record { head: message, spans: &[] }, None)
    }

    /// The result of a call that is answered at once.
    fn result(&mut self, message: &[u8]) -> u32 {
        match self.call(message) {
            Got::Reply(r) => result(&r),
            other => panic!("{other:?}"),
        }
    }

    /// The replies of responders, and no longer in the mailbox.
    fn posted(&self) -> Vec<Vec<u8>> {
        let bytes = |d: Delivery| match d.reply {
            Reply::Bytes(b) => b,
            other => panic!("{other:?}"),
        };
        self.letters.0.lock().unwrap().drain(..).map(bytes).collect()
    }
}

/// The last word of a successful reply.
fn result(reply: &[u8]) -> u32 {
    assert_eq!(reply[4..24], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "{reply:?}");
    u32::from_be_bytes(*reply.last_chunk().unwrap())
}

struct Rig {
    program: Counter,
    drc: Arc<Drc>,
}

impl Rig {
    fn new() -> Self {
        Rig { program: Counter::default(), drc: Drc::new(DrcLimits::default()) }
    }

    fn thread(&self, stream: bool, blocking: bool) -> Thread {
        let program: Arc<dyn Program> = Arc::new(self.program.clone());
        let mut service = Service::attach(&[program]).unwrap();
        service.set_duplicate_cache(self.drc.clone());
        let letters: Arc<Letters> = Arc::default();
        let mailbox: Arc<dyn Mailbox> = letters.clone();
        let peer = PeerAddr::Inet(([192, 0, 2, 1], 700).into());
        Thread { service, pool: PagePool::standalone(), letters, mailbox, peer, stream, blocking }
    }

    fn runs(&self) -> u32 {
        *self.program.runs.lock().unwrap()
    }
}

fn call(xid: u32, proc: u32, args: &[u32]) -> Vec<u8> {
    let head = [xid, 0, 2, PROG, 1, proc, 0, 0, 0, 0];
    head.iter().chain(args).flat_map(|w| w.to_be_bytes()).collect()
}

#[test]
fn a_result_is_framed_for_the_transport_that_asks_again() {
    let rig = Rig::new();
    let (mut stream, mut datagrams) = (rig.thread(true, false), rig.thread(false, false));
    let once = call(1, ONCE, &[DONE]);
    assert_eq!(stream.result(&once), 1);
    // From another port, too.
    datagrams.peer = PeerAddr::Inet(([192, 0, 2, 1], 701).into());
    assert_eq!(datagrams.result(&once), 1);
    assert_eq!(stream.result(&once), 1);
    assert_eq!(datagrams.result(&call(2, ONCE, &[DONE])), 2);
    assert_eq!(stream.result(&call(2, ONCE, &[DONE])), 2);
    assert_eq!((rig.runs(), rig.drc.stats().hits), (2, 3));
}

#[test]
fn idempotent_calls_and_strangers_never_reach_the_cache() {
    let rig = Rig::new();
    let mut t = rig.thread(true, false);
    assert_eq!(t.result(&call(1, OFTEN, &[DONE])), 1);
    assert_eq!(t.result(&call(1, OFTEN, &[DONE])), 2);
    t.peer = PeerAddr::Local { uid: 0, pid: 1 };
    assert_eq!(t.result(&call(1, ONCE, &[DONE])), 3);
    assert_eq!(t.result(&call(1, ONCE, &[DONE])), 4);
    assert_eq!((rig.drc.stats(), rig.drc.bytes()), (DrcStats::default(), 0));
}

#[test]
fn a_helper_does_not_take_its_own_call_for_a_duplicate() {
    let rig = Rig::new();
    let (mut worker, mut other, mut helper) =
        (rig.thread(true, false), rig.thread(true, false), rig.thread(true, true));
    // WAIT finds out that it would block; procedure 3 goes to a helper in any case.
    for (xid, m) in [(1, call(1, ONCE, &[WAIT])), (2, call(2, 3, &[DONE]))] {
        let Got::WouldBlock(claim) = worker.call(&m) else { panic!() };
        assert!(claim.is_some());
        assert!(matches!(other.call(&m), Got::Nothing), "it waits for a helper");
        let Got::Reply(r) = helper.try_with(Record { head: &m, spans: &[] }, claim) else { panic!() };
        assert_eq!(result(&r), xid);
        assert_eq!(other.result(&m), xid);
    }
    assert_eq!(rig.runs(), 2);
}

#[test]
fn a_call_that_was_dropped_before_it_ran_runs_when_it_comes_again() {
    let rig = Rig::new();
    let (mut worker, mut helper) = (rig.thread(true, false), rig.thread(true, true));
    let m = call(1, ONCE, &[WAIT]);
    // Its transport died while it was in a queue.
    drop(worker.call(&m));
    assert_eq!(rig.drc.bytes(), 0);
    let Got::WouldBlock(claim) = worker.call(&m) else { panic!() };
    let Got::Reply(r) = helper.try_with(Record { head: &m, spans: &[] }, claim) else { panic!() };
    assert_eq!(result(&r), 1);
}

#[test]
fn a_deferred_call_is_remembered_by_its_responder() {
    let rig = Rig::new();
    let (mut t, mut other) = (rig.thread(true, false), rig.thread(false, false));
    let m = call(1, ONCE, &[LATER]);
    assert!(matches!(t.call(&m), Got::Later));
    assert!(matches!(other.call(&m), Got::Nothing));
    let responder = rig.program.open.lock().unwrap().pop().unwrap();
    std::thread::spawn(move || responder.complete(Ok(77))).join().unwrap();
    assert_eq!(result(&t.posted()[0][4..]), 77);
    assert_eq!(other.result(&m), 77);
    assert_eq!(t.result(&m), 77);
    assert_eq!(rig.runs(), 1);

    // Given up or failed: no result to be kept.
    for (xid, give_up) in [(2, true), (3, false)] {
        let m = call(xid, ONCE, &[LATER]);
        for _ in 0..2 {
            assert!(matches!(t.call(&m), Got::Later));
            let responder = rig.program.open.lock().unwrap().pop().unwrap();
            if give_up {
                drop(responder)
            } else {
                responder.complete(Err(RpcError::SystemErr))
            }
            assert_eq!(t.posted()[0][27], 5, "SYSTEM_ERR");
        }
    }
    assert_eq!(rig.runs(), 5);
}

#[test]
fn only_results_are_kept() {
    let rig = Rig::new();
    let mut t = rig.thread(true, false);
    let garbage = &call(1, ONCE, &[])[..];
    for (m, runs) in [(garbage, 0), (&call(2, ONCE, &[DROP]), 2), (&call(3, ONCE, &[FAIL]), 2)] {
        let before = rig.runs();
        for _ in 0..2 {
            match t.call(m) {
                Got::Nothing => assert_eq!(runs, 2),
                Got::Reply(r) => assert!(matches!(r[23], 4 | 5), "GARBAGE_ARGS or SYSTEM_ERR"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((rig.runs() - before, rig.drc.bytes()), (runs, 0));
    }
    assert_eq!(t.result(&call(4, ONCE, &[LONG])), 5);
    assert_eq!(t.result(&call(4, ONCE, &[LONG])), 6);
    assert_eq!((rig.drc.stats().too_long, rig.drc.bytes()), (2, 0));
}

#[test]
fn how_a_record_arrived_does_not_matter_and_every_byte_does() {
    let rig = Rig::new();
    let mut t = rig.thread(true, false);
    let mut args = vec![DONE; 5000];
    let whole = call(1, ONCE, &args);
    assert_eq!(t.result(&whole), 1);
    for cut in [40, 44, 4096, 4099] {
        let spans: Vec<PageSpan> = whole[cut..]
            .chunks(4001)
            .map(|c| {
                let mut p = Page::heap();
                p[..c.len()].copy_from_slice(c);
                PageSpan::new(p, 0, c.len())
            })
            .collect();
        let Got::Reply(r) = t.try_with(Record { head: &whole[..cut], spans: &spans }, None) else { panic!() };
        assert_eq!(result(&r), 1, "cut at {cut}");
    }
    *args.last_mut().unwrap() = 1;
    assert_eq!(t.result(&call(1, ONCE, &args)), 2);
}

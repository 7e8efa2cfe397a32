//! An owned bulk argument takes the pages of its record: when it does, and what becomes of the record.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use sunrpc::page::{PAGE_SIZE, PagePool, PageSpan, PageWriter, Pages, RecordPages, XdrBuf};
use sunrpc::svc::{
    Call, Delivery, Dispatch, Disposition, Env, Flow, Mailbox, ProcInfo, Program, RpcError, Service,
    VersionInfo,
};
use sunrpc::xdr::{Decoder, Encode};
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

const PROG: u32 = 0x2000_0003;
/// Pages -> the same.
const ECHO: u32 = 1;
/// The same, but not without waiting.
const SLOW: u32 = 2;
/// Keeps the argument, and then says that it would block: against the rules.
const THIEF: u32 = 3;

#[derive(Clone, Default)]
struct Test {
    kept: Arc<Mutex<Vec<Pages>>>,
}

impl Program for Test {
    fn number(&self) -> u32 {
        PROG
    }

    fn name(&self) -> &'static str {
        "pages"
    }

    fn versions(&self) -> &[VersionInfo] {
        const PROCS: &[ProcInfo] = &[
            ProcInfo::new("NULL", 0),
            ProcInfo::new("ECHO", 1 << 20),
            ProcInfo::new("SLOW", 1 << 20),
            ProcInfo::new("THIEF", 1 << 20),
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
        let data = Pages::decode_max(args, 1 << 20)?;
        args.finish()?;
        match cx.proc {
            SLOW if !cx.blocking => return Ok(Flow::WouldBlock),
            THIEF => {
                self.kept.lock().unwrap().push(data);
                return Ok(Flow::WouldBlock);
            }
            _ => data.encode_owned(out).map_err(|_| RpcError::SystemErr)?,
        }
        Ok(Flow::Done)
    }
}

struct Nowhere;

impl Mailbox for Nowhere {
    fn post(&self, _: Delivery) {}
}

struct Rig {
    test: Test,
    service: Service,
    pool: PagePool,
}

fn rig() -> Rig {
    let test = Test::default();
    let service = Service::attach(&[Arc::new(test.clone()) as Arc<dyn Program>]).unwrap();
    Rig { test, service, pool: PagePool::standalone() }
}

/// A call of `proc` with `data`: its head of 100 bytes, and its pages.
fn record(proc: u32, data: &[u8], pool: &mut PagePool) -> (Vec<u8>, Vec<PageSpan>) {
    let words = [7, 0, 2, PROG, 1, proc, 0, 0, 0, 0, data.len() as u32];
    let mut head: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
    head.extend_from_slice(data);
    head.resize(head.len().next_multiple_of(4), 0);
    let rest = head.split_off(100);
    let spans = rest.chunks(PAGE_SIZE).map(|c| {
        let mut page = pool.take().unwrap();
        page[..c.len()].copy_from_slice(c);
        PageSpan::new(page, 0, c.len())
    });
    (head, spans.collect())
}

impl Rig {
    fn run(&mut self, head: &[u8], pages: &RecordPages, blocking: bool) -> (Disposition, Vec<u8>) {
        let peer = PeerAddr::Local { uid: 0, pid: 0 };
        let (route, mailbox): (_, Arc<dyn Mailbox>) = (Route::stream(peer), Arc::new(Nowhere));
        let caps = XprtCaps {
            class: "fake",
            stream: true,
            congestion_control: true,
            max_payload: 1 << 20,
            lends: false,
        };
        let xprt = XprtId { slot: 0, generation: 0 };
        let env = Env { route: &route, caps: &caps, xprt, mailbox: &mailbox, blocking, validated: true };
        let mut out = XdrBuf::new();
        let done = self.service.process_owned(head, pages, &env, None, &mut out, &mut self.pool);
        let reply = out.to_vec();
        out.recycle(&mut self.pool);
        (done, reply)
    }

    fn ends(&mut self, pages: RecordPages) {
        pages.into_spans(&mut self.pool).into_iter().for_each(|s| self.pool.put(s.into_page()));
        self.pool.tick();
        assert_eq!(self.pool.stats().taken, self.pool.stats().returned);
    }
}

fn data() -> Vec<u8> {
    (0..50_003u32).map(|i| (i % 251) as u8).collect()
}

/// Mark and header, the length, the data.
fn assert_echo(reply: &[u8], data: &[u8]) {
    assert_eq!(reply[24..28], [0; 4], "accepted");
    assert!(reply[32..][..data.len()] == *data);
}

#[test]
fn an_echo_moves_the_pages_it_was_sent_in() {
    let (mut r, data) = (rig(), data());
    let (head, spans) = record(ECHO, &data, &mut r.pool);
    let pages = RecordPages::new(spans, &mut r.pool);
    let (done, reply) = r.run(&head, &pages, false);
    assert!(matches!(done, Disposition::Reply { .. }));
    assert_echo(&reply, &data);
    assert_eq!(r.service.stats().moved, 1);
    r.ends(pages);
}

#[test]
fn a_call_that_would_block_runs_again_with_the_same_argument() {
    let (mut r, data) = (rig(), data());
    let (head, spans) = record(SLOW, &data, &mut r.pool);
    let pages = RecordPages::new(spans, &mut r.pool);
    assert!(matches!(r.run(&head, &pages, false).0, Disposition::WouldBlock { .. }));
    assert_eq!(r.service.stats().moved, 0, "the record is whole again");
    // To a helper.
    let spans = pages.into_spans(&mut r.pool);
    let pages = RecordPages::new(spans, &mut r.pool);
    assert_echo(&r.run(&head, &pages, true).1, &data);
    r.ends(pages);
}

#[test]
fn a_procedure_that_keeps_its_argument_cannot_say_that_it_changed_nothing() {
    let (mut r, data) = (rig(), data());
    let (head, spans) = record(THIEF, &data, &mut r.pool);
    let pages = RecordPages::new(spans, &mut r.pool);
    let (done, reply) = r.run(&head, &pages, false);
    assert!(matches!(done, Disposition::Reply { .. }));
    assert_eq!(reply[24..28], 5u32.to_be_bytes(), "SYSTEM_ERR");
    let kept = r.test.kept.lock().unwrap().pop().unwrap();
    assert!(kept.to_vec() == data, "nobody else has the pages");
    drop(kept);
    r.ends(pages);
}

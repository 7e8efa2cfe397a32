//! A generated program, called by its generated client through the service loop.

use crate::echo::*;
use std::sync::{Arc, Mutex};
use sunrpc::clnt::{CallXprt, ClntError};
use sunrpc::msg::AcceptStat;
use sunrpc::page::{PagePool, Pages, XdrBuf};
use sunrpc::record::Record;
use sunrpc::svc::{
    Call, Delivery, Disposition, Env, Mailbox, Outcome, Program, Repeat, Reply, RpcError, Service,
};
use sunrpc::xdr::XdrString;
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

struct Echo;

impl EchoV1 for Echo {
    fn echo_blob(&self, cx: &mut Call<'_>, arg: blob) -> Outcome<blob> {
        assert_eq!((cx.prog, cx.vers, cx.proc), (ECHO, V1, ECHO_BLOB));
        Outcome::Done(blob { data: arg.data })
    }
}

impl EchoV2 for Echo {
    fn echo_add(&self, _: &mut Call<'_>, left: i32, right: i32) -> Outcome<i32> {
        left.checked_add(right).ok_or(RpcError::SystemErr).into()
    }

    fn echo_join(
        &self,
        _: &mut Call<'_>,
        arg1: ECHO_JOIN_arg1,
        arg2: ECHO_JOIN_arg2,
    ) -> Outcome<ECHO_JOIN_res> {
        Outcome::Done(ECHO_JOIN_res(XdrString([arg1.as_bytes(), arg2.as_bytes()].concat())))
    }

    fn echo_ticket(&self, _: &mut Call<'_>, mut arg: ticket) -> Outcome<ticket> {
        arg.reverse();
        Outcome::Done(arg)
    }

    fn echo_wait(&self, cx: &mut Call<'_>) -> Outcome<bool> {
        if cx.blocking { Outcome::Done(true) } else { Outcome::WouldBlock }
    }

    fn echo_fail(&self, cx: &mut Call<'_>, code: u64) -> Outcome<()> {
        match code {
            0 => Outcome::Fail(RpcError::ProcUnavail),
            1 => {
                let (token, responder) = cx.defer::<()>();
                responder.complete(Ok(()));
                Outcome::Later(token)
            }
            _ => Outcome::Done(()),
        }
    }

    fn echo_maybe(&self, _: &mut Call<'_>, arg: ECHO_MAYBE_arg) -> Outcome<ECHO_MAYBE_res> {
        Outcome::Done(ECHO_MAYBE_res(arg.0))
    }
}

#[derive(Default)]
struct Letters(Mutex<Vec<Delivery>>);

impl Mailbox for Letters {
    fn post(&self, d: Delivery) {
        self.0.lock().unwrap().push(d);
    }
}

/// A transport to a service on the same thread; calls that want to wait run again as on a helper.
struct Local {
    service: Service,
    pool: PagePool,
    mailbox: Arc<Letters>,
    caps: XprtCaps,
    waited: usize,
}

impl Local {
    fn new(programs: &[Arc<dyn Program>]) -> Self {
        Local {
            service: Service::attach(programs).unwrap(),
            pool: PagePool::standalone(),
            mailbox: Arc::default(),
            caps: XprtCaps {
                class: "local",
                stream: false,
                congestion_control: true,
                max_payload: 1 << 20,
                lends: false,
            },
            waited: 0,
        }
    }
}

const PEER: PeerAddr = PeerAddr::Local { uid: 0, pid: 1 };

impl CallXprt for &mut Local {
    fn roundtrip(&mut self, _: u32, call: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut out = XdrBuf::new();
        let mailbox: Arc<dyn Mailbox> = self.mailbox.clone();
        let mut blocking = false;
        loop {
            let env = Env {
                route: &Route::stream(PEER),
                caps: &self.caps,
                xprt: XprtId { slot: 0, generation: 0 },
                mailbox: &mailbox,
                blocking,
                validated: false,
            };
            let rec = Record { head: call, spans: &[] };
            match self.service.process(rec, &env, None, &mut out, &mut self.pool) {
                Disposition::Reply { .. } => {
                    let bytes = out.to_vec();
                    out.recycle(&mut self.pool);
                    return Ok(bytes);
                }
                Disposition::WouldBlock { .. } => {
                    self.waited += 1;
                    blocking = true;
                }
                Disposition::Later { .. } => match self.mailbox.0.lock().unwrap().pop().unwrap().reply {
                    Reply::Bytes(b) => return Ok(b),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
    }
}

fn programs() -> Vec<Arc<dyn Program>> {
    vec![Arc::new(EchoV1Server::new(Echo)), Arc::new(EchoV2Server::from_arc(Arc::new(Echo)))]
}

#[test]
fn every_procedure_answers() {
    let mut local = Local::new(&programs());
    let mut c = EchoV1Client::new(&mut local);
    c.null().unwrap();
    let sent = blob { data: Pages::copy_from(b"sixteen bytes or") };
    assert_eq!(c.echo_blob(&sent).unwrap(), sent);
    assert!(matches!(c.client().call::<_, ()>(2, &()), Err(ClntError::Accept(AcceptStat::ProcUnavail))));

    let mut c = EchoV2Client::new(&mut local);
    c.echo_null().unwrap();
    assert_eq!(c.echo_add(2, -5).unwrap(), -3);
    assert!(matches!(c.echo_add(i32::MAX, 1), Err(ClntError::Accept(AcceptStat::SystemErr))));
    assert_eq!(c.echo_join(&"ab".into(), &"cd".into()).unwrap().as_bytes(), b"abcd");
    assert_eq!(c.echo_ticket(b"abcdefgh").unwrap(), *b"hgfedcba");
    assert!(c.echo_wait().unwrap());
    c.echo_fail(9).unwrap();
    c.echo_fail(1).unwrap();
    assert!(matches!(c.echo_fail(0), Err(ClntError::Accept(AcceptStat::ProcUnavail))));
    let maybe = ECHO_MAYBE_arg(Some(*b"01234567"));
    assert_eq!(c.echo_maybe(&maybe).unwrap().0, maybe.0);
    for gap in [4, 6, 9, 1 << 31] {
        let e = c.client().call::<_, ()>(gap, &()).unwrap_err();
        assert!(matches!(e, ClntError::Accept(AcceptStat::ProcUnavail)), "{gap}: {e}");
    }
    assert_eq!(local.waited, 1);
}

#[test]
fn arguments_are_checked_to_the_last_byte() {
    let mut local = Local::new(&programs());
    let mut c = EchoV2Client::new(&mut local);
    let garbage = |e: ClntError| matches!(e, ClntError::Accept(AcceptStat::GarbageArgs));
    assert!(garbage(c.client().call::<_, i32>(ECHO_ADD, &1i32).unwrap_err()), "too few");
    assert!(garbage(c.client().call::<_, i32>(ECHO_ADD, &[1i32; 3]).unwrap_err()), "too many");
    assert!(garbage(c.client().call::<_, ()>(ECHO_NULL, &1i32).unwrap_err()), "void takes none");
    let mut c = EchoV1Client::new(&mut local);
    assert!(
        garbage(c.client().call::<_, ()>(0, &1i32).unwrap_err()),
        "nor does the null that nobody declared"
    );
    let e = c.client().call::<_, blob>(ECHO_BLOB, &[65u32; 18]).unwrap_err();
    assert!(garbage(e), "beyond the limit");
    let large = blob { data: Pages::copy_from(&[0; 65]) };
    assert!(matches!(c.echo_blob(&large), Err(ClntError::Arguments(_))), "the client refuses it as well");
}

#[test]
fn versions_that_are_not_there() {
    let mut local = Local::new(&programs()[..1]);
    let e = EchoV2Client::new(&mut local).echo_null().unwrap_err();
    assert!(matches!(e, ClntError::Accept(AcceptStat::ProgMismatch { low: 1, high: 1 })), "{e}");
    let all = programs();
    let versions: Vec<u32> = all.iter().flat_map(|p| p.versions()).map(|v| v.vers).collect();
    assert_eq!((versions, all[0].number(), all[0].name()), (vec![1, 2], 0x2000_0099, "ECHO"));
}

#[test]
fn a_service_may_choose_whom_to_admit() {
    let peer = |uid| PeerAddr::Local { uid, pid: 1 };
    let all = EchoV1Server::new(Echo);
    assert!(all.admits(&peer(0)) && all.admits(&peer(1)));
    let root = all.admit_if(|_, peer| matches!(peer, PeerAddr::Local { uid: 0, .. }));
    assert!(root.admits(&peer(0)) && !root.admits(&peer(1)));
}

#[test]
fn tables_tell_what_pragmas_say() {
    let v2 = EchoV2Server::<Echo>::PROCEDURES;
    let names: Vec<_> = v2.iter().map(|p| p.name).collect();
    let wanted =
        ["ECHO_NULL", "ECHO_ADD", "ECHO_JOIN", "ECHO_TICKET", "", "ECHO_WAIT", "", "ECHO_FAIL", "ECHO_MAYBE"];
    assert_eq!(names, wanted);
    assert_eq!((v2[1].repeat, v2[3].repeat), (Repeat::Once, Repeat::Idempotent));
    assert!(v2[5].blocking && !v2[1].blocking);
    let sizes: Vec<_> = v2.iter().map(|p| p.max_result).collect();
    assert_eq!(sizes, [0, 4, (1 << 20) + 3072, 8, 0, 4, 0, 0, 12]);
    assert_eq!(EchoV1Server::<Echo>::PROCEDURES[1].max_result, 68);
}

#[test]
fn calls_are_started_apart_and_take_options() {
    let mut local = Local::new(&programs());
    let mut c = EchoV2Client::new(&mut local);
    let two = [c.start_echo_add(1, 2).unwrap(), c.start_echo_add(3, 4).unwrap()];
    assert_eq!(two.map(|p| c.finish(p).unwrap()), [3, 7]);
    assert_eq!(c.with(sunrpc::clnt::CallOptions::default()).echo_add(5, 6).unwrap(), 11);
}

#[test]
fn names_of_the_file_come_before_those_made_of_them() {
    let text = "program P { version V { void A(void) = 1; void START_A(void) = 2; void FINISH(void) = 3; } = 1; } = 9;";
    let rust = sunrpc_rpcgen::Compiler::new().translate("t.x", text).unwrap().rust;
    for name in ["a", "start_a", "start_a_", "start_start_a", "finish", "finish_", "a_oneway"] {
        let head = format!("pub fn {name}(&mut self");
        let generic = format!("pub fn {name}<R");
        assert_eq!(rust.matches(&head).count() + rust.matches(&generic).count(), 1, "{name}");
    }
}

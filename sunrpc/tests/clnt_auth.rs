//! What a client's flavor can do to a call and its reply: a flavor of the tests with sequence numbers, a checksum of the
//! header for a verifier and "encrypted" bodies, as RPCSEC_GSS has them (RFC 2203 section 5.3), against the service.
//!
//! | | |
//! |---|---|
//! | credential | sequence number |
//! | verifier of a call | sum of everything before it |
//! | verifier of a reply | sum of the sequence number |
//! | body, both ways | opaque of: sequence number, sum of the plain bytes, plain bytes; all under a mask |
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use sunrpc::auth::{AuthFlavor, SvcCred, Verdict};
use sunrpc::clnt::{
    AuthSys, CallOptions, CallXprt, Client, ClntAuth, ClntError, MAX_MESSAGE, Repeat, Resend, SendOptions,
    Ticket, UnwrapError, XprtError,
};
use sunrpc::msg::{self, AcceptStat, AuthStat, CallHeader, OpaqueAuth, Parsed};
use sunrpc::page::{PagePool, PageWriter, Pages, Payload, Private, XdrBuf};
use sunrpc::record::Record;
use sunrpc::svc::{
    Call, Delivery, Dispatch, Disposition, Env, Flow, Mailbox, ProcInfo, Program, RpcError, Service,
    VersionInfo,
};
use sunrpc::xdr::{Decoder, VecWriter, XdrError, XdrWrite, to_vec};
use sunrpc::xprt::{PeerAddr, Route, XprtCaps, XprtId};

const PROG: u32 = 0x2000_0007;
const ECHO: u32 = 1;
/// A flavor that nobody uses.
const SEALED: u32 = 0x3fff_0002;

fn sum(b: &[u8]) -> [u8; 8] {
    b.iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
        .to_be_bytes()
}

fn mask(b: &mut [u8]) {
    b.iter_mut().zip(0u8..=255).for_each(|(b, i)| *b ^= 0xa5 ^ i);
}

/// The protected form of `plain`.
fn seal(seq: u32, plain: &[u8]) -> Vec<u8> {
    let mut body = [&seq.to_be_bytes()[..], &sum(plain), plain].concat();
    mask(&mut body);
    let mut w = VecWriter::new(body.len() + 8);
    w.put_opaque(&body, u32::MAX).unwrap();
    w.into_inner()
}

fn open(seq: u32, sealed: &[u8]) -> Result<Vec<u8>, UnwrapError> {
    let mut d = Decoder::new(sealed);
    let mut body = d.opaque(MAX_MESSAGE as u32)?.to_vec();
    d.finish()?;
    mask(&mut body);
    let mut d = Decoder::new(&body);
    let (of, checksum) = (d.u32()?, *d.array::<8>()?);
    if checksum != sum(d.rest()) {
        return Err(UnwrapError::Checksum);
    }
    if of != seq {
        return Err(UnwrapError::Sequence);
    }
    Ok(body.split_off(12))
}

fn seq_of(h: &CallHeader<'_>) -> Option<u32> {
    Some(u32::from_be_bytes(h.cred.body.try_into().ok()?))
}

/// The client's half.
#[derive(Debug, Default)]
struct Sealed(AtomicU32);

impl ClntAuth for Sealed {
    fn put(&self, w: &mut VecWriter) -> Result<u64, ClntError> {
        let seq = self.0.fetch_add(1, Ordering::Relaxed);
        let cred = OpaqueAuth { flavor: SEALED, body: &seq.to_be_bytes() };
        cred.encode(w).map_err(ClntError::Arguments)?;
        let sum = sum(w.as_slice());
        OpaqueAuth { flavor: SEALED, body: &sum }.encode(w).map_err(ClntError::Arguments)?;
        Ok(seq.into())
    }

    fn wrap_args(&self, token: u64, message: &mut Vec<u8>, from: usize) -> Result<(), ClntError> {
        let plain = message.split_off(from);
        message.extend_from_slice(&seal(token as u32, &plain));
        Ok(())
    }

    fn check(&self, token: u64, verf: OpaqueAuth<'_>) -> Result<(), AuthStat> {
        let want = sum(&(token as u32).to_be_bytes());
        if verf == (OpaqueAuth { flavor: SEALED, body: &want }) { Ok(()) } else { Err(AuthStat::InvalidResp) }
    }

    fn unwrap_results<'a>(&self, token: u64, body: &'a [u8]) -> Result<Cow<'a, [u8]>, UnwrapError> {
        open(token as u32, body).map(Cow::Owned)
    }

    fn repeatable(&self) -> bool {
        false
    }
}

/// The server's half.
struct Sealing;

impl AuthFlavor for Sealing {
    fn flavor(&self) -> u32 {
        SEALED
    }

    fn authenticate(&mut self, call: &CallHeader<'_>) -> Verdict {
        let mut w = VecWriter::new(500);
        for v in [call.xid, 0, 2, call.prog, call.vers, call.proc] {
            w.put_u32(v).unwrap();
        }
        call.cred.encode(&mut w).unwrap();
        if seq_of(call).is_none() {
            return Verdict::Reject(AuthStat::BadCred);
        }
        match call.verf.body == sum(w.as_slice()) {
            true => Verdict::Accept(SvcCred::Sys { uid: 5, gid: 5, gids: Default::default() }),
            false => Verdict::Reject(AuthStat::BadVerf),
        }
    }

    fn protects(&self, _: &CallHeader<'_>) -> bool {
        true
    }

    fn protect(
        &mut self,
        call: &CallHeader<'_>,
        results: Payload<Private>,
        _: &mut PagePool,
    ) -> Option<Payload<Private>> {
        Some(Pages::copy_from(&seal(seq_of(call)?, &results.to_vec())))
    }
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
        const PROCS: &[ProcInfo] = &[ProcInfo::new("NULL", 0), ProcInfo::new("ECHO", 70_000)];
        const VERSIONS: &[VersionInfo] = &[VersionInfo { vers: 1, procs: PROCS }];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(Test))
    }
}

impl Dispatch for Test {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        if cx.proc == ECHO {
            let bytes = args.opaque(65_536)?;
            out.put_opaque(bytes, 65_536).map_err(|_| RpcError::SystemErr)?;
        }
        args.finish()?;
        Ok(Flow::Done)
    }
}

struct NoMail;

impl Mailbox for NoMail {
    fn post(&self, _: Delivery) {}
}

/// Changes a message on its way.
type Tamper = fn(&mut Vec<u8>);

/// The server and the network to it.
struct Server {
    service: Service,
    pool: PagePool,
    mailbox: Arc<dyn Mailbox>,
    call: Tamper,
    reply: Tamper,
    /// What the transport was told of the last call.
    opts: Cell<Option<SendOptions>>,
    /// Bytes of the last call.
    seen: Vec<u8>,
}

impl Server {
    fn new() -> Server {
        let mut service = Service::attach(&[Arc::new(Test)]).unwrap();
        service.add_flavor(Box::new(Sealing));
        Server {
            service,
            pool: PagePool::standalone(),
            mailbox: Arc::new(NoMail),
            call: |_| {},
            reply: |_| {},
            opts: Cell::new(None),
            seen: Vec::new(),
        }
    }

    fn run(&mut self, call: &[u8]) -> Vec<u8> {
        let caps = XprtCaps {
            class: "test",
            stream: false,
            congestion_control: false,
            max_payload: 65_536,
            lends: false,
        };
        let env = Env {
            route: &Route::stream(PeerAddr::Local { uid: 0, pid: 1 }),
            caps: &caps,
            xprt: XprtId { slot: 0, generation: 0 },
            mailbox: &self.mailbox,
            blocking: false,
            validated: true,
        };
        let mut out = XdrBuf::new();
        let record = Record { head: call, spans: &[] };
        let d = self.service.process(record, &env, None, &mut out, &mut self.pool);
        assert!(matches!(d, Disposition::Reply { .. }), "{d:?}");
        let reply = out.to_vec();
        out.recycle(&mut self.pool);
        reply
    }

    /// Opens the arguments before and puts the verifier after the service, which has no place for either yet.
    fn answer(&mut self, call: &[u8]) -> Vec<u8> {
        let mut d = Decoder::new(call);
        let Ok(Parsed::Call(h)) = msg::parse(&mut d) else { panic!("no call") };
        let Some(seq) = seq_of(&h).filter(|_| h.cred.flavor == SEALED) else { return self.run(call) };
        let plain = open(seq, d.rest());
        let args = plain.as_deref().unwrap_or(&[0xff; 3]);
        let reply = self.run(&[&call[..d.position()], args].concat());
        // Denied replies have no verifier; the service's is an empty one in words 3 and 4.
        if reply[8..12] != [0; 4] {
            return reply;
        }
        let mut w = VecWriter::new(100);
        OpaqueAuth { flavor: SEALED, body: &sum(&seq.to_be_bytes()) }.encode(&mut w).unwrap();
        [&reply[..12], w.as_slice(), &reply[20..]].concat()
    }
}

impl CallXprt for Server {
    fn roundtrip(&mut self, _: u32, call: &[u8]) -> io::Result<Vec<u8>> {
        let mut call = call.to_vec();
        (self.call)(&mut call);
        let mut reply = self.answer(&call);
        (self.reply)(&mut reply);
        self.seen = call;
        Ok(reply)
    }

    fn send(&mut self, xid: u32, call: Vec<u8>, opts: &SendOptions) -> Result<Ticket, XprtError> {
        self.opts.set(Some(*opts));
        Ok(Ticket::done(self.roundtrip(xid, &call).map_err(XprtError::Io)))
    }
}

fn client() -> Client<Server> {
    let mut c = Client::new(Server::new(), PROG, 1);
    c.set_auth(Arc::new(Sealed::default()));
    c
}

fn echo(c: &mut Client<Server>, bytes: &[u8]) -> Result<Vec<u8>, ClntError> {
    c.call_with::<Pages>(ECHO, |w| w.put_opaque(bytes, u32::MAX)).map(|p| p.to_vec())
}

#[test]
fn protected_calls_come_back_as_they_went() {
    let mut c = client();
    for n in [0usize, 1, 4, 399, 4096, 10_001, 65_000] {
        let data: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
        assert_eq!(echo(&mut c, &data).unwrap(), data, "{n} bytes");
        let seen = &c.xprt_mut().seen;
        assert!(n < 4 || !seen.windows(n).any(|w| w == data), "{n} bytes went in the clear");
    }
    c.call::<(), ()>(0, &()).unwrap();
    // Started together, finished in another order: each reply is judged by its own sequence number.
    let calls: Vec<_> = (0..5u8)
        .map(|i| c.start_with::<Pages>(ECHO, Repeat::Unknown, |w| w.put_opaque(&[i; 9], 9)).unwrap())
        .collect();
    for (i, call) in (0..5u8).zip(calls).rev() {
        assert_eq!(c.finish(call).unwrap().to_vec(), [i; 9]);
    }
}

/// Flips a bit of the byte so far from the end.
fn flip(m: &mut [u8], from_end: usize) {
    let at = m.len() - from_end;
    m[at] ^= 1;
}

#[test]
fn a_changed_reply_is_a_typed_error() {
    let mut c = client();
    let mut with = |reply: Tamper| {
        c.xprt_mut().reply = reply;
        let e = echo(&mut c, b"some words").unwrap_err();
        assert!(e.maybe_ran(), "{e}");
        e
    };
    // Word 3 is the verifier's flavor, words 5 and 6 its body.
    for verifier in [(|m| m[15] ^= 1) as Tamper, |m| m[20] ^= 1] {
        let e = with(verifier);
        assert!(matches!(e, ClntError::Verifier(AuthStat::InvalidResp)), "{e}");
    }
    assert!(matches!(with(|m| flip(m, 4)), ClntError::Unwrap(UnwrapError::Checksum)));
    assert!(matches!(with(|m| m.truncate(m.len() - 4)), ClntError::Unwrap(UnwrapError::Malformed(_))));
    assert!(matches!(with(|m| m.truncate(32)), ClntError::Unwrap(UnwrapError::Malformed(_))));
    assert!(matches!(with(|m| m.extend([0; 4])), ClntError::Unwrap(UnwrapError::Malformed(_))));
    // A body that claims more than there is.
    assert!(matches!(with(|m| m[32] = 0x7f), ClntError::Unwrap(UnwrapError::Malformed(_))));
    // Protected well, but no results of ECHO.
    let e = with(|m| {
        let seq = seq_in(m);
        m.truncate(32);
        m.extend(seal(seq, &[0, 0, 0, 9]));
    });
    assert!(matches!(e, ClntError::Reply(XdrError::Eof { .. })), "{e}");
    // The body of another reply behind this one's verifier.
    let e = with(|m| {
        let other = seq_in(m).wrapping_sub(1);
        m.truncate(32);
        m.extend(seal(other, &to_vec(&7u32, 4).unwrap()));
    });
    assert!(matches!(e, ClntError::Unwrap(UnwrapError::Sequence)), "{e}");
}

/// The sequence number in a reply's body.
fn seq_in(reply: &[u8]) -> u32 {
    let mut seq: [u8; 4] = reply[36..40].try_into().unwrap();
    mask(&mut seq);
    u32::from_be_bytes(seq)
}

#[test]
fn a_changed_call_is_not_run() {
    let mut c = client();
    c.xprt_mut().call = |m| flip(m, 4);
    assert!(matches!(echo(&mut c, b"words"), Err(ClntError::Accept(AcceptStat::GarbageArgs))));
    // Another procedure than the one that was signed.
    c.xprt_mut().call = |m| m[23] = 0;
    assert!(matches!(echo(&mut c, b"words"), Err(ClntError::Auth(AuthStat::BadVerf))));
    c.xprt_mut().call = |_| {};
    assert_eq!(echo(&mut c, b"words").unwrap(), b"words");
}

#[test]
fn an_error_of_rpc_is_believed_only_with_the_right_verifier() {
    let mut c = client();
    assert!(matches!(c.call::<(), ()>(9, &()), Err(ClntError::Accept(AcceptStat::ProcUnavail))));
    c.xprt_mut().reply = |m| m[20] ^= 1;
    assert!(matches!(c.call::<(), ()>(9, &()), Err(ClntError::Verifier(AuthStat::InvalidResp))));
    // Who proves nothing is believed as ever.
    c.set_auth(Arc::new(sunrpc::clnt::AuthNone));
    c.xprt_mut().reply = |_| {};
    assert!(matches!(c.call::<(), ()>(9, &()), Err(ClntError::Accept(AcceptStat::ProcUnavail))));
}

#[test]
fn a_call_that_outgrows_the_largest_message_is_not_sent() {
    let mut c = client();
    // Header, credential and verifier take 52 bytes, protection 16, the length of the argument 4.
    let most = vec![1; MAX_MESSAGE - 72 + 4];
    // More than the server's procedure takes, but as much as a message does.
    assert!(matches!(echo(&mut c, &most[4..]), Err(ClntError::Accept(AcceptStat::GarbageArgs))));
    assert_eq!(c.xprt_mut().seen.len(), MAX_MESSAGE);
    c.xprt_mut().seen.clear();
    let e = echo(&mut c, &most).unwrap_err();
    assert!(matches!(e, ClntError::Arguments(XdrError::Full)) && !e.maybe_ran(), "{e}");
    assert!(c.xprt_mut().seen.is_empty());
}

#[test]
fn only_a_flavor_without_sequence_numbers_lets_calls_be_repeated() {
    let mut c = client();
    c.set_options(CallOptions { resend: Resend::Always, ..CallOptions::default() });
    let told = |c: &mut Client<Server>| {
        c.call::<(), ()>(0, &()).unwrap();
        c.xprt_mut().opts.take().unwrap()
    };
    let o = told(&mut c);
    assert_eq!(
        (o.resend, o.repeat, o.may_resend(), o.may_retransmit()),
        (Resend::Never, Repeat::Harmless, false, false)
    );
    let who = sunrpc::auth::AuthSysParams { stamp: 0, machine: "t".into(), uid: 0, gid: 0, gids: vec![] };
    c.set_auth(Arc::new(AuthSys::new(&who).unwrap()));
    assert_eq!(told(&mut c).resend, Resend::Always);
}

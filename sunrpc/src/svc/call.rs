//! What a procedure sees of a call, and how it answers.

use super::Flow;
use super::job::{Delivery, Mailbox, Reply};
use crate::auth::SvcCred;
use crate::drc::Claim;
use crate::msg::{self, AcceptStat, AuthStat, OpaqueAuth, SUCCESS_HEADER};
use crate::record::LAST_FRAGMENT;
use crate::xdr::{Encode, VecWriter, XdrError, XdrWrite};
use crate::xprt::{PeerAddr, Route, XprtCaps, XprtId};
use std::cell::Cell;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

/// An error in the RPC tier: the procedure did not run or could not answer in its own terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The arguments do not decode.
    #[error("arguments do not decode: {0}")]
    GarbageArgs(XdrError),
    /// The results could not be produced.
    #[error("system error")]
    SystemErr,
    /// No such procedure.
    #[error("no such procedure")]
    ProcUnavail,
    /// The caller is not acceptable for this procedure.
    #[error("{0}")]
    Auth(AuthStat),
    /// Do not answer at all.
    #[error("call is dropped")]
    Drop,
}

/// Decoding errors are the caller's fault. Encoding errors are mapped explicitly where results are written.
impl From<XdrError> for RpcError {
    fn from(e: XdrError) -> Self {
        RpcError::GarbageArgs(e)
    }
}

/// How a procedure of a generated server trait answers.
#[derive(Debug)]
pub enum Outcome<T> {
    /// With results.
    Done(T),
    /// Not without waiting; nothing was changed. It will be called again on a helper thread, where
    /// [`Call::blocking`] is true.
    WouldBlock,
    /// Later, through the [`Responder`] that came with this token.
    Later(Deferred),
    /// With an error in the RPC tier.
    Fail(RpcError),
}

impl<T> Outcome<T> {
    /// The same outcome with other results.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Done(v) => Outcome::Done(f(v)),
            Outcome::WouldBlock => Outcome::WouldBlock,
            Outcome::Later(token) => Outcome::Later(token),
            Outcome::Fail(e) => Outcome::Fail(e),
        }
    }
}

impl<T: Encode> Outcome<T> {
    /// Writes the results, if there are any: what a dispatcher does with a procedure's answer. Results beyond their
    /// bound are SYSTEM_ERR.
    pub fn write<W: XdrWrite>(self, w: &mut W) -> Result<Flow, RpcError> {
        match self {
            Outcome::Done(v) => v.encode_owned(w).map(|()| Flow::Done).map_err(|_| RpcError::SystemErr),
            Outcome::WouldBlock => Ok(Flow::WouldBlock),
            Outcome::Later(_) => Ok(Flow::Later),
            Outcome::Fail(e) => Err(e),
        }
    }
}

impl<T> From<Result<T, RpcError>> for Outcome<T> {
    fn from(r: Result<T, RpcError>) -> Self {
        match r {
            Ok(v) => Outcome::Done(v),
            Err(e) => Outcome::Fail(e),
        }
    }
}

/// Proof that a [`Responder`] exists for the call.
#[derive(Debug)]
pub struct Deferred(());

/// A call in progress.
pub struct Call<'a> {
    /// Transaction id.
    pub xid: u32,
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// Who calls.
    pub cred: &'a SvcCred,
    /// From where.
    pub peer: &'a PeerAddr,
    /// Over what.
    pub caps: &'a XprtCaps,
    /// True on a helper thread, where waiting is allowed.
    pub blocking: bool,
    /// The reply is signed or encrypted: it must consist of pages of its own.
    pub private: bool,
    pub(super) mailbox: &'a Arc<dyn Mailbox>,
    pub(super) xprt: XprtId,
    pub(super) route: &'a Route,
    /// Goes with the duty to answer.
    pub(super) claim: Cell<Option<Claim>>,
    pub(super) release: Cell<Option<u64>>,
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("xid", &self.xid)
            .field("prog", &self.prog)
            .field("vers", &self.vers)
            .field("proc", &self.proc)
            .field("peer", self.peer)
            .finish_non_exhaustive()
    }
}

impl Call<'_> {
    /// The address of this host that was called, where the transport tells: with datagrams it does.
    pub fn called(&self) -> Option<IpAddr> {
        self.route.local.map(|(ip, _)| ip)
    }

    /// Whether bulk data of the reply may lie with a lender: the flavor lets it, the transport can send it from there, and
    /// this is the worker that will.
    pub fn may_lend(&self) -> bool {
        self.caps.lends && !self.private && !self.blocking
    }

    /// Asks for [`Dispatch::release`](super::Dispatch::release) with this token once the call is over: after the flush
    /// that takes its reply, or after it was dropped. There is one token for a call; a later one replaces it.
    pub fn release_later(&self, token: u64) {
        self.release.set(Some(token));
    }

    /// Takes the duty to answer away from the procedure: it returns `Outcome::Later` with the token, and whoever
    /// holds the responder answers, once, from any thread.
    pub fn defer<T: Encode>(&self) -> (Deferred, Responder<T>) {
        let r = Responder {
            mailbox: Some(self.mailbox.clone()),
            claim: self.claim.take(),
            xprt: self.xprt,
            route: *self.route,
            xid: self.xid,
            stream: self.caps.stream,
            limit: self.caps.max_payload as usize + 4096,
            of: PhantomData,
        };
        (Deferred(()), r)
    }
}

/// Answers a deferred call. Dropped without an answer, it answers SYSTEM_ERR.
pub struct Responder<T> {
    mailbox: Option<Arc<dyn Mailbox>>,
    claim: Option<Claim>,
    xprt: XprtId,
    route: Route,
    xid: u32,
    stream: bool,
    limit: usize,
    of: PhantomData<fn(T)>,
}

impl<T> std::fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder").field("xprt", &self.xprt).field("xid", &self.xid).finish_non_exhaustive()
    }
}

impl<T> Responder<T> {
    /// `ran`: what `body` writes are results.
    fn answer(&mut self, ran: bool, body: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>) {
        let Some(mailbox) = self.mailbox.take() else { return };
        let claim = self.claim.take();
        let mut w = VecWriter::new(self.limit);
        let ok = w.put_u32(0).and_then(|()| body(&mut w));
        let mut bytes = w.into_inner();
        if let (Some(claim), true, Some(results)) =
            (claim, ran && ok.is_ok(), bytes.get(4 + SUCCESS_HEADER..))
        {
            claim.complete(results);
        }
        if ok.is_err() {
            let mut w = VecWriter::new(64);
            let stat = AcceptStat::SystemErr;
            // A 28-byte error fits into 64.
            let _ =
                w.put_u32(0).and_then(|()| msg::put_accept_error(&mut w, self.xid, OpaqueAuth::NONE, stat));
            bytes = w.into_inner();
        }
        let len = bytes.len() - 4;
        if self.stream
            && let Some(mark) = bytes.first_chunk_mut::<4>()
        {
            // The writer's limit keeps the length far below 2^31.
            *mark = (len as u32 | LAST_FRAGMENT).to_be_bytes();
        } else {
            bytes.drain(..4);
        }
        mailbox.post(Delivery {
            to: self.xprt,
            route: self.route,
            reply: Reply::Bytes(bytes),
            after: Vec::new(),
        });
    }
}

impl<T: Encode> Responder<T> {
    /// Answers with results or with an error.
    pub fn complete(mut self, result: Result<T, RpcError>) {
        let xid = self.xid;
        self.answer(result.is_ok(), |w| match result {
            Ok(v) => {
                msg::put_success(w, xid, OpaqueAuth::NONE)?;
                v.encode_owned(w)
            }
            Err(RpcError::Auth(stat)) => msg::put_auth_error(w, xid, stat),
            Err(RpcError::GarbageArgs(_)) => {
                msg::put_accept_error(w, xid, OpaqueAuth::NONE, AcceptStat::GarbageArgs)
            }
            Err(RpcError::ProcUnavail) => {
                msg::put_accept_error(w, xid, OpaqueAuth::NONE, AcceptStat::ProcUnavail)
            }
            Err(RpcError::SystemErr | RpcError::Drop) => {
                msg::put_accept_error(w, xid, OpaqueAuth::NONE, AcceptStat::SystemErr)
            }
        });
    }
}

impl<T> Drop for Responder<T> {
    fn drop(&mut self) {
        // `answer` replaces the failed body by SYSTEM_ERR.
        self.answer(false, |_| Err(XdrError::Full));
    }
}

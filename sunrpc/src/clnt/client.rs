//! Typed calls of one program.

use super::message::{ProcId, decode_reply, encode_call};
use super::{
    AuthNone, AuthSys, CallOptions, CallXprt, ClntAuth, ClntError, Repeat, Ticket, XprtError, random_xid,
};
use crate::auth::AuthSysParams;
use crate::xdr::{Decode, Encode, VecWriter, XdrError};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

/// A client of one version of one program.
#[derive(Debug)]
pub struct Client<T> {
    xprt: T,
    prog: u32,
    vers: u32,
    xid: u32,
    auth: Arc<dyn ClntAuth>,
    options: CallOptions,
}

/// A call that was started; redeemed by [`Client::finish`] of the client (or a view of it) that started it. One that
/// is dropped still occupies the client until its time is over; [`Client::cancel`] frees it at once.
#[derive(Debug)]
#[must_use = "the call's outcome is in `Client::finish`"]
pub struct Pending<R> {
    ticket: Ticket,
    xid: u32,
    token: u64,
    auth: Arc<dyn ClntAuth>,
    result: PhantomData<fn() -> R>,
}

impl<R> Pending<R> {
    /// What a transport needs that finishes the call by itself: ticket, transaction id, and what checks the reply.
    pub fn into_parts(self) -> (Ticket, u32, Arc<dyn ClntAuth>, u64) {
        (self.ticket, self.xid, self.auth, self.token)
    }
}

impl<T: CallXprt> Client<T> {
    /// A client that calls as nobody (AUTH_NONE).
    pub fn new(xprt: T, prog: u32, vers: u32) -> Self {
        let (auth, options) = (Arc::new(AuthNone), CallOptions::default());
        Client { xprt, prog, vers, xid: random_xid(), auth, options }
    }

    /// Calls as this user from now on (AUTH_SYS).
    pub fn set_auth_sys(&mut self, who: &AuthSysParams) -> Result<(), ClntError> {
        self.auth = Arc::new(AuthSys::new(who)?);
        Ok(())
    }

    /// Calls with these credentials from now on.
    pub fn set_auth(&mut self, auth: Arc<dyn ClntAuth>) {
        self.auth = auth;
    }

    /// How calls are made from now on.
    pub fn set_options(&mut self, options: CallOptions) {
        self.options = options;
    }

    /// How calls are made.
    pub fn options(&self) -> &CallOptions {
        &self.options
    }

    /// The same client with other options, for as long as the borrow lasts.
    pub fn with(&mut self, options: CallOptions) -> Client<&mut T> {
        let (prog, vers, auth) = (self.prog, self.vers, self.auth.clone());
        Client { xprt: &mut self.xprt, prog, vers, xid: random_xid(), auth, options }
    }

    /// The transport.
    pub fn xprt_mut(&mut self) -> &mut T {
        &mut self.xprt
    }

    /// Runs a procedure and waits for its results. Whether it may run twice is unknown, except for procedure 0; see
    /// [`Repeat`].
    pub fn call<A: Encode + ?Sized, R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        args: &A,
    ) -> Result<R, ClntError> {
        self.call_with(proc, |w| args.encode(w))
    }

    /// Runs a procedure whose arguments `encode` writes.
    pub fn call_with<R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        encode: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
    ) -> Result<R, ClntError> {
        let call = self.start_with(proc, unmarked(proc), encode)?;
        self.finish(call)
    }

    /// Starts a procedure; any number of calls may be outstanding up to the transport's bound
    /// ([`XprtError::Busy`]). Nothing need be sent before [`Client::flush`] or [`Client::finish`].
    pub fn start<A: Encode + ?Sized, R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        args: &A,
    ) -> Result<Pending<R>, ClntError> {
        self.start_with(proc, unmarked(proc), |w| args.encode(w))
    }

    /// Starts a procedure whose arguments `encode` writes.
    pub fn start_with<R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        repeat: Repeat,
        encode: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
    ) -> Result<Pending<R>, ClntError> {
        let xid = match self.xprt.reserve_xid() {
            Some(xid) => xid,
            None => {
                self.xid = self.xid.wrapping_add(1);
                self.xid
            }
        };
        let auth = self.options.cred.as_ref().unwrap_or(&self.auth).clone();
        let of = ProcId { prog: self.prog, vers: self.vers, proc };
        let (call, token) = encode_call(xid, of, &*auth, encode)?;
        let ticket = self.xprt.send(xid, call, &self.options.send_options(&*auth, repeat, false))?;
        Ok(Pending { ticket, xid, token, auth, result: PhantomData })
    }

    /// Waits for the results of a call. Other calls proceed meanwhile.
    pub fn finish<R: for<'a> Decode<'a>>(&mut self, call: Pending<R>) -> Result<R, ClntError> {
        let reply = self.xprt.wait(call.ticket)?;
        decode_reply(call.xid, &reply, &*call.auth, call.token)
    }

    /// Gives a call up. The server may run it all the same.
    pub fn cancel<R>(&mut self, call: Pending<R>) {
        self.xprt.cancel(call.ticket);
    }

    /// Sends the calls that were started, as far as the network takes them without waiting.
    pub fn flush(&mut self) -> Result<(), ClntError> {
        Ok(self.xprt.flush()?)
    }

    /// Runs a procedure once for each of `args`, as many at a time as the transport takes. Outcomes come in the order
    /// of the arguments.
    pub fn call_many<A: Encode, R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        args: impl IntoIterator<Item = A>,
    ) -> Vec<Result<R, ClntError>> {
        let mut out = Vec::new();
        let mut started: VecDeque<Result<Pending<R>, ClntError>> = VecDeque::new();
        for a in args {
            loop {
                match self.start(proc, &a) {
                    Err(ClntError::Transport(XprtError::Busy(_))) if !started.is_empty() => {
                        out.extend(started.pop_front().map(|c| c.and_then(|c| self.finish(c))));
                    }
                    r => break started.push_back(r),
                }
            }
        }
        out.extend(started.into_iter().map(|c| c.and_then(|c| self.finish(c))));
        out
    }

    /// Runs a procedure that never answers. `Ok` means that the call was handed to the network.
    pub fn call_oneway<A: Encode + ?Sized>(&mut self, proc: u32, args: &A) -> Result<(), ClntError> {
        self.oneway_with(proc, unmarked(proc), |w| args.encode(w))
    }

    /// Runs a procedure that never answers and whose arguments `encode` writes.
    pub fn oneway_with(
        &mut self,
        proc: u32,
        repeat: Repeat,
        encode: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
    ) -> Result<(), ClntError> {
        let xid = self.xprt.reserve_xid().unwrap_or_else(random_xid);
        let auth = self.options.cred.as_ref().unwrap_or(&self.auth).clone();
        let of = ProcId { prog: self.prog, vers: self.vers, proc };
        let (call, _) = encode_call(xid, of, &*auth, encode)?;
        let ticket = self.xprt.send(xid, call, &self.options.send_options(&*auth, repeat, true))?;
        self.xprt.wait(ticket)?;
        Ok(())
    }
}

/// What is known of a procedure by its number alone: 0 does nothing, by convention of all programs.
fn unmarked(proc: u32) -> Repeat {
    if proc == 0 { Repeat::Harmless } else { Repeat::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::{AcceptStat, AuthStat, OpaqueAuth};

    /// Answers every call with fixed words behind its transaction id.
    struct Canned(Vec<u32>);

    impl CallXprt for Canned {
        fn roundtrip(&mut self, xid: u32, _: &[u8]) -> std::io::Result<Vec<u8>> {
            Ok(std::iter::once(xid).chain(self.0.iter().copied()).flat_map(u32::to_be_bytes).collect())
        }
    }

    fn ask(words: &[u32]) -> Result<u32, ClntError> {
        Client::new(Canned(words.to_vec()), 7, 1).call(1, &5u32)
    }

    #[test]
    fn every_layer_has_its_error() {
        assert_eq!(ask(&[1, 0, 0, 0, 0, 42]).unwrap(), 42);
        assert!(matches!(ask(&[1, 0, 0, 0, 3]), Err(ClntError::Accept(AcceptStat::ProcUnavail))));
        assert!(matches!(ask(&[1, 1, 1, 5]), Err(ClntError::Auth(AuthStat::TooWeak))));
        assert!(matches!(ask(&[1, 1, 0, 2, 2]), Err(ClntError::RpcMismatch { low: 2, high: 2 })));
        assert!(matches!(ask(&[1, 0, 0, 0, 0]), Err(ClntError::Reply(XdrError::Eof { .. }))));
        assert!(matches!(ask(&[1, 0, 0, 0, 0, 1, 2]), Err(ClntError::Reply(XdrError::Trailing(4)))));
        assert!(matches!(ask(&[0, 2]), Err(ClntError::Reply(_))));
    }

    /// Wants its own token back as the reply's verifier.
    #[derive(Debug)]
    struct Picky;

    impl ClntAuth for Picky {
        fn put(&self, w: &mut VecWriter) -> Result<u64, ClntError> {
            AuthNone.put(w).map(|_| 0x55)
        }

        fn check(&self, token: u64, verf: OpaqueAuth<'_>) -> Result<(), AuthStat> {
            let same = verf.body == (token as u32).to_be_bytes();
            if same { Ok(()) } else { Err(AuthStat::InvalidResp) }
        }
    }

    #[test]
    fn a_reply_with_a_wrong_verifier_is_not_used() {
        let mut c = Client::new(Canned(vec![1, 0, 9, 4, 0x55, 0, 42]), 7, 1);
        c.set_auth(Arc::new(Picky));
        assert_eq!(c.call::<_, u32>(1, &()).unwrap(), 42);
        c.xprt_mut().0[4] = 0x56;
        let e = c.call::<_, u32>(1, &()).unwrap_err();
        assert!(matches!(e, ClntError::Verifier(AuthStat::InvalidResp)) && e.maybe_ran());
        let anyone = CallOptions { cred: Some(Arc::new(AuthNone)), ..CallOptions::default() };
        assert_eq!(c.with(anyone).call::<_, u32>(1, &()).unwrap(), 42);
    }

    #[test]
    fn a_transport_without_pipelining_still_starts_and_finishes() {
        let mut c = Client::new(Canned(vec![1, 0, 0, 0, 0, 42]), 7, 1);
        let calls: Vec<Pending<u32>> = (0..3u32).map(|i| c.start(1, &i).unwrap()).collect();
        assert!(calls.into_iter().all(|p| c.finish(p).unwrap() == 42));
        assert_eq!(c.call_many::<u32, u32>(1, [1, 2]).len(), 2);
        assert!(matches!(c.call_oneway(1, &()), Err(ClntError::Transport(XprtError::Io(_)))));
    }
}

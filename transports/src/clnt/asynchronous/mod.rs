//! Calls as futures, on any executor: one thread does the waiting for all of them.

mod driver;

pub use driver::Driver;

use super::ClntConfig;
use crate::class::{ClassError, ConnectError};
use driver::Entry;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use sunrpc::clnt::{
    AuthNone, CallId, CallOptions, CallXprt, ClntAuth, ClntError, Outcome, Pending, ProcId, Repeat,
    SendOptions, Ticket, XprtError, again, decode_reply, encode_call,
};
use sunrpc::xdr::{Decode, Encode, VecWriter, XdrError};

/// A connection of a [`Driver`]. Clones share it; it closes with the last of them and of its calls.
///
/// It also carries calls of [`Client`](sunrpc::clnt::Client) and of generated clients: what their `start` methods
/// return becomes a future by [`AsyncXprt::complete`], or is waited for as with any transport. So threads share a
/// connection too.
#[derive(Debug, Clone)]
pub struct AsyncXprt(Arc<Entry>);

impl AsyncXprt {
    /// The future of a call that a client of this connection started.
    pub fn complete<R: for<'a> Decode<'a>>(&self, call: Pending<R>) -> AsyncCall<R> {
        let (ticket, xid, auth, token) = call.into_parts();
        let state = match ticket.into_id() {
            Ok(id) => CallState::Started(Started { entry: self.0.clone(), id, xid, token, auth }),
            Err(_) => CallState::Failed(XprtError::NoSuchCall.into()),
        };
        AsyncCall { state, result: PhantomData }
    }

    fn start(&self, xid: u32, call: Vec<u8>, opts: SendOptions) -> Result<CallId, XprtError> {
        let id = {
            let mut s = self.0.lock();
            let max = s.link.max_call();
            if call.len() > max {
                return Err(XprtError::TooLarge { len: call.len(), max });
            }
            s.link.table().start(xid, call, opts, self.0.now())?
        };
        // After the call is in the table: a thread that fails now fails it too, or is seen to have failed.
        if !self.0.touch() {
            self.0.lock().link.table().forget(id);
            return Err(XprtError::Io(io::Error::other("the client's thread has failed; see the log")));
        }
        Ok(id)
    }
}

impl CallXprt for AsyncXprt {
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> io::Result<Vec<u8>> {
        let ticket = self.send(xid, call.to_vec(), &SendOptions::default())?;
        Ok(self.wait(ticket)?)
    }

    fn reserve_xid(&mut self) -> Option<u32> {
        Some(self.0.lock().link.table().reserve_xid())
    }

    fn send(&mut self, xid: u32, call: Vec<u8>, opts: &SendOptions) -> Result<Ticket, XprtError> {
        self.start(xid, call, *opts).map(Ticket::pending)
    }

    /// Parks the thread; not for use in an executor.
    fn wait(&mut self, ticket: Ticket) -> Outcome {
        let id = match ticket.into_id() {
            Ok(id) => id,
            Err(outcome) => return outcome,
        };
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let cx = Context::from_waker(&waker);
        loop {
            match outcome(&self.0, id, &cx) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Ok(id) = ticket.into_id() {
            forget(&self.0, id);
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Takes the outcome of a call, or has `cx` woken when there is one.
fn outcome(entry: &Entry, id: CallId, cx: &Context<'_>) -> Poll<Outcome> {
    let mut s = entry.lock();
    let (result, waker) = match s.link.table().take(id) {
        Some(outcome) => (Poll::Ready(outcome), s.wakers.remove(&id)),
        None => (Poll::Pending, s.wakers.insert(id, cx.waker().clone())),
    };
    drop(s);
    // A waker is foreign code, not to be run under the lock.
    drop(waker);
    result
}

fn forget(entry: &Entry, id: CallId) {
    let mut s = entry.lock();
    s.link.table().forget(id);
    let waker = s.wakers.remove(&id);
    drop(s);
    drop(waker);
}

impl Driver {
    /// Connects to `tcp://HOST:PORT`, `udp://HOST:PORT`, `local:/PATH` or `local:@NAME`. A host name is resolved
    /// before this returns, which may take time; an address is not.
    pub fn connect(&self, url: &str, config: &ClntConfig) -> Result<AsyncConnect, ConnectError> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| ClassError::NoScheme(url.to_owned()))?;
        let link = super::link(scheme, rest.strip_prefix("//").unwrap_or(rest), config);
        let mut link = link
            .ok_or_else(|| ClassError::Unknown { scheme: scheme.to_owned() })?
            .map_err(|err| ConnectError::new(url, err))?;
        link.connect(self.now());
        Ok(AsyncConnect { entry: self.add(link), url: url.to_owned() })
    }
}

/// Completes when the connection stands or has failed.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct AsyncConnect {
    entry: Arc<Entry>,
    url: String,
}

impl Future for AsyncConnect {
    type Output = Result<AsyncXprt, ConnectError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut s = self.entry.lock();
        if s.link.is_up() {
            return Poll::Ready(Ok(AsyncXprt(self.entry.clone())));
        }
        if let Some(e) = s.link.down() {
            return Poll::Ready(Err(ConnectError::new(&self.url, again(e))));
        }
        if !s.connecting.iter().any(|w| w.will_wake(cx.waker())) {
            s.connecting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A client of one version of one program whose calls are futures. Clones are cheap and may have options of their
/// own.
#[derive(Debug, Clone)]
pub struct AsyncClient {
    xprt: AsyncXprt,
    prog: u32,
    vers: u32,
    auth: Arc<dyn ClntAuth>,
    options: CallOptions,
}

impl AsyncClient {
    /// A client that calls as nobody (AUTH_NONE).
    pub fn new(xprt: AsyncXprt, prog: u32, vers: u32) -> Self {
        AsyncClient { xprt, prog, vers, auth: Arc::new(AuthNone), options: CallOptions::default() }
    }

    /// Calls with these credentials from now on.
    pub fn set_auth(&mut self, auth: Arc<dyn ClntAuth>) {
        self.auth = auth;
    }

    /// The same client with other options.
    pub fn with(&self, options: CallOptions) -> Self {
        AsyncClient { options, ..self.clone() }
    }

    /// Starts a procedure. It is sent whether or not the future is polled; dropping the future gives the call up,
    /// though the server may run it. Whether it may run twice is unknown, except for procedure 0; see [`Repeat`].
    pub fn call<A: Encode + ?Sized, R: for<'a> Decode<'a>>(&self, proc: u32, args: &A) -> AsyncCall<R> {
        let repeat = if proc == 0 { Repeat::Harmless } else { Repeat::Unknown };
        self.call_with(proc, repeat, |w| args.encode(w))
    }

    /// Starts a procedure whose arguments `encode` writes.
    pub fn call_with<R: for<'a> Decode<'a>>(
        &self,
        proc: u32,
        repeat: Repeat,
        encode: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
    ) -> AsyncCall<R> {
        let state = match self.start(proc, repeat, false, encode) {
            Ok(call) => CallState::Started(call),
            Err(e) => CallState::Failed(e),
        };
        AsyncCall { state, result: PhantomData }
    }

    /// Sends a call that is never answered; completes once it was handed to the network.
    pub async fn call_oneway<A: Encode + ?Sized>(&self, proc: u32, args: &A) -> Result<(), ClntError> {
        let call = self.start(proc, Repeat::Unknown, true, |w| args.encode(w))?;
        std::future::poll_fn(|cx| outcome(&call.entry, call.id, cx)).await?;
        Ok(())
    }

    fn start(
        &self,
        proc: u32,
        repeat: Repeat,
        oneway: bool,
        encode: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
    ) -> Result<Started, ClntError> {
        let entry = &self.xprt.0;
        let xid = entry.lock().link.table().reserve_xid();
        let auth = self.options.cred.as_ref().unwrap_or(&self.auth).clone();
        let of = ProcId { prog: self.prog, vers: self.vers, proc };
        let (call, token) = encode_call(xid, of, &*auth, encode)?;
        let id = self.xprt.start(xid, call, self.options.send_options(&*auth, repeat, oneway))?;
        Ok(Started { entry: entry.clone(), id, xid, token, auth })
    }
}

/// A call under way; completes with its results.
#[derive(Debug)]
#[must_use = "a call is given up when its future is dropped"]
pub struct AsyncCall<R> {
    state: CallState,
    result: PhantomData<fn() -> R>,
}

#[derive(Debug)]
enum CallState {
    Started(Started),
    Failed(ClntError),
    Done,
}

#[derive(Debug)]
struct Started {
    entry: Arc<Entry>,
    id: CallId,
    xid: u32,
    token: u64,
    auth: Arc<dyn ClntAuth>,
}

impl Drop for Started {
    fn drop(&mut self) {
        forget(&self.entry, self.id);
    }
}

impl<R: for<'a> Decode<'a>> Future for AsyncCall<R> {
    type Output = Result<R, ClntError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.state {
            CallState::Started(call) => match outcome(&call.entry, call.id, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(reply)) => decode_reply(call.xid, &reply, &*call.auth, call.token),
                Poll::Ready(Err(e)) => Err(e.into()),
            },
            CallState::Failed(_) => match std::mem::replace(&mut self.state, CallState::Done) {
                CallState::Failed(e) => Err(e),
                _ => return Poll::Pending,
            },
            CallState::Done => return Poll::Pending,
        };
        self.state = CallState::Done;
        Poll::Ready(result)
    }
}

//! What carries calls to a server.

use super::calls::{CallId, Outcome};
use super::{SendOptions, XprtError};
use std::io;

/// Carries calls to the server and their replies back.
///
/// A transport that implements [`CallXprt::roundtrip`] alone answers each call before it takes the next. One that
/// keeps calls outstanding implements the rest too.
pub trait CallXprt {
    /// Sends `call` (without record mark) and returns the reply with the same transaction id.
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> io::Result<Vec<u8>>;

    /// A transaction id that no outstanding call uses; `None` if the caller may choose.
    fn reserve_xid(&mut self) -> Option<u32> {
        None
    }

    /// Takes in a call (without record mark) that starts with `xid`. It may stay in memory until
    /// [`CallXprt::flush`] or [`CallXprt::wait`], so that calls started together are sent together.
    fn send(&mut self, xid: u32, call: Vec<u8>, opts: &SendOptions) -> Result<Ticket, XprtError> {
        if opts.oneway {
            let e = io::Error::new(io::ErrorKind::Unsupported, "this transport has no one-way calls");
            return Err(XprtError::Io(e));
        }
        Ok(Ticket::done(self.roundtrip(xid, &call).map_err(XprtError::Io)))
    }

    /// Waits for the end of a call: its reply, which starts with its transaction id; nothing for a one-way call.
    /// Other calls proceed meanwhile.
    fn wait(&mut self, ticket: Ticket) -> Outcome {
        match ticket.0 {
            Kind::Done(outcome) => outcome,
            Kind::Pending(_) => Err(XprtError::NoSuchCall),
        }
    }

    /// Sends what has been taken in, as far as the network takes it without waiting.
    fn flush(&mut self) -> Result<(), XprtError> {
        Ok(())
    }

    /// Gives a call up. The server may run it all the same.
    fn cancel(&mut self, ticket: Ticket) {
        drop(ticket);
    }
}

/// Stands for a call that was taken in; redeemed by [`CallXprt::wait`]. One that is dropped occupies the client until
/// its call's time is over.
#[derive(Debug)]
pub struct Ticket(Kind);

#[derive(Debug)]
enum Kind {
    Pending(CallId),
    Done(Outcome),
}

impl Ticket {
    /// For a call that waits in a table.
    pub fn pending(id: CallId) -> Self {
        Ticket(Kind::Pending(id))
    }

    /// For a call that has ended already.
    pub fn done(outcome: Outcome) -> Self {
        Ticket(Kind::Done(outcome))
    }

    /// The call in the table, or its outcome.
    pub fn into_id(self) -> Result<CallId, Outcome> {
        match self.0 {
            Kind::Pending(id) => Ok(id),
            Kind::Done(outcome) => Err(outcome),
        }
    }
}

macro_rules! forward {
    ($t:ty) => {
        impl<T: CallXprt + ?Sized> CallXprt for $t {
            fn roundtrip(&mut self, xid: u32, call: &[u8]) -> io::Result<Vec<u8>> {
                (**self).roundtrip(xid, call)
            }
            fn reserve_xid(&mut self) -> Option<u32> {
                (**self).reserve_xid()
            }
            fn send(&mut self, xid: u32, call: Vec<u8>, opts: &SendOptions) -> Result<Ticket, XprtError> {
                (**self).send(xid, call, opts)
            }
            fn wait(&mut self, ticket: Ticket) -> Outcome {
                (**self).wait(ticket)
            }
            fn flush(&mut self) -> Result<(), XprtError> {
                (**self).flush()
            }
            fn cancel(&mut self, ticket: Ticket) {
                (**self).cancel(ticket)
            }
        }
    };
}
forward!(Box<T>);
forward!(&mut T);

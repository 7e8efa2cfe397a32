//! A client whose caller waits.

use super::ClntConfig;
use super::link::Link;
use std::io;
use std::time::{Duration, Instant};
use sunrpc::clnt::{CallXprt, Outcome, SendOptions, Ticket, XprtError, again};

/// A transport whose calls are driven by the thread that waits for one of them. Calls that were started go out
/// together, and replies are matched in any order.
pub struct Blocking {
    link: Box<dyn Link>,
    start: Instant,
}

impl std::fmt::Debug for Blocking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocking").field("calls", self.link.table_ref()).finish_non_exhaustive()
    }
}

impl Blocking {
    pub(super) fn open(scheme: &str, addr: &str, config: &ClntConfig) -> io::Result<Self> {
        let start = Instant::now();
        let unknown = || Err(io::Error::new(io::ErrorKind::Unsupported, "no such transport"));
        let mut link = super::link(scheme, addr, config).unwrap_or_else(unknown)?;
        link.connect(start.elapsed());
        loop {
            link.turn(start.elapsed(), false);
            if link.is_up() {
                return Ok(Blocking { link, start });
            }
            if let Some(e) = link.down() {
                return Err(again(e));
            }
            wait(&*link, start.elapsed())?;
        }
    }

    /// True if there is a connection as far as this side knows. For datagrams: always.
    pub fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// Messages dropped so far because nobody waited for them: late or repeated replies, garbage.
    pub fn stray(&self) -> u64 {
        self.link.table_ref().stray()
    }
}

/// Waits until a turn may have something to do.
fn wait(link: &dyn Link, now: Duration) -> io::Result<()> {
    let (read, write) = link.interest();
    let timeout = link.next_timer().map(|t| t.saturating_sub(now));
    sunrpc_sys::poll::wait(link.socket().map(|(_, fd)| fd), read, write, timeout)
}

impl CallXprt for Blocking {
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> io::Result<Vec<u8>> {
        let ticket = self.send(xid, call.to_vec(), &SendOptions::default())?;
        Ok(self.wait(ticket)?)
    }

    fn reserve_xid(&mut self) -> Option<u32> {
        Some(self.link.table().reserve_xid())
    }

    fn send(&mut self, xid: u32, call: Vec<u8>, opts: &SendOptions) -> Result<Ticket, XprtError> {
        let max = self.link.max_call();
        if call.len() > max {
            return Err(XprtError::TooLarge { len: call.len(), max });
        }
        let now = self.start.elapsed();
        self.link.table().start(xid, call, *opts, now).map(Ticket::pending)
    }

    fn wait(&mut self, ticket: Ticket) -> Outcome {
        let id = match ticket.into_id() {
            Ok(id) => id,
            Err(outcome) => return outcome,
        };
        loop {
            let more = self.link.turn(self.start.elapsed(), false);
            if let Some(outcome) = self.link.table().take(id) {
                return outcome;
            }
            if !more {
                wait(&*self.link, self.start.elapsed())?;
            }
        }
    }

    fn flush(&mut self) -> Result<(), XprtError> {
        while self.link.turn(self.start.elapsed(), false) && self.link.table_ref().wants_write() {}
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Ok(id) = ticket.into_id() {
            self.link.table().forget(id);
        }
    }
}

//! Outstanding calls: which wait, when they are sent again, how they end.
//!
//! Holds no descriptor and no clock: time comes in as the duration since any fixed start. A transport writes what
//! [`CallTable::queued`] gives, reports it by [`CallTable::on_sent`], hands in every message that arrives, and calls
//! [`CallTable::expire`] when [`CallTable::next_timer`] says so.

use super::error::again;
use super::{Retransmit, SendOptions, XprtError};
use crate::record::RecordError;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

/// Calls outstanding on one transport if nothing else is said.
pub const DEFAULT_CALLS: usize = 128;

/// The end of a call: its reply message, or why there is none.
pub type Outcome = Result<Vec<u8>, XprtError>;

/// A call in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId {
    slot: usize,
    /// Tells calls apart that use a slot one after the other.
    serial: u64,
}

#[derive(Debug)]
struct Slot {
    serial: u64,
    xid: u32,
    /// Empty once it can be of no further use.
    message: Vec<u8>,
    opts: SendOptions,
    deadline: Duration,
    /// Sends begun.
    sends: u32,
    queued: bool,
    /// Next retransmission, and the wait after it.
    again: Option<Duration>,
    wait: Duration,
    done: Option<Outcome>,
}

impl Slot {
    fn waits(&self) -> bool {
        self.done.is_none()
    }
}

/// The outstanding calls of one transport, bounded in number.
#[derive(Debug)]
pub struct CallTable {
    slots: Slab<Slot>,
    /// Calls that wait, by transaction id.
    waiting: HashMap<u32, usize>,
    /// Calls to be written, in order.
    queue: VecDeque<usize>,
    max: usize,
    retransmit: Option<Retransmit>,
    next_xid: u32,
    serial: u64,
    stray: u64,
    /// No waiting call ends by time or is sent again before this, which spares looking at all of them in each turn.
    timer: Duration,
    /// Calls that ended since they were last asked for, if anybody asks.
    ended: Option<Vec<CallId>>,
}

impl CallTable {
    /// A table of at most `max` calls. Transaction ids count up from `seed`, which should be random: servers tell
    /// repeated calls by them. `retransmit` is for transports that lose messages.
    pub fn new(max: usize, seed: u32, retransmit: Option<Retransmit>) -> Self {
        CallTable {
            slots: Slab::new(),
            waiting: HashMap::new(),
            queue: VecDeque::new(),
            max,
            retransmit,
            next_xid: seed,
            serial: 0,
            stray: 0,
            timer: Duration::MAX,
            ended: None,
        }
    }

    /// Has the table remember which calls end, for [`CallTable::drain_ended`].
    pub fn track_ended(&mut self) {
        self.ended.get_or_insert_default();
    }

    /// The calls that ended since the last time, except by [`CallTable::forget`]. They may have been taken meanwhile.
    pub fn drain_ended(&mut self) -> impl Iterator<Item = CallId> {
        self.ended.iter_mut().flat_map(|e| e.drain(..))
    }

    /// A transaction id that no waiting call uses.
    pub fn reserve_xid(&mut self) -> u32 {
        loop {
            let xid = self.next_xid;
            self.next_xid = xid.wrapping_add(1);
            if !self.waiting.contains_key(&xid) {
                return xid;
            }
        }
    }

    /// Takes in a call message and queues it. Outcomes that nobody took are forgotten once their time is over and
    /// room is needed.
    pub fn start(
        &mut self,
        xid: u32,
        message: Vec<u8>,
        opts: SendOptions,
        now: Duration,
    ) -> Result<CallId, XprtError> {
        if self.slots.len() >= self.max {
            self.slots.retain(|_, s| s.waits() || s.deadline > now);
        }
        if self.slots.len() >= self.max {
            return Err(XprtError::Busy(self.slots.len()));
        }
        if self.waiting.contains_key(&xid) {
            let e = io::Error::new(io::ErrorKind::InvalidInput, "transaction id is in use");
            return Err(XprtError::Io(e));
        }
        self.serial += 1;
        let serial = self.serial;
        let deadline = now.saturating_add(opts.timeout);
        self.timer = self.timer.min(deadline);
        let slot = self.slots.insert(Slot {
            serial,
            xid,
            message,
            opts,
            deadline,
            sends: 0,
            queued: true,
            again: None,
            wait: self.retransmit.map_or(Duration::MAX, |r| r.first),
            done: None,
        });
        self.waiting.insert(xid, slot);
        self.queue.push_back(slot);
        Ok(CallId { slot, serial })
    }

    /// Messages to be written, first one first.
    pub fn queued(&self) -> impl Iterator<Item = (CallId, &[u8])> {
        self.queue.iter().filter_map(|&slot| {
            let s = self.slots.get(slot)?;
            Some((CallId { slot, serial: s.serial }, &s.message[..]))
        })
    }

    /// The first message to be written.
    pub fn first(&self) -> Option<(CallId, &[u8])> {
        self.queued().next()
    }

    /// True if [`CallTable::queued`] has anything.
    pub fn wants_write(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The first queued message went out, `whole` or in part; the transport keeps what is left of it.
    pub fn on_sent(&mut self, whole: bool, now: Duration) {
        let Some(slot) = self.queue.pop_front() else { return };
        let Some(s) = self.slots.get_mut(slot) else { return };
        s.queued = false;
        s.sends = s.sends.saturating_add(1);
        match self.retransmit.filter(|_| s.opts.may_retransmit() && !s.opts.oneway) {
            Some(r) => {
                let next = now.saturating_add(s.wait);
                s.again = Some(next);
                self.timer = self.timer.min(next);
                s.wait = s.wait.saturating_mul(2).min(r.most);
            }
            None if !s.opts.may_resend() => s.message = Vec::new(),
            None => {}
        }
        if whole && s.opts.oneway {
            self.finish(slot, Ok(Vec::new()));
        }
    }

    /// The rest of a message that was sent in part went out too.
    pub fn on_rest_sent(&mut self, id: CallId) {
        if self.get(id).is_some_and(|s| s.waits() && s.opts.oneway) {
            self.finish(id.slot, Ok(Vec::new()));
        }
    }

    /// The first queued message cannot be sent at all.
    pub fn on_refused(&mut self, err: XprtError) {
        if let Some(slot) = self.queue.pop_front() {
            self.finish(slot, Err(err));
        }
    }

    /// A message arrived. Only a reply to a waiting call is taken; anything else is counted and dropped: a late or
    /// repeated reply, a call, garbage.
    pub fn on_message(&mut self, message: Vec<u8>) -> bool {
        let found = match message.first_chunk::<8>() {
            Some([a, b, c, d, 0, 0, 0, 1]) => {
                let slot = self.waiting.get(&u32::from_be_bytes([*a, *b, *c, *d])).copied();
                // Nobody can answer what was not sent.
                slot.filter(|slot| self.slots.get(*slot).is_some_and(|s| s.sends > 0 && !s.opts.oneway))
            }
            _ => None,
        };
        match found {
            Some(slot) => self.finish(slot, Ok(message)),
            None => self.stray += 1,
        }
        found.is_some()
    }

    /// Messages dropped so far because nobody waited for them.
    pub fn stray(&self) -> u64 {
        self.stray
    }

    /// The connection ended: calls that may be sent again are queued in their first order, others fail.
    pub fn on_disconnect(&mut self, err: &io::Error) {
        self.requeue(|| XprtError::Lost { maybe_ran: true, err: again(err) }, true);
    }

    /// The connection was closed because the peer breaks record marking. To send it the same again would do no good:
    /// every call that was sent fails.
    pub fn on_bad_stream(&mut self, err: RecordError) {
        self.requeue(|| XprtError::BadStream(err), false);
    }

    /// Every call that was sent fails; those that were not stay queued.
    pub fn fail_sent(&mut self, why: impl Fn() -> XprtError) {
        self.requeue(why, false);
    }

    fn requeue(&mut self, why: impl Fn() -> XprtError, resend: bool) {
        let mut keep = Vec::new();
        let mut lose = Vec::new();
        for (slot, s) in &mut self.slots {
            if !s.waits() {
                continue;
            }
            s.queued = s.sends == 0 || resend && s.opts.may_resend();
            if s.queued { keep.push((s.serial, slot)) } else { lose.push(slot) }
        }
        keep.sort_unstable();
        self.queue = keep.into_iter().map(|(_, slot)| slot).collect();
        lose.into_iter().for_each(|slot| self.finish(slot, Err(why())));
    }

    /// Fails calls whose time is over and queues those that are due to be sent again. `unreachable` is why the
    /// transport cannot send at present.
    pub fn expire(&mut self, now: Duration, unreachable: Option<&io::Error>) {
        if self.timer > now {
            return;
        }
        let mut over = Vec::new();
        self.timer = Duration::MAX;
        for (slot, s) in &mut self.slots {
            if !s.waits() {
                continue;
            }
            if s.deadline <= now {
                over.push((slot, s.sends));
                continue;
            }
            if s.again.is_some_and(|t| t <= now) && !s.queued {
                s.again = None;
                s.queued = true;
                self.queue.push_back(slot);
            }
            let again = s.again.filter(|_| !s.queued);
            self.timer = self.timer.min(again.unwrap_or(s.deadline)).min(s.deadline);
        }
        for (slot, sends) in over {
            let err = match unreachable {
                Some(e) if sends == 0 => XprtError::unreached(e),
                Some(e) => XprtError::Lost { maybe_ran: true, err: again(e) },
                None => XprtError::TimedOut { sends },
            };
            self.finish(slot, Err(err));
        }
    }

    /// When [`CallTable::expire`] may have something to do next; never later than it has.
    pub fn next_timer(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(self.timer)
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True if the call has ended and its outcome can be taken, or if it is unknown.
    pub fn is_done(&self, id: CallId) -> bool {
        self.get(id).is_none_or(|s| !s.waits())
    }

    /// Takes the outcome of a call that has ended; `None` while it waits.
    pub fn take(&mut self, id: CallId) -> Option<Outcome> {
        let Some(s) = self.get(id) else { return Some(Err(XprtError::NoSuchCall)) };
        if s.waits() {
            return None;
        }
        self.slots.try_remove(id.slot).and_then(|s| s.done)
    }

    /// Nobody wants the outcome any more. A reply that still comes is dropped.
    pub fn forget(&mut self, id: CallId) {
        if self.get(id).is_some() {
            self.end(id.slot, Err(XprtError::NoSuchCall));
            self.slots.try_remove(id.slot);
        }
    }

    fn get(&self, id: CallId) -> Option<&Slot> {
        self.slots.get(id.slot).filter(|s| s.serial == id.serial)
    }

    fn finish(&mut self, slot: usize, outcome: Outcome) {
        let ended = self.end(slot, outcome);
        if let (Some(all), Some(serial)) = (&mut self.ended, ended) {
            all.push(CallId { slot, serial });
        }
    }

    /// Ends a call that waits, and returns its serial number.
    fn end(&mut self, slot: usize, outcome: Outcome) -> Option<u64> {
        let s = self.slots.get_mut(slot).filter(|s| s.waits())?;
        if s.queued {
            s.queued = false;
            self.queue.retain(|q| *q != slot);
        }
        s.message = Vec::new();
        s.done = Some(outcome);
        self.waiting.remove(&s.xid);
        Some(s.serial)
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;

//! A worker thread: polls, and feeds the state machine.

use super::conn::Managed;
use super::mailbox::{Msg, WorkerMailbox};
use super::spin::{Lone, Spinner, spin};
use super::stats::{Board, PollStats, Shown, ThreadStats};
use crate::class::SendOptions;
use mio::{Events, Interest, Poll, Token};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sunrpc::svc::SvcWorker;
use sunrpc::xprt::{Xprt, XprtError, XprtId, bits};

/// The waker's token; transports use their slot, and there are never this many.
pub(super) const WAKE: Token = Token(usize::MAX);
/// Events taken from one poll.
pub(super) const EVENTS: usize = 256;
const TICK: Duration = Duration::from_secs(1);
/// How soon a call is offered again to a full helper queue.
const PARKED: Duration = Duration::from_millis(2);

pub(super) struct WorkerThread {
    pub(super) poll: Poll,
    pub(super) svc: SvcWorker<Managed>,
    pub(super) mailbox: Arc<WorkerMailbox>,
    pub(super) send: SendOptions,
    /// When the server started: zero of the clock that all its threads share.
    pub(super) start: Instant,
    pub(super) spinner: Spinner,
    pub(super) lone: Lone,
    pub(super) shown: Arc<Shown>,
    /// Where counters are asked for, and this thread's row.
    pub(super) board: Arc<Board>,
    pub(super) row: usize,
}

impl WorkerThread {
    /// The thread's life: returns when the server has stopped.
    pub(super) fn run(mut self) {
        let start = self.start;
        let mut events = Events::with_capacity(EVENTS);
        let mut next_tick = TICK;
        let mut deadline: Option<Duration> = None;
        let mut polls = PollStats::default();
        loop {
            let idle = start.elapsed();
            let busy = self.svc.has_ready() || self.mailbox.has_mail();
            let waiting = self.svc.has_parked() || deadline.is_some();
            let found = !busy && !waiting && self.spun(&mut events, &mut polls);
            if !found {
                self.watch();
                let timeout = if busy || !self.mailbox.may_sleep() {
                    Duration::ZERO
                } else if waiting {
                    PARKED
                } else {
                    polls.sleeps += 1;
                    self.show(&polls);
                    next_tick.saturating_sub(start.elapsed())
                };
                if let Err(e) = self.poll.poll(&mut events, Some(timeout))
                    && e.kind() != std::io::ErrorKind::Interrupted
                {
                    // Nothing can be served without events; this does not happen with valid descriptors.
                    tracing::error!("poll failed: {e}");
                    std::thread::sleep(PARKED);
                }
                self.mailbox.woke();
            }
            if !events.is_empty() {
                self.watch();
            }
            let of_xprts = || events.iter().filter(|ev| ev.token() != WAKE);
            self.lone.polled(of_xprts().map(|ev| ev.token().0 as u32));
            for ev in of_xprts() {
                let mut set = 0;
                if ev.is_readable() {
                    set |= bits::DATA;
                }
                if ev.is_writable() {
                    set |= bits::WSPACE;
                }
                if ev.is_error() {
                    set |= bits::ERRQ;
                }
                // Not is_write_closed, which mio also tells from the error flag alone, and with zero-copy that only means
                // completions.
                if ev.is_read_closed() {
                    set |= bits::HUP | bits::DATA;
                }
                self.svc.event(ev.token().0 as u32, set);
            }
            let now = start.elapsed();
            if !busy && !waiting {
                self.spinner.gap(now.saturating_sub(idle));
            }
            let now_ms = now.as_millis() as u64;
            while let Some(msg) = self.mailbox.pop() {
                match msg {
                    Msg::Conn(x) => self.adopt(*x, now_ms),
                    Msg::Done(d) => self.svc.deliver(d),
                    Msg::Evict(state) => {
                        if let Some(id) = state.id().filter(|_| state.doomed()) {
                            self.svc.close(id);
                        }
                    }
                    Msg::Stats => {
                        let number = self.board.asked();
                        self.board.pin(self.row, number, self.stats(&polls));
                    }
                    Msg::Stop(grace) => deadline = Some(now + grace),
                }
            }
            self.svc.run(now_ms);
            if now >= next_tick {
                self.svc.tick(now_ms);
                if self.row == 0 {
                    self.svc.pool().depot().tick();
                }
                self.show(&polls);
                next_tick = now + TICK;
            }
            self.account();
            if deadline.is_some_and(|d| now >= d || (self.svc.quiet() && !self.svc.has_ready())) {
                self.svc.close_all();
                self.account();
                self.show(&polls);
                self.board.pin_last(self.row, self.stats(&polls));
                return;
            }
        }
    }

    /// Spins if that is likely to pay; true if something happened, and then `events` are from now.
    fn spun(&mut self, events: &mut Events, polls: &mut PollStats) -> bool {
        let budget = self.spinner.budget();
        if budget.is_zero() {
            return false;
        }
        // What is told by events alone: room to write, and the end of sends by reference.
        if self.lone.away().and_then(|id| self.svc.xprt_mut(id)).is_some_and(|x| !flushed(x)) {
            self.watch();
        }
        polls.spins += 1;
        // An error shows again when the thread goes to sleep.
        let (svc, now) = (&mut self.svc, self.start.elapsed().as_millis() as u64);
        let look = |slot| svc.look(slot, now);
        let hit = spin(&mut self.poll, &self.mailbox, events, budget, &mut self.lone, look).unwrap_or(false);
        polls.spin_hits += u64::from(hit);
        self.spinner.spun(hit);
        if let Some(id) = self.lone.sure().and_then(|slot| self.svc.id(slot)) {
            polls.unwatched += u64::from(self.unwatch(id));
        }
        hit
    }

    /// Takes the transport that is looked at out of the poll; true if it has left.
    fn unwatch(&mut self, id: XprtId) -> bool {
        let Some(x) = self.svc.xprt_mut(id).filter(|x| flushed(x)) else { return false };
        let left = self.poll.registry().deregister(x.x.source()).is_ok();
        if left {
            self.lone.leaves(id);
        }
        left
    }

    /// Takes it back. What came meanwhile is an event of the next poll.
    fn watch(&mut self) {
        if let Some(id) = self.lone.returns() {
            self.register(id);
        }
    }

    fn show(&self, polls: &PollStats) {
        self.shown.show(&PollStats { wakeups: self.mailbox.wakeups(), ..*polls });
    }

    fn stats(&self, polls: &PollStats) -> ThreadStats {
        ThreadStats {
            worker: self.svc.stats(),
            send: self.svc.send_stats(),
            polls: PollStats { wakeups: self.mailbox.wakeups(), ..*polls },
            ..ThreadStats::of(self.svc.service(), self.svc.pool())
        }
    }

    fn adopt(&mut self, mut x: Managed, now: u64) {
        x.x.configure(&self.send);
        let state = x.state.clone();
        let id = self.svc.add(x, now);
        state.set_id(id);
        self.register(id);
    }

    fn register(&mut self, id: XprtId) {
        let token = Token(id.slot as usize);
        let Some(x) = self.svc.xprt_mut(id) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(e) = self.poll.registry().register(x.x.source(), token, interest) {
            tracing::warn!("cannot watch a connection: {e}");
            self.svc.close(id);
        }
    }

    fn account(&mut self) {
        for id in self.svc.take_validated() {
            if let Some(x) = self.svc.xprt_mut(id) {
                x.state.validate();
            }
        }
        for c in self.svc.take_closed() {
            match &c.why {
                XprtError::Eof | XprtError::Stopping | XprtError::Idle => {
                    tracing::debug!(peer = %c.peer, "closed: {}", c.why);
                }
                why => tracing::debug!(peer = %c.peer, validated = c.validated, "closed: {why}"),
            }
        }
    }
}

/// Nothing that was to be sent is left in its hands.
fn flushed(x: &Managed) -> bool {
    x.queued() == 0 && x.outstanding() == 0
}

//! Polling without sleeping for a moment, where the next event is likely to come sooner than a sleeping thread wakes.

use super::mailbox::WorkerMailbox;
use mio::{Events, Poll};
use std::io;
use std::time::{Duration, Instant};
use sunrpc::xprt::XprtId;

/// The limit of [`Builder::spin`](super::Builder::spin) that suits most machines: about what a wake-up and a switch of
/// threads cost a lone client, with some margin.
pub const SPIN_AUTO: Duration = Duration::from_micros(50);

/// Weight of the newest gap in the mean is one of so many.
const WEIGHT: u32 = 8;
/// A gap counts as at most so many limits: after a long silence about 16 short gaps have to be seen.
const CLAMP: u32 = 8;
/// Spins in vain may cost one try in so many idle moments.
const BACKOFF_MAX: u32 = 1024;

/// Decides whether spinning pays, from how long it took until something happened the last times.
#[derive(Debug)]
pub(super) struct Spinner {
    limit: Duration,
    /// Exponentially weighted mean of recent gaps between going idle and the next event.
    mean: Duration,
    /// Idle moments to pass over, and how many it will be after the next spin in vain. Where the peer needs this very
    /// processor, gaps are short only while nobody spins.
    skip: u32,
    backoff: u32,
}

impl Spinner {
    /// Spins at most `limit` at a time; zero is never.
    pub(super) fn new(limit: Duration) -> Self {
        Spinner { limit, mean: limit * CLAMP, skip: 0, backoff: 1 }
    }

    /// How long to spin at this idle moment; zero: sleep at once.
    pub(super) fn budget(&mut self) -> Duration {
        if self.mean >= self.limit {
            return Duration::ZERO;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Duration::ZERO;
        }
        self.limit
    }

    /// Something happened, or a time-out passed, `gap` after the worker went idle.
    pub(super) fn gap(&mut self, gap: Duration) {
        let gap = gap.min(self.limit * CLAMP);
        self.mean = self.mean - self.mean / WEIGHT + gap / WEIGHT;
    }

    /// How a spin ended.
    pub(super) fn spun(&mut self, hit: bool) {
        if hit {
            self.backoff = 1;
        } else {
            self.skip = self.backoff;
            self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        }
    }
}

/// Times that a worker looks at one transport before it polls for all: about 10 us. Only then does it look at the clock.
const LOOKS: u32 = 32;
/// Looks that must have found something before the transport leaves the poll: to leave and to return are a system call each.
const SURE: u32 = 64;

/// The transport that alone had something to say last. To look at it costs less than a poll, and finds a call sooner.
///
/// After many such looks it leaves the poll: as long as it is there, whoever sends to it pays for an event that nobody waits
/// for. It must be back before anything but a look is to find what it has to say.
#[derive(Debug, Default)]
pub(super) struct Lone {
    slot: Option<u32>,
    looks: u32,
    /// Looks that found something, since a poll found another one.
    hits: u32,
    /// The transport that has left the poll.
    away: Option<XprtId>,
}

impl Lone {
    /// The slots of what a poll found, if there was one that found anything.
    pub(super) fn polled(&mut self, mut slots: impl Iterator<Item = u32>) {
        if let Some(first) = slots.next() {
            let slot = slots.next().is_none().then_some(first);
            // What a look found is an event, too, which the next poll tells: the same transport may go on.
            if slot != self.slot {
                self.hits = 0;
            }
            self.looks = 0;
            self.slot = slot;
        }
    }

    /// The slot to look at now; none if a poll is due.
    fn due(&mut self) -> Option<u32> {
        let slot = self.slot.filter(|_| self.looks < LOOKS)?;
        self.looks += 1;
        Some(slot)
    }

    fn looked(&mut self, found: bool) {
        self.hits = self.hits.saturating_add(u32::from(found));
    }

    /// The slot of the transport that may leave the poll.
    pub(super) fn sure(&self) -> Option<u32> {
        self.slot.filter(|_| self.hits >= SURE && self.away.is_none())
    }

    /// The transport that has left the poll, and did not come back.
    pub(super) fn away(&self) -> Option<XprtId> {
        self.away
    }

    pub(super) fn leaves(&mut self, id: XprtId) {
        self.away = Some(id);
    }

    /// Names the transport that must come back now.
    pub(super) fn returns(&mut self) -> Option<XprtId> {
        let id = self.away.take()?;
        self.hits = 0;
        Some(id)
    }
}

/// Looks and polls without sleeping until there are events or mail, `look` finds something, or the budget is spent; true if
/// there is something. The mailbox knows the worker as awake all the time, so mail costs its sender no wake-up.
pub(super) fn spin(
    poll: &mut Poll,
    mailbox: &WorkerMailbox,
    events: &mut Events,
    budget: Duration,
    lone: &mut Lone,
    mut look: impl FnMut(u32) -> bool,
) -> io::Result<bool> {
    let since = Instant::now();
    events.clear();
    loop {
        let found = match lone.due() {
            Some(slot) => {
                let found = look(slot);
                lone.looked(found);
                found
            }
            None => {
                lone.looks = 0;
                match poll.poll(events, Some(Duration::ZERO)) {
                    Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                    _ if events.is_empty() && since.elapsed() >= budget => return Ok(mailbox.has_mail()),
                    _ => !events.is_empty(),
                }
            }
        };
        if found || mailbox.has_mail() {
            return Ok(true);
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::super::mailbox::Msg;
    use super::super::worker::WAKE;
    use super::*;
    use mio::Waker;
    use std::sync::Arc;

    const SHORT: Duration = Duration::from_micros(5);
    const LIMIT: Duration = Duration::from_micros(50);

    #[test]
    fn spins_after_short_gaps_and_stops_after_one_long_one() {
        let mut s = Spinner::new(LIMIT);
        assert_eq!(s.budget(), Duration::ZERO, "nothing is known yet");
        let mut n = 0;
        while s.budget().is_zero() {
            s.gap(SHORT);
            n += 1;
            assert!(n < 40, "short gaps convince");
        }
        assert!(n > 8, "a few do not");
        assert_eq!(s.budget(), LIMIT);
        s.gap(Duration::from_secs(1));
        assert_eq!(s.budget(), Duration::ZERO);
    }

    #[test]
    fn off_never_spins() {
        let mut s = Spinner::new(Duration::ZERO);
        for _ in 0..100 {
            s.gap(Duration::ZERO);
            assert_eq!(s.budget(), Duration::ZERO);
        }
    }

    #[test]
    fn spins_in_vain_become_rare() {
        let mut s = Spinner::new(LIMIT);
        let mut spins = 0;
        for _ in 0..10_000 {
            if !s.budget().is_zero() {
                spins += 1;
                s.spun(false);
            }
            s.gap(SHORT);
        }
        assert!((5..30).contains(&spins), "{spins} spins in vain");
        while s.budget().is_zero() {}
        s.spun(true);
        assert!(!s.budget().is_zero(), "a hit counts for all misses before it");
        s.spun(false);
        assert!(s.budget().is_zero() && !s.budget().is_zero());
    }

    #[test]
    fn a_lone_transport_is_looked_at_and_the_others_are_polled_in_between() {
        let mut lone = Lone::default();
        assert_eq!(lone.due(), None, "nothing is known yet");
        lone.polled([7].into_iter());
        for _ in 0..LOOKS {
            assert_eq!(lone.due(), Some(7));
            // Looks that find something are followed by no poll.
            lone.polled([].into_iter());
        }
        assert_eq!(lone.due(), None, "a poll is due");
        lone.polled([7].into_iter());
        assert_eq!(lone.due(), Some(7));
        lone.polled([7, 8].into_iter());
        assert_eq!(lone.due(), None);
    }

    #[test]
    fn only_looks_that_find_something_let_it_leave() {
        let mut lone = Lone::default();
        let id = XprtId { slot: 7, generation: 3 };
        lone.polled([8].into_iter());
        (0..SURE).for_each(|_| lone.looked(true));
        assert_eq!(lone.sure(), Some(8));
        lone.polled([7].into_iter());
        for _ in 1..SURE {
            lone.looked(false);
            lone.looked(true);
            lone.polled([7].into_iter());
        }
        assert_eq!((lone.sure(), lone.returns()), (None, None));
        lone.looked(true);
        assert_eq!(lone.sure(), Some(7));
        lone.leaves(id);
        assert_eq!((lone.sure(), lone.away()), (None, Some(id)));
        assert_eq!(lone.returns(), Some(id));
        assert_eq!((lone.sure(), lone.away(), lone.returns()), (None, None, None));
    }

    #[test]
    fn mail_ends_a_spin_without_a_wake_up() {
        let mut poll = Poll::new().unwrap();
        let mailbox = Arc::new(WorkerMailbox::new(Waker::new(poll.registry(), WAKE).unwrap()));
        let mut events = Events::with_capacity(4);
        let mut lone = Lone::default();
        let mut spin = |budget| spin(&mut poll, &mailbox, &mut events, budget, &mut lone, |_| false).unwrap();
        assert!(!spin(Duration::ZERO));
        let sender = mailbox.clone();
        let t = std::thread::spawn(move || sender.send(Msg::Stop(Duration::ZERO)));
        assert!(spin(Duration::from_secs(600)));
        t.join().unwrap();
        assert!(events.is_empty() && mailbox.pop().is_some());
        assert_eq!(mailbox.wakeups(), 0);
        // One that sleeps is woken.
        assert!(mailbox.may_sleep());
        mailbox.send(Msg::Stop(Duration::ZERO));
        assert_eq!(mailbox.wakeups(), 1);
    }
}

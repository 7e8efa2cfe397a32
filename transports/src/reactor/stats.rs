//! Counters that a worker shows to others.

use std::sync::atomic::{AtomicU64, Ordering};
use sunrpc::svc::WorkerStats;

/// What the workers of a server did since it started, summed. A worker tells before it sleeps, and about once a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Of the state machines and their transports.
    pub svc: WorkerStats,
    /// Polls that were permitted to sleep.
    pub sleeps: u64,
    /// Times that a worker polled without sleeping before it would have slept; see [`Builder::spin`](super::Builder::spin).
    pub spins: u64,
    /// Those in which something happened.
    pub spin_hits: u64,
    /// System calls that woke a worker for a message of another thread.
    pub wakeups: u64,
}

/// How many numbers there are.
const N: usize = 15;

impl ServerStats {
    fn numbers(&self) -> [u64; N] {
        // All by name: a new counter does not compile until it is here.
        let WorkerStats {
            opened,
            closed,
            turns,
            records,
            offloaded,
            offload_full,
            delivered,
            orphaned,
            no_pages,
            ignored,
            unsent,
        } = self.svc;
        let ServerStats { svc: _, sleeps, spins, spin_hits, wakeups } = *self;
        [
            opened,
            closed,
            turns,
            records,
            offloaded,
            offload_full,
            delivered,
            orphaned,
            no_pages,
            ignored,
            unsent,
            sleeps,
            spins,
            spin_hits,
            wakeups,
        ]
    }

    fn of(n: [u64; N]) -> Self {
        let [
            opened,
            closed,
            turns,
            records,
            offloaded,
            offload_full,
            delivered,
            orphaned,
            no_pages,
            ignored,
            unsent,
            sleeps,
            spins,
            spin_hits,
            wakeups,
        ] = n;
        let svc = WorkerStats {
            opened,
            closed,
            turns,
            records,
            offloaded,
            offload_full,
            delivered,
            orphaned,
            no_pages,
            ignored,
            unsent,
        };
        ServerStats { svc, sleeps, spins, spin_hits, wakeups }
    }
}

/// Where one worker shows its counters. Only it writes; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Board([AtomicU64; N]);

impl Board {
    pub(super) fn show(&self, stats: &ServerStats) {
        // Counters stand alone, so readers may see some newer than others.
        self.0.iter().zip(stats.numbers()).for_each(|(to, n)| to.store(n, Ordering::Relaxed));
    }

    fn read(&self) -> [u64; N] {
        std::array::from_fn(|i| self.0.get(i).map_or(0, |n| n.load(Ordering::Relaxed)))
    }
}

/// The sum of all boards.
pub(super) fn sum<'a>(boards: impl Iterator<Item = &'a Board>) -> ServerStats {
    let mut all = [0; N];
    for b in boards {
        all.iter_mut().zip(b.read()).for_each(|(sum, n)| *sum += n);
    }
    ServerStats::of(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_keeps_its_name() {
        let mut counting = [0; N];
        counting.iter_mut().zip(1..).for_each(|(to, n)| *to = n);
        let stats = ServerStats::of(counting);
        assert_eq!((stats.svc.opened, stats.svc.unsent, stats.wakeups), (1, 11, 15));
        let boards = [Board::default(), Board::default()];
        boards.iter().for_each(|b| b.show(&stats));
        assert_eq!(sum(boards.iter()).numbers(), counting.map(|n| 2 * n));
    }
}

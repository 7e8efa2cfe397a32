//! Counters of a running server, asked for from outside.
//!
//! Threads count in plain fields of their own. Whoever wants to know raises the number of the question and wakes them;
//! each thread then pins a copy to the board, between two turns or two jobs. So nothing is shared, and next to nothing
//! is done, while nobody asks.

use super::helpers::Helpers;
use super::mailbox::{Msg, WorkerMailbox};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sunrpc::counters;
use sunrpc::drc::DrcStats;
use sunrpc::page::{PageDepot, PagePool, PoolStats, leaked};
use sunrpc::stats::{Counters, Gauge};
use sunrpc::svc::{ProcCounts, Service, ServiceStats, WorkerStats};
use sunrpc::xprt::SendStats;

/// How long the threads have to answer.
const PATIENCE: Duration = Duration::from_secs(1);

counters! {
    /// Pages of one thread at this moment.
    pub struct PagesNow {
        /// Pages held and not in use.
        pub held: Gauge,
    }
}

counters! {
    /// What the polls of a worker did.
    pub struct PollStats {
        /// Polls that were permitted to sleep.
        pub sleeps: u64,
        /// Times that a worker polled without sleeping before it would have slept; see
        /// [`Builder::spin`](super::Builder::spin).
        pub spins: u64,
        /// Those in which something happened.
        pub spin_hits: u64,
        /// System calls that woke a worker for a message of another thread.
        pub wakeups: u64,
        /// Times that a transport was taken out of the poll because looking at it was enough.
        pub unwatched: u64,
    }
}

/// Where one worker shows what its polls did, to whoever must not wake it. Only it writes; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shown([AtomicU64; 5]);

impl Shown {
    pub(super) fn show(&self, p: &PollStats) {
        // Counters stand alone, so readers may see some newer than others.
        let numbers = [p.sleeps, p.spins, p.spin_hits, p.wakeups, p.unwatched];
        self.0.iter().zip(numbers).for_each(|(to, n)| to.store(n, Ordering::Relaxed));
    }

    pub(super) fn read(&self) -> PollStats {
        let [sleeps, spins, spin_hits, wakeups, unwatched] =
            self.0.each_ref().map(|n| n.load(Ordering::Relaxed));
        PollStats { sleeps, spins, spin_hits, wakeups, unwatched }
    }
}

counters! {
    /// Pages that no thread holds, and those of all.
    pub struct DepotStats {
        /// Pages cut from slabs: all there are.
        pub cut: Gauge,
        /// Pages that lie in the depot.
        pub free: Gauge,
        /// Most pages that may be cut.
        pub limit: Gauge,
        /// Pages lost by all servers of this process.
        pub leaked: u64,
    }
}

/// What counters are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// Pages, and what replies are made of.
    Pages,
    /// Turns, records, calls.
    Work,
}

/// What one thread counted since the server started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStats {
    /// The thread's name: `rpc-N` for workers, `rpc-help-N` for helpers, unless the server was given another.
    pub name: String,
    /// False if the thread did not answer in time: it is busy, or ended by a fault. The numbers are its last ones.
    pub current: bool,
    /// Turns and transports; zeros for helpers.
    pub worker: WorkerStats,
    /// Polls; zeros for helpers. A question wakes, so it is among them.
    pub polls: PollStats,
    /// Calls.
    pub service: ServiceStats,
    /// Calls by procedure, in the same order for every thread; empty as long as a thread has not answered.
    pub procedures: Vec<ProcCounts>,
    /// Pages.
    pub pool: PoolStats,
    /// Pages at the time of the answer.
    pub pages_now: PagesNow,
    /// Replies on their way into streams; zeros for helpers.
    pub send: SendStats,
}

impl ThreadStats {
    pub(super) fn of(service: &Service, pool: &PagePool) -> Self {
        ThreadStats {
            service: service.stats(),
            procedures: service.procedures().collect(),
            pool: pool.stats(),
            pages_now: PagesNow { held: Gauge(pool.held() as u64) },
            ..ThreadStats::default()
        }
    }

    /// All counters but those of procedures, each with what to put before its names. A struct of counters that is added
    /// here shows in every listing.
    pub fn groups(&self) -> Vec<(Group, &'static str, &dyn Counters)> {
        vec![
            (Group::Pages, "", &self.pool),
            (Group::Pages, "", &self.pages_now),
            (Group::Pages, "send_", &self.send),
            (Group::Work, "", &self.polls),
            (Group::Work, "", &self.worker),
            (Group::Work, "", &self.service),
        ]
    }
}

/// What a server counted since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Of each thread: workers, then helpers. Empty before the server runs.
    pub threads: Vec<ThreadStats>,
    /// Of the duplicate request cache; zeros if there is none.
    pub drc: DrcStats,
    /// Bytes in the duplicate request cache.
    pub drc_bytes: u64,
    /// Of the pages that all threads share.
    pub depot: DepotStats,
}

impl ServerStats {
    /// Turns and transports of all threads.
    pub fn worker(&self) -> WorkerStats {
        self.threads.iter().fold(WorkerStats::default(), |mut all, t| {
            all.add(&t.worker);
            all
        })
    }
}

/// The threads that can be asked.
#[derive(Clone)]
struct Threads {
    workers: Vec<Arc<WorkerMailbox>>,
    helpers: Arc<Helpers>,
}

/// Of a thread that has ended: its numbers stay what they are.
const LAST: u64 = u64::MAX;

#[derive(Default)]
struct State {
    /// By thread: the number of the question answered last, and the answer.
    rows: Vec<(u64, ThreadStats)>,
    /// `None` before and after the server runs.
    threads: Option<Threads>,
    depot: Option<(Arc<PageDepot>, usize)>,
}

/// Where threads pin their counters.
#[derive(Default)]
pub(super) struct Board {
    /// Number of the latest question.
    asked: AtomicU64,
    state: Mutex<State>,
    pinned: Condvar,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Rows are replaced whole, so the state is valid whatever happened to its last holder.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server runs, with so many helpers.
    pub(super) fn open(
        &self,
        name: &str,
        workers: Vec<Arc<WorkerMailbox>>,
        helpers: (Arc<Helpers>, usize),
        depot: (Arc<PageDepot>, usize),
    ) {
        let (helpers, n) = helpers;
        let names = (0..workers.len()).map(|i| format!("{name}-{i}"));
        let names = names.chain((0..n).map(|i| format!("{name}-help-{i}")));
        let mut s = self.lock();
        s.rows = names.map(|name| (0, ThreadStats { name, ..ThreadStats::default() })).collect();
        s.threads = Some(Threads { workers, helpers });
        s.depot = Some(depot);
    }

    /// Nobody will answer any more.
    pub(super) fn close(&self) {
        self.lock().threads = None;
        self.pinned.notify_all();
    }

    /// Number of the latest question, to be read before the answer is made.
    #[inline]
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Answers question `number` for the thread in row `at`.
    pub(super) fn pin(&self, at: usize, number: u64, stats: ThreadStats) {
        if let Some(row) = self.lock().rows.get_mut(at) {
            let name = std::mem::take(&mut row.1.name);
            *row = (number, ThreadStats { name, ..stats });
        }
        self.pinned.notify_all();
    }

    /// The last answer of a thread that ends.
    pub(super) fn pin_last(&self, at: usize, stats: ThreadStats) {
        self.pin(at, LAST, stats);
    }

    /// Asks all threads, and waits for their answers for a second at most.
    pub(super) fn ask(&self) -> (Vec<ThreadStats>, DepotStats) {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let threads = self.lock().threads.clone();
        if let Some(t) = &threads {
            t.workers.iter().for_each(|w| w.send(Msg::Stats));
            t.helpers.ask();
        }
        let missing = |s: &mut State| s.threads.is_some() && s.rows.iter().any(|(n, _)| *n < number);
        let waited = self.pinned.wait_timeout_while(self.lock(), PATIENCE, missing);
        let (s, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let all = s.rows.iter().map(|(n, t)| ThreadStats { current: *n >= number, ..t.clone() }).collect();
        let depot = s.depot.as_ref().map(|(d, limit)| DepotStats {
            cut: Gauge(d.cut() as u64),
            free: Gauge(d.free() as u64),
            limit: Gauge(*limit as u64),
            leaked: leaked(),
        });
        (all, depot.unwrap_or_default())
    }
}

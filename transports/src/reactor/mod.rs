//! The reactor: a thread per core, an acceptor, helper threads.
//!
//! ```text
//!            accept            deal by load                 would block
//! clients -> acceptor ------------------------> worker 0..n ------------> helpers
//!                                                  ^   |                     |
//!                                                  |   +-- poll, turns       |
//!                                                  +------- mailbox ---------+
//! ```

mod acceptor;
mod conn;
mod helpers;
mod mailbox;
mod spin;
mod stats;
mod worker;

use crate::class::{self, Endpoint, ListenError, PolledXprt, SendOptions, Zerocopy};
use acceptor::{Acceptor, ConnLimits};
use conn::{ConnState, Managed, Totals};
use helpers::Helpers;
use mailbox::{Msg, WorkerMailbox};
use mio::{Poll, Waker};
pub use spin::SPIN_AUTO;
use spin::{Lone, Spinner};
use stats::{Board, Shown};
pub use stats::{DepotStats, Group, PagesNow, PollStats, ServerStats, ThreadStats};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sunrpc::auth::AuthFlavor;
use sunrpc::drc::{Drc, DrcLimits, DrcStats};
use sunrpc::mutate;
use sunrpc::page::{Page, PageDepot, PagePool, PageSource};
use sunrpc::svc::{Program, Service, SvcLimits, SvcWorker};
use worker::{WAKE, WorkerThread};

/// Why a server could not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An endpoint could not be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Without an endpoint there is nothing to serve.
    #[error("no endpoint to listen on; call listen(\"tcp://[::]:PORT\") first")]
    NoEndpoint,
    /// A program could not be attached to a thread.
    #[error("cannot start: {0}")]
    Attach(Box<dyn std::error::Error + Send + Sync>),
    /// The system refused threads or polls.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
    /// A thread ended by a fault of its own.
    #[error("a server thread failed; see the log")]
    Thread,
}

/// What a server is made of.
pub struct Builder {
    name: &'static str,
    programs: Vec<Arc<dyn Program>>,
    endpoints: Vec<Endpoint>,
    threads: usize,
    helpers: usize,
    pin: bool,
    limits: SvcLimits,
    conns: ConnLimits,
    max_pages: usize,
    recycling: bool,
    drc: DrcLimits,
    spin: Duration,
    send: SendOptions,
    flavors: Vec<NewFlavor>,
}

/// Makes a thread's instance of a flavor.
type NewFlavor = Arc<dyn Fn() -> Box<dyn AuthFlavor> + Send + Sync>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("threads", &self.threads)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A server that is ready to run.
pub struct Server {
    builder: Builder,
    /// What receives datagrams, by worker.
    datagrams: Vec<Vec<Box<dyn PolledXprt>>>,
    drc: Option<Arc<Drc>>,
    board: Arc<Board>,
    /// Where the workers show what their polls did.
    shown: Arc<[Arc<Shown>]>,
    stop: mpsc::Sender<Duration>,
    stopped: mpsc::Receiver<Duration>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("builder", &self.builder).finish_non_exhaustive()
    }
}

/// Stops and observes a running server, from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    stop: mpsc::Sender<Duration>,
    drc: Option<Arc<Drc>>,
    board: Arc<Board>,
    shown: Arc<[Arc<Shown>]>,
}

impl Handle {
    /// What the duplicate request cache did so far; zeros if there is none.
    pub fn duplicate_cache(&self) -> DrcStats {
        self.drc.as_ref().map(|d| d.stats()).unwrap_or_default()
    }

    /// What the server counted since it started. Asks every thread, and waits for at most a second: a thread that is
    /// busy for longer is marked as not [`current`](ThreadStats::current). After the end of the server, its last
    /// numbers. Not to be called by a worker of the same server, which would wait for itself.
    pub fn stats(&self) -> ServerStats {
        let (threads, depot) = self.board.ask();
        let drc_bytes = self.drc.as_ref().map_or(0, |d| d.bytes() as u64);
        ServerStats { threads, drc: self.duplicate_cache(), drc_bytes, depot }
    }

    /// What the polls of all workers did. Asks nobody, so it disturbs nobody: a worker shows its numbers before it sleeps,
    /// and about once a second.
    pub fn polls(&self) -> PollStats {
        self.shown.iter().fold(PollStats::default(), |mut all, s| {
            all.add(&s.read());
            all
        })
    }

    /// Stops accepting, finishes the calls in progress for at most `grace`, closes everything; then
    /// [`Server::run`] returns.
    pub fn stop(&self, grace: Duration) {
        // A server that has ended already needs no stopping.
        let _ = self.stop.send(grace);
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl Builder {
    /// Offers a program.
    pub fn program(self, p: impl Program) -> Self {
        self.shared_program(Arc::new(p))
    }

    /// Offers a program that is shared already.
    pub fn shared_program(mut self, p: Arc<dyn Program>) -> Self {
        self.programs.push(p);
        self
    }

    /// Listens at a URL such as `tcp://[::]:2049`. May be called repeatedly. Port 0 takes a free one; see
    /// [`Server::urls`].
    pub fn listen(self, url: &str) -> Result<Self, ListenError> {
        Ok(self.endpoint(class::listen(url)?))
    }

    /// Serves an endpoint that is open already.
    pub fn endpoint(mut self, e: Endpoint) -> Self {
        self.endpoints.push(e);
        self
    }

    /// What the names of its threads begin with (default `rpc`), so that the servers of a process are told apart. The
    /// system shows 15 bytes of a name, so 7 of these.
    pub fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Worker threads; 0, the default, means one for each core.
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = n;
        self
    }

    /// Helper threads for calls that wait; 0, the default, means two for each worker.
    pub fn helpers(mut self, n: usize) -> Self {
        self.helpers = n;
        self
    }

    /// Binds each worker to a core of its own.
    pub fn pin(mut self, yes: bool) -> Self {
        self.pin = yes;
        self
    }

    /// How long a worker may poll without sleeping before it sleeps; zero, the default, is not at all. It does so only
    /// while recent events came within that time of its going idle, so an idle server never spins. A lone client that
    /// waits for each reply is then served without the cost of a wake-up, and a busy processor is the price:
    /// [`SPIN_AUTO`] is a good limit where latency matters. Spins in vain make further ones rare, as where the client
    /// needs the same processor.
    pub fn spin(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// Bounds of the service loop.
    pub fn limits(mut self, limits: SvcLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Connections that no call has validated yet (default 1024); the oldest of them makes room.
    pub fn max_unvalidated(mut self, n: usize) -> Self {
        self.conns.unvalidated = n.max(1);
        self
    }

    /// All connections (default 65536) and those of one peer address (default half of it).
    pub fn max_connections(mut self, total: usize, per_peer: usize) -> Self {
        (self.conns.total, self.conns.per_peer) = (total.max(1), per_peer.max(1));
        self
    }

    /// Pages of 4 KiB that requests and replies may occupy (default 262144 = 1 GiB).
    pub fn max_pages(mut self, n: usize) -> Self {
        self.max_pages = n;
        self
    }

    /// Whether pages are used again as they are (default), or their memory goes back to the kernel after each use; that
    /// is for measurements.
    pub fn recycling(mut self, yes: bool) -> Self {
        self.recycling = yes;
        self
    }

    /// Bounds of the duplicate request cache (default 8 MiB, results up to 512 bytes, 120 seconds). With no bytes
    /// there is none, and a call that comes again runs again.
    pub fn duplicate_cache(mut self, limits: DrcLimits) -> Self {
        self.drc = limits;
        self
    }

    /// Understands a further flavor; `new` makes an instance for each worker and helper. AUTH_NONE and AUTH_SYS are
    /// always understood.
    pub fn flavor(mut self, new: impl Fn() -> Box<dyn AuthFlavor> + Send + Sync + 'static) -> Self {
        self.flavors.push(Arc::new(new));
        self
    }

    /// Whether large replies over TCP are sent by reference to their pages. Off by default: what the kernel copies all
    /// the same, as on loopback, costs more that way.
    pub fn zerocopy(mut self, when: Zerocopy) -> Self {
        self.send.zerocopy = when;
        self
    }

    /// Makes the server. Endpoints are open already; calls wait in the kernel until [`Server::run`].
    pub fn build(mut self) -> Result<Server, ServeError> {
        if self.endpoints.is_empty() {
            return Err(ServeError::NoEndpoint);
        }
        if self.threads == 0 {
            self.threads = cores();
        }
        let mut datagrams = Vec::new();
        datagrams.resize_with(self.threads, Vec::new);
        for e in &mut self.endpoints {
            let Endpoint::Datagrams(d) = e else { continue };
            for of_worker in &mut datagrams {
                of_worker.push(d.open().map_err(|err| ListenError::Io { url: d.url(), err })?);
            }
        }
        let (stop, stopped) = mpsc::channel();
        let drc = (self.drc.bytes > 0).then(|| Drc::new(self.drc));
        let board = Arc::default();
        let shown = (0..self.threads).map(|_| Arc::default()).collect();
        Ok(Server { builder: self, datagrams, drc, board, shown, stop, stopped })
    }

    /// Builds and runs.
    pub fn run(self) -> Result<(), ServeError> {
        self.build()?.run()
    }
}

impl Server {
    /// An empty server to be described.
    pub fn builder() -> Builder {
        Builder {
            name: "rpc",
            programs: Vec::new(),
            endpoints: Vec::new(),
            threads: 0,
            helpers: 0,
            pin: false,
            limits: SvcLimits::default(),
            conns: ConnLimits { total: 65_536, per_peer: 32_768, unvalidated: 1024 },
            max_pages: 262_144,
            recycling: true,
            drc: DrcLimits::default(),
            spin: Duration::ZERO,
            send: SendOptions::default(),
            flavors: Vec::new(),
        }
    }

    /// Where the server listens, as URLs for clients.
    pub fn urls(&self) -> Vec<String> {
        self.builder.endpoints.iter().map(Endpoint::url).collect()
    }

    /// Number and version of each program offered.
    pub fn programs(&self) -> Vec<(u32, u32)> {
        let versions = |p: &Arc<dyn Program>| {
            let number = p.number();
            p.versions().iter().map(|v| (number, v.vers)).collect::<Vec<_>>()
        };
        self.builder.programs.iter().flat_map(versions).collect()
    }

    /// A handle that stops the server.
    pub fn handle(&self) -> Handle {
        let (board, shown) = (self.board.clone(), self.shown.clone());
        Handle { stop: self.stop.clone(), drc: self.drc.clone(), board, shown }
    }

    /// Serves until [`Handle::stop`].
    pub fn run(self) -> Result<(), ServeError> {
        let b = self.builder;
        let threads = b.threads;
        let n_helpers = if b.helpers == 0 { 2 * threads } else { b.helpers };
        let depot = PageDepot::with_recycling(MappedSource, b.max_pages, b.recycling);
        let board = self.board;
        let helpers = Helpers::new(board.clone());
        let totals = Arc::new(Totals::default());
        let drc = self.drc;
        let start = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready_tx, ready_rx) = mpsc::channel();
        let spin = b.spin;

        let mut workers = Vec::new();
        let mut joins: Vec<JoinHandle<()>> = Vec::new();
        for (i, shown) in self.shown.iter().cloned().enumerate() {
            let poll = Poll::new()?;
            let mailbox = Arc::new(WorkerMailbox::new(Waker::new(poll.registry(), WAKE)?));
            workers.push(mailbox.clone());
            let (programs, flavors) = (b.programs.clone(), b.flavors.clone());
            let (depot, helpers) = (depot.clone(), helpers.clone());
            let (ready, limits, pin, drc) = (ready_tx.clone(), b.limits, b.pin, drc.clone());
            let board = board.clone();
            let send = b.send;
            joins.push(thread::Builder::new().name(format!("{}-{i}", b.name)).spawn(move || {
                if pin {
                    pin_to(i);
                }
                let service = match attach(&programs, &flavors, drc) {
                    Ok(s) => s,
                    Err(e) => return drop(ready.send(Err(e))),
                };
                let svc = SvcWorker::new(service, PagePool::new(depot), limits, mailbox.clone(), helpers);
                let _ = ready.send(Ok(()));
                drop(ready);
                let spinner = Spinner::new(spin);
                let lone = Lone::default();
                WorkerThread { poll, svc, mailbox, send, start, spinner, lone, shown, board, row: i }.run();
            })?);
        }
        let mut helper_joins = Vec::new();
        for i in 0..n_helpers {
            let (programs, flavors) = (b.programs.clone(), b.flavors.clone());
            let (depot, helpers) = (depot.clone(), helpers.clone());
            let (ready, drc) = (ready_tx.clone(), drc.clone());
            helper_joins.push(thread::Builder::new().name(format!("{}-help-{i}", b.name)).spawn(
                move || match attach(&programs, &flavors, drc) {
                    Ok(s) => {
                        let _ = ready.send(Ok(()));
                        drop(ready);
                        helpers.run(s, depot, start, threads + i);
                    }
                    Err(e) => drop(ready.send(Err(e))),
                },
            )?);
        }
        drop(ready_tx);

        let mut failed = None;
        for r in ready_rx {
            if let Err(e) = r {
                failed = Some(ServeError::Attach(e));
            }
        }
        let acceptor = if failed.is_none() {
            for (i, (w, of_worker)) in workers.iter().zip(self.datagrams).enumerate() {
                for x in of_worker {
                    w.send(Msg::Conn(Box::new(Managed { x, state: ConnState::fixed(i) })));
                }
            }
            let listeners = b.endpoints.into_iter().filter_map(|e| match e {
                Endpoint::Listener(l) => Some(l),
                Endpoint::Datagrams(_) => None,
            });
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), WAKE)?;
            let a = Acceptor {
                poll,
                listeners: listeners.collect(),
                workers: workers.clone(),
                limits: b.conns,
                stop: stop.clone(),
                totals,
            };
            let join = thread::Builder::new().name(format!("{}-accept", b.name)).spawn(move || a.run())?;
            board.open(b.name, workers.clone(), (helpers.clone(), n_helpers), (depot.clone(), b.max_pages));
            Some((join, waker))
        } else {
            None
        };
        let grace = match failed {
            // The sender lives in `self.stop` and in handles, so this waits.
            None => self.stopped.recv().unwrap_or(Duration::ZERO),
            Some(_) => Duration::ZERO,
        };
        drop(self.stop);
        stop.store(true, Ordering::SeqCst);
        let mut panicked = false;
        if let Some((join, waker)) = acceptor {
            waker.wake()?;
            panicked |= join.join().is_err();
        }
        workers.iter().for_each(|w| w.send(Msg::Stop(grace)));
        for j in joins {
            panicked |= j.join().is_err();
        }
        helpers.stop();
        for j in helper_joins {
            panicked |= j.join().is_err();
        }
        board.close();
        match failed {
            Some(e) => Err(e),
            None if panicked => Err(ServeError::Thread),
            None => Ok(()),
        }
    }
}

/// The calling thread's entry into the programs.
fn attach(
    programs: &[Arc<dyn Program>],
    flavors: &[NewFlavor],
    drc: Option<Arc<Drc>>,
) -> Result<Service, Box<dyn std::error::Error + Send + Sync>> {
    let mut service = Service::attach(programs)?;
    flavors.iter().for_each(|new| service.add_flavor(new()));
    let drc = if mutate::on("drc-per-worker") { Some(Drc::new(DrcLimits::default())) } else { drc };
    if let Some(drc) = drc {
        service.set_duplicate_cache(drc);
    }
    Ok(service)
}

/// Binds the calling thread to the `i`-th core that it may use.
fn pin_to(i: usize) {
    let pinned = sunrpc_sys::thread::allowed_cpus().and_then(|cpus| match cpus.get(i % cpus.len().max(1)) {
        Some(cpu) => sunrpc_sys::thread::pin(*cpu),
        None => Ok(()),
    });
    if let Err(e) = pinned {
        tracing::warn!("worker {i} is not pinned to a core: {e}");
    }
}

/// Page slabs straight from the kernel, so that idle pages can go back to it.
struct MappedSource;

impl PageSource for MappedSource {
    fn slab(&self, len: usize) -> Option<&'static mut [u8]> {
        sunrpc_sys::slab::anonymous(len)
    }

    fn idle(&self, pages: &mut [Page]) {
        sunrpc_sys::slab::discard(pages);
    }
}

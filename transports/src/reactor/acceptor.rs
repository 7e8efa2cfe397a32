//! The acceptor: takes connections and deals them to the least loaded worker.

use super::conn::{ConnState, Managed, Totals};
use super::mailbox::{Msg, WorkerMailbox};
use super::worker::WAKE;
use crate::class::Listener;
use mio::{Events, Interest, Poll, Token};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use sunrpc::mutate;
use sunrpc::xprt::{PeerAddr, Xprt};

/// How long accepting rests after the system ran out of descriptors or memory.
const BACKOFF: Duration = Duration::from_millis(100);

/// Bounds on connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnLimits {
    /// All connections.
    pub(super) total: usize,
    /// Connections of one peer address.
    pub(super) per_peer: usize,
    /// Connections that no call has validated; the oldest makes room.
    pub(super) unvalidated: usize,
}

pub(super) struct Acceptor {
    pub(super) poll: Poll,
    pub(super) listeners: Vec<Box<dyn Listener>>,
    pub(super) workers: Vec<Arc<WorkerMailbox>>,
    pub(super) limits: ConnLimits,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) totals: Arc<Totals>,
}

/// What the acceptor remembers between connections.
struct Book {
    load: Vec<Arc<AtomicUsize>>,
    peers: HashMap<IpAddr, Arc<AtomicUsize>>,
    /// Connections in the order of their arrival, for finding the oldest that is not validated.
    waiting: VecDeque<Arc<ConnState>>,
    last_warning: Option<Instant>,
}

impl Acceptor {
    pub(super) fn run(mut self) {
        let mut book = Book {
            load: self.workers.iter().map(|_| Arc::default()).collect(),
            peers: HashMap::new(),
            waiting: VecDeque::new(),
            last_warning: None,
        };
        for (i, l) in self.listeners.iter_mut().enumerate() {
            if let Err(e) = self.poll.registry().register(l.source(), Token(i), Interest::READABLE) {
                tracing::error!("cannot watch {}: {e}", l.url());
            }
        }
        let mut events = Events::with_capacity(16);
        let mut pending: Vec<usize> = Vec::new();
        loop {
            let timeout = (!pending.is_empty()).then_some(BACKOFF);
            if let Err(e) = self.poll.poll(&mut events, timeout)
                && e.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("poll failed: {e}");
                std::thread::sleep(BACKOFF);
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            for ev in events.iter().filter(|ev| ev.token() != WAKE) {
                if !pending.contains(&ev.token().0) {
                    pending.push(ev.token().0);
                }
            }
            pending.retain(|i| match self.listeners.get_mut(*i) {
                Some(l) => !drain(&mut **l, &self.workers, &self.limits, &self.totals, &mut book),
                None => false,
            });
        }
    }
}

/// Accepts until there is nothing more; false if the system is out of resources and it has to be tried again.
fn drain(
    l: &mut dyn Listener,
    workers: &[Arc<WorkerMailbox>],
    limits: &ConnLimits,
    totals: &Arc<Totals>,
    book: &mut Book,
) -> bool {
    loop {
        match l.accept() {
            Ok(x) => book.deal(x, workers, limits, totals),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(e) => match e.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    book.warn(|| {
                        format!("cannot accept connections: {e}; raise the open files limit (ulimit -n)")
                    });
                    book.evict(workers);
                    return false;
                }
                // The connection died in the queue, or the network reported an error that was its own.
                _ => continue,
            },
        }
    }
}

impl Book {
    fn warn(&mut self, text: impl FnOnce() -> String) {
        if self.last_warning.is_none_or(|t| t.elapsed() > Duration::from_secs(10)) {
            self.last_warning = Some(Instant::now());
            tracing::warn!("{}", text());
        }
    }

    fn deal(
        &mut self,
        x: Box<dyn crate::class::PolledXprt>,
        workers: &[Arc<WorkerMailbox>],
        limits: &ConnLimits,
        totals: &Arc<Totals>,
    ) {
        if self.peers.len() > 1024 {
            self.peers.retain(|_, n| n.load(Ordering::Relaxed) > 0);
        }
        let peer = *x.peer();
        let per_peer = match peer {
            PeerAddr::Inet(a) => self.peers.entry(a.ip()).or_default().clone(),
            PeerAddr::Local { .. } => Arc::default(),
        };
        if per_peer.load(Ordering::Relaxed) >= limits.per_peer {
            return self
                .warn(|| format!("refused a connection of {peer}: it has {} already", limits.per_peer));
        }
        if totals.open.load(Ordering::Relaxed) >= limits.total {
            self.warn(|| {
                format!("{} connections are open, which is the limit; raise ulimit -n", limits.total)
            });
            if !self.evict(workers) {
                return;
            }
        }
        while totals.unvalidated.load(Ordering::Relaxed) >= limits.unvalidated && self.evict(workers) {}
        let least = self.load.iter().enumerate().min_by_key(|(_, n)| match mutate::on("uneven") {
            true => 0,
            false => n.load(Ordering::Relaxed),
        });
        let Some((worker, load)) = least else { return };
        let state = ConnState::new(totals.clone(), load.clone(), per_peer, worker);
        // Keep the list short: what is no candidate for eviction any more leaves from the front.
        while self.waiting.front().is_some_and(|s| !s.evictable()) {
            self.waiting.pop_front();
        }
        if self.waiting.len() > 4 * limits.unvalidated {
            self.waiting.retain(|s| s.evictable());
        }
        self.waiting.push_back(state.clone());
        if let Some(w) = workers.get(worker) {
            w.send(Msg::Conn(Box::new(Managed { x, state })));
        }
    }

    /// Closes the oldest connection that is not validated; false if there is none.
    fn evict(&mut self, workers: &[Arc<WorkerMailbox>]) -> bool {
        while let Some(s) = self.waiting.pop_front() {
            if s.evictable() {
                // It leaves the count now, so that a burst evicts one for each newcomer.
                s.doom();
                if let Some(w) = workers.get(s.worker) {
                    w.send(Msg::Evict(s.clone()));
                }
                return true;
            }
        }
        false
    }
}

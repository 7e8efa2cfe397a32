//! The thread that drives links, and what callers share with it.

use crate::clnt::link::Link;
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task;
use std::time::{Duration, Instant};
use sunrpc::clnt::CallId;

/// Wakes the thread for what callers did.
const WAKE: Token = Token(usize::MAX);

/// Drives the connections of asynchronous clients on one thread, which ends with the last of its handles: this one,
/// clones of it, connections and calls.
#[derive(Debug, Clone)]
pub struct Driver(pub(super) Arc<Owner>);

/// Ends the thread when dropped.
#[derive(Debug)]
pub(super) struct Owner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    waker: Waker,
    stop: AtomicBool,
    new: Mutex<Vec<Weak<Entry>>>,
}

/// One connection.
pub(super) struct Entry {
    state: Mutex<State>,
    /// A caller changed something.
    dirty: AtomicBool,
    owner: Arc<Owner>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

pub(super) struct State {
    pub(super) link: Box<dyn Link>,
    /// Who waits for which call.
    pub(super) wakers: HashMap<CallId, task::Waker>,
    /// Who waits for the connection.
    pub(super) connecting: Vec<task::Waker>,
}

/// A panic elsewhere in a caller's code leaves nothing half done here.
fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Starts the thread.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let (start, stop) = (Instant::now(), AtomicBool::new(false));
        let shared = Arc::new(Shared { start, waker, stop, new: Mutex::default() });
        let theirs = shared.clone();
        std::thread::Builder::new()
            .name("rpc-client".into())
            .spawn(move || Thread { poll, shared: theirs, conns: HashMap::new(), last: 0 }.run())?;
        Ok(Driver(Arc::new(Owner(shared))))
    }

    pub(super) fn now(&self) -> Duration {
        self.0.now()
    }

    pub(super) fn add(&self, mut link: Box<dyn Link>) -> Arc<Entry> {
        link.table().track_ended();
        let state = State { link, wakers: HashMap::new(), connecting: Vec::new() };
        let (state, dirty) = (Mutex::new(state), AtomicBool::new(true));
        let entry = Arc::new(Entry { state, dirty, owner: self.0.clone() });
        lock(&self.0.0.new).push(Arc::downgrade(&entry));
        self.0.wake();
        entry
    }
}

impl Owner {
    fn wake(&self) {
        // Fails only if the kernel refuses a write to an eventfd, which has room for 2^64 of them.
        let _ = self.0.waker.wake();
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
        self.wake();
    }
}

impl Entry {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn now(&self) -> Duration {
        self.owner.now()
    }

    /// Has the driver look at the connection soon; false if it never will again.
    pub(super) fn touch(&self) -> bool {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.owner.wake();
        }
        !self.owner.0.stop.load(Ordering::Acquire)
    }
}

struct Conn {
    entry: Weak<Entry>,
    /// Number of the socket that is registered.
    socket: Option<u64>,
    due: bool,
    timer: Option<Duration>,
}

struct Thread {
    poll: Poll,
    shared: Arc<Shared>,
    conns: HashMap<usize, Conn>,
    last: usize,
}

impl Thread {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.shared.stop.load(Ordering::Acquire) {
            let again = self.turns();
            let now = self.shared.start.elapsed();
            let timer = self.conns.values().filter_map(|c| c.timer).min();
            let timeout = if again { Some(Duration::ZERO) } else { timer.map(|t| t.saturating_sub(now)) };
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return self.fail(&e),
            }
            for e in &events {
                if let Some(c) = self.conns.get_mut(&e.token().0) {
                    c.due = true;
                }
            }
        }
    }

    /// Turns every connection that has something to do. True if one has more to do at once.
    fn turns(&mut self) -> bool {
        for entry in lock(&self.shared.new).drain(..) {
            self.last += 1;
            self.conns.insert(self.last, Conn { entry, socket: None, due: true, timer: None });
        }
        let now = self.shared.start.elapsed();
        let mut again = false;
        let poll = &self.poll;
        self.conns.retain(|token, conn| {
            let Some(entry) = conn.entry.upgrade() else { return false };
            let due = entry.dirty.swap(false, Ordering::AcqRel) || conn.due;
            if due || conn.timer.is_some_and(|t| t <= now) {
                conn.due = turn(&entry, conn, poll, Token(*token), now);
                again |= conn.due;
            }
            true
        });
        again
    }

    /// The poll is unusable: every call fails.
    fn fail(&mut self, e: &io::Error) {
        self.shared.stop.store(true, Ordering::Release);
        tracing::error!("RPC client thread ends: {e}");
        for entry in self.conns.values().filter_map(|c| c.entry.upgrade()) {
            let mut s = entry.lock();
            s.link.table().expire(Duration::MAX, Some(e));
            let wakers: Vec<_> = s.wakers.drain().map(|(_, w)| w).collect();
            drop(s);
            wakers.into_iter().for_each(task::Waker::wake);
        }
    }
}

fn turn(entry: &Entry, conn: &mut Conn, poll: &Poll, token: Token, now: Duration) -> bool {
    let mut state = entry.lock();
    let s = &mut *state;
    let more = s.link.turn(now, true);
    conn.timer = s.link.next_timer();
    if let Some((number, fd)) = s.link.socket()
        && conn.socket != Some(number)
    {
        // Edges of a closed socket are gone with it. If the kernel has no room for this one, timers still turn it.
        let r = SourceFd(&fd.as_raw_fd()).register(
            poll.registry(),
            token,
            Interest::READABLE | Interest::WRITABLE,
        );
        match r {
            Ok(()) => conn.socket = Some(number),
            Err(e) => tracing::warn!("cannot watch a client's socket: {e}"),
        }
    }
    let mut wake = Vec::new();
    if s.link.is_up() || s.link.down().is_some() {
        wake.append(&mut s.connecting);
    }
    wake.extend(s.link.table().drain_ended().filter_map(|id| s.wakers.remove(&id)));
    drop(state);
    // Not under the lock: a waker may run its task on the spot.
    wake.into_iter().for_each(task::Waker::wake);
    more
}

//! How other threads reach a worker.

use super::conn::{ConnState, Managed};
use crossbeam_queue::SegQueue;
use mio::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use sunrpc::svc::{Delivery, Mailbox};

/// What a worker can be told.
pub(super) enum Msg {
    /// A new connection.
    Conn(Box<Managed>),
    /// A finished call.
    Done(Delivery),
    /// Close this connection to make room.
    Evict(Arc<ConnState>),
    /// Pin your counters to the board.
    Stats,
    /// Finish what is in progress, at most this long, then end.
    Stop(Duration),
}

/// A worker's inbox.
pub(super) struct WorkerMailbox {
    queue: SegQueue<Msg>,
    waker: Waker,
    /// The worker will look into the queue without being woken.
    awake: AtomicBool,
    /// System calls that woke the worker.
    wakeups: AtomicU64,
}

impl WorkerMailbox {
    pub(super) fn new(waker: Waker) -> Self {
        WorkerMailbox {
            queue: SegQueue::new(),
            waker,
            awake: AtomicBool::new(true),
            wakeups: AtomicU64::new(0),
        }
    }

    pub(super) fn send(&self, msg: Msg) {
        self.queue.push(msg);
        // The flag is set before the wake-up and cleared before the worker's last look at the queue, so a message is
        // either seen by that look or followed by a wake-up. SeqCst orders push-then-swap here against
        // store-then-pop in `may_sleep`.
        if !self.awake.swap(true, Ordering::SeqCst) {
            self.wakeups.fetch_add(1, Ordering::Relaxed);
            if let Err(e) = self.waker.wake() {
                tracing::error!("cannot wake a worker: {e}");
            }
        }
    }

    /// How often a message cost a system call.
    pub(super) fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    /// True if there is something to pop.
    pub(super) fn has_mail(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn pop(&self) -> Option<Msg> {
        self.queue.pop()
    }

    /// Called by the worker before it polls with a time-out: false if there is mail after all.
    pub(super) fn may_sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        if self.queue.is_empty() {
            return true;
        }
        self.awake.store(true, Ordering::SeqCst);
        false
    }

    /// Called by the worker after it polled.
    pub(super) fn woke(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }
}

impl Mailbox for WorkerMailbox {
    fn post(&self, d: Delivery) {
        self.send(Msg::Done(d));
    }
}

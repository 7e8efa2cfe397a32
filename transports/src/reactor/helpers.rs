//! Helper threads: where calls go that may wait.

use super::stats::{Board, ThreadStats};
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use sunrpc::page::{PageDepot, PagePool, RecordPages, XdrBuf};
use sunrpc::svc::{Delivery, Disposition, Env, Job, Offload, Reply, Service, Work};

/// Jobs that may wait for a helper, all workers together.
const QUEUE: usize = 256;
/// Pages at hand before a job is run: the largest reply and its header.
const PAGES_PER_CALL: usize = 260;

/// What a helper is given.
enum Task {
    Call(Job),
    Work(Work),
}

/// What a helper is to do next.
enum Next {
    Task(Task),
    /// Nothing happened for a second.
    Idle,
    /// Somebody wants the counters.
    Asked,
    Stop,
}

/// The queue between workers and helpers.
pub(super) struct Helpers {
    queue: ArrayQueue<Task>,
    sleeping: AtomicUsize,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    board: Arc<Board>,
}

impl Helpers {
    pub(super) fn new(board: Arc<Board>) -> Arc<Self> {
        Arc::new(Helpers {
            queue: ArrayQueue::new(QUEUE),
            sleeping: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            board,
        })
    }

    /// Ends all helpers once the queue is empty.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }

    /// Wakes all helpers: the board has a question.
    pub(super) fn ask(&self) {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }

    /// Waits for something to do; `answered` is the last question of the board that this thread answered.
    fn next(&self, answered: u64) -> Next {
        let asked = || self.board.asked() != answered;
        loop {
            if asked() {
                return Next::Asked;
            }
            if let Some(task) = self.queue.pop() {
                return Next::Task(task);
            }
            if self.stop.load(Ordering::SeqCst) {
                return Next::Stop;
            }
            let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // Announce, then look again: `submit` pushes, then looks for sleepers (both SeqCst), and takes the lock
            // to notify, so a job pushed after this look finds the sleeper waiting. Questions are raised before the
            // lock is taken, likewise.
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            let mut timed_out = false;
            if self.queue.is_empty() && !self.stop.load(Ordering::SeqCst) && !asked() {
                let r = self.wake.wait_timeout(guard, Duration::from_secs(1));
                timed_out = r.map(|(_, t)| t.timed_out()).unwrap_or(false);
            }
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
            if timed_out {
                return Next::Idle;
            }
        }
    }

    /// The life of a helper thread that has row `row` of the board.
    pub(super) fn run(&self, mut service: Service, depot: Arc<PageDepot>, start: Instant, row: usize) {
        let mut pool = PagePool::new(depot);
        let mut since_tick = Instant::now();
        let mut answered = 0;
        loop {
            let mut idle = false;
            match self.next(answered) {
                Next::Stop => break,
                Next::Asked => {
                    answered = self.board.asked();
                    self.board.pin(row, answered, ThreadStats::of(&service, &pool));
                }
                Next::Idle => idle = true,
                Next::Task(Task::Work(work)) => work(),
                Next::Task(Task::Call(mut job)) => {
                    let reply = run_job(&mut service, &mut job, &mut pool);
                    let Job { record, from, route, mailbox, .. } = job;
                    record.recycle(&mut pool);
                    let mut after = Vec::new();
                    service.release(|work| after.push(work));
                    match reply {
                        Some(reply) => mailbox.post(Delivery { to: from, route, reply, after }),
                        None => after.into_iter().for_each(|work| work()),
                    }
                }
            }
            if idle || since_tick.elapsed() > Duration::from_secs(1) {
                service.tick(start.elapsed().as_millis() as u64);
                pool.tick();
                since_tick = Instant::now();
            }
        }
        self.board.pin_last(row, ThreadStats::of(&service, &pool));
    }
}

fn run_job(service: &mut Service, job: &mut Job, pool: &mut PagePool) -> Option<Reply> {
    if !pool.ensure(PAGES_PER_CALL) {
        tracing::warn!("out of pages: a call is dropped; the client will send it again");
        return Some(Reply::Close);
    }
    let claim = job.claim.take();
    let env = Env {
        route: &job.route,
        caps: &job.caps,
        xprt: job.from,
        mailbox: &job.mailbox,
        blocking: true,
        validated: true,
    };
    let mut out = XdrBuf::new();
    let pages = RecordPages::new(std::mem::take(&mut job.record.spans), pool);
    let done = service.process_owned(&job.record.head, &pages, &env, claim, &mut out, pool);
    job.record.spans = pages.into_spans(pool);
    Some(match done {
        Disposition::Reply { .. } => Reply::Pages(out),
        Disposition::Nothing | Disposition::WouldBlock { .. } => Reply::Nothing,
        Disposition::Close => Reply::Close,
        // The responder's delivery is the one that counts.
        Disposition::Later { .. } => return None,
    })
}

impl Helpers {
    #[allow(clippy::result_large_err)] // as `Offload::submit`
    fn push(&self, task: Task) -> Result<(), Task> {
        self.queue.push(task)?;
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_one();
        }
        Ok(())
    }
}

impl Offload for Helpers {
    fn submit(&self, job: Job) -> Result<(), Job> {
        match self.push(Task::Call(job)) {
            Err(Task::Call(job)) => Err(job),
            Ok(()) | Err(Task::Work(_)) => Ok(()),
        }
    }

    fn submit_work(&self, work: Work) -> Result<(), Work> {
        match self.push(Task::Work(work)) {
            Err(Task::Work(work)) => Err(work),
            Ok(()) | Err(Task::Call(_)) => Ok(()),
        }
    }
}

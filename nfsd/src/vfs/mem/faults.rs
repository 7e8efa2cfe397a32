//! Injectable faults: what a slow or failing file system looks like, on demand.

use crate::vfs::{VfsError, VfsResult};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An operation of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named after the methods of `Vfs` and `Links`
pub enum Op {
    Getattr,
    Setattr,
    Lookup,
    Access,
    Read,
    Write,
    Commit,
    Create,
    Mkdir,
    Remove,
    Rmdir,
    Rename,
    Readdir,
    Statfs,
    Symlink,
    Readlink,
    Link,
    Mknod,
}

const OPS: usize = Op::Mknod as usize + 1;

#[derive(Debug, Clone, Copy, Default)]
struct Fault {
    held: bool,
    delay: Duration,
    fail: Option<(u32, VfsError)>,
    waiting: usize,
    refused: u64,
}

/// The faults of one file system. Nothing is injected until asked for.
#[derive(Debug, Default)]
pub struct Faults {
    /// False while no fault is set, so that the usual case costs one load.
    armed: AtomicBool,
    ops: Mutex<[Fault; OPS]>,
    changed: Condvar,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, [Fault; OPS]> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut [Fault; OPS])) {
        let mut ops = self.lock();
        f(&mut ops);
        self.rearm(&ops);
        self.changed.notify_all();
    }

    fn rearm(&self, ops: &[Fault; OPS]) {
        let armed = ops.iter().any(|f| f.held || !f.delay.is_zero() || f.fail.is_some());
        self.armed.store(armed, Ordering::Release);
    }

    /// Holds every call of `op`: in non-blocking mode it answers [`VfsError::WouldBlock`], in blocking mode it waits
    /// for [`Faults::release`].
    pub fn hold(&self, op: Op) {
        self.change(|o| o[op as usize].held = true);
    }

    /// Lets held calls of `op` go on, and later ones pass.
    pub fn release(&self, op: Op) {
        self.change(|o| o[op as usize].held = false);
    }

    /// Releases everything and forgets delays and errors.
    pub fn clear(&self) {
        self.change(|ops| {
            for f in ops {
                (f.held, f.delay, f.fail) = (false, Duration::ZERO, None);
            }
        });
    }

    /// Makes every call of `op` take at least so long: in non-blocking mode it answers [`VfsError::WouldBlock`].
    /// Zero ends that.
    pub fn delay(&self, op: Op, time: Duration) {
        self.change(|o| o[op as usize].delay = time);
    }

    /// Makes the next `n` calls of `op` answer `error` without any effect. Calls answered `WouldBlock` by a hold or a
    /// delay do not count.
    pub fn fail_next(&self, op: Op, n: u32, error: VfsError) {
        self.change(|o| o[op as usize].fail = (n > 0).then_some((n, error)));
    }

    /// How many calls of `op` wait at this moment.
    pub fn waiting(&self, op: Op) -> usize {
        self.lock()[op as usize].waiting
    }

    /// How many calls of `op` were ever answered [`VfsError::WouldBlock`] by a hold or a delay.
    pub fn refused(&self, op: Op) -> u64 {
        self.lock()[op as usize].refused
    }

    /// Waits until at least `n` calls of `op` wait; false if that does not come about within `limit`.
    pub fn wait_for(&self, op: Op, n: usize, limit: Duration) -> bool {
        let (ops, out) = self
            .changed
            .wait_timeout_while(self.lock(), limit, |o| o[op as usize].waiting < n)
            .unwrap_or_else(PoisonError::into_inner);
        drop(ops);
        !out.timed_out()
    }

    /// The gate at the start of every operation.
    #[inline]
    pub(super) fn pass(&self, op: Op, blocking: bool) -> VfsResult<()> {
        if self.armed.load(Ordering::Acquire) { self.pass_slowly(op, blocking) } else { Ok(()) }
    }

    #[cold]
    fn pass_slowly(&self, op: Op, blocking: bool) -> VfsResult<()> {
        let i = op as usize;
        let mut ops = self.lock();
        if ops[i].held || !ops[i].delay.is_zero() {
            if !blocking {
                ops[i].refused += 1;
                return Err(VfsError::WouldBlock);
            }
            ops[i].waiting += 1;
            self.changed.notify_all();
            let delay = ops[i].delay;
            if !delay.is_zero() {
                let still = |o: &mut [Fault; OPS]| !o[i].delay.is_zero();
                (ops, _) = self
                    .changed
                    .wait_timeout_while(ops, delay, still)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            ops = self.changed.wait_while(ops, |o| o[i].held).unwrap_or_else(PoisonError::into_inner);
            ops[i].waiting -= 1;
        }
        let Some((n, error)) = ops[i].fail else { return Ok(()) };
        ops[i].fail = (n > 1).then_some((n - 1, error));
        self.rearm(&ops);
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn held_calls_wait_or_would_block() {
        let f = Arc::new(Faults::default());
        f.hold(Op::Read);
        assert_eq!(f.pass(Op::Read, false), Err(VfsError::WouldBlock));
        assert_eq!(f.pass(Op::Write, false), Ok(()), "other operations pass");
        let g = f.clone();
        let t = std::thread::spawn(move || g.pass(Op::Read, true));
        assert!(f.wait_for(Op::Read, 1, Duration::from_secs(60)));
        assert!(!t.is_finished());
        f.release(Op::Read);
        assert_eq!(t.join().unwrap(), Ok(()));
        assert_eq!((f.waiting(Op::Read), f.refused(Op::Read)), (0, 1));
        assert_eq!(f.pass(Op::Read, false), Ok(()));
    }

    #[test]
    fn errors_are_counted_by_calls_that_ran() {
        let f = Faults::default();
        f.fail_next(Op::Write, 2, VfsError::Io);
        f.delay(Op::Write, Duration::from_millis(1));
        assert_eq!(f.pass(Op::Write, false), Err(VfsError::WouldBlock));
        assert_eq!(f.pass(Op::Write, true), Err(VfsError::Io));
        f.delay(Op::Write, Duration::ZERO);
        assert_eq!(f.pass(Op::Write, false), Err(VfsError::Io));
        assert_eq!(f.pass(Op::Write, false), Ok(()));
        f.fail_next(Op::Write, 1, VfsError::Io);
        f.clear();
        assert_eq!(f.pass(Op::Write, false), Ok(()));
    }
}

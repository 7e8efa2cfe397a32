//! What the blocking and the asynchronous client drive.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use sunrpc::clnt::CallTable;

/// A client's transport without waiting: a socket, if there is one at present, and its outstanding calls.
/// Time is the duration since any fixed start.
pub(super) trait Link: Send {
    /// The outstanding calls.
    fn table(&mut self) -> &mut CallTable;

    /// The outstanding calls.
    fn table_ref(&self) -> &CallTable;

    /// Starts to connect, if there is such a thing.
    fn connect(&mut self, _now: Duration) {}

    /// True if calls can be sent now.
    fn is_up(&self) -> bool;

    /// Does all that can be done now: time-outs, connecting, receiving, sending. True if there is more to do at once.
    /// With `drain`, receives until nothing is left: for callers that hear of new arrivals only. Without, it saves
    /// the system call that finds nothing.
    fn turn(&mut self, now: Duration, drain: bool) -> bool;

    /// The socket, with a number that differs for each socket of this link.
    fn socket(&self) -> Option<(u64, BorrowedFd<'_>)>;

    /// Whether to turn when the socket can be read, and when it can be written.
    fn interest(&self) -> (bool, bool);

    /// When to turn at the latest.
    fn next_timer(&self) -> Option<Duration>;

    /// Most bytes of a call.
    fn max_call(&self) -> usize;

    /// Why the server cannot be reached at present, if no attempt to reach it is under way.
    fn down(&self) -> Option<&io::Error>;
}

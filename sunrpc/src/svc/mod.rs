//! The service side: programs and procedures, the life of a call, the worker's state machine.

mod call;
mod job;
mod service;
mod worker;

pub use call::{Call, Deferred, Outcome, Responder, RpcError};
pub use job::{Delivery, Job, Mailbox, Offload, OwnedRecord, Reply, Work};
pub use service::{Disposition, Env, ProcCounts, ProcStats, Service, ServiceStats};
pub use worker::{Closed, SvcLimits, SvcWorker, WorkerStats};

use crate::page::PageWriter;
use crate::xdr::Decoder;
use crate::xprt::PeerAddr;

/// What a duplicate of a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Running it again does no harm.
    Idempotent,
    /// It must not run twice; its reply is kept for a while.
    Once,
}

/// One row of a version's procedure table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcInfo {
    /// Name as in the .x file; empty for a number that is not assigned.
    pub name: &'static str,
    /// Most bytes of results, headers excluded. A reply that would exceed it becomes SYSTEM_ERR.
    pub max_result: u32,
    /// What a duplicate may do.
    pub repeat: Repeat,
    /// May wait: goes straight to a helper thread.
    pub blocking: bool,
}

impl ProcInfo {
    /// An unassigned number.
    pub const NONE: ProcInfo =
        ProcInfo { name: "", max_result: 0, repeat: Repeat::Idempotent, blocking: false };

    /// An idempotent procedure that does not wait.
    pub const fn new(name: &'static str, max_result: u32) -> Self {
        ProcInfo { name, max_result, repeat: Repeat::Idempotent, blocking: false }
    }

    /// The same, not idempotent.
    pub const fn once(self) -> Self {
        ProcInfo { repeat: Repeat::Once, ..self }
    }

    /// The same, waiting.
    pub const fn blocking(self) -> Self {
        ProcInfo { blocking: true, ..self }
    }
}

/// One version of a program.
#[derive(Debug, Clone, Copy)]
pub struct VersionInfo {
    /// Version number.
    pub vers: u32,
    /// Procedures by number.
    pub procs: &'static [ProcInfo],
}

/// A program that a server offers. Several may share a number if their versions differ.
pub trait Program: Send + Sync + 'static {
    /// Program number.
    fn number(&self) -> u32;

    /// Name for people.
    fn name(&self) -> &'static str;

    /// The versions offered.
    fn versions(&self) -> &[VersionInfo];

    /// Makes the calling thread's dispatcher. Workers and helpers each have one, so it needs no locks.
    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>>;

    /// Whether a call from this peer validates its connection. Connections that nothing validates are the first to
    /// be closed when there are too many.
    fn admits(&self, peer: &PeerAddr) -> bool {
        let _ = peer;
        true
    }

    /// Where large calls of a procedure carry bulk data that is better received in place: moves `args` to the length of
    /// that opaque, the last argument, and tells at which offset in a page its first byte should lie
    /// ([`Bulk::lead`](crate::record::Bulk::lead)). `args` ends early, and nobody has checked the call yet: this is a
    /// hint, which changes only where the bytes lie.
    fn bulk_at(&self, vers: u32, proc: u32, args: &mut Decoder<'_>) -> Option<usize> {
        let _ = (vers, proc, args);
        None
    }
}

/// How a procedure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The results are written.
    Done,
    /// Non-blocking mode only: nothing was changed; run it again on a helper.
    WouldBlock,
    /// A [`Responder`] will answer.
    Later,
}

/// A thread's entry into a program.
pub trait Dispatch {
    /// Runs a call: decodes the arguments (all of them, see [`Decoder::finish`]), does the work, writes the
    /// results. Whatever was written is discarded unless the answer is [`Flow::Done`]. With
    /// [`Call::blocking`] false it must not wait.
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError>;

    /// The rest of a call that asked for it by [`Call::release_later`]: exactly once for each call that left a token,
    /// whatever became of it, on the thread that ran the call. On a worker it runs after the flush of the call's turn;
    /// on a helper as soon as the call is over. It must not wait and does no more than what its thread has to do
    /// itself: the rest is returned, and runs on a helper after the flush in both cases. A call answered later gives
    /// back here what it holds on this thread; the rest is its responder's.
    fn release(&mut self, token: u64) -> Option<Work> {
        let _ = token;
        None
    }

    /// About once a second.
    fn tick(&mut self) {}
}

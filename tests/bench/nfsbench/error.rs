//! What can go wrong in a run.

use std::io;

/// Result of everything in this program.
pub(crate) type Result<T> = std::result::Result<T, BenchError>;

/// Why a run ended without figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The server's bytes are not a reply to one of our calls.
    #[error("bad reply: {0}")]
    Reply(String),
    /// The server answered a call of the preparation with an error.
    #[error("{call}: the server answered {status}; is the export prepared (see tests/bench/run.sh)?")]
    Refused {
        /// The call, with its argument.
        call: String,
        /// `nfsstat3`, `mountstat3` or a description of the RPC error.
        status: String,
    },
    /// The server went silent.
    #[error("{0} calls were not answered for {1} s: the server hangs or has dropped them")]
    Silent(usize, u64),
    /// The options contradict each other or the export.
    #[error("{0}")]
    Usage(String),
    /// Calls were answered with errors, so the figures mean nothing.
    #[error("{count} of {ops} calls failed, the last one with {last}: the figures are void")]
    Void {
        /// Calls answered with an error.
        count: u64,
        /// All calls answered.
        ops: u64,
        /// Description of the last error.
        last: String,
    },
}

/// Names the action that failed.
pub(crate) trait Context<T> {
    /// Turns an I/O error into ours, saying what was being done.
    fn context(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|e| BenchError::Io { what: what.into(), source: e.into() })
    }
}

//! What the log says of refused clients.

use super::Refusal;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two lines of one kind: refusals come in floods.
const QUIET: Duration = Duration::from_secs(5);
const KINDS: usize = 4;

/// Log lines about refusals, one in a while for each kind.
#[derive(Debug, Default)]
pub struct Refusals {
    /// When a line of each kind was last written, and how many were left out since.
    last: Mutex<[(Option<Instant>, u64); KINDS]>,
}

impl Refusals {
    /// A client that an export does not admit: the line names the setting that would.
    #[cold]
    pub fn client(&self, why: &Refusal) {
        let kind = match why {
            Refusal::NotAClient { .. } => 0,
            Refusal::SourcePort { .. } | Refusal::LocalUser { .. } => 1,
            Refusal::Flavor { .. } => 2,
        };
        self.line(kind, || why);
    }

    /// A path that is no export's.
    #[cold]
    pub fn path<T: Display>(&self, text: impl FnOnce() -> T) {
        self.line(3, text);
    }

    fn line<T: Display>(&self, kind: usize, text: impl FnOnce() -> T) {
        // Valid between any two operations on it; held for no longer than they take.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, left_out)) = last.get_mut(kind) else { return };
        if at.is_some_and(|t| t.elapsed() <= QUIET) {
            *left_out += 1;
            return;
        }
        *at = Some(Instant::now());
        let n = std::mem::take(left_out);
        drop(last);
        match n {
            0 => tracing::warn!("refused: {}", text()),
            n => tracing::warn!("refused: {} (and {n} more of this kind before)", text()),
        }
    }
}

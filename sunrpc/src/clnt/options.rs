//! What a caller decides about a call.

use super::auth::ClntAuth;
use std::sync::Arc;
use std::time::Duration;

/// How long a call may take if nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// When a call whose fate is unknown is sent again, always with its transaction id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resend {
    /// If a second run does no harm as far as [`Repeat`] tells, or no byte of the call was sent.
    #[default]
    Safe,
    /// Always: the caller relies on the server's duplicate request cache, or does not mind.
    Always,
    /// Only if no byte of the call was sent.
    Never,
}

/// What a second run of a procedure does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Repeat {
    /// No harm (an idempotent procedure).
    Harmless,
    /// Harm: marked `nonidempotent` in the `.x` file.
    Harmful,
    /// Nobody said. A lost connection does not resend the call; over datagrams, which the network itself may
    /// duplicate, it is retransmitted.
    #[default]
    Unknown,
}

/// How a call is made. A value of [`CallOptions::default`] changes nothing but what is set on it.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// From the start of the call to its failure, all retransmissions and reconnections included.
    pub timeout: Duration,
    /// Who calls; `None` for the client's own credentials.
    pub cred: Option<Arc<dyn ClntAuth>>,
    /// When to send again.
    pub resend: Resend,
}

impl Default for CallOptions {
    /// 60 s, the client's credentials, [`Resend::Safe`].
    fn default() -> Self {
        CallOptions { timeout: DEFAULT_TIMEOUT, cred: None, resend: Resend::Safe }
    }
}

impl CallOptions {
    /// What the transport needs to know of such a call, of a procedure of this nature, by `auth`.
    pub fn send_options(&self, auth: &dyn ClntAuth, repeat: Repeat, oneway: bool) -> SendOptions {
        let resend = if auth.repeatable() { self.resend } else { Resend::Never };
        SendOptions { timeout: self.timeout, resend, repeat, oneway }
    }
}

/// What a transport needs to know of a call beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct SendOptions {
    /// Total time.
    pub timeout: Duration,
    /// The caller's will.
    pub resend: Resend,
    /// The procedure's nature.
    pub repeat: Repeat,
    /// No reply will come: the call is done once its last byte was handed to the network.
    pub oneway: bool,
}

impl Default for SendOptions {
    fn default() -> Self {
        SendOptions { timeout: DEFAULT_TIMEOUT, resend: Resend::Safe, repeat: Repeat::Unknown, oneway: false }
    }
}

impl SendOptions {
    /// Whether a call of which bytes were sent goes out again on a new connection.
    pub fn may_resend(&self) -> bool {
        match self.resend {
            Resend::Always => true,
            Resend::Never => false,
            Resend::Safe => self.repeat == Repeat::Harmless,
        }
    }

    /// Whether a datagram that got no answer is sent again.
    pub fn may_retransmit(&self) -> bool {
        match self.resend {
            Resend::Always => true,
            Resend::Never => false,
            Resend::Safe => self.repeat != Repeat::Harmful,
        }
    }
}

/// When unanswered datagrams are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmit {
    /// Wait before the second send; it doubles after each.
    pub first: Duration,
    /// Longest wait between sends.
    pub most: Duration,
}

impl Default for Retransmit {
    /// 700 ms, doubling up to 15 s.
    fn default() -> Self {
        Retransmit { first: Duration::from_millis(700), most: Duration::from_secs(15) }
    }
}

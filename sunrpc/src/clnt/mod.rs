//! The client side, without I/O.
//!
//! | module | what it knows |
//! |---|---|
//! | `xprt` | what carries calls ([`CallXprt`]) |
//! | `calls` | outstanding calls, retransmission, time-outs ([`CallTable`]) |
//! | `options` | what a caller decides ([`CallOptions`]) |
//! | `auth` | credentials ([`ClntAuth`]) |
//! | `error` | what went wrong, by layer ([`ClntError`]) |
//! | `client` | typed calls of one program ([`Client`]) |

mod auth;
mod calls;
mod client;
mod error;
mod message;
mod options;
mod xprt;

pub use auth::{AuthNone, AuthSys, ClntAuth};
pub use calls::{CallId, CallTable, DEFAULT_CALLS, Outcome};
pub use client::{Client, Pending};
pub use error::{ClntError, ReservedPortError, UnwrapError, XprtError, again};
pub use message::{ProcId, decode_reply, encode_call};
pub use options::{CallOptions, DEFAULT_TIMEOUT, Repeat, Resend, Retransmit, SendOptions};
pub use xprt::{CallXprt, Ticket};

/// Most bytes of a call or a reply.
pub const MAX_MESSAGE: usize = (1 << 20) + 4096;

/// A random number to start transaction ids from: duplicate request caches tell clients apart by them too.
pub fn random_xid() -> u32 {
    std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0u8) as u32
}

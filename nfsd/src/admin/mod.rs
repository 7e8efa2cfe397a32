//! Asking a running server: the control socket, and `nfsd stat`.
//!
//! The server answers a small program of its own (`proto/admin.x`) at a socket file that only its user and root may use.
//! It is served by threads of its own, so that it answers while NFS is busy.

mod control;
mod query;
mod show;
mod tables;

pub use control::Control;
pub use query::{QueryError, stat};

/// The socket's name in the state directory.
pub const SOCKET: &str = "control";

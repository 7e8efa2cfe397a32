//! Transports for the `sunrpc` core, and the reactor that drives them.
//!
//! Features only register transport classes ([`class::CLASSES`]); configuration chooses among them by URL
//! (`tcp://[::]:2049`). [`Server`] runs programs on any of them; [`connect`] is the client's way in.

pub mod class;
mod reactor;
pub mod rpcbind;
#[cfg(feature = "tcp")]
mod tcp;

pub use class::{ConnectError, ListenError, connect};
pub use reactor::{Builder, Handle, ServeError, Server};

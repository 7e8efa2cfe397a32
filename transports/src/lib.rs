//! Transports for the `sunrpc` core, and the reactor that drives them.
//!
//! Features only register transport classes ([`class::CLASSES`]); configuration chooses among them by URL
//! (`tcp://[::]:2049`). [`Server`] runs programs on any of them; [`connect`] is the client's way in.

pub mod class;
#[cfg(any(feature = "tcp", feature = "udp"))]
mod inet;
#[cfg(feature = "local")]
mod local;
mod reactor;
#[cfg(any(feature = "tcp", feature = "local"))]
mod stream;
#[cfg(feature = "tcp")]
mod tcp;
#[cfg(feature = "udp")]
mod udp;

pub use class::{ConnectError, ListenError, connect};
pub use reactor::{Builder, Handle, ServeError, Server};

//! Transports for the `sunrpc` core, and the reactor that drives them.
//!
//! Features only register transport classes ([`class::CLASSES`]); configuration chooses among them by URL
//! (`tcp://[::]:2049`). [`Server`] runs programs on any of them; [`connect`] is the client's way in.

pub mod class;
pub mod clnt;
mod reactor;
pub mod rpcbind;
#[cfg(feature = "tcp")]
mod tcp;

/// The snippets of `docs/client.md` compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/client.md")]
mod client_manual {}

pub use class::{ConnectError, ListenError, connect};
pub use reactor::{Builder, Handle, ServeError, Server};

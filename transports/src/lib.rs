//! Transports for the `sunrpc` core, and the reactor that drives them.
//!
//! Features only register transport classes ([`class::CLASSES`]); configuration chooses among them by URL
//! (`tcp://[::]:2049`). [`Server`] runs programs on any of them; [`connect`] is the client's way in.

pub mod class;
pub mod clnt;
#[cfg(any(feature = "tcp", feature = "udp"))]
mod inet;
pub mod lend;
#[cfg(feature = "local")]
mod local;
mod reactor;
pub mod rpcbind;
#[cfg(any(feature = "tcp", feature = "local"))]
mod stream;
#[cfg(feature = "tcp")]
mod tcp;
#[cfg(feature = "udp")]
mod udp;

/// The snippets of `docs/client.md` compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/client.md")]
mod client_manual {}

pub use class::{ConnectError, ListenError, SendOptions, Zerocopy, connect, connect_with};
pub use reactor::{
    Builder, DepotStats, Group, Handle, PagesNow, PollStats, SPIN_AUTO, ServeError, Server, ServerStats,
    ThreadStats,
};

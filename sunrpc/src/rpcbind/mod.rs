//! rpcbind (RFC 1833): program 100000, versions 2 (port mapper), 3 and 4. A client, and a server small enough to be
//! embedded in one that offers other programs.
//!
//! | part | what it knows |
//! |---|---|
//! | [`Registry`] | what is registered, by whom, with its bounds |
//! | [`Rpcbind`] | the program over a registry |
//! | [`Rpcb`], [`Pmap`] | typed clients of version 4 and of version 2 |
//! | [`Netid`], [`Uaddr`] | names of transports, universal addresses |
//! | [`proto`] | what `sunrpc-rpcgen` makes of `rpcbind.x` |
//!
//! Calls are never forwarded (CALLIT, BCAST, INDIRECT): see [`Rpcbind`].

mod clnt;
mod registry;
mod svc;
mod uaddr;

pub use clnt::{Pmap, Rpcb};
pub use registry::{Entry, MAX_ENTRIES, MAX_OF_USER, Mapping, Owner, PROGRAM, Registry, reachable};
pub use svc::{Host, MAX_REMOTE_LIST, Rpcbind};
pub use uaddr::{Netid, Uaddr, format_inet, parse_inet};

/// Generated from `rpcbind.x`; a test of `sunrpc-rpcgen` keeps it up to date.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::pedantic
)]
pub mod proto {
    include!("generated.rs");
}

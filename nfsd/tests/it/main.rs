//! The `nfsd` program as its users meet it: started from the command line, spoken to over TCP.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod examples;
mod footprint;
mod foreign;
mod hostile;
mod lifecycle;
mod rpcbind;
mod server;
mod wire;

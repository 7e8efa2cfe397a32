//! The `nfsd` program as its users meet it: started from the command line, spoken to by sockets.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod datagrams;
mod examples;
mod footprint;
mod foreign;
mod hostile;
mod lifecycle;
mod modes;
mod reserved;
mod rpcbind;
mod server;
mod stat;
mod wire;

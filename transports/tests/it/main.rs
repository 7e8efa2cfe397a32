//! Transports and reactor, end to end over real sockets.
#![allow(unreachable_pub)]

#[cfg(feature = "async")]
mod clnt_async;
mod clnt_broadcast;
mod clnt_datagram;
mod clnt_fakes;
mod clnt_local;
#[cfg(feature = "tcp")]
mod clnt_rpcbind;
#[cfg(feature = "tcp")]
mod clnt_server;
#[cfg(feature = "tcp")]
mod clnt_stream;
mod common;
mod hostile;
mod local;
mod spin;
mod tcp;
mod udp;

//! Transports and reactor, end to end over real sockets.
#![allow(unreachable_pub)]

mod common;
mod hostile;
mod local;
mod tcp;
mod udp;

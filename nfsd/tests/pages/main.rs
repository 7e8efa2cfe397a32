//! Reply pages under way: what the peer gets is what the file held, however late it reads.
//!
//! The reader stalls: its window is 8 KiB and it sleeps before it reads, so that nearly all of a reply waits in the server
//! or in the kernel, where a page that was used again too early would show. No privileges are needed for that.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[allow(dead_code)] // shared with other tests
#[path = "../bugs/client.rs"]
mod client;
mod gates;
mod held;
#[allow(dead_code)]
#[path = "../bugs/in_process.rs"]
mod in_process;
mod integrity;
mod lent;
mod placed;
#[allow(dead_code)]
#[path = "../it/server.rs"]
mod server;
mod stalled;

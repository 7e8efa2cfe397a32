//! Faults that other servers had, one test or more for each row of the list of public bugs, named after it.
//!
//! The server is the `nfsd` program on a temporary directory, spoken to over TCP; where a backend has to misbehave, or a
//! directory has to be exported twice, it is the same server in this process.
//!
//! | row | here |
//! |---|---|
//! | R1, B04, B14 | `rpc` |
//! | B16 | `mount` |
//! | B19, B20, B22, B25 | `v3` |
//! | B26, B27, B29, B30, B31 | `vfs` |
//! | B32, B33 | `drc` |
//!
//! B08 is a matter of the `.x` compiler: `sunrpc/rpcgen/tests/it/optional.rs`. Halves of rows that need NFS version 4 are
//! named where their other half is tested.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod client;
mod drc;
mod flaky;
mod in_process;
mod mount;
mod rpc;
#[allow(dead_code)] // shared with the tests in `it`
#[path = "../it/server.rs"]
mod server;
mod v3;
mod vfs;

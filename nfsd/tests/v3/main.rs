//! NFSv3 procedure by procedure over the memory file system: no socket, results decoded by the generated types.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod edges;
mod failures;
mod fragments;
mod procedures;
mod rig;

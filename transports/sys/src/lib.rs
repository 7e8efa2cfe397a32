//! The room with unsafe system calls: each one behind one safe function.
//!
//! Everything here is a thin, typed door to the kernel. Policy (what to retry, what to cache, whose rights to use)
//! belongs to the callers, `sunrpc-transports` and `nfsd`.
//!
//! | module | door to |
//! |---|---|
//! | [`handle`] | kernel file handles |
//! | [`open`] | opening below a directory, reopening |
//! | [`stat`] | attributes of objects and file systems |
//! | [`dir`] | directory entries: listing, making, removing, renaming |
//! | [`io`] | file data: positioned vectored reads and writes, flushing, residency |
//! | [`attr`] | mode, owner, times, access checks |
//! | [`cred`] | a thread's file-system identity and capabilities |
//! | [`poll`] | waiting for one descriptor |
//! | [`slab`] | anonymous memory that a page pool carves up |
//! | [`thread`] | CPU affinity, limits, resource use |

pub mod attr;
pub mod cred;
pub mod dir;
pub mod handle;
pub mod io;
pub mod open;
pub mod poll;
pub mod slab;
pub mod stat;
pub mod thread;

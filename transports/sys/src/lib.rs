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
//! | [`datagram`] | datagrams in batches, with the address they were sent to |
//! | [`pipe`] | page-cache pages from a file to a socket |
//! | [`poll`] | waiting for one descriptor |
//! | [`slab`] | anonymous memory that a page pool carves up |
//! | [`thread`] | CPU affinity, limits, resource use |
//! | [`tun`] | devices whose packets a program moves, in any network namespace |
//! | [`zerocopy`] | sends by reference, and their completions |

pub mod attr;
pub mod cred;
pub mod datagram;
pub mod dir;
pub mod handle;
pub mod io;
pub mod open;
pub mod pipe;
pub mod poll;
pub mod slab;
pub mod stat;
pub mod thread;
pub mod tun;
pub mod zerocopy;

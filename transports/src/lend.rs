//! Page-cache pages in replies: a file system lends them, a stream sends them without a copy.

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use sunrpc::mutate;
use sunrpc::page::{Lender, Lent, Payload, Shared};
use sunrpc_sys::pipe;

/// Class of what is lent here.
pub(crate) const CLASS: &str = "pipe";

struct Pipes;

impl Lender for Pipes {
    fn class(&self) -> &'static str {
        CLASS
    }

    fn copy_to(&self, id: u64, bufs: &mut [IoSliceMut<'_>]) -> bool {
        pipe::copy(id, bufs).inspect_err(|e| tracing::warn!("cannot copy lent bytes: {e}")).is_ok()
    }

    fn release(&self, id: u64) {
        pipe::release(id);
    }
}

/// Lends up to `len` bytes at `offset` of a file to a reply that this thread sends. Pages in the page cache are referred
/// to; others would be read first, which waits, so ask whether they are there. `None` if nothing can be lent now (all
/// of the thread's pipes are in use) or the file ends before `offset`. May be shorter than asked.
///
/// # Errors
/// Those of splice(2); file systems that cannot do it answer `EINVAL`.
pub fn splice(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Option<Payload<Shared>>> {
    let promised = |got| if mutate::on("promise-first") { len } else { got };
    Ok(pipe::lend(file, offset, len)?.map(|l| Lent::new(&Pipes, l.id, promised(l.len)).into()))
}

#[cfg(any(feature = "tcp", feature = "local"))]
pub(crate) use pipe::send;

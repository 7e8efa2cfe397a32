//! Directory listings.
//!
//! The cookie verifier is always zero and never checked: cookies stay good while a directory changes, and one that
//! cannot be resumed is refused by the file system.

use super::status::Fail;
use super::wire::{FATTR, Fill, POST_OP, bulk_max};
use crate::context::{Context, Sealer};
use crate::proto::nfs3::*;
use crate::vfs::{DirEntry, DirSink, ReaddirWant};
use std::ops::ControlFlow;
use sunrpc::page::PageWriter;
use sunrpc::svc::Call;
use sunrpc::xdr::{XdrError, XdrWrite};

/// Bytes of the result around its entries, as `count` and `maxcount` count them: attributes, verifier, end of list, eof.
const AROUND: usize = POST_OP + 8 + 4 + 4;
/// Status, attributes, verifier.
const HEAD: usize = 4 + POST_OP + 8;

struct Entries<'o, 'w, 'c> {
    out: &'o mut PageWriter<'w>,
    /// With handles and attributes.
    plus: Option<Sealer<'c>>,
    /// Bytes left for entries.
    left: usize,
    /// Bytes left for names, numbers and cookies.
    dir_left: usize,
    taken: usize,
    failed: bool,
}

impl Entries<'_, '_, '_> {
    fn put(&mut self, e: &DirEntry<'_>) -> Result<(), XdrError> {
        let out = &mut *self.out;
        let mut f = Fill(out.chunk::<12>()?);
        f.u32(1);
        f.u64(e.fileid);
        out.put_opaque(e.name, NFS3_NAMELEN)?;
        out.put_u64(e.cookie)?;
        let Some(sealer) = &self.plus else { return Ok(()) };
        match e.entry {
            Some(entry) => {
                let mut f = Fill(out.chunk::<{ 4 + FATTR + 4 }>()?);
                f.post_op(&entry.attr);
                f.u32(1);
                out.put_opaque(sealer.seal(&entry.handle).as_bytes(), NFS3_FHSIZE)
            }
            None => out.put_u64(0),
        }
    }
}

impl DirSink for Entries<'_, '_, '_> {
    fn entry(&mut self, e: &DirEntry<'_>) -> ControlFlow<()> {
        let named = 8 + 4 + e.name.len().next_multiple_of(4) + 8;
        // The longest it can be; handles differ in length, and none is sealed before it is sure to fit.
        let whole = 4
            + named
            + match (&self.plus, e.entry) {
                (None, _) => 0,
                (Some(_), None) => 8,
                (Some(_), Some(entry)) => {
                    POST_OP + 4 + 4 + (entry.handle.as_bytes().len() + SEAL).next_multiple_of(4)
                }
            };
        if whole > self.left || (named > self.dir_left && self.taken > 0) {
            return ControlFlow::Break(());
        }
        if self.put(e).is_err() {
            self.failed = true;
            return ControlFlow::Break(());
        }
        self.left -= whole;
        self.dir_left = self.dir_left.saturating_sub(named);
        self.taken += 1;
        ControlFlow::Continue(())
    }
}

/// What sealing adds to a handle, in bytes.
const SEAL: usize = 1 + 1 + 4 + 16;

pub(super) fn readdir(
    c: &mut Context,
    call: &Call<'_>,
    a: READDIR3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    list(c, call, a.dir.data, a.cookie, usize::MAX, a.count, false, out)
}

pub(super) fn readdirplus(
    c: &mut Context,
    call: &Call<'_>,
    a: READDIRPLUS3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    list(c, call, a.dir.data, a.cookie, a.dircount as usize, a.maxcount, true, out)
}

#[allow(clippy::too_many_arguments)] // the arguments of the two procedures
fn list(
    c: &mut Context,
    call: &Call<'_>,
    dir: &[u8],
    cookie: u64,
    dircount: usize,
    maxcount: u32,
    plus: bool,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let here = c.enter(call, dir)?;
    let bytes = maxcount.min(bulk_max(call));
    let Some(left) = (bytes as usize).checked_sub(AROUND) else {
        return Err(nfsstat3::NFS3ERR_TOOSMALL.into());
    };
    let head = out.reserve(HEAD)?;
    let mut sink =
        Entries { out, plus: plus.then_some(here.sealer), left, dir_left: dircount, taken: 0, failed: false };
    let want = ReaddirWant { plus, bytes };
    let eof = here.vfs.readdir(&here.cx, &here.handle, cookie, want, &mut sink)?;
    let (taken, failed) = (sink.taken, sink.failed);
    if failed {
        return Err(sunrpc::svc::RpcError::SystemErr.into());
    }
    if taken == 0 && !eof {
        return Err(nfsstat3::NFS3ERR_TOOSMALL.into());
    }
    // After the listing: reading it may have changed the access time. Waiting for this alone is not worth a second try.
    let attr = here.vfs.getattr(&here.cx, &here.handle)?;
    let mut f = Fill(out.slot_mut(head));
    f.u32(0);
    f.post_op(&attr);
    f.u64(0);
    out.put_u32(0)?;
    Ok(out.put_u32(u32::from(eof))?)
}

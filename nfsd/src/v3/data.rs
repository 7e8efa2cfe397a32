//! Contents of files.

use super::status::Fail;
use super::wire::{Fill, POST_OP, bulk_max, put_wcc};
use crate::context::Context;
use crate::proto::nfs3::*;
use crate::vfs::{FileType, Stability, VfsError};
use smallvec::SmallVec;
use std::io::IoSlice;
use sunrpc::page::{PAGE_SIZE, PageWriter};
use sunrpc::svc::Call;
use sunrpc::xdr::{Decode, Decoder, XdrError, XdrWrite};

/// Offsets end here: a file's size is a signed 64-bit number.
const OFFSET_END: u64 = i64::MAX as u64;

/// Bytes of READ3resok before its data, status included.
const READ_HEAD: usize = 4 + POST_OP + 12;

pub(super) fn read(
    c: &mut Context,
    call: &Call<'_>,
    a: READ3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.file.data)?;
    // No file reaches beyond the largest offset, so a read there ends at once, without an error (section 3.3.6).
    let room = OFFSET_END.saturating_sub(a.offset).min(u64::from(bulk_max(call)));
    let want = u64::from(a.count).min(room) as usize;
    let head = out.reserve(READ_HEAD)?;
    let offset = a.offset.min(OFFSET_END);
    let (mut n, mut end) = (0, None);
    if want > 0
        && call.may_lend()
        && let Some(lent) = here.vfs.lend(&here.cx, &here.handle, offset, want)?
    {
        n = lent.data.len();
        out.put_shared(lent.data)?;
        end = Some((lent.attr, lent.eof));
    }
    // What cannot be lent is read, be it all or the rest.
    let (attr, eof) = match end {
        Some((attr, eof)) if eof || n == want => (attr, eof),
        _ => {
            let (read, done) = out.payload::<Fail, _>(want - n, |iov| {
                let done = here.vfs.read(&here.cx, &here.handle, offset + n as u64, iov)?;
                Ok((done.len, done))
            })?;
            n += read;
            (done.attr, done.eof)
        }
    };
    let mut f = Fill(out.slot_mut(head));
    f.u32(0);
    f.post_op(&attr);
    f.u32(n as u32);
    f.u32(u32::from(eof));
    f.u32(n as u32);
    Ok(out.put_padding(n)?)
}

/// Moves to the data of a WRITE. Each byte of it is wanted where it would lie in a page of the file: so whole pages of the
/// file are whole pages in memory, as O_DIRECT needs them.
pub(super) fn write_bulk(d: &mut Decoder<'_>) -> Result<usize, XdrError> {
    nfs_fh3Ref::decode(d)?;
    let offset = d.u64()?;
    d.u32()?;
    stable_how::decode(d)?;
    Ok((offset % PAGE_SIZE as u64) as usize)
}

pub(super) fn write(
    c: &mut Context,
    call: &Call<'_>,
    a: WRITE3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    // The one from before: if a flush fails while this is written, the client has to send it again.
    let verifier = c.shared().verifier();
    let here = c.enter(call, a.file.data)?;
    if here.export.read_only {
        return Err(nfsstat3::NFS3ERR_ROFS.into());
    }
    if a.count as usize != a.data.len() {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    if a.offset.saturating_add(u64::from(a.count)) > OFFSET_END {
        return Err(nfsstat3::NFS3ERR_FBIG.into());
    }
    let stable = match a.stable {
        stable_how::UNSTABLE => Stability::Unstable,
        stable_how::DATA_SYNC => Stability::DataSync,
        stable_how::FILE_SYNC => Stability::FileSync,
    };
    let mut bufs: SmallVec<[IoSlice<'_>; 260]> = SmallVec::new();
    a.data.io_slices(&mut bufs);
    let done = here.vfs.write(&here.cx, &here.handle, a.offset, &bufs, stable);
    if here.vfs.has_left() {
        call.release_later(here.export.id.into());
    }
    let done = done.inspect_err(|e| {
        // A stable write flushes, and may have met the failure of an earlier, unstable one.
        if *e == VfsError::Io {
            c.shared().renew_verifier();
        }
    })?;
    out.put_u32(0)?;
    put_wcc(out, Some(&done.attr))?;
    out.put_u32(done.len as u32)?;
    out.put_u32(match done.committed {
        Stability::Unstable => stable_how::UNSTABLE,
        Stability::DataSync => stable_how::DATA_SYNC,
        Stability::FileSync => stable_how::FILE_SYNC,
    } as u32)?;
    Ok(out.put(&verifier)?)
}

pub(super) fn commit(
    c: &mut Context,
    call: &Call<'_>,
    a: COMMIT3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.file.data)?;
    if here.export.read_only {
        return Err(nfsstat3::NFS3ERR_ROFS.into());
    }
    let attr = here.vfs.commit(&here.cx, &here.handle, a.offset, a.count);
    if here.vfs.has_left() {
        call.release_later(here.export.id.into());
    }
    let attr = attr.inspect_err(|e| {
        if matches!(e, VfsError::Io | VfsError::NoSpc | VfsError::DQuot) {
            c.shared().renew_verifier();
        }
    })?;
    if attr.ftype != FileType::Regular {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    out.put_u32(0)?;
    put_wcc(out, Some(&attr))?;
    // The one from after: another call's failed flush may have covered this file, and left nothing for this one to see.
    Ok(out.put(&c.shared().verifier())?)
}

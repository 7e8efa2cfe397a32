//! Attributes, access rights, properties of the file system.

use super::status::Fail;
use super::wire::{FATTR, Fill, POST_OP, bulk_max, put_post_op, put_wcc, sattr, time};
use crate::context::Context;
use crate::proto::nfs3::*;
use crate::vfs::{Access, FsStat};
use sunrpc::page::PageWriter;
use sunrpc::svc::Call;
use sunrpc::xdr::XdrWrite;

pub(super) fn getattr(
    c: &mut Context,
    call: &Call<'_>,
    a: GETATTR3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.object.data)?;
    let attr = here.vfs.getattr(&here.cx, &here.handle)?;
    let mut f = Fill(out.chunk::<{ 4 + FATTR }>()?);
    f.u32(0);
    f.fattr(&attr);
    Ok(())
}

pub(super) fn setattr(
    c: &mut Context,
    call: &Call<'_>,
    a: SETATTR3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.object.data)?;
    if here.export.read_only {
        return Err(nfsstat3::NFS3ERR_ROFS.into());
    }
    let guard = match &a.guard {
        sattrguard3::True(t) => Some(time(t)?),
        sattrguard3::False => None,
    };
    let attr = here.vfs.setattr(&here.cx, &here.handle, &sattr(&a.new_attributes)?, guard)?;
    out.put_u32(0)?;
    Ok(put_wcc(out, Some(&attr))?)
}

pub(super) fn access(
    c: &mut Context,
    call: &Call<'_>,
    a: ACCESS3argsRef<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.object.data)?;
    let mut want = a.access & 0x3f;
    if here.export.read_only {
        want &= !(ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE);
    }
    let (granted, attr) = here.vfs.access(&here.cx, &here.handle, Access(want))?;
    let mut f = Fill(out.chunk::<{ 4 + POST_OP + 4 }>()?);
    f.u32(0);
    f.post_op(&attr);
    f.u32(granted.0 & want);
    Ok(())
}

/// Begins the result of FSSTAT, FSINFO and PATHCONF: status and attributes; what is left to tell comes from the
/// properties returned.
fn file_system(
    c: &mut Context,
    call: &Call<'_>,
    fh: nfs_fh3Ref<'_>,
    out: &mut PageWriter<'_>,
) -> Result<FsStat, Fail> {
    let here = c.enter(call, fh.data)?;
    let s = here.vfs.statfs(&here.cx, &here.handle)?;
    let attr = here.vfs.getattr(&here.cx, &here.handle)?;
    out.put_u32(0)?;
    put_post_op(out, Some(&attr))?;
    Ok(s)
}

pub(super) fn fsstat(
    c: &mut Context,
    call: &Call<'_>,
    fh: nfs_fh3Ref<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let s = file_system(c, call, fh, out)?;
    for v in [s.bytes.0, s.bytes.1, s.bytes.2, s.files.0, s.files.1, s.files.2] {
        out.put_u64(v)?;
    }
    // How long these numbers stay true: not at all.
    Ok(out.put_u32(0)?)
}

pub(super) fn fsinfo(
    c: &mut Context,
    call: &Call<'_>,
    fh: nfs_fh3Ref<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let s = file_system(c, call, fh, out)?;
    let most = bulk_max(call);
    // Reads: most, preferred, multiple; writes likewise; preferred READDIR.
    for v in [most, most, 4096, most, most, 4096, most.min(64 << 10)] {
        out.put_u32(v)?;
    }
    out.put_u64(s.max_file_size)?;
    out.put_u32(0)?;
    out.put_u32(s.time_delta_ns)?;
    let links = if s.links { FSF3_LINK | FSF3_SYMLINK } else { 0 };
    Ok(out.put_u32(links | FSF3_HOMOGENEOUS | FSF3_CANSETTIME)?)
}

pub(super) fn pathconf(
    c: &mut Context,
    call: &Call<'_>,
    fh: nfs_fh3Ref<'_>,
    out: &mut PageWriter<'_>,
) -> Result<(), Fail> {
    let s = file_system(c, call, fh, out)?;
    // No truncation of names, case matters and is kept.
    for v in [s.link_max, s.name_max, 1, u32::from(s.chown_restricted), 0, 1] {
        out.put_u32(v)?;
    }
    Ok(())
}

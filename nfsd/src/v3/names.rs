//! Names in directories, and links.

use super::LINK_MAX;
use super::status::Fail;
use super::wire::{name, new_name, old_name, put_fh, put_post_op, put_wcc, sattr};
use crate::context::{Context, Here};
use crate::proto::nfs3::*;
use crate::vfs::{Attr, CreateHow, Entry, Handle, Node, VfsError};
use sunrpc::page::PageWriter;
use sunrpc::svc::Call;
use sunrpc::xdr::XdrWrite;

type Out<'a, 'b> = &'a mut PageWriter<'b>;

/// Enters a directory to change it.
fn enter_rw<'c>(c: &'c mut Context, call: &Call<'_>, dir: &nfs_fh3Ref<'_>) -> Result<Here<'c>, Fail> {
    let here = c.enter(call, dir.data)?;
    match here.export.read_only {
        true => Err(nfsstat3::NFS3ERR_ROFS.into()),
        false => Ok(here),
    }
}

/// Attributes of the directory after a change. The change is made: without waiting, or not at all.
fn after(here: &mut Here<'_>) -> Option<Attr> {
    here.vfs.getattr(&here.cx, &here.handle).ok()
}

/// Results of CREATE, MKDIR, SYMLINK, MKNOD.
fn put_made(mut here: Here<'_>, e: &Entry, out: Out<'_, '_>) -> Result<(), Fail> {
    let dir = after(&mut here);
    out.put_u32(0)?;
    out.put_u32(1)?;
    put_fh(out, &here.sealer.seal(&e.handle))?;
    put_post_op(out, Some(&e.attr))?;
    Ok(put_wcc(out, dir.as_ref())?)
}

pub(super) fn lookup(
    c: &mut Context,
    call: &Call<'_>,
    a: LOOKUP3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.what.dir.data)?;
    let e = here.vfs.lookup(&here.cx, &here.handle, name(a.what.name.0)?)?;
    out.put_u32(0)?;
    put_fh(out, &here.sealer.seal(&e.handle))?;
    put_post_op(out, Some(&e.attr))?;
    // The directory's attributes would cost another look; clients do without them.
    Ok(put_post_op(out, None)?)
}

pub(super) fn readlink(
    c: &mut Context,
    call: &Call<'_>,
    a: READLINK3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = c.enter(call, a.symlink.data)?;
    let attr = here.vfs.getattr(&here.cx, &here.handle)?;
    let mut target = [0; LINK_MAX];
    let links = here.vfs.links().ok_or(VfsError::NotSupp)?;
    let n = links.readlink(&here.cx, &here.handle, &mut target)?;
    out.put_u32(0)?;
    put_post_op(out, Some(&attr))?;
    Ok(out.put_opaque(target.get(..n).unwrap_or_default(), NFS3_PATHLEN)?)
}

pub(super) fn create(
    c: &mut Context,
    call: &Call<'_>,
    a: CREATE3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = enter_rw(c, call, &a.where_.dir)?;
    let how = match &a.how {
        createhow3::UNCHECKED(s) => CreateHow::Unchecked(sattr(s)?),
        createhow3::GUARDED(s) => CreateHow::Guarded(sattr(s)?),
        createhow3::EXCLUSIVE(v) => CreateHow::Exclusive(*v),
    };
    let e = here.vfs.create(&here.cx, &here.handle, new_name(a.where_.name.0)?, &how)?;
    put_made(here, &e, out)
}

pub(super) fn mkdir(
    c: &mut Context,
    call: &Call<'_>,
    a: MKDIR3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = enter_rw(c, call, &a.where_.dir)?;
    let e = here.vfs.mkdir(&here.cx, &here.handle, new_name(a.where_.name.0)?, &sattr(&a.attributes)?)?;
    put_made(here, &e, out)
}

pub(super) fn symlink(
    c: &mut Context,
    call: &Call<'_>,
    a: SYMLINK3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = enter_rw(c, call, &a.where_.dir)?;
    let target = a.symlink.symlink_data.0;
    if target.is_empty() || target.contains(&0) {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    // The terminating NUL counts against PATH_MAX.
    if target.len() >= LINK_MAX {
        return Err(nfsstat3::NFS3ERR_NAMETOOLONG.into());
    }
    let set = sattr(&a.symlink.symlink_attributes)?;
    let n = new_name(a.where_.name.0)?;
    let links = here.vfs.links().ok_or(VfsError::NotSupp)?;
    let e = links.symlink(&here.cx, &here.handle, n, target, &set)?;
    put_made(here, &e, out)
}

pub(super) fn mknod(
    c: &mut Context,
    call: &Call<'_>,
    a: MKNOD3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = enter_rw(c, call, &a.where_.dir)?;
    let (node, set) = match &a.what {
        mknoddata3::NF3CHR(d) => (Node::Char(d.spec.specdata1, d.spec.specdata2), sattr(&d.dev_attributes)?),
        mknoddata3::NF3BLK(d) => (Node::Block(d.spec.specdata1, d.spec.specdata2), sattr(&d.dev_attributes)?),
        mknoddata3::NF3SOCK(s) => (Node::Socket, sattr(s)?),
        mknoddata3::NF3FIFO(s) => (Node::Fifo, sattr(s)?),
        mknoddata3::Default(_) => return Err(nfsstat3::NFS3ERR_BADTYPE.into()),
    };
    let n = new_name(a.where_.name.0)?;
    let links = here.vfs.links().ok_or(VfsError::NotSupp)?;
    let e = links.mknod(&here.cx, &here.handle, n, node, &set)?;
    put_made(here, &e, out)
}

/// Result of REMOVE and RMDIR.
fn put_removed(mut here: Here<'_>, out: Out<'_, '_>) -> Result<(), Fail> {
    let dir = after(&mut here);
    out.put_u32(0)?;
    Ok(put_wcc(out, dir.as_ref())?)
}

pub(super) fn remove(
    c: &mut Context,
    call: &Call<'_>,
    a: diropargs3Ref<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = enter_rw(c, call, &a.dir)?;
    let n = old_name(a.name.0, nfsstat3::NFS3ERR_ACCES, nfsstat3::NFS3ERR_ACCES)?;
    here.vfs.remove(&here.cx, &here.handle, n)?;
    put_removed(here, out)
}

pub(super) fn rmdir(
    c: &mut Context,
    call: &Call<'_>,
    a: diropargs3Ref<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let here = enter_rw(c, call, &a.dir)?;
    // Each has an error of its own (section 3.3.13).
    let n = old_name(a.name.0, nfsstat3::NFS3ERR_INVAL, nfsstat3::NFS3ERR_EXIST)?;
    here.vfs.rmdir(&here.cx, &here.handle, n)?;
    put_removed(here, out)
}

/// The second handle of an operation, which must lie in the same export as the first: another one may be for others,
/// with other rights.
fn same_export(c: &mut Context, first: &[u8], second: &[u8]) -> Result<Handle, Fail> {
    let (a, _) = c.open(first)?;
    let (b, handle) = c.open(second)?;
    if a != b {
        return Err(nfsstat3::NFS3ERR_XDEV.into());
    }
    Ok(handle)
}

pub(super) fn rename(
    c: &mut Context,
    call: &Call<'_>,
    a: RENAME3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let to = same_export(c, a.from.dir.data, a.to.dir.data)?;
    let mut here = enter_rw(c, call, &a.from.dir)?;
    let inval = nfsstat3::NFS3ERR_INVAL;
    let (old, new) = (old_name(a.from.name.0, inval, inval)?, old_name(a.to.name.0, inval, inval)?);
    here.vfs.rename(&here.cx, (&here.handle, old), (&to, new))?;
    let from_attr = after(&mut here);
    let to_attr = here.vfs.getattr(&here.cx, &to).ok();
    out.put_u32(0)?;
    put_wcc(out, from_attr.as_ref())?;
    Ok(put_wcc(out, to_attr.as_ref())?)
}

pub(super) fn link(
    c: &mut Context,
    call: &Call<'_>,
    a: LINK3argsRef<'_>,
    out: Out<'_, '_>,
) -> Result<(), Fail> {
    let file = same_export(c, a.link.dir.data, a.file.data)?;
    let mut here = enter_rw(c, call, &a.link.dir)?;
    let n = new_name(a.link.name.0)?;
    let links = here.vfs.links().ok_or(VfsError::NotSupp)?;
    let attr = links.link(&here.cx, &file, &here.handle, n)?;
    let dir = after(&mut here);
    out.put_u32(0)?;
    put_post_op(out, Some(&attr))?;
    Ok(put_wcc(out, dir.as_ref())?)
}

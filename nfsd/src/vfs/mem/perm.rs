//! Who may do what.

use super::tree::Object;
use crate::vfs::{Access, Cx, Identity, SetAttr, SetTime, VfsError, VfsResult};

pub(super) const R: u32 = 4;
pub(super) const W: u32 = 2;
pub(super) const X: u32 = 1;

const SUID: u32 = 0o4000;
const SGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_X: u32 = 0o010;

pub(super) fn in_group(id: &Identity, gid: u32) -> bool {
    id.gid == gid || id.groups.contains(&gid)
}

/// The rights, as a set of [`R`], [`W`] and [`X`], that the mode bits give.
#[inline]
pub(super) fn rights(o: &Object, id: &Identity) -> u32 {
    if id.uid == 0 {
        // The superuser reads and writes everything, and executes what anybody may execute.
        return if o.is_dir() || o.mode & 0o111 != 0 { R | W | X } else { R | W };
    }
    let shift = match () {
        () if id.uid == o.uid => 6,
        () if in_group(id, o.gid) => 3,
        () => 0,
    };
    (o.mode >> shift) & 7
}

#[inline]
pub(super) fn need(o: &Object, id: &Identity, want: u32) -> VfsResult<()> {
    if rights(o, id) & want == want { Ok(()) } else { Err(VfsError::Acces) }
}

/// Permission to read contents. Execute permission implies it where there is no OPEN, or no program could be run.
#[inline]
pub(super) fn need_read(o: &Object, cx: &Cx<'_>) -> VfsResult<()> {
    if cx.owner_override && (cx.ident.uid == o.uid || rights(o, cx.ident) & X != 0) {
        return Ok(());
    }
    need(o, cx.ident, R)
}

/// Permission to write contents.
#[inline]
pub(super) fn need_write(o: &Object, cx: &Cx<'_>) -> VfsResult<()> {
    if cx.owner_override && cx.ident.uid == o.uid {
        return Ok(());
    }
    need(o, cx.ident, W)
}

/// Permission to remove or replace an object's name in `dir`, besides writing the directory.
pub(super) fn need_unlink(dir: &Object, o: &Object, id: &Identity) -> VfsResult<()> {
    if dir.mode & STICKY != 0 && id.uid != 0 && id.uid != o.uid && id.uid != dir.uid {
        return Err(VfsError::Perm);
    }
    Ok(())
}

/// Which of the rights in `want` (RFC 1813 section 3.3.4) the caller has.
pub(super) fn access(o: &Object, id: &Identity, want: Access) -> Access {
    Access::granted(rights(o, id), o.is_dir(), want)
}

/// Clears set-id bits as a change of the contents by this caller does.
pub(super) fn drop_set_id(o: &mut Object, id: &Identity) {
    if id.uid != 0 {
        o.mode = without_set_id(o.mode);
    }
}

fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SUID;
    if mode & GROUP_X != 0 { mode & !SGID } else { mode }
}

/// Mode of a new object: set-gid only for members of its group.
pub(super) fn mode_at_birth(mode: u32, gid: u32, id: &Identity) -> u32 {
    if id.uid == 0 || in_group(id, gid) { mode & 0o7777 } else { mode & 0o7777 & !SGID }
}

/// Group of a new object, and for a directory the set-gid bit it inherits.
pub(super) fn inherit(dir: &Object, id: &Identity) -> (u32, u32) {
    if dir.mode & SGID != 0 { (dir.gid, SGID) } else { (id.gid, 0) }
}

/// Judges everything that `set` asks for, except that the object has a size to set.
pub(super) fn may_set(o: &Object, cx: &Cx<'_>, set: &SetAttr) -> VfsResult<()> {
    let id = cx.ident;
    let owner = id.uid == 0 || id.uid == o.uid;
    let times = [set.atime, set.mtime];
    if set.mode.is_some() && !owner {
        return Err(VfsError::Perm);
    }
    if let Some(uid) = set.uid
        && !(id.uid == 0 || owner && uid == o.uid)
    {
        return Err(VfsError::Perm);
    }
    if let Some(gid) = set.gid
        && !(id.uid == 0 || owner && (gid == o.gid || in_group(id, gid)))
    {
        return Err(VfsError::Perm);
    }
    if times.iter().any(|t| matches!(t, SetTime::To(_))) && !owner {
        return Err(VfsError::Perm);
    }
    if times.contains(&SetTime::ServerNow) && !owner {
        need(o, id, W)?;
    }
    if set.size.is_some() {
        need_write(o, cx)?;
    }
    Ok(())
}

/// Sets mode, user and group, after [`may_set`].
pub(super) fn set_owner_and_mode(o: &mut Object, id: &Identity, set: &SetAttr) {
    o.uid = set.uid.unwrap_or(o.uid);
    o.gid = set.gid.unwrap_or(o.gid);
    let chown = (set.uid.is_some() || set.gid.is_some()) && !o.is_dir();
    match set.mode {
        Some(mode) => {
            let mode = if chown { without_set_id(mode) } else { mode };
            o.mode = mode_at_birth(mode, o.gid, id);
        }
        None if chown => o.mode = without_set_id(o.mode),
        None => {}
    }
}

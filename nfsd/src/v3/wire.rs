//! Pieces of results, and of arguments, that many procedures share.

use super::status::Fail;
use crate::fh::FileHandle;
use crate::proto::nfs3::*;
use crate::vfs::{Attr, FileType, SetAttr, SetTime, Time};
use sunrpc::page::PageWriter;
use sunrpc::svc::Call;
use sunrpc::xdr::{XdrError, XdrWrite};

/// Most bulk data of a result: what the transport carries, and what the procedures' result sizes leave room for.
pub(super) fn bulk_max(call: &Call<'_>) -> u32 {
    call.caps.max_payload.min(NFS3_IOMAX)
}

/// Bytes of fattr3.
pub(super) const FATTR: usize = 84;
/// Bytes of post_op_attr with attributes.
pub(super) const POST_OP: usize = 4 + FATTR;

/// Fills a stretch of fixed size from its start. What does not fit is left out; the sizes here are all constants.
pub(super) struct Fill<'a>(pub(super) &'a mut [u8]);

impl Fill<'_> {
    #[inline]
    pub(super) fn u32(&mut self, v: u32) {
        if let Some((head, rest)) = std::mem::take(&mut self.0).split_first_chunk_mut() {
            *head = v.to_be_bytes();
            self.0 = rest;
        }
    }

    #[inline]
    pub(super) fn u64(&mut self, v: u64) {
        if let Some((head, rest)) = std::mem::take(&mut self.0).split_first_chunk_mut() {
            *head = v.to_be_bytes();
            self.0 = rest;
        }
    }

    fn time(&mut self, t: Time) {
        // nfstime3 counts unsigned seconds; what lies outside wraps as in every other server.
        self.u32(t.sec as u32);
        self.u32(t.nsec);
    }

    #[inline]
    pub(super) fn fattr(&mut self, a: &Attr) {
        self.u32(match a.ftype {
            FileType::Regular => ftype3::NF3REG,
            FileType::Directory => ftype3::NF3DIR,
            FileType::Block => ftype3::NF3BLK,
            FileType::Char => ftype3::NF3CHR,
            FileType::Symlink => ftype3::NF3LNK,
            FileType::Socket => ftype3::NF3SOCK,
            FileType::Fifo => ftype3::NF3FIFO,
        } as u32);
        self.u32(a.mode & 0o7777);
        self.u32(a.nlink);
        self.u32(a.uid);
        self.u32(a.gid);
        self.u64(a.size);
        self.u64(a.used);
        self.u32(a.rdev.0);
        self.u32(a.rdev.1);
        self.u64(a.fsid);
        self.u64(a.fileid);
        self.time(a.atime);
        self.time(a.mtime);
        self.time(a.ctime);
    }

    #[inline]
    pub(super) fn post_op(&mut self, a: &Attr) {
        self.u32(1);
        self.fattr(a);
    }
}

pub(super) fn put_post_op(out: &mut PageWriter<'_>, a: Option<&Attr>) -> Result<(), XdrError> {
    match a {
        Some(a) => Fill(out.chunk::<POST_OP>()?).post_op(a),
        None => out.put_u32(0)?,
    }
    Ok(())
}

/// wcc_data without attributes from before: nothing in user space makes them atomic with the operation.
pub(super) fn put_wcc(out: &mut PageWriter<'_>, after: Option<&Attr>) -> Result<(), XdrError> {
    out.put_u32(0)?;
    put_post_op(out, after)
}

pub(super) fn put_fh(out: &mut PageWriter<'_>, fh: &FileHandle) -> Result<(), XdrError> {
    out.put_opaque(fh.as_bytes(), NFS3_FHSIZE)
}

pub(super) fn time(t: &nfstime3) -> Result<Time, Fail> {
    if t.nseconds >= 1_000_000_000 {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    Ok(Time { sec: i64::from(t.seconds), nsec: t.nseconds })
}

pub(super) fn sattr(a: &sattr3) -> Result<SetAttr, Fail> {
    // Nobody's number: system calls take it for "leave alone", so it must not be taken for a change that was made.
    if matches!(a.uid, set_uid3::True(u32::MAX)) || matches!(a.gid, set_gid3::True(u32::MAX)) {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    let how = |how: &time_how| match how {
        time_how::SET_TO_SERVER_TIME => SetTime::ServerNow,
        _ => SetTime::Keep,
    };
    Ok(SetAttr {
        mode: match a.mode {
            set_mode3::True(m) => Some(m & 0o7777),
            set_mode3::False => None,
        },
        uid: match a.uid {
            set_uid3::True(u) => Some(u),
            set_uid3::False => None,
        },
        gid: match a.gid {
            set_gid3::True(g) => Some(g),
            set_gid3::False => None,
        },
        size: match a.size {
            set_size3::True(s) => Some(s),
            set_size3::False => None,
        },
        atime: match &a.atime {
            set_atime::SET_TO_CLIENT_TIME(t) => SetTime::To(time(t)?),
            set_atime::Default(h) => how(h),
        },
        mtime: match &a.mtime {
            set_mtime::SET_TO_CLIENT_TIME(t) => SetTime::To(time(t)?),
            set_mtime::Default(h) => how(h),
        },
    })
}

/// Longest component of a name, in bytes.
const NAME_MAX: usize = 255;

/// A name to look up: any component, `.` and `..` too. What cannot be one is NFS3ERR_ACCES (section 3.2).
pub(super) fn name(n: &[u8]) -> Result<&[u8], Fail> {
    if n.len() > NAME_MAX {
        return Err(nfsstat3::NFS3ERR_NAMETOOLONG.into());
    }
    if n.is_empty() || n.iter().any(|b| matches!(b, b'/' | 0)) {
        return Err(nfsstat3::NFS3ERR_ACCES.into());
    }
    Ok(n)
}

/// A name to make: `.` and `..` exist everywhere (section 3.3.9).
pub(super) fn new_name(n: &[u8]) -> Result<&[u8], Fail> {
    match name(n)? {
        b"." | b".." => Err(nfsstat3::NFS3ERR_EXIST.into()),
        n => Ok(n),
    }
}

/// A name to take away or to move, or to move to: neither `.` nor `..` can be; they answer `dot` and `dots`, which differ
/// from procedure to procedure.
pub(super) fn old_name(n: &[u8], dot: nfsstat3, dots: nfsstat3) -> Result<&[u8], Fail> {
    match name(n)? {
        b"." => Err(dot.into()),
        b".." => Err(dots.into()),
        n => Ok(n),
    }
}

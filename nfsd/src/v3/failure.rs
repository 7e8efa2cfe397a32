//! What follows the status of a failure: attributes of the objects concerned, where they are to be had.
//!
//! A client that gets them knows the state that its call has met, and asks for no attributes of its own. They cost a
//! look at each object, but only in calls that fail.

use super::wire::{put_post_op, put_wcc};
use crate::context::Context;
use crate::proto::nfs3::*;
use crate::vfs::Attr;
use sunrpc::page::PageWriter;
use sunrpc::svc::Call;
use sunrpc::xdr::{Decode, Decoder, XdrError, XdrWrite};

/// A piece of a failure's result.
#[derive(Clone, Copy)]
enum Piece {
    /// post_op_attr.
    PostOp,
    /// wcc_data.
    Wcc,
}

/// The pieces of each procedure, in the order of the handles in its arguments.
const PIECES: [&[Piece]; 22] = {
    use Piece::*;
    const NONE: &[Piece] = &[];
    const LOOK: &[Piece] = &[PostOp];
    const CHANGE: &[Piece] = &[Wcc];
    [
        NONE,
        NONE,
        CHANGE,
        LOOK,
        LOOK,
        LOOK,
        LOOK,
        CHANGE,
        CHANGE,
        CHANGE,
        CHANGE,
        CHANGE,
        CHANGE,
        CHANGE,
        &[Wcc, Wcc],
        &[PostOp, Wcc],
        LOOK,
        LOOK,
        LOOK,
        LOOK,
        LOOK,
        CHANGE,
    ]
};

/// The next handle in the arguments of `proc`, if it is there to be read; `second` after the first one.
fn handle<'a>(proc: u32, args: &mut Decoder<'a>, second: bool) -> Option<&'a [u8]> {
    if second && proc == NFSPROC3_RENAME {
        filename3Ref::decode(args).ok()?;
    }
    nfs_fh3Ref::decode(args).ok().map(|fh| fh.data)
}

/// Attributes of an object, for a caller that its export admits.
fn attr(c: &mut Context, call: &Call<'_>, wire: &[u8]) -> Option<Attr> {
    let here = c.enter(call, wire).ok()?;
    // Where this would have to wait, the client does without: the call is not run again for it.
    here.vfs.getattr(&here.cx, &here.handle).ok()
}

/// Writes the result of a call of procedure `call.proc` that failed with `status`.
#[cold]
pub(super) fn put(
    c: &mut Context,
    call: &Call<'_>,
    mut args: Decoder<'_>,
    status: nfsstat3,
    out: &mut PageWriter<'_>,
) -> Result<(), XdrError> {
    out.put_u32(status as u32)?;
    let pieces = PIECES.get(call.proc as usize).copied().unwrap_or_default();
    for (i, piece) in pieces.iter().enumerate() {
        let attr = handle(call.proc, &mut args, i > 0).and_then(|fh| attr(c, call, fh));
        match piece {
            Piece::PostOp => put_post_op(out, attr.as_ref())?,
            Piece::Wcc => put_wcc(out, attr.as_ref())?,
        }
    }
    Ok(())
}

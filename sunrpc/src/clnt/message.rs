//! Call messages and what comes back, for every kind of client.

use super::{ClntAuth, ClntError, MAX_MESSAGE};
use crate::msg::{self, HeaderError, Parsed, RPC_VERSION, ReplyHeader};
use crate::xdr::{Decode, Decoder, VecWriter, XdrError, XdrWrite};

/// Which procedure of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcId {
    /// Program number.
    pub prog: u32,
    /// Version number.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
}

/// A call message of at most [`MAX_MESSAGE`] bytes, and the token with which `auth` checks its reply.
pub fn encode_call(
    xid: u32,
    of: ProcId,
    auth: &dyn ClntAuth,
    args: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
) -> Result<(Vec<u8>, u64), ClntError> {
    let mut w = VecWriter::new(MAX_MESSAGE);
    for v in [xid, 0, RPC_VERSION, of.prog, of.vers, of.proc] {
        w.put_u32(v).map_err(ClntError::Arguments)?;
    }
    let token = auth.put(&mut w)?;
    let from = w.written();
    args(&mut w).map_err(ClntError::Arguments)?;
    let mut message = w.into_inner();
    auth.wrap_args(token, &mut message, from)?;
    if message.len() > MAX_MESSAGE {
        return Err(ClntError::Arguments(XdrError::Full));
    }
    Ok((message, token))
}

/// The results in a reply message.
pub fn decode_reply<R: for<'a> Decode<'a>>(
    xid: u32,
    reply: &[u8],
    auth: &dyn ClntAuth,
    token: u64,
) -> Result<R, ClntError> {
    let mut d = Decoder::new(reply);
    match msg::parse(&mut d) {
        Ok(Parsed::Reply { xid: x }) if x == xid => {}
        Err(HeaderError::Damaged { err, .. }) => return Err(ClntError::Reply(err)),
        _ => return Err(ClntError::Reply(XdrError::NoArm { name: "msg_type", value: 0 })),
    }
    match msg::parse_reply(&mut d).map_err(ClntError::Reply)? {
        ReplyHeader::Success { verf } => {
            auth.check(token, verf).map_err(ClntError::Verifier)?;
            let results = auth.unwrap_results(token, d.rest())?;
            let mut d = Decoder::new(&results);
            let r = R::decode(&mut d).map_err(ClntError::Reply)?;
            d.finish().map_err(ClntError::Reply)?;
            Ok(r)
        }
        ReplyHeader::Accepted { verf, stat } => {
            auth.check(token, verf).map_err(ClntError::Verifier)?;
            Err(ClntError::Accept(stat))
        }
        ReplyHeader::Denied(stat) => Err(ClntError::Auth(stat)),
        ReplyHeader::RpcMismatch { low, high } => Err(ClntError::RpcMismatch { low, high }),
    }
}

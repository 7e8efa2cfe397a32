//! The client side, without I/O: one call at a time over anything that carries a message there and back.

use crate::auth::AuthSysParams;
use crate::msg::{
    self, AcceptStat, AuthStat, CallHeader, HeaderError, OpaqueAuth, Parsed, ReplyHeader, flavor,
};
use crate::xdr::{Decode, Decoder, Encode, VecWriter, XdrError};

/// Most bytes of a call or a reply.
pub const MAX_MESSAGE: usize = (1 << 20) + 4096;

/// Why a call failed, by the layer that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClntError {
    /// The message did not get there or back. Whether the server ran the call is unknown.
    #[error("transport failed: {0}")]
    Transport(#[from] std::io::Error),
    /// The server's answer is no reply to this call.
    #[error("reply cannot be understood: {0}")]
    Reply(XdrError),
    /// The arguments exceed their declared bounds; nothing was sent.
    #[error("arguments cannot be encoded: {0}")]
    Arguments(XdrError),
    /// The server did not run the call.
    #[error("server refused the call: {0}")]
    Accept(AcceptStat),
    /// The server did not accept the caller.
    #[error("server rejected the caller: {0}")]
    Auth(AuthStat),
    /// The server speaks other RPC versions.
    #[error("server speaks RPC versions {low} to {high} only")]
    RpcMismatch {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
}

/// Carries a call to the server and its reply back.
pub trait CallXprt {
    /// Sends `call` (without record mark) and returns the reply with the same transaction id.
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> std::io::Result<Vec<u8>>;
}

impl<T: CallXprt + ?Sized> CallXprt for Box<T> {
    fn roundtrip(&mut self, xid: u32, call: &[u8]) -> std::io::Result<Vec<u8>> {
        (**self).roundtrip(xid, call)
    }
}

/// A client of one version of one program.
#[derive(Debug)]
pub struct Client<T> {
    xprt: T,
    prog: u32,
    vers: u32,
    xid: u32,
    cred: Vec<u8>,
    flavor: u32,
}

impl<T: CallXprt> Client<T> {
    /// A client that calls as nobody (AUTH_NONE).
    pub fn new(xprt: T, prog: u32, vers: u32) -> Self {
        // Duplicate request caches tell clients apart by transaction id too: start anywhere but at a constant.
        let seed = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), prog);
        Client { xprt, prog, vers, xid: seed as u32, cred: Vec::new(), flavor: flavor::AUTH_NONE }
    }

    /// Calls as this user from now on (AUTH_SYS).
    pub fn set_auth_sys(&mut self, who: &AuthSysParams) -> Result<(), ClntError> {
        let mut w = VecWriter::new(msg::MAX_AUTH as usize);
        who.encode(&mut w).map_err(ClntError::Arguments)?;
        self.cred = w.into_inner();
        self.flavor = flavor::AUTH_SYS;
        Ok(())
    }

    /// The transport.
    pub fn xprt_mut(&mut self) -> &mut T {
        &mut self.xprt
    }

    /// Runs a procedure.
    pub fn call<A: Encode + ?Sized, R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        args: &A,
    ) -> Result<R, ClntError> {
        self.call_with(proc, |w| args.encode(w))
    }

    /// Runs a procedure whose arguments `encode` writes.
    pub fn call_with<R: for<'a> Decode<'a>>(
        &mut self,
        proc: u32,
        encode: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
    ) -> Result<R, ClntError> {
        self.xid = self.xid.wrapping_add(1);
        let header = CallHeader {
            xid: self.xid,
            prog: self.prog,
            vers: self.vers,
            proc,
            cred: OpaqueAuth { flavor: self.flavor, body: &self.cred },
            verf: OpaqueAuth::NONE,
        };
        let call = msg::encode_call(&header, MAX_MESSAGE, encode).map_err(ClntError::Arguments)?;
        let reply = self.xprt.roundtrip(self.xid, &call)?;
        let mut d = Decoder::new(&reply);
        match msg::parse(&mut d) {
            Ok(Parsed::Reply { xid }) if xid == self.xid => {}
            Err(HeaderError::Damaged { err, .. }) => return Err(ClntError::Reply(err)),
            _ => return Err(ClntError::Reply(XdrError::NoArm { name: "msg_type", value: 0 })),
        }
        match msg::parse_reply(&mut d).map_err(ClntError::Reply)? {
            ReplyHeader::Success { .. } => {
                let r = R::decode(&mut d).map_err(ClntError::Reply)?;
                d.finish().map_err(ClntError::Reply)?;
                Ok(r)
            }
            ReplyHeader::Accepted(stat) => Err(ClntError::Accept(stat)),
            ReplyHeader::Denied(stat) => Err(ClntError::Auth(stat)),
            ReplyHeader::RpcMismatch { low, high } => Err(ClntError::RpcMismatch { low, high }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every call with fixed words behind its transaction id.
    struct Canned(Vec<u32>);

    impl CallXprt for Canned {
        fn roundtrip(&mut self, xid: u32, _: &[u8]) -> std::io::Result<Vec<u8>> {
            Ok(std::iter::once(xid).chain(self.0.iter().copied()).flat_map(u32::to_be_bytes).collect())
        }
    }

    fn ask(words: &[u32]) -> Result<u32, ClntError> {
        Client::new(Canned(words.to_vec()), 7, 1).call(1, &5u32)
    }

    #[test]
    fn every_layer_has_its_error() {
        assert_eq!(ask(&[1, 0, 0, 0, 0, 42]).unwrap(), 42);
        assert!(matches!(ask(&[1, 0, 0, 0, 3]), Err(ClntError::Accept(AcceptStat::ProcUnavail))));
        assert!(matches!(ask(&[1, 1, 1, 5]), Err(ClntError::Auth(AuthStat::TooWeak))));
        assert!(matches!(ask(&[1, 1, 0, 2, 2]), Err(ClntError::RpcMismatch { low: 2, high: 2 })));
        assert!(matches!(ask(&[1, 0, 0, 0, 0]), Err(ClntError::Reply(XdrError::Eof { .. }))));
        assert!(matches!(ask(&[1, 0, 0, 0, 0, 1, 2]), Err(ClntError::Reply(XdrError::Trailing(4)))));
        assert!(matches!(ask(&[0, 2]), Err(ClntError::Reply(_))));
    }
}

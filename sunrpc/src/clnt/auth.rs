//! Credentials, client side.

use super::ClntError;
use crate::auth::AuthSysParams;
use crate::msg::{AuthStat, MAX_AUTH, OpaqueAuth, flavor};
use crate::xdr::VecWriter;

/// A flavor on the client side. Shared by all calls that use it, so state of one call travels in its token.
pub trait ClntAuth: std::fmt::Debug + Send + Sync {
    /// Appends credential and verifier to a call whose header so far (from the transaction id to the procedure
    /// number) is in `w`. Returns a token that [`ClntAuth::check`] gets with the reply, for instance a sequence
    /// number.
    fn put(&self, w: &mut VecWriter) -> Result<u64, ClntError>;

    /// Judges the verifier of a reply; an error discards the reply.
    fn check(&self, token: u64, verf: OpaqueAuth<'_>) -> Result<(), AuthStat>;
}

/// Calls as nobody (RFC 5531 section 10.1).
#[derive(Debug, Clone, Copy, Default)]
pub struct AuthNone;

impl ClntAuth for AuthNone {
    fn put(&self, w: &mut VecWriter) -> Result<u64, ClntError> {
        put_pair(w, OpaqueAuth::NONE)
    }

    /// Nothing is proved by it, and servers differ in what they send.
    fn check(&self, _: u64, _: OpaqueAuth<'_>) -> Result<(), AuthStat> {
        Ok(())
    }
}

/// Calls as a user that this host vouches for (RFC 5531 appendix A).
#[derive(Debug, Clone)]
pub struct AuthSys {
    body: Vec<u8>,
}

impl AuthSys {
    /// Encodes the credential once for all its calls. Fails if a field exceeds its limit.
    pub fn new(who: &AuthSysParams) -> Result<Self, ClntError> {
        let mut w = VecWriter::new(MAX_AUTH as usize);
        who.encode(&mut w).map_err(ClntError::Arguments)?;
        Ok(AuthSys { body: w.into_inner() })
    }
}

impl ClntAuth for AuthSys {
    fn put(&self, w: &mut VecWriter) -> Result<u64, ClntError> {
        put_pair(w, OpaqueAuth { flavor: flavor::AUTH_SYS, body: &self.body })
    }

    /// AUTH_NONE, or AUTH_SHORT whose shorthand this client does not use.
    fn check(&self, _: u64, _: OpaqueAuth<'_>) -> Result<(), AuthStat> {
        Ok(())
    }
}

fn put_pair(w: &mut VecWriter, cred: OpaqueAuth<'_>) -> Result<u64, ClntError> {
    cred.encode(w).and_then(|()| OpaqueAuth::NONE.encode(w)).map_err(ClntError::Arguments)?;
    Ok(0)
}

//! Credentials, client side.

use super::{ClntError, UnwrapError};
use crate::auth::AuthSysParams;
use crate::msg::{AuthStat, MAX_AUTH, OpaqueAuth, flavor};
use crate::xdr::VecWriter;
use std::borrow::Cow;

/// A flavor on the client side. Shared by all calls that use it, so state of one call travels in its token.
///
/// ```text
///   put            xid ... procedure | credential | verifier          the verifier may be a checksum of what is before it
///   wrap_args                                               | arguments  signed or encrypted in place
///   check          reply: verifier, whatever the accept_stat
///   unwrap_results                 | results                          only after `check`, only of a call that ran
/// ```
///
/// A flavor that only says who calls implements the first and the third.
pub trait ClntAuth: std::fmt::Debug + Send + Sync {
    /// Appends credential and verifier to a call whose header so far (from the transaction id to the procedure
    /// number) is in `w`. Returns a token that the other functions get for the same call, for instance its sequence
    /// number.
    fn put(&self, w: &mut VecWriter) -> Result<u64, ClntError>;

    /// Signs or encrypts the arguments of a call: what `message` has from `from` on. What is there afterwards takes
    /// their place. The message may have at most [`MAX_MESSAGE`](super::MAX_MESSAGE) bytes then.
    fn wrap_args(&self, token: u64, message: &mut Vec<u8>, from: usize) -> Result<(), ClntError> {
        let _ = (token, message, from);
        Ok(())
    }

    /// Judges the verifier of an accepted reply, whether the call ran or not; an error discards the reply.
    fn check(&self, token: u64, verf: OpaqueAuth<'_>) -> Result<(), AuthStat>;

    /// The plain results in the body of a reply whose verifier is right: a part of it, or decrypted into memory of
    /// their own. An error discards the reply.
    fn unwrap_results<'a>(&self, token: u64, body: &'a [u8]) -> Result<Cow<'a, [u8]>, UnwrapError> {
        let _ = token;
        Ok(Cow::Borrowed(body))
    }

    /// Whether a server takes the same bytes twice. Where it takes the second for a replay, as one with RPCSEC_GSS
    /// does (RFC 2203 section 5.3.3.1), a call of which bytes were sent is not sent again, whatever
    /// [`Resend`](super::Resend) says.
    fn repeatable(&self) -> bool {
        true
    }
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

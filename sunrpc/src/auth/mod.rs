//! Authentication flavors: from credential and verifier to who the caller is.
//!
//! AUTH_NONE and AUTH_SYS live here; RPCSEC_GSS implements [`AuthFlavor`] in a crate of its own.

mod sys;

pub use sys::{AuthSys, AuthSysParams, MAX_GIDS, MAX_MACHINE_NAME};

use crate::msg::{AuthStat, CallHeader, OpaqueAuth, flavor};
use crate::page::{PagePool, Payload, Private};
use smallvec::SmallVec;

/// Who calls, as the flavor established it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SvcCred {
    /// Nobody in particular (AUTH_NONE).
    None,
    /// A user id that the client's host asserts (AUTH_SYS).
    Sys {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Supplementary groups, at most 16.
        gids: SmallVec<[u32; 16]>,
    },
}

impl SvcCred {
    /// The flavor that established this.
    pub fn flavor(&self) -> u32 {
        match self {
            SvcCred::None => flavor::AUTH_NONE,
            SvcCred::Sys { .. } => flavor::AUTH_SYS,
        }
    }
}

/// What a flavor makes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The caller is who the credential says; the reply carries an empty AUTH_NONE verifier.
    Accept(SvcCred),
    /// MSG_DENIED.
    Reject(AuthStat),
    /// No answer at all (a replay).
    Drop,
}

/// A flavor on the server side; one instance for each worker.
pub trait AuthFlavor {
    /// Its number.
    fn flavor(&self) -> u32;

    /// Judges credential and verifier of a call.
    fn authenticate(&mut self, call: &CallHeader<'_>) -> Verdict;

    /// Whether it signs or encrypts the results of this call, which it accepted. Then procedures are told
    /// ([`Call::private`](crate::svc::Call::private)) to write nothing into the reply that others may change.
    fn protects(&self, call: &CallHeader<'_>) -> bool {
        let _ = call;
        false
    }

    /// Signs or encrypts results; what it returns takes their place, and may be up to [`PROTECTION_MAX`] bytes longer.
    /// `None` if it cannot: then there is no reply, and a connection closes.
    fn protect(
        &mut self,
        call: &CallHeader<'_>,
        results: Payload<Private>,
        pool: &mut PagePool,
    ) -> Option<Payload<Private>> {
        let _ = (call, pool);
        Some(results)
    }
}

/// Most bytes that the protection of a reply adds to it.
pub const PROTECTION_MAX: usize = 1024;

/// AUTH_NONE (RFC 5531 section 10.1).
#[derive(Debug, Default)]
pub struct AuthNone;

impl AuthFlavor for AuthNone {
    fn flavor(&self) -> u32 {
        flavor::AUTH_NONE
    }

    fn authenticate(&mut self, call: &CallHeader<'_>) -> Verdict {
        match (call.cred.body, call.verf) {
            ([], OpaqueAuth::NONE) => Verdict::Accept(SvcCred::None),
            ([], _) => Verdict::Reject(AuthStat::BadVerf),
            _ => Verdict::Reject(AuthStat::BadCred),
        }
    }
}

//! AUTH_SYS (RFC 5531 appendix A).

use super::{AuthFlavor, SvcCred, Verdict};
use crate::msg::{AuthStat, CallHeader, flavor};
use crate::xdr::{Decoder, XdrError, XdrWrite};
use smallvec::SmallVec;

/// Longest machine name, in bytes.
pub const MAX_MACHINE_NAME: u32 = 255;
/// Most supplementary groups.
pub const MAX_GIDS: u32 = 16;

/// The flavor, server side.
#[derive(Debug, Default)]
pub struct AuthSys;

impl AuthFlavor for AuthSys {
    fn flavor(&self) -> u32 {
        flavor::AUTH_SYS
    }

    fn authenticate(&mut self, call: &CallHeader<'_>) -> Verdict {
        if call.verf.flavor != flavor::AUTH_NONE || !call.verf.body.is_empty() {
            return Verdict::Reject(AuthStat::BadVerf);
        }
        match decode(call.cred.body) {
            Ok(cred) => Verdict::Accept(cred),
            Err(_) => Verdict::Reject(AuthStat::BadCred),
        }
    }
}

fn decode(body: &[u8]) -> Result<SvcCred, XdrError> {
    let mut d = Decoder::new(body);
    d.u32()?; // stamp: the caller's affair
    d.opaque(MAX_MACHINE_NAME)?;
    let (uid, gid) = (d.u32()?, d.u32()?);
    let n = d.count(MAX_GIDS, 4)?;
    let mut gids = SmallVec::new();
    for _ in 0..n {
        gids.push(d.u32()?);
    }
    d.finish()?;
    Ok(SvcCred::Sys { uid, gid, gids })
}

/// What a client puts into an AUTH_SYS credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSysParams {
    /// Arbitrary id.
    pub stamp: u32,
    /// Name of the client's host, at most 255 bytes.
    pub machine: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, at most 16.
    pub gids: Vec<u32>,
}

impl AuthSysParams {
    /// Appends the credential's body.
    pub fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        w.put_u32(self.stamp)?;
        w.put_opaque(self.machine.as_bytes(), MAX_MACHINE_NAME)?;
        w.put_u32(self.uid)?;
        w.put_u32(self.gid)?;
        w.put_count(self.gids.len(), MAX_GIDS)?;
        self.gids.iter().try_for_each(|g| w.put_u32(*g))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::OpaqueAuth;
    use crate::xdr::VecWriter;

    fn verdict(body: &[u8]) -> Verdict {
        let cred = OpaqueAuth { flavor: flavor::AUTH_SYS, body };
        AuthSys.authenticate(&CallHeader { xid: 1, prog: 1, vers: 1, proc: 1, cred, verf: OpaqueAuth::NONE })
    }

    fn body(gids: Vec<u32>) -> Vec<u8> {
        let mut w = VecWriter::new(400);
        let p = AuthSysParams { stamp: 5, machine: "client".into(), uid: 1000, gid: 100, gids: vec![] };
        p.encode(&mut w).unwrap();
        let mut v = w.into_inner();
        v.truncate(v.len() - 4);
        v.extend_from_slice(&(gids.len() as u32).to_be_bytes());
        gids.iter().for_each(|g| v.extend_from_slice(&g.to_be_bytes()));
        v
    }

    #[test]
    fn sixteen_groups_pass_and_seventeen_do_not() {
        let Verdict::Accept(SvcCred::Sys { uid, gids, .. }) = verdict(&body((0..16).collect())) else {
            panic!("16 groups refused")
        };
        assert_eq!((uid, gids.len()), (1000, 16));
        assert_eq!(verdict(&body((0..17).collect())), Verdict::Reject(AuthStat::BadCred));
    }

    #[test]
    fn truncations_and_trailing_bytes_are_refused() {
        let b = body(vec![1, 2, 3]);
        for n in 0..b.len() {
            assert_eq!(verdict(&b[..n]), Verdict::Reject(AuthStat::BadCred), "{n}");
        }
        let mut longer = b;
        longer.extend_from_slice(&[0; 4]);
        assert_eq!(verdict(&longer), Verdict::Reject(AuthStat::BadCred));
    }
}

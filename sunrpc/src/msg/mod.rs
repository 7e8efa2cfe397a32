//! RPC messages (RFC 5531 section 9): the call header, the reply headers.

use crate::xdr::{Decoder, VecWriter, XdrError, XdrWrite};

/// The version of the RPC protocol.
pub const RPC_VERSION: u32 = 2;
/// Longest body of a credential or verifier, in bytes (RFC 5531 section 8.2).
pub const MAX_AUTH: u32 = 400;
/// Fewest bytes of a call header.
pub const MIN_CALL: usize = 40;

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// Authentication flavor numbers (RFC 5531 section 8.2, RFC 2203, RFC 9289).
#[allow(missing_docs)]
pub mod flavor {
    pub const AUTH_NONE: u32 = 0;
    pub const AUTH_SYS: u32 = 1;
    pub const AUTH_SHORT: u32 = 2;
    pub const RPCSEC_GSS: u32 = 6;
    pub const AUTH_TLS: u32 = 7;
}

/// Flavor and opaque body of a credential or verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// Flavor number.
    pub flavor: u32,
    /// At most [`MAX_AUTH`] bytes.
    pub body: &'a [u8],
}

impl<'a> OpaqueAuth<'a> {
    /// AUTH_NONE without a body.
    pub const NONE: OpaqueAuth<'static> = OpaqueAuth { flavor: flavor::AUTH_NONE, body: &[] };

    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(OpaqueAuth { flavor: d.u32()?, body: d.opaque(MAX_AUTH)? })
    }

    /// Appends flavor, length, body.
    pub fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        w.put_u32(self.flavor)?;
        w.put_opaque(self.body, MAX_AUTH)
    }
}

/// The header of a call; the arguments follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// Transaction id, chosen by the caller.
    pub xid: u32,
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// Who calls.
    pub cred: OpaqueAuth<'a>,
    /// Proof of it.
    pub verf: OpaqueAuth<'a>,
}

/// What the first words of a record say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A call of RPC version 2; the cursor stands at its arguments.
    Call(CallHeader<'a>),
    /// A call of another RPC version.
    WrongVersion {
        /// Its transaction id.
        xid: u32,
    },
    /// A reply; the cursor stands behind the direction word.
    Reply {
        /// The transaction that it answers.
        xid: u32,
    },
}

/// Why the start of a record cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not even a transaction id and a known direction: there is nobody to answer.
    #[error("record is no RPC message")]
    NotRpc,
    /// A call whose header is damaged. The transaction can be answered.
    #[error("call header is damaged: {err}")]
    Damaged {
        /// Its transaction id.
        xid: u32,
        /// True if the damage lies in the credential or verifier (answer AUTH_BADCRED), false for a header that
        /// ends early (answer GARBAGE_ARGS).
        auth: bool,
        /// What is wrong.
        err: XdrError,
    },
}

/// Reads the header of a record.
#[inline]
pub fn parse<'a>(d: &mut Decoder<'a>) -> Result<Parsed<'a>, HeaderError> {
    match parse_usual(d) {
        Some(h) => Ok(Parsed::Call(h)),
        None => parse_any(d),
    }
}

/// A call without any oddity, with an empty verifier: nearly all calls. Leaves the cursor alone otherwise.
#[inline]
fn parse_usual<'a>(d: &mut Decoder<'a>) -> Option<CallHeader<'a>> {
    let (words, rest) = d.rest().split_first_chunk::<32>()?;
    let (words, _) = words.as_chunks::<4>();
    let [xid, direction, rpcvers, prog, vers, proc, flavor, len] =
        words.first_chunk::<8>()?.map(u32::from_be_bytes);
    // Lengths that need padding are rare enough to be checked by the slow way.
    if direction != CALL || rpcvers != RPC_VERSION || len > MAX_AUTH || len % 4 != 0 {
        return None;
    }
    let (body, rest) = rest.split_at_checked(len as usize)?;
    let (verf, _) = rest.split_first_chunk::<8>()?;
    if *verf != [0; 8] {
        return None;
    }
    d.bytes(40 + body.len()).ok()?;
    Some(CallHeader { xid, prog, vers, proc, cred: OpaqueAuth { flavor, body }, verf: OpaqueAuth::NONE })
}

fn parse_any<'a>(d: &mut Decoder<'a>) -> Result<Parsed<'a>, HeaderError> {
    let xid = d.u32().map_err(|_| HeaderError::NotRpc)?;
    match d.u32() {
        Ok(CALL) => {}
        Ok(REPLY) => return Ok(Parsed::Reply { xid }),
        _ => return Err(HeaderError::NotRpc),
    }
    let damaged = |auth| move |err| HeaderError::Damaged { xid, auth, err };
    let vers = d.u32().map_err(damaged(false))?;
    if vers != RPC_VERSION {
        return Ok(Parsed::WrongVersion { xid });
    }
    let prog = d.u32().map_err(damaged(false))?;
    let vers = d.u32().map_err(damaged(false))?;
    let proc = d.u32().map_err(damaged(false))?;
    let auth_damage = |err| HeaderError::Damaged { xid, auth: matches!(err, XdrError::TooLong { .. }), err };
    let cred = OpaqueAuth::decode(d).map_err(auth_damage)?;
    let verf = OpaqueAuth::decode(d).map_err(auth_damage)?;
    Ok(Parsed::Call(CallHeader { xid, prog, vers, proc, cred, verf }))
}

impl CallHeader<'_> {
    /// Appends the header of a call.
    pub fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        for v in [self.xid, CALL, RPC_VERSION, self.prog, self.vers, self.proc] {
            w.put_u32(v)?;
        }
        self.cred.encode(w)?;
        self.verf.encode(w)
    }
}

/// Why a server did not run an accepted call (RFC 5531 section 9, `accept_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AcceptStat {
    /// No such program here.
    #[error("the server does not offer this program")]
    ProgUnavail,
    /// The program exists in other versions only.
    #[error("the server offers versions {low} to {high} of this program")]
    ProgMismatch {
        /// Lowest version offered.
        low: u32,
        /// Highest version offered.
        high: u32,
    },
    /// No such procedure in this version.
    #[error("the program has no such procedure")]
    ProcUnavail,
    /// The arguments do not decode.
    #[error("the server could not decode the arguments")]
    GarbageArgs,
    /// The server failed (out of memory, result too large).
    #[error("the server failed while running the call")]
    SystemErr,
}

/// Why a server rejected the caller (RFC 5531 section 9, `auth_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)]
pub enum AuthStat {
    #[error("credential is malformed or not accepted")]
    BadCred = 1,
    #[error("the client must begin a new session")]
    RejectedCred = 2,
    #[error("verifier is malformed or wrong")]
    BadVerf = 3,
    #[error("verifier has expired or was replayed")]
    RejectedVerf = 4,
    #[error("flavor is too weak for this program")]
    TooWeak = 5,
    #[error("reply verifier is wrong")]
    InvalidResp = 6,
    #[error("unspecified authentication failure")]
    Failed = 7,
    #[error("no credential for this GSS user")]
    GssCredProblem = 13,
    #[error("GSS context is unusable")]
    GssCtxProblem = 14,
}

impl AuthStat {
    /// The wire value's meaning; unknown values read as [`AuthStat::Failed`].
    pub fn from_wire(v: u32) -> Self {
        match v {
            1 => AuthStat::BadCred,
            2 => AuthStat::RejectedCred,
            3 => AuthStat::BadVerf,
            4 => AuthStat::RejectedVerf,
            5 => AuthStat::TooWeak,
            6 => AuthStat::InvalidResp,
            13 => AuthStat::GssCredProblem,
            14 => AuthStat::GssCtxProblem,
            _ => AuthStat::Failed,
        }
    }
}

/// Appends MSG_ACCEPTED / SUCCESS; the results follow.
pub fn put_success<W: XdrWrite>(w: &mut W, xid: u32, verf: OpaqueAuth<'_>) -> Result<(), XdrError> {
    for v in [xid, REPLY, 0] {
        w.put_u32(v)?;
    }
    verf.encode(w)?;
    w.put_u32(0)
}

/// Bytes of [`success_header`].
pub const SUCCESS_HEADER: usize = 24;

/// MSG_ACCEPTED / SUCCESS with an empty AUTH_NONE verifier: by far the most frequent header.
#[inline]
pub fn success_header(xid: u32) -> [u8; SUCCESS_HEADER] {
    let mut h = [0; SUCCESS_HEADER];
    let (x, rest) = h.split_at_mut(4);
    x.copy_from_slice(&xid.to_be_bytes());
    if let Some(direction) = rest.get_mut(3) {
        *direction = REPLY as u8;
    }
    h
}

/// Appends a whole MSG_ACCEPTED reply that carries an error.
pub fn put_accept_error<W: XdrWrite>(
    w: &mut W,
    xid: u32,
    verf: OpaqueAuth<'_>,
    stat: AcceptStat,
) -> Result<(), XdrError> {
    for v in [xid, REPLY, 0] {
        w.put_u32(v)?;
    }
    verf.encode(w)?;
    match stat {
        AcceptStat::ProgUnavail => w.put_u32(1),
        AcceptStat::ProgMismatch { low, high } => [2, low, high].into_iter().try_for_each(|v| w.put_u32(v)),
        AcceptStat::ProcUnavail => w.put_u32(3),
        AcceptStat::GarbageArgs => w.put_u32(4),
        AcceptStat::SystemErr => w.put_u32(5),
    }
}

/// Appends MSG_DENIED / RPC_MISMATCH: only version 2 is spoken.
pub fn put_rpc_mismatch<W: XdrWrite>(w: &mut W, xid: u32) -> Result<(), XdrError> {
    [xid, REPLY, 1, 0, RPC_VERSION, RPC_VERSION].into_iter().try_for_each(|v| w.put_u32(v))
}

/// Appends MSG_DENIED / AUTH_ERROR.
pub fn put_auth_error<W: XdrWrite>(w: &mut W, xid: u32, stat: AuthStat) -> Result<(), XdrError> {
    [xid, REPLY, 1, 1, stat as u32].into_iter().try_for_each(|v| w.put_u32(v))
}

/// A reply's header as a client sees it; the cursor stands at the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyHeader<'a> {
    /// The call ran; results follow.
    Success {
        /// The server's verifier.
        verf: OpaqueAuth<'a>,
    },
    /// The call was accepted but not run.
    Accepted {
        /// The server's verifier.
        verf: OpaqueAuth<'a>,
        /// Why it was not run.
        stat: AcceptStat,
    },
    /// The server speaks other RPC versions.
    RpcMismatch {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// The caller was rejected.
    Denied(AuthStat),
}

/// Reads a reply from behind its direction word.
pub fn parse_reply<'a>(d: &mut Decoder<'a>) -> Result<ReplyHeader<'a>, XdrError> {
    let no_arm = |name, v: u32| XdrError::NoArm { name, value: v as i32 };
    match d.u32()? {
        0 => {
            let verf = OpaqueAuth::decode(d)?;
            let stat = match d.u32()? {
                0 => return Ok(ReplyHeader::Success { verf }),
                1 => AcceptStat::ProgUnavail,
                2 => AcceptStat::ProgMismatch { low: d.u32()?, high: d.u32()? },
                3 => AcceptStat::ProcUnavail,
                4 => AcceptStat::GarbageArgs,
                5 => AcceptStat::SystemErr,
                v => return Err(no_arm("accept_stat", v)),
            };
            Ok(ReplyHeader::Accepted { verf, stat })
        }
        1 => match d.u32()? {
            0 => Ok(ReplyHeader::RpcMismatch { low: d.u32()?, high: d.u32()? }),
            1 => Ok(ReplyHeader::Denied(AuthStat::from_wire(d.u32()?))),
            v => Err(no_arm("reject_stat", v)),
        },
        v => Err(no_arm("reply_stat", v)),
    }
}

/// Encodes a whole call message with the given argument encoder, at most `limit` bytes.
pub fn encode_call(
    header: &CallHeader<'_>,
    limit: usize,
    args: impl FnOnce(&mut VecWriter) -> Result<(), XdrError>,
) -> Result<Vec<u8>, XdrError> {
    let mut w = VecWriter::new(limit);
    header.encode(&mut w)?;
    args(&mut w)?;
    Ok(w.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(w: &[u32]) -> Vec<u8> {
        w.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn the_quick_way_reads_what_the_thorough_one_reads() {
        let usual = words(&[1, 0, 2, 100_003, 3, 1, 1, 8, 7, 9, 0, 0, 5]);
        let mut odd = vec![usual.clone()];
        for at in 0..usual.len() {
            odd.push(usual[..at].to_vec());
            let mut v = usual.clone();
            v[at] ^= 1;
            odd.push(v);
        }
        for rec in odd {
            let (mut a, mut b) = (Decoder::new(&rec), Decoder::new(&rec));
            assert_eq!(parse(&mut a), parse_any(&mut b), "{rec:?}");
            if parse(&mut Decoder::new(&rec)).is_ok() {
                assert_eq!(a.position(), b.position(), "{rec:?}");
            }
        }
        assert!(parse_usual(&mut Decoder::new(&usual)).is_some());
    }

    #[test]
    fn golden_null_call() {
        // NULL of NFSv3 with AUTH_NONE, laid out by hand after RFC 5531 section 9.
        let rec = words(&[0x1234, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
        let mut d = Decoder::new(&rec);
        let Ok(Parsed::Call(h)) = parse(&mut d) else { panic!("not a call") };
        assert_eq!((h.xid, h.prog, h.vers, h.proc), (0x1234, 100_003, 3, 0));
        assert_eq!(h.cred, OpaqueAuth::NONE);
        d.finish().unwrap();
        assert_eq!(encode_call(&h, 100, |_| Ok(())).unwrap(), rec);
    }

    #[test]
    fn every_truncation_of_a_call_is_an_error() {
        let rec = words(&[1, 0, 2, 100_003, 3, 0, 1, 8, 7, 7, 0, 0]);
        for n in 0..rec.len() {
            let r = parse(&mut Decoder::new(&rec[..n]));
            match n {
                0..8 => assert_eq!(r, Err(HeaderError::NotRpc)),
                _ => {
                    assert!(matches!(r, Err(HeaderError::Damaged { xid: 1, auth: false, .. })), "{n}: {r:?}")
                }
            }
        }
    }

    #[test]
    fn oversized_credential_is_an_auth_error() {
        let rec = words(&[1, 0, 2, 3, 3, 0, 1, 401]);
        assert!(matches!(parse(&mut Decoder::new(&rec)), Err(HeaderError::Damaged { auth: true, .. })));
    }

    #[test]
    fn golden_replies() {
        let enc = |f: &dyn Fn(&mut VecWriter) -> Result<(), XdrError>| {
            let mut w = VecWriter::new(64);
            f(&mut w).unwrap();
            w.into_inner()
        };
        let ok = enc(&|w| put_success(w, 9, OpaqueAuth::NONE));
        assert_eq!(ok, words(&[9, 1, 0, 0, 0, 0]));
        assert_eq!(ok, success_header(9));
        assert_eq!(
            enc(&|w| put_accept_error(w, 9, OpaqueAuth::NONE, AcceptStat::ProgMismatch { low: 3, high: 4 })),
            words(&[9, 1, 0, 0, 0, 2, 3, 4])
        );
        assert_eq!(enc(&|w| put_rpc_mismatch(w, 9)), words(&[9, 1, 1, 0, 2, 2]));
        assert_eq!(enc(&|w| put_auth_error(w, 9, AuthStat::TooWeak)), words(&[9, 1, 1, 1, 5]));
    }

    #[test]
    fn replies_parse_back() {
        for stat in
            [AcceptStat::ProgUnavail, AcceptStat::ProcUnavail, AcceptStat::GarbageArgs, AcceptStat::SystemErr]
        {
            let mut w = VecWriter::new(64);
            put_accept_error(&mut w, 9, OpaqueAuth::NONE, stat).unwrap();
            let v = w.into_inner();
            let mut d = Decoder::new(&v);
            assert_eq!(parse(&mut d), Ok(Parsed::Reply { xid: 9 }));
            assert_eq!(parse_reply(&mut d), Ok(ReplyHeader::Accepted { verf: OpaqueAuth::NONE, stat }));
        }
    }
}

//! Why a call failed, by the layer that failed.

use crate::msg::{AcceptStat, AuthStat};
use crate::record::RecordError;
use crate::xdr::XdrError;
use std::io;

/// Why a call failed, by the layer that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClntError {
    /// The message did not get there or back.
    #[error("transport failed: {0}")]
    Transport(#[from] XprtError),
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
    /// The reply does not prove that it comes from the server (RFC 5531 section 8.2); its content was not used.
    #[error("the server's proof of identity is wrong: {0}")]
    Verifier(AuthStat),
    /// The reply's verifier is right, its protected results are not; they were not used.
    #[error("the results are not what the server protected: {0}")]
    Unwrap(#[from] UnwrapError),
    /// The server speaks other RPC versions.
    #[error("server speaks RPC versions {low} to {high} only")]
    RpcMismatch {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
}

/// What is wrong with the protected results of a reply (RFC 2203 sections 5.3.3.2 and 5.3.3.3 for RPCSEC_GSS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnwrapError {
    /// Not of the form that the flavor gives to results.
    #[error("they cannot be understood: {0}")]
    Malformed(#[from] XdrError),
    /// Changed on their way, or protected with another key.
    #[error("their checksum is wrong")]
    Checksum,
    /// Those of another call.
    #[error("they belong to another call")]
    Sequence,
}

impl From<io::Error> for ClntError {
    fn from(e: io::Error) -> Self {
        ClntError::Transport(e.into())
    }
}

impl ClntError {
    /// Whether the server may have run the call all the same. False only if it certainly has not.
    pub fn maybe_ran(&self) -> bool {
        match self {
            ClntError::Transport(e) => e.maybe_ran(),
            ClntError::Reply(_) | ClntError::Verifier(_) | ClntError::Unwrap(_) => true,
            // A server may fail halfway.
            ClntError::Accept(stat) => *stat == AcceptStat::SystemErr,
            ClntError::Arguments(_) | ClntError::Auth(_) | ClntError::RpcMismatch { .. } => false,
        }
    }
}

/// Why no source port below 1024 could be had. As a system error: [`io::ErrorKind::PermissionDenied`] or
/// [`io::ErrorKind::AddrInUse`], with this as its source ([`ReservedPortError::of`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReservedPortError {
    /// The system refused the first port that was tried.
    #[error(
        "a source port below 1024 is not for this user; run as root or with CAP_NET_BIND_SERVICE (`setcap \
         cap_net_bind_service+ep PROGRAM`), or have the server accept any port (nfsd: --insecure) and do without"
    )]
    NotPermitted,
    /// Every port of the range is in use on this host.
    #[error(
        "every source port from {low} to {high} is in use; close other clients or mounts of this host, or wait a \
         minute for their closed connections to be forgotten"
    )]
    AllInUse {
        /// Lowest port that was tried.
        low: u16,
        /// Highest port that was tried.
        high: u16,
    },
}

impl ReservedPortError {
    /// The error inside a system error, if it is one of these.
    pub fn of(e: &io::Error) -> Option<Self> {
        e.get_ref()?.downcast_ref().copied()
    }
}

impl From<ReservedPortError> for io::Error {
    fn from(e: ReservedPortError) -> Self {
        let kind = match e {
            ReservedPortError::NotPermitted => io::ErrorKind::PermissionDenied,
            ReservedPortError::AllInUse { .. } => io::ErrorKind::AddrInUse,
        };
        io::Error::new(kind, e)
    }
}

/// How a transport failed to carry a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XprtError {
    /// Nobody could be reached within the call's time; no byte of the call was sent.
    #[error("cannot reach the server: {0}; check that it runs and listens at that address")]
    Connect(io::Error),
    /// The client is to call from a reserved port and got none within the call's time; no byte of the call was sent.
    #[error(transparent)]
    ReservedPort(#[from] ReservedPortError),
    /// The server's host says that nobody listens at the port.
    #[error("nobody listens at that address; check the port and that the server runs")]
    Refused,
    /// The connection ended, or the server could not be reached any more, before the reply.
    #[error("connection lost ({err}); {}", ran(.maybe_ran))]
    Lost {
        /// True if part of the call was sent: the server may have run it.
        maybe_ran: bool,
        /// How it ended.
        err: io::Error,
    },
    /// No reply within the call's time.
    #[error("no reply in time; the call was sent {sends} time(s){}", if *.sends > 0 { ", the server may have run it" } else { "" })]
    TimedOut {
        /// How often the call was sent, in whole or in part.
        sends: u32,
    },
    /// What arrives is not record-marked RPC (RFC 5531 section 11). The connection was closed.
    #[error("the peer does not speak RPC: {0}")]
    BadStream(#[from] RecordError),
    /// The call exceeds what the transport carries in one message; nothing was sent.
    #[error("a call of {len} bytes exceeds the transport's {max}")]
    TooLarge {
        /// Bytes of the call.
        len: usize,
        /// Most bytes.
        max: usize,
    },
    /// As many calls are outstanding as the client keeps; finish some first. Nothing was sent.
    #[error("{0} calls are outstanding already; finish some before starting more")]
    Busy(usize),
    /// The ticket belongs to no call of this transport, or to one that was finished, cancelled or forgotten.
    #[error("no such call is outstanding")]
    NoSuchCall,
    /// The system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn ran(maybe: &bool) -> &'static str {
    if *maybe { "the server may have run the call" } else { "the call was not sent" }
}

impl XprtError {
    /// No byte of a call could be sent because of `e`.
    pub(crate) fn unreached(e: &io::Error) -> Self {
        ReservedPortError::of(e).map_or_else(|| XprtError::Connect(again(e)), Into::into)
    }

    /// The nearest kind of system error.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            XprtError::Connect(e) | XprtError::Lost { err: e, .. } | XprtError::Io(e) => e.kind(),
            XprtError::ReservedPort(e) => io::Error::from(*e).kind(),
            XprtError::Refused => io::ErrorKind::ConnectionRefused,
            XprtError::TimedOut { .. } => io::ErrorKind::TimedOut,
            XprtError::BadStream(_) => io::ErrorKind::InvalidData,
            XprtError::TooLarge { .. } | XprtError::NoSuchCall => io::ErrorKind::InvalidInput,
            XprtError::Busy(_) => io::ErrorKind::WouldBlock,
        }
    }

    /// Whether the server may have run the call all the same.
    pub fn maybe_ran(&self) -> bool {
        match self {
            XprtError::Connect(_)
            | XprtError::ReservedPort(_)
            | XprtError::TooLarge { .. }
            | XprtError::Busy(_)
            | XprtError::NoSuchCall
            | XprtError::TimedOut { sends: 0 } => false,
            XprtError::Lost { maybe_ran, .. } => *maybe_ran,
            XprtError::Refused | XprtError::TimedOut { .. } | XprtError::BadStream(_) | XprtError::Io(_) => {
                true
            }
        }
    }
}

impl From<XprtError> for io::Error {
    fn from(e: XprtError) -> Self {
        io::Error::new(e.kind(), e)
    }
}

/// The same error once more, for each of several calls that one event fails, or who asks what a connection failed of.
pub fn again(e: &io::Error) -> io::Error {
    match (e.raw_os_error(), ReservedPortError::of(e)) {
        (Some(code), _) => io::Error::from_raw_os_error(code),
        (None, Some(port)) => port.into(),
        (None, None) => io::Error::new(e.kind(), e.to_string()),
    }
}

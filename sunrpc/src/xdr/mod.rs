//! External Data Representation (RFC 4506): strict decoding, bounded encoding.
//!
//! Two properties hold for every codec here, and the generated code inherits them:
//!
//! * Nothing is allocated because a peer *claims* a length. A count is accepted only if it is within the
//!   declared maximum **and** the bytes that it promises are really there.
//! * Nothing recurses on input except through [`Decoder::enter`], which has a depth limit.
//!
//! [`Decode`] borrows from the call record (`&'a [u8]`), so that the data path allocates nothing; the owned types
//! that the compiler also emits implement the same trait. [`Encode`] writes to any [`XdrWrite`].

#[cfg(feature = "xdr-codec")]
pub mod bridge;
mod decode;
mod encode;
mod types;

pub use decode::{Decode, Decoder, MAX_DEPTH};
pub use encode::{Encode, SliceWriter, VecWriter, XdrWrite, to_vec};
pub use types::{Array, FixedOpaque, List, XdrString};

/// Bytes of padding that bring `len` to a multiple of four (RFC 4506 section 3).
#[inline]
pub const fn pad(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// `len` rounded up to a multiple of four; saturates instead of wrapping.
#[inline]
pub const fn padded(len: usize) -> usize {
    len.saturating_add(pad(len))
}

/// Why a value could not be decoded or encoded.
///
/// On a server every decoding error becomes `GARBAGE_ARGS`; [`XdrError::Full`] means that a result outgrew its
/// declared bound and becomes `SYSTEM_ERR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XdrError {
    /// The input ended inside a value.
    #[error("input ends {missing} bytes short of the value")]
    Eof {
        /// Bytes that are missing.
        missing: usize,
    },
    /// A string, opaque or array is longer than its declaration permits.
    #[error("length {len} exceeds the declared maximum {max}")]
    TooLong {
        /// Claimed length, in bytes or elements.
        len: u32,
        /// Declared maximum.
        max: u32,
    },
    /// A `bool` was neither 0 nor 1.
    #[error("{0} is not a bool")]
    NotBool(u32),
    /// A value outside an enumeration.
    #[error("{value} is not a member of enum {name}")]
    NotInEnum {
        /// The enumeration's name in the .x file.
        name: &'static str,
        /// The offending value.
        value: i32,
    },
    /// A union without a matching arm and without a default.
    #[error("union {name} has no arm for {value}")]
    NoArm {
        /// The union's name in the .x file.
        name: &'static str,
        /// The offending discriminant.
        value: i32,
    },
    /// Bytes remain after the last value.
    #[error("{0} bytes remain after the last value")]
    Trailing(usize),
    /// Optional data nested deeper than [`MAX_DEPTH`].
    #[error("data is nested too deeply")]
    TooDeep,
    /// The value straddles the boundary between a record's contiguous head and its payload pages; the caller has
    /// to make the record contiguous and decode again.
    #[error("value crosses into the payload pages")]
    Split,
    /// The output is full: the encoder's bound, or the declared maximum of the type, would be exceeded.
    #[error("the encoded value exceeds its bound")]
    Full,
}

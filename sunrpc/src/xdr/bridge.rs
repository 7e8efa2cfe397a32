//! The bridge to the xdr-codec ecosystem.
pub use xdr_codec;

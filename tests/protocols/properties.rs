//! What holds for every value of every type: both codecs write the same bytes, what they write reads back, and nothing
//! less than all of it does.

use arbitrary::{Arbitrary, Unstructured};
use proptest::prelude::*;
use std::fmt::Debug;
use sunrpc::xdr::bridge::xdr_codec::{Pack, Unpack};
use sunrpc::xdr::{Decode, Decoder, Encode, SliceWriter, VecWriter, XdrError, to_vec};

const ROOM: usize = 1 << 20;

fn check<T>(v: &T, borrowed: fn(&[u8]) -> Result<Vec<u8>, XdrError>)
where
    T: Clone + Debug + PartialEq + Encode + for<'a> Decode<'a> + Pack<Vec<u8>> + for<'r> Unpack<&'r [u8]>,
{
    let bytes = to_vec(v, ROOM).unwrap();
    assert_eq!(bytes.len() % 4, 0);
    assert!(bytes.len() >= T::MIN_SIZE, "MIN_SIZE {} of {} bytes", T::MIN_SIZE, bytes.len());

    // Read from a longer buffer: the length consumed is the length written.
    let longer = [&bytes[..], b"more"].concat();
    let mut d = Decoder::new(&longer);
    assert_eq!(T::decode(&mut d).as_ref(), Ok(v));
    assert_eq!(d.remaining(), 4, "{} bytes were written", bytes.len());

    let mut w = VecWriter::new(bytes.len());
    v.clone().encode_owned(&mut w).unwrap();
    assert_eq!(w.into_inner(), bytes, "encode_owned");
    assert_eq!(borrowed(&bytes).as_ref(), Ok(&bytes), "the borrowed form writes what it read");

    let mut packed = Vec::new();
    assert_eq!(v.pack(&mut packed).unwrap(), bytes.len());
    assert_eq!(packed, bytes, "both codecs write the same bytes");
    let mut input = &longer[..];
    let (back, n) = T::unpack(&mut input).unwrap();
    assert_eq!((&back, n, input), (v, bytes.len(), &b"more"[..]));

    for end in 0..bytes.len() {
        let short = &bytes[..end];
        let e = T::decode(&mut Decoder::new(short)).unwrap_err();
        assert!(matches!(e, XdrError::Eof { .. }), "{end} of {} bytes: {e}", bytes.len());
        assert!(borrowed(short).is_err(), "{end} of {} bytes", bytes.len());
        assert_eq!(v.encode(&mut SliceWriter::new(&mut vec![0; end])), Err(XdrError::Full));
        // Errors of that crate collect a backtrace each: not at every byte, but at every offset in a word.
        assert!(end % 61 != 0 || T::unpack(&mut &short[..]).is_err());
    }
}

/// Any bytes at all: an error or a value, of which both forms say the same. Padding need not be zero, so the bytes that
/// the value writes are as many as were read, but not always the same.
fn check_garbage<T>(bytes: &[u8], borrowed: fn(&[u8]) -> Result<Vec<u8>, XdrError>)
where
    T: Debug + PartialEq + Encode + for<'a> Decode<'a>,
{
    let mut d = Decoder::new(bytes);
    let owned = T::decode(&mut d);
    let read = bytes.len() - d.remaining();
    match owned {
        Ok(v) => {
            let written = to_vec(&v, ROOM).unwrap();
            assert_eq!(written.len(), read);
            assert_eq!(borrowed(&bytes[..read]).as_ref(), Ok(&written));
            assert_eq!(T::decode(&mut Decoder::new(&written)), Ok(v));
        }
        Err(_) => assert!(borrowed(bytes).is_err()),
    }
}

/// Decodes and encodes by the borrowed form; nothing may be left over.
macro_rules! borrowed {
    ($form:ty) => {
        |bytes| {
            let mut d = Decoder::new(bytes);
            let v = <$form>::decode(&mut d)?;
            d.finish()?;
            to_vec(&v, ROOM)
        }
    };
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, cases, ..ProptestConfig::default() }
}

macro_rules! forms {
    ($module:ident: $($t:ident $form:ident,)*) => {
        #[allow(non_snake_case)]
        mod $module {
            use super::*;
            $(
                #[test]
                fn $t() {
                    use crate::$module as x;
                    let bytes = prop::collection::vec(any::<u8>(), 0..600);
                    proptest!(config(64), |(bytes in bytes)| {
                        let v = x::$t::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
                        check(&v, borrowed!(x::$form));
                        // Words are small as a rule, so that more of them are lengths and discriminants.
                        let words: Vec<u8> = bytes.iter().flat_map(|b| u32::from(b / 8).to_be_bytes()).collect();
                        check_garbage::<x::$t>(&words, borrowed!(x::$form));
                    });
                }
            )*
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/admin_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/mount_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/nfs3_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/nfs4_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/nlm4_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/nsm_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/rpcbind_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/rpcrdma_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/rpcsec_gss_roots.rs"));
include!(concat!(env!("OUT_DIR"), "/file_roots.rs"));

//! Input by somebody who means harm.

use crate::alloc::{allocated, so_far};
use crate::every::*;
use std::fmt::Debug;
use sunrpc::xdr::bridge::xdr_codec::Unpack;
use sunrpc::xdr::{Decode, Decoder, MAX_DEPTH, XdrError};

fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// Decodes by both codecs; the error of ours.
fn refuse<T>(bytes: &[u8]) -> XdrError
where
    T: Debug + for<'a> Decode<'a> + for<'r> Unpack<&'r [u8]>,
{
    let ours = T::decode(&mut Decoder::new(bytes));
    let theirs = T::unpack(&mut &bytes[..]);
    assert!(theirs.is_err(), "{theirs:?}");
    ours.unwrap_err()
}

/// A stream that notes what was allocated when it was last asked. What happens after that is the error itself, for
/// which xdr-codec may collect a backtrace.
struct Watched<'a> {
    bytes: &'a [u8],
    largest: usize,
    total: usize,
}

impl std::io::Read for Watched<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        (self.largest, self.total) = so_far();
        self.bytes.read(buf)
    }
}

#[test]
fn claimed_lengths_take_no_memory() {
    let claims = [13u32, 65, 1 << 16, 1 << 20, 0x7fff_ffff, 0x8000_0000, 0xffff_fffc, 0xffff_ffff];
    fn check<T>(claims: &[u32], before: &[u32])
    where
        T: Debug + for<'a> Decode<'a> + for<'r> Unpack<Watched<'r>>,
    {
        for claim in claims {
            for behind in [0, 1, 16] {
                let mut list = before.to_vec();
                list.push(*claim);
                list.resize(list.len() + behind, 0);
                let bytes = words(&list);
                let (ours, largest, total) = allocated(|| T::decode(&mut Decoder::new(&bytes)));
                assert!(ours.is_err() && largest <= 8192 && total <= 16_384, "{claim}: {largest}, {total}");
                let mut input = Watched { bytes: &bytes, largest: 0, total: 0 };
                let (theirs, ..) = allocated(|| T::unpack(&mut input));
                let Watched { largest, total, .. } = input;
                assert!(theirs.is_err() && largest <= 8192 && total <= 16_384, "{claim}: {largest}, {total}");
            }
        }
    }
    check::<blob>(&claims, &[]);
    check::<label>(&claims, &[]);
    check::<text>(&claims[1..], &[]);
    check::<palette>(&claims, &[]);
    check::<labels>(&claims, &[]);
    check::<bulk_data>(&claims[1..], &[]);
    check::<bulk>(&claims[1..], &[7]);
    check::<branch>(&claims, &[0]);
    check::<arrays>(&claims, &[0, 0]);
    check::<arrays>(&claims[1..], &[0, 0, 0]);
    check::<by_unsigned>(&claims, &[u32::MAX]);
}

#[test]
fn what_really_arrives_bounds_memory() {
    // As many bytes as a record may have, claimed to be elements whose memory is larger than their bytes.
    let n = 1 << 18;
    let mut list = vec![n];
    list.resize(n as usize + 1, 0);
    let bytes = words(&list);
    // The counter does count.
    assert_eq!(allocated(|| vec![1u8; 5000]).1, 5000);
    let (r, largest, _) = allocated(|| Decoder::new(&bytes).vec::<scalars>(u32::MAX));
    assert!(matches!(r, Err(XdrError::Eof { .. })) && largest <= 8192, "{largest}");
}

#[test]
fn values_outside_their_type() {
    assert_eq!(refuse::<color>(&words(&[7])), XdrError::NotInEnum { name: "color", value: 7 });
    assert_eq!(refuse::<by_enum>(&words(&[7, 0, 0])), XdrError::NotInEnum { name: "color", value: 7 });
    assert_eq!(
        refuse::<by_enum_strict>(&words(&[5, 0])),
        XdrError::NoArm { name: "by_enum_strict", value: 5 }
    );
    assert_eq!(refuse::<by_unsigned>(&words(&[1, 0])), XdrError::NoArm { name: "by_unsigned", value: 1 });
    assert_eq!(refuse::<only_true>(&words(&[0])), XdrError::NoArm { name: "only_true", value: 0 });
    for b in [2, 255, 256, 0x0100_0000, u32::MAX] {
        assert_eq!(refuse::<by_bool>(&words(&[b, 0])), XdrError::NotBool(b));
        assert_eq!(refuse::<by_bool_default>(&words(&[b, 0, 0])), XdrError::NotBool(b));
        assert_eq!(refuse::<by_unsigned>(&words(&[0, b])), XdrError::NotBool(b));
        assert_eq!(refuse::<maybe_verifier>(&words(&[b, 0, 0])), XdrError::NotBool(b));
        assert_eq!(refuse::<tree>(&words(&[7, b, 0])), XdrError::NotBool(b));
        assert_eq!(refuse::<entries>(&words(&[b, 0, 0])), XdrError::NotBool(b));
    }
    assert_eq!(refuse::<blob>(&words(&[13, 0, 0, 0, 0])), XdrError::TooLong { len: 13, max: 12 });
    assert_eq!(refuse::<palette>(&words(&[5, 0, 0, 0, 0, 0])), XdrError::TooLong { len: 5, max: 4 });
}

#[test]
fn lists_are_loops_and_end_with_the_input() {
    // A hundred thousand nodes would overflow the stack of a recursive decoder.
    let n = 100_000;
    let mut list: Vec<u32> = (0..n).flat_map(|i| [1, i]).collect();
    list.push(0);
    let bytes = words(&list);
    let v = node_ptr::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!((v.len(), v[n as usize - 1].value), (n as usize, n as i32 - 1));
    assert_eq!(node_ptr::unpack(&mut &bytes[..]).unwrap().0, v);
    let (v, _, total) = allocated(|| node_ptrRef::decode(&mut Decoder::new(&bytes)).unwrap().len());
    assert_eq!((v, total), (n as usize, 0));
    // Without an end.
    list.pop();
    assert!(matches!(refuse::<node_ptr>(&words(&list)), XdrError::Eof { .. }));
}

#[test]
fn recursion_has_a_limit() {
    let nested = |levels: usize| {
        let mut list: Vec<u32> = Vec::new();
        for _ in 1..levels {
            list.extend([7, 1]);
        }
        list.extend([7, 0]);
        list.resize(list.len() + levels - 1, 0);
        list.push(0);
        words(&list)
    };
    let deepest = nested(usize::from(MAX_DEPTH));
    let mut d = Decoder::new(&deepest);
    let v = tree::decode(&mut d).unwrap();
    d.finish().unwrap();
    assert_eq!(tree::unpack(&mut &deepest[..]).unwrap().0, v);
    assert_eq!(refuse::<tree>(&nested(usize::from(MAX_DEPTH) + 1)), XdrError::TooDeep);
    assert_eq!(refuse::<tree>(&nested(100_000)), XdrError::TooDeep);
    assert_eq!(treeRef::decode(&mut Decoder::new(&nested(100_000))), Err(XdrError::TooDeep));
    // Through arrays and through unions.
    assert_eq!(refuse::<branch>(&words(&[0, 1].repeat(100_000))), XdrError::TooDeep);
    assert!(matches!(
        branchRef::decode(&mut Decoder::new(&words(&[0, 1].repeat(100_000)))),
        Err(XdrError::TooDeep)
    ));
    assert_eq!(refuse::<expr>(&words(&[1, 1].repeat(100_000))), XdrError::TooDeep);
    assert_eq!(refuse::<expr>(&words(&[2, 1].repeat(100_000))), XdrError::TooDeep);
}

/// A reader that gives one byte at a time, and then nothing for ever.
struct Slow<'a>(&'a [u8]);

impl std::io::Read for Slow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = buf.len().min(self.0.len()).min(1);
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

#[test]
fn a_stream_that_trickles_or_ends_is_no_trouble() {
    let bytes = words(&[3, 0x6162_6300]);
    assert_eq!(label::unpack(&mut Slow(&bytes)).unwrap(), ("abc".into(), 8));
    for end in 0..bytes.len() {
        assert!(label::unpack(&mut Slow(&bytes[..end])).is_err());
    }
    // More than the bridge takes, claimed and delivered.
    thread_local!(static ZEROS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
    struct Zeros;
    impl std::io::Read for Zeros {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            buf.fill(0);
            ZEROS_READ.set(ZEROS_READ.get() + buf.len());
            Ok(buf.len())
        }
    }
    let mut endless = std::io::Read::chain(&[0xffu8, 0xff, 0xff, 0xff][..], Zeros);
    assert!(text::unpack(&mut endless).is_err());
    assert_eq!(ZEROS_READ.get(), 0, "what is beyond the bound is not even read");
}

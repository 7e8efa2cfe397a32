//! Properties that every generated codec has.

use crate::every::*;
use crate::values::*;
use proptest::prelude::*;
use std::fmt::Debug;
use sunrpc::xdr::bridge::xdr_codec::{Pack, Unpack};
use sunrpc::xdr::{Decode, Decoder, Encode, SliceWriter, VecWriter, XdrError, XdrWrite, to_vec};

/// Both forms, both codecs, every truncation.
fn check<T, R>(v: T)
where
    T: Clone + Debug + PartialEq + Encode + for<'a> Decode<'a> + Pack<Vec<u8>> + for<'r> Unpack<&'r [u8]>,
    R: ForRef,
{
    let bytes = to_vec(&v, 1 << 20).unwrap();
    assert_eq!(bytes.len() % 4, 0);
    assert!(bytes.len() >= T::MIN_SIZE, "MIN_SIZE {} of {} bytes", T::MIN_SIZE, bytes.len());

    let mut d = Decoder::new(&bytes);
    let back = T::decode(&mut d).unwrap();
    d.finish().unwrap();
    assert_eq!(back, v);

    let mut w = VecWriter::new(bytes.len());
    v.clone().encode_owned(&mut w).unwrap();
    assert_eq!(w.into_inner(), bytes, "encode_owned");
    R::check(&bytes);

    let mut packed = Vec::new();
    assert_eq!(v.pack(&mut packed).unwrap(), bytes.len());
    assert_eq!(packed, bytes, "both codecs write the same bytes");
    let mut stream = [&bytes[..], b"more"].concat();
    let mut input = &stream[..];
    let (back, n) = T::unpack(&mut input).unwrap();
    assert_eq!(
        (back, n, input),
        (v.clone(), bytes.len(), &b"more"[..]),
        "nothing behind the value is touched"
    );
    stream.truncate(bytes.len());

    for end in 0..bytes.len() {
        let short = &bytes[..end];
        let e = T::decode(&mut Decoder::new(short)).unwrap_err();
        assert!(matches!(e, XdrError::Eof { .. }), "{end} of {} bytes: {e}", bytes.len());
        // Errors of that crate collect a backtrace each: not at every byte, but at every offset in a word.
        assert!(end % 5 != 0 || T::unpack(&mut &short[..]).is_err());
        R::refuse(short);
        let mut room = vec![0; end];
        assert_eq!(v.encode(&mut SliceWriter::new(&mut room)), Err(XdrError::Full));
    }
}

/// A borrowed form; the lifetime is chosen inside.
trait ForRef {
    fn check(bytes: &[u8]);
    fn refuse(bytes: &[u8]);
}

macro_rules! forms {
    ($($marker:ident: $t:ident, $r:ident, $strategy:ident, $test:ident;)*) => {$(
        struct $marker;
        impl ForRef for $marker {
            fn check(bytes: &[u8]) {
                let mut d = Decoder::new(bytes);
                let v = $r::decode(&mut d).unwrap();
                d.finish().unwrap();
                assert_eq!(to_vec(&v, 1 << 20).unwrap(), bytes, "the borrowed form writes what it read");
            }
            fn refuse(bytes: &[u8]) {
                assert!($r::decode(&mut Decoder::new(bytes)).is_err());
            }
        }
        proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]
            #[test]
            fn $test(v in $strategy()) {
                check::<$t, $marker>(v);
            }
        }
    )*};
}

forms! {
    Scalars: scalars, scalarsRef, a_scalars, scalars_hold;
    Bytes: bytes, bytesRef, a_bytes, bytes_hold;
    Arrays: arrays, arraysRef, a_arrays, arrays_hold;
    BulkResult: bulk_result, bulk_resultRef, a_bulk_result, bulk_result_holds;
    Bulks: bulks, bulksRef, a_bulks, bulks_hold;
    ByEnum: by_enum, by_enumRef, a_by_enum, by_enum_holds;
    ByInt: by_int, by_intRef, a_by_int, by_int_holds;
    ByUnsigned: by_unsigned, by_unsignedRef, a_by_unsigned, by_unsigned_holds;
    ByBool: by_bool, by_boolRef, a_by_bool, by_bool_holds;
    ByBoolDefault: by_bool_default, by_bool_defaultRef, a_by_bool_default, by_bool_default_holds;
    OnlyDefault: only_default, only_defaultRef, a_only_default, only_default_holds;
    Outer: outer, outerRef, a_outer, outer_holds;
    Directory: directory, directoryRef, a_directory, directory_holds;
    Tree: tree, treeRef, a_tree, tree_holds;
    Branch: branch, branchRef, a_branch, branch_holds;
    Expr: expr, exprRef, a_expr, expr_holds;
}

/// Words as they travel.
fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_be_bytes()).collect()
}

#[test]
fn values_lie_as_rfc_4506_says() {
    // A list: flag, node, flag, node, flag (section 4.19 and the file example of section 7).
    let list = entries(vec![entry { id: 1, name: "ab".into() }, entry { id: -1, name: "".into() }]);
    let wanted = words(&[1, 0, 1, 2, 0x6162_0000, 1, u32::MAX, u32::MAX, 0, 0]);
    assert_eq!(to_vec(&list, 99).unwrap(), wanted);
    // Opaque data of fixed length has no length word, and is padded with zeros (section 4.9).
    let v = two_verifiers([*b"abcdefgh", *b"ijklmnop"]);
    assert_eq!(to_vec(&v, 99).unwrap(), b"abcdefghijklmnop");
    let x = by_enum::Default(color::LIMIT, -2);
    assert_eq!(to_vec(&x, 99).unwrap(), words(&[12, u32::MAX, u32::MAX - 1]));
    let f = inexact { f: 1.5, d: -0.0 };
    assert_eq!(to_vec(&f, 99).unwrap(), words(&[0x3fc0_0000, 0x8000_0000, 0]));
    assert_eq!(to_vec(&inexact { f: f32::NAN, d: 1.0 }, 99).unwrap()[..4], f32::NAN.to_be_bytes());
    assert_eq!(to_vec(&only_true::True(3), 99).unwrap(), words(&[1, 3]));
}

#[test]
fn constants_have_the_smallest_type() {
    let all: (u32, u32, u32, u32, i32, u64, i64, u32) =
        (MAXITEMS, OCTAL, HEX, AGAIN, NEGATIVE, WIDE, WIDE_DOWN, MIXED);
    assert_eq!(all, (4, 15, 255, 12, -5, 0x1_ffff_ffff, -0x1_ffff_ffff, 1));
    assert_eq!((color::CRIMSON, color::BLUE as i32, ELSE_BRANCH), (color::RED, 6, 1));
}

#[test]
fn limits_hold_when_writing() {
    fn refused<T: Encode>(v: &T) {
        assert_eq!(to_vec(v, 1 << 20), Err(XdrError::Full));
    }
    refused(&blob(vec![0; 13]));
    refused(&label("thirteen long".into()));
    refused(&palette(vec![color::RED; 5]));
    refused(&labels(vec![label::default(); 5]));
    refused(&bulk_data(vec![0u8; 65].as_slice().into()));
    refused(&bytes { bounded: vec![0; 13], ..Default::default() });
    refused(&by_unsigned::Case4294967295("four".into()));
    // A default arm does not take a value that has a case: it would read back as something else.
    let e = to_vec(&by_enum::Default(color::BLUE, 1), 99).unwrap_err();
    assert_eq!(e, XdrError::NoArm { name: "by_enum", value: 6 });
    assert!(to_vec(&by_int::Default(5), 99).is_err() && to_vec(&by_int::Default(6), 99).is_ok());
    let mut out = Vec::new();
    assert!(blob(vec![0; 13]).pack(&mut out).is_err());
    assert!(out.is_empty(), "a refused value leaves nothing behind");
}

#[test]
fn borrowed_forms_allocate_nothing() {
    let dir = directory {
        first: vec![entry { id: 5, name: "five".into() }; 100],
        eof: true,
        nodes: node_ptr(vec![node { value: 3 }; 10]),
        typed: entries(Vec::new()),
    };
    let record = to_vec(&dir, 1 << 20).unwrap();
    let (sum, _, total) = crate::alloc::allocated(|| {
        let v = directoryRef::decode(&mut Decoder::new(&record)).unwrap();
        v.first.iter().map(|e| e.id + e.name.len() as i64).sum::<i64>()
    });
    assert_eq!((sum, total), (900, 0));
}

#[test]
fn conversions_save_typing() {
    let l: label = "abc".into();
    assert_eq!((l.as_bytes(), l.as_str().unwrap()), (&b"abc"[..], "abc"));
    assert_eq!(by_bool::default(), by_bool::False);
    assert_eq!(by_bool::from(Some(l.clone())).as_option(), Some(&l));
    assert_eq!(by_bool::True(l.clone()).into_option(), Some(l));
    assert_eq!(color::try_from(5), Ok(color::GREEN));
    assert_eq!(i32::from(color::NIGHT), -1);
    assert_eq!(by_enum::BLUE("x".into()).discriminant(), color::BLUE);
    let k = keywords {
        fn_: type_ { type_: 1, self_: 2, match_: 3, Self_: true },
        None: Option_ { Some: 4 },
        w: d_(vec![5]),
        out: v_("six".into()),
    };
    let mut w = VecWriter::new(99);
    k.encode(&mut w).unwrap();
    assert_eq!(w.written(), 16 + 4 + 8 + 8);
}

//! Optional data in the middle of other data.

use crate::every::{between, betweenRef, entry, label, pair};
use proptest::collection::vec;
use proptest::prelude::*;
use sunrpc::xdr::bridge::xdr_codec::{Pack, Unpack};
use sunrpc::xdr::{Decode, Decoder, XdrString, to_vec};

fn a_between() -> impl Strategy<Value = between> {
    let name = || vec(any::<u8>(), 0..=12).prop_map(|b| label(XdrString(b)));
    let list = vec((any::<i64>(), name()), 0..4);
    let p = proptest::option::of((any::<i32>(), any::<i32>()));
    (any::<i32>(), p, any::<i32>(), list, vec(any::<u8>(), 0..=8)).prop_map(|(a, p, b, list, tail)| between {
        a,
        p: p.map(|(x, y)| pair { a: x, b: y }),
        b,
        list: list.into_iter().map(|(id, name)| entry { id, name }).collect(),
        tail,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// B08 (RFC 4506 section 4.19): a pointer is one discriminant, and the data if it is there; decoding takes exactly what
    /// encoding gave, so that what follows is found. The row's real case (RPC-over-RDMA headers with a reply chunk) waits
    /// for that transport.
    #[test]
    fn b08_optional_data_takes_its_length_once(v in a_between(), more in vec(any::<u32>(), 0..5)) {
        let own = to_vec(&v, 1 << 16).unwrap();
        let entries: usize = v.list.iter().map(|e| 4 + 8 + 4 + e.name.as_bytes().len().next_multiple_of(4)).sum();
        let tail = 4 + v.tail.len().next_multiple_of(4);
        let want = 4 + 4 + v.p.as_ref().map_or(0, |p| to_vec(p, 64).unwrap().len()) + 4 + entries + 4 + tail;
        prop_assert_eq!(own.len(), want, "counted by hand");
        let mut bytes = own.clone();
        more.iter().for_each(|w| bytes.extend(w.to_be_bytes()));

        let mut d = Decoder::new(&bytes);
        prop_assert_eq!(between::decode(&mut d).unwrap(), v.clone());
        prop_assert_eq!(d.remaining(), 4 * more.len());
        for w in &more {
            prop_assert_eq!(d.u32().unwrap(), *w);
        }
        d.finish().unwrap();

        let mut d = Decoder::new(&bytes);
        let borrowed = betweenRef::decode(&mut d).unwrap();
        prop_assert_eq!(d.remaining(), 4 * more.len());
        prop_assert_eq!(to_vec(&borrowed, 1 << 16).unwrap(), own.clone());

        let mut packed = Vec::new();
        prop_assert_eq!(v.pack(&mut packed).unwrap(), own.len());
        let (back, n) = between::unpack(&mut &bytes[..]).unwrap();
        prop_assert_eq!((back, n), (v, own.len()));
    }
}

//! WRITE and READ when a call arrives in fragments, so that its payload lies in pages, at offsets of any kind.

use crate::rig::*;
use nfsd::proto::nfs3::*;
use proptest::collection::vec;
use proptest::prelude::*;
use sunrpc::page::{PagePool, Pages};
use sunrpc::record::{LAST_FRAGMENT, Next, RecordLimits, RecordReader};

/// The message as fragments that end at `cuts`, received in pieces of `step` bytes.
fn receive(r: &mut RecordReader, pool: &mut PagePool, message: &[u8], cuts: &[usize], step: usize) {
    let mut stream = Vec::new();
    let mut from = 0;
    for (i, to) in cuts.iter().copied().chain([message.len()]).enumerate() {
        let last = if i == cuts.len() { LAST_FRAGMENT } else { 0 };
        stream.extend(((to - from) as u32 | last).to_be_bytes());
        stream.extend_from_slice(&message[from..to]);
        from = to;
    }
    for piece in stream.chunks(step) {
        let mut input = piece;
        match r.next(&mut input, pool).unwrap() {
            Next::Collected => assert!(input.is_empty()),
            Next::More => {}
            Next::Whole(_) => panic!("in one piece: nothing is tested"),
        }
    }
    assert!(!r.mid_record());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_write_in_fragments_stores_every_byte(
        len in prop_oneof![0usize..10, 3900usize..4400, 0usize..30_000, 100_000usize..300_000],
        offset in prop_oneof![0u64..10, 4090u64..4100, 0u64..100_000],
        seed: u8,
        cuts in vec(any::<prop::sample::Index>(), 1..10),
        step in prop_oneof![1usize..50, 1000usize..70_000],
    ) {
        let mut r = Rig::new();
        let root = r.root();
        let file = r.create(&root, "f");
        let before = vec![0xee; offset as usize + len + 10];
        prop_assert!(matches!(r.write(&file, 0, &before), WRITE3res::NFS3_OK(_)));

        let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 253) as u8 ^ seed).collect();
        let args = WRITE3args {
            file: file.clone(),
            offset,
            count: len as u32,
            stable: stable_how::UNSTABLE,
            data: Pages::copy_from(&data),
        };
        let message = r.message(NFS_PROGRAM, NFSPROC3_WRITE, &bytes(&args));
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(message.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pool = PagePool::standalone();
        let mut reader = RecordReader::new(RecordLimits::default());
        receive(&mut reader, &mut pool, &message, &cuts, step);
        let Answer::Results(b) = r.record(reader.collected()) else { panic!("not carried out") };
        let WRITE3res::NFS3_OK(ok) = decode::<WRITE3res>(&b) else { panic!("refused") };
        prop_assert_eq!(ok.count as usize, len);
        reader.recycle(&mut pool);
        prop_assert_eq!(pool.stats().taken, pool.stats().returned);

        let mut want = before;
        want[offset as usize..offset as usize + len].copy_from_slice(&data);
        let all = READ3args { file: file.clone(), offset: 0, count: 1 << 20 };
        let READ3res::NFS3_OK(got) = r.call(NFSPROC3_READ, &all) else { panic!() };
        prop_assert!(got.data.to_vec() == want, "{len} bytes at {offset}, cut at {cuts:?}");
        // And a part of it, at an odd place.
        let from = (offset / 2) as usize;
        let part = READ3args { file, offset: from as u64, count: len as u32 };
        let READ3res::NFS3_OK(got) = r.call(NFSPROC3_READ, &part) else { panic!() };
        prop_assert!(got.data.to_vec() == want[from..from + len]);
    }
}

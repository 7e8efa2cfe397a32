//! Record marking as a transport uses it: bytes in pieces of any size, and straight into pages where that is worth it.
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use sunrpc::page::{PAGE_SIZE, PagePool};
use sunrpc::record::{Bulk, HEAD_MAX, LAST_FRAGMENT, Next, RecordError, RecordLimits, RecordReader};

const LIMITS: RecordLimits = RecordLimits { max_record: 40_000, max_fragments: 32 };

/// Feeds `stream` in pieces whose sizes come from `steps`, in turn, and says of every large record that its bulk data is
/// at `bulk`. Records until the end of the stream or an error, and the most pages that were ever in use.
fn run(stream: &[u8], steps: &[usize], bulk: Option<Bulk>) -> (Vec<Vec<u8>>, Result<(), RecordError>, usize) {
    let mut pool = PagePool::standalone();
    let mut r = RecordReader::new(LIMITS);
    let (mut out, mut most, mut rest) = (Vec::new(), 0, stream);
    let mut steps = steps.iter().copied().cycle();
    let mut go = || {
        while !rest.is_empty() {
            let n = steps.next().unwrap().clamp(1, rest.len());
            if r.direct() > 0 {
                // As much as was asked for, or as little as there is.
                let mut tail = [0; 300];
                let tail = &mut tail[..n % 300];
                let got = r.read_direct::<RecordError>(n, &mut pool, tail, |iov| {
                    let mut at = 0;
                    for v in iov.iter_mut() {
                        let k = v.len().min(rest.len() - at);
                        v[..k].copy_from_slice(&rest[at..at + k]);
                        at += k;
                    }
                    Ok(at)
                })?;
                assert!(got.bytes > 0, "a direct read makes progress");
                rest = &rest[got.bytes..];
                if got.done {
                    finish(&mut r, &mut pool, &mut out, bulk);
                }
                feed(&mut r, &mut pool, &tail[..got.tail], &mut out, bulk)?;
            } else {
                let (piece, later) = rest.split_at(n);
                rest = later;
                feed(&mut r, &mut pool, piece, &mut out, bulk)?;
            }
            most = most.max((pool.stats().taken - pool.stats().returned) as usize);
        }
        Ok(())
    };
    let done = go();
    r.recycle(&mut pool);
    assert_eq!(pool.stats().taken, pool.stats().returned, "no page is lost");
    (out, done, most)
}

fn feed(
    r: &mut RecordReader,
    pool: &mut PagePool,
    mut input: &[u8],
    out: &mut Vec<Vec<u8>>,
    bulk: Option<Bulk>,
) -> Result<(), RecordError> {
    let none = r.begins_only(input);
    loop {
        let next = r.next_placed(&mut input, pool, |head| {
            assert_eq!(head.len(), HEAD_MAX);
            bulk
        });
        match next? {
            Next::More => break,
            _ if none => panic!("a record in what was said to hold none"),
            Next::Whole(rec) => out.push(rec.to_vec()),
            Next::Collected => finish(r, pool, out, bulk),
        }
    }
    assert!(input.is_empty());
    Ok(())
}

fn finish(r: &mut RecordReader, pool: &mut PagePool, out: &mut Vec<Vec<u8>>, bulk: Option<Bulk>) {
    let rec = r.collected();
    let len = rec.head.len() + rec.spans.iter().map(|s| s.len()).sum::<usize>();
    let bulk = bulk.filter(|b| b.at < HEAD_MAX && len >= HEAD_MAX);
    assert_eq!(rec.head.len(), bulk.map_or(len.min(HEAD_MAX), |b| b.at));
    if let (Some(bulk), Some((last, full))) = (bulk, rec.spans.split_last()) {
        // The data lies as it was wanted, and page by page.
        let lead = bulk.lead % PAGE_SIZE;
        let mut ends = full.iter();
        let first = ends.next().unwrap_or(last);
        assert_eq!(first.end() - first.len(), lead);
        assert!(first.end() == PAGE_SIZE || full.is_empty());
        assert!(ends.all(|s| s.len() == PAGE_SIZE));
        assert!(full.is_empty() || last.end() == last.len());
    }
    let mut v = rec.head.to_vec();
    rec.spans.iter().for_each(|s| v.extend_from_slice(s.as_slice()));
    out.push(v);
    r.recycle(pool);
}

/// Where the bulk data may be said to be.
fn place() -> impl Strategy<Value = Option<Bulk>> {
    let at = prop_oneof![8usize..300, 0usize..HEAD_MAX + 10];
    prop::option::weighted(0.8, (at, 0usize..3 * PAGE_SIZE).prop_map(|(at, lead)| Bulk { at, lead }))
}

/// A record and where it is cut into fragments, some of them empty.
fn record() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let len = prop_oneof![8usize..100, 4000usize..4200, 8usize..40_000, Just(40_000usize)];
    (len, any::<u8>(), vec(any::<prop::sample::Index>(), 0..8)).prop_map(|(len, seed, cuts)| {
        let body = (0..len).map(|i| (i * 31 + i / 251) as u8 ^ seed).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(len + 1)).collect();
        cuts.sort_unstable();
        (body, cuts)
    })
}

fn marked(body: &[u8], cuts: &[usize]) -> Vec<u8> {
    let ends = cuts.iter().copied().chain([body.len()]);
    let (mut out, mut from) = (Vec::new(), 0);
    for (i, to) in ends.enumerate() {
        let last = if i == cuts.len() { LAST_FRAGMENT } else { 0 };
        out.extend(((to - from) as u32 | last).to_be_bytes());
        out.extend_from_slice(&body[from..to]);
        from = to;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    /// R1: whatever the fragments, and however the bytes arrive, each record comes out once and exactly.
    #[test]
    fn r1_any_fragments_in_any_pieces_reassemble_exactly(
        records in vec(record(), 1..5),
        steps in vec(prop_oneof![1usize..8, 1usize..5000, Just(65_536usize)], 1..20),
        bulk in place(),
    ) {
        let stream: Vec<u8> = records.iter().flat_map(|(b, c)| marked(b, c)).collect();
        let (got, done, most) = run(&stream, &steps, bulk);
        prop_assert_eq!(done, Ok(()));
        let want: Vec<_> = records.into_iter().map(|(b, _)| b).collect();
        prop_assert!(got == want);
        prop_assert!(most <= LIMITS.max_record / PAGE_SIZE + 2, "{} pages", most);
    }

    /// R1: of bytes at random, with marks among them that are nearly right, nothing panics, and no page is taken beyond
    /// the bytes that arrived or the largest record.
    #[test]
    fn r1_random_bytes_take_no_more_than_the_limit(
        parts in vec((prop_oneof![any::<u32>(), 0u32..70, 0u32..45_000], any::<bool>(), vec(any::<u8>(), 0..3000)), 0..30),
        steps in vec(1usize..5000, 1..10),
        bulk in place(),
    ) {
        let mut stream = Vec::new();
        for (mark, last, bytes) in parts {
            stream.extend((mark | if last { LAST_FRAGMENT } else { 0 }).to_be_bytes());
            stream.extend(bytes);
        }
        let (got, _, most) = run(&stream, &steps, bulk);
        prop_assert!(got.iter().all(|r| (8..=LIMITS.max_record).contains(&r.len())));
        prop_assert!(most <= LIMITS.max_record.min(stream.len()) / PAGE_SIZE + 3, "{} pages", most);
    }
}

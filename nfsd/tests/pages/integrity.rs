//! What a flavor signs is what is sent, though the file changes meanwhile.

use crate::in_process::{InProcess, export};
use crate::stalled::{Stalled, StopAtEnd, handle};
use nfsd::vfs::passthrough::{Passthrough, PassthroughOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sunrpc::auth::{AuthFlavor, SvcCred, Verdict};
use sunrpc::msg::CallHeader;
use sunrpc::page::{PagePool, Pages, Payload, Private};

const MIB: usize = 1 << 20;
/// Of a number that nobody uses.
const SIGNED: u32 = 0x3fff_0001;

fn sum(b: impl Iterator<Item = u8>) -> [u8; 8] {
    b.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)).to_be_bytes()
}

/// Puts a checksum behind the results.
struct Signed;

impl AuthFlavor for Signed {
    fn flavor(&self) -> u32 {
        SIGNED
    }

    fn authenticate(&mut self, _: &CallHeader<'_>) -> Verdict {
        Verdict::Accept(SvcCred::Sys { uid: 0, gid: 0, gids: Default::default() })
    }

    fn protects(&self, _: &CallHeader<'_>) -> bool {
        true
    }

    fn protect(
        &mut self,
        _: &CallHeader<'_>,
        results: Payload<Private>,
        _: &mut PagePool,
    ) -> Option<Payload<Private>> {
        let sum = sum(results.slices().flatten().copied());
        let mut spans = results.into_spans();
        spans.extend(Pages::copy_from(&sum).into_spans());
        Some(Pages::from_spans(spans))
    }
}

#[test]
fn signed_replies_cannot_change() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("big"), vec![1; 2 * MIB]).unwrap();
    let backend = Passthrough::open(dir.path(), PassthroughOptions::default()).unwrap();
    let s =
        InProcess::start_with(vec![export(1, Arc::new(backend), |_| {})], |b| b.flavor(|| Box::new(Signed)));
    let h = handle(s.port, "/1", "big");
    let stop = AtomicBool::new(false);
    std::thread::scope(|t| {
        t.spawn(|| {
            let f = File::options().write(true).open(dir.path().join("big")).unwrap();
            let mut n = 0u8;
            while !stop.load(Ordering::Relaxed) {
                n = n.wrapping_add(1);
                f.write_all_at(&vec![n; 2 * MIB], 0).unwrap();
            }
        });
        let _end = StopAtEnd(&stop);
        let mut c = Stalled::connect(s.port, 8 << 10);
        c.flavor = SIGNED;
        let mut wrong = 0;
        for _ in 0..8 {
            c.ask(&h, [(0, MIB as u32), (MIB as u64, MIB as u32)]);
            Stalled::sleep();
            for _ in 0..2 {
                let r = c.reply().unwrap();
                assert_eq!((r.data.len(), r.rest.len()), (MIB, 8));
                wrong += usize::from(r.rest != sum(r.results.iter().copied()));
            }
        }
        assert_eq!(wrong, 0, "of 16 signatures");
    });
}

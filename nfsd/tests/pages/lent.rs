//! Replies that lend pages of the page cache.

use crate::server::Server;
use crate::stalled::{Stalled, StopAtEnd, handle, make, pattern};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: usize = 1 << 20;

#[test]
fn every_range_is_whole() {
    let s = Server::start(&["--threads", "1"]);
    make(s.dir.path(), "big", 4 * MIB + 1234);
    let h = handle(s.port, s.dir.path().to_str().unwrap(), "big");
    let mut c = Stalled::connect(s.port, 64 << 10);
    let size = 4 * MIB as u64 + 1234;
    let ranges = [
        (0, MIB as u32),
        (MIB as u64 + 4096, MIB as u32),
        // One page more than fits the pipe.
        (17, MIB as u32),
        (4095, 300_001),
        (3 * MIB as u64, MIB as u32),
        (size - 1234, MIB as u32),
        // The end comes first.
        (size - 400_000, MIB as u32),
        (size, MIB as u32),
        (size + 5, MIB as u32),
        (0, 200_000),
    ];
    for _ in 0..3 {
        c.ask(&h, ranges);
        for _ in ranges {
            let r = c.reply().expect("the connection lives");
            let (offset, count) = r.asked;
            let want = u64::from(count).min(size.saturating_sub(offset)) as usize;
            assert_eq!(r.data.len(), want, "{offset} {count}");
            assert_eq!(r.eof, offset + want as u64 >= size, "{offset} {count}");
            assert!(r.right(), "{offset} {count}");
        }
    }
}

/// However the file changes meanwhile, a record is as long as its mark says and holds what it counts; what lies below the
/// size that the file never goes under is right.
#[test]
fn a_file_that_shrinks_and_grows_breaks_no_record() {
    let s = Server::start(&["--threads", "1"]);
    make(s.dir.path(), "big", 2 * MIB);
    let h = handle(s.port, s.dir.path().to_str().unwrap(), "big");
    let stop = AtomicBool::new(false);
    std::thread::scope(|t| {
        t.spawn(|| {
            let f = File::options().write(true).open(s.dir.path().join("big")).unwrap();
            let tail = pattern(MIB as u64 / 2, 3 * MIB / 2);
            while !stop.load(Ordering::Relaxed) {
                f.set_len(MIB as u64 / 2).unwrap();
                f.write_all_at(&tail, MIB as u64 / 2).unwrap();
            }
        });
        let _end = StopAtEnd(&stop);
        let mut c = Stalled::connect(s.port, 64 << 10);
        let ranges: Vec<_> = (0..8u64).map(|i| (i * MIB as u64 / 8, MIB as u32)).collect();
        for _ in 0..60 {
            c.ask(&h, ranges.iter().copied());
            for _ in &ranges {
                let r = c.reply().expect("the connection lives");
                let sure = (MIB / 2).saturating_sub(r.asked.0 as usize).min(r.data.len());
                assert!(r.data[..sure] == pattern(r.asked.0, sure));
            }
        }
    });
}

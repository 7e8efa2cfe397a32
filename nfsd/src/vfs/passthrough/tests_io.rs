//! The I/O modes: what they leave in the page cache, and that the bytes are right in each of them.

use super::tests::*;
use super::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use sunrpc_sys::io as file;

const MIB: usize = 1 << 20;

/// A rig on a disk, if the directory for temporary files is on one that can do what the modes ask for.
fn on_disk(modes: IoModes) -> Option<Rig> {
    let rig = Rig::new("/tmp", 0);
    let f = tempfile::tempfile_in(&rig.dir).unwrap();
    f.write_all_at(&[1; 4096], 0).unwrap();
    file::fsync(f.as_fd()).unwrap();
    let mut buf = [0; 4096];
    let dontcache = file::read(f.as_fd(), &mut [IoSliceMut::new(&mut buf)], 0, file::Rwf::DONTCACHE).is_ok();
    let direct = sunrpc_sys::stat::direct_align(f.as_fd()).is_ok_and(|a| a.is_some());
    if rig.backend.shared.kind != Kind::Disk || !dontcache || !direct {
        eprintln!("SKIPPED: /tmp is no disk with RWF_DONTCACHE and O_DIRECT");
        return None;
    }
    rig.backend.set_modes(modes);
    Some(rig)
}

fn read_mode(read: ReadMode) -> IoModes {
    IoModes { read, ..IoModes::default() }
}

fn write_mode(write: WriteMode) -> IoModes {
    IoModes { write, ..IoModes::default() }
}

/// Pages of a file that the page cache holds, and how many of them are not written yet.
fn cached(rig: &Rig, name: &str) -> (u64, u64) {
    let f = local(|| File::open(rig.dir.join(name)).unwrap());
    let r = file::residency(f.as_fd(), 0, 0).unwrap();
    (r.cached, r.dirty)
}

/// A file whose contents are on the disk and not in the page cache.
fn cold(rig: &mut Rig, name: &str, data: &[u8]) -> Handle {
    let h = rig.create(&rig.root.clone(), name, 0o644).unwrap().handle;
    let f = local(|| File::options().write(true).open(rig.dir.join(name)).unwrap());
    f.write_all_at(data, 0).unwrap();
    file::fsync(f.as_fd()).unwrap();
    file::advise(f.as_fd(), 0, 0, libc::POSIX_FADV_DONTNEED).unwrap();
    assert_eq!(cached(rig, name), (0, 0));
    h
}

fn write(rig: &mut Rig, h: &Handle, at: u64, data: &[u8], stable: Stability) {
    let done = rig.run(|fs, cx| fs.write(cx, h, at, &[IoSlice::new(data)], stable)).unwrap();
    assert_eq!((done.len, done.attr.size >= at + data.len() as u64), (data.len(), true));
    assert!(done.committed >= stable || stable == Stability::Unstable);
}

/// What was left to do; true if there was something.
fn after_reply(rig: &mut Rig) -> bool {
    let left = rig.fs.has_left();
    let work = rig.fs.after_reply();
    assert_eq!(work.is_some(), left);
    work.into_iter().for_each(|w| w());
    assert!(!rig.fs.has_left());
    left
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed | 1);
    (0..n).map(|_| rng.next() as u8).collect()
}

#[test]
fn reads_leave_in_the_page_cache_what_their_mode_says() {
    for (mode, left) in [(ReadMode::Buffered, true), (ReadMode::DontCache, false), (ReadMode::Direct, false)]
    {
        let Some(mut rig) = on_disk(read_mode(mode)) else { return };
        let data = bytes(MIB + 777, 5);
        let h = cold(&mut rig, "f", &data);
        let mut got = rig.read(&h, 0, MIB).unwrap().0;
        let (tail, eof) = rig.read(&h, MIB as u64, MIB).unwrap();
        got.extend(tail);
        assert!(got == data && eof, "{mode:?}");
        assert_eq!(cached(&rig, "f").0 > 0, left, "{mode:?}");
        let c = rig.backend.io_counts();
        let want = match mode {
            ReadMode::Buffered => (2, 0, 0),
            ReadMode::DontCache => (0, 2, 0),
            ReadMode::Direct => (0, 0, 2),
        };
        assert_eq!(
            (c.read_buffered, c.read_dontcache, c.read_direct, c.fallbacks),
            (want.0, want.1, want.2, 0)
        );
    }
}

#[test]
fn direct_writes_leave_only_head_and_tail_in_the_page_cache() {
    let Some(mut rig) = on_disk(write_mode(WriteMode::Direct)) else { return };
    let h = rig.create(&rig.root.clone(), "f", 0o644).unwrap().handle;
    let data = bytes(MIB, 6);
    write(&mut rig, &h, 0, &data, Stability::Unstable);
    assert_eq!(cached(&rig, "f"), (0, 0));
    write(&mut rig, &h, 100, &data, Stability::Unstable);
    let (there, dirty) = cached(&rig, "f");
    assert!(there <= 2 && dirty == 2, "{there} {dirty}");
    write(&mut rig, &h, 200, &data, Stability::FileSync);
    assert_eq!(cached(&rig, "f").1, 0, "head and tail of a stable write are flushed");
    let c = rig.backend.io_counts();
    assert_eq!((c.write_direct, c.write_buffered, c.fallbacks), (3, 0, 0));
    write(&mut rig, &h, 5, b"less than a page", Stability::Unstable);
    let c = rig.backend.io_counts();
    assert_eq!(
        (c.write_direct, c.write_buffered, c.fallbacks),
        (3, 1, 0),
        "not a fallback: there is no whole page"
    );
    assert_eq!(c.bounced, 3 * MIB as u64 + 16);
    // On a worker, which must not wait, nothing is even tried.
    rig.blocking = false;
    assert_eq!(rig.write(&h, 0, &data).unwrap_err(), VfsError::WouldBlock);
    rig.backend.set_modes(read_mode(ReadMode::Direct));
    assert_eq!(rig.read(&h, 0, 10), Err(VfsError::WouldBlock));
}

#[test]
fn hybrid_writes_are_dropped_after_the_reply_of_their_commit() {
    let Some(mut rig) = on_disk(write_mode(WriteMode::Hybrid)) else { return };
    let h = rig.create(&rig.root.clone(), "f", 0o644).unwrap().handle;
    let data = bytes(4 * MIB, 7);
    // Fresh ones, then overwritten ones, which DONTCACHE alone would keep.
    for round in 1..=2 {
        write(&mut rig, &h, 0, &data, Stability::Unstable);
        assert_eq!(cached(&rig, "f").0, 1024);
        assert!(!after_reply(&mut rig), "nothing before the COMMIT");
        // In the first half only, though it may share a folio with what follows.
        rig.run(|fs, cx| fs.commit(cx, &h, 5000, MIB as u32)).unwrap();
        assert_eq!(cached(&rig, "f"), (1024, 0), "before the reply all is there");
        assert!(after_reply(&mut rig));
        assert_eq!(cached(&rig, "f").0, 512);
        rig.run(|fs, cx| fs.commit(cx, &h, 0, 0)).unwrap();
        assert!(after_reply(&mut rig));
        assert_eq!(cached(&rig, "f").0, 0);
        assert_eq!(rig.backend.io_counts().drops, 2 * round);
    }
    let h = rig.create(&rig.root.clone(), "g", 0o644).unwrap().handle;
    write(&mut rig, &h, 0, &data[..MIB], Stability::FileSync);
    let c = rig.backend.io_counts();
    assert_eq!((c.write_buffered, c.write_dontcache, c.fallbacks), (2, 1, 0));
    assert_eq!(cached(&rig, "g").1, 0);
}

#[test]
fn dontcache_writes_do_not_stay() {
    let Some(mut rig) = on_disk(write_mode(WriteMode::DontCache)) else { return };
    let h = rig.create(&rig.root.clone(), "f", 0o644).unwrap().handle;
    for i in 0..16 {
        write(&mut rig, &h, i * MIB as u64, &bytes(MIB, i), Stability::Unstable);
    }
    rig.run(|fs, cx| fs.commit(cx, &h, 0, 0)).unwrap();
    // The system drops each page when its writing has ended, perhaps a little after the flush.
    let mut tries = 0;
    while cached(&rig, "f").0 > 0 {
        tries += 1;
        assert!(tries < 6000, "pages of fresh writes stay: {:?}", cached(&rig, "f"));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(rig.backend.io_counts().write_dontcache, 16);
}

#[test]
fn what_a_file_system_refuses_is_buffered_and_counted() {
    let mut rig = Rig::new("/dev/shm", 0);
    if rig.backend.shared.kind != Kind::Memory {
        eprintln!("SKIPPED: /dev/shm is no tmpfs");
        return;
    }
    let h = rig.create(&rig.root.clone(), "f", 0o644).unwrap().handle;
    let data = bytes(10_000, 8);
    // On a worker, too: memory never waits.
    rig.blocking = false;
    let mut n = 0;
    for (read, write) in [(ReadMode::DontCache, WriteMode::DontCache), (ReadMode::Direct, WriteMode::Direct)]
    {
        rig.backend.set_modes(IoModes { read, write, kick: true, splice: Some(0) });
        for _ in 0..3 {
            rig.write(&h, 3, &data).unwrap();
            assert_eq!(rig.read(&h, 3, 20_000).unwrap(), (data.clone(), true));
            rig.run(|fs, cx| fs.commit(cx, &h, 0, 0)).unwrap();
            n += 1;
        }
    }
    let want = IoCounts { read_buffered: n, write_buffered: n, fallbacks: 2 * n, ..IoCounts::default() };
    assert_eq!(rig.backend.io_counts(), want);
    assert!(!after_reply(&mut rig), "memory needs no kick");
    let shared = &rig.backend.shared.modes;
    for (way, write) in
        [(modes::Way::DontCache, false), (modes::Way::DontCache, true), (modes::Way::Direct, true)]
    {
        assert_eq!(shared.open_way(way, write), modes::Way::Buffered, "remembered");
    }
}

#[test]
fn kicks_join_writes_and_one_runs_at_a_time() {
    let modes = IoModes { kick: true, ..IoModes::default() };
    let Some(mut rig) = on_disk(modes) else { return };
    let mut other = Worker::new(rig.backend.shared.clone());
    let h = rig.create(&rig.root.clone(), "f", 0o644).unwrap().handle;
    let data = bytes(MIB / 4, 9);
    let at = |i: u64| i * data.len() as u64;
    for i in 0..3 {
        write(&mut rig, &h, at(i), &data, Stability::Unstable);
        assert!(!after_reply(&mut rig), "too little for a kick");
    }
    // The fourth comes by another thread, and its kick is not finished when more is written.
    std::mem::swap(&mut rig.fs, &mut other);
    write(&mut rig, &h, at(3), &data, Stability::Unstable);
    let first = rig.fs.after_reply().expect("a MiB is enough");
    for i in 4..12 {
        write(&mut rig, &h, at(i), &data, Stability::Unstable);
        assert!(!after_reply(&mut rig), "one is in progress");
    }
    first();
    let c = rig.backend.io_counts();
    assert_eq!((c.kicks, c.kicks_merged), (1, 11));
    write(&mut rig, &h, at(12), &data, Stability::Unstable);
    // Work that the helpers cannot take is dropped, and must not stop the file's kicks for ever.
    drop(rig.fs.after_reply().expect("what waited is kicked with the next"));
    write(&mut rig, &h, at(13), &bytes(MIB, 3), Stability::Unstable);
    assert!(after_reply(&mut rig));
    let c = rig.backend.io_counts();
    assert_eq!((c.kicks, c.kicks_merged), (2, 11));
    write(&mut rig, &h, 0, &data, Stability::Unstable);
    assert_eq!(rig.backend.shared.kicks.files(), 1);
    write(&mut rig, &h, 0, &data, Stability::FileSync);
    rig.run(|fs, cx| fs.commit(cx, &h, 0, 0)).unwrap();
    assert_eq!(rig.backend.shared.kicks.files(), 0, "what is committed needs no kick");
    assert!(!rig.fs.has_left());
}

#[test]
fn lending_follows_the_modes_at_run_time() {
    let Some(rig) = on_disk(IoModes::default()) else { return };
    let lends = |m| {
        rig.backend.set_modes(m);
        rig.backend.shared.lends(1 << 20)
    };
    assert!(lends(IoModes::default()));
    assert!(!lends(IoModes { splice: None, ..IoModes::default() }));
    assert!(!lends(read_mode(ReadMode::DontCache)) && !lends(read_mode(ReadMode::Direct)));
    assert!(lends(write_mode(WriteMode::Hybrid)));
}

/// xorshift64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// An offset or size: at a page, a block, near one of them, or anywhere.
    fn place(&mut self, max: usize) -> usize {
        let at = self.below(max);
        match self.below(5) {
            0 => at & !4095,
            1 => at & !511,
            2 => ((at & !4095) + self.below(3)).saturating_sub(1),
            _ => at,
        }
    }
}

/// Two threads read, write and cut one file; it must hold what a vector would.
fn like_a_vector(rig: &mut Rig, seed: u64, steps: usize) {
    let modes = rig.backend.modes();
    let mut rng = Rng(seed);
    let mut other = Worker::new(rig.backend.shared.clone());
    let name = format!("f{seed}");
    let h = rig.create(&rig.root.clone(), &name, 0o644).unwrap().handle;
    let mut model: Vec<u8> = Vec::new();
    for step in 0..steps {
        let why = format!("seed {seed}, step {step}, {modes}");
        std::mem::swap(&mut rig.fs, &mut other);
        match rng.below(16) {
            0..6 => {
                let at = if rng.below(3) == 0 { model.len() } else { rng.place(300_000) };
                let len = if rng.below(40) == 0 { MIB + rng.place(100_000) } else { rng.place(50_000) };
                let data = bytes(len, rng.next());
                let stable = match rng.below(12) {
                    0 => Stability::FileSync,
                    1 => Stability::DataSync,
                    _ => Stability::Unstable,
                };
                let cut = rng.below(len + 1);
                let bufs = [IoSlice::new(&data[..cut]), IoSlice::new(&[]), IoSlice::new(&data[cut..])];
                let done = rig.run(|fs, cx| fs.write(cx, &h, at as u64, &bufs, stable)).unwrap();
                assert_eq!(done.len, len, "{why}");
                if len > 0 {
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&data);
                }
                assert_eq!(done.attr.size, model.len() as u64, "{why}");
            }
            6 => {
                let size = rng.place(300_000);
                rig.setattr(&h, SetAttr { size: Some(size as u64), ..Default::default() }).unwrap();
                model.resize(size, 0);
            }
            7 => drop(rig.run(|fs, cx| fs.commit(cx, &h, 0, rng.below(2) as u32 * 65_536)).unwrap()),
            8 => {
                rig.fs.tick();
            }
            _ => {
                let at = if rng.below(4) == 0 {
                    model.len().saturating_sub(rng.below(9))
                } else {
                    rng.place(300_000)
                };
                let len = if rng.below(20) == 0 { MIB + 5 } else { rng.place(60_000) };
                let (got, eof) = rig.read(&h, at as u64, len).unwrap();
                let want = &model[at.min(model.len())..(at + len).min(model.len())];
                assert!(got == want, "{why}: {len} bytes at {at} of {}", model.len());
                assert_eq!(eof, at + len >= model.len(), "{why}");
            }
        }
        after_reply(rig);
    }
    let on_disk = local(|| std::fs::read(rig.dir.join(&name)).unwrap());
    assert!(on_disk == model, "seed {seed}, {modes}: the file as others see it");
}

#[test]
fn in_every_mode_a_file_holds_what_was_written() {
    for base in BASES {
        let mut rig = Rig::new(base, 0);
        let mut seed = 0x9e37_79b9;
        for read in [ReadMode::Buffered, ReadMode::DontCache, ReadMode::Direct] {
            for write in [WriteMode::Buffered, WriteMode::DontCache, WriteMode::Direct, WriteMode::Hybrid] {
                seed += 1;
                rig.backend.set_modes(IoModes { read, write, kick: seed % 2 == 0, splice: Some(0) });
                like_a_vector(&mut rig, seed, 200);
            }
        }
        let c = rig.backend.io_counts();
        if rig.backend.shared.kind == Kind::Disk && on_disk(IoModes::default()).is_some() {
            assert!(c.read_direct > 100 && c.write_direct > 100 && c.read_dontcache > 100, "{c:?}");
            assert!(c.write_dontcache > 100 && c.drops > 0 && c.kicks > 0 && c.fallbacks == 0, "{c:?}");
        }
    }
}

#[test]
fn neighbours_that_share_pages_do_not_lose_each_others_bytes() {
    const THREADS: usize = 4;
    const SLICE: usize = 5000;
    for (read, write) in [
        (ReadMode::Buffered, WriteMode::Direct),
        (ReadMode::Direct, WriteMode::Direct),
        (ReadMode::Direct, WriteMode::Hybrid),
    ] {
        let Some(mut rig) = on_disk(IoModes { read, write, kick: true, splice: Some(0) }) else { return };
        let h = rig.create(&rig.root.clone(), "f", 0o666).unwrap().handle;
        let shared = &rig.backend.shared;
        // Slices of all threads alternate, and are no multiples of any block: each has a neighbour in its pages.
        std::thread::scope(|s| {
            for t in 0..THREADS {
                s.spawn(move || {
                    let mut fs = Worker::new(shared.clone());
                    let me = ident(0, 0);
                    let cx = Cx { ident: &me, blocking: true, sync: false, owner_override: true };
                    let mut rng = Rng(77 + t as u64);
                    for round in 0..300 {
                        let n = rng.below(40) * THREADS + t;
                        let (at, data) = ((n * SLICE) as u64, bytes(SLICE, rng.next()));
                        fs.write(&cx, &h, at, &[IoSlice::new(&data)], Stability::Unstable).unwrap();
                        if round % 20 == 0 {
                            fs.commit(&cx, &h, 0, 0).unwrap();
                        }
                        fs.after_reply().into_iter().for_each(|w| w());
                        let mut got = vec![0; SLICE];
                        let done = fs.read(&cx, &h, at, &mut [IoSliceMut::new(&mut got)]).unwrap();
                        assert!(
                            done.len == SLICE && got == data,
                            "{read:?} {write:?} thread {t} round {round}"
                        );
                    }
                });
            }
        });
    }
}

//! Large WRITEs: their data is received where it is wanted, and is right wherever that is.

use crate::client::*;
use crate::in_process::{InProcess, export};
use nfsd::proto::nfs3::*;
use nfsd::vfs::passthrough::{IoModes, Passthrough, PassthroughOptions, WriteMode};
use stable_how::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// Records of more are never received in one piece.
const LARGE: usize = 64 << 10;

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed * 97) as u8).collect()
}

/// Offsets and lengths of large writes, aligned and not.
fn large() -> Vec<(u64, usize)> {
    let offsets = [0, 1, 100, 511, 512, 3996, 4095, 4096, 4097, 70_001];
    let lens = [LARGE, LARGE + 1, 100_002, 300_003, MIB - 1, MIB];
    offsets.iter().flat_map(|o| lens.map(|l| (*o, l))).collect()
}

/// A server of `dir`, a client and the empty file `f`.
fn start(dir: &Path, write: WriteMode) -> (Arc<Passthrough>, InProcess, Client, nfs_fh3) {
    let backend = Arc::new(Passthrough::open(dir, PassthroughOptions::default()).unwrap());
    backend.set_modes(IoModes { write, ..IoModes::default() });
    let s = InProcess::start(vec![export(1, backend.clone(), |_| {})]);
    let mut c = Client::connect(s.port);
    let root = c.mnt("/1").unwrap();
    let file = c.create(&root, "f").unwrap();
    (backend, s, c, file)
}

/// Writes `all` through `c` one after the other, and compares the file each time.
fn write_all(c: &mut Client, file: &nfs_fh3, path: &Path, all: &[(u64, usize)]) {
    let mut want = std::fs::read(path).unwrap();
    for (seed, &(offset, len)) in all.iter().enumerate() {
        let data = pattern(seed, len);
        let at = offset as usize;
        want.resize(want.len().max(at + len), 0);
        want[at..at + len].copy_from_slice(&data);
        let stable = if seed % 3 == 0 { FILE_SYNC } else { UNSTABLE };
        assert_eq!(c.write(file, offset, &data, stable).unwrap().count as usize, len, "{offset} {len}");
        assert!(std::fs::read(path).unwrap() == want, "{len} bytes at {offset}");
    }
}

/// Many calls in a row, small ones among them: the beginning of each arrives with the end of the one before.
fn write_in_a_row(c: &mut Client, file: &nfs_fh3, path: &Path, fragmented: bool) {
    std::fs::write(path, b"").unwrap();
    let (mut want, mut at, mut stream, mut xids) = (Vec::new(), 0, Vec::new(), Vec::new());
    let lens = [LARGE + 3, 5, 4096, MIB, MIB, 40_000, 4091, 4092, 4093, 200_001, 1, 70_000, 8190, MIB - 2];
    for (seed, len) in lens.into_iter().enumerate() {
        let data = pattern(seed, len);
        want.extend_from_slice(&data);
        let args = WRITE3args {
            file: file.clone(),
            offset: at,
            count: len as u32,
            stable: UNSTABLE,
            data: data.as_slice().into(),
        };
        at += len as u64;
        let m = c.message(NFS_PROGRAM, NFS_V3, NFSPROC3_WRITE, &bytes(&args));
        stream.extend(if fragmented && m.len() > 60 {
            let cut = m.len() / 3;
            fragments(&[
                &m[..20],
                &m[20..50 + seed],
                &[],
                &m[50 + seed..cut.max(50 + seed)],
                &m[cut.max(50 + seed)..],
            ])
        } else {
            frame(&m)
        });
        xids.push((m, len));
    }
    c.send(&stream);
    // Calls that wait for a helper may be answered out of order.
    let mut counts = vec![];
    for _ in &xids {
        counts.push(c.receive_any());
    }
    for (m, len) in &xids {
        let xid = u32::from_be_bytes(m[..4].try_into().unwrap());
        let results = &counts.iter().find(|(x, _)| *x == xid).unwrap().1;
        match decode::<WRITE3res>(results) {
            WRITE3res::NFS3_OK(ok) => assert_eq!(ok.count as usize, *len),
            WRITE3res::Default(s, _) => panic!("{s:?}"),
        }
    }
    assert!(std::fs::read(path).unwrap() == want, "fragmented: {fragmented}");
}

#[test]
fn data_of_large_writes_is_right_wherever_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, _s, mut c, file) = start(dir.path(), WriteMode::Buffered);
    let path = dir.path().join("f");
    write_all(&mut c, &file, &path, &large());
    write_in_a_row(&mut c, &file, &path, false);
    write_in_a_row(&mut c, &file, &path, true);
}

#[test]
fn direct_writes_go_from_where_they_were_received() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("f");
    let (backend, s, mut c, file) = start(dir.path(), WriteMode::Direct);
    let align = sunrpc_sys::stat::direct_align(File::open(&path).unwrap().as_fd()).unwrap();
    if align.is_none_or(|(mem, offset)| mem.max(offset) > 4096) {
        eprintln!("SKIPPED: /var/tmp is on no disk with O_DIRECT");
        return;
    }
    let all = large();
    write_all(&mut c, &file, &path, &all);
    let n = backend.io_counts();
    assert_eq!((n.bounced, n.fallbacks, n.write_direct), (0, 0, all.len() as u64), "{n:?}");
    // Those that arrive in one piece do not lie so, and are copied once more.
    let mut c = Client::connect(s.port);
    let small: Vec<_> = (0..20).map(|i| (i * 1111, 30_000 + i as usize)).collect();
    write_all(&mut c, &file, &path, &small);
    write_in_a_row(&mut c, &file, &path, false);
    write_in_a_row(&mut c, &file, &path, true);
    assert_eq!(backend.io_counts().fallbacks, 0);
}

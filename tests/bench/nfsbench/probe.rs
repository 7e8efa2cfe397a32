//! What the system calls of a listing cost by themselves.

use crate::ProbeArgs;
use crate::error::{BenchError, Context, Result};
use crate::process;
use crate::report::{Row, load_average};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use std::mem::MaybeUninit;
use std::time::Instant;

/// Buffer of getdents64: that of glibc's readdir.
const BUFFER: usize = 32 << 10;

/// Lists the directory and stats every entry, as often as the time allows.
pub(crate) fn run(args: &ProbeArgs) -> Result<Row> {
    if let Some(cpu) = args.cpu {
        process::pin(cpu)?;
    }
    let what = args.dir.display().to_string();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&args.dir, flags, Mode::empty()).context(what.as_str())?;
    let mut buf = vec![MaybeUninit::uninit(); BUFFER];
    let pass = |buf: &mut [MaybeUninit<u8>]| -> Result<u64> {
        rustix::fs::seek(&dir, SeekFrom::Start(0)).context(what.as_str())?;
        let mut entries = 0;
        let mut raw = RawDir::new(&dir, buf);
        while let Some(entry) = raw.next() {
            let entry = entry.context(what.as_str())?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            rustix::fs::statx(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
                .context(what.as_str())?;
            entries += 1;
        }
        Ok(entries)
    };
    // The first pass fills the caches.
    if pass(&mut buf)? == 0 {
        return Err(BenchError::Usage(format!("{what} is empty")));
    }
    let (start, cpu) = (Instant::now(), process::own_cpu_ns());
    let mut entries = 0;
    while start.elapsed().as_secs_f64() < args.secs {
        entries += pass(&mut buf)?;
    }
    let cpu_us = (process::own_cpu_ns() - cpu) as f64 / 1e3;
    Ok(Row {
        row: args.row.clone(),
        server: args.label.clone(),
        op: "getdents64+statx".into(),
        seconds: start.elapsed().as_secs_f64(),
        cost: cpu_us / entries.max(1) as f64,
        unit: "us/entry".into(),
        entries,
        full_entries: entries,
        load: load_average(),
        ..Row::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_every_pass_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..500 {
            std::fs::write(dir.path().join(format!("f{i}")), "").unwrap();
        }
        let args = ProbeArgs {
            dir: dir.path().into(),
            secs: 0.05,
            cpu: None,
            label: "floor".into(),
            row: "x".into(),
            json: false,
        };
        let row = run(&args).unwrap();
        assert!(row.entries >= 500 && row.entries.is_multiple_of(500));
        assert!(row.cost > 0.0);
    }
}

//! What the page cache holds of a file.

use crate::ResidentArgs;
use crate::error::{BenchError, Context, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use sunrpc_sys::io::{advise, fsync, residency};

/// Prints it, in MiB; with `--drop` after the cache was emptied of it.
pub(crate) fn run(args: &ResidentArgs) -> Result<()> {
    if args.drop {
        drop_pages(&args.file)?;
    }
    let Some(kib) = resident_kib(&args.file)? else {
        println!("-");
        return Ok(());
    };
    println!("{:.1}", kib as f64 / 1024.0);
    if args.drop && kib > 0 {
        let e = format!("{}: {kib} KiB stay in the page cache; does somebody use it?", args.file.display());
        return Err(BenchError::Usage(e));
    }
    Ok(())
}

/// What the page cache holds of a file, in KiB; `None` before Linux 6.5, which cannot tell. Asking brings nothing in.
pub(crate) fn resident_kib(path: &Path) -> Result<Option<u64>> {
    let what = format!("page cache of {}", path.display());
    let file = File::open(path).context(what.as_str())?;
    match residency(file.as_fd(), 0, 0) {
        Ok(r) => Ok(Some(r.cached * rustix::param::page_size() as u64 / 1024)),
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(None),
        Err(e) => Err(e).context(what),
    }
}

/// Takes and gives back pages as a file does, and without the device: it is gone before anything is written out.
/// Memory of programs would not do, since it is made of smaller pieces.
pub(crate) fn warm(dir: &Path, mib: u32) -> Result<()> {
    let what = format!("a file without a name in {}", dir.display());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).context(what.as_str())?;
    let (mut file, block) = (File::from(fd), vec![0x5a; 1 << 20]);
    (0..mib).try_for_each(|_| file.write_all(&block)).context(what)
}

/// Writes out what is dirty and lets the page cache forget the file.
fn drop_pages(path: &Path) -> Result<()> {
    let what = format!("emptying the page cache of {}", path.display());
    let file = File::open(path).context(what.as_str())?;
    fsync(file.as_fd()).context(what.as_str())?;
    advise(file.as_fd(), 0, 0, libc::POSIX_FADV_DONTNEED).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TMPFS: i64 = 0x0102_1994;

    #[test]
    fn written_pages_are_counted_and_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let Some(kib) = resident_kib(&path).unwrap() else { return };
        assert_eq!(kib, 1024);
        drop_pages(&path).unwrap();
        // A file in memory has nowhere to go.
        let left = if rustix::fs::statfs(&path).unwrap().f_type == TMPFS { 1024 } else { 0 };
        assert_eq!(resident_kib(&path).unwrap(), Some(left));
        assert_eq!(std::fs::read(&path).unwrap().len(), 1 << 20);
        assert_eq!(resident_kib(&path).unwrap(), Some(1024));
    }
}

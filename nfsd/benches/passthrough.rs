//! What the passthrough backend costs per operation, in one thread, without the network. Figures, not assertions:
//! `cargo bench -p nfsd --bench passthrough`. `BENCH_DIR=/tmp` measures one directory only.

use nfsd::vfs::passthrough::{Passthrough, PassthroughOptions};
use nfsd::vfs::*;
use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

struct Count(usize);

impl DirSink for Count {
    fn entry(&mut self, e: &DirEntry<'_>) -> ControlFlow<()> {
        self.0 += usize::from(e.entry.is_some());
        ControlFlow::Continue(())
    }
}

/// Time that this thread has been on a CPU, in ns: other load on the machine counts less than by the clock.
fn on_cpu() -> Result<u64> {
    let s = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(s.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}

/// Best of nine runs, in ns of CPU per call.
fn best(n: u32, mut f: impl FnMut(u32) -> Result<()>) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..9 {
        let t = on_cpu()?;
        (0..n).try_for_each(&mut f)?;
        best = best.min((on_cpu()? - t) as f64 / f64::from(n));
    }
    Ok(best)
}

fn run(base: &str, uid: u32, blocking: bool) -> Result<()> {
    let dir = tempfile::tempdir_in(base)?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777))?;
    let big = dir.path().join("big");
    std::fs::create_dir(&big)?;
    for i in 0..10_000 {
        std::fs::write(big.join(format!("file number {i}")), b"")?;
    }
    // Handles of young objects are not remembered.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let bare = {
        let fd = std::fs::File::open(&big)?;
        best(1, |_| {
            sunrpc_sys::dir::seek(fd.as_fd(), 0)?;
            let mut buf = vec![0; 32 << 10];
            loop {
                let n = sunrpc_sys::dir::read(fd.as_fd(), &mut buf)?;
                if n == 0 {
                    break;
                }
                for e in sunrpc_sys::dir::Entries::new(&buf[..n]) {
                    sunrpc_sys::stat::at_c(fd.as_fd(), e.name)?;
                }
            }
            Ok(())
        })? / 10_002.0
    };
    // The system calls that any server has to make.
    let d = std::fs::File::open(dir.path())?;
    let bare_statx = best(30_000, |_| Ok(sunrpc_sys::stat::of_fd(d.as_fd()).map(drop)?))?;
    let n = if base == "/dev/shm" { 4_000 } else { 50 };
    let bare_pair = best(n, |_| {
        let flags = 0o102 | 0o200; // O_RDWR | O_CREAT | O_EXCL
        drop(sunrpc_sys::open::at(d.as_fd(), b"y", flags, 0o644)?);
        Ok(sunrpc_sys::dir::unlink(d.as_fd(), b"y")?)
    })?;
    let backend = Passthrough::open(dir.path(), PassthroughOptions::default())?;
    // The thread takes on the caller's identity for good.
    std::thread::scope(|s| {
        let caller = s.spawn(|| -> Result<()> {
            let mut fs = backend.attach()?;
            let me = Identity { uid, gid: uid, groups: Default::default() };
            let cx = Cx { ident: &me, blocking, sync: true, owner_override: true };
            let other = Identity { uid: uid + 1, gid: uid, groups: Default::default() };
            let cx2 = Cx { ident: &other, ..cx };
            let root = fs.root()?;
            let set = SetAttr { mode: Some(0o666), ..Default::default() };
            let how = CreateHow::Unchecked(set);
            let wait = Cx { blocking: true, ..cx };
            let f = fs.create(&wait, &root, b"f", &how)?.handle;
            let page = vec![7u8; 4096];
            fs.write(&wait, &f, 0, &[IoSlice::new(&page)], Stability::Unstable)?;
            let dir = fs.lookup(&wait, &root, b"big")?.handle;
            let name = b"file number 77";
            fs.lookup(&wait, &dir, name)?;
            let mut buf = vec![0u8; 4096];
            let getattr = best(50_000, |_| Ok(fs.getattr(&cx, &f).map(drop)?))?;
            // The kernel may give up on its caches while other processes rename; then a helper would be asked.
            let look = |fs: &mut Box<dyn Vfs>, cx: &Cx<'_>| match fs.lookup(cx, &dir, name) {
                Err(VfsError::WouldBlock) if !cx.blocking => Ok(()),
                r => Ok(r.map(drop)?),
            };
            let lookup = best(30_000, |_| look(&mut fs, &cx))?;
            let lookup2 = best(20_000, |i| look(&mut fs, if i % 2 == 0 { &cx } else { &cx2 }))?;
            let access = best(30_000, |_| Ok(fs.access(&cx, &f, Access(0x3f)).map(drop)?))?;
            let read = best(30_000, |_| {
                Ok(fs.read(&cx, &f, 0, &mut [IoSliceMut::new(&mut buf)]).map(drop)?)
            })?;
            let write = best(20_000, |_| {
                Ok(fs.write(&wait, &f, 0, &[IoSlice::new(&page)], Stability::Unstable).map(drop)?)
            })?;
            let plus = best(1, |_| {
                let (mut sink, want) = (Count(0), ReaddirWant { plus: true, bytes: 32 << 10 });
                fs.readdir(&wait, &dir, 0, want, &mut sink)?;
                assert_eq!(sink.0, 10_002);
                Ok(())
            })? / 10_002.0;
            let pair = best(n, |_| {
                fs.create(&wait, &root, b"x", &CreateHow::Guarded(set))?;
                Ok(fs.remove(&wait, &root, b"x").map(drop)?)
            })?;
            println!(
                "{base} uid {uid}: getattr {getattr:.0} ns (bare statx {bare_statx:.0}), lookup {lookup:.0} (two users in turn {lookup2:.0}), access {access:.0}, \
                 read 4K {read:.0}, write 4K {write:.0}, create+remove {pair:.0} for the pair (bare {bare_pair:.0}), \
                 readdirplus entry {plus:.0} (bare getdents + statx {bare:.0})"
            );
            Ok(())
        });
        caller.join().unwrap_or_else(|_| Err("the measuring thread ended early".into()))
    })
}

fn main() -> Result<()> {
    let only = std::env::var("BENCH_DIR").ok();
    for base in ["/dev/shm", "/tmp"].into_iter().filter(|b| only.as_deref().is_none_or(|o| o == *b)) {
        for uid in [1000, 0] {
            run(base, uid, base == "/dev/shm")?;
        }
    }
    Ok(())
}

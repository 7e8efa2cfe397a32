//! How data goes between files and memory, as the administrator chose for an export, and what came of it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sunrpc::stats::{Counters, Value};

/// How READ gets its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ReadMode {
    /// Through the page cache, which keeps it.
    #[default]
    Buffered,
    /// Through the page cache, which lets go of what the read brought in (`RWF_DONTCACHE`, Linux 6.14).
    DontCache,
    /// Past the page cache (`O_DIRECT`), on helper threads.
    Direct,
}

/// How WRITE puts its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum WriteMode {
    /// Through the page cache, which keeps it.
    #[default]
    Buffered,
    /// Through the page cache, which writes it at once and lets go of it (`RWF_DONTCACHE`, Linux 6.14).
    DontCache,
    /// Past the page cache (`O_DIRECT`), on helper threads. Head and tail that are not aligned go through it.
    Direct,
    /// Stable writes as [`DontCache`](Self::DontCache), unstable ones as [`Buffered`](Self::Buffered) until a COMMIT,
    /// after whose reply the page cache is told to let go of its range.
    Hybrid,
}

/// Reads of fewer bytes are copied unless told otherwise: below, a pipe costs more than the copy (docs/performance.md).
pub const SPLICE_MIN: u32 = 128 << 10;

/// The modes of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoModes {
    /// How READ gets its data.
    pub read: ReadMode,
    /// How WRITE puts its data.
    pub write: WriteMode,
    /// After the reply to unstable WRITEs that stay in the page cache, the system is told to begin writing them.
    pub kick: bool,
    /// READs of so many bytes and more lend pages of the page cache where the file system can. Only with
    /// [`ReadMode::Buffered`].
    pub splice: Option<u32>,
}

impl Default for IoModes {
    fn default() -> Self {
        IoModes {
            read: ReadMode::Buffered,
            write: WriteMode::Buffered,
            kick: false,
            splice: Some(SPLICE_MIN),
        }
    }
}

/// As in the configuration file.
impl std::fmt::Display for IoModes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let read = match self.read {
            ReadMode::Buffered => "buffered",
            ReadMode::DontCache => "dontcache",
            ReadMode::Direct => "direct",
        };
        let write = match self.write {
            WriteMode::Buffered => "buffered",
            WriteMode::DontCache => "dontcache",
            WriteMode::Direct => "direct",
            WriteMode::Hybrid => "hybrid",
        };
        let kick = if self.kick { "after_reply" } else { "off" };
        write!(f, "read {read}, write {write}, writeback_kick {kick}, splice ")?;
        match self.splice {
            None => f.write_str("off"),
            Some(SPLICE_MIN) => f.write_str("auto"),
            Some(n) => n.fmt(f),
        }
    }
}

impl IoModes {
    fn pack(self) -> u64 {
        let words = self.read as u8 | (self.write as u8) << 2 | u8::from(self.kick) << 4;
        let splice = self.splice.map_or(0, |n| 1 << 5 | u64::from(n) << 32);
        u64::from(words) | splice
    }

    fn unpack(b: u64) -> Self {
        IoModes {
            read: match b & 3 {
                1 => ReadMode::DontCache,
                2 => ReadMode::Direct,
                _ => ReadMode::Buffered,
            },
            write: match b >> 2 & 3 {
                1 => WriteMode::DontCache,
                2 => WriteMode::Direct,
                3 => WriteMode::Hybrid,
                _ => WriteMode::Buffered,
            },
            kick: b & 1 << 4 != 0,
            splice: (b & 1 << 5 != 0).then_some((b >> 32) as u32),
        }
    }
}

/// The way that one operation took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Buffered,
    DontCache,
    Direct,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident $of:ident,)*) => {
        /// What the modes of an export came to, since it was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct IoCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// One thing that is counted.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Count { $($of,)* }

        const COUNTS: usize = [$(Count::$of),*].len();

        impl Counters for IoCounts {
            fn each<'a>(&'a self, f: &mut dyn FnMut(&'static str, Value<'a>)) {
                $(f(stringify!($name), Value::Count(self.$name));)*
            }
        }

        impl IoCounts {
            fn sum(get: impl Fn(Count) -> u64) -> Self {
                IoCounts { $($name: get(Count::$of),)* }
            }
        }
    };
}

counts! {
    /// READs that lent pages of the page cache to their replies.
    read_lent ReadLent,
    /// READs that were copied from the page cache.
    read_buffered ReadBuffered,
    /// READs with `RWF_DONTCACHE`.
    read_dontcache ReadDontCache,
    /// READs past the page cache.
    read_direct ReadDirect,
    /// WRITEs through the page cache.
    write_buffered WriteBuffered,
    /// WRITEs with `RWF_DONTCACHE`.
    write_dontcache WriteDontCache,
    /// WRITEs of which at least a part went past the page cache.
    write_direct WriteDirect,
    /// READs and WRITEs that went through the page cache because the file system cannot do what was asked for.
    fallbacks Fallbacks,
    /// Bytes copied between the call's pages and aligned memory.
    bounced Bounced,
    /// Times that the system was told to begin writing.
    kicks Kicks,
    /// WRITEs whose range joined that of others instead.
    kicks_merged KicksMerged,
    /// COMMITs after which the page cache was told to let go of their range.
    drops Drops,
}

/// More than one thread adds to one of these only if there are more threads; so no cache line wanders between cores.
const SHARDS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTS]);

/// The modes in force and their counters, shared by all threads of an export.
#[derive(Debug, Default)]
pub(super) struct Modes {
    cell: AtomicU64,
    /// For the log.
    path: PathBuf,
    /// This file system refused them.
    no_dontcache_read: AtomicBool,
    no_dontcache_write: AtomicBool,
    no_direct: AtomicBool,
    shards: [Shard; SHARDS],
    threads: AtomicUsize,
}

impl Modes {
    pub(super) fn new(modes: IoModes, path: PathBuf) -> Self {
        Modes { cell: AtomicU64::new(modes.pack()), path, ..Modes::default() }
    }

    #[inline]
    pub(super) fn get(&self) -> IoModes {
        IoModes::unpack(self.cell.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, modes: IoModes) {
        self.cell.store(modes.pack(), Ordering::Relaxed);
    }

    /// Where a new thread counts.
    pub(super) fn join(&self) -> usize {
        self.threads.fetch_add(1, Ordering::Relaxed) % SHARDS
    }

    #[inline]
    pub(super) fn count(&self, shard: usize, what: Count, n: u64) {
        if let Some(c) = self.shards.get(shard).and_then(|s| s.0.get(what as usize)) {
            c.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> IoCounts {
        IoCounts::sum(|c| {
            self.shards.iter().filter_map(|s| s.0.get(c as usize)).map(|n| n.load(Ordering::Relaxed)).sum()
        })
    }

    /// Counts a READ that was to go one way and went another.
    #[inline]
    pub(super) fn was_read(&self, shard: usize, wanted: Way, went: Way) {
        let what = match went {
            Way::Buffered => Count::ReadBuffered,
            Way::DontCache => Count::ReadDontCache,
            Way::Direct => Count::ReadDirect,
        };
        self.count(shard, what, 1);
        self.fell_back(shard, wanted, went);
    }

    /// Counts a WRITE that was to go one way and went another.
    #[inline]
    pub(super) fn was_written(&self, shard: usize, wanted: Way, went: Way) {
        let what = match went {
            Way::Buffered => Count::WriteBuffered,
            Way::DontCache => Count::WriteDontCache,
            Way::Direct => Count::WriteDirect,
        };
        self.count(shard, what, 1);
        self.fell_back(shard, wanted, went);
    }

    fn fell_back(&self, shard: usize, wanted: Way, went: Way) {
        if wanted != went {
            self.count(shard, Count::Fallbacks, 1);
        }
    }

    /// The way that is open to an operation that was to go `wanted`.
    #[inline]
    pub(super) fn open_way(&self, wanted: Way, write: bool) -> Way {
        let refused = match wanted {
            Way::Buffered => false,
            Way::DontCache => self.dontcache(write).load(Ordering::Relaxed),
            Way::Direct => self.no_direct.load(Ordering::Relaxed),
        };
        if refused { Way::Buffered } else { wanted }
    }

    fn dontcache(&self, write: bool) -> &AtomicBool {
        if write { &self.no_dontcache_write } else { &self.no_dontcache_read }
    }

    /// The file system refused; it is not asked again.
    #[cold]
    pub(super) fn refused(&self, way: Way, write: bool) {
        let (flag, what) = match way {
            Way::Buffered => return,
            Way::DontCache => (self.dontcache(write), "RWF_DONTCACHE"),
            Way::Direct => (&self.no_direct, "O_DIRECT"),
        };
        if !flag.swap(true, Ordering::Relaxed) {
            let op = if write { "writes" } else { "reads" };
            tracing::warn!("{}: no {what} on this file system; {op} are buffered", self.path.display());
        }
    }
}

/// The system does not know the option, or not on this file system.
pub(super) fn unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_survives_its_cell() {
        let modes = Modes::new(IoModes::default(), PathBuf::new());
        assert_eq!(modes.get(), IoModes::default());
        for read in [ReadMode::Buffered, ReadMode::DontCache, ReadMode::Direct] {
            for write in [WriteMode::Buffered, WriteMode::DontCache, WriteMode::Direct, WriteMode::Hybrid] {
                for (kick, splice) in [(false, None), (false, Some(0)), (true, None), (true, Some(u32::MAX))]
                {
                    let m = IoModes { read, write, kick, splice };
                    modes.set(m);
                    assert_eq!(modes.get(), m);
                }
            }
        }
    }

    #[test]
    fn threads_count_apart_and_are_summed() {
        let modes = Modes::default();
        for _ in 0..SHARDS + 3 {
            modes.was_read(modes.join(), Way::Direct, Way::Buffered);
        }
        modes.was_written(modes.join(), Way::DontCache, Way::DontCache);
        let n = (SHARDS + 3) as u64;
        let want = IoCounts { read_buffered: n, fallbacks: n, write_dontcache: 1, ..IoCounts::default() };
        assert_eq!(modes.counts(), want);
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again() {
        let modes = Modes::default();
        modes.refused(Way::DontCache, false);
        assert_eq!(modes.open_way(Way::DontCache, false), Way::Buffered);
        assert_eq!(modes.open_way(Way::DontCache, true), Way::DontCache);
        assert_eq!(modes.open_way(Way::Direct, true), Way::Direct);
    }
}

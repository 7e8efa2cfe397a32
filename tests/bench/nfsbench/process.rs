//! What the kernel says about the server's process, and about ours.

use super::error::{BenchError, Context, Result};
use std::collections::HashMap;
use std::fs;

/// Nanoseconds of a clock tick in `/proc/PID/stat` (`USER_HZ` is 100 on every Linux architecture we run on).
const TICK_NS: u64 = 10_000_000;

/// CPU time and page faults of a process at one moment.
pub(crate) struct Sample {
    /// Run time of each live thread: nanoseconds, user and system, without waiting.
    threads: HashMap<u32, u64>,
    /// The same of the whole process, threads that have ended included, in ticks.
    ticks_ns: u64,
    minor_faults: u64,
    /// Voluntary context switches of each live thread.
    switches: HashMap<u32, u64>,
}

/// What a process used between two samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Page faults served without I/O.
    pub(crate) minor_faults: u64,
    /// Times that a thread gave up its processor to wait; threads born or ended meanwhile are left out.
    pub(crate) switches: u64,
}

impl Sample {
    /// Reads the figures of process `pid`.
    pub(crate) fn take(pid: u32) -> Result<Self> {
        let gone = || format!("/proc/{pid}: is the server running?");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context(gone())?;
        // The second field, the name in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        let (mut threads, mut switches) = (HashMap::new(), HashMap::new());
        for task in fs::read_dir(format!("/proc/{pid}/task")).context(gone())? {
            let task = task.context(gone())?;
            let Some(tid) = task.file_name().to_str().and_then(|s| s.parse().ok()) else { continue };
            // A thread that ends meanwhile is left to the tick count.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            if let Some(ns) = text.split_whitespace().next().and_then(|f| f.parse().ok()) {
                threads.insert(tid, ns);
            }
            if let Ok(text) = fs::read_to_string(task.path().join("status"))
                && let Some(n) = status_field(&text, "voluntary_ctxt_switches:")
            {
                switches.insert(tid, n);
            }
        }
        Ok(Self { threads, ticks_ns: (field(14) + field(15)) * TICK_NS, minor_faults: field(10), switches })
    }

    /// What was used from `self` until `later`.
    pub(crate) fn until(&self, later: &Self) -> Usage {
        let whole = !self.threads.is_empty() && self.threads.keys().all(|t| later.threads.contains_key(t));
        let cpu_ns = if whole {
            let sum = |s: &Self| s.threads.values().sum::<u64>();
            sum(later).saturating_sub(sum(self))
        } else {
            later.ticks_ns.saturating_sub(self.ticks_ns)
        };
        let slept = |(tid, n): (&u32, &u64)| later.switches.get(tid).map_or(0, |l| l.saturating_sub(*n));
        Usage {
            cpu_ns,
            minor_faults: later.minor_faults.saturating_sub(self.minor_faults),
            switches: self.switches.iter().map(slept).sum(),
        }
    }
}

/// The number behind a name of `/proc/PID/status`.
fn status_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Resident set of process `pid` in KiB.
pub(crate) fn rss_kib(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context(format!("/proc/{pid}/status"))?;
    status_field(&text, "VmRSS:")
        .ok_or_else(|| BenchError::Usage(format!("process {pid} has no memory figures")))
}

/// The most that was resident of process `pid` since it started, in KiB.
pub(crate) fn rss_peak_kib(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context(format!("/proc/{pid}/status"))?;
    status_field(&text, "VmHWM:")
        .ok_or_else(|| BenchError::Usage(format!("process {pid} has no memory figures")))
}

/// CPU time of this process in nanoseconds.
pub(crate) fn own_cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds that this program's one thread was ready to run and another ran in its place.
pub(crate) fn own_wait_ns() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|f| f.parse().ok()).unwrap_or(0)
}

/// Allows as many descriptors as the system lets us have.
pub(crate) fn raise_open_files() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let max = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: max, maximum: max })
        .context("raising the limit of open files")
}

/// Binds this thread to one processor.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(BenchError::Usage(format!("--cpu {cpu}: no such processor")));
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).context(format!("binding to processor {cpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_counted_as_a_switch() {
        let pid = std::process::id();
        let before = Sample::take(pid).unwrap();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(before.until(&Sample::take(pid).unwrap()).switches >= 20);
    }

    #[test]
    fn busy_work_of_a_thread_is_counted_in_its_process() {
        let pid = std::process::id();
        let before = Sample::take(pid).unwrap();
        let cpu = own_cpu_ns();
        while own_cpu_ns() - cpu < 100_000_000 {}
        let used = before.until(&Sample::take(pid).unwrap());
        assert!(used.cpu_ns >= 80_000_000, "{used:?}");
        assert!(rss_kib(pid).unwrap() > 500);
        assert!(rss_peak_kib(pid).unwrap() > 500);
    }
}

//! One run's figures, for people and as a line of JSON.

use super::hist::Histogram;
use super::process::Usage;
use serde::{Deserialize, Serialize};

/// Calls that move this many bytes are compared by CPU time per GiB, smaller ones by CPU time per operation;
/// such replies are dropped in the kernel by the generator, not copied.
pub(crate) const BULK: u32 = 16 << 10;

/// Figures of one run. `cost` is what the tables compare.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    /// Name of the row in the tables; the operation unless `--row` says otherwise.
    pub(crate) row: String,
    /// Which server; `--label`.
    pub(crate) server: String,
    /// Operation.
    pub(crate) op: String,
    pub(crate) conns: usize,
    pub(crate) depth: usize,
    /// Bytes of a READ, WRITE, echo or READDIRPLUS reply; else 0.
    pub(crate) bytes: u32,
    /// Length of the measured part.
    pub(crate) seconds: f64,
    pub(crate) ops: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) gib_per_s: f64,
    /// The server's CPU time in `unit`.
    pub(crate) cost: f64,
    /// `us/op`, `CPU-s/GiB` or `us/entry`.
    pub(crate) unit: String,
    pub(crate) server_us_per_op: f64,
    /// The generator's own.
    pub(crate) client_us_per_op: f64,
    /// Part of the time that the generator wanted to run and could not: somebody else was on its processor.
    pub(crate) disturbed: f64,
    /// Processors the server kept busy.
    pub(crate) server_cores: f64,
    pub(crate) minor_faults_per_op: f64,
    /// Times that a thread of the server went to sleep.
    pub(crate) switches_per_op: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// Directory entries of READDIRPLUS, and how many of them had attributes and a handle.
    pub(crate) entries: u64,
    pub(crate) full_entries: u64,
    pub(crate) errors: u64,
    /// READs that brought less than asked for, within the file, and WRITEs that wrote less.
    pub(crate) short: u64,
    /// The server's resident set before the connections were opened, with them open and idle, and at the end.
    pub(crate) rss_before_kib: u64,
    pub(crate) rss_connected_kib: u64,
    pub(crate) rss_after_kib: u64,
    /// The most that was resident of the server since it started.
    pub(crate) rss_peak_kib: u64,
    /// What the page cache holds of `--resident` after the run.
    pub(crate) resident_kib: Option<u64>,
    /// Load average of the machine.
    pub(crate) load: f64,
    /// How the generator waited: `epoll` or `busy`.
    pub(crate) wait: String,
}

impl Row {
    /// Sets everything that follows from `ops` calls in `seconds`, `moved` bytes of payload, the server's `usage`, and
    /// the nanoseconds that the generator ran and waited for its processor. `bytes` and `entries` must be set.
    pub(crate) fn fill(
        &mut self,
        seconds: f64,
        ops: u64,
        moved: u64,
        usage: &Usage,
        own_ns: u64,
        wait_ns: u64,
    ) {
        let each = ops.max(1) as f64;
        let cpu_us = usage.cpu_ns as f64 / 1e3;
        let gib = moved as f64 / f64::from(1 << 30);
        let (cost, unit) = if self.entries > 0 {
            (cpu_us / self.entries as f64, "us/entry")
        } else if self.bytes >= BULK && gib > 0.0 {
            (cpu_us / 1e6 / gib, "CPU-s/GiB")
        } else {
            (cpu_us / each, "us/op")
        };
        self.seconds = seconds;
        self.ops = ops;
        self.ops_per_s = ops as f64 / seconds;
        self.gib_per_s = gib / seconds;
        self.cost = cost;
        self.unit = unit.into();
        self.server_us_per_op = cpu_us / each;
        self.client_us_per_op = own_ns as f64 / 1e3 / each;
        self.disturbed = wait_ns as f64 / 1e9 / seconds;
        self.server_cores = cpu_us / 1e6 / seconds;
        self.minor_faults_per_op = usage.minor_faults as f64 / each;
        self.switches_per_op = usage.switches as f64 / each;
        self.load = load_average();
    }

    /// Sets the latencies.
    pub(crate) fn quantiles(&mut self, hist: &Histogram) {
        self.p50_us = hist.quantile_us(0.5);
        self.p99_us = hist.quantile_us(0.99);
        self.p999_us = hist.quantile_us(0.999);
    }

    /// The line of JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The line for people.
    pub(crate) fn human(&self) -> String {
        let mut s = format!("{:<9} {:<22} c{} q{}", self.server, self.row, self.conns, self.depth);
        if self.gib_per_s > 0.0 {
            s += &format!("  {:.2} GiB/s", self.gib_per_s);
        }
        if self.ops_per_s > 0.0 {
            s += &format!("  {:.0} op/s", self.ops_per_s);
        }
        s += &format!("  {} {}", figure(self.cost), self.unit);
        if self.ops > 0 {
            s += &format!(
                "  (server {:.2} cores, {:.3} faults/op, {:.3} sleeps/op, client {:.2} us/op)  \
                 p50 {:.1} p99 {:.1} p99.9 {:.1} us  RSS {} KiB",
                self.server_cores,
                self.minor_faults_per_op,
                self.switches_per_op,
                self.client_us_per_op,
                self.p50_us,
                self.p99_us,
                self.p999_us,
                self.rss_after_kib
            );
        }
        if self.entries > 0 {
            s += &format!("  {} entries", self.entries);
            if self.full_entries < self.entries {
                s += &format!(", only {} with attributes and handle", self.full_entries);
            }
        }
        if self.disturbed > 0.05 {
            s += &format!("  DISTURBED {:.0} %", self.disturbed * 100.0);
        }
        if self.short > 0 {
            s += &format!("  {} SHORT", self.short);
        }
        if self.errors > 0 {
            s += &format!("  {} ERRORS", self.errors);
        }
        s
    }
}

/// Three significant digits.
pub(crate) fn figure(v: f64) -> String {
    let digits = if v <= 0.0 { 0 } else { (2 - v.log10().floor() as i32).clamp(0, 4) as usize };
    format!("{v:.digits$}")
}

/// The machine's load average over a minute.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|f| f.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(
            ["0.213", "2.14", "21.4", "214", "0"].map(String::from),
            [0.2131, 2.141, 21.41, 214.1, 0.0].map(figure)
        );
    }

    #[test]
    fn costs_are_per_call_per_gib_or_per_entry() {
        let usage = Usage { cpu_ns: 2_000_000_000, minor_faults: 50, switches: 25 };
        let fill = |bytes, entries, moved| {
            let mut row = Row { bytes, entries, ..Row::default() };
            row.fill(4.0, 100, moved, &usage, 1_000_000_000, 200_000_000);
            row
        };
        let row = fill(4096, 0, 100 * 4096);
        assert_eq!((row.cost, &*row.unit), (20_000.0, "us/op"));
        assert_eq!((row.minor_faults_per_op, row.switches_per_op), (0.5, 0.25));
        assert_eq!((row.ops_per_s, row.server_cores, row.disturbed), (25.0, 0.5, 0.05));
        let row = fill(1 << 20, 0, 4 << 30);
        assert_eq!((row.cost, &*row.unit, row.gib_per_s), (0.5, "CPU-s/GiB", 1.0));
        let row = fill(65536, 1000, 0);
        assert_eq!((row.cost, &*row.unit), (2000.0, "us/entry"));
    }

    #[test]
    fn lines_of_an_older_version_are_read() {
        let row: Row = serde_json::from_str(r#"{"row":"null c1q1","server":"ours","cost":2.5}"#).unwrap();
        assert_eq!((row.cost, row.p999_us), (2.5, 0.0));
    }

    #[test]
    fn json_survives_a_round_trip() {
        let row = Row { row: "getattr \"x\"".into(), cost: 1.25, ops: 7, ..Row::default() };
        let back: Row = serde_json::from_str(&row.json()).unwrap();
        assert_eq!((back.row, back.cost, back.ops), (row.row, row.cost, row.ops));
    }
}

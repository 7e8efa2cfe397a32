//! One run's figures, for people and as a line of JSON.

use serde::{Deserialize, Serialize};

/// Figures of one run. `cost` is what the tables compare.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Name of the row in the tables; the operation unless `--row` says otherwise.
    pub(crate) row: String,
    /// Which server; `--label`.
    pub(crate) server: String,
    /// Operation.
    pub(crate) op: String,
    pub(crate) conns: usize,
    pub(crate) depth: usize,
    /// Bytes of a READ, WRITE or READDIRPLUS reply; else 0.
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
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Directory entries of READDIRPLUS, and how many of them had attributes and a handle.
    pub(crate) entries: u64,
    pub(crate) full_entries: u64,
    pub(crate) errors: u64,
    /// READs that brought less than asked for, within the file.
    pub(crate) short: u64,
    /// The server's resident set before the connections were opened, with them open and idle, and at the end.
    pub(crate) rss_before_kib: u64,
    pub(crate) rss_connected_kib: u64,
    pub(crate) rss_after_kib: u64,
    /// Load average of the machine.
    pub(crate) load: f64,
    /// How the generator waited: `epoll` or `busy`.
    pub(crate) wait: String,
}

impl Row {
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
                "  (server {:.2} cores, {:.3} faults/op, client {:.2} us/op)  p50 {:.1} p99 {:.1} us  RSS {} KiB",
                self.server_cores,
                self.minor_faults_per_op,
                self.client_us_per_op,
                self.p50_us,
                self.p99_us,
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
            s += &format!("  {} SHORT READS", self.short);
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
    fn json_survives_a_round_trip() {
        let row = Row { row: "getattr \"x\"".into(), cost: 1.25, ops: 7, ..Row::default() };
        let back: Row = serde_json::from_str(&row.json()).unwrap();
        assert_eq!((back.row, back.cost, back.ops), (row.row, row.cost, row.ops));
    }
}

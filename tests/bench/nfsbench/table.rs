//! Tables of medians, in Markdown, and the same as JSON.

use crate::TableArgs;
use crate::error::{BenchError, Context, Result};
use crate::report::{Row, figure};
use crate::svg::{self, Group};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Column that all others stand beside, last.
const FLOOR: &str = "floor";

/// Prints the tables of the lines in a file.
pub(crate) fn run(args: &TableArgs) -> Result<()> {
    let mut rows = Vec::new();
    for path in &args.rows {
        rows.extend(read(path)?);
    }
    let results = Results::new(&rows, &args.subject, &args.ratio);
    print!("{}", results.markdown());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&results.json()).unwrap_or_default();
        fs::write(path, text + "\n").context(path.display().to_string())?;
    }
    if let Some(path) = &args.svg {
        fs::write(path, results.svg(&args.title)).context(path.display().to_string())?;
    }
    Ok(())
}

/// The runs in a file: lines as `load --json` prints them, or a whole document as `table --json` writes it.
fn read(path: &Path) -> Result<Vec<Row>> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).context(name.as_str())?;
    let wrong = |n: usize, e| BenchError::Usage(format!("{name}, line {n}: not of this program: {e}"));
    if let Ok(document) = serde_json::from_str::<Document>(&text) {
        let servers = document.rows.into_iter().flat_map(|r| r.servers);
        return Ok(servers.flat_map(|s| s.runs).collect());
    }
    let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    lines.map(|(n, line)| serde_json::from_str(line).map_err(|e| wrong(n + 1, e))).collect()
}

/// What is read of the document that [`Results::json`] makes.
#[derive(Deserialize)]
struct Document {
    rows: Vec<RowRuns>,
}

#[derive(Deserialize)]
struct RowRuns {
    servers: Vec<ServerRuns>,
}

#[derive(Deserialize)]
struct ServerRuns {
    runs: Vec<Row>,
}

/// Runs of one row against one server.
struct Cell<'a> {
    runs: Vec<&'a Row>,
    median: Row,
}

struct Results<'a> {
    subject: &'a str,
    /// Servers to be compared, instead of the subject with all others.
    pairs: Vec<(&'a str, &'a str)>,
    /// The subject first, the floor last.
    servers: Vec<&'a str>,
    /// Names, with a cell for each server.
    rows: Vec<(&'a str, Vec<Option<Cell<'a>>>)>,
}

impl<'a> Results<'a> {
    fn new(runs: &'a [Row], subject: &'a str, ratios: &'a [String]) -> Self {
        let mut servers: Vec<&str> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for r in runs {
            if !servers.contains(&&*r.server) {
                servers.push(&r.server);
            }
            if !names.contains(&&*r.row) {
                names.push(&r.row);
            }
        }
        servers.sort_by_key(|s| (*s != subject, *s == FLOOR));
        let cell = |name: &str, server: &str| {
            let runs: Vec<&Row> = runs.iter().filter(|r| r.row == name && r.server == server).collect();
            (!runs.is_empty()).then(|| Cell { median: median(&runs), runs })
        };
        let rows = names.iter().map(|n| (*n, servers.iter().map(|s| cell(n, s)).collect())).collect();
        let pairs = ratios.iter().filter_map(|r| r.split_once('/')).collect();
        Self { subject, pairs, servers, rows }
    }

    fn markdown(&self) -> String {
        format!("{}\n{}\n{}{}", self.costs(), self.rates(), self.memory(), self.warning())
    }

    /// Server CPU, with ratios.
    fn costs(&self) -> String {
        let has = |name: &str| self.servers.contains(&name);
        let mut head = vec!["operation".to_owned(), "unit".to_owned()];
        head.extend(self.servers.iter().map(|s| (*s).to_owned()));
        let mut pairs = self.pairs.clone();
        if pairs.is_empty() && has(self.subject) {
            let subject = self.subject;
            let peers = self.servers.iter().copied().filter(|s| *s != subject && *s != FLOOR);
            pairs.extend(has(FLOOR).then_some((subject, FLOOR)));
            pairs.extend(peers.map(|p| (p, subject)));
        }
        head.extend(pairs.iter().map(|(a, b)| format!("{a}/{b}")));
        head.push("spread".into());
        let mut table = Table::new(head);
        for (name, cells) in &self.rows {
            let cost = |server: &str| {
                let at = self.servers.iter().position(|s| *s == server)?;
                cells.get(at)?.as_ref().map(|c| c.median.cost)
            };
            let ratio = |a: &str, b: &str| match (cost(a), cost(b)) {
                (Some(a), Some(b)) if b > 0.0 => figure(a / b),
                _ => "-".into(),
            };
            let unit = cells.iter().flatten().next().map_or("", |c| &c.median.unit);
            let mut line = vec![(*name).to_owned(), unit.to_owned()];
            line.extend(self.servers.iter().map(|s| cost(s).map_or_else(|| "-".into(), figure)));
            line.extend(pairs.iter().map(|(a, b)| ratio(a, b)));
            let spread = cells.iter().flatten().map(Cell::spread).fold(0.0, f64::max);
            line.push(format!("{:.0} %", spread * 100.0));
            table.line(line);
        }
        format!("Server CPU, medians (spread: worst server's (max - min) / median)\n\n{}", table.markdown())
    }

    /// What the clients saw.
    fn rates(&self) -> String {
        let mut head = vec!["operation".to_owned()];
        for s in &self.servers {
            head.extend([
                s.to_string(),
                "p50 us".into(),
                "p99 us".into(),
                "p99.9 us".into(),
                "faults/op".into(),
                "cores".into(),
            ]);
        }
        head.push("client us/op".into());
        let mut table = Table::new(head);
        for (name, cells) in &self.rows {
            let mut line = vec![(*name).to_owned()];
            for cell in cells {
                match cell.as_ref().map(|c| &c.median).filter(|m| m.ops > 0) {
                    None => line.extend(std::iter::repeat_n("-".to_owned(), 6)),
                    Some(m) => line.extend([
                        if m.unit == "CPU-s/GiB" {
                            format!("{} GiB/s", figure(m.gib_per_s))
                        } else if m.unit == "us/entry" {
                            format!("{} k entries/s", figure(m.entries as f64 / m.seconds / 1e3))
                        } else {
                            format!("{} k/s", figure(m.ops_per_s / 1e3))
                        },
                        format!("{:.0}", m.p50_us),
                        format!("{:.0}", m.p99_us),
                        format!("{:.0}", m.p999_us),
                        format!("{:.3}", m.minor_faults_per_op),
                        format!("{:.2}", m.server_cores),
                    ]),
                }
            }
            let client = cells.iter().flatten().map(|c| c.median.client_us_per_op).filter(|c| *c > 0.0);
            line.push(client.reduce(f64::min).map_or_else(|| "-".into(), figure));
            table.line(line);
        }
        format!(
            "Rate and latency seen by the clients, minor faults and busy processors of the server\n\n{}",
            table.markdown()
        )
    }

    /// Resident set sizes.
    fn memory(&self) -> String {
        let mut table = Table::new(
            ["server", "RSS at start", "RSS at most, after a row", "per idle connection"].map(String::from),
        );
        for (i, server) in self.servers.iter().enumerate() {
            let cells =
                || self.rows.iter().filter_map(|(_, cells)| cells.get(i)?.as_ref()).map(|c| &c.median);
            let start = cells().map(|m| m.rss_before_kib).filter(|k| *k > 0).min();
            let Some(start) = start else { continue };
            let most = cells().map(|m| m.rss_after_kib).max().unwrap_or(0);
            // Later rows find the memory of earlier ones free, so the growth of the first counts.
            let grown = |m: &Row| m.rss_connected_kib.saturating_sub(m.rss_before_kib);
            let many = cells().filter(|m| m.conns >= 100).max_by_key(|m| (m.conns, grown(m)));
            let each = many.map_or_else(
                || "-".into(),
                |m| {
                    let grown = grown(m);
                    format!("{} KiB ({} connections)", figure(grown as f64 / m.conns as f64), m.conns)
                },
            );
            let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
            table.line([(*server).to_owned(), mib(start), mib(most), each]);
        }
        format!("Memory of the servers\n\n{}", table.markdown())
    }

    /// The costs as bars.
    fn svg(&self, title: &str) -> String {
        let groups: Vec<Group<'_>> = self
            .rows
            .iter()
            .map(|(name, cells)| Group {
                name,
                unit: cells.iter().flatten().next().map_or("", |c| &c.median.unit),
                bars: cells
                    .iter()
                    .enumerate()
                    .filter_map(|(i, c)| c.as_ref().map(|c| (i, c.median.cost)))
                    .collect(),
            })
            .collect();
        svg::chart(title, &self.servers, FLOOR, &groups)
    }

    /// What makes the figures doubtful.
    fn warning(&self) -> String {
        let runs = || self.rows.iter().flat_map(|(_, cells)| cells.iter().flatten()).flat_map(|c| &c.runs);
        let disturbed = runs().filter(|r| r.disturbed > 0.05).count();
        let short: u64 = runs().map(|r| r.short).sum();
        let partial = runs().any(|r| r.full_entries < r.entries);
        let mut text = String::new();
        if disturbed > 0 {
            let all = runs().count();
            text += &format!(
                "\nWARNING: in {disturbed} of {all} runs other programs took more than 5 % of the generator's time; \
                 measure on a quiet machine.\n"
            );
        }
        if short > 0 {
            text += &format!("\nWARNING: {short} READs brought less than was asked for.\n");
        }
        if partial {
            text += "\nWARNING: READDIRPLUS entries without attributes or handle were counted.\n";
        }
        text
    }

    fn json(&self) -> Value {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(name, cells)| {
                let cells = cells.iter().flatten();
                let medians: Vec<Value> = cells
                    .map(|c| json!({ "server": c.median.server, "median": c.median, "runs": c.runs }))
                    .collect();
                json!({ "row": name, "servers": medians })
            })
            .collect();
        json!({
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "cpu": model.trim_start_matches([' ', '\t', ':']),
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "subject": self.subject,
            "rows": rows,
        })
    }
}

impl Cell<'_> {
    fn spread(&self) -> f64 {
        let costs = || self.runs.iter().map(|r| r.cost);
        let (low, high) = (costs().fold(f64::INFINITY, f64::min), costs().fold(0.0, f64::max));
        if self.median.cost > 0.0 { (high - low) / self.median.cost } else { 0.0 }
    }
}

/// The median of each figure by itself; of an even number the lower one, so that counts stay counts.
fn median(runs: &[&Row]) -> Row {
    let values: Vec<Value> = runs.iter().filter_map(|r| serde_json::to_value(r).ok()).collect();
    let mut result = values.first().cloned().unwrap_or_default();
    if let Value::Object(fields) = &mut result {
        for (key, field) in fields.iter_mut().filter(|(_, f)| f.is_number()) {
            let mut all: Vec<&Value> = values.iter().filter_map(|v| v.get(key)).collect();
            all.sort_by(|a, b| a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)));
            if let Some(middle) = all.get((all.len().max(1) - 1) / 2) {
                *field = (*middle).clone();
            }
        }
    }
    serde_json::from_value(result).unwrap_or_default()
}

/// A Markdown table that is also legible as it is.
struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    fn new(head: impl IntoIterator<Item = String>) -> Self {
        Self { lines: vec![head.into_iter().collect()] }
    }

    fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }

    fn markdown(&self) -> String {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |line: &[String], c: usize| line.get(c).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|c| self.lines.iter().map(|l| cell(l, c).chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for (i, line) in self.lines.iter().enumerate() {
            for (c, w) in widths.iter().copied().enumerate() {
                let cell = cell(line, c);
                text += &if c == 0 { format!("| {cell:<w$} ") } else { format!("| {cell:>w$} ") };
            }
            text += "|\n";
            if i == 0 {
                for (c, w) in widths.iter().enumerate() {
                    text += &if c == 0 {
                        format!("|{}", "-".repeat(w + 2))
                    } else {
                        format!("|{}:", "-".repeat(w + 1))
                    };
                }
                text += "|\n";
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(row: &str, server: &str, cost: f64) -> Row {
        let (row, server, unit) = (row.into(), server.into(), "us/op".into());
        Row { row, server, cost, unit, ops: 10, ..Row::default() }
    }

    #[test]
    fn medians_ratios_and_the_order_of_columns() {
        let runs: Vec<Row> = [(3.0, 30.0, 1.0), (2.0, 20.0, 1.0), (9.0, 25.0, 1.5)]
            .iter()
            .flat_map(|(o, g, f)| {
                [run_of("null", "floor", *f), run_of("null", "ganesha", *g), run_of("null", "ours", *o)]
            })
            .collect();
        let text = Results::new(&runs, "ours", &[]).costs();
        let cells: Vec<Vec<&str>> = text
            .lines()
            .filter(|l| l.starts_with('|'))
            .map(|l| l.split('|').map(str::trim).filter(|c| !c.is_empty()).collect())
            .collect();
        assert_eq!(
            cells[0],
            ["operation", "unit", "ours", "ganesha", "floor", "ours/floor", "ganesha/ours", "spread"]
        );
        assert_eq!(cells[2], ["null", "us/op", "3.00", "25.0", "1.00", "3.00", "8.33", "233 %"]);
    }

    #[test]
    fn the_document_is_read_back_with_all_runs() {
        let dir = tempfile::tempdir().unwrap();
        let runs = [run_of("a", "ours", 1.0), run_of("a", "ours", 3.0), run_of("b", "floor", 2.0)];
        let document = dir.path().join("document");
        fs::write(&document, Results::new(&runs, "ours", &[]).json().to_string()).unwrap();
        let lines = dir.path().join("lines");
        fs::write(&lines, runs.iter().map(|r| r.json() + "\n").collect::<String>()).unwrap();
        for path in [&document, &lines] {
            let costs: Vec<f64> = read(path).unwrap().iter().map(|r| r.cost).collect();
            assert_eq!(costs, [1.0, 3.0, 2.0]);
        }
        fs::write(&lines, "{}\nno\n").unwrap();
        assert!(read(&lines).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn a_missing_server_leaves_a_dash() {
        let runs = [run_of("a", "ours", 1.0), run_of("b", "floor", 2.0)];
        let text = Results::new(&runs, "ours", &[]).markdown();
        assert!(text.lines().any(|l| l.starts_with("| b") && l.contains("- |")));
    }
}

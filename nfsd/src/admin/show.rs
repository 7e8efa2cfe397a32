//! Tables for people and for programs.

use super::tables::add;
use crate::proto::admin::{stat_histogram, stat_table, stat_tables, stat_value};
use std::fmt::Write;
use sunrpc::stats::{BUCKETS, Histogram};

/// An answer, with sums.
#[derive(Debug, Clone)]
pub(super) struct Report(Vec<Table>);

#[derive(Debug, Clone)]
struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    name: String,
    current: bool,
    values: Vec<stat_value>,
}

impl Report {
    pub(super) fn new(answer: &stat_tables) -> Report {
        Report(answer.tables.iter().map(Table::new).collect())
    }

    /// What was counted since `last`; what there is now stays what it is.
    pub(super) fn since(&self, last: &Report) -> Report {
        let mut all = self.clone();
        for t in &mut all.0 {
            let Some(old) = last.0.iter().find(|o| o.name == t.name && o.columns == t.columns) else {
                continue;
            };
            for r in &mut t.rows {
                if let Some(o) = old.rows.iter().find(|o| o.name == r.name) {
                    r.values.iter_mut().zip(&o.values).for_each(|(a, b)| subtract(a, b));
                }
            }
        }
        all
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(Table::text).collect::<Vec<_>>().join("\n")
    }

    /// One line: an object with a member for each table.
    pub(super) fn json(&self) -> String {
        let tables = self.0.iter().map(|t| format!("{}:{}", quote(&t.name), t.json()));
        format!("{{{}}}", tables.collect::<Vec<_>>().join(","))
    }
}

fn subtract(a: &mut stat_value, b: &stat_value) {
    use stat_value::*;
    match (a, b) {
        (STAT_COUNT(a), STAT_COUNT(b)) => *a = a.saturating_sub(*b),
        (STAT_HISTOGRAM(a), STAT_HISTOGRAM(b)) => {
            a.sum = a.sum.saturating_sub(b.sum);
            a.buckets.iter_mut().zip(&b.buckets).for_each(|(a, b)| *a = a.saturating_sub(*b));
        }
        _ => {}
    }
}

fn is_zero(v: &stat_value) -> bool {
    match v {
        stat_value::STAT_COUNT(n) | stat_value::STAT_GAUGE(n) => *n == 0,
        stat_value::STAT_HISTOGRAM(h) => count(h) == 0,
    }
}

fn count(h: &stat_histogram) -> u64 {
    h.buckets.iter().fold(0, |n, b| n.saturating_add(*b))
}

impl Table {
    fn new(t: &stat_table) -> Table {
        Table {
            name: t.name.0.to_string(),
            columns: t.columns.iter().map(|c| c.0.to_string()).collect(),
            rows: t
                .rows
                .iter()
                .map(|r| Row { name: r.name.0.to_string(), current: r.current, values: r.values.clone() })
                .collect(),
        }
    }

    /// What the server has once needs no sum.
    fn single(&self) -> bool {
        self.rows.len() == 1 && self.rows.iter().all(|r| r.name == "server")
    }

    fn total(&self) -> Row {
        let mut total = Row { name: "total".into(), current: true, values: Vec::new() };
        for r in &self.rows {
            total.current &= r.current;
            if total.values.is_empty() {
                total.values.clone_from(&r.values);
            } else {
                total.values.iter_mut().zip(&r.values).for_each(|(a, b)| add(a, b));
            }
        }
        total
    }

    fn number(&self, row: &Row, column: &str) -> Option<u64> {
        let at = self.columns.iter().position(|c| c == column)?;
        match row.values.get(at)? {
            stat_value::STAT_COUNT(n) | stat_value::STAT_GAUGE(n) => Some(*n),
            stat_value::STAT_HISTOGRAM(_) => None,
        }
    }

    /// How well pages are used again: close to 0 is good.
    fn fresh_ratio(&self) -> Option<f64> {
        let total = self.total();
        let (fresh, payload) = (self.number(&total, "fresh")?, self.number(&total, "payload")?);
        (payload > 0).then(|| fresh as f64 / payload as f64)
    }

    fn text(&self) -> String {
        let total = self.total();
        let mut grid: Vec<Vec<String>> = Vec::new();
        if self.name == "calls" {
            // Many rows, few columns: as it is, without what nobody called.
            let used = self.rows.iter().filter(|r| !r.values.iter().all(is_zero));
            grid.push(std::iter::once(self.name.clone()).chain(self.columns.iter().cloned()).collect());
            for r in std::iter::once(&total).chain(used) {
                grid.push(std::iter::once(r.name.clone()).chain(r.values.iter().map(cell)).collect());
            }
        } else {
            // The other way round. Threads that did nothing would only push the rest off the screen.
            let busy = self.rows.iter().filter(|r| !r.current || !r.values.iter().all(is_zero));
            let shown: Vec<&Row> = match self.single() {
                true => vec![&total],
                false => std::iter::once(&total).chain(busy).collect(),
            };
            let title = |r: &&Row| match (self.single(), r.current || r.name == "total") {
                (true, _) => String::new(),
                (_, true) => r.name.clone(),
                (_, false) => format!("{}*", r.name),
            };
            grid.push(std::iter::once(self.name.clone()).chain(shown.iter().map(title)).collect());
            for (i, c) in self.columns.iter().enumerate() {
                let cells = shown.iter().map(|r| r.values.get(i).map(cell).unwrap_or_default());
                grid.push(std::iter::once(c.clone()).chain(cells).collect());
            }
        }
        let mut text = align(&grid);
        if let Some(r) = self.fresh_ratio() {
            let _ = writeln!(text, "fresh pages per payload page: {r:.3}");
        }
        if !total.current {
            text.push_str(
                "* did not answer within a second (a call that waits holds it); these are its last numbers\n",
            );
        }
        text
    }

    fn json(&self) -> String {
        let object = |r: &Row| {
            let pairs = self.columns.iter().zip(&r.values).map(|(c, v)| format!("{}:{}", quote(c), json(v)));
            pairs.collect::<Vec<_>>()
        };
        if let (true, Some(row)) = (self.single(), self.rows.first()) {
            return format!("{{{}}}", object(row).join(","));
        }
        let rows = self.rows.iter().map(|r| {
            let named = [format!("\"name\":{}", quote(&r.name)), format!("\"current\":{}", r.current)];
            format!("{{{}}}", named.into_iter().chain(object(r)).collect::<Vec<_>>().join(","))
        });
        let rows = rows.collect::<Vec<_>>().join(",");
        format!("{{\"total\":{{{}}},\"rows\":[{rows}]}}", object(&self.total()).join(","))
    }
}

/// Columns of equal width: the first to the left, numbers to the right.
fn align(grid: &[Vec<String>]) -> String {
    let columns = grid.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| grid.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for r in grid {
        let cells = r.iter().zip(&widths).enumerate();
        let line = cells.fold(String::new(), |mut line, (i, (c, w))| {
            let _ = if i == 0 { write!(line, "{c:<w$}") } else { write!(line, "  {c:>w$}") };
            line
        });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cell(v: &stat_value) -> String {
    match v {
        stat_value::STAT_COUNT(n) | stat_value::STAT_GAUGE(n) => n.to_string(),
        stat_value::STAT_HISTOGRAM(h) => match count(h) {
            0 => "0".into(),
            n => format!("{n} (half {}, 99% {})", below(h, n.div_ceil(2)), below(h, n - n / 100)),
        },
    }
}

/// Below what the first `n` values of a histogram are.
fn below(h: &stat_histogram, n: u64) -> String {
    let mut seen = 0u64;
    let at = h.buckets.iter().position(|b| {
        seen = seen.saturating_add(*b);
        seen >= n
    });
    match at.and_then(Histogram::bound) {
        Some(end) => format!("< {end}"),
        None => format!(">= {}", Histogram::bound(BUCKETS - 2).unwrap_or(0)),
    }
}

fn json(v: &stat_value) -> String {
    let h = match v {
        stat_value::STAT_COUNT(n) | stat_value::STAT_GAUGE(n) => return n.to_string(),
        stat_value::STAT_HISTOGRAM(h) => h,
    };
    let used = h.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
    let buckets = used.map(|(i, n)| {
        let end = Histogram::bound(i).map_or("null".into(), |b| b.to_string());
        format!("{{\"below\":{end},\"count\":{n}}}")
    });
    let buckets = buckets.collect::<Vec<_>>().join(",");
    format!("{{\"count\":{},\"sum\":{},\"buckets\":[{buckets}]}}", count(h), h.sum)
}

/// A JSON string (RFC 8259 section 7).
fn quote(s: &str) -> String {
    let mut q = String::from("\"");
    for c in s.chars() {
        let _ = match c {
            '"' | '\\' => write!(q, "\\{c}"),
            c if u32::from(c) < 0x20 => write!(q, "\\u{:04x}", u32::from(c)),
            c => write!(q, "{c}"),
        };
    }
    q.push('"');
    q
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::admin::{stat_label, stat_row};

    fn label(s: &str) -> stat_label {
        stat_label(s.into())
    }

    fn pages(taken: [u64; 2], late: bool) -> Report {
        let row = |name: &str, n: u64, current: bool| stat_row {
            name: label(name),
            current,
            values: vec![
                stat_value::STAT_COUNT(n),
                stat_value::STAT_GAUGE(3),
                stat_value::STAT_HISTOGRAM(stat_histogram { sum: 9 * n, buckets: vec![0, 0, 0, 0, n] }),
            ],
        };
        let columns = ["taken", "held", "wait"].map(label).to_vec();
        let rows = vec![row("rpc-0", taken[0], true), row("rpc-1", taken[1], !late)];
        Report::new(&stat_tables { tables: vec![stat_table { name: label("pages"), columns, rows }] })
    }

    #[test]
    fn a_table_for_people() {
        let text = pages([100, 20], true).text();
        let want = "\
pages                            total                      rpc-0                    rpc-1*
taken                              120                        100                        20
held                                 6                          3                         3
wait   120 (half < 16, 99% < 16)  100 (half < 16, 99% < 16)  20 (half < 16, 99% < 16)
";
        let squeeze = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeeze(&text).starts_with(&squeeze(want)), "{text}");
        assert!(text.contains("did not answer"));
        let lines: Vec<_> = text.lines().take(4).map(str::len).collect();
        assert!(lines.windows(2).all(|w| w[0].abs_diff(w[1]) <= 1), "aligned: {text}");
        assert!(!pages([1, 2], false).text().contains('*'));
    }

    #[test]
    fn an_interval_shows_what_happened_in_it() {
        let text = pages([150, 20], false).since(&pages([100, 20], false)).text();
        let words: Vec<Vec<_>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["taken", "50", "50", "0"], "{text}");
        assert_eq!(words[2], ["held", "6", "3", "3"], "{text}");
    }

    #[test]
    fn a_line_for_programs() {
        let json = pages([1, 2], false).json();
        let total = "{\"pages\":{\"total\":{\"taken\":3,\"held\":6,\"wait\":{\"count\":3,\"sum\":27,\"buckets\":[{\"below\":16,\"count\":3}]}},\"rows\":[{\"name\":\"rpc-0\",\"current\":true,\"taken\":1,";
        assert!(json.starts_with(total), "{json}");
        assert_eq!(quote("a\"\\\n"), "\"a\\\"\\\\\\u000a\"");
    }

    #[test]
    fn ends_of_histograms() {
        let mut buckets = vec![0; BUCKETS];
        buckets[BUCKETS - 1] = 1;
        let h = stat_value::STAT_HISTOGRAM(stat_histogram { sum: 0, buckets });
        assert!(cell(&h).contains(">= 1073741824"), "{}", cell(&h));
        assert!(json(&h).contains("{\"below\":null,\"count\":1}"));
    }
}

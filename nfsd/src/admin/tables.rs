//! Counters as tables.

use crate::export::ExportTable;
use crate::proto::admin::*;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sunrpc::stats::{Counters, Histogram, Value};
use sunrpc::svc::ProcStats;
use sunrpc_transports::{Group, ServerStats, ThreadStats};

/// Threads with a row of their own. More are summed in one more row, so that an answer keeps its bound on any machine.
const THREADS: usize = 127;

/// The tables of a section.
pub(super) fn tables(section: stat_section, s: &ServerStats, exports: &ExportTable) -> stat_tables {
    let all = section == stat_section::STAT_ALL;
    let mut tables = Vec::new();
    if all || section == stat_section::STAT_CALLS {
        tables.push(calls(&s.threads));
    }
    if all || section == stat_section::STAT_PAGES {
        tables.push(threads("pages", Group::Pages, &s.threads));
        tables.push(single("depot", &s.depot, &[]));
    }
    if all || section == stat_section::STAT_DRC {
        tables.push(single("drc", &s.drc, &[("bytes", s.drc_bytes)]));
    }
    if all || section == stat_section::STAT_THREADS {
        tables.push(threads("threads", Group::Work, &s.threads));
    }
    if all || section == stat_section::STAT_IO {
        tables.push(io(exports));
    }
    stat_tables { tables }
}

fn label(s: &str) -> stat_label {
    // Names of counters and procedures are short; one that is not is cut rather than lost with its table.
    stat_label(s.bytes().take(ADMIN_LABEL as usize).collect::<Vec<_>>().as_slice().into())
}

fn histogram(h: &Histogram) -> stat_histogram {
    let used = h.buckets().iter().rposition(|n| *n > 0).map_or(0, |i| i + 1);
    stat_histogram { sum: h.sum(), buckets: h.buckets().iter().copied().take(used).collect() }
}

/// Names and values of some counters.
fn list(prefix: &str, c: &dyn Counters, columns: &mut Vec<stat_label>, values: &mut Vec<stat_value>) {
    c.each(&mut |name, v| {
        columns.push(label(&format!("{prefix}{name}")));
        values.push(match v {
            Value::Count(n) => stat_value::STAT_COUNT(n),
            Value::Gauge(n) => stat_value::STAT_GAUGE(n),
            Value::Histogram(h) => stat_value::STAT_HISTOGRAM(histogram(h)),
        });
    });
}

/// A table of one row, for what the whole server has once.
fn single(name: &str, c: &dyn Counters, gauges: &[(&str, u64)]) -> stat_table {
    let (mut columns, mut values) = (Vec::new(), Vec::new());
    list("", c, &mut columns, &mut values);
    for (name, n) in gauges {
        columns.push(label(name));
        values.push(stat_value::STAT_GAUGE(*n));
    }
    let row = stat_row { name: label("server"), current: true, values };
    stat_table { name: label(name), columns, rows: vec![row] }
}

/// A row for each export whose file system counts. What another one counts is 0.
fn io(exports: &ExportTable) -> stat_table {
    let mut table = stat_table { name: label("io"), columns: Vec::new(), rows: Vec::new() };
    for e in exports.iter().take(ADMIN_ROWS as usize) {
        let Some(counters) = e.backend.counters() else { continue };
        let (mut columns, mut counted) = (Vec::new(), Vec::new());
        list("", &*counters, &mut columns, &mut counted);
        let mut values = vec![stat_value::STAT_COUNT(0); table.columns.len()];
        for (column, value) in columns.into_iter().zip(counted).take(ADMIN_COLUMNS as usize) {
            match table.columns.iter().position(|c| *c == column) {
                Some(at) => values.get_mut(at).into_iter().for_each(|v| v.clone_from(&value)),
                None if table.columns.len() < ADMIN_COLUMNS as usize => {
                    table.columns.push(column);
                    values.push(value);
                }
                None => {}
            }
        }
        table.rows.push(stat_row { name: path(&e.path), current: true, values });
    }
    let columns = table.columns.len();
    table.rows.iter_mut().for_each(|r| r.values.resize(columns, stat_value::STAT_COUNT(0)));
    table
}

/// The end of a long path tells more than its beginning.
fn path(p: &Path) -> stat_label {
    let bytes = p.as_os_str().as_bytes();
    match bytes.len().checked_sub(ADMIN_LABEL as usize) {
        None | Some(0) => stat_label(bytes.into()),
        Some(over) => {
            stat_label([b"...", bytes.get(over + 3..).unwrap_or_default()].concat().as_slice().into())
        }
    }
}

/// A row for each thread.
fn threads(name: &str, group: Group, all: &[ThreadStats]) -> stat_table {
    let mut table = stat_table { name: label(name), columns: Vec::new(), rows: Vec::new() };
    let mut rest: Option<stat_row> = None;
    for (i, t) in all.iter().enumerate() {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for (_, prefix, c) in t.groups().into_iter().filter(|(g, ..)| *g == group) {
            list(prefix, c, &mut columns, &mut values);
        }
        table.columns = columns;
        let row = stat_row { name: label(&t.name), current: t.current, values };
        match &mut rest {
            _ if i < THREADS => table.rows.push(row),
            None => rest = Some(stat_row { name: label("others"), ..row }),
            Some(sum) => {
                sum.current &= row.current;
                sum.values.iter_mut().zip(&row.values).for_each(|(a, b)| add(a, b));
            }
        }
    }
    table.rows.extend(rest);
    table
}

/// Adds up values of one column.
pub(super) fn add(a: &mut stat_value, b: &stat_value) {
    use stat_value::*;
    match (a, b) {
        (STAT_COUNT(a), STAT_COUNT(b)) | (STAT_GAUGE(a), STAT_GAUGE(b)) => *a = a.saturating_add(*b),
        (STAT_HISTOGRAM(a), STAT_HISTOGRAM(b)) => {
            a.sum = a.sum.saturating_add(b.sum);
            a.buckets.resize(a.buckets.len().max(b.buckets.len()), 0);
            a.buckets.iter_mut().zip(&b.buckets).for_each(|(a, b)| *a = a.saturating_add(*b));
        }
        // A column has one kind; a peer that says otherwise gets what it had.
        _ => {}
    }
}

/// A row for each procedure, all threads together.
fn calls(threads: &[ThreadStats]) -> stat_table {
    let mut sums: Vec<(String, ProcStats)> = Vec::new();
    for t in threads {
        for (i, p) in t.procedures.iter().enumerate() {
            match sums.get_mut(i) {
                // The order is the same on every thread.
                Some((_, sum)) => sum.add(&p.stats),
                None => sums.push((format!("{} v{} {}", p.program, p.vers, p.procedure), p.stats)),
            }
        }
    }
    let current = threads.iter().all(|t| t.current);
    let mut table = stat_table { name: label("calls"), columns: Vec::new(), rows: Vec::new() };
    for (name, sum) in sums.iter().take(ADMIN_ROWS as usize) {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        list("", sum, &mut columns, &mut values);
        table.columns = columns;
        table.rows.push(stat_row { name: label(name), current, values });
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunrpc::xdr::to_vec;

    #[test]
    fn the_answer_of_a_machine_with_many_threads_fits() {
        let mut s = ServerStats::default();
        s.threads.resize_with(3072, ThreadStats::default);
        for (i, t) in s.threads.iter_mut().enumerate() {
            t.name = format!("rpc-help-{i}");
            t.current = i != 2000;
            t.pool.taken = 1;
            t.send.gate_wait_us.record(u64::MAX);
        }
        let all = tables(stat_section::STAT_ALL, &s, &ExportTable::default());
        let pages = &all.tables[1];
        assert_eq!((pages.rows.len(), pages.name.0.as_bytes()), (128, &b"pages"[..]));
        let others = &pages.rows[127];
        assert!(!others.current && pages.rows.iter().filter(|r| !r.current).count() == 1);
        assert!(others.values.contains(&stat_value::STAT_COUNT(3072 - 127)));
        let waits = others.values.iter().find_map(|v| match v {
            stat_value::STAT_HISTOGRAM(h) => Some(h),
            _ => None,
        });
        assert_eq!(waits.map(|h| (h.buckets.len(), h.buckets[31])), Some((32, 3072 - 127)));
        assert!(to_vec(&all, 1 << 20).is_ok());
    }
}

//! The table of bulk data: each row a way of doing it, not a server.

use crate::report::{Row, figure};
use crate::table::{Results, Table};

/// What each cell came to, in the order in which they were first measured.
pub(crate) fn markdown(results: &Results<'_>) -> String {
    let head =
        ["load", "modes", "GiB/s", "server CPU-s/GiB", "server RSS peak, MiB", "cached after, MiB", "spread"];
    let mut table = Table::new(head.map(String::from));
    for (name, cells) in &results.rows {
        for cell in cells.iter().flatten() {
            let m = &cell.median;
            table.line([
                (*name).to_owned(),
                m.server.clone(),
                figure(m.gib_per_s),
                figure(m.cost),
                format!("{:.1}", m.rss_peak_kib as f64 / 1024.0),
                m.resident_kib.map_or_else(|| "-".into(), |k| format!("{:.0}", k as f64 / 1024.0)),
                format!("{:.0} %", spread(&cell.runs) * 100.0),
            ]);
        }
    }
    format!("Medians (spread: (max - min) / median of the GiB/s)\n\n{}", table.markdown())
}

fn spread(runs: &[&Row]) -> f64 {
    let mut rates: Vec<f64> = runs.iter().map(|r| r.gib_per_s).collect();
    rates.sort_by(f64::total_cmp);
    match (rates.first(), rates.get(rates.len() / 2), rates.last()) {
        (Some(low), Some(middle), Some(high)) if *middle > 0.0 => (high - low) / middle,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_way() {
        let run = |server: &str, rate: f64| Row {
            row: "read".into(),
            server: server.into(),
            gib_per_s: rate,
            cost: 0.25,
            rss_peak_kib: 10 << 10,
            resident_kib: (server == "direct").then_some(3 << 10),
            ..Row::default()
        };
        let runs = [run("buffered", 1.0), run("buffered", 2.0), run("buffered", 1.25), run("direct", 2.0)];
        let text = markdown(&Results::new(&runs, "ours", &[]));
        let cells: Vec<Vec<&str>> = text
            .lines()
            .filter(|l| l.starts_with("| read"))
            .map(|l| l.split('|').map(str::trim).filter(|c| !c.is_empty()).collect())
            .collect();
        assert_eq!(cells[0], ["read", "buffered", "1.25", "0.250", "10.0", "-", "80 %"]);
        assert_eq!(cells[1], ["read", "direct", "2.00", "0.250", "10.0", "3", "0 %"]);
    }
}

//! Bar charts of the medians as SVG: for each row a bar for each server, as long as its cost is high.

use crate::report::figure;
use std::fmt::Write;

/// Width of the picture; lengths are in pixels.
const WIDTH: f64 = 860.0;
/// Where bars begin, to the right of the names.
const LEFT: f64 = 290.0;
/// The longest bar; figures stand to its right.
const LONGEST: f64 = 360.0;
const BAR: f64 = 15.0;
const GAP: f64 = 10.0;
/// Room for title and note.
const HEAD: f64 = 62.0;
/// Fills in the order of the servers: readable in grey and by most people with colour blindness.
const FILLS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// The floor's.
const GREY: &str = "#9a9a9a";

/// A row of the chart.
pub(crate) struct Group<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Unit of the costs.
    pub(crate) unit: &'a str,
    /// Cost of each server that has one, with its place among the servers.
    pub(crate) bars: Vec<(usize, f64)>,
}

/// The whole chart. Bars of different rows are not to the same scale: each row's highest cost has the longest bar.
/// Ratios are those to the first server.
pub(crate) fn chart(title: &str, servers: &[&str], floor: &str, groups: &[Group<'_>]) -> String {
    let bars: usize = groups.iter().map(|g| g.bars.len()).sum();
    let height = HEAD + bars as f64 * BAR + groups.len() as f64 * GAP + 8.0;
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>",
        title = escaped(title)
    );
    text(&mut svg, 12.0, 24.0, "start", " font-size=\"16\" font-weight=\"bold\"", title);
    let subject = servers.first().copied().unwrap_or_default();
    let note =
        format!("CPU time of the server, less is better; each row to its own scale; ratios are to {subject}");
    text(&mut svg, 12.0, 44.0, "start", " fill=\"#555555\"", &note);
    let mut y = HEAD;
    for group in groups {
        let most = group.bars.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
        let base = group.bars.iter().find(|(at, _)| *at == 0).map(|(_, cost)| *cost).filter(|c| *c > 0.0);
        text(&mut svg, 12.0, y + 12.0, "start", "", group.name);
        for (at, cost) in &group.bars {
            let server = servers.get(*at).copied().unwrap_or_default();
            let fill =
                if server == floor { GREY } else { FILLS.get(at % FILLS.len()).copied().unwrap_or(GREY) };
            let length = if most > 0.0 { (cost / most * LONGEST).max(1.0) } else { 1.0 };
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{fill}\"/>",
                y + 1.0,
                BAR - 2.0
            );
            text(&mut svg, LEFT - 8.0, y + 12.0, "end", "", server);
            let ratio = match base {
                Some(base) if *at != 0 => format!(" ({}x)", figure(cost / base)),
                _ => String::new(),
            };
            let label = format!("{} {}{ratio}", figure(*cost), group.unit);
            text(&mut svg, LEFT + length + 6.0, y + 12.0, "start", "", &label);
            y += BAR;
        }
        y += GAP;
    }
    svg + "</svg>\n"
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, more: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{}</text>",
        escaped(words)
    );
}

/// Text as XML may hold it.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut s, c| {
        match c {
            '&' => s += "&amp;",
            '<' => s += "&lt;",
            '>' => s += "&gt;",
            '"' => s += "&quot;",
            c if c.is_control() => s.push(' '),
            c => s.push(c),
        }
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks the tags; panics where they are not well-formed. Returns the names of all elements.
    fn elements(svg: &str) -> Vec<String> {
        let (mut open, mut seen): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut rest = svg.trim_end();
        while let Some((before, tag)) = rest.split_once('<') {
            assert!(!before.contains('>'), "a bare > in {before:?}");
            assert!(!open.is_empty() || before.is_empty(), "text outside: {before:?}");
            for entity in before.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|e| entity.starts_with(e)), "&{entity}");
            }
            let (tag, after) = tag.split_once('>').expect("the tag ends");
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
                continue;
            }
            let (tag, alone) = tag.strip_suffix('/').map_or((tag, false), |t| (t, true));
            let name = tag.split(' ').next().unwrap().to_owned();
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes of {tag}");
            let outside: String = tag.split('"').step_by(2).collect();
            assert_eq!(outside.matches('=').count(), tag.matches('"').count() / 2, "attributes of {tag}");
            seen.push(name.clone());
            if !alone {
                open.push(name);
            }
        }
        assert!(open.is_empty() && rest.is_empty(), "{open:?} stay open, {rest:?} is left");
        seen
    }

    #[test]
    fn a_chart_is_well_formed_whatever_the_names_are() {
        let groups = [
            Group { name: "null <1> & \"2\"", unit: "us/op", bars: vec![(0, 0.5), (1, 36.0), (2, 0.25)] },
            Group { name: "none", unit: "us/op", bars: vec![] },
            Group { name: "zero", unit: "CPU-s/GiB", bars: vec![(0, 0.0), (1, 0.0)] },
        ];
        let svg = chart("a > b\n", &["ours", "p&q", "floor"], "floor", &groups);
        let seen = elements(&svg);
        let count = |name: &str| seen.iter().filter(|s| *s == name).count();
        // The background, and a bar for each cost.
        assert_eq!((count("svg"), count("rect"), count("text")), (1, 6, 2 + 3 + 5 * 2));
        assert!(svg.contains(">36.0 us/op (72.0x)<") && svg.contains(">0.250 us/op (0.500x)<"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    #[should_panic(expected = "Some")]
    fn the_check_sees_a_tag_left_open() {
        elements("<svg><text></svg>");
    }

    #[test]
    fn bars_are_as_long_as_the_costs_say() {
        let groups = [Group { name: "x", unit: "us/op", bars: vec![(0, 1.0), (1, 4.0)] }];
        let svg = chart("t", &["a", "b"], "floor", &groups);
        assert!(svg.contains("width=\"90.0\"") && svg.contains("width=\"360.0\""), "{svg}");
    }
}

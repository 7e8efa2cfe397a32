//! Source text, positions in it, and diagnostics that point into it.

use std::fmt::Write as _;
use std::path::Path;

/// A range of bytes of the source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Span { start, end }
    }

    /// From the start of `self` to the end of `other`.
    pub(crate) fn to(self, other: Span) -> Self {
        Span { start: self.start, end: other.end.max(self.start) }
    }
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// Nothing is emitted.
    Error,
    /// The output is usable; something was ignored or renamed.
    Warning,
}

/// One finding, with the place it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// File the place is in; `#line` markers are honoured.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The source line and the marker below it.
    snippet: String,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}:{}:{}: {kind}: {}\n{}", self.file, self.line, self.column, self.message, self.snippet)?;
        if let Some(help) = &self.help {
            write!(f, "\n      = help: {help}")?;
        }
        Ok(())
    }
}

/// The text of one .x file.
#[derive(Debug)]
pub(crate) struct Source {
    name: String,
    pub(crate) text: String,
    line_starts: Vec<usize>,
    /// `# 12 "file"`: physical line after the marker, file, line number that it has there.
    markers: Vec<(usize, String, usize)>,
}

impl Source {
    pub(crate) fn new(path: &Path, text: String) -> Self {
        let name = path.display().to_string();
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Source { name, text, line_starts, markers: Vec::new() }
    }

    /// Records a line marker that ends before physical line `next` (from 0).
    pub(crate) fn add_marker(&mut self, next: usize, line: usize, file: Option<String>) {
        let file = file.or_else(|| self.markers.last().map(|m| m.1.clone())).unwrap_or(self.name.clone());
        self.markers.push((next, file, line));
    }

    /// Physical line (from 0) that holds the byte at `offset`.
    fn physical_line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|s| *s <= offset).saturating_sub(1)
    }

    /// File, line and column of a byte, with line markers applied.
    pub(crate) fn locate(&self, offset: usize) -> (&str, usize, usize) {
        let phys = self.physical_line(offset);
        let start = self.line_starts.get(phys).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(1, |s| s.chars().count() + 1);
        match self.markers.iter().rev().find(|m| m.0 <= phys) {
            Some((at, file, line)) => (file, line + (phys - at), column),
            None => (&self.name, phys + 1, column),
        }
    }

    /// The file's name and line without its directories, for doc comments: the output must not depend on where
    /// the source tree lies.
    pub(crate) fn short_place(&self, offset: usize) -> String {
        let (file, line, _) = self.locate(offset);
        let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
        format!("{base}:{line}")
    }

    /// The text of a span on one line, with comments removed and white space collapsed.
    pub(crate) fn excerpt(&self, clean: &str, span: Span) -> String {
        clean.get(span.start..span.end).unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn snippet(&self, span: Span) -> String {
        let phys = self.physical_line(span.start);
        let start = self.line_starts.get(phys).copied().unwrap_or(0);
        let end = self.line_starts.get(phys + 1).map_or(self.text.len(), |e| e - 1);
        let line = self.text.get(start..end).unwrap_or("").trim_end_matches('\r');
        let (_, number, column) = self.locate(span.start);
        let mut out = String::new();
        let _ = writeln!(out, "{number:>5} | {}", line.replace('\t', " "));
        let marked =
            self.text.get(span.start..span.end.min(end).max(span.start)).map_or(1, |s| s.chars().count());
        let _ = write!(out, "      | {}{}", " ".repeat(column - 1), "^".repeat(marked.max(1)));
        out
    }
}

/// Most errors one run reports; later ones tend to be consequences of the first.
const MAX_ERRORS: usize = 40;

/// Collects diagnostics of one file.
#[derive(Debug, Default)]
pub(crate) struct Diags {
    found: Vec<(Severity, Span, String, Option<String>)>,
}

impl Diags {
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.push(Severity::Error, span, message.into(), None);
    }

    pub(crate) fn error_help(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Error, span, message.into(), Some(help.into()));
    }

    pub(crate) fn warn(&mut self, span: Span, message: impl Into<String>, help: Option<String>) {
        self.push(Severity::Warning, span, message.into(), help);
    }

    fn push(&mut self, severity: Severity, span: Span, message: String, help: Option<String>) {
        let same = |f: &(Severity, Span, String, Option<String>)| f.1 == span && f.2 == message;
        if self.found.len() < MAX_ERRORS && !self.found.iter().any(same) {
            self.found.push((severity, span, message, help));
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.found.iter().any(|f| f.0 == Severity::Error)
    }

    /// The findings in the order of the source.
    pub(crate) fn finish(mut self, source: &Source) -> Vec<Diagnostic> {
        self.found.sort_by_key(|f| f.1.start);
        let render = |(severity, span, message, help): (Severity, Span, String, Option<String>)| {
            let (file, line, column) = source.locate(span.start);
            let file = file.to_owned();
            Diagnostic { severity, file, line, column, message, help, snippet: source.snippet(span) }
        };
        self.found.into_iter().map(render).collect()
    }
}

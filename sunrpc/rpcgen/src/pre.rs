//! Comments, preprocessor lines, `%` lines and pragmas.
//!
//! Everything handled here is overwritten with blanks, so that every other byte keeps its offset and later stages
//! can report places in the original text.

use crate::lexer::{self, Tok};
use crate::source::{Diags, Source, Span};
use std::collections::HashMap;

/// A `#define` with a value, which acts as a `const`.
#[derive(Debug)]
pub(crate) struct Define {
    pub(crate) name: String,
    pub(crate) name_span: Span,
    pub(crate) value: Tok,
    pub(crate) value_span: Span,
}

/// A `%#pragma` line.
#[derive(Debug)]
pub(crate) struct Pragma {
    pub(crate) kind: PragmaKind,
    /// Type, or procedure.
    pub(crate) type_name: String,
    pub(crate) span: Span,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PragmaKind {
    /// The variable-length opaque field (or arm, or typedef if `None`) travels as pages.
    Pages(Option<String>),
    /// The type is written by hand.
    Exclude,
    /// The procedure must not run twice for one call.
    Nonidempotent,
    /// The procedure may wait.
    Blocking,
}

impl PragmaKind {
    /// Its target is a procedure, not a type.
    pub(crate) fn is_about_procedure(&self) -> bool {
        matches!(self, PragmaKind::Nonidempotent | PragmaKind::Blocking)
    }
}

/// The text that is left for the lexer, and what was taken out of it.
#[derive(Debug)]
pub(crate) struct Clean {
    pub(crate) text: String,
    pub(crate) defines: Vec<Define>,
    pub(crate) pragmas: Vec<Pragma>,
}

/// Runs the stage. `symbols` are names that `#ifdef` finds defined.
pub(crate) fn clean(source: &mut Source, symbols: &[String], diags: &mut Diags) -> Clean {
    let text = blank_comments(&source.text, diags);
    let mut pre = Pre {
        defined: symbols.iter().map(|s| (s.clone(), 1)).collect(),
        branches: Vec::new(),
        out: Clean { text: String::with_capacity(text.len()), defines: Vec::new(), pragmas: Vec::new() },
        diags,
    };
    let mut offset = 0;
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    while let Some((number, first)) = lines.next() {
        let start = offset;
        let mut end = start + first.len();
        let lead = first.trim_start().as_bytes().first();
        if let Some(b'#' | b'%') = lead {
            let mut next = number + 1;
            while text[start..end].trim_end().ends_with('\\') {
                let Some((n, more)) = lines.next() else { break };
                end += more.len();
                next = n + 1;
            }
            let line = &text[start..end];
            let indent = line.len() - line.trim_start().len();
            let body = Line { text: line.trim(), at: start + indent };
            if lead == Some(&b'%') {
                pre.percent(body);
            } else if let Some((line, file)) = pre.directive(body) {
                source.add_marker(next, line, file);
            }
            pre.blank(line);
        } else if pre.active() {
            pre.out.text.push_str(first);
        } else {
            pre.blank(first);
        }
        offset = end;
    }
    if let Some(open) = pre.branches.last() {
        pre.diags.error_help(open.span, "this conditional is never closed", "add `#endif`");
    }
    pre.out
}

/// Replaces comments by blanks; line ends stay.
fn blank_comments(text: &str, diags: &mut Diags) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let (mut at, mut quoted, mut directive, mut line_start) = (0, false, false, true);
    while let Some(&b) = bytes.get(at) {
        match (b, bytes.get(at + 1)) {
            (b'\n', _) => (quoted, directive, line_start) = (false, false, true),
            (b'#' | b'%', _) if line_start => (directive, line_start) = (true, false),
            // Strings exist only in the lines meant for a C compiler; a comment mark inside is none.
            (b'"', _) if directive => quoted = !quoted,
            (b'\\', Some(_)) if quoted => at += 1,
            (b'/', Some(b'*')) if !quoted => {
                let end = text[at + 2..].find("*/").map(|i| at + 2 + i + 2);
                if end.is_none() {
                    diags.error_help(Span::new(at, at + 2), "this comment is never closed", "add `*/`");
                }
                let end = end.unwrap_or(bytes.len());
                out[at..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
                at = end;
                continue;
            }
            (b'/', Some(b'/')) if !quoted => {
                let end = text[at..].find('\n').map_or(bytes.len(), |i| at + i);
                out[at..end].fill(b' ');
                at = end;
                continue;
            }
            (b' ' | b'\t' | b'\r', _) => {}
            _ => line_start = false,
        }
        at += 1;
    }
    // Only whole comments were overwritten, so the text is still UTF-8.
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// One open `#if`.
struct Branch {
    span: Span,
    /// The surrounding text is compiled.
    outer: bool,
    /// This branch is compiled.
    active: bool,
    /// A branch of this conditional was compiled already.
    taken: bool,
    /// `#else` was seen.
    last: bool,
}

#[derive(Clone, Copy)]
struct Line<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Line<'t> {
    fn span(&self) -> Span {
        Span::new(self.at, self.at + self.text.len())
    }

    /// The first word, and the rest.
    fn word(&self) -> (&'t str, Line<'t>) {
        let len = self.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.text.len());
        (&self.text[..len], self.skip(len))
    }

    /// The line without its first `n` bytes and the blanks that follow them.
    fn skip(&self, n: usize) -> Line<'t> {
        let rest = &self.text[n..];
        let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\\');
        Line { text: trimmed, at: self.at + n + (rest.len() - trimmed.len()) }
    }
}

struct Pre<'d> {
    defined: HashMap<String, i128>,
    branches: Vec<Branch>,
    out: Clean,
    diags: &'d mut Diags,
}

impl Pre<'_> {
    fn active(&self) -> bool {
        self.branches.last().is_none_or(|b| b.active)
    }

    fn blank(&mut self, line: &str) {
        self.out.text.extend(line.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
    }

    /// A `%` line is meant for a C compiler; only our pragmas are looked at.
    fn percent(&mut self, line: Line<'_>) {
        let after = line.skip(1);
        let Some(rest) = after.text.strip_prefix('#').map(|_| after.skip(1)) else { return };
        let ("pragma", rest) = rest.word() else { return };
        if !self.active() {
            return;
        }
        let (mut verb, mut rest) = rest.word();
        if verb == "sunrpc" {
            (verb, rest) = rest.word();
        }
        let target = rest.text.trim_end_matches(';').trim();
        let (type_name, field) = match target.split_once('.') {
            Some((t, f)) => (t, Some(f.to_owned())),
            None => (target, None),
        };
        let is_name = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let kind = match (verb, field) {
            ("pages", field) => PragmaKind::Pages(field),
            ("exclude", None) => PragmaKind::Exclude,
            ("nonidempotent", None) => PragmaKind::Nonidempotent,
            ("blocking", None) => PragmaKind::Blocking,
            // Pragmas of C compilers are none of our business.
            _ => return,
        };
        let field_ok = !matches!(&kind, PragmaKind::Pages(Some(f)) if !is_name(f));
        if !is_name(type_name) || !field_ok {
            let help = "write `%#pragma pages TYPE.FIELD`, `%#pragma exclude TYPE`, `%#pragma nonidempotent PROCEDURE` or \
                        `%#pragma blocking PROCEDURE`";
            self.diags.error_help(rest.span(), format!("`{target}` does not name a type"), help);
            return;
        }
        self.out.pragmas.push(Pragma { kind, type_name: type_name.to_owned(), span: rest.span() });
    }

    /// Handles a `#` line; the answer is a line marker.
    fn directive(&mut self, line: Line<'_>) -> Option<(usize, Option<String>)> {
        let body = line.skip(1);
        let (name, rest) = body.word();
        match name {
            "ifdef" | "ifndef" => {
                let (symbol, _) = rest.word();
                let defined = self.defined.contains_key(symbol);
                self.open(line.span(), defined == (name == "ifdef"));
            }
            "if" => {
                let value = self.active() && self.condition(rest);
                self.open(line.span(), value);
            }
            "elif" | "else" => {
                let value = name == "else" || {
                    let candidate = self.branches.last().is_some_and(|b| b.outer && !b.taken);
                    candidate && self.condition(rest)
                };
                match self.branches.last_mut() {
                    Some(b) if !b.last => {
                        b.active = b.outer && !b.taken && value;
                        b.taken |= b.active;
                        b.last = name == "else";
                    }
                    _ => self.diags.error(line.span(), format!("`#{name}` without `#if`")),
                }
            }
            "endif" => {
                if self.branches.pop().is_none() {
                    self.diags.error(line.span(), "`#endif` without `#if`");
                }
            }
            _ if !self.active() => {}
            "define" => self.define(rest),
            "undef" => {
                self.defined.remove(rest.word().0);
            }
            "error" => self.diags.error(line.span(), format!("#error {}", rest.text)),
            "include" => {
                let help = "definitions of that file have to be repeated here, or run the file through `cpp -P` first";
                self.diags.warn(line.span(), "`#include` is ignored", Some(help.to_owned()));
            }
            "line" => return self.marker(rest),
            "" if body.text.is_empty() => {}
            _ if name.bytes().all(|b| b.is_ascii_digit()) => return self.marker(body),
            "pragma" | "ident" | "warning" => {}
            _ => self.diags.warn(
                line.span(),
                format!("`#{name}` is not a known directive; it is ignored"),
                None,
            ),
        }
        None
    }

    fn open(&mut self, span: Span, value: bool) {
        let outer = self.active();
        let active = outer && value;
        self.branches.push(Branch { span, outer, active, taken: active, last: false });
    }

    /// `12 "file" flags`.
    fn marker(&mut self, line: Line<'_>) -> Option<(usize, Option<String>)> {
        let (number, rest) = line.word();
        let Ok(number) = number.parse() else {
            self.diags.warn(line.span(), "this line marker is not understood; it is ignored", None);
            return None;
        };
        let file = rest.text.strip_prefix('"').and_then(|f| f.split_once('"')).map(|(f, _)| f.to_owned());
        Some((number, file))
    }

    fn define(&mut self, rest: Line<'_>) {
        let (name, value) = rest.word();
        let name_span = Span::new(rest.at, rest.at + name.len());
        if name.is_empty() {
            self.diags.error(rest.span(), "`#define` without a name");
            return;
        }
        let macro_like = rest.text[name.len()..].starts_with('(');
        let bare = value.text.trim_start_matches('(').trim_end_matches(')').trim();
        let value_span = value.span();
        let tok = match bare.bytes().next() {
            None => {
                self.defined.insert(name.to_owned(), 0);
                return;
            }
            Some(b'0'..=b'9' | b'-') => lexer::number(bare).map(Tok::Number),
            _ if bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                Ok(Tok::Ident(bare.to_owned()))
            }
            _ => Err(String::new()),
        };
        match tok {
            Ok(tok) if !macro_like => {
                let number = match &tok {
                    Tok::Number(n) => *n,
                    Tok::Ident(other) => self.defined.get(other).copied().unwrap_or(0),
                    _ => 0,
                };
                // C allows the same definition twice.
                if self.defined.insert(name.to_owned(), number) != Some(number) {
                    self.out.defines.push(Define {
                        name: name.to_owned(),
                        name_span,
                        value: tok,
                        value_span,
                    });
                }
            }
            _ => {
                self.defined.insert(name.to_owned(), 0);
                let help = "only numbers and names of constants can be defined";
                self.diags.warn(rest.span(), format!("the macro `{name}` is ignored"), Some(help.to_owned()));
            }
        }
    }

    /// Value of an `#if` expression.
    fn condition(&mut self, line: Line<'_>) -> bool {
        let mut e = Expr { rest: line.text, defined: &self.defined, depth: 0 };
        match e.or() {
            Some(v) if e.rest.trim_start().is_empty() => v != 0,
            _ => {
                let help =
                    "numbers, names, `defined`, `!`, `&&`, `||`, comparisons and parentheses are understood";
                self.diags.error_help(line.span(), "this condition is not understood", help);
                false
            }
        }
    }
}

/// Recursive descent over an `#if` expression; `None` is a syntax error.
struct Expr<'t> {
    rest: &'t str,
    defined: &'t HashMap<String, i128>,
    depth: u8,
}

impl Expr<'_> {
    fn eat(&mut self, op: &str) -> bool {
        let rest = self.rest.trim_start();
        let hit = rest.strip_prefix(op);
        self.rest = hit.unwrap_or(rest);
        hit.is_some()
    }

    fn word(&mut self) -> String {
        let rest = self.rest.trim_start();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.rest = &rest[len..];
        rest[..len].to_owned()
    }

    fn or(&mut self) -> Option<i128> {
        let mut v = self.and()?;
        while self.eat("||") {
            let r = self.and()?;
            v = i128::from(v != 0 || r != 0);
        }
        Some(v)
    }

    fn and(&mut self) -> Option<i128> {
        let mut v = self.compare()?;
        while self.eat("&&") {
            let r = self.compare()?;
            v = i128::from(v != 0 && r != 0);
        }
        Some(v)
    }

    fn compare(&mut self) -> Option<i128> {
        let v = self.unary()?;
        for op in ["==", "!=", "<=", ">=", "<", ">"] {
            if self.eat(op) {
                let r = self.unary()?;
                return Some(i128::from(match op {
                    "==" => v == r,
                    "!=" => v != r,
                    "<=" => v <= r,
                    ">=" => v >= r,
                    "<" => v < r,
                    _ => v > r,
                }));
            }
        }
        Some(v)
    }

    fn unary(&mut self) -> Option<i128> {
        self.depth = self.depth.checked_add(1).filter(|d| *d < 64)?;
        let v = if self.eat("!") {
            i128::from(self.unary()? == 0)
        } else if self.eat("(") {
            let v = self.or()?;
            self.eat(")").then_some(v)?
        } else {
            let word = self.word();
            if word == "defined" {
                let open = self.eat("(");
                let name = self.word();
                if open && !self.eat(")") || name.is_empty() {
                    return None;
                }
                i128::from(self.defined.contains_key(&name))
            } else if word.starts_with(|c: char| c.is_ascii_digit()) {
                lexer::number(&word).ok()?
            } else if word.is_empty() {
                return None;
            } else {
                self.defined.get(&word).copied().unwrap_or(0)
            }
        };
        self.depth -= 1;
        Some(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> (Clean, Diags, Source) {
        let mut diags = Diags::default();
        let mut source = Source::new("t.x".as_ref(), text.to_owned());
        let clean = clean(&mut source, &[], &mut diags);
        assert_eq!(clean.text.len(), text.len(), "offsets are kept");
        (clean, diags, source)
    }

    fn words(text: &str) -> String {
        run(text).0.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_percent_lines_vanish() {
        assert_eq!(words("a /* b\n c */ d // e\nf"), "a d f");
        assert_eq!(words("%/*\n% * for C only\n% */\n%#include <x.h>\na"), "a");
        assert_eq!(words("%printf(\"/*\");\na /* */ b"), "a b");
        assert_eq!(words("% long \\\n line\nb"), "b");
        assert_eq!(words("ä /* ö */"), "ä");
    }

    #[test]
    fn unclosed_comment_is_an_error_where_it_opens() {
        let (_, diags, source) = run("int a;\n  /* oops");
        let found = diags.finish(&source);
        assert_eq!((found[0].line, found[0].column), (2, 3));
    }

    #[test]
    fn conditionals() {
        assert_eq!(words("#ifdef RPC_HDR\na\n#else\nb\n#endif\nc"), "b c");
        assert_eq!(words("#ifndef RPC_HDR\na\n#else\nb\n#endif"), "a");
        assert_eq!(words("#if 0\na\n#elif 1\nb\n#elif 1\nc\n#else\nd\n#endif"), "b");
        assert_eq!(words("#define V 3\n#if V >= 3 && !defined(X) || 0\na\n#endif"), "a");
        assert_eq!(words("#if defined RPC_XDR\n#if 1\na\n#else\nb\n#endif\n#endif\nc"), "c");
        assert_eq!(words("#if 0\n#error no\n#define A (\n#endif\nc"), "c");
        assert!(run("#if 1\n").1.failed());
        assert!(run("#endif\n").1.failed());
        assert!(run("#if (1\n#endif\n").1.failed());
    }

    #[test]
    fn defines_become_constants() {
        let (clean, diags, _) =
            run("#define A 10\n#define B A\n#define C (0x10) /* hex */\n#define D\n#define A 10\n");
        assert!(!diags.failed());
        let got: Vec<_> = clean.defines.iter().map(|d| (d.name.as_str(), d.value.clone())).collect();
        let ident = |s: &str| Tok::Ident(s.to_owned());
        assert_eq!(got, [("A", Tok::Number(10)), ("B", ident("A")), ("C", Tok::Number(16))]);
    }

    #[test]
    fn pragmas() {
        let (clean, diags, _) = run("%#pragma pages READ3resok.data\n%#pragma exclude foo\n%#pragma once\n");
        assert!(!diags.failed());
        assert_eq!(clean.pragmas.len(), 2);
        assert_eq!(clean.pragmas[0].kind, PragmaKind::Pages(Some("data".to_owned())));
        assert_eq!(
            (&clean.pragmas[1].kind, clean.pragmas[1].type_name.as_str()),
            (&PragmaKind::Exclude, "foo")
        );
        assert!(run("%#pragma pages 5 6\n").1.failed());
    }

    #[test]
    fn line_markers_move_places() {
        let (_, _, source) = run("# 12 \"inner.x\" 1\na\nb\n# 3 \"outer.x\" 2\nc");
        let at = |c| source.locate(source.text.rfind(c).unwrap());
        assert_eq!(at('b'), ("inner.x", 13, 1));
        assert_eq!(at('c'), ("outer.x", 3, 1));
    }
}

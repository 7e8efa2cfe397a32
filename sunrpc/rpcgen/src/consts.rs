//! Constants: `const`, `#define`, enum members. All share one namespace, as in C.

use crate::ast::{Name, Value};
use crate::source::{Diags, Span};
use std::collections::HashMap;

#[derive(Debug)]
enum Origin {
    Const,
    /// `#define`; the preprocessor checked for contradictions already.
    Define,
    Member,
}

#[derive(Debug)]
struct Entry {
    value: Given,
    span: Span,
    origin: Origin,
    state: State,
}

#[derive(Debug)]
enum Given {
    Value(Value),
    /// An enum member without a value: one more than the member before.
    After(String),
    Known(i128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// Being evaluated: meeting it again is a cycle.
    Busy,
    Done(i128),
    Failed,
}

/// The table of constants.
#[derive(Debug, Default)]
pub(crate) struct Consts {
    entries: HashMap<String, Entry>,
}

impl Consts {
    pub(crate) fn add_const(&mut self, name: &Name, value: Value, define: bool, diags: &mut Diags) {
        let origin = if define { Origin::Define } else { Origin::Const };
        self.add(name, Given::Value(value), origin, diags);
    }

    pub(crate) fn add_member(
        &mut self,
        name: &Name,
        value: Option<Value>,
        previous: Option<&str>,
        diags: &mut Diags,
    ) {
        let value = match (value, previous) {
            (Some(v), _) => Given::Value(v),
            (None, Some(p)) => Given::After(p.to_owned()),
            (None, None) => Given::Known(0),
        };
        self.add(name, value, Origin::Member, diags);
    }

    fn add(&mut self, name: &Name, value: Given, origin: Origin, diags: &mut Diags) {
        if let Some(old) = self.entries.get(&name.text) {
            let both_defines = matches!((&old.origin, &origin), (Origin::Define, Origin::Define));
            let what = match old.origin {
                Origin::Member => "an enum member",
                Origin::Const | Origin::Define => "a constant",
            };
            if both_defines {
                let message = format!("`{}` is defined again with another value", name.text);
                diags.warn(name.span, message, Some("the first value is used".to_owned()));
            } else {
                diags.error(name.span, format!("`{}` is already the name of {what}", name.text));
            }
            return;
        }
        let entry = Entry { value, span: name.span, origin, state: State::Waiting };
        self.entries.insert(name.text.clone(), entry);
    }

    /// Predefined constants, unless the file defines them.
    pub(crate) fn add_predefined(&mut self) {
        for (name, value) in [("FALSE", 0), ("TRUE", 1)] {
            self.entries.entry(name.to_owned()).or_insert(Entry {
                value: Given::Known(value),
                span: Span::new(0, 0),
                origin: Origin::Define,
                state: State::Done(value),
            });
        }
    }

    /// Value of a number or named constant; `None` if an error was reported.
    pub(crate) fn eval(&mut self, value: &Value, diags: &mut Diags) -> Option<i128> {
        match value {
            Value::Number(n, _) => Some(*n),
            Value::Name(name) => self.lookup(&name.text, name.span, diags),
        }
    }

    /// Value of a constant by name.
    pub(crate) fn lookup(&mut self, name: &str, at: Span, diags: &mut Diags) -> Option<i128> {
        // Chains are followed in a loop: a file may hold a long enum without values.
        let mut chain: Vec<String> = Vec::new();
        let mut current = (name.to_owned(), at);
        let mut result = loop {
            let (name, at) = &current;
            let Some(entry) = self.entries.get_mut(name) else {
                let help = self.similar(name).map(|s| format!("there is a constant `{s}`"));
                let message = format!("unknown constant `{name}`");
                match help {
                    Some(h) => diags.error_help(*at, message, h),
                    None => diags.error(*at, message),
                }
                break None;
            };
            match (entry.state, &entry.value) {
                (State::Done(v), _) => break Some(v),
                (State::Waiting, Given::Value(Value::Number(v, _)) | Given::Known(v)) => {
                    let v = *v;
                    entry.state = State::Done(v);
                    break Some(v);
                }
                (State::Failed, _) => break None,
                (State::Busy, _) => {
                    diags.error(entry.span, format!("the value of `{name}` depends on itself"));
                    break None;
                }
                (State::Waiting, Given::Value(Value::Name(n))) => {
                    let next = (n.text.clone(), n.span);
                    entry.state = State::Busy;
                    chain.push(name.clone());
                    current = next;
                }
                (State::Waiting, Given::After(p)) => {
                    let next = (p.clone(), entry.span);
                    entry.state = State::Busy;
                    chain.push(name.clone());
                    current = next;
                }
            }
        };
        for name in chain.into_iter().rev() {
            if let Some(entry) = self.entries.get_mut(&name) {
                if matches!(entry.value, Given::After(_)) {
                    result = result.map(|v| v + 1);
                }
                entry.state = result.map_or(State::Failed, State::Done);
            }
        }
        result
    }

    /// A known name that differs in case or in one letter.
    fn similar(&self, name: &str) -> Option<String> {
        closest(name, self.entries.keys().map(String::as_str)).map(str::to_owned)
    }
}

/// The candidate most like `name`, if it is like it at all.
pub(crate) fn closest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let limit = (name.len() / 3).min(3);
    candidates
        .map(|c| (if c.eq_ignore_ascii_case(name) { 0 } else { distance(name, c, limit + 1) }, c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Edit distance of two names, not computed beyond `give_up`.
fn distance(a: &str, b: &str, give_up: usize) -> usize {
    if a.len().abs_diff(b.len()) >= give_up {
        return give_up;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name { text: text.to_owned(), span: Span::new(0, 1) }
    }

    #[test]
    fn forward_references_and_implicit_members() {
        let mut d = Diags::default();
        let mut c = Consts::default();
        c.add_const(&name("A"), Value::Name(name("B")), false, &mut d);
        c.add_member(&name("X"), None, None, &mut d);
        c.add_member(&name("Y"), Some(Value::Name(name("A"))), Some("X"), &mut d);
        c.add_member(&name("Z"), None, Some("Y"), &mut d);
        c.add_const(&name("B"), Value::Number(7, Span::new(0, 1)), false, &mut d);
        c.add_predefined();
        let mut get = |n: &str| c.lookup(n, Span::new(0, 1), &mut d);
        assert_eq!((get("A"), get("X"), get("Z"), get("TRUE")), (Some(7), Some(0), Some(8), Some(1)));
        assert!(!d.failed());
    }

    #[test]
    fn cycles_and_unknown_names_are_errors() {
        let mut d = Diags::default();
        let mut c = Consts::default();
        c.add_const(&name("A"), Value::Name(name("B")), false, &mut d);
        c.add_const(&name("B"), Value::Name(name("A")), false, &mut d);
        assert_eq!(c.lookup("A", Span::new(0, 1), &mut d), None);
        assert!(d.failed());
        let mut d = Diags::default();
        assert_eq!(c.lookup("C", Span::new(0, 1), &mut d), None);
        assert!(d.failed());
    }

    #[test]
    fn likeness() {
        let names = ["NFS3_FHSIZE", "MAXPATH", "x"];
        assert_eq!(closest("NFS3_FHSIZ", names.into_iter()), Some("NFS3_FHSIZE"));
        assert_eq!(closest("maxpath", names.into_iter()), Some("MAXPATH"));
        assert_eq!(closest("other", names.into_iter()), None);
        assert_eq!(closest("y", names.into_iter()), None);
    }
}

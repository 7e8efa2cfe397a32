//! Random values for property tests and fuzzers, if asked for.

use super::{Emit, line};
use crate::build::grouped;
use crate::model::*;
use std::fmt::Write as _;

impl Emit<'_> {
    /// `Arbitrary` of the crate of that name for every type that the file defines.
    pub(super) fn arbitrary(&mut self) {
        line!(self, "// Random values within the declared limits: short ones mostly.");
        for (name, of, longest) in [("bytes", "u8", 12), ("vec", "T", 3)] {
            let generic = if of == "T" { ", T: ::arbitrary::Arbitrary<'a>" } else { "" };
            line!(self, "#[allow(dead_code)]");
            line!(self, "fn arbitrary_{name}<'a{generic}>(");
            line!(self, "    d: &mut ::arbitrary::Unstructured<'a>,");
            line!(self, "    max: u32,");
            line!(self, ") -> ::arbitrary::Result<Vec<{of}>> {{");
            line!(self, "    let long = d.ratio(1, 32)?;");
            line!(
                self,
                "    let n = if long {{ d.arbitrary_len::<{of}>()? }} else {{ d.int_in_range(0..={longest})? }};"
            );
            line!(self, "    (0..n.min(max as usize)).map(|_| d.arbitrary()).collect()");
            line!(self, "}}");
        }
        let model = self.model;
        for t in &model.types {
            let body = match &t.kind {
                _ if t.excluded => continue,
                // An alias is another type, which has what is needed.
                Kind::Alias(_) => continue,
                Kind::Enum { members, .. } => {
                    let all: Vec<_> = members.iter().map(|m| format!("Self::{}", m.rust)).collect();
                    vec![format!("Ok(*d.choose(&[{}])?)", all.join(", "))]
                }
                Kind::Struct(fields) => {
                    let mut out = vec!["Ok(Self {".to_owned()];
                    out.extend(fields.iter().map(|f| format!("    {}: {},", f.rust, any(&f.shape))));
                    out.push("})".to_owned());
                    out
                }
                Kind::Newtype(s) => vec![format!("Ok(Self({}))", any(s))],
                Kind::Union(u) => self.any_arm(u),
            };
            line!(self, "impl<'a> ::arbitrary::Arbitrary<'a> for {} {{", t.rust);
            line!(
                self,
                "    fn arbitrary(d: &mut ::arbitrary::Unstructured<'a>) -> ::arbitrary::Result<Self> {{"
            );
            for l in body {
                line!(self, "        {l}");
            }
            line!(self, "    }}");
            line!(self, "}}");
        }
        line!(self, "");
    }

    fn any_arm(&self, u: &Union) -> Vec<String> {
        let mut arms: Vec<String> = Vec::new();
        for arm in &u.arms {
            for l in &arm.labels {
                arms.push(match &arm.body {
                    Some(f) => format!("Self::{}({})", l.rust, any(&f.shape)),
                    None => format!("Self::{}", l.rust),
                });
            }
        }
        if let Some((_, body)) = &u.default {
            let body = body.as_ref().map_or(String::new(), |f| format!(", {}", any(&f.shape)));
            arms.push(format!("Self::Default({}{body})", self.any_other(u)));
        }
        let mut out = vec![format!("Ok(match d.int_in_range(0..={})? {{", arms.len().saturating_sub(1))];
        let last = arms.pop();
        out.extend(arms.iter().enumerate().map(|(i, a)| format!("    {i} => {a},")));
        out.extend(last.map(|a| format!("    _ => {a},")));
        out.push("})".to_owned());
        out
    }

    /// A discriminant without a case.
    fn any_other(&self, u: &Union) -> String {
        let labels: Vec<i64> = u.arms.iter().flat_map(|a| &a.labels).map(|l| l.value).collect();
        match u.disc {
            Disc::Enum(t) => {
                let def = self.def(t);
                let members = match &def.kind {
                    Kind::Enum { members, .. } => members.as_slice(),
                    _ => &[],
                };
                let free = members.iter().filter(|m| !labels.contains(&m.value.into()));
                let free: Vec<_> = free.map(|m| format!("{}::{}", def.rust, m.rust)).collect();
                format!("*d.choose(&[{}])?", free.join(", "))
            }
            // Two values and two cases: `build` has made a case of the default arm.
            Disc::Bool => "d.arbitrary()?".to_owned(),
            Disc::Int | Disc::Uint if labels.is_empty() => "d.arbitrary()?".to_owned(),
            Disc::Int | Disc::Uint => {
                let free = (0..).find(|n| !labels.contains(n)).unwrap_or_default();
                let taken: Vec<_> = labels.iter().map(|l| grouped((*l).into())).collect();
                format!("match d.arbitrary()? {{ {} => {free}, disc => disc }}", taken.join(" | "))
            }
        }
    }
}

/// Expression for a random value of a declaration; draws from `d`.
fn any(s: &Shape) -> String {
    match s {
        Shape::One(_) | Shape::OpaqueFixed(_) | Shape::Fixed(..) | Shape::Optional { .. } => {
            "d.arbitrary()?".to_owned()
        }
        Shape::Opaque(m) => format!("arbitrary_bytes(d, {})?", m.expr),
        Shape::Str(m) => format!("XdrString(arbitrary_bytes(d, {})?)", m.expr),
        Shape::Pages(m) => format!("Pages::copy_from(&arbitrary_bytes(d, {})?)", m.expr),
        Shape::Array(_, m) => format!("arbitrary_vec(d, {})?", m.expr),
        Shape::List(_) => "arbitrary_vec(d, u32::MAX)?".to_owned(),
    }
}

//! The table from which the xdr-codec bridge knows how a value lies on the wire.

use super::{Emit, line};
use crate::build::grouped;
use crate::model::*;
use std::fmt::Write as _;

impl Emit<'_> {
    pub(super) fn bridge(&mut self) {
        // Hand-written types have no layout; neither has what contains them. Aliases are other crates' types.
        let rows: Vec<_> = self.model.types.iter().filter(|t| !t.facts.outside).collect();
        if rows.is_empty() {
            return;
        }
        line!(
            self,
            "// `Pack` and `Unpack` of the xdr-codec crate, if `sunrpc` has its feature `xdr-codec`."
        );
        line!(self, "::sunrpc::xdr_codec_bridge! {{");
        line!(self, "    types {{");
        for t in &rows {
            if !matches!(t.kind, Kind::Alias(_)) {
                line!(self, "        {}", t.rust);
            }
        }
        line!(self, "    }}");
        line!(self, "    layouts {{");
        for t in &rows {
            let layout = self.layout(t);
            let layout = if t.facts.recursive { format!("Layout::Deep(&{layout})") } else { layout };
            line!(self, "        {} = {layout};", t.rust);
        }
        line!(self, "    }}");
        line!(self, "}}");
        line!(self, "");
    }

    fn layout(&self, t: &TypeDef) -> String {
        let seq = |list: Vec<String>| match <[String; 1]>::try_from(list) {
            Ok([one]) => one,
            Err(list) => format!("Layout::Seq(&[{}])", list.join(", ")),
        };
        match &t.kind {
            Kind::Enum { .. } => "Layout::Fixed(4)".to_owned(),
            Kind::Struct(fields) => seq(fields.iter().map(|f| self.layout_of(&f.shape)).collect()),
            Kind::Alias(s) | Kind::Newtype(s) => self.layout_of(s),
            Kind::Union(u) => {
                let body = |f: &Option<Field>| match f {
                    Some(f) => self.layout_of(&f.shape),
                    None => "Layout::Seq(&[])".to_owned(),
                };
                let case = |l: &Label, f: &Option<Field>| {
                    // Discriminants are compared as the word on the wire.
                    format!("({}, {})", grouped((l.value as u32).into()), body(f))
                };
                let cases: Vec<_> =
                    u.arms.iter().flat_map(|a| a.labels.iter().map(|l| case(l, &a.body))).collect();
                let default = match &u.default {
                    Some((_, f)) => format!("Some(&{})", body(f)),
                    None => "None".to_owned(),
                };
                format!("Layout::Union(&[{}], {default})", cases.join(", "))
            }
        }
    }

    fn layout_of(&self, s: &Shape) -> String {
        let elem = |e: &Elem| match e {
            Elem::Scalar(Scalar::Hyper | Scalar::Uhyper | Scalar::Double) => "Layout::Fixed(8)".to_owned(),
            Elem::Scalar(_) => "Layout::Fixed(4)".to_owned(),
            Elem::Type(t) => format!("Layout::Of(&{})", self.def(*t).rust),
        };
        match s {
            Shape::One(e) => elem(e),
            Shape::OpaqueFixed(n) => format!("Layout::Fixed({})", n.next_multiple_of(4)),
            Shape::Opaque(m) | Shape::Str(m) | Shape::Pages(m) => {
                format!("Layout::Opaque({})", grouped(m.value.into()))
            }
            Shape::Fixed(e, n) => format!("Layout::Repeat({n}, &{})", elem(e)),
            Shape::Array(e, m) => format!("Layout::Array({}, &{})", grouped(m.value.into()), elem(e)),
            Shape::Optional { of, .. } => format!("Layout::Optional(&{})", elem(of)),
            Shape::List(t) => format!("Layout::List(&{})", elem(&Elem::Type(*t))),
        }
    }
}

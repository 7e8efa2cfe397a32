//! Expressions that read and write a declaration.

use super::{Emit, Form, scalar};
use crate::model::*;

/// How generated code gets at a value that it writes.
pub(super) struct Place {
    /// As a copy: `self.x`, `*v`.
    pub(super) value: String,
    /// As the receiver of a method: `self.x`, `v`.
    pub(super) recv: String,
    /// As a reference: `&self.x`, `v`.
    pub(super) by_ref: String,
}

impl Place {
    /// A field of `self`.
    pub(super) fn field(name: &str) -> Self {
        let x = format!("self.{name}");
        Place { value: x.clone(), recv: x.clone(), by_ref: format!("&{x}") }
    }

    /// The variable `v`, which holds a reference.
    pub(super) fn reference() -> Self {
        Place { value: "*v".to_owned(), recv: "v".to_owned(), by_ref: "v".to_owned() }
    }

    /// The variable `name`, which holds the value itself.
    pub(super) fn variable(name: &str) -> Self {
        Place { value: name.to_owned(), recv: name.to_owned(), by_ref: format!("&{name}") }
    }
}

/// What an encoder does with the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Borrow,
    /// Consumes it, so that pages move.
    Own,
}

fn put(s: Scalar) -> &'static str {
    match s {
        Scalar::Int => "put_i32",
        Scalar::Uint => "put_u32",
        Scalar::Hyper => "put_i64",
        Scalar::Uhyper => "put_u64",
        Scalar::Float => "put_f32",
        Scalar::Double => "put_f64",
        Scalar::Bool => "put_bool",
    }
}

impl Emit<'_> {
    /// Expression that reads a declaration from `d`; may use `?`.
    pub(super) fn decode(&self, s: &Shape, form: Form) -> String {
        let raw = s.elem().and_then(|e| self.model.opaque_len(e));
        match (s, form) {
            (Shape::One(_), _) if raw.is_some() => "*d.opaque_array()?".to_owned(),
            (Shape::One(e), _) => match self.model.resolve(*e) {
                Elem::Scalar(s) => format!("d.{}()?", scalar(s)),
                Elem::Type(_) => "Decode::decode(d)?".to_owned(),
            },
            (Shape::OpaqueFixed(_), _) => "*d.opaque_array()?".to_owned(),
            (Shape::Opaque(m), Form::Owned) => format!("d.opaque({})?.to_vec()", m.expr),
            (Shape::Str(m), Form::Owned) => format!("XdrString(d.opaque({})?.to_vec())", m.expr),
            (Shape::Opaque(m) | Shape::Str(m), Form::Ref) => format!("d.opaque({})?", m.expr),
            (Shape::Pages(m), Form::Owned) => format!("Pages::decode_max(d, {})?", m.expr),
            (Shape::Pages(m), Form::Ref) => format!("d.payload({})?", m.expr),
            (Shape::Fixed(_, n), _) => match raw {
                Some(len) => format!("<[FixedOpaque<{len}>; {n}] as Decode>::decode(d)?.map(|v| v.0)"),
                None => "Decode::decode(d)?".to_owned(),
            },
            (Shape::Array(_, m), Form::Owned) => match raw {
                Some(len) => {
                    format!("d.vec::<FixedOpaque<{len}>>({})?.into_iter().map(|v| v.0).collect()", m.expr)
                }
                None => format!("d.vec({})?", m.expr),
            },
            (Shape::Array(_, m), Form::Ref) => format!("Array::decode_max(d, {})?", m.expr),
            (Shape::Optional { .. }, _) if raw.is_some() => {
                "if d.bool()? { Some(*d.opaque_array()?) } else { None }".to_owned()
            }
            (Shape::Optional { boxed: true, .. }, _) => {
                "if d.bool()? { Some(Box::new(Decode::decode(d)?)) } else { None }".to_owned()
            }
            (Shape::Optional { .. }, _) => "Decode::decode(d)?".to_owned(),
            (Shape::List(_), Form::Owned) => "d.list()?".to_owned(),
            (Shape::List(_), Form::Ref) => "Decode::decode(d)?".to_owned(),
        }
    }

    /// Statements, without indentation, that write a declaration to `w`.
    pub(super) fn encode(&self, s: &Shape, form: Form, take: Take, p: &Place) -> Vec<String> {
        let Place { value, recv, by_ref } = p;
        let raw = s.elem().and_then(|e| self.model.opaque_len(e)).is_some();
        let owns = take == Take::Own && self.holds_pages(s);
        let encode = if owns { "encode_owned" } else { "encode" };
        let element = match (raw, owns) {
            (true, _) => format!("{recv}.iter().try_for_each(|v| w.put_opaque_fixed(v))?;"),
            (false, true) => format!("{recv}.into_iter().try_for_each(|v| v.encode_owned(w))?;"),
            (false, false) => format!("{recv}.iter().try_for_each(|v| v.encode(w))?;"),
        };
        match (s, form) {
            (Shape::One(_), _) if raw => vec![format!("w.put_opaque_fixed({by_ref})?;")],
            (Shape::One(e), _) => match self.model.resolve(*e) {
                Elem::Scalar(s) => vec![format!("w.{}({value})?;", put(s))],
                Elem::Type(_) => vec![format!("{recv}.{encode}(w)?;")],
            },
            (Shape::OpaqueFixed(_), _) => vec![format!("w.put_opaque_fixed({by_ref})?;")],
            (Shape::Str(m), Form::Owned) => vec![format!("w.put_opaque({recv}.as_bytes(), {})?;", m.expr)],
            (Shape::Opaque(m) | Shape::Str(m), _) => vec![format!("w.put_opaque({by_ref}, {})?;", m.expr)],
            (Shape::Pages(m), _) => {
                let mut out = Vec::new();
                if m.value < u32::MAX {
                    out.push(format!("if {recv}.len() > {} as usize {{", m.expr));
                    out.push("    return Err(XdrError::Full);".to_owned());
                    out.push("}".to_owned());
                }
                out.push(format!("{recv}.{encode}(w)?;"));
                out
            }
            (Shape::Fixed(..), _) if raw => vec![element],
            (Shape::Fixed(..), _) => vec![format!("{recv}.{encode}(w)?;")],
            (Shape::Array(_, m), Form::Owned) => {
                vec![format!("w.put_count({recv}.len(), {})?;", m.expr), element]
            }
            (Shape::Array(_, m), Form::Ref) => vec![format!("{recv}.encode_max(w, {})?;", m.expr)],
            (Shape::Optional { .. }, _) if raw => vec![
                format!("w.put_bool({recv}.is_some())?;"),
                format!("{recv}.iter().try_for_each(|v| w.put_opaque_fixed(v))?;"),
            ],
            (Shape::Optional { .. }, _) => vec![format!("{recv}.{encode}(w)?;")],
            (Shape::List(_), Form::Owned) => {
                let over = if owns { recv } else { &format!("{recv}.iter()") };
                vec![
                    format!("for v in {over} {{"),
                    "    w.put_bool(true)?;".to_owned(),
                    format!("    v.{encode}(w)?;"),
                    "}".to_owned(),
                    "w.put_bool(false)?;".to_owned(),
                ]
            }
            (Shape::List(_), Form::Ref) => vec![format!("{recv}.encode(w)?;")],
        }
    }

    fn holds_pages(&self, s: &Shape) -> bool {
        match s {
            Shape::Pages(_) => true,
            s => matches!(s.elem(), Some(Elem::Type(t)) if self.def(t).facts.pages),
        }
    }
}

//! Type definitions and their codecs.

use super::codec::{Place, Take};
use super::{Emit, Form, line};
use crate::build::grouped;
use crate::model::*;
use std::fmt::Write as _;

impl Emit<'_> {
    pub(super) fn type_def(&mut self, id: TypeId) {
        let def = self.model.types[id].clone();
        if def.excluded {
            line!(self, "/// `{}` borrows nothing.", def.name);
            line!(self, "pub type {}<'a> = {};", def.rust_ref, def.rust);
            line!(self, "");
            return;
        }
        match &def.kind {
            Kind::Enum { members, aliases } => self.enumeration(&def, members, aliases),
            Kind::Struct(fields) => {
                for form in forms(&def) {
                    self.structure(&def, fields, form);
                }
            }
            Kind::Union(u) => {
                for form in forms(&def) {
                    self.union(&def, u, form);
                }
            }
            Kind::Newtype(s) => {
                for form in forms(&def) {
                    self.newtype(&def, s, form);
                }
            }
            Kind::Alias(s) => {
                line!(self, "/// `typedef {}`, {}.", def.name, def.place);
                line!(self, "pub type {} = {};", def.rust, self.shape(s, Form::Owned));
                if def.facts.borrows {
                    line!(self, "/// Borrowed form of [`{}`].", def.rust);
                    line!(self, "pub type {}<'a> = {};", def.rust_ref, self.shape(s, Form::Ref));
                }
            }
        }
        if !def.facts.borrows {
            line!(self, "/// [`{}`] borrows nothing.", def.rust);
            line!(self, "pub type {}<'a> = {};", def.rust_ref, def.rust);
        }
        line!(self, "");
    }

    fn doc(&mut self, def: &TypeDef, word: &str, form: Form) {
        match form {
            Form::Owned => line!(self, "/// `{word} {}`, {}.", def.name, def.place),
            Form::Ref => line!(self, "/// Borrowed form of [`{}`].", def.rust),
        }
        if def.facts.node {
            line!(self, "///");
            line!(self, "/// A node of a list; its pointer to the next node is the order in the list.");
        }
    }

    fn derives(&mut self, def: &TypeDef, form: Form) {
        let f = &def.facts;
        let mut list = vec!["Clone", "Debug"];
        match form {
            Form::Owned => {
                list.push("PartialEq");
                if !f.inexact && !f.outside {
                    list.push("Eq");
                }
                if !f.borrows && !f.boxes && !f.outside {
                    list.push("Copy");
                }
                if f.default && !matches!(def.kind, Kind::Union(_)) {
                    list.push("Default");
                }
            }
            Form::Ref if !f.lazy && !f.boxes && !f.outside => {
                list.extend(["Copy", "PartialEq"]);
                if !f.inexact && !f.pages {
                    list.push("Eq");
                }
            }
            Form::Ref => {}
        }
        line!(self, "#[derive({})]", list.join(", "));
    }

    fn enumeration(&mut self, def: &TypeDef, members: &[Member], aliases: &[(Member, String)]) {
        let name = &def.rust;
        self.doc(def, "enum", Form::Owned);
        line!(self, "#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
        line!(self, "#[repr(i32)]");
        line!(self, "pub enum {name} {{");
        for m in members {
            line!(self, "    /// `{}`", m.name);
            line!(self, "    {} = {},", m.rust, grouped(m.value.into()));
        }
        line!(self, "}}");
        if !aliases.is_empty() {
            line!(self, "impl {name} {{");
            for (m, of) in aliases {
                line!(self, "    /// `{}`, another name of [`Self::{of}`].", m.name);
                line!(self, "    pub const {}: Self = Self::{of};", m.rust);
            }
            line!(self, "}}");
        }
        line!(self, "impl TryFrom<i32> for {name} {{");
        line!(self, "    type Error = XdrError;");
        line!(self, "    fn try_from(n: i32) -> Result<Self, XdrError> {{");
        line!(self, "        match n {{");
        for m in members {
            line!(self, "            {} => Ok(Self::{}),", grouped(m.value.into()), m.rust);
        }
        line!(self, "            _ => Err(XdrError::NotInEnum {{ name: \"{}\", value: n }}),", def.name);
        line!(self, "        }}");
        line!(self, "    }}");
        line!(self, "}}");
        line!(self, "impl From<{name}> for i32 {{");
        line!(self, "    fn from(v: {name}) -> i32 {{");
        line!(self, "        v as i32");
        line!(self, "    }}");
        line!(self, "}}");
        self.encode_impl(name, "", &["w.put_i32(*self as i32)?;".to_owned()], None);
        self.decode_impl(def, Form::Owned, &["Self::try_from(d.i32()?)".to_owned()]);
    }

    fn structure(&mut self, def: &TypeDef, fields: &[Field], form: Form) {
        let (name, generics) = self.named(def, form);
        self.doc(def, "struct", form);
        self.derives(def, form);
        line!(self, "pub struct {name}{generics} {{");
        for f in fields {
            line!(self, "    /// `{}`", f.text);
            line!(self, "    pub {}: {},", f.rust, self.shape(&f.shape, form));
        }
        line!(self, "}}");
        let write = |e: &Self, take: Take| -> Vec<String> {
            fields.iter().flat_map(|f| e.encode(&f.shape, form, take, &Place::field(&f.rust))).collect()
        };
        let mut borrow = write(self, Take::Borrow);
        if def.facts.min == def.facts.max && (MIN_CHUNK..=MAX_CHUNK).contains(&def.facts.max) {
            borrow = chunked(borrow, def.facts.max);
        }
        let own = (form == Form::Owned && def.facts.pages).then(|| write(self, Take::Own));
        self.encode_impl(&name, generics, &borrow, own.as_deref());
        let mut read = vec!["Ok(Self {".to_owned()];
        for f in fields {
            read.push(format!("    {}: {},", f.rust, self.decode(&f.shape, form)));
        }
        read.push("})".to_owned());
        self.decode_impl(def, form, &read);
    }

    fn newtype(&mut self, def: &TypeDef, s: &Shape, form: Form) {
        let (name, generics) = self.named(def, form);
        let inner = self.shape(s, form);
        self.doc(def, "typedef", form);
        self.derives(def, form);
        line!(self, "pub struct {name}{generics}(pub {inner});");
        line!(self, "impl{generics} ::std::ops::Deref for {name}{generics} {{");
        line!(self, "    type Target = {inner};");
        line!(self, "    fn deref(&self) -> &Self::Target {{");
        line!(self, "        &self.0");
        line!(self, "    }}");
        line!(self, "}}");
        if form == Form::Owned {
            line!(self, "impl ::std::ops::DerefMut for {name} {{");
            line!(self, "    fn deref_mut(&mut self) -> &mut Self::Target {{");
            line!(self, "        &mut self.0");
            line!(self, "    }}");
            line!(self, "}}");
        }
        let mut from = vec![(inner.as_str(), "v")];
        if form == Form::Owned && matches!(s, Shape::Str(_)) {
            from.extend([("&str", "v.into()"), ("&[u8]", "v.into()")]);
        }
        for (of, value) in from {
            line!(self, "impl{generics} From<{of}> for {name}{generics} {{");
            line!(self, "    fn from(v: {of}) -> Self {{");
            line!(self, "        Self({value})");
            line!(self, "    }}");
            line!(self, "}}");
        }
        let borrow = self.encode(s, form, Take::Borrow, &Place::field("0"));
        let own = (form == Form::Owned && def.facts.pages)
            .then(|| self.encode(s, form, Take::Own, &Place::field("0")));
        self.encode_impl(&name, generics, &borrow, own.as_deref());
        let read = format!("Ok(Self({}))", self.decode(s, form));
        self.decode_impl(def, form, &[read]);
    }

    fn union(&mut self, def: &TypeDef, u: &Union, form: Form) {
        let (name, generics) = self.named(def, form);
        let disc = self.disc_type(u.disc);
        self.doc(def, "union", form);
        self.derives(def, form);
        line!(self, "pub enum {name}{generics} {{");
        for arm in &u.arms {
            for l in &arm.labels {
                match &arm.body {
                    Some(f) => {
                        line!(self, "    /// `case {}: {}`", l.text, f.text);
                        line!(self, "    {}({}),", l.rust, self.shape(&f.shape, form));
                    }
                    None => {
                        line!(self, "    /// `case {}: void`", l.text);
                        line!(self, "    {},", l.rust);
                    }
                }
            }
        }
        match &u.default {
            Some((_, Some(f))) => {
                line!(self, "    /// `default: {}`, behind a discriminant that has no case.", f.text);
                line!(self, "    Default({disc}, {}),", self.shape(&f.shape, form));
            }
            Some((_, None)) => {
                line!(self, "    /// `default: void`, with a discriminant that has no case.");
                line!(self, "    Default({disc}),");
            }
            None => {}
        }
        line!(self, "}}");
        self.union_methods(def, u, form, &name, generics);
        let borrow = self.union_encode(def, u, form, Take::Borrow);
        let own =
            (form == Form::Owned && def.facts.pages).then(|| self.union_encode(def, u, form, Take::Own));
        self.encode_impl(&name, generics, &borrow, own.as_deref());
        let read = self.union_decode(def, u, form);
        self.decode_impl(def, form, &read);
    }

    fn disc_type(&self, disc: Disc) -> String {
        match disc {
            Disc::Int => "i32".to_owned(),
            Disc::Uint => "u32".to_owned(),
            Disc::Bool => "bool".to_owned(),
            Disc::Enum(t) => self.def(t).rust.clone(),
        }
    }

    /// A label as a pattern or value of the discriminant's type.
    fn label(&self, disc: Disc, l: &Label) -> String {
        match disc {
            Disc::Int | Disc::Uint => grouped(l.value.into()),
            Disc::Bool => (l.value != 0).to_string(),
            Disc::Enum(t) => {
                let def = self.def(t);
                let members = match &def.kind {
                    Kind::Enum { members, .. } => members.as_slice(),
                    _ => &[],
                };
                let member = members.iter().find(|m| i64::from(m.value) == l.value);
                format!("{}::{}", def.rust, member.map_or(l.rust.as_str(), |m| m.rust.as_str()))
            }
        }
    }

    fn union_methods(&mut self, def: &TypeDef, u: &Union, form: Form, name: &str, generics: &str) {
        let disc = self.disc_type(u.disc);
        line!(self, "impl{generics} {name}{generics} {{");
        line!(self, "    /// The discriminant, `{}`.", u.disc_name);
        line!(self, "    pub fn discriminant(&self) -> {disc} {{");
        line!(self, "        match self {{");
        for arm in &u.arms {
            for l in &arm.labels {
                let rest = if arm.body.is_some() { "(_)" } else { "" };
                line!(self, "            Self::{}{rest} => {},", l.rust, self.label(u.disc, l));
            }
        }
        if let Some((_, body)) = &u.default {
            let rest = if body.is_some() { ", _" } else { "" };
            line!(self, "            Self::Default(disc{rest}) => *disc,");
        }
        line!(self, "        }}");
        line!(self, "    }}");
        if let Some(e) = u.as_option() {
            let inner = self.elem(e, form);
            line!(self, "    /// The value of `TRUE`.");
            line!(self, "    pub fn as_option(&self) -> Option<&{inner}> {{");
            line!(self, "        match self {{");
            line!(self, "            Self::True(v) => Some(v),");
            line!(self, "            Self::False => None,");
            line!(self, "        }}");
            line!(self, "    }}");
            line!(self, "    /// The value of `TRUE`.");
            line!(self, "    pub fn into_option(self) -> Option<{inner}> {{");
            line!(self, "        match self {{");
            line!(self, "            Self::True(v) => Some(v),");
            line!(self, "            Self::False => None,");
            line!(self, "        }}");
            line!(self, "    }}");
            line!(self, "}}");
            line!(self, "impl{generics} From<Option<{inner}>> for {name}{generics} {{");
            line!(self, "    fn from(v: Option<{inner}>) -> Self {{");
            line!(self, "        match v {{");
            line!(self, "            Some(v) => Self::True(v),");
            line!(self, "            None => Self::False,");
            line!(self, "        }}");
            line!(self, "    }}");
            if form == Form::Owned && def.facts.default {
                line!(self, "}}");
                line!(self, "impl Default for {name} {{");
                line!(self, "    fn default() -> Self {{");
                line!(self, "        Self::False");
                line!(self, "    }}");
            }
        }
        line!(self, "}}");
    }

    fn union_encode(&self, def: &TypeDef, u: &Union, form: Form, take: Take) -> Vec<String> {
        let write = match u.disc {
            Disc::Int => |v: &str| format!("w.put_i32({v})?;"),
            Disc::Uint => |v: &str| format!("w.put_u32({v})?;"),
            Disc::Bool => |v: &str| format!("w.put_bool({v})?;"),
            Disc::Enum(_) => |v: &str| format!("w.put_i32({v} as i32)?;"),
        };
        let place = if take == Take::Own { Place::variable("v") } else { Place::reference() };
        let body = |out: &mut Vec<String>, f: &Option<Field>| {
            let lines = f.iter().flat_map(|f| self.encode(&f.shape, form, take, &place));
            out.extend(lines.map(|l| format!("        {l}")));
        };
        let mut out = vec!["match self {".to_owned()];
        let mut labels = Vec::new();
        for arm in &u.arms {
            for l in &arm.labels {
                let value = self.label(u.disc, l);
                let binding = if arm.body.is_some() { "(v)" } else { "" };
                out.push(format!("    Self::{}{binding} => {{", l.rust));
                out.push(format!("        {}", write(&value)));
                body(&mut out, &arm.body);
                out.push("    }".to_owned());
                labels.push(value);
            }
        }
        if let Some((_, f)) = &u.default {
            let more = if f.is_some() { ", v" } else { "" };
            let value = if take == Take::Own { "disc" } else { "*disc" };
            out.push(format!("    Self::Default(disc{more}) => {{"));
            if !labels.is_empty() {
                out.push(format!("        if matches!({value}, {}) {{", labels.join(" | ")));
                let no_arm = format!("XdrError::NoArm {{ name: \"{}\", value: {value} as i32 }}", def.name);
                out.push(format!("            return Err({no_arm});"));
                out.push("        }".to_owned());
            }
            out.push(format!("        {}", write(value)));
            body(&mut out, f);
            out.push("    }".to_owned());
        }
        out.push("}".to_owned());
        out
    }

    fn union_decode(&self, def: &TypeDef, u: &Union, form: Form) -> Vec<String> {
        let read = match u.disc {
            Disc::Int => "d.i32()?".to_owned(),
            Disc::Uint => "d.u32()?".to_owned(),
            Disc::Bool => "d.bool()?".to_owned(),
            Disc::Enum(t) => format!("{}::decode(d)?", self.def(t).rust),
        };
        let mut out = vec![format!("Ok(match {read} {{")];
        for arm in &u.arms {
            for l in &arm.labels {
                let value = match &arm.body {
                    Some(f) => format!("Self::{}({})", l.rust, self.decode(&f.shape, form)),
                    None => format!("Self::{}", l.rust),
                };
                out.push(format!("    {} => {value},", self.label(u.disc, l)));
            }
        }
        match &u.default {
            Some((_, Some(f))) => {
                out.push(format!("    disc => Self::Default(disc, {}),", self.decode(&f.shape, form)));
            }
            Some((_, None)) => out.push("    disc => Self::Default(disc),".to_owned()),
            None if u.complete => {}
            None => {
                let no_arm = format!("XdrError::NoArm {{ name: \"{}\", value: disc as i32 }}", def.name);
                out.push(format!("    disc => return Err({no_arm}),"));
            }
        }
        out.push("})".to_owned());
        out
    }

    fn named(&self, def: &TypeDef, form: Form) -> (String, &'static str) {
        match form {
            Form::Owned => (def.rust.clone(), ""),
            Form::Ref => (def.rust_ref.clone(), "<'a>"),
        }
    }

    fn encode_impl(&mut self, name: &str, generics: &str, borrow: &[String], own: Option<&[String]>) {
        line!(self, "impl{generics} Encode for {name}{generics} {{");
        line!(self, "    #[inline]");
        line!(self, "    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {{");
        for l in borrow {
            line!(self, "        {l}");
        }
        line!(self, "        Ok(())");
        line!(self, "    }}");
        if let Some(own) = own {
            line!(self, "    #[inline]");
            line!(self, "    fn encode_owned<W: XdrWrite>(self, w: &mut W) -> Result<(), XdrError> {{");
            for l in own {
                line!(self, "        {l}");
            }
            line!(self, "        Ok(())");
            line!(self, "    }}");
        }
        line!(self, "}}");
    }

    fn decode_impl(&mut self, def: &TypeDef, form: Form, lines: &[String]) {
        let (name, generics) = self.named(def, form);
        // Bytes; what is larger than the address space never decodes.
        let min = grouped(usize::try_from(def.facts.min).unwrap_or(usize::MAX) as i128);
        line!(self, "impl<'a> Decode<'a> for {name}{generics} {{");
        line!(self, "    const MIN_SIZE: usize = {min};");
        if !def.facts.recursive {
            line!(self, "    #[inline]");
        }
        line!(self, "    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {{");
        if def.facts.recursive {
            line!(self, "        d.enter()?;");
            for (i, l) in lines.iter().enumerate() {
                let lead = if i == 0 { "let v = " } else { "" };
                let end = if i + 1 == lines.len() { ";" } else { "" };
                line!(self, "        {lead}{l}{end}");
            }
            line!(self, "        d.leave();");
            line!(self, "        v");
        } else {
            for l in lines {
                line!(self, "        {l}");
            }
        }
        line!(self, "    }}");
        line!(self, "}}");
    }
}

/// Sizes on the wire, in bytes, of structs without variable parts that are put together first and written at once.
const MIN_CHUNK: u64 = 12;
const MAX_CHUNK: u64 = 256;

/// Lets statements write to a buffer of exactly the right size.
fn chunked(lines: Vec<String>, size: u64) -> Vec<String> {
    let mut out = vec![
        "let out = w;".to_owned(),
        format!("let mut chunk = [0; {size}];"),
        "let w = &mut SliceWriter::new(&mut chunk);".to_owned(),
    ];
    out.extend(lines);
    out.push("out.put(&chunk)?;".to_owned());
    out
}

/// The forms that a type has.
fn forms(def: &TypeDef) -> impl Iterator<Item = Form> + use<> {
    [Form::Owned, Form::Ref].into_iter().take(if def.facts.borrows { 2 } else { 1 })
}

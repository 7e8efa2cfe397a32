//! From the syntax tree to the model: names, constants, declarations.

use crate::ast::{self, Body, Decl, Def, Name, Shape as Declared, Spec, Value};
use crate::consts::{Consts, closest};
use crate::model::*;
use crate::names::{self, Unique};
use crate::pre::{Clean, Pragma, PragmaKind};
use crate::source::{Diags, Source, Span};
use std::collections::{HashMap, HashSet};

/// Types that C's rpcgen knows without a definition, as they travel: everything below 64 bits takes 32.
const C_TYPES: [(&str, Scalar); 24] = [
    ("bool_t", Scalar::Bool),
    ("char", Scalar::Int),
    ("short", Scalar::Int),
    ("long", Scalar::Int),
    ("u_char", Scalar::Uint),
    ("u_short", Scalar::Uint),
    ("u_int", Scalar::Uint),
    ("u_long", Scalar::Uint),
    ("int8_t", Scalar::Int),
    ("int16_t", Scalar::Int),
    ("int32_t", Scalar::Int),
    ("int64_t", Scalar::Hyper),
    ("uint8_t", Scalar::Uint),
    ("uint16_t", Scalar::Uint),
    ("uint32_t", Scalar::Uint),
    ("uint64_t", Scalar::Uhyper),
    ("u_int8_t", Scalar::Uint),
    ("u_int16_t", Scalar::Uint),
    ("u_int32_t", Scalar::Uint),
    ("u_int64_t", Scalar::Uhyper),
    ("quad_t", Scalar::Hyper),
    ("u_quad_t", Scalar::Uhyper),
    ("longlong_t", Scalar::Hyper),
    ("u_longlong_t", Scalar::Uhyper),
];

/// A type definition whose nested definitions were taken out.
struct Raw {
    /// Key of the name table; nested anonymous types have one with a dot.
    name: Name,
    body: Body,
}

/// Builds the model as far as single definitions go; sizes and recursion are `check`'s business.
pub(crate) fn build(source: &Source, clean: &Clean, defs: Vec<Def>, diags: &mut Diags) -> (Model, Vec<Span>) {
    let mut b = Builder {
        source,
        text: &clean.text,
        diags,
        consts: Consts::default(),
        const_names: HashMap::new(),
        raw: Vec::new(),
        ids: HashMap::new(),
        model: Model::default(),
    };
    let programs = b.collect(clean, defs);
    b.name_types();
    b.emit_consts();
    b.define_types();
    b.apply_pragmas(&clean.pragmas);
    b.programs(programs);
    b.apply_proc_pragmas(&clean.pragmas);
    let spans = b.raw.iter().map(|r| r.name.span).collect();
    (b.model, spans)
}

struct Builder<'s, 'd> {
    source: &'s Source,
    text: &'s str,
    diags: &'d mut Diags,
    consts: Consts,
    /// Constants that are emitted: name in the file to name in Rust.
    const_names: HashMap<String, (String, Span)>,
    raw: Vec<Raw>,
    ids: HashMap<String, TypeId>,
    model: Model,
}

impl Builder<'_, '_> {
    /// Sorts definitions into constants, types and programs.
    fn collect(&mut self, clean: &Clean, defs: Vec<Def>) -> Vec<ast::Program> {
        let mut programs = Vec::new();
        let mut constants = Vec::new();
        for d in &clean.defines {
            let name = Name { text: d.name.clone(), span: d.name_span };
            let value = match &d.value {
                crate::lexer::Tok::Number(n) => Value::Number(*n, d.value_span),
                crate::lexer::Tok::Ident(s) => Value::Name(Name { text: s.clone(), span: d.value_span }),
                _ => continue,
            };
            constants.push((name, value, true));
        }
        for def in defs {
            match def {
                Def::Const { name, value, define } => constants.push((name, value, define)),
                Def::Type { name, body } => self.flatten(name, *body),
                Def::Program(mut p) => {
                    for proc in p.versions.iter_mut().flat_map(|v| &mut v.procs) {
                        let args = proc.args.iter_mut().chain(proc.result.as_mut());
                        for (i, decl) in args.enumerate() {
                            let inner = if decl.name.text.is_empty() {
                                format!("arg{i}")
                            } else {
                                decl.name.text.clone()
                            };
                            self.flatten_decl(&proc.name.text, &inner, decl);
                        }
                    }
                    programs.push(p);
                }
            }
        }
        for (name, value, define) in constants {
            if !self.const_names.contains_key(&name.text) {
                self.const_names.insert(name.text.clone(), (String::new(), name.span));
            }
            self.consts.add_const(&name, value, define, self.diags);
        }
        let mut previous: Option<String>;
        for raw in &self.raw {
            let Body::Enum(members) = &raw.body else { continue };
            previous = None;
            for m in members {
                self.consts.add_member(&m.name, m.value.clone(), previous.as_deref(), self.diags);
                previous = Some(m.name.text.clone());
            }
        }
        self.consts.add_predefined();
        programs
    }

    /// Takes anonymous types out of a body and records the result.
    fn flatten(&mut self, name: Name, body: Body) {
        // `typedef struct { ... } name;` defines `name` itself.
        let mut body = match body {
            Body::Typedef(Decl { spec: Spec::Inline(inner), shape: Declared::Plain, .. }) => *inner,
            other => other,
        };
        // `typedef struct foo foo;` is what C needs; here `foo` is a type name already.
        if let Body::Typedef(Decl { spec: Spec::Named(of), shape: Declared::Plain, .. }) = &body
            && of.text == name.text
        {
            self.diags.warn(name.span, "a typedef of a type to its own name is ignored", None);
            return;
        }
        let outer = name.text.clone();
        match &mut body {
            Body::Enum(_) => {}
            Body::Struct(fields) => {
                for f in fields {
                    let inner = f.name.text.clone();
                    self.flatten_decl(&outer, &inner, f);
                }
            }
            Body::Typedef(decl) => self.flatten_decl(&outer, "item", decl),
            Body::Union(u) => {
                let default = u.default.iter_mut().filter_map(|d| d.1.as_mut());
                let decls = u.arms.iter_mut().filter_map(|a| a.decl.as_mut()).chain(default);
                let mut all: Vec<&mut Decl> = decls.collect();
                all.push(&mut u.discriminant);
                for decl in all {
                    let inner = decl.name.text.clone();
                    self.flatten_decl(&outer, &inner, decl);
                }
            }
        }
        self.raw.push(Raw { name, body });
    }

    fn flatten_decl(&mut self, outer: &str, inner: &str, decl: &mut Decl) {
        if let Spec::Inline(body) = &mut decl.spec {
            let name = Name { text: format!("{outer}.{inner}"), span: decl.name.span };
            let body = std::mem::replace(&mut **body, Body::Enum(Vec::new()));
            decl.spec = Spec::Named(name.clone());
            self.flatten(name, body);
        }
    }

    /// Gives every type its place in the model and its Rust name.
    fn name_types(&mut self) {
        let mut taken = Unique::default();
        for (id, raw) in self.raw.iter().enumerate() {
            let name = &raw.name.text;
            if let Some(&first) = self.ids.get(name) {
                let place = self.source.short_place(self.raw[first].name.span.start);
                let message = format!("`{name}` is already defined at {place}");
                self.diags.error(raw.name.span, message);
            } else {
                // A definition of a name of `C_TYPES` wins over the built-in one.
                self.ids.insert(name.clone(), id);
            }
            let wanted = names::type_name(name);
            let rust = taken.take(wanted.clone());
            if rust != wanted && self.ids.get(name) == Some(&id) {
                let message =
                    format!("another type is `{wanted}` in Rust already; `{name}` becomes `{rust}`");
                self.diags.warn(raw.name.span, message, None);
            }
            self.model.types.push(TypeDef {
                name: name.clone(),
                rust,
                rust_ref: String::new(),
                place: self.source.short_place(raw.name.span.start),
                kind: Kind::Struct(Vec::new()),
                excluded: false,
                facts: Facts::default(),
            });
        }
        for t in &mut self.model.types {
            t.rust_ref = taken.take(format!("{}Ref", t.rust.trim_end_matches('_')));
        }
    }

    fn emit_consts(&mut self) {
        let mut names: Vec<_> = self.const_names.iter().map(|(k, v)| (v.1, k.clone())).collect();
        names.sort_by_key(|n| n.0.start);
        let mut taken = Unique::default();
        for (span, name) in names {
            let Some(value) = self.consts.lookup(&name, span, self.diags) else { continue };
            let rust = taken.take(names::upper(&name));
            let place = self.source.short_place(span.start);
            self.model.consts.push(Const { name: name.clone(), rust: rust.clone(), value, place });
            self.const_names.insert(name, (rust, span));
        }
    }

    fn define_types(&mut self) {
        let raw = std::mem::take(&mut self.raw);
        for (id, r) in raw.iter().enumerate() {
            let kind = match &r.body {
                Body::Enum(members) => self.enumeration(members),
                Body::Struct(fields) => Some(Kind::Struct(self.fields(fields))),
                Body::Typedef(decl) => self.shape(decl).map(typedef),
                // Unions need the enums and typedefs of their discriminants first.
                Body::Union(_) => None,
            };
            if let Some(kind) = kind {
                self.model.types[id].kind = kind;
            }
        }
        for (id, r) in raw.iter().enumerate() {
            if let Body::Union(u) = &r.body
                && let Some(u) = self.union(u, &r.name)
            {
                self.model.types[id].kind = Kind::Union(u);
            }
        }
        self.raw = raw;
    }

    fn enumeration(&mut self, members: &[ast::Member]) -> Option<Kind> {
        let mut out: Vec<Member> = Vec::new();
        let mut aliases = Vec::new();
        let mut taken = Unique::default();
        for m in members {
            let value = self.consts.lookup(&m.name.text, m.name.span, self.diags)?;
            let value = match i32::try_from(value) {
                Ok(v) => v,
                Err(_) => match u32::try_from(value) {
                    Ok(v) => {
                        let help = format!("it is taken as {}, as C does", v as i32);
                        self.diags.warn(m.name.span, format!("{value} does not fit in an enum"), Some(help));
                        v as i32
                    }
                    Err(_) => {
                        self.diags.error(m.name.span, format!("{value} does not fit in 32 bits"));
                        continue;
                    }
                },
            };
            let rust = taken.take(names::member(&m.name.text));
            let member = Member { name: m.name.text.clone(), rust, value };
            match out.iter().find(|o| o.value == value) {
                // Rust's discriminants are unique.
                Some(first) => aliases.push((member, first.rust.clone())),
                None => out.push(member),
            }
        }
        Some(Kind::Enum { members: out, aliases })
    }

    fn fields(&mut self, decls: &[Decl]) -> Vec<Field> {
        let mut taken = Unique::default();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut out = Vec::new();
        for d in decls {
            if !seen.insert(&d.name.text) {
                self.diags.error(d.name.span, format!("a second member `{}`", d.name.text));
                continue;
            }
            out.extend(self.field(d, &mut taken));
        }
        out
    }

    fn field(&mut self, decl: &Decl, taken: &mut Unique) -> Option<Field> {
        let shape = self.shape(decl)?;
        let rust = taken.take(names::field(&decl.name.text));
        Some(Field {
            name: decl.name.text.clone(),
            rust,
            shape,
            text: self.source.excerpt(self.text, decl.span),
        })
    }

    fn shape(&mut self, decl: &Decl) -> Option<Shape> {
        let elem = match &decl.spec {
            Spec::Scalar(s) => Elem::Scalar(*s),
            Spec::Named(name) => self.type_name(name)?,
            Spec::Opaque => {
                return match &decl.shape {
                    Declared::Fixed(n) => Some(Shape::OpaqueFixed(self.fixed_size(n)?)),
                    Declared::Variable(n) => Some(Shape::Opaque(self.max(n.as_ref())?)),
                    Declared::Plain | Declared::Pointer => None,
                };
            }
            Spec::String => {
                return match &decl.shape {
                    Declared::Variable(n) => Some(Shape::Str(self.max(n.as_ref())?)),
                    _ => None,
                };
            }
            // Taken out by `flatten`.
            Spec::Inline(_) => return None,
        };
        Some(match &decl.shape {
            Declared::Plain => Shape::One(elem),
            Declared::Pointer => Shape::Optional { of: elem, boxed: false },
            Declared::Fixed(n) => Shape::Fixed(elem, self.fixed_size(n)?),
            Declared::Variable(n) => Shape::Array(elem, self.max(n.as_ref())?),
        })
    }

    fn type_name(&mut self, name: &Name) -> Option<Elem> {
        if let Some(&id) = self.ids.get(&name.text) {
            return Some(Elem::Type(id));
        }
        if let Some((_, s)) = C_TYPES.iter().find(|(n, _)| *n == name.text) {
            return Some(Elem::Scalar(*s));
        }
        let known = self.ids.keys().map(String::as_str).chain(C_TYPES.iter().map(|c| c.0));
        let words = ["int", "unsigned", "hyper", "float", "double", "bool", "opaque", "string"];
        let message = format!("unknown type `{}`", name.text);
        match closest(&name.text, known.chain(words)) {
            Some(s) => self.diags.error_help(name.span, message, format!("there is a type `{s}`")),
            None => self.diags.error(name.span, message),
        }
        None
    }

    fn size(&mut self, n: &Value) -> Option<u32> {
        let v = self.consts.eval(n, self.diags)?;
        let fits = u32::try_from(v).ok();
        if fits.is_none() {
            self.diags.error(n.span(), format!("{v} is not a length: lengths are from 0 to 4294967295"));
        }
        fits
    }

    fn fixed_size(&mut self, n: &Value) -> Option<u32> {
        let v = self.size(n)?;
        if v == 0 {
            self.diags.error(n.span(), "an array of no elements");
            return None;
        }
        Some(v)
    }

    fn max(&mut self, n: Option<&Value>) -> Option<Max> {
        let Some(n) = n else { return Some(Max { value: u32::MAX, expr: "u32::MAX".to_owned() }) };
        let value = self.size(n)?;
        let constant = match n {
            Value::Name(name) => {
                self.const_names.get(&name.text).map(|c| c.0.clone()).filter(|c| !c.is_empty())
            }
            Value::Number(..) => None,
        };
        Some(Max { value, expr: constant.unwrap_or_else(|| grouped(value.into())) })
    }

    fn union(&mut self, u: &ast::Union, name: &Name) -> Option<Union> {
        let disc = self.discriminant(&u.discriminant)?;
        let mut taken = Unique::default();
        taken.take("Default".to_owned());
        let mut seen: HashMap<i64, Span> = HashMap::new();
        let mut arms = Vec::new();
        let mut arm_names = Unique::default();
        for a in &u.arms {
            let body = match &a.decl {
                Some(d) => Some(self.field(d, &mut Unique::default())?),
                None => None,
            };
            if let Some(d) = &a.decl {
                if arm_names.has(&d.name.text) {
                    self.diags.error(d.name.span, format!("a second arm `{}`", d.name.text));
                }
                arm_names.take(d.name.text.clone());
            }
            let mut labels = Vec::new();
            for l in &a.labels {
                let Some(value) = self.label_value(l, disc, &name.text) else { continue };
                if let Some(first) = seen.get(&value) {
                    let place = self.source.short_place(first.start);
                    self.diags.error(l.span(), format!("the case {value} appears already at {place}"));
                    continue;
                }
                seen.insert(value, l.span());
                let (variant, text) = self.label_name(l, value, disc);
                labels.push(Label { value, rust: taken.take(variant), text });
            }
            arms.push(Arm { labels, body });
        }
        let complete = match disc {
            Disc::Bool => seen.len() == 2,
            Disc::Int | Disc::Uint => false,
            Disc::Enum(t) => {
                matches!(&self.model.types[t].kind, Kind::Enum { members, .. } if members.len() == seen.len())
            }
        };
        let mut default = match &u.default {
            Some((_, Some(d))) => Some((d.name.text.clone(), Some(self.field(d, &mut Unique::default())?))),
            Some((_, None)) => Some((String::new(), None)),
            None => None,
        };
        let mut complete = complete;
        if complete && default.is_some() {
            let span = u.default.as_ref().map_or(name.span, |d| d.0);
            self.diags.warn(
                span,
                "this arm can never be chosen: the cases cover every value; it is ignored",
                None,
            );
            default = None;
        } else if disc == Disc::Bool && seen.len() == 1 && default.is_some() {
            // Only one value is left for the default arm.
            let value = if seen.contains_key(&0) { 1 } else { 0 };
            let (rust, text) = bool_name(value);
            let label = Label { value, rust: taken.take(rust.to_owned()), text: text.to_owned() };
            let body = default.take().and_then(|d| d.1);
            arms.push(Arm { labels: vec![label], body });
            complete = true;
        }
        Some(Union { disc, disc_name: u.discriminant.name.text.clone(), arms, default, complete })
    }

    fn discriminant(&mut self, decl: &Decl) -> Option<Disc> {
        let help = "a union is switched by int, unsigned int, bool or an enum";
        let Some(Shape::One(elem)) = self.shape(decl) else {
            // An unknown type is reported already.
            if !matches!(decl.shape, Declared::Plain) || matches!(decl.spec, Spec::Opaque | Spec::String) {
                self.diags.error_help(decl.span, "not a discriminant", help);
            }
            return None;
        };
        match self.model.resolve(elem) {
            Elem::Scalar(Scalar::Int) => Some(Disc::Int),
            Elem::Scalar(Scalar::Uint) => Some(Disc::Uint),
            Elem::Scalar(Scalar::Bool) => Some(Disc::Bool),
            Elem::Type(t) if matches!(self.model.types[t].kind, Kind::Enum { .. }) => Some(Disc::Enum(t)),
            _ => {
                self.diags.error_help(decl.spec_span, "not a discriminant", help);
                None
            }
        }
    }

    fn label_value(&mut self, label: &Value, disc: Disc, union: &str) -> Option<i64> {
        let v = self.consts.eval(label, self.diags)?;
        let fits = match disc {
            Disc::Int => i32::try_from(v).is_ok(),
            Disc::Uint => u32::try_from(v).is_ok(),
            Disc::Bool => v == 0 || v == 1,
            Disc::Enum(t) => match &self.model.types[t].kind {
                Kind::Enum { members, .. } => members.iter().any(|m| i128::from(m.value) == v),
                _ => false,
            },
        };
        if fits {
            return i64::try_from(v).ok();
        }
        let what = match disc {
            Disc::Int => "an int".to_owned(),
            Disc::Uint => "an unsigned int".to_owned(),
            Disc::Bool => "a bool".to_owned(),
            Disc::Enum(t) => format!("a member of enum `{}`", self.model.types[t].name),
        };
        self.diags.error(label.span(), format!("the case {v} of union `{union}` is not {what}"));
        None
    }

    /// Variant and spelling of a label.
    fn label_name(&self, label: &Value, value: i64, disc: Disc) -> (String, String) {
        if let Disc::Enum(t) = disc
            && let Kind::Enum { members, .. } = &self.model.types[t].kind
            && let Some(m) = members.iter().find(|m| i64::from(m.value) == value)
        {
            return (m.rust.clone(), m.name.clone());
        }
        match (disc, label) {
            (Disc::Bool, _) => {
                let (variant, text) = bool_name(value);
                (variant.to_owned(), text.to_owned())
            }
            (_, Value::Name(n)) => (names::member(&n.text), n.text.clone()),
            (_, Value::Number(n, _)) if *n < 0 => (format!("CaseMinus{}", n.unsigned_abs()), n.to_string()),
            (_, Value::Number(n, _)) => (format!("Case{n}"), n.to_string()),
        }
    }

    fn apply_pragmas(&mut self, pragmas: &[Pragma]) {
        for p in pragmas {
            if p.kind.is_about_procedure() {
                continue;
            }
            let Some(&id) = self.ids.get(&p.type_name) else {
                self.diags.error(p.span, format!("this pragma names an unknown type `{}`", p.type_name));
                continue;
            };
            let t = &mut self.model.types[id];
            let field = match &p.kind {
                PragmaKind::Exclude => {
                    t.excluded = true;
                    continue;
                }
                PragmaKind::Pages(f) => f,
                PragmaKind::Nonidempotent | PragmaKind::Blocking => continue,
            };
            let shape = match (&mut t.kind, field) {
                (Kind::Newtype(s), None) => Some(s),
                (Kind::Struct(fields), Some(f)) => {
                    fields.iter_mut().find(|x| x.name == *f).map(|x| &mut x.shape)
                }
                (Kind::Union(u), Some(f)) => {
                    let default = u.default.iter_mut().filter_map(|d| d.1.as_mut());
                    let mut bodies = u.arms.iter_mut().filter_map(|a| a.body.as_mut()).chain(default);
                    bodies.find(|x| x.name == *f).map(|x| &mut x.shape)
                }
                _ => None,
            };
            match shape {
                Some(Shape::Pages(_)) => {}
                Some(s) => {
                    if let Shape::Opaque(max) = s {
                        *s = Shape::Pages(max.clone());
                    } else {
                        self.diags.error(p.span, "only variable-length opaque data can travel as pages");
                    }
                }
                None => {
                    let help = "write `TYPE.FIELD` for a struct or union and `TYPE` for a typedef";
                    self.diags.error_help(p.span, "this pragma names no field", help);
                }
            }
        }
    }

    fn apply_proc_pragmas(&mut self, pragmas: &[Pragma]) {
        for p in pragmas.iter().filter(|p| p.kind.is_about_procedure()) {
            let versions = self.model.programs.iter_mut().flat_map(|p| &mut p.versions);
            let mut found = false;
            for proc in versions.flat_map(|v| &mut v.procs).filter(|x| x.name == p.type_name) {
                found = true;
                match p.kind {
                    PragmaKind::Nonidempotent => proc.once = true,
                    _ => proc.blocking = true,
                }
            }
            if !found {
                let message = format!("this pragma names an unknown procedure `{}`", p.type_name);
                self.diags.error(p.span, message);
            }
        }
    }

    fn number(&mut self, v: &Value) -> Option<u32> {
        let n = self.consts.eval(v, self.diags)?;
        let fits = u32::try_from(n).ok();
        if fits.is_none() {
            self.diags.error(v.span(), format!("{n} does not fit in an unsigned int"));
        }
        fits
    }

    fn programs(&mut self, programs: Vec<ast::Program>) {
        let mut values: HashMap<String, i128> =
            self.model.consts.iter().map(|c| (c.rust.clone(), c.value)).collect();
        let mut types = Unique::default();
        for t in &self.model.types {
            types.take(t.rust.clone());
            types.take(t.rust_ref.clone());
        }
        let mut numbers: HashMap<u32, String> = HashMap::new();
        let mut program_names = HashSet::new();
        for p in programs {
            if !program_names.insert(p.name.text.clone()) {
                self.diags.error(p.name.span, format!("a second program `{}`", p.name.text));
            }
            let Some(number) = self.number(&p.number) else { continue };
            if let Some(other) = numbers.insert(number, p.name.text.clone()) {
                let message = format!("program `{other}` has the number {number} already");
                self.diags.error(p.number.span(), message);
            }
            let rust_const = constant(&mut values, &p.name.text, "PROGRAM", number);
            let versions = self.versions(&p, &mut values, &mut types);
            let place = self.source.short_place(p.name.span.start);
            self.model.programs.push(Program { name: p.name.text, rust_const, number, place, versions });
        }
    }

    fn versions(
        &mut self,
        p: &ast::Program,
        values: &mut HashMap<String, i128>,
        types: &mut Unique,
    ) -> Vec<Version> {
        let mut out: Vec<Version> = Vec::new();
        for v in &p.versions {
            let Some(number) = self.number(&v.number) else { continue };
            if let Some(other) = out.iter().find(|o| o.number == number) {
                let message = format!("version `{}` has the number {number} already", other.name);
                self.diags.error(v.number.span(), message);
                continue;
            }
            if out.iter().any(|o| o.name == v.name.text) {
                self.diags.error(v.name.span, format!("a second version `{}`", v.name.text));
            }
            let base = format!("{}V{number}", names::program(&p.name.text));
            let rust_const = constant(values, &v.name.text, &p.name.text, number);
            let procs = self.procs(v, number, values);
            out.push(Version {
                name: v.name.text.clone(),
                rust_const,
                number,
                rust_trait: types.take(base.clone()),
                rust_server: types.take(format!("{base}Server")),
                rust_client: types.take(format!("{base}Client")),
                procs,
            });
        }
        out.sort_by_key(|v| v.number);
        out
    }

    fn procs(&mut self, v: &ast::Version, version: u32, values: &mut HashMap<String, i128>) -> Vec<Proc> {
        let mut out: Vec<Proc> = Vec::new();
        let mut methods = Unique::default();
        // Methods of the generated client.
        for own in ["new", "client", "from_client", "with", "finish"] {
            methods.take(own.to_owned());
        }
        for p in &v.procs {
            let Some(number) = self.number(&p.number) else { continue };
            if let Some(other) = out.iter().find(|o| o.number == number) {
                let message = format!("procedure `{}` has the number {number} already", other.name);
                self.diags.error(p.number.span(), message);
                continue;
            }
            if out.iter().any(|o| o.name == p.name.text) {
                self.diags.error(p.name.span, format!("a second procedure `{}`", p.name.text));
                continue;
            }
            if number > MAX_PROC {
                let message =
                    format!("procedure number {number} is too large: the table of a version is dense");
                self.diags.error_help(p.number.span(), message, format!("use numbers up to {MAX_PROC}"));
                continue;
            }
            let mut params = Unique::default();
            // A tuple struct's name is no name for a variable.
            params.reserve(["self"].into_iter().chain(names::LOCALS.into_iter().filter(|l| *l != "arg")));
            params.reserve(self.model.types.iter().map(|t| t.rust.as_str()));
            let single = p.args.len() == 1;
            let mut args = Vec::new();
            for (i, a) in p.args.iter().enumerate() {
                let name = match (a.name.text.is_empty(), single) {
                    (false, _) => names::snake(&a.name.text),
                    (true, true) => "arg".to_owned(),
                    (true, false) => format!("arg{}", i + 1),
                };
                let synthetic = if single { "arg".to_owned() } else { format!("arg{}", i + 1) };
                if let Some(e) = self.proc_type(a, &p.name, &synthetic) {
                    args.push((params.take(name), e));
                }
            }
            let result = p.result.as_ref().and_then(|r| self.proc_type(r, &p.name, "res"));
            out.push(Proc {
                name: p.name.text.clone(),
                rust_const: constant(values, &p.name.text, &format!("V{version}"), number),
                method: methods.take(names::snake(&p.name.text)),
                start: String::new(),
                oneway: String::new(),
                number,
                args,
                result,
                once: false,
                blocking: false,
                place: self.source.short_place(p.name.span.start),
                text: self.source.excerpt(self.text, p.span),
            });
        }
        // After all methods that the file itself names.
        for p in &mut out {
            p.start = methods.take(format!("start_{}", p.method));
            p.oneway = methods.take(format!("{}_oneway", p.method));
        }
        out.sort_by_key(|p| p.number);
        out
    }

    /// Type of an argument or result. What is more than a type's name gets a typedef of its own.
    fn proc_type(&mut self, decl: &Decl, proc: &Name, what: &str) -> Option<Elem> {
        let shape = self.shape(decl)?;
        if let Shape::One(e) = shape {
            return Some(e);
        }
        let key = format!("{}.{what}", proc.text);
        let rust = names::type_name(&key);
        let mut taken = Unique::default();
        for t in &self.model.types {
            taken.take(t.rust.clone());
            taken.take(t.rust_ref.clone());
        }
        let rust = taken.take(rust);
        let rust_ref = taken.take(format!("{}Ref", rust.trim_end_matches('_')));
        let id = self.model.types.len();
        self.model.types.push(TypeDef {
            name: key.clone(),
            rust,
            rust_ref,
            place: self.source.short_place(decl.span.start),
            kind: typedef(shape),
            excluded: false,
            facts: Facts::default(),
        });
        let name = Name { text: key, span: decl.span };
        self.raw.push(Raw { name, body: Body::Typedef(decl.clone()) });
        Some(Elem::Type(id))
    }
}

/// Largest procedure number; tables are indexed by it.
const MAX_PROC: u32 = 1023;

/// Name of an emitted constant: a name that means the same number everywhere is emitted once, other repetitions get
/// the suffix.
fn constant(values: &mut HashMap<String, i128>, name: &str, suffix: &str, value: u32) -> String {
    let mut rust = names::upper(name);
    while values.get(&rust).is_some_and(|v| *v != value.into()) {
        rust = format!("{rust}_{suffix}");
    }
    values.insert(rust.clone(), value.into());
    rust
}

/// Variant and .x spelling of a bool.
fn bool_name(value: i64) -> (&'static str, &'static str) {
    if value == 0 { ("False", "FALSE") } else { ("True", "TRUE") }
}

/// Variable-length data gets a type of its own, so that its limit travels with it; everything else an alias.
fn typedef(shape: Shape) -> Kind {
    match shape {
        Shape::Opaque(_) | Shape::Str(_) | Shape::Pages(_) | Shape::Array(..) | Shape::List(_) => {
            Kind::Newtype(shape)
        }
        Shape::One(_) | Shape::OpaqueFixed(_) | Shape::Fixed(..) | Shape::Optional { .. } => {
            Kind::Alias(shape)
        }
    }
}

/// A number with underscores between thousands.
pub(crate) fn grouped(n: i128) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            out.push('_');
        }
        out.push(c);
    }
    if n < 0 { format!("-{out}") } else { out }
}

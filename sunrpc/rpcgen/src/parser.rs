//! Recursive descent over RFC 4506 section 6.3 and RFC 5531 section 12.2.
//!
//! After an error the parser resumes at the next declaration, so that one run reports several mistakes.

use crate::ast::*;
use crate::lexer::{RESERVED, Tok};
use crate::source::{Diags, Span};

/// How deep `struct { struct { ...` may nest.
const MAX_NESTING: usize = 32;

/// The error is already reported.
struct Failed;

type Parse<T> = Result<T, Failed>;

/// Parses a token list; `text` is what it was made from.
pub(crate) fn parse(text: &str, tokens: Vec<(Tok, Span)>, diags: &mut Diags) -> Vec<Def> {
    let mut p = Parser { text, tokens, at: 0, diags, defs: Vec::new(), nesting: 0 };
    while *p.peek() != Tok::End {
        let start = p.at;
        if p.definition().is_err() {
            p.resume_after_definition(start);
        }
    }
    p.defs
}

struct Parser<'t, 'd> {
    text: &'t str,
    tokens: Vec<(Tok, Span)>,
    at: usize,
    diags: &'d mut Diags,
    defs: Vec<Def>,
    nesting: usize,
}

/// Where a declaration stands; decides what may be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Body,
    /// Arguments and results need no name.
    Proc,
}

impl Parser<'_, '_> {
    fn peek(&self) -> &Tok {
        self.tokens.get(self.at).map_or(&Tok::End, |t| &t.0)
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(Span::new(0, 0), |t| t.1)
    }

    /// Span of the token before the current one.
    fn previous(&self) -> Span {
        self.tokens.get(self.at.saturating_sub(1)).map_or(Span::new(0, 0), |t| t.1)
    }

    fn bump(&mut self) {
        // The list ends with `End`, which stays current.
        self.at = (self.at + 1).min(self.tokens.len().saturating_sub(1));
    }

    fn is(&self, c: char) -> bool {
        *self.peek() == Tok::Punct(c)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Tok::Ident(s) if s == word)
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.is(c);
        if hit {
            self.bump();
        }
        hit
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let hit = self.is_word(word);
        if hit {
            self.bump();
        }
        hit
    }

    fn unexpected<T>(&mut self, wanted: &str) -> Parse<T> {
        let message = format!("expected {wanted}, found {}", self.peek().describe());
        // A missing `;` is a fault of the line before.
        let span = if wanted == "`;`" {
            let end = self.previous().end;
            Span::new(end.saturating_sub(1), end)
        } else {
            self.span()
        };
        self.diags.error(span, message);
        Err(Failed)
    }

    fn expect(&mut self, c: char) -> Parse<()> {
        if self.eat(c) { Ok(()) } else { self.unexpected(&format!("`{c}`")) }
    }

    fn expect_word(&mut self, word: &str) -> Parse<()> {
        if self.eat_word(word) { Ok(()) } else { self.unexpected(&format!("`{word}`")) }
    }

    fn name(&mut self, what: &str) -> Parse<Name> {
        let span = self.span();
        match self.peek() {
            // `program` and `version` are ordinary names in plain XDR; peers' files do use them for fields.
            Tok::Ident(s)
                if !RESERVED.contains(&s.as_str()) || matches!(s.as_str(), "program" | "version") =>
            {
                let text = s.clone();
                self.bump();
                Ok(Name { text, span })
            }
            Tok::Ident(s) => {
                let message = format!("`{s}` is a reserved word; {what} needs another name");
                self.diags.error(span, message);
                Err(Failed)
            }
            _ => self.unexpected(what),
        }
    }

    fn value(&mut self) -> Parse<Value> {
        let span = self.span();
        match self.peek() {
            Tok::Number(n) => {
                let n = *n;
                self.bump();
                Ok(Value::Number(n, span))
            }
            _ => Ok(Value::Name(self.name("a number or the name of a constant")?)),
        }
    }

    fn assigned(&mut self) -> Parse<Value> {
        self.expect('=')?;
        self.value()
    }

    fn definition(&mut self) -> Parse<()> {
        let word = match self.peek() {
            Tok::Ident(s) => s.clone(),
            _ => String::new(),
        };
        let wanted = "`const`, `typedef`, `enum`, `struct`, `union` or `program`";
        match word.as_str() {
            "const" => {
                self.bump();
                let name = self.name("the name of the constant")?;
                let value = self.assigned()?;
                self.defs.push(Def::Const { name, value, define: false });
            }
            "typedef" => {
                self.bump();
                if self.is_word("void") {
                    self.diags.error(self.span(), "a typedef cannot be void");
                    return Err(Failed);
                }
                let decl = self.declaration(Place::Body)?;
                self.defs.push(Def::Type { name: decl.name.clone(), body: Box::new(Body::Typedef(decl)) });
            }
            "enum" | "struct" | "union" => {
                self.bump();
                let name = self.name(&format!("the name of the {word}"))?;
                let body = match word.as_str() {
                    "enum" => self.enum_body()?,
                    "struct" => self.struct_body()?,
                    _ => self.union_body()?,
                };
                self.defs.push(Def::Type { name, body: Box::new(body) });
            }
            "program" => {
                self.bump();
                let program = self.program()?;
                self.defs.push(Def::Program(program));
            }
            _ => {
                if self.is(';') {
                    // `};;` is common and harmless.
                    self.bump();
                    return Ok(());
                }
                return self.unexpected(wanted);
            }
        }
        self.expect(';')
    }

    /// Skips to the end of the definition that began at token `start` and failed at the current one.
    fn resume_after_definition(&mut self, start: usize) {
        let failed = self.at;
        let mut depth = 0usize;
        self.at = start;
        loop {
            let fresh = self.at > failed.max(start) && self.begins_definition();
            match self.peek() {
                Tok::End => return,
                _ if fresh => return,
                Tok::Punct('{') => depth += 1,
                Tok::Punct('}') => depth = depth.saturating_sub(1),
                Tok::Punct(';') if depth == 0 && self.at >= failed => {
                    self.bump();
                    return;
                }
                _ => {}
            }
            self.bump();
        }
    }

    /// A definition's keyword in the first column.
    fn begins_definition(&self) -> bool {
        let start = self.span().start;
        let first = start == 0 || self.text.as_bytes().get(start - 1) == Some(&b'\n');
        let words = ["const", "typedef", "enum", "struct", "union", "program"];
        first && matches!(self.peek(), Tok::Ident(s) if words.contains(&s.as_str()))
    }

    /// After a failed item of a `{}` body: skips behind the next `;` (or `,`) of that body, or to its `}`.
    fn resume_in_body(&mut self, separator: char) -> Parse<()> {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                Tok::End => return Err(Failed),
                _ if self.begins_definition() => return Err(Failed),
                Tok::Punct('{') => depth += 1,
                Tok::Punct('}') if depth == 0 => return Ok(()),
                Tok::Punct('}') => depth -= 1,
                Tok::Punct(c) if *c == separator && depth == 0 => {
                    self.bump();
                    return Ok(());
                }
                _ => {}
            }
            self.bump();
        }
    }

    fn enum_body(&mut self) -> Parse<Body> {
        self.expect('{')?;
        let mut members = Vec::new();
        loop {
            // A comma before `}` is common.
            if !members.is_empty() && self.eat('}') {
                return Ok(Body::Enum(members));
            }
            let member = |p: &mut Self| {
                let name = p.name("the name of an enum member")?;
                let value = if p.is('=') { Some(p.assigned()?) } else { None };
                Ok(Member { name, value })
            };
            match member(self) {
                Ok(m) => {
                    members.push(m);
                    if !self.eat(',') && !self.is('}') {
                        return self.unexpected("`,` or `}`");
                    }
                }
                Err(Failed) => {
                    self.resume_in_body(',')?;
                    if self.eat('}') {
                        return Ok(Body::Enum(members));
                    }
                }
            }
        }
    }

    fn struct_body(&mut self) -> Parse<Body> {
        self.expect('{')?;
        let mut fields = Vec::new();
        if self.is('}') {
            self.diags.error(self.span(), "a struct needs at least one member");
            return Err(Failed);
        }
        while !self.eat('}') {
            match self.field() {
                Ok(f) => fields.push(f),
                Err(Failed) => self.resume_in_body(';')?,
            }
        }
        Ok(Body::Struct(fields))
    }

    fn field(&mut self) -> Parse<Decl> {
        if self.is_word("void") {
            self.diags
                .error(self.span(), "void is permitted only as an arm of a union, an argument or a result");
            return Err(Failed);
        }
        let decl = self.declaration(Place::Body)?;
        self.expect(';')?;
        Ok(decl)
    }

    fn union_body(&mut self) -> Parse<Body> {
        self.expect_word("switch")?;
        self.expect('(')?;
        let discriminant = self.declaration(Place::Body)?;
        self.expect(')')?;
        self.expect('{')?;
        let mut arms = Vec::new();
        let mut default = None;
        if self.is('}') {
            self.diags.error(self.span(), "a union needs at least one `case`");
            return Err(Failed);
        }
        while !self.eat('}') {
            if self.arm(&mut arms, &mut default).is_err() {
                self.resume_in_body(';')?;
            }
        }
        Ok(Body::Union(Box::new(Union { discriminant, arms, default })))
    }

    fn arm(&mut self, arms: &mut Vec<Arm>, default: &mut Option<(Span, Option<Decl>)>) -> Parse<()> {
        let span = self.span();
        if self.eat_word("default") {
            self.expect(':')?;
            let decl = self.arm_body()?;
            if default.is_some() {
                self.diags.error(span, "a second `default` arm");
                return Ok(());
            }
            *default = Some((span, decl));
            return Ok(());
        }
        let mut labels = Vec::new();
        while self.eat_word("case") {
            labels.push(self.value()?);
            self.expect(':')?;
        }
        if labels.is_empty() {
            return self.unexpected("`case` or `default`");
        }
        if self.is_word("default") {
            let help = "the default arm covers these values already: remove the `case` labels";
            self.diags.error_help(self.span(), "`case` and `default` cannot share an arm", help);
            return Err(Failed);
        }
        let decl = self.arm_body()?;
        arms.push(Arm { labels, decl });
        Ok(())
    }

    fn arm_body(&mut self) -> Parse<Option<Decl>> {
        let decl = if self.eat_word("void") { None } else { Some(self.declaration(Place::Body)?) };
        self.expect(';')?;
        Ok(decl)
    }

    fn declaration(&mut self, place: Place) -> Parse<Decl> {
        let start = self.span();
        let spec = self.specifier()?;
        let spec_span = start.to(self.previous());
        let pointer = self.is('*').then(|| self.span());
        if pointer.is_some() {
            self.bump();
        }
        let unnamed = place == Place::Proc && !matches!(self.peek(), Tok::Ident(_));
        let name = if unnamed { Name { text: String::new(), span: spec_span } } else { self.name("a name")? };
        let suffix = self.span();
        let shape = if self.eat('[') {
            let n = self.value()?;
            self.expect(']')?;
            Shape::Fixed(n)
        } else if self.eat('<') {
            let n = if self.is('>') { None } else { Some(self.value()?) };
            self.expect('>')?;
            Shape::Variable(n)
        } else {
            Shape::Plain
        };
        let span = start.to(self.previous());
        if self.is('[') || self.is('<') {
            let help = "XDR arrays have one dimension: give the inner array a name with `typedef`";
            self.diags.error_help(self.span(), "an array of arrays", help);
            return Err(Failed);
        }
        let shape = match (pointer, shape) {
            (Some(_), Shape::Plain) => Shape::Pointer,
            (Some(_), _) => {
                let help = "give the pointer a name with `typedef` and declare an array of that";
                self.diags.error_help(suffix, "`*` and an array size in one declaration", help);
                return Err(Failed);
            }
            (None, s) => s,
        };
        let shape = match (&spec, shape) {
            (Spec::String, Shape::Plain) if place == Place::Proc => Shape::Variable(None),
            (Spec::String, Shape::Plain | Shape::Fixed(_) | Shape::Pointer) => {
                let help = format!("write `string {0}<>` or `string {0}<MAX>`", name.text);
                self.diags.error_help(span, "a string has variable length", help);
                return Err(Failed);
            }
            (Spec::Opaque, Shape::Plain | Shape::Pointer) => {
                let help = format!("write `opaque {0}[N]`, `opaque {0}<MAX>` or `opaque {0}<>`", name.text);
                self.diags.error_help(span, "opaque data needs a length", help);
                return Err(Failed);
            }
            (_, s) => s,
        };
        Ok(Decl { spec, spec_span, shape, name, span })
    }

    fn specifier(&mut self) -> Parse<Spec> {
        let span = self.span();
        let Tok::Ident(word) = self.peek() else { return self.unexpected("a type") };
        let word = word.clone();
        let spec = match word.as_str() {
            "int" => Spec::Scalar(Scalar::Int),
            "hyper" => Spec::Scalar(Scalar::Hyper),
            "float" => Spec::Scalar(Scalar::Float),
            "double" => Spec::Scalar(Scalar::Double),
            "bool" => Spec::Scalar(Scalar::Bool),
            "opaque" => Spec::Opaque,
            "string" => Spec::String,
            "unsigned" => {
                self.bump();
                let wide = self.eat_word("hyper");
                // `long`, `short` and `char` are 32 bits on the wire for every rpcgen.
                if !wide && !self.eat_word("int") && ["long", "short", "char"].iter().any(|w| self.is_word(w))
                {
                    self.bump();
                    self.eat_word("int");
                }
                return Ok(Spec::Scalar(if wide { Scalar::Uhyper } else { Scalar::Uint }));
            }
            "quadruple" => {
                let help = "use `opaque NAME[16]` and convert in the program";
                self.diags.error_help(span, "quadruple-precision numbers are not supported", help);
                return Err(Failed);
            }
            "void" => {
                self.diags.error(span, "void is not permitted here");
                return Err(Failed);
            }
            "struct" | "enum" | "union" => {
                self.bump();
                return self.inline(&word);
            }
            "long" | "short" => {
                self.bump();
                self.eat_word("int");
                return Ok(Spec::Named(Name { text: word, span }));
            }
            _ => return Ok(Spec::Named(self.name("a type")?)),
        };
        self.bump();
        Ok(spec)
    }

    /// Behind `struct`, `enum` or `union` in a declaration: a reference or a definition.
    fn inline(&mut self, word: &str) -> Parse<Spec> {
        let tag = match self.peek() {
            Tok::Ident(s) if s != "switch" => Some(self.name("a type")?),
            _ => None,
        };
        let defines = self.is('{') || self.is_word("switch");
        let Some(tag) = tag else { return self.inline_body(word).map(|b| Spec::Inline(Box::new(b))) };
        if defines {
            let body = self.inline_body(word)?;
            self.defs.push(Def::Type { name: tag.clone(), body: Box::new(body) });
        }
        Ok(Spec::Named(tag))
    }

    fn inline_body(&mut self, word: &str) -> Parse<Body> {
        if self.nesting >= MAX_NESTING {
            self.diags.error(self.span(), format!("more than {MAX_NESTING} nested definitions"));
            return Err(Failed);
        }
        self.nesting += 1;
        let body = match word {
            "enum" => self.enum_body(),
            "struct" => self.struct_body(),
            _ => self.union_body(),
        };
        self.nesting -= 1;
        body
    }

    fn program(&mut self) -> Parse<Program> {
        let name = self.name("the name of the program")?;
        self.expect('{')?;
        let mut versions = Vec::new();
        while !self.eat('}') {
            if self.begins_definition() {
                return self.unexpected("`version` or `}`");
            }
            self.expect_word("version")?;
            versions.push(self.version()?);
        }
        if versions.is_empty() {
            self.diags.error(name.span, format!("program `{}` has no version", name.text));
        }
        let number = self.assigned()?;
        Ok(Program { name, versions, number })
    }

    fn version(&mut self) -> Parse<Version> {
        let name = self.name("the name of the version")?;
        self.expect('{')?;
        let mut procs = Vec::new();
        while !self.eat('}') {
            match self.procedure() {
                Ok(p) => procs.push(p),
                Err(Failed) => self.resume_in_body(';')?,
            }
        }
        let number = self.assigned()?;
        self.expect(';')?;
        Ok(Version { name, procs, number })
    }

    fn procedure(&mut self) -> Parse<Proc> {
        let start = self.span();
        let result = if self.eat_word("void") { None } else { Some(self.result()?) };
        let name = self.name("the name of the procedure")?;
        self.expect('(')?;
        let mut args = Vec::new();
        let void = self.eat_word("void");
        if !void && !self.is(')') {
            loop {
                args.push(self.declaration(Place::Proc)?);
                if !self.eat(',') {
                    break;
                }
            }
        }
        self.expect(')')?;
        let number = self.assigned()?;
        self.expect(';')?;
        Ok(Proc { name, result, args, number, span: start.to(self.previous()) })
    }

    /// A result's type. The name that follows belongs to the procedure.
    fn result(&mut self) -> Parse<Decl> {
        let start = self.span();
        let spec = self.specifier()?;
        let spec_span = start.to(self.previous());
        let shape = if self.eat('*') {
            Shape::Pointer
        } else if matches!(spec, Spec::String) {
            if self.eat('<') {
                let n = if self.is('>') { None } else { Some(self.value()?) };
                self.expect('>')?;
                Shape::Variable(n)
            } else {
                Shape::Variable(None)
            }
        } else if matches!(spec, Spec::Opaque) {
            let help = "give the result a name with `typedef opaque NAME<>;`";
            self.diags.error_help(spec_span, "opaque data needs a length", help);
            return Err(Failed);
        } else {
            Shape::Plain
        };
        let name = Name { text: String::new(), span: spec_span };
        Ok(Decl { spec, spec_span, shape, name, span: start.to(self.previous()) })
    }
}

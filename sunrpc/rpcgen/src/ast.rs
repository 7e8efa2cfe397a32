//! What the parser found, names not yet resolved.

use crate::source::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// A constant or the name of one.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(i128, Span),
    Name(Name),
}

impl Value {
    pub(crate) fn span(&self) -> Span {
        match self {
            Value::Number(_, span) => *span,
            Value::Name(n) => n.span,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Int,
    Uint,
    Hyper,
    Uhyper,
    Float,
    Double,
    Bool,
}

/// A type specifier.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Scalar(Scalar),
    Named(Name),
    Opaque,
    String,
    /// `struct { ... }` and its like inside a declaration.
    Inline(Box<Body>),
}

/// What a declarator makes of the specifier.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Plain,
    Pointer,
    Fixed(Value),
    /// `<n>` or `<>`.
    Variable(Option<Value>),
}

#[derive(Clone, Debug)]
pub(crate) struct Decl {
    pub(crate) spec: Spec,
    pub(crate) spec_span: Span,
    pub(crate) shape: Shape,
    pub(crate) name: Name,
    /// The whole declaration without `;`.
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: Name,
    pub(crate) value: Option<Value>,
}

#[derive(Clone, Debug)]
pub(crate) struct Arm {
    pub(crate) labels: Vec<Value>,
    /// `None`: void.
    pub(crate) decl: Option<Decl>,
}

#[derive(Clone, Debug)]
pub(crate) struct Union {
    pub(crate) discriminant: Decl,
    pub(crate) arms: Vec<Arm>,
    /// `Some(None)`: `default: void`.
    pub(crate) default: Option<(Span, Option<Decl>)>,
}

/// The body of a type definition.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Enum(Vec<Member>),
    Struct(Vec<Decl>),
    Union(Box<Union>),
    /// `typedef`; the declarator's name is the new type.
    Typedef(Decl),
}

/// An argument or result: `None` is void.
pub(crate) type ProcType = Option<Decl>;

#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub(crate) name: Name,
    pub(crate) result: ProcType,
    pub(crate) args: Vec<Decl>,
    pub(crate) number: Value,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: Name,
    pub(crate) procs: Vec<Proc>,
    pub(crate) number: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: Name,
    pub(crate) versions: Vec<Version>,
    pub(crate) number: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Def {
    Const { name: Name, value: Value, define: bool },
    Type { name: Name, body: Box<Body> },
    Program(Program),
}

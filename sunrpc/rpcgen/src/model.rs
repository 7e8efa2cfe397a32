//! The resolved file: every name looked up, every size known, every Rust name chosen.

pub(crate) use crate::ast::Scalar;

/// Index into [`Model::types`].
pub(crate) type TypeId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elem {
    Scalar(Scalar),
    Type(TypeId),
}

/// A declared maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Max {
    pub(crate) value: u32,
    /// Rust expression for it.
    pub(crate) expr: String,
}

/// What a declaration holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One(Elem),
    OpaqueFixed(u32),
    Opaque(Max),
    Str(Max),
    /// Opaque marked `pages`.
    Pages(Max),
    Fixed(Elem, u32),
    Array(Elem, Max),
    /// `boxed`: the value can contain another of the type that holds it.
    Optional {
        of: Elem,
        boxed: bool,
    },
    /// Pointer to a node whose last member pointed to the next.
    List(TypeId),
}

impl Shape {
    /// The element type, however it is held.
    pub(crate) fn elem(&self) -> Option<Elem> {
        match self {
            Shape::One(e) | Shape::Fixed(e, _) | Shape::Array(e, _) | Shape::Optional { of: e, .. } => {
                Some(*e)
            }
            Shape::List(t) => Some(Elem::Type(*t)),
            Shape::OpaqueFixed(_) | Shape::Opaque(_) | Shape::Str(_) | Shape::Pages(_) => None,
        }
    }

    /// The type whose values are part of this one's memory.
    pub(crate) fn inline(&self) -> Option<TypeId> {
        match self {
            Shape::One(Elem::Type(t)) | Shape::Fixed(Elem::Type(t), _) => Some(*t),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Name in the .x file.
    pub(crate) name: String,
    pub(crate) rust: String,
    pub(crate) shape: Shape,
    /// The declaration as written.
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) rust: String,
    pub(crate) value: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disc {
    Int,
    Uint,
    Bool,
    Enum(TypeId),
}

/// One `case` label; each becomes a variant.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) value: i64,
    /// The variant.
    pub(crate) rust: String,
    /// The label as written.
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Arm {
    pub(crate) labels: Vec<Label>,
    /// `None`: void.
    pub(crate) body: Option<Field>,
}

#[derive(Clone, Debug)]
pub(crate) struct Union {
    pub(crate) disc: Disc,
    /// Name of the discriminant in the .x file.
    pub(crate) disc_name: String,
    pub(crate) arms: Vec<Arm>,
    /// `Some(None)`: `default: void`. Absent if the labels leave no value over.
    pub(crate) default: Option<(String, Option<Field>)>,
    /// The labels cover every value of the discriminant.
    pub(crate) complete: bool,
}

impl Union {
    /// All bodies, default included.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = Option<&Field>> {
        self.arms.iter().map(|a| a.body.as_ref()).chain(self.default.iter().map(|d| d.1.as_ref()))
    }

    /// The type under `switch (bool)` with a value for TRUE and nothing for FALSE: optional data by another name.
    pub(crate) fn as_option(&self) -> Option<Elem> {
        let on = self.arms.iter().find(|a| a.labels.iter().any(|l| l.value == 1))?;
        let off = match self.arms.iter().find(|a| a.labels.iter().any(|l| l.value == 0)) {
            Some(arm) => arm.body.is_none(),
            None => matches!(self.default, Some((_, None))),
        };
        match on.body.as_ref()?.shape {
            Shape::One(e) if self.disc == Disc::Bool && off => Some(e),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Enum {
        members: Vec<Member>,
        aliases: Vec<(Member, String)>,
    },
    Struct(Vec<Field>),
    Union(Union),
    /// A Rust `type`.
    Alias(Shape),
    /// A Rust tuple struct: the typedef carries a limit of its own.
    Newtype(Shape),
}

impl Kind {
    pub(crate) fn shapes(&self) -> Vec<&Shape> {
        match self {
            Kind::Enum { .. } => Vec::new(),
            Kind::Struct(fields) => fields.iter().map(|f| &f.shape).collect(),
            Kind::Union(u) => u.bodies().flatten().map(|f| &f.shape).collect(),
            Kind::Alias(s) | Kind::Newtype(s) => vec![s],
        }
    }

    pub(crate) fn shapes_mut(&mut self) -> Vec<&mut Shape> {
        match self {
            Kind::Enum { .. } => Vec::new(),
            Kind::Struct(fields) => fields.iter_mut().map(|f| &mut f.shape).collect(),
            Kind::Union(u) => {
                let default = u.default.iter_mut().filter_map(|d| d.1.as_mut());
                u.arms
                    .iter_mut()
                    .filter_map(|a| a.body.as_mut())
                    .chain(default)
                    .map(|f| &mut f.shape)
                    .collect()
            }
            Kind::Alias(s) | Kind::Newtype(s) => vec![s],
        }
    }
}

/// Properties that follow from the definition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Fewest bytes on the wire.
    pub(crate) min: u64,
    /// Most bytes on the wire; `u64::MAX` is no bound.
    pub(crate) max: u64,
    /// Holds variable-length data, so there is a borrowed form.
    pub(crate) borrows: bool,
    /// Can contain another value of its own type.
    pub(crate) recursive: bool,
    /// Holds a field marked `pages`.
    pub(crate) pages: bool,
    /// Holds an array or a list, whose borrowed form is decoded when it is iterated.
    pub(crate) lazy: bool,
    /// Holds a `Box`.
    pub(crate) boxes: bool,
    /// Holds floating point numbers: equality is not total.
    pub(crate) inexact: bool,
    /// Has a default.
    pub(crate) default: bool,
    /// Is or mentions a type that is written by hand.
    pub(crate) outside: bool,
    /// A node of a flattened list.
    pub(crate) node: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeDef {
    /// Name in the .x file; nested anonymous types are named after the place.
    pub(crate) name: String,
    pub(crate) rust: String,
    /// Name of the borrowed form.
    pub(crate) rust_ref: String,
    /// `file.x:12`.
    pub(crate) place: String,
    pub(crate) kind: Kind,
    pub(crate) excluded: bool,
    pub(crate) facts: Facts,
}

#[derive(Clone, Debug)]
pub(crate) struct Const {
    pub(crate) name: String,
    pub(crate) rust: String,
    pub(crate) value: i128,
    pub(crate) place: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub(crate) name: String,
    pub(crate) rust_const: String,
    pub(crate) method: String,
    /// The client's methods that start a call, and make a call without a reply.
    pub(crate) start: String,
    pub(crate) oneway: String,
    pub(crate) number: u32,
    /// Parameter names and types.
    pub(crate) args: Vec<(String, Elem)>,
    pub(crate) result: Option<Elem>,
    /// Marked `nonidempotent`.
    pub(crate) once: bool,
    /// Marked `blocking`.
    pub(crate) blocking: bool,
    pub(crate) place: String,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) rust_const: String,
    pub(crate) number: u32,
    /// The server trait.
    pub(crate) rust_trait: String,
    pub(crate) rust_server: String,
    pub(crate) rust_client: String,
    pub(crate) procs: Vec<Proc>,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) rust_const: String,
    pub(crate) number: u32,
    pub(crate) place: String,
    pub(crate) versions: Vec<Version>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) consts: Vec<Const>,
    pub(crate) types: Vec<TypeDef>,
    pub(crate) programs: Vec<Program>,
}

impl Model {
    /// Follows aliases to what a type really is.
    pub(crate) fn resolve(&self, mut elem: Elem) -> Elem {
        // A cycle of aliases is reported before anybody asks; the bound only keeps a wrong call finite.
        for _ in 0..=self.types.len() {
            match elem {
                Elem::Type(t) => match self.types.get(t).map(|t| &t.kind) {
                    Some(Kind::Alias(Shape::One(next))) => elem = *next,
                    _ => return elem,
                },
                Elem::Scalar(_) => return elem,
            }
        }
        elem
    }

    /// Length, if the type is a typedef of fixed-length opaque data. That is a byte array in Rust, which has no codec
    /// of its own.
    pub(crate) fn opaque_len(&self, elem: Elem) -> Option<u32> {
        match self.resolve(elem) {
            Elem::Type(t) => match self.types.get(t).map(|t| &t.kind) {
                Some(Kind::Alias(Shape::OpaqueFixed(n))) => Some(*n),
                _ => None,
            },
            Elem::Scalar(_) => None,
        }
    }
}

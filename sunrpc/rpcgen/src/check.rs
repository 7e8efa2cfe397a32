//! What follows from the definitions taken together: recursion, flattened lists, sizes.

use crate::model::*;
use crate::source::{Diags, Span};
use std::collections::HashSet;

/// Fills in what single definitions do not tell. `spans` are the places of the types.
pub(crate) fn check(model: &mut Model, spans: &[Span], diags: &mut Diags) {
    endless(model, spans, diags);
    if diags.failed() {
        return;
    }
    flatten_lists(model);
    wrap_aliases(model);
    recursion(model);
    sizes(model);
    properties(model);
}

/// Reports types that contain themselves without a pointer or an array between.
fn endless(model: &Model, spans: &[Span], diags: &mut Diags) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Closed,
    }
    let inner = |t: TypeId| -> Vec<TypeId> {
        let def = &model.types[t];
        let mut out: Vec<TypeId> = def.kind.shapes().into_iter().filter_map(Shape::inline).collect();
        // An alias of a pointer to itself has no memory of its own either.
        if let Kind::Alias(Shape::Optional { of: Elem::Type(o), .. }) = &def.kind
            && matches!(model.types[*o].kind, Kind::Alias(_))
        {
            out.push(*o);
        }
        out
    };
    let mut marks = vec![Mark::New; model.types.len()];
    for root in 0..model.types.len() {
        if marks[root] != Mark::New {
            continue;
        }
        // An explicit stack: a file may nest as deep as it likes.
        let mut stack = vec![(root, inner(root))];
        marks[root] = Mark::Open;
        while let Some((t, rest)) = stack.last_mut() {
            let t = *t;
            match rest.pop() {
                Some(next) if marks[next] == Mark::Open => {
                    let message = format!(
                        "a value of `{}` would contain another one without end",
                        model.types[next].name
                    );
                    let help = "put `*` between them, so that it can end";
                    diags.error_help(spans[next], message, help);
                }
                Some(next) if marks[next] == Mark::New => {
                    marks[next] = Mark::Open;
                    stack.push((next, inner(next)));
                }
                Some(_) => {}
                None => {
                    marks[t] = Mark::Closed;
                    stack.pop();
                }
            }
        }
    }
}

/// Finds `struct node { ...; node *next; }` and turns pointers to such nodes into lists.
///
/// A node that also occurs by value, or that points to its own kind in more places than its end, stays as it is:
/// optional data, nested up to the depth limit.
fn flatten_lists(model: &mut Model) {
    let resolve = |e: Elem| model.resolve(e);
    // Pointers, seen through aliases of pointers.
    let pointee = |s: &Shape| -> Option<TypeId> {
        let s = match s {
            Shape::One(e) => match resolve(*e) {
                Elem::Type(t) => match &model.types[t].kind {
                    Kind::Alias(s @ Shape::Optional { .. }) => s,
                    _ => return None,
                },
                Elem::Scalar(_) => return None,
            },
            s => s,
        };
        match s {
            Shape::Optional { of, .. } => match resolve(*of) {
                Elem::Type(t) => Some(t),
                Elem::Scalar(_) => None,
            },
            _ => None,
        }
    };
    let mut by_value: HashSet<TypeId> = HashSet::new();
    let mut value = |e: Elem| {
        if let Elem::Type(t) = resolve(e) {
            by_value.insert(t);
        }
    };
    for t in &model.types {
        for s in t.kind.shapes() {
            match s {
                Shape::One(_) if matches!(t.kind, Kind::Alias(_)) => {}
                Shape::One(e) | Shape::Fixed(e, _) | Shape::Array(e, _) => value(*e),
                _ => {}
            }
        }
    }
    for p in model.programs.iter().flat_map(|p| &p.versions).flat_map(|v| &v.procs) {
        p.args.iter().map(|a| a.1).chain(p.result).for_each(&mut value);
    }
    let mut nodes = HashSet::new();
    for (id, t) in model.types.iter().enumerate() {
        let Kind::Struct(fields) = &t.kind else { continue };
        let own = fields.iter().filter(|f| pointee(&f.shape) == Some(id)).count();
        let last = fields.last().is_some_and(|f| pointee(&f.shape) == Some(id));
        if last && own == 1 && fields.len() > 1 && !by_value.contains(&id) && !t.excluded {
            nodes.insert(id);
        }
    }
    let targets: Vec<Vec<Option<TypeId>>> = model
        .types
        .iter()
        .map(|t| {
            let direct =
                |s: &Shape| pointee(s).filter(|n| nodes.contains(n) && matches!(s, Shape::Optional { .. }));
            t.kind.shapes().into_iter().map(direct).collect()
        })
        .collect();
    for (t, targets) in model.types.iter_mut().zip(targets) {
        for (s, target) in t.kind.shapes_mut().into_iter().zip(targets) {
            if let Some(node) = target {
                *s = Shape::List(node);
            }
        }
    }
    for id in nodes {
        if let Some(t) = model.types.get_mut(id) {
            t.facts.node = true;
            if let Kind::Struct(fields) = &mut t.kind {
                fields.pop();
            }
        }
    }
}

/// Aliases of what has no codec of its own in `sunrpc` become tuple structs.
fn wrap_aliases(model: &mut Model) {
    for id in 0..model.types.len() {
        let wrap = match &model.types[id].kind {
            Kind::Alias(Shape::List(_)) => true,
            Kind::Alias(Shape::Fixed(e, _) | Shape::Optional { of: e, .. }) => model.opaque_len(*e).is_some(),
            _ => false,
        };
        if wrap
            && let Some(t) = model.types.get_mut(id)
            && let Kind::Alias(s) = &t.kind
        {
            t.kind = Kind::Newtype(s.clone());
        }
    }
}

/// Types that `from` mentions, itself only if on a cycle.
fn reachable(model: &Model, from: TypeId) -> HashSet<TypeId> {
    let next = |t: TypeId| {
        let shapes = model.types.get(t).map(|t| t.kind.shapes()).unwrap_or_default();
        shapes.into_iter().filter_map(Shape::elem).filter_map(|e| match e {
            Elem::Type(t) => Some(t),
            Elem::Scalar(_) => None,
        })
    };
    let mut seen = HashSet::new();
    let mut todo: Vec<TypeId> = next(from).collect();
    while let Some(t) = todo.pop() {
        if seen.insert(t) {
            todo.extend(next(t));
        }
    }
    seen
}

fn recursion(model: &mut Model) {
    let reach: Vec<HashSet<TypeId>> = (0..model.types.len()).map(|t| reachable(model, t)).collect();
    for (id, t) in model.types.iter_mut().enumerate() {
        t.facts.recursive = reach[id].contains(&id);
        for s in t.kind.shapes_mut() {
            if let Shape::Optional { of: Elem::Type(o), boxed } = s {
                *boxed = *o == id || reach[*o].contains(&id);
            }
        }
    }
}

/// Bytes of an opaque on the wire, without its length.
fn padded(n: u32) -> u64 {
    (u64::from(n) + 3) & !3
}

/// A total over the parts of a type: `sum` in a struct, `pick` among the arms of a union.
fn total(kind: &Kind, part: impl Fn(&Shape) -> u64, pick: fn(u64, u64) -> u64) -> u64 {
    match kind {
        Kind::Enum { .. } => 4,
        Kind::Struct(fields) => fields.iter().map(|f| part(&f.shape)).fold(0, u64::saturating_add),
        Kind::Union(u) => {
            let arms = u.bodies().map(|b| b.map_or(0, |f| part(&f.shape)));
            arms.reduce(pick).unwrap_or(0).saturating_add(4)
        }
        Kind::Alias(s) | Kind::Newtype(s) => part(s),
    }
}

fn sizes(model: &mut Model) {
    // Least sizes grow from zero until nothing changes; types are as many rounds deep as there are types at most.
    for _ in 0..=model.types.len() {
        let min: Vec<u64> = model.types.iter().map(|t| least(model, t)).collect();
        let mut changed = false;
        for (t, min) in model.types.iter_mut().zip(min) {
            changed |= t.facts.min != min;
            t.facts.min = min;
        }
        if !changed {
            break;
        }
    }
    // A recursive type has no greatest size; the others are known once what they hold is.
    let mut known: Vec<Option<u64>> =
        model.types.iter().map(|t| (t.facts.recursive || t.excluded).then_some(u64::MAX)).collect();
    for _ in 0..=model.types.len() {
        for (id, t) in model.types.iter().enumerate() {
            if known[id].is_some() {
                continue;
            }
            let ready = |s: &&Shape| !matches!(s.elem(), Some(Elem::Type(e)) if known[e].is_none());
            if t.kind.shapes().iter().all(ready) {
                let size = |e: &Elem| elem_size(e, |t| known[t].unwrap_or(u64::MAX));
                known[id] = Some(total(&t.kind, |s| greatest_shape(s, size), u64::max));
            }
        }
    }
    for (t, max) in model.types.iter_mut().zip(known) {
        t.facts.max = max.unwrap_or(u64::MAX);
    }
}

fn elem_size(e: &Elem, of: impl Fn(TypeId) -> u64) -> u64 {
    match e {
        Elem::Scalar(Scalar::Hyper | Scalar::Uhyper | Scalar::Double) => 8,
        Elem::Scalar(_) => 4,
        Elem::Type(t) => of(*t),
    }
}

fn least(model: &Model, t: &TypeDef) -> u64 {
    if t.excluded {
        return 0;
    }
    let size = |e: &Elem| elem_size(e, |t| model.types[t].facts.min);
    let part = |s: &Shape| match s {
        Shape::One(e) => size(e),
        Shape::OpaqueFixed(n) => padded(*n),
        Shape::Fixed(e, n) => size(e).saturating_mul(u64::from(*n)),
        Shape::Opaque(_) | Shape::Str(_) | Shape::Pages(_) | Shape::Array(..) => 4,
        Shape::Optional { .. } | Shape::List(_) => 4,
    };
    total(&t.kind, part, u64::min)
}

fn greatest_shape(s: &Shape, size: impl Fn(&Elem) -> u64) -> u64 {
    match s {
        Shape::One(e) => size(e),
        Shape::OpaqueFixed(n) => padded(*n),
        Shape::Fixed(e, n) => size(e).saturating_mul(u64::from(*n)),
        Shape::Opaque(m) | Shape::Str(m) | Shape::Pages(m) => padded(m.value) + 4,
        Shape::Array(e, m) => size(e).saturating_mul(u64::from(m.value)).saturating_add(4),
        Shape::Optional { of, .. } => size(of).saturating_add(4),
        Shape::List(_) => u64::MAX,
    }
}

/// Sets `flag` on every type that has a shape for which `is` holds or that mentions a flagged type.
fn spread(model: &mut Model, is: fn(&Shape) -> bool, get: fn(&mut Facts) -> &mut bool) {
    loop {
        let flagged: Vec<bool> = model
            .types
            .iter()
            .map(|t| {
                let holds = |s: &Shape| {
                    is(s)
                        || matches!(s.elem(), Some(Elem::Type(e)) if *get(&mut model.types[e].facts.clone()))
                };
                !t.excluded && t.kind.shapes().into_iter().any(holds)
            })
            .collect();
        let mut changed = false;
        for (t, f) in model.types.iter_mut().zip(flagged) {
            let have = get(&mut t.facts);
            changed |= f && !*have;
            *have |= f;
        }
        if !changed {
            return;
        }
    }
}

fn properties(model: &mut Model) {
    let variable = |s: &Shape| {
        matches!(s, Shape::Opaque(_) | Shape::Str(_) | Shape::Pages(_) | Shape::Array(..) | Shape::List(_))
    };
    spread(model, variable, |f| &mut f.borrows);
    spread(model, |s| matches!(s, Shape::Pages(_)), |f| &mut f.pages);
    spread(model, |s| matches!(s, Shape::Array(..) | Shape::List(_)), |f| &mut f.lazy);
    spread(model, |s| matches!(s, Shape::Optional { boxed: true, .. }), |f| &mut f.boxes);
    spread(
        model,
        |s| matches!(s.elem(), Some(Elem::Scalar(Scalar::Float | Scalar::Double))),
        |f| &mut f.inexact,
    );
    // The types that an alias names must be settled first; `resolve` order is not needed, only repetition.
    for _ in 0..=model.types.len() {
        let mut changed = false;
        for id in 0..model.types.len() {
            let default = has_default(model, &model.types[id]);
            let t = &mut model.types[id];
            changed |= t.facts.default != default;
            t.facts.default = default;
        }
        if !changed {
            break;
        }
    }
    for id in 0..model.types.len() {
        let outside: bool = reachable(model, id).iter().any(|t| model.types[*t].excluded);
        model.types[id].facts.outside = outside || model.types[id].excluded;
    }
}

/// Whether `Default` can be had; grows from "no", so recursion through values never counts.
fn has_default(model: &Model, t: &TypeDef) -> bool {
    let elem = |e: &Elem| match e {
        Elem::Scalar(_) => true,
        Elem::Type(t) => model.types[*t].facts.default,
    };
    let shape = |s: &Shape| match s {
        Shape::One(e) => elem(e),
        // Rust has `Default` for arrays of up to 32 elements.
        Shape::OpaqueFixed(n) => *n <= 32,
        Shape::Fixed(e, n) => *n <= 32 && elem(e),
        _ => true,
    };
    if t.excluded {
        return false;
    }
    match &t.kind {
        Kind::Enum { .. } => false,
        Kind::Union(u) => u.as_option().is_some(),
        Kind::Struct(fields) => fields.iter().all(|f| shape(&f.shape)),
        Kind::Alias(s) | Kind::Newtype(s) => shape(s),
    }
}

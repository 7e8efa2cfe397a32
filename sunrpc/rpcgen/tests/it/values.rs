//! Values of the generated types.

use crate::every::*;
use proptest::collection::vec;
use proptest::prelude::*;
use sunrpc::page::Pages;
use sunrpc::xdr::XdrString;

pub fn a_color() -> impl Strategy<Value = color> {
    use color::*;
    prop_oneof![Just(RED), Just(GREEN), Just(BLUE), Just(NIGHT), Just(LIMIT)]
}

fn a_blob() -> impl Strategy<Value = blob> {
    vec(any::<u8>(), 0..=12).prop_map(blob)
}

fn a_label() -> impl Strategy<Value = label> {
    vec(any::<u8>(), 0..=12).prop_map(|b| label(XdrString(b)))
}

fn pages(max: usize) -> impl Strategy<Value = Pages> {
    vec(any::<u8>(), 0..=max).prop_map(|b| Pages::copy_from(&b))
}

pub fn a_scalars() -> impl Strategy<Value = scalars> {
    let ints =
        (any::<i32>(), any::<u32>(), any::<u32>(), any::<i64>(), any::<u64>(), any::<bool>(), a_color());
    let more = (any::<i32>(), any::<u32>(), any::<i32>(), any::<u32>(), any::<bool>(), any::<u32>());
    (ints, more, any::<u64>(), any::<i32>()).prop_map(|((i, u, plain, h, uh, b, c), m, u64, i32)| {
        let (l, ul, s, uc, bt, ui) = m;
        scalars { i, u, plain, h, uh, b, c, l, ul, s, uc, bt, ui, u64, i32 }
    })
}

pub fn a_bytes() -> impl Strategy<Value = bytes> {
    let short = || vec(any::<u8>(), 0..=12);
    let long = || vec(any::<u8>(), 0..40);
    (
        any::<[u8; 3]>(),
        short(),
        long(),
        short(),
        long(),
        any::<[u8; 8]>(),
        any::<[u8; 5]>(),
        a_blob(),
        a_label(),
    )
        .prop_map(|(fixed, bounded, open, name, any, v, o, b, l)| bytes {
            fixed,
            bounded,
            open,
            name: XdrString(name),
            any: XdrString(any),
            v,
            o,
            b,
            l,
        })
}

pub fn a_arrays() -> impl Strategy<Value = arrays> {
    let first = (any::<[i32; 2]>(), vec(any::<i64>(), 0..=4), vec(any::<u32>(), 0..9), any::<[i32; 3]>());
    let names = ([a_label(), a_label()], vec(a_label(), 0..=4).prop_map(labels));
    let opaque = (any::<[[u8; 8]; 2]>(), vec(any::<[u8; 8]>(), 0..=2), vec(any::<[u8; 8]>(), 0..=2));
    let options = (any::<[[u8; 8]; 2]>(), vec(a_scalars(), 0..=2), proptest::option::of(a_label()));
    let last = (any::<Option<[u8; 8]>>(), any::<Option<[u8; 8]>>(), vec(a_color(), 0..=4));
    (first, names, opaque, options, last).prop_map(|(f, n, o, p, l)| arrays {
        fixed: f.0,
        bounded: f.1,
        open: f.2,
        t: f.3,
        names: n.0,
        ls: n.1,
        vs: o.0,
        vv: o.1,
        typed: verifiers(o.2),
        pair: two_verifiers(p.0),
        many: p.1,
        maybe: p.2,
        perhaps: l.0,
        alias: maybe_verifier(l.1),
        p: palette(l.2),
    })
}

fn a_bulk() -> impl Strategy<Value = bulk> {
    (any::<u32>(), pages(60), pages(16)).prop_map(|(count, data, small)| bulk { count, data, small })
}

pub fn a_bulk_result() -> impl Strategy<Value = bulk_result> {
    prop_oneof![
        a_bulk().prop_map(bulk_result::Case0),
        pages(64).prop_map(|p| bulk_result::Case1(bulk_data(p))),
        (2..i32::MAX).prop_map(bulk_result::Default),
    ]
}

pub fn a_bulks() -> impl Strategy<Value = bulks> {
    (vec(a_bulk(), 0..=2), [a_bulk(), a_bulk()], proptest::option::of(pages(64).prop_map(bulk_data)))
        .prop_map(|(list, two, one)| bulks { list, two, one })
}

pub fn a_by_enum() -> impl Strategy<Value = by_enum> {
    prop_oneof![
        any::<i32>().prop_map(by_enum::RED),
        any::<i32>().prop_map(by_enum::GREEN),
        a_label().prop_map(by_enum::BLUE),
        Just(by_enum::NIGHT),
        any::<i64>().prop_map(|v| by_enum::Default(color::LIMIT, v)),
    ]
}

pub fn a_by_int() -> impl Strategy<Value = by_int> {
    prop_oneof![
        any::<i32>().prop_map(by_int::CaseMinus3),
        Just(by_int::Case5),
        any::<[u8; 8]>().prop_map(by_int::MAXNAME),
        (100..i32::MAX).prop_map(by_int::Default),
    ]
}

pub fn a_by_unsigned() -> impl Strategy<Value = by_unsigned> {
    prop_oneof![
        any::<bool>().prop_map(by_unsigned::Case0),
        vec(any::<u8>(), 0..=3).prop_map(|b| by_unsigned::Case4294967295(XdrString(b))),
    ]
}

pub fn a_by_bool() -> impl Strategy<Value = by_bool> {
    proptest::option::of(a_label()).prop_map(by_bool::from)
}

pub fn a_by_bool_default() -> impl Strategy<Value = by_bool_default> {
    any::<Option<[u8; 8]>>().prop_map(by_bool_default::from)
}

pub fn a_only_default() -> impl Strategy<Value = only_default> {
    let rest = (any::<i32>(), a_color()).prop_map(|(x, y)| only_default_rest { x, y });
    prop_oneof![Just(only_default::Case1), (2..9, rest).prop_map(|(d, r)| only_default::Default(d, r))]
}

pub fn a_outer() -> impl Strategy<Value = outer> {
    let a_pair = || any::<(i32, i32)>().prop_map(|(a, b)| pair { a, b });
    let state = prop_oneof![Just(outer_state::ON), Just(outer_state::OFF)];
    let tail = any::<Option<i32>>().prop_map(outer_tail::from);
    let inner = (any::<i32>(), a_blob()).prop_map(|(x, y)| outer_inner { x, y });
    (inner, state, tail, vec(a_pair().prop_map(|p| tagged { p }), 0..=2), a_pair())
        .prop_map(|(inner, state, tail, t, again)| outer { inner, state, tail, t, again })
}

pub fn a_directory() -> impl Strategy<Value = directory> {
    let an_entry = || (any::<i64>(), a_label()).prop_map(|(id, name)| entry { id, name });
    let nodes = vec(any::<i32>().prop_map(|value| node { value }), 0..5).prop_map(node_ptr);
    (vec(an_entry(), 0..5), any::<bool>(), nodes, vec(an_entry(), 0..3).prop_map(entries))
        .prop_map(|(first, eof, nodes, typed)| directory { first, eof, nodes, typed })
}

pub fn a_tree() -> impl Strategy<Value = tree> {
    let leaf = any::<i32>().prop_map(|value| tree { value, left: None, right: None });
    leaf.prop_recursive(6, 32, 2, |inner| {
        let child = || proptest::option::of(inner.clone().prop_map(Box::new));
        (any::<i32>(), child(), child()).prop_map(|(value, left, right)| tree { value, left, right })
    })
}

pub fn a_branch() -> impl Strategy<Value = branch> {
    let leaf = a_label().prop_map(|name| branch { name, children: Vec::new() });
    leaf.prop_recursive(5, 24, 3, |inner| {
        (a_label(), vec(inner, 0..3)).prop_map(|(name, children)| branch { name, children })
    })
}

pub fn a_expr() -> impl Strategy<Value = expr> {
    let leaf = any::<i32>().prop_map(expr::Case0);
    leaf.prop_recursive(6, 24, 2, |inner| {
        prop_oneof![
            proptest::option::of(inner.clone().prop_map(Box::new)).prop_map(expr::Case1),
            vec(inner, 0..=2).prop_map(expr::Case2),
        ]
    })
}

//! Random sequences of operations: whatever is asked, the tree stays whole, and a failed call changes nothing.

use super::*;
use crate::vfs::{FileType, Identity};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// An operation; directories and objects are chosen among those ever seen, so some are stale.
#[derive(Debug, Clone)]
enum Step {
    Create(usize, usize, u8),
    Mkdir(usize, usize),
    Symlink(usize, usize),
    Link(usize, usize, usize),
    Remove(usize, usize),
    Rmdir(usize, usize),
    Rename((usize, usize), (usize, usize)),
    Write(usize, u64, usize),
    Size(usize, u64),
    Mode(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (h, n) = (0usize..12, 0..NAMES.len());
    let place = (h.clone(), n.clone());
    prop_oneof![
        3 => (h.clone(), n.clone(), 0u8..3).prop_map(|(d, n, how)| Step::Create(d, n, how)),
        3 => place.clone().prop_map(|(d, n)| Step::Mkdir(d, n)),
        1 => place.clone().prop_map(|(d, n)| Step::Symlink(d, n)),
        2 => (h.clone(), h.clone(), n.clone()).prop_map(|(o, d, n)| Step::Link(o, d, n)),
        2 => place.clone().prop_map(|(d, n)| Step::Remove(d, n)),
        2 => place.clone().prop_map(|(d, n)| Step::Rmdir(d, n)),
        4 => (place.clone(), place).prop_map(|(a, b)| Step::Rename(a, b)),
        2 => (h.clone(), 0u64..20_000, 0usize..9000).prop_map(|(o, at, n)| Step::Write(o, at, n)),
        1 => (h.clone(), 0u64..20_000).prop_map(|(o, n)| Step::Size(o, n)),
        1 => (h, 0u32..0o10000).prop_map(|(o, m)| Step::Mode(o, m)),
    ]
}

fn run(v: &mut dyn Vfs, cx: &Cx<'_>, seen: &mut Vec<Handle>, s: &Step) -> VfsResult<()> {
    let h = |i: usize| seen[i % seen.len()];
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let made = match *s {
        Step::Create(d, n, 0) => v.create(cx, &h(d), NAMES[n], &CreateHow::Guarded(set))?.handle,
        Step::Create(d, n, 1) => v.create(cx, &h(d), NAMES[n], &CreateHow::Exclusive([1; 8]))?.handle,
        Step::Create(d, n, _) => {
            let how = CreateHow::Unchecked(SetAttr { size: Some(5000), ..set });
            v.create(cx, &h(d), NAMES[n], &how)?.handle
        }
        Step::Mkdir(d, n) => v.mkdir(cx, &h(d), NAMES[n], &set)?.handle,
        Step::Symlink(d, n) => v.links().unwrap().symlink(cx, &h(d), NAMES[n], b"target", &set)?.handle,
        Step::Link(o, d, n) => return v.links().unwrap().link(cx, &h(o), &h(d), NAMES[n]).map(drop),
        Step::Remove(d, n) => return v.remove(cx, &h(d), NAMES[n]),
        Step::Rmdir(d, n) => return v.rmdir(cx, &h(d), NAMES[n]),
        Step::Rename(a, b) => return v.rename(cx, (&h(a.0), NAMES[a.1]), (&h(b.0), NAMES[b.1])),
        Step::Write(o, at, n) => {
            return v.write(cx, &h(o), at, &[IoSlice::new(&vec![7; n])], Stability::FileSync).map(drop);
        }
        Step::Size(o, n) => {
            return v.setattr(cx, &h(o), &SetAttr { size: Some(n), ..SetAttr::default() }, None).map(drop);
        }
        Step::Mode(o, m) => {
            return v.setattr(cx, &h(o), &SetAttr { mode: Some(m), ..SetAttr::default() }, None).map(drop);
        }
    };
    if !seen.contains(&made) {
        seen.push(made);
    }
    Ok(())
}

/// Every name from the root, with the attributes of what it names.
fn walk(t: &Tree) -> BTreeMap<Vec<u8>, Attr> {
    let mut all = BTreeMap::from([(Vec::new(), t.attr(tree::ROOT).unwrap())]);
    let mut todo = vec![(Vec::new(), tree::ROOT)];
    while let Some((path, at)) = todo.pop() {
        for (_, e) in t.get(at).unwrap().dir().unwrap().after(0) {
            let path = [&path, &b"/"[..], &e.name].concat();
            let o = t.get(e.ino).unwrap();
            if let Ok(d) = o.dir() {
                assert_eq!(d.parent, at, "dotdot of {path:?}");
                todo.push((path.clone(), e.ino));
            }
            assert!(all.insert(path, t.attr_of(e.ino, o)).is_none());
        }
    }
    all
}

fn assert_whole(t: &Tree) {
    let all = walk(t);
    let mut names: HashMap<u64, u32> = HashMap::new();
    let mut subdirs: HashMap<u64, u32> = HashMap::new();
    let mut objects: HashMap<u64, Attr> = HashMap::new();
    for (path, a) in &all {
        *names.entry(a.fileid).or_default() += 1;
        objects.insert(a.fileid, *a);
        if let (FileType::Directory, Some(cut)) = (a.ftype, path.iter().rposition(|b| *b == b'/')) {
            *subdirs.entry(all[&path[..cut]].fileid).or_default() += 1;
        }
    }
    for (id, a) in &objects {
        let want = match a.ftype {
            FileType::Directory => 2 + subdirs.get(id).copied().unwrap_or(0),
            _ => names[id],
        };
        assert_eq!(a.nlink, want, "{a:?}");
    }
    assert_eq!(t.files() as usize, objects.len(), "objects without a name");
    assert!(t.used <= t.max_bytes);
}

/// Removes everything; the budget must be whole again.
fn empty(v: &mut dyn Vfs, cx: &Cx<'_>, shared: &Shared) {
    loop {
        let all = walk(&shared.tree.read().unwrap());
        let Some((path, attr)) = all.iter().max_by_key(|(p, _)| p.len()).filter(|(p, _)| !p.is_empty())
        else {
            break;
        };
        let mut at = v.root().unwrap();
        let mut parts: Vec<_> = path.split(|b| *b == b'/').skip(1).collect();
        let name = parts.pop().unwrap();
        for p in parts {
            at = v.lookup(cx, &at, p).unwrap().handle;
        }
        match attr.ftype {
            FileType::Directory => v.rmdir(cx, &at, name).unwrap(),
            _ => v.remove(cx, &at, name).unwrap(),
        }
    }
    let t = shared.tree.read().unwrap();
    assert_eq!((t.used, t.files()), (0, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_tree_stays_whole(steps in prop::collection::vec((step(), any::<bool>()), 1..60)) {
        let options = MemOptions { max_bytes: 40_000, max_files: 12, root_mode: 0o777, ..MemOptions::default() };
        let fs = MemFs::new(&options);
        let mut v = fs.attach().unwrap();
        let id = |uid| Identity { uid, gid: uid, groups: Default::default() };
        let (root, ann) = (id(0), id(1000));
        let cx = |ident| Cx { ident, blocking: false, sync: true, owner_override: true };
        let mut seen = vec![v.root().unwrap()];
        for (s, as_root) in &steps {
            let before = walk(&fs.shared.tree.read().unwrap());
            let done = run(&mut *v, &cx(if *as_root { &root } else { &ann }), &mut seen, s);
            let t = fs.shared.tree.read().unwrap();
            assert_whole(&t);
            if done.is_err() {
                prop_assert_eq!(walk(&t), before, "{:?} failed with {:?}", s, done);
            }
        }
        empty(&mut *v, &cx(&root), &fs.shared);
    }
}

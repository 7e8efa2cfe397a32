//! A directory: names in the order in which they came, so that a position outlives every change.

use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// A name; short ones lie in place.
pub(super) type Name = SmallVec<[u8; 24]>;

/// Position after `.`.
pub(super) const COOKIE_DOT: u64 = 1;
/// Position after `..`.
pub(super) const COOKIE_DOTDOT: u64 = 2;

#[derive(Debug)]
pub(super) struct DirEnt {
    pub(super) name: Name,
    pub(super) ino: u32,
}

#[derive(Debug)]
pub(super) struct Dir {
    /// The directory that has this one; the root has itself.
    pub(super) parent: u32,
    /// Last position given out; never given twice.
    last: u64,
    by_cookie: BTreeMap<u64, DirEnt>,
    by_name: HashMap<Name, u64>,
}

impl Dir {
    pub(super) fn new(parent: u32) -> Self {
        Dir { parent, last: COOKIE_DOTDOT, by_cookie: BTreeMap::new(), by_name: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<u32> {
        let cookie = self.by_name.get(name)?;
        self.by_cookie.get(cookie).map(|e| e.ino)
    }

    /// Gives a name to an object. A name that exists keeps its position, so a listing under way sees it once.
    pub(super) fn put(&mut self, name: &[u8], ino: u32) {
        if let Some(e) = self.by_name.get(name).and_then(|c| self.by_cookie.get_mut(c)) {
            e.ino = ino;
            return;
        }
        self.last += 1;
        let name = Name::from_slice(name);
        self.by_name.insert(name.clone(), self.last);
        self.by_cookie.insert(self.last, DirEnt { name, ino });
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u32> {
        let cookie = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie).map(|e| e.ino)
    }

    /// Names after a position, oldest first, each with the position after it.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &DirEnt)> {
        self.by_cookie.range((Bound::Excluded(cookie), Bound::Unbounded)).map(|(c, e)| (*c, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_never_reused() {
        let mut d = Dir::new(0);
        d.put(b"a", 1);
        d.put(b"b", 2);
        let first = d.after(0).next().unwrap().0;
        assert!(first > COOKIE_DOTDOT);
        assert_eq!(d.remove(b"b"), Some(2));
        d.put(b"c", 3);
        d.put(b"a", 4);
        let seen: Vec<_> = d.after(0).map(|(c, e)| (c, e.name.to_vec(), e.ino)).collect();
        assert_eq!(seen, [(3, b"a".to_vec(), 4), (5, b"c".to_vec(), 3)]);
        assert_eq!(d.after(4).count(), 1, "a position of a removed name resumes");
        assert_eq!(d.after(u64::MAX).count(), 0);
        assert_eq!((d.get(b"b"), d.remove(b"b"), d.len()), (None, None, 2));
    }
}

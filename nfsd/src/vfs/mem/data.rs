//! Contents of a regular file: pages, and holes where there are none.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

type Page = Box<[u8; PAGE as usize]>;

#[derive(Debug, Default)]
pub(super) struct Data {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl Data {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of storage used.
    pub(super) fn used(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Fills `bufs` from `offset`; returns how many bytes there were.
    pub(super) fn read(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> usize {
        let mut at = offset;
        let mut done = 0;
        for buf in bufs {
            let mut rest: &mut [u8] = buf;
            while !rest.is_empty() && at < self.size {
                let within = (at % PAGE) as usize;
                let n = rest
                    .len()
                    .min(PAGE as usize - within)
                    .min(usize::try_from(self.size - at).unwrap_or(usize::MAX));
                let (part, tail) = rest.split_at_mut(n);
                match self.pages.get(&(at / PAGE)) {
                    Some(p) => part.copy_from_slice(&p[within..within + n]),
                    None => part.fill(0),
                }
                rest = tail;
                at += n as u64;
                done += n;
            }
        }
        done
    }

    /// Takes `bufs` at `offset`, up to the first byte that would need more than `room` bytes of new pages. Returns
    /// bytes written. The caller has seen to it that the end fits into 63 bits.
    pub(super) fn write(&mut self, offset: u64, bufs: &[IoSlice<'_>], room: u64) -> usize {
        let mut room = room / PAGE;
        let mut at = offset;
        'all: for buf in bufs {
            let mut rest: &[u8] = buf;
            while !rest.is_empty() {
                let within = (at % PAGE) as usize;
                let n = rest.len().min(PAGE as usize - within);
                let (part, tail) = rest.split_at(n);
                let page = match self.pages.entry(at / PAGE) {
                    std::collections::btree_map::Entry::Occupied(p) => p.into_mut(),
                    std::collections::btree_map::Entry::Vacant(_) if room == 0 => break 'all,
                    std::collections::btree_map::Entry::Vacant(v) => {
                        room -= 1;
                        v.insert(Box::new([0; PAGE as usize]))
                    }
                };
                page[within..within + n].copy_from_slice(part);
                rest = tail;
                at += n as u64;
            }
        }
        if at > offset {
            self.size = self.size.max(at);
        }
        (at - offset) as usize
    }

    /// Cuts, or extends by a hole.
    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            // What lies past the end of the last page must read as zeroes once the file grows again.
            if let Some(p) = self.pages.get_mut(&(size / PAGE)) {
                p[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(d: &Data, offset: u64, len: usize) -> Vec<u8> {
        let mut a = vec![0xaa; len / 3];
        let mut b = vec![0xaa; len - len / 3];
        let n = d.read(offset, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]);
        a.extend_from_slice(&b);
        a.truncate(n);
        a
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, usize, u8),
        Size(u64),
        Read(u64, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..20_000, 0usize..9000, 1u8..).prop_map(|(o, n, b)| Step::Write(o, n, b)),
            (0u64..30_000).prop_map(Step::Size),
            (0u64..30_000, 0usize..9000).prop_map(|(o, n)| Step::Read(o, n)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_flat_file(steps in prop::collection::vec(step(), 1..40)) {
            let (mut d, mut model) = (Data::default(), Vec::<u8>::new());
            for s in steps {
                match s {
                    Step::Write(o, n, b) => {
                        let bytes = vec![b; n];
                        let (x, y) = bytes.split_at(n / 2);
                        prop_assert_eq!(d.write(o, &[IoSlice::new(x), IoSlice::new(y)], u64::MAX), n);
                        if n > 0 {
                            let end = o as usize + n;
                            model.resize(model.len().max(end), 0);
                            model[o as usize..end].fill(b);
                        }
                    }
                    Step::Size(n) => {
                        d.set_size(n);
                        model.resize(n as usize, 0);
                    }
                    Step::Read(o, n) => {
                        let from = (o as usize).min(model.len());
                        let to = (from + n).min(model.len());
                        prop_assert_eq!(read(&d, o, n), &model[from..to]);
                    }
                }
                prop_assert_eq!(d.size(), model.len() as u64);
                prop_assert!(d.used() <= d.size().next_multiple_of(PAGE));
            }
        }
    }

    #[test]
    fn holes_cost_nothing_and_room_bounds_new_pages() {
        let mut d = Data::default();
        let far = 5 << 30;
        assert_eq!(d.write(far, &[IoSlice::new(b"x")], PAGE), 1);
        assert_eq!((d.size(), d.used()), (far + 1, PAGE));
        assert_eq!(read(&d, far - 3, 10), [0, 0, 0, b'x']);
        let many = vec![1; 3 * PAGE as usize];
        assert_eq!(d.write(0, &[IoSlice::new(&many)], 2 * PAGE + 5), 2 * PAGE as usize);
        assert_eq!(
            d.write(PAGE, &[IoSlice::new(&many)], 0),
            PAGE as usize,
            "pages that are there need no room"
        );
        d.set_size(1);
        assert_eq!(d.used(), PAGE);
    }
}

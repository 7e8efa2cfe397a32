//! Handles by object number: saves asking the kernel for the handle of what was listed or looked up before.
//!
//! Object numbers are used again after a removal, so the key includes the time of creation (and the device, which tells
//! subvolumes apart), and an object enters only
//! when it is older than a second: no other object can then be created with that number *and* that time, clocks being
//! coarser than calls but finer than a second.

use crate::vfs::Handle;
use std::time::{SystemTime, UNIX_EPOCH};
use sunrpc_sys::stat::{Stat, Timestamp};

const SMALLEST: usize = 1 << 10;
const LARGEST: usize = 1 << 16;

#[derive(Debug, Clone)]
struct Slot {
    dev: (u32, u32),
    ino: u64,
    born: Timestamp,
    handle: Handle,
}

/// A direct-mapped table that grows while entries push each other out, up to [`LARGEST`] slots of some 70 bytes.
#[derive(Debug, Default)]
pub(super) struct Known {
    slots: Vec<Option<Slot>>,
    pushed_out: usize,
    /// Lookups since the last [`Known::tick`].
    used: bool,
    idle: u32,
}

impl Known {
    fn at(&self, ino: u64) -> usize {
        // The objects of a directory mostly have consecutive numbers: neighbours stay neighbours and do not collide,
        // and distant ranges are laid over each other at distances that have nothing to do with their numbers.
        let range = (ino >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ino.wrapping_add(range) as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    pub(super) fn get(&mut self, st: &Stat) -> Option<Handle> {
        let born = st.btime()?;
        let slot = self.slots.get(self.at(st.ino()))?.as_ref()?;
        self.used = true;
        (slot.ino == st.ino() && slot.dev == st.dev() && slot.born == born).then_some(slot.handle)
    }

    pub(super) fn put(&mut self, st: &Stat, handle: &Handle) {
        let Some(born) = st.btime() else { return };
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
        // At least a whole second between the two, whatever the nanoseconds.
        if born.0 >= now.as_secs() as i64 - 1 {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize(SMALLEST, None);
        } else if self.pushed_out > self.slots.len() / 4 && self.slots.len() < LARGEST {
            self.pushed_out = 0;
            let bigger = vec![None; self.slots.len() * 4];
            for s in std::mem::replace(&mut self.slots, bigger).into_iter().flatten() {
                let at = self.at(s.ino);
                if let Some(slot) = self.slots.get_mut(at) {
                    *slot = Some(s);
                }
            }
        }
        let at = self.at(st.ino());
        if let Some(slot) = self.slots.get_mut(at) {
            self.pushed_out += usize::from(slot.as_ref().is_some_and(|s| s.ino != st.ino()));
            *slot = Some(Slot { dev: st.dev(), ino: st.ino(), born, handle: *handle });
        }
    }

    /// Gives the memory back after a minute without use.
    pub(super) fn tick(&mut self) {
        self.idle = if std::mem::take(&mut self.used) { 0 } else { self.idle + 1 };
        if self.idle > 60 {
            *self = Known::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn only_objects_older_than_a_second_are_kept() {
        let old = std::fs::File::open("/").unwrap();
        let old = sunrpc_sys::stat::of_fd(old.as_fd()).unwrap();
        let new = tempfile::tempfile().unwrap();
        let new = sunrpc_sys::stat::of_fd(new.as_fd()).unwrap();
        let h = Handle::new(&[1]).unwrap();
        let mut k = Known::default();
        assert_eq!(k.get(&old), None);
        k.put(&new, &h);
        assert_eq!(k.get(&new), None);
        if old.btime().is_none() {
            return;
        }
        k.put(&old, &h);
        assert_eq!(k.get(&old), Some(h));
        k.tick();
        assert_eq!(k.get(&old), Some(h));
        (0..70).for_each(|_| k.tick());
        assert_eq!(k.get(&old), None);
    }
}

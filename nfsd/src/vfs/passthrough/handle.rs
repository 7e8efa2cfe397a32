//! The bytes of a handle.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..2 | mount index, big endian; 0 is the file system of the export's root |
//! | 2 | type of the kernel's handle (1 to 254), or [`COVERED`], or [`MAPPED`] |
//! | 3.. | the kernel's handle; or what the two special kinds below hold |
//!
//! A kernel handle that is too long, or of no use because this process may not open by handle, is kept in the
//! persistent map, and the handle holds its number and the map's epoch: a map that was lost and begun anew has
//! another epoch, so an old number cannot name a new object.

use crate::vfs::{HANDLE_MAX, Handle};

/// Byte 2 of the handle of a directory that a mount covers and that is not crossed. The kernel never uses type 0.
const COVERED: u8 = 0;
/// Byte 2 of a handle whose object is found through the persistent map. The kernel never uses type 255.
const MAPPED: u8 = 0xff;
const PREFIX: usize = 3;
const WORD: usize = 8;

/// Longest kernel handle that fits, in bytes.
#[cfg(test)]
const KERNEL_MAX: usize = HANDLE_MAX - PREFIX;
/// Longest parent handle that fits into the handle of a covered directory.
const COVERED_PARENT_MAX: usize = HANDLE_MAX - PREFIX - WORD;

/// A handle taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoded<'a> {
    /// Opened by `open_by_handle_at` on the mount.
    Kernel { mount: u16, kind: u8, bytes: &'a [u8] },
    /// Found through the persistent map.
    Mapped { mount: u16, id: u64, epoch: u64 },
    /// A directory with a mount on it that is not crossed: always empty. `fileid` is the mount point's own.
    Covered { mount: u16, fileid: u64, parent: Handle },
}

/// The handle of an object that the kernel can open by `kind` and `bytes`; `None` if it has to go through the map.
pub(super) fn kernel(mount: u16, kind: i32, bytes: &[u8]) -> Option<Handle> {
    let kind = u8::try_from(kind).ok().filter(|k| *k != COVERED && *k != MAPPED)?;
    if bytes.is_empty() {
        return None;
    }
    assemble(mount, kind, &[bytes])
}

/// The handle of entry `id` of the persistent map.
pub(super) fn mapped(mount: u16, id: u64, epoch: u64) -> Option<Handle> {
    assemble(mount, MAPPED, &[&id.to_be_bytes(), &epoch.to_be_bytes()])
}

/// The handle of a covered directory below `parent`; `None` if the parent's handle is longer than
/// [`COVERED_PARENT_MAX`].
pub(super) fn covered(mount: u16, fileid: u64, parent: &Handle) -> Option<Handle> {
    if parent.as_bytes().len() > COVERED_PARENT_MAX {
        return None;
    }
    assemble(mount, COVERED, &[&fileid.to_be_bytes(), parent.as_bytes()])
}

/// True for the handle of a covered directory.
#[inline]
pub(super) fn is_covered(h: &Handle) -> bool {
    h.as_bytes().get(2) == Some(&COVERED)
}

/// The number of a covered directory and its parent's handle.
pub(super) fn covered_parts(h: &Handle) -> Option<(u64, Handle)> {
    match decode(h)? {
        Decoded::Covered { mount: 0, fileid, parent } if !is_covered(&parent) => Some((fileid, parent)),
        _ => None,
    }
}

fn assemble(mount: u16, kind: u8, parts: &[&[u8]]) -> Option<Handle> {
    let mut b = [0u8; HANDLE_MAX];
    b[..2].copy_from_slice(&mount.to_be_bytes());
    b[2] = kind;
    let mut at = PREFIX;
    for p in parts {
        b.get_mut(at..at + p.len())?.copy_from_slice(p);
        at += p.len();
    }
    Handle::new(&b[..at])
}

/// Takes a handle apart; `None` if it was never made here.
pub(super) fn decode(h: &Handle) -> Option<Decoded<'_>> {
    let (head, rest) = h.as_bytes().split_first_chunk::<PREFIX>()?;
    let mount = u16::from_be_bytes([head[0], head[1]]);
    match head[2] {
        MAPPED => {
            let (id, rest) = rest.split_first_chunk::<WORD>()?;
            let epoch: [u8; WORD] = rest.try_into().ok()?;
            Some(Decoded::Mapped { mount, id: u64::from_be_bytes(*id), epoch: u64::from_be_bytes(epoch) })
        }
        COVERED => {
            let (fileid, parent) = rest.split_first_chunk::<WORD>()?;
            if parent.len() <= PREFIX {
                return None;
            }
            Some(Decoded::Covered {
                mount,
                fileid: u64::from_be_bytes(*fileid),
                parent: Handle::new(parent)?,
            })
        }
        kind if !rest.is_empty() => Some(Decoded::Kernel { mount, kind, bytes: rest }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_round_trip() {
        let long = [7u8; KERNEL_MAX];
        let k = kernel(513, 0x81, &long).unwrap();
        assert_eq!(k.as_bytes().len(), HANDLE_MAX);
        assert_eq!(decode(&k), Some(Decoded::Kernel { mount: 513, kind: 0x81, bytes: &long }));
        let m = mapped(1, u64::MAX - 1, 77).unwrap();
        assert_eq!(decode(&m), Some(Decoded::Mapped { mount: 1, id: u64::MAX - 1, epoch: 77 }));
        let c = covered(0, 9, &m).unwrap();
        assert_eq!(decode(&c), Some(Decoded::Covered { mount: 0, fileid: 9, parent: m }));
    }

    #[test]
    fn what_does_not_fit_goes_elsewhere() {
        assert!(kernel(0, 1, &[0; KERNEL_MAX + 1]).is_none());
        assert!(kernel(0, 0, &[1]).is_none());
        assert!(kernel(0, 255, &[1]).is_none());
        assert!(kernel(0, 0x1_0001, &[1]).is_none());
        assert!(kernel(0, 1, &[]).is_none());
        let parent = kernel(0, 1, &[1; COVERED_PARENT_MAX - PREFIX + 1]).unwrap();
        assert!(covered(0, 1, &parent).is_none());
    }

    #[test]
    fn broken_bytes_are_refused() {
        for len in 0..HANDLE_MAX {
            for kind in [COVERED, MAPPED, 1] {
                let mut b = vec![0xa5u8; len];
                if let Some(k) = b.get_mut(2) {
                    *k = kind;
                }
                let got = Handle::new(&b).as_ref().and_then(decode).is_some();
                let want = match kind {
                    MAPPED => len == PREFIX + 2 * WORD,
                    COVERED => len > PREFIX + WORD + PREFIX,
                    _ => len > PREFIX,
                };
                assert_eq!(got, want, "kind {kind} length {len}");
            }
        }
    }
}

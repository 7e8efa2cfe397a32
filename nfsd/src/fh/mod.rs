//! The file handles that clients see.
//!
//! ```text
//! version 1 | kind 1 | export 4 (big endian) | backend's handle 0..=42 | MAC 16
//! ```
//! The MAC is SipHash-2-4-128 over everything before it, under a random key of this server's state directory. A
//! client can therefore name only objects that some server with this key once named to it; that the object is still
//! there, and that the caller may touch it, is judged elsewhere.

pub(crate) mod persist;

pub use persist::StateError;

use crate::vfs::{HANDLE_MAX, Handle};
use persist::StateDir;
use siphasher::sip::SipHasher24 as Sip64;
use siphasher::sip128::SipHasher24 as Sip128;
use std::hash::Hasher;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Longest file handle, in bytes: NFS3_FHSIZE (RFC 1813 section 2.4).
pub const FH_MAX: usize = 64;

const VERSION: u8 = 1;
const KIND_OBJECT: u8 = 1;
const HEAD: usize = 6;
const MAC: usize = 16;
const _: () = assert!(HEAD + HANDLE_MAX + MAC == FH_MAX);

const KEY_FILE: &str = "handle.key";
const KEY_MAGIC: &[u8; 8] = b"nfsdkey1";
const KEY_REMEDY: &str = "restore it from a backup, or remove it: a new key is then made, and clients must unmount and mount again";

/// A file handle as it travels.
#[derive(Clone, Copy)]
pub struct FileHandle {
    len: u8,
    bytes: [u8; FH_MAX],
}

impl FileHandle {
    /// The bytes, at most [`FH_MAX`].
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(FH_MAX)]
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for FileHandle {}

impl std::fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Why bytes are no handle of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FhError {
    /// Never issued under this key, or changed since: NFS3ERR_BADHANDLE.
    #[error("file handle was not issued by this server")]
    BadHandle,
}

/// Makes and checks file handles. Cheap to share: all methods take `&self` and keep nothing.
#[derive(Clone)]
pub struct FhCodec {
    mac: Sip128,
}

impl std::fmt::Debug for FhCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FhCodec { key: secret }")
    }
}

impl FhCodec {
    /// Loads the key from `state_dir`, or makes one. A new key is on stable storage when this returns, so no handle
    /// is ever issued under a key that a crash could take away.
    ///
    /// # Errors
    /// The directory cannot be made or written; the key file is damaged, or readable by other users.
    pub fn open(state_dir: &Path) -> Result<Self, StateError> {
        let dir = StateDir::lock(state_dir)?;
        let max = (KEY_MAGIC.len() + 16 + 8) as u64;
        if let Some((bytes, meta)) = dir.read(KEY_FILE, max)? {
            let mode = meta.permissions().mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(StateError::Exposed { path: dir.file(KEY_FILE), mode });
            }
            return match parse_key(&bytes) {
                Ok(key) => Ok(Self::with_key(&key)),
                Err(why) => Err(StateError::Damaged { path: dir.file(KEY_FILE), why, remedy: KEY_REMEDY }),
            };
        }
        let mut key = [0u8; 16];
        getrandom::fill(&mut key).map_err(|e| StateError::Io {
            what: "get random bytes for",
            path: dir.file(KEY_FILE),
            source: e
                .raw_os_error()
                .map_or_else(|| std::io::Error::other(e.to_string()), std::io::Error::from_raw_os_error),
        })?;
        dir.replace(KEY_FILE, &key_file(&key))?;
        Ok(Self::with_key(&key))
    }

    /// A codec with this key; for tests and for servers that keep their key elsewhere.
    pub fn with_key(key: &[u8; 16]) -> Self {
        FhCodec { mac: Sip128::new_with_key(key) }
    }

    /// The file handle of a backend's object in an export.
    #[inline]
    pub fn encode(&self, export: u32, h: &Handle) -> FileHandle {
        let inner = h.as_bytes();
        let mut bytes = [0u8; FH_MAX];
        let body = HEAD + inner.len();
        bytes[0] = VERSION;
        bytes[1] = KIND_OBJECT;
        bytes[2..HEAD].copy_from_slice(&export.to_be_bytes());
        bytes[HEAD..body].copy_from_slice(inner);
        let mac = self.mac.hash(&bytes[..body]).as_bytes();
        bytes[body..body + MAC].copy_from_slice(&mac);
        FileHandle { len: (body + MAC) as u8, bytes }
    }

    /// Export number and backend's handle of a file handle.
    ///
    /// # Errors
    /// [`FhError::BadHandle`] for anything that [`FhCodec::encode`] did not make under the same key.
    #[inline]
    pub fn decode(&self, bytes: &[u8]) -> Result<(u32, Handle), FhError> {
        if bytes.len() > FH_MAX {
            return Err(FhError::BadHandle);
        }
        let (body, mac) = bytes.split_last_chunk::<MAC>().ok_or(FhError::BadHandle)?;
        let (head, inner) = body.split_first_chunk::<HEAD>().ok_or(FhError::BadHandle)?;
        let want = self.mac.hash(body);
        // In time that does not depend on how many bytes agree, so a MAC cannot be guessed byte by byte.
        let differ = want.as_u128() ^ u128::from_le_bytes(*mac);
        let [VERSION, KIND_OBJECT, a, b, c, d] = *head else { return Err(FhError::BadHandle) };
        if std::hint::black_box(differ) != 0 {
            return Err(FhError::BadHandle);
        }
        let handle = Handle::new(inner).ok_or(FhError::BadHandle)?;
        Ok((u32::from_be_bytes([a, b, c, d]), handle))
    }
}

/// Key file: magic 8 | key 16 | check 8. The check finds damage before clients find it as stale handles.
fn key_file(key: &[u8; 16]) -> [u8; 32] {
    let mut f = [0u8; 32];
    f[..8].copy_from_slice(KEY_MAGIC);
    f[8..24].copy_from_slice(key);
    f[24..].copy_from_slice(&key_check(key).to_be_bytes());
    f
}

fn key_check(key: &[u8; 16]) -> u64 {
    let mut h = Sip64::new();
    h.write(key);
    h.finish()
}

fn parse_key(bytes: &[u8]) -> Result<[u8; 16], String> {
    let f: &[u8; 32] =
        bytes.try_into().map_err(|_| format!("it should have 32 bytes and has {}", describe_len(bytes)))?;
    let mut key = [0u8; 16];
    key.copy_from_slice(&f[8..24]);
    match f {
        _ if &f[..8] != KEY_MAGIC => Err("it is not a key file of this version".into()),
        _ if f[24..] != key_check(&key).to_be_bytes() => Err("its check does not match".into()),
        _ => Ok(key),
    }
}

fn describe_len(bytes: &[u8]) -> String {
    if bytes.len() > 32 { "more".into() } else { bytes.len().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn codec() -> FhCodec {
        FhCodec::with_key(&[7; 16])
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(export: u32, inner in prop::collection::vec(any::<u8>(), 0..=HANDLE_MAX)) {
            let h = Handle::new(&inner).unwrap();
            let fh = codec().encode(export, &h);
            prop_assert_eq!(fh.as_bytes().len(), 22 + inner.len());
            prop_assert_eq!(codec().decode(fh.as_bytes()), Ok((export, h)));
        }

        #[test]
        fn any_flipped_bit_is_refused(export: u32, inner in prop::collection::vec(any::<u8>(), 0..=HANDLE_MAX)) {
            let fh = codec().encode(export, &Handle::new(&inner).unwrap());
            for bit in 0..fh.as_bytes().len() * 8 {
                let mut b = fh.as_bytes().to_vec();
                b[bit / 8] ^= 1 << (bit % 8);
                prop_assert_eq!(codec().decode(&b), Err(FhError::BadHandle), "bit {}", bit);
            }
        }

        #[test]
        fn other_lengths_are_refused(export: u32, inner in prop::collection::vec(any::<u8>(), 0..=HANDLE_MAX), extra in 1usize..80) {
            let fh = codec().encode(export, &Handle::new(&inner).unwrap());
            for n in 0..fh.as_bytes().len() {
                prop_assert_eq!(codec().decode(&fh.as_bytes()[..n]), Err(FhError::BadHandle));
            }
            let mut longer = fh.as_bytes().to_vec();
            longer.resize(longer.len() + extra, 0);
            prop_assert_eq!(codec().decode(&longer), Err(FhError::BadHandle));
        }

        #[test]
        fn strangers_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(codec().decode(&bytes), Err(FhError::BadHandle));
        }
    }

    #[test]
    fn a_right_mac_does_not_save_an_unknown_version_or_kind() {
        for (version, kind) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
            let mut b = vec![version, kind, 0, 0, 0, 1, 9, 9];
            let mac = Sip128::new_with_key(&[7; 16]).hash(&b).as_bytes();
            b.extend_from_slice(&mac);
            assert_eq!(codec().decode(&b), Err(FhError::BadHandle), "{version} {kind}");
        }
    }

    #[test]
    fn another_servers_handle_is_refused() {
        let fh = FhCodec::with_key(&[8; 16]).encode(1, &Handle::new(b"x").unwrap());
        assert_eq!(codec().decode(fh.as_bytes()), Err(FhError::BadHandle));
    }

    #[test]
    fn the_key_survives_a_restart_and_is_private() {
        let t = tempfile::tempdir().unwrap();
        let dir = t.path().join("state");
        let h = Handle::new(b"object").unwrap();
        let fh = FhCodec::open(&dir).unwrap().encode(3, &h);
        assert_eq!(fs::metadata(dir.join(KEY_FILE)).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(FhCodec::open(&dir).unwrap().decode(fh.as_bytes()), Ok((3, h)));
        let other = FhCodec::open(&t.path().join("other")).unwrap();
        assert_eq!(other.decode(fh.as_bytes()), Err(FhError::BadHandle), "keys are random");
    }

    #[test]
    fn a_damaged_or_open_key_file_is_refused_with_advice() {
        let t = tempfile::tempdir().unwrap();
        FhCodec::open(t.path()).unwrap();
        let file = t.path().join(KEY_FILE);
        let good = fs::read(&file).unwrap();
        for n in [0, 1, 16, 31] {
            fs::write(&file, &good[..n]).unwrap();
            let e = FhCodec::open(t.path()).unwrap_err().to_string();
            assert!(e.contains("handle.key") && e.contains("remove it"), "{e}");
        }
        for bit in 0..good.len() * 8 {
            let mut b = good.clone();
            b[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, &b).unwrap();
            assert!(matches!(FhCodec::open(t.path()), Err(StateError::Damaged { .. })), "bit {bit}");
        }
        fs::write(&file, [&good[..], b"x"].concat()).unwrap();
        assert!(matches!(FhCodec::open(t.path()), Err(StateError::Damaged { .. })));
        fs::write(&file, &good).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let e = FhCodec::open(t.path()).unwrap_err().to_string();
        assert!(e.contains("chmod 600"), "{e}");
    }

    #[test]
    fn servers_that_start_together_agree_on_one_key() {
        let t = tempfile::tempdir().unwrap();
        let h = Handle::new(b"o").unwrap();
        let made: Vec<_> = std::thread::scope(|s| {
            let all: Vec<_> =
                (0..8).map(|_| s.spawn(|| FhCodec::open(t.path()).unwrap().encode(1, &h))).collect();
            all.into_iter().map(|j| j.join().unwrap()).collect()
        });
        assert!(made.windows(2).all(|w| w[0] == w[1]));
    }
}

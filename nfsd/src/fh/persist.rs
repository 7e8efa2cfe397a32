//! Small files under the state directory that must survive a crash whole.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A failure below the state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The operating system refused; usually the directory belongs to another user or the disk is full.
    #[error(
        "cannot {what} {path}: {source}; choose a directory that this user may write with --state-dir (`state_dir` in the configuration file)"
    )]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file is not what this program wrote.
    #[error("{path} is damaged ({why}); {remedy}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A secret is open to others.
    #[error(
        "{path} can be read by other users (mode {mode:04o}), who could forge file handles; run `chmod 600` on it"
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { what, path, source }
}

/// A state directory, locked against other starting servers while this lives.
#[derive(Debug)]
pub(crate) struct StateDir<'a> {
    path: &'a Path,
    _lock: File,
}

impl<'a> StateDir<'a> {
    /// Creates the directory (mode 0700) if need be and takes its lock, waiting for whoever holds it.
    pub(crate) fn lock(path: &'a Path) -> Result<Self, StateError> {
        let missing: Vec<_> =
            path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.is_dir()).collect();
        if !missing.is_empty() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("create", path))?;
            // No new name may vanish in a crash together with what will be promised on the strength of it.
            for dir in missing {
                match dir.parent() {
                    Some(p) if p.as_os_str().is_empty() => sync_dir(Path::new("."))?,
                    Some(p) => sync_dir(p)?,
                    None => {}
                }
            }
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&lock_path)
            .map_err(io("open", &lock_path))?;
        lock.lock().map_err(io("lock", &lock_path))?;
        Ok(StateDir { path, _lock: lock })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file of at most `max` bytes; `None` if there is none. A longer one comes back with `max + 1` bytes.
    pub(crate) fn read(
        &self,
        name: &str,
        max: u64,
    ) -> Result<Option<(Vec<u8>, std::fs::Metadata)>, StateError> {
        let path = self.file(name);
        let f = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Ok(f) => f,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io("open", &path)(e)),
        };
        let meta = f.metadata().map_err(io("examine", &path))?;
        let mut bytes = Vec::new();
        f.take(max + 1).read_to_end(&mut bytes).map_err(io("read", &path))?;
        Ok(Some((bytes, meta)))
    }

    /// Replaces a file (mode 0600) so that after a crash there is the old one or the new one, never a part. On
    /// return the new one is on stable storage.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.file(name);
        let tmp = self.file(&format!("{name}.new"));
        // Left over from a crash; the lock says that nobody is writing it now.
        match std::fs::remove_file(&tmp) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(io("remove", &tmp)(e)),
            _ => {}
        }
        let mut f = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&tmp)
            .map_err(io("create", &tmp))?;
        f.write_all(bytes).and_then(|()| f.sync_all()).map_err(io("write", &tmp))?;
        std::fs::rename(&tmp, &path).map_err(io("rename into place", &path))?;
        sync_dir(self.path)
    }
}

fn sync_dir(dir: &Path) -> Result<(), StateError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(io("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replace_leaves_one_whole_private_file() {
        let t = tempfile::tempdir().unwrap();
        let dir = t.path().join("a/b");
        let s = StateDir::lock(&dir).unwrap();
        assert!(s.read("x", 10).unwrap().is_none());
        std::fs::write(dir.join("x.new"), "left by a crash").unwrap();
        s.replace("x", b"one").unwrap();
        s.replace("x", b"two").unwrap();
        let (bytes, meta) = s.read("x", 10).unwrap().unwrap();
        assert_eq!(bytes, b"two");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(!dir.join("x.new").exists());
        assert_eq!(s.read("x", 2).unwrap().unwrap().0.len(), 3, "a longer file shows as longer");
    }

    #[test]
    fn a_directory_that_cannot_be_made_names_the_flag() {
        let t = tempfile::tempdir().unwrap();
        let file = t.path().join("file");
        std::fs::write(&file, "").unwrap();
        let e = StateDir::lock(&file.join("sub")).unwrap_err();
        assert!(e.to_string().contains("--state-dir"), "{e}");
    }
}

//! Export numbers that outlive restarts.
//!
//! A file handle names its export by number, so a number belongs to one directory for ever: it is found again by the
//! directory's real path whatever the order of the configuration, and never given to another one.

use crate::fh::StateError;
use crate::fh::persist::StateDir;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const FILE: &str = "exports";
const HEADER: &str = "nfsd export numbers 1";
const MAX_BYTES: u64 = 16 << 20;
const REMEDY: &str = "restore it from a backup, or remove it: exports then get new numbers, and clients must unmount and mount again";

/// Numbers for directories (real paths), in the same order, persisted in `state_dir`. Numbers start at 1 and are on
/// stable storage on return.
///
/// # Errors
/// The state directory cannot be used, or its file is damaged.
pub fn assign(state_dir: &Path, dirs: &[&Path]) -> Result<Vec<u32>, StateError> {
    let state = StateDir::lock(state_dir)?;
    let damaged = |why: String| StateError::Damaged { path: state.file(FILE), why, remedy: REMEDY };
    let mut known = match state.read(FILE, MAX_BYTES)? {
        None => Vec::new(),
        Some((bytes, _)) if bytes.len() as u64 > MAX_BYTES => {
            return Err(damaged("it is far too large".into()));
        }
        Some((bytes, _)) => parse(&bytes).map_err(damaged)?,
    };
    let before = known.len();
    let mut numbers = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let n = match known.iter().find(|(_, p)| p == dir) {
            Some((n, _)) => *n,
            None => {
                let last = known.iter().map(|(n, _)| *n).max().unwrap_or(0);
                let n = last.checked_add(1).ok_or_else(|| damaged("all numbers are used up".into()))?;
                known.push((n, dir.to_path_buf()));
                n
            }
        };
        numbers.push(n);
    }
    if known.len() > before {
        state.replace(FILE, format(&known).as_bytes())?;
    }
    Ok(numbers)
}

/// One line for each export ever seen: number, blank, path with everything but printable ASCII as `\ooo`.
fn format(known: &[(u32, PathBuf)]) -> String {
    let mut s = format!("{HEADER}\n");
    for (n, path) in known {
        let _ = write!(s, "{n} ");
        for &b in path.as_os_str().as_bytes() {
            match b {
                b'\\' => s.push_str("\\134"),
                b'!'..=b'~' => s.push(char::from(b)),
                _ => {
                    let _ = write!(s, "\\{b:03o}");
                }
            }
        }
        s.push('\n');
    }
    s
}

fn parse(bytes: &[u8]) -> Result<Vec<(u32, PathBuf)>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let text = text.strip_suffix('\n').ok_or("its last line is cut off")?;
    let mut lines = text.split('\n');
    if lines.next() != Some(HEADER) {
        return Err("it is not a list of export numbers of this version".into());
    }
    let mut known: Vec<(u32, PathBuf)> = Vec::new();
    for (i, line) in lines.enumerate() {
        let (n, path) = parse_line(line).ok_or_else(|| format!("line {} makes no sense", i + 2))?;
        if known.iter().any(|(m, p)| *m == n || *p == path) {
            return Err(format!("line {} repeats an earlier one", i + 2));
        }
        known.push((n, path));
    }
    Ok(known)
}

fn parse_line(line: &str) -> Option<(u32, PathBuf)> {
    let (n, escaped) = line.split_once(' ')?;
    let n = n.parse::<u32>().ok().filter(|n| *n > 0)?;
    let mut path = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        rest = tail;
        if b == b'\\' {
            let (octal, tail) = rest.split_at_checked(3)?;
            path.push(u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok()?);
            rest = tail;
        } else {
            path.push(b);
        }
    }
    path.starts_with(b"/").then(|| (n, PathBuf::from(OsString::from_vec(path))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn p(s: &str) -> &Path {
        Path::new(s)
    }

    #[test]
    fn numbers_survive_restart_reordering_and_removal() {
        let t = tempfile::tempdir().unwrap();
        let odd = PathBuf::from(OsString::from_vec(b"/a b\\c\n\xff".to_vec()));
        assert_eq!(assign(t.path(), &[p("/srv"), &odd]).unwrap(), [1, 2]);
        assert_eq!(assign(t.path(), &[&odd, p("/home"), p("/srv")]).unwrap(), [2, 3, 1]);
        assert_eq!(assign(t.path(), &[p("/new")]).unwrap(), [4], "numbers of removed exports are not reused");
        assert_eq!(assign(t.path(), &[p("/srv"), p("/srv")]).unwrap(), [1, 1]);
    }

    #[test]
    fn a_damaged_list_is_refused_and_kept() {
        let t = tempfile::tempdir().unwrap();
        assign(t.path(), &[p("/srv")]).unwrap();
        let file = t.path().join(FILE);
        let bad: [&[u8]; 10] = [
            b"",
            b"nfsd export numbers 1",
            b"nfsd export numbers 1\n1 /sr",
            b"nfsd export numbers 2\n1 /srv\n",
            b"nfsd export numbers 1\n0 /srv\n",
            b"nfsd export numbers 1\n1 srv\n",
            b"nfsd export numbers 1\n1 /srv\\9\n",
            b"nfsd export numbers 1\n1 /srv\\777\n",
            b"nfsd export numbers 1\n1 /a\n1 /b\n",
            b"nfsd export numbers 1\n1 /\xff\n",
        ];
        for b in bad {
            fs::write(&file, b).unwrap();
            let e = assign(t.path(), &[p("/other")]).unwrap_err().to_string();
            assert!(e.contains("remove it"), "{e}");
            assert_eq!(fs::read(&file).unwrap(), b);
        }
        fs::write(&file, b"nfsd export numbers 1\n4294967295 /srv\n").unwrap();
        assert!(assign(t.path(), &[p("/other")]).is_err(), "numbers do not wrap");
        assert_eq!(assign(t.path(), &[p("/srv")]).unwrap(), [u32::MAX]);
    }
}

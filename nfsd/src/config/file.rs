//! The configuration file: its form, and errors that point at the line.

use super::ConfigError;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// The file as written. Values that need judging carry their place.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<Spanned<Words>>,
    pub(super) threads: Option<Spanned<i64>>,
    pub(super) spin: Option<Spanned<WordOrNumber>>,
    pub(super) state_dir: Option<Spanned<String>>,
    pub(super) rpcbind: Option<Spanned<String>>,
    pub(super) zerocopy: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) export: Vec<FileExport>,
}

/// An `[[export]]` section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileExport {
    pub(super) path: Spanned<String>,
    pub(super) pseudo: Option<Spanned<String>>,
    pub(super) clients: Option<Spanned<Words>>,
    pub(super) insecure: Option<bool>,
    pub(super) access: Option<Spanned<String>>,
    pub(super) squash: Option<Spanned<String>>,
    pub(super) anonuid: Option<Spanned<i64>>,
    pub(super) anongid: Option<Spanned<i64>>,
    pub(super) sync: Option<bool>,
    pub(super) sec: Option<Spanned<Words>>,
    pub(super) read: Option<Spanned<String>>,
    pub(super) write: Option<Spanned<String>>,
    pub(super) writeback_kick: Option<Spanned<String>>,
    pub(super) splice: Option<Spanned<WordOrNumber>>,
}

const TOP_KEYS: [&str; 7] = ["listen", "threads", "spin", "state_dir", "rpcbind", "zerocopy", "export"];
const EXPORT_KEYS: [&str; 14] = [
    "path",
    "pseudo",
    "clients",
    "insecure",
    "access",
    "squash",
    "anonuid",
    "anongid",
    "sync",
    "sec",
    "read",
    "write",
    "writeback_kick",
    "splice",
];

/// A value that is a word or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a string or a whole number")]
pub(super) enum WordOrNumber {
    Word(String),
    Number(i64),
}

impl fmt::Display for WordOrNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WordOrNumber::Word(w) => f.write_str(w),
            WordOrNumber::Number(n) => n.fmt(f),
        }
    }
}

/// A list of words; a single one may stand without brackets.
#[derive(Debug)]
pub(super) struct Words(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, s: &str) -> Result<Words, E> {
                Ok(Words(vec![s.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(w) = seq.next_element()? {
                    words.push(w);
                }
                Ok(Words(words))
            }
        }
        d.deserialize_any(V)
    }
}

/// A file's text, to find the lines of what it says.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// An error at a place of the text.
    pub(super) fn error(&self, at: Range<usize>, message: impl Into<String>) -> ConfigError {
        let line = 1 + self.text.bytes().take(at.start).filter(|b| *b == b'\n').count();
        ConfigError::File { path: self.path.to_owned(), line, message: message.into() }
    }

    pub(super) fn parse(&self) -> Result<File, ConfigError> {
        toml::from_str(self.text).map_err(|e| {
            let at = e.span().unwrap_or(0..0);
            let message = explain(e.message(), self.text.get(at.clone()).unwrap_or(""));
            self.error(at, message)
        })
    }

    /// The value that a word stands for.
    pub(super) fn word<T: Copy>(
        &self,
        key: &str,
        word: &str,
        at: Range<usize>,
        known: &[(&str, T)],
        later: &[&str],
    ) -> Result<T, ConfigError> {
        if let Some((_, v)) = known.iter().find(|(k, _)| *k == word) {
            return Ok(*v);
        }
        let names: Vec<_> = known.iter().map(|(k, _)| *k).collect();
        Err(self.error(at, unknown_word(key, word, &names, later)))
    }
}

/// What to say of a word that is not among those a setting knows.
pub(super) fn unknown_word(key: &str, word: &str, known: &[&str], later: &[&str]) -> String {
    let list = known.iter().map(|k| format!("\"{k}\"")).collect::<Vec<_>>().join(", ");
    if later.contains(&word) {
        return format!("{key} \"{word}\" comes with a later release; this one knows {list}");
    }
    let hint = nearest(word, known).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
    format!("{key} cannot be \"{word}\"{hint} (possible: {list})")
}

/// Reads the file's text.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    use std::io::Read;
    let err = |source| ConfigError::Read { path: path.to_owned(), source };
    let f = std::fs::File::open(path).map_err(err)?;
    let mut text = String::new();
    let n = f.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(err)?;
    if n as u64 > MAX_BYTES {
        return Err(err(std::io::Error::from(std::io::ErrorKind::FileTooLarge)));
    }
    Ok(text)
}

/// Turns the parser's message into advice. `at` is the text that it points at.
fn explain(message: &str, at: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return match message.strip_prefix("missing field `").and_then(|m| m.strip_suffix('`')) {
            Some("path") => "this [[export]] has no `path`: add path = \"/the/directory\"".into(),
            _ if message.contains("expected a sequence") && at.contains("[export]") => {
                "exports are a list: write [[export]] with two brackets".into()
            }
            _ => message.to_owned(),
        };
    };
    let (key, rest) = rest.split_once('`').unwrap_or((rest, ""));
    // The rest lists the keys of the section in which the unknown one stands.
    let inside = rest.contains("`path`");
    let (here, there): (&[&str], &[&str]) =
        if inside { (&EXPORT_KEYS, &TOP_KEYS) } else { (&TOP_KEYS, &EXPORT_KEYS) };
    if there.contains(&key) {
        return match inside {
            true => format!("`{key}` is a setting of the whole server: move it above the first [[export]]"),
            false => format!("`{key}` is a setting of an export: move it below an [[export]] line"),
        };
    }
    let hint = nearest(key, here).map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
    format!("unknown key `{key}`{hint} (known here: {})", here.join(", "))
}

/// The known word that is nearest to a mistyped one, if any is near.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<u8> = word.bytes().take(64).map(|b| b.to_ascii_lowercase()).collect();
    let (distance, best) = known.iter().map(|k| (edits(&word, k.as_bytes()), *k)).min_by_key(|(d, _)| *d)?;
    (distance <= 1 + best.len() / 3).then_some(best)
}

/// How many single letters must be inserted, removed, replaced or swapped with their neighbour.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Source { path: Path::new("/etc/nfsd.toml"), text }.parse().unwrap_err().to_string()
    }

    #[test]
    fn unknown_keys_name_line_and_neighbour() {
        let e = error("threads = 2\nlissen = []\n");
        assert!(e.starts_with("/etc/nfsd.toml:2: unknown key `lissen`; did you mean `listen`?"), "{e}");
        let e = error("\n[[export]]\npath = \"/a\"\n\n[[export]]\npath = \"/b\"\ncleints = []\n");
        assert!(e.starts_with("/etc/nfsd.toml:7: unknown key `cleints`; did you mean `clients`?"), "{e}");
        let e = error("wibble = 1\n");
        assert!(!e.contains("did you mean") && e.contains("state_dir"), "{e}");
    }

    #[test]
    fn keys_in_the_wrong_section_are_sent_to_theirs() {
        let e = error("clients = []\n");
        assert!(e.starts_with("/etc/nfsd.toml:1: `clients` is a setting of an export"), "{e}");
        let e = error("[[export]]\npath = \"/a\"\nthreads = 2\n");
        assert!(e.starts_with("/etc/nfsd.toml:3: `threads` is a setting of the whole server"), "{e}");
        let e = error("[export]\npath = \"/a\"\n");
        assert!(e.contains(":1: ") && e.contains("[[export]]"), "{e}");
    }

    #[test]
    fn other_mistakes_have_their_line_too() {
        for (text, line) in [
            ("threads = \"two\"\n", 1),
            ("\nthreads 2\n", 2),
            ("[[export]]\npath = \"/a\"\nsync = 1\n", 3),
            ("[[export]]\npath = \"/a\"\nclients = [1]\n", 3),
            ("threads = 1\n[[export]]\nsync = true\n", 2),
            ("threads = 1\nthreads = 2\n", 2),
        ] {
            let e = error(text);
            assert!(e.starts_with(&format!("/etc/nfsd.toml:{line}: ")), "{e}");
        }
        assert!(error("[[export]]\nsync = true\n").contains("`path`"));
    }

    #[test]
    fn the_known_keys_are_those_of_the_form() {
        let text = "listen = \"a\"\nthreads = 1\nspin = 0\nstate_dir = \"/s\"\nrpcbind = \"off\"\n\
                    zerocopy = \"on\"\n[[export]]\npath = \"/a\"\n\
                    pseudo = \"/p\"\nclients = \"x\"\ninsecure = true\naccess = \"ro\"\nsquash = \"all\"\n\
                    anonuid = 1\nanongid = 2\nsync = false\nsec = [\"sys\"]\nread = \"direct\"\n\
                    write = \"hybrid\"\nwriteback_kick = \"off\"\nsplice = 4096\n";
        let f = Source { path: Path::new("f"), text }.parse().unwrap();
        assert_eq!(f.export.len(), 1);
        for key in TOP_KEYS.iter().chain(&EXPORT_KEYS) {
            assert!(text.contains(&format!("{key} = ")) || text.contains(&format!("[[{key}]]")), "{key}");
        }
    }

    #[test]
    fn distances() {
        assert_eq!(edits(b"", b"abc"), 3);
        assert_eq!(edits(b"cleints", b"clients"), 1);
        assert_eq!(edits(b"listen", b"listen"), 0);
        assert_eq!(nearest("SQUASH", &["squash", "sync"]), Some("squash"));
        assert_eq!(nearest("zzzzzz", &["squash", "sync"]), None);
    }
}

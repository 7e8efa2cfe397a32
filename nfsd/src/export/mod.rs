//! What is exported, to whom, with which rights.

mod ids;
mod policy;
mod refusals;

pub use ids::assign as assign_numbers;
pub use policy::{ANON_ID, Clients, ClientsError, ExportSettings, Refusal, SecFlavor, Squash, THIS_HOST};
pub use refusals::Refusals;

use crate::vfs::Backend;
use arc_swap::ArcSwap;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use sunrpc::xprt::PeerAddr;

/// The current export table, shared by all threads and replaced whole on reload.
pub type Exports = Arc<ArcSwap<ExportTable>>;

/// A directory that clients may use. Its settings are reached by dereferencing.
pub struct Export {
    /// Its number: belongs to this directory for ever, and is part of every file handle.
    pub id: u32,
    /// The file system behind it.
    pub backend: Arc<dyn Backend>,
    /// Its settings.
    pub settings: ExportSettings,
}

impl Export {
    /// An export. `id` comes from [`assign_numbers`].
    pub fn new(id: u32, settings: ExportSettings, backend: Arc<dyn Backend>) -> Self {
        Export { id, backend, settings }
    }
}

impl Deref for Export {
    type Target = ExportSettings;

    fn deref(&self) -> &ExportSettings {
        &self.settings
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export")
            .field("id", &self.id)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why exports cannot stand in one table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// One number, two exports.
    #[error("two exports have number {0}; give each directory one [[export]] section")]
    Number(u32),
    /// One name, two exports.
    #[error("a client that mounts {name} could mean {first} or {second}: give one of them another `pseudo` name", name = .name.escape_ascii(), first = .first.display(), second = .second.display())]
    Ambiguous {
        /// The name.
        name: Vec<u8>,
        /// The directory that has it.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
}

/// All exports at one time.
#[derive(Debug, Default)]
pub struct ExportTable {
    /// In order of `id`.
    exports: Vec<Arc<Export>>,
}

impl ExportTable {
    /// A table.
    ///
    /// # Errors
    /// [`TableError`] if a number or a name does not tell two exports apart.
    pub fn new(mut exports: Vec<Arc<Export>>) -> Result<Self, TableError> {
        exports.sort_by_key(|e| e.id);
        for (i, b) in exports.iter().enumerate() {
            for a in exports.iter().take(i) {
                if a.id == b.id {
                    return Err(TableError::Number(a.id));
                }
                if let Some(name) = names(a).into_iter().find(|n| names(b).iter().any(|m| same_path(n, m))) {
                    let (first, second) = (a.path.clone(), b.path.clone());
                    return Err(TableError::Ambiguous { name: name.to_vec(), first, second });
                }
            }
        }
        Ok(ExportTable { exports })
    }

    /// The table, ready to be shared.
    pub fn into_shared(self) -> Exports {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// The export with this number.
    #[inline]
    pub fn by_id(&self, id: u32) -> Option<&Arc<Export>> {
        let i = self.exports.binary_search_by_key(&id, |e| e.id).ok()?;
        self.exports.get(i)
    }

    /// All exports, by number.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Export>> {
        self.exports.iter()
    }

    /// The export that a path given to MOUNT means, by its directory's real path or its pseudo path, and what is
    /// left of the path below it. The longest name wins; names match in whole components only. Repeated and trailing
    /// slashes do not matter; the remainder has none at its ends, but may repeat them in the middle.
    ///
    /// `.` and `..` are components like others here: nothing is resolved.
    pub fn resolve<'p>(&self, path: &'p [u8]) -> Option<(&Arc<Export>, &'p [u8])> {
        if !path.starts_with(b"/") {
            return None;
        }
        let mut best: Option<(usize, &Arc<Export>, &'p [u8])> = None;
        for e in &self.exports {
            for name in names(e) {
                if let Some((depth, rest)) = below(path, name)
                    && best.is_none_or(|(d, ..)| depth > d)
                {
                    best = Some((depth, e, rest));
                }
            }
        }
        best.map(|(_, e, rest)| (e, trim(rest)))
    }

    /// True if at least one export admits the client.
    pub fn admits_any(&self, peer: &PeerAddr) -> bool {
        self.exports.iter().any(|e| e.admits(peer))
    }
}

fn names(e: &Export) -> [&[u8]; 2] {
    [e.path.as_os_str().as_bytes(), &e.pseudo]
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty())
}

fn same_path(a: &[u8], b: &[u8]) -> bool {
    components(a).eq(components(b))
}

/// If `path` lies at or below `name`: the number of components of `name`, and the rest of `path`.
fn below<'p>(path: &'p [u8], name: &[u8]) -> Option<(usize, &'p [u8])> {
    let mut rest = path;
    let mut depth = 0;
    for want in components(name) {
        let start = rest.iter().position(|b| *b != b'/')?;
        rest = rest.get(start..)?;
        let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
        let (have, tail) = rest.split_at_checked(end)?;
        if have != want {
            return None;
        }
        rest = tail;
        depth += 1;
    }
    Some((depth, rest))
}

fn trim(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    while let [rest @ .., b'/'] = path {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Vfs, VfsError, VfsResult};

    struct Nothing;

    impl Backend for Nothing {
        fn attach(&self) -> VfsResult<Box<dyn Vfs>> {
            Err(VfsError::NotSupp)
        }
    }

    fn export(id: u32, path: &str, pseudo: &str) -> Arc<Export> {
        let mut s = ExportSettings::new(path.into());
        s.pseudo = pseudo.into();
        Arc::new(Export::new(id, s, Arc::new(Nothing)))
    }

    fn table() -> ExportTable {
        let all =
            vec![export(7, "/srv/data/deep", "/deep"), export(2, "/srv/data", "/data"), export(5, "/x", "/")];
        ExportTable::new(all).unwrap()
    }

    fn resolve(t: &ExportTable, path: &str) -> Option<(u32, String)> {
        t.resolve(path.as_bytes()).map(|(e, rest)| (e.id, String::from_utf8(rest.to_vec()).unwrap()))
    }

    #[test]
    fn the_longest_name_wins_in_whole_components() {
        let t = table();
        let cases = [
            ("/srv/data", 2, ""),
            ("/srv/data/", 2, ""),
            ("//srv///data//", 2, ""),
            ("/srv/data/a/b/", 2, "a/b"),
            ("/srv/data/a//b", 2, "a//b"),
            ("/srv/data/deep", 7, ""),
            ("/srv/data/deeper", 2, "deeper"),
            ("/srv/data/deep/er", 7, "er"),
            ("/deep/er", 7, "er"),
            ("/data", 2, ""),
            ("/srv/dat", 5, "srv/dat"),
            ("/", 5, ""),
            ("/x/y", 5, "y"),
            ("/srv/../x", 5, "srv/../x"),
        ];
        for (path, id, rest) in cases {
            assert_eq!(resolve(&t, path), Some((id, rest.into())), "{path}");
        }
        for path in ["", "srv/data", "data"] {
            assert_eq!(resolve(&t, path), None, "{path}");
        }
        let t = ExportTable::new(vec![export(2, "/srv/data", "/data")]).unwrap();
        for path in ["/", "/srv", "/srv/dat", "/srv/database", "/srv/../srv/data"] {
            assert_eq!(resolve(&t, path), None, "{path}");
        }
    }

    #[test]
    fn found_by_number() {
        let t = table();
        assert_eq!(t.iter().map(|e| e.id).collect::<Vec<_>>(), [2, 5, 7]);
        assert_eq!(t.by_id(7).unwrap().pseudo, b"/deep");
        assert!(t.by_id(0).is_none() && t.by_id(6).is_none());
    }

    #[test]
    fn one_name_for_two_exports_is_refused() {
        let e = ExportTable::new(vec![export(1, "/a", "/b"), export(2, "/b/", "/c")]).unwrap_err();
        assert!(e.to_string().contains("/b") && e.to_string().contains("`pseudo`"), "{e}");
        let e = ExportTable::new(vec![export(1, "/a", "/a"), export(1, "/b", "/b")]).unwrap_err();
        assert_eq!(e, TableError::Number(1));
    }

    #[test]
    fn a_client_of_any_export_is_admitted() {
        let mut s = ExportSettings::new("/b".into());
        s.clients = "10.0.0.0/8".parse().unwrap();
        let b = Arc::new(Export::new(2, s, Arc::new(Nothing)));
        let t = ExportTable::new(vec![export(1, "/a", "/a"), b]).unwrap();
        let peer = |s: &str| PeerAddr::Inet(s.parse().unwrap());
        assert!(t.admits_any(&peer("10.1.1.1:900")) && t.admits_any(&peer("127.0.0.1:900")));
        assert!(!t.admits_any(&peer("11.1.1.1:900")) && !t.admits_any(&peer("10.1.1.1:9000")));
        assert!(!ExportTable::default().admits_any(&peer("127.0.0.1:900")));
    }
}

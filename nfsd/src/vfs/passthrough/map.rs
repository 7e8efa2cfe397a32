//! The persistent map: how objects are found again that cannot be opened by a kernel handle.
//!
//! An entry has a number, which goes into the handle; a key, which tells the object from every other one (the
//! kernel's handle where there is one: it needs no privilege to ask for it, only to open it); and up to
//! [`PLACES_MAX`] places, each a parent entry and a name. Opening walks the names from the root and then compares the
//! key, so an object that was replaced behind our back is stale and never mistaken. A renamed directory takes
//! everything below with it, since places refer to parents by number.
//!
//! On disk this is a log of records with checksums; a torn end is cut off. A number is given to a client only after
//! its record is on stable storage; one flush serves all who wait. The map's epoch is part of every handle: numbers of
//! a map that was lost mean nothing in the next.

use super::handle;
use super::shared::PassthroughError;
use super::sync::{Group, lock};
use crate::vfs::{Handle, VfsError, VfsResult};
use rustc_hash::FxHashMap;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use sunrpc_sys::open::{self, PATH_MAX, Resolve};
use sunrpc_sys::{handle as kernel, stat};

const MAGIC: &[u8; 8] = b"nfsmap01";
/// Number of the root's entry.
const ROOT: u64 = 1;
/// Most entries; about 200 bytes of memory each.
const ENTRIES_MAX: usize = 1 << 22;
/// Most places remembered for an object with several names.
const PLACES_MAX: usize = 4;
/// Deepest path that is walked.
const DEPTH_MAX: usize = 4096;
/// Longest record: head, key, name.
const RECORD_MAX: usize = 1024;

type Key = Box<[u8]>;
type Place = (u64, Box<[u8]>);

#[derive(Debug)]
struct Entry {
    key: Key,
    /// The latest last.
    places: Vec<Place>,
}

#[derive(Debug, Default)]
struct State {
    entries: FxHashMap<u64, Entry>,
    by_key: FxHashMap<Key, u64>,
    by_place: FxHashMap<Place, u64>,
    next: u64,
    /// Records made so far; their bytes that are not written yet.
    records: u64,
    pending: Vec<u8>,
}

#[derive(Debug)]
struct Log {
    file: File,
    /// Bytes of the file that are whole records.
    good: u64,
}

/// The map.
pub(super) struct Map {
    epoch: u64,
    state: Mutex<State>,
    /// `None` if there is no state directory.
    log: Option<Mutex<Log>>,
    /// Records on stable storage.
    stable: AtomicU64,
    flush: Group,
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The bytes that tell an open object from every other on its file system.
pub(super) fn key_of(fd: BorrowedFd<'_>) -> io::Result<Box<[u8]>> {
    let named = kernel::of_fd(fd).or_else(|_| kernel::identify(fd));
    if let Ok((h, _)) = named {
        return Ok([&h.kind().to_le_bytes()[..], h.bytes()].concat().into());
    }
    // The last resort: number and time of creation.
    let st = stat::of_fd(fd)?;
    let (s, ns) = st.btime().unwrap_or_default();
    Ok([&0i32.to_le_bytes()[..], &st.ino().to_le_bytes(), &s.to_le_bytes(), &ns.to_le_bytes()]
        .concat()
        .into())
}

impl Map {
    /// Opens or begins the map of the directory at `path`; returns it with the root's handle.
    pub(super) fn open(
        dir: Option<&Path>,
        path: &Path,
        root: BorrowedFd<'_>,
    ) -> Result<(Self, Handle), PassthroughError> {
        let whole = path.canonicalize().unwrap_or_else(|_| path.into());
        let root_key = key_of(root).map_err(|source| PassthroughError::Root { path: path.into(), source })?;
        let (epoch, state, log) = match dir {
            None => (fresh_epoch(), State::default(), None),
            Some(dir) => {
                let mut h = siphasher::sip::SipHasher13::new();
                h.write(whole.as_os_str().as_encoded_bytes());
                let file = dir.join(format!("handles-{:016x}.map", h.finish()));
                let bad = |path: &Path| {
                    let path: PathBuf = path.into();
                    move |source| PassthroughError::State { path, source }
                };
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(bad(dir))?;
                let (epoch, state, log) = load(&file, &root_key)?.map_err(bad(&file))?;
                (epoch, state, Some(Mutex::new(log)))
            }
        };
        let handle = handle::mapped(0, ROOT, epoch).ok_or(PassthroughError::Foreign(whole))?;
        let map = Map {
            epoch,
            stable: AtomicU64::new(state.records),
            state: Mutex::new(state),
            log,
            flush: Group::default(),
        };
        {
            let mut st = lock(&map.state);
            if !st.entries.contains_key(&ROOT) {
                st.next = ROOT + 1;
                st.add(ROOT, &root_key, 0, b"");
            }
        }
        map.settle().map_err(|_| PassthroughError::State {
            path: dir.unwrap_or(Path::new("")).into(),
            source: io::Error::from_raw_os_error(libc::EIO),
        })?;
        Ok((map, handle))
    }

    /// True if the map outlives the process.
    pub(super) fn persistent(&self) -> bool {
        self.log.is_some()
    }

    /// The handle of the object with this key, found as `name` below `parent`. To be given out only after
    /// [`Map::settle`].
    pub(super) fn assign(&self, key: &[u8], parent: &Handle, name: &[u8]) -> VfsResult<Handle> {
        let parent = self.number(parent)?;
        let mut st = lock(&self.state);
        let id = match st.by_key.get(key).copied() {
            Some(ROOT) => ROOT,
            Some(id) => {
                if st.by_place.get(&(parent, name.into()) as &Place) != Some(&id) {
                    st.add(id, key, parent, name);
                }
                id
            }
            None => {
                if st.entries.len() >= ENTRIES_MAX {
                    return Err(VfsError::Fault);
                }
                let id = st.next;
                st.next += 1;
                st.add(id, key, parent, name);
                id
            }
        };
        handle::mapped(0, id, self.epoch).ok_or(VfsError::Fault)
    }

    /// The handle of the object with this key, if it has one.
    pub(super) fn known(&self, key: &[u8]) -> Option<Handle> {
        let id = *lock(&self.state).by_key.get(key)?;
        handle::mapped(0, id, self.epoch)
    }

    /// The object called `name` below `parent`, if it has a handle.
    pub(super) fn at(&self, parent: &Handle, name: &[u8]) -> Option<Handle> {
        let place: Place = (self.number(parent).ok()?, name.into());
        let id = *lock(&self.state).by_place.get(&place)?;
        handle::mapped(0, id, self.epoch)
    }

    /// A name was removed.
    pub(super) fn removed(&self, parent: &Handle, name: &[u8]) {
        if let Ok(parent) = self.number(parent) {
            lock(&self.state).drop_place(parent, name);
        }
    }

    /// A name was moved.
    pub(super) fn moved(&self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) {
        let (Ok(from_dir), Ok(to_dir)) = (self.number(from.0), self.number(to.0)) else { return };
        let mut st = lock(&self.state);
        let id = st.by_place.get(&(from_dir, from.1.into()) as &Place).copied();
        match id.and_then(|id| Some((id, st.entries.get(&id)?.key.clone()))) {
            Some((id, key)) => {
                st.add(id, &key, to_dir, to.1);
                st.drop_place(from_dir, from.1);
            }
            None => st.drop_place(to_dir, to.1),
        }
    }

    /// Opens the object of a handle with `O_PATH`.
    ///
    /// # Errors
    /// [`VfsError::Stale`] if it is nowhere to be found.
    pub(super) fn find(&self, root: BorrowedFd<'_>, id: u64, epoch: u64) -> VfsResult<OwnedFd> {
        if epoch != self.epoch {
            return Err(VfsError::Stale);
        }
        let (key, ways) = {
            let st = lock(&self.state);
            let entry = st.entries.get(&id).ok_or(VfsError::Stale)?;
            let ways: Vec<_> = (0..entry.places.len()).rev().filter_map(|i| st.way(entry, i)).collect();
            (entry.key.clone(), ways)
        };
        for way in ways {
            match walk(root, &way) {
                Ok(fd) if key_of(fd.as_fd()).is_ok_and(|k| k == key) => return Ok(fd),
                Ok(_) => {}
                Err(e) => match e.raw_os_error() {
                    Some(libc::EACCES) => return Err(VfsError::Acces),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => return Err(VfsError::Delay),
                    _ => {}
                },
            }
        }
        Err(VfsError::Stale)
    }

    /// Returns when every record made so far is on stable storage.
    pub(super) fn settle(&self) -> VfsResult<()> {
        let made = lock(&self.state).records;
        if self.stable.load(Ordering::Acquire) >= made {
            return Ok(());
        }
        let Some(log) = &self.log else {
            lock(&self.state).pending = Vec::new();
            return Ok(());
        };
        let done = self.flush.run(|| {
            let mut log = lock(log);
            let (bytes, made) = {
                let mut st = lock(&self.state);
                (std::mem::take(&mut st.pending), st.records)
            };
            let good = log.good;
            match log.append(&bytes) {
                Ok(()) => {
                    self.stable.store(made, Ordering::Release);
                    Ok(())
                }
                Err(e) => {
                    // What was written of it is cut off, and it is tried again with the next flush.
                    let _ = log.cut(good);
                    let mut st = lock(&self.state);
                    let later = std::mem::replace(&mut st.pending, bytes);
                    st.pending.extend(later);
                    Err(e.raw_os_error().unwrap_or(libc::EIO))
                }
            }
        });
        done.map_err(|e| match VfsError::from_errno(e) {
            VfsError::WouldBlock => VfsError::Io,
            other => other,
        })
    }

    fn number(&self, h: &Handle) -> VfsResult<u64> {
        match handle::decode(h) {
            Some(handle::Decoded::Mapped { id, epoch, .. }) if epoch == self.epoch => Ok(id),
            _ => Err(VfsError::Stale),
        }
    }
}

impl State {
    /// Adds a place to an entry, which is made if it is new. Whoever had that place loses it.
    fn add(&mut self, id: u64, key: &[u8], parent: u64, name: &[u8]) {
        self.record(1, id, parent, key, name);
        self.apply_add(id, key, parent, name);
    }

    fn drop_place(&mut self, parent: u64, name: &[u8]) {
        if self.by_place.contains_key(&(parent, name.into()) as &Place) {
            self.record(2, 0, parent, b"", name);
            self.apply_drop(parent, name);
        }
    }

    fn apply_add(&mut self, id: u64, key: &[u8], parent: u64, name: &[u8]) {
        self.next = self.next.max(id + 1);
        let place: Place = (parent, name.into());
        if self.by_place.get(&place).is_some_and(|other| *other != id) {
            self.apply_drop(parent, name);
        }
        let e = self.entries.entry(id).or_insert_with(|| Entry { key: key.into(), places: Vec::new() });
        e.places.retain(|p| *p != place);
        e.places.push(place.clone());
        let extra = (e.places.len() > PLACES_MAX).then(|| e.places.remove(0));
        self.by_key.insert(e.key.clone(), id);
        self.by_place.insert(place, id);
        if let Some(p) = extra {
            self.by_place.remove(&p);
        }
    }

    fn apply_drop(&mut self, parent: u64, name: &[u8]) {
        let place: Place = (parent, name.into());
        let Some(id) = self.by_place.remove(&place) else { return };
        let Some(e) = self.entries.get_mut(&id) else { return };
        e.places.retain(|p| *p != place);
        if e.places.is_empty() && id != ROOT {
            if self.by_key.get(&e.key) == Some(&id) {
                self.by_key.remove(&e.key);
            }
            self.entries.remove(&id);
        }
    }

    /// Names from the root to one place of an entry.
    fn way(&self, entry: &Entry, place: usize) -> Option<Vec<Box<[u8]>>> {
        let mut names = Vec::new();
        let (mut parent, mut name) = entry.places.get(place)?.clone();
        while parent != 0 {
            names.push(name);
            if names.len() > DEPTH_MAX {
                return None;
            }
            (parent, name) = self.entries.get(&parent)?.places.last()?.clone();
        }
        names.reverse();
        Some(names)
    }

    fn record(&mut self, what: u8, id: u64, parent: u64, key: &[u8], name: &[u8]) {
        let at = self.pending.len();
        let len = 1 + 8 + 8 + 1 + key.len() + name.len();
        self.pending.extend((len as u16).to_le_bytes());
        self.pending.extend([0; 4]);
        self.pending.push(what);
        self.pending.extend(id.to_le_bytes());
        self.pending.extend(parent.to_le_bytes());
        self.pending.push(key.len() as u8);
        self.pending.extend(key);
        self.pending.extend(name);
        let sum = self.pending.get(at + 6..).map(checksum).unwrap_or_default();
        if let Some(s) = self.pending.get_mut(at + 2..at + 6) {
            s.copy_from_slice(&sum);
        }
        self.records += 1;
    }

    /// Applies one record as read from disk; `None` if it is none.
    fn replay(&mut self, body: &[u8]) -> Option<()> {
        let (what, rest) = body.split_first()?;
        let (id, rest) = rest.split_first_chunk::<8>()?;
        let (parent, rest) = rest.split_first_chunk::<8>()?;
        let (key_len, rest) = rest.split_first()?;
        let (key, name) = rest.split_at_checked(usize::from(*key_len))?;
        let (id, parent) = (u64::from_le_bytes(*id), u64::from_le_bytes(*parent));
        match what {
            1 if id < u64::MAX => self.apply_add(id, key, parent, name),
            2 => self.apply_drop(parent, name),
            _ => return None,
        }
        Some(())
    }
}

impl Log {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        self.good += bytes.len() as u64;
        Ok(())
    }

    fn cut(&mut self, at: u64) -> io::Result<()> {
        use std::io::Seek;
        self.file.set_len(at)?;
        self.file.seek(io::SeekFrom::Start(at)).map(drop)
    }
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let mut h = siphasher::sip::SipHasher13::new();
    h.write(body);
    (h.finish() as u32).to_le_bytes()
}

fn fresh_epoch() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // Without randomness the clock tells starts apart.
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
    })
}

/// Reads a map, or begins one if there is none or it is of another root.
#[allow(clippy::type_complexity)]
fn load(path: &Path, root_key: &[u8]) -> Result<io::Result<(u64, State, Log)>, PassthroughError> {
    let inner = || -> io::Result<Option<(u64, State, Log)>> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        file.try_lock().map_err(|e| match e {
            std::fs::TryLockError::Error(e) => e,
            std::fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another server uses it for this directory")
            }
        })?;
        let mut head = [0u8; 16];
        let begun = read_whole(&mut file, &mut head)?;
        let (magic, epoch) = head.split_at(8);
        if begun && magic != MAGIC {
            return Ok(None);
        }
        let mut epoch = epoch.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let mut state = State::default();
        let mut log = Log { file, good: 0 };
        let mut dead = 0;
        if begun {
            (log.good, dead) = replay_all(&log.file, &mut state)?;
        }
        if state.entries.get(&ROOT).is_none_or(|e| *e.key != *root_key) {
            // New, or this path leads to another directory now: what was given out for the old one must not be
            // found in the new.
            epoch = fresh_epoch();
            state = State::default();
            log.cut(0)?;
            log.append(&[&MAGIC[..], &epoch.to_le_bytes()].concat())?;
            log.file.sync_all()?;
            if let Some(dir) = path.parent() {
                File::open(dir)?.sync_all()?;
            }
        } else {
            let good = log.good;
            log.cut(good)?;
            if dead > 1000 + 2 * state.entries.len() {
                log = compact(path, epoch, &mut state)?;
            }
        }
        state.pending.clear();
        state.records = 0;
        Ok(Some((epoch, state, log)))
    };
    match inner() {
        Ok(Some(ok)) => Ok(Ok(ok)),
        Ok(None) => Err(PassthroughError::Foreign(path.into())),
        Err(e) => Ok(Err(e)),
    }
}

fn read_whole(from: &mut impl Read, buf: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buf) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// Replays records until the end or the first broken one; returns the whole bytes and the number of records.
fn replay_all(file: &File, state: &mut State) -> io::Result<(u64, usize)> {
    let mut from = io::BufReader::with_capacity(1 << 16, file);
    let (mut good, mut records) = (16u64, 0);
    let mut body = [0u8; RECORD_MAX];
    let mut head = [0u8; 6];
    while read_whole(&mut from, &mut head)? {
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let Some(body) = body.get_mut(..len) else { break };
        if !read_whole(&mut from, body)? || head[2..] != checksum(body) || state.replay(body).is_none() {
            break;
        }
        good += 6 + len as u64;
        records += 1;
    }
    Ok((good, records))
}

/// Writes the map anew without what no longer counts.
fn compact(path: &Path, epoch: u64, state: &mut State) -> io::Result<Log> {
    let new = path.with_extension("new");
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.try_lock().map_err(io::Error::from)?;
    let mut log = Log { file, good: 0 };
    let mut bytes = [&MAGIC[..], &epoch.to_le_bytes()].concat();
    let entries = std::mem::take(&mut state.entries);
    state.pending.clear();
    for (id, e) in &entries {
        for (parent, name) in &e.places {
            state.record(1, *id, *parent, &e.key, name);
        }
    }
    state.entries = entries;
    bytes.append(&mut state.pending);
    log.append(&bytes)?;
    std::fs::rename(&new, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(log)
}

/// Opens what `names` lead to below `root`, without passing links or mounts.
fn walk(root: BorrowedFd<'_>, names: &[Box<[u8]>]) -> io::Result<OwnedFd> {
    const FLAGS: i32 = libc::O_PATH | libc::O_NOFOLLOW;
    let mut at = open::beneath(root, b".", FLAGS, Resolve::CONFINED)?;
    let mut path = Vec::new();
    for (i, name) in names.iter().enumerate() {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let next = names.get(i + 1).map_or(PATH_MAX, |n| n.len() + 1);
        if path.len() + next > PATH_MAX || i + 1 == names.len() {
            at = open::beneath(at.as_fd(), &path, FLAGS, Resolve::CONFINED)?;
            path.clear();
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    struct Rig {
        root: tempfile::TempDir,
        state: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Self {
            Rig { root: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() }
        }

        fn fd(&self) -> OwnedFd {
            open::directory(self.root.path().as_os_str().as_encoded_bytes()).unwrap()
        }

        fn open(&self) -> Result<(Map, Handle), PassthroughError> {
            Map::open(Some(self.state.path()), self.root.path(), self.fd().as_fd())
        }

        fn file(&self) -> PathBuf {
            let mut all: Vec<_> =
                std::fs::read_dir(self.state.path()).unwrap().map(|e| e.unwrap().path()).collect();
            assert_eq!(all.len(), 1);
            all.pop().unwrap()
        }

        fn assign(&self, map: &Map, parent: &Handle, path: &str) -> Handle {
            let fd =
                open::beneath(self.fd().as_fd(), path.as_bytes(), libc::O_PATH, Resolve::CONFINED).unwrap();
            let name = path.rsplit('/').next().unwrap();
            map.assign(&key_of(fd.as_fd()).unwrap(), parent, name.as_bytes()).unwrap()
        }

        fn find(&self, map: &Map, h: &Handle) -> VfsResult<u64> {
            let Some(handle::Decoded::Mapped { id, epoch, .. }) = handle::decode(h) else { panic!() };
            let fd = map.find(self.fd().as_fd(), id, epoch)?;
            Ok(stat::of_fd(fd.as_fd()).unwrap().ino())
        }
    }

    fn touch(r: &Rig, name: &str) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let p = r.root.path().join(name);
        std::fs::write(&p, b"").unwrap();
        std::fs::metadata(p).unwrap().ino()
    }

    #[test]
    fn what_was_settled_survives_a_torn_end() {
        let r = Rig::new();
        let inos: Vec<_> = (0..20).map(|i| touch(&r, &format!("f{i}"))).collect();
        let (map, root) = r.open().unwrap();
        let handles: Vec<_> = (0..20).map(|i| r.assign(&map, &root, &format!("f{i}"))).collect();
        map.settle().unwrap();
        drop(map);
        let whole = std::fs::read(r.file()).unwrap();
        for cut in (16..whole.len()).step_by(7).chain([whole.len()]) {
            std::fs::write(r.file(), &whole[..cut]).unwrap();
            let (map, again) = r.open().unwrap();
            let found: Vec<_> = handles.iter().map(|h| r.find(&map, h)).collect();
            let n = found.iter().take_while(|f| f.is_ok()).count();
            assert!(found[n..].iter().all(|f| *f == Err(VfsError::Stale)));
            for (f, ino) in found.iter().zip(&inos).take(n) {
                assert_eq!(f, &Ok(*ino));
            }
            assert_eq!(n == 20, cut == whole.len());
            // The map goes on behind what is whole.
            if again == root {
                let h = r.assign(&map, &root, "f19");
                map.settle().unwrap();
                drop(map);
                let (map, _) = r.open().unwrap();
                assert_eq!(r.find(&map, &h), Ok(inos[19]));
            }
        }
        std::fs::write(r.file(), &whole).unwrap();
        let f = OpenOptions::new().write(true).open(r.file()).unwrap();
        f.write_all_at(&[0xff], whole.len() as u64 / 2).unwrap();
        let (map, _) = r.open().unwrap();
        assert_eq!(r.find(&map, &handles[19]), Err(VfsError::Stale));
        assert_eq!(r.find(&map, &handles[0]), Ok(inos[0]));
    }

    #[test]
    fn a_lost_map_makes_its_handles_stale_and_a_foreign_one_is_left_alone() {
        let r = Rig::new();
        touch(&r, "f");
        let (map, root) = r.open().unwrap();
        let f = r.assign(&map, &root, "f");
        map.settle().unwrap();
        assert!(matches!(r.open(), Err(PassthroughError::State { .. })), "in use");
        drop(map);
        std::fs::remove_file(r.file()).unwrap();
        let (map, other) = r.open().unwrap();
        assert_ne!(root, other);
        assert_eq!(r.assign(&map, &other, "f").as_bytes()[3..11], f.as_bytes()[3..11], "the same number");
        assert_eq!(r.find(&map, &f), Err(VfsError::Stale));
        assert_eq!(map.assign(b"key", &root, b"x"), Err(VfsError::Stale));
        drop(map);
        std::fs::write(r.file(), b"something else entirely").unwrap();
        assert!(matches!(r.open(), Err(PassthroughError::Foreign(_))));
        assert_eq!(std::fs::read(r.file()).unwrap(), b"something else entirely");
    }

    #[test]
    fn places_follow_names() {
        let r = Rig::new();
        std::fs::create_dir_all(r.root.path().join("a/b")).unwrap();
        let ino = touch(&r, "a/b/f");
        let (map, root) = r.open().unwrap();
        let a = r.assign(&map, &root, "a");
        let b = r.assign(&map, &a, "a/b");
        let f = r.assign(&map, &b, "a/b/f");
        assert_eq!(r.find(&map, &f), Ok(ino));
        std::fs::rename(r.root.path().join("a"), r.root.path().join("z")).unwrap();
        assert_eq!(r.find(&map, &f), Err(VfsError::Stale));
        map.moved((&root, b"a"), (&root, b"z"));
        assert_eq!(r.find(&map, &f), Ok(ino));
        std::fs::hard_link(r.root.path().join("z/b/f"), r.root.path().join("g")).unwrap();
        assert_eq!(r.assign(&map, &root, "g"), f);
        std::fs::remove_file(r.root.path().join("z/b/f")).unwrap();
        map.removed(&b, b"f");
        assert_eq!(r.find(&map, &f), Ok(ino));
        std::fs::remove_file(r.root.path().join("g")).unwrap();
        map.removed(&root, b"g");
        assert_eq!(r.find(&map, &f), Err(VfsError::Stale));
        let new = touch(&r, "g");
        let g = r.assign(&map, &root, "g");
        assert_ne!(g, f, "numbers are not used again");
        assert_eq!(r.find(&map, &g), Ok(new));
    }

    #[test]
    fn a_long_history_is_compacted() {
        let r = Rig::new();
        let ino = touch(&r, "f");
        let (map, root) = r.open().unwrap();
        let f = r.assign(&map, &root, "f");
        for i in 0..2000 {
            map.moved((&root, format!("f{}", i - 1).as_bytes()), (&root, format!("f{i}").as_bytes()));
            map.assign(format!("key {i}").as_bytes(), &root, b"passing").unwrap();
        }
        map.removed(&root, b"passing");
        map.settle().unwrap();
        drop(map);
        let before = std::fs::metadata(r.file()).unwrap().len();
        let (map, again) = r.open().unwrap();
        assert_eq!(again, root);
        assert!(std::fs::metadata(r.file()).unwrap().len() < before / 100);
        assert_eq!(r.find(&map, &f), Ok(ino));
        assert!(r.open().is_err(), "the new file is locked as the old one was");
        drop(map);
        assert_eq!(r.find(&r.open().unwrap().0, &f), Ok(ino));
    }

    #[test]
    fn without_a_state_directory_handles_last_as_long_as_the_process() {
        let r = Rig::new();
        let ino = touch(&r, "f");
        let (map, root) = Map::open(None, r.root.path(), r.fd().as_fd()).unwrap();
        let f = r.assign(&map, &root, "f");
        map.settle().unwrap();
        assert!(!map.persistent() && lock(&map.state).pending.is_empty());
        assert_eq!(r.find(&map, &f), Ok(ino));
        let (map, _) = Map::open(None, r.root.path(), r.fd().as_fd()).unwrap();
        assert_eq!(r.find(&map, &f), Err(VfsError::Stale));
    }
}

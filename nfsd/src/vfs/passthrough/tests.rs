//! The operations on a memory and a disk file system, as root and as a user without privilege.

use super::ident;
use super::*;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

pub(super) fn ident(uid: u32, gid: u32) -> Identity {
    Identity { uid, gid, groups: SmallVec::new() }
}

pub(super) const BASES: [&str; 2] = ["/tmp", "/dev/shm"];

/// True if the tests may act for others.
pub(super) fn privileged() -> bool {
    use sunrpc_sys::cred::capabilities;
    let yes = capabilities().is_ok_and(|c| c.permitted.has(ident::NEEDED));
    if !yes {
        eprintln!("SKIPPED: needs the capabilities of root");
    }
    yes
}

/// Runs `f` with the process's own rights, whatever the thread did for a caller before.
pub(super) fn local<R>(f: impl FnOnce() -> R) -> R {
    if sunrpc_sys::cred::current().2 == 0 {
        ident::become_user(&ident(0, 0)).unwrap();
    }
    f()
}

/// A directory and one thread's view of it.
pub(super) struct Rig {
    pub(super) dir: PathBuf,
    pub(super) backend: Passthrough,
    pub(super) fs: Worker,
    pub(super) root: Handle,
    pub(super) me: Identity,
    pub(super) sync: bool,
    pub(super) blocking: bool,
    pub(super) lenient: bool,
    state: Option<PathBuf>,
    _dirs: Vec<tempfile::TempDir>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        local(|| ());
    }
}

impl Rig {
    pub(super) fn new(base: &str, uid: u32) -> Self {
        Self::with(base, uid, false)
    }

    pub(super) fn with(base: &str, uid: u32, unprivileged: bool) -> Self {
        local(|| {
            let dir = tempfile::tempdir_in(base).unwrap();
            let state = tempfile::tempdir().unwrap();
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
            Self::at(dir.path().into(), Some(state.path().into()), uid, unprivileged, vec![dir, state])
        })
    }

    fn at(
        dir: PathBuf,
        state: Option<PathBuf>,
        uid: u32,
        unprivileged: bool,
        dirs: Vec<tempfile::TempDir>,
    ) -> Self {
        let opts = PassthroughOptions { state_dir: state.clone(), unprivileged, ..Default::default() };
        let backend = Passthrough::open(&dir, opts).unwrap();
        let mut fs = Worker::new(backend.shared.clone());
        let root = fs.root().unwrap();
        Rig {
            dir,
            backend,
            fs,
            root,
            me: ident(uid, uid),
            sync: false,
            blocking: true,
            lenient: true,
            state,
            _dirs: dirs,
        }
    }

    /// The server ends and starts again.
    pub(super) fn restart(mut self) -> Self {
        let (dirs, unprivileged) = (std::mem::take(&mut self._dirs), self.backend.shared.map.is_some());
        let (dir, state, uid) = (self.dir.clone(), self.state.clone(), self.me.uid);
        drop(self);
        local(|| Self::at(dir, state, uid, unprivileged, dirs))
    }

    pub(super) fn cx(&self) -> (Identity, bool, bool, bool) {
        (self.me.clone(), self.blocking, self.sync, self.lenient)
    }

    /// Runs an operation as the rig's caller.
    pub(super) fn run<R>(&mut self, f: impl FnOnce(&mut Worker, &Cx<'_>) -> R) -> R {
        let (ident, blocking, sync, owner_override) = self.cx();
        f(&mut self.fs, &Cx { ident: &ident, blocking, sync, owner_override })
    }

    pub(super) fn lookup(&mut self, dir: &Handle, name: &str) -> VfsResult<Entry> {
        self.run(|fs, cx| fs.lookup(cx, dir, name.as_bytes()))
    }

    pub(super) fn getattr(&mut self, h: &Handle) -> VfsResult<Attr> {
        self.run(|fs, cx| fs.getattr(cx, h))
    }

    pub(super) fn create(&mut self, dir: &Handle, name: &str, mode: u32) -> VfsResult<Entry> {
        let set = SetAttr { mode: Some(mode), ..Default::default() };
        self.run(|fs, cx| fs.create(cx, dir, name.as_bytes(), &CreateHow::Guarded(set)))
    }

    pub(super) fn mkdir(&mut self, dir: &Handle, name: &str, mode: u32) -> VfsResult<Entry> {
        let set = SetAttr { mode: Some(mode), ..Default::default() };
        self.run(|fs, cx| fs.mkdir(cx, dir, name.as_bytes(), &set))
    }

    pub(super) fn write(&mut self, h: &Handle, offset: u64, data: &[u8]) -> VfsResult<WriteDone> {
        self.run(|fs, cx| fs.write(cx, h, offset, &[IoSlice::new(data)], Stability::Unstable))
    }

    pub(super) fn read(&mut self, h: &Handle, offset: u64, len: usize) -> VfsResult<(Vec<u8>, bool)> {
        let mut buf = vec![0; len];
        let (a, b) = buf.split_at_mut(len / 3);
        let done =
            self.run(|fs, cx| fs.read(cx, h, offset, &mut [IoSliceMut::new(a), IoSliceMut::new(b)]))?;
        assert!(done.len <= len, "{} bytes for {len}", done.len);
        buf.truncate(done.len);
        Ok((buf, done.eof))
    }

    pub(super) fn remove(&mut self, dir: &Handle, name: &str) -> VfsResult<()> {
        self.run(|fs, cx| fs.remove(cx, dir, name.as_bytes()))
    }

    pub(super) fn rename(&mut self, from: (&Handle, &str), to: (&Handle, &str)) -> VfsResult<()> {
        self.run(|fs, cx| fs.rename(cx, (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes())))
    }

    pub(super) fn setattr(&mut self, h: &Handle, set: SetAttr) -> VfsResult<Attr> {
        self.run(|fs, cx| fs.setattr(cx, h, &set, None))
    }

    /// One call of READDIR that has room for `room` entries.
    pub(super) fn page(
        &mut self,
        dir: &Handle,
        cookie: u64,
        room: usize,
        plus: bool,
    ) -> VfsResult<(Vec<Listed>, bool)> {
        let mut sink = Page { room, got: Vec::new() };
        let want = ReaddirWant { plus, bytes: 4096 };
        let end = self.run(|fs, cx| fs.readdir(cx, dir, cookie, want, &mut sink))?;
        Ok((sink.got, end))
    }

    pub(super) fn list(&mut self, dir: &Handle, room: usize, plus: bool) -> Vec<Listed> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (page, end) = self.page(dir, cookie, room, plus).unwrap();
            cookie = page.last().map_or(cookie, |e| e.cookie);
            all.extend(page);
            if end {
                break all;
            }
        }
    }
}

pub(super) struct Listed {
    pub(super) name: String,
    pub(super) fileid: u64,
    pub(super) cookie: u64,
    pub(super) entry: Option<Entry>,
}

struct Page {
    room: usize,
    got: Vec<Listed>,
}

impl DirSink for Page {
    fn entry(&mut self, e: &DirEntry<'_>) -> ControlFlow<()> {
        if self.got.len() >= self.room {
            return ControlFlow::Break(());
        }
        self.got.push(Listed {
            name: String::from_utf8_lossy(e.name).into_owned(),
            fileid: e.fileid,
            cookie: e.cookie,
            entry: e.entry.copied(),
        });
        ControlFlow::Continue(())
    }
}

/// Runs a test on both file systems, as uid 0 and as a user, and without privilege.
pub(super) fn everywhere(test: impl Fn(&mut Rig)) {
    for base in BASES {
        if privileged() {
            for uid in [0, 1000] {
                test(&mut Rig::new(base, uid));
            }
        }
        test(&mut Rig::with(base, 0, true));
    }
}

#[test]
fn files_are_made_written_read_renamed_and_removed() {
    everywhere(|r| {
        let root = r.root;
        assert_eq!(r.lookup(&root, "f").unwrap_err(), VfsError::NoEnt);
        let f = r.create(&root, "f", 0o640).unwrap();
        assert_eq!((f.attr.mode, f.attr.size, f.attr.nlink), (0o640, 0, 1));
        if r.backend.privileged() {
            assert_eq!((f.attr.uid, f.attr.gid), (r.me.uid, r.me.gid));
        }
        assert_eq!(r.create(&root, "f", 0o640).unwrap_err(), VfsError::Exist);
        let w = r.write(&f.handle, 4, b"hello world").unwrap();
        assert_eq!((w.len, w.attr.size), (11, 15));
        assert_eq!(r.read(&f.handle, 0, 9).unwrap(), (b"\0\0\0\0hello".to_vec(), false));
        assert_eq!(r.read(&f.handle, 4, 11).unwrap(), (b"hello world".to_vec(), true));
        assert_eq!(r.read(&f.handle, 10, 4096).unwrap(), (b"world".to_vec(), true));
        assert_eq!(r.read(&f.handle, 15, 1).unwrap(), (vec![], true));
        let found = r.lookup(&root, "f").unwrap();
        assert_eq!((found.handle, found.attr), (f.handle, r.getattr(&f.handle).unwrap()));
        let d = r.mkdir(&root, "d", 0o755).unwrap();
        r.rename((&root, "f"), (&d.handle, "g")).unwrap();
        assert_eq!(r.read(&f.handle, 4, 5).unwrap().0, b"hello");
        assert_eq!(r.lookup(&d.handle, "g").unwrap().handle, f.handle);
        assert_eq!(r.lookup(&root, "f").unwrap_err(), VfsError::NoEnt);
        assert_eq!(r.run(|fs, cx| fs.rmdir(cx, &root, b"d")), Err(VfsError::NotEmpty));
        assert_eq!(r.remove(&root, "d"), Err(VfsError::IsDir));
        assert_eq!(r.run(|fs, cx| fs.rmdir(cx, &d.handle, b"g")), Err(VfsError::NotDir));
        r.remove(&d.handle, "g").unwrap();
        assert_eq!(r.getattr(&f.handle).unwrap_err(), VfsError::Stale);
        assert_eq!(r.read(&f.handle, 0, 1).unwrap_err(), VfsError::Stale);
        r.run(|fs, cx| fs.rmdir(cx, &root, b"d")).unwrap();
        assert_eq!(r.lookup(&d.handle, "g").unwrap_err(), VfsError::Stale);
        assert_eq!(r.create(&d.handle, "g", 0o600).unwrap_err(), VfsError::Stale);
    });
}

#[test]
fn handles_survive_rename_and_restart_and_never_name_another_object() {
    for base in BASES {
        for unprivileged in [false, true] {
            if !unprivileged && !privileged() {
                continue;
            }
            let mut r = Rig::with(base, 0, unprivileged);
            let root = r.root;
            let d = r.mkdir(&root, "d", 0o755).unwrap().handle;
            let sub = r.mkdir(&d, "sub", 0o755).unwrap().handle;
            let f = r.create(&sub, "f", 0o644).unwrap().handle;
            r.write(&f, 0, b"one").unwrap();
            r.rename((&root, "d"), (&root, "e")).unwrap();
            let g = r.create(&d, "by old handle", 0o644).unwrap().handle;
            let gone = r.create(&sub, "gone", 0o644).unwrap().handle;
            r.remove(&sub, "gone").unwrap();
            let mut r = r.restart();
            assert_eq!(r.root, root);
            assert_eq!(r.read(&f, 0, 9).unwrap().0, b"one");
            r.write(&f, 3, b" two").unwrap();
            assert_eq!(r.lookup(&d, "by old handle").unwrap().handle, g);
            assert_eq!(r.lookup(&sub, "f").unwrap().handle, f);
            assert_eq!(r.getattr(&gone).unwrap_err(), VfsError::Stale);
            // A local process replaces the file: the name is another object now.
            local(|| {
                std::fs::write(r.dir.join("e/sub/new"), b"other").unwrap();
                std::fs::rename(r.dir.join("e/sub/new"), r.dir.join("e/sub/f")).unwrap();
            });
            let mut r = r.restart();
            assert_eq!(r.getattr(&f).unwrap_err(), VfsError::Stale);
            let new = r.lookup(&sub, "f").unwrap().handle;
            assert_ne!(new, f);
            assert_eq!(r.read(&new, 0, 9).unwrap().0, b"other");
            assert_eq!(r.getattr(&f).unwrap_err(), VfsError::Stale);
        }
    }
}

#[test]
fn forged_handles_are_refused() {
    everywhere(|r| {
        let root = r.root;
        let f = r.create(&root, "f", 0o644).unwrap().handle;
        for i in 0..f.as_bytes().len() {
            for bit in 0..8 {
                let mut b = f.as_bytes().to_vec();
                b[i] ^= 1 << bit;
                let h = Handle::new(&b).unwrap();
                match r.getattr(&h) {
                    Err(VfsError::Stale | VfsError::BadHandle) => {}
                    // Some file systems take another type for the same; and a number may be that of another object
                    // that exists, which the MAC around handles forbids, not this layer.
                    Ok(a) => {
                        let (own, up) = (r.getattr(&f).unwrap().fileid, r.getattr(&root).unwrap().fileid);
                        assert!(a.fileid == own && i == 2 || a.fileid == up || i > 2, "byte {i} bit {bit}");
                    }
                    Err(e) => panic!("{e:?}"),
                }
            }
        }
        for b in [&b""[..], b"\0", b"\0\0\0", b"\0\0\x01", &[0xff; HANDLE_MAX], &[0; HANDLE_MAX]] {
            let h = Handle::new(b).unwrap();
            assert!(matches!(r.getattr(&h), Err(VfsError::Stale | VfsError::BadHandle)), "{b:?}");
            assert!(r.lookup(&h, "x").is_err() && r.page(&h, 0, 9, true).is_err());
        }
    });
}

#[test]
fn nothing_leads_out_of_the_export() {
    for base in BASES {
        for unprivileged in [false, true] {
            if !unprivileged && !privileged() {
                continue;
            }
            let mut r = Rig::with(base, 0, unprivileged);
            let root = r.root;
            assert_eq!(r.lookup(&root, "..").unwrap().handle, root);
            assert_eq!(r.lookup(&root, ".").unwrap().handle, root);
            let d = r.mkdir(&root, "d", 0o755).unwrap().handle;
            let e = r.mkdir(&d, "e", 0o755).unwrap().handle;
            assert_eq!(r.lookup(&e, "..").unwrap().handle, d);
            assert_eq!(r.lookup(&d, "..").unwrap().handle, root);
            let up = r.list(&root, 100, true);
            let up = up.iter().find(|e| e.name == "..").unwrap();
            let own = r.getattr(&root).unwrap();
            assert_eq!((up.fileid, up.entry.unwrap().handle), (own.fileid, root));
            for name in ["", "a/b", "../x", "/etc/passwd", "a\0b"] {
                assert_eq!(r.lookup(&root, name).unwrap_err(), VfsError::Inval, "{name:?}");
                assert_eq!(r.create(&root, name, 0o600).unwrap_err(), VfsError::Inval);
            }
            for name in [".", ".."] {
                assert_eq!(r.mkdir(&root, name, 0o600).unwrap_err(), VfsError::Inval);
                assert_eq!(r.remove(&root, name).unwrap_err(), VfsError::Inval);
                assert_eq!(r.rename((&root, name), (&root, "x")).unwrap_err(), VfsError::Inval);
            }
            // A directory that leaves the export does not show what is above it now.
            let outside = local(|| tempfile::tempdir_in(base).unwrap());
            local(|| std::fs::rename(r.dir.join("d/e"), outside.path().join("e")).unwrap());
            assert!(matches!(r.lookup(&e, ".."), Err(VfsError::Acces | VfsError::Stale)));
            local(|| drop(outside));
        }
    }
}

#[test]
fn symbolic_links_are_kept_and_never_followed() {
    everywhere(|r| {
        let root = r.root;
        let target = local(|| {
            let t = r.dir.join("target");
            std::fs::write(&t, b"safe").unwrap();
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&t, std::fs::Permissions::from_mode(0o666)).unwrap();
            std::fs::metadata(&t).unwrap().modified().unwrap()
        });
        let long = [&b"\xff\xfe \n//"[..], &[b'x'; 1000]].concat();
        for (name, to) in [("l", &b"target"[..]), ("long", &long)] {
            let l =
                r.run(|fs, cx| fs.do_symlink(cx, &root, name.as_bytes(), to, &SetAttr::default())).unwrap();
            assert_eq!((l.attr.ftype, l.attr.size), (FileType::Symlink, to.len() as u64));
            let mut buf = [0u8; 4096];
            let n = r.run(|fs, cx| fs.readlink(cx, &l.handle, &mut buf)).unwrap();
            assert_eq!(&buf[..n], to);
        }
        let l = r.lookup(&root, "l").unwrap();
        assert_eq!(l.attr.ftype, FileType::Symlink);
        let zero = SetAttr { size: Some(0), ..Default::default() };
        for how in [CreateHow::Unchecked(zero), CreateHow::Guarded(zero), CreateHow::Exclusive([1; 8])] {
            assert_eq!(r.run(|fs, cx| fs.create(cx, &root, b"l", &how)).unwrap_err(), VfsError::Exist);
        }
        assert_eq!(r.setattr(&l.handle, zero).unwrap_err(), VfsError::Inval);
        let mode = SetAttr { mode: Some(0o600), ..Default::default() };
        assert_eq!(r.setattr(&l.handle, mode).unwrap_err(), VfsError::NotSupp);
        let times = SetAttr { mtime: SetTime::To(Time { sec: 77, nsec: 0 }), ..Default::default() };
        assert_eq!(r.setattr(&l.handle, times).unwrap().mtime.sec, 77);
        assert_eq!(r.lookup(&l.handle, "x").unwrap_err(), VfsError::NotDir);
        assert_eq!(r.read(&l.handle, 0, 1).unwrap_err(), VfsError::Inval);
        assert_eq!(r.write(&l.handle, 0, b"x").unwrap_err(), VfsError::Inval);
        local(|| {
            assert_eq!(std::fs::read(r.dir.join("target")).unwrap(), b"safe");
            assert_eq!(std::fs::metadata(r.dir.join("target")).unwrap().modified().unwrap(), target);
        });
        let f = r.lookup(&root, "target").unwrap().handle;
        let mut buf = [0u8; 64];
        assert_eq!(r.run(|fs, cx| fs.readlink(cx, &f, &mut buf)), Err(VfsError::Inval));
    });
}

#[test]
fn renames_behave_as_the_system_call_does() {
    everywhere(|r| {
        let root = r.root;
        let a = r.create(&root, "a", 0o644).unwrap().handle;
        let attr = r.run(|fs, cx| fs.link(cx, &a, &root, b"b")).unwrap();
        assert_eq!(attr.nlink, 2);
        r.rename((&root, "a"), (&root, "b")).unwrap();
        assert_eq!(r.lookup(&root, "a").unwrap().attr.nlink, 2, "both names of one file stay");
        assert_eq!(r.lookup(&root, "b").unwrap().attr.nlink, 2);
        let d = r.mkdir(&root, "d", 0o755).unwrap().handle;
        let e = r.mkdir(&d, "e", 0o755).unwrap().handle;
        assert_eq!(r.rename((&root, "d"), (&e, "f")), Err(VfsError::Inval));
        r.mkdir(&root, "empty", 0o755).unwrap();
        assert_eq!(r.rename((&root, "empty"), (&root, "d")), Err(VfsError::NotEmpty));
        assert_eq!(r.rename((&root, "a"), (&root, "d")), Err(VfsError::IsDir));
        assert_eq!(r.rename((&root, "d"), (&root, "a")), Err(VfsError::NotDir));
        assert_eq!(r.rename((&root, "none"), (&root, "x")), Err(VfsError::NoEnt));
        let x = r.create(&root, "x", 0o644).unwrap().handle;
        let y = r.create(&root, "y", 0o644).unwrap().handle;
        r.rename((&root, "x"), (&root, "y")).unwrap();
        assert_eq!(r.getattr(&y).unwrap_err(), VfsError::Stale);
        assert_eq!(r.lookup(&root, "y").unwrap().handle, x);
        assert!(r.run(|fs, cx| fs.link(cx, &d, &root, b"dir link")).is_err());
        assert_eq!(r.run(|fs, cx| fs.link(cx, &x, &root, b"a")), Err(VfsError::Exist));
    });
}

#[test]
fn listings_report_every_stable_name_once_while_others_come_and_go() {
    everywhere(|r| {
        let root = r.root;
        let d = r.mkdir(&root, "d", 0o755).unwrap().handle;
        let names: Vec<_> = (0..2500).map(|i| format!("stable {i}")).collect();
        local(|| {
            for n in &names {
                std::fs::write(r.dir.join("d").join(n), b"").unwrap();
            }
            for i in 0..300 {
                std::fs::write(r.dir.join("d").join(format!("doomed {i}")), b"").unwrap();
            }
        });
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let (mut cookie, mut round, mut doomed) = (0, 0u32, 0..300);
        loop {
            round += 1;
            let plus = round.is_multiple_of(2);
            let (page, end) = r.page(&d, cookie, 37, plus).unwrap();
            for e in &page {
                *seen.entry(e.name.clone()).or_default() += 1;
                if let Some(x) = &e.entry {
                    assert_eq!(x.attr.fileid, e.fileid);
                }
            }
            cookie = page.last().map_or(cookie, |e| e.cookie);
            if end {
                break;
            }
            if let Some(e) = page.last().filter(|e| e.name.starts_with("doomed")) {
                r.remove(&d, &e.name).unwrap(); // the cookie's own entry
            }
            if let Some(i) = doomed.next() {
                let _ = r.remove(&d, &format!("doomed {i}"));
            }
            r.create(&d, &format!("new {round}"), 0o644).unwrap();
            match round % 5 {
                0 => (0..4).for_each(|_| r.fs.tick()),
                1 => r.fs.streams.clear(),
                _ => {}
            }
        }
        for n in names.iter().map(String::as_str).chain([".", ".."]) {
            assert_eq!(seen.get(n), Some(&1), "{n}");
        }
        assert!(seen.values().all(|n| *n == 1));
        let again = r.list(&d, 1000, true);
        for e in again.iter().filter(|e| e.name.starts_with("stable")).take(50) {
            let x = e.entry.unwrap();
            assert_eq!(r.lookup(&d, &e.name).unwrap().handle, x.handle);
            assert_eq!(r.getattr(&x.handle).unwrap(), x.attr);
        }
        let last = again.last().unwrap().cookie;
        let (nothing, end) = r.page(&d, last, 10, false).unwrap();
        assert!(nothing.is_empty() && end);
        assert_eq!(r.page(&d, 0, 0, false).map(|p| p.1), Ok(false), "no room, no end");
    });
}

#[test]
fn names_at_the_edge() {
    everywhere(|r| {
        let root = r.root;
        let long = "n".repeat(255);
        let f = r.create(&root, &long, 0o644).unwrap();
        assert_eq!(r.lookup(&root, &long).unwrap().handle, f.handle);
        assert_eq!(r.create(&root, &"n".repeat(256), 0o644).unwrap_err(), VfsError::NameTooLong);
        assert_eq!(r.lookup(&root, &"n".repeat(256)).unwrap_err(), VfsError::NameTooLong);
        let raw = [0xffu8, 0xfe, b'\n', 1];
        let g = r.run(|fs, cx| fs.create(cx, &root, &raw, &CreateHow::Guarded(SetAttr::default()))).unwrap();
        assert_eq!(r.run(|fs, cx| fs.lookup(cx, &root, &raw)).unwrap().handle, g.handle);
        let t = [b't'; 5000];
        assert_eq!(
            r.run(|fs, cx| fs.symlink(cx, &root, b"t", &t, &SetAttr::default())).unwrap_err(),
            VfsError::NameTooLong
        );
        assert_eq!(
            r.run(|fs, cx| fs.symlink(cx, &root, b"t", b"", &SetAttr::default())).unwrap_err(),
            VfsError::Inval
        );
    });
}

#[test]
fn offsets_and_sizes_at_the_edge() {
    everywhere(|r| {
        let root = r.root;
        let f = r.create(&root, "f", 0o644).unwrap().handle;
        r.write(&f, 0, b"0123456789").unwrap();
        for at in [10, 0x7fff_ffff_ffff_f000, i64::MAX as u64, 1 << 63, u64::MAX - 100, u64::MAX] {
            assert_eq!(r.read(&f, at, 4096).unwrap(), (vec![], true), "{at:x}");
        }
        for at in [i64::MAX as u64, 1 << 63, u64::MAX] {
            assert!(matches!(r.write(&f, at, b"xy"), Err(VfsError::FBig | VfsError::Inval)), "{at:x}");
        }
        for size in [1 << 63, u64::MAX] {
            let set = SetAttr { size: Some(size), ..Default::default() };
            assert!(matches!(r.setattr(&f, set), Err(VfsError::FBig | VfsError::Inval)));
        }
        assert_eq!(r.run(|fs, cx| fs.commit(cx, &f, u64::MAX, 7)).unwrap().size, 10);
        assert_eq!(r.write(&f, 3, b"").unwrap().len, 0);
        // Sparse, beyond 5 GiB.
        let far = 5 * (1u64 << 30) + 7;
        r.write(&f, far, b"end").unwrap();
        assert_eq!(r.read(&f, far - 2, 10).unwrap(), (b"\0\0end".to_vec(), true));
        let a = r.getattr(&f).unwrap();
        assert_eq!(a.size, far + 3);
        assert!(a.used < 1 << 20);
        // More buffers than one system call takes.
        let mut bytes = vec![1u8; 3000];
        let mut bufs: Vec<_> = bytes.chunks_mut(1).map(IoSliceMut::new).collect();
        let done = r.run(|fs, cx| fs.read(cx, &f, 0, &mut bufs)).unwrap();
        assert_eq!((done.len, done.eof), (3000, false));
        assert_eq!(&bytes[..12], b"0123456789\0\0");
        r.setattr(&f, SetAttr { size: Some(2), ..Default::default() }).unwrap();
        assert_eq!(r.read(&f, 0, 10).unwrap(), (b"01".to_vec(), true));
        assert_eq!(
            r.setattr(&root, SetAttr { size: Some(2), ..Default::default() }).unwrap_err(),
            VfsError::IsDir
        );
    });
}

#[test]
fn the_three_ways_to_create() {
    everywhere(|r| {
        let root = r.root;
        let make = |r: &mut Rig, how| r.run(|fs, cx| fs.create(cx, &root, b"f", &how));
        let e = make(r, CreateHow::Exclusive([0xff; 8])).unwrap();
        assert_eq!(
            make(r, CreateHow::Exclusive([0xff; 8])).unwrap().handle,
            e.handle,
            "a repeated call succeeds"
        );
        assert_eq!(make(r, CreateHow::Exclusive([7; 8])).unwrap_err(), VfsError::Exist);
        assert_eq!(make(r, CreateHow::Guarded(SetAttr::default())).unwrap_err(), VfsError::Exist);
        r.setattr(&e.handle, SetAttr { mode: Some(0o644), ..Default::default() }).unwrap();
        r.write(&e.handle, 0, b"data").unwrap();
        assert_eq!(make(r, CreateHow::Exclusive([0xff; 8])).unwrap_err(), VfsError::Exist);
        let keep = SetAttr { mode: Some(0), ..Default::default() };
        let a = make(r, CreateHow::Unchecked(keep)).unwrap();
        assert_eq!(
            (a.handle, a.attr.size, a.attr.mode),
            (e.handle, 4, 0o644),
            "an existing file keeps its mode"
        );
        let cut = SetAttr { size: Some(0), ..keep };
        assert_eq!(make(r, CreateHow::Unchecked(cut)).unwrap().attr.size, 0);
        let sized = SetAttr { mode: Some(0o755), size: Some(100), ..Default::default() };
        let g = r.run(|fs, cx| fs.create(cx, &root, b"g", &CreateHow::Guarded(sized))).unwrap();
        assert_eq!((g.attr.size, g.attr.mode), (100, 0o755));
        let d = SetAttr { mode: Some(0o7777), ..Default::default() };
        let d = r.run(|fs, cx| fs.mkdir(cx, &root, b"d", &d)).unwrap();
        assert_eq!(d.attr.mode, 0o7777);
        for how in [CreateHow::Unchecked(cut), CreateHow::Exclusive([1; 8])] {
            assert_eq!(r.run(|fs, cx| fs.create(cx, &root, b"d", &how)).unwrap_err(), VfsError::Exist);
        }
    });
}

#[test]
fn special_files_are_made_and_never_opened() {
    everywhere(|r| {
        let root = r.root;
        let set = SetAttr { mode: Some(0o622), ..Default::default() };
        for (name, node, kind) in [("p", Node::Fifo, FileType::Fifo), ("s", Node::Socket, FileType::Socket)] {
            let e = r.run(|fs, cx| fs.mknod(cx, &root, name.as_bytes(), node, &set)).unwrap();
            assert_eq!((e.attr.ftype, e.attr.mode), (kind, 0o622));
            assert_eq!(r.read(&e.handle, 0, 1).unwrap_err(), VfsError::Inval);
            assert_eq!(r.write(&e.handle, 0, b"x").unwrap_err(), VfsError::Inval);
        }
        let dev = r.run(|fs, cx| fs.mknod(cx, &root, b"c", Node::Char(1, 3), &set));
        if r.backend.privileged() && r.me.uid != 0 {
            assert_eq!(dev.unwrap_err(), VfsError::Perm);
        } else if let Ok(e) = dev {
            assert_eq!((e.attr.ftype, e.attr.rdev), (FileType::Char, (1, 3)));
            assert_eq!(r.read(&e.handle, 0, 1).unwrap_err(), VfsError::Inval);
        }
        let huge = r.run(|fs, cx| fs.mknod(cx, &root, b"h", Node::Block(1 << 12, 0), &set));
        assert_eq!(huge.unwrap_err(), VfsError::Inval);
    });
}

#[test]
fn descriptors_stay_bounded() {
    for base in BASES {
        let mut r = Rig::new(base, 0);
        let root = r.root;
        r.fs.cache = Cache::new(64);
        let all: Vec<_> =
            (0..300).map(|i| r.create(&root, &format!("f{i}"), 0o644).unwrap().handle).collect();
        for h in all.iter().chain(&all) {
            r.write(h, 0, b"x").unwrap();
            assert_eq!(r.read(h, 0, 1).unwrap().0, b"x");
            assert!(r.fs.cache.held().0 <= 66);
        }
        (0..IDLE_TICKS + 2).for_each(|_| r.fs.tick());
        assert_eq!(r.fs.cache.held(), (0, 0));
    }
}

//! Whose rights count, what reaches stable storage before the answer, and what a worker may do without waiting.

use super::sync::probe::{self, Event};
use super::tests::*;
use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

const RWX: u32 = Access::READ | Access::MODIFY | Access::EXTEND | Access::EXECUTE;

fn file(path: &Path, owner: u32, mode: u32) {
    local(|| {
        std::fs::write(path, b"secret").unwrap();
        chown(path, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    });
}

fn rigs(test: impl Fn(&mut Rig)) {
    if privileged() {
        for base in BASES {
            test(&mut Rig::new(base, 1000));
        }
    }
}

#[test]
fn root_and_user_do_not_leak_into_each_other() {
    rigs(|r| {
        file(&r.dir.join("f"), 0, 0o600);
        let root = r.root;
        for round in 0..6 {
            // Root first in the even rounds, with and without a cached descriptor of root's.
            r.me = tests::ident(0, 0);
            let f = r.lookup(&root, "f").unwrap().handle;
            if round % 2 == 0 {
                assert_eq!(r.read(&f, 0, 9).unwrap().0, b"secret");
                r.write(&f, 0, b"s").unwrap();
            }
            r.me = tests::ident(1000, 1000);
            assert_eq!(r.read(&f, 0, 9).unwrap_err(), VfsError::Acces);
            assert_eq!(r.write(&f, 0, b"x").unwrap_err(), VfsError::Acces);
            let cut = SetAttr { size: Some(0), ..Default::default() };
            assert_eq!(r.setattr(&f, cut).unwrap_err(), VfsError::Acces);
            let (got, attr) = r.run(|fs, cx| fs.access(cx, &f, Access(RWX))).unwrap();
            assert_eq!((got.0, attr.uid), (0, 0));
            r.me = tests::ident(0, 0);
            let (got, _) = r.run(|fs, cx| fs.access(cx, &f, Access(RWX | Access::DELETE))).unwrap();
            assert_eq!(got.0, RWX & !Access::EXECUTE);
            assert_eq!(r.read(&f, 0, 9).unwrap().0, b"secret");
        }
    });
}

#[test]
fn a_private_directory_stays_private() {
    rigs(|r| {
        let root = r.root;
        r.me = tests::ident(1001, 1001);
        let d = r.mkdir(&root, "d", 0o700).unwrap().handle;
        r.create(&d, "f", 0o666).unwrap();
        for _ in 0..3 {
            r.me = tests::ident(1000, 1000);
            assert_eq!(r.lookup(&d, "f").unwrap_err(), VfsError::Acces);
            assert_eq!(r.lookup(&d, ".").unwrap_err(), VfsError::Acces);
            assert_eq!(r.create(&d, "g", 0o600).unwrap_err(), VfsError::Acces);
            assert_eq!(r.remove(&d, "f").unwrap_err(), VfsError::Acces);
            assert_eq!(r.rename((&d, "f"), (&root, "stolen")).unwrap_err(), VfsError::Acces);
            assert_eq!(r.page(&d, 0, 9, true).map(|_| ()).unwrap_err(), VfsError::Acces);
            assert!(r.getattr(&d).is_ok(), "attributes need no permission");
            r.me = tests::ident(1001, 1001);
            assert!(r.lookup(&d, "f").is_ok());
            assert_eq!(r.list(&d, 1, true).len(), 3);
        }
        // Listable, but not to be entered: names without attributes.
        r.setattr(&d, SetAttr { mode: Some(0o704), ..Default::default() }).unwrap();
        r.me = tests::ident(1000, 1000);
        let l = r.list(&d, 9, true);
        assert!(l.iter().any(|e| e.name == "f" && e.entry.is_none()));
        // A permission that was used is taken away.
        r.me = tests::ident(1001, 1001);
        r.setattr(&d, SetAttr { mode: Some(0o711), ..Default::default() }).unwrap();
        for round in 0..4 {
            for who in [1000, 1001, 1000] {
                r.me = tests::ident(who, who);
                assert_eq!(r.lookup(&d, "f").is_ok(), round % 2 == 0 || who == 1001, "{round}");
            }
            r.me = tests::ident(1001, 1001);
            let mode = if round % 2 == 0 { 0o700 } else { 0o711 };
            r.setattr(&d, SetAttr { mode: Some(mode), ..Default::default() }).unwrap();
        }
    });
}

#[test]
fn groups_count() {
    rigs(|r| {
        local(|| {
            file(&r.dir.join("f"), 0, 0o640);
            chown(r.dir.join("f"), None, Some(50)).unwrap();
        });
        let root = r.root;
        let f = r.lookup(&root, "f").unwrap().handle;
        assert_eq!(r.read(&f, 0, 9).unwrap_err(), VfsError::Acces);
        r.me.groups = [7, 50, 8].into_iter().collect();
        assert_eq!(r.read(&f, 0, 9).unwrap().0, b"secret");
        r.me.groups.clear();
        assert_eq!(r.read(&f, 0, 9).unwrap_err(), VfsError::Acces);
    });
}

#[test]
fn writing_as_another_user_clears_set_id_bits_even_through_a_cached_descriptor() {
    rigs(|r| {
        let root = r.root;
        let path = r.dir.join("f");
        file(&path, 1001, 0o666);
        let f = r.lookup(&root, "f").unwrap().handle;
        let mode = |r: &mut Rig| r.getattr(&f).unwrap().mode;
        for uid in [1000, 1001] {
            // A descriptor for writing is cached before the bits are set.
            r.me = tests::ident(uid, uid);
            r.write(&f, 0, b"x").unwrap();
            let opens = |r: &mut Rig| {
                let ix = r.fs.cache.find(&f, 0).unwrap();
                r.fs.cache
                    .get(ix)
                    .unwrap()
                    .opens
                    .iter()
                    .map(|x| std::os::fd::AsRawFd::as_raw_fd(&*x.fd))
                    .collect::<Vec<_>>()
            };
            for size in [None, Some(3)] {
                r.me = tests::ident(0, 0);
                r.setattr(&f, SetAttr { mode: Some(0o6777), ..Default::default() }).unwrap();
                r.write(&f, 0, b"root may").unwrap();
                assert_eq!(mode(r), 0o6777, "an unsquashed root keeps the bits");
                let before = opens(r);
                r.me = tests::ident(uid, uid);
                match size {
                    None => assert!(r.write(&f, 0, b"y").is_ok()),
                    Some(_) => assert!(r.setattr(&f, SetAttr { size, ..Default::default() }).is_ok()),
                }
                assert_eq!(mode(r), 0o777, "uid {uid} size {size:?}");
                assert_eq!(opens(r), before, "no new descriptor");
            }
        }
    });
}

#[test]
fn an_owner_reads_and_writes_whatever_the_mode() {
    rigs(|r| {
        let root = r.root;
        // Created read-only, as git does, and by the mode of another descriptor later.
        let f = r.create(&root, "f", 0o444).unwrap().handle;
        r.write(&f, 0, b"data").unwrap();
        r.fs.cache = Cache::new(100);
        r.write(&f, 4, b" more").unwrap();
        r.setattr(&f, SetAttr { mode: Some(0), ..Default::default() }).unwrap();
        assert_eq!(r.read(&f, 0, 20).unwrap().0, b"data more");
        r.setattr(&f, SetAttr { size: Some(2), ..Default::default() }).unwrap();
        let (got, _) = r.run(|fs, cx| fs.access(cx, &f, Access(RWX))).unwrap();
        assert_eq!(got.0, 0, "ACCESS says what the mode says");
        // Nobody else, and not where the rule does not hold.
        r.me = tests::ident(1001, 1001);
        assert_eq!(r.read(&f, 0, 20).unwrap_err(), VfsError::Acces);
        r.me = tests::ident(1000, 1000);
        r.lenient = false;
        assert_eq!(r.read(&f, 0, 20).unwrap_err(), VfsError::Acces);
        assert_eq!(r.write(&f, 0, b"x").unwrap_err(), VfsError::Acces);
        r.lenient = true;
        assert_eq!(r.read(&f, 0, 20).unwrap().0, b"da");
        // The owner changes, and with it the right.
        r.me = tests::ident(0, 0);
        r.setattr(&f, SetAttr { uid: Some(1001), ..Default::default() }).unwrap();
        r.me = tests::ident(1000, 1000);
        assert_eq!(r.read(&f, 0, 20).unwrap_err(), VfsError::Acces);
        assert_eq!(r.write(&f, 0, b"x").unwrap_err(), VfsError::Acces);
    });
}

#[test]
fn who_may_execute_may_read() {
    rigs(|r| {
        file(&r.dir.join("x"), 1001, 0o711);
        let root = r.root;
        let x = r.lookup(&root, "x").unwrap().handle;
        assert_eq!(r.read(&x, 0, 9).unwrap().0, b"secret");
        assert_eq!(r.write(&x, 0, b"y").unwrap_err(), VfsError::Acces);
        let (got, _) = r.run(|fs, cx| fs.access(cx, &x, Access(RWX))).unwrap();
        assert_eq!(got.0, Access::EXECUTE);
        r.lenient = false;
        assert_eq!(r.read(&x, 0, 9).unwrap_err(), VfsError::Acces);
    });
}

#[test]
fn a_permission_taken_away_ends_cached_access() {
    rigs(|r| {
        file(&r.dir.join("f"), 1001, 0o666);
        let root = r.root;
        let f = r.lookup(&root, "f").unwrap().handle;
        for _ in 0..2 {
            r.me = tests::ident(1000, 1000);
            r.write(&f, 0, b"x").unwrap();
            r.read(&f, 0, 1).unwrap();
            local(|| {
                std::fs::set_permissions(r.dir.join("f"), std::fs::Permissions::from_mode(0o600)).unwrap()
            });
            assert_eq!(r.write(&f, 0, b"x").unwrap_err(), VfsError::Acces);
            assert_eq!(r.read(&f, 0, 1).unwrap_err(), VfsError::Acces);
            local(|| {
                std::fs::set_permissions(r.dir.join("f"), std::fs::Permissions::from_mode(0o666)).unwrap()
            });
        }
    });
}

#[test]
fn what_is_made_belongs_to_its_maker() {
    rigs(|r| {
        let root = r.root;
        local(|| {
            let d = r.dir.join("shared");
            std::fs::create_dir(&d).unwrap();
            chown(&d, Some(0), Some(70)).unwrap();
            std::fs::set_permissions(&d, std::fs::Permissions::from_mode(0o2777)).unwrap();
        });
        let d = r.lookup(&root, "shared").unwrap().handle;
        r.me.gid = 60;
        let a = r.create(&root, "f", 0o666).unwrap().attr;
        assert_eq!((a.uid, a.gid, a.mode), (1000, 60, 0o666));
        let a = r.create(&d, "f", 0o640).unwrap().attr;
        assert_eq!((a.uid, a.gid, a.mode), (1000, 70, 0o640), "a set-group-id directory gives its group");
        let a = r.mkdir(&d, "d", 0o750).unwrap().attr;
        assert_eq!((a.uid, a.gid, a.mode), (1000, 70, 0o2750));
        // Giving away at creation is for root.
        let set = SetAttr { mode: Some(0o4755), uid: Some(5), gid: Some(6), ..Default::default() };
        let a = r.run(|fs, cx| fs.create(cx, &root, b"g", &CreateHow::Guarded(set))).unwrap().attr;
        assert_eq!((a.uid, a.gid, a.mode), (1000, 60, 0o4755));
        r.me = tests::ident(0, 0);
        let a = r.run(|fs, cx| fs.create(cx, &root, b"h", &CreateHow::Guarded(set))).unwrap().attr;
        assert_eq!((a.uid, a.gid, a.mode), (5, 6, 0o4755));
    });
}

#[test]
fn attributes_are_set_by_whom_the_rules_allow() {
    rigs(|r| {
        let root = r.root;
        let t = |s| SetTime::To(Time { sec: s, nsec: 5 });
        let f = r.create(&root, "f", 0o666).unwrap().handle;
        let a = r.setattr(&f, SetAttr { atime: t(-7), mtime: t(1 << 33), ..Default::default() }).unwrap();
        assert_eq!((a.atime.sec, a.mtime.nsec), (-7, 5));
        let none = r.setattr(&f, SetAttr::default()).unwrap();
        assert_eq!(none.ctime, a.ctime);
        // The guard.
        let set = SetAttr { mode: Some(0o660), ..Default::default() };
        let wrong = Time { sec: 1, nsec: 2 };
        assert_eq!(r.run(|fs, cx| fs.setattr(cx, &f, &set, Some(wrong))).unwrap_err(), VfsError::NotSync);
        assert_eq!(r.getattr(&f).unwrap().mode, 0o666);
        r.run(|fs, cx| fs.setattr(cx, &f, &set, Some(a.ctime))).unwrap();
        r.setattr(&f, SetAttr { mode: Some(0o666), ..Default::default() }).unwrap();
        // Another user with write permission may set times to now, each of them, and nothing else.
        r.me = tests::ident(1001, 1001);
        for (atime, mtime) in [
            (SetTime::ServerNow, SetTime::ServerNow),
            (SetTime::ServerNow, SetTime::Keep),
            (SetTime::Keep, SetTime::ServerNow),
        ] {
            r.setattr(&f, SetAttr { atime, mtime, ..Default::default() }).unwrap();
        }
        assert!(r.getattr(&f).unwrap().atime.sec > 0);
        for set in [
            SetAttr { size: Some(0), mtime: t(1), ..Default::default() },
            SetAttr { size: Some(0), mode: Some(0o777), ..Default::default() },
            SetAttr { uid: Some(1001), ..Default::default() },
        ] {
            r.me = tests::ident(1000, 1000);
            r.write(&f, 0, b"abc").unwrap();
            r.me = tests::ident(1001, 1001);
            assert_eq!(r.setattr(&f, set).unwrap_err(), VfsError::Perm);
            assert_eq!(r.getattr(&f).unwrap().size, 3, "nothing was done by halves");
        }
        r.me = tests::ident(1000, 1000);
        r.setattr(&f, SetAttr { mode: Some(0o644), ..Default::default() }).unwrap();
        r.me = tests::ident(1001, 1001);
        let now = SetAttr { mtime: SetTime::ServerNow, ..Default::default() };
        assert_eq!(r.setattr(&f, now).unwrap_err(), VfsError::Acces);
        // Owner and mode at once: the mode given is the mode that stays.
        r.me = tests::ident(0, 0);
        let both = SetAttr { uid: Some(1001), gid: Some(9), mode: Some(0o6755), ..Default::default() };
        let a = r.setattr(&f, both).unwrap();
        assert_eq!((a.uid, a.gid, a.mode), (1001, 9, 0o6755));
        let a = r.setattr(&f, SetAttr { uid: Some(1000), ..Default::default() }).unwrap();
        assert_eq!((a.uid, a.mode), (1000, 0o755), "a change of owner alone clears them");
    });
}

#[test]
fn without_privilege_everything_is_the_process() {
    for base in BASES {
        let mut r = Rig::with(base, 4711, true);
        let root = r.root;
        assert!(!r.backend.privileged() && r.backend.always_blocks() && r.backend.persistent());
        let f = r.create(&root, "f", 0o600).unwrap();
        let (_, _, uid) = sunrpc_sys::cred::current();
        assert_eq!(f.attr.uid, uid);
        r.me = tests::ident(4712, 1);
        assert_eq!(r.write(&f.handle, 0, b"x").unwrap().len, 1);
    }
}

/// Inode numbers flushed, and changes, in order.
fn recorded(r: &mut Rig, f: impl FnOnce(&mut Rig)) -> Vec<Event> {
    probe::take();
    f(r);
    probe::take()
}

#[test]
fn changes_are_stable_before_the_answer() {
    if !privileged() {
        return;
    }
    let mut r = Rig::new("/tmp", 1000);
    r.sync = true;
    let root = r.root;
    let ino = |r: &mut Rig, h: &Handle| r.getattr(h).unwrap().fileid;
    let top = ino(&mut r, &root);
    let mut f = root;
    let log = recorded(&mut r, |r| f = r.create(&root, "f", 0o644).unwrap().handle);
    let fi = ino(&mut r, &f);
    assert_eq!(log, [Event::Changed("create"), Event::Flushed(fi), Event::Flushed(top)]);
    let mut d = root;
    let log = recorded(&mut r, |r| d = r.mkdir(&root, "d", 0o755).unwrap().handle);
    let di = ino(&mut r, &d);
    assert_eq!(log, [Event::Changed("mkdir"), Event::Flushed(di), Event::Flushed(top)]);
    let log = recorded(&mut r, |r| {
        let _ = r.run(|fs, cx| fs.symlink(cx, &d, b"l", b"x", &SetAttr::default())).unwrap();
    });
    assert_eq!(log, [Event::Changed("symlink"), Event::Flushed(di)]);
    let log = recorded(&mut r, |r| {
        let _ = r.run(|fs, cx| fs.link(cx, &f, &d, b"f2")).unwrap();
    });
    assert_eq!(log, [Event::Changed("link"), Event::Flushed(fi), Event::Flushed(di)]);
    let log = recorded(&mut r, |r| r.rename((&root, "f"), (&d, "f3")).unwrap());
    assert_eq!(log, [Event::Changed("rename"), Event::Flushed(di), Event::Flushed(top)]);
    let log = recorded(&mut r, |r| {
        let _ = r.setattr(&f, SetAttr { mode: Some(0o600), ..Default::default() }).unwrap();
    });
    assert_eq!(log, [Event::Changed("setattr"), Event::Flushed(fi)]);
    let log = recorded(&mut r, |r| r.remove(&d, "f3").unwrap());
    assert_eq!(log, [Event::Changed("remove"), Event::Flushed(di)]);
    let log = recorded(&mut r, |r| {
        r.write(&f, 0, b"x").unwrap();
        r.run(|fs, cx| fs.commit(cx, &f, 0, 0)).unwrap();
    });
    assert_eq!(log, [Event::Flushed(fi)]);
    // A device that fails is not kept secret.
    for error in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
        r.write(&f, 0, b"x").unwrap();
        probe::fail_next(error);
        let want = VfsError::from_errno(error);
        assert_eq!(r.run(|fs, cx| fs.commit(cx, &f, 0, 0)).unwrap_err(), want);
        probe::fail_next(error);
        assert_eq!(r.create(&root, &format!("e{error}"), 0o600).unwrap_err(), want);
    }
    for stable in [Stability::DataSync, Stability::FileSync] {
        let w = r.run(|fs, cx| fs.write(cx, &f, 0, &[IoSlice::new(b"z")], stable)).unwrap();
        assert_eq!(w.committed, stable);
    }
    r.sync = false;
    let log = recorded(&mut r, |r| {
        let _ = r.create(&root, "async", 0o600).unwrap();
    });
    assert_eq!(log, [Event::Changed("create")]);
    let mut m = Rig::new("/dev/shm", 1000);
    m.sync = true;
    let root = m.root;
    let log = recorded(&mut m, |m| {
        let _ = m.create(&root, "f", 0o600).unwrap();
    });
    assert_eq!(log, [Event::Changed("create")], "memory has no stable storage");
}

#[test]
fn a_worker_changes_nothing_that_could_wait_and_is_handed_what_helpers_open() {
    if !privileged() {
        return;
    }
    let mut r = Rig::new("/tmp", 1000);
    let root = r.root;
    let f = r.create(&root, "f", 0o644).unwrap().handle;
    r.write(&f, 0, b"data").unwrap();
    // The same directory, seen by a worker; the rig's own view is the helper.
    let mut w = Worker::new(r.backend.shared.clone());
    let me = r.me.clone();
    let cx = Cx { ident: &me, blocking: false, sync: false, owner_override: true };
    let how = CreateHow::Guarded(SetAttr::default());
    assert_eq!(w.create(&cx, &root, b"g", &how).unwrap_err(), VfsError::WouldBlock);
    assert_eq!(w.mkdir(&cx, &root, b"g", &SetAttr::default()).unwrap_err(), VfsError::WouldBlock);
    assert_eq!(w.remove(&cx, &root, b"f"), Err(VfsError::WouldBlock));
    assert_eq!(w.rename(&cx, (&root, b"f"), (&root, b"g")), Err(VfsError::WouldBlock));
    assert_eq!(
        w.setattr(&cx, &f, &SetAttr { mode: Some(0), ..Default::default() }, None),
        Err(VfsError::WouldBlock)
    );
    assert!(r.lookup(&root, "f").unwrap().attr.mode == 0o644 && r.lookup(&root, "g").is_err());
    // Cold, then warm after the helper.
    let mut buf = [0u8; 8];
    assert_eq!(w.getattr(&cx, &f), Err(VfsError::WouldBlock));
    r.getattr(&f).unwrap();
    assert_eq!(w.getattr(&cx, &f).unwrap().size, 4);
    let mut w2 = Worker::new(r.backend.shared.clone());
    assert!(w2.read(&cx, &f, 0, &mut [IoSliceMut::new(&mut buf)]).is_err());
    r.fs.cache = Cache::new(100);
    assert_eq!(r.read(&f, 0, 9).unwrap().0, b"data");
    let done = w2.read(&cx, &f, 0, &mut [IoSliceMut::new(&mut buf)]).unwrap();
    assert_eq!((done.len, done.eof, &buf[..4]), (4, true, &b"data"[..]));
    // Gifts are for the one they were opened for.
    let other = tests::ident(1001, 1001);
    local(|| std::fs::set_permissions(r.dir.join("f"), std::fs::Permissions::from_mode(0o600)).unwrap());
    let cx2 = Cx { ident: &other, ..cx };
    assert!(w2.read(&cx2, &f, 0, &mut [IoSliceMut::new(&mut buf)]).is_err());
    // What the kernel has cached is looked up without a helper.
    // (The kernel may give up on its caches while others rename; then the helper is asked.)
    let e = (0..1000).find_map(|_| w.lookup(&cx, &root, b"f").ok()).unwrap();
    assert_eq!((e.handle, e.attr.size), (f, 4));
    let r2 = w.readdir(&cx, &root, 0, ReaddirWant { plus: false, bytes: 100 }, &mut Never);
    assert_eq!(r2, Err(VfsError::WouldBlock));
}

struct Never;

impl DirSink for Never {
    fn entry(&mut self, _: &DirEntry<'_>) -> std::ops::ControlFlow<()> {
        panic!("an entry in non-blocking mode on a disk");
    }
}

#[test]
fn memory_never_blocks() {
    if !privileged() {
        return;
    }
    let mut r = Rig::new("/dev/shm", 1000);
    r.blocking = false;
    r.sync = true;
    let root = r.root;
    let f = r.create(&root, "f", 0o644).unwrap().handle;
    let w = r.run(|fs, cx| fs.write(cx, &f, 0, &[IoSlice::new(b"abc")], Stability::FileSync)).unwrap();
    assert_eq!(w.committed, Stability::FileSync);
    r.fs.cache = Cache::new(100);
    assert_eq!(r.read(&f, 0, 9).unwrap(), (b"abc".to_vec(), true));
    assert_eq!(r.list(&root, 9, true).len(), 3);
    r.run(|fs, cx| fs.commit(cx, &f, 0, 0)).unwrap();
    r.remove(&root, "f").unwrap();
}

#[test]
fn a_removed_file_is_let_go_by_every_thread() {
    if !privileged() {
        return;
    }
    for base in BASES {
        let mut r = Rig::new(base, 1000);
        let root = r.root;
        let mut other = Worker::new(r.backend.shared.clone());
        let me = r.me.clone();
        let cx = Cx { ident: &me, blocking: true, sync: false, owner_override: true };
        let held = |w: &Worker| w.cache.held();
        for by_us in [true, false] {
            let f = r.create(&root, "f", 0o644).unwrap().handle;
            let g = r.create(&root, "g", 0o644).unwrap().handle;
            for h in [&f, &g] {
                other.read(&cx, h, 0, &mut [IoSliceMut::new(&mut [0])]).unwrap();
            }
            let before = held(&other);
            if by_us {
                r.remove(&root, "f").unwrap();
                r.rename((&root, "g"), (&root, "h")).unwrap();
                r.create(&root, "i", 0o644).unwrap();
                r.rename((&root, "i"), (&root, "h")).unwrap();
                other.getattr(&cx, &root).unwrap();
            } else {
                local(|| std::fs::remove_file(r.dir.join("f")).unwrap());
                local(|| std::fs::remove_file(r.dir.join("g")).unwrap());
                other.tick();
            }
            assert!(held(&other).1 <= before.1 - 2 + usize::from(by_us), "{:?} {:?}", before, held(&other));
            assert_eq!(other.getattr(&cx, &f), Err(VfsError::Stale));
            assert_eq!(other.getattr(&cx, &g), Err(VfsError::Stale));
        }
    }
}

#[test]
fn a_mount_below_the_export_is_an_empty_directory() {
    // Needs a mount name space of its own, so the test runs itself in one.
    const INSIDE: &str = "NFSD_TEST_MOUNT_INSIDE";
    if std::env::var_os(INSIDE).is_none() {
        let name = "vfs::passthrough::tests_rules::a_mount_below_the_export_is_an_empty_directory";
        let exe = std::env::current_exe().unwrap();
        let out = std::process::Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(exe)
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .output();
        match out {
            Ok(o) if o.status.success() => {}
            Ok(o) if String::from_utf8_lossy(&o.stderr).contains("unshare failed") => {
                eprintln!("SKIPPED: no mount name space here");
            }
            Ok(o) => panic!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr)),
            Err(e) => eprintln!("SKIPPED: {e}"),
        }
        return;
    }
    for base in BASES {
        for unprivileged in [false, true] {
            let mut r = Rig::with(base, 0, unprivileged);
            let root = r.root;
            let d = r.mkdir(&root, "d", 0o755).unwrap();
            let mnt = r.dir.join("d");
            let mount = |args: &[&str]| {
                assert!(
                    std::process::Command::new(args[0])
                        .args(&args[1..])
                        .arg(&mnt)
                        .status()
                        .unwrap()
                        .success()
                );
            };
            local(|| mount(&["mount", "-t", "tmpfs", "none"]));
            local(|| std::fs::write(mnt.join("hidden"), b"x").unwrap());
            let c = r.lookup(&root, "d").unwrap();
            assert_ne!(c.handle, d.handle);
            assert_eq!(c.attr.fileid, d.attr.fileid);
            let own = r.getattr(&root).unwrap();
            assert_eq!((c.attr.fsid, c.attr.ftype), (own.fsid, FileType::Directory));
            assert_eq!(r.getattr(&c.handle).unwrap(), c.attr);
            assert_eq!(r.lookup(&c.handle, "hidden").unwrap_err(), VfsError::NoEnt);
            assert_eq!(r.lookup(&c.handle, "..").unwrap().handle, root);
            assert_eq!(r.create(&c.handle, "x", 0o600).unwrap_err(), VfsError::RoFs);
            let l = r.list(&c.handle, 1, true);
            assert_eq!(l.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), [".", ".."]);
            let (a, _) = r.run(|fs, cx| fs.access(cx, &c.handle, Access(0x3f))).unwrap();
            assert_eq!(a.0, Access::READ | Access::LOOKUP);
            let l = r.list(&root, 10, true);
            let e = l.iter().find(|e| e.name == "d").unwrap();
            assert_eq!((e.fileid, e.entry.unwrap().handle), (d.attr.fileid, c.handle));
            assert_eq!(r.run(|fs, cx| fs.rmdir(cx, &root, b"d")), Err(VfsError::Acces));
            assert!(r.run(|fs, cx| fs.statfs(cx, &c.handle)).is_ok());
            // Its old handle is still the directory below the mount.
            assert!(r.page(&d.handle, 0, 9, false).is_ok() || unprivileged);
            local(|| mount(&["umount"]));
            assert_eq!(r.lookup(&root, "d").unwrap().handle, d.handle);
            assert!(std::fs::metadata(&mnt).unwrap().ino() == d.attr.fileid);
        }
    }
}

#[test]
fn a_process_without_privilege_serves_as_its_user() {
    const INSIDE: &str = "NFSD_TEST_USER_INSIDE";
    if std::env::var_os(INSIDE).is_none() {
        use std::os::unix::process::CommandExt;
        if !privileged() {
            return; // then the other tests are this one
        }
        let name = "vfs::passthrough::tests_rules::a_process_without_privilege_serves_as_its_user";
        let exe = std::env::current_exe().unwrap();
        let out = std::process::Command::new(exe)
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .current_dir("/")
            .uid(4711)
            .gid(4711)
            .output();
        match out {
            Ok(o) if o.status.success() => {}
            Ok(o) => panic!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr)),
            Err(e) => eprintln!("SKIPPED: cannot run the test as another user: {e}"),
        }
        return;
    }
    for base in BASES {
        let mut r = Rig::with(base, 12, false);
        let root = r.root;
        assert!(!r.backend.privileged() && r.backend.persistent());
        let f = r.create(&root, "f", 0o444).unwrap();
        assert_eq!((f.attr.uid, f.attr.mode), (4711, 0o444));
        let f = f.handle;
        // Another thread has no descriptor from the creation.
        r.fs.cache = Cache::new(64);
        r.write(&f, 0, b"data").unwrap();
        r.setattr(&f, SetAttr { mode: Some(0), ..Default::default() }).unwrap();
        r.fs.cache = Cache::new(64);
        assert_eq!(r.read(&f, 0, 9).unwrap().0, b"data");
        assert_eq!(r.getattr(&f).unwrap().mode, 0);
        assert_eq!(
            r.setattr(&f, SetAttr { uid: Some(1), ..Default::default() }).unwrap_err(),
            VfsError::Perm
        );
        let dev = r.run(|fs, cx| fs.mknod(cx, &root, b"c", Node::Char(1, 3), &SetAttr::default()));
        assert_eq!(dev.unwrap_err(), VfsError::Perm);
        let d = r.mkdir(&root, "d", 0o755).unwrap().handle;
        let l = r.run(|fs, cx| fs.symlink(cx, &d, b"l", b"x", &SetAttr::default())).unwrap().handle;
        r.run(|fs, cx| fs.link(cx, &f, &d, b"f2")).unwrap();
        r.sync = true;
        r.rename((&root, "d"), (&root, "e")).unwrap();
        r.remove(&root, "f").unwrap();
        let mut r = r.restart();
        assert_eq!(r.getattr(&f).unwrap().nlink, 1, "found by its other name");
        let mut buf = [0u8; 9];
        assert_eq!(r.run(|fs, cx| fs.readlink(cx, &l, &mut buf)), Ok(1));
        assert_eq!(r.list(&d, 2, true).len(), 4);
        assert_eq!(r.lookup(&d, "..").unwrap().handle, root);
    }
}

#[test]
fn many_threads_of_many_users_stay_apart() {
    if !privileged() {
        return;
    }
    for base in BASES {
        let r = Rig::new(base, 1000);
        let (backend, root) = (r.backend.clone(), r.root);
        let rounds = if base == "/tmp" { 60 } else { 400 };
        let threads: Vec<_> = (0..4u32)
            .map(|t| {
                let backend = backend.clone();
                std::thread::spawn(move || {
                    let mut fs = Worker::new(backend.shared.clone());
                    fs.cache = Cache::new(64);
                    let mut buf = [0u8; 64];
                    for i in 0..rounds {
                        let uid = 2000 + (i * 7 + t) % 3;
                        let (me, other) = (tests::ident(uid, 5), tests::ident(uid + 1, 5));
                        let cx = Cx { ident: &me, blocking: true, sync: false, owner_override: true };
                        let cx2 = Cx { ident: &other, ..cx };
                        let name = format!("t{t} {}", i % 9);
                        let set = SetAttr { mode: Some(0o600), ..Default::default() };
                        let f = fs.create(&cx, &root, name.as_bytes(), &CreateHow::Guarded(set)).unwrap();
                        assert_eq!((f.attr.uid, f.attr.gid), (uid, 5));
                        fs.write(&cx, &f.handle, 0, &[IoSlice::new(name.as_bytes())], Stability::Unstable)
                            .unwrap();
                        let e = fs.lookup(&cx2, &root, name.as_bytes()).unwrap();
                        assert_eq!((e.handle, e.attr.size), (f.handle, name.len() as u64));
                        let read = fs.read(&cx2, &f.handle, 0, &mut [IoSliceMut::new(&mut buf)]);
                        assert_eq!(read.unwrap_err(), VfsError::Acces);
                        let w = fs.write(&cx2, &f.handle, 0, &[IoSlice::new(b"!")], Stability::Unstable);
                        assert_eq!(w.unwrap_err(), VfsError::Acces);
                        let n = fs.read(&cx, &f.handle, 0, &mut [IoSliceMut::new(&mut buf)]).unwrap().len;
                        assert_eq!(&buf[..n], name.as_bytes());
                        // Whatever the others do meanwhile, a listing shows each name once.
                        if i % 16 == 0 {
                            let mut seen = std::collections::BTreeSet::new();
                            let mut sink = Names(&mut seen);
                            fs.readdir(&cx, &root, 0, ReaddirWant { plus: true, bytes: 4096 }, &mut sink)
                                .unwrap();
                            assert!(seen.contains(name.as_bytes()));
                        }
                        let to = format!("t{t} moved");
                        fs.rename(&cx, (&root, name.as_bytes()), (&root, to.as_bytes())).unwrap();
                        fs.remove(&cx, &root, to.as_bytes()).unwrap();
                        assert_eq!(fs.getattr(&cx, &f.handle).unwrap_err(), VfsError::Stale);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

struct Names<'a>(&'a mut std::collections::BTreeSet<Vec<u8>>);

impl DirSink for Names<'_> {
    fn entry(&mut self, e: &DirEntry<'_>) -> std::ops::ControlFlow<()> {
        assert!(self.0.insert(e.name.to_vec()), "twice: {:?}", e.name);
        std::ops::ControlFlow::Continue(())
    }
}

use super::*;
use crate::vfs::{DirEntry, FileType, Identity, SetTime};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

const ROOT: u32 = 0;
const ANN: u32 = 1000;
const BOB: u32 = 1001;

fn ident(uid: u32, gid: u32, groups: &[u32]) -> Identity {
    Identity { uid, gid, groups: SmallVec::from_slice(groups) }
}

fn cx(ident: &Identity) -> Cx<'_> {
    Cx { ident, blocking: true, sync: true, owner_override: true }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// One caller on one file system.
struct Caller {
    v: Box<dyn Vfs>,
    id: Identity,
    root: Handle,
}

impl Caller {
    fn new(fs: &MemFs, uid: u32, groups: &[u32]) -> Self {
        let mut v = fs.attach().unwrap();
        let root = v.root().unwrap();
        Caller { v, id: ident(uid, uid, groups), root }
    }

    fn links(&mut self) -> &mut dyn Links {
        self.v.links().unwrap()
    }

    fn touch(&mut self, dir: &Handle, name: &str, m: u32) -> VfsResult<Handle> {
        let how = CreateHow::Guarded(mode(m));
        Ok(self.v.create(&cx(&self.id), dir, name.as_bytes(), &how)?.handle)
    }

    fn mkdir(&mut self, dir: &Handle, name: &str, m: u32) -> VfsResult<Handle> {
        Ok(self.v.mkdir(&cx(&self.id), dir, name.as_bytes(), &mode(m))?.handle)
    }

    fn attr(&mut self, h: &Handle) -> VfsResult<Attr> {
        self.v.getattr(&cx(&self.id), h)
    }

    fn set(&mut self, h: &Handle, s: &SetAttr) -> VfsResult<Attr> {
        self.v.setattr(&cx(&self.id), h, s, None)
    }

    fn look(&mut self, dir: &Handle, name: &str) -> VfsResult<Entry> {
        self.v.lookup(&cx(&self.id), dir, name.as_bytes())
    }

    fn write(&mut self, h: &Handle, offset: u64, bytes: &[u8]) -> VfsResult<WriteDone> {
        self.v.write(&cx(&self.id), h, offset, &[IoSlice::new(bytes)], Stability::Unstable)
    }

    fn read(&mut self, h: &Handle, offset: u64, len: usize) -> VfsResult<(Vec<u8>, bool)> {
        let mut b = vec![0xaa; len];
        let d = self.v.read(&cx(&self.id), h, offset, &mut [IoSliceMut::new(&mut b)])?;
        b.truncate(d.len);
        Ok((b, d.eof))
    }

    fn mv(&mut self, from: (&Handle, &str), to: (&Handle, &str)) -> VfsResult<()> {
        self.v.rename(&cx(&self.id), (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()))
    }

    fn rm(&mut self, dir: &Handle, name: &str) -> VfsResult<()> {
        self.v.remove(&cx(&self.id), dir, name.as_bytes())
    }

    fn rmdir(&mut self, dir: &Handle, name: &str) -> VfsResult<()> {
        self.v.rmdir(&cx(&self.id), dir, name.as_bytes())
    }

    fn access(&mut self, h: &Handle) -> u32 {
        self.v.access(&cx(&self.id), h, Access(0x3f)).unwrap().0.0
    }

    /// At most `max` names after `cookie`; the last cookie taken, and whether the end was reached.
    fn list(&mut self, dir: &Handle, cookie: u64, max: usize, plus: bool) -> VfsResult<(Vec<Seen>, bool)> {
        let mut sink = Sink { seen: Vec::new(), max };
        let want = ReaddirWant { plus, bytes: 8192 };
        let end = self.v.readdir(&cx(&self.id), dir, cookie, want, &mut sink)?;
        Ok((sink.seen, end))
    }
}

#[derive(Debug)]
struct Seen {
    name: String,
    fileid: u64,
    cookie: u64,
    entry: Option<Entry>,
}

struct Sink {
    seen: Vec<Seen>,
    max: usize,
}

impl DirSink for Sink {
    fn entry(&mut self, e: &DirEntry<'_>) -> ControlFlow<()> {
        if self.seen.len() == self.max {
            return ControlFlow::Break(());
        }
        let name = String::from_utf8(e.name.to_vec()).unwrap();
        self.seen.push(Seen { name, fileid: e.fileid, cookie: e.cookie, entry: e.entry.copied() });
        ControlFlow::Continue(())
    }
}

fn open_fs() -> MemFs {
    MemFs::new(&MemOptions { root_mode: 0o777, ..MemOptions::default() })
}

fn root(fs: &MemFs) -> Caller {
    Caller::new(fs, ROOT, &[])
}

#[test]
fn handles_outlive_rename_and_go_stale_with_the_object() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let d = c.mkdir(&r, "d", 0o755).unwrap();
    let f = c.touch(&r, "f", 0o644).unwrap();
    let before = c.attr(&f).unwrap();
    c.mv((&r, "f"), (&d, "g")).unwrap();
    assert_eq!(c.look(&d, "g").unwrap().handle, f);
    assert_eq!(c.attr(&f).unwrap().fileid, before.fileid);
    c.rm(&d, "g").unwrap();
    assert_eq!(c.attr(&f), Err(VfsError::Stale));
    let again = c.touch(&d, "g", 0o644).unwrap();
    assert_ne!(again, f, "a reused slot is another object");
    assert_eq!(c.attr(&f), Err(VfsError::Stale));
    let other = root(&open_fs()).root;
    assert_eq!(c.attr(&other), Err(VfsError::Stale), "another file system's root is not ours");
    assert_eq!(c.attr(&Handle::new(b"short").unwrap()), Err(VfsError::BadHandle));
}

#[test]
fn dot_and_dotdot() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let d = c.mkdir(&r, "d", 0o755).unwrap();
    let e = c.mkdir(&r, "e", 0o755).unwrap();
    assert_eq!(c.look(&d, ".").unwrap().handle, d);
    assert_eq!(c.look(&d, "..").unwrap().handle, r);
    assert_eq!(c.look(&r, "..").unwrap().handle, r);
    c.mv((&r, "d"), (&e, "d")).unwrap();
    assert_eq!(c.look(&d, "..").unwrap().handle, e);
    assert_eq!(c.mkdir(&r, "..", 0o755), Err(VfsError::Exist));
    assert_eq!(c.rmdir(&r, "."), Err(VfsError::Inval));
}

#[test]
fn names_and_link_counts() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let f = c.touch(&r, "f", 0o644).unwrap();
    assert_eq!(c.touch(&r, "f", 0o644), Err(VfsError::Exist));
    let id = c.id.clone();
    assert_eq!(c.links().link(&cx(&id), &f, &r, b"g").unwrap().nlink, 2);
    assert_eq!(c.links().link(&cx(&id), &f, &r, b"g"), Err(VfsError::Exist));
    let d = c.mkdir(&r, "d", 0o755).unwrap();
    assert_eq!(c.links().link(&cx(&id), &d, &r, b"h"), Err(VfsError::Perm));
    assert_eq!((c.attr(&r).unwrap().nlink, c.attr(&d).unwrap().nlink), (3, 2));
    c.mkdir(&d, "sub", 0o755).unwrap();
    assert_eq!(c.attr(&d).unwrap().nlink, 3);
    assert_eq!(c.rmdir(&r, "d"), Err(VfsError::NotEmpty));
    assert_eq!(c.rm(&r, "d"), Err(VfsError::IsDir));
    assert_eq!(c.rmdir(&r, "f"), Err(VfsError::NotDir));
    assert_eq!(c.rm(&r, "none"), Err(VfsError::NoEnt));
    c.rm(&r, "f").unwrap();
    assert_eq!(c.attr(&f).unwrap().nlink, 1);
    c.mv((&d, "sub"), (&r, "sub")).unwrap();
    assert_eq!((c.attr(&r).unwrap().nlink, c.attr(&d).unwrap().nlink), (4, 2));
    c.rmdir(&r, "d").unwrap();
    assert_eq!(c.attr(&r).unwrap().nlink, 3);
    assert_eq!(c.look(&f, "x").unwrap_err(), VfsError::NotDir);
    let long = "n".repeat(256);
    assert_eq!(c.touch(&r, &long, 0o644), Err(VfsError::NameTooLong));
}

#[test]
fn rename_replaces_as_rename_2_does() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let a = c.mkdir(&r, "a", 0o755).unwrap();
    let b = c.mkdir(&a, "b", 0o755).unwrap();
    let f = c.touch(&r, "f", 0o644).unwrap();
    let g = c.touch(&r, "g", 0o644).unwrap();
    c.mkdir(&r, "empty", 0o755).unwrap();
    assert_eq!(c.mv((&r, "a"), (&b, "x")), Err(VfsError::Inval), "into its own subtree");
    assert_eq!(c.mv((&r, "a"), (&a, "x")), Err(VfsError::Inval), "into itself");
    assert_eq!(c.mv((&a, "b"), (&r, "a")), Err(VfsError::NotEmpty), "over its parent");
    assert_eq!(c.mv((&r, "f"), (&r, "a")), Err(VfsError::IsDir));
    assert_eq!(c.mv((&r, "a"), (&r, "f")), Err(VfsError::NotDir));
    assert_eq!(c.mv((&r, "none"), (&r, "f")), Err(VfsError::NoEnt));
    assert_eq!(c.mv((&r, "a"), (&r, "..")), Err(VfsError::Inval));
    c.mv((&r, "a"), (&r, "empty")).unwrap();
    assert_eq!(c.look(&r, "empty").unwrap().handle, a);
    c.mv((&r, "f"), (&r, "g")).unwrap();
    assert_eq!(c.look(&r, "g").unwrap().handle, f);
    assert_eq!(c.attr(&g), Err(VfsError::Stale));
    let id = c.id.clone();
    c.links().link(&cx(&id), &f, &r, b"h").unwrap();
    c.mv((&r, "g"), (&r, "h")).unwrap();
    assert_eq!(c.attr(&f).unwrap().nlink, 2, "two names of one object stay");
    assert_eq!(c.attr(&r).unwrap().nlink, 3);
}

#[test]
fn mode_bits_judge_the_first_class_that_fits() {
    let fs = open_fs();
    let mut ann = Caller::new(&fs, ANN, &[50]);
    let mut bob = Caller::new(&fs, BOB, &[50]);
    let mut eve = Caller::new(&fs, 1002, &[]);
    let r = ann.root;
    let f = ann.touch(&r, "f", 0o640).unwrap();
    ann.set(&f, &SetAttr { gid: Some(50), ..SetAttr::default() }).unwrap();
    ann.write(&f, 0, b"text").unwrap();
    assert_eq!(bob.read(&f, 0, 9).unwrap(), (b"text".to_vec(), true));
    assert_eq!(bob.write(&f, 0, b"x").unwrap_err(), VfsError::Acces);
    assert_eq!(eve.read(&f, 0, 9), Err(VfsError::Acces));
    assert_eq!(ann.access(&f), Access::READ | Access::MODIFY | Access::EXTEND);
    assert_eq!((bob.access(&f), eve.access(&f)), (Access::READ, 0));
    assert_eq!(root(&fs).access(&f), Access::READ | Access::MODIFY | Access::EXTEND, "nobody may execute it");

    ann.set(&f, &mode(0o047)).unwrap();
    assert_eq!(ann.access(&f), 0, "the owner's class holds although others may more");
    assert_eq!(bob.access(&f), Access::READ);

    let d = ann.mkdir(&r, "d", 0o711).unwrap();
    ann.touch(&d, "in", 0o600).unwrap();
    assert!(bob.look(&d, "in").is_ok());
    assert_eq!(bob.list(&d, 0, 9, false).unwrap_err(), VfsError::Acces);
    assert_eq!(bob.touch(&d, "new", 0o600), Err(VfsError::Acces));
    assert_eq!(bob.rm(&d, "in"), Err(VfsError::Acces));
    ann.set(&d, &mode(0o766)).unwrap();
    assert_eq!(bob.look(&d, "in").unwrap_err(), VfsError::Acces);
    assert_eq!(bob.touch(&d, "new", 0o600), Err(VfsError::Acces), "writing a directory takes search too");
    assert!(bob.list(&d, 0, 9, false).is_ok());
    assert_eq!(bob.mv((&r, "d"), (&r, "e")), Ok(()), "only the directories around matter");
    let away = eve.mkdir(&r, "away", 0o777).unwrap();
    ann.set(&d, &mode(0o755)).unwrap();
    assert_eq!(bob.mv((&r, "e"), (&away, "e")), Err(VfsError::Acces), "its dotdot would change");
}

#[test]
fn the_owner_reads_and_writes_whatever_the_mode_says() {
    let fs = open_fs();
    let mut ann = Caller::new(&fs, ANN, &[]);
    let mut bob = Caller::new(&fs, BOB, &[]);
    let r = ann.root;
    let f = ann.touch(&r, "f", 0o444).unwrap();
    assert_eq!(ann.write(&f, 0, b"ab").unwrap().len, 2);
    ann.set(&f, &SetAttr { size: Some(1), ..SetAttr::default() }).unwrap();
    ann.set(&f, &mode(0o011)).unwrap();
    assert_eq!(ann.read(&f, 0, 9).unwrap().0, b"a");
    assert_eq!(bob.read(&f, 0, 9).unwrap().0, b"a", "execute implies read");
    assert_eq!(bob.write(&f, 0, b"x").unwrap_err(), VfsError::Acces);
    assert_eq!(bob.set(&f, &SetAttr { size: Some(0), ..SetAttr::default() }), Err(VfsError::Acces));
    assert_eq!((ann.access(&f), bob.access(&f)), (0, Access::EXECUTE), "ACCESS tells the mode's truth");
    let id = ann.id.clone();
    let strict = Cx { owner_override: false, ..cx(&id) };
    let mut b = [0; 4];
    assert_eq!(ann.v.read(&strict, &f, 0, &mut [IoSliceMut::new(&mut b)]).unwrap_err(), VfsError::Acces);
    assert_eq!(
        ann.v.write(&strict, &f, 0, &[IoSlice::new(b"x")], Stability::Unstable).unwrap_err(),
        VfsError::Acces
    );
}

#[test]
fn setattr_asks_for_ownership() {
    let fs = open_fs();
    let mut c = root(&fs);
    let mut ann = Caller::new(&fs, ANN, &[50]);
    let mut bob = Caller::new(&fs, BOB, &[]);
    let r = ann.root;
    let f = ann.touch(&r, "f", 0o666).unwrap();
    let none = SetAttr::default();
    let t = Time { sec: 5, nsec: 7 };
    assert_eq!(bob.set(&f, &mode(0o600)), Err(VfsError::Perm));
    assert_eq!(bob.set(&f, &SetAttr { mtime: SetTime::To(t), ..none }), Err(VfsError::Perm));
    assert!(bob.set(&f, &SetAttr { mtime: SetTime::ServerNow, ..none }).is_ok(), "a writer may touch");
    assert_eq!(ann.set(&f, &SetAttr { uid: Some(BOB), ..none }), Err(VfsError::Perm));
    assert_eq!(ann.set(&f, &SetAttr { gid: Some(51), ..none }), Err(VfsError::Perm));
    assert!(ann.set(&f, &SetAttr { uid: Some(ANN), gid: Some(50), ..none }).is_ok());
    ann.set(&f, &mode(0o644)).unwrap();
    assert_eq!(bob.set(&f, &SetAttr { atime: SetTime::ServerNow, ..none }), Err(VfsError::Acces));
    let a = ann.set(&f, &SetAttr { mtime: SetTime::To(t), atime: SetTime::To(t), ..none }).unwrap();
    assert_eq!((a.mtime, a.atime), (t, t));
    let before = a.ctime;
    assert_eq!(ann.set(&f, &none).unwrap().ctime, before, "setting nothing changes nothing");
    let id = c.id.clone();
    let wrong = Time { nsec: before.nsec ^ 1, ..before };
    assert_eq!(c.v.setattr(&cx(&id), &f, &mode(0o600), Some(wrong)), Err(VfsError::NotSync));
    let a = c.v.setattr(&cx(&id), &f, &mode(0o600), Some(before)).unwrap();
    assert!(a.mode == 0o600 && a.ctime > before);
}

#[test]
fn set_id_bits_go_when_others_write_or_the_owner_changes() {
    let fs = open_fs();
    let mut c = root(&fs);
    let mut ann = Caller::new(&fs, ANN, &[]);
    let r = ann.root;
    let f = ann.touch(&r, "f", 0o6777).unwrap();
    assert_eq!(ann.attr(&f).unwrap().mode, 0o6777);
    c.write(&f, 0, b"x").unwrap();
    assert_eq!(c.attr(&f).unwrap().mode, 0o6777, "the superuser's write keeps them");
    Caller::new(&fs, BOB, &[]).write(&f, 0, b"x").unwrap();
    assert_eq!(c.attr(&f).unwrap().mode, 0o777);
    c.set(&f, &mode(0o6767)).unwrap();
    ann.set(&f, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    assert_eq!(c.attr(&f).unwrap().mode, 0o2767, "set-gid without group execute is not a right");
    c.set(&f, &mode(0o6755)).unwrap();
    c.set(&f, &SetAttr { uid: Some(BOB), ..SetAttr::default() }).unwrap();
    assert_eq!(c.attr(&f).unwrap().mode, 0o755);
    c.set(&f, &SetAttr { uid: Some(ANN), gid: Some(60), ..SetAttr::default() }).unwrap();
    assert_eq!(ann.set(&f, &mode(0o2755)).unwrap().mode, 0o755, "no set-gid for a stranger's group");
}

#[test]
fn sticky_and_set_gid_directories() {
    let fs = open_fs();
    let mut c = root(&fs);
    let (mut ann, mut bob) = (Caller::new(&fs, ANN, &[]), Caller::new(&fs, BOB, &[]));
    let r = c.root;
    let tmp = c.mkdir(&r, "tmp", 0o1777).unwrap();
    ann.touch(&tmp, "a", 0o666).unwrap();
    bob.touch(&tmp, "b", 0o666).unwrap();
    assert_eq!(bob.rm(&tmp, "a"), Err(VfsError::Perm));
    assert_eq!(bob.mv((&tmp, "a"), (&tmp, "c")), Err(VfsError::Perm));
    assert_eq!(bob.mv((&tmp, "b"), (&tmp, "a")), Err(VfsError::Perm));
    assert_eq!(ann.rm(&tmp, "a"), Ok(()));
    let own = ann.mkdir(&r, "own", 0o1777).unwrap();
    bob.touch(&own, "b", 0o600).unwrap();
    assert_eq!(ann.rm(&own, "b"), Ok(()), "ann owns the directory");
    let shared = c.mkdir(&r, "shared", 0o777).unwrap();
    c.set(&shared, &SetAttr { gid: Some(70), mode: Some(0o2777), ..SetAttr::default() }).unwrap();
    let f = ann.touch(&shared, "f", 0o2755).unwrap();
    let d = ann.mkdir(&shared, "d", 0o755).unwrap();
    let (f, d) = (ann.attr(&f).unwrap(), ann.attr(&d).unwrap());
    assert_eq!((f.gid, f.mode), (70, 0o755));
    assert_eq!((d.gid, d.mode), (70, 0o2755));
}

#[test]
fn creating_as_asked() {
    let fs = open_fs();
    let mut c = root(&fs);
    let mut ann = Caller::new(&fs, ANN, &[50]);
    let r = c.root;
    let give =
        SetAttr { uid: Some(BOB), gid: Some(9), mode: Some(0o600), size: Some(10), ..SetAttr::default() };
    let id = c.id.clone();
    let a = c.v.create(&cx(&id), &r, b"gift", &CreateHow::Guarded(give)).unwrap().attr;
    assert_eq!((a.uid, a.gid, a.mode, a.size), (BOB, 9, 0o600, 10));
    let id = ann.id.clone();
    let a = ann.v.create(&cx(&id), &r, b"mine", &CreateHow::Guarded(give)).unwrap().attr;
    assert_eq!((a.uid, a.gid), (ANN, ANN), "others cannot give away");

    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    assert_eq!(
        ann.v.create(&cx(&id), &r, b"gift", &how).unwrap_err(),
        VfsError::Acces,
        "truncating takes a right"
    );
    let keep = CreateHow::Unchecked(mode(0o777));
    let e = ann.v.create(&cx(&id), &r, b"gift", &keep).unwrap();
    assert_eq!((e.attr.mode, e.attr.size), (0o600, 10), "an existing file keeps its attributes");
    assert_eq!(ann.v.create(&cx(&id), &r, b"mine", &how).unwrap().attr.size, 0);
    c.mkdir(&r, "d", 0o777).unwrap();
    assert_eq!(ann.v.create(&cx(&id), &r, b"d", &keep).unwrap_err(), VfsError::Exist);
    let huge = CreateHow::Guarded(SetAttr { size: Some(u64::MAX), ..SetAttr::default() });
    assert_eq!(ann.v.create(&cx(&id), &r, b"huge", &huge).unwrap_err(), VfsError::FBig);
}

#[test]
fn exclusive_create_repeats_until_the_file_is_used() {
    let fs = open_fs();
    let mut c = Caller::new(&fs, ANN, &[]);
    let (r, id) = (c.root, c.id.clone());
    let how = |v: u8| CreateHow::Exclusive([v; 8]);
    let first = c.v.create(&cx(&id), &r, b"x", &how(1)).unwrap();
    assert_eq!(first.attr.mode, 0);
    assert_eq!(c.v.create(&cx(&id), &r, b"x", &how(1)).unwrap().handle, first.handle);
    assert_eq!(c.v.create(&cx(&id), &r, b"x", &how(2)).unwrap_err(), VfsError::Exist);
    c.set(&first.handle, &mode(0o644)).unwrap();
    assert_eq!(c.v.create(&cx(&id), &r, b"x", &how(1)).unwrap_err(), VfsError::Exist);
}

#[test]
fn special_files_and_symbolic_links() {
    let fs = open_fs();
    let mut c = root(&fs);
    let (r, id) = (c.root, c.id.clone());
    let s = c.links().symlink(&cx(&id), &r, b"s", b"../any\xff", &mode(0o600)).unwrap();
    assert_eq!((s.attr.ftype, s.attr.mode, s.attr.size), (FileType::Symlink, 0o777, 7));
    let mut buf = [0; 64];
    assert_eq!(c.links().readlink(&cx(&id), &s.handle, &mut buf), Ok(7));
    assert_eq!(&buf[..7], b"../any\xff");
    assert_eq!(c.links().readlink(&cx(&id), &s.handle, &mut buf[..3]), Err(VfsError::NameTooLong));
    assert_eq!(c.links().readlink(&cx(&id), &r, &mut buf), Err(VfsError::Inval));
    assert_eq!(c.read(&s.handle, 0, 3), Err(VfsError::Inval));
    assert_eq!(c.read(&r, 0, 3), Err(VfsError::IsDir));
    let dev = c.links().mknod(&cx(&id), &r, b"dev", Node::Block(8, 3), &mode(0o600)).unwrap().attr;
    assert_eq!((dev.ftype, dev.rdev), (FileType::Block, (8, 3)));
    let mut ann = Caller::new(&fs, ANN, &[]);
    let id = ann.id.clone();
    let made = ann.links().mknod(&cx(&id), &r, b"tty", Node::Char(1, 3), &mode(0o600));
    assert_eq!(made.unwrap_err(), VfsError::Perm);
    assert_eq!(
        ann.links().mknod(&cx(&id), &r, b"p", Node::Fifo, &mode(0o600)).unwrap().attr.ftype,
        FileType::Fifo
    );
}

#[test]
fn contents_sizes_and_ends() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let f = c.touch(&r, "f", 0o644).unwrap();
    let far = 6u64 << 30;
    let w = c.write(&f, far, b"tail").unwrap();
    assert_eq!((w.len, w.attr.size, w.attr.used), (4, far + 4, 4096));
    assert_eq!(c.read(&f, far - 2, 4).unwrap(), (b"\0\0ta".to_vec(), false));
    assert_eq!(c.read(&f, far, 4).unwrap(), (b"tail".to_vec(), true));
    assert_eq!(c.read(&f, far + 4, 9).unwrap(), (vec![], true));
    assert_eq!(c.read(&f, u64::MAX, 9).unwrap(), (vec![], true));
    assert_eq!(c.write(&f, i64::MAX as u64, b"x").unwrap_err(), VfsError::FBig);
    assert_eq!(c.write(&f, u64::MAX, b"xx").unwrap_err(), VfsError::FBig);
    let before = c.attr(&f).unwrap();
    assert_eq!(c.write(&f, u64::MAX, b"").unwrap().attr, before);
    assert_eq!(c.set(&f, &SetAttr { size: Some(1 << 63), ..SetAttr::default() }), Err(VfsError::FBig));
    assert_eq!(c.set(&r, &SetAttr { size: Some(0), ..SetAttr::default() }), Err(VfsError::IsDir));
    assert_eq!(c.attr(&f).unwrap(), before);
    let id = c.id.clone();
    assert_eq!(c.v.commit(&cx(&id), &f, 0, 0).unwrap(), before);
    assert_eq!(c.v.commit(&cx(&id), &r, 0, 0), Err(VfsError::IsDir));
}

#[test]
fn times_follow_what_was_done() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let r0 = c.attr(&r).unwrap();
    let f = c.touch(&r, "f", 0o644).unwrap();
    let r1 = c.attr(&r).unwrap();
    assert!(r1.mtime > r0.mtime && r1.ctime == r1.mtime);
    c.write(&f, 0, b"x").unwrap();
    let w1 = c.attr(&f).unwrap();
    c.write(&f, 0, b"y").unwrap();
    let w2 = c.attr(&f).unwrap();
    assert!(w2.mtime > w1.mtime && w2.ctime > w1.ctime, "two changes never look like one");
    c.read(&f, 0, 1).unwrap();
    let a = c.attr(&f).unwrap();
    assert!(a.atime > w2.mtime && a.ctime == w2.ctime);
    c.read(&f, 0, 1).unwrap();
    assert_eq!(c.attr(&f).unwrap(), a, "a second read is not recorded");
    c.set(&f, &mode(0o600)).unwrap();
    let m = c.attr(&f).unwrap();
    assert!(m.ctime > a.ctime && m.mtime == a.mtime);
    c.mv((&r, "f"), (&r, "g")).unwrap();
    assert!(c.attr(&f).unwrap().ctime > m.ctime && c.attr(&r).unwrap().mtime > r1.mtime);
    let r2 = c.attr(&r).unwrap();
    assert_eq!(c.rm(&r, "none"), Err(VfsError::NoEnt));
    assert_eq!(c.attr(&r).unwrap(), r2, "failures change nothing");
}

#[test]
fn listings_survive_change() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    for i in 0..200 {
        c.touch(&r, &format!("f{i}"), 0o644).unwrap();
    }
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut cookie = 0;
    for round in 0.. {
        let (part, end) = c.list(&r, cookie, 7, false).unwrap();
        assert!(end || part.len() == 7);
        for s in &part {
            *seen.entry(s.name.clone()).or_default() += 1;
            cookie = s.cookie;
        }
        if end {
            break;
        }
        // Among them the very name at which the listing stands.
        for name in [part.last().unwrap().name.clone(), format!("f{}", 199 - round)] {
            if name.starts_with('f') && !["f50", "f51", "f160"].contains(&name.as_str()) {
                let _ = c.rm(&r, &name);
            }
        }
        c.touch(&r, &format!("new{round}"), 0o644).unwrap();
        c.touch(&r, "swap", 0o644).unwrap();
        c.mv((&r, "swap"), (&r, "f160")).unwrap();
    }
    assert!(seen.values().all(|n| *n == 1), "{seen:?}");
    for stays in [".", "..", "f50", "f51", "f160"] {
        assert_eq!(seen.get(stays), Some(&1), "{stays}");
    }
    assert_eq!(c.list(&r, u64::MAX, 9, false).unwrap().0.len(), 0);
}

#[test]
fn listings_carry_handles_and_attributes() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let d = c.mkdir(&r, "d", 0o755).unwrap();
    let f = c.touch(&d, "f", 0o640).unwrap();
    let (seen, end) = c.list(&d, 0, 9, true).unwrap();
    assert!(end);
    let names: Vec<_> = seen.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, [".", "..", "f"]);
    for (s, h) in seen.iter().zip([d, r, f]) {
        let e = s.entry.unwrap();
        let a = c.attr(&h).unwrap();
        assert_eq!((e.handle, e.attr.fileid, s.fileid), (h, a.fileid, a.fileid), "{}", s.name);
        assert_eq!(e.attr.ctime, a.ctime);
    }
    assert!(c.list(&d, 0, 9, false).unwrap().0.iter().all(|s| s.entry.is_none()));
    assert_eq!(c.list(&f, 0, 9, false).unwrap_err(), VfsError::NotDir);
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let fs = MemFs::new(&MemOptions { max_bytes: 64 << 10, max_files: 20, ..MemOptions::default() });
    let mut c = root(&fs);
    let (r, id) = (c.root, c.id.clone());
    let empty = c.v.statfs(&cx(&id), &r).unwrap();
    let f = c.touch(&r, "f", 0o644).unwrap();
    let mut at = 0;
    let end = loop {
        match c.write(&f, at, &[1; 10_000]) {
            Ok(w) => at += w.len as u64,
            Err(e) => break e,
        }
    };
    assert_eq!((end, at % 4096), (VfsError::NoSpc, 0));
    assert!(at >= 56 << 10, "{at}");
    assert_eq!(c.attr(&f).unwrap().size, at);
    assert_eq!(c.write(&f, 0, b"over what is there").unwrap().len, 18);
    let mut made = 0;
    let end = loop {
        match c.mkdir(&r, &format!("some-directory-{made}"), 0o755) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(end, VfsError::NoSpc);
    let nlink = c.attr(&r).unwrap().nlink;
    assert_eq!(nlink, 2 + made, "a failed mkdir left nothing");
    c.set(&f, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    while c.mkdir(&r, &format!("some-directory-{made}"), 0o755).is_ok() {
        made += 1;
    }
    assert_eq!(c.v.statfs(&cx(&id), &r).unwrap().files, (20, 0, 0), "then objects are the limit");
    for i in 0..made {
        c.rmdir(&r, &format!("some-directory-{i}")).unwrap();
    }
    c.rm(&r, "f").unwrap();
    assert_eq!(c.v.statfs(&cx(&id), &r).unwrap(), empty);
}

#[test]
fn every_operation_has_its_gate() {
    type Call = fn(&mut Caller, &Cx<'_>, &Handle) -> VfsResult<()>;
    let calls: [(Op, Call); 18] = [
        (Op::Getattr, |c, x, f| c.v.getattr(x, f).map(drop)),
        (Op::Setattr, |c, x, f| c.v.setattr(x, f, &mode(0o600), None).map(drop)),
        (Op::Lookup, |c, x, _| c.v.lookup(x, &c.root, b"f").map(drop)),
        (Op::Access, |c, x, f| c.v.access(x, f, Access(1)).map(drop)),
        (Op::Read, |c, x, f| c.v.read(x, f, 0, &mut []).map(drop)),
        (Op::Write, |c, x, f| c.v.write(x, f, 0, &[IoSlice::new(b"w")], Stability::FileSync).map(drop)),
        (Op::Commit, |c, x, f| c.v.commit(x, f, 0, 0).map(drop)),
        (Op::Create, |c, x, _| c.v.create(x, &c.root, b"c", &CreateHow::Guarded(mode(0))).map(drop)),
        (Op::Mkdir, |c, x, _| c.v.mkdir(x, &c.root, b"d", &mode(0o700)).map(drop)),
        (Op::Remove, |c, x, _| c.v.remove(x, &c.root, b"c")),
        (Op::Rmdir, |c, x, _| c.v.rmdir(x, &c.root, b"d")),
        (Op::Rename, |c, x, _| c.v.rename(x, (&c.root, b"f"), (&c.root, b"g"))),
        (Op::Readdir, |c, x, _| {
            let want = ReaddirWant { plus: false, bytes: 0 };
            c.v.readdir(x, &c.root, 0, want, &mut Sink { seen: vec![], max: 9 }).map(drop)
        }),
        (Op::Statfs, |c, x, f| c.v.statfs(x, f).map(drop)),
        (Op::Symlink, |c, x, _| c.v.links().unwrap().symlink(x, &c.root, b"s", b"t", &mode(0)).map(drop)),
        (Op::Readlink, |c, x, _| {
            let s = c.v.lookup(x, &c.root, b"s")?.handle;
            c.v.links().unwrap().readlink(x, &s, &mut [0; 9]).map(drop)
        }),
        (Op::Link, |c, x, f| c.v.links().unwrap().link(x, f, &c.root, b"l").map(drop)),
        (Op::Mknod, |c, x, _| c.v.links().unwrap().mknod(x, &c.root, b"n", Node::Fifo, &mode(0)).map(drop)),
    ];
    let fs = open_fs();
    let mut c = root(&fs);
    let (r, id) = (c.root, c.id.clone());
    let f = c.touch(&r, "f", 0o644).unwrap();
    let fast = Cx { blocking: false, ..cx(&id) };
    let slow = cx(&id);
    for (op, call) in calls {
        fs.faults().hold(op);
        assert_eq!(call(&mut c, &fast, &f), Err(VfsError::WouldBlock), "{op:?}");
        fs.faults().release(op);
        fs.faults().fail_next(op, 1, VfsError::DQuot);
        assert_eq!(call(&mut c, &slow, &f), Err(VfsError::DQuot), "{op:?}");
        assert_eq!(call(&mut c, &fast, &f), Ok(()), "{op:?}: nothing had been changed");
    }
    let blocking = MemFs::new(&MemOptions { always_blocks: true, ..MemOptions::default() });
    let mut c = root(&blocking);
    let r = c.root;
    assert!(blocking.always_blocks() && !fs.always_blocks());
    assert_eq!(c.v.getattr(&fast, &r), Err(VfsError::WouldBlock));
    assert!(c.v.getattr(&slow, &r).is_ok());
}

#[test]
fn a_held_write_reaches_the_file_after_release() {
    let fs = open_fs();
    let mut c = root(&fs);
    let r = c.root;
    let f = c.touch(&r, "f", 0o644).unwrap();
    fs.faults().hold(Op::Write);
    let clone = fs.clone();
    let writer = std::thread::spawn(move || root(&clone).write(&f, 0, b"late").map(|w| w.len));
    assert!(fs.faults().wait_for(Op::Write, 1, Duration::from_secs(60)));
    assert_eq!(c.read(&f, 0, 9).unwrap().0, b"", "other operations go on");
    fs.faults().release(Op::Write);
    assert_eq!(writer.join().unwrap(), Ok(4));
    assert_eq!(c.read(&f, 0, 9).unwrap().0, b"late");
}

#[test]
fn threads_share_one_tree() {
    let fs = open_fs();
    std::thread::scope(|s| {
        for t in 0..4 {
            let fs = &fs;
            s.spawn(move || {
                let mut c = root(fs);
                let r = c.root;
                let d = c.mkdir(&r, &format!("d{t}"), 0o755).unwrap();
                for i in 0..100 {
                    c.touch(&d, &format!("f{i}"), 0o644).unwrap();
                    c.mv((&d, &format!("f{i}")), (&r, &format!("t{t}-{i}"))).unwrap();
                }
            });
        }
    });
    let mut c = root(&fs);
    let r = c.root;
    let (seen, end) = c.list(&r, 0, usize::MAX, true).unwrap();
    assert!(end);
    assert_eq!((seen.len(), c.attr(&r).unwrap().nlink), (2 + 4 + 400, 6));
}

//! Whose rights the calling thread has.
//!
//! A thread takes on the identity of a caller only when an operation needs it and it is not the one it has already;
//! it keeps it afterwards. So a client with one user costs no switch at all, and what runs between operations must
//! not rely on the process's own rights. Three classes of capabilities go with an identity:
//!
//! | class | for | capabilities |
//! |---|---|---|
//! | user | any caller but an unsquashed uid 0 | none that concern files |
//! | service | the server's own work: opening by handle, a file's owner against its mode bits | those that overrule permission bits |
//! | root | an unsquashed uid 0 | all that the process has |
//!
//! The kernel lowers these capabilities itself only when the user changes from 0 to another; here they are always set
//! explicitly, so it does not matter who was before. `CAP_FSETID` and `CAP_SYS_RESOURCE` belong to class root alone:
//! a write by anybody else clears set-id bits and obeys quota, also through a descriptor that was opened earlier.

use crate::vfs::Identity;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::io;
use sunrpc_sys::cred::{self, CapSets, Caps};

/// Number of an identity on this thread; [`SERVICE`] is the server itself. Never used again for another.
pub(super) type Who = u32;

/// The server's own identity.
pub(super) const SERVICE: Who = 0;

/// Most identities that a thread keeps numbers for; beyond that it starts afresh and old numbers match nothing.
const KNOWN_MAX: usize = 1024;

/// Capabilities that overrule file permissions or allow what only root may do to files.
const FILES: Caps = Caps::CHOWN
    .with(Caps::DAC_OVERRIDE)
    .with(Caps::DAC_READ_SEARCH)
    .with(Caps::FOWNER)
    .with(Caps::FSETID)
    .with(Caps::LINUX_IMMUTABLE)
    .with(Caps::MKNOD)
    .with(Caps::MAC_OVERRIDE);
const OVERRULE: Caps = Caps::DAC_OVERRIDE.with(Caps::DAC_READ_SEARCH).with(Caps::FOWNER);

/// Without these a process cannot act for others.
pub(super) const NEEDED: Caps = Caps::SETUID.with(Caps::SETGID).with(OVERRULE).with(Caps::CHOWN);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// As the thread began, or after a switch that failed.
    Unknown,
    User,
    Service,
    Root,
}

struct Me {
    class: Class,
    fsuid: u32,
    fsgid: u32,
    /// `None` until they were set here.
    groups: Option<SmallVec<[u32; 16]>>,
    /// The process's capabilities; `effective` is what is set by the last switch.
    caps: CapSets,
    numbers: FxHashMap<Identity, Who>,
    next: Who,
    last: Option<(Identity, Who)>,
}

thread_local! {
    static ME: RefCell<Option<Box<Me>>> = const { RefCell::new(None) };
}

fn with_me<R>(f: impl FnOnce(&mut Me) -> R) -> io::Result<R> {
    ME.with_borrow_mut(|slot| {
        let me = match slot {
            Some(me) => me,
            None => slot.insert(Box::new(Me::new()?)),
        };
        Ok(f(me))
    })
}

impl Me {
    fn new() -> io::Result<Self> {
        let (fsuid, fsgid, _) = cred::current();
        Ok(Me {
            class: Class::Unknown,
            fsuid,
            fsgid,
            groups: None,
            caps: cred::capabilities()?,
            numbers: FxHashMap::default(),
            next: SERVICE + 1,
            last: None,
        })
    }

    fn wanted(&self, class: Class) -> Caps {
        let all = self.caps.permitted;
        let user = all.without(FILES).without(Caps::SYS_RESOURCE);
        match class {
            Class::Root => all,
            Class::Service => user.with(all.common(OVERRULE)),
            Class::User | Class::Unknown => user,
        }
    }

    fn set_class(&mut self, class: Class) -> io::Result<()> {
        if self.class != class {
            self.class = Class::Unknown;
            self.caps.effective = self.wanted(class);
            cred::set_capabilities(&self.caps)?;
            self.class = class;
        }
        Ok(())
    }

    fn is(&self, who: &Identity) -> bool {
        let class = if who.uid == 0 { Class::Root } else { Class::User };
        self.class == class
            && self.fsuid == who.uid
            && self.fsgid == who.gid
            && self.groups.as_ref().is_some_and(|g| *g == who.groups)
    }

    fn become_(&mut self, who: &Identity) -> io::Result<()> {
        let class = if who.uid == 0 { Class::Root } else { Class::User };
        if self.groups.as_ref() != Some(&who.groups) {
            self.groups = None;
            cred::set_groups(&who.groups)?;
            self.groups = Some(who.groups.clone());
        }
        if self.fsgid != who.gid {
            cred::set_fsgid(who.gid)?;
            self.fsgid = who.gid;
        }
        if self.fsuid != who.uid {
            // The kernel changes capabilities on its own where uid 0 is left or entered.
            if self.fsuid == 0 || who.uid == 0 {
                self.class = Class::Unknown;
            }
            cred::set_fsuid(who.uid)?;
            self.fsuid = who.uid;
        }
        self.set_class(class)
    }
}

/// The thread's number for `who`.
#[inline]
pub(super) fn number(who: &Identity) -> io::Result<Who> {
    with_me(|me| {
        if let Some((last, n)) = &me.last
            && last == who
        {
            return *n;
        }
        let n = match me.numbers.get(who) {
            Some(n) => *n,
            None => {
                if me.numbers.len() >= KNOWN_MAX {
                    me.numbers.clear();
                }
                let n = me.next;
                // After 2^32 identities on one thread numbers would repeat; the last one then stays shared by
                // nobody, since it is never put into the table.
                if n == Who::MAX {
                    return n;
                }
                me.next += 1;
                me.numbers.insert(who.clone(), n);
                n
            }
        };
        me.last = Some((who.clone(), n));
        n
    })
}

/// True if the thread has exactly the rights of `who` at the moment.
#[inline]
pub(super) fn is(who: &Identity) -> bool {
    with_me(|me| me.is(who)).unwrap_or(false)
}

/// Takes on the rights of `who`.
///
/// # Errors
/// `EPERM` if the kernel does not allow it, for instance for a user that this user name space does not know.
#[inline]
pub(super) fn become_user(who: &Identity) -> io::Result<()> {
    with_me(|me| {
        let kept = me.is(who) || me.fsuid != 0 && sunrpc::mutate::on("skip-switch");
        if kept { Ok(()) } else { me.become_(who) }
    })?
}

/// Takes on the server's own rights: those of the current user plus the overruling of permission bits.
pub(super) fn become_service() -> io::Result<()> {
    with_me(|me| if me.class == Class::Root { Ok(()) } else { me.set_class(Class::Service) })?
}

/// Makes sure that changing a file's contents through an open descriptor has the effects it would have for `who`:
/// for anybody but root, no rights of root; which of the others the thread is does not matter.
#[inline]
pub(super) fn become_writer(who: &Identity) -> io::Result<()> {
    with_me(|me| {
        let good =
            me.is(who) || who.uid != 0 && me.fsuid != 0 && matches!(me.class, Class::User | Class::Service);
        if good { Ok(()) } else { me.become_(who) }
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ident(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity { uid, gid, groups: SmallVec::from_slice(groups) }
    }

    fn privileged() -> bool {
        let yes = cred::capabilities().is_ok_and(|c| c.effective.has(NEEDED));
        if !yes {
            eprintln!("SKIPPED: needs the capabilities of root");
        }
        yes
    }

    #[test]
    fn capabilities_follow_the_identity() {
        if !privileged() {
            return;
        }
        std::thread::spawn(|| {
            let all = cred::capabilities().unwrap().permitted;
            let now = || cred::capabilities().unwrap().effective;
            let (alice, bob, root) = (ident(1000, 1000, &[7, 8]), ident(1001, 1000, &[]), ident(0, 0, &[]));
            for who in [&alice, &bob, &root, &bob, &root, &alice] {
                become_user(who).unwrap();
                assert!(is(who));
                assert_eq!((cred::current().0, cred::current().1), (who.uid, who.gid));
                assert_eq!(now() == all, who.uid == 0);
                assert_eq!(now().common(FILES.with(Caps::SYS_RESOURCE)) == Caps::NONE, who.uid != 0);
            }
            become_service().unwrap();
            assert!(now().has(OVERRULE) && !is(&alice));
            assert_eq!(now().common(Caps::FSETID.with(Caps::SYS_RESOURCE)), Caps::NONE);
            become_writer(&bob).unwrap();
            assert_eq!(cred::current().0, 1000, "another user will do for a write");
            become_writer(&root).unwrap();
            assert!(is(&root) && now().has(Caps::FSETID));
            become_writer(&bob).unwrap();
            assert!(is(&bob));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn numbers_tell_identities_apart() {
        let (a, b) = (ident(1, 1, &[1, 2]), ident(1, 1, &[2, 1]));
        let (na, nb) = (number(&a).unwrap(), number(&b).unwrap());
        assert_ne!(na, nb);
        assert_eq!((number(&a).unwrap(), number(&b).unwrap()), (na, nb));
        for uid in 0..2 * KNOWN_MAX as u32 {
            assert_ne!(number(&ident(uid, 5, &[])).unwrap(), SERVICE);
        }
        let again = number(&a).unwrap();
        assert!(again != nb && again > na, "a forgotten identity gets a fresh number");
    }
}

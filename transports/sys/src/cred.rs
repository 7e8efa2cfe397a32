//! The calling thread's file-system identity and capabilities; who is at the other end of a local socket.
//!
//! Those of the thread are raw system calls on purpose: the C library's wrappers change every thread of the process, these change
//! only the calling one.

use crate::open::check;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A set of capabilities, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps(pub u64);

#[allow(missing_docs)] // the names are those of capabilities(7)
impl Caps {
    pub const NONE: Caps = Caps(0);
    pub const CHOWN: Caps = Caps(1 << 0);
    pub const DAC_OVERRIDE: Caps = Caps(1 << 1);
    pub const DAC_READ_SEARCH: Caps = Caps(1 << 2);
    pub const FOWNER: Caps = Caps(1 << 3);
    pub const FSETID: Caps = Caps(1 << 4);
    pub const SETGID: Caps = Caps(1 << 6);
    pub const SETUID: Caps = Caps(1 << 7);
    pub const LINUX_IMMUTABLE: Caps = Caps(1 << 9);
    pub const SYS_RESOURCE: Caps = Caps(1 << 24);
    pub const MKNOD: Caps = Caps(1 << 27);
    pub const MAC_OVERRIDE: Caps = Caps(1 << 32);

    /// All of both.
    pub const fn with(self, other: Caps) -> Caps {
        Caps(self.0 | other.0)
    }

    /// Those of `self` that `other` lacks.
    pub const fn without(self, other: Caps) -> Caps {
        Caps(self.0 & !other.0)
    }

    /// Those that both have.
    pub const fn common(self, other: Caps) -> Caps {
        Caps(self.0 & other.0)
    }

    /// True if all of `other` are in `self`.
    pub const fn has(self, other: Caps) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A thread's capability sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapSets {
    /// In force.
    pub effective: Caps,
    /// Can be put in force.
    pub permitted: Caps,
    /// Survive execve.
    pub inheritable: Caps,
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Third version of the interface: 64 capabilities in two halves.
const VERSION: u32 = 0x2008_0522;

/// The calling thread's capabilities.
///
/// # Errors
/// None in practice.
pub fn capabilities() -> io::Result<CapSets> {
    let mut head = Header { version: VERSION, pid: 0 };
    let mut half = [Half::default(); 2];
    // SAFETY: this version of the interface reads and writes one header and two halves; all live through the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut head, half.as_mut_ptr()) })?;
    let join = |f: fn(&Half) -> u32| Caps(u64::from(f(&half[0])) | u64::from(f(&half[1])) << 32);
    Ok(CapSets {
        effective: join(|h| h.effective),
        permitted: join(|h| h.permitted),
        inheritable: join(|h| h.inheritable),
    })
}

/// Sets the calling thread's capabilities.
///
/// # Errors
/// `EPERM` for more than is permitted.
pub fn set_capabilities(sets: &CapSets) -> io::Result<()> {
    let mut head = Header { version: VERSION, pid: 0 };
    let half = |shift: u32| Half {
        effective: (sets.effective.0 >> shift) as u32,
        permitted: (sets.permitted.0 >> shift) as u32,
        inheritable: (sets.inheritable.0 >> shift) as u32,
    };
    let halves = [half(0), half(32)];
    // SAFETY: this version of the interface reads one header and two halves; all live through the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut head, halves.as_ptr()) }).map(drop)
}

/// Sets the calling thread's file-system user.
///
/// # Errors
/// `EPERM` if the user is not what was asked for afterwards: no right to it, or no such user in this name space.
pub fn set_fsuid(uid: u32) -> io::Result<()> {
    // SAFETY: touches no memory. The call reports no errors, so it is asked again what holds now.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX)
    };
    if now as u32 == uid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Sets the calling thread's file-system group.
///
/// # Errors
/// As [`set_fsuid`].
pub fn set_fsgid(gid: u32) -> io::Result<()> {
    // SAFETY: as above.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsgid, u32::MAX)
    };
    if now as u32 == gid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Sets the calling thread's supplementary groups.
///
/// # Errors
/// Those of setgroups(2).
pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads `groups.len()` ids from the slice, which lives through the call.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// The calling thread's file-system user and group, and the process's effective user.
pub fn current() -> (u32, u32, u32) {
    // SAFETY: touches no memory; an invalid id changes nothing and returns what holds.
    unsafe {
        (
            libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32,
            libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32,
            libc::geteuid(),
        )
    }
}

/// The process at the other end of a local socket, as it was when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its process id; 0 if it has none in this name space.
    pub pid: u32,
}

/// Who is at the other end of a connected local socket.
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer(fd: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut c = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `c`, which has that many; both live through the call.
    let r = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut c).cast(), &raw mut len)
    };
    check(r.into())?;
    Ok(Peer { uid: c.uid, pid: u32::try_from(c.pid).unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_changes() {
        let before = capabilities().unwrap();
        if !before.effective.has(Caps::SETUID.with(Caps::SETGID)) {
            eprintln!("SKIPPED: needs CAP_SETUID and CAP_SETGID");
            return;
        }
        std::thread::spawn(|| {
            set_groups(&[5, 6]).unwrap();
            set_fsgid(1001).unwrap();
            set_fsuid(1000).unwrap();
            assert_eq!((current().0, current().1), (1000, 1001));
            let mut c = capabilities().unwrap();
            assert!(!c.effective.has(Caps::DAC_OVERRIDE), "lowered by the kernel with the user");
            c.effective = c.effective.without(Caps::SETUID);
            set_capabilities(&c).unwrap();
            assert!(set_fsuid(1002).is_err());
            assert_eq!(capabilities().unwrap().effective, c.effective);
        })
        .join()
        .unwrap();
        assert_eq!(capabilities().unwrap(), before);
        assert_eq!(current().0, current().2);
    }
}

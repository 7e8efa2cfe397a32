//! TUN devices, whose IP packets are read and written by a program, in a network namespace of choice.

use crate::open::{check, retry};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where `ip netns add` puts a name for a namespace.
const NETNS: &str = "/var/run/netns";

/// Makes the TUN device `device` in the network namespace `netns` of `ip netns`, or attaches to it if it is there. Each
/// read of the descriptor takes one IP packet that leaves by the device, each write is one that arrives by it, with no
/// header before it; neither waits. The device goes away with the descriptor. The caller's own namespace stays as it is.
///
/// # Errors
/// `InvalidInput` if a name is not one of a file or is too long, `NotFound` if there is no such namespace or no
/// `/dev/net/tun`, `PermissionDenied` without CAP_SYS_ADMIN and CAP_NET_ADMIN, and those of open(2), setns(2) and ioctl(2).
pub fn open(netns: &str, device: &str) -> io::Result<OwnedFd> {
    let named = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if !named(netns) || !named(device) || device.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let namespace = File::open(Path::new(NETNS).join(netns))?;
    // A namespace is entered by a thread. One of its own ends with what it did, however that ends.
    std::thread::scope(|s| {
        s.spawn(|| {
            enter(namespace.as_fd())?;
            attach(device)
        })
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that makes the device panicked")))
    })
}

/// Moves this thread to another network namespace.
fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory; `namespace` is borrowed, so it stays open.
    let r = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    check(r.into()).map(drop)
}

/// A device of this thread's namespace.
fn attach(device: &str) -> io::Result<OwnedFd> {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let tun = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all-zero bytes are a valid `ifreq`: no name, no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // `open` has seen that a zero is left at the end.
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    retry(|| {
        // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call.
        let r = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF as _, &raw mut request) };
        check(r.into())
    })?;
    Ok(tun.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn names_that_lead_elsewhere_or_are_too_long_are_refused() {
        for (netns, device) in [
            ("", "tun0"),
            ("../../proc/self/ns/net", "tun0"),
            (".", "tun0"),
            ("a", ""),
            ("a", "sixteen-letters-"),
        ] {
            assert_eq!(open(netns, device).unwrap_err().kind(), ErrorKind::InvalidInput, "{netns} {device}");
        }
    }

    #[test]
    fn a_namespace_must_exist() {
        assert_eq!(open("sunrpc-no-such-namespace", "tun0").unwrap_err().kind(), ErrorKind::NotFound);
    }
}

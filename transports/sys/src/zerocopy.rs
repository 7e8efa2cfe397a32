//! MSG_ZEROCOPY: sends that refer to the caller's memory until the peer has acknowledged it.

use crate::open::{check, retry};
use std::io::{self, IoSlice};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_EE_ORIGIN_ZEROCOPY`: the error queue entry is a completion.
const ORIGIN: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED`: the kernel copied after all.
const COPIED: u8 = 1;

/// Lets a socket take [`send`].
///
/// # Errors
/// Those of setsockopt(2): sockets other than TCP and UDP have no such option.
pub fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let one: libc::c_int = 1;
    // SAFETY: the kernel reads one int from `one`, which lives through the call.
    let r = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    check(r.into()).map(drop)
}

/// Sends `bufs` by copy; `more` tells that further bytes follow at once.
///
/// # Errors
/// Those of sendmsg(2).
#[inline]
pub fn send_copy(socket: BorrowedFd<'_>, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { libc::MSG_MORE } else { 0 };
    // The usual small reply: no message header and no list for the kernel to fetch.
    let [one] = bufs else { return sendmsg(socket, bufs, flags) };
    retry(|| {
        // SAFETY: pointer and length are those of the borrowed `one`, which the kernel only reads.
        let n = unsafe {
            libc::send(socket.as_raw_fd(), one.as_ptr().cast(), one.len(), flags | libc::MSG_NOSIGNAL)
        };
        check(n as i64).map(|n| n as usize)
    })
}

/// Sends memory by reference.
///
/// The kernel may read it until the completion of this send is read from the error queue ([`completion`]). Nothing here
/// enforces that: memory that changes earlier is memory that the peer may see changed, in what was sent, but it is never
/// memory that does not exist: the kernel holds the physical pages, whatever becomes of the mapping.
///
/// # Errors
/// Those of sendmsg(2); `ENOBUFS` when the limit of locked memory is reached.
pub fn send(socket: BorrowedFd<'_>, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    sendmsg(socket, bufs, libc::MSG_ZEROCOPY | if more { libc::MSG_MORE } else { 0 })
}

fn sendmsg(socket: BorrowedFd<'_>, bufs: &[IoSlice<'_>], flags: i32) -> io::Result<usize> {
    // SAFETY: all-zero bytes are a valid msghdr without address, control data and buffers.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = bufs.as_ptr().cast_mut().cast();
    m.msg_iovlen = bufs.len() as _;
    retry(|| {
        // SAFETY: `IoSlice` is guaranteed to have the layout of `iovec`; `m` names exactly the borrowed `bufs`, which
        // the kernel only reads.
        let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &m, flags | libc::MSG_NOSIGNAL) };
        check(n as i64).map(|n| n as usize)
    })
}

/// One notification: the sends `from` to `to`, both included, are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Number of the first send.
    pub from: u32,
    /// Number of the last.
    pub to: u32,
    /// The kernel copied them after all.
    pub copied: bool,
}

/// Reads one notification from the error queue; `None` when there is none.
///
/// # Errors
/// Those of recvmsg(2).
pub fn completion(socket: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    loop {
        let mut control = [0u64; 16];
        // SAFETY: all-zero bytes are a valid msghdr without address, control data and buffers.
        let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
        m.msg_control = control.as_mut_ptr().cast();
        m.msg_controllen = size_of_val(&control) as _;
        let r = retry(|| {
            // SAFETY: `m` names no buffer but `control`, whose size it tells and which lives through the call.
            let n =
                unsafe { libc::recvmsg(socket.as_raw_fd(), &mut m, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
            check(n as i64)
        });
        match r {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            r => drop(r?),
        }
        // SAFETY: `m` was filled by the kernel and its control buffer is still there.
        let mut c = unsafe { libc::CMSG_FIRSTHDR(&m) };
        while !c.is_null() {
            // SAFETY: `c` is a header inside the control buffer, which is aligned for it.
            let head = unsafe { *c };
            let kind = (head.cmsg_level, head.cmsg_type);
            let fits =
                head.cmsg_len as usize >= size_of::<libc::cmsghdr>() + size_of::<libc::sock_extended_err>();
            if matches!(kind, (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)) && fits
            {
                // SAFETY: the kernel put a sock_extended_err there, and the length says that all of it is present.
                let e = unsafe { libc::CMSG_DATA(c).cast::<libc::sock_extended_err>().read_unaligned() };
                if e.ee_errno == 0 && e.ee_origin == ORIGIN {
                    let copied = e.ee_code & COPIED != 0;
                    return Ok(Some(Completion { from: e.ee_info, to: e.ee_data, copied }));
                }
            }
            // SAFETY: as for CMSG_FIRSTHDR; `c` is one of its headers.
            c = unsafe { libc::CMSG_NXTHDR(&m, c) };
        }
        // An entry of another kind (an ICMP error, say): the next.
    }
}

/// Ends a TCP connection at once: the peer gets a reset, nothing more is sent, and all completions are on the error
/// queue. Closing instead would go on reading memory whose completions nobody can see any more.
///
/// # Errors
/// Those of connect(2).
pub fn abort(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sockaddr, of family AF_UNSPEC.
    let nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads `nobody`, whose size is told.
    let r = unsafe { libc::connect(socket.as_raw_fd(), &nobody, size_of::<libc::sockaddr>() as u32) };
    check(r.into()).map(drop)
}

/// Bytes that a TCP socket has not transmitted even once (`SIOCOUTQNSD`).
///
/// # Errors
/// Those of ioctl(2).
pub fn untransmitted(socket: BorrowedFd<'_>) -> io::Result<usize> {
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    let mut n: libc::c_int = 0;
    // SAFETY: the kernel writes one int to `n`.
    let r = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD as _, &raw mut n) };
    check(r.into()).map(|_| n.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(l.local_addr().unwrap()).unwrap();
        (a, l.accept().unwrap().0)
    }

    fn wait_for(s: &TcpStream) -> Completion {
        loop {
            if let Some(c) = completion(s.as_fd()).unwrap() {
                return c;
            }
            // An entry on the error queue ends any poll.
            crate::poll::wait(Some(s.as_fd()), false, false, None).unwrap();
        }
    }

    #[test]
    fn every_send_completes_once_in_order() {
        let (mut a, b) = pair();
        enable(b.as_fd()).unwrap();
        let data = vec![5u8; 40_000];
        for _ in 0..3 {
            assert_eq!(send(b.as_fd(), &[IoSlice::new(&data)], false).unwrap(), data.len());
        }
        a.read_exact(&mut vec![0; 120_000]).unwrap();
        let mut next = 0;
        while next < 3 {
            let c = wait_for(&b);
            assert_eq!(c.from, next);
            next = c.to + 1;
        }
        assert_eq!(completion(b.as_fd()).unwrap(), None);
    }

    #[test]
    fn an_aborted_connection_has_all_its_completions() {
        let (a, b) = pair();
        enable(b.as_fd()).unwrap();
        b.set_nonblocking(true).unwrap();
        let data = vec![5u8; 100_000];
        let mut sends = 0;
        while let Ok(n) = send(b.as_fd(), &[IoSlice::new(&data)], false) {
            sends += u32::from(n > 0);
        }
        assert!(sends > 0);
        abort(b.as_fd()).unwrap();
        let mut next = 0;
        while next < sends {
            next = completion(b.as_fd()).unwrap().expect("all are there at once").to + 1;
        }
        drop(a);
    }
}

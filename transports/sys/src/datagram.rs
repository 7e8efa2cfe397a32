//! Datagrams in batches, with the address of this host that each was sent to, and that each is to leave from.

use crate::open::{check, retry};
use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Datagrams that one call takes or gives at most.
pub const BATCH: usize = 32;
/// Bytes of a receive slot: more than any UDP payload of an ordinary (not jumbo) IP packet.
pub const SLOT: usize = 64 << 10;

/// An address of this host, and the index of the interface where it is meant (0 = any).
pub type Local = (IpAddr, u32);

/// Bytes for control messages: one IPV6_PKTINFO, and to spare. A multiple of eight.
const CONTROL: usize = 64;

/// Room for the address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Asks the kernel to tell of each datagram where it was sent to.
///
/// # Errors
/// Those of setsockopt(2).
pub fn tell_destination(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    match v6 {
        true => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        false => set(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    }
}

/// Sets the socket's buffers, in bytes; beyond the system's limits (`net.core.rmem_max`, `wmem_max`) only with
/// CAP_NET_ADMIN, else as far as they go. Linux doubles the values for its own bookkeeping.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_buffers(fd: BorrowedFd<'_>, receive: usize, send: usize) -> io::Result<()> {
    let wanted =
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send)];
    for (force, ask, bytes) in wanted {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        set(fd, libc::SOL_SOCKET, force, bytes).or_else(|_| set(fd, libc::SOL_SOCKET, ask, bytes))?;
    }
    Ok(())
}

fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, one i32, that live through the call.
    let r = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    check(r.into()).map(drop)
}

/// A received datagram.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Its payload, as far as it fits into a slot.
    pub bytes: &'a [u8],
    /// The sender; an IPv4 one as such, on sockets of either family.
    pub peer: SocketAddr,
    /// Where it was sent to, as an address that replies can leave from; `None` if the kernel did not tell.
    pub local: Option<Local>,
    /// Part of it was cut off.
    pub truncated: bool,
}

#[derive(Clone, Copy, Default)]
struct Info {
    len: usize,
    control: usize,
    name: u32,
    truncated: bool,
}

/// Receives up to [`BATCH`] datagrams at a time. Its 2 MiB are resident only as far as datagrams reached.
pub struct Inbox {
    slots: Vec<u8>,
    names: [Name; BATCH],
    controls: [Control; BATCH],
    infos: [Info; BATCH],
    filled: usize,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox {
            slots: vec![0; BATCH * SLOT],
            names: [no_name(); BATCH],
            controls: [Control([0; CONTROL]); BATCH],
            infos: [Info::default(); BATCH],
            filled: 0,
        }
    }
}

fn no_name() -> Name {
    // SAFETY: both address structures are plain integers, for which zero is valid.
    unsafe { zeroed() }
}

/// Message headers that name nothing.
fn no_headers() -> [libc::mmsghdr; BATCH] {
    // SAFETY: null pointers and zero lengths are a valid `mmsghdr`.
    unsafe { zeroed() }
}

impl Inbox {
    /// Takes what has arrived, without waiting, in place of what was taken before; how many. Fewer than [`BATCH`]
    /// means that there were no more.
    ///
    /// # Errors
    /// Those of recvmmsg(2); `WouldBlock` if nothing has arrived. One of the network (`ECONNREFUSED`) concerns an
    /// earlier send and is reported once.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.filled = 0;
        let mut headers = no_headers();
        let mut iov = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
        let places = self.slots.chunks_exact_mut(SLOT).zip(&mut self.names).zip(&mut self.controls);
        for ((h, iov), ((slot, name), control)) in headers.iter_mut().zip(&mut iov).zip(places) {
            *iov = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            h.msg_hdr.msg_name = (&raw mut *name).cast();
            h.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            h.msg_hdr.msg_iov = &raw mut *iov;
            h.msg_hdr.msg_iovlen = 1;
            h.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            h.msg_hdr.msg_controllen = CONTROL as _;
        }
        let flags = libc::MSG_DONTWAIT;
        let n = retry(|| {
            // SAFETY: there are BATCH headers; each names a slot, an address and a control buffer of its own with
            // their true lengths, all borrowed exclusively through the call.
            let r = unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    headers.as_mut_ptr(),
                    BATCH as u32,
                    flags as _,
                    ptr::null_mut(),
                )
            };
            check(r.into())
        })?;
        self.filled = (n as usize).min(BATCH);
        // The type of lengths differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        for (info, h) in self.infos.iter_mut().zip(&headers).take(self.filled) {
            *info = Info {
                len: h.msg_len as usize,
                control: h.msg_hdr.msg_controllen as usize,
                name: h.msg_hdr.msg_namelen,
                truncated: h.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            };
        }
        Ok(self.filled)
    }

    /// The `i`-th datagram of the last receive; `None` beyond, and if its sender has no internet address.
    pub fn get(&self, i: usize) -> Option<Received<'_>> {
        let info = self.infos.get(..self.filled)?.get(i)?;
        let start = i * SLOT;
        let bytes = self.slots.get(start..start + info.len.min(SLOT))?;
        let peer = address(self.names.get(i)?, info.name)?;
        let control = &self.controls.get(i)?.0;
        let local = destination(control.get(..info.control.min(CONTROL))?);
        Some(Received { bytes, peer, local, truncated: info.truncated })
    }
}

/// An address as the kernel wrote it, `len` bytes of it.
fn address(name: &Name, len: u32) -> Option<SocketAddr> {
    // SAFETY: the family is the first field of both structures, and any bits are a valid integer.
    let family = i32::from(unsafe { name.v4.sin_family });
    if family == libc::AF_INET && len as usize >= size_of::<libc::sockaddr_in>() {
        // SAFETY: plain integers, written by the kernel or zero.
        let a = unsafe { name.v4 };
        let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
        return Some(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into());
    }
    if family == libc::AF_INET6 && len as usize >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: as above.
        let a = unsafe { name.v6 };
        let (ip, port) = (Ipv6Addr::from(a.sin6_addr.s6_addr), u16::from_be(a.sin6_port));
        return Some(match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddrV4::new(v4, port).into(),
            None => SocketAddrV6::new(ip, port, 0, a.sin6_scope_id).into(),
        });
    }
    None
}

/// Bytes of a control message's header.
const HEAD: usize = size_of::<libc::cmsghdr>();

/// The address in the control messages of a datagram.
fn destination(mut control: &[u8]) -> Option<Local> {
    const LEN: usize = size_of::<usize>();
    let int = |b: &[u8]| b.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b));
    // Each is a length (of the whole), level, type, data, and padding to a word.
    while let Some((head, rest)) = control.split_at_checked(HEAD) {
        let len = usize::from_ne_bytes(*head.first_chunk::<LEN>()?);
        let (level, kind) = (int(head.get(LEN..)?)?, int(head.get(LEN + 4..)?)?);
        let data = rest.get(..len.checked_sub(HEAD)?)?;
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // in_pktinfo: interface, the local address, the address in the packet, which may be a broadcast.
                let ip = data.get(4..)?.first_chunk::<4>()?;
                return Some((Ipv4Addr::from(*ip).into(), 0));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let (ip, index) = data.split_first_chunk::<16>()?;
                let ip = Ipv6Addr::from(*ip);
                let index = u32::from_ne_bytes(*index.first_chunk::<4>()?);
                return Some(match ip.to_ipv4_mapped() {
                    Some(v4) => (v4.into(), 0),
                    None => (ip.into(), if ip.is_unicast_link_local() { index } else { 0 }),
                });
            }
            _ => control = rest.get(data.len().next_multiple_of(LEN)..)?,
        }
    }
    None
}

/// A datagram to send.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Its payload in pieces, at most [`BUFFERS_MAX`](crate::io::BUFFERS_MAX).
    pub pieces: &'a [IoSlice<'a>],
    /// Where to.
    pub peer: SocketAddr,
    /// Where from; the kernel chooses if `None`.
    pub local: Option<Local>,
}

/// Sends up to [`BATCH`] datagrams, in order, without waiting; how many were taken. `v6` tells the socket's family: an
/// IPv6 one sends to IPv4 peers too.
///
/// # Errors
/// Those of sendmmsg(2), for the first datagram; none was taken then.
pub fn send<'a>(
    fd: BorrowedFd<'_>,
    v6: bool,
    datagrams: impl IntoIterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    let mut headers = no_headers();
    let mut names = [no_name(); BATCH];
    let mut controls = [Control([0; CONTROL]); BATCH];
    let mut n = 0;
    let places = headers.iter_mut().zip(&mut names).zip(&mut controls);
    for (((h, name), control), d) in places.zip(datagrams) {
        h.msg_hdr.msg_namelen = put_address(name, d.peer, v6);
        h.msg_hdr.msg_name = (&raw mut *name).cast();
        // The kernel only reads through this pointer when it sends.
        h.msg_hdr.msg_iov = d.pieces.as_ptr().cast_mut().cast();
        h.msg_hdr.msg_iovlen = d.pieces.len().min(crate::io::BUFFERS_MAX) as _;
        if let Some(local) = d.local {
            h.msg_hdr.msg_controllen = put_source(control, local, v6) as _;
            h.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        }
        n += 1;
    }
    retry(|| {
        // SAFETY: the first `n` headers name addresses and control buffers of this frame, with their true lengths,
        // and pieces that are borrowed for 'a, which outlives the call; `IoSlice` has the layout of `iovec`.
        let r = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), n, libc::MSG_DONTWAIT as _) };
        check(r.into()).map(|n| n as usize)
    })
}

fn put_address(name: &mut Name, peer: SocketAddr, v6: bool) -> libc::socklen_t {
    let (ip, scope) = match peer {
        SocketAddr::V4(a) if !v6 => {
            name.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: a.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                sin_zero: [0; 8],
            };
            return size_of::<libc::sockaddr_in>() as _;
        }
        SocketAddr::V4(a) => (a.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(a) => (*a.ip(), a.scope_id()),
    };
    name.v6 = libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as _,
        sin6_port: peer.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
        sin6_scope_id: scope,
    };
    size_of::<libc::sockaddr_in6>() as _
}

/// Writes the control message that chooses the source; its length.
fn put_source(control: &mut Control, (ip, index): Local, v6: bool) -> usize {
    let mut data = [0; 20];
    let (level, kind, len) = match ip {
        IpAddr::V4(ip) if !v6 => {
            // in_pktinfo: interface (0: routing decides), source.
            data[4..8].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        ip => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            data[..16].copy_from_slice(&ip.octets());
            data[16..].copy_from_slice(&index.to_ne_bytes());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    let head = (HEAD + len).to_ne_bytes().into_iter().chain(level.to_ne_bytes()).chain(kind.to_ne_bytes());
    let whole = head.chain(data.into_iter().take(len));
    control.0.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    (HEAD + len).next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    /// A socket bound to every address, that tells destinations, and its port.
    fn server(addr: &str) -> (UdpSocket, u16) {
        let s = UdpSocket::bind(addr).unwrap();
        tell_destination(s.as_fd(), addr.starts_with('[')).unwrap();
        let port = s.local_addr().unwrap().port();
        (s, port)
    }

    /// On the loopback a datagram has arrived when its send returns.
    fn wait(inbox: &mut Inbox, s: &UdpSocket) -> usize {
        loop {
            match inbox.receive(s.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                r => return r.unwrap(),
            }
        }
    }

    fn back_and_forth(bind: &str, to: &str) {
        let v6 = bind.starts_with('[');
        let (s, port) = server(bind);
        let to: IpAddr = to.parse().unwrap();
        let client = UdpSocket::bind(SocketAddr::new(to, 0)).unwrap();
        // Takes from nobody else.
        client.connect(SocketAddr::new(to, port)).unwrap();
        let mut inbox = Inbox::default();
        client.send(b"ping").unwrap();
        assert_eq!(wait(&mut inbox, &s), 1);
        let r = inbox.get(0).unwrap();
        assert_eq!((r.bytes, r.peer, r.local), (&b"ping"[..], client.local_addr().unwrap(), Some((to, 0))));
        assert!(!r.truncated && inbox.get(1).is_none());
        let pieces = [IoSlice::new(b"po"), IoSlice::new(b"ng")];
        let out = Outgoing { pieces: &pieces, peer: r.peer, local: r.local };
        assert_eq!(send(s.as_fd(), v6, [out, out]).unwrap(), 2);
        let mut buf = [0; 9];
        for _ in 0..2 {
            assert_eq!(client.recv(&mut buf).unwrap(), 4);
            assert_eq!(&buf[..4], b"pong");
        }
    }

    #[test]
    fn replies_leave_from_the_address_that_was_called() {
        back_and_forth("0.0.0.0:0", "127.0.0.2");
        if UdpSocket::bind("[::1]:0").is_ok() {
            back_and_forth("[::]:0", "::1");
            back_and_forth("[::]:0", "127.0.0.3");
        }
    }

    #[test]
    fn batches_are_taken_in_order_and_the_largest_datagram_is_whole() {
        let (s, port) = server("127.0.0.1:0");
        set_buffers(s.as_fd(), 4 << 20, 1 << 20).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(("127.0.0.1", port)).unwrap();
        let mut inbox = Inbox::default();
        for i in 0..40u8 {
            client.send(&[i; 3]).unwrap();
        }
        assert_eq!(wait(&mut inbox, &s), BATCH);
        assert_eq!(inbox.get(31).unwrap().bytes, [31; 3]);
        assert_eq!(wait(&mut inbox, &s), 8);
        assert_eq!(inbox.get(7).unwrap().bytes, [39; 3]);
        assert!(inbox.get(8).is_none());
        client.send(&[7; 65507]).unwrap();
        client.send(&[]).unwrap();
        assert_eq!(wait(&mut inbox, &s), 2);
        assert_eq!(inbox.get(0).unwrap().bytes, [7; 65507]);
        assert_eq!(inbox.get(1).unwrap().bytes, []);
        assert_eq!(inbox.receive(s.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(inbox.get(0).is_none());
    }

    #[test]
    fn damaged_control_messages_tell_nothing() {
        let mut c = Control([0; CONTROL]);
        let n = put_source(&mut c, (Ipv4Addr::LOCALHOST.into(), 0), false);
        assert_eq!(destination(&c.0[..n]), Some((Ipv4Addr::LOCALHOST.into(), 0)));
        assert_eq!(destination(&c.0[..HEAD + 5]), None);
        assert_eq!(destination(&[]), None);
        c.0[0] = 3;
        assert_eq!(destination(&c.0), None);
        assert_eq!(destination(&[0xff; CONTROL]), None);
    }
}

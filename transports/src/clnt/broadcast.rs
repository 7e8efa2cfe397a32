//! One call to many servers over UDP.

use super::datagram::MAX_DATAGRAM;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sunrpc::clnt::{
    AuthNone, ClntError, ProcId, Retransmit, XprtError, decode_reply, encode_call, random_xid,
};
use sunrpc::xdr::{Decode, Encode};

/// Servers of which one call keeps track; what comes from others beyond is dropped.
const MAX_PEERS: usize = 4096;

/// Sends a call as nobody (AUTH_NONE) to every address in `to`, broadcast addresses included, and again with
/// growing waits until `total` is over or `each` breaks. `each` gets the first answer of every server: its results,
/// or why there are none. The procedure should be one that stays silent where it has nothing to say, and must be
/// idempotent.
///
/// Returns how many servers answered. Fails if no address at all could be sent to.
pub fn broadcast<A: Encode + ?Sized, R: for<'a> Decode<'a>>(
    to: &[SocketAddr],
    of: ProcId,
    args: &A,
    total: Duration,
    mut each: impl FnMut(SocketAddr, Result<R, ClntError>) -> ControlFlow<()>,
) -> Result<usize, ClntError> {
    let xid = random_xid();
    let (call, token) = encode_call(xid, of, &AuthNone, |w| args.encode(w))?;
    if call.len() > MAX_DATAGRAM {
        return Err(XprtError::TooLarge { len: call.len(), max: MAX_DATAGRAM }.into());
    }
    let socket = open(to)?;
    let wide = socket.local_addr()?.is_ipv6();
    let start = Instant::now();
    let mut resend = Retransmit::default().first;
    let mut next = Duration::ZERO;
    let mut heard: HashSet<SocketAddr> = HashSet::new();
    let mut buf = vec![0; 1 << 16];
    loop {
        let now = start.elapsed();
        if now >= total {
            return Ok(heard.len());
        }
        if now >= next {
            let first = next == Duration::ZERO;
            transmit(&socket, to, wide, &call).or_else(|e| if first { Err(e) } else { Ok(()) })?;
            next = now.saturating_add(resend);
            resend = resend.saturating_mul(2).min(Retransmit::default().most);
        }
        let (n, peer) = match socket.recv_from(&mut buf) {
            Ok(got) => got,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let timeout = next.min(total).saturating_sub(start.elapsed());
                sunrpc_sys::poll::wait(Some(socket.as_fd()), true, false, Some(timeout))?;
                continue;
            }
            // One address refuses; the others count.
            Err(_) => continue,
        };
        let reply = buf.get(..n).unwrap_or_default();
        let ours = reply.starts_with(&xid.to_be_bytes()) && reply.get(4..8) == Some(&[0, 0, 0, 1]);
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !ours || heard.len() >= MAX_PEERS || !heard.insert(peer) {
            continue;
        }
        if each(peer, decode_reply(xid, reply, &AuthNone, token)).is_break() {
            return Ok(heard.len());
        }
    }
}

/// One socket for both families if need be.
fn open(to: &[SocketAddr]) -> io::Result<UdpSocket> {
    let wide = to.iter().any(SocketAddr::is_ipv6);
    let domain = if wide { Domain::IPV6 } else { Domain::IPV4 };
    let s = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if wide {
        s.set_only_v6(false)?;
    }
    s.set_broadcast(true)?;
    s.set_nonblocking(true)?;
    Ok(s.into())
}

fn transmit(socket: &UdpSocket, to: &[SocketAddr], wide: bool, call: &[u8]) -> io::Result<()> {
    let mut last = Err(io::Error::new(ErrorKind::InvalidInput, "no address to send to"));
    let mut any = false;
    for addr in to {
        let addr = match addr.ip() {
            IpAddr::V4(ip) if wide => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
            _ => *addr,
        };
        match socket.send_to(call, addr) {
            Ok(_) => any = true,
            Err(e) => last = Err(e),
        }
    }
    if any { Ok(()) } else { last }
}

//! Calls over UDP: one datagram each way, sent again until answered.

use super::link::Link;
use super::{ClntConfig, reserved};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use sunrpc::clnt::{CallTable, XprtError, random_xid};

/// Most bytes of a UDP payload over IPv4.
pub(super) const MAX_DATAGRAM: usize = 65_507;
/// Datagrams received in one turn, so that a flood cannot keep calls from timing out.
const RECEIVES: usize = 64;

/// Datagrams sent in one turn, so that a client with a long queue does not keep others of its thread waiting.
const SENDS: usize = 256;

pub(super) struct DatagramLink {
    socket: Socket,
    table: CallTable,
    buf: Vec<u8>,
    /// Something came from the server.
    heard: bool,
    /// The network says that nobody listens; until the next message from the server.
    down: Option<io::Error>,
    blocked: bool,
}

impl DatagramLink {
    /// A socket connected to the first address that the system has a route to: only that peer's datagrams arrive.
    pub(super) fn new(addrs: &[SocketAddr], config: &ClntConfig) -> io::Result<Self> {
        let mut last = ErrorKind::AddrNotAvailable.into();
        for addr in addrs {
            match open(*addr, config.reserved_port) {
                Ok(socket) => {
                    return Ok(DatagramLink {
                        socket,
                        table: CallTable::new(config.max_calls, random_xid(), Some(config.retransmit)),
                        buf: Vec::new(),
                        heard: false,
                        down: None,
                        blocked: false,
                    });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Takes an error of the socket. Before the server was ever heard, "nobody listens" is taken at its word; later
    /// it may be a restart, which retransmission outlives.
    fn failed(&mut self, e: io::Error) {
        if e.kind() == ErrorKind::ConnectionRefused && !self.heard {
            self.table.fail_sent(|| XprtError::Refused);
        }
        self.down = Some(e);
    }

    fn receive(&mut self, drain: bool) -> bool {
        self.buf.resize(1 << 16, 0);
        for _ in 0..RECEIVES {
            match (&self.socket).read(&mut self.buf) {
                Ok(n) => {
                    let message = self.buf.get(..n).unwrap_or_default().to_vec();
                    if self.table.on_message(message) {
                        self.heard = true;
                        self.down = None;
                    }
                    if !drain && self.table.waiting() == 0 {
                        return false;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.failed(e),
            }
        }
        true
    }

    /// Sends what is queued until the socket takes no more. True if it was stopped before.
    fn transmit(&mut self, now: Duration) -> bool {
        self.blocked = false;
        for _ in 0..SENDS {
            let Some((_, message)) = self.table.first() else { return false };
            let len = message.len();
            match self.socket.send(message) {
                Ok(_) => self.table.on_sent(true, now),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return false;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => {
                    self.table.on_refused(XprtError::TooLarge { len, max: MAX_DATAGRAM });
                }
                // Counts as sent and lost: the next retransmission tries again. A refusal that is reported here
                // belongs to an earlier datagram.
                Err(e) => {
                    self.table.on_sent(true, now);
                    self.failed(e);
                }
            }
        }
        self.table.wants_write()
    }
}

fn open(addr: SocketAddr, reserved_port: bool) -> io::Result<Socket> {
    let s = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    s.set_nonblocking(true)?;
    if reserved_port {
        reserved::bind(&s, addr.is_ipv6())?;
    }
    s.connect(&addr.into())?;
    Ok(s)
}

impl Link for DatagramLink {
    fn table(&mut self) -> &mut CallTable {
        &mut self.table
    }

    fn table_ref(&self) -> &CallTable {
        &self.table
    }

    fn is_up(&self) -> bool {
        true
    }

    fn turn(&mut self, now: Duration, drain: bool) -> bool {
        let more = self.receive(drain);
        self.table.expire(now, self.down.as_ref());
        self.transmit(now) || more
    }

    fn socket(&self) -> Option<(u64, BorrowedFd<'_>)> {
        Some((0, self.socket.as_fd()))
    }

    fn interest(&self) -> (bool, bool) {
        (true, self.blocked)
    }

    fn next_timer(&self) -> Option<Duration> {
        self.table.next_timer()
    }

    fn max_call(&self) -> usize {
        MAX_DATAGRAM
    }

    fn down(&self) -> Option<&io::Error> {
        self.down.as_ref()
    }
}

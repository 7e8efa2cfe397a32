//! Calls over a stream (TCP, AF_UNIX): record marking, connecting and reconnecting.

use super::link::Link;
use super::{ClntConfig, reserved};
use smallvec::SmallVec;
use socket2::{SockAddr, Socket, Type};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use sunrpc::clnt::{CallId, CallTable, MAX_MESSAGE, random_xid};
use sunrpc::page::PagePool;
use sunrpc::record::{LAST_FRAGMENT, Next, RecordError, RecordLimits, RecordReader};

/// Reads in one turn, so that a flood cannot keep calls from timing out.
const READS: usize = 16;
/// Bytes of one read.
const READ: usize = 1 << 16;
/// Calls in one write.
const GATHER: usize = 64;
/// Bytes and gathered writes of one turn, so that a client with a long queue does not keep others of its thread waiting.
const WRITTEN: usize = 1 << 20;
const WRITES: usize = 16;
/// Wait before the second attempt to reconnect without a reply in between; it doubles up to [`PAUSE_MOST`].
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(5);

enum State {
    /// No socket; a call that is to be sent opens one, not before this time.
    Down(Duration),
    /// To the address of this number; until this time.
    Connecting(Socket, usize, Duration),
    Up(Socket),
}

pub(super) struct StreamLink {
    addrs: Vec<SockAddr>,
    connect_timeout: Duration,
    reserved_port: bool,
    state: State,
    /// Sockets opened so far.
    sockets: u64,
    pause: Duration,
    down: Option<io::Error>,
    table: CallTable,
    /// What is left of a message that was sent in part.
    tail: Vec<u8>,
    tail_at: usize,
    tail_of: Option<CallId>,
    limits: RecordLimits,
    reader: RecordReader,
    pool: PagePool,
    buf: Vec<u8>,
}

impl StreamLink {
    /// A link that connects when it is asked to, or when there is something to send.
    pub(super) fn new(addrs: Vec<SockAddr>, config: &ClntConfig) -> Self {
        let limits = RecordLimits { max_record: config.max_reply, ..RecordLimits::default() };
        StreamLink {
            addrs,
            connect_timeout: config.connect_timeout,
            reserved_port: config.reserved_port,
            state: State::Down(Duration::ZERO),
            sockets: 0,
            pause: Duration::ZERO,
            down: None,
            table: CallTable::new(config.max_calls, random_xid(), None),
            tail: Vec::new(),
            tail_at: 0,
            tail_of: None,
            limits,
            reader: RecordReader::new(limits),
            pool: PagePool::standalone(),
            buf: Vec::new(),
        }
    }

    fn try_from(&mut self, first: usize, now: Duration) {
        for (i, addr) in self.addrs.iter().enumerate().skip(first) {
            self.sockets += 1;
            match open(addr, self.reserved_port) {
                Ok((socket, true)) => {
                    self.state = State::Up(socket);
                    self.down = None;
                    return;
                }
                Ok((socket, false)) => {
                    self.state = State::Connecting(socket, i, now.saturating_add(self.connect_timeout));
                    return;
                }
                Err(e) => self.down = Some(e),
            }
        }
        self.pause(now);
    }

    fn pause(&mut self, now: Duration) {
        self.state = State::Down(now.saturating_add(self.pause));
        self.pause = self.pause.saturating_mul(2).clamp(PAUSE, PAUSE_MOST);
    }

    fn advance(&mut self, now: Duration) {
        match &self.state {
            State::Down(until) if *until <= now && self.table.wants_write() => self.connect(now),
            State::Connecting(socket, at, until) => {
                let at = *at;
                let result = match socket.take_error() {
                    Ok(None) => socket.peer_addr().map(|_| ()),
                    Ok(Some(e)) | Err(e) => Err(e),
                };
                match result {
                    Ok(()) => {
                        if let State::Connecting(s, ..) =
                            std::mem::replace(&mut self.state, State::Down(Duration::ZERO))
                        {
                            self.state = State::Up(s);
                            self.down = None;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::NotConnected && now < *until => {}
                    Err(e) => {
                        let late = e.kind() == ErrorKind::NotConnected;
                        self.down = Some(if late { ErrorKind::TimedOut.into() } else { e });
                        self.try_from(at + 1, now);
                    }
                }
            }
            _ => {}
        }
    }

    /// The connection is gone.
    fn lost(&mut self, err: io::Error, now: Duration) {
        self.close(now);
        self.table.on_disconnect(&err);
        self.down = Some(err);
    }

    /// The peer breaks record marking; a stream cannot be resynchronised.
    fn bad(&mut self, err: RecordError, now: Duration) {
        self.close(now);
        self.table.on_bad_stream(err);
        self.down = Some(io::Error::new(ErrorKind::InvalidData, err));
    }

    fn close(&mut self, now: Duration) {
        self.pause(now);
        self.tail = Vec::new();
        self.tail_at = 0;
        self.tail_of = None;
        self.reader.recycle(&mut self.pool);
        self.reader = RecordReader::new(self.limits);
    }

    /// Reads what has arrived. True if there may be more.
    fn receive(&mut self, now: Duration, drain: bool) -> bool {
        self.buf.resize(READ, 0);
        for _ in 0..READS {
            let State::Up(socket) = &self.state else { return false };
            let mut socket = socket;
            match socket.read(&mut self.buf) {
                Ok(0) => {
                    self.lost(ErrorKind::UnexpectedEof.into(), now);
                    return false;
                }
                Ok(n) => {
                    if let Err(e) = self.records(n) {
                        self.bad(e, now);
                        return false;
                    }
                    if !drain && n < READ {
                        return false;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.lost(e, now);
                    return false;
                }
            }
        }
        true
    }

    /// Takes the records out of the first `n` bytes of the buffer. Copies each reply into memory of its own, which
    /// its caller keeps.
    fn records(&mut self, n: usize) -> Result<(), RecordError> {
        let mut input = self.buf.get(..n).unwrap_or_default();
        loop {
            let message = match self.reader.next(&mut input, &mut self.pool)? {
                Next::Whole(record) => record.to_vec(),
                Next::Collected => {
                    let record = self.reader.collected();
                    let len = record.spans.iter().map(|s| s.len()).sum::<usize>() + record.head.len();
                    let mut message = Vec::with_capacity(len);
                    message.extend_from_slice(record.head);
                    record.spans.iter().for_each(|s| message.extend_from_slice(s.as_slice()));
                    self.reader.recycle(&mut self.pool);
                    message
                }
                Next::More => return Ok(()),
            };
            if self.table.on_message(message) {
                self.pause = Duration::ZERO;
            }
        }
    }

    /// Writes what is queued, many calls at a time, until the socket takes no more. True if it was stopped before.
    fn transmit(&mut self, now: Duration) -> bool {
        let (mut writes, mut written) = (0, 0);
        while self.has_output() {
            let State::Up(socket) = &self.state else { return false };
            if writes >= WRITES || written >= WRITTEN {
                return true;
            }
            let tail = self.tail.get(self.tail_at..).unwrap_or_default();
            let mut marks: SmallVec<[[u8; 4]; GATHER]> = SmallVec::new();
            marks.extend(self.table.queued().take(GATHER).map(|(_, m)| mark(m.len())));
            let mut iov: SmallVec<[IoSlice<'_>; 2 * GATHER + 1]> = SmallVec::new();
            if !tail.is_empty() {
                iov.push(IoSlice::new(tail));
            }
            for (mark, (_, message)) in marks.iter().zip(self.table.queued()) {
                iov.extend([IoSlice::new(mark), IoSlice::new(message)]);
            }
            match socket.send_vectored_with_flags(&iov, libc::MSG_NOSIGNAL) {
                Ok(n) => {
                    drop(iov);
                    self.sent(n, now);
                    writes += 1;
                    written += n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    drop(iov);
                    self.lost(e, now);
                    return false;
                }
            }
        }
        false
    }

    fn sent(&mut self, mut n: usize, now: Duration) {
        let of_tail = n.min(self.tail.len() - self.tail_at);
        n -= of_tail;
        self.tail_at += of_tail;
        if self.tail_at == self.tail.len() {
            self.tail.clear();
            self.tail_at = 0;
            if let Some(id) = self.tail_of.take() {
                self.table.on_rest_sent(id);
            }
        }
        while n > 0 {
            let Some((id, message)) = self.table.first() else { return };
            let whole = 4 + message.len();
            if n < whole {
                // The rest must go out even if the call is given up meanwhile: copied, for it happens once in a
                // full socket buffer.
                let mark = mark(message.len());
                self.tail.extend(mark.iter().chain(message).skip(n));
                self.tail_of = Some(id);
            }
            self.table.on_sent(n >= whole, now);
            n = n.saturating_sub(whole);
        }
    }

    fn has_output(&self) -> bool {
        !self.tail.is_empty() || self.table.wants_write()
    }
}

/// The mark of a record of one fragment. No call exceeds [`MAX_MESSAGE`].
fn mark(len: usize) -> [u8; 4] {
    (len as u32 | LAST_FRAGMENT).to_be_bytes()
}

/// Opens a socket and starts to connect it; true if it is connected.
fn open(addr: &SockAddr, reserved_port: bool) -> io::Result<(Socket, bool)> {
    let s = Socket::new(addr.domain(), Type::STREAM, None)?;
    s.set_nonblocking(true)?;
    if !addr.is_unix() {
        s.set_tcp_nodelay(true)?;
        if reserved_port {
            reserved::bind(&s, addr.is_ipv6())?;
        }
    }
    match s.connect(addr) {
        Ok(()) => Ok((s, true)),
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok((s, false)),
        Err(e) => Err(e),
    }
}

impl Link for StreamLink {
    fn table(&mut self) -> &mut CallTable {
        &mut self.table
    }

    fn table_ref(&self) -> &CallTable {
        &self.table
    }

    /// To the first address; to the next ones if that fails.
    fn connect(&mut self, now: Duration) {
        self.try_from(0, now);
    }

    fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    fn turn(&mut self, now: Duration, drain: bool) -> bool {
        self.advance(now);
        // Reading comes first: that the server closed an idle connection shows before a call is written to it.
        let more = self.receive(now, drain);
        self.table.expire(now, self.down.as_ref());
        let more = self.transmit(now) || more;
        // A lost connection is replaced at once, the first time.
        more || matches!(self.state, State::Down(until) if until <= now) && self.table.wants_write()
    }

    fn socket(&self) -> Option<(u64, BorrowedFd<'_>)> {
        match &self.state {
            State::Connecting(s, ..) | State::Up(s) => Some((self.sockets, s.as_fd())),
            State::Down(_) => None,
        }
    }

    fn interest(&self) -> (bool, bool) {
        match &self.state {
            State::Connecting(..) => (false, true),
            State::Up(_) => (true, self.has_output()),
            State::Down(_) => (false, false),
        }
    }

    fn next_timer(&self) -> Option<Duration> {
        let own = match &self.state {
            State::Down(until) if self.table.wants_write() => Some(*until),
            State::Connecting(_, _, until) => Some(*until),
            _ => None,
        };
        [own, self.table.next_timer()].into_iter().flatten().min()
    }

    fn max_call(&self) -> usize {
        MAX_MESSAGE
    }

    fn down(&self) -> Option<&io::Error> {
        match self.state {
            State::Down(_) => self.down.as_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn up(addrs: &[&TcpListener], closed: usize) -> StreamLink {
        let gone = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let all = (0..closed).map(|_| gone()).chain(addrs.iter().map(|l| l.local_addr().unwrap()));
        let mut link = StreamLink::new(all.map(SockAddr::from).collect(), &ClntConfig::default());
        link.connect(Duration::ZERO);
        while !link.is_up() && link.down().is_none() {
            let (r, w) = link.interest();
            sunrpc_sys::poll::wait(link.socket().map(|s| s.1), r, w, None).unwrap();
            link.turn(Duration::ZERO, false);
        }
        link
    }

    #[test]
    fn the_next_address_is_tried_when_one_refuses() {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = up(&[&l], 2);
        assert!(link.is_up() && link.down.is_none());
        assert_eq!(link.sockets, 3);
        let link = up(&[], 2);
        assert_eq!(link.down().map(io::Error::kind), Some(ErrorKind::ConnectionRefused));
    }

    /// Calls of so many bytes each, to a peer that reads whatever comes: how many go out in each turn.
    fn sent_by_turn(calls: usize, bytes: usize) -> Vec<usize> {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ClntConfig { max_calls: calls, ..ClntConfig::default() };
        let mut link = StreamLink::new(vec![l.local_addr().unwrap().into()], &config);
        link.connect(Duration::ZERO);
        let mut peer = l.accept().unwrap().0;
        let reading = std::thread::spawn(move || io::copy(&mut peer, &mut io::sink()).unwrap());
        for _ in 0..calls {
            let xid = link.table.reserve_xid();
            link.table.start(xid, vec![0; bytes], Default::default(), Duration::ZERO).unwrap();
        }
        let mut turns = Vec::new();
        while link.has_output() {
            let before = link.table.queued().count();
            if !link.turn(Duration::ZERO, false) && link.has_output() {
                sunrpc_sys::poll::wait(link.socket().map(|s| s.1), false, true, None).unwrap();
            }
            turns.push(before - link.table.queued().count());
        }
        drop(link);
        assert_eq!(reading.join().unwrap(), (calls * (bytes + 4)) as u64);
        turns
    }

    #[test]
    fn one_turn_sends_a_bounded_part_of_a_long_queue() {
        let turns = sent_by_turn(10_000, 40);
        assert_eq!(turns.iter().sum::<usize>(), 10_000);
        assert!(turns.iter().all(|n| *n <= WRITES * GATHER + 1), "{turns:?}");
        // One write may exceed the bound on bytes, by what the socket's buffer takes.
        let turns = sent_by_turn(200, 1 << 20);
        assert_eq!(turns.iter().sum::<usize>(), 200);
        assert!(turns.iter().all(|n| *n <= GATHER + 1), "{turns:?}");
    }

    #[test]
    fn an_address_that_does_not_answer_costs_its_time_out() {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let addrs = vec![l.local_addr().unwrap().into(); 2];
        let mut link = StreamLink::new(addrs, &ClntConfig::default());
        // A socket that was never connected stands for one whose connection is still under way.
        let idle = Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap();
        link.state = State::Connecting(idle, 0, Duration::from_secs(10));
        link.turn(Duration::from_secs(9), false);
        assert!(matches!(link.state, State::Connecting(_, 0, _)));
        link.turn(Duration::from_secs(10), false);
        assert!(matches!(link.state, State::Connecting(_, 1, _) | State::Up(_)));
    }
}

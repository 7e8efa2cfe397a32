//! The load itself: one thread, one poll, many connections, each with `depth` calls under way.

use crate::LoadArgs;
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::hist::Histogram;
use crate::ops::{Choice, Op, Plan, PlanOptions};
use crate::out::{Out, Payload};
use crate::process::{self, Sample};
use crate::records::Records;
use crate::report::{BULK, Row};
use crate::setup::Rpc;
use crate::xdr::{self, Caller, Dec, ECHO, Outcome, put_u32, put_u64};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use socket2::Socket;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime};

/// Read at once; small enough to stay in the processor's cache.
const RX_BYTES: usize = 128 << 10;
/// Dropped at once.
const DROP_BYTES: usize = 1 << 20;
/// Reply to an echo up to its data: RPC header with an empty verifier, and a length.
const ECHO_HEAD: usize = 28;
/// Calls left unanswered for so long are lost.
const SILENCE: Duration = Duration::from_secs(10);
/// The same where a COMMIT may have a whole file to write.
const LONG_SILENCE: Duration = Duration::from_secs(300);
/// After a run: the server's work behind the last reply, and the kernel's, come to rest.
const SETTLE: Duration = Duration::from_millis(300);
/// Nobody answers more calls than this without using processor time.
const IDLE_OPS: u64 = 1000;
/// How long the poll sleeps at most, so that the run ends in time.
const NAP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Slot {
    xid: u32,
    busy: bool,
    /// Next is the second call: REMOVE or COMMIT.
    second: bool,
    /// The call under way is a WRITE.
    put: bool,
    choice: Choice,
    /// None until it goes out, where it is the only call.
    sent_at: Option<u64>,
    writes: u64,
    cookie: u64,
    verf: [u8; 8],
}

/// What a completed call touches, apart from the stream it came from.
struct Lane {
    out: Out,
    slots: Vec<Slot>,
    /// Next offset of sequential operations.
    next: u64,
    /// Next offset of the mix's WRITEs.
    next_write: u64,
    /// Calls made, without COMMITs.
    calls: u64,
    in_flight: usize,
    /// The last COMMIT has been sent.
    closed: bool,
}

struct Conn {
    socket: Socket,
    records: Records,
    lane: Lane,
}

#[derive(Default, Clone)]
struct Counts {
    ops: u64,
    bytes: u64,
    entries: u64,
    full_entries: u64,
    errors: u64,
    short: u64,
}

struct Load {
    plan: Plan,
    commit_every: u64,
    span: u64,
    slot_bits: u32,
    seq: u32,
    issued: u64,
    random: u64,
    /// Nanoseconds since the start, read once for each batch of replies.
    now: u64,
    /// Calls still to be made, without COMMITs.
    left: u64,
    stopping: bool,
    hist: Histogram,
    counts: Counts,
    answered: u64,
    last_error: String,
}

impl Load {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Queues the next call of slot `i`.
    fn issue(&mut self, lane: &mut Lane, i: usize) -> Result<()> {
        let random = if self.plan.op.lacks_status() { 0 } else { self.random() };
        let only = lane.slots.len() == 1;
        let Some(slot) = lane.slots.get_mut(i) else { return Ok(()) };
        let choice = slot.choice;
        let op = self.plan.op;
        slot.put = !slot.second && op.writes(lane.calls);
        if !slot.second {
            lane.calls += 1;
            self.left = self.left.saturating_sub(1);
            self.stopping |= self.left == 0;
        }
        let t = match (slot.second, choice.count) {
            (true, _) => choice.second,
            (false, 1) if op == Op::Mix1m => choice.first + usize::from(slot.put),
            (false, 1) => choice.first,
            (false, n) => choice.first + (random % n as u64) as usize,
        };
        let Some(template) = self.plan.templates.get(t) else { return Ok(()) };
        // Reply caches answer a repeated xid, so none is used twice, on any connection of the run.
        self.issued += 1;
        if self.issued >> (32 - self.slot_bits) != 0 {
            return Err(BenchError::Usage("all xids are used up: choose a shorter --secs".into()));
        }
        self.seq = self.seq.wrapping_add(1);
        slot.xid = self.seq << self.slot_bits | i as u32;
        let at = lane.out.buf.len();
        lane.out.buf.extend_from_slice(&template.bytes);
        put_u32(&mut lane.out.buf, at + 4, slot.xid);
        if template.patch != 0 {
            let size = u64::from(self.plan.bytes);
            let (split, end) = (self.plan.split(), self.plan.file_size);
            let value = match op {
                Op::Read => random % (self.plan.file_size / size) * size,
                Op::Read1m => step(&mut lane.next, size, 0, end),
                Op::Mix1m if slot.put => step(&mut lane.next_write, size, split, end),
                Op::Mix1m => step(&mut lane.next, size, 0, split),
                Op::Readdirplus => {
                    put_u64(&mut lane.out.buf, at + template.patch + 8, u64::from_be_bytes(slot.verf));
                    slot.cookie
                }
                _ => step(&mut lane.next, size, 0, self.span),
            };
            put_u64(&mut lane.out.buf, at + template.patch, value);
        }
        lane.out.commit();
        if template.payload > 0 {
            lane.out.payload(0, template.payload as usize);
        }
        slot.busy = true;
        slot.sent_at = (!only).then_some(self.now);
        lane.in_flight += 1;
        Ok(())
    }

    /// Takes a reply: `record` holds all of it or its first bytes.
    fn complete(&mut self, lane: &mut Lane, record: &[u8], len: usize) -> Result<()> {
        let mut d = Dec::new(record);
        let (xid, outcome) = xdr::reply(&mut d)?;
        let i = (xid & ((1 << self.slot_bits) - 1)) as usize;
        let Some(slot) = lane.slots.get_mut(i).filter(|s| s.busy && s.xid == xid) else {
            return Err(BenchError::Reply(format!("xid {xid:#x} ({len} bytes) is not of a call under way")));
        };
        let op = self.plan.op;
        slot.busy = false;
        lane.in_flight -= 1;
        self.answered += 1;
        let commit = slot.second && op.commits();
        if !commit {
            self.hist.add(self.now.saturating_sub(slot.sent_at.unwrap_or(self.now)));
            self.counts.ops += 1;
        }
        let status = match outcome {
            Outcome::Success if op.lacks_status() => 0,
            Outcome::Success => d.u32()?,
            _ => u32::MAX,
        };
        if status != 0 {
            self.counts.errors += 1;
            self.last_error =
                if outcome == Outcome::Success { format!("status {status}") } else { format!("{outcome:?}") };
        } else if op == Op::Echo {
            let whole = d.u32()? == self.plan.bytes && len == ECHO_HEAD + self.plan.bytes as usize;
            if !whole {
                return Err(BenchError::Reply(format!("echo in a record of {len} bytes")));
            }
            self.counts.bytes += u64::from(self.plan.bytes);
        } else if op.is_read() || (op == Op::Mix1m && !slot.put && !commit) {
            d.post_op_attr()?;
            let count = d.u32()?;
            self.counts.short += u64::from(count < self.plan.bytes);
            self.counts.bytes += u64::from(count);
        } else if op == Op::Readdirplus {
            let counts = &mut self.counts;
            let mut cookie = 0;
            let (verf, eof) = xdr::entries(&mut d, |e| {
                cookie = e.cookie;
                counts.entries += 1;
                // Servers may leave out what "." and ".." are.
                let full = (e.attrs && e.handle.is_some()) || matches!(e.name, b"." | b"..");
                counts.full_entries += u64::from(full);
            })?;
            if !eof && cookie == 0 {
                return Err(BenchError::Reply("READDIRPLUS without entries before the end".into()));
            }
            (slot.cookie, slot.verf) = if eof { (0, [0; 8]) } else { (cookie, verf) };
        } else if slot.put {
            // wcc_data, then how much was written.
            if d.u32()? != 0 {
                d.bytes(24)?;
            }
            d.post_op_attr()?;
            let count = d.u32()?;
            self.counts.short += u64::from(count < self.plan.bytes);
            self.counts.bytes += u64::from(count);
        }

        if op == Op::Create {
            slot.second = !slot.second;
        } else if op.commits() {
            slot.writes += u64::from(slot.put);
            slot.second = slot.put && self.commit_every > 0 && slot.writes % self.commit_every == 0;
        }
        if !self.stopping || (op == Op::Create && slot.second) {
            self.issue(lane, i)?;
        } else if op.commits() && lane.in_flight == 0 && !lane.closed {
            lane.closed = true;
            slot.second = true;
            self.issue(lane, i)?;
        }
        Ok(())
    }
}

/// The next of the offsets from `from` up to `to`, over and over.
fn step(next: &mut u64, size: u64, from: u64, to: u64) -> u64 {
    let offset = *next;
    *next = if offset + 2 * size > to { from } else { offset + size };
    offset
}

/// Buffers and clock that all connections share.
struct Io {
    rx: Vec<u8>,
    dropped: Vec<MaybeUninit<u8>>,
    payload: Option<Payload>,
    start: Instant,
    bulk: bool,
}

impl Io {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Reads until the socket is drained (the poll is edge-triggered), and sends what that gave rise to.
    fn input(&mut self, load: &mut Load, conn: &mut Conn) -> Result<()> {
        let Conn { socket, records, lane } = conn;
        loop {
            let drop = if self.bulk { records.discardable().min(DROP_BYTES) } else { 0 };
            let (want, got) = if drop > 0 {
                let buf = self.dropped.get_mut(..drop).unwrap_or_default();
                // TCP only counts the bytes then; nothing is copied.
                (drop, socket.recv_with_flags(buf, libc::MSG_TRUNC))
            } else {
                let want = if self.bulk { records.head_wanted() } else { RX_BYTES };
                (want, (&*socket).read(self.rx.get_mut(..want).unwrap_or_default()))
            };
            let n = match got {
                Ok(0) => return Err(BenchError::Reply("the server closed the connection".into())),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e).context("receiving"),
            };
            load.now = self.now();
            if drop > 0 {
                records.discarded(n, |record, len| load.complete(lane, record, len))?;
            } else {
                let data = self.rx.get(..n).unwrap_or_default();
                records.feed(data, |record, len| load.complete(lane, record, len))?;
            }
            if n < want {
                break;
            }
        }
        self.output(conn)
    }

    fn output(&self, conn: &mut Conn) -> Result<()> {
        if conn.lane.out.is_empty() {
            return Ok(());
        }
        // With one call at a time, what the generator does before the call goes out is no part of its latency.
        if let [Slot { sent_at: at @ None, .. }] = &mut *conn.lane.slots {
            *at = Some(self.now());
        }
        conn.lane.out.flush(&conn.socket, self.payload.as_ref()).context("sending")
    }
}

/// Figures at a moment of the run.
struct Mark {
    at: u64,
    server: Option<Sample>,
    own_ns: u64,
    wait_ns: u64,
}

impl Mark {
    fn take(pid: Option<u32>, io: &Io) -> Result<Self> {
        Ok(Self {
            at: io.now(),
            server: pid.map(Sample::take).transpose()?,
            own_ns: process::own_cpu_ns(),
            wait_ns: process::own_wait_ns(),
        })
    }
}

/// Runs the load that `args` describe.
pub(crate) fn run(args: &LoadArgs) -> Result<Row> {
    process::raise_open_files()?;
    if let Some(cpu) = args.cpu {
        process::pin(cpu)?;
    }
    let bytes = args.bytes.unwrap_or_else(|| args.op.default_bytes());
    let caller = Caller { uid: args.uid, gid: args.gid };
    let (conns, depth) = (usize::from(args.conns), usize::from(args.depth));
    let rss = |pid: Option<u32>| pid.map(process::rss_kib).transpose();
    let rss_before = rss(args.pid)?;

    let nfs = (args.host, args.port).into();
    let root = if args.op.is_plain() {
        Vec::new()
    } else {
        Rpc::dial((args.host, args.mount_port.unwrap_or(args.port)).into(), caller)?.mount(&args.export)?
    };
    let mut rpc = Rpc::dial(nfs, caller)?;
    let options = PlanOptions {
        op: args.op,
        bytes,
        conns,
        depth,
        file: &args.file,
        dir: &args.dir,
        work_dir: &args.work_dir,
        into: args.into.as_deref(),
        targets: usize::from(args.targets),
        caller,
    };
    let plan = Plan::new(&mut rpc, &root, &options)?;
    let mut io = Io {
        rx: vec![0; RX_BYTES],
        dropped: vec![MaybeUninit::uninit(); DROP_BYTES],
        payload: payload(&plan)?,
        start: Instant::now(),
        bulk: args.op.brings_bytes() && bytes >= BULK,
    };
    let mut poll = Poll::new().context("creating the poll")?;
    let mut pool = Vec::with_capacity(conns);
    for i in 0..conns {
        let mut single = Rpc::dial(nfs, caller)?;
        if args.op.is_plain() {
            single.run("NULL", xdr::call(None, ECHO, 0), |_| Ok(()))?;
        } else {
            single.size(&root)?;
        }
        pool.push(connection(single.into_socket()?, &plan, i, conns, depth));
    }
    // One that polls alone asks its socket, and need not be told.
    let watched = if args.busy && pool.len() == 1 { 0 } else { pool.len() };
    for (i, conn) in pool.iter().enumerate().take(watched) {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut SourceFd(&conn.socket.as_raw_fd()), Token(i), interest)
            .context("watching a connection")?;
    }
    let rss_connected = rss(args.pid)?;

    let seed = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64) | 1;
    let size = u64::from(bytes.max(1));
    let mut load = Load {
        plan,
        commit_every: args.commit_every,
        span: (u64::from(args.span) << 20).max(size) / size * size,
        slot_bits: depth.next_power_of_two().trailing_zeros(),
        seq: (seed >> 10) as u32,
        issued: 0,
        random: seed,
        now: io.now(),
        left: args.total.map_or(u64::MAX, |mib| ((u64::from(mib) << 20) / size).max(1)),
        stopping: false,
        hist: Histogram::new(),
        counts: Counts::default(),
        answered: 0,
        last_error: String::new(),
    };
    let (first, last, counts) = drive(args, &mut poll, &mut io, &mut load, &mut pool)?;
    if let (Some(pid), Some(a), Some(b)) = (args.pid, &first.server, &last.server)
        && a.until(b).cpu_ns == 0
        && counts.ops > IDLE_OPS
    {
        return Err(BenchError::Usage(format!(
            "process {pid} used no processor time: --pid is not the server's"
        )));
    }
    let rss_after = rss(args.pid)?;
    if args.resident.is_some() {
        std::thread::sleep(SETTLE);
    }
    for name in &load.plan.litter {
        rpc.remove(&load.plan.work_dir, name)?;
    }

    let mut row = figures(args, bytes, &first, &last, &counts);
    row.quantiles(&load.hist);
    (row.errors, row.short) = (load.counts.errors, load.counts.short);
    row.rss_before_kib = rss_before.unwrap_or(0);
    row.rss_connected_kib = rss_connected.unwrap_or(0);
    row.rss_after_kib = rss_after.unwrap_or(0);
    row.rss_peak_kib = args.pid.map(process::rss_peak_kib).transpose()?.unwrap_or(0);
    if let Some(path) = &args.resident {
        row.resident_kib = cache::resident_kib(path)?;
    }
    if row.errors > 0 {
        return Err(BenchError::Void { count: row.errors, ops: load.answered, last: load.last_error });
    }
    Ok(row)
}

fn connection(socket: Socket, plan: &Plan, index: usize, conns: usize, depth: usize) -> Conn {
    let choices = plan.choices.iter().skip(index * depth).take(depth);
    let slots = choices.map(|choice| Slot {
        xid: 0,
        busy: false,
        second: false,
        put: false,
        choice: *choice,
        sent_at: None,
        writes: 0,
        cookie: 0,
        verf: [0; 8],
    });
    // Sequential readers start apart, so that they do not read the same pages at the same time.
    let blocks = plan.file_size / u64::from(plan.bytes.max(1));
    let next =
        if plan.op == Op::Read1m { blocks * index as u64 / conns as u64 * u64::from(plan.bytes) } else { 0 };
    let lane = Lane {
        out: Out::default(),
        slots: slots.collect(),
        next,
        next_write: plan.split(),
        calls: 0,
        in_flight: 0,
        closed: false,
    };
    Conn { socket, records: Records::new(plan.op == Op::Readdirplus), lane }
}

/// The file that large payloads are sent from: in memory, without a name.
fn payload(plan: &Plan) -> Result<Option<Payload>> {
    let size = plan.templates.iter().map(|t| t.payload).max().unwrap_or(0);
    if size == 0 {
        return Ok(None);
    }
    let fd = rustix::fs::memfd_create("nfsbench", rustix::fs::MemfdFlags::CLOEXEC).context("memfd")?;
    let mut file = File::from(fd);
    // Not compressible, for disks that might.
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut words = Vec::with_capacity(size as usize + 8);
    while words.len() < size as usize {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words.extend_from_slice(&x.to_le_bytes());
    }
    words.truncate(size as usize);
    file.write_all(&words).context("memfd")?;
    Ok(Some(Payload::File(file)))
}

/// Keeps the calls going: warm-up, the measured part, then until all are answered.
fn drive(
    args: &LoadArgs,
    poll: &mut Poll,
    io: &mut Io,
    load: &mut Load,
    pool: &mut [Conn],
) -> Result<(Mark, Mark, Counts)> {
    let nap = Some(if args.busy { Duration::ZERO } else { NAP });
    let mut events = Events::with_capacity(1024);
    let warm = (args.warmup * 1e9) as u64;
    let mut first: Option<Mark> = None;
    let mut last: Option<(Mark, Counts)> = None;
    if let (Some(dir), Some(mib)) = (&args.warm, args.total) {
        cache::warm(dir, mib + mib / 4)?;
    }
    let begin = io.now();
    let (mut answered, mut heard) = (0, begin);
    load.now = begin;
    let silence = if args.total.is_some() {
        // All of it counts, from the first call to the last reply.
        first = Some(Mark::take(args.pid, io)?);
        LONG_SILENCE
    } else {
        SILENCE
    };
    for conn in pool.iter_mut() {
        for i in 0..conn.lane.slots.len() {
            if load.stopping {
                break;
            }
            load.issue(&mut conn.lane, i)?;
        }
        io.output(conn)?;
    }
    loop {
        if let (true, [lone]) = (args.busy, &mut *pool) {
            // Asking the poll first would only add to its latency.
            io.input(load, lone)?;
        } else {
            match poll.poll(&mut events, nap) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                other => other.context("polling")?,
            }
            for event in &events {
                let Some(conn) = pool.get_mut(event.token().0) else { continue };
                if event.is_readable() {
                    io.input(load, conn)?;
                } else {
                    io.output(conn)?;
                }
            }
        }
        let now = io.now();
        if load.answered != answered {
            (answered, heard) = (load.answered, now);
        } else if now - heard > silence.as_nanos() as u64 {
            let open = pool.iter().map(|c| c.lane.in_flight).sum();
            return Err(BenchError::Silent(open, silence.as_secs()));
        }
        match (&first, &last) {
            (None, _) if now - begin >= warm => {
                load.hist.clear();
                load.counts =
                    Counts { errors: load.counts.errors, short: load.counts.short, ..Counts::default() };
                first = Some(Mark::take(args.pid, io)?);
            }
            (Some(f), None) if is_over(args, now - f.at, load, pool) => {
                load.stopping = true;
                last = Some((Mark::take(args.pid, io)?, load.counts.clone()));
            }
            _ => {}
        }
        if let Some((end, counts)) = last.take_if(|_| pool.iter().all(|c| c.lane.in_flight == 0))
            && let Some(first) = first.take()
        {
            return Ok((first, end, counts));
        }
    }
}

/// Whether all was measured, `ns` after the beginning.
fn is_over(args: &LoadArgs, ns: u64, load: &Load, pool: &[Conn]) -> bool {
    match args.total {
        Some(_) => load.stopping && pool.iter().all(|c| c.lane.in_flight == 0),
        None => ns >= (args.secs * 1e9) as u64,
    }
}

fn figures(args: &LoadArgs, bytes: u32, first: &Mark, last: &Mark, counts: &Counts) -> Row {
    let usage = match (&first.server, &last.server) {
        (Some(a), Some(b)) => a.until(b),
        _ => process::Usage::default(),
    };
    let op =
        clap::ValueEnum::to_possible_value(&args.op).map_or_else(String::new, |v| v.get_name().to_owned());
    let mut row = Row {
        row: args.row.clone().unwrap_or_else(|| op.clone()),
        server: args.label.clone(),
        op,
        conns: usize::from(args.conns),
        depth: usize::from(args.depth),
        bytes,
        entries: counts.entries,
        full_entries: counts.full_entries,
        wait: if args.busy { "busy" } else { "epoll" }.into(),
        ..Row::default()
    };
    let seconds = (last.at - first.at) as f64 / 1e9;
    let (own, waited) = (last.own_ns - first.own_ns, last.wait_ns.saturating_sub(first.wait_ns));
    row.fill(seconds, counts.ops, counts.bytes, &usage, own, waited);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_go_round_within_their_part() {
        let mut next = 6;
        let got: Vec<u64> = (0..5).map(|_| step(&mut next, 2, 6, 11)).collect();
        assert_eq!(got, [6, 8, 6, 8, 6]);
    }
}

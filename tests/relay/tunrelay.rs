//! `tunrelay`: a link between two network namespaces that delays and drops IP packets.
//!
//! A relay of TCP streams cannot delay acknowledgements: the kernel next to each end gives them at once. This one moves
//! packets, so a server sees the acknowledgement of what it sent as late as asked, and loses what is asked.

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The device of both ends.
const DEVICE: &str = "tun0";
/// Addresses of the ends.
const ADDRESSES: [&str; 2] = ["10.77.0.1/24", "10.77.0.2/24"];
/// Packets of one direction that may wait here; more wait in the device's own queue.
const WAITING_MAX: usize = 1 << 16;
/// Packets that the device's own queue holds: a burst is not to be lost unless asked for.
const DEVICE_QUEUE: &str = "10000";
/// Packets read of one end before the other has its turn.
const BATCH: usize = 64;
/// IP packets longer than this carry data; others are acknowledgements and the like.
const BARE: usize = 100;

/// Delays and drops packets between two network namespaces, over a TUN device in each
#[derive(Debug, Parser)]
#[command(name = "tunrelay", version)]
struct Args {
    /// Namespace of `ip netns` that gets 10.77.0.1
    ns_a: String,
    /// Namespace that gets 10.77.0.2
    ns_b: String,
    /// Milliseconds that a packet takes from A to B
    a_to_b_ms: u64,
    /// Milliseconds that a packet takes from B to A
    b_to_a_ms: u64,
    /// Bytes of the largest packet
    #[arg(default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    /// Drop every Nth packet with data from A to B; 0 drops none
    #[arg(default_value_t = 0)]
    drop_every: u64,
}

#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("cannot make {DEVICE} in the namespace {netns}: {source}; `ip netns add {netns}` first, as root")]
    Device { netns: String, source: io::Error },
    #[error("cannot run `{command}`: {source}")]
    Start { command: String, source: io::Error },
    #[error("`{command}` failed: {stderr}")]
    Refused { command: String, stderr: String },
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

/// Runs `ip -n NETNS ARGS`.
fn ip(netns: &str, args: &[&str]) -> Result<(), RelayError> {
    let command = format!("ip -n {netns} {}", args.join(" "));
    match Command::new("ip").args(["-n", netns]).args(args).output() {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => {
            let stderr = String::from_utf8_lossy(&o.stderr).trim().to_owned();
            Err(RelayError::Refused { command, stderr })
        }
        Err(source) => Err(RelayError::Start { command, source }),
    }
}

/// One end of the link.
fn end(netns: &str, address: &str, mtu: u32) -> Result<File, RelayError> {
    let tun = sunrpc_sys::tun::open(netns, DEVICE)
        .map_err(|source| RelayError::Device { netns: netns.to_owned(), source })?;
    ip(netns, &["addr", "add", address, "dev", DEVICE])?;
    let mtu = mtu.to_string();
    ip(netns, &["link", "set", DEVICE, "mtu", &mtu, "txqueuelen", DEVICE_QUEUE, "up"])?;
    Ok(tun.into())
}

/// Packets on their way in one direction, in order.
struct Fifo {
    delay: Duration,
    drop_every: u64,
    waiting: VecDeque<(Instant, Box<[u8]>)>,
    packets: u64,
    data: u64,
    dropped: u64,
    refused: u64,
}

impl Fifo {
    fn new(delay_ms: u64, drop_every: u64) -> Self {
        Fifo {
            delay: Duration::from_millis(delay_ms),
            drop_every,
            waiting: VecDeque::new(),
            packets: 0,
            data: 0,
            dropped: 0,
            refused: 0,
        }
    }

    fn full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    fn take(&mut self, packet: &[u8], now: Instant) {
        self.packets += 1;
        if packet.len() > BARE {
            self.data += 1;
            if self.drop_every > 0 && self.data.is_multiple_of(self.drop_every) {
                self.dropped += 1;
                return;
            }
        }
        self.waiting.push_back((now + self.delay, packet.into()));
    }

    /// When the next packet is to arrive.
    fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Takes what leaves by `from`, at most a batch.
    fn fill(&mut self, mut from: &File, buffer: &mut [u8]) -> Result<(), RelayError> {
        for _ in 0..BATCH {
            if self.full() {
                break;
            }
            match from.read(buffer) {
                Ok(n) => self.take(buffer.get(..n).unwrap_or_default(), Instant::now()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(RelayError::Io { what: "reading a packet", source }),
            }
        }
        Ok(())
    }

    /// Lets everything arrive by `to` whose time has come. A packet that the device does not take is lost, as it would
    /// be on any link.
    fn drain(&mut self, mut to: &File, now: Instant) {
        while self.due().is_some_and(|due| due <= now) {
            let Some((_, packet)) = self.waiting.pop_front() else { break };
            self.refused += u64::from(to.write(&packet).is_err());
        }
    }
}

/// Moves packets until `stop` can be read. `fifos[i]` takes from `ends[i]`.
fn relay(ends: &[File; 2], stop: &UnixStream, fifos: &mut [Fifo; 2]) -> Result<(), RelayError> {
    let [a, b] = ends;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let now = Instant::now();
        let [to_b, to_a] = &mut *fifos;
        to_b.drain(b, now);
        to_a.drain(a, now);
        let next = [to_b.due(), to_a.due()].into_iter().flatten().min();
        let wait = next.map(|due| due.saturating_duration_since(Instant::now()));
        let wait = wait.map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() });
        let wanted = |f: &Fifo| if f.full() { PollFlags::empty() } else { PollFlags::IN };
        let mut fds =
            [PollFd::new(a, wanted(to_b)), PollFd::new(b, wanted(to_a)), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, wait.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            r => r.map_err(|e| RelayError::Io { what: "waiting for packets", source: e.into() })?,
        };
        let [from_a, from_b, stopped] = fds.map(|f| !f.revents().is_empty());
        if stopped {
            return Ok(());
        }
        if from_a {
            to_b.fill(a, &mut buffer)?;
        }
        if from_b {
            to_a.fill(b, &mut buffer)?;
        }
    }
}

fn run(args: &Args) -> Result<(), RelayError> {
    let signals = |source| RelayError::Io { what: "preparing for signals", source };
    let (stop, writer) = UnixStream::pair().map_err(signals)?;
    for signal in [SIGTERM, SIGINT] {
        let writer = writer.try_clone().map_err(signals)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(signals)?;
    }
    let ends = [end(&args.ns_a, ADDRESSES[0], args.mtu)?, end(&args.ns_b, ADDRESSES[1], args.mtu)?];
    let mut fifos = [Fifo::new(args.a_to_b_ms, args.drop_every), Fifo::new(args.b_to_a_ms, 0)];
    println!("ready");
    io::stdout().flush().map_err(|source| RelayError::Io { what: "standard output", source })?;
    let done = relay(&ends, &stop, &mut fifos);
    for (name, f) in ["A->B", "B->A"].iter().zip(&fifos) {
        let left = f.waiting.len();
        println!(
            "{name}: {} packets, {} with data, {} dropped, {} refused, {left} under way",
            f.packets, f.data, f.dropped, f.refused
        );
    }
    done
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tunrelay: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn every_nth_packet_with_data_is_dropped_and_order_is_kept() {
        let mut f = Fifo::new(0, 3);
        let now = Instant::now();
        for i in 0..9u8 {
            f.take(&[i; 20], now);
            f.take(&[i; BARE + 1], now);
        }
        assert_eq!((f.packets, f.data, f.dropped), (18, 9, 3));
        let data: Vec<u8> = f.waiting.iter().filter(|(_, p)| p.len() > BARE).map(|(_, p)| p[0]).collect();
        assert_eq!(data, [0, 1, 3, 4, 6, 7]);
        assert_eq!(f.waiting.iter().filter(|(_, p)| p.len() == 20).count(), 9);
    }

    #[test]
    fn packets_arrive_when_their_time_has_come() {
        let (link, device) = UnixDatagram::pair().unwrap();
        link.set_nonblocking(true).unwrap();
        let device = File::from(OwnedFd::from(device));
        let mut f = Fifo::new(40, 0);
        let start = Instant::now();
        f.take(b"first", start);
        f.take(b"second", start + Duration::from_millis(5));
        let mut buffer = [0; 16];
        f.drain(&device, start + Duration::from_millis(39));
        assert_eq!(link.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        f.drain(&device, start + Duration::from_millis(40));
        assert_eq!(link.recv(&mut buffer).unwrap(), 5);
        assert_eq!(f.due(), Some(start + Duration::from_millis(45)));
        f.drain(&device, start + Duration::from_millis(45));
        assert_eq!(link.recv(&mut buffer).unwrap(), 6);
        assert_eq!(f.due(), None);
    }
}

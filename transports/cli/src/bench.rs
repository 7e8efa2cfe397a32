//! `sunrpc bench`.

use super::target::{Common, Error, How, client, locate, program, seconds};
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sunrpc::clnt::{ClntError, Pending};
use sunrpc::xdr::{Decode, Decoder, XdrError, XdrWrite};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where: `tcp://HOST[:PORT]`, `udp://HOST[:PORT]` or `local:PATH`.
    url: String,
    /// Program, by number or name.
    program: String,
    /// Version.
    version: u32,
    /// Procedure; 0 does nothing in any program.
    #[arg(short, long, default_value_t = 0)]
    proc: u32,
    /// The argument is an opaque of so many bytes, instead of nothing: what an echo procedure takes.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(..=1_048_576))]
    opaque: Option<u32>,
    /// Connections, each with a thread of its own.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// Calls under way on each connection.
    #[arg(short = 'q', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    depth: u32,
    /// Seconds.
    #[arg(short = 't', long, default_value_t = 5.0, value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    common: Common,
}

/// Results that nobody looks at.
struct Anything;

impl<'a> Decode<'a> for Anything {
    const MIN_SIZE: usize = 0;

    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        d.bytes(d.remaining()).map(|_| Anything)
    }
}

/// Counts latencies in ns up to a minute.
fn histogram() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|e| Error::Failed(e.to_string()))
}

pub(crate) fn run(a: &Args) -> Result<(), Error> {
    let prog = program(&a.program)?;
    let how = How::new(60.0, a.common);
    let url = locate(&a.url, prog, a.version, how)?;
    // Who waits for the server does so before the clock starts.
    drop(how.connect(&url)?);
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let all: Vec<Result<Histogram<u64>, Error>> = std::thread::scope(|s| {
        let threads: Vec<_> =
            (0..a.connections).map(|_| s.spawn(|| connection(a, &url, prog, how, &stop))).collect();
        while start.elapsed().as_secs_f64() < a.time && threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let crashed = || Err(Error::Failed("a thread of the bench ended by a fault of its own".into()));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| crashed())).collect()
    });
    let took = start.elapsed().as_secs_f64();
    let mut sum = histogram()?;
    for h in all {
        sum.add(h?).map_err(|e| Error::Failed(e.to_string()))?;
    }
    let us = |q| sum.value_at_quantile(q) as f64 / 1e3;
    println!("{url} program {prog} version {} procedure {}", a.version, a.proc);
    println!(
        "{} calls in {took:.2} s, {} connections with {} calls under way: {:.0} calls/s",
        sum.len(),
        a.connections,
        a.depth,
        sum.len() as f64 / took
    );
    println!(
        "latency us: p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1}",
        us(0.5),
        us(0.9),
        us(0.99),
        us(0.999),
        sum.max() as f64 / 1e3
    );
    Ok(())
}

/// Keeps one connection busy until told to stop.
fn connection(a: &Args, url: &str, prog: u32, how: How, stop: &AtomicBool) -> Result<Histogram<u64>, Error> {
    let mut c = client(url, prog, a.version, how)?;
    let mut h = histogram()?;
    let payload = a.opaque.map(|n| vec![0x5a; n as usize]);
    let failed = |err: ClntError| Error::Call { what: format!("procedure {} at {url}", a.proc), err };
    let repeat = sunrpc::clnt::Repeat::Unknown;
    let mut under_way: VecDeque<(Instant, Pending<Anything>)> = VecDeque::new();
    loop {
        while !stop.load(Ordering::Relaxed) && under_way.len() < a.depth as usize {
            let call = c.start_with(a.proc, repeat, |w| match &payload {
                Some(p) => w.put_opaque(p, u32::MAX),
                None => Ok(()),
            });
            under_way.push_back((Instant::now(), call.map_err(failed)?));
        }
        let Some((since, call)) = under_way.pop_front() else { return Ok(h) };
        c.finish(call).map_err(failed)?;
        h.saturating_record(since.elapsed().as_nanos() as u64);
    }
}

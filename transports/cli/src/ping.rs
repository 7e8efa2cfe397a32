//! `sunrpc ping`.

use super::target::{Common, Error, How, client, locate, name, program, seconds, versions};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where: `tcp://HOST[:PORT]`, `udp://HOST[:PORT]` or `local:PATH`. Without a port the host's rpcbind is asked.
    url: String,
    /// Program, by number or name.
    program: String,
    /// Version; the highest that the server offers if left out.
    version: Option<u32>,
    /// Stop after so many calls; 0 = never.
    #[arg(short, long, default_value_t = 4)]
    count: u64,
    /// Seconds between calls.
    #[arg(short, long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Seconds to wait for a reply.
    #[arg(short, long, default_value_t = 10.0, value_parser = seconds)]
    timeout: f64,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(a: &Args) -> Result<(), Error> {
    let prog = program(&a.program)?;
    let how = How::new(a.timeout, a.common);
    let url = locate(&a.url, prog, a.version.unwrap_or(0), how)?;
    let vers = match a.version {
        Some(v) => v,
        None => versions(&url, prog, how)?.1,
    };
    let mut c = client(&url, prog, vers, how)?;
    let what = format!("{url} program {prog} ({}) version {vers}", name(prog));
    let (mut sent, mut lost) = (0u64, 0u64);
    let (mut least, mut most, mut sum) = (Duration::MAX, Duration::ZERO, Duration::ZERO);
    loop {
        let start = Instant::now();
        let r = c.call::<_, ()>(0, &());
        let took = start.elapsed();
        sent += 1;
        match r {
            Ok(()) => {
                println!("{what}: {:.3} ms", took.as_secs_f64() * 1e3);
                (least, most, sum) = (least.min(took), most.max(took), sum + took);
            }
            Err(err) => {
                println!("{what}: {err}");
                lost += 1;
            }
        }
        if sent == a.count {
            break;
        }
        std::thread::sleep(Duration::from_secs_f64(a.interval));
    }
    let answered = sent - lost;
    if answered > 0 {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let mean = ms(sum) / answered as f64;
        println!(
            "{sent} calls, {answered} answered, min/mean/max {:.3}/{mean:.3}/{:.3} ms",
            ms(least),
            ms(most)
        );
    }
    match lost {
        0 => Ok(()),
        _ => Err(Error::Failed(format!("{lost} of {sent} calls were not answered"))),
    }
}

//! `sunrpc info`.

use super::target::{Common, Error, How, client, locate, name, program, seconds, versions};
use sunrpc::clnt::ClntError;
use sunrpc::msg::AcceptStat;
use sunrpc::rpcbind::{Pmap, Rpcb};

/// Versions that are asked one by one.
const RANGE_MAX: u32 = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where: `tcp://HOST[:PORT]`, `udp://HOST[:PORT]` or `local:PATH`. The list of programs comes from rpcbind, port 111 unless
    /// given.
    url: String,
    /// Show the versions of this program, by number or name, instead.
    program: Option<String>,
    /// Seconds to wait for a reply.
    #[arg(short, long, default_value_t = 10.0, value_parser = seconds)]
    timeout: f64,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(a: &Args) -> Result<(), Error> {
    let how = How::new(a.timeout, a.common);
    match &a.program {
        None => list(&locate(&a.url, 100_000, 4, how)?, how),
        Some(p) => {
            let prog = program(p)?;
            offered(&locate(&a.url, prog, 0, how)?, prog, how)
        }
    }
}

fn list(url: &str, how: How) -> Result<(), Error> {
    let failed = |err| Error::Call { what: format!("asking the rpcbind at {url}"), err };
    println!("{:>10} {:>7} {:<6} {:<24} name", "program", "version", "netid", "address");
    let mut rpcb = Rpcb::new(how.connect(url)?);
    match rpcb.dump() {
        Ok(all) => {
            for m in all {
                let addr = String::from_utf8_lossy(&m.addr.to_bytes()).into_owned();
                println!(
                    "{:>10} {:>7} {:<6} {addr:<24} {}",
                    m.prog,
                    m.vers,
                    m.netid.to_string(),
                    name(m.prog)
                );
            }
        }
        // A portmapper of version 2 only.
        Err(ClntError::Accept(AcceptStat::ProgMismatch { .. })) => {
            for (prog, vers, proto, port) in Pmap::new(how.connect(url)?).dump().map_err(failed)? {
                let netid = match proto {
                    6 => "tcp",
                    17 => "udp",
                    _ => "?",
                };
                println!("{prog:>10} {vers:>7} {netid:<6} {:<24} {}", format!("port {port}"), name(prog));
            }
        }
        Err(e) => return Err(failed(e)),
    }
    Ok(())
}

fn offered(url: &str, prog: u32, how: How) -> Result<(), Error> {
    let (low, high) = versions(url, prog, how)?;
    println!("{url} offers program {prog} ({}) in versions {low} to {high}", name(prog));
    for vers in (low..=high).take(RANGE_MAX as usize) {
        match client(url, prog, vers, how)?.call::<_, ()>(0, &()) {
            Ok(()) => println!("  version {vers}: ready"),
            Err(ClntError::Accept(AcceptStat::ProgMismatch { .. })) => {
                println!("  version {vers}: not offered")
            }
            Err(e) => println!("  version {vers}: {e}"),
        }
    }
    Ok(())
}

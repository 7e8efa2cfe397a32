//! Which server, which program.

use std::time::{Duration, Instant};
use sunrpc::clnt::CallXprt;
use sunrpc::clnt::{CallOptions, Client, ClntError, XprtError};
use sunrpc::msg::AcceptStat;
use sunrpc::rpcbind::{Netid, Rpcb};
use sunrpc_transports::ConnectError;
use sunrpc_transports::clnt::ClntConfig;

/// A client of a program, over whatever the URL named.
pub(crate) type AnyClient = Client<Box<dyn CallXprt + Send>>;

/// Why a server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{what}: {err}")]
    Call { what: String, err: ClntError },
    #[error("`{0}` is no program: give its number, or one of {names}", names = names())]
    Program(String),
    #[error(
        "the rpcbind of {host} knows no program {prog} version {vers} over {netid}; `sunrpc info tcp://{host}` lists what it knows"
    )]
    NotRegistered { host: String, prog: u32, vers: u32, netid: Netid },
    #[error("rpcbind answers with {0}, which is no address to connect to")]
    Address(String),
    #[error("{0}")]
    Failed(String),
}

/// Programs that have names here.
const PROGRAMS: &[(&str, u32)] = &[
    ("portmapper", 100_000),
    ("rpcbind", 100_000),
    ("nfs", 100_003),
    ("mountd", 100_005),
    ("nlockmgr", 100_021),
    ("status", 100_024),
    ("nfs_acl", 100_227),
];

fn names() -> String {
    PROGRAMS.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")
}

/// The number of a program given by name or number.
pub(crate) fn program(text: &str) -> Result<u32, Error> {
    let hex = text.strip_prefix("0x").and_then(|h| u32::from_str_radix(h, 16).ok());
    let named = || PROGRAMS.iter().find(|(n, _)| *n == text).map(|(_, p)| *p);
    text.parse().ok().or(hex).or_else(named).ok_or_else(|| Error::Program(text.to_owned()))
}

/// What people call a program.
pub(crate) fn name(prog: u32) -> &'static str {
    PROGRAMS.iter().find(|(_, p)| *p == prog).map_or("-", |(n, _)| n)
}

/// The host of an internet URL without a port.
fn portless(url: &str) -> Option<(&str, &str)> {
    let (scheme, host) = url.split_once("://")?;
    let bare = match host.strip_prefix('[') {
        Some(v6) => v6.ends_with(']'),
        None => !host.contains(':'),
    };
    (bare && matches!(scheme, "tcp" | "udp")).then_some((scheme, host))
}

/// The URL to connect to: the one given, or with the port that the host's rpcbind knows.
pub(crate) fn locate(url: &str, prog: u32, vers: u32, how: How) -> Result<String, Error> {
    let Some((scheme, host)) = portless(url) else { return Ok(url.to_owned()) };
    if prog == 100_000 {
        return Ok(format!("{scheme}://{host}:111"));
    }
    let netid = match (scheme, host.starts_with('[')) {
        ("udp", false) => Netid::Udp,
        ("udp", true) => Netid::Udp6,
        (_, false) => Netid::Tcp,
        (_, true) => Netid::Tcp6,
    };
    let asked = format!("{scheme}://{host}:111");
    let mut rpcb = Rpcb::new(how.connect(&asked)?);
    let failed = |err| Error::Call { what: format!("asking the rpcbind at {asked}"), err };
    let addr = loop {
        match rpcb.getaddr(prog, vers, netid).map_err(failed)? {
            Some(addr) => break addr,
            None if how.more_time() => std::thread::sleep(RETRY),
            None => return Err(Error::NotRegistered { host: host.to_owned(), prog, vers, netid }),
        }
    };
    let port = addr.inet().ok_or_else(|| Error::Address(format!("{addr:?}")))?.port();
    // The port is rpcbind's to know; the way to the host is the one that was given.
    Ok(format!("{scheme}://{host}:{port}"))
}

/// What every command takes.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Common {
    /// Call from a source port below 1024, as root: some servers want that.
    #[arg(long)]
    reserved_port: bool,
    /// Seconds to wait for a server that does not listen yet.
    #[arg(short, long, default_value_t = 0.0, value_parser = seconds)]
    wait: f64,
}

/// A time that a clock can count.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=1e6).contains(&s) => Ok(s),
        _ => Err("give seconds from 0 to 1000000".into()),
    }
}

/// How to ask a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// For each call.
    timeout: Duration,
    reserved_port: bool,
    /// Until then a server that does not listen is given another chance.
    patient_until: Instant,
}

/// Between two tries to connect.
const RETRY: Duration = Duration::from_millis(50);

impl How {
    /// From now on: `timeout` in seconds.
    pub(crate) fn new(timeout: f64, common: Common) -> Self {
        How {
            timeout: Duration::from_secs_f64(timeout),
            reserved_port: common.reserved_port,
            patient_until: Instant::now() + Duration::from_secs_f64(common.wait),
        }
    }

    /// Connects without calling.
    pub(crate) fn connect(self, url: &str) -> Result<Box<dyn CallXprt + Send>, ConnectError> {
        let config = ClntConfig { reserved_port: self.reserved_port, ..ClntConfig::default() };
        loop {
            let again = match sunrpc_transports::connect_with(url, &config) {
                // Only an answer shows that somebody listens for datagrams.
                Ok(x) if url.starts_with("udp:") && self.more_time() => refused(x),
                Err(e) if e.nobody_there() && self.more_time() => true,
                done => return done,
            };
            if again {
                std::thread::sleep(RETRY);
            } else {
                return sunrpc_transports::connect_with(url, &config);
            }
        }
    }

    /// Whether a server that is not there gets another chance.
    fn more_time(self) -> bool {
        Instant::now() < self.patient_until
    }
}

/// Whether the other end says that nobody listens there. Any program would do to ask.
fn refused(x: Box<dyn CallXprt + Send>) -> bool {
    let answer = Client::new(x, 0, 0).call::<_, ()>(0, &());
    matches!(answer, Err(ClntError::Transport(XprtError::Refused)))
}

/// A client of the program.
pub(crate) fn client(url: &str, prog: u32, vers: u32, how: How) -> Result<AnyClient, Error> {
    let mut c = Client::new(how.connect(url)?, prog, vers);
    c.set_options(CallOptions { timeout: how.timeout, ..CallOptions::default() });
    Ok(c)
}

/// The lowest and highest version that a server offers of a program: what it says when asked for one that nobody has.
pub(crate) fn versions(url: &str, prog: u32, how: How) -> Result<(u32, u32), Error> {
    match client(url, prog, u32::MAX, how)?.call::<_, ()>(0, &()) {
        Err(ClntError::Accept(AcceptStat::ProgMismatch { low, high })) => Ok((low, high)),
        Ok(()) => Err(Error::Failed(format!("the server takes any version of program {prog} for its own"))),
        Err(err) => {
            Err(Error::Call { what: format!("asking {url} for its versions of program {prog}"), err })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_by_name_and_number() {
        assert_eq!(program("nfs").unwrap(), 100_003);
        assert_eq!(program("100005").unwrap(), 100_005);
        assert_eq!(program("0x20000ec0").unwrap(), 0x2000_0ec0);
        assert!(program("nsf").unwrap_err().to_string().contains("nfs, mountd"));
    }

    #[test]
    fn a_port_is_looked_up_only_if_none_is_given() {
        assert_eq!(portless("tcp://host"), Some(("tcp", "host")));
        assert_eq!(portless("udp://[::1]"), Some(("udp", "[::1]")));
        for url in ["tcp://host:1", "tcp://[::1]:1", "local:/x", "host"] {
            assert_eq!(portless(url), None, "{url}");
        }
        let how = How::new(1.0, Common { reserved_port: false, wait: 0.0 });
        assert_eq!(locate("tcp://host", 100_000, 2, how).unwrap(), "tcp://host:111");
    }
}

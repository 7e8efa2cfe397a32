//! Which server, which program.

use std::time::Duration;
use sunrpc::clnt::CallXprt;
use sunrpc::clnt::{CallOptions, Client, ClntError};
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
pub(crate) fn locate(url: &str, prog: u32, vers: u32) -> Result<String, Error> {
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
    let mut rpcb = Rpcb::new(sunrpc_transports::connect(&asked)?);
    let found = rpcb
        .getaddr(prog, vers, netid)
        .map_err(|err| Error::Call { what: format!("asking the rpcbind at {asked}"), err })?;
    let host = host.to_owned();
    let addr = found.ok_or(Error::NotRegistered { host: host.clone(), prog, vers, netid })?;
    let port = addr.inet().ok_or_else(|| Error::Address(format!("{addr:?}")))?.port();
    // The port is rpcbind's to know; the way to the host is the one that was given.
    Ok(format!("{scheme}://{host}:{port}"))
}

/// How to ask a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// For each call.
    pub(crate) timeout: Duration,
    /// From a port below 1024.
    pub(crate) reserved_port: bool,
}

impl How {
    /// Connects without calling.
    pub(crate) fn connect(self, url: &str) -> Result<Box<dyn CallXprt + Send>, ConnectError> {
        let config = ClntConfig { reserved_port: self.reserved_port, ..ClntConfig::default() };
        sunrpc_transports::connect_with(url, &config)
    }
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
        assert_eq!(locate("tcp://host", 100_000, 2).unwrap(), "tcp://host:111");
    }
}

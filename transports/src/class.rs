//! Transport classes by name.

use crate::clnt::ClntConfig;
use mio::event::Source;
use std::io;
use sunrpc::clnt::{CallXprt, ReservedPortError};
use sunrpc::xprt::Xprt;

/// A transport that a reactor can poll.
pub trait PolledXprt: Xprt + Send {
    /// Where its events come from.
    fn source(&mut self) -> &mut dyn Source;

    /// How to send. Called once, before anything is sent.
    fn configure(&mut self, o: &SendOptions) {
        let _ = o;
    }
}

/// Whether large replies are sent by reference to their pages (MSG_ZEROCOPY) instead of by copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zerocopy {
    /// Never.
    #[default]
    Off,
    /// To other hosts, until a connection shows that the kernel copies all the same.
    Auto,
    /// Always.
    On,
}

/// How transports of a server send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendOptions {
    /// Sends by reference.
    pub zerocopy: Zerocopy,
}

/// A listening endpoint.
pub trait Listener: Send {
    /// Where its events come from.
    fn source(&mut self) -> &mut dyn Source;

    /// The next connection; `WouldBlock` when there is none.
    fn accept(&mut self) -> io::Result<Box<dyn PolledXprt>>;

    /// Its address, as a URL that a client can use.
    fn url(&self) -> String;
}

/// A bound address for datagrams. Each worker has a transport of its own on it.
pub trait Datagrams: Send {
    /// The next worker's transport.
    ///
    /// # Errors
    /// Those of opening one more socket.
    fn open(&mut self) -> io::Result<Box<dyn PolledXprt>>;

    /// Its address, as a URL that a client can use.
    fn url(&self) -> String;
}

/// Where a server can be called.
pub enum Endpoint {
    /// Yields connections.
    Listener(Box<dyn Listener>),
    /// Yields one transport for each worker.
    Datagrams(Box<dyn Datagrams>),
}

impl Endpoint {
    /// Its address, as a URL that a client can use.
    pub fn url(&self) -> String {
        match self {
            Endpoint::Listener(l) => l.url(),
            Endpoint::Datagrams(d) => d.url(),
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", self.url())
    }
}

/// One transport class.
#[derive(Clone, Copy)]
pub struct XprtClass {
    /// URL scheme.
    pub scheme: &'static str,
    /// Opens an endpoint at what follows `scheme://`.
    pub listen: fn(&str) -> io::Result<Endpoint>,
    /// Connects a client to what follows `scheme://`.
    pub connect: fn(&str, &ClntConfig) -> io::Result<Box<dyn CallXprt + Send>>,
}

impl std::fmt::Debug for XprtClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XprtClass({})", self.scheme)
    }
}

/// The classes built in.
pub const CLASSES: &[XprtClass] = &[
    #[cfg(feature = "tcp")]
    crate::tcp::CLASS,
    #[cfg(feature = "udp")]
    crate::udp::CLASS,
    #[cfg(feature = "local")]
    crate::local::CLASS,
];

/// Classes that exist, with the cargo feature that builds each in.
const KNOWN: &[(&str, &str)] = &[("tcp", "tcp"), ("udp", "udp"), ("local", "local")];

/// Why a URL names no usable transport.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    /// Not of the form `scheme://address`.
    #[error("`{0}` is no transport address; write SCHEME://ADDRESS, for example tcp://[::]:2049")]
    NoScheme(String),
    /// A class of this project that was not compiled in.
    #[error("transport `{scheme}` is not built in; rebuild with `--features {feature}`")]
    NotBuilt {
        /// The class.
        scheme: String,
        /// Its cargo feature.
        feature: &'static str,
    },
    /// A class that nobody knows.
    #[error("unknown transport `{scheme}`; built in: {}", built_in())]
    Unknown {
        /// What was asked for.
        scheme: String,
    },
}

fn built_in() -> String {
    CLASSES.iter().map(|c| c.scheme).collect::<Vec<_>>().join(", ")
}

/// Finds the class of a URL and what follows the scheme. The slashes may be left out: `local:/run/name.sock`.
pub fn find(url: &str) -> Result<(&'static XprtClass, &str), ClassError> {
    let (scheme, rest) = match url.split_once(':') {
        Some((s, r)) if KNOWN.iter().any(|(k, _)| *k == s) => (s, r.strip_prefix("//").unwrap_or(r)),
        _ => url.split_once("://").ok_or_else(|| ClassError::NoScheme(url.to_owned()))?,
    };
    if let Some(c) = CLASSES.iter().find(|c| c.scheme == scheme) {
        return Ok((c, rest));
    }
    let scheme = scheme.to_owned();
    match KNOWN.iter().find(|(k, _)| *k == scheme) {
        Some((_, feature)) => Err(ClassError::NotBuilt { scheme, feature }),
        None => Err(ClassError::Unknown { scheme }),
    }
}

/// Why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The URL is at fault.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// The system refused.
    #[error("cannot listen on {url}: {err}{}", listen_hint(.url, .err))]
    Io {
        /// The URL asked for.
        url: String,
        /// The system's reason.
        err: io::Error,
    },
}

fn listen_hint(url: &str, err: &io::Error) -> &'static str {
    match err.kind() {
        io::ErrorKind::AddrInUse => " (another server is running there; stop it or choose another port)",
        io::ErrorKind::PermissionDenied if url.starts_with("local:") => {
            " (the directory must be there and writable to this user)"
        }
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root; choose a higher one)",
        io::ErrorKind::AddrNotAvailable => " (no interface of this host has that address)",
        _ => "",
    }
}

/// Opens an endpoint of a server.
pub fn listen(url: &str) -> Result<Endpoint, ListenError> {
    let (class, rest) = find(url)?;
    (class.listen)(rest).map_err(|err| ListenError::Io { url: url.to_owned(), err })
}

/// Why a client could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL is at fault.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// The client is to call from a reserved port and got none.
    #[error("cannot connect to {url}: {err}")]
    ReservedPort {
        /// The URL asked for.
        url: String,
        /// Why.
        err: ReservedPortError,
    },
    /// Nobody answered.
    #[error("cannot connect to {url}: {err}{}", connect_hint(.err))]
    Io {
        /// The URL asked for.
        url: String,
        /// The system's reason.
        err: io::Error,
    },
}

impl ConnectError {
    pub(crate) fn new(url: &str, err: io::Error) -> Self {
        let url = url.to_owned();
        match ReservedPortError::of(&err) {
            Some(err) => ConnectError::ReservedPort { url, err },
            None => ConnectError::Io { url, err },
        }
    }

    /// True if nobody listens there, or nothing has the name yet: a server that is being started changes that.
    pub fn nobody_there(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, ConnectError::Io { err, .. } if matches!(err.kind(), ConnectionRefused | NotFound))
    }
}

type Connect = fn(&str, &ClntConfig) -> io::Result<Box<dyn CallXprt + Send>>;

/// Transports that clients have whether or not a server class of the name is built in.
const CLIENTS: &[(&str, Connect)] = &[("udp", crate::clnt::udp::open), ("local", crate::clnt::local::open)];

/// The client of a URL, and what follows the scheme.
fn client(url: &str) -> Result<(Connect, &str), ClassError> {
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let own = CLIENTS.iter().find(|(s, _)| *s == scheme && CLASSES.iter().all(|c| c.scheme != scheme));
    match own {
        Some((_, connect)) => Ok((*connect, rest.strip_prefix("//").unwrap_or(rest))),
        None => find(url).map(|(class, rest)| (class.connect, rest)),
    }
}

fn connect_hint(err: &io::Error) -> &'static str {
    match err.kind() {
        io::ErrorKind::ConnectionRefused => " (nobody listens there; start the server or check the port)",
        io::ErrorKind::TimedOut => " (no answer; check the address, and firewalls in between)",
        io::ErrorKind::NotFound => " (check the name)",
        io::ErrorKind::PermissionDenied => " (this user may not use that socket)",
        _ => "",
    }
}

/// Connects a client: `tcp://HOST:PORT`, `udp://HOST:PORT`, `local:/PATH` or `local:@NAME`.
pub fn connect(url: &str) -> Result<Box<dyn CallXprt + Send>, ConnectError> {
    connect_with(url, &ClntConfig::default())
}

/// Connects a client with other limits and times, or from a reserved port.
pub fn connect_with(url: &str, config: &ClntConfig) -> Result<Box<dyn CallXprt + Send>, ConnectError> {
    let (connect, rest) = client(url)?;
    connect(rest, config).map_err(|err| ConnectError::new(url, err))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_urls_say_what_to_do() {
        let msg = |u: &str| find(u).map(|_| ()).map_err(|e| e.to_string());
        assert!(msg("2049").is_err_and(|m| m.contains("tcp://")));
        assert!(msg("quic://x").is_err_and(|m| m.starts_with("unknown transport `quic`; built in:")));
    }

    #[test]
    fn address_in_use_is_explained() {
        for class in CLASSES.iter().filter(|c| ["tcp", "udp"].contains(&c.scheme)) {
            let l = listen(&format!("{}://127.0.0.1:0", class.scheme)).unwrap();
            let r = listen(&l.url());
            assert!(r.is_err_and(|e| e.to_string().contains("another server")), "{class:?}");
        }
    }
}

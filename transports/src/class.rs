//! Transport classes by name.

use mio::event::Source;
use std::io;
use sunrpc::clnt::CallXprt;
use sunrpc::xprt::Xprt;

/// A transport that a reactor can poll.
pub trait PolledXprt: Xprt + Send {
    /// Where its events come from.
    fn source(&mut self) -> &mut dyn Source;
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

/// One transport class.
#[derive(Clone, Copy)]
pub struct XprtClass {
    /// URL scheme.
    pub scheme: &'static str,
    /// Opens a listening endpoint at what follows `scheme://`.
    pub listen: fn(&str) -> io::Result<Box<dyn Listener>>,
    /// Connects a client to what follows `scheme://`.
    pub connect: fn(&str) -> io::Result<Box<dyn CallXprt + Send>>,
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
];

/// Classes that exist, with the cargo feature that builds each in.
const KNOWN: &[(&str, &str)] = &[("tcp", "tcp")];

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

/// Finds the class of a URL and what follows the scheme.
pub fn find(url: &str) -> Result<(&'static XprtClass, &str), ClassError> {
    let (scheme, rest) = match url.split_once("://") {
        Some((s, r)) => (s, r),
        None => match url.split_once(':') {
            Some((s, r)) if KNOWN.iter().any(|(k, _)| *k == s) => (s, r),
            _ => return Err(ClassError::NoScheme(url.to_owned())),
        },
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
    #[error("cannot listen on {url}: {err}{}", listen_hint(.err))]
    Io {
        /// The URL asked for.
        url: String,
        /// The system's reason.
        err: io::Error,
    },
}

fn listen_hint(err: &io::Error) -> &'static str {
    match err.kind() {
        io::ErrorKind::AddrInUse => " (another server is running there; stop it or choose another port)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root; choose a higher one)",
        io::ErrorKind::AddrNotAvailable => " (no interface of this host has that address)",
        _ => "",
    }
}

/// Opens a listening endpoint.
pub fn listen(url: &str) -> Result<Box<dyn Listener>, ListenError> {
    let (class, rest) = find(url)?;
    (class.listen)(rest).map_err(|err| ListenError::Io { url: url.to_owned(), err })
}

/// Why a client could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL is at fault.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// Nobody answered.
    #[error("cannot connect to {url}: {err}{}", connect_hint(.err))]
    Io {
        /// The URL asked for.
        url: String,
        /// The system's reason.
        err: io::Error,
    },
}

type Connect = fn(&str) -> io::Result<Box<dyn CallXprt + Send>>;

/// Transports that clients have whether or not a server class of the name is built in.
const CLIENTS: &[(&str, Connect)] =
    &[("udp", crate::clnt::udp::connect), ("local", crate::clnt::local::connect)];

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
    let (connect, rest) = client(url)?;
    connect(rest).map_err(|err| ConnectError::Io { url: url.to_owned(), err })
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

    #[cfg(feature = "tcp")]
    #[test]
    fn address_in_use_is_explained() {
        let l = listen("tcp://127.0.0.1:0").unwrap();
        let r = listen(&l.url());
        assert!(r.is_err_and(|e| e.to_string().contains("another server")));
    }
}

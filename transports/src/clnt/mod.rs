//! Clients: what carries calls over TCP, UDP and local sockets.
//!
//! ```text
//!            Client, generated clients        AsyncClient
//!                      |                           |
//!   callers' thread  Blocking                 a driver's thread
//!                      |                           |
//!                      +----------- Link ----------+       (a socket and a sunrpc::clnt::CallTable)
//!                               /          \
//!                         StreamLink    DatagramLink
//! ```

mod addr;
#[cfg(feature = "async")]
mod asynchronous;
mod blocking;
mod broadcast;
mod datagram;
mod link;
mod reserved;
mod stream;

#[cfg(feature = "async")]
pub use asynchronous::{AsyncCall, AsyncClient, AsyncConnect, AsyncXprt, Driver};
pub use blocking::Blocking;
pub use broadcast::broadcast;
pub use reserved::RESERVED_PORTS;

use datagram::DatagramLink;
use link::Link;
use socket2::SockAddr;
use std::io;
use std::time::Duration;
use stream::StreamLink;
use sunrpc::clnt::{DEFAULT_CALLS, MAX_MESSAGE, Retransmit};

/// What holds for all calls of one client.
#[derive(Debug, Clone)]
pub struct ClntConfig {
    /// For each address of the server.
    pub connect_timeout: Duration,
    /// Calls outstanding at a time, with those whose outcome nobody took yet; one more is
    /// [`Busy`](sunrpc::clnt::XprtError::Busy) and leaves nothing behind. So a connection holds no more memory than
    /// this many calls or replies of the largest size, however many are submitted.
    pub max_calls: usize,
    /// Bytes of a reply on a stream; more closes the connection before they are received. A datagram has at most
    /// 65507.
    pub max_reply: usize,
    /// When unanswered datagrams are sent again.
    pub retransmit: Retransmit,
    /// Calls from a source port below 1024 ([`RESERVED_PORTS`]), which some servers take as the sign of a privileged
    /// program. Needs root or CAP_NET_BIND_SERVICE, for every connection that is opened, later ones too. Each client
    /// occupies a port of this host. Of no effect on local sockets.
    pub reserved_port: bool,
}

impl Default for ClntConfig {
    /// 10 s, 128 calls, 1 MiB and a header, 700 ms doubling up to 15 s, any source port.
    fn default() -> Self {
        ClntConfig {
            connect_timeout: Duration::from_secs(10),
            max_calls: DEFAULT_CALLS,
            max_reply: MAX_MESSAGE,
            retransmit: Retransmit::default(),
            reserved_port: false,
        }
    }
}

/// The link to what follows `scheme:` in a URL; `None` for a scheme that clients of this module do not speak.
fn link(scheme: &str, rest: &str, config: &ClntConfig) -> Option<io::Result<Box<dyn Link>>> {
    let stream = |addrs| Box::new(StreamLink::new(addrs, config)) as Box<dyn Link>;
    Some(match scheme {
        "tcp" => addr::inet(rest).map(|all| stream(all.into_iter().map(SockAddr::from).collect())),
        "local" => addr::local(rest).map(|a| stream(vec![a])),
        "udp" => addr::inet(rest)
            .and_then(|all| DatagramLink::new(&all, config))
            .map(|l| Box::new(l) as Box<dyn Link>),
        _ => return None,
    })
}

macro_rules! transport {
    ($name:ident, $what:literal, $addr:literal) => {
        #[doc = $what]
        pub mod $name {
            use super::{Blocking, ClntConfig};
            use std::io;
            use sunrpc::clnt::CallXprt;

            #[doc = concat!("Connects to `", $addr, "`.")]
            pub fn connect(addr: &str) -> io::Result<Box<dyn CallXprt + Send>> {
                open(addr, &ClntConfig::default())
            }

            pub(crate) fn open(addr: &str, config: &ClntConfig) -> io::Result<Box<dyn CallXprt + Send>> {
                Ok(Box::new(connect_with(addr, config)?))
            }

            #[doc = concat!("Connects to `", $addr, "` with other limits and times.")]
            pub fn connect_with(addr: &str, config: &ClntConfig) -> io::Result<Blocking> {
                Blocking::open(stringify!($name), addr, config)
            }
        }
    };
}
transport!(tcp, "Over TCP. Every address of the host is tried; a lost connection is replaced.", "HOST:PORT");
transport!(udp, "Over UDP, with retransmission. Nothing is sent before the first call.", "HOST:PORT");
transport!(local, "Over a stream socket of this host (AF_UNIX).", "/PATH` or `@NAME");

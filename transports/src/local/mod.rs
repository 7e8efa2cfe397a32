//! RPC over local stream sockets (AF_UNIX), framed as on TCP. The kernel vouches for who calls.
//!
//! `local:/path` is a socket file, made with the process's umask; `local:@name` is a name in Linux's abstract space,
//! which has no permissions.

use crate::class::{Endpoint, Listener, PolledXprt, XprtClass};
use crate::stream::StreamXprt;
use mio::event::Source;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use sunrpc::xprt::{PeerAddr, XprtCaps};

/// The class `local`.
pub(crate) const CLASS: XprtClass = XprtClass { scheme: "local", listen, connect: crate::clnt::local::open };

const CAPS: XprtCaps =
    XprtCaps { class: "local", stream: true, congestion_control: true, max_payload: 1 << 20, lends: true };

struct LocalListener {
    socket: mio::net::UnixListener,
    url: String,
    /// Removed at the end.
    _file: Option<SocketFile>,
}

fn listen(addr: &str) -> io::Result<Endpoint> {
    let (socket, file) = match addr.strip_prefix('@') {
        Some(name) => (UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?, None),
        None if addr.is_empty() => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no path; write local:/run/name.sock"));
        }
        None => {
            let path = std::path::absolute(addr)?;
            let socket = bind(&path)?;
            (socket, SocketFile::new(path))
        }
    };
    socket.set_nonblocking(true)?;
    let url = format!("local:{}", file.as_ref().map_or(addr.into(), |f| f.path.to_string_lossy()));
    let socket = mio::net::UnixListener::from_std(socket);
    Ok(Endpoint::Listener(Box::new(LocalListener { socket, url, _file: file })))
}

/// Binds to a path. A socket that a server left behind is taken away; one where somebody answers, and anything else,
/// is left alone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "it exists and is no socket; remove it or choose another path",
                ));
            }
            match UnixStream::connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path)
                }
                _ => Err(e),
            }
        }
        r => r,
    }
}

/// The file of a bound socket.
struct SocketFile {
    path: PathBuf,
    /// Device and number: another server may have put its own in place.
    id: (u64, u64),
}

impl SocketFile {
    fn new(path: PathBuf) -> Option<Self> {
        let m = std::fs::symlink_metadata(&path).ok()?;
        Some(SocketFile { path, id: (m.dev(), m.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).map(|m| (m.dev(), m.ino()));
        if now.is_ok_and(|id| id == self.id)
            && let Err(e) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove {}: {e}", self.path.display());
        }
    }
}

impl Listener for LocalListener {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.socket
    }

    fn accept(&mut self) -> io::Result<Box<dyn PolledXprt>> {
        let (stream, _) = self.socket.accept()?;
        let who = sunrpc_sys::cred::peer(stream.as_fd())?;
        let peer = PeerAddr::Local { uid: who.uid, pid: who.pid };
        Ok(Box::new(StreamXprt::new(stream, peer, &CAPS)))
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

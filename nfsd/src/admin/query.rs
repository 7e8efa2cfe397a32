//! `nfsd stat`.

use super::show::Report;
use crate::config::{ConfigError, Section, StatArgs, control_socket};
use crate::proto::admin::{NfsdAdminV1Client, stat_section};
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sunrpc::clnt::{CallOptions, ClntError};
use sunrpc_transports::ConnectError;

/// The server answers within about a second, however busy it is.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there are no counters. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// No default place.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No socket, or nobody behind it.
    #[error(
        "no server is running at {path} ({err}): start one with `nfsd DIR`; if it runs with --state-dir DIR or --control PATH, name its socket with --control DIR/control or --control PATH",
        path = .path.display()
    )]
    NoServer {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        err: io::Error,
    },
    /// Somebody else's server.
    #[error(
        "the server at {path} answers root and its own user only: run this as one of them, for example with sudo",
        path = .0.display()
    )]
    Refused(PathBuf),
    /// Another failure at the socket.
    #[error("cannot ask the server at {path}: {err}", path = .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What happened.
        err: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server of another kind.
    #[error(
        "what answers at {path} does not understand the question ({err}): it is another program, or nfsd in another version; restart it with this one",
        path = .path.display()
    )]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What came back.
        err: ClntError,
    },
    /// The output is at fault.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Asks a running server and prints its counters, once or until the output is closed.
///
/// # Errors
/// [`QueryError`], each of which says what to do.
pub fn stat(args: &StatArgs, out: &mut dyn Write) -> Result<(), QueryError> {
    let path = match &args.control {
        Some(p) => p.clone(),
        None => control_socket()?,
    };
    let section = match args.section {
        Section::All => stat_section::STAT_ALL,
        Section::Pages => stat_section::STAT_PAGES,
        Section::Calls => stat_section::STAT_CALLS,
        Section::Drc => stat_section::STAT_DRC,
        Section::Threads => stat_section::STAT_THREADS,
        Section::Io => stat_section::STAT_IO,
    };
    let mut client = connect(&path)?;
    let mut last: Option<Report> = None;
    loop {
        let answer = client.stat(&section).map_err(|e| failed(&path, e))?;
        let report = Report::new(&answer);
        let written = match (&last, args.json) {
            (_, true) => writeln!(out, "{}", report.json()),
            (None, _) => write!(out, "{}", report.text()),
            (Some(l), _) => write!(out, "\n{}", report.since(l).text()),
        };
        match written.and_then(|()| out.flush()) {
            // `nfsd stat | head` has seen enough.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            r => r?,
        }
        let Some(seconds) = args.interval else { return Ok(()) };
        std::thread::sleep(Duration::from_secs(seconds.get().into()));
        last = Some(report);
    }
}

type Client = NfsdAdminV1Client<Box<dyn sunrpc::clnt::CallXprt + Send>>;

fn connect(path: &Path) -> Result<Client, QueryError> {
    // A client would go on trying for a while; a person wants to know at once.
    let probe = UnixStream::connect(path);
    let name = || path.to_owned();
    match probe {
        Ok(_) => {}
        Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Err(QueryError::NoServer { path: name(), err });
        }
        Err(err) if err.kind() == ErrorKind::PermissionDenied => return Err(QueryError::Refused(name())),
        Err(err) => return Err(QueryError::Connect { path: name(), err: err.into() }),
    }
    let xprt = sunrpc_transports::connect(&format!("local:{}", path.display()))
        .map_err(|err: ConnectError| QueryError::Connect { path: name(), err: err.into() })?;
    let mut client = NfsdAdminV1Client::new(xprt);
    client.client().set_options(CallOptions { timeout: TIMEOUT, ..CallOptions::default() });
    Ok(client)
}

fn failed(path: &Path, err: ClntError) -> QueryError {
    let path = path.to_owned();
    match err {
        ClntError::Auth(_) => QueryError::Refused(path),
        ClntError::Transport(err) => QueryError::Connect { path, err: err.into() },
        err => QueryError::Answer { path, err },
    }
}

//! The control socket of a server.

use super::tables::tables;
use crate::export::Exports;
use crate::proto::admin::{NfsdAdminV1, NfsdAdminV1Server, stat_section, stat_tables};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use sunrpc::drc::DrcLimits;
use sunrpc::msg::AuthStat;
use sunrpc::svc::{Call, Outcome, RpcError};
use sunrpc::xprt::PeerAddr;
use sunrpc_transports::{Handle, ListenError, ServeError, Server, class};

/// People ask one at a time.
const MAX_CONNECTIONS: usize = 16;
/// Pages of 4 KiB that questions and answers may occupy.
const MAX_PAGES: usize = 2048;
/// What is answered when the server ends: a question takes a second at most.
const GRACE: Duration = Duration::from_secs(2);

/// The program.
struct Admin {
    server: Handle,
    exports: Exports,
    /// Who runs this process.
    owner: u32,
}

impl NfsdAdminV1 for Admin {
    fn stat(&self, cx: &mut Call<'_>, section: stat_section) -> Outcome<stat_tables> {
        match cx.peer {
            PeerAddr::Local { uid, .. } if *uid == 0 || *uid == self.owner => {
                Outcome::Done(tables(section, &self.server.stats(), &self.exports.load()))
            }
            peer => {
                tracing::warn!(
                    "{peer} asks at the control socket, which is for root and the server's own user"
                );
                Err(RpcError::Auth(AuthStat::TooWeak)).into()
            }
        }
    }
}

/// The open socket; dropping it ends its threads and removes the file.
pub struct Control {
    handle: Handle,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    /// Answers about `server` and `exports` at the socket file `path`. A file that a killed server left there is
    /// replaced; one where a server answers is not.
    ///
    /// # Errors
    /// [`ServeError::Listen`] if the file cannot be made; others if threads are refused.
    pub fn open(path: &Path, server: Handle, exports: Exports) -> Result<Control, ServeError> {
        let url = format!("local:{}", path.display());
        let endpoint = class::listen(&url)?;
        // The file was made with the umask. Whoever slips in meanwhile is refused by name.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|err| ListenError::Io { url, err })?;
        let admin = Admin { server, exports, owner: sunrpc_sys::cred::current().2 };
        let own = Server::builder()
            .name("control")
            .program(NfsdAdminV1Server::new(admin))
            .endpoint(endpoint)
            .threads(1)
            .helpers(1)
            .max_connections(MAX_CONNECTIONS, MAX_CONNECTIONS)
            .max_pages(MAX_PAGES)
            .duplicate_cache(DrcLimits { bytes: 0, ..DrcLimits::default() })
            .build()?;
        let handle = own.handle();
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || own.run())?;
        Ok(Control { handle, thread: Some(thread) })
    }

    /// The same at the default place, where doing without is no reason not to serve: the log tells.
    pub fn open_default(path: &Path, server: Handle, exports: Exports) -> Option<Control> {
        let e = match Control::open(path, server, exports) {
            Ok(c) => return Some(c),
            Err(e) => e,
        };
        match &e {
            ServeError::Listen(ListenError::Io { err, .. })
                if err.kind() == std::io::ErrorKind::AddrInUse =>
            {
                tracing::warn!(
                    "another server answers `nfsd stat` at {}; give this one a place of its own with --control PATH",
                    path.display()
                );
            }
            e => tracing::debug!("no control socket, so `nfsd stat` cannot ask this server: {e}"),
        }
        None
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.handle.stop(GRACE);
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => {}
            Some(Ok(Err(e))) => tracing::error!("control socket: {e}"),
            Some(Err(_)) => tracing::error!("control socket: its thread failed"),
        }
    }
}

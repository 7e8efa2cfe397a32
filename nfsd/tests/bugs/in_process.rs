//! The server in this process, for exports and backends that the program's command line cannot name.

use nfsd::context::Shared;
use nfsd::export::{Clients, Export, ExportSettings, ExportTable, Squash};
use nfsd::fh::FhCodec;
use nfsd::mount::Mount;
use nfsd::v3::Nfs3;
use nfsd::vfs::Backend;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use sunrpc::drc::DrcStats;
use sunrpc_transports::{Builder, Handle, ServeError, Server};

pub struct InProcess {
    pub port: u16,
    handle: Handle,
    join: Option<JoinHandle<Result<(), ServeError>>>,
}

/// The export `/NUMBER` for this host, without squashing.
pub fn export(id: u32, backend: Arc<dyn Backend>, tune: impl FnOnce(&mut ExportSettings)) -> Arc<Export> {
    let mut s = ExportSettings::new(format!("/{id}").into());
    s.squash = Squash::None;
    s.insecure = true;
    s.clients = Clients::this_host();
    tune(&mut s);
    Arc::new(Export::new(id, s, backend))
}

impl InProcess {
    pub fn start(exports: Vec<Arc<Export>>) -> InProcess {
        InProcess::start_with(exports, |b| b)
    }

    pub fn start_with(exports: Vec<Arc<Export>>, tune: impl FnOnce(Builder) -> Builder) -> InProcess {
        let table = ExportTable::new(exports).unwrap().into_shared();
        let shared = Shared::new(table, FhCodec::with_key(&[9; 16])).unwrap();
        let server = Server::builder()
            .program(Nfs3::new(shared.clone()))
            .program(Mount::new(shared))
            .threads(2)
            .listen("tcp://127.0.0.1:0")
            .unwrap();
        let server = tune(server).build().unwrap();
        let port = server.urls()[0].rsplit(':').next().unwrap().parse().unwrap();
        let handle = server.handle();
        let join = Some(std::thread::spawn(move || server.run()));
        InProcess { port, handle, join }
    }

    /// What its duplicate request cache did.
    pub fn duplicates(&self) -> DrcStats {
        self.handle.duplicate_cache()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.handle.stop(Duration::from_secs(5));
        if let Some(j) = self.join.take() {
            let _ = j.join();
        }
    }
}

//! What a thread keeps between calls: its instance of every exported file system, and handles decoded before.

use crate::export::{Export, ExportTable, Exports, Refusals};
use crate::fh::{FH_MAX, FhCodec, FhError, FileHandle};
use crate::vfs::{Cx, Handle, Identity, Vfs, VfsError, Work};
use arc_swap::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sunrpc::auth::SvcCred;
use sunrpc::svc::Call;
use sunrpc::xprt::PeerAddr;

/// What all threads of a server share.
pub struct Shared {
    /// The exports.
    pub exports: Exports,
    /// Seals and opens file handles.
    pub codec: FhCodec,
    /// Says in the log who was refused, and how to admit them.
    pub refusals: Refusals,
    /// See [`Shared::verifier`].
    verifier: AtomicU64,
}

impl Shared {
    /// For a server that starts now.
    ///
    /// # Errors
    /// If the system has no random numbers to give.
    pub fn new(exports: Exports, codec: FhCodec) -> Result<Arc<Self>, getrandom::Error> {
        let mut verifier = [0; 8];
        getrandom::fill(&mut verifier)?;
        let verifier = AtomicU64::new(u64::from_be_bytes(verifier));
        Ok(Arc::new(Shared { exports, codec, refusals: Refusals::default(), verifier }))
    }

    /// The write verifier: when it changes, clients send again what they wrote and have not seen committed (RFC 1813
    /// section 3.3.7). It differs from start to start, and changes when unstable writes may have been lost.
    #[inline]
    pub fn verifier(&self) -> [u8; 8] {
        self.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    /// Unstable writes may have been lost. The system reports a failed flush once and then forgets it, so the client
    /// that got the error would be the only one to know.
    pub fn renew_verifier(&self) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Why a call does not reach its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The handle was never issued here.
    BadHandle,
    /// Its export is gone.
    Stale,
    /// The export does not admit the client's address or port.
    Client,
    /// The export does not accept the caller's flavor.
    Flavor,
    /// The file system could not be attached.
    Vfs(VfsError),
}

/// An object that a call works on, with everything needed to do so.
pub struct Here<'c> {
    /// The thread's instance of the file system.
    pub vfs: &'c mut dyn Vfs,
    /// Who asks, and how.
    pub cx: Cx<'c>,
    /// Where the object is.
    pub export: &'c Export,
    /// Which one it is.
    pub handle: Handle,
    /// Seals handles of its export.
    pub sealer: Sealer<'c>,
}

/// Seals handles of one export.
#[derive(Clone, Copy)]
pub struct Sealer<'c> {
    codec: &'c FhCodec,
    export: u32,
}

impl Sealer<'_> {
    /// The handle that clients see for `h`.
    #[inline]
    pub fn seal(&self, h: &Handle) -> FileHandle {
        self.codec.encode(self.export, h)
    }
}

struct Slot {
    export: Arc<Export>,
    vfs: Option<Box<dyn Vfs>>,
}

/// Entries of the cache of opened handles; a power of two.
const OPENED: usize = 256;

#[derive(Clone)]
struct Opened {
    len: u8,
    wire: [u8; FH_MAX],
    export: u32,
    handle: Handle,
}

/// One thread's state.
pub struct Context {
    shared: Arc<Shared>,
    /// Tells without an atomic write whether the table is still the current one.
    current: Cache<Exports, Arc<ExportTable>>,
    /// The one that `slots` are of.
    table: Arc<ExportTable>,
    slots: Vec<Slot>,
    ident: Identity,
    /// Handles whose MAC was found right. The key is the whole handle, so nothing forged gets in.
    opened: Vec<Option<Opened>>,
}

impl Context {
    /// For the calling thread.
    pub fn new(shared: Arc<Shared>) -> Self {
        let table = shared.exports.load_full();
        let mut c = Context {
            current: Cache::new(shared.exports.clone()),
            shared,
            table: table.clone(),
            slots: Vec::new(),
            ident: Identity { uid: u32::MAX, gid: u32::MAX, groups: Default::default() },
            opened: Vec::new(),
        };
        c.adopt(table);
        c
    }

    fn adopt(&mut self, table: Arc<ExportTable>) {
        self.slots = table.iter().map(|e| Slot { export: e.clone(), vfs: None }).collect();
        self.table = table;
    }

    /// The current exports.
    #[inline]
    pub fn table(&mut self) -> &Arc<ExportTable> {
        let now = self.current.load();
        if !Arc::ptr_eq(now, &self.table) {
            let now = now.clone();
            self.adopt(now);
        }
        &self.table
    }

    /// What all threads share.
    #[inline]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Opens a handle that a client sent.
    pub fn open(&mut self, wire: &[u8]) -> Result<(u32, Handle), Denied> {
        // The MAC's last bytes are as good as random.
        let at = wire.last_chunk::<2>().map_or(0, |b| usize::from(u16::from_le_bytes(*b)) % OPENED);
        if let Some(Some(o)) = self.opened.get(at)
            && o.wire.get(..usize::from(o.len)) == Some(wire)
        {
            return Ok((o.export, o.handle));
        }
        let (export, handle) = self.shared.codec.decode(wire).map_err(|_: FhError| Denied::BadHandle)?;
        if self.opened.is_empty() {
            self.opened.resize(OPENED, None);
        }
        let mut o = Opened { len: 0, wire: [0; FH_MAX], export, handle };
        if let (Some(dst), Ok(len), Some(slot)) =
            (o.wire.get_mut(..wire.len()), u8::try_from(wire.len()), self.opened.get_mut(at))
        {
            dst.copy_from_slice(wire);
            o.len = len;
            *slot = Some(o);
        }
        Ok((export, handle))
    }

    /// Brings a call to the object of a handle, if the export lets it in.
    #[inline]
    pub fn enter(&mut self, call: &Call<'_>, wire: &[u8]) -> Result<Here<'_>, Denied> {
        let (export, handle) = self.open(wire)?;
        self.enter_at(call.peer, call.cred, call.blocking, export, handle)
    }

    /// The root of an export, for MOUNT.
    pub fn enter_root(&mut self, call: &Call<'_>, export: u32) -> Result<Here<'_>, Denied> {
        // Nothing is looked up by this handle before it is replaced.
        let nowhere = Handle::new(&[]).ok_or(Denied::Stale)?;
        let mut here = self.enter_at(call.peer, call.cred, call.blocking, export, nowhere)?;
        here.handle = here.vfs.root().map_err(Denied::Vfs)?;
        Ok(here)
    }

    fn enter_at(
        &mut self,
        peer: &PeerAddr,
        cred: &SvcCred,
        blocking: bool,
        export: u32,
        handle: Handle,
    ) -> Result<Here<'_>, Denied> {
        self.table();
        let slot = self.slots.binary_search_by_key(&export, |s| s.export.id).map_err(|_| Denied::Stale)?;
        let slot = self.slots.get_mut(slot).ok_or(Denied::Stale)?;
        if let Err(why) = slot.export.admit(peer) {
            self.shared.refusals.client(&why);
            return Err(Denied::Client);
        }
        if let Err(why) = slot.export.admit_flavor(cred) {
            self.shared.refusals.client(&why);
            return Err(Denied::Flavor);
        }
        if !blocking && slot.export.backend.always_blocks() {
            return Err(Denied::Vfs(VfsError::WouldBlock));
        }
        slot.export.identify(cred, &mut self.ident);
        if slot.vfs.is_none() {
            slot.vfs = Some(slot.export.backend.attach().map_err(Denied::Vfs)?);
        }
        let vfs = slot.vfs.as_deref_mut().ok_or(Denied::Stale)?;
        let cx = Cx { ident: &self.ident, blocking, sync: slot.export.sync, owner_override: true };
        let sealer = Sealer { codec: &self.shared.codec, export };
        Ok(Here { vfs, cx, export: &slot.export, handle, sealer })
    }

    /// After the reply of a call on this export that left something to do.
    pub fn after_reply(&mut self, export: u64) -> Option<Work> {
        let slot = self.slots.binary_search_by_key(&export, |s| s.export.id.into()).ok()?;
        self.slots.get_mut(slot)?.vfs.as_deref_mut()?.after_reply()
    }

    /// About once a second.
    pub fn tick(&mut self) {
        self.table();
        self.slots.iter_mut().filter_map(|s| s.vfs.as_deref_mut()).for_each(Vfs::tick);
    }
}

//! The duplicate request cache: a call that must not run twice is answered from here when it comes again.
//!
//! A client that lost the reply of a REMOVE sends the same call again, perhaps over a new connection that another worker
//! serves. Running it again would answer ENOENT. So the cache is shared by all workers and helpers of a server, and it
//! does not look at the client's port or at the transport: it keeps what follows the reply header, and the header and
//! the verifier are made anew for whoever asks.
//!
//! Only calls of procedures marked [`Repeat::Once`](crate::svc::Repeat::Once) come here. A [`Claim`] is the right to run
//! one: while it lives, duplicates are dropped; completing it keeps the results; dropping it forgets the call, so that
//! the next attempt runs.
//!
//! Two different calls are taken for one only if they agree in client address, caller, xid, program, version, procedure,
//! length and a keyed hash of all their arguments. The key of the hash is random for each cache and never leaves it, so
//! nobody can look for two calls that collide; and since address and caller belong to the key of an entry, a client could
//! deceive nobody but itself.
//!
//! Results longer than [`DrcLimits::result`] are not kept: the entry goes when the call is done, and a duplicate runs. Kept
//! results go when their time is over, or the oldest first when room is needed; entries of running calls never do.

use crate::auth::SvcCred;
use crate::xdr::Decoder;
use crate::xprt::PeerAddr;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Bytes that an entry counts beside its results: key, list and table.
const ENTRY: usize = 192;
const SHARDS: usize = 64;
/// Slot of a claim that was completed.
const SETTLED: u32 = u32::MAX;

/// Bounds of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrcLimits {
    /// Memory for entries and results, in bytes.
    pub bytes: usize,
    /// Longest result kept, in bytes. A call with a longer one is forgotten and would run again.
    pub result: usize,
    /// How long a result is kept, in milliseconds.
    pub keep_ms: u64,
}

impl Default for DrcLimits {
    /// 8 MiB, 512 bytes, 120 seconds.
    fn default() -> Self {
        DrcLimits { bytes: 8 << 20, result: 512, keep_ms: 120_000 }
    }
}

crate::counters! {
    /// What the cache did.
    #[allow(missing_docs)]
    pub struct DrcStats {
        /// Calls seen for the first time.
        pub misses: u64,
        /// Calls answered from the cache.
        pub hits: u64,
        /// Duplicates dropped because the first is still running.
        pub in_progress: u64,
        /// Calls that ran without an entry, because every entry in reach was of a running call.
        pub uncached: u64,
        /// Results too long to be kept.
        pub too_long: u64,
        /// Results that made room before their time.
        pub evicted: u64,
        /// Times that a thread had to wait for another.
        pub contended: u64,
    }
}

/// Whose call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    Inet(IpAddr),
    Local(u32),
}

/// What makes two calls the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    client: Client,
    xid: u32,
    prog: u32,
    vers: u32,
    proc: u32,
    len: u32,
    /// Of caller and arguments.
    hash: u64,
}

/// The identifying part of a call, besides its arguments.
#[derive(Debug, Clone, Copy)]
pub struct CallId<'a> {
    /// Where it came from; the port does not matter.
    pub peer: &'a PeerAddr,
    /// Who calls.
    pub cred: &'a SvcCred,
    /// Transaction id.
    pub xid: u32,
    /// Program, version, procedure.
    pub target: (u32, u32, u32),
}

#[derive(Debug)]
struct Entry {
    key: Key,
    /// `None` while the call runs.
    done: Option<Done>,
}

#[derive(Debug)]
struct Done {
    at: u64,
    results: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Shard {
    slots: slab::Slab<Entry>,
    index: HashMap<Key, usize, RandomState>,
    /// Finished calls, oldest first.
    finished: VecDeque<usize>,
    bytes: usize,
    stats: DrcStats,
}

/// Keeps neighbours from sharing a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// The cache of one server.
#[derive(Debug)]
pub struct Drc {
    shards: Box<[Padded]>,
    hasher: RandomState,
    limits: DrcLimits,
    /// Milliseconds of the clock that [`advance`](Drc::advance) tells.
    now: AtomicU64,
}

/// What is to be done with a call.
#[derive(Debug)]
pub enum Begin {
    /// Run it; `None` if it cannot be remembered.
    Run(Option<Claim>),
    /// It is running already: drop this one.
    InProgress,
    /// It ran: these were its results.
    Replay(Vec<u8>),
}

/// The right to run a call that is not to run twice.
#[derive(Debug)]
pub struct Claim {
    drc: Arc<Drc>,
    shard: u32,
    slot: u32,
}

impl Drc {
    /// An empty cache.
    pub fn new(limits: DrcLimits) -> Arc<Self> {
        Arc::new(Drc {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            hasher: RandomState::new(),
            limits,
            now: AtomicU64::new(0),
        })
    }

    /// Tells the time, in milliseconds of any monotonic clock; to be called about once a second. Earlier times than
    /// before are ignored.
    pub fn advance(&self, now_ms: u64) {
        self.now.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Sums of all shards.
    pub fn stats(&self) -> DrcStats {
        let mut sum = DrcStats::default();
        for s in &self.shards {
            sum.add(&s.0.lock().unwrap_or_else(PoisonError::into_inner).stats);
        }
        sum
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.0.lock().unwrap_or_else(PoisonError::into_inner).bytes).sum()
    }

    /// Asks what to do with a call whose arguments are in front of `args`.
    pub fn begin(self: &Arc<Self>, id: &CallId<'_>, args: &Decoder<'_>) -> Begin {
        let key = self.key(id, args);
        let at = (self.hasher.hash_one((key.hash, key.xid)) as usize) % SHARDS;
        let Some(shard) = self.shards.get(at) else { return Begin::Run(None) };
        let mut s = lock(&shard.0);
        let now = self.now.load(Ordering::Relaxed);
        s.expire(now.saturating_sub(self.limits.keep_ms));
        if let Some(slot) = s.index.get(&key).copied() {
            return match s.slots.get(slot).map(|e| &e.done) {
                Some(Some(done)) => {
                    let results = done.results.to_vec();
                    s.stats.hits += 1;
                    Begin::Replay(results)
                }
                _ => {
                    s.stats.in_progress += 1;
                    Begin::InProgress
                }
            };
        }
        if !s.make_room(ENTRY, self.limits.bytes / SHARDS) {
            s.stats.uncached += 1;
            return Begin::Run(None);
        }
        s.stats.misses += 1;
        s.bytes += ENTRY;
        let slot = s.slots.insert(Entry { key, done: None });
        s.index.insert(key, slot);
        // Shards and their entries are counted in far less than 2^32.
        Begin::Run(Some(Claim { drc: self.clone(), shard: at as u32, slot: slot as u32 }))
    }

    fn key(&self, id: &CallId<'_>, args: &Decoder<'_>) -> Key {
        let client = match id.peer {
            PeerAddr::Inet(a) => Client::Inet(a.ip()),
            PeerAddr::Local { uid, .. } => Client::Local(*uid),
        };
        let mut h = self.hasher.build_hasher();
        id.cred.hash(&mut h);
        // The same bytes in other pieces give the same hash: how a record arrived does not matter.
        std::iter::once(args.rest())
            .chain(args.spans().iter().map(|s| s.as_slice()))
            .for_each(|p| h.write(p));
        let (prog, vers, proc) = id.target;
        // Records are far shorter than 2^32 bytes.
        Key { client, xid: id.xid, prog, vers, proc, len: args.remaining() as u32, hash: h.finish() }
    }
}

fn lock(m: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    match m.try_lock() {
        Ok(s) => s,
        Err(TryLockError::Poisoned(p)) => p.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let mut s = m.lock().unwrap_or_else(PoisonError::into_inner);
            s.stats.contended += 1;
            s
        }
    }
}

impl Shard {
    /// Forgets what finished before `limit`.
    fn expire(&mut self, limit: u64) {
        while let Some(&slot) = self.finished.front()
            && self.slots.get(slot).and_then(|e| e.done.as_ref()).is_none_or(|d| d.at < limit)
        {
            self.finished.pop_front();
            self.forget(slot);
        }
    }

    /// Makes room for `more` bytes at the expense of the oldest results; never of a running call.
    fn make_room(&mut self, more: usize, limit: usize) -> bool {
        while self.bytes + more > limit {
            let Some(slot) = self.finished.pop_front() else { return false };
            self.forget(slot);
            self.stats.evicted += 1;
        }
        true
    }

    fn forget(&mut self, slot: usize) {
        if let Some(e) = self.slots.try_remove(slot) {
            self.bytes -= ENTRY + e.done.map_or(0, |d| d.results.len());
            self.index.remove(&e.key);
        }
    }
}

impl Claim {
    fn shard(&self) -> Option<MutexGuard<'_, Shard>> {
        self.drc.shards.get(self.shard as usize).map(|s| lock(&s.0))
    }

    /// Longest result that [`complete`](Claim::complete) keeps, in bytes.
    #[inline]
    pub fn result_max(&self) -> usize {
        self.drc.limits.result
    }

    /// The call ran, and these are its results: what follows the reply header. To be called before the reply is sent.
    pub fn complete(mut self, results: &[u8]) {
        if self.keep(results) {
            // The slot may get another tenant from now on.
            self.slot = SETTLED;
        }
    }

    /// The call ran, but its results are longer than [`result_max`](Claim::result_max): it is forgotten.
    pub fn too_long(self) {
        if let Some(mut s) = self.shard() {
            s.stats.too_long += 1;
        }
    }

    fn keep(&self, results: &[u8]) -> bool {
        let now = self.drc.now.load(Ordering::Relaxed);
        let limit = self.drc.limits.bytes / SHARDS;
        let Some(mut s) = self.shard() else { return false };
        if results.len() > self.drc.limits.result {
            s.stats.too_long += 1;
            return false;
        }
        if !s.make_room(results.len(), limit) {
            s.stats.uncached += 1;
            return false;
        }
        let slot = self.slot as usize;
        let Some(e) = s.slots.get_mut(slot) else { return false };
        e.done = Some(Done { at: now, results: results.into() });
        s.bytes += results.len();
        s.finished.push_back(slot);
        true
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.slot != SETTLED
            && let Some(mut s) = self.shard()
        {
            s.forget(self.slot as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smallvec::SmallVec;

    const A: &[u8] = b"arguments";

    fn peer(ip: u8, port: u16) -> PeerAddr {
        PeerAddr::Inet(([10, 0, 0, ip], port).into())
    }

    fn user(uid: u32) -> SvcCred {
        SvcCred::Sys { uid, gid: 5, gids: SmallVec::new() }
    }

    fn begin(d: &Arc<Drc>, peer: &PeerAddr, uid: u32, xid: u32, proc: u32, args: &[u8]) -> Begin {
        let cred = user(uid);
        d.begin(&CallId { peer, cred: &cred, xid, target: (7, 3, proc) }, &Decoder::new(args))
    }

    fn claim(b: Begin) -> Claim {
        match b {
            Begin::Run(Some(c)) => c,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_finished_call_is_answered_and_a_running_one_is_dropped() {
        let d = Drc::new(DrcLimits::default());
        let c = claim(begin(&d, &peer(1, 900), 0, 1, 12, A));
        assert!(matches!(begin(&d, &peer(1, 901), 0, 1, 12, A), Begin::InProgress));
        c.complete(b"results");
        match begin(&d, &peer(1, 902), 0, 1, 12, A) {
            Begin::Replay(r) => assert_eq!(&r[..], b"results"),
            other => panic!("{other:?}"),
        }
        let s = d.stats();
        assert_eq!((s.misses, s.hits, s.in_progress), (1, 1, 1));
    }

    #[test]
    fn every_part_of_the_key_tells_calls_apart() {
        let d = Drc::new(DrcLimits::default());
        claim(begin(&d, &peer(1, 900), 0, 1, 12, A)).complete(b"");
        let others = [
            begin(&d, &peer(2, 900), 0, 1, 12, A),
            begin(&d, &peer(1, 900), 1, 1, 12, A),
            begin(&d, &peer(1, 900), 0, 2, 12, A),
            begin(&d, &peer(1, 900), 0, 1, 13, A),
            begin(&d, &peer(1, 900), 0, 1, 12, b"argumentz"),
            begin(&d, &peer(1, 900), 0, 1, 12, b"arguments."),
            begin(&d, &PeerAddr::Local { uid: 0, pid: 1 }, 0, 1, 12, A),
        ];
        for b in others {
            assert!(matches!(b, Begin::Run(Some(_))), "{b:?}");
        }
        let nobody = CallId { peer: &peer(1, 900), cred: &SvcCred::None, xid: 1, target: (7, 3, 12) };
        assert!(matches!(d.begin(&nobody, &Decoder::new(A)), Begin::Run(Some(_))));
    }

    #[test]
    fn an_abandoned_call_runs_again() {
        let d = Drc::new(DrcLimits::default());
        drop(claim(begin(&d, &peer(1, 900), 0, 1, 12, A)));
        claim(begin(&d, &peer(1, 900), 0, 1, 12, A)).complete(&[0; 513]);
        assert_eq!((d.stats().too_long, d.bytes()), (1, 0));
        drop(claim(begin(&d, &peer(1, 900), 0, 1, 12, A)));
    }

    #[test]
    fn results_expire() {
        let d = Drc::new(DrcLimits { keep_ms: 1000, ..DrcLimits::default() });
        d.advance(5000);
        claim(begin(&d, &peer(1, 900), 0, 1, 12, A)).complete(b"r");
        d.advance(6000);
        assert!(matches!(begin(&d, &peer(1, 900), 0, 1, 12, A), Begin::Replay(_)));
        d.advance(6001);
        assert!(matches!(begin(&d, &peer(1, 900), 0, 1, 12, A), Begin::Run(Some(_))));
    }

    #[test]
    fn running_calls_are_never_evicted() {
        let d = Drc::new(DrcLimits { bytes: SHARDS * 2 * ENTRY, ..DrcLimits::default() });
        let p = peer(1, 900);
        let running: Vec<_> = (0..1000).map(|xid| begin(&d, &p, 0, xid, 12, A)).collect();
        let claimed = running.iter().filter(|b| matches!(b, Begin::Run(Some(_)))).count();
        assert!(d.stats().uncached > 0 && d.bytes() <= SHARDS * 2 * ENTRY);
        assert_eq!(claimed as u64 + d.stats().uncached, 1000);
        for (xid, b) in (0..).zip(&running) {
            if matches!(b, Begin::Run(Some(_))) {
                assert!(matches!(begin(&d, &p, 0, xid, 12, A), Begin::InProgress));
            }
        }
        drop(running);
        assert_eq!(d.bytes(), 0);
    }

    proptest! {
        /// Whatever happens in whatever order: the bound holds, nothing leaks, and no call runs while it runs.
        #[test]
        fn any_sequence(ops in prop::collection::vec((0u32..12, 0u8..4, 0usize..600, 0u64..400), 1..300)) {
            let limit = SHARDS * 3 * ENTRY;
            let d = Drc::new(DrcLimits { bytes: limit, keep_ms: 1000, result: 512 });
            let p = peer(1, 900);
            let mut running: HashMap<u32, Claim> = HashMap::new();
            let mut now = 0;
            for (xid, op, len, ms) in ops {
                now += ms;
                d.advance(now);
                match op {
                    0 | 1 => match begin(&d, &p, 0, xid, 12, A) {
                        Begin::Run(Some(c)) => prop_assert!(running.insert(xid, c).is_none()),
                        Begin::InProgress => prop_assert!(running.contains_key(&xid)),
                        Begin::Run(None) | Begin::Replay(_) => prop_assert!(!running.contains_key(&xid)),
                    },
                    2 => if let Some(c) = running.remove(&xid) { c.complete(&vec![1; len]) },
                    _ => drop(running.remove(&xid)),
                }
                prop_assert!(d.bytes() <= limit);
            }
            running.clear();
            d.advance(now + 2000);
            // Every shard looks at its clock when a call comes.
            for xid in 100..4000 {
                drop(begin(&d, &p, 0, xid, 12, A));
            }
            prop_assert_eq!(d.bytes(), 0);
        }
    }
}

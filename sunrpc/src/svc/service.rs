//! One call from header to reply.

use super::call::{Call, RpcError};
use super::job::{Mailbox, Work};
use super::{Dispatch, Flow, ProcInfo, Program, Repeat};
use crate::auth::{AuthFlavor, AuthNone, AuthSys, PROTECTION_MAX, SvcCred, Verdict};
use crate::drc::{Begin, CallId, Claim, Drc};
use crate::msg::{self, AcceptStat, AuthStat, CallHeader, HeaderError, OpaqueAuth, Parsed};
use crate::mutate;
use crate::page::{Mark, PagePool, PageWriter, Payload, RecordPages, Shared, XdrBuf};
use crate::record::{Bulk, LAST_FRAGMENT, Record};
use crate::xdr::{Decoder, XdrError, XdrWrite};
use crate::xprt::{Route, XprtCaps, XprtId};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;

/// Bytes of the largest reply header: mark, header, verifier, mismatch range.
const MAX_HEADER: usize = 4 + 24 + 400 + 8;

/// Where a call came from.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The other end, and the way back.
    pub route: &'a Route,
    /// The transport's properties.
    pub caps: &'a XprtCaps,
    /// The transport.
    pub xprt: XprtId,
    /// The owner's mailbox.
    pub mailbox: &'a Arc<dyn Mailbox>,
    /// True on helper threads.
    pub blocking: bool,
    /// An earlier call validated the connection; never so for datagrams.
    pub validated: bool,
}

/// What became of a record.
#[derive(Debug)]
pub enum Disposition {
    /// A reply was appended to the output.
    Reply {
        /// The call validates its connection.
        validated: bool,
    },
    /// No reply, and none will come.
    Nothing,
    /// The procedure wants to wait: run the record again on a helper.
    WouldBlock {
        /// The call validates its connection.
        validated: bool,
        /// To be given back with the record.
        claim: Option<Claim>,
    },
    /// A responder will deliver the reply.
    Later {
        /// The call validates its connection.
        validated: bool,
    },
    /// The record is no call: close the transport.
    Close,
}

crate::counters! {
    /// Counters of one thread's service.
    #[allow(missing_docs)]
    pub struct ServiceStats {
        pub calls: u64,
        pub accepted: u64,
        pub garbage_args: u64,
        pub system_err: u64,
        pub unavailable: u64,
        pub auth_errors: u64,
        pub would_block: u64,
        pub later: u64,
        pub dropped: u64,
        /// Records copied into one piece because arguments crossed into their pages.
        pub linearized: u64,
        /// Records whose pages an argument took along instead of copying them.
        pub moved: u64,
        /// Calls whose release ran.
        pub released: u64,
    }
}

crate::counters! {
    /// Counters of one procedure on one thread.
    pub struct ProcStats {
        /// Calls that arrived for it, duplicates included. One that goes on to a helper counts where it arrived.
        pub calls: u64,
        /// Calls that went to a helper.
        pub waited: u64,
        /// Calls answered from the duplicate request cache.
        pub replayed: u64,
        /// Replies with an error of RPC: arguments, authentication, system. A procedure's own status is a result.
        pub errors: u64,
        /// Calls that got no reply.
        pub dropped: u64,
    }
}

/// One procedure and what a thread counted of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcCounts {
    /// Program number.
    pub prog: u32,
    /// Version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// The program's name for people.
    pub program: &'static str,
    /// The procedure's name, as in the .x file.
    pub procedure: &'static str,
    /// The counters.
    pub stats: ProcStats,
}

struct Bound {
    prog: u32,
    vers: u32,
    procs: &'static [ProcInfo],
    program: Arc<dyn Program>,
    /// Index into `dispatchers`.
    dispatcher: usize,
    /// As long as `procs`.
    counts: Box<[ProcStats]>,
}

/// One thread's instance of everything that runs calls.
pub struct Service {
    bound: Vec<Bound>,
    dispatchers: Vec<Box<dyn Dispatch>>,
    flavors: Vec<Box<dyn AuthFlavor>>,
    drc: Option<Arc<Drc>>,
    stats: ServiceStats,
    /// The reply at hand could not be protected.
    unprotected: bool,
    /// Calls of this turn that have something to release: dispatcher and token.
    releases: Vec<(usize, u64)>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Service {
    /// Attaches the calling thread to every program. AUTH_NONE and AUTH_SYS are always understood.
    pub fn attach(programs: &[Arc<dyn Program>]) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut s = Service {
            bound: Vec::new(),
            dispatchers: Vec::new(),
            flavors: vec![Box::new(AuthSys), Box::new(AuthNone)],
            drc: None,
            stats: ServiceStats::default(),
            unprotected: false,
            releases: Vec::new(),
        };
        for p in programs {
            s.dispatchers.push(p.attach()?);
            s.bound.extend(p.versions().iter().map(|v| Bound {
                prog: p.number(),
                vers: v.vers,
                procs: v.procs,
                program: p.clone(),
                dispatcher: s.dispatchers.len() - 1,
                counts: vec![ProcStats::default(); v.procs.len()].into(),
            }));
        }
        Ok(s)
    }

    /// Adds a flavor.
    pub fn add_flavor(&mut self, flavor: Box<dyn AuthFlavor>) {
        self.flavors.push(flavor);
    }

    /// Answers repeated calls of procedures that must not run twice from this cache, which all threads of a server
    /// share. Without one they run again.
    pub fn set_duplicate_cache(&mut self, drc: Arc<Drc>) {
        self.drc = Some(drc);
    }

    /// Counters since attaching.
    pub fn stats(&self) -> ServiceStats {
        self.stats
    }

    /// Counters of every procedure since attaching, in an order that is the same on every thread.
    pub fn procedures(&self) -> impl Iterator<Item = ProcCounts> {
        self.bound.iter().flat_map(|b| {
            let rows = (0..).zip(b.procs).zip(&b.counts).filter(|((_, p), _)| !p.name.is_empty());
            rows.map(|((proc, p), stats)| ProcCounts {
                prog: b.prog,
                vers: b.vers,
                proc,
                program: b.program.name(),
                procedure: p.name,
                stats: *stats,
            })
        })
    }

    /// Counts something of a procedure that was found.
    #[inline]
    fn count(&mut self, at: usize, proc: u32, what: impl FnOnce(&mut ProcStats)) {
        if let Some(c) = self.bound.get_mut(at).and_then(|b| b.counts.get_mut(proc as usize)) {
            what(c);
        }
    }

    /// Runs [`Dispatch::release`] for the calls since the last time, now that their replies are on their way. What
    /// may wait goes to `later`.
    #[inline]
    pub fn release(&mut self, mut later: impl FnMut(Work)) {
        if self.releases.is_empty() {
            return;
        }
        for (at, token) in self.releases.drain(..) {
            self.stats.released += 1;
            if let Some(work) = self.dispatchers.get_mut(at).and_then(|d| d.release(token)) {
                later(work);
            }
        }
    }

    /// About once a second; `now` is in milliseconds of any monotonic clock.
    pub fn tick(&mut self, now: u64) {
        if let Some(drc) = &self.drc {
            drc.advance(now);
        }
        self.dispatchers.iter_mut().for_each(|d| d.tick());
    }

    /// Where the bulk data of a call begins whose record begins with `head`, if its program knows and the data goes on
    /// behind `head`. What a flavor wraps up is not looked into.
    pub fn bulk_at(&self, head: &[u8]) -> Option<Bulk> {
        let mut d = Decoder::new(head);
        let Ok(Parsed::Call(h)) = msg::parse(&mut d) else { return None };
        let plain = self.flavors.iter().any(|f| f.flavor() == h.cred.flavor && !f.protects(&h));
        let (at, _) = self.find(&h).ok().filter(|_| plain)?;
        let lead = self.bound.get(at)?.program.bulk_at(h.vers, h.proc, &mut d)?;
        let len = d.u32().ok()? as usize;
        let rest = d.rest().len();
        (len > rest).then_some(Bulk { at: head.len() - rest, lead })
    }

    /// Runs the call in `rec` and appends its reply to `out`, record mark included on streams. `claim` is what came
    /// with [`Disposition::WouldBlock`] when the call was first tried.
    pub fn process(
        &mut self,
        rec: Record<'_>,
        env: &Env<'_>,
        claim: Option<Claim>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
    ) -> Disposition {
        self.process_args(Decoder::with_pages(rec.head, rec.spans), None, env, claim, out, pool)
    }

    /// The same for a record whose pages an owned argument may take along. They are back in `pages` where the record is
    /// needed again.
    pub fn process_owned(
        &mut self,
        head: &[u8],
        pages: &RecordPages,
        env: &Env<'_>,
        claim: Option<Claim>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
    ) -> Disposition {
        let done = self.process_args(Decoder::with_record(head, pages), Some(pages), env, claim, out, pool);
        self.stats.moved += u64::from(pages.is_taken());
        done
    }

    fn process_args(
        &mut self,
        mut d: Decoder<'_>,
        pages: Option<&RecordPages>,
        env: &Env<'_>,
        mut claim: Option<Claim>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
    ) -> Disposition {
        self.stats.calls += 1;
        let start = out.mark();
        let h = match msg::parse(&mut d) {
            Ok(Parsed::Call(h)) => h,
            Ok(Parsed::WrongVersion { xid }) => {
                return self.plain(env, out, pool, |w| msg::put_rpc_mismatch(w, xid));
            }
            Ok(Parsed::Reply { .. }) | Err(HeaderError::NotRpc) => return Disposition::Close,
            Err(HeaderError::Damaged { xid, auth: true, .. }) => {
                self.stats.auth_errors += 1;
                return self.plain(env, out, pool, |w| msg::put_auth_error(w, xid, AuthStat::BadCred));
            }
            Err(HeaderError::Damaged { xid, .. }) => {
                self.stats.garbage_args += 1;
                return self.accept_error(env, out, pool, xid, AcceptStat::GarbageArgs);
            }
        };
        let cred = match self.authenticate(&h) {
            Verdict::Accept(cred) => cred,
            Verdict::Reject(stat) => {
                self.stats.auth_errors += 1;
                return self.plain(env, out, pool, |w| msg::put_auth_error(w, h.xid, stat));
            }
            Verdict::Drop => {
                self.stats.dropped += 1;
                return Disposition::Nothing;
            }
        };
        let (at, info) = match self.find(&h) {
            Ok(found) => found,
            Err(stat) => {
                self.stats.unavailable += 1;
                return self.accept_error(env, out, pool, h.xid, stat);
            }
        };
        let proc = h.proc;
        if !env.blocking {
            self.count(at, proc, |c| c.calls += 1);
        }
        if info.repeat == Repeat::Once && claim.is_none() {
            match self.begin(at, &h, &cred, &d, env) {
                Begin::Run(c) => claim = c,
                Begin::InProgress => {
                    self.count(at, proc, |c| c.dropped += 1);
                    return Disposition::Nothing;
                }
                Begin::Replay(results) => {
                    self.count(at, proc, |c| c.replayed += 1);
                    return self.replay(env, out, pool, &h, &results);
                }
            }
        }
        if info.blocking && !env.blocking {
            self.stats.would_block += 1;
            self.count(at, proc, |c| c.waited += 1);
            return Disposition::WouldBlock { validated: self.validates(at, env), claim };
        }
        let r = self.run(at, &info, &h, &cred, d.clone(), env, &mut claim, out, pool);
        let r = match r {
            Err(RpcError::GarbageArgs(XdrError::Split)) => {
                // Arguments other than a bulk opaque reach into the pages: one counted copy makes the record
                // contiguous. Its size was bounded when it was received.
                self.stats.linearized += 1;
                out.truncate(start, pool);
                let mut flat = d.rest().to_vec();
                d.spans().iter().for_each(|s| flat.extend_from_slice(s.as_slice()));
                self.run(at, &info, &h, &cred, Decoder::new(&flat), env, &mut claim, out, pool)
            }
            r => r,
        };
        let xid = h.xid;
        match r {
            Ok(Flow::Done) => {
                self.stats.accepted += 1;
                return Disposition::Reply { validated: self.validates(at, env) };
            }
            // A procedure that keeps its argument has changed something: it must not run again.
            Ok(Flow::WouldBlock) if !env.blocking && pages.is_none_or(RecordPages::restore) => {
                out.truncate(start, pool);
                self.stats.would_block += 1;
                self.count(at, proc, |c| c.waited += 1);
                return Disposition::WouldBlock { validated: self.validates(at, env), claim };
            }
            Ok(Flow::Later) => {
                out.truncate(start, pool);
                self.stats.later += 1;
                return Disposition::Later { validated: self.validates(at, env) };
            }
            Err(RpcError::Drop) => {
                out.truncate(start, pool);
                self.stats.dropped += 1;
                self.count(at, proc, |c| c.dropped += 1);
                let close = std::mem::take(&mut self.unprotected);
                return if close { Disposition::Close } else { Disposition::Nothing };
            }
            Ok(Flow::WouldBlock) | Err(_) => out.truncate(start, pool),
        }
        self.count(at, proc, |c| c.errors += 1);
        match r {
            Err(RpcError::GarbageArgs(_)) => {
                self.stats.garbage_args += 1;
                self.accept_error(env, out, pool, xid, AcceptStat::GarbageArgs)
            }
            Err(RpcError::ProcUnavail) => {
                self.stats.unavailable += 1;
                self.accept_error(env, out, pool, xid, AcceptStat::ProcUnavail)
            }
            Err(RpcError::Auth(stat)) => {
                self.stats.auth_errors += 1;
                self.plain(env, out, pool, |w| msg::put_auth_error(w, xid, stat))
            }
            _ => {
                self.stats.system_err += 1;
                self.accept_error(env, out, pool, xid, AcceptStat::SystemErr)
            }
        }
    }

    /// Whether the call that the authenticator accepted validates its connection: the program's word, asked for
    /// until it is given once.
    #[inline]
    fn validates(&self, at: usize, env: &Env<'_>) -> bool {
        env.validated || self.bound.get(at).is_some_and(|b| b.program.admits(&env.route.peer))
    }

    /// What the duplicate request cache says. Calls that no export admits must not push out others' results.
    fn begin(
        &self,
        at: usize,
        h: &CallHeader<'_>,
        cred: &SvcCred,
        args: &Decoder<'_>,
        env: &Env<'_>,
    ) -> Begin {
        match &self.drc {
            Some(drc) if self.validates(at, env) => {
                let target = (h.prog, h.vers, h.proc);
                drc.begin(&CallId { peer: &env.route.peer, cred, xid: h.xid, target }, args)
            }
            _ => Begin::Run(None),
        }
    }

    fn authenticate(&mut self, h: &CallHeader<'_>) -> Verdict {
        match self.flavors.iter_mut().find(|f| f.flavor() == h.cred.flavor) {
            Some(f) => f.authenticate(h),
            None => Verdict::Reject(AuthStat::BadCred),
        }
    }

    /// Program, version and procedure of a call.
    #[inline]
    fn find(&self, h: &CallHeader<'_>) -> Result<(usize, ProcInfo), AcceptStat> {
        let Some((i, b)) = self.bound.iter().enumerate().find(|(_, b)| b.prog == h.prog && b.vers == h.vers)
        else {
            let mut vers = self.bound.iter().filter(|b| b.prog == h.prog).map(|b| b.vers);
            let Some(first) = vers.next() else { return Err(AcceptStat::ProgUnavail) };
            let (low, high) = vers.fold((first, first), |(l, h), v| (l.min(v), h.max(v)));
            return Err(AcceptStat::ProgMismatch { low, high });
        };
        match b.procs.get(h.proc as usize) {
            Some(p) if !p.name.is_empty() => Ok((i, *p)),
            _ => Err(AcceptStat::ProcUnavail),
        }
    }

    #[allow(clippy::too_many_arguments)] // the pieces of one call; a struct would only rename them
    #[inline]
    fn run(
        &mut self,
        at: usize,
        info: &ProcInfo,
        h: &CallHeader<'_>,
        cred: &SvcCred,
        mut args: Decoder<'_>,
        env: &Env<'_>,
        claim: &mut Option<Claim>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
    ) -> Result<Flow, RpcError> {
        let full = |_| RpcError::SystemErr;
        let before = out.len();
        let mut most = info.max_result;
        if !env.caps.stream {
            // A reply is one datagram: bulk and what comes with it, or SYSTEM_ERR.
            most = most.min(env.caps.max_payload + 4096);
        }
        let private = self.flavors.iter().any(|f| f.flavor() == h.cred.flavor && f.protects(h));
        if private {
            most += PROTECTION_MAX as u32;
        }
        let mut w = PageWriter::new(out, pool, most as usize + MAX_HEADER);
        // Record mark and header in one piece.
        let mark = if env.caps.stream { Some(w.reserve(28).map_err(full)?) } else { None };
        let header = match mark {
            Some(slot) => w.slot_mut(slot).last_chunk_mut::<24>().ok_or(RpcError::SystemErr)?,
            None => w.chunk::<24>().map_err(full)?,
        };
        *header = msg::success_header(h.xid);
        let results = w.written();
        let begin = if private { Some(w.begin_page().map_err(full)?) } else { None };
        let mut cx = Call {
            xid: h.xid,
            prog: h.prog,
            vers: h.vers,
            proc: h.proc,
            cred,
            peer: &env.route.peer,
            caps: env.caps,
            blocking: env.blocking || mutate::on("inline-blocking"),
            private: private && !mutate::on("lend-protected"),
            mailbox: env.mailbox,
            xprt: env.xprt,
            route: env.route,
            claim: Cell::new(claim.take()),
            release: Cell::new(None),
        };
        let at = self.bound.get(at).map_or(usize::MAX, |b| b.dispatcher);
        let dispatcher = self.dispatchers.get_mut(at).ok_or(RpcError::SystemErr)?;
        let flow = dispatcher.call(&mut cx, &mut args, &mut w);
        *claim = cx.claim.take();
        if let Some(token) = cx.release.take() {
            self.releases.push((at, token));
            if mutate::on("release-twice") {
                self.releases.push((at, token));
            }
            if mutate::on("release-early") {
                self.release(|work| work());
            }
        }
        let flow = flow?;
        if flow == Flow::Done {
            if let Some(claim) = claim.take() {
                remember(claim, &w, results);
            }
            if let Some(begin) = begin {
                self.protect(h, begin, &mut w)?;
            }
        }
        if let (Flow::Done, Some(slot)) = (flow, mark) {
            // `max_result` is a u32 far below 2^31, checked by the writer's limit.
            let len = (w.written() - before - 4) as u32;
            if let Some(mark) = w.slot_mut(slot).first_chunk_mut::<4>() {
                *mark = (len | LAST_FRAGMENT).to_be_bytes();
            }
        }
        Ok(flow)
    }

    /// Lets the flavor of a call protect its results, which were written since `begin`.
    fn protect(&mut self, h: &CallHeader<'_>, begin: Mark, w: &mut PageWriter<'_>) -> Result<(), RpcError> {
        self.unprotected = true;
        let results = w.split_off(begin);
        let flavor = self.flavors.iter_mut().find(|f| f.flavor() == h.cred.flavor).ok_or(RpcError::Drop)?;
        if mutate::on("lend-protected") {
            return protect_a_copy(&mut **flavor, h, results, w);
        }
        let results = results.make_private(w.pool()).ok_or(RpcError::Drop)?;
        let protected = flavor.protect(h, results, w.pool()).ok_or(RpcError::Drop)?;
        w.put_shared(protected.into()).map_err(|_| RpcError::Drop)?;
        self.unprotected = false;
        Ok(())
    }

    /// Answers a call that ran before with the results it had. A flavor that protects replies does so anew.
    fn replay(
        &mut self,
        env: &Env<'_>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
        h: &CallHeader<'_>,
        results: &[u8],
    ) -> Disposition {
        let private = self.flavors.iter().any(|f| f.flavor() == h.cred.flavor && f.protects(h));
        let limit = MAX_HEADER + results.len() + PROTECTION_MAX;
        let d = whole(env, out, pool, limit, true, |w| {
            w.put(&msg::success_header(h.xid))?;
            if !private {
                return w.put(results);
            }
            let begin = w.begin_page()?;
            w.put(results)?;
            self.protect(h, begin, w).map_err(|_| XdrError::Full)
        });
        if std::mem::take(&mut self.unprotected) { Disposition::Close } else { d }
    }

    fn accept_error(
        &mut self,
        env: &Env<'_>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
        xid: u32,
        stat: AcceptStat,
    ) -> Disposition {
        self.plain(env, out, pool, |w| msg::put_accept_error(w, xid, OpaqueAuth::NONE, stat))
    }

    /// Appends a reply that consists of a header only.
    fn plain(
        &mut self,
        env: &Env<'_>,
        out: &mut XdrBuf,
        pool: &mut PagePool,
        header: impl FnOnce(&mut PageWriter<'_>) -> Result<(), XdrError>,
    ) -> Disposition {
        whole(env, out, pool, MAX_HEADER, false, header)
    }
}

/// Appends a reply of at most `limit` bytes that `body` writes from its header on.
fn whole(
    env: &Env<'_>,
    out: &mut XdrBuf,
    pool: &mut PagePool,
    limit: usize,
    validated: bool,
    body: impl FnOnce(&mut PageWriter<'_>) -> Result<(), XdrError>,
) -> Disposition {
    let start = out.mark();
    let before = out.len();
    let mut w = PageWriter::new(out, pool, limit);
    let r = (|| {
        let mark = if env.caps.stream { Some(w.reserve(4)?) } else { None };
        body(&mut w)?;
        if let Some(slot) = mark {
            let len = (w.written() - before - 4) as u32;
            w.slot_mut(slot).copy_from_slice(&(len | LAST_FRAGMENT).to_be_bytes());
        }
        Ok::<_, XdrError>(())
    })();
    match r {
        Ok(()) => Disposition::Reply { validated },
        Err(_) => {
            // No page even for an error: the caller will ask again.
            out.truncate(start, pool);
            Disposition::Nothing
        }
    }
}

/// Keeps the plain results of a call, which begin `from` bytes into the output, for its duplicates.
fn remember(claim: Claim, w: &PageWriter<'_>, from: usize) {
    if w.written() - from > claim.result_max() {
        return claim.too_long();
    }
    let mut results = SmallVec::<[u8; 512]>::new();
    w.copy_tail(from, &mut results);
    claim.complete(&results);
}

/// The fault `lend-protected`: protects a copy of the results, and sends those that others may change meanwhile.
#[cold]
fn protect_a_copy(
    flavor: &mut dyn AuthFlavor,
    h: &CallHeader<'_>,
    results: Payload<Shared>,
    w: &mut PageWriter<'_>,
) -> Result<(), RpcError> {
    let copy = results.copy_private(w.pool()).ok_or(RpcError::Drop)?;
    let plain = copy.len();
    let protected = flavor.protect(h, copy, w.pool()).ok_or(RpcError::Drop)?;
    let added = protected.to_vec().split_off(plain);
    protected.recycle(w.pool());
    w.put_shared(results).and_then(|()| w.put(&added)).map_err(|_| RpcError::Drop)
}

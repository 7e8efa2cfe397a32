//! The operations, and the calls they are made of, encoded once.

use crate::error::{BenchError, Result};
use crate::setup::{Rpc, create_args};
use crate::xdr::{self, Caller, ECHO, ECHO_SAY, Enc, NFS, proc3};
use clap::ValueEnum;

/// WRITE payloads up to this size travel in the call's buffer, larger ones by sendfile.
const INLINE_PAYLOAD: u32 = 16 << 10;

/// What a run consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// NULL: the RPC layer alone
    Null,
    /// GETATTR of --file, or of --targets files of --dir
    Getattr,
    /// LOOKUP of --file in the root, or of --targets names in --dir
    Lookup,
    /// ACCESS of --file, or of --targets files of --dir
    Access,
    /// READ of --bytes (4 KiB) at random aligned offsets of --file
    Read,
    /// READ of --bytes (1 MiB), each connection sequentially through --file
    Read1m,
    /// UNSTABLE WRITE of --bytes (4 KiB), sequentially into a file per connection, and COMMIT
    Write,
    /// UNSTABLE WRITE of --bytes (1 MiB), sequentially into a file per connection, and COMMIT
    Write1m,
    /// Three READs to two UNSTABLE WRITEs of --bytes (1 MiB), sequentially through the first three fifths of --file and
    /// through the rest of it, and COMMIT
    Mix1m,
    /// CREATE and REMOVE in turn, an own name per connection and slot; each counts as one operation
    Create,
    /// READDIRPLUS of the whole --dir again and again, --bytes (64 KiB) a reply
    Readdirplus,
    /// Plain RPC, without NFS: NULL of the echo service
    RpcNull,
    /// Plain RPC: --bytes (1 MiB) to the echo service and back
    Echo,
}

impl Op {
    /// Bytes moved by a call unless told otherwise.
    pub(crate) fn default_bytes(self) -> u32 {
        match self {
            Self::Read | Self::Write => 4 << 10,
            Self::Read1m | Self::Write1m | Self::Mix1m | Self::Echo => 1 << 20,
            Self::Readdirplus => 64 << 10,
            _ => 0,
        }
    }

    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Read1m)
    }

    /// Whether the server is the echo service: nothing is mounted.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::RpcNull | Self::Echo)
    }

    /// Whether a reply may hold much more than what is looked at.
    pub(crate) fn brings_bytes(self) -> bool {
        self.is_read() || matches!(self, Self::Mix1m | Self::Echo)
    }

    /// Whether a reply has nothing behind the RPC header, or no status there.
    pub(crate) fn lacks_status(self) -> bool {
        self == Self::Null || self.is_plain()
    }

    /// Whether COMMITs belong to it.
    pub(crate) fn commits(self) -> bool {
        matches!(self, Self::Write | Self::Write1m | Self::Mix1m)
    }

    /// Whether call number `n` of a connection is a WRITE.
    pub(crate) fn writes(self, n: u64) -> bool {
        match self {
            Self::Write | Self::Write1m => true,
            Self::Mix1m => n * 2 % 5 < 2,
            _ => false,
        }
    }
}

/// An encoded call.
#[derive(Debug, Default)]
pub(crate) struct Template {
    /// Record mark, header and arguments; xid zero.
    pub(crate) bytes: Vec<u8>,
    /// Where the offset or cookie stands, or 0.
    pub(crate) patch: usize,
    /// Payload that follows from the payload file.
    pub(crate) payload: u32,
}

impl Template {
    fn new(mut e: Enc, patch: usize, payload: u32) -> Self {
        e.close(payload);
        Self { bytes: e.0, patch, payload }
    }
}

/// Which templates a slot uses: one of `first..first + count`, then (CREATE, WRITE) perhaps `second`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) second: usize,
}

/// Everything the calls of a run need.
pub(crate) struct Plan {
    pub(crate) op: Op,
    pub(crate) bytes: u32,
    /// Size of --file, for READs and the mix.
    pub(crate) file_size: u64,
    pub(crate) templates: Vec<Template>,
    /// By connection and slot: `choices[conn * depth + slot]`.
    pub(crate) choices: Vec<Choice>,
    /// Names in `work_dir` to be removed at the end.
    pub(crate) litter: Vec<String>,
    pub(crate) work_dir: Vec<u8>,
}

/// What a plan is made from.
pub(crate) struct PlanOptions<'a> {
    pub(crate) op: Op,
    pub(crate) bytes: u32,
    pub(crate) conns: usize,
    pub(crate) depth: usize,
    pub(crate) file: &'a str,
    pub(crate) dir: &'a str,
    pub(crate) work_dir: &'a str,
    /// Where WRITEs go, in place of files that are made and removed.
    pub(crate) into: Option<&'a str>,
    pub(crate) targets: usize,
    pub(crate) caller: Caller,
}

impl Plan {
    /// Looks up what the calls need below `root` and encodes them.
    pub(crate) fn new(rpc: &mut Rpc, root: &[u8], o: &PlanOptions<'_>) -> Result<Self> {
        let mut plan = Self {
            op: o.op,
            bytes: o.bytes,
            file_size: 0,
            templates: Vec::new(),
            choices: Vec::new(),
            litter: Vec::new(),
            work_dir: root.to_vec(),
        };
        let call = |procedure| xdr::call(Some(o.caller), NFS, procedure);
        match o.op {
            Op::Null => plan.shared([xdr::call(None, NFS, proc3::NULL)], o),
            Op::RpcNull => plan.shared([xdr::call(None, ECHO, proc3::NULL)], o),
            Op::Echo => plan.echo(rpc, o)?,
            Op::Getattr | Op::Access | Op::Lookup => {
                let (dir, targets) = targets(rpc, root, o)?;
                let encode = |(name, fh): &(Vec<u8>, Vec<u8>)| match o.op {
                    Op::Getattr => call(proc3::GETATTR).opaque(fh).clone(),
                    Op::Access => call(proc3::ACCESS).opaque(fh).u32(0x3f).clone(),
                    _ => call(proc3::LOOKUP).opaque(&dir).opaque(name).clone(),
                };
                plan.shared(targets.iter().map(encode), o);
            }
            Op::Read | Op::Read1m => {
                plan.reads(rpc, root, o)?;
                plan.choose(0, 1, o);
            }
            Op::Mix1m => {
                if o.conns > 1 {
                    return Err(BenchError::Usage("--op mix1m is of one connection".into()));
                }
                let fh = plan.reads(rpc, root, o)?;
                let blocks = plan.file_size / u64::from(o.bytes);
                if blocks < 5 {
                    return Err(BenchError::Usage(format!("{}: the mix needs 5 MiB", o.file)));
                }
                plan.write_calls(&fh, o)?;
                // WRITE is the template behind that of READ; see `Load::issue`.
                plan.choices = vec![Choice { first: 0, count: 1, second: 2 }; o.depth];
            }
            Op::Readdirplus => {
                let fh = rpc.walk(root, o.dir)?;
                let mut e = call(proc3::READDIRPLUS);
                let patch = e.opaque(&fh).0.len();
                e.u64(0).u64(0).u32(o.bytes).u32(o.bytes);
                plan.templates.push(Template::new(e, patch, 0));
                plan.choose(0, 1, o);
            }
            Op::Write | Op::Write1m => plan.writes(rpc, root, o)?,
            Op::Create => {
                plan.work_dir = rpc.walk(root, o.work_dir)?;
                for i in 0..o.conns * o.depth {
                    let name = format!("nfsbench-{}-{i}", std::process::id());
                    let mut create = call(proc3::CREATE);
                    create_args(&mut create, &plan.work_dir, &name, false);
                    let remove = call(proc3::REMOVE).opaque(&plan.work_dir).opaque(name.as_bytes()).clone();
                    plan.choices.push(Choice { first: i * 2, count: 1, second: i * 2 + 1 });
                    plan.templates.push(Template::new(create, 0, 0));
                    plan.templates.push(Template::new(remove, 0, 0));
                }
            }
        }
        Ok(plan)
    }

    /// Where the WRITEs of the mix begin.
    pub(crate) fn split(&self) -> u64 {
        let size = u64::from(self.bytes.max(1));
        self.file_size / size * 3 / 5 * size
    }

    /// Calls that any slot may make.
    fn shared(&mut self, calls: impl IntoIterator<Item = Enc>, o: &PlanOptions<'_>) {
        self.templates.extend(calls.into_iter().map(|e| Template::new(e, 0, 0)));
        self.choose(0, self.templates.len(), o);
    }

    fn choose(&mut self, first: usize, count: usize, o: &PlanOptions<'_>) {
        self.choices = vec![Choice { first, count, second: first }; o.conns * o.depth];
    }

    /// Says something once to see that it comes back, then only lengths are looked at.
    fn echo(&mut self, rpc: &mut Rpc, o: &PlanOptions<'_>) -> Result<()> {
        if o.bytes == 0 || !o.bytes.is_multiple_of(4) {
            return Err(BenchError::Usage(format!("--bytes {}: the echo needs a multiple of 4", o.bytes)));
        }
        let said: Vec<u8> = (0..o.bytes).map(|i| (i % 251) as u8).collect();
        let mut e = rpc.call(ECHO, ECHO_SAY);
        e.opaque(&said);
        if rpc.run("echo", e, |d| Ok(d.opaque()? == said))? {
            let mut e = xdr::call(None, ECHO, ECHO_SAY);
            e.u32(o.bytes);
            self.templates.push(Template::new(e, 0, o.bytes));
            self.choose(0, 1, o);
            return Ok(());
        }
        Err(BenchError::Reply("the echo is not what was said".into()))
    }

    /// READ of --file, which is at least as long as one of them.
    fn reads(&mut self, rpc: &mut Rpc, root: &[u8], o: &PlanOptions<'_>) -> Result<Vec<u8>> {
        let fh = rpc.walk(root, o.file)?;
        self.file_size = rpc.size(&fh)?;
        if self.file_size < u64::from(o.bytes) || o.bytes == 0 {
            let e = format!("{} has {} bytes: too small to read {}", o.file, self.file_size, o.bytes);
            return Err(BenchError::Usage(e));
        }
        let mut e = xdr::call(Some(o.caller), NFS, proc3::READ);
        let patch = e.opaque(&fh).0.len();
        e.u64(0).u32(o.bytes);
        self.templates.push(Template::new(e, patch, 0));
        Ok(fh)
    }

    fn writes(&mut self, rpc: &mut Rpc, root: &[u8], o: &PlanOptions<'_>) -> Result<()> {
        if let Some(path) = o.into {
            if o.conns > 1 {
                return Err(BenchError::Usage("--into is for one connection".into()));
            }
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let dir = rpc.walk(root, parent)?;
            let fh = rpc.create(&dir, name, false)?;
            self.write_calls(&fh, o)?;
            self.choices = vec![Choice { first: 0, count: 1, second: 1 }; o.depth];
            return Ok(());
        }
        self.work_dir = rpc.walk(root, o.work_dir)?;
        for conn in 0..o.conns {
            let name = format!("nfsbench-{}-{conn}", std::process::id());
            let fh = rpc.create(&self.work_dir, &name, true)?;
            self.litter.push(name);
            self.write_calls(&fh, o)?;
            let choice = Choice { first: conn * 2, count: 1, second: conn * 2 + 1 };
            self.choices.extend(std::iter::repeat_n(choice, o.depth));
        }
        Ok(())
    }

    /// WRITE into a file, and COMMIT of it.
    fn write_calls(&mut self, fh: &[u8], o: &PlanOptions<'_>) -> Result<()> {
        if o.bytes == 0 || !o.bytes.is_multiple_of(4) {
            return Err(BenchError::Usage(format!("--bytes {}: WRITE needs a multiple of 4", o.bytes)));
        }
        let mut e = xdr::call(Some(o.caller), NFS, proc3::WRITE);
        let patch = e.opaque(fh).0.len();
        // offset, count, UNSTABLE, length of the data
        e.u64(0).u32(o.bytes).u32(0).u32(o.bytes);
        let payload = if o.bytes <= INLINE_PAYLOAD {
            e.0.resize(e.0.len() + o.bytes as usize, 0x5a);
            0
        } else {
            o.bytes
        };
        self.templates.push(Template::new(e, patch, payload));
        let commit = xdr::call(Some(o.caller), NFS, proc3::COMMIT).opaque(fh).u64(0).u32(0).clone();
        self.templates.push(Template::new(commit, 0, 0));
        Ok(())
    }
}

/// Directory, and names with handles: the one of `--file`, or of as many files of `--dir` as asked for.
#[allow(clippy::type_complexity)]
fn targets(rpc: &mut Rpc, root: &[u8], o: &PlanOptions<'_>) -> Result<(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)> {
    if o.targets <= 1 {
        let (parent, name) = o.file.rsplit_once('/').unwrap_or(("", o.file));
        let dir = rpc.walk(root, parent)?;
        let fh = rpc.lookup(&dir, name)?;
        return Ok((dir, vec![(name.as_bytes().to_vec(), fh)]));
    }
    let dir = rpc.walk(root, o.dir)?;
    let found = rpc.list(&dir, o.targets)?;
    if found.len() < o.targets {
        let e = format!("--targets {}: {} has only {} files", o.targets, o.dir, found.len());
        return Err(BenchError::Usage(e));
    }
    Ok((dir, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_five_calls_of_the_mix_are_writes() {
        for n in [0, 1, 2, 3, 4, 995] {
            assert_eq!((n..n + 5).filter(|n| Op::Mix1m.writes(*n)).count(), 2);
        }
        assert!(Op::Write.writes(3) && !Op::Read1m.writes(3));
    }
}

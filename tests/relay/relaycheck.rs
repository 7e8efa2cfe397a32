//! `relaycheck`: reads a file of known bytes by NFSv3 with several calls under way, and looks at every byte.

#[allow(dead_code)] // shared with the load generator
#[path = "../bench/nfsbench/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../bench/nfsbench/records.rs"]
mod records;
#[allow(dead_code)]
#[path = "../bench/nfsbench/setup.rs"]
mod setup;
#[allow(dead_code)]
#[path = "../bench/nfsbench/xdr.rs"]
mod xdr;

use clap::{Args, Parser, Subcommand};
use error::{BenchError, Context, Result};
use records::Records;
use setup::Rpc;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xdr::{Caller, Dec, NFS, Outcome, proc3, put_u32};

/// Name of the file below the export.
const NAME: &str = "pattern";
/// Bytes of one word of the pattern: files and READs are multiples of it.
const WORD: u64 = 8;
/// Status of a run in which a reply was wrong; every other failure is [`FAILED`].
const WRONG: u8 = 1;
/// Status of a run that shows nothing.
const FAILED: u8 = 2;

/// Reads a file of known bytes by NFSv3 with several calls under way, and looks at every byte
///
/// Exit: 0 every reply was right, 1 some were not, 2 the check could not be made.
#[derive(Debug, Parser)]
#[command(name = "relaycheck", version)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Write the file `pattern` into a directory
    Make {
        /// Directory to be exported
        dir: PathBuf,
        /// Length in bytes, a multiple of 8
        bytes: u64,
    },
    /// Read the file from a server, in one connection
    Read(ReadArgs),
}

#[derive(Debug, Args)]
struct ReadArgs {
    /// Address of the server
    host: IpAddr,
    /// Port of NFS and MOUNT
    port: u16,
    /// Path to mount
    export: String,
    /// Replies to look at
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    replies: u32,
    /// Calls under way
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,
    /// Bytes that each call asks for, a multiple of 8
    #[arg(value_parser = clap::value_parser!(u32).range(8..=1048576))]
    size: u32,
    /// Command for sh, to be run when half of the replies are there
    #[arg(long)]
    midway: Option<String>,
}

/// What the file holds at an offset that is a multiple of eight. No two words of a file are alike.
fn word(offset: u64) -> [u8; 8] {
    (offset ^ 0x5eed_0000_0000_0000).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn make(dir: &Path, bytes: u64) -> Result<()> {
    if !bytes.is_multiple_of(WORD) {
        return Err(BenchError::Usage(format!("{bytes} is no multiple of {WORD}")));
    }
    let path = dir.join(NAME);
    let what = path.display().to_string();
    let mut out = BufWriter::new(File::create(&path).context(what.as_str())?);
    for offset in (0..bytes).step_by(WORD as usize) {
        out.write_all(&word(offset)).context(what.as_str())?;
    }
    out.flush().context(what)
}

/// The calls of a run, and what their replies were.
struct Check {
    handle: Vec<u8>,
    /// Bytes of the file and of each call.
    len: u64,
    size: u32,
    /// Offsets of calls without a reply, by xid.
    open: HashMap<u32, u64>,
    asked: u32,
    answered: u32,
    wrong: u32,
    wrong_bytes: u64,
    /// Replies that will never come, or be told apart: the stream broke.
    lost: u32,
}

impl Check {
    fn new(handle: Vec<u8>, len: u64, size: u32) -> Check {
        let open = HashMap::new();
        Check { handle, len, size, open, asked: 0, answered: 0, wrong: 0, wrong_bytes: 0, lost: 0 }
    }

    /// The next call. Calls go through the file, and start again at its end.
    fn call(&mut self, rpc: &Rpc) -> Vec<u8> {
        let offset = u64::from(self.asked) * u64::from(self.size) % self.len;
        self.asked += 1;
        let mut c = rpc.call(NFS, proc3::READ);
        c.opaque(&self.handle).u64(offset).u32(self.size);
        c.close(0);
        put_u32(&mut c.0, 4, self.asked);
        self.open.insert(self.asked, offset);
        c.0
    }

    /// Takes a reply and counts it, as wrong if a byte of its data is.
    ///
    /// # Errors
    /// If it cannot be told which call it answers, or what of it would be data.
    fn reply(&mut self, record: &[u8]) -> Result<()> {
        let mut d = Dec::new(record);
        let (xid, outcome) = xdr::reply(&mut d)?;
        let offset = self
            .open
            .remove(&xid)
            .ok_or_else(|| BenchError::Reply(format!("to no call of ours: {xid:#x}")))?;
        let wrong = match (outcome, d.u32()?) {
            (Outcome::Success, 0) => self.data(&mut d, offset)?,
            (outcome, status) => {
                return Err(BenchError::Reply(format!("READ at {offset}: {outcome:?}, status {status}")));
            }
        };
        self.answered += 1;
        self.wrong += u32::from(wrong > 0);
        self.wrong_bytes += wrong;
        Ok(())
    }

    /// The results of READ after the status: how many bytes are not the file's.
    fn data(&self, d: &mut Dec<'_>, offset: u64) -> Result<u64> {
        d.post_op_attr()?;
        let (count, eof, data) = (d.u32()?, d.u32()?, d.opaque()?);
        let end = offset + u64::from(self.size);
        if count != self.size || data.len() != count as usize || (eof != 0) != (end >= self.len) {
            let n = data.len();
            return Err(BenchError::Reply(format!("READ at {offset}: count {count}, eof {eof}, {n} bytes")));
        }
        let words = data.chunks(WORD as usize).zip((offset..end).step_by(WORD as usize));
        let differ = words.flat_map(|(got, at)| got.iter().zip(word(at)).filter(|(a, b)| **a != *b));
        Ok(differ.count() as u64)
    }
}

fn read(a: &ReadArgs) -> Result<Check> {
    let mut rpc = Rpc::dial(SocketAddr::new(a.host, a.port), Caller { uid: 0, gid: 0 })?;
    let root = rpc.mount(&a.export)?;
    let handle = rpc.lookup(&root, NAME)?;
    let len = rpc.size(&handle)?;
    if len == 0 || !len.is_multiple_of(a.size.into()) || !a.size.is_multiple_of(WORD as u32) {
        let why = format!("{NAME} has {len} bytes: it must be a multiple of {}, and that of {WORD}", a.size);
        return Err(BenchError::Usage(why));
    }
    let mut check = Check::new(handle, len, a.size);
    if let Err(e) = stream(&mut check, &rpc, a) {
        eprintln!("relaycheck: after {} replies: {e}", check.answered);
        check.lost = a.replies - check.answered;
    }
    Ok(check)
}

/// Keeps calls under way until enough replies are there.
fn stream(check: &mut Check, rpc: &Rpc, a: &ReadArgs) -> Result<()> {
    let mut socket = rpc.socket();
    let mut records = Records::new(true);
    let mut buffer = vec![0; 256 << 10];
    let mut midway = a.midway.as_ref();
    while check.answered < a.replies {
        if check.answered >= a.replies / 2
            && let Some(command) = midway.take()
        {
            let status = Command::new("sh").args(["-c", command]).status().context(command.as_str())?;
            if !status.success() {
                return Err(BenchError::Usage(format!("{command}: {status}")));
            }
        }
        while check.asked < a.replies && check.open.len() < a.window as usize {
            socket.write_all(&check.call(rpc)).context("sending calls")?;
        }
        let n = match socket.read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                return Err(BenchError::Silent(check.open.len(), setup::PATIENCE.as_secs()));
            }
            r => r.context("waiting for replies")?,
        };
        if n == 0 {
            return Err(BenchError::Reply("the server closed the connection".into()));
        }
        records.feed(buffer.get(..n).unwrap_or_default(), |record, _| check.reply(record))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let r = match &Cli::parse().command {
        Task::Make { dir, bytes } => make(dir, *bytes).map(|()| None),
        Task::Read(args) => read(args).map(|check| Some((args.replies, check))),
    };
    match r {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some((replies, c))) => {
            let (wrong, bytes, lost) = (c.wrong, c.wrong_bytes, c.lost);
            println!("{replies} replies: {wrong} wrong ({bytes} bytes), {lost} lost with the stream");
            // What cannot be read any more is as wrong as what was read wrong.
            ExitCode::from(if wrong + lost > 0 { WRONG } else { 0 })
        }
        Err(e) => {
            eprintln!("relaycheck: {e}");
            ExitCode::from(FAILED)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SIZE: u32 = 4096;

    /// A check of a file of two READs with both under way, and the reply to one.
    fn check(xid: u32, status: u32) -> (Check, Vec<u8>) {
        let mut check = Check::new(vec![1; 32], 2 * u64::from(SIZE), SIZE);
        check.open = HashMap::from([(1, 0), (2, SIZE.into())]);
        let mut e = xdr::Enc::default();
        e.u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0).u32(status).u32(0).u32(SIZE).u32(1);
        e.opaque(&(0..SIZE / 8).flat_map(|i| word(u64::from(SIZE + 8 * i))).collect::<Vec<u8>>());
        (check, e.0)
    }

    #[test]
    fn every_wrong_byte_is_seen() {
        let (mut c, mut reply) = check(2, 0);
        c.reply(&reply).unwrap();
        assert_eq!((c.answered, c.wrong), (1, 0));
        for at in [40, 44, 45, reply.len() - 1] {
            c.open.insert(2, SIZE.into());
            reply[at] ^= 1;
            // The first is the number of bytes, so that it cannot be told what is data.
            assert_eq!(c.reply(&reply).is_err(), at == 40);
            reply[at] ^= u8::from(at == 40);
        }
        assert_eq!((c.answered, c.wrong, c.wrong_bytes), (4, 3, 1 + 2 + 3));
    }

    #[test]
    fn data_of_another_place_are_wrong() {
        let (mut c, reply) = check(2, 0);
        c.open.insert(2, 0);
        c.len = SIZE.into();
        c.reply(&reply).unwrap();
        assert_eq!((c.wrong, c.wrong_bytes > u64::from(SIZE) / 2), (1, true));
    }

    #[test]
    fn other_replies_break_the_stream() {
        for (xid, status) in [(3, 0), (2, 5)] {
            let (mut c, reply) = check(xid, status);
            assert!(c.reply(&reply).is_err());
            assert_eq!(c.answered, 0);
        }
    }
}

//! `nfsbench`: load generator for NFSv3 servers, the floor they are compared with, and the tables.
//!
//! One thread keeps many connections with many calls each under way. Calls are encoded once and only patched, of a
//! reply only what proves it right is looked at, and bulk data is dropped in the kernel: an operation costs this
//! program a fraction of a microsecond, so that it is the server that is measured. It shares no code with the server.

mod bulk;
mod cache;
mod error;
mod floor;
mod hist;
mod load;
mod ops;
mod out;
mod probe;
mod process;
mod records;
mod report;
mod setup;
mod svg;
mod table;
mod xdr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use error::Result;
use report::Row;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  nfsbench load --port 2049 --export /srv/data --op getattr --conns 8 --depth 32 --pid $(pidof nfsd)
  nfsbench load --port 2049 --export /srv/data --op read1m --conns 1 --depth 8 --cpu 1 --json
  nfsbench floor --port 3049 &
  nfsbench probe-readdir /srv/data/dir10k

The whole comparison, with pinned servers in turn and a table: bash tests/bench/run.sh --help";

/// Load generator for NFSv3 servers, the floor they are compared with, and the tables
#[derive(Debug, Parser)]
#[command(name = "nfsbench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load a server with one operation and print what it took
    Load(Box<LoadArgs>),
    /// Be a server without a file system: constant right replies, the least a server can cost
    Floor(FloorArgs),
    /// Measure what listing a directory costs without NFS: getdents64, and statx of every entry
    ProbeReaddir(ProbeArgs),
    /// Print how much of a file the page cache holds, in MiB
    Resident(ResidentArgs),
    /// Make tables of the medians of lines that `--json` printed
    Table(TableArgs),
}

/// Options of `load`.
#[derive(Debug, Args)]
struct LoadArgs {
    /// Operation
    #[arg(long, value_enum)]
    op: ops::Op,
    /// Address of the server
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port of NFS
    #[arg(long)]
    port: u16,
    /// Port of MOUNT [default: that of NFS]
    #[arg(long)]
    mount_port: Option<u16>,
    /// Path to mount
    #[arg(long, default_value = "/")]
    export: String,
    /// Connections
    #[arg(short = 'c', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    conns: u16,
    /// Calls under way on each connection
    #[arg(short = 'q', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Seconds to measure
    #[arg(short = 't', long, default_value_t = 3.0)]
    secs: f64,
    /// Seconds of load before measuring
    #[arg(long, default_value_t = 0.3)]
    warmup: f64,
    /// Bytes of a READ, WRITE, echo or READDIRPLUS reply [default: by operation]
    #[arg(long)]
    bytes: Option<u32>,
    /// File to read, look up and stat, below the export
    #[arg(long, default_value = "big")]
    file: String,
    /// Directory to list, below the export; with --targets also where the targets are
    #[arg(long, default_value = "dir10k")]
    dir: String,
    /// Directory for files that are created, below the export
    #[arg(long, default_value = "work")]
    work_dir: String,
    /// GETATTR, LOOKUP and ACCESS go to so many files of --dir, at random; 1: only to --file
    #[arg(long, default_value_t = 1)]
    targets: u16,
    /// COMMIT after so many WRITEs of a slot, besides the one at the end; 0: only at the end
    #[arg(long, default_value_t = 64)]
    commit_every: u64,
    /// MiB after which a connection's WRITEs start over at offset 0
    #[arg(long, default_value_t = 64)]
    span: u32,
    /// Stop after so many MiB, and count everything from the first call to the last reply, COMMIT included; in place of
    /// --secs and --warmup
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    total: Option<u32>,
    /// WRITE into this file below the export, made if need be, and leave it there
    #[arg(long, value_name = "NAME")]
    into: Option<String>,
    /// Local path of a file: after the run, see how much of it the page cache holds
    #[arg(long, value_name = "PATH")]
    resident: Option<PathBuf>,
    /// Just before the load, fill some more of the page cache than --total with a file of this directory, and let go of
    /// it: in a virtual machine whose free memory goes back to its host, the first use of a page costs more than
    /// what is to be measured
    #[arg(long, value_name = "DIR", requires = "total")]
    warm: Option<PathBuf>,
    /// User id of the AUTH_SYS credential
    #[arg(long, default_value_t = 0)]
    uid: u32,
    /// Group id of the AUTH_SYS credential
    #[arg(long, default_value_t = 0)]
    gid: u32,
    /// Process id of the server; without it, its CPU time, faults and memory are 0
    #[arg(long)]
    pid: Option<u32>,
    /// Poll without sleeping: the generator's own wake-ups do not hide the server's latency
    #[arg(long)]
    busy: bool,
    /// Bind the generator to this processor
    #[arg(long)]
    cpu: Option<usize>,
    /// Name of the server in reports
    #[arg(long, default_value = "server")]
    label: String,
    /// Name of the row in tables [default: the operation]
    #[arg(long)]
    row: Option<String>,
    /// Print a line of JSON to standard output; the line for people then goes to standard error
    #[arg(long)]
    json: bool,
}

/// Options of `floor`.
#[derive(Debug, Args)]
struct FloorArgs {
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on, for NFS and MOUNT; any path can be mounted and any name is found
    #[arg(long)]
    port: u16,
    /// Bind to this processor
    #[arg(long)]
    cpu: Option<usize>,
    /// Answer READs above 16 KiB from this file, instead of from one hot buffer
    #[arg(long)]
    file: Option<PathBuf>,
    /// How data of --file go to the socket; by copy or splice, all READs do
    #[arg(long, value_enum, default_value = "sendfile", requires = "file")]
    send: SendBy,
    /// Poll without sleeping
    #[arg(long)]
    busy: bool,
}

/// How the floor sends from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SendBy {
    /// sendfile; READs up to 16 KiB from one hot buffer
    Sendfile,
    /// Read into a buffer, and send it
    Copy,
    /// Through a pipe
    Splice,
}

/// Options of `resident`.
#[derive(Debug, Args)]
struct ResidentArgs {
    /// File
    file: PathBuf,
    /// First write out what is dirty of it and drop it from the page cache; fails if something stays
    #[arg(long)]
    drop: bool,
}

/// Options of `probe-readdir`.
#[derive(Debug, Args)]
struct ProbeArgs {
    /// Directory to list
    dir: PathBuf,
    /// Seconds to measure
    #[arg(short = 't', long, default_value_t = 1.0)]
    secs: f64,
    /// Bind to this processor
    #[arg(long)]
    cpu: Option<usize>,
    /// Name of the column in tables
    #[arg(long, default_value = "floor")]
    label: String,
    /// Name of the row in tables
    #[arg(long, default_value = "readdirplus")]
    row: String,
    /// Print a line of JSON to standard output; the line for people then goes to standard error
    #[arg(long)]
    json: bool,
}

/// Options of `table`.
#[derive(Debug, Args)]
struct TableArgs {
    /// Files with lines of JSON, or what --json wrote; runs of the same row and server come together
    #[arg(required = true)]
    rows: Vec<PathBuf>,
    /// Also write the medians and all lines as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also draw the medians, into an SVG file
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Another table: rates, costs, memory and page cache, a line for each row and server
    #[arg(long, conflicts_with = "latency")]
    bulk: bool,
    /// Only what the clients saw
    #[arg(long)]
    latency: bool,
    /// Title of the drawing
    #[arg(long, default_value = "NFSv3")]
    title: String,
    /// Compare these servers only, as A/B; repeatable
    #[arg(long, value_name = "A/B")]
    ratio: Vec<String>,
    /// The server that the others are compared with
    #[arg(long, default_value = "ours")]
    subject: String,
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("nfsbench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Load(args) => {
            print(&load::run(args)?, args.json);
            Ok(())
        }
        Command::Floor(args) => floor::run(args),
        Command::ProbeReaddir(args) => {
            print(&probe::run(args)?, args.json);
            Ok(())
        }
        Command::Resident(args) => cache::run(args),
        Command::Table(args) => table::run(args),
    }
}

fn print(row: &Row, json: bool) {
    if json {
        println!("{}", row.json());
        eprintln!("{}", row.human());
    } else {
        println!("{}", row.human());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

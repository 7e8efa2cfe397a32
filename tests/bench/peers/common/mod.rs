//! What both frameworks' programs have in common: command line, the load, and figures in the form of the NFS load
//! generator, with its very code for histogram, processor time and report.

#[allow(dead_code)]
#[path = "../../nfsbench/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../../nfsbench/hist.rs"]
mod hist;
#[allow(dead_code)]
#[path = "../../nfsbench/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "../../nfsbench/report.rs"]
mod report;

use bytes::Bytes;
use clap::{Parser, Subcommand, ValueEnum};
use hist::Histogram;
use process::Sample;
use report::Row;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Anything that ends the run, as text.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Keeps what the error says.
    pub fn new(e: impl std::fmt::Display) -> Self {
        Self(e.to_string())
    }
}

/// A connection; clones share it.
pub trait Client: Clone + 'static {
    /// Opens one.
    fn connect(addr: SocketAddr) -> impl Future<Output = Result<Self, Failure>>;
    /// The call without arguments and results.
    fn null(&mut self) -> impl Future<Output = Result<(), Failure>>;
    /// Sends bytes, gets them back; how many.
    fn echo(&mut self, data: Bytes) -> impl Future<Output = Result<usize, Failure>>;
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be the server
    Serve {
        /// Port to listen on, on the loopback interface
        #[arg(long)]
        port: u16,
        /// Serve on tokio's default runtime, a thread for each processor at hand, instead of on one thread
        #[arg(long)]
        multi_thread: bool,
    },
    /// Load the server; the options are those of `nfsbench load`
    Load(LoadArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Op {
    RpcNull,
    Echo,
}

#[derive(Debug, Clone, clap::Args)]
struct LoadArgs {
    #[arg(long, value_enum)]
    op: Op,
    #[arg(long)]
    port: u16,
    #[arg(short = 'c', long, default_value_t = 1)]
    conns: usize,
    #[arg(short = 'q', long, default_value_t = 1)]
    depth: usize,
    #[arg(short = 't', long, default_value_t = 3.0)]
    secs: f64,
    #[arg(long, default_value_t = 0.3)]
    warmup: f64,
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u32,
    #[arg(long)]
    pid: Option<u32>,
    #[arg(long)]
    cpu: Option<usize>,
    #[arg(long, default_value = "server")]
    label: String,
    #[arg(long, default_value = "")]
    row: String,
    #[arg(long)]
    json: bool,
}

/// The program: `serve` runs the given server.
pub fn main<C: Client, F: Future<Output = Result<(), Failure>>>(
    serve: impl FnOnce(SocketAddr) -> F,
) -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve { port, multi_thread } => {
            runtime(multi_thread).and_then(|r| r.block_on(serve((Ipv4Addr::LOCALHOST, port).into())))
        }
        Command::Load(args) => run_load::<C>(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(e)) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// On one thread, or as `#[tokio::main]` makes it.
fn runtime(multi_thread: bool) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = match multi_thread {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().build().map_err(Failure::new)
}

fn run_load<C: Client>(args: &LoadArgs) -> Result<(), Failure> {
    if let Some(cpu) = args.cpu {
        process::pin(cpu).map_err(Failure::new)?;
    }
    let row = tokio::task::LocalSet::new().block_on(&runtime(false)?, load::<C>(args))?;
    if args.json {
        println!("{}", row.json());
    }
    eprintln!("{}", row.human());
    Ok(())
}

/// What all callers share; there is one thread.
struct Shared {
    stop: Cell<bool>,
    ops: Cell<u64>,
    hist: RefCell<Histogram>,
}

async fn load<C: Client>(args: &LoadArgs) -> Result<Row, Failure> {
    process::raise_open_files().map_err(Failure::new)?;
    let addr = (Ipv4Addr::LOCALHOST, args.port).into();
    let data = Bytes::from(vec![0x5a; args.bytes as usize]);
    let shared = Rc::new(Shared {
        stop: Cell::new(false),
        ops: Cell::new(0),
        hist: RefCell::new(Histogram::new()),
    });
    let rss = || args.pid.map_or(Ok(0), process::rss_kib).map_err(Failure::new);
    let rss_before = rss()?;
    let mut clients = Vec::new();
    for _ in 0..args.conns {
        clients.push(C::connect(addr).await?);
    }
    let rss_connected = rss()?;
    let mut callers = Vec::new();
    for client in &clients {
        for _ in 0..args.depth {
            let (mut client, data, shared, op) = (client.clone(), data.clone(), shared.clone(), args.op);
            callers.push(tokio::task::spawn_local(async move {
                while !shared.stop.get() {
                    let sent = Instant::now();
                    match op {
                        Op::RpcNull => client.null().await?,
                        Op::Echo => {
                            let n = client.echo(data.clone()).await?;
                            if n != data.len() {
                                return Err(Failure::new(format!("{n} bytes came back of {}", data.len())));
                            }
                        }
                    }
                    shared.hist.borrow_mut().add(sent.elapsed().as_nanos() as u64);
                    shared.ops.set(shared.ops.get() + 1);
                }
                Ok(())
            }));
        }
    }
    tokio::time::sleep(Duration::from_secs_f64(args.warmup)).await;
    let take = || args.pid.map(Sample::take).transpose().map_err(Failure::new);
    shared.hist.borrow_mut().clear();
    let (before, start, ops) = (take()?, Instant::now(), shared.ops.get());
    let (own, waited) = (process::own_cpu_ns(), process::own_wait_ns());
    tokio::time::sleep(Duration::from_secs_f64(args.secs)).await;
    let (after, seconds) = (take()?, start.elapsed().as_secs_f64());
    let ops = shared.ops.get() - ops;
    let (own, waited) = (process::own_cpu_ns() - own, process::own_wait_ns().saturating_sub(waited));
    shared.stop.set(true);
    for caller in callers {
        caller.await.map_err(Failure::new)??;
    }
    let usage = match (&before, &after) {
        (Some(a), Some(b)) => a.until(b),
        _ => process::Usage::default(),
    };
    let echo = args.op == Op::Echo;
    let mut row = Row {
        row: args.row.clone(),
        server: args.label.clone(),
        op: if echo { "echo" } else { "rpc-null" }.into(),
        conns: args.conns,
        depth: args.depth,
        bytes: if echo { args.bytes } else { 0 },
        wait: "epoll".into(),
        rss_before_kib: rss_before,
        rss_connected_kib: rss_connected,
        rss_after_kib: rss()?,
        ..Row::default()
    };
    let moved = if echo { ops * u64::from(args.bytes) } else { 0 };
    row.fill(seconds, ops, moved, &usage, own, waited);
    row.quantiles(&shared.hist.borrow());
    Ok(row)
}

//! The `sunrpc` program: asks any RPC server whether it lives, what it offers, and how fast it answers.

mod bench;
mod info;
mod ping;
mod target;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Talk to any ONC RPC server.
#[derive(Debug, Parser)]
#[command(name = "sunrpc", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Call the null procedure of a program, again and again.
    ///
    /// Examples: `sunrpc ping tcp://server nfs 3` (asks the server's rpcbind for the port),
    /// `sunrpc ping udp://server:2049 100003 3 -c 1`, `sunrpc ping local:/run/rpcbind.sock portmapper`.
    Ping(ping::Args),
    /// List what a host's rpcbind has registered, or the versions of one program.
    ///
    /// Examples: `sunrpc info tcp://server`, `sunrpc info tcp://server:2049 nfs`.
    Info(info::Args),
    /// Keep a server busy with calls of one procedure and report rate and latency.
    ///
    /// Example: `sunrpc bench tcp://server:2049 nfs 3 -c 8 -q 32 -t 5`.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Ping(a) => ping::run(&a),
        Command::Info(a) => info::run(&a),
        Command::Bench(a) => bench::run(&a),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("sunrpc: {e}");
            ExitCode::FAILURE
        }
    }
}

//! The command line.
// Comments here are also the texts of --help, where brackets are no links.
#![allow(rustdoc::broken_intra_doc_links)]

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::num::NonZeroU16;
use std::path::PathBuf;

const ABOUT: &str = "NFS server in user space: serves directories over NFSv3 and MOUNT, on one port";

const EXAMPLES: &str = "\
Examples:
  nfsd /srv/data
      Serve /srv/data read-write to this host only, on port 2049. Prints the mount command.
  nfsd --clients 192.168.1.0/24,fd00::/8 /srv/data
      The same for two networks.
  nfsd --read-only --squash all --clients 0.0.0.0/0,::/0 /srv/pub
      Everybody may read, as nobody.
  nfsd --listen tcp://127.0.0.1:3049 --insecure ~/shared
      Without root: serves as the user who started it, with that user's rights only.
  nfsd --config /etc/nfsd.toml
      Several exports. Flags override the file.

`nfsd DIR` is short for `nfsd serve DIR`; a directory named like a command is written ./serve or ./stat.
`nfsd stat` shows the counters of a running server; see nfsd stat --help.

Configuration file (every key is optional but `path`):
  listen = [\"tcp://[::]:2049\", \"udp://[::]:2049\"]   # or \"local:/run/nfsd.sock\", \"local:@name\"
  threads = 4
  spin = \"off\"                      # or \"auto\", or microseconds
  state_dir = \"/var/lib/nfsd\"
  rpcbind = \"auto\"                  # or \"embedded\", \"system\", \"off\"
  zerocopy = \"off\"                  # or \"auto\", \"on\"

  [[export]]
  path = \"/srv/data\"                # absolute; clients may mount this name
  pseudo = \"/data\"                  # or this one
  clients = [\"192.168.1.0/24\"]      # networks, addresses, \"localhost\"; default: this host only
  insecure = false                  # accept source ports above 1023
  access = \"rw\"                     # or \"ro\"
  squash = \"root\"                   # or \"all\", \"none\"
  anonuid = 65534                   # whom squashed callers become
  anongid = 65534
  sync = true                       # false loses acknowledged changes in a crash
  sec = [\"sys\", \"none\"]             # accepted flavors, preferred first
  read = \"buffered\"                 # or \"dontcache\", \"direct\"
  write = \"buffered\"                # or \"dontcache\", \"direct\", \"hybrid\"
  writeback_kick = \"off\"            # or \"after_reply\": begin to write before COMMIT
  splice = \"auto\"                   # or \"off\": copy all that is read; or from so many bytes on

SIGHUP: reads the file again and applies read, write, writeback_kick and splice.

State directory: the key that protects file handles, and the numbers of exports.
Lose it, and clients must unmount and mount again.
Default: /var/lib/nfsd for root, else $XDG_STATE_HOME/nfsd or ~/.local/state/nfsd.";

const STAT_EXAMPLES: &str = "\
Examples:
  nfsd stat
      Everything that the server of this user counted since it started.
  nfsd stat calls --interval 1
      Who calls what, second by second.
  nfsd stat pages --json --control /srv/state/control
      For programs; of a server with --state-dir /srv/state.

Only root and the server's own user are answered.";

const USAGE: &str = "nfsd [serve] [OPTIONS] DIR...
       nfsd [serve] [OPTIONS] --config FILE [DIR]...";

/// The program's arguments.
#[derive(Debug, Clone, Parser)]
#[command(name = "nfsd", bin_name = "nfsd", version, about = ABOUT)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Serve directories until SIGTERM
    #[command(long_about = ABOUT, override_usage = USAGE, after_long_help = EXAMPLES)]
    Serve(ServeArgs),
    /// Show the counters of a running server
    #[command(after_long_help = STAT_EXAMPLES)]
    Stat(StatArgs),
}

/// Arguments of `stat`.
#[derive(Debug, Clone, Args)]
pub struct StatArgs {
    /// Which counters
    #[arg(value_enum, value_name = "SECTION", default_value = "all")]
    pub section: Section,

    /// The server's control socket [default: the file `control` in the default state directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// One line of JSON instead of tables
    #[arg(long)]
    pub json: bool,

    /// Go on every so many seconds, with what happened in between; JSON goes on with sums since the start
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<NonZeroU16>,
}

/// Counters that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Pages: taken, returned, fresh, held; how replies were sent; what the gates of zero-copy sends did
    Pages,
    /// Calls by program, version and procedure
    Calls,
    /// The cache of calls that must not run twice
    Drc,
    /// Turns, records and calls by thread
    Threads,
    /// How each export's files were read and written
    Io,
    /// All of them
    All,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Directory to serve, besides those of the configuration file
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,

    /// Where to listen, for NFS and MOUNT alike: tcp://, udp://, or local:PATH; may be repeated [default: tcp://[::]:2049 and udp://[::]:2049, which take IPv4 too]
    #[arg(long, value_name = "URL")]
    pub listen: Vec<String>,

    /// Who may mount: networks, addresses, "localhost" [default: this host only]
    #[arg(long, value_name = "CIDR[,...]", value_delimiter = ',')]
    pub clients: Vec<String>,

    /// Accept source ports above 1023, and local sockets of users other than root: any user of a client may have them
    #[arg(long)]
    pub insecure: bool,

    /// Refuse everything that modifies
    #[arg(long)]
    pub read_only: bool,

    /// Whose user ids are replaced by nobody's [default: root]
    #[arg(long, value_enum, value_name = "WHO")]
    pub squash: Option<SquashArg>,

    /// Answer before changes are on stable storage: faster, and a crash loses what clients believe is safe
    #[arg(long)]
    pub no_sync: bool,

    /// Worker threads [default: one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,

    /// How long a worker looks for the next call before it sleeps, while calls come that fast: off, auto, or microseconds. Cuts the latency of a lone client to a third, at the price of a busy processor [default: off]
    #[arg(long, value_name = "off|auto|MICROSECONDS")]
    pub spin: Option<String>,

    /// Where handle key and export numbers are kept
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// Socket file at which `nfsd stat` asks this server [default: the file `control` in the state directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// Configuration file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How clients find the ports of NFS and MOUNT [default: auto]
    #[arg(long, value_enum, value_name = "MODE")]
    pub rpcbind: Option<RpcbindMode>,

    /// Send large replies by reference to their pages instead of by copy (MSG_ZEROCOPY, TCP only) [default: off]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub zerocopy: Option<ZerocopyArg>,

    /// For measurements: give the memory of each page back to the kernel after use instead of using it again
    #[arg(long)]
    pub no_recycling: bool,

    /// What to log: error, warn, info, debug, trace, or directives such as nfsd=debug,sunrpc=info
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Whose ids are replaced, as a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SquashArg {
    /// User 0 and group 0
    Root,
    /// Everybody
    All,
    /// Nobody: a client's root is root here
    None,
}

/// When replies are sent by reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ZerocopyArg {
    /// Never
    #[default]
    Off,
    /// To other hosts, until a connection shows that the kernel copies all the same
    Auto,
    /// Always
    On,
}

/// Who answers as rpcbind (program 100000) for this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum RpcbindMode {
    /// The system's rpcbind if it runs, else this server itself
    #[default]
    Auto,
    /// This server itself, on port 111 if permitted and on its own port
    Embedded,
    /// The system's rpcbind; without it the server does not start
    System,
    /// Nobody: clients name the ports
    Off,
}

impl Cli {
    /// Parses arguments, the program's name first. `nfsd ARGS` without a command is `nfsd serve ARGS`.
    ///
    /// # Errors
    /// What clap says, including requests for help; print it and exit with its `exit_code`.
    pub fn parse_args<T: Into<OsString>>(args: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        Cli::try_parse_from(with_command(args.into_iter().map(Into::into).collect()))
    }
}

/// Puts `serve` in front unless the first argument is a command or asks for the version. So `nfsd --help` tells of
/// serving, which is what most people want to know; `nfsd help` lists the commands.
fn with_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let known = |word: &OsString| {
        let commands = Cli::command();
        let is_command = commands.get_subcommands().any(|c| word == c.get_name());
        is_command || ["help", "-V", "--version"].iter().any(|w| word == w)
    };
    match args.get(1) {
        Some(first) if known(first) => {}
        _ => args.insert(args.len().min(1), "serve".into()),
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(line: &str) -> ServeArgs {
        match Cli::parse_args(line.split(' ')).unwrap().command {
            Command::Serve(s) => s,
            other => panic!("{other:?}"),
        }
    }

    fn stat(line: &str) -> StatArgs {
        match Cli::parse_args(line.split(' ')).unwrap().command {
            Command::Stat(s) => s,
            other => panic!("{other:?}"),
        }
    }

    fn fails(line: &str) -> String {
        Cli::parse_args(line.split(' ')).unwrap_err().to_string()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_may_be_left_out() {
        for line in ["nfsd /srv", "nfsd serve /srv", "nfsd --insecure /srv", "nfsd serve --insecure /srv"] {
            assert_eq!(serve(line).dirs, [PathBuf::from("/srv")], "{line}");
        }
        assert_eq!(serve("nfsd ./serve").dirs, [PathBuf::from("./serve")]);
        assert_eq!(serve("nfsd ./stat").dirs, [PathBuf::from("./stat")]);
        assert_eq!(serve("nfsd --insecure stat").dirs, [PathBuf::from("stat")]);
        assert_eq!(serve("nfsd serve stat").dirs, [PathBuf::from("stat")]);
        assert_eq!(serve("nfsd serve serve").dirs, [PathBuf::from("serve")]);
        assert!(serve("nfsd").dirs.is_empty());
        assert!(serve("nfsd --config f.toml").dirs.is_empty());
        assert!(fails("nfsd --version").starts_with("nfsd "));
    }

    #[test]
    fn all_flags() {
        let s = serve(
            "nfsd --listen tcp://127.0.0.1:1 --listen tcp://[::1]:2 --clients 10.0.0.0/8,::1 --clients localhost \
             --insecure --read-only --squash none --no-sync --threads 3 --spin auto --state-dir /s --rpcbind off \
             --zerocopy auto --log-level debug /a /b",
        );
        assert_eq!(s.listen, ["tcp://127.0.0.1:1", "tcp://[::1]:2"]);
        assert_eq!(s.clients, ["10.0.0.0/8", "::1", "localhost"]);
        assert!(s.insecure && s.read_only && s.no_sync);
        assert_eq!((s.squash, s.threads.map(NonZeroU16::get)), (Some(SquashArg::None), Some(3)));
        assert_eq!(s.spin.as_deref(), Some("auto"));
        assert_eq!((s.dirs.len(), s.log_level.as_str(), s.rpcbind), (2, "debug", Some(RpcbindMode::Off)));
        assert_eq!(s.zerocopy, Some(ZerocopyArg::Auto));
    }

    #[test]
    fn stat_is_a_command() {
        let s = stat("nfsd stat");
        assert_eq!((s.section, s.control, s.json, s.interval), (Section::All, None, false, None));
        let s = stat("nfsd stat pages --control /c --json --interval 2");
        assert_eq!((s.section, s.json), (Section::Pages, true));
        assert_eq!((s.control, s.interval.map(NonZeroU16::get)), (Some("/c".into()), Some(2)));
        assert!(fails("nfsd stat /srv").contains("pages, calls, drc, threads, io, all"));
        assert!(fails("nfsd stat --interval 0").contains("--interval"));
        assert!(fails("nfsd stat --help").contains("Only root"));
    }

    #[test]
    fn mistakes_are_told() {
        assert!(fails("nfsd --squash some /srv").contains("root"));
        assert!(fails("nfsd --rpcbind of /srv").contains("off"));
        assert!(fails("nfsd --threads 0 /srv").contains("--threads"));
        assert!(fails("nfsd --inscure /srv").contains("--insecure"), "the nearest flag is named");
    }

    #[test]
    fn help_shows_the_flags_and_examples() {
        for line in ["nfsd --help", "nfsd serve --help", "nfsd help serve"] {
            let help = fails(line);
            for part in ["--clients", "--insecure", "--state-dir", "Examples:", "[[export]]", "anonuid"] {
                assert!(help.contains(part), "{line} lacks {part}:\n{help}");
            }
        }
    }
}

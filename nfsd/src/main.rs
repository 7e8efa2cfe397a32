//! The `nfsd` program: from the command line to a running server.

use nfsd::admin::{self, Control};
use nfsd::config::{self, Cli, Command, ServeArgs, Settings, ZerocopyArg};
use nfsd::context::Shared;
use nfsd::export::{Export, ExportTable, assign_numbers};
use nfsd::fh::FhCodec;
use nfsd::mount::Mount;
use nfsd::reload::Reload;
use nfsd::rpcbind::Finder;
use nfsd::v3::Nfs3;
use nfsd::vfs::passthrough::{Passthrough, PassthroughOptions};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use sunrpc_transports::{Handle, Server, Zerocopy};

/// Calls in progress at SIGTERM have this long to finish.
const GRACE: Duration = Duration::from_secs(10);
/// Connections that no call has validated.
const MAX_UNVALIDATED: usize = 64;

fn main() -> ExitCode {
    let cli = match Cli::parse_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(e) => e.exit(),
    };
    let done = match cli.command {
        Command::Serve(args) => Settings::load(&args).map_err(Into::into).and_then(|s| serve(&s, args)),
        Command::Stat(args) => admin::stat(&args, &mut std::io::stdout()).map_err(Into::into),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("nfsd: {e}");
            ExitCode::FAILURE
        }
    }
}

fn serve(s: &Settings, args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let filter = tracing_subscriber::EnvFilter::try_new(&s.log_level)?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    s.warnings.iter().for_each(|w| tracing::warn!("{w}"));
    let open_files = sunrpc_sys::thread::raise_open_files()?;

    let dirs: Vec<&Path> = s.exports.iter().map(|e| e.path.as_path()).collect();
    let numbers = assign_numbers(&s.state_dir, &dirs)?;
    let codec = FhCodec::open(&s.state_dir)?;
    let (mut exports, mut served) = (Vec::new(), Vec::new());
    let mut privileged = true;
    for (settings, id) in s.exports.iter().zip(numbers) {
        let opts = PassthroughOptions {
            state_dir: Some(s.state_dir.clone()),
            io: settings.io,
            ..PassthroughOptions::default()
        };
        let backend = Passthrough::open(&settings.path, opts)?;
        privileged &= backend.privileged();
        served.push((settings.path.clone(), backend.clone()));
        exports.push(Arc::new(Export::new(id, settings.clone(), Arc::new(backend))));
    }
    let shared = Shared::new(ExportTable::new(exports)?.into_shared(), codec)?;

    let mut server = Server::builder()
        .program(Nfs3::new(shared.clone()))
        .program(Mount::new(shared.clone()))
        .threads(s.threads)
        .spin(s.spin)
        .recycling(s.recycling)
        .zerocopy(match s.zerocopy {
            ZerocopyArg::Off => Zerocopy::Off,
            ZerocopyArg::Auto => Zerocopy::Auto,
            ZerocopyArg::On => Zerocopy::On,
        })
        .max_unvalidated(MAX_UNVALIDATED);
    let finder = Finder::choose(s.rpcbind, &shared);
    server = finder.join(server);
    let (total, per_peer) = connections(open_files);
    server = server.max_connections(total, per_peer);
    for url in &s.listen {
        server = server.listen(url)?;
    }
    let server = server.build()?;
    heed_signals(server.handle(), Reload::new(args, s.clone(), served))?;
    let found = finder.publish(&server)?;
    let (handle, exports) = (server.handle(), shared.exports.clone());
    let control = match &s.control {
        Some(path) => Some(Control::open(path, handle, exports)?),
        None => Control::open_default(&s.state_dir.join(admin::SOCKET), handle, exports),
    };
    announce(s, &server.urls(), privileged)?;
    let end = server.run();
    // The socket is removed and registrations are taken back however it ended.
    drop(control);
    drop(found);
    end?;
    tracing::info!("stopped");
    Ok(())
}

/// Most connections, and most of one address, of a process that may open so many descriptors. Half of them are for files
/// (as the passthrough file system reckons, too), and some for what every server has; without this, idle connections
/// would leave no descriptor to serve the others with.
fn connections(open_files: u64) -> (usize, usize) {
    const OWN: u64 = 32;
    let total = usize::try_from((open_files / 2).saturating_sub(OWN)).unwrap_or(usize::MAX).clamp(16, 65_536);
    (total, (total / 2).max(16))
}

/// SIGTERM and SIGINT drain; a second one ends at once. SIGHUP reads the configuration file again.
fn heed_signals(handle: Handle, mut reload: Reload) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                reload.run();
            } else if stopping {
                std::process::exit(1);
            } else {
                stopping = true;
                handle.stop(GRACE);
            }
        }
    })?;
    Ok(())
}

/// Says what is served, as whom, and how to mount it.
fn announce(s: &Settings, urls: &[String], privileged: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let host = config::this_hostname();
    for e in &s.exports {
        let access = if e.read_only { "read-only" } else { "read-write" };
        writeln!(out, "serving {} ({access}) on {}", e.path.display(), urls.join(", "))?;
        for command in urls.iter().filter_map(|u| config::mount_command(u, e, &host)) {
            writeln!(out, "  {command}")?;
        }
    }
    if !privileged {
        writeln!(
            out,
            "not running as root: everything is done with the rights of this user, whoever asks, and new files are its own"
        )?;
    }
    out.flush()
}

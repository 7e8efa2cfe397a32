//! Command line and configuration file, and the settings that come of both.

mod cli;
mod file;
mod mount_cmd;

pub use crate::export::ExportSettings;
pub use cli::{Cli, Command, RpcbindMode, Section, ServeArgs, SquashArg, StatArgs, ZerocopyArg};
pub use mount_cmd::{mount_command, this_hostname};

use crate::export::{Clients, SecFlavor, Squash};
use crate::vfs::passthrough::{IoModes, ReadMode, SPLICE_MIN, WriteMode};
use file::{FileExport, Source, WordOrNumber};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sunrpc_transports::{SPIN_AUTO, class};

/// Where the server listens unless told otherwise, as far as it is built in: all addresses of both families.
pub const DEFAULT_LISTEN: [&str; 2] = ["tcp://[::]:2049", "udp://[::]:2049"];
/// Most worker threads.
pub const MAX_THREADS: usize = 1024;
/// Longest that a worker may spin, in microseconds: beyond, sleeping costs next to nothing in comparison.
pub const MAX_SPIN: u64 = 10_000;
/// Longest name of an export, in bytes: MNTPATHLEN (RFC 1813 section 5.1.2).
pub const MAX_PATH: usize = 1024;

const ZEROCOPY_WORDS: [(&str, ZerocopyArg); 3] =
    [("off", ZerocopyArg::Off), ("auto", ZerocopyArg::Auto), ("on", ZerocopyArg::On)];

const READ_WORDS: [(&str, ReadMode); 3] =
    [("buffered", ReadMode::Buffered), ("dontcache", ReadMode::DontCache), ("direct", ReadMode::Direct)];

const WRITE_WORDS: [(&str, WriteMode); 4] = [
    ("buffered", WriteMode::Buffered),
    ("dontcache", WriteMode::DontCache),
    ("direct", WriteMode::Direct),
    ("hybrid", WriteMode::Hybrid),
];

const RPCBIND_MODES: [(&str, RpcbindMode); 4] = [
    ("auto", RpcbindMode::Auto),
    ("embedded", RpcbindMode::Embedded),
    ("system", RpcbindMode::System),
    ("off", RpcbindMode::Off),
];

/// Everything the server needs to know, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where to listen, as transport URLs; at least one.
    pub listen: Vec<String>,
    /// When replies are sent by reference to their pages.
    pub zerocopy: ZerocopyArg,
    /// Whether pages are used again.
    pub recycling: bool,
    /// Worker threads, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// How long a worker may poll before it sleeps, at most [`MAX_SPIN`]; zero: not at all.
    pub spin: Duration,
    /// Where handle key and export numbers are kept; absolute. It need not exist yet.
    pub state_dir: PathBuf,
    /// Where `nfsd stat` asks, if not in the state directory; absolute.
    pub control: Option<PathBuf>,
    /// Who answers as rpcbind.
    pub rpcbind: RpcbindMode,
    /// What to log, as `tracing` directives.
    pub log_level: String,
    /// What to serve; at least one, each directory once.
    pub exports: Vec<ExportSettings>,
    /// What deserves a word at start, because it is legal but risky.
    pub warnings: Vec<String>,
}

/// Why there are no settings. Each text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {path}: {source}", path = .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file says something that cannot be.
    #[error("{path}:{line}: {message}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what to write.
        message: String,
    },
    /// An argument says something that cannot be.
    #[error("{flag}: {message}")]
    Flag {
        /// Which argument.
        flag: &'static str,
        /// What is wrong, and what to write.
        message: String,
    },
    /// No export.
    #[error(
        "nothing to serve: name a directory (nfsd DIR), or a configuration file with an [[export]] section (nfsd --config FILE); nfsd --help shows examples"
    )]
    NothingToServe,
    /// No place for the state directory.
    #[error(
        "no state directory: neither XDG_STATE_HOME nor HOME is set; name one with --state-dir (`state_dir` in the configuration file)"
    )]
    NoStateDir,
}

/// What the settings take from around the process.
#[derive(Debug, Clone)]
struct Surroundings {
    superuser: bool,
    xdg_state_home: Option<PathBuf>,
    home: Option<PathBuf>,
    processors: usize,
}

impl Surroundings {
    fn current() -> Self {
        let var = |name| std::env::var_os(name).map(PathBuf::from);
        Surroundings {
            superuser: sunrpc_sys::cred::current().2 == 0,
            xdg_state_home: var("XDG_STATE_HOME"),
            home: var("HOME"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    fn state_dir(&self) -> Result<PathBuf, ConfigError> {
        if self.superuser {
            return Ok("/var/lib/nfsd".into());
        }
        let absolute = |p: &Option<PathBuf>| p.clone().filter(|p| p.is_absolute());
        absolute(&self.xdg_state_home)
            .or_else(|| absolute(&self.home).map(|h| h.join(".local/state")))
            .map(|p| p.join("nfsd"))
            .ok_or(ConfigError::NoStateDir)
    }
}

impl Settings {
    /// The settings of these arguments and of the configuration file they name. Flags override the file; directories
    /// of the command line are served besides those of the file.
    ///
    /// # Errors
    /// [`ConfigError`] names the argument, or file and line, and what to do about it.
    pub fn load(args: &ServeArgs) -> Result<Self, ConfigError> {
        load(args, &Surroundings::current())
    }
}

/// Where the server of this user is asked unless it was told otherwise.
///
/// # Errors
/// [`ConfigError::NoStateDir`].
pub fn control_socket() -> Result<PathBuf, ConfigError> {
    Ok(Surroundings::current().state_dir()?.join(crate::admin::SOCKET))
}

fn flag(flag: &'static str, message: impl ToString) -> ConfigError {
    ConfigError::Flag { flag, message: message.to_string() }
}

fn load(args: &ServeArgs, around: &Surroundings) -> Result<Settings, ConfigError> {
    let text = args.config.as_deref().map(file::read).transpose()?;
    let src =
        Source { path: args.config.as_deref().unwrap_or(Path::new("")), text: text.as_deref().unwrap_or("") };
    let file = src.parse()?;

    let rpcbind = match (args.rpcbind, &file.rpcbind) {
        (Some(mode), _) => mode,
        (None, Some(m)) => src.word("rpcbind", m.get_ref(), m.span(), &RPCBIND_MODES, &[])?,
        (None, None) => RpcbindMode::default(),
    };
    let zerocopy = match (args.zerocopy, &file.zerocopy) {
        (Some(when), _) => when,
        (None, Some(w)) => src.word("zerocopy", w.get_ref(), w.span(), &ZEROCOPY_WORDS, &[])?,
        (None, None) => ZerocopyArg::default(),
    };
    let listen = listen(args, &src, file.listen.as_ref())?;
    let threads = match (args.threads, &file.threads) {
        (Some(n), _) if usize::from(n.get()) > MAX_THREADS => {
            return Err(flag("--threads", format!("at most {MAX_THREADS}")));
        }
        (Some(n), _) => n.get().into(),
        (None, Some(n)) => usize::try_from(*n.get_ref())
            .ok()
            .filter(|n| (1..=MAX_THREADS).contains(n))
            .ok_or_else(|| src.error(n.span(), format!("threads must be 1 to {MAX_THREADS}")))?,
        (None, None) => around.processors.clamp(1, MAX_THREADS),
    };
    let spin = match (&args.spin, &file.spin) {
        (Some(word), _) => spin(word).map_err(|e| flag("--spin", e))?,
        (None, Some(v)) => {
            let word = v.get_ref().to_string();
            spin(&word).map_err(|e| src.error(v.span(), format!("spin {e}")))?
        }
        (None, None) => Duration::ZERO,
    };
    let state_dir = match (&args.state_dir, &file.state_dir) {
        (Some(d), _) => std::path::absolute(d).map_err(|e| flag("--state-dir", e))?,
        (None, Some(d)) if !Path::new(d.get_ref()).is_absolute() => {
            return Err(src.error(d.span(), "state_dir must be an absolute path"));
        }
        (None, Some(d)) => d.get_ref().into(),
        (None, None) => around.state_dir()?,
    };

    let control = args.control.as_deref().map(std::path::absolute).transpose();
    let control = control.map_err(|e| flag("--control", e))?;

    let mut exports = Vec::new();
    let mut seen = HashSet::new();
    for e in &file.export {
        let settings = from_file(&src, e)?;
        if !seen.insert(settings.path.clone()) {
            return Err(src.error(
                e.path.span(),
                "this directory is exported twice; merge the two [[export]] sections",
            ));
        }
        exports.push(settings);
    }
    for dir in &args.dirs {
        let settings = from_dir(dir).map_err(|e| flag("DIR", e))?;
        if seen.insert(settings.path.clone()) {
            exports.push(settings);
        }
    }
    if exports.is_empty() {
        return Err(ConfigError::NothingToServe);
    }
    apply_flags(args, &mut exports)?;
    let warnings = warnings(&exports, &state_dir);
    let log_level = args.log_level.clone();
    Ok(Settings {
        listen,
        threads,
        spin,
        state_dir,
        control,
        rpcbind,
        zerocopy,
        recycling: !args.no_recycling,
        log_level,
        exports,
        warnings,
    })
}

/// A limit of spinning, as flag and file write it.
fn spin(word: &str) -> Result<Duration, String> {
    match word {
        "off" => Ok(Duration::ZERO),
        "auto" => Ok(SPIN_AUTO),
        n => match n.parse() {
            Ok(n) if n <= MAX_SPIN => Ok(Duration::from_micros(n)),
            _ => Err(format!("must be off, auto, or 0 to {MAX_SPIN} microseconds")),
        },
    }
}

fn listen(
    args: &ServeArgs,
    src: &Source<'_>,
    file: Option<&toml::Spanned<file::Words>>,
) -> Result<Vec<String>, ConfigError> {
    let (urls, at) = match file {
        _ if !args.listen.is_empty() => (args.listen.clone(), None),
        Some(f) if f.get_ref().0.is_empty() => {
            return Err(src.error(
                f.span(),
                format!("listen is empty; leave it out for {}", DEFAULT_LISTEN.join(" and ")),
            ));
        }
        Some(f) => (f.get_ref().0.clone(), Some(f.span())),
        None => {
            let built_in = DEFAULT_LISTEN.iter().filter(|u| class::find(u).is_ok());
            (built_in.map(|u| (*u).to_owned()).collect(), None)
        }
    };
    let fail = |message: String| match &at {
        Some(at) => src.error(at.clone(), message),
        None => flag("--listen", message),
    };
    let mut seen = HashSet::new();
    for url in &urls {
        class::find(url).map_err(|e| fail(e.to_string()))?;
        if !seen.insert(url) {
            return Err(fail(format!("{url} is named twice; leave one out")));
        }
    }
    Ok(urls)
}

/// The flags that override the file's word on every export.
fn apply_flags(args: &ServeArgs, exports: &mut [ExportSettings]) -> Result<(), ConfigError> {
    let clients = match args.clients.as_slice() {
        [] => None,
        words => {
            let words = words.iter().map(String::as_str).filter(|w| !w.trim().is_empty());
            Some(Clients::parse(words).map_err(|e| flag("--clients", e))?)
        }
    };
    for e in exports {
        if let Some(c) = &clients {
            e.clients = c.clone();
        }
        e.insecure |= args.insecure;
        e.read_only |= args.read_only;
        e.sync &= !args.no_sync;
        match args.squash {
            Some(SquashArg::Root) => e.squash = Squash::Root,
            Some(SquashArg::All) => e.squash = Squash::All,
            Some(SquashArg::None) => e.squash = Squash::None,
            None => {}
        }
    }
    Ok(())
}

/// A directory of the command line, with the default settings.
fn from_dir(dir: &Path) -> Result<ExportSettings, String> {
    let mut s = ExportSettings::new(real_directory(dir)?);
    // Clients may use the name that the user knows, too.
    let named = std::path::absolute(dir).map_err(|e| e.to_string())?;
    if let Ok(pseudo) = pseudo(named.as_os_str().as_bytes()) {
        s.pseudo = pseudo;
    }
    Ok(s)
}

fn real_directory(dir: &Path) -> Result<PathBuf, String> {
    let shown = dir.display();
    let real = std::fs::canonicalize(dir).map_err(|e| {
        format!("cannot serve {shown}: {e}; name a directory that exists and that this user may enter")
    })?;
    match std::fs::metadata(&real) {
        Ok(m) if !m.is_dir() => Err(format!("{shown} is not a directory; name the directory that holds it")),
        Ok(_) if real.as_os_str().len() > MAX_PATH => Err(format!(
            "{shown} is longer than the {MAX_PATH} bytes that clients can mount; give it a shorter path"
        )),
        Ok(_) => Ok(real),
        Err(e) => Err(format!("cannot serve {shown}: {e}")),
    }
}

/// A pseudo path in its plain form.
fn pseudo(path: &[u8]) -> Result<Vec<u8>, String> {
    if !path.starts_with(b"/") || path.len() > MAX_PATH || path.contains(&0) {
        return Err(format!("pseudo must be an absolute path of at most {MAX_PATH} bytes"));
    }
    let mut plain = Vec::new();
    for c in path.split(|b| *b == b'/').filter(|c| !c.is_empty()) {
        if matches!(c, b"." | b"..") {
            return Err("pseudo must not contain . or ..".into());
        }
        plain.push(b'/');
        plain.extend_from_slice(c);
    }
    if plain.is_empty() {
        plain.push(b'/');
    }
    Ok(plain)
}

fn from_file(src: &Source<'_>, e: &FileExport) -> Result<ExportSettings, ConfigError> {
    let path = Path::new(e.path.get_ref());
    if !path.is_absolute() {
        return Err(src.error(e.path.span(), "path must be absolute"));
    }
    let mut s = from_dir(path).map_err(|m| src.error(e.path.span(), m))?;
    if let Some(p) = &e.pseudo {
        s.pseudo = pseudo(p.get_ref().as_bytes()).map_err(|m| src.error(p.span(), m))?;
    }
    if let Some(c) = &e.clients {
        let words = c.get_ref().0.iter().flat_map(|w| w.split(','));
        s.clients = Clients::parse(words).map_err(|m| src.error(c.span(), m.to_string()))?;
    }
    s.insecure = e.insecure.unwrap_or(s.insecure);
    s.sync = e.sync.unwrap_or(s.sync);
    if let Some(a) = &e.access {
        s.read_only = src.word("access", a.get_ref(), a.span(), &[("rw", false), ("ro", true)], &[])?;
    }
    if let Some(q) = &e.squash {
        let known = [("root", Squash::Root), ("all", Squash::All), ("none", Squash::None)];
        s.squash = src.word("squash", q.get_ref(), q.span(), &known, &[])?;
    }
    s.io = io_modes(src, e)?;
    for (key, given, id) in
        [("anonuid", &e.anonuid, &mut s.anon_uid), ("anongid", &e.anongid, &mut s.anon_gid)]
    {
        if let Some(n) = given {
            // The last number means "no change" to the kernel, so nobody can have it.
            *id = u32::try_from(*n.get_ref())
                .ok()
                .filter(|n| *n != u32::MAX)
                .ok_or_else(|| src.error(n.span(), format!("{key} must be 0 to {}", u32::MAX - 1)))?;
        }
    }
    if let Some(sec) = &e.sec {
        let known = [("sys", SecFlavor::Sys), ("none", SecFlavor::None)];
        s.sec.clear();
        for w in &sec.get_ref().0 {
            let f = src.word("sec", w, sec.span(), &known, &["krb5", "krb5i", "krb5p", "tls"])?;
            if !s.sec.contains(&f) {
                s.sec.push(f);
            }
        }
        if s.sec.is_empty() {
            return Err(src.error(
                sec.span(),
                "sec is empty, so nobody could call; leave it out for [\"sys\", \"none\"]",
            ));
        }
    }
    Ok(s)
}

fn io_modes(src: &Source<'_>, e: &FileExport) -> Result<IoModes, ConfigError> {
    let mut io = IoModes::default();
    if let Some(w) = &e.read {
        io.read = src.word("read", w.get_ref(), w.span(), &READ_WORDS, &[])?;
    }
    if let Some(w) = &e.write {
        io.write = src.word("write", w.get_ref(), w.span(), &WRITE_WORDS, &[])?;
    }
    if let Some(w) = &e.writeback_kick {
        let known = [("off", false), ("after_reply", true)];
        io.kick = src.word("writeback_kick", w.get_ref(), w.span(), &known, &[])?;
    }
    if let Some(w) = &e.splice {
        io.splice = match w.get_ref() {
            WordOrNumber::Word(word) => {
                let known = [("off", None), ("auto", Some(SPLICE_MIN))];
                src.word("splice", word, w.span(), &known, &[])?
            }
            WordOrNumber::Number(n) => Some(u32::try_from(*n).map_err(|_| {
                src.error(w.span(), "splice is \"auto\", \"off\" or the bytes from which READs are spliced")
            })?),
        };
    }
    Ok(io)
}

fn warnings(exports: &[ExportSettings], state_dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let state = nearest_real(state_dir);
    for e in exports {
        let path = e.path.display();
        if state.starts_with(&e.path) {
            all.push(format!(
                "the state directory {} lies inside the export {path}: a client who may read the key there can forge \
                 file handles; move it with --state-dir (`state_dir` in the configuration file)",
                state_dir.display()
            ));
        }
        if !e.sync {
            all.push(format!(
                "{path} is served with sync off: a crash loses changes that clients believe are safe"
            ));
        }
        if e.squash == Squash::None && !e.clients.is_this_host() {
            all.push(format!(
                "{path} is served with squash none: root of every admitted client is root here"
            ));
        }
    }
    all
}

/// The path with symbolic links resolved, as far as it exists.
fn nearest_real(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    for above in path.ancestors() {
        if let Ok(mut real) = std::fs::canonicalize(above) {
            real.extend(rest.iter().rev());
            return real;
        }
        rest.extend(above.file_name().map(PathBuf::from));
    }
    path.to_owned()
}

#[cfg(test)]
mod tests;

//! Reading the configuration file again while the server runs.

use crate::config::{ExportSettings, ServeArgs, Settings};
use crate::vfs::passthrough::Passthrough;
use std::path::PathBuf;

/// A running server's settings, and what of them can change: the I/O modes of its exports.
#[derive(Debug)]
pub struct Reload {
    args: ServeArgs,
    settings: Settings,
    served: Vec<(PathBuf, Passthrough)>,
}

impl Reload {
    /// Of a server that was started with `args`, which came to `settings`, and serves these directories.
    pub fn new(args: ServeArgs, settings: Settings, served: Vec<(PathBuf, Passthrough)>) -> Self {
        Reload { args, settings, served }
    }

    /// Reads the file again and applies changed modes. A file that cannot be used changes nothing; the log says why, as
    /// it says what has changed, and which changes wait for a restart.
    pub fn run(&mut self) {
        if self.args.config.is_none() {
            tracing::warn!(
                "SIGHUP: there is no configuration file to read again; start nfsd with --config FILE"
            );
            return;
        }
        let new = match Settings::load(&self.args) {
            Ok(new) => new,
            Err(e) => {
                tracing::error!("SIGHUP: {e}; the configuration stays as it was");
                return;
            }
        };
        let mut changed = 0;
        for e in &new.exports {
            let Some(old) = self.settings.exports.iter_mut().find(|o| o.path == e.path) else { continue };
            let Some((path, backend)) = self.served.iter().find(|(p, _)| *p == e.path) else { continue };
            tracing::debug!("{}: {:?}", path.display(), backend.io_counts());
            if old.io != e.io {
                backend.set_modes(e.io);
                // Whoever reads this may count on it.
                tracing::info!("SIGHUP: {}: now {}", path.display(), e.io);
                old.io = e.io;
                changed += 1;
            }
        }
        if changed == 0 {
            tracing::info!("SIGHUP: no I/O mode has changed");
        }
        for what in differences(&self.settings, &new) {
            tracing::warn!("SIGHUP: {what} changed: that takes effect when nfsd is started again");
        }
    }
}

/// What differs besides the I/O modes of exports in both.
fn differences(old: &Settings, new: &Settings) -> Vec<String> {
    let mut all = Vec::new();
    let mut note = |differs: bool, what: &str| {
        if differs {
            all.push(what.to_owned());
        }
    };
    note(old.listen != new.listen, "listen");
    note(old.threads != new.threads, "threads");
    note(old.spin != new.spin, "spin");
    note(old.state_dir != new.state_dir, "state_dir");
    note(old.rpcbind != new.rpcbind, "rpcbind");
    note(old.zerocopy != new.zerocopy, "zerocopy");
    let without_io = |e: &ExportSettings| ExportSettings { io: Default::default(), ..e.clone() };
    for e in &old.exports {
        let same = new.exports.iter().any(|n| without_io(n) == without_io(e));
        note(!same, &format!("export {}", e.path.display()));
    }
    for e in new.exports.iter().filter(|n| old.exports.iter().all(|e| e.path != n.path)) {
        note(true, &format!("export {}", e.path.display()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Cli, Command};
    use crate::vfs::passthrough::{IoModes, PassthroughOptions, ReadMode, WriteMode};

    #[test]
    fn modes_change_and_a_broken_file_changes_nothing() {
        let t = tempfile::tempdir().unwrap();
        let root = t.path().canonicalize().unwrap();
        let (dir, file) = (root.join("a"), root.join("c"));
        std::fs::create_dir(&dir).unwrap();
        let write = |more: &str| {
            std::fs::write(&file, format!("{more}\n")).unwrap();
        };
        let export = format!("[[export]]\npath = \"{}\"\n", dir.display());
        write(&export);
        let line = ["nfsd", "--state-dir", root.to_str().unwrap(), "--config", file.to_str().unwrap()];
        let Command::Serve(args) = Cli::parse_args(line).unwrap().command else { panic!("serve") };
        let settings = Settings::load(&args).unwrap();
        let backend = Passthrough::open(&dir, PassthroughOptions::default()).unwrap();
        let mut reload = Reload::new(args, settings, vec![(dir, backend.clone())]);
        reload.run();
        assert_eq!(backend.modes(), IoModes::default());
        write(&format!("{export}read = \"direct\"\nwrite = \"hybrid\""));
        reload.run();
        let want = IoModes { read: ReadMode::Direct, write: WriteMode::Hybrid, ..IoModes::default() };
        assert_eq!(backend.modes(), want);
        for broken in ["[[export]", "[[export]]\npath = \"relative\"", &format!("{export}read = \"fast\"")] {
            write(broken);
            reload.run();
            assert_eq!(backend.modes(), want, "{broken}");
        }
        write(&format!("threads = 900\n{export}sync = false"));
        reload.run();
        assert_eq!(backend.modes(), IoModes::default(), "what is left out is the default again");
        let new = Settings::load(&reload.args).unwrap();
        let waiting = differences(&reload.settings, &new);
        assert!(
            waiting.len() == 2 && waiting[0] == "threads" && waiting[1].starts_with("export /"),
            "{waiting:?}"
        );
    }
}

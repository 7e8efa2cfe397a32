use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn around(t: &Path) -> Surroundings {
    Surroundings { superuser: false, xdg_state_home: None, home: Some(t.join("home")), processors: 3 }
}

fn args(line: &str) -> ServeArgs {
    let words = std::iter::once("nfsd").chain(line.split(' ').filter(|w| !w.is_empty()));
    match Cli::parse_args(words).unwrap().command {
        Command::Serve(s) => s,
        other => panic!("{other:?}"),
    }
}

/// A directory with `a`, `b`, a link `l` to `a`, a file `f` and the configuration file `c`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let t = tempfile::tempdir().unwrap();
        for d in ["a", "b", "home"] {
            fs::create_dir(t.path().join(d)).unwrap();
        }
        symlink("a", t.path().join("l")).unwrap();
        fs::write(t.path().join("f"), "").unwrap();
        Place(t)
    }

    /// `@` stands for the directory.
    fn expand(&self, text: &str) -> String {
        text.replace('@', self.0.path().canonicalize().unwrap().to_str().unwrap())
    }

    fn load(&self, line: &str) -> Result<Settings, ConfigError> {
        load(&args(&self.expand(line)), &around(self.0.path()))
    }

    fn load_file(&self, line: &str, file: &str) -> Result<Settings, ConfigError> {
        fs::write(self.0.path().join("c"), self.expand(file)).unwrap();
        self.load(&format!("--config @/c {line}"))
    }

    /// The error's text from the line number on.
    fn error(&self, file: &str) -> String {
        let e = self.load_file("", file).unwrap_err().to_string();
        e.strip_prefix(&self.expand("@/c:")).unwrap_or(&e).to_owned()
    }
}

#[test]
fn a_directory_is_enough() {
    let p = Place::new();
    let s = p.load("@/a").unwrap();
    assert_eq!(s.listen, DEFAULT_LISTEN);
    assert_eq!((s.threads, s.log_level.as_str(), s.rpcbind), (3, "info", RpcbindMode::Auto));
    assert_eq!(s.state_dir, p.0.path().join("home/.local/state/nfsd"));
    let mut want = ExportSettings::new(p.expand("@/a").into());
    want.pseudo = p.expand("@/a").into_bytes();
    assert_eq!(s.exports, [want]);
    assert_eq!(s.warnings, [""; 0]);
}

#[test]
fn flags_reach_every_export() {
    let p = Place::new();
    let s = p
        .load(
            "--listen tcp://127.0.0.1:1 --listen tcp://[::1]:2 --clients 10.0.0.0/8,192.0.2.1 --insecure --read-only \
             --squash all --no-sync --threads 7 --state-dir @/s --log-level debug --rpcbind off @/a @/b",
        )
        .unwrap();
    assert_eq!(s.listen, ["tcp://127.0.0.1:1", "tcp://[::1]:2"]);
    assert_eq!((s.threads, s.state_dir, s.log_level.as_str()), (7, p.expand("@/s").into(), "debug"));
    assert_eq!((s.exports.len(), s.rpcbind), (2, RpcbindMode::Off));
    for e in &s.exports {
        assert!(e.insecure && e.read_only && !e.sync);
        assert_eq!((e.squash, &e.clients), (Squash::All, &"10.0.0.0/8,192.0.2.1".parse().unwrap()));
    }
    assert!(s.warnings.iter().any(|w| w.contains("sync off")));
}

const FULL: &str = r#"
listen = ["tcp://127.0.0.1:3049"]
threads = 2
spin = 120
state_dir = "/var/tmp/state"
rpcbind = "embedded"

[[export]]
path = "@/a"
pseudo = "//data/"
clients = ["10.0.0.0/8", "fd00::/8"]
insecure = true
access = "ro"
squash = "none"
anonuid = 7
anongid = 8
sync = false
sec = ["none"]
read = "dontcache"
write = "hybrid"
writeback_kick = "after_reply"
splice = "off"

[[export]]
path = "@/b"
clients = "localhost"
"#;

#[test]
fn the_file_says_everything() {
    let p = Place::new();
    let s = p.load_file("", FULL).unwrap();
    assert_eq!((s.listen, s.threads), (vec!["tcp://127.0.0.1:3049".to_owned()], 2));
    assert_eq!(s.spin, Duration::from_micros(120));
    assert_eq!(s.rpcbind, RpcbindMode::Embedded);
    assert_eq!(s.state_dir, Path::new("/var/tmp/state"));
    let [a, b] = &s.exports[..] else { panic!() };
    let want = ExportSettings {
        path: p.expand("@/a").into(),
        pseudo: b"/data".to_vec(),
        read_only: true,
        sync: false,
        clients: "10.0.0.0/8,fd00::/8".parse().unwrap(),
        insecure: true,
        squash: Squash::None,
        anon_uid: 7,
        anon_gid: 8,
        sec: smallvec::smallvec![SecFlavor::None],
        io: IoModes { read: ReadMode::DontCache, write: WriteMode::Hybrid, kick: true, splice: None },
    };
    assert_eq!(*a, want);
    assert_eq!(*b, ExportSettings::new(p.expand("@/b").into()));
    assert!(s.warnings.iter().any(|w| w.contains("squash none")));
}

#[test]
fn flags_override_the_file() {
    let p = Place::new();
    let s = p
        .load_file(
            "--listen tcp://[::1]:9 --threads 5 --spin auto --state-dir @/s --squash root --clients ::1 --read-only",
            FULL,
        )
        .unwrap();
    assert_eq!((s.listen, s.threads), (vec!["tcp://[::1]:9".to_owned()], 5));
    assert_eq!(s.spin, SPIN_AUTO);
    assert_eq!(s.state_dir, Path::new(&p.expand("@/s")));
    for e in &s.exports {
        assert!(e.read_only && e.squash == Squash::Root);
        assert_eq!(e.clients, "::1".parse().unwrap());
    }
    assert!(s.exports[0].insecure && !s.exports[0].sync, "what no flag says stays");
}

#[test]
fn directories_of_both_are_served_once_each() {
    let p = Place::new();
    let s = p.load_file("@/b @/a/ @/l", "[[export]]\npath = \"@/a\"\nanonuid = 5\n").unwrap();
    let all: Vec<_> = s.exports.iter().map(|e| (e.path.clone(), e.anon_uid)).collect();
    assert_eq!(all, [(p.expand("@/a").into(), 5), (p.expand("@/b").into(), 65534)]);
}

#[test]
fn a_link_is_served_under_both_names() {
    let p = Place::new();
    let s = p.load("@/l").unwrap();
    assert_eq!(s.exports[0].path, Path::new(&p.expand("@/a")));
    assert_eq!(s.exports[0].pseudo, p.expand("@/l").into_bytes());
}

#[test]
fn mistakes_in_the_file_name_line_and_remedy() {
    let p = Place::new();
    let export = |more: &str| format!("[[export]]\npath = \"@/a\"\n{more}\n");
    let cases = [
        (export("acess = \"ro\""), "3: ", "did you mean `access`?"),
        (export("access = \"r0\""), "3: ", "\"rw\", \"ro\""),
        (export("squash = \"rot\""), "3: ", "did you mean \"root\"?"),
        (export("clients = [\n\"10.0.0.0/8\",\n\"ten\"]"), "3: ", "\"ten\" names no clients"),
        (export("clients = []"), "3: ", "localhost"),
        (export("anonuid = -1"), "3: ", "anonuid must be 0 to 4294967294"),
        (export("anongid = 4294967295"), "3: ", "anongid must be"),
        (export("sec = [\"krb5\"]"), "3: ", "later release"),
        (export("sec = [\"sis\"]"), "3: ", "did you mean \"sys\"?"),
        (export("sec = []"), "3: ", "leave it out"),
        (export("read = \"hybrid\""), "3: ", "\"buffered\", \"dontcache\", \"direct\""),
        (export("write = \"hibrid\""), "3: ", "did you mean \"hybrid\"?"),
        (export("writeback_kick = \"on\""), "3: ", "\"after_reply\""),
        (export("splice = \"on\""), "3: ", "\"auto\""),
        (export("splice = -1"), "3: ", "bytes"),
        (export("pseudo = \"data\""), "3: ", "absolute"),
        (export("pseudo = \"/a/../b\""), "3: ", ".."),
        (export("sync = \"yes\""), "3: ", "bool"),
        ("[[export]]\npath = \"a\"\n".into(), "2: ", "absolute"),
        ("\n[[export]]\npath = \"@/none\"\n".into(), "3: ", "exists"),
        ("[[export]]\npath = \"@/f\"\n".into(), "2: ", "not a directory"),
        (export("\n[[export]]\npath = \"@/l\""), "5: ", "twice"),
        ("threads = 0\n".into(), "1: ", "1 to 1024"),
        ("\n\nspin = \"on\"\n".into(), "3: ", "auto"),
        ("spin = 10001\n".into(), "1: ", "10000"),
        ("spin = -1\n".into(), "1: ", "microseconds"),
        ("\nlisten = []\n".into(), "2: ", DEFAULT_LISTEN[0]),
        ("listen = [\"2049\"]\n".into(), "1: ", "SCHEME://ADDRESS"),
        ("listen = [\"tcp://[::]:1\", \"tcp://[::]:1\"]\n".into(), "1: ", "twice"),
        ("state_dir = \"state\"\n".into(), "1: ", "absolute"),
        ("rpcbind = \"none\"\n".into(), "1: ", "\"embedded\""),
        ("rpcbind = \"of\"\n".into(), "1: ", "did you mean \"off\"?"),
    ];
    for (file, line, remedy) in cases {
        let e = p.error(&file);
        assert!(e.starts_with(line) && e.contains(remedy), "{file}\n-> {e}");
    }
}

#[test]
fn mistakes_in_flags_name_the_flag() {
    let p = Place::new();
    let cases = [
        ("--clients ten @/a", "--clients: ", "names no clients"),
        ("--clients , @/a", "--clients: ", "localhost"),
        ("--spin of @/a", "--spin: ", "off"),
        ("--threads 2000 @/a", "--threads: ", "1024"),
        ("--listen 2049 @/a", "--listen: ", "SCHEME://ADDRESS"),
        ("@/none", "DIR: ", "exists"),
        ("@/f", "DIR: ", "not a directory"),
        ("", "nothing to serve", "--config"),
        ("--config @/none", "cannot read", "none"),
    ];
    for (line, start, remedy) in cases {
        let e = p.load(line).unwrap_err().to_string();
        assert!(e.starts_with(start) && e.contains(remedy), "{line} -> {e}");
    }
}

#[test]
fn the_state_directory_follows_user_and_environment() {
    let base = Surroundings { superuser: true, xdg_state_home: None, home: None, processors: 1 };
    let dir = |s: &Surroundings| s.state_dir().map(|p| p.to_str().unwrap().to_owned());
    assert_eq!(dir(&base).unwrap(), "/var/lib/nfsd");
    let user = Surroundings { superuser: false, home: Some("/home/u".into()), ..base.clone() };
    assert_eq!(dir(&user).unwrap(), "/home/u/.local/state/nfsd");
    let xdg = Surroundings { xdg_state_home: Some("/x".into()), ..user.clone() };
    assert_eq!(dir(&xdg).unwrap(), "/x/nfsd");
    let relative = Surroundings { xdg_state_home: Some("x".into()), ..user };
    assert_eq!(dir(&relative).unwrap(), "/home/u/.local/state/nfsd", "a relative one is to be ignored");
    let e = dir(&Surroundings { superuser: false, ..base }).unwrap_err();
    assert!(e.to_string().contains("--state-dir"));
}

#[test]
fn a_state_directory_inside_an_export_is_warned_of() {
    let p = Place::new();
    let s = p.load("--state-dir @/l/deep/state @/a").unwrap();
    assert!(s.warnings.iter().any(|w| w.contains("--state-dir")), "{:?}", s.warnings);
    let s = p.load("--state-dir @/ab @/a").unwrap();
    assert!(s.warnings.is_empty());
}

//! A running `nfsd`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tempfile::TempDir;

/// Longest wait for something that is certain to come unless the server is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    pub port: u16,
    pub dir: TempDir,
    state: TempDir,
    how: How,
    log: Arc<Mutex<Vec<String>>>,
}

/// How a server is started besides its directory and its port.
#[derive(Debug, Clone, Default)]
pub struct How {
    /// Further arguments.
    pub args: Vec<String>,
    /// Limit of open files.
    pub open_files: Option<u32>,
    /// Only source ports below 1024 are accepted.
    pub secure: bool,
    /// State directory of another server, instead of one of its own.
    pub state: Option<PathBuf>,
}

impl Server {
    /// Serves a new directory on a free port of this host.
    pub fn start(args: &[&str]) -> Server {
        let args = args.iter().map(|s| (*s).to_owned()).collect();
        Server::start_how(How { args, ..How::default() })
    }

    pub fn start_how(how: How) -> Server {
        let dir = tempfile::tempdir().unwrap();
        // Created for everybody, so that callers of any uid reach what is inside.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let state = tempfile::tempdir().unwrap();
        let log = Arc::default();
        let (child, port) = launch(dir.path(), how.state.as_deref().unwrap_or(state.path()), 0, &how, &log);
        Server { child, port, dir, state, how, log }
    }

    #[allow(dead_code)] // for tests of other programs that share this file
    /// What the server has written to its log so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    #[allow(dead_code)] // as above
    /// True once the log has such a line; false if it has not come in time.
    pub fn wait_for_log(&self, line: impl Fn(&str) -> bool) -> bool {
        let start = std::time::Instant::now();
        while start.elapsed() < PATIENCE {
            if self.log().iter().any(|l| line(l)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        self.how.state.as_deref().unwrap_or(self.state.path())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and the same server again on the same port.
    pub fn crash_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (child, port) = launch(self.dir.path(), self.state(), self.port, &self.how, &self.log);
        assert_eq!(port, self.port);
        self.child = child;
    }

    /// SIGTERM; how the server ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let ok = Command::new("kill").arg(self.pid().to_string()).status().unwrap();
        assert!(ok.success());
        self.child.wait().unwrap()
    }

    #[allow(dead_code)] // as above
    /// The UDP port among those that the kernel lists as this process's.
    pub fn udp_port(&self) -> u16 {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let links = fds.filter_map(|f| std::fs::read_link(f.unwrap().path()).ok());
        let sockets: Vec<String> = links
            .filter_map(|l| Some(l.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
            .collect();
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let mut lines = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|l| l.get(9).is_some_and(|i| sockets.iter().any(|s| s == i))).unwrap();
        u16::from_str_radix(line[1].split_once(':').unwrap().1, 16).unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        let s = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        s.set_nodelay(true).unwrap();
        s
    }

    /// Value in KiB of a line of `/proc/PID/status`.
    pub fn memory(&self, key: &str) -> i64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nfsd"))
}

/// Starts the program and returns once it has printed its mount command.
fn launch(dir: &Path, state: &Path, port: u16, how: &How, log: &Arc<Mutex<Vec<String>>>) -> (Child, u16) {
    let mut command = match how.open_files {
        None => command(),
        Some(n) => {
            let mut sh = Command::new("sh");
            let nfsd = env!("CARGO_BIN_EXE_nfsd");
            sh.args(["-c", &format!("ulimit -n {n} && exec \"$0\" \"$@\""), nfsd]);
            sh
        }
    };
    if !how.secure {
        command.arg("--insecure");
    }
    let mut child = command
        .arg(dir)
        .args(["--listen", &format!("tcp://127.0.0.1:{port}"), "--state-dir"])
        .arg(state)
        // Port 111 and the registrations of this machine are none of a test's business.
        .args(["--rpcbind", "off"])
        .args(&how.args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (err, log) = (child.stderr.take().unwrap(), log.clone());
    std::thread::spawn(move || {
        for line in BufReader::new(err).lines().map_while(Result::ok) {
            eprintln!("{line}");
            log.lock().unwrap().push(line);
        }
    });
    let out = child.stdout.take().unwrap();
    let (tx, rx) = mpsc::channel();
    // Keeps reading to the end, so that the server never waits for its reader.
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once(",port=") {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let _ = tx.send(digits.parse::<u16>().unwrap());
            }
        }
    });
    let port = rx.recv_timeout(PATIENCE).expect("nfsd prints its mount command");
    (child, port)
}

/// Sends one record and returns the next one; `None` if the server closed the connection.
pub fn exchange(s: &mut TcpStream, call: &[u8]) -> Option<Vec<u8>> {
    let mut rec = (call.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    rec.extend_from_slice(call);
    s.write_all(&rec).ok()?;
    receive(s)
}

/// The next record; `None` if the server closed the connection.
pub fn receive(s: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    if let Err(e) = s.read_exact(&mut mark) {
        assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "no reply in {PATIENCE:?}");
        return None;
    }
    let mut rec = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    s.read_exact(&mut rec).ok()?;
    Some(rec)
}

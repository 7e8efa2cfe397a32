//! The program as its users meet it.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use sunrpc::page::PageWriter;
use sunrpc::rpcbind::{Host, Mapping, Netid, Registry, Rpcbind, Uaddr};
use sunrpc::svc::{Call, Dispatch, Flow, ProcInfo, Program, RpcError, VersionInfo};
use sunrpc::xdr::{Decoder, XdrWrite};
use sunrpc::xprt::PeerAddr;
use sunrpc_transports::{Handle, Server};

/// Versions 2 and 4; procedure 1 gives its opaque back.
#[derive(Clone, Copy, Default)]
struct Twice {
    /// Serves callers from ports below 1024 only.
    reserved_only: bool,
}

impl Program for Twice {
    fn number(&self) -> u32 {
        0x2000_0ec9
    }

    fn name(&self) -> &'static str {
        "twice"
    }

    fn versions(&self) -> &[VersionInfo] {
        const PROCS: &[ProcInfo] = &[ProcInfo::new("NULL", 0), ProcInfo::new("ECHO", 70_000)];
        const ALL: &[VersionInfo] =
            &[VersionInfo { vers: 2, procs: PROCS }, VersionInfo { vers: 4, procs: PROCS }];
        ALL
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(*self))
    }
}

impl Dispatch for Twice {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        let low = matches!(cx.peer, PeerAddr::Inet(a) if a.port() < 1024);
        if self.reserved_only && !low {
            return Err(RpcError::Auth(sunrpc::msg::AuthStat::TooWeak));
        }
        if cx.proc == 1 {
            let bytes = args.opaque(65_536)?;
            out.put_opaque(bytes, 65_536).map_err(|_| RpcError::SystemErr)?;
        }
        args.finish()?;
        Ok(Flow::Done)
    }
}

struct Everybody;

impl Host for Everybody {
    fn admits(&self, _: &PeerAddr) -> bool {
        true
    }

    fn now(&self) -> u32 {
        0
    }

    fn address_towards(&self, peer: std::net::IpAddr) -> Option<std::net::IpAddr> {
        Some(peer)
    }
}

struct Running {
    url: String,
    handle: Handle,
    join: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(program: impl Program) -> Running {
        Running::start_at(program, "tcp://127.0.0.1:0")
    }

    fn start_at(program: impl Program, url: &str) -> Running {
        let server = Server::builder().program(program).threads(1).listen(url).unwrap();
        let server = server.build().unwrap();
        let (url, handle) = (server.urls().remove(0), server.handle());
        let join = Some(std::thread::spawn(move || server.run().unwrap()));
        Running { url, handle, join }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop(Duration::ZERO);
        self.join.take().map(|j| j.join());
    }
}

/// Whether it succeeded, output, errors.
fn sunrpc(args: &[&str]) -> (bool, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_sunrpc")).args(args).output().unwrap();
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    (out.status.success(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn ping_finds_the_highest_version() {
    let s = Running::start(Twice::default());
    let (ok, out, _) = sunrpc(&["ping", &s.url, "0x20000ec9", "-c", "3", "-i", "0"]);
    assert!(ok && out.matches("version 4: ").count() == 3, "{out}");
    assert!(out.contains("3 calls, 3 answered"), "{out}");
}

#[test]
fn ping_says_what_is_wrong() {
    let s = Running::start(Twice::default());
    let (ok, out, err) = sunrpc(&["ping", &s.url, "0x20000ec9", "3", "-c", "1"]);
    assert!(!ok && out.contains("versions 2 to 4") && err.contains("1 of 1"), "{out}{err}");
    let (ok, _, err) = sunrpc(&["ping", &s.url, "nfs", "-c", "1"]);
    assert!(!ok && err.contains("does not offer this program"), "{err}");
    let (ok, _, err) = sunrpc(&["ping", "tcp://127.0.0.1:1", "nfs", "3", "-c", "1"]);
    assert!(!ok && err.contains("cannot connect"), "{err}");
    let (ok, _, err) = sunrpc(&["ping", "127.0.0.1:1", "nfs", "3"]);
    assert!(!ok && err.contains("SCHEME://ADDRESS"), "{err}");
    assert!(!sunrpc(&["ping", &s.url, "nfs", "3", "-i", "-1"]).0);
}

#[test]
fn every_command_waits_for_a_server_that_is_not_there_yet() {
    let name = format!("local:@sunrpc-cli-wait-{}", std::process::id());
    let udp = "udp://127.0.0.1:47111";
    for (url, args, success) in [
        (udp, &["ping", udp, "0x20000ec9", "4", "-c", "1"][..], "1 calls, 1 answered"),
        (&*name, &["ping", &name, "0x20000ec9", "-c", "1"], "1 calls, 1 answered"),
        (&*name, &["info", &name, "0x20000ec9"], "version 2: ready"),
        (&*name, &["bench", &name, "0x20000ec9", "4", "-t", "0.1"], "p99.9"),
    ] {
        let (ok, out, err) = sunrpc(args);
        assert!(!ok && format!("{out}{err}").contains("nobody listens"), "{out}{err}");
        let mut waiting = Command::new(env!("CARGO_BIN_EXE_sunrpc"));
        let waiting = waiting.args(args).args(["--wait", "60"]).stdout(Stdio::piped());
        let mut waiting = waiting.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(waiting.try_wait().unwrap().is_none(), "it does not wait");
        let s = Running::start_at(Twice::default(), url);
        let out = waiting.wait_with_output().unwrap();
        drop(s);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success() && text.contains(success), "{text}");
    }
}

#[test]
fn info_tells_versions_apart() {
    let s = Running::start(Twice::default());
    let (ok, out, _) = sunrpc(&["info", &s.url, "0x20000ec9"]);
    assert!(ok && out.contains("versions 2 to 4"), "{out}");
    assert!(out.contains("version 2: ready") && out.contains("version 3: not offered"), "{out}");
    assert!(out.contains("version 4: ready"), "{out}");
}

#[test]
fn info_lists_what_rpcbind_knows() {
    let registry = Arc::new(Registry::new());
    let addr = Uaddr::Inet("127.0.0.1:2049".parse().unwrap());
    registry.announce(vec![Mapping { prog: 100_003, vers: 3, netid: Netid::Tcp, addr }]);
    let s = Running::start(Rpcbind::new(registry, Everybody));
    let (ok, out, err) = sunrpc(&["info", &s.url]);
    assert!(ok, "{out}{err}");
    let words: Vec<Vec<_>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(words.contains(&vec!["100003", "3", "tcp", "127.0.0.1.8.1", "nfs"]), "{out}");
}

#[test]
fn bench_counts_every_call() {
    let s = Running::start(Twice::default());
    for more in [&["-c", "2", "-q", "8"][..], &["-p", "1", "-o", "60000", "-q", "4"]] {
        let args = [&["bench", &s.url, "0x20000ec9", "4", "-t", "0.2"], more].concat();
        let (ok, out, err) = sunrpc(&args);
        let calls: u64 = out.lines().nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(ok && calls >= 4 && out.contains("p99.9"), "{out}{err}");
    }
    let (ok, _, err) = sunrpc(&["bench", &s.url, "0x20000ec9", "3", "-t", "5"]);
    assert!(!ok && err.contains("versions 2 to 4"), "{err}");
}

fn root() -> bool {
    // Owner of the process's own directory.
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    if !root {
        eprintln!("SKIPPED: needs root");
    }
    root
}

#[test]
fn every_command_calls_from_a_reserved_port_if_told_to() {
    if !root() {
        return;
    }
    let s = Running::start(Twice { reserved_only: true });
    for (args, success) in [
        (&["ping", &s.url, "0x20000ec9", "-c", "1"][..], "1 calls, 1 answered"),
        (&["info", &s.url, "0x20000ec9"], "version 2: ready"),
        (&["bench", &s.url, "0x20000ec9", "4", "-t", "0.1"], "p99.9"),
    ] {
        let (ok, out, err) = sunrpc(&[args, &["--reserved-port"]].concat());
        assert!(ok && out.contains(success), "{out}{err}");
        let (_, out, err) = sunrpc(args);
        assert!(
            !out.contains(success) && format!("{out}{err}").contains("rejected the caller"),
            "{out}{err}"
        );
    }
}

#[test]
fn who_may_not_use_a_reserved_port_is_told_what_to_do() {
    if !root() {
        return;
    }
    let start = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if start.trim().parse() != Ok(1024) {
        return eprintln!("SKIPPED: this system lets every user have ports below 1024");
    }
    let s = Running::start(Twice::default());
    let args = ["ping", &s.url, "0x20000ec9", "4", "-c", "1", "--reserved-port"];
    let without = ["--inh-caps=-all", "--bounding-set=-net_bind_service"];
    let sunrpc = env!("CARGO_BIN_EXE_sunrpc");
    let out = match Command::new("setpriv").args(without).arg(sunrpc).args(args).output() {
        Err(e) => return eprintln!("SKIPPED: setpriv: {e}"),
        Ok(out) => out,
    };
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && err.contains("CAP_NET_BIND_SERVICE") && err.contains(&s.url), "{err}");
    assert!(!err.contains("that socket"), "{err}");
}

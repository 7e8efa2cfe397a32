//! Runs the examples as a reader would.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

sunrpc::include_program!(timer);

struct Server(Child);

impl Server {
    /// Starts a server and returns the URL that it prints.
    fn start(exe: &str, url: &str) -> (Self, String) {
        let mut child = Command::new(exe).arg(url).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        (Server(child), url.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn echo_by_changing_one_string() {
    let local = format!("local:@sunrpc-echo-{}", std::process::id());
    for url in ["tcp://127.0.0.1:0", "tcp://[::1]:0", "udp://127.0.0.1:0", &local] {
        let (_server, url) = Server::start(env!("CARGO_BIN_EXE_echo-server"), url);
        let out =
            Command::new(env!("CARGO_BIN_EXE_echo-client")).args([&url, "hello", "there"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "hello there\n40 + 2 = 42\n", "{url}: {out:?}");
    }
}

#[test]
fn the_shortest_wait_is_answered_first() {
    let (_server, url) = Server::start(env!("CARGO_BIN_EXE_timer-server"), "tcp://127.0.0.1:0");
    let url = &url;
    std::thread::scope(|s| {
        let mut client = timer::TimerV1Client::new(sunrpc_transports::connect(url).unwrap());
        // Waits until the other has been answered: it is asked first and waits longest.
        let long = s.spawn(move || client.wait(1500).unwrap());
        let mut client = timer::TimerV1Client::new(sunrpc_transports::connect(url).unwrap());
        loop {
            // The long call is waiting when a short one finds it.
            if client.wait(0).unwrap() == 1 {
                break;
            }
        }
        assert_eq!(long.join().unwrap(), 0);
    });
}

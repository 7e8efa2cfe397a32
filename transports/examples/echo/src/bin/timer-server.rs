//! `timer-server tcp://[::1]:4098`: a service that keeps a call and answers it later, from another thread. Thousands of
//! calls may be waiting; none of them holds a thread of the server.

use std::collections::BinaryHeap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use sunrpc::svc::{Call, Outcome, Responder};
use sunrpc_transports::Server;

sunrpc::include_program!(timer);

struct Timer(Sender<Waiting>);

impl timer::TimerV1 for Timer {
    fn wait(&self, call: &mut Call<'_>, ms: u32) -> Outcome<u32> {
        let (token, answer) = call.defer();
        // Nobody to receive it: the call is dropped, and dropping it answers SYSTEM_ERR.
        let _ = self.0.send(Waiting { until: Instant::now() + Duration::from_millis(ms.into()), answer });
        Outcome::Later(token)
    }
}

struct Waiting {
    until: Instant,
    answer: Responder<u32>,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.until.cmp(&self.until)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for Waiting {}

/// Answers the calls when their time has come.
fn answer_all(calls: mpsc::Receiver<Waiting>) {
    let mut waiting: BinaryHeap<Waiting> = BinaryHeap::new();
    loop {
        let left = waiting
            .peek()
            .map_or(Duration::from_secs(3600), |w| w.until.saturating_duration_since(Instant::now()));
        match calls.recv_timeout(left) {
            Ok(w) => waiting.push(w),
            Err(RecvTimeoutError::Timeout) => {
                let others = waiting.len().saturating_sub(1) as u32;
                if let Some(w) = waiting.pop() {
                    w.answer.complete(Ok(others));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("tcp://[::1]:4098".into());
    let (calls, received) = mpsc::channel();
    std::thread::spawn(|| answer_all(received));
    let server = Server::builder().program(timer::TimerV1Server::new(Timer(calls))).listen(&url)?.build()?;
    println!("{}", server.urls().join("\n"));
    Ok(server.run()?)
}

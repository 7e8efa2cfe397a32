//! Counters of a running server.
#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sunrpc::page::PageWriter;
use sunrpc::svc::{Call, Dispatch, Flow, ProcInfo, ProcStats, Program, RpcError, VersionInfo};
use sunrpc::xdr::Decoder;
use sunrpc_transports::{Server, ServerStats};

const PROG: u32 = 0x2000_0001;
const NULL: u32 = 0;
const WAIT: u32 = 1;
const FAIL: u32 = 2;
const PROCS: &[ProcInfo] =
    &[ProcInfo::new("NULL", 0), ProcInfo::new("WAIT", 0).blocking(), ProcInfo::new("FAIL", 0)];
const VERSIONS: &[VersionInfo] = &[VersionInfo { vers: 1, procs: PROCS }];

/// A program whose WAIT waits for the test.
#[derive(Clone)]
struct Waiting {
    begun: Sender<()>,
    go_on: Arc<Mutex<Receiver<()>>>,
}

impl Program for Waiting {
    fn number(&self) -> u32 {
        PROG
    }
    fn name(&self) -> &'static str {
        "waiting"
    }
    fn versions(&self) -> &[VersionInfo] {
        VERSIONS
    }
    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn Error + Send + Sync>> {
        Ok(Box::new(self.clone()))
    }
}

impl Dispatch for Waiting {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        _: &mut Decoder<'_>,
        _: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        match cx.proc {
            WAIT => {
                self.begun.send(()).unwrap();
                self.go_on.lock().unwrap().recv().unwrap();
                Ok(Flow::Done)
            }
            FAIL => Err(RpcError::SystemErr),
            _ => Ok(Flow::Done),
        }
    }
}

fn send(s: &mut TcpStream, proc: u32) {
    let words = [0x8000_0000 | 40, 7, 0, 2, PROG, 1, proc, 0, 0, 0, 0];
    s.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
}

fn receive(s: &mut TcpStream) {
    let mut reply = [0; 28];
    s.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [0x80, 0, 0, 24]);
}

/// Counters of a procedure, all threads together.
fn sum(stats: &ServerStats, proc: u32) -> ProcStats {
    let mut all = ProcStats::default();
    for row in stats.threads.iter().flat_map(|t| &t.procedures).filter(|p| p.proc == proc) {
        assert_eq!((row.prog, row.vers, row.program), (PROG, 1, "waiting"));
        all.add(&row.stats);
    }
    all
}

#[test]
fn every_thread_answers_and_a_busy_one_is_marked() {
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel());
    let program = Waiting { begun, go_on: Arc::new(Mutex::new(may_go_on)) };
    let server = Server::builder().program(program).threads(2).helpers(1);
    let server = server.listen("tcp://127.0.0.1:0").unwrap().build().unwrap();
    let (handle, url) = (server.handle(), server.urls().remove(0));
    assert_eq!(handle.stats().threads, [], "it does not run yet");
    let thread = std::thread::spawn(move || server.run());

    let mut client = TcpStream::connect(url.trim_start_matches("tcp://")).unwrap();
    for proc in [NULL, NULL, FAIL, NULL] {
        send(&mut client, proc);
        receive(&mut client);
    }
    let s = handle.stats();
    let names: Vec<_> = s.threads.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["rpc-0", "rpc-1", "rpc-help-0"]);
    assert!(s.threads.iter().all(|t| t.current), "{s:#?}");
    assert_eq!(sum(&s, NULL), ProcStats { calls: 3, ..ProcStats::default() });
    assert_eq!(sum(&s, FAIL), ProcStats { calls: 1, errors: 1, ..ProcStats::default() });
    assert_eq!(s.threads.iter().map(|t| t.worker.records).sum::<u64>(), 4);
    let (taken, held) = s.threads.iter().fold((0, 0), |(t, h), x| (t + x.pool.taken, h + x.pages_now.held.0));
    assert!(taken > 0 && held > 0);
    assert_eq!(s.threads.iter().map(|t| t.send.copied).sum::<u64>(), 4 * 28);
    assert_eq!(s.depot.cut.0, s.depot.free.0 + held, "no page is in use");

    send(&mut client, WAIT);
    has_begun.recv().unwrap();
    let s = handle.stats();
    let current: Vec<_> = s.threads.iter().map(|t| t.current).collect();
    assert_eq!(current, [true, true, false], "the helper cannot answer");
    assert_eq!(sum(&s, WAIT), ProcStats { calls: 1, waited: 1, ..ProcStats::default() });
    go_on.send(()).unwrap();
    receive(&mut client);
    let s = handle.stats();
    assert!(s.threads.iter().all(|t| t.current));
    assert_eq!(s.threads[2].service.accepted, 1);
    assert_eq!(sum(&s, WAIT).calls, 1, "counted where it arrived");

    handle.stop(Duration::from_secs(5));
    thread.join().unwrap().unwrap();
    let end = handle.stats();
    assert!(end.threads.iter().all(|t| t.current), "last numbers are kept");
    assert_eq!(end.threads.iter().map(|t| t.worker.closed).sum::<u64>(), 1);
    assert_eq!(end.threads.iter().map(|t| t.send.copied).sum::<u64>(), 5 * 28, "also of closed connections");
}

//! A program written by hand against the service traits, and a server to run it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Duration;
use sunrpc::page::PageWriter;
use sunrpc::svc::{Call, Deferred, Dispatch, Flow, ProcInfo, Program, RpcError, VersionInfo};
use sunrpc::xdr::{Decoder, Encode, XdrWrite};
use sunrpc::xprt::PeerAddr;
use sunrpc_transports::{Builder, Handle, ServeError, Server};

pub const PROG: u32 = 0x2000_0099;
pub const NULL: u32 = 0;
/// opaque -> the same opaque.
pub const ECHO: u32 = 1;
/// uint -> uint, computed on a helper.
pub const SLOW: u32 = 2;
/// uint -> uint, answered by another thread.
pub const LATER: u32 = 3;
/// uint -> opaque of that many bytes.
pub const FILL: u32 = 4;
/// void -> nothing: the responder is dropped.
pub const FORGET: u32 = 5;

/// void -> user and process of a local caller.
pub const WHO: u32 = 6;

/// void -> number of the worker that owns the connection.
pub const WORKER: u32 = 7;

pub struct Test;

impl Program for Test {
    fn number(&self) -> u32 {
        PROG
    }

    fn name(&self) -> &'static str {
        "test"
    }

    fn versions(&self) -> &[VersionInfo] {
        const PROCS: &[ProcInfo] = &[
            ProcInfo::new("NULL", 0),
            ProcInfo::new("ECHO", (1 << 20) + 8),
            ProcInfo::new("SLOW", 4),
            ProcInfo::new("LATER", 4),
            ProcInfo::new("FILL", (1 << 20) + 8),
            ProcInfo::new("FORGET", 4),
            ProcInfo::new("WHO", 8),
            ProcInfo::new("WORKER", 4),
        ];
        const VERSIONS: &[VersionInfo] = &[
            VersionInfo { vers: 1, procs: PROCS },
            VersionInfo { vers: 3, procs: PROCS.first_chunk::<1>().expect("not empty") },
        ];
        VERSIONS
    }

    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Box::new(TestDispatch))
    }
}

struct TestDispatch;

impl Dispatch for TestDispatch {
    fn call(
        &mut self,
        cx: &mut Call<'_>,
        args: &mut Decoder<'_>,
        out: &mut PageWriter<'_>,
    ) -> Result<Flow, RpcError> {
        let full = |_| RpcError::SystemErr;
        match cx.proc {
            NULL => args.finish()?,
            ECHO => {
                let p = args.payload(1 << 20)?;
                args.finish()?;
                p.encode(out).map_err(full)?;
            }
            SLOW if !cx.blocking => return Ok(Flow::WouldBlock),
            SLOW => {
                let n = args.u32()?;
                args.finish()?;
                out.put_u32(n + 1).map_err(full)?;
            }
            LATER => {
                let n = args.u32()?;
                args.finish()?;
                let (_token, responder): (Deferred, _) = cx.defer::<u32>();
                std::thread::spawn(move || responder.complete(Ok(n + 2)));
                return Ok(Flow::Later);
            }
            FILL => {
                let n = args.u32()? as usize;
                args.finish()?;
                out.put_u32(n as u32).map_err(full)?;
                out.payload::<sunrpc::xdr::XdrError, _>(n, |iov| {
                    iov.iter_mut().for_each(|s| s.fill(b'f'));
                    Ok((n, ()))
                })
                .map_err(full)?;
                out.put_padding(n).map_err(full)?;
            }
            FORGET => {
                args.finish()?;
                drop(cx.defer::<u32>());
                return Ok(Flow::Later);
            }
            WHO => {
                args.finish()?;
                let PeerAddr::Local { uid, pid } = *cx.peer else { return Err(RpcError::SystemErr) };
                out.put_u32(uid).and_then(|()| out.put_u32(pid)).map_err(full)?;
            }
            WORKER => {
                args.finish()?;
                let name = std::thread::current().name().and_then(|n| n.strip_prefix("rpc-")?.parse().ok());
                out.put_u32(name.ok_or(RpcError::SystemErr)?).map_err(full)?;
            }
            _ => return Err(RpcError::ProcUnavail),
        }
        Ok(Flow::Done)
    }
}

pub struct Running {
    pub addr: String,
    pub urls: Vec<String>,
    pub handle: Handle,
    join: Option<JoinHandle<Result<(), ServeError>>>,
}

pub fn start(tune: impl FnOnce(Builder) -> Builder) -> Running {
    let b = Server::builder().program(Test).threads(2).listen("tcp://127.0.0.1:0").expect("loopback");
    let server = tune(b).build().expect("buildable");
    let urls = server.urls();
    let addr = urls[0].trim_start_matches("tcp://").to_owned();
    let handle = server.handle();
    let join = Some(std::thread::spawn(move || server.run()));
    Running { addr, urls, handle, join }
}

impl Running {
    pub fn url(&self) -> String {
        format!("tcp://{}", self.addr)
    }

    pub fn raw(&self) -> TcpStream {
        let s = TcpStream::connect(&self.addr).expect("server is listening");
        s.set_read_timeout(Some(Duration::from_secs(20))).expect("valid time-out");
        s
    }

    pub fn stop(mut self) {
        self.handle.stop(Duration::from_secs(5));
        if let Some(j) = self.join.take() {
            j.join().expect("no panic").expect("clean end");
        }
    }
}

/// A call message with AUTH_NONE and these argument bytes, record mark included.
pub fn call(xid: u32, vers: u32, proc: u32, args: &[u8]) -> Vec<u8> {
    let mut m = Vec::new();
    for w in [xid, 0, 2, PROG, vers, proc, 0, 0, 0, 0] {
        m.extend_from_slice(&w.to_be_bytes());
    }
    m.extend_from_slice(args);
    frame(&m)
}

pub fn frame(m: &[u8]) -> Vec<u8> {
    let mut r = (m.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    r.extend_from_slice(m);
    r
}

/// The next record; `None` if the server closed the connection.
pub fn record(s: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    match s.read_exact(&mut mark) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("no reply in time"),
        Err(_) => return None,
    }
    let mark = u32::from_be_bytes(mark);
    assert!(mark & 0x8000_0000 != 0, "replies are one fragment");
    let mut rec = vec![0; (mark & 0x7fff_ffff) as usize];
    s.read_exact(&mut rec).expect("whole record");
    Some(rec)
}

pub fn words(rec: &[u8]) -> Vec<u32> {
    rec.chunks(4).map(|c| u32::from_be_bytes(c.try_into().expect("multiple of four"))).collect()
}

/// The server answers a NULL call on a fresh connection.
pub fn assert_serves(r: &Running) {
    let mut s = r.raw();
    s.write_all(&call(77, 1, NULL, &[])).expect("connected");
    assert_eq!(words(&record(&mut s).expect("reply")), [77, 1, 0, 0, 0, 0]);
}

//! The clients against a foreign server: rpcbind, in a network and mount namespace of its own.

#![allow(missing_docs, clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::process::Command;
use std::time::Duration;
use sunrpc::clnt::{CallXprt, Client, ClntError, ProcId};
use sunrpc::msg::AcceptStat;
use sunrpc::xdr::{Decode, Decoder, XdrError, XdrWrite};
use sunrpc_transports::{clnt, connect};

const RPCBIND: u32 = 100_000;
const NULL: u32 = 0;
const GETPORT: u32 = 3;
const DUMP: u32 = 4;

/// Runs the test once more where port 111 and /run are free.
const SCRIPT: &str = r#"
    mount -t tmpfs none /run && ip link set lo up || exit 77
    rpcbind -f & server=$!
    INSIDE=yes "$0" --exact clnt_rpcbind::rpcbind_answers_every_client --nocapture; code=$?
    kill $server; wait $server
    exit $code
"#;

#[test]
fn rpcbind_answers_every_client() {
    if std::env::var_os("INSIDE").is_some() {
        return inside();
    }
    if Command::new("rpcbind").arg("-?").output().is_err() {
        eprintln!("SKIPPED: rpcbind is not installed");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let out = match Command::new("unshare").args(["-n", "-m", "sh", "-c", SCRIPT]).arg(exe).output() {
        Ok(out) => out,
        Err(e) => {
            eprintln!("SKIPPED: no unshare ({e})");
            return;
        }
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.code() == Some(77) || stderr.contains("unshare failed") {
        eprintln!("SKIPPED: no permission for namespaces ({stderr})");
        return;
    }
    assert!(out.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
}

/// Program, version, protocol or netid, port or address.
type Entry = (u32, u32, String, String);

/// The list that version 2 (numbers) or 4 (strings) dumps.
struct Dump<const V: u32>(Vec<Entry>);

impl<'a, const V: u32> Decode<'a> for Dump<V> {
    const MIN_SIZE: usize = 4;

    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let mut all = vec![];
        while d.bool()? {
            let (prog, vers) = (d.u32()?, d.u32()?);
            let word = |d: &mut Decoder<'a>| {
                Ok::<_, XdrError>(match V {
                    2 => d.u32()?.to_string(),
                    _ => String::from_utf8_lossy(d.opaque(200)?).into_owned(),
                })
            };
            all.push((prog, vers, word(d)?, word(d)?));
            if V > 2 {
                d.opaque(200)?;
            }
        }
        Ok(Dump(all))
    }
}

fn inside() {
    let sock = std::path::Path::new("/run/rpcbind.sock");
    while !sock.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    for url in ["local:/run/rpcbind.sock", "tcp://127.0.0.1:111", "tcp://[::1]:111", "udp://127.0.0.1:111"] {
        let mut c2 = Client::new(connect(url).unwrap(), RPCBIND, 2);
        c2.call::<(), ()>(NULL, &()).unwrap();
        let mut c4 = Client::new(connect(url).unwrap(), RPCBIND, 4);
        let dump: Dump<4> = c4.call(DUMP, &()).unwrap();
        let tcp = (RPCBIND, 4, "tcp".to_owned(), "0.0.0.0.0.111".to_owned());
        assert!(dump.0.contains(&tcp), "{url}: {:?}", dump.0);
        // Version 2 is not offered over local sockets by every rpcbind, but its NULL is.
        if !url.starts_with("local") {
            let dump: Dump<2> = c2.call(DUMP, &()).unwrap();
            assert!(dump.0.contains(&(RPCBIND, 2, "6".into(), "111".into())), "{url}: {:?}", dump.0);
        }
        refusals(url);
        pipelined(url, &mut c2);
    }
    let of = ProcId { prog: RPCBIND, vers: 2, proc: NULL };
    let to = ["127.0.0.1:111".parse().unwrap()];
    let n = clnt::broadcast::<_, ()>(&to, of, &(), Duration::from_secs(20), |_, r| {
        r.unwrap();
        ControlFlow::Break(())
    });
    assert_eq!(n.unwrap(), 1);
}

fn refusals(url: &str) {
    let mut c = Client::new(connect(url).unwrap(), RPCBIND, 9);
    let r = c.call::<(), ()>(NULL, &());
    let Err(ClntError::Accept(AcceptStat::ProgMismatch { high: 4, .. })) = r else { panic!("{url}: {r:?}") };
    let mut c = Client::new(connect(url).unwrap(), 0x2000_0007, 1);
    let r = c.call::<(), ()>(NULL, &());
    assert!(matches!(r, Err(ClntError::Accept(AcceptStat::ProgUnavail))), "{url}: {r:?}");
}

fn pipelined<T: CallXprt>(url: &str, c: &mut Client<T>) {
    let mut calls = vec![];
    for _ in 0..50 {
        let get = c.start_with::<u32>(GETPORT, sunrpc::clnt::Repeat::Harmless, |w| {
            [RPCBIND, 2, 6, 0].into_iter().try_for_each(|v| w.put_u32(v))
        });
        calls.push(get.unwrap());
    }
    for call in calls.into_iter().rev() {
        let port = c.finish(call);
        if url.starts_with("local") {
            // See above; an answer is all that is asked for.
            assert!(port.is_ok() || matches!(port, Err(ClntError::Accept(_))), "{url}: {port:?}");
        } else {
            assert_eq!(port.unwrap(), 111, "{url}");
        }
    }
}

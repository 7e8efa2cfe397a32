//! Record marking, junk behind arguments, floods of connections.

use crate::client::*;
use crate::server::{How, Server};
use nfsd::proto::nfs3::*;
use std::time::Duration;

fn root(s: &Server, c: &mut Client) -> nfs_fh3 {
    c.mnt(s.dir.path().to_str().unwrap()).unwrap()
}

fn files(s: &Server) -> usize {
    std::fs::read_dir(s.dir.path()).unwrap().count()
}

fn serves(s: &Server) {
    assert_eq!(Client::connect(s.port).raw(NFS_PROGRAM, 3, 0, &[]), Answer::Results(vec![]));
}

/// R1 (RFC 5531 section 11): a record in two fragments, cut everywhere: so also inside the xid, inside every integer and
/// inside the padding of an opaque. Each call is carried out once: a second time would be NFS3ERR_EXIST.
#[test]
fn r1_two_fragments_cut_anywhere_are_one_call() {
    let s = Server::start(&["--squash", "none", "--threads", "1"]);
    let mut c = Client::connect(s.port);
    let root = root(&s, &mut c);
    let create = |i: usize| {
        // 5 bytes: three of padding.
        let where_ = at(&root, format!("{i:05}"));
        bytes(&CREATE3args { where_, how: createhow3::GUARDED(mode(0o644)) })
    };
    let len = c.message(NFS_PROGRAM, 3, NFSPROC3_CREATE, &create(0)).len();
    for cut in 0..=len {
        let m = c.message(NFS_PROGRAM, 3, NFSPROC3_CREATE, &create(cut));
        let (head, tail) = m.split_at(cut);
        // The cut at the end leaves a last fragment of length 0; the one at the start a first fragment of length 0.
        c.send(&fragments(&[head, tail]));
        let Answer::Results(r) = c.receive() else { panic!("cut at {cut}") };
        assert_eq!(decode::<CREATE3res>(&r).discriminant(), nfsstat3::NFS3_OK, "cut at {cut}");
        assert_eq!(files(&s), cut + 1, "cut at {cut}");
    }
    // Fragments that arrive apart from each other, and apart from their marks.
    let m = c.message(NFS_PROGRAM, 3, NFSPROC3_CREATE, &create(len + 1));
    for b in fragments(&[&m[..2], &m[2..41], &[], &m[41..], &[]]) {
        c.send(&[b]);
    }
    let Answer::Results(r) = c.receive() else { panic!() };
    assert_eq!(decode::<CREATE3res>(&r).discriminant(), nfsstat3::NFS3_OK);
    assert_eq!(files(&s), len + 2);
}

/// R1: a claimed length beyond the maximum closes before memory is taken for it, in the first fragment and in a later
/// one.
#[test]
fn r1_claims_beyond_the_maximum_close_without_memory() {
    let s = Server::start(&[]);
    serves(&s);
    let before = s.memory("VmRSS");
    for claim in [(1u32 << 20) + 4097, 0x0020_0000, 0x4000_0000, 0x7fff_ffff] {
        for last in [0, 0x8000_0000] {
            let mut c = Client::connect(s.port);
            c.send(&(claim | last).to_be_bytes());
            assert_eq!(c.receive(), Answer::Closed, "claim of {claim:#x}");
            let mut c = Client::connect(s.port);
            let mut second = fragments(&[&[0; 40], &[]]);
            second.truncate(44);
            second.extend((claim | last).to_be_bytes());
            c.send(&second);
            assert_eq!(c.receive(), Answer::Closed, "claim of {claim:#x} in the second fragment");
        }
    }
    let grown = s.memory("VmRSS") - before;
    assert!(grown < 1024, "{grown} KiB more after claims of gigabytes");
    serves(&s);
}

/// R1: 300 fragments in one record, empty ones and ones with a byte of a good call each.
#[test]
fn r1_three_hundred_fragments_close() {
    let s = Server::start(&["--squash", "none"]);
    let mut c = Client::connect(s.port);
    let root = root(&s, &mut c);
    c.try_send(&[0; 4 * 300]);
    assert_eq!(c.receive(), Answer::Closed);
    let mut c = Client::connect(s.port);
    let args = CREATE3args { where_: at(&root, "n".repeat(250)), how: createhow3::UNCHECKED(mode(0o600)) };
    let m = c.message(NFS_PROGRAM, 3, NFSPROC3_CREATE, &bytes(&args));
    let parts: Vec<&[u8]> = m.chunks(1).collect();
    assert!(parts.len() >= 300);
    c.try_send(&fragments(&parts));
    assert_eq!(c.receive(), Answer::Closed);
    assert_eq!(files(&s), 0, "nothing of it was carried out");
    // As many as are permitted are one call.
    let mut c = Client::connect(s.port);
    let m = c.message(NFS_PROGRAM, 3, NFSPROC3_CREATE, &bytes(&args));
    let parts: Vec<&[u8]> = m.chunks(2).collect();
    assert!(parts.len() <= 256);
    c.send(&fragments(&parts));
    assert!(matches!(c.receive(), Answer::Results(_)));
    assert_eq!(files(&s), 1);
}

/// R1: a record too short for a call, and a REPLY on a connection without a backchannel.
#[test]
fn r1_four_bytes_and_replies_close_and_the_next_is_served() {
    let s = Server::start(&[]);
    for bad in
        [&[0, 0, 0, 1][..], &[], &[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        let mut c = Client::connect(s.port);
        assert_eq!(c.raw(NFS_PROGRAM, 3, 0, &[]), Answer::Results(vec![]));
        c.send(&frame(bad));
        assert_eq!(c.receive(), Answer::Closed, "{} bytes", bad.len());
        serves(&s);
    }
}

/// B04: READ and the listings with the largest count, then close to a megabyte of junk. RFC 5531 section 9 has
/// GARBAGE_ARGS for that; the reply needs no room that the junk could have taken.
#[test]
fn b04_junk_after_the_arguments_is_garbage() {
    let s = Server::start(&[]);
    std::fs::write(s.dir.path().join("f"), vec![7; 1 << 20]).unwrap();
    let mut c = Client::connect(s.port);
    let dir = root(&s, &mut c);
    let file = c.lookup(&dir, "f").unwrap();
    let verf = [0; 8];
    let calls = [
        (NFSPROC3_READ, bytes(&READ3args { file: file.clone(), offset: 0, count: u32::MAX })),
        (
            NFSPROC3_READDIR,
            bytes(&READDIR3args { dir: dir.clone(), cookie: 0, cookieverf: verf, count: u32::MAX }),
        ),
        (
            NFSPROC3_READDIRPLUS,
            bytes(&READDIRPLUS3args {
                dir,
                cookie: 0,
                cookieverf: verf,
                dircount: u32::MAX,
                maxcount: u32::MAX,
            }),
        ),
    ];
    for (proc, args) in calls {
        for junk in [1, 4, 5000, 1 << 20] {
            let mut long = args.clone();
            long.resize(args.len() + junk, 0x55);
            assert_eq!(c.raw(NFS_PROGRAM, 3, proc, &long), Answer::Rejected(4), "{junk} bytes");
        }
    }
    // The same connection, the largest reply.
    let whole = c.read(&file, 0, u32::MAX).unwrap();
    assert_eq!((whole.count, whole.eof, whole.data.len()), (1 << 20, true, 1 << 20));
    assert!(whole.data.slices().flatten().all(|b| *b == 7), "no byte of the junk");
}

/// Clock ticks of processor time and switches that the acceptor's thread has used so far.
fn acceptor(pid: u32) -> (u64, u64) {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path();
        if std::fs::read_to_string(task.join("comm")).unwrap().trim() != "rpc-accept" {
            continue;
        }
        let stat = std::fs::read_to_string(task.join("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let switches = status
            .lines()
            .filter(|l| l.contains("voluntary_ctxt_switches"))
            .map(|l| l.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
            .sum();
        return (ticks, switches);
    }
    panic!("no acceptor");
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// What a mounted client does all day, on files that the server has not opened before.
fn work(c: &mut Client, dir: &nfs_fh3, n: usize) {
    let file = c.create(dir, format!("f{n}")).unwrap();
    let data = format!("contents of {n}");
    c.write(&file, 0, data.as_bytes(), stable_how::UNSTABLE).unwrap();
    assert_eq!(c.lookup(dir, format!("f{n}")).unwrap(), file);
    assert_eq!(c.read(&file, 0, 100).unwrap().data.to_vec(), data.as_bytes());
    assert!(!c.readdir(dir, 0, 4096).unwrap().0.is_empty());
}

/// B14: more connections than the process may open, silent ones, ones with a byte, ones with half a call, and ones that
/// made a call and then fell silent: a mounted client goes on working, and keeps its connection.
#[test]
fn b14_a_flood_of_idle_connections_leaves_a_mounted_client_alone() {
    let args = ["--squash", "none", "--threads", "2", "--no-sync"].map(str::to_owned).to_vec();
    let s = Server::start_how(How { args, open_files: Some(128), ..How::default() });
    let mut mounted = Client::connect(s.port);
    let dir = root(&s, &mut mounted);
    work(&mut mounted, &dir, 0);
    let mut flood = Vec::new();
    for i in 1..=300 {
        let mut c = Client::connect(s.port);
        match i % 4 {
            0 => {}
            1 => assert!(c.try_send(&[0x80])),
            2 => assert!(c.try_send(&[0x80, 0, 0, 40, 0, 0, 0, 1, 0, 0])),
            _ => {
                let m = c.message(NFS_PROGRAM, 3, 0, &[]);
                // Refused once there are too many: that is the point.
                c.try_send(&frame(&m));
            }
        }
        flood.push(c);
        if i % 10 == 0 {
            work(&mut mounted, &dir, i);
            assert!(descriptors(s.pid()) <= 128);
        }
    }
    // Another byte from each of those that the server still has.
    for c in &mut flood {
        c.try_send(&[0]);
    }
    for i in 301..330 {
        work(&mut mounted, &dir, i);
    }
    let before = acceptor(s.pid());
    std::thread::sleep(Duration::from_secs(1));
    work(&mut mounted, &dir, 330);
    let after = acceptor(s.pid());
    assert!(after.0 - before.0 < 20, "{} ticks of processor time without a newcomer", after.0 - before.0);
    drop(flood);
    work(&mut mounted, &dir, 331);
    serves(&s);
}

/// B14: when not even one more connection can be accepted, the acceptor rests instead of spinning, and goes on once there
/// are descriptors again. No bound on connections helps here: the limit sinks while the server runs, below what it has.
#[test]
fn b14_the_acceptor_rests_while_there_are_no_descriptors() {
    let s = Server::start(&["--threads", "2"]);
    serves(&s);
    let plenty = descriptors(s.pid()) + 100;
    let set = |soft: usize| {
        let args = ["--pid", &s.pid().to_string(), &format!("--nofile={soft}:")];
        std::process::Command::new("prlimit").args(args).status().is_ok_and(|st| st.success())
    };
    if !set(3) {
        eprintln!("SKIPPED: prlimit cannot change the limits of another process here");
        return;
    }
    let mut waiting: Vec<_> = (0..20).map(|_| Client::connect(s.port)).collect();
    for c in &mut waiting {
        let m = c.message(NFS_PROGRAM, 3, 0, &[]);
        c.send(&frame(&m));
    }
    let lines = || {
        let log = s.log();
        log.iter().filter(|l| l.contains("cannot accept connections") && l.contains("ulimit -n")).count()
    };
    while lines() == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let first = std::time::Instant::now();
    let before = acceptor(s.pid());
    std::thread::sleep(Duration::from_secs(2));
    let after = acceptor(s.pid());
    let (ticks, switches) = (after.0 - before.0, after.1 - before.1);
    // A loop that spins takes about 200 ticks; one that rests 0.1 s between two attempts switches 20 times.
    assert!(ticks < 20 && switches < 200, "{ticks} ticks, {switches} switches");
    assert!(switches > 0, "it tries again without an event");
    // Once in 10 seconds, however long this machine was held up meanwhile.
    let (lines, most) = (lines(), 1 + first.elapsed().as_secs() as usize / 9);
    assert!(lines <= most, "{lines} lines: not one for each attempt");
    assert!(set(plenty));
    for c in &mut waiting {
        assert_eq!(c.receive(), Answer::Results(vec![]), "those who waited are served");
    }
}

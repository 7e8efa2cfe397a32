//! NFS version 4 spoken with nfs-ganesha by the generated types: it understands what we write, and we read what it
//! writes. `captured/` holds what it answered, so that this is tested where no ganesha is.
//!
//! To talk to a server that exports a writable `/exp` without squashing root, and to record:
//!
//! ```sh
//! NFS4_PEER=127.0.0.1:2049 NFS4_RECORD=tests/protocols/captured/ganesha-4.3.txt \
//!     cargo test -p sunrpc-tests --test protocols a_peer_understands_us
//! ```

use crate::bytes::{bytes, read};
use crate::nfs4::*;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use sunrpc::page::Pages;
use sunrpc::xdr::{Decode, Decoder, Encode, to_vec};

struct Peer {
    stream: TcpStream,
    xid: u32,
    minor: u32,
    /// Session, and the next sequence number of its slot 0.
    session: Option<(sessionid4, u32)>,
    log: String,
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(4)
        .map(|c| c.iter().fold(String::new(), |s, b| s + &format!("{b:02x}")))
        .collect::<Vec<_>>()
        .join(" ")
}

impl Peer {
    fn connect(addr: &str) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        Peer { stream, xid: 1, minor: 1, session: None, log: String::new() }
    }

    /// One COMPOUND, behind SEQUENCE if there is a session; the results behind SEQUENCE, all of which are fine.
    fn compound(&mut self, what: &str, mut ops: Vec<nfs_argop4>) -> Vec<nfs_resop4> {
        let session = self.session.is_some();
        if let Some((id, sequence)) = &mut self.session {
            ops.insert(
                0,
                nfs_argop4::OP_SEQUENCE(SEQUENCE4args {
                    sa_sessionid: *id,
                    sa_sequenceid: *sequence,
                    sa_slotid: 0,
                    sa_highest_slotid: 0,
                    sa_cachethis: false,
                }),
            );
            *sequence += 1;
        }
        let args = COMPOUND4args { tag: what.into(), minorversion: self.minor, argarray: ops };
        let args = to_vec(&args, 1 << 20).unwrap();
        let head = [self.xid, 0, 2, NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND, AUTH_SYS, 28, 1, 3];
        let mut call: Vec<u8> = head.iter().flat_map(|w| w.to_be_bytes()).collect();
        call.extend(b"box\0");
        // uid, gid, no groups; no verifier.
        call.extend([0; 12].iter().chain(&[0; 8]));
        call[28..32].copy_from_slice(&24u32.to_be_bytes());
        call.extend(&args);
        let mark = 0x8000_0000 | call.len() as u32;
        self.stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mark = u32::from_be_bytes(mark);
        assert!(mark >= 0x8000_0000, "a reply in one fragment");
        let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut reply).unwrap();
        let mut d = Decoder::new(&reply);
        let head: Vec<u32> = (0..6).map(|_| d.u32().unwrap()).collect();
        assert_eq!(head, [self.xid, 1, 0, 0, 0, 0], "{what}: a reply that is accepted");
        self.xid += 1;
        let results = &reply[24..];
        writeln!(self.log, "{what}\ncall {}\nreply {}", hex(&args), hex(results)).unwrap();
        let res: COMPOUND4res = read(results).unwrap();
        assert_eq!(res.status, nfsstat4::NFS4_OK, "{what}: {res:?}");
        let mut all = res.resarray;
        if session {
            assert!(matches!(all.remove(0), nfs_resop4::OP_SEQUENCE(SEQUENCE4res::NFS4_OK(_))));
        }
        all
    }
}

/// Takes one result apart.
macro_rules! one {
    ($list:expr, $i:expr, $pattern:pat => $value:expr) => {
        match &$list[$i] {
            $pattern => $value,
            other => panic!("{other:?}"),
        }
    };
}

fn getattr() -> nfs_argop4 {
    let [mut low, mut high] = [0; 2];
    for bit in [FATTR4_TYPE, FATTR4_CHANGE, FATTR4_SIZE, FATTR4_FSID, FATTR4_FILEID] {
        low |= 1u32 << bit;
    }
    for bit in [FATTR4_MODE, FATTR4_NUMLINKS, FATTR4_OWNER, FATTR4_SPACE_USED, FATTR4_TIME_MODIFY] {
        high |= 1u32 << (bit - 32);
    }
    nfs_argop4::OP_GETATTR(GETATTR4args { attr_request: bitmap4(vec![low, high]) })
}

fn open(clientid: clientid4, seqid: u32, name: &str) -> nfs_argop4 {
    nfs_argop4::OP_OPEN(OPEN4args {
        seqid,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: open_owner4 { clientid, owner: b"opener".to_vec() },
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(fattr4 {
            attrmask: bitmap4(vec![0, 1 << (FATTR4_MODE - 32)]),
            attr_vals: attrlist4(vec![0, 0, 1, 0xa4]),
        })),
        claim: open_claim4::CLAIM_NULL(name.into()),
    })
}

fn lookup(name: &str) -> nfs_argop4 {
    nfs_argop4::OP_LOOKUP(LOOKUP4args { objname: name.into() })
}

fn remove(name: &str) -> nfs_argop4 {
    nfs_argop4::OP_REMOVE(REMOVE4args { target: name.into() })
}

/// Reads, writes and locks one file, whose handle is `fh` and which is open as `stateid`.
fn use_file(peer: &mut Peer, fh: &nfs_fh4, stateid: stateid4, clientid: clientid4) {
    let put = || nfs_argop4::OP_PUTFH(PUTFH4args { object: fh.clone() });
    let data = Pages::copy_from(b"written by sunrpc");
    let write = WRITE4args { stateid, offset: 0, stable: stable_how4::UNSTABLE4, data };
    let commit = nfs_argop4::OP_COMMIT(COMMIT4args { offset: 0, count: 0 });
    let res = peer.compound("write", vec![put(), nfs_argop4::OP_WRITE(write), commit]);
    one!(res, 1, nfs_resop4::OP_WRITE(WRITE4res::NFS4_OK(ok)) => assert_eq!(ok.count, 17));
    let get = nfs_argop4::OP_READ(READ4args { stateid, offset: 11, count: 6 });
    let res = peer.compound("read", vec![put(), get, getattr()]);
    one!(res, 1, nfs_resop4::OP_READ(READ4res::NFS4_OK(ok)) => {
        // In a session the file was made longer before.
        assert_eq!((ok.eof, to_vec(&ok.data, 99).unwrap()), (peer.minor == 0, bytes("00000006 'sunrpc' 0000")));
    });
    let lock_owner = |name: &[u8]| lock_owner4 { clientid, owner: name.to_vec() };
    let lock = nfs_argop4::OP_LOCK(LOCK4args {
        locktype: nfs_lock_type4::WRITE_LT,
        reclaim: false,
        offset: 4,
        length: 8,
        locker: locker4::True(open_to_lock_owner4 {
            open_seqid: if peer.minor == 0 { 2 } else { 0 },
            open_stateid: stateid,
            lock_seqid: 0,
            lock_owner: lock_owner(b"locker"),
        }),
    });
    let res = peer.compound("lock", vec![put(), lock]);
    let held = one!(res, 1, nfs_resop4::OP_LOCK(LOCK4res::NFS4_OK(ok)) => ok.lock_stateid);
    let unlock = nfs_argop4::OP_LOCKU(LOCKU4args {
        locktype: nfs_lock_type4::WRITE_LT,
        seqid: 1,
        lock_stateid: held,
        offset: 4,
        length: 8,
    });
    peer.compound("unlock", vec![put(), unlock]);
    let seqid = if peer.minor == 0 { 3 } else { 0 };
    let close = nfs_argop4::OP_CLOSE(CLOSE4args { seqid, open_stateid: stateid });
    peer.compound("close", vec![put(), close]);
}

fn opened(res: &[nfs_resop4], i: usize) -> (OPEN4resok, nfs_fh4) {
    let ok = one!(res, i, nfs_resop4::OP_OPEN(OPEN4res::NFS4_OK(ok)) => ok.clone());
    (ok, one!(res, i + 1, nfs_resop4::OP_GETFH(GETFH4res::NFS4_OK(fh)) => fh.object.clone()))
}

/// Minor versions 1 and 2.
fn with_a_session(addr: &str) -> String {
    let mut peer = Peer::connect(addr);
    let id = nfs_argop4::OP_EXCHANGE_ID(EXCHANGE_ID4args {
        eia_clientowner: client_owner4 { co_verifier: *b"verifier", co_ownerid: b"sunrpc tests".to_vec() },
        eia_flags: EXCHGID4_FLAG_USE_NON_PNFS,
        eia_state_protect: state_protect4_a::SP4_NONE,
        eia_client_impl_id: vec![nfs_impl_id4 {
            nii_domain: "example.org".into(),
            nii_name: "sunrpc".into(),
            nii_date: nfstime4 { seconds: 0, nseconds: 0 },
        }],
    });
    let res = peer.compound("exchange_id", vec![id]);
    let client = one!(res, 0, nfs_resop4::OP_EXCHANGE_ID(EXCHANGE_ID4res::NFS4_OK(ok)) => ok.clone());
    let channel = channel_attrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: 65536,
        ca_maxresponsesize: 65536,
        ca_maxresponsesize_cached: 4096,
        ca_maxoperations: 16,
        ca_maxrequests: 4,
        ca_rdma_ird: Vec::new(),
    };
    let create = nfs_argop4::OP_CREATE_SESSION(CREATE_SESSION4args {
        csa_clientid: client.eir_clientid,
        csa_sequence: client.eir_sequenceid,
        csa_flags: 0,
        csa_fore_chan_attrs: channel.clone(),
        csa_back_chan_attrs: channel,
        csa_cb_program: NFS4_CALLBACK,
        csa_sec_parms: vec![callback_sec_parms4::AUTH_NONE],
    });
    let res = peer.compound("create_session", vec![create]);
    let session =
        one!(res, 0, nfs_resop4::OP_CREATE_SESSION(CREATE_SESSION4res::NFS4_OK(ok)) => ok.csr_sessionid);
    peer.session = Some((session, 1));
    let complete = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
    peer.compound("reclaim_complete", vec![complete]);
    let access = nfs_argop4::OP_ACCESS(ACCESS4args { access: ACCESS4_READ | ACCESS4_MODIFY });
    let root = vec![nfs_argop4::OP_PUTROOTFH, lookup("exp"), nfs_argop4::OP_GETFH, access, getattr()];
    let res = peer.compound("look", root);
    let exp = one!(res, 2, nfs_resop4::OP_GETFH(GETFH4res::NFS4_OK(fh)) => fh.object.clone());
    let put = || nfs_argop4::OP_PUTFH(PUTFH4args { object: exp.clone() });
    let secinfo = nfs_argop4::OP_SECINFO_NO_NAME(secinfo_style4::SECINFO_STYLE4_CURRENT_FH);
    peer.compound("secinfo", vec![put(), secinfo]);
    let create = open(client.eir_clientid, 0, "session.txt");
    let res = peer.compound("open", vec![put(), create, nfs_argop4::OP_GETFH]);
    let (ok, file) = opened(&res, 1);
    let dir = nfs_argop4::OP_READDIR(READDIR4args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 1024,
        maxcount: 4096,
        attr_request: bitmap4(vec![1 << FATTR4_TYPE | 1 << FATTR4_SIZE, 1 << (FATTR4_MODE - 32)]),
    });
    let res = peer.compound("readdir", vec![put(), dir]);
    one!(res, 1, nfs_resop4::OP_READDIR(READDIR4res::NFS4_OK(ok)) => {
        assert!(ok.reply.eof && ok.reply.entries.iter().any(|e| e.name.as_bytes() == b"session.txt"));
    });
    peer.minor = 2;
    let put_file = || nfs_argop4::OP_PUTFH(PUTFH4args { object: file.clone() });
    let grow = ALLOCATE4args { aa_stateid: ok.stateid, aa_offset: 0, aa_length: 65536 };
    let hole = DEALLOCATE4args { da_stateid: ok.stateid, da_offset: 0, da_length: 32768 };
    peer.compound(
        "allocate",
        vec![put_file(), nfs_argop4::OP_ALLOCATE(grow), nfs_argop4::OP_DEALLOCATE(hole)],
    );
    let seek = SEEK4args { sa_stateid: ok.stateid, sa_offset: 0, sa_what: data_content4::NFS4_CONTENT_HOLE };
    let res = peer.compound("seek", vec![put_file(), nfs_argop4::OP_SEEK(seek)]);
    one!(res, 1, nfs_resop4::OP_SEEK(SEEK4res::NFS4_OK(at)) => assert_eq!(at.sr_offset, 0));
    let plus = READ_PLUS4args { rpa_stateid: ok.stateid, rpa_offset: 32700, rpa_count: 100 };
    let res = peer.compound("read_plus", vec![put_file(), nfs_argop4::OP_READ_PLUS(plus)]);
    one!(res, 1, nfs_resop4::OP_READ_PLUS(READ_PLUS4res::NFS4_OK(ok)) => assert!(!ok.rpr_contents.is_empty()));
    peer.minor = 1;
    use_file(&mut peer, &file, ok.stateid, client.eir_clientid);
    peer.compound("remove", vec![put(), remove("session.txt")]);
    peer.session = None;
    let end = nfs_argop4::OP_DESTROY_SESSION(DESTROY_SESSION4args { dsa_sessionid: session });
    peer.compound("destroy_session", vec![end]);
    let end = nfs_argop4::OP_DESTROY_CLIENTID(DESTROY_CLIENTID4args { dca_clientid: client.eir_clientid });
    peer.compound("destroy_clientid", vec![end]);
    peer.log
}

/// Minor version 0.
fn without_a_session(addr: &str) -> String {
    let mut peer = Peer::connect(addr);
    peer.minor = 0;
    let id = nfs_argop4::OP_SETCLIENTID(SETCLIENTID4args {
        client: nfs_client_id4 { verifier: *b"verifier", id: b"sunrpc tests 0".to_vec() },
        callback: cb_client4 {
            cb_program: NFS4_CALLBACK,
            cb_location: netaddr4 { na_r_netid: "tcp".into(), na_r_addr: "127.0.0.1.3.4".into() },
        },
        callback_ident: 1,
    });
    let res = peer.compound("setclientid", vec![id]);
    let client = one!(res, 0, nfs_resop4::OP_SETCLIENTID(SETCLIENTID4res::NFS4_OK(ok)) => *ok);
    let confirm = nfs_argop4::OP_SETCLIENTID_CONFIRM(SETCLIENTID_CONFIRM4args {
        clientid: client.clientid,
        setclientid_confirm: client.setclientid_confirm,
    });
    peer.compound("setclientid_confirm", vec![confirm]);
    let at_exp = |more: Vec<nfs_argop4>| [vec![nfs_argop4::OP_PUTROOTFH, lookup("exp")], more].concat();
    let create = open(client.clientid, 0, "zero.txt");
    let res = peer.compound("open", at_exp(vec![create, nfs_argop4::OP_GETFH]));
    let (mut ok, file) = opened(&res, 2);
    assert_eq!(ok.rflags & OPEN4_RESULT_CONFIRM, OPEN4_RESULT_CONFIRM);
    let confirm = OPEN_CONFIRM4args { open_stateid: ok.stateid, seqid: 1 };
    let put = nfs_argop4::OP_PUTFH(PUTFH4args { object: file.clone() });
    let res = peer.compound("open_confirm", vec![put, nfs_argop4::OP_OPEN_CONFIRM(confirm)]);
    ok.stateid = one!(res, 1, nfs_resop4::OP_OPEN_CONFIRM(OPEN_CONFIRM4res::NFS4_OK(ok)) => ok.open_stateid);
    use_file(&mut peer, &file, ok.stateid, client.clientid);
    peer.compound("remove", at_exp(vec![remove("zero.txt")]));
    let renew = nfs_argop4::OP_RENEW(RENEW4args { clientid: client.clientid });
    peer.compound("renew", vec![renew]);
    peer.log
}

#[test]
fn a_peer_understands_us() {
    let Ok(addr) = std::env::var("NFS4_PEER") else {
        eprintln!("SKIPPED: NFS4_PEER names no NFS version 4 server to talk to");
        return;
    };
    let log = [with_a_session(&addr), without_a_session(&addr)].concat();
    if let Ok(path) = std::env::var("NFS4_RECORD") {
        std::fs::write(path, log).unwrap();
    }
}

#[test]
fn what_ganesha_answered_reads_back_byte_for_byte() {
    fn again<T: Encode + for<'a> Decode<'a>>(text: &str) -> T {
        let bytes = bytes(text);
        let v: T = read(&bytes).unwrap();
        assert_eq!(to_vec(&v, 1 << 20).unwrap(), bytes);
        v
    }
    let text = include_str!("captured/ganesha-4.3.txt");
    let mut operations = std::collections::BTreeSet::new();
    let mut lines = text.lines();
    while let Some(what) = lines.next() {
        let mut part = |name| lines.next().and_then(|l| l.strip_prefix(name)).unwrap();
        let call: COMPOUND4args = again(part("call "));
        let reply = part("reply ");
        let res: COMPOUND4res = again(reply);
        assert_eq!((res.status, res.tag.as_bytes()), (nfsstat4::NFS4_OK, what.as_bytes()));
        let ops: Vec<_> = call.argarray.iter().map(nfs_argop4::discriminant).collect();
        assert_eq!(ops, res.resarray.iter().map(nfs_resop4::discriminant).collect::<Vec<_>>());
        operations.extend(ops);
        let reply = bytes(reply);
        let borrowed = COMPOUND4resRef::decode(&mut Decoder::new(&reply)).unwrap();
        assert_eq!(to_vec(&borrowed, 1 << 20).unwrap(), reply);
    }
    assert!(operations.len() >= 30, "{} operations: {operations:?}", operations.len());
}

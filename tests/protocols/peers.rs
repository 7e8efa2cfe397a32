//! NLM, NSM, RPC-over-RDMA and RPCSEC_GSS: the bytes that other implementations write for known values are those that we
//! write, and we read them back.
//!
//! `captured/libnfs-4.0.txt` and `captured/libtirpc-1.3.txt` are what the two programs beside them print. The second one
//! is made of code that the system's `rpcgen` generates of the system's `.x` files, and of the protocol description
//! inside RFC 8166 (section 4.1), to be saved as `rfc8166.x`. Debian has them in `libnfs-dev`,
//! `rpcsvc-proto` and `libtirpc-dev`:
//!
//! ```sh
//! cc libnfs.c -o libnfs -lnfs && ./libnfs >libnfs-4.0.txt
//! cp /usr/include/rpcsvc/{nlm_prot,sm_inter}.x .
//! for x in nlm_prot sm_inter rfc8166; do rpcgen -h -o $x.h $x.x; rpcgen -c -o ${x}_xdr.c $x.x; done
//! cc -I. -I/usr/include/tirpc tirpc.c *_xdr.c -o tirpc -ltirpc && ./tirpc >libtirpc-1.3.txt
//! ```
//!
//! The system's `nlm_prot.x` is of versions 1 and 3, whose share calls are those of version 4.

use crate::bytes::same;
use crate::{nlm4, nsm, rpcrdma, rpcsec_gss};
use std::fmt::Debug;
use std::str::Lines;
use sunrpc::xdr::{Decode, Encode};

/// The lines of a file, in the order of the program that wrote it.
struct Captured(Lines<'static>);

impl Captured {
    /// The next line has this name and this value.
    #[track_caller]
    fn is<T>(&mut self, name: &str, value: &T)
    where
        T: Debug + PartialEq + Encode + for<'a> Decode<'a>,
    {
        let (theirs, bytes) = self.0.next().unwrap().split_once(' ').unwrap();
        assert_eq!(theirs, name);
        same(bytes, value);
    }

    /// The next line has this name and these numbers.
    #[track_caller]
    fn numbers(&mut self, name: &str, ours: &[u32]) {
        let mut words = self.0.next().unwrap().split(' ');
        assert_eq!(words.next(), Some(name));
        let theirs: Vec<u32> = words.map(|w| u32::from_str_radix(w, 16).unwrap()).collect();
        assert_eq!(theirs, ours, "{name}");
    }

    fn end(mut self) {
        assert_eq!(self.0.next(), None);
    }
}

fn libnfs() -> Captured {
    Captured(include_str!("captured/libnfs-4.0.txt").lines())
}

fn tirpc() -> Captured {
    Captured(include_str!("captured/libtirpc-1.3.txt").lines())
}

/// The values of `captured/libnfs.c`.
#[test]
fn libnfs_writes_locks_and_monitors_as_we_do() {
    use nlm4::*;
    let mut c = libnfs();
    let nlm = [
        NLM_PROGRAM,
        NLM_V4,
        NLMPROC4_NULL,
        NLMPROC4_TEST,
        NLMPROC4_LOCK,
        NLMPROC4_CANCEL,
        NLMPROC4_UNLOCK,
        NLMPROC4_GRANTED,
        NLMPROC4_TEST_MSG,
        NLMPROC4_LOCK_MSG,
        NLMPROC4_CANCEL_MSG,
        NLMPROC4_UNLOCK_MSG,
        NLMPROC4_GRANTED_MSG,
        NLMPROC4_TEST_RES,
        NLMPROC4_LOCK_RES,
        NLMPROC4_CANCEL_RES,
        NLMPROC4_UNLOCK_RES,
        NLMPROC4_GRANTED_RES,
    ];
    c.numbers("NLM_V4", &nlm);
    let procs = [nsm::SM_STAT, nsm::SM_MON, nsm::SM_UNMON, nsm::SM_UNMON_ALL, nsm::SM_SIMU_CRASH];
    let first = [nsm::SM_PROGRAM, nsm::SM_V1, nsm::SM_NULL];
    let last = [nsm::SM_NOTIFY, nsm::SM_MAXSTRLEN];
    c.numbers("NSM_V1", &[&first[..], &procs, &last].concat());
    let cookie = netobj(vec![1, 2, 3]);
    let alock = nlm4_lock {
        caller_name: "client.example".into(),
        fh: nlm4_fh(b"fh\x01\x02\x03".to_vec()),
        oh: netobj(b"4711@client.example".to_vec()),
        svid: 4711,
        l_offset: 1 << 40,
        l_len: 4096,
    };
    let (a, k) = (|| alock.clone(), || cookie.clone());
    c.is("NLM4_TESTargs", &nlm4_testargs { cookie: k(), exclusive: true, alock: a() });
    c.is(
        "NLM4_LOCKargs",
        &nlm4_lockargs { cookie: k(), block: true, exclusive: false, alock: a(), reclaim: true, state: 7 },
    );
    c.is("NLM4_CANCargs", &nlm4_cancargs { cookie: k(), block: false, exclusive: true, alock: a() });
    c.is("NLM4_UNLOCKargs", &nlm4_unlockargs { cookie: k(), alock: a() });
    c.is("NLM4_GRANTEDargs", &nlm4_testargs { cookie: k(), exclusive: false, alock: a() });
    let holder = nlm4_holder {
        exclusive: true,
        svid: 4712,
        oh: netobj(b"4712@other".to_vec()),
        l_offset: u64::MAX - 9,
        l_len: 10,
    };
    c.is("NLM4_TESTres", &nlm4_testres { cookie: k(), test_stat: nlm4_testrply::NLM4_DENIED(holder) });
    let granted = nlm4_testrply::Default(nlm4_stats::NLM4_GRANTED);
    c.is("NLM4_TESTres", &nlm4_testres { cookie: k(), test_stat: granted });
    for (name, stat) in [
        ("NLM4_LOCKres", nlm4_stats::NLM4_BLOCKED),
        ("NLM4_CANCres", nlm4_stats::NLM4_DENIED_GRACE_PERIOD),
        ("NLM4_UNLOCKres", nlm4_stats::NLM4_STALE_FH),
        ("NLM4_GRANTEDres", nlm4_stats::NLM4_FAILED),
    ] {
        c.is(name, &nlm4_res { cookie: k(), stat });
    }
    c.is("NSM1_STATargs", &nsm::sm_name { mon_name: "peer.example".into() });
    c.is("NSM1_STATres", &nsm::sm_stat_res { res_stat: nsm::res::STAT_FAIL, state: 9 });
    c.is("NSM1_MONargs", &nsm::mon { mon_id: mon_id(), priv_: *b"sixteen bytes, p" });
    c.is("NSM1_MONres", &nsm::sm_stat_res { res_stat: nsm::res::STAT_SUCC, state: 9 });
    c.is("NSM1_UNMONargs", &mon_id());
    c.is("NSM1_UNMONres", &nsm::sm_stat { state: 11 });
    c.is("NSM1_UNMONALLargs", &my_id());
    c.is("NSM1_UNMONALLres", &nsm::sm_stat { state: 13 });
    c.is("NSM1_NOTIFYargs", &nsm::stat_chge { mon_name: "peer.example".into(), state: -i32::MAX });
    c.end();
}

fn my_id() -> nsm::my_id {
    nsm::my_id { my_name: "client.example".into(), my_prog: 100_021, my_vers: 4, my_proc: 16 }
}

fn mon_id() -> nsm::mon_id {
    nsm::mon_id { mon_name: "peer.example".into(), my_id: my_id() }
}

/// The values of `captured/tirpc.c`.
#[test]
fn rpcgen_and_libtirpc_write_what_we_do() {
    let mut c = tirpc();
    shares_and_monitors(&mut c);
    rdma_headers(&mut c);
    gss(&mut c);
    c.end();
}

fn shares_and_monitors(c: &mut Captured) {
    use nlm4::*;
    let shares = [NLMPROC4_SHARE, NLMPROC4_UNSHARE, NLMPROC4_NM_LOCK, NLMPROC4_FREE_ALL];
    let limits = [LM_MAXSTRLEN; 2]; // of strings, of netobj
    c.numbers("NLM_VERSX", &[&[NLM_PROGRAM][..], &shares, &limits].concat());
    let procs = [nsm::SM_STAT, nsm::SM_MON, nsm::SM_UNMON, nsm::SM_UNMON_ALL, nsm::SM_SIMU_CRASH];
    c.numbers("SM_VERS", &[&[nsm::SM_PROGRAM, nsm::SM_V1][..], &procs, &[nsm::SM_MAXSTRLEN]].concat());
    let share = nlm4_share {
        caller_name: "client.example".into(),
        fh: nlm4_fh(b"fh\x01\x02\x03".to_vec()),
        oh: netobj(b"owner\0".to_vec()),
        mode: fsh4_mode::FSM_DRW,
        access: fsh4_access::FSA_R,
    };
    let cookie = netobj(vec![1, 2, 3]);
    c.is("nlm_shareargs", &nlm4_shareargs { cookie: cookie.clone(), share, reclaim: true });
    c.is("nlm_shareres", &nlm4_shareres { cookie, stat: nlm4_stats::NLM4_DENIED, sequence: -3 });
    c.is("nlm_notify", &nlm4_notify { name: "client.example".into(), state: 15 });

    c.is("sm_name", &nsm::sm_name { mon_name: "peer.example".into() });
    c.is("sm_stat_res", &nsm::sm_stat_res { res_stat: nsm::res::STAT_FAIL, state: 9 });
    let private = *b"sixteen bytes, p";
    c.is("mon", &nsm::mon { mon_id: mon_id(), priv_: private });
    c.is("mon_id", &mon_id());
    c.is("my_id", &my_id());
    c.is("sm_stat", &nsm::sm_stat { state: 13 });
    // What the monitor sends, and what the lock manager takes it for.
    let mut twice = Captured(c.0.clone());
    c.is("status", &nsm::status { mon_name: "peer.example".into(), state: 17, priv_: private });
    twice.is("status", &nlm4_sm_status { mon_name: "peer.example".into(), state: 17, priv_: private });
}

fn rdma_headers(c: &mut Captured) {
    use rpcrdma::*;
    let at = |handle, length, offset| xdr_rdma_segment { handle, length, offset };
    let (a, b, z) = (at(0xa0b_0c0d, 4096, 1 << 47), at(1, 0, 0), at(u32::MAX, u32::MAX, u64::MAX));
    let read = |position, target: &xdr_rdma_segment| xdr_read_list {
        entry: xdr_read_chunk { position, target: *target },
    };
    let write =
        |target: &[xdr_rdma_segment]| xdr_write_list { entry: xdr_write_chunk { target: target.to_vec() } };
    let reply = || Some(xdr_write_chunk { target: vec![z] });
    let full = rpc_rdma_header {
        rdma_reads: vec![read(0, &a), read(148, &b)],
        rdma_writes: vec![write(&[b, z]), write(&[])],
        rdma_reply: reply(),
    };
    let empty = rpc_rdma_header { rdma_reads: vec![], rdma_writes: vec![], rdma_reply: None };
    let nomsg = rpc_rdma_header { rdma_reads: vec![read(148, &b)], rdma_writes: vec![], rdma_reply: reply() };
    let padded = rpc_rdma_header_padded {
        rdma_align: 8,
        rdma_thresh: 1024,
        rdma_reads: vec![],
        rdma_writes: vec![write(&[])],
        rdma_reply: None,
    };
    let range = rpc_rdma_errvers { rdma_vers_low: 1, rdma_vers_high: 2 };
    for body in [
        rdma_body::RDMA_MSG(full),
        rdma_body::RDMA_MSG(empty),
        rdma_body::RDMA_NOMSG(nomsg),
        rdma_body::RDMA_MSGP(padded),
        rdma_body::RDMA_DONE,
        rdma_body::RDMA_ERROR(rpc_rdma_error::ERR_VERS(range)),
        rdma_body::RDMA_ERROR(rpc_rdma_error::ERR_CHUNK),
    ] {
        let head = (0x1122_3344, RPCRDMA_VERSION, 32);
        let message = rdma_msg { rdma_xid: head.0, rdma_vers: head.1, rdma_credit: head.2, rdma_body: body };
        c.is("rdma_msg", &message);
    }
}

fn gss(c: &mut Captured) {
    use rpc_gss_proc_t::*;
    use rpc_gss_service_t::*;
    use rpcsec_gss::*;
    for (gss_proc, seq_num, service, handle) in [
        (RPCSEC_GSS_INIT, 0, RPC_GSS_SVC_NONE, &b""[..]),
        (RPCSEC_GSS_CONTINUE_INIT, 0, RPC_GSS_SVC_INTEGRITY, b"ctx\x01\x02"),
        (RPCSEC_GSS_DATA, MAXSEQ - 1, RPC_GSS_SVC_PRIVACY, b"ctx\x01"),
        (RPCSEC_GSS_DESTROY, 6, RPC_GSS_SVC_NONE, b"c"),
    ] {
        let cred = rpc_gss_cred_vers_1_t { gss_proc, seq_num, service, handle: handle.to_vec() };
        c.is("rpc_gss_cred", &rpc_gss_cred_t::RPCSEC_GSS_VERS_1(cred));
    }
    c.is("rpc_gss_init_args", &rpc_gss_init_arg { gss_token: b"a token".to_vec() });
    c.is(
        "rpc_gss_init_res",
        &rpc_gss_init_res {
            handle: b"ctx\x01\x02".to_vec(),
            gss_major: 1,
            gss_minor: 39_756_033,
            seq_window: 128,
            gss_token: b"token2".to_vec(),
        },
    );
}

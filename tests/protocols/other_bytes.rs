//! The other protocols: bytes worked out from their RFCs.

use crate::bytes::{bytes, same};
use crate::{file, nfs4, nlm4, nsm, rpcrdma, rpcsec_gss};
use crate::{nfs4_bytes, rpcrdma::rdma_body};
use sunrpc::page::Pages;
use sunrpc::xdr::{Decode, Decoder};

#[test]
fn the_file_of_rfc_4506_section_7() {
    same(
        "
        00000009 'sillyprog' 000000
        00000002                            # EXEC
        00000004 'lisp'
        00000004 'john'
        00000006 '(quit)' 0000
        ",
        &file::file {
            filename: "sillyprog".into(),
            type_: file::filetype::EXEC("lisp".into()),
            owner: "john".into(),
            data: b"(quit)".to_vec(),
        },
    );
}

fn segment(handle: u32, length: u32, offset: u64) -> rpcrdma::xdr_rdma_segment {
    rpcrdma::xdr_rdma_segment { handle, length, offset }
}

fn msg(body: rdma_body) -> rpcrdma::rdma_msg {
    rpcrdma::rdma_msg {
        rdma_xid: 0x1122_3344,
        rdma_vers: rpcrdma::RPCRDMA_VERSION,
        rdma_credit: 32,
        rdma_body: body,
    }
}

#[test]
fn rdma_headers() {
    let write = |list: &[(u32, u32, u64)]| rpcrdma::xdr_write_list {
        entry: rpcrdma::xdr_write_chunk {
            target: list.iter().map(|(h, l, o)| segment(*h, *l, *o)).collect(),
        },
    };
    same(
        "
        11223344 00000001 00000020 00000000 # xid, version 1, 32 credits, RDMA_MSG
        00000001 00000094 00000a0b 00001000 00007f0000001000 # a read segment at position 148
        00000000
        00000001 00000002                   # a write chunk of two segments
        00000c01 00001000 0000000000010000
        00000c02 00000800 0000000000020000
        00000001 00000000                   # a write chunk of none
        00000000
        00000000                            # no reply chunk
        ",
        &msg(rdma_body::RDMA_MSG(rpcrdma::rpc_rdma_header {
            rdma_reads: vec![rpcrdma::xdr_read_list {
                entry: rpcrdma::xdr_read_chunk {
                    position: 148,
                    target: segment(0xa0b, 4096, 0x7f00_0000_1000),
                },
            }],
            rdma_writes: vec![write(&[(0xc01, 4096, 0x1_0000), (0xc02, 2048, 0x2_0000)]), write(&[])],
            rdma_reply: None,
        })),
    );
    let vers = rpcrdma::rpc_rdma_errvers { rdma_vers_low: 1, rdma_vers_high: 1 };
    same(
        "11223344 00000001 00000020 00000004 00000001 00000001 00000001",
        &msg(rdma_body::RDMA_ERROR(rpcrdma::rpc_rdma_error::ERR_VERS(vers))),
    );
    same(
        "11223344 00000001 00000020 00000004 00000002",
        &msg(rdma_body::RDMA_ERROR(rpcrdma::rpc_rdma_error::ERR_CHUNK)),
    );
    same("11223344 00000001 00000020 00000003", &msg(rdma_body::RDMA_DONE));
    // RFC 8797: 4 KiB each way, remote invalidation.
    same(
        "f6ab0e18 01 01 03 03",
        &rpcrdma::rpcrdma_cmp { cmp_magic: rpcrdma::RPCRDMA_CMP_MAGIC, cmp_octets: [1, 1, 3, 3] },
    );
}

/// A reply chunk is optional data in front of more bytes. Counted twice, it shifts the call behind it.
#[test]
fn b08_a_reply_chunk_in_front_of_exchange_id() {
    let header = "
        11223344 00000001 00000020 00000000
        00000000 00000000                   # no reads, no writes
        00000001 00000001 00000d01 00002000 0000000000030000
    ";
    let call = "
        11223344 00000000 00000002 000186a3 00000004 00000001 # a call of NFS version 4, COMPOUND
        00000000 00000000 00000000 00000000 # AUTH_NONE
    ";
    let expected = msg(rdma_body::RDMA_MSG(rpcrdma::rpc_rdma_header {
        rdma_reads: Vec::new(),
        rdma_writes: Vec::new(),
        rdma_reply: Some(rpcrdma::xdr_write_chunk { target: vec![segment(0xd01, 8192, 0x3_0000)] }),
    }));
    same(header, &expected);
    let message = [bytes(header), bytes(call), bytes(nfs4_bytes::EXCHANGE_ID)].concat();
    let mut d = Decoder::new(&message);
    assert_eq!(rpcrdma::rdma_msg::decode(&mut d), Ok(expected));
    assert_eq!(d.position(), bytes(header).len());
    assert_eq!(d.bytes(40).unwrap(), bytes(call));
    assert_eq!(nfs4::COMPOUND4args::decode(&mut d), Ok(nfs4_bytes::exchange_id()));
    d.finish().unwrap();
    // The borrowed form, which a server uses, stops at the same place.
    let mut d = Decoder::new(&message);
    let borrowed = rpcrdma::rdma_msgRef::decode(&mut d).unwrap();
    assert_eq!((borrowed.rdma_xid, d.position()), (0x1122_3344, bytes(header).len()));
}

#[test]
fn rpcsec_gss_credentials_and_bodies() {
    use rpcsec_gss::*;
    let cred = |gss_proc, seq_num, service, handle: &[u8]| {
        let handle = handle.to_vec();
        rpc_gss_cred_t::RPCSEC_GSS_VERS_1(rpc_gss_cred_vers_1_t { gss_proc, seq_num, service, handle })
    };
    same(
        "00000001 00000001 00000000 00000001 00000000",
        &cred(rpc_gss_proc_t::RPCSEC_GSS_INIT, 0, rpc_gss_service_t::RPC_GSS_SVC_NONE, b""),
    );
    same(
        "00000001 00000000 00000005 00000003 00000004 cafe0001",
        &cred(rpc_gss_proc_t::RPCSEC_GSS_DATA, 5, rpc_gss_service_t::RPC_GSS_SVC_PRIVACY, b"\xca\xfe\0\x01"),
    );
    same("00000006 'token!' 0000", &rpc_gss_init_arg { gss_token: b"token!".to_vec() });
    same(
        "00000004 cafe0001 00000001 00000000 00000080 00000002 6082 0000",
        &rpc_gss_init_res {
            handle: b"\xca\xfe\0\x01".to_vec(),
            gss_major: 1,
            gss_minor: 0,
            seq_window: 128,
            gss_token: b"\x60\x82".to_vec(),
        },
    );
    same(
        "00000008 00000005 00000007 00000003 a1b2c3 00",
        &rpc_gss_integ_data {
            databody_integ: Pages::copy_from(&bytes("00000005 00000007")),
            checksum: b"\xa1\xb2\xc3".to_vec(),
        },
    );
    same("00000003 010203 00", &rpc_gss_priv_data { databody_priv: Pages::copy_from(&[1, 2, 3]) });
}

#[test]
fn a_lock_of_nlm() {
    use nlm4::*;
    let lock = nlm4_lock {
        caller_name: "box".into(),
        fh: nlm4_fh(vec![1, 2, 3, 4, 5]),
        oh: netobj(b"7@box".to_vec()),
        svid: 7,
        l_offset: 0x1_0000_0000,
        l_len: 0,
    };
    let alock = "
        00000003 'box' 00
        00000005 0102030405 000000
        00000005 '7@box' 000000
        00000007 0000000100000000 0000000000000000
    ";
    same(
        &format!("00000004 0000002a 00000001 00000001 {alock} 00000000 00000003"),
        &nlm4_lockargs {
            cookie: netobj(vec![0, 0, 0, 42]),
            block: true,
            exclusive: true,
            alock: lock,
            reclaim: false,
            state: 3,
        },
    );
    same(
        "00000000 00000001 00000000 00000007 00000001 6f 000000 0000000000000000 0000000000000001",
        &nlm4_testres {
            cookie: netobj(Vec::new()),
            test_stat: nlm4_testrply::NLM4_DENIED(nlm4_holder {
                exclusive: false,
                svid: 7,
                oh: netobj(b"o".to_vec()),
                l_offset: 0,
                l_len: 1,
            }),
        },
    );
    same(
        "00000001 01 000000 00000005",
        &nlm4_res { cookie: netobj(vec![1]), stat: nlm4_stats::NLM4_DEADLCK },
    );
}

#[test]
fn a_request_to_monitor_and_what_comes_of_it() {
    let private = *b"0123456789abcdef";
    same(
        "
        00000004 'peer'
        00000003 'box' 00 000186b5 00000004 00000010 # program 100021, version 4, procedure 16
        '0123456789abcdef'
        ",
        &nsm::mon {
            mon_id: nsm::mon_id {
                mon_name: "peer".into(),
                my_id: nsm::my_id { my_name: "box".into(), my_prog: 100_021, my_vers: 4, my_proc: 16 },
            },
            priv_: private,
        },
    );
    same("00000004 'peer' 00000005", &nsm::stat_chge { mon_name: "peer".into(), state: 5 });
    same("00000000 00000003", &nsm::sm_stat_res { res_stat: nsm::res::STAT_SUCC, state: 3 });
    same(
        "00000004 'peer' 00000005 '0123456789abcdef'",
        &nlm4::nlm4_sm_status { mon_name: "peer".into(), state: 5, priv_: private },
    );
}

//! Limits of the `.x` files: nothing is without one, and they hold in both directions.

use crate::bytes::read;
use crate::{nfs4, nlm4, nsm, rpcrdma, rpcsec_gss};
use std::fmt::Debug;
use sunrpc::page::Pages;
use sunrpc::xdr::{Decode, Encode, XdrError, to_vec};

#[test]
fn nothing_is_unbounded() {
    for name in ["admin", "nfs4", "nlm4", "nsm", "rpcbind", "rpcrdma", "rpcsec_gss"] {
        let path = format!("{}/{name}.rs", env!("OUT_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("impl<'a> Decode<'a> for"));
        // The one unbounded shape is a list, whose elements have to be there one by one.
        let open: Vec<_> = text.lines().filter(|l| l.contains("u32::MAX")).map(str::trim).collect();
        assert!(open.iter().all(|l| l.contains("arbitrary_vec(d, u32::MAX)?")), "{name}: {open:?}");
    }
}

/// `most` goes both ways, `more`, which has one element or byte more, neither.
#[track_caller]
fn limit<T: Debug + PartialEq + Encode + for<'a> Decode<'a>>(most: T, more: T, at: u32, prefix: usize) {
    let room = 4 << 20;
    let bytes = to_vec(&most, room).unwrap();
    assert_eq!(read::<T>(&bytes).as_ref(), Ok(&most));
    assert_eq!(to_vec(&more, room), Err(XdrError::Full));
    // The length of the one in the bytes of the other, with bytes behind it for whatever it would read.
    let mut bytes = [&bytes[..], &[0; 256]].concat();
    let place = prefix..prefix + 4;
    assert_eq!(bytes[place.clone()], at.to_be_bytes());
    bytes[place].copy_from_slice(&(at + 1).to_be_bytes());
    assert_eq!(read::<T>(&bytes).unwrap_err(), XdrError::TooLong { len: at + 1, max: at });
}

#[test]
fn limits_of_nfs4() {
    use nfs4::*;
    let n = |max: u32| max as usize;
    let compound = |count| COMPOUND4args {
        tag: "".into(),
        minorversion: 0,
        argarray: vec![nfs_argop4::OP_GETFH; count],
    };
    limit(compound(n(NFS4_OPS_MAX)), compound(n(NFS4_OPS_MAX) + 1), NFS4_OPS_MAX, 8);
    let tag =
        |len| COMPOUND4args { tag: vec![b't'; len].as_slice().into(), minorversion: 0, argarray: vec![] };
    limit(tag(n(NFS4_TEXT_MAX)), tag(n(NFS4_TEXT_MAX) + 1), NFS4_TEXT_MAX, 0);
    let fh = |len| nfs_fh4(vec![1; len]);
    limit(fh(n(NFS4_FHSIZE)), fh(n(NFS4_FHSIZE) + 1), NFS4_FHSIZE, 0);
    let name = |len| LOOKUP4args { objname: vec![b'n'; len].as_slice().into() };
    limit(name(n(NFS4_NAME_MAX)), name(n(NFS4_NAME_MAX) + 1), NFS4_NAME_MAX, 0);
    let owner = |len| state_owner4 { clientid: 1, owner: vec![1; len] };
    limit(owner(n(NFS4_OPAQUE_LIMIT)), owner(n(NFS4_OPAQUE_LIMIT) + 1), NFS4_OPAQUE_LIMIT, 8);
    let map = |len| bitmap4(vec![1; len]);
    limit(map(n(NFS4_BITMAP_MAX)), map(n(NFS4_BITMAP_MAX) + 1), NFS4_BITMAP_MAX, 0);
    let write = |len| WRITE4args {
        stateid: stateid4 { seqid: 0, other: [0; 12] },
        offset: 0,
        stable: stable_how4::UNSTABLE4,
        data: Pages::copy_from(&vec![7; len]),
    };
    limit(write(n(NFS4_IO_MAX)), write(n(NFS4_IO_MAX) + 1), NFS4_IO_MAX, 28);
    let ids = |len| TEST_STATEID4args { ts_stateids: vec![stateid4 { seqid: 0, other: [0; 12] }; len] };
    limit(ids(n(NFS4_STATEIDS_MAX)), ids(n(NFS4_STATEIDS_MAX) + 1), NFS4_STATEIDS_MAX, 0);
    let value = |len| xattrvalue4(vec![0; len]);
    limit(value(n(NFS4_XATTR_VALUE_MAX)), value(n(NFS4_XATTR_VALUE_MAX) + 1), NFS4_XATTR_VALUE_MAX, 0);
}

#[test]
fn limits_of_the_others() {
    let owner = |len| nlm4::netobj(vec![0; len]);
    limit(owner(1024), owner(1025), 1024, 0);
    let fh = |len| nlm4::nlm4_fh(vec![0; len]);
    limit(fh(64), fh(65), 64, 0);
    let host = |len| nsm::sm_name { mon_name: vec![b'h'; len].as_slice().into() };
    limit(host(1024), host(1025), 1024, 0);
    let segment = rpcrdma::xdr_rdma_segment { handle: 0, length: 0, offset: 0 };
    let chunk = |len| rpcrdma::xdr_write_chunk { target: vec![segment; len] };
    limit(chunk(256), chunk(257), 256, 0);
    let cred = |len| {
        rpcsec_gss::rpc_gss_cred_t::RPCSEC_GSS_VERS_1(rpcsec_gss::rpc_gss_cred_vers_1_t {
            gss_proc: rpcsec_gss::rpc_gss_proc_t::RPCSEC_GSS_DATA,
            seq_num: 1,
            service: rpcsec_gss::rpc_gss_service_t::RPC_GSS_SVC_INTEGRITY,
            handle: vec![0; len],
        })
    };
    limit(cred(368), cred(369), 368, 16);
    // The longest handle fits in a credential body.
    assert!(to_vec(&cred(368), 400).is_ok());
    // A version that nobody defines.
    let other = read::<rpcsec_gss::rpc_gss_cred_t>(&[0, 0, 0, 3, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(other, XdrError::NoArm { name: "rpc_gss_cred_t", value: 3 });
}

#[test]
fn long_rdma_lists_neither_recurse_nor_pass_the_end() {
    // A read list of 100 000 segments; then the same without its end.
    let mut bytes = [[0u8; 16].as_slice(), &[0, 0, 0, 1]].concat();
    for _ in 0..100_000 {
        bytes.extend([0; 20]);
        bytes.extend([0, 0, 0, 1]);
    }
    let cut = bytes.clone();
    bytes.extend([0; 24]);
    bytes.extend([0; 8]);
    let body = read::<rpcrdma::rdma_msg>(&[&bytes[..bytes.len() - 8], &[0; 4]].concat());
    assert!(body.is_err(), "the list of writes or the reply chunk is missing");
    let whole = read::<rpcrdma::rdma_msg>(&bytes).unwrap();
    let rpcrdma::rdma_body::RDMA_MSG(header) = whole.rdma_body else { panic!("not RDMA_MSG") };
    assert_eq!(header.rdma_reads.len(), 100_001);
    assert!(matches!(read::<rpcrdma::rdma_msg>(&cut), Err(XdrError::Eof { .. })));
}

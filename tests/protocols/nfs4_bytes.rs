//! NFS version 4: bytes worked out from RFC 7531, RFC 8881, RFC 7863 and RFC 8276.

use crate::bytes::{bytes, read, same};
use crate::nfs4::*;
use sunrpc::page::Pages;
use sunrpc::xdr::{Decode, Decoder};

fn stateid(seqid: u32, other: u8) -> stateid4 {
    stateid4 { seqid, other: [other; 12] }
}

#[test]
fn a_getattr_of_the_root_in_a_session() {
    let text = "
        00000000                            # no tag
        00000001 00000003                   # minor version 1, three operations
        00000035                            # 53, SEQUENCE
        000102030405060708090a0b0c0d0e0f    # session
        00000007 00000002 00000003 00000001 # sequence, slot, highest slot, to be cached
        00000018                            # 24, PUTROOTFH
        00000009                            # 9, GETATTR
        00000002 0010011a 00b0a23a          # type, change, size, fsid, fileid; mode, numlinks, owners, rawdev, times
    ";
    let value = COMPOUND4args {
        tag: "".into(),
        minorversion: 1,
        argarray: vec![
            nfs_argop4::OP_SEQUENCE(SEQUENCE4args {
                sa_sessionid: *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
                sa_sequenceid: 7,
                sa_slotid: 2,
                sa_highest_slotid: 3,
                sa_cachethis: true,
            }),
            nfs_argop4::OP_PUTROOTFH,
            nfs_argop4::OP_GETATTR(GETATTR4args { attr_request: bitmap4(vec![0x0010_011a, 0x00b0_a23a]) }),
        ],
    };
    same(text, &value);
    let bits = [FATTR4_TYPE, FATTR4_CHANGE, FATTR4_SIZE, FATTR4_FSID, FATTR4_FILEID];
    assert_eq!(bits.iter().fold(0, |m, b| m | 1 << b), 0x0010_011a);

    // Without allocation, and from the whole record: the operations are where they are said to be.
    let record = bytes(text);
    let borrowed = COMPOUND4argsRef::decode(&mut Decoder::new(&record)).unwrap();
    let numbers: Vec<_> = borrowed.argarray.iter().map(|op| op.discriminant() as i32).collect();
    assert_eq!(numbers, [53, 24, 9]);
}

#[test]
fn the_attributes_that_answer_it() {
    let text = "
        00000000 00000000 00000001          # NFS4_OK, no tag, one result
        00000009 00000000                   # GETATTR, NFS4_OK
        00000002 0010001a 00000012          # type, change, size, fileid; mode, owner
        00000030                            # 48 bytes of values
        00000002                            # NF4DIR
        0000000000000005                    # change
        0000000000001000                    # size
        0000000000000080                    # fileid
        000001ed                            # mode 0755
        0000000b 'root@domain' 00           # owner
    ";
    let res: COMPOUND4res = read(&bytes(text)).unwrap();
    let [nfs_resop4::OP_GETATTR(GETATTR4res::NFS4_OK(ok))] = &res.resarray[..] else { panic!("{res:?}") };
    let attrs = &ok.obj_attributes;
    assert_eq!(attrs.attrmask.0, [0x0010_001a, 1 << (FATTR4_MODE - 32) | 1 << (FATTR4_OWNER - 32)]);
    let d = &mut Decoder::new(&attrs.attr_vals);
    let kind = fattr4_type::decode(d).unwrap();
    let numbers = (fattr4_change::decode(d), fattr4_size::decode(d), fattr4_fileid::decode(d));
    let last = (fattr4_mode::decode(d), fattr4_owner::decode(d));
    d.finish().unwrap();
    assert_eq!((kind, numbers), (nfs_ftype4::NF4DIR, (Ok(5), Ok(4096), Ok(128))));
    assert_eq!(last, (Ok(MODE4_RUSR | MODE4_WUSR | MODE4_XUSR | 0o55), Ok("root@domain".into())));
    same(text, &res);
}

pub const EXCHANGE_ID: &str = "
    00000000 00000001 00000001          # no tag, minor version 1, one operation
    0000002a                            # 42, EXCHANGE_ID
    0123456789abcdef                    # verifier
    00000011 'Linux NFSv4.1 box' 000000 # owner
    00000103                            # moved by referral, by migration; state is bound to principals
    00000000                            # SP4_NONE
    00000001                            # an implementation id
    0000000a 'kernel.org' 0000
    00000009 'Linux 6.1' 000000
    0000000000000000 00000000
";

pub fn exchange_id() -> COMPOUND4args {
    let flags =
        EXCHGID4_FLAG_SUPP_MOVED_REFER | EXCHGID4_FLAG_SUPP_MOVED_MIGR | EXCHGID4_FLAG_BIND_PRINC_STATEID;
    COMPOUND4args {
        tag: "".into(),
        minorversion: 1,
        argarray: vec![nfs_argop4::OP_EXCHANGE_ID(EXCHANGE_ID4args {
            eia_clientowner: client_owner4 {
                co_verifier: *b"\x01\x23\x45\x67\x89\xab\xcd\xef",
                co_ownerid: b"Linux NFSv4.1 box".to_vec(),
            },
            eia_flags: flags,
            eia_state_protect: state_protect4_a::SP4_NONE,
            eia_client_impl_id: vec![nfs_impl_id4 {
                nii_domain: "kernel.org".into(),
                nii_name: "Linux 6.1".into(),
                nii_date: nfstime4 { seconds: 0, nseconds: 0 },
            }],
        })],
    }
}

#[test]
fn exchange_id_and_create_session() {
    same(EXCHANGE_ID, &exchange_id());
    let channel = |max: u32| channel_attrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: max,
        ca_maxresponsesize: max,
        ca_maxresponsesize_cached: 4096,
        ca_maxoperations: 8,
        ca_maxrequests: 64,
        ca_rdma_ird: Vec::new(),
    };
    let sys = authsys_parms { stamp: 1, machinename: "box".into(), uid: 0, gid: 0, gids: vec![10] };
    same(
        "
        0000002b                            # 43, CREATE_SESSION
        00000000deadbeef 00000001           # client, sequence
        00000002                            # this connection is the back channel too
        00000000 00100400 00100400 00001000 00000008 00000040 00000000
        00000000 00001000 00001000 00001000 00000008 00000040 00000000
        40000000                            # program of callbacks
        00000001 00000001                   # one flavor, AUTH_SYS
        00000001 00000003 'box' 00 00000000 00000000 00000001 0000000a
        ",
        &nfs_argop4::OP_CREATE_SESSION(CREATE_SESSION4args {
            csa_clientid: 0xdead_beef,
            csa_sequence: 1,
            csa_flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            csa_fore_chan_attrs: channel(0x10_0400),
            csa_back_chan_attrs: channel(0x1000),
            csa_cb_program: NFS4_CALLBACK,
            csa_sec_parms: vec![callback_sec_parms4::AUTH_SYS(sys)],
        }),
    );
}

#[test]
fn a_client_of_minor_version_0() {
    same(
        "
        00000023                            # 35, SETCLIENTID
        0123456789abcdef 00000003 'box' 00  # verifier, id
        40000000                            # program of callbacks
        00000003 'tcp' 00 0000000d '127.0.0.1.3.4' 000000
        00000001                            # callback_ident
        ",
        &nfs_argop4::OP_SETCLIENTID(SETCLIENTID4args {
            client: nfs_client_id4 { verifier: *b"\x01\x23\x45\x67\x89\xab\xcd\xef", id: b"box".to_vec() },
            callback: cb_client4 {
                cb_program: NFS4_CALLBACK,
                cb_location: netaddr4 { na_r_netid: "tcp".into(), na_r_addr: "127.0.0.1.3.4".into() },
            },
            callback_ident: 1,
        }),
    );
    // In use: the address of the client that has the id.
    same(
        "00002721 00000003 'udp' 00 00000000",
        &SETCLIENTID4res::NFS4ERR_CLID_INUSE(netaddr4 { na_r_netid: "udp".into(), na_r_addr: "".into() }),
    );
}

#[test]
fn open_read_write_lock() {
    same(
        "
        00000012 00000000                   # 18, OPEN; seqid
        00000003 00000000                   # read and write, deny none
        0000000000000009 00000004 'open'    # owner
        00000001 00000000                   # OPEN4_CREATE, UNCHECKED4
        00000002 00000000 00000002          # mode
        00000004 000001a4                   # 0644
        00000000 00000005 'a.txt' 000000    # CLAIM_NULL
        ",
        &nfs_argop4::OP_OPEN(OPEN4args {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_BOTH,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: open_owner4 { clientid: 9, owner: b"open".to_vec() },
            openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(fattr4 {
                attrmask: bitmap4(vec![0, 2]),
                attr_vals: attrlist4(vec![0, 0, 1, 0xa4]),
            })),
            claim: open_claim4::CLAIM_NULL("a.txt".into()),
        }),
    );
    same(
        "
        00000019 00000000                   # READ, NFS4_OK
        00000001 00000005 'hello' 000000    # end of file
        ",
        &nfs_resop4::OP_READ(READ4res::NFS4_OK(READ4resok { eof: true, data: Pages::copy_from(b"hello") })),
    );
    same(
        "
        00000026                            # 38, WRITE
        00000001 0c0c0c0c0c0c0c0c0c0c0c0c   # stateid
        0000000100000000 00000002           # offset 4 GiB, FILE_SYNC4
        00000003 'abc' 00
        ",
        &nfs_argop4::OP_WRITE(WRITE4args {
            stateid: stateid(1, 12),
            offset: 1 << 32,
            stable: stable_how4::FILE_SYNC4,
            data: Pages::copy_from(b"abc"),
        }),
    );
    same(
        "
        0000000c 00000002 00000000          # 12, LOCK; WRITE_LT, no reclaim
        0000000000000000 ffffffffffffffff   # to the end
        00000001                            # a new lock owner
        00000004                            # seqid of the open owner
        00000001 0b0b0b0b0b0b0b0b0b0b0b0b
        00000000                            # seqid of the lock owner
        0000000000000009 00000004 'lock'
        ",
        &nfs_argop4::OP_LOCK(LOCK4args {
            locktype: nfs_lock_type4::WRITE_LT,
            reclaim: false,
            offset: 0,
            length: NFS4_UINT64_MAX,
            locker: locker4::True(open_to_lock_owner4 {
                open_seqid: 4,
                open_stateid: stateid(1, 11),
                lock_seqid: 0,
                lock_owner: lock_owner4 { clientid: 9, owner: b"lock".to_vec() },
            }),
        }),
    );
}

#[test]
fn a_directory_is_a_list_with_an_end() {
    let entry = |cookie, name: &str| entry4 {
        cookie,
        name: name.into(),
        attrs: fattr4 { attrmask: bitmap4(vec![1 << FATTR4_TYPE]), attr_vals: attrlist4(vec![0, 0, 0, 1]) },
    };
    same(
        "
        0000001a 00000000                   # READDIR, NFS4_OK
        0000000000000001                    # verifier
        00000001 0000000000000003 00000001 'a' 000000 00000001 00000002 00000004 00000001
        00000001 0000000000000004 00000002 'bc' 0000  00000001 00000002 00000004 00000001
        00000000 00000001                   # no entry follows; end of the directory
        ",
        &nfs_resop4::OP_READDIR(READDIR4res::NFS4_OK(READDIR4resok {
            cookieverf: [0, 0, 0, 0, 0, 0, 0, 1],
            reply: dirlist4 { entries: vec![entry(3, "a"), entry(4, "bc")], eof: true },
        })),
    );
}

#[test]
fn minor_version_2_and_extended_attributes() {
    same(
        "
        00000044 00000000                   # READ_PLUS, NFS4_OK
        00000001 00000002                   # end of file, two pieces
        00000000 0000000000000000 00000004 'data'
        00000001 0000000000000004 0000000000100000
        ",
        &nfs_resop4::OP_READ_PLUS(READ_PLUS4res::NFS4_OK(read_plus_res4 {
            rpr_eof: true,
            rpr_contents: vec![
                read_plus_content::NFS4_CONTENT_DATA(data4 {
                    d_offset: 0,
                    d_data: Pages::copy_from(b"data"),
                }),
                read_plus_content::NFS4_CONTENT_HOLE(data_info4 { di_offset: 4, di_length: 1 << 20 }),
            ],
        })),
    );
    same(
        "
        0000003c                            # 60, COPY
        00000001 010101010101010101010101
        00000002 020202020202020202020202
        0000000000000000 0000000000001000 0000000000002000
        00000001 00000000                   # consecutive, asynchronous
        00000001 00000003                   # one source, NL4_NETADDR
        00000003 'tcp' 00 0000000e '192.0.2.1.8.01' 0000
        ",
        &nfs_argop4::OP_COPY(COPY4args {
            ca_src_stateid: stateid(1, 1),
            ca_dst_stateid: stateid(2, 2),
            ca_src_offset: 0,
            ca_dst_offset: 4096,
            ca_count: 8192,
            ca_consecutive: true,
            ca_synchronous: false,
            ca_source_server: vec![netloc4::NL4_NETADDR(netaddr4 {
                na_r_netid: "tcp".into(),
                na_r_addr: "192.0.2.1.8.01".into(),
            })],
        }),
    );
    same(
        "
        00000049 00000001                   # 73, SETXATTR; create
        00000009 'user.note' 000000 00000002 'hi' 0000
        ",
        &nfs_argop4::OP_SETXATTR(SETXATTR4args {
            sxa_option: setxattr_option4::SETXATTR4_CREATE,
            sxa_key: "user.note".into(),
            sxa_value: xattrvalue4(b"hi".to_vec()),
        }),
    );
    same(
        "
        0000004a 00000000                   # LISTXATTRS, NFS4_OK
        0000000000000002 00000002 00000001 'a' 000000 00000001 'b' 000000 00000001
        ",
        &nfs_resop4::OP_LISTXATTRS(LISTXATTRS4res::NFS4_OK(LISTXATTRS4resok {
            lxr_cookie: 2,
            lxr_names: vec!["a".into(), "b".into()],
            lxr_eof: true,
        })),
    );
    same("00000048 0000276f", &nfs_resop4::OP_GETXATTR(GETXATTR4res::Default(nfsstat4::NFS4ERR_NOXATTR)));
}

#[test]
fn a_recall_over_the_back_channel() {
    same(
        "
        00000000 00000001 00000000 00000002 # no tag, minor version 1, ident 0, two operations
        0000000b                            # 11, CB_SEQUENCE
        0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f 00000001 00000000 00000000 00000000
        00000001                            # calls that this one refers to, of one session
        0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f 00000001 00000007 00000002
        00000004                            # 4, CB_RECALL
        00000001 0d0d0d0d0d0d0d0d0d0d0d0d 00000000 00000004 01020304
        ",
        &CB_COMPOUND4args {
            tag: "".into(),
            minorversion: 1,
            callback_ident: 0,
            argarray: vec![
                nfs_cb_argop4::OP_CB_SEQUENCE(CB_SEQUENCE4args {
                    csa_sessionid: [15; 16],
                    csa_sequenceid: 1,
                    csa_slotid: 0,
                    csa_highest_slotid: 0,
                    csa_cachethis: false,
                    csa_referring_call_lists: vec![referring_call_list4 {
                        rcl_sessionid: [15; 16],
                        rcl_referring_calls: vec![referring_call4 { rc_sequenceid: 7, rc_slotid: 2 }],
                    }],
                }),
                nfs_cb_argop4::OP_CB_RECALL(CB_RECALL4args {
                    stateid: stateid(1, 13),
                    truncate: false,
                    fh: nfs_fh4(vec![1, 2, 3, 4]),
                }),
            ],
        },
    );
}

#[test]
fn values_of_operations_stay_small_in_memory() {
    // A COMPOUND is a vector of these: what grows here grows for GETATTR too. Beyond this, an arm wants a `Box`.
    let owned = [size_of::<nfs_argop4>(), size_of::<nfs_resop4>(), size_of::<nfs_cb_argop4>()];
    assert!(owned.iter().all(|s| *s <= 192), "{owned:?}");
    let borrowed = [size_of::<nfs_argop4Ref<'_>>(), size_of::<nfs_resop4Ref<'_>>()];
    assert!(borrowed.iter().all(|s| *s <= 384), "{borrowed:?}");
}

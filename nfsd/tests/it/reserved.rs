//! A server that wants source ports below 1024, and this project's own client.

use super::server::{How, Server};
use nfsd::proto::mount as m;
use nfsd::proto::nfs3 as n;
use sunrpc::auth::AuthSysParams;
use sunrpc::clnt::Client;
use sunrpc_transports::clnt::ClntConfig;
use sunrpc_transports::connect_with;

/// What MNT and then GETATTR of the root say; no attributes where MNT refuses.
fn mount(url: &str, path: &str, reserved_port: bool) -> (m::mountstat3, Option<n::ftype3>) {
    let config = ClntConfig { reserved_port, ..ClntConfig::default() };
    let who = AuthSysParams { stamp: 0, machine: "test".into(), uid: 0, gid: 0, gids: vec![] };
    let mut c = Client::new(connect_with(url, &config).unwrap(), m::MOUNT_PROGRAM, m::MOUNT_V3);
    c.set_auth_sys(&who).unwrap();
    c.call::<(), ()>(0, &()).expect("NULL is for everybody");
    let root = match c.call(m::MOUNTPROC3_MNT, &m::dirpath(path.into())).unwrap() {
        m::mountres3::MNT3_OK(ok) => ok.fhandle.0,
        m::mountres3::Default(stat) => return (stat, None),
    };
    let mut c = Client::new(connect_with(url, &config).unwrap(), n::NFS_PROGRAM, n::NFS_V3);
    c.set_auth_sys(&who).unwrap();
    let args = n::GETATTR3args { object: n::nfs_fh3 { data: root } };
    match c.call(n::NFSPROC3_GETATTR, &args).unwrap() {
        n::GETATTR3res::NFS3_OK(ok) => (m::mountstat3::MNT3_OK, Some(ok.obj_attributes.type_)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_with_a_reserved_port_needs_no_insecure() {
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) != 0 {
        return eprintln!("SKIPPED: only root has source ports below 1024");
    }
    let args = vec!["--listen".into(), "udp://127.0.0.1:0".into()];
    let s = Server::start_how(How { secure: true, args, ..How::default() });
    let path = s.dir.path().to_str().unwrap();
    for url in [format!("tcp://127.0.0.1:{}", s.port), format!("udp://127.0.0.1:{}", s.udp_port())] {
        assert_eq!(mount(&url, path, true), (m::mountstat3::MNT3_OK, Some(n::ftype3::NF3DIR)), "{url}");
        assert_eq!(mount(&url, path, false), (m::mountstat3::MNT3ERR_ACCES, None), "{url}");
    }
    assert!(s.wait_for_log(|l| l.contains("wants one below 1024")));
}

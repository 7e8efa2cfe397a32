//! Clients over local sockets.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::clnt_fakes::*;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use sunrpc::clnt::Client;
use sunrpc_transports::connect;

#[test]
fn sockets_at_paths_and_abstract_names() {
    let path = std::env::temp_dir().join(format!("sunrpc-clnt-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let name = format!("sunrpc-clnt-{}", std::process::id());
    let at_path = UnixListener::bind(&path).unwrap();
    let at_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let cases = [(at_path, format!("local:{}", path.display())), (at_name, format!("local:@{name}"))];
    for (listener, url) in cases {
        let server = local(listener, Peer::serve);
        let mut c = Client::new(connect(&url).unwrap(), PROG, 1);
        assert_eq!(c.call::<_, u32>(1, &5u32).unwrap(), 5, "{url}");
        assert!(c.call_many::<u32, u32>(1, 0..300).into_iter().map(Result::unwrap).eq(0..300));
        drop(c);
        assert_eq!(server.join().unwrap().len(), 301);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn wrong_paths_say_what_is_wrong() {
    let msg = |url: &str| connect(url).err().unwrap().to_string();
    assert!(msg("local:").contains("local:/PATH"));
    assert!(msg("local:/no/such/socket").contains("/no/such/socket: No such file"));
    assert!(msg(&format!("local:/{}", "x".repeat(200))).contains("107 bytes"));
}

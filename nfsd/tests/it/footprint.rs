//! Memory at rest, without the pages of the program file: those are shared, and a debug build has five times as many.

use crate::server::{Server, exchange};
use crate::wire::Msg;

#[test]
fn a_thousand_idle_clients_cost_less_than_4_kb_each() {
    let s = Server::start(&["--threads", "2"]);
    // The first connections bring in code and pools that all share.
    let warm: Vec<_> = (0..8).map(|_| s.connect()).collect();
    for c in &warm {
        let mut c = c.try_clone().unwrap();
        exchange(&mut c, &Msg::null(1).0).unwrap();
    }
    let idle = s.memory("RssAnon");
    assert!(idle < 8 << 10, "{idle} KiB resident with hardly a client");
    // One by one: connections without a call make room for newer ones.
    let mut conns = Vec::new();
    for _ in 0..1000 {
        let mut c = s.connect();
        assert_eq!(&exchange(&mut c, &Msg::null(7).0).unwrap()[..4], 7u32.to_be_bytes());
        conns.push(c);
    }
    let each = (s.memory("RssAnon") - idle) as f64 / 1000.0;
    assert!(each < 4.0, "{each:.1} KiB for each idle connection");
    // Every one of them is still served.
    for c in &mut conns {
        assert_eq!(&exchange(c, &Msg::null(8).0).unwrap()[..4], 8u32.to_be_bytes());
    }
    eprintln!("idle: {idle} KiB; each further connection: {each:.2} KiB");
}

//! Deliberate faults, to show that the tests would notice them.
//!
//! A build with the feature `mutations` behaves wrongly in one way that the environment variable `SUNRPC_MUTATION`
//! names; `tests/mutations/run.sh` shows for each that a test fails with it and passes without. Any other build has
//! only `false` here, which the compiler removes. The names are those of [`ALL`].

/// Every fault that a build with the feature `mutations` knows, and the invariant that it breaks.
pub const ALL: &[(&str, &str)] = &[
    ("no-gate", "1: a page is free only after the network let go of it"),
    ("gate-queued", "2: queued bytes keep their pages"),
    ("gate-transmitted", "3: what may be sent again keeps its pages"),
    ("plain-close", "4: a connection closes only when the network refers to no page"),
    ("linger-not", "4: replies on their way are not cut off because the peer finished sending"),
    ("scan-all", "8: a scan ends at the first context that is not ready"),
    ("promise-first", "14: a record is as long as its mark says"),
    ("lend-protected", "15: what a reply's signature covers cannot change"),
    ("lose-page", "5: every page has an owner, none is lost"),
    ("half-filled", "6: no call is taken without all the pages it may need"),
    ("no-cap", "7: a pool holds at most 4 MiB beyond what is in use"),
    ("no-trim", "7: a pool shrinks with the demand"),
    ("data-cleared", "16: what has arrived is handled without a further event"),
    ("no-backpressure", "17: a full send queue ends reading"),
    ("no-pktinfo", "18: a datagram's reply leaves from the address that was called"),
    ("any-fragments", "19: a record has a limited number of fragments"),
    ("skip-switch", "21: every call acts with its caller's rights"),
    ("inline-blocking", "22: what waits does not stall other connections"),
    ("uneven", "23: connections are dealt evenly to workers"),
    ("evict-any", "24: only connections that nothing validated make room"),
    ("lose-orphan", "25: a late reply of a closed connection gives its pages back"),
    ("drc-per-worker", "26: a call comes again over another worker and is not repeated"),
    ("direct-untrimmed", "27: a direct read gives what was asked for and no more"),
    ("kick-many", "28: one kick of a file is in progress at a time"),
    ("release-early", "13: release runs after the reply is on its way"),
    ("release-twice", "13: release runs once"),
];

/// True if this process is to behave wrongly in the way of this name.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn on(_name: &str) -> bool {
    false
}

/// True if this process is to behave wrongly in the way of this name.
///
/// # Panics
/// If the name is not among [`ALL`], in the code or in the environment: such a test would show nothing.
#[cfg(feature = "mutations")]
#[inline]
pub fn on(name: &str) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<String> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = std::env::var("SUNRPC_MUTATION").unwrap_or_default();
        let known = chosen.is_empty() || ALL.iter().any(|(n, _)| *n == chosen);
        assert!(known, "SUNRPC_MUTATION={chosen} is none of {ALL:?}");
        chosen
    });
    debug_assert!(ALL.iter().any(|(n, _)| *n == name), "{name} is missing in the list of mutations");
    chosen == name
}

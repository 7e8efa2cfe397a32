//! ONC RPC (RFC 5531) without I/O: the core of the sunrpc workspace.
//!
//! This crate holds no file descriptor, no clock, no thread. Bytes and events go in, bytes and decisions come out;
//! transports and the reactor live in `sunrpc-transports`, file systems in `nfsd`.
//!
//! | room | what it knows |
//! |---|---|
//! | [`xdr`] | values and their bytes (RFC 4506) |
//! | [`msg`] | call and reply headers, `accept_stat`, `auth_stat` |
//! | [`record`] | record marking on streams |
//! | [`page`] | the page pool, reply buffers, payloads |
//! | [`auth`] | flavors and the credentials they yield |
//! | [`xprt`] | what a transport must do |
//! | [`svc`] | programs, procedures, the life of a call |
//! | [`drc`] | calls that must not run twice |
//! | [`clnt`] | calls from the other side |
//! | [`stats`] | counters, and how they are listed |
//! | [`mutate`] | deliberate faults, for the tests of the tests |
//! | [`rpcbind`] | where programs are found (RFC 1833) |

// Generated code names this crate as its users do.
extern crate self as sunrpc;

pub mod auth;
pub mod clnt;
pub mod drc;
pub mod msg;
pub mod mutate;
pub mod page;
pub mod record;
pub mod rpcbind;
pub mod stats;
pub mod svc;
pub mod xdr;
pub mod xprt;

/// Includes what `sunrpc_rpcgen::compile("NAME.x")` generated in `build.rs`, as module `NAME`.
#[macro_export]
macro_rules! include_program {
    ($name:ident) => {
        #[allow(
            missing_docs,
            unreachable_pub,
            dead_code,
            non_camel_case_types,
            non_snake_case,
            non_upper_case_globals,
            clippy::all,
            clippy::pedantic
        )]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
        }
    };
}

/// Without the feature `xdr-codec`, generated code has no bridge.
#[cfg(not(feature = "xdr-codec"))]
#[doc(hidden)]
#[macro_export]
macro_rules! xdr_codec_bridge {
    ($($any:tt)*) => {};
}

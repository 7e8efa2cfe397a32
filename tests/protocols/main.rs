//! The protocols of this workspace, as the compiler translates their `.x` files: properties that every type has, and
//! bytes that the RFCs and other implementations give.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod bytes;
mod limits;
mod nfs4_bytes;
mod nfs4_peer;
mod other_bytes;
mod peers;
mod properties;

sunrpc::include_program!(admin);
sunrpc::include_program!(mount);
sunrpc::include_program!(nfs3);
sunrpc::include_program!(nfs4);
sunrpc::include_program!(nlm4);
sunrpc::include_program!(nsm);
sunrpc::include_program!(rpcbind);
sunrpc::include_program!(rpcrdma);
sunrpc::include_program!(rpcsec_gss);
sunrpc::include_program!(file);

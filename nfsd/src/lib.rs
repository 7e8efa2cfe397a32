//! A user-space NFS server on the sunrpc framework.
//!
//! | module | what it knows |
//! |---|---|
//! | [`admin`] | the control socket, `nfsd stat` |
//! | [`config`] | command line and TOML file |
//! | [`context`] | what a thread keeps between calls |
//! | [`export`] | what is exported, to whom, with which rights |
//! | [`fh`] | the file handles that clients see |
//! | [`vfs`] | the seam to file systems, and the two that ship |
//! | [`mount`] | the MOUNT protocol |
//! | [`reload`] | reading the configuration file again |
//! | [`rpcbind`] | how clients find the ports |
//! | [`v3`] | NFS version 3 |
//! | [`proto`] | types generated from the `.x` files |

pub mod admin;
pub mod config;
pub mod context;
pub mod export;
pub mod fh;
pub mod mount;
pub mod proto;
pub mod reload;
pub mod rpcbind;
pub mod v3;
pub mod vfs;

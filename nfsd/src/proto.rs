//! The wire types, generated from `proto/*.x`: `nfs3` (RFC 1813) and `mount` (RFC 1813 appendix I, RFC 1094
//! appendix A), `admin` (our own).

sunrpc::include_program!(nfs3);
sunrpc::include_program!(mount);
sunrpc::include_program!(admin);

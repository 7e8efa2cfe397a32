//! The `nfsd` program.
fn main() {}

//! Generates the protocol types from `proto/*.x`.

fn main() -> Result<(), sunrpc_rpcgen::Error> {
    sunrpc_rpcgen::compile("proto/nfs3.x")?;
    sunrpc_rpcgen::compile("proto/mount.x")?;
    sunrpc_rpcgen::compile("proto/admin.x")?;
    Ok(())
}

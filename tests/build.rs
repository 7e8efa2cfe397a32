//! Generates the protocol types for `protocols/`, with random values for its property tests, and a list of the types.

use std::collections::BTreeSet;
use std::path::Path;

/// Each where the crate that uses it, or will use it, has it.
const FILES: [&str; 10] = [
    "../nfsd/proto/admin.x",
    "../nfsd/proto/mount.x",
    "../nfsd/proto/nfs3.x",
    "../nfsd/proto/nfs4.x",
    "../nfsd/proto/nlm4.x",
    "../nfsd/proto/nsm.x",
    "../sunrpc/src/rpcbind/rpcbind.x",
    "../transports/proto/rpcrdma.x",
    "../sunrpc/rpcgen/tests/x/rpcsec_gss.x",
    "../sunrpc/rpcgen/tests/x/file.x",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        let output = sunrpc_rpcgen::Compiler::new().arbitrary(true).compile(file)?;
        let text = std::fs::read_to_string(&output)?;
        let list = output.with_file_name(format!("{}_roots.rs", stem(&output)));
        std::fs::write(list, roots(&stem(&output), &text))?;
    }
    Ok(())
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Types that no other type holds: what they hold is tested with them. The table for the xdr-codec bridge tells.
fn roots(module: &str, text: &str) -> String {
    let table = text.lines().skip_while(|l| *l != "    layouts {").take_while(|l| *l != "    }");
    let rows: Vec<_> = table.filter_map(|l| l.trim().split_once(" = ")).collect();
    // An alias is another name, and is tested under the first.
    let aliases: BTreeSet<_> = text
        .lines()
        .filter_map(|l| l.strip_prefix("pub type ")?.split_once(" = "))
        .map(|(name, _)| name)
        .collect();
    let held: BTreeSet<_> = rows
        .iter()
        .filter(|(name, _)| !aliases.contains(name))
        .flat_map(|(_, layout)| layout.split("Layout::Of(&").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .collect();
    let mut out = format!("forms! {{ {module}:\n");
    for (name, _) in rows.iter().filter(|(name, _)| !aliases.contains(name) && !held.contains(name)) {
        out.push_str(&format!("    {name} {}Ref,\n", name.trim_end_matches('_')));
    }
    out.push_str("}\n");
    out
}

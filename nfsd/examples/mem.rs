//! `mem PATH tcp://127.0.0.1:2049`: serves a file system in memory as PATH, with 10,000 files in `dir10k` and 64 MiB of zeros
//! in `big`: what tests/bench/run.sh expects. It shows what nfsd costs without a real file system; see docs/performance.md.

use nfsd::export::{Export, ExportSettings, ExportTable, Squash};
use nfsd::fh::FhCodec;
use nfsd::vfs::mem::{MemFs, MemOptions};
use nfsd::vfs::{Backend, CreateHow, Cx, Identity, SetAttr};
use nfsd::{context::Shared, mount::Mount, v3::Nfs3};
use std::{error::Error, sync::Arc};
use sunrpc_transports::Server;

fn fill(fs: &MemFs) -> Result<(), Box<dyn Error>> {
    let mut vfs = fs.attach()?;
    let ident = Identity { uid: 0, gid: 0, groups: Default::default() };
    let cx = Cx { ident: &ident, blocking: true, sync: false, owner_override: true };
    let root = vfs.root()?;
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    vfs.mkdir(&cx, &root, b"work", &set)?;
    let big = SetAttr { mode: Some(0o644), size: Some(64 << 20), ..SetAttr::default() };
    vfs.create(&cx, &root, b"big", &CreateHow::Guarded(big))?;
    let dir = vfs.mkdir(&cx, &root, b"dir10k", &set)?.handle;
    for i in 0..10_000 {
        vfs.create(&cx, &dir, format!("file{i:05}").as_bytes(), &CreateHow::Guarded(set))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(url)) = (args.next(), args.next()) else {
        return Err("usage: mem PATH URL".into());
    };
    let fs = MemFs::new(&MemOptions::default());
    fill(&fs)?;
    let settings =
        ExportSettings { insecure: true, squash: Squash::None, ..ExportSettings::new(path.into()) };
    let table = ExportTable::new(vec![Arc::new(Export::new(1, settings, Arc::new(fs)))])?;
    let mut key = [0; 16];
    getrandom::fill(&mut key)?;
    let shared = Shared::new(table.into_shared(), FhCodec::with_key(&key))?;
    let server = Server::builder().program(Nfs3::new(shared.clone())).program(Mount::new(shared)).threads(1);
    let server = server.listen(&url)?.build()?;
    println!("{}", server.urls().join("\n"));
    Ok(server.run()?)
}

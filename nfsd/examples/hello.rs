//! `hello tcp://127.0.0.1:2049`: a file system of one's own, served by nfsd. It has one directory with one file, which
//! greets whoever reads it.

use nfsd::export::{Export, ExportSettings, ExportTable};
use nfsd::fh::FhCodec;
use nfsd::vfs::*;
use nfsd::{context::Shared, mount::Mount, v3::Nfs3};
use std::{error::Error, io::IoSliceMut, sync::Arc};
use sunrpc_transports::Server;

struct Hello;

/// Handles are one byte: the number of the object.
const ROOT: u8 = 1;
const FILE: u8 = 2;

fn text(cx: &Cx<'_>) -> String {
    format!("Hello, user {}!\n", cx.ident.uid)
}

fn entry(cx: &Cx<'_>, number: u8) -> VfsResult<Entry> {
    let (ftype, size) = match number {
        ROOT => (FileType::Directory, 0),
        FILE => (FileType::Regular, text(cx).len()),
        _ => return Err(VfsError::Stale),
    };
    let handle = Handle::new(&[number]).ok_or(VfsError::BadHandle)?;
    Ok(Entry { handle, attr: Attr { size: size as u64, ..Attr::new(ftype, number.into()) } })
}

impl Backend for Hello {
    fn attach(&self) -> VfsResult<Box<dyn Vfs>> {
        Ok(Box::new(Hello))
    }
}

impl Vfs for Hello {
    fn root(&mut self) -> VfsResult<Handle> {
        Handle::new(&[ROOT]).ok_or(VfsError::BadHandle)
    }

    fn getattr(&mut self, cx: &Cx<'_>, obj: &Handle) -> VfsResult<Attr> {
        entry(cx, obj.as_bytes().first().copied().unwrap_or(0)).map(|e| e.attr)
    }

    fn lookup(&mut self, cx: &Cx<'_>, dir: &Handle, name: &[u8]) -> VfsResult<Entry> {
        match (dir.as_bytes(), name) {
            ([ROOT], b"." | b"..") => entry(cx, ROOT),
            ([ROOT], b"hello.txt") => entry(cx, FILE),
            ([ROOT], _) => Err(VfsError::NoEnt),
            _ => Err(VfsError::NotDir),
        }
    }

    fn read(
        &mut self,
        cx: &Cx<'_>,
        obj: &Handle,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> VfsResult<ReadDone> {
        let attr = self.getattr(cx, obj)?;
        if attr.ftype != FileType::Regular {
            return Err(VfsError::IsDir);
        }
        let text = text(cx);
        let mut rest =
            text.as_bytes().get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let before = rest.len();
        for b in bufs {
            let (now, later) = rest.split_at(rest.len().min(b.len()));
            b[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(ReadDone { len: before - rest.len(), eof: rest.is_empty(), attr })
    }

    fn readdir(
        &mut self,
        cx: &Cx<'_>,
        dir: &Handle,
        cookie: u64,
        _: ReaddirWant,
        sink: &mut dyn DirSink,
    ) -> VfsResult<bool> {
        if dir.as_bytes() != [ROOT] {
            return Err(VfsError::NotDir);
        }
        let all: [(&[u8], u8); 3] = [(b".", ROOT), (b"..", ROOT), (b"hello.txt", FILE)];
        for (at, (name, number)) in (1u64..).zip(all).skip(cookie as usize) {
            let e = entry(cx, number)?;
            if sink.entry(&DirEntry { name, fileid: number.into(), cookie: at, entry: Some(&e) }).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("tcp://127.0.0.1:2049".into());
    let settings = ExportSettings { insecure: true, read_only: true, ..ExportSettings::new("/hello".into()) };
    let mut key = [0; 16];
    getrandom::fill(&mut key)?;
    let table = ExportTable::new(vec![Arc::new(Export::new(1, settings, Arc::new(Hello)))])?;
    let shared = Shared::new(table.into_shared(), FhCodec::with_key(&key))?;
    let server = Server::builder()
        .program(Nfs3::new(shared.clone()))
        .program(Mount::new(shared))
        .listen(&url)?
        .build()?;
    println!("{}", server.urls().join("\n"));
    Ok(server.run()?)
}

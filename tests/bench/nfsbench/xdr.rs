//! XDR and RPC on the generator's side: written here, so that nothing of the server measures itself.

use crate::error::{BenchError, Result};

/// ONC RPC program number of NFS.
pub(crate) const NFS: u32 = 100_003;
/// ONC RPC program number of MOUNT.
pub(crate) const MOUNT: u32 = 100_005;
/// ONC RPC program number of the echo service, `transports/examples/echo/echo.x`; version 1.
pub(crate) const ECHO: u32 = 0x2000_0ec0;
/// Its procedure that sends an opaque back.
pub(crate) const ECHO_SAY: u32 = 1;
/// NFS and MOUNT are spoken in version 3.
pub(crate) const VERSION: u32 = 3;
/// Bit of a record mark that says "last fragment" (RFC 5531 section 11).
pub(crate) const LAST_FRAGMENT: u32 = 0x8000_0000;
/// Largest file handle (`NFS3_FHSIZE`).
const FHSIZE: usize = 64;

/// Procedure numbers of NFSv3 (RFC 1813 section 3).
pub(crate) mod proc3 {
    pub(crate) const NULL: u32 = 0;
    pub(crate) const GETATTR: u32 = 1;
    pub(crate) const LOOKUP: u32 = 3;
    pub(crate) const ACCESS: u32 = 4;
    pub(crate) const READ: u32 = 6;
    pub(crate) const WRITE: u32 = 7;
    pub(crate) const CREATE: u32 = 8;
    pub(crate) const REMOVE: u32 = 12;
    pub(crate) const READDIRPLUS: u32 = 17;
    pub(crate) const COMMIT: u32 = 21;
}

/// An encoder; a record mark's room stands first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Enc(pub(crate) Vec<u8>);

impl Enc {
    pub(crate) fn u32(&mut self, v: u32) -> &mut Self {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    pub(crate) fn u64(&mut self, v: u64) -> &mut Self {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    pub(crate) fn opaque(&mut self, v: &[u8]) -> &mut Self {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Sets the record mark; `more` bytes will follow that are not in this buffer.
    pub(crate) fn close(&mut self, more: u32) {
        let len = (self.0.len() as u32).saturating_sub(4) + more;
        put_u32(&mut self.0, 0, LAST_FRAGMENT | len);
    }
}

/// Overwrites the word at `at`.
#[inline]
pub(crate) fn put_u32(buf: &mut [u8], at: usize, v: u32) {
    if let Some(word) = buf.get_mut(at..at + 4) {
        word.copy_from_slice(&v.to_be_bytes());
    }
}

/// Overwrites the hyper at `at`.
#[inline]
pub(crate) fn put_u64(buf: &mut [u8], at: usize, v: u64) {
    if let Some(word) = buf.get_mut(at..at + 8) {
        word.copy_from_slice(&v.to_be_bytes());
    }
}

/// A decoder that cannot run over the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dec<'a> {
    buf: &'a [u8],
}

impl<'a> Dec<'a> {
    pub(crate) fn new(buf: &'a [u8]) -> Self {
        Self { buf }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.buf.split_at_checked(n) {
            Some((head, tail)) => {
                self.buf = tail;
                Ok(head)
            }
            None => Err(BenchError::Reply(format!("{n} more bytes expected, {} are left", self.buf.len()))),
        }
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32> {
        match self.buf.split_first_chunk::<4>() {
            Some((word, tail)) => {
                self.buf = tail;
                Ok(u32::from_be_bytes(*word))
            }
            None => Err(BenchError::Reply("ends in the middle of a word".into())),
        }
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Variable-length opaque or string.
    #[inline]
    pub(crate) fn opaque(&mut self) -> Result<&'a [u8]> {
        let n = self.u32()? as usize;
        let padded = self.bytes(n.saturating_add(3) & !3)?;
        padded.get(..n).ok_or_else(|| BenchError::Reply("opaque too long".into()))
    }

    /// Steps over `post_op_attr`; says whether attributes were there.
    #[inline]
    pub(crate) fn post_op_attr(&mut self) -> Result<bool> {
        let there = self.u32()? != 0;
        if there {
            self.bytes(84)?;
        }
        Ok(there)
    }

    /// `nfs_fh3`.
    pub(crate) fn handle(&mut self) -> Result<&'a [u8]> {
        let fh = self.opaque()?;
        if fh.is_empty() || fh.len() > FHSIZE {
            return Err(BenchError::Reply(format!("file handle of {} bytes", fh.len())));
        }
        Ok(fh)
    }
}

/// In whose name calls are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Starts a call: record mark and xid are zero and patched later. AUTH_NONE without a caller, else AUTH_SYS.
pub(crate) fn call(caller: Option<Caller>, prog: u32, procedure: u32) -> Enc {
    let mut e = Enc::default();
    // mark, xid, CALL, RPC version 2
    let version = if prog == ECHO { 1 } else { VERSION };
    e.u32(0).u32(0).u32(0).u32(2).u32(prog).u32(version).u32(procedure);
    match caller {
        None => {
            e.u32(0).u32(0);
        }
        Some(c) => {
            let mut body = Enc::default();
            body.u32(0).opaque(b"nfsbench").u32(c.uid).u32(c.gid).u32(0);
            e.u32(1).opaque(&body.0);
        }
    }
    e.u32(0).u32(0);
    e
}

/// What a reply's header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Accepted and executed: results follow.
    Success,
    /// Any other `accept_stat`.
    Accepted(u32),
    /// `reply_stat` was MSG_DENIED, with its reject_stat.
    Denied(u32),
}

/// Decodes a reply's header up to the results.
#[inline]
pub(crate) fn reply(d: &mut Dec<'_>) -> Result<(u32, Outcome)> {
    let xid = d.u32()?;
    if d.u32()? != 1 {
        return Err(BenchError::Reply("not a REPLY".into()));
    }
    if d.u32()? != 0 {
        return Ok((xid, Outcome::Denied(d.u32()?)));
    }
    d.u32()?;
    d.opaque()?;
    Ok((
        xid,
        match d.u32()? {
            0 => Outcome::Success,
            stat => Outcome::Accepted(stat),
        },
    ))
}

/// One entry of a READDIRPLUS reply.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) cookie: u64,
    /// Attributes were sent.
    pub(crate) attrs: bool,
    /// Handle, when it was sent.
    pub(crate) handle: Option<&'a [u8]>,
}

/// Walks the results of READDIRPLUS after the status; returns the cookie verifier and whether this was the end.
pub(crate) fn entries<'a>(d: &mut Dec<'a>, mut each: impl FnMut(Entry<'a>)) -> Result<([u8; 8], bool)> {
    d.post_op_attr()?;
    let mut verf = [0; 8];
    verf.copy_from_slice(d.bytes(8)?);
    while d.u32()? != 0 {
        d.u64()?;
        let name = d.opaque()?;
        let cookie = d.u64()?;
        let attrs = d.post_op_attr()?;
        let handle = if d.u32()? != 0 { Some(d.handle()?) } else { None };
        each(Entry { name, cookie, attrs, handle });
    }
    Ok((verf, d.u32()? != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_call_is_44_bytes_with_its_mark() {
        let mut e = call(None, NFS, proc3::NULL);
        e.close(0);
        assert_eq!(e.0.len(), 44);
        assert_eq!(&e.0[..4], &[0x80, 0, 0, 40]);
    }

    #[test]
    fn the_echo_service_is_called_in_its_own_version() {
        let version = |prog| call(None, prog, 0).0.get(20..24).map(<[u8]>::to_vec);
        assert_eq!(version(ECHO), Some(vec![0, 0, 0, 1]));
        assert_eq!(version(NFS), Some(vec![0, 0, 0, 3]));
    }

    #[test]
    fn auth_sys_body_has_the_length_it_claims() {
        let e = call(Some(Caller { uid: 7, gid: 8 }), NFS, proc3::GETATTR);
        let mut d = Dec::new(&e.0[28..]);
        assert_eq!(d.u32().unwrap(), 1);
        let mut body = Dec::new(d.opaque().unwrap());
        body.u32().unwrap();
        assert_eq!(body.opaque().unwrap(), b"nfsbench");
        assert_eq!((body.u32().unwrap(), body.u32().unwrap(), body.u32().unwrap()), (7, 8, 0));
        assert!(body.u32().is_err());
    }

    #[test]
    fn truncated_replies_are_errors() {
        let mut e = Enc::default();
        e.u32(9).u32(1).u32(0).u32(0).u32(0).u32(0);
        assert_eq!(reply(&mut Dec::new(&e.0)).unwrap(), (9, Outcome::Success));
        for n in 0..e.0.len() {
            assert!(reply(&mut Dec::new(&e.0[..n])).is_err());
        }
        assert!(Dec::new(&[0xff, 0xff, 0xff, 0xff]).opaque().is_err());
    }
}

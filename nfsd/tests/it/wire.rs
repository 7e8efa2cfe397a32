//! Calls put together by hand, so that nothing of the server's own code encodes what it is tested with.

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

/// A growing call message.
#[derive(Clone)]
pub struct Msg(pub Vec<u8>);

impl Msg {
    /// A call with AUTH_SYS credentials of this user.
    pub fn call(xid: u32, prog: u32, vers: u32, proc: u32, uid: u32) -> Msg {
        let mut m = Msg(Vec::new());
        for w in [xid, 0, 2, prog, vers, proc, 1, 28, 0, 4] {
            m = m.u32(w);
        }
        m.0.extend_from_slice(b"test");
        m.u32(uid).u32(uid).u32(1).u32(uid).u32(0).u32(0)
    }

    pub fn null(xid: u32) -> Msg {
        [xid, 0, 2, NFS, 3, 0, 0, 0, 0, 0].into_iter().fold(Msg(Vec::new()), Msg::u32)
    }

    pub fn u32(mut self, v: u32) -> Msg {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    pub fn u64(mut self, v: u64) -> Msg {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    pub fn opaque(self, b: &[u8]) -> Msg {
        let mut m = self.u32(b.len() as u32);
        m.0.extend_from_slice(b);
        m.0.resize(m.0.len().next_multiple_of(4), 0);
        m
    }
}

/// Reads a reply word by word.
pub struct Reply(Vec<u8>, usize);

impl Reply {
    /// The results of an accepted, successful call.
    pub fn results(rec: Vec<u8>) -> Reply {
        let mut r = Reply(rec, 4);
        assert_eq!([r.u32(), r.u32(), r.u32(), r.u32(), r.u32()], [1, 0, 0, 0, 0], "not a success");
        r
    }

    pub fn u32(&mut self) -> u32 {
        let v = u32::from_be_bytes(self.0[self.1..self.1 + 4].try_into().unwrap());
        self.1 += 4;
        v
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        let n = self.u32() as usize;
        let v = self.0[self.1..self.1 + n].to_vec();
        self.1 += n.next_multiple_of(4);
        v
    }

    pub fn skip(&mut self, bytes: usize) {
        self.1 += bytes;
    }
}

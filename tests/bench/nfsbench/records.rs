//! Splits a TCP stream into RPC records, keeping only what is looked at.

use crate::error::{BenchError, Result};
use crate::xdr::LAST_FRAGMENT;

/// Bytes kept of a record that did not arrive in one piece. The longest head looked at is that of a READ reply:
/// 24 of RPC, 4 of status, 88 of attributes, 12 of count, eof and length.
pub(crate) const HEAD: usize = 160;
/// A record longer than this is not one of ours.
const MAX_RECORD: usize = 16 << 20;

/// The state of one connection's incoming stream.
pub(crate) struct Records {
    mark: [u8; 4],
    mark_n: usize,
    last: bool,
    frag_left: usize,
    /// Collected bytes of the record in progress: the whole of it with `keep`, else at most [`HEAD`].
    kept: Vec<u8>,
    keep: bool,
    len: usize,
}

impl Records {
    /// A stream at its start. `keep`: records are wanted whole.
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            mark: [0; 4],
            mark_n: 0,
            last: false,
            frag_left: 0,
            kept: Vec::with_capacity(HEAD),
            keep,
            len: 0,
        }
    }

    /// Takes bytes of the stream and calls `each` for every record that ends in them, with the record (or at
    /// least its first [`HEAD`] bytes) and its length.
    pub(crate) fn feed(
        &mut self,
        mut data: &[u8],
        mut each: impl FnMut(&[u8], usize) -> Result<()>,
    ) -> Result<()> {
        while !data.is_empty() {
            // Nearly always a record of one fragment lies whole in the buffer.
            if self.mark_n == 0
                && self.len == 0
                && let Some((mark, rest)) = data.split_first_chunk::<4>()
            {
                let mark = u32::from_be_bytes(*mark);
                let n = (mark & !LAST_FRAGMENT) as usize;
                if mark & LAST_FRAGMENT != 0
                    && let Some((record, rest)) = rest.split_at_checked(n)
                {
                    data = rest;
                    each(record, n)?;
                    continue;
                }
            }
            data = self.step(data)?;
            self.complete(&mut each)?;
        }
        Ok(())
    }

    /// Takes part of a mark or of a fragment; returns what is left.
    fn step<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8]> {
        if self.mark_n < 4 {
            let (head, rest) = data.split_at(data.len().min(4 - self.mark_n));
            if let Some(room) = self.mark.get_mut(self.mark_n..self.mark_n + head.len()) {
                room.copy_from_slice(head);
            }
            self.mark_n += head.len();
            if self.mark_n == 4 {
                let mark = u32::from_be_bytes(self.mark);
                self.last = mark & LAST_FRAGMENT != 0;
                self.frag_left = (mark & !LAST_FRAGMENT) as usize;
                if self.frag_left + self.len > MAX_RECORD {
                    return Err(BenchError::Reply(format!("record of {} bytes", self.frag_left + self.len)));
                }
            }
            return Ok(rest);
        }
        let (part, rest) = data.split_at(data.len().min(self.frag_left));
        let room = if self.keep { part.len() } else { part.len().min(HEAD.saturating_sub(self.kept.len())) };
        self.kept.extend_from_slice(part.get(..room).unwrap_or_default());
        self.frag_left -= part.len();
        self.len += part.len();
        Ok(rest)
    }

    fn complete(&mut self, each: &mut impl FnMut(&[u8], usize) -> Result<()>) -> Result<()> {
        if self.mark_n < 4 || self.frag_left > 0 {
            return Ok(());
        }
        self.mark_n = 0;
        if self.last {
            let len = std::mem::take(&mut self.len);
            let result = each(&self.kept, len);
            self.kept.clear();
            return result;
        }
        Ok(())
    }

    /// Bytes next in the stream that nobody wants to see.
    pub(crate) fn discardable(&self) -> usize {
        if self.mark_n == 4 && !self.keep && self.kept.len() >= HEAD { self.frag_left } else { 0 }
    }

    /// `n` of the [`Self::discardable`] bytes have been dropped.
    pub(crate) fn discarded(
        &mut self,
        n: usize,
        mut each: impl FnMut(&[u8], usize) -> Result<()>,
    ) -> Result<()> {
        self.frag_left = self.frag_left.saturating_sub(n);
        self.len += n;
        self.complete(&mut each)
    }

    /// Bytes to read so as not to swallow bulk data that could be dropped.
    pub(crate) fn head_wanted(&self) -> usize {
        if self.mark_n < 4 {
            4 - self.mark_n + HEAD
        } else {
            self.frag_left.min(HEAD - self.kept.len().min(HEAD - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut bytes = Vec::new();
        let mut want = Vec::new();
        for (i, cuts) in [&[5usize][..], &[3, 0, 4], &[300], &[0], &[100, 100, 100], &[40]].iter().enumerate()
        {
            let mut record = Vec::new();
            for (k, n) in cuts.iter().enumerate() {
                let last = if k + 1 == cuts.len() { LAST_FRAGMENT } else { 0 };
                bytes.extend_from_slice(&(last | *n as u32).to_be_bytes());
                let part: Vec<u8> = (0..*n).map(|x| (x + i + k) as u8).collect();
                bytes.extend_from_slice(&part);
                record.extend_from_slice(&part);
            }
            want.push(record);
        }
        (bytes, want)
    }

    #[test]
    fn records_come_out_whole_however_the_stream_is_cut() {
        let (bytes, want) = stream();
        for keep in [true, false] {
            for chunk in 1..bytes.len() {
                let mut r = Records::new(keep);
                let mut got = Vec::new();
                for part in bytes.chunks(chunk) {
                    r.feed(part, |head, len| {
                        got.push((head.to_vec(), len));
                        Ok(())
                    })
                    .unwrap();
                }
                assert_eq!(got.len(), want.len());
                for ((head, len), whole) in got.iter().zip(&want) {
                    assert_eq!(*len, whole.len());
                    let n = if keep { whole.len() } else { whole.len().min(HEAD) };
                    assert_eq!(&head[..n], &whole[..n]);
                }
            }
        }
    }

    #[test]
    fn bulk_can_be_dropped_by_count() {
        let mut r = Records::new(false);
        let mut bytes = (LAST_FRAGMENT | 1000).to_be_bytes().to_vec();
        bytes.resize(4 + HEAD, 7);
        assert_eq!(r.head_wanted(), bytes.len());
        r.feed(&bytes, |_, _| panic!("not complete")).unwrap();
        assert_eq!(r.discardable(), 1000 - HEAD);
        r.discarded(40, |_, _| panic!("not complete")).unwrap();
        let mut done = 0;
        r.discarded(1000 - HEAD - 40, |head, len| {
            done = len;
            assert_eq!(head, [7; HEAD]);
            Ok(())
        })
        .unwrap();
        assert_eq!((done, r.discardable()), (1000, 0));
    }

    #[test]
    fn absurd_lengths_are_refused_before_anything_is_kept() {
        let mut r = Records::new(true);
        assert!(r.feed(&[0xff; 8], |_, _| Ok(())).is_err());
    }
}

//! The strict cursor over a call or reply record.

use super::{XdrError, pad};
use crate::page::{PageSpan, Pages, PagesRef, RecordPages};
use smallvec::SmallVec;

/// How deep optional data may nest while decoding. Lists (`*next` at the end of a struct) are loops and do not
/// count.
pub const MAX_DEPTH: u8 = 64;

/// A type that decodes from XDR, possibly borrowing from the record.
pub trait Decode<'a>: Sized {
    /// Fewest bytes that any value of the type occupies on the wire; bounds element counts before anything is
    /// allocated. Types that may occupy no bytes at all say 0, and arrays of them are bounded by their
    /// declared maximum only through [`Decoder::count`].
    const MIN_SIZE: usize;

    /// Reads one value and advances the cursor past it.
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError>;
}

/// Cursor over one record.
///
/// A record is a contiguous head, optionally followed by page spans that hold the bulk payload (see
/// [`Decoder::with_pages`]). Everything but [`Decoder::payload`] must lie inside the head; a value that would cross
/// over answers [`XdrError::Split`].
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    head: &'a [u8],
    pos: usize,
    /// Bytes of the record that lie in `spans`.
    paged: usize,
    spans: Spans<'a>,
    depth: u8,
}

/// Where the pages of a record are. As small as the slice alone: lists of borrowed values hold cursors.
#[derive(Debug, Clone, Copy)]
enum Spans<'a> {
    Lent(&'a [PageSpan]),
    /// An owned payload may take them.
    Own(&'a RecordPages),
}

impl<'a> Decoder<'a> {
    /// A cursor at the start of a contiguous record.
    #[inline]
    pub fn new(head: &'a [u8]) -> Self {
        Decoder { head, pos: 0, paged: 0, spans: Spans::Lent(&[]), depth: 0 }
    }

    /// A cursor over a record whose first bytes are `head` and whose remainder lies in `spans`.
    pub fn with_pages(head: &'a [u8], spans: &'a [PageSpan]) -> Self {
        let paged = spans.iter().map(|s| s.len()).sum();
        Decoder { head, pos: 0, paged, spans: Spans::Lent(spans), depth: 0 }
    }

    /// A cursor over a record whose first bytes are `head`, and whose pages an owned payload may take with it.
    pub fn with_record(head: &'a [u8], pages: &'a RecordPages) -> Self {
        Decoder { head, pos: 0, paged: pages.bytes(), spans: Spans::Own(pages), depth: 0 }
    }

    /// Bytes not yet consumed, payload pages included.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.head.len() - self.pos + self.paged
    }

    /// Offset of the cursor from the start of the record.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// The unread part of the contiguous head.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.head.get(self.pos..).unwrap_or(&[])
    }

    /// The pages behind the head.
    pub(crate) fn spans(&self) -> &'a [PageSpan] {
        match self.spans {
            Spans::Lent(spans) => spans,
            Spans::Own(pages) => pages.lend(),
        }
    }

    /// Bytes of the head consumed since `start`, an earlier [`position`](Self::position).
    pub fn consumed_since(&self, start: usize) -> &'a [u8] {
        self.head.get(start..self.pos).unwrap_or(&[])
    }

    /// Takes `n` raw bytes, without padding.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], XdrError> {
        match self.head.get(self.pos..).and_then(|rest| rest.get(..n)) {
            Some(s) => {
                self.pos += n;
                Ok(s)
            }
            None => Err(self.short(n)),
        }
    }

    #[cold]
    fn short(&self, n: usize) -> XdrError {
        match n.checked_sub(self.remaining()) {
            Some(missing) if missing > 0 => XdrError::Eof { missing },
            _ => XdrError::Split,
        }
    }

    /// Takes exactly `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], XdrError> {
        match self.head.get(self.pos..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(s) => {
                self.pos += N;
                Ok(s)
            }
            None => Err(self.short(N)),
        }
    }

    /// unsigned int (RFC 4506 section 4.2).
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array::<4>().map(|b| u32::from_be_bytes(*b))
    }

    /// int (section 4.1).
    #[inline]
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.array::<4>().map(|b| i32::from_be_bytes(*b))
    }

    /// unsigned hyper (section 4.5).
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array::<8>().map(|b| u64::from_be_bytes(*b))
    }

    /// hyper (section 4.5).
    #[inline]
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.array::<8>().map(|b| i64::from_be_bytes(*b))
    }

    /// float (section 4.6).
    #[inline]
    pub fn f32(&mut self) -> Result<f32, XdrError> {
        self.u32().map(f32::from_bits)
    }

    /// double (section 4.7).
    #[inline]
    pub fn f64(&mut self) -> Result<f64, XdrError> {
        self.u64().map(f64::from_bits)
    }

    /// bool (section 4.4); anything but 0 and 1 is an error.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(XdrError::NotBool(v)),
        }
    }

    /// opaque of fixed length, with its padding (section 4.9). The value of padding bytes is not looked at.
    #[inline]
    pub fn opaque_fixed(&mut self, n: usize) -> Result<&'a [u8], XdrError> {
        let s = self.bytes(n)?;
        self.bytes(pad(n))?;
        Ok(s)
    }

    /// opaque of fixed length `N`, with its padding.
    #[inline]
    pub fn opaque_array<const N: usize>(&mut self) -> Result<&'a [u8; N], XdrError> {
        let s = self.array::<N>()?;
        self.bytes(pad(N))?;
        Ok(s)
    }

    /// opaque or string of variable length, at most `max` bytes (sections 4.10, 4.11).
    #[inline]
    pub fn opaque(&mut self, max: u32) -> Result<&'a [u8], XdrError> {
        let len = self.u32()?;
        if len > max {
            return Err(XdrError::TooLong { len, max });
        }
        self.opaque_fixed(len as usize)
    }

    /// Variable-length opaque that may lie in the payload pages: the field marked `pages` in the .x file.
    ///
    /// Bytes that arrived with the head are borrowed from it, the others from the pages; nothing is copied.
    pub fn payload(&mut self, max: u32) -> Result<PagesRef<'a>, XdrError> {
        let len = self.u32()?;
        if len > max {
            return Err(XdrError::TooLong { len, max });
        }
        let len = len as usize;
        let want = len + pad(len);
        if want > self.remaining() {
            return Err(XdrError::Eof { missing: want - self.remaining() });
        }
        let in_head = self.head.len() - self.pos;
        if want <= in_head {
            let s = self.opaque_fixed(len)?;
            return Ok(PagesRef::from_slice(s));
        }
        if want < self.remaining() {
            // Values follow the payload inside the pages; only a contiguous record can be decoded further.
            return Err(XdrError::Split);
        }
        let head_part = self.rest();
        let head_part = head_part.get(..len.min(head_part.len())).unwrap_or(head_part);
        self.pos = self.head.len();
        self.paged = 0;
        Ok(PagesRef::new(head_part, self.spans(), len))
    }

    /// The same for an owned payload, if it can take the pages that it ends in; else nothing is consumed.
    pub(crate) fn take_payload(&mut self, max: u32) -> Option<Pages> {
        let Spans::Own(own) = self.spans else { return None };
        let mut ahead = self.clone();
        let len = ahead.u32().ok().filter(|len| *len <= max)? as usize;
        let in_head = ahead.rest();
        if len + pad(len) != ahead.remaining() || ahead.paged == 0 {
            return None;
        }
        let first = in_head.get(..len).unwrap_or(in_head);
        let pages = own.take(first, len - first.len())?;
        self.pos = self.head.len();
        self.paged = 0;
        Some(pages)
    }

    /// Element count of a variable-length array: at most `max`, and at most as many as the remaining bytes can
    /// hold at `min_size` bytes each. For elements of `min_size` 0 the count is limited to the bytes left, so
    /// that a loop over them ends.
    #[inline]
    pub fn count(&mut self, max: u32, min_size: usize) -> Result<usize, XdrError> {
        let len = self.u32()?;
        if len > max {
            return Err(XdrError::TooLong { len, max });
        }
        let need = (len as usize).saturating_mul(min_size.max(1));
        if need > self.remaining() {
            return Err(XdrError::Eof { missing: need - self.remaining() });
        }
        Ok(len as usize)
    }

    /// Steps into recursive data; every `enter` is paired with a [`leave`](Self::leave).
    #[inline]
    pub fn enter(&mut self) -> Result<(), XdrError> {
        if self.depth >= MAX_DEPTH {
            return Err(XdrError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Steps out of recursive data.
    #[inline]
    pub fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Succeeds if the whole record was consumed.
    #[inline]
    pub fn finish(&self) -> Result<(), XdrError> {
        match self.remaining() {
            0 => Ok(()),
            n => Err(XdrError::Trailing(n)),
        }
    }
}

macro_rules! scalar {
    ($($t:ty, $m:ident, $n:expr;)*) => {$(
        impl<'a> Decode<'a> for $t {
            const MIN_SIZE: usize = $n;
            #[inline]
            fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> { d.$m() }
        }
    )*};
}
scalar! { u32, u32, 4; i32, i32, 4; u64, u64, 8; i64, i64, 8; f32, f32, 4; f64, f64, 8; bool, bool, 4; }

impl<'a> Decode<'a> for () {
    const MIN_SIZE: usize = 0;
    #[inline]
    fn decode(_: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(())
    }
}

/// Optional data (`*`, RFC 4506 section 4.19).
impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    const MIN_SIZE: usize = 4;
    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        if !d.bool()? {
            return Ok(None);
        }
        d.enter()?;
        let v = T::decode(d)?;
        d.leave();
        Ok(Some(v))
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Box<T> {
    const MIN_SIZE: usize = T::MIN_SIZE;
    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        T::decode(d).map(Box::new)
    }
}

impl<'a, T: Decode<'a>, const N: usize> Decode<'a> for [T; N] {
    const MIN_SIZE: usize = T::MIN_SIZE * N;
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let values: SmallVec<[T; N]> = (0..N).map(|_| T::decode(d)).collect::<Result<_, _>>()?;
        // There are `N`: fewer have ended with an error of their own.
        values.into_inner().map_err(|_| XdrError::Eof { missing: T::MIN_SIZE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_values_say_how_much_is_missing() {
        let mut d = Decoder::new(&[0, 0, 0]);
        assert_eq!(d.u32(), Err(XdrError::Eof { missing: 1 }));
        let mut d = Decoder::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0]);
        assert_eq!(d.opaque(9), Err(XdrError::Eof { missing: 1 }));
    }

    #[test]
    fn claimed_lengths_are_checked_before_use() {
        let mut d = Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(d.clone().count(u32::MAX, 0), Err(XdrError::Eof { missing: u32::MAX as usize - 4 }));
        assert_eq!(d.clone().opaque(10), Err(XdrError::TooLong { len: u32::MAX, max: 10 }));
        assert!(matches!(d.opaque(u32::MAX), Err(XdrError::Eof { .. })));
    }

    #[test]
    fn bool_is_strict() {
        assert_eq!(Decoder::new(&[0, 0, 0, 2]).bool(), Err(XdrError::NotBool(2)));
    }

    #[test]
    fn nesting_is_limited() {
        // Each level of Option<Option<...>> costs one "1" word.
        let mut d = Decoder::new(&[]);
        for _ in 0..MAX_DEPTH {
            d.enter().unwrap();
        }
        assert_eq!(d.enter(), Err(XdrError::TooDeep));
    }

    #[test]
    fn payload_in_head_is_borrowed() {
        let rec = [0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0];
        let mut d = Decoder::new(&rec);
        let p = d.payload(5).unwrap();
        assert_eq!(p.len(), 5);
        assert_eq!(p.to_vec(), b"hello");
        d.finish().unwrap();
    }

    #[test]
    fn array_stops_at_first_error() {
        let mut d = Decoder::new(&[0, 0, 0, 1, 0, 0]);
        assert_eq!(<[u32; 2]>::decode(&mut d), Err(XdrError::Eof { missing: 2 }));
    }
}

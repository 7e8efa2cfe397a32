//! Bounded encoding.

use super::{XdrError, pad};
use crate::page::Pages;

/// A bounded sink of XDR bytes. A full sink answers [`XdrError::Full`] and never grows past its bound.
pub trait XdrWrite {
    /// Appends raw bytes, without padding.
    fn put(&mut self, bytes: &[u8]) -> Result<(), XdrError>;

    /// Bytes written so far to this sink.
    fn written(&self) -> usize;

    /// Appends an owned payload (the field marked `pages` in the .x file) with its padding, without its length.
    /// Sinks that carry pages move it; others copy.
    fn put_pages(&mut self, pages: Pages) -> Result<(), XdrError> {
        let len = pages.len();
        for s in pages.slices() {
            self.put(s)?;
        }
        self.put_padding(len)
    }

    /// unsigned int.
    #[inline]
    fn put_u32(&mut self, v: u32) -> Result<(), XdrError> {
        self.put(&v.to_be_bytes())
    }

    /// int.
    #[inline]
    fn put_i32(&mut self, v: i32) -> Result<(), XdrError> {
        self.put_u32(v as u32)
    }

    /// unsigned hyper.
    #[inline]
    fn put_u64(&mut self, v: u64) -> Result<(), XdrError> {
        self.put(&v.to_be_bytes())
    }

    /// hyper.
    #[inline]
    fn put_i64(&mut self, v: i64) -> Result<(), XdrError> {
        self.put_u64(v as u64)
    }

    /// bool.
    #[inline]
    fn put_bool(&mut self, v: bool) -> Result<(), XdrError> {
        self.put_u32(v.into())
    }

    /// float.
    #[inline]
    fn put_f32(&mut self, v: f32) -> Result<(), XdrError> {
        self.put_u32(v.to_bits())
    }

    /// double.
    #[inline]
    fn put_f64(&mut self, v: f64) -> Result<(), XdrError> {
        self.put_u64(v.to_bits())
    }

    /// The zero bytes that follow an opaque of `len` bytes.
    #[inline]
    fn put_padding(&mut self, len: usize) -> Result<(), XdrError> {
        match pad(len) {
            0 => Ok(()),
            n => self.put(&[0u8; 3][..n]),
        }
    }

    /// opaque of fixed length, with its padding.
    #[inline]
    fn put_opaque_fixed(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        self.put(bytes)?;
        self.put_padding(bytes.len())
    }

    /// opaque or string of variable length: length, bytes, padding. Longer than `max` is [`XdrError::Full`].
    #[inline]
    fn put_opaque(&mut self, bytes: &[u8], max: u32) -> Result<(), XdrError> {
        self.put_count(bytes.len(), max)?;
        self.put_opaque_fixed(bytes)
    }

    /// Element count of a variable-length array of at most `max` elements.
    #[inline]
    fn put_count(&mut self, n: usize, max: u32) -> Result<(), XdrError> {
        match u32::try_from(n) {
            Ok(n) if n <= max => self.put_u32(n),
            _ => Err(XdrError::Full),
        }
    }
}

/// A type that encodes to XDR.
pub trait Encode {
    /// Appends the value.
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError>;

    /// Appends the value and consumes it; types with a `pages` field move their pages instead of copying them.
    #[inline]
    fn encode_owned<W: XdrWrite>(self, w: &mut W) -> Result<(), XdrError>
    where
        Self: Sized,
    {
        self.encode(w)
    }
}

/// A growing buffer with an upper bound.
#[derive(Debug)]
pub struct VecWriter {
    buf: Vec<u8>,
    limit: usize,
}

impl VecWriter {
    /// An empty buffer that takes at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        VecWriter { buf: Vec::new(), limit }
    }

    /// What was written.
    pub fn into_inner(self) -> Vec<u8> {
        self.buf
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }
}

impl XdrWrite for VecWriter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        if bytes.len() > self.limit - self.buf.len() {
            return Err(XdrError::Full);
        }
        self.buf.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> usize {
        self.buf.len()
    }
}

/// A fixed buffer.
#[derive(Debug)]
pub struct SliceWriter<'a> {
    buf: &'a mut [u8],
    pos: usize,
}

impl<'a> SliceWriter<'a> {
    /// Writes from the start of `buf`.
    pub fn new(buf: &'a mut [u8]) -> Self {
        SliceWriter { buf, pos: 0 }
    }
}

impl XdrWrite for SliceWriter<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        let dst = self.buf.get_mut(self.pos..).and_then(|b| b.get_mut(..bytes.len()));
        dst.ok_or(XdrError::Full)?.copy_from_slice(bytes);
        self.pos += bytes.len();
        Ok(())
    }

    fn written(&self) -> usize {
        self.pos
    }
}

/// Encodes a value into a fresh vector of at most `limit` bytes.
pub fn to_vec<T: Encode + ?Sized>(v: &T, limit: usize) -> Result<Vec<u8>, XdrError> {
    let mut w = VecWriter::new(limit);
    v.encode(&mut w)?;
    Ok(w.into_inner())
}

macro_rules! scalar {
    ($($t:ty, $m:ident;)*) => {$(
        impl Encode for $t {
            #[inline]
            fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> { w.$m(*self) }
        }
    )*};
}
scalar! { u32, put_u32; i32, put_i32; u64, put_u64; i64, put_i64; f32, put_f32; f64, put_f64; bool, put_bool; }

impl Encode for () {
    #[inline]
    fn encode<W: XdrWrite>(&self, _: &mut W) -> Result<(), XdrError> {
        Ok(())
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        w.put_bool(self.is_some())?;
        match self {
            Some(v) => v.encode(w),
            None => Ok(()),
        }
    }

    fn encode_owned<W: XdrWrite>(self, w: &mut W) -> Result<(), XdrError> {
        w.put_bool(self.is_some())?;
        match self {
            Some(v) => v.encode_owned(w),
            None => Ok(()),
        }
    }
}

impl<T: Encode> Encode for Box<T> {
    #[inline]
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        (**self).encode(w)
    }

    fn encode_owned<W: XdrWrite>(self, w: &mut W) -> Result<(), XdrError> {
        (*self).encode_owned(w)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        self.iter().try_for_each(|v| v.encode(w))
    }

    fn encode_owned<W: XdrWrite>(self, w: &mut W) -> Result<(), XdrError> {
        self.into_iter().try_for_each(|v| v.encode_owned(w))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_is_padded_with_zeros() {
        let mut w = VecWriter::new(64);
        w.put_opaque(b"abcde", 5).unwrap();
        assert_eq!(w.into_inner(), [0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]);
    }

    #[test]
    fn bounds_hold() {
        let mut w = VecWriter::new(7);
        w.put_u32(1).unwrap();
        assert_eq!(w.put_u32(2), Err(XdrError::Full));
        assert_eq!(w.put_opaque(b"ab", 1), Err(XdrError::Full));
        let mut b = [0u8; 4];
        let mut w = SliceWriter::new(&mut b);
        w.put_u32(7).unwrap();
        assert_eq!(w.put(&[1]), Err(XdrError::Full));
        assert_eq!(b, [0, 0, 0, 7]);
    }
}

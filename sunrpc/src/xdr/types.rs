//! Value types that generated code shares.

use super::{Decode, Decoder, Encode, XdrError, XdrWrite};
use std::marker::PhantomData;

/// An owned XDR string: bytes, by convention ASCII (RFC 4506 section 4.11). Peers do send other bytes (file names),
/// so nothing here rejects them; [`XdrString::as_str`] does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct XdrString(pub Vec<u8>);

impl XdrString {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is UTF-8.
    pub fn as_str(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(&self.0)
    }
}

impl std::fmt::Debug for XdrString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl std::fmt::Display for XdrString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl From<&str> for XdrString {
    fn from(s: &str) -> Self {
        XdrString(s.as_bytes().to_vec())
    }
}

impl From<String> for XdrString {
    fn from(s: String) -> Self {
        XdrString(s.into_bytes())
    }
}

impl From<&[u8]> for XdrString {
    fn from(s: &[u8]) -> Self {
        XdrString(s.to_vec())
    }
}

/// A variable-length array that was checked when the record was decoded and is decoded again, element by element,
/// when it is iterated: the borrowed form of `T x<N>`.
pub struct Array<'a, T> {
    raw: Decoder<'a>,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        Array { raw: self.raw.clone(), len: self.len, of: PhantomData }
    }
}

impl<'a, T: Decode<'a>> Array<'a, T> {
    /// Reads count and elements; at most `max` elements.
    pub fn decode_max(d: &mut Decoder<'a>, max: u32) -> Result<Self, XdrError> {
        let len = d.count(max, T::MIN_SIZE)?;
        let raw = d.clone();
        for _ in 0..len {
            T::decode(d)?;
        }
        Ok(Array { raw, len, of: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut d = self.raw.clone();
        // Decoding succeeded once over the same bytes, so `ok()` never ends the iteration early.
        (0..self.len).map_while(move |_| T::decode(&mut d).ok())
    }
}

impl<'a, T: Decode<'a> + Encode> Array<'a, T> {
    /// Writes count and elements again.
    pub fn encode_max<W: XdrWrite>(&self, w: &mut W, max: u32) -> Result<(), XdrError> {
        w.put_count(self.len, max)?;
        self.iter().try_for_each(|v| v.encode(w))
    }
}

impl<'a, T: Decode<'a> + std::fmt::Debug> std::fmt::Debug for Array<'a, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A linked list (`struct node { ...; node *next; }`) in its borrowed form: checked in a loop when the record is
/// decoded, decoded again when it is iterated.
pub struct List<'a, T> {
    raw: Decoder<'a>,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        List { raw: self.raw.clone(), len: self.len, of: PhantomData }
    }
}

impl<'a, T: Decode<'a>> List<'a, T> {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without nodes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut d = self.raw.clone();
        (0..self.len).map_while(move |_| match d.bool() {
            Ok(true) => T::decode(&mut d).ok(),
            _ => None,
        })
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for List<'a, T> {
    const MIN_SIZE: usize = 4;
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let raw = d.clone();
        let mut len = 0;
        // Every node consumes at least its four-byte "follows" flag, so the record's size bounds the loop.
        while d.bool()? {
            T::decode(d)?;
            len += 1;
        }
        Ok(List { raw, len, of: PhantomData })
    }
}

impl<'a, T: Decode<'a> + Encode> Encode for List<'a, T> {
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        for v in self.iter() {
            w.put_bool(true)?;
            v.encode(w)?;
        }
        w.put_bool(false)
    }
}

impl<'a, T: Decode<'a> + std::fmt::Debug> std::fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Opaque data of fixed length (RFC 4506 section 4.9) where a type with a codec is needed: byte arrays have none of
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FixedOpaque<const N: usize>(pub [u8; N]);

impl<'a, const N: usize> Decode<'a> for FixedOpaque<N> {
    const MIN_SIZE: usize = super::padded(N);
    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, XdrError> {
        d.opaque_array().map(|b| FixedOpaque(*b))
    }
}

impl<const N: usize> Encode for FixedOpaque<N> {
    #[inline]
    fn encode<W: XdrWrite>(&self, w: &mut W) -> Result<(), XdrError> {
        w.put_opaque_fixed(&self.0)
    }
}

/// Bytes that an owned array may reserve before its elements are there.
const RESERVE: usize = 4096;

impl<'a> Decoder<'a> {
    /// An owned variable-length array of at most `max` elements. Memory is taken as elements turn up, not by their
    /// claimed number.
    pub fn vec<T: Decode<'a>>(&mut self, max: u32) -> Result<Vec<T>, XdrError> {
        let len = self.count(max, T::MIN_SIZE)?;
        let mut out = Vec::with_capacity(len.min(RESERVE / size_of::<T>().max(1)));
        for _ in 0..len {
            out.push(T::decode(self)?);
        }
        Ok(out)
    }

    /// An owned linked list (`struct node { ...; node *next; }`), read in a loop that the record's end bounds.
    pub fn list<T: Decode<'a>>(&mut self) -> Result<Vec<T>, XdrError> {
        let mut out = Vec::new();
        while self.bool()? {
            out.push(T::decode(self)?);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::to_vec;

    #[test]
    fn array_and_list_iterate_what_they_checked() {
        let bytes = [0u32, 2, 7, 9].iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let mut d = Decoder::new(&bytes[4..]);
        let a = Array::<u32>::decode_max(&mut d, 2).unwrap();
        assert_eq!(a.iter().collect::<Vec<_>>(), [7, 9]);
        d.finish().unwrap();

        let bytes = [1u32, 7, 1, 9, 0].iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let mut d = Decoder::new(&bytes);
        let l = List::<u32>::decode(&mut d).unwrap();
        assert_eq!((l.len(), l.iter().sum::<u32>()), (2, 16));
        assert_eq!(to_vec(&l, 100).unwrap(), bytes);
    }

    #[test]
    fn endless_list_ends_with_the_record() {
        let bytes = [1u32; 1001].iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        assert!(matches!(List::<u32>::decode(&mut Decoder::new(&bytes)), Err(XdrError::Eof { .. })));
    }
}

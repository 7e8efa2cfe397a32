//! The bridge to the xdr-codec ecosystem: its `Pack` and `Unpack` for generated types.
//!
//! Both go through the codecs of this crate. A value is packed in memory first, so that a sink gets a whole value or
//! nothing. To unpack, the bytes of one value are gathered by its [`Layout`] - exactly those, so that the stream stands
//! behind the value afterwards - and then decoded as strictly as a record. Claimed lengths reserve nothing: memory grows
//! with the bytes that really arrive, up to [`MAX_VALUE`], and the end of the stream ends the work.

use super::{Decode, Decoder, Encode, MAX_DEPTH, XdrError, pad, to_vec};
use std::io::{self, Read, Write};

pub use xdr_codec;

/// Most bytes of a value that the bridge packs or unpacks.
pub const MAX_VALUE: usize = 16 << 20;

/// How a type lies on the wire, as far as its length is concerned. Generated code has one for each type.
#[derive(Debug)]
pub enum Layout {
    /// So many bytes, padding included.
    Fixed(u32),
    /// Length, at most so many bytes, padding.
    Opaque(u32),
    /// One after the other.
    Seq(&'static [Layout]),
    /// Another type.
    Of(&'static Layout),
    /// A type that can contain itself; counts against [`MAX_DEPTH`].
    Deep(&'static Layout),
    /// The same so many times.
    Repeat(u32, &'static Layout),
    /// Count, at most so many elements.
    Array(u32, &'static Layout),
    /// Optional data.
    Optional(&'static Layout),
    /// Optional data followed by more of it.
    List(&'static Layout),
    /// Discriminant (the word on the wire), and what follows it.
    Union(&'static [(u32, Layout)], Option<&'static Layout>),
}

/// Why gathering ended before the value did.
enum Stop {
    Io(io::Error),
    /// The bytes so far violate the type; the decoder says how.
    Invalid,
    TooLarge,
}

struct Gather<'r, R> {
    input: &'r mut R,
    bytes: Vec<u8>,
    depth: u8,
}

impl<R: Read> Gather<'_, R> {
    fn take(&mut self, n: u64) -> Result<(), Stop> {
        let room = (MAX_VALUE - self.bytes.len()) as u64;
        if n > room {
            return Err(Stop::TooLarge);
        }
        // `read_to_end` grows its buffer by what it reads, whatever `n` promises.
        match self.input.by_ref().take(n).read_to_end(&mut self.bytes) {
            Ok(got) if got as u64 == n => Ok(()),
            Ok(_) => Err(Stop::Io(io::ErrorKind::UnexpectedEof.into())),
            Err(e) => Err(Stop::Io(e)),
        }
    }

    fn word(&mut self) -> Result<u32, Stop> {
        if self.bytes.len() + 4 > MAX_VALUE {
            return Err(Stop::TooLarge);
        }
        let mut word = [0; 4];
        self.input.read_exact(&mut word).map_err(Stop::Io)?;
        self.bytes.extend_from_slice(&word);
        Ok(u32::from_be_bytes(word))
    }

    fn flag(&mut self) -> Result<bool, Stop> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Stop::Invalid),
        }
    }

    fn limited(&mut self, max: u32) -> Result<u32, Stop> {
        self.word().and_then(|n| if n <= max { Ok(n) } else { Err(Stop::Invalid) })
    }

    fn value(&mut self, layout: &'static Layout) -> Result<(), Stop> {
        match layout {
            Layout::Fixed(4) => self.word().map(drop),
            Layout::Fixed(n) => self.take((*n).into()),
            Layout::Opaque(max) => {
                let n = self.limited(*max)?;
                self.take(u64::from(n) + pad(n as usize) as u64)
            }
            Layout::Seq(parts) => parts.iter().try_for_each(|p| self.value(p)),
            Layout::Of(of) => self.value(of),
            Layout::Deep(of) => {
                if self.depth >= MAX_DEPTH {
                    return Err(Stop::Invalid);
                }
                self.depth += 1;
                self.value(of)?;
                self.depth -= 1;
                Ok(())
            }
            Layout::Repeat(n, of) => (0..*n).try_for_each(|_| self.value(of)),
            Layout::Array(max, of) => {
                let n = self.limited(*max)?;
                (0..n).try_for_each(|_| self.value(of))
            }
            Layout::Optional(of) => {
                if self.flag()? {
                    self.value(of)?;
                }
                Ok(())
            }
            Layout::List(of) => {
                while self.flag()? {
                    self.value(of)?;
                }
                Ok(())
            }
            Layout::Union(cases, default) => {
                let disc = self.word()?;
                match cases.iter().find(|c| c.0 == disc).map(|c| &c.1).or(*default) {
                    Some(body) => self.value(body),
                    None => Err(Stop::Invalid),
                }
            }
        }
    }
}

fn error(e: XdrError) -> xdr_codec::Error {
    use xdr_codec::ErrorKind;
    match e {
        XdrError::Eof { .. } => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
        XdrError::TooLong { len, .. } => ErrorKind::InvalidLen(len as usize).into(),
        XdrError::NotBool(v) => ErrorKind::InvalidEnum(v as i32).into(),
        XdrError::NotInEnum { value, .. } => ErrorKind::InvalidEnum(value).into(),
        XdrError::NoArm { value, .. } => ErrorKind::InvalidCase(value).into(),
        other => io::Error::new(io::ErrorKind::InvalidData, other).into(),
    }
}

/// [`Pack`](xdr_codec::Pack) by [`Encode`]: writes the whole value or nothing; the answer is its size in bytes.
pub fn pack<T: Encode, W: Write>(v: &T, out: &mut W) -> xdr_codec::Result<usize> {
    let bytes = to_vec(v, MAX_VALUE).map_err(error)?;
    out.write_all(&bytes)?;
    Ok(bytes.len())
}

/// [`Unpack`](xdr_codec::Unpack) by [`Decode`]: the value and its size in bytes. A stream that ends early is an error of
/// kind `UnexpectedEof`.
pub fn unpack<T, R>(input: &mut R, layout: &'static Layout) -> xdr_codec::Result<(T, usize)>
where
    T: for<'a> Decode<'a>,
    R: Read,
{
    let mut g = Gather { input, bytes: Vec::new(), depth: 0 };
    match g.value(layout) {
        Ok(()) | Err(Stop::Invalid) => {}
        Err(Stop::Io(e)) => return Err(e.into()),
        Err(Stop::TooLarge) => return Err(xdr_codec::ErrorKind::InvalidLen(MAX_VALUE).into()),
    }
    let mut d = Decoder::new(&g.bytes);
    let v = T::decode(&mut d).map_err(error)?;
    d.finish().map_err(error)?;
    Ok((v, g.bytes.len()))
}

/// Implements `Pack` and `Unpack` of the xdr-codec crate; generated code calls it.
#[doc(hidden)]
#[macro_export]
macro_rules! xdr_codec_bridge {
    (types { $($t:ident)* } layouts { $($name:ident = $layout:expr;)* }) => {
        mod layout {
            use $crate::xdr::bridge::Layout;
            $(pub(super) static $name: Layout = $layout;)*
        }
        $(
            impl<W: ::std::io::Write> $crate::xdr::bridge::xdr_codec::Pack<W> for $t {
                fn pack(&self, out: &mut W) -> $crate::xdr::bridge::xdr_codec::Result<usize> {
                    $crate::xdr::bridge::pack(self, out)
                }
            }
            impl<R: ::std::io::Read> $crate::xdr::bridge::xdr_codec::Unpack<R> for $t {
                fn unpack(input: &mut R) -> $crate::xdr::bridge::xdr_codec::Result<(Self, usize)> {
                    $crate::xdr::bridge::unpack(input, &layout::$t)
                }
            }
        )*
    };
}

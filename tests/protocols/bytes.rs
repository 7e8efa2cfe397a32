//! Bytes as people write them.

use std::fmt::Debug;
use sunrpc::xdr::{Decode, Decoder, Encode, XdrError, to_vec};

/// Hexadecimal digits in groups, `'text'` without its padding, and comments from `#` to the end of the line.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for line in text.lines() {
        let mut rest = line.split('#').next().unwrap().trim();
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('\'') {
                let (text, behind) = quoted.split_once('\'').unwrap();
                out.extend_from_slice(text.as_bytes());
                rest = behind.trim_start();
            } else {
                let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
                assert_eq!(word.len() % 2, 0, "half a byte in {word}");
                let digits = (0..word.len()).step_by(2).map(|i| u8::from_str_radix(&word[i..i + 2], 16));
                out.extend(digits.map(Result::unwrap));
                rest = behind.trim_start();
            }
        }
    }
    out
}

/// These bytes are this value: they are written so and read so, to the last one.
#[track_caller]
pub fn same<T>(text: &str, value: &T)
where
    T: Debug + PartialEq + Encode + for<'a> Decode<'a>,
{
    let bytes = bytes(text);
    let mut d = Decoder::new(&bytes);
    assert_eq!(T::decode(&mut d).as_ref(), Ok(value));
    d.finish().unwrap();
    assert_eq!(to_vec(value, 1 << 20).unwrap(), bytes);
}

/// Decodes a value that is not read further than it reaches.
#[track_caller]
pub fn read<T: for<'a> Decode<'a>>(bytes: &[u8]) -> Result<T, XdrError> {
    let mut d = Decoder::new(bytes);
    let v = T::decode(&mut d)?;
    d.finish()?;
    Ok(v)
}

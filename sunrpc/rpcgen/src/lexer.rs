//! Tokens of the XDR and RPC language (RFC 4506 section 6.2, RFC 5531 section 12).

use crate::source::{Diags, Span};

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tok {
    Ident(String),
    /// Decimal, hexadecimal or octal, with its sign.
    Number(i128),
    /// One of `{ } ( ) [ ] < > * , ; : =`.
    Punct(char),
    End,
}

impl Tok {
    /// How a message names the token.
    pub(crate) fn describe(&self) -> String {
        match self {
            Tok::Ident(s) => format!("`{s}`"),
            Tok::Number(n) => format!("`{n}`"),
            Tok::Punct(c) => format!("`{c}`"),
            Tok::End => "the end of the file".to_owned(),
        }
    }
}

/// Words that RFC 4506 section 6.2 and RFC 5531 section 12.4 reserve.
pub(crate) const RESERVED: [&str; 20] = [
    "bool",
    "case",
    "const",
    "default",
    "double",
    "enum",
    "float",
    "hyper",
    "int",
    "opaque",
    "program",
    "quadruple",
    "string",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "version",
    "void",
];

/// Splits text whose comments and directives are blanked out.
pub(crate) fn tokens(text: &str, diags: &mut Diags) -> Vec<(Tok, Span)> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let start = at;
        let word = |from: usize| {
            bytes[from..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
        };
        match b {
            b' ' | b'\t' | b'\r' | b'\n' | 0x0c => at += 1,
            b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b'*' | b',' | b';' | b':' | b'=' => {
                at += 1;
                out.push((Tok::Punct(b.into()), Span::new(start, at)));
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                at += word(at);
                out.push((Tok::Ident(text[start..at].to_owned()), Span::new(start, at)));
            }
            b'0'..=b'9' | b'-' => {
                at += 1;
                at += word(at);
                let span = Span::new(start, at);
                match number(&text[start..at]) {
                    Ok(n) => out.push((Tok::Number(n), span)),
                    Err(why) => {
                        diags.error(span, why);
                        out.push((Tok::Number(0), span));
                    }
                }
            }
            _ => {
                let len = text[at..].chars().next().map_or(1, char::len_utf8);
                at += len;
                diags.error(Span::new(start, at), format!("unexpected character `{}`", &text[start..at]));
            }
        }
    }
    out.push((Tok::End, Span::new(text.len(), text.len())));
    out
}

/// Value of a constant as C spells it. `L` and `U` suffixes, which appear in `#define` lines, are dropped.
pub(crate) fn number(text: &str) -> Result<i128, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let body = digits.trim_end_matches(['u', 'U', 'l', 'L']);
    let (radix, kind, body) = if let Some(hex) = body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
        (16, "a hexadecimal", hex)
    } else if body.len() > 1 && body.starts_with('0') {
        (8, "an octal", &body[1..])
    } else {
        (10, "a decimal", body)
    };
    if body.is_empty() || !body.bytes().all(|b| (b as char).is_digit(radix)) {
        return Err(format!("`{text}` is not {kind} number"));
    }
    match i128::from_str_radix(body, radix) {
        Ok(n) if n <= u64::MAX.into() && sign * n >= i64::MIN.into() => Ok(sign * n),
        _ => Err(format!("`{text}` does not fit in 64 bits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_radix() {
        assert_eq!(number("10"), Ok(10));
        assert_eq!(number("010"), Ok(8));
        assert_eq!(number("0x10"), Ok(16));
        assert_eq!(number("0XfF"), Ok(255));
        assert_eq!(number("-1"), Ok(-1));
        assert_eq!(number("-0x1"), Ok(-1));
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("100L"), Ok(100));
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX.into()));
        assert!(number("18446744073709551616").unwrap_err().contains("64 bits"));
        assert!(number("08").unwrap_err().contains("octal"));
        assert!(number("0x").unwrap_err().contains("hexadecimal"));
        assert!(number("-").is_err());
        assert!(number("12ab").is_err());
    }

    #[test]
    fn tokens_and_their_places() {
        let mut diags = Diags::default();
        let toks = tokens("opaque data<-5>; @", &mut diags);
        let kinds: Vec<_> = toks.iter().map(|t| t.0.describe()).collect();
        assert_eq!(kinds, ["`opaque`", "`data`", "`<`", "`-5`", "`>`", "`;`", "the end of the file"]);
        assert_eq!(toks[3].1, Span::new(12, 14));
        assert!(diags.failed());
    }
}

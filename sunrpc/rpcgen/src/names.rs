//! Spelling of .x names in Rust.

use std::collections::HashSet;

/// Words that name no type, field, variant or function: keywords of the 2024 edition, reserved ones included.
const KEYWORDS: [&str; 53] = [
    "Self", "_", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self",
    "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];

/// Names of types, traits and modules that the generated code itself uses.
const USED: [&str; 62] = [
    "Arc",
    "Array",
    "Box",
    "Call",
    "CallOptions",
    "CallXprt",
    "Client",
    "ClntError",
    "Clone",
    "Copy",
    "Debug",
    "Decode",
    "Decoder",
    "Default",
    "Deref",
    "Dispatch",
    "Encode",
    "Eq",
    "Err",
    "FixedOpaque",
    "Flow",
    "From",
    "Hash",
    "Layout",
    "List",
    "None",
    "Ok",
    "Option",
    "Outcome",
    "PageWriter",
    "Pages",
    "PartialEq",
    "PagesRef",
    "PeerAddr",
    "Pending",
    "ProcInfo",
    "Program",
    "Repeat",
    "Result",
    "RpcError",
    "Send",
    "SliceWriter",
    "Some",
    "Sync",
    "TryFrom",
    "Vec",
    "VersionInfo",
    "XdrError",
    "XdrString",
    "XdrWrite",
    "bool",
    "core",
    "f32",
    "f64",
    "i32",
    "i64",
    "layout",
    "std",
    "sunrpc",
    "u32",
    "u64",
    "usize",
];

/// Variables of the generated code. A tuple struct of such a name would turn its patterns into something else.
pub(crate) const LOCALS: [&str; 12] =
    ["arg", "chunk", "cx", "d", "disc", "n", "out", "peer", "service", "v", "w", "xprt"];

/// More names that are primitive types in Rust.
const PRIMITIVES: [&str; 9] = ["char", "i128", "i16", "i8", "isize", "str", "u128", "u16", "u8"];

/// An identifier: a keyword gets a trailing underscore.
fn ident(mut name: String) -> String {
    if KEYWORDS.contains(&name.as_str()) {
        name.push('_');
    }
    name
}

/// Parts of a name: at underscores, where a capital follows a small letter, and before the last capital of a run
/// that a small letter follows. `digits` also ends a part after its digits.
fn parts(name: &str, digits: bool) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut out = Vec::new();
    let mut word = String::new();
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| chars.get(i)).copied().unwrap_or('_');
        let after = chars.get(i + 1).copied().unwrap_or('_');
        let hump = c.is_ascii_uppercase()
            && (before.is_ascii_lowercase() || before.is_ascii_uppercase() && after.is_ascii_lowercase());
        let after_digit = digits && before.is_ascii_digit() && c.is_ascii_alphabetic();
        if (c == '_' || hump || after_digit) && !word.is_empty() {
            out.push(std::mem::take(&mut word));
        }
        if c != '_' {
            word.push(c);
        }
    }
    if !word.is_empty() {
        out.push(word);
    }
    out
}

/// A type: as it is spelled, with an underscore behind what Rust or the generated code need themselves.
pub(crate) fn type_name(name: &str) -> String {
    let mut out = ident(name.replace('.', "_"));
    if [&USED[..], &LOCALS, &PRIMITIVES].iter().any(|list| list.contains(&out.as_str())) {
        out.push('_');
    }
    out
}

/// A field: as it is spelled; `type` is `type_`.
pub(crate) fn field(name: &str) -> String {
    ident(name.to_owned())
}

/// Base name of a program's trait: `NFS_PROGRAM` is `Nfs`, `ECHO` is `Echo`.
pub(crate) fn program(name: &str) -> String {
    let stem = ["_PROGRAM", "_PROG", "_program", "_prog"].iter().find_map(|s| name.strip_suffix(s));
    camel(stem.filter(|s| !s.is_empty()).unwrap_or(name))
}

/// `ECHO_TEST` is `EchoTest`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    for part in parts(name, true) {
        let mut chars = part.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.extend(chars.map(|c| c.to_ascii_lowercase()));
    }
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, 'T');
    }
    out
}

/// A parameter or a method: `nextEntry` is `next_entry`, `type` is `type_`.
pub(crate) fn snake(name: &str) -> String {
    let out = parts(name, false).join("_").to_ascii_lowercase();
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("_{out}");
    }
    ident(out)
}

/// A constant: capitals stay, other names become `UPPER_CASE`.
pub(crate) fn upper(name: &str) -> String {
    if !name.bytes().any(|b| b.is_ascii_lowercase()) && name != "_" {
        return name.to_owned();
    }
    parts(name, false).join("_").to_ascii_uppercase()
}

/// An enum member or union variant: as it is spelled.
pub(crate) fn member(name: &str) -> String {
    ident(name.to_owned())
}

/// Hands out names once each; the second taker gets an underscore behind it.
#[derive(Debug, Default)]
pub(crate) struct Unique(HashSet<String>);

impl Unique {
    pub(crate) fn take(&mut self, mut name: String) -> String {
        while !self.0.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// Makes names unavailable.
    pub(crate) fn reserve<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        self.0.extend(names.map(str::to_owned));
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling() {
        for (x, rust) in [
            ("READ3args", "READ3args"),
            ("nfs_fh3", "nfs_fh3"),
            ("outer.inner", "outer_inner"),
            ("u32", "u32_"),
            ("Option", "Option_"),
            ("type", "type_"),
            ("d", "d_"),
        ] {
            assert_eq!(type_name(x), rust);
        }
        for (x, rust) in [("NFS_PROGRAM", "Nfs"), ("ECHO", "Echo"), ("rpcbProg", "RpcbProg"), ("__3d", "T3D")]
        {
            assert_eq!(program(x), rust);
        }
        for (x, rust) in [
            ("nextEntry", "next_entry"),
            ("NFSPROC3_NULL", "nfsproc3_null"),
            ("type", "type_"),
            ("self", "self_"),
            ("IOStats", "io_stats"),
            ("fh3", "fh3"),
        ] {
            assert_eq!(snake(x), rust);
        }
        assert_eq!(upper("MaxLen"), "MAX_LEN");
        assert_eq!(upper("NFS3_FHSIZE"), "NFS3_FHSIZE");
        assert_eq!(member("Self"), "Self_");
        assert_eq!(field("type"), "type_");
    }

    #[test]
    fn second_taker_gets_an_underscore() {
        let mut u = Unique::default();
        assert_eq!(u.take("A".into()), "A");
        assert_eq!(u.take("A".into()), "A_");
        assert_eq!(u.take("A".into()), "A__");
    }
}

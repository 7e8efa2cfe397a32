//! Compiler for the XDR and RPC language (RFC 4506 section 6, RFC 5531 section 12): reads a `.x` file and writes Rust
//! for the `sunrpc` crate.
//!
//! In `build.rs`:
//!
//! ```no_run
//! sunrpc_rpcgen::compile("proto/echo.x").unwrap();
//! ```
//!
//! and in the crate `sunrpc::include_program!(echo);`. The binary of the same name does the same for one file by hand.
//!
//! # What comes out
//!
//! | .x | Rust |
//! |---|---|
//! | `const N = 5;`, `#define N 5` | `pub const N: u32 = 5;` (`i32`, `u64` or `i64` if it does not fit) |
//! | `enum e` | `enum e` with the members' names; unknown values do not decode |
//! | `struct s` | `struct s` with the members' names; `type` becomes `type_` |
//! | `union u switch (e d)` | `enum u`: one variant for each `case`, named after the constant (`Case5` for numbers, `True` and `False` for `bool`), and `Default(d, ...)` |
//! | `typedef T n;` | `type n = T` |
//! | `typedef opaque n<5>;`, `string`, `T n<5>`, pointer to a list | `struct n(pub ...)`, which enforces the limit |
//! | `opaque x<5>`, `string x<5>`, `opaque x[5]` | `Vec<u8>`, `XdrString`, `[u8; 5]` |
//! | `T x<5>`, `T x[5]` | `Vec<T>`, `[T; 5]` |
//! | `T *x` | `Option<T>`, `Option<Box<T>>` in recursive types |
//! | `struct n { ...; n *next; }` | pointers to it are `Vec<n>`, decoded in a loop; `next` vanishes |
//! | `program P { version V { ... } = 1; } = 9;` | trait `PV1`, server `PV1Server`, client `PV1Client` (`_PROGRAM` and `_PROG` are dropped), and the numbers as constants |
//!
//! Every type `s` that holds data of variable length has a borrowed form `sRef<'a>`, which decodes without allocating:
//! `&'a [u8]`, `Array<'a, T>`, `List<'a, T>`. For other types `sRef` is another name of `s`.
//!
//! # Pragmas
//!
//! Lines that begin with `%` are meant for C and are skipped, but for these (`%#pragma sunrpc ...` is understood too):
//!
//! | line | meaning |
//! |---|---|
//! | `%#pragma pages TYPE.FIELD` | the variable-length opaque is bulk data: `Pages` when owned, `PagesRef<'a>` when borrowed |
//! | `%#pragma exclude TYPE` | the type is written by hand in the module around `include_program!`; it implements `Encode`, `Decode`, `Clone`, `Debug`, `PartialEq` |
//! | `%#pragma nonidempotent PROCEDURE` | a repeated call must not run twice |
//! | `%#pragma blocking PROCEDURE` | the procedure may wait, and runs on a helper thread |

mod ast;
mod build;
mod check;
mod consts;
mod emit;
mod lexer;
mod model;
mod names;
mod parser;
mod pre;
mod source;

pub use source::{Diagnostic, Severity};

use source::{Diags, Source};
use std::path::{Path, PathBuf};

/// Why nothing was generated.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {what} {}: {err}", .path.display())]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        err: std::io::Error,
    },
    /// The source has errors; warnings are listed with them, in the order of the source.
    #[error("{}", render(.0))]
    Source(Vec<Diagnostic>),
    /// Not run by cargo, and no output directory was given.
    #[error("OUT_DIR is not set: call `Compiler::out_dir` when not running from a build script")]
    NoOutDir,
}

/// As [`Display`](std::fmt::Display): a build script's `unwrap` shows this to people.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{self}")
    }
}

fn render(diagnostics: &[Diagnostic]) -> String {
    let list: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
    list.join("\n\n")
}

/// What [`Compiler::translate`] makes of a source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Output {
    /// Rust source, to be included into a module.
    pub rust: String,
    /// What was ignored or renamed.
    pub warnings: Vec<Diagnostic>,
}

/// Compiles `path` into cargo's output directory, for a build script; the answer is the file written.
///
/// `proto/echo.x` becomes `$OUT_DIR/echo.rs`. See [`Compiler`] for more control.
pub fn compile(path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    Compiler::new().compile(path)
}

/// Compiler with settings.
#[derive(Clone, Debug)]
pub struct Compiler {
    out_dir: Option<PathBuf>,
    cargo: bool,
    symbols: Vec<String>,
    arbitrary: bool,
}

impl Default for Compiler {
    fn default() -> Self {
        Self::new()
    }
}

impl Compiler {
    /// Writes to `$OUT_DIR` and speaks to cargo.
    pub fn new() -> Self {
        Compiler { out_dir: None, cargo: true, symbols: Vec::new(), arbitrary: false }
    }

    /// Writes to this directory instead of `$OUT_DIR`.
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(dir.into());
        self
    }

    /// Whether to print `cargo:rerun-if-changed` and warnings in the form that cargo shows. On by default.
    pub fn rerun_if_changed(mut self, on: bool) -> Self {
        self.cargo = on;
        self
    }

    /// Defines a name for `#ifdef`, as `-D` does for the C preprocessor. None is defined by default.
    pub fn define(mut self, symbol: impl Into<String>) -> Self {
        self.symbols.push(symbol.into());
        self
    }

    /// Also implements `Arbitrary` of the crate `arbitrary`, which must then be a dependency, for property tests and
    /// fuzzers: random values within the declared limits. Off by default. Types of `%#pragma exclude` need their own.
    pub fn arbitrary(mut self, on: bool) -> Self {
        self.arbitrary = on;
        self
    }

    /// Compiles a file; the answer is the file written, and cargo's log holds its path too.
    pub fn compile(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = path.as_ref();
        if self.cargo {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        let dir = match &self.out_dir {
            Some(d) => d.clone(),
            None => std::env::var_os("OUT_DIR").map(PathBuf::from).ok_or(Error::NoOutDir)?,
        };
        let text = read_source(path)?;
        let output = self.translate(path, &text)?;
        for w in &output.warnings {
            if self.cargo {
                let line = w.to_string();
                println!("cargo:warning={}", line.lines().next().unwrap_or_default());
            } else {
                eprintln!("{w}");
            }
        }
        let target = dir.join(path.file_stem().unwrap_or(path.as_os_str())).with_extension("rs");
        write_if_changed(&target, &output.rust)?;
        println!("{}: wrote {}", path.display(), target.display());
        Ok(target)
    }

    /// Translates source text; `path` serves in messages only.
    pub fn translate(&self, path: impl AsRef<Path>, text: &str) -> Result<Output, Error> {
        let path = path.as_ref();
        let mut diags = Diags::default();
        let mut source = Source::new(path, text.to_owned());
        let model = {
            let clean = pre::clean(&mut source, &self.symbols, &mut diags);
            let tokens = lexer::tokens(&clean.text, &mut diags);
            let defs = parser::parse(&clean.text, tokens, &mut diags);
            // Names that a failed definition would have introduced are unknown: do not report them as well.
            if diags.failed() {
                None
            } else {
                let (mut model, spans) = build::build(&source, &clean, defs, &mut diags);
                if !diags.failed() {
                    check::check(&mut model, &spans, &mut diags);
                }
                Some(model)
            }
        };
        let failed = diags.failed();
        let found = diags.finish(&source);
        match model {
            Some(model) if !failed => {
                let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                Ok(Output { rust: emit::emit(&model, &file, self.arbitrary), warnings: found })
            }
            _ => Err(Error::Source(found)),
        }
    }
}

/// Reads a source file.
///
/// Old files have comments in Latin-1; what is not UTF-8 is replaced, and outside of comments the compiler refuses the
/// replacement.
pub fn read_source(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|err| Error::Io { what: "read", path: path.to_owned(), err })?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Leaves the file alone if it holds this text already, so that nothing is rebuilt for it.
fn write_if_changed(path: &Path, text: &str) -> Result<(), Error> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(|err| Error::Io { what: "write", path: path.to_owned(), err })
}

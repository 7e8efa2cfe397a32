//! `sunrpc-rpcgen FILE.x`: writes Rust for the `sunrpc` crate.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use sunrpc_rpcgen::{Compiler, Error};

const HELP: &str = "\
Translates a .x file (RFC 4506, RFC 5531) into Rust for the sunrpc crate.

Usage: sunrpc-rpcgen [OPTIONS] FILE

Arguments:
  FILE                 the .x file

Options:
  -o, --output FILE    write there instead of to standard output
  -D, --define NAME    define NAME for #ifdef; may be repeated
      --arbitrary      also implement arbitrary::Arbitrary, for property tests and fuzzers
      --check          report errors and warnings only
  -h, --help           print this help
  -V, --version        print the version

In a build script, call sunrpc_rpcgen::compile(\"FILE.x\") instead. Include the output into a module of its own:

  #[allow(missing_docs, non_camel_case_types, non_snake_case, dead_code, clippy::all)]
  pub mod echo { include!(\"echo.rs\"); }

Exit status: 0 done, 1 the file has errors or cannot be read or written, 2 wrong usage.
";

struct Options {
    file: PathBuf,
    output: Option<PathBuf>,
    check: bool,
    compiler: Compiler,
}

enum Asked {
    Run(Options),
    Print(String),
    Wrong(String),
}

fn main() -> ExitCode {
    match parse(std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned())) {
        Asked::Print(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Asked::Wrong(why) => {
            eprintln!("sunrpc-rpcgen: {why}\nTry `sunrpc-rpcgen --help`.");
            ExitCode::from(2)
        }
        Asked::Run(options) => match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        },
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Asked {
    let mut files = Vec::new();
    let (mut output, mut check, mut compiler) = (None, false, Compiler::new());
    let mut plain = false;
    while let Some(arg) = args.next() {
        if plain || !arg.starts_with('-') || arg == "-" {
            files.push(arg);
            continue;
        }
        // `-oFILE`, `-o FILE`, `--output=FILE` and `--output FILE`.
        let (flag, attached) = match (arg.strip_prefix("--"), arg.get(..2), arg.get(2..)) {
            (Some(long), _, _) => match long.split_once('=') {
                Some((f, v)) => (format!("--{f}"), Some(v.to_owned())),
                None => (arg.clone(), None),
            },
            (None, Some(short), Some(rest)) if !rest.is_empty() => (short.to_owned(), Some(rest.to_owned())),
            _ => (arg.clone(), None),
        };
        let takes_value = matches!(flag.as_str(), "-o" | "--output" | "-D" | "--define");
        if !takes_value && attached.is_some() {
            return Asked::Wrong(format!("unknown option `{arg}`"));
        }
        let value = if takes_value { attached.or_else(|| args.next()) } else { None };
        match (flag.as_str(), value) {
            ("--", _) => plain = true,
            ("-h" | "--help", _) => return Asked::Print(HELP.to_owned()),
            ("-V" | "--version", _) => {
                return Asked::Print(format!("sunrpc-rpcgen {}\n", env!("CARGO_PKG_VERSION")));
            }
            ("--check", _) => check = true,
            ("--arbitrary", _) => compiler = compiler.arbitrary(true),
            ("-o" | "--output", Some(v)) => output = Some(PathBuf::from(v)),
            ("-D" | "--define", Some(v)) => compiler = compiler.define(v),
            (_, None) if takes_value => return Asked::Wrong(format!("`{flag}` needs a value")),
            _ => return Asked::Wrong(format!("unknown option `{arg}`")),
        }
    }
    match <[String; 1]>::try_from(files) {
        Ok([file]) => Asked::Run(Options { file: file.into(), output, check, compiler }),
        Err(files) if files.is_empty() => Asked::Wrong("no file given".to_owned()),
        Err(_) => Asked::Wrong("one file at a time".to_owned()),
    }
}

fn run(options: &Options) -> Result<(), Error> {
    let text = sunrpc_rpcgen::read_source(&options.file)?;
    let output = options.compiler.translate(&options.file, &text)?;
    for w in &output.warnings {
        eprintln!("{w}");
    }
    if options.check {
        return Ok(());
    }
    let (path, result) = match &options.output {
        Some(path) => (path.as_path(), std::fs::write(path, &output.rust)),
        None => (Path::new("standard output"), std::io::stdout().write_all(output.rust.as_bytes())),
    };
    result.map_err(|err| Error::Io { what: "write", path: path.to_owned(), err })
}

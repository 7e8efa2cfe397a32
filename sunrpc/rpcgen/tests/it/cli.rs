//! The binary.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let x = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/x");
    Command::new(env!("CARGO_BIN_EXE_sunrpc-rpcgen")).args(args).current_dir(x).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn help_version_and_wrong_usage() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    assert!(
        ["--output", "--define", "--arbitrary", "--check"].iter().all(|f| text(&help.stdout).contains(f))
    );
    assert!(text(&run(&["-V"]).stdout).starts_with("sunrpc-rpcgen "));
    for args in [&[][..], &["a.x", "b.x"], &["--nonsense", "echo.x"], &["-o"], &["--check=1", "echo.x"]] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains("--help"), "{args:?}");
    }
}

#[test]
fn writes_to_standard_output_or_a_file() {
    let out = run(&["echo.x"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), include_str!("../generated/echo.rs"));
    let file = std::env::temp_dir().join(format!("rpcgen-cli-{}.rs", std::process::id()));
    let flag = format!("--output={}", file.display());
    let out = run(&[&flag, "echo.x"]);
    assert!(out.status.success() && out.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), include_str!("../generated/echo.rs"));
    std::fs::remove_file(&file).unwrap();
    let out = run(&["--arbitrary", "every.x"]);
    let random = text(&out.stdout).matches("::arbitrary::Arbitrary<'a> for ").count();
    let coded = include_str!("../generated/every.rs").matches("> Decode<'a> for ").count();
    let borrowed = include_str!("../generated/every.rs").matches("Ref<'a> {\n    const MIN_SIZE").count();
    assert_eq!(random, coded - borrowed, "every type that the file defines, and no borrowed form");
    let out = run(&["--check", "every.x"]);
    assert!(out.status.success() && out.stdout.is_empty());
}

#[test]
fn errors_go_to_standard_error() {
    let out = run(&["none.x"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).starts_with("cannot read none.x: "), "{}", text(&out.stderr));
    // The header branch of the file names a type that does not exist.
    let out = run(&["-DRPC_HDR", "every.x"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("every.x:8:5: error: unknown type `unknown_type`"),
        "{}",
        text(&out.stderr)
    );
    assert!(out.stdout.is_empty());
}

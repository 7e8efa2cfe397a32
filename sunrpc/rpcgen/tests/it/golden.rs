//! The generated files are those that the compiler generates now.

use std::path::Path;
use sunrpc_rpcgen::Compiler;

#[test]
fn generated_files_are_up_to_date() {
    // What this crate's tests compile, and what the crate `sunrpc` cannot have made by a build script: it would have to
    // be built before itself.
    for (x, golden) in [
        ("tests/x/every.x", "tests/generated/every.rs"),
        ("tests/x/echo.x", "tests/generated/echo.rs"),
        ("../src/rpcbind/rpcbind.x", "../src/rpcbind/generated.rs"),
    ] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join(x)).unwrap();
        let output = Compiler::new().translate(x, &text).unwrap();
        let have = std::fs::read_to_string(root.join(golden)).unwrap();
        let first = have.lines().zip(output.rust.lines()).position(|(a, b)| a != b);
        assert!(
            have == output.rust,
            "{golden} differs from line {first:?} on; look at what changed after\n\
             cd sunrpc/rpcgen && cargo run -p sunrpc-rpcgen -- {x} -o {golden}"
        );
    }
}

#[test]
fn the_output_does_not_depend_on_the_directory() {
    let text = "struct a { int x; };";
    let one = Compiler::new().translate("/one/t.x", text).unwrap();
    let two = Compiler::new().translate("two/t.x", text).unwrap();
    assert_eq!(one.rust, two.rust);
}

#[test]
fn compile_writes_once_and_names_the_file() {
    let dir = std::env::temp_dir().join(format!("rpcgen-golden-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let x = dir.join("t.x");
    std::fs::write(&x, "const A = 1;").unwrap();
    let compiler = Compiler::new().out_dir(&dir).rerun_if_changed(false);
    let out = compiler.compile(&x).unwrap();
    assert_eq!(out, dir.join("t.rs"));
    assert!(std::fs::read_to_string(&out).unwrap().contains("pub const A: u32 = 1;"));
    // An unchanged output is left alone, so that cargo rebuilds nothing.
    let before = std::fs::metadata(&out).unwrap().modified().unwrap();
    compiler.compile(&x).unwrap();
    assert_eq!(std::fs::metadata(&out).unwrap().modified().unwrap(), before);
    let missing = compiler.compile(dir.join("none.x")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read ") && missing.contains("none.x"), "{missing}");
    std::fs::remove_dir_all(&dir).unwrap();
}

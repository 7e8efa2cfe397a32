//! The generated files are those that the compiler generates now.

use std::path::Path;
use sunrpc_rpcgen::Compiler;

#[test]
fn generated_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for name in ["every", "echo"] {
        let x = root.join("x").join(name).with_extension("x");
        let text = std::fs::read_to_string(&x).unwrap();
        let output = Compiler::new().translate(&x, &text).unwrap();
        let golden = root.join("generated").join(name).with_extension("rs");
        let have = std::fs::read_to_string(&golden).unwrap();
        let first = have.lines().zip(output.rust.lines()).position(|(a, b)| a != b);
        assert!(
            have == output.rust,
            "tests/generated/{name}.rs differs from line {first:?} on; look at what changed after\n\
             cargo run -p sunrpc-rpcgen -- sunrpc/rpcgen/tests/x/{name}.x -o sunrpc/rpcgen/tests/generated/{name}.rs"
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

//! What the compiler says about files that it does not accept.

use sunrpc_rpcgen::{Compiler, Error, Severity};

fn complaints(text: &str) -> Vec<String> {
    match Compiler::new().translate("t.x", text) {
        Ok(o) => {
            o.warnings.iter().map(|w| format!("{}:{} warning {}", w.line, w.column, w.message)).collect()
        }
        Err(Error::Source(list)) => list
            .iter()
            .filter(|d| d.severity == Severity::Error)
            .map(|d| format!("{}:{} {}", d.line, d.column, d.message))
            .collect(),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn every_mistake_has_its_message_and_place() {
    let table: &[(&str, &str)] = &[
        // Lexer.
        ("const A = 08;", "1:11 `08` is not an octal number"),
        ("const A = 18446744073709551616;", "1:11 `18446744073709551616` does not fit in 64 bits"),
        ("const A = 5 $;", "1:13 unexpected character `$`"),
        ("struct \u{e4} { int x; };", "1:8 unexpected character `\u{e4}`"),
        ("int x; /* never", "1:8 this comment is never closed"),
        // Parser.
        ("int x;", "1:1 expected `const`, `typedef`, `enum`, `struct`, `union` or `program`, found `int`"),
        ("const A 5;", "1:9 expected `=`, found `5`"),
        ("const A = ;", "1:11 expected a number or the name of a constant, found `;`"),
        ("struct s { int x };", "1:16 expected `;`, found `}`"),
        ("struct s { int x; }", "1:19 expected `;`, found the end of the file"),
        ("struct s {\n  int x\n  int y;\n};", "2:7 expected `;`, found `int`"),
        ("struct s { };", "1:12 a struct needs at least one member"),
        ("struct s { void; };", "1:12 void is permitted only as an arm of a union, an argument or a result"),
        (
            "struct switch { int x; };",
            "1:8 `switch` is a reserved word; the name of the struct needs another name",
        ),
        ("struct s { quadruple q; };", "1:12 quadruple-precision numbers are not supported"),
        ("struct s { opaque x; };", "1:12 opaque data needs a length"),
        ("struct s { opaque *x; };", "1:12 opaque data needs a length"),
        ("struct s { string x; };", "1:12 a string has variable length"),
        ("struct s { string x[5]; };", "1:12 a string has variable length"),
        ("struct s { int x[2][3]; };", "1:20 an array of arrays"),
        ("struct s { int *x<3>; };", "1:18 `*` and an array size in one declaration"),
        ("typedef void x;", "1:9 a typedef cannot be void"),
        ("enum e { };", "1:10 expected the name of an enum member, found `}`"),
        ("enum e { A B };", "1:12 expected `,` or `}`, found `B`"),
        ("union u switch (int d) { };", "1:26 a union needs at least one `case`"),
        ("union u switch (int d) { int x; };", "1:26 expected `case` or `default`, found `int`"),
        ("union u switch (int d) { default: void; default: void; };", "1:41 a second `default` arm"),
        (
            "union u switch (int d) { case 1: default: void; };",
            "1:34 `case` and `default` cannot share an arm",
        ),
        ("program P { } = 1;", "1:9 program `P` has no version"),
        ("program P { version V { void F(void) = 0 } = 1; } = 1;", "1:40 expected `;`, found `}`"),
        ("program P { version V { opaque F(void) = 0; } = 1; } = 1;", "1:25 opaque data needs a length"),
        // Preprocessor.
        ("#ifdef A\nconst B = 1;\n", "1:1 this conditional is never closed"),
        ("#endif\n", "1:1 `#endif` without `#if`"),
        ("#if 1 +\n#endif\n", "1:5 this condition is not understood"),
        ("#error no such luck\n", "1:1 #error no such luck"),
        ("%#pragma pages 5 6\n", "1:16 `5 6` does not name a type"),
        (
            "# 7 \"other.x\"\n\nint x;",
            "8:1 expected `const`, `typedef`, `enum`, `struct`, `union` or `program`, found `int`",
        ),
        // Names and values.
        ("struct s { foo x; };", "1:12 unknown type `foo`"),
        ("struct s { int x<MAX>; };", "1:18 unknown constant `MAX`"),
        ("struct s { int x; int x; };", "1:23 a second member `x`"),
        ("struct s { int x; };\nstruct s { int y; };", "2:8 `s` is already defined at t.x:1"),
        ("const A = 1; const A = 2;", "1:20 `A` is already the name of a constant"),
        ("enum e { A = 1 }; const A = 1;", "1:10 `A` is already the name of a constant"),
        ("const A = B; const B = A;", "1:7 the value of `A` depends on itself"),
        ("struct s { int x<-1>; };", "1:18 -1 is not a length: lengths are from 0 to 4294967295"),
        ("struct s { int x[0]; };", "1:18 an array of no elements"),
        (
            "struct s { int x<4294967296>; };",
            "1:18 4294967296 is not a length: lengths are from 0 to 4294967295",
        ),
        ("enum e { A = 4294967296 };", "1:10 4294967296 does not fit in 32 bits"),
        ("union u switch (hyper d) { case 1: void; };", "1:17 not a discriminant"),
        ("union u switch (int d<2>) { case 1: void; };", "1:17 not a discriminant"),
        (
            "union u switch (int d) { case 1: void; case 1: int x; };",
            "1:45 the case 1 appears already at t.x:1",
        ),
        (
            "enum e { A }; union u switch (e d) { case 1: void; };",
            "1:43 the case 1 of union `u` is not a member of enum `e`",
        ),
        ("union u switch (bool d) { case 2: void; };", "1:32 the case 2 of union `u` is not a bool"),
        (
            "union u switch (unsigned d) { case -1: void; };",
            "1:36 the case -1 of union `u` is not an unsigned int",
        ),
        (
            "%#pragma pages s.x\nstruct s { int x; };",
            "1:16 only variable-length opaque data can travel as pages",
        ),
        ("%#pragma pages s.y\nstruct s { int x; };", "1:16 this pragma names no field"),
        ("%#pragma exclude nobody\n", "1:18 this pragma names an unknown type `nobody`"),
        ("%#pragma blocking F\n", "1:19 this pragma names an unknown procedure `F`"),
        // Recursion.
        ("struct s { int x; s y; };", "1:8 a value of `s` would contain another one without end"),
        (
            "struct a { b x; };\nstruct b { a y[2]; };",
            "1:8 a value of `a` would contain another one without end",
        ),
        ("typedef a b; typedef b a;", "1:11 a value of `b` would contain another one without end"),
        ("typedef p *p;", "1:12 a value of `p` would contain another one without end"),
        // Programs.
        (
            "program P { version V { void F(void) = 0; void G(void) = 0; } = 1; } = 1;",
            "1:58 procedure `F` has the number 0 already",
        ),
        (
            "program P { version V { void F(void) = 0; void F(void) = 1; } = 1; } = 1;",
            "1:48 a second procedure `F`",
        ),
        (
            "program P { version V { void F(void) = 70000; } = 1; } = 1;",
            "1:40 procedure number 70000 is too large: the table of a version is dense",
        ),
        (
            "program P { version V { void F(void) = 0; } = -1; } = 1;",
            "1:47 -1 does not fit in an unsigned int",
        ),
        ("program P { version V { void F(nobody) = 0; } = 1; } = 1;", "1:32 unknown type `nobody`"),
        // Warnings.
        ("#include <rpc/rpc.h>\n", "1:1 warning `#include` is ignored"),
        ("#define F(x) x\n", "1:9 warning the macro `F` is ignored"),
        ("enum e { A = 0xffffffff };", "1:10 warning 4294967295 does not fit in an enum"),
    ];
    let mut wrong = String::new();
    for (text, wanted) in table {
        let got = complaints(text);
        if !got.iter().any(|g| g == wanted) {
            wrong.push_str(&format!("\n{text:?}\n  wanted {wanted}\n  got    {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_message_shows_the_line_a_caret_and_help() {
    let text = "struct good {\n\topaque data<MAXDTA>;\n};\nconst MAXDATA = 5;\n";
    let e = Compiler::new().translate("dir/t.x", text).unwrap_err();
    let wanted = "dir/t.x:2:14: error: unknown constant `MAXDTA`\n    2 |  opaque data<MAXDTA>;\n      |              ^^^^^^\n      = help: there is a constant `MAXDATA`";
    assert_eq!(e.to_string(), wanted);
    assert!(format!("{e:?}").contains(wanted));
}

#[test]
fn one_run_reports_several_mistakes_each_once() {
    let text = "struct a { opaque x; int y };\nstruct b { int x[1][2]; };\nenum e { A = };\nconst C = 08;\n";
    let lines: Vec<_> = complaints(text).iter().map(|c| c.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["1", "1", "2", "3", "4"]);
    assert_eq!(complaints("struct a { foo x; };\nstruct b { foo y; };").len(), 2);
}

#[test]
fn nothing_that_is_fed_makes_the_compiler_panic_or_hang() {
    let every = include_str!("../x/every.x");
    let echo = include_str!("../x/echo.x");
    for text in [every, echo] {
        // Prefixes, and the text without one of its words.
        for end in (0..text.len()).step_by(41) {
            let _ = Compiler::new().translate("t.x", &text[..end]);
        }
        let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
        for skip in (0..words.len()).step_by(5) {
            let less: String =
                words.iter().enumerate().filter(|(i, _)| *i != skip).map(|(_, w)| *w).collect();
            let _ = Compiler::new().translate("t.x", &less);
        }
    }
    for deep in ["struct { ", "union switch (int x) { case 1: ", "enum { "] {
        let text = format!("struct a {{ {}", deep.repeat(20_000));
        assert!(!complaints(&text).is_empty());
    }
    let long = format!("#if {}1\n#endif", "(".repeat(100_000));
    assert!(!complaints(&long).is_empty());
    let types: String = (0..20_000).map(|i| format!("struct s{i} {{ s{} x; }};\n", i + 1)).collect();
    assert!(!complaints(&types).is_empty());
}

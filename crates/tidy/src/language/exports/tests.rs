//! Small workspaces: what another crate names is used, with all that its signature names.

use expect_test::{Expect, expect};

use super::*;

fn check_files(files: &[(&str, &str)], expected: Expect) {
    let mut exports = Exports::default();
    for (path, text) in files {
        exports.add(path, text.parse().unwrap());
    }
    let lines: Vec<String> = exports.unused().iter().map(Finding::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

const USER: (&str, &str) =
    ("crates/b/src/lib.rs", "use a::{open, Handle}; fn f() { open().read(); }");

#[test]
fn items_that_no_other_crate_names_are_found() {
    check_files(
        &[
            (
                "crates/a/src/lib.rs",
                "pub fn open() {}\npub async fn close() {}\npub(crate) fn inner() {}\npub use x::y;\npub const fn size() {}\npub const LIMIT: u8 = 1;\nmod m { pub static NAME: u8 = 1; }\n#[cfg(test)] mod t { pub fn helper() {} }",
            ),
            ("crates/a/src/tests.rs", "pub fn setup() { close(); }"),
            USER,
        ],
        expect![[r#"
            crates/a/src/lib.rs:2: unused-pub: close
            crates/a/src/lib.rs:5: unused-pub: size
            crates/a/src/lib.rs:6: unused-pub: LIMIT
            crates/a/src/lib.rs:7: unused-pub: NAME"#]],
    );
}

#[test]
fn a_method_needs_its_type_to_be_used() {
    let library = "pub struct Handle; impl Handle { pub fn read(&self) {} pub fn write(&self) {} }\npub(crate) struct Pool; impl Pool { pub fn read(&self) {} }";
    check_files(
        &[("crates/a/src/lib.rs", library), USER],
        expect![[r#"
            crates/a/src/lib.rs:1: unused-pub: Handle::write
            crates/a/src/lib.rs:2: unused-pub: Pool::read"#]],
    );
}

#[test]
fn signatures_of_used_items_use_their_types() {
    let library = "pub struct Handle { pub mode: Mode, inner: Inner }\npub enum Mode { A(Depth) }\npub struct Depth;\npub struct Inner;\nimpl Iterator for Handle { type Item = Row; }\npub struct Row;\npub fn open() -> Result<(), Fault> { Local }\npub struct Fault;\npub struct Local;";
    check_files(
        &[("crates/a/src/lib.rs", library), USER],
        expect![[r#"
            crates/a/src/lib.rs:4: unused-pub: Inner
            crates/a/src/lib.rs:9: unused-pub: Local"#]],
    );
}

#[test]
fn tests_programs_and_macros_are_other_crates() {
    check_files(
        &[
            (
                "crates/a/src/lib.rs",
                "pub fn one() {} pub fn two() {} pub fn three() {}\n#[macro_export] macro_rules! m { () => { $crate::three() } }",
            ),
            ("crates/a/src/main.rs", "fn main() { a::one(); }"),
            ("crates/a/tests/it/main.rs", "fn t() { a::two(); }"),
        ],
        expect![""],
    );
}

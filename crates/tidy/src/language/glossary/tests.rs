//! Rows of the glossary name types that exist.

use super::*;

#[test]
fn a_type_that_no_crate_defines_is_found() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let survey = Survey::new(&[
        file("crates/a/src/core/row.rs", "//! Rows.\nstruct Row;\n"),
        file("crates/b/tests/it/main.rs", "//! Tests.\nstruct Rig;\n"),
    ]);
    let page =
        file(PAGE, "`a::Prose`\n| a row | `a::Row`, `…Rows` |\n| a rig | `b::Rig`, `b::Row` |\n");
    let lines: Vec<String> = check(&page, &survey).iter().map(Finding::to_string).collect();
    assert_eq!(
        lines,
        ["docs/glossary.md:3: no-such-type: b::Rig", "docs/glossary.md:3: no-such-type: b::Row"]
    );
}

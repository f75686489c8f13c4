//! Comments are told from strings and literals; each rule finds its small bad comment.

use expect_test::{Expect, expect};

use super::*;

fn check_text(text: &str, expected: Expect) {
    let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
    let findings = check(&file, &collect_comments(text));
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn comments_are_found_outside_strings_only() {
    let text = r####"//! Module.
let a = "// no"; // first
let b = r#"// no " // no"#; /* second
third */ let c = '"'; // fourth
let d: &'static str = b"\"// no"; let r#type = '\''; // fifth
fn for(r: u8) { /* outer /* inner */ outer */ } // sixth
"####;
    let found: Vec<String> = collect_comments(text)
        .iter()
        .map(|comment| format!("{} {} {}", comment.line, comment.fills_line, comment.text))
        .collect();
    expect![[r#"
        1 true //! Module.
        2 false // first
        3 false /* second
        4 true third */
        4 false // fourth
        5 false // fifth
        6 false /* outer /* inner */ outer */
        6 false // sixth"#]]
    .assert_eq(&found.join("\n"));
}

#[test]
fn doc_comments_have_four_words() {
    check_text(
        "/// One two three.\nfn a();\n\n/// One two\n/// three four.\nfn b();\n// Short.\n",
        expect!["a.rs:1: short-doc: /// One two three."],
    );
}

#[test]
fn blocks_are_counted_between_other_lines() {
    let text = "/// A.\n/// B.\n#[x]\n/// C.\nfn a();\n//// no\n//! no\n";
    assert_eq!(doc_blocks(&collect_comments(text)).len(), 3);
}

#[test]
fn empty_phrases_are_whole_sentences() {
    check_text(
        "/// They.\nfn a();\n/// # Errors\n/// What the server says.\nfn b();\n",
        expect![[r#"
            a.rs:1: short-doc: /// They.
            a.rs:1: empty-phrase: /// They.
            a.rs:4: empty-phrase: /// What the server says."#]],
    );
    check_text(
        "// Rows of the last stage. The same.\n// Parses what\n// they. They are rows.\n// The same, but sorted.\n",
        expect!["a.rs:1: empty-phrase: // Rows of the last stage. The same."],
    );
}

#[test]
fn comments_keep_to_the_columns() {
    let fits = format!("// {}\n", "ä".repeat(97));
    check_text(&fits, expect![""]);
    let wide = format!("    // {}\n", "x".repeat(94));
    let findings =
        check(&File { path: "a.rs".to_owned(), text: wide.clone() }, &collect_comments(&wide));
    let rules: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["wide-comment"]);
}

#[test]
fn persons_in_comments() {
    check_text(
        "// Whoever asks.\nlet he = \"he waits\"; // The one who asks.\n// The head, his_row.\n",
        expect![[r#"
            a.rs:1: person: // Whoever asks.
            a.rs:2: person-who: // The one who asks."#]],
    );
}

//! Pieces of SQL.

use super::*;

#[test]
fn a_prefix_ends_before_the_next_string() {
    assert_eq!(end_of("ab"), Some("ac".to_owned()));
    assert_eq!(end_of("a\u{10ffff}"), Some("b".to_owned()));
    assert_eq!(end_of("\u{10ffff}"), None);
    assert_eq!(end_of("\u{d7ff}"), Some("\u{e000}".to_owned()));
}

#[test]
fn names_of_properties_are_quoted() {
    let path = QueryPath {
        path: r#"/it's/a "name" \ 1"#.parse().unwrap(),
        scalar: Scalar::String,
    };
    let expected = r#"((body #>> E'{"it''s","a \\"name\\" \\\\ 1"}'::text[]) COLLATE "C")"#;
    assert_eq!(expression(&path, "body"), expected);
}

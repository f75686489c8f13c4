//! SQL expressions and page budgets.

use super::*;

#[test]
fn a_prefix_ends_before_the_next_string() {
    assert_eq!(prefix_end("ab"), Some("ac".to_owned()));
    assert_eq!(prefix_end("a\u{10ffff}"), Some("b".to_owned()));
    assert_eq!(prefix_end("\u{10ffff}"), None);
    assert_eq!(prefix_end("\u{d7ff}"), Some("\u{e000}".to_owned()));
}

#[test]
fn names_of_properties_are_quoted_and_each_step_is_by_a_text() {
    let of = |path: &str, scalar| {
        let path = path.parse().unwrap();
        expression(&QueryPath { path, scalar }, "body")
    };
    let names = r#"((body -> 'it''s'::text) ->> E'a "name" \\ 1'::text)"#;
    assert_eq!(of(r#"/it's/a "name" \ 1"#, Scalar::String), format!(r#"({names} COLLATE "C")"#));
    assert_eq!(of("/a/0", Scalar::Number), "(((body -> 'a'::text) ->> '0'::text)::numeric)");
    assert_eq!(of("/late", Scalar::Boolean), "((body ->> 'late'::text)::boolean)");
}

/// How many documents of these sizes fit into the budget.
fn taken(room: &mut PageBudget, bytes: &[usize]) -> usize {
    bytes.iter().filter(|&&bytes| room.try_take(bytes)).count()
}

#[test]
fn a_page_is_bounded_in_documents_and_bytes_but_never_empty() {
    let mut room = PageBudget::new(3, ByteSize(100));
    assert_eq!(room.rows_to_request(), 4);
    assert_eq!((taken(&mut room, &[10; 3]), room.is_full()), (3, false));
    assert_eq!(room.rows_to_request(), 1);
    assert_eq!((taken(&mut room, &[10]), room.is_full()), (0, true));

    // Up to the last byte, and nothing after the first that did not fit.
    let mut room = PageBudget::new(10, ByteSize(100));
    assert_eq!(taken(&mut room, &[60, 40]), 2);
    assert!(!room.is_full());
    assert_eq!(taken(&mut room, &[1, 0]), 0);
    assert!(room.is_full());
    let mut room = PageBudget::new(10, ByteSize(100));
    assert_eq!(taken(&mut room, &[60, 41, 10]), 1);

    let mut room = PageBudget::new(10, ByteSize(100));
    assert_eq!((taken(&mut room, &[1_000]), room.is_full()), (1, false));
    assert_eq!((taken(&mut room, &[1]), room.is_full()), (0, true));
}

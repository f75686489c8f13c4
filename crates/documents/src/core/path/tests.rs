//! Pointers as RFC 6901 has them, and what `*` leads to.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// The document of RFC 6901, section 5.
fn rfc_6901() -> Value {
    json!({"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8})
}

#[test]
fn pointers_of_the_rfc() {
    let document = rfc_6901();
    for (text, expected) in [
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ("/k\"l", 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ] {
        assert_eq!(path(text).get(&document), Some(&json!(expected)), "{text}");
        assert_eq!(path(text).to_string(), text);
    }
    assert_eq!(path("/foo").get(&document), Some(&json!(["bar", "baz"])));
    // Only `*` leads into arrays.
    assert_eq!(path("/foo/0").get(&document), None);
    assert_eq!(path("/~01").segments(), [Segment::Property("~1".to_owned())]);
}

fn check(text: &str, document: &Value, expected: Expect) {
    let path = path(text);
    let selected = path.select(document);
    let lines: Vec<String> = selected
        .iter()
        .map(|place| format!("{} = {}", path.pointer(&place.elements), place.value))
        .collect();
    for (place, line) in selected.iter().zip(&lines) {
        let (pointer, _) = line.split_once(" = ").unwrap();
        assert_eq!(document.pointer(pointer), Some(place.value));
    }
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_star_is_every_element() {
    let document = json!({
        "stops": [{"airport": "EWR", "gates": [1, 2]}, {"gates": []}, 7, {"airport": null, "gates": [3]}],
        "none": [], "text": "x", "a/b": [["p"], ["q", "r"]],
    });
    check(
        "/stops/*/airport",
        &document,
        expect![[r#"
            /stops/0/airport = "EWR"
            /stops/3/airport = null"#]],
    );
    check(
        "/stops/*/gates/*",
        &document,
        expect![[r#"
            /stops/0/gates/0 = 1
            /stops/0/gates/1 = 2
            /stops/3/gates/0 = 3"#]],
    );
    check(
        "/a~1b/*/*",
        &document,
        expect![[r#"
            /a~1b/0/0 = "p"
            /a~1b/1/0 = "q"
            /a~1b/1/1 = "r""#]],
    );
    for nothing in ["/none/*", "/text/*", "/stops/airport", "/missing/*/a", "/*"] {
        check(nothing, &document, expect![[""]]);
    }
    assert!(path("/stops/*/airport").is_plural());
    assert!(!path("/stops/**").is_plural());
}

#[test]
fn invalid_paths_are_rejected() {
    let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
    let deep = "/a".repeat(64);
    let texts = ["", "a", "a/b", "#/a", "/a~", "/a~2b", "/~", &long, &deep];
    let lines: Vec<String> = texts.iter().map(|text| text.parse::<Path>().unwrap_err()).collect();
    expect![[r#"
        `` is not a path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array
        `a` is not a path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array
        `a/b` is not a path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array
        `#/a` is not a path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array
        `/a~` is not a path: `~` must be followed by `0` (for `~`) or `1` (for `/`)
        `/a~2b` is not a path: `~` must be followed by `0` (for `~`) or `1` (for `/`)
        `/~` is not a path: `~` must be followed by `0` (for `~`) or `1` (for `/`)
        path `/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…` has more than 1024 bytes
        path `/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a…` has 64 steps, more than the nesting of a document allows"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn what_comes_before_the_last_star() {
    let parted = |text: &str| {
        let path = path(text);
        let (before, after) = path.split_at_last_each();
        (before.len(), after.len())
    };
    assert_eq!(parted("/a/b"), (0, 2));
    assert_eq!(parted("/a/*"), (2, 0));
    assert_eq!(parted("/a/*/b/*/c/d"), (4, 2));
}

proptest! {
    #[test]
    fn a_path_is_what_it_prints(names in prop::collection::vec("[^\u{0}]{0,6}", 1..5)) {
        let mut text = String::new();
        names.iter().for_each(|name| push_escaped(&mut text, name));
        let read = path(&text);
        prop_assert_eq!(read.to_string(), text.as_str());
        // A value nested by these names is found there by this crate and by serde_json.
        let nested = names.iter().rev().fold(json!(7), |inner, name| json!({name.as_str(): inner}));
        if !read.is_plural() {
            prop_assert_eq!(read.get(&nested), Some(&json!(7)));
        }
        prop_assert_eq!(nested.pointer(&text), Some(&json!(7)));
    }
}

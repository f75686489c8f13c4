//! Files made to harm, and what errors say.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::*;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestDocument {
    #[serde(default)]
    after: DurationMs,
    #[serde(default)]
    lists: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    name: String,
}

fn check(text: &str, expected: Expect) {
    let shown = match parse::<TestDocument>(text) {
        Ok(TestDocument { after, lists, name }) => format!("{after:?} {lists:?} {name:?}"),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn what_is_read() {
    check("", expect![[r#"DurationMs(0) {} """#]]);
    check("# nothing\n", expect![[r#"DurationMs(0) {} """#]]);
    check(
        "after: 1h30m\nname: 5\nlists: {a: [x, 1]}\n",
        expect![[r#"DurationMs(5400000) {"a": ["x", "1"]} "5""#]],
    );
    check("after: 0\n", expect![[r#"DurationMs(0) {} """#]]);
}

#[test]
fn what_is_refused() {
    check("after: 5\n", expect![[r#"1:8: not a valid duration string: "5", write 1h30m"#]]);
    check("after: 300y\n", expect![[r#"1:8: not a valid duration string: "300y", write 1h30m"#]]);
    check(
        "name: x\nafter: -5m\n",
        expect![[r#"2:8: not a valid duration string: "-5m", write 1h30m"#]],
    );
    check(
        "name: x\nunknown: 1\n",
        expect!["2:1: unknown field `unknown`, expected one of after, lists, name"],
    );
    check(
        "name: x\nname: y\n",
        expect![
            "2:1: duplicate mapping key: name, set DuplicateKeyPolicy in Options if acceptable"
        ],
    );
    check("name: [x\n", expect!["1:7: expected string scalar"]);
    check("name:\n  - x\n", expect!["2:3: expected string scalar"]);
    check("name: *nothing\n", expect!["1:7: alias references unknown anchor"]);
}

#[test]
fn bombs_are_refused() {
    let mut laughs = "lists:\n  a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in b'b'..=b'z' {
        let (level, before) = (char::from(level), char::from(level - 1));
        let aliases = vec![format!("*{before}"); 9].join(", ");
        laughs += &format!("  {level}: &{level} [{aliases}]\n");
    }
    let error = parse::<BTreeMap<String, serde_json::Value>>(&laughs).expect_err("it has no end");
    assert!(error.line > 0, "{error}");
    let deep = "[".repeat(100_000);
    assert!(parse::<serde_json::Value>(&deep).is_err());
    let long = "a".repeat(TEXT_BYTES_MAX + 1);
    assert!(parse::<serde_json::Value>(&long).is_err());
    let many = "- a\n".repeat(1_000_000);
    assert!(parse::<Vec<String>>(&many).is_err());
}

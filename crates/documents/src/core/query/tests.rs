//! Conditions, orders and cursors as they are worded.

use serde_json::json;

use super::*;
use crate::core::definition::read;

fn definition() -> Definition {
    let file = r#"{"collection": "flights", "identity": ["/number"], "query": ["/origin", "/delay", "/late", "/from"],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": "string"}, "from": {"type": "string"},
            "delay": {"type": "number"}, "late": {"type": "boolean"}}, "required": ["number"]}}"#;
    read(file.as_bytes()).unwrap().remove(0).definition
}

fn filter(text: &str) -> Result<Test, String> {
    let filters = [text.to_owned()];
    let wording = Wording {
        filters: &filters,
        ..Wording::default()
    };
    match Query::read(&definition(), &wording) {
        Ok(mut query) => Ok(query.filters.remove(0).test),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn conditions_are_read_as_they_are_meant() {
    let is = |comparison, value| Ok(Test::Is(comparison, value));
    assert_eq!(filter("/origin = JFK"), is(Comparison::Equal, json!("JFK")));
    assert_eq!(filter("/origin=JFK"), is(Comparison::Equal, json!("JFK")));
    assert_eq!(
        filter(r#"/origin != "a \" b""#),
        is(Comparison::NotEqual, json!("a \" b"))
    );
    assert_eq!(filter("/origin = 12"), is(Comparison::Equal, json!("12")));
    assert_eq!(filter("/origin ="), is(Comparison::Equal, json!("")));
    assert_eq!(
        filter("/delay >= -1.5"),
        is(Comparison::GreaterOrEqual, json!(-1.5))
    );
    assert_eq!(filter("/delay<3"), is(Comparison::Less, json!(3)));
    assert_eq!(filter("/late = true"), is(Comparison::Equal, json!(true)));
    assert_eq!(
        filter(r#"/origin in ["JFK", "LGA"]"#),
        Ok(Test::In(vec![json!("JFK"), json!("LGA")]))
    );
    assert_eq!(filter("/origin prefix J"), Ok(Test::Prefix("J".to_owned())));
    assert_eq!(filter("/delay exists"), Ok(Test::Exists(true)));
    assert_eq!(filter("/delay exists false"), Ok(Test::Exists(false)));
}

#[test]
fn what_is_not_meant_is_refused_with_what_would_be() {
    let refused = |text: &str| filter(text).unwrap_err();
    assert_eq!(
        refused("/carrier = B6"),
        "`/carrier = B6` begins with no path that documents of `flights` are found by; these are: `/origin`, `/delay`, `/late`, `/from`"
    );
    assert!(refused("/fromage = x").contains("begins with no path"));
    assert_eq!(
        refused("/delay = late"),
        "`/delay` is a number, and `late` is not"
    );
    assert_eq!(
        refused("/late = 1"),
        "`/late` is true or false, and `1` is not"
    );
    assert_eq!(
        refused("/delay prefix 1"),
        "`prefix` is of strings, and `/delay` is none"
    );
    assert_eq!(
        refused("/origin in JFK"),
        "after `in` comes a JSON array, and `JFK` is none"
    );
    assert_eq!(
        refused("/delay in [1, \"2\"]"),
        "`/delay` is a number, and `\"2\"` is not"
    );
    assert!(refused("/origin like J").contains("comes one of"));
    assert!(refused("/origin = \"\\u0000\"").contains("is a string"));
}

#[test]
fn a_cursor_goes_on_in_its_own_order() {
    let definition = definition();
    let read = |sort, cursor| {
        Query::read(
            &definition,
            &Wording {
                filters: &[],
                sort,
                cursor,
            },
        )
    };
    let order = read(Some("-/delay"), None).unwrap().order;
    let after = After::of(order.as_ref(), &json!({"delay": 7}), 42);
    let cursor = after.cursor();
    assert_eq!(
        read(Some("-/delay"), Some(&cursor)).unwrap().after,
        Some(after)
    );
    for (sort, cursor) in [
        (Some("/delay"), cursor.as_str()),
        (None, &cursor),
        (Some("-/delay"), "?"),
        (None, "e30"),
    ] {
        assert!(
            read(sort, Some(cursor))
                .unwrap_err()
                .to_string()
                .starts_with("the cursor is not from")
        );
    }
    let bad = After {
        value: json!("text"),
        number: 1,
        order: "-/delay".to_owned(),
    }
    .cursor();
    assert!(read(Some("-/delay"), Some(&bad)).is_err());
    assert!(read(Some("/delay desc"), None).is_err());
}

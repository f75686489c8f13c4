//! Parsing of filters, orders and cursors.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::definition::parse;

fn definition() -> Definition {
    let file = r#"{"collection": "flights", "identity": ["/number"], "query": ["/origin", "/delay", "/late", "/from"],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": "string"}, "from": {"type": "string"},
            "delay": {"type": "number"}, "late": {"type": "boolean"}}, "required": ["number"]}}"#;
    parse(file.as_bytes()).unwrap().remove(0).definition
}

fn filter(text: &str) -> Result<Test, String> {
    let filters = [text.to_owned()];
    let wording = QueryText { filters: &filters, ..QueryText::default() };
    match Query::parse(&definition(), &wording) {
        Ok(mut query) => Ok(query.filters.remove(0).test),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn conditions_are_read_as_they_are_meant() {
    let is = |comparison, value| Ok(Test::Compare(comparison, value));
    assert_eq!(filter("/origin = JFK"), is(Comparison::Equal, json!("JFK")));
    assert_eq!(filter("/origin=JFK"), is(Comparison::Equal, json!("JFK")));
    assert_eq!(filter(r#"/origin != "a \" b""#), is(Comparison::NotEqual, json!("a \" b")));
    assert_eq!(filter("/origin = 12"), is(Comparison::Equal, json!("12")));
    assert_eq!(filter("/origin ="), is(Comparison::Equal, json!("")));
    assert_eq!(filter("/delay >= -1.5"), is(Comparison::GreaterOrEqual, json!(-1.5)));
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
fn malformed_queries_are_rejected_with_a_hint() {
    let refused = |text: &str| filter(text).unwrap_err();
    assert_eq!(
        refused("/carrier = B6"),
        "`/carrier = B6` does not begin with a path that `flights` declares in `query`; it declares: `/origin`, `/delay`, `/late`, `/from`"
    );
    assert!(refused("/fromage = x").contains("does not begin with a path"));
    assert_eq!(refused("/delay = late"), "`/delay` is a number, but `late` is not");
    assert_eq!(refused("/late = 1"), "`/late` is true or false, but `1` is not");
    assert_eq!(
        refused("/delay prefix 1"),
        "`prefix` needs a path to strings, but `/delay` is not one"
    );
    assert_eq!(
        refused("/origin in JFK"),
        "`in` must be followed by a JSON array, but `JFK` is not one"
    );
    assert_eq!(refused("/delay in [1, \"2\"]"), "`/delay` is a number, but `\"2\"` is not");
    assert!(refused("/origin like J").contains("must be followed by one of"));
    assert!(refused("/origin = \"\\u0000\"").contains("is a string"));
}

#[test]
fn a_cursor_goes_on_in_its_own_order() {
    let definition = definition();
    let read = |sort, cursor| Query::parse(&definition, &QueryText { filters: &[], sort, cursor });
    let order = read(Some("-/delay"), None).unwrap().order;
    let after =
        PageCursor::after_document(order.as_ref(), &json!({"delay": 7}), DocumentNumber(42));
    let cursor = after.encode();
    assert_eq!(read(Some("-/delay"), Some(&cursor)).unwrap().after, Some(after));
    for (sort, cursor) in
        [(Some("/delay"), cursor.as_str()), (None, &cursor), (Some("-/delay"), "?"), (None, "e30")]
    {
        assert!(
            read(sort, Some(cursor)).unwrap_err().to_string().starts_with("the cursor is not from")
        );
    }
    let bad =
        PageCursor { value: json!("text"), number: DocumentNumber(1), order: "-/delay".to_owned() }
            .encode();
    assert!(read(Some("-/delay"), Some(&bad)).is_err());
    assert!(read(Some("/delay desc"), None).is_err());
}

/// A text made of meaningful and meaningless parts.
fn nearly() -> impl Strategy<Value = String> {
    let known = [
        "/origin", "/delay", "/late", "/from", "-", " ", "=", "!=", "<", ">=", "in", "prefix",
        "exists", "false", "[", "]", ",", "\"", "JFK", "1", "1e999", "-0", "\\u0000", "\u{0}", "{",
        "}", "true", "null", "é",
    ];
    let part = prop_oneof![
        4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat())
}

proptest! {
    /// Any text is parsed or rejected, and parsed constants have the path's type.
    #[test]
    fn any_text_is_a_condition_or_none(text in nearly(), behind in nearly()) {
        for text in [text.clone(), format!("/delay {text}"), format!("/origin in [{text},\"{behind}\"]")] {
            match filter(&text) {
                Ok(Test::In(values)) => prop_assert!(values.len() <= VALUES_MAX),
                Ok(Test::Compare(_, value)) => prop_assert!(!value.is_null() && !value.is_array() && !value.is_object()),
                Ok(Test::Prefix(prefix)) => prop_assert!(!prefix.is_empty()),
                Ok(_) => {}
                Err(reason) => prop_assert!(!reason.is_empty() && reason.len() < 1_000),
            }
        }
        let wording = QueryText { filters: &[], sort: Some(&text), cursor: None };
        if let Ok(query) = Query::parse(&definition(), &wording) {
            let order = query.order.unwrap();
            prop_assert_eq!(order.to_text(), text);
        }
    }

    /// A cursor is only valid for the order it was made for.
    #[test]
    fn any_bytes_are_a_cursor_or_none(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        json in nearly(),
        value in prop_oneof![any::<f64>().prop_map(|number| json!(number)), any::<String>().prop_map(Value::String), any::<bool>().prop_map(Value::Bool)],
        number in any::<i64>(),
    ) {
        let made = json!({"v": value, "n": number, "o": "/delay"}).to_string();
        let texts = [
            String::from_utf8_lossy(&bytes).into_owned(),
            BASE64_URL_SAFE_NO_PAD.encode(&bytes),
            BASE64_URL_SAFE_NO_PAD.encode(&json),
            BASE64_URL_SAFE_NO_PAD.encode(&made),
        ];
        for cursor in &texts {
            let wording = QueryText { filters: &[], sort: Some("/delay"), cursor: Some(cursor) };
            if let Ok(query) = Query::parse(&definition(), &wording) {
                let after = query.after.unwrap();
                prop_assert!(after.value.is_number() || after.value.is_null());
                prop_assert_eq!(after.order, "/delay");
            }
        }
    }
}

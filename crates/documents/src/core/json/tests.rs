//! Named cases, and a property test with serde_json as an oracle.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const BOUNDS: Bounds = Bounds { bytes_max: 1024 * 1024, depth_max: DEPTH_MAX };

fn parse(text: &str) -> Value {
    super::parse(text.as_bytes(), BOUNDS).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"))
}

fn refused(bytes: &[u8]) -> String {
    match super::parse(bytes, BOUNDS) {
        Ok(value) => panic!("read as {value}"),
        Err(JsonError::Malformed { offset: at, violation }) => {
            assert!(violation.message.ends_with(&format!("at byte {at}")));
            violation.to_string()
        }
        Err(too_large) => format!("{too_large:?}"),
    }
}

fn check(texts: &[&str], expected: Expect) {
    let lines: Vec<String> =
        texts.iter().map(|text| format!("{text}  ->  {}", refused(text.as_bytes()))).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn valid_json_is_parsed() {
    let text = r#" { "a" : [ 1 , -2.5 , true , false , null , "x" , [ ] , { } ] , "" : { "b/c~d" : "\"\\\/\b\f\n\r\tA\u00e4\ud83d\ude00" } } "#;
    let expected = json!({"a": [1, -2.5, true, false, null, "x", [], {}], "": {"b/c~d": "\"\\/\u{8}\u{c}\n\r\tAä😀"}});
    assert_eq!(parse(text), expected);
    let names: Vec<String> =
        parse(r#"{"b":1,"a":2}"#).as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["b", "a"]);
}

#[test]
fn errors_name_their_position() {
    check(
        &[
            "",
            "  ",
            "{",
            "[1,",
            "[1 2]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{a:1}"#,
            "[1,]",
            "nul",
            "True",
            "{} {}",
            r#"{"a":{"b":[0,"x]}}"#,
            r#"{"a/b":{"~":[0,tru]}}"#,
            "'a'",
        ],
        expect![[r#"
              ->  expected a value, but the text ends, at byte 0
                ->  expected a value, but the text ends, at byte 2
            {  ->  expected the name of a property, but the text ends, at byte 1
            [1,  ->  /1: expected a value, but the text ends, at byte 3
            [1 2]  ->  expected `,` or `]`, found '2', at byte 3
            {"a"}  ->  expected `:`, found '}', at byte 4
            {"a":}  ->  /a: expected a value, found '}', at byte 5
            {"a":1,}  ->  expected the name of a property, found '}', at byte 7
            {a:1}  ->  expected the name of a property, found 'a', at byte 1
            [1,]  ->  /1: expected a value, found ']', at byte 3
            nul  ->  expected a value, found 'n', at byte 0
            True  ->  expected a value, found 'T', at byte 0
            {} {}  ->  expected the end, found '{', at byte 3
            {"a":{"b":[0,"x]}}  ->  /a/b/1: this string does not end, at byte 13
            {"a/b":{"~":[0,tru]}}  ->  /a~1b/~0/1: expected a value, found 't', at byte 15
            'a'  ->  expected a value, found '\'', at byte 0"#]],
    );
}

#[test]
fn a_byte_order_mark_is_not_json() {
    assert_eq!(refused("\u{feff}{}".as_bytes()), "expected a value, found '\\u{feff}', at byte 0");
}

#[test]
fn a_property_is_there_once() {
    check(
        &[r#"{"a":1,"b":{"c":1,"\u0063":2}}"#, r#"{"a":1,"a":1}"#],
        expect![[r#"
            {"a":1,"b":{"c":1,"\u0063":2}}  ->  /b/c: this property occurs twice, at byte 18
            {"a":1,"a":1}  ->  /a: this property occurs twice, at byte 7"#]],
    );
}

#[test]
fn strings_are_text() {
    check(
        &[
            r#""a\u0000b""#,
            r#"{"\u0000":1}"#,
            "\"a\nb\"",
            r#""\x""#,
            r#""\"#,
            r#""\u12""#,
            r#""\u12G4""#,
            r#""\u+123""#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            r#""\ud800\ud800""#,
        ],
        expect![[r#"
            "a\u0000b"  ->  U+0000 cannot be stored, at byte 2
            {"\u0000":1}  ->  U+0000 cannot be stored, at byte 2
            "a
            b"  ->  a control character, U+000A, is not escaped, at byte 2
            "\x"  ->  a backslash must be followed by one of `"\/bfnrtu`, at byte 1
            "\  ->  a backslash must be followed by one of `"\/bfnrtu`, at byte 1
            "\u12"  ->  `\u` must be followed by four hexadecimal digits, at byte 1
            "\u12G4"  ->  `\u` must be followed by four hexadecimal digits, at byte 1
            "\u+123"  ->  `\u` must be followed by four hexadecimal digits, at byte 1
            "\ud800"  ->  half of a surrogate pair is not a character, at byte 1
            "\ud800\u0041"  ->  half of a surrogate pair is not a character, at byte 1
            "\udc00"  ->  half of a surrogate pair is not a character, at byte 1
            "\ud800\ud800"  ->  half of a surrogate pair is not a character, at byte 1"#]],
    );
}

#[test]
fn only_utf_8_is_text() {
    assert_eq!(refused(b"{\"a\":\"\xff\"}"), "the text is not UTF-8, at byte 6");
    assert_eq!(refused(b"\"\xed\xa0\x80\""), "the text is not UTF-8, at byte 1");
    assert_eq!(refused(b"\"\xc3"), "the text is not UTF-8, at byte 1");
    assert_eq!(refused(b"\"a\0b\""), "a control character, U+0000, is not escaped, at byte 2");
}

#[test]
fn depth_is_bounded() {
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    parse(&deep(64));
    assert!(
        refused(deep(65).as_bytes()).ends_with("it is nested deeper than 64 levels, at byte 64")
    );
    // Deep enough to overflow the stack of an unbounded recursion.
    let bottomless = "[".repeat(1_000_000);
    assert!(
        refused(bottomless.as_bytes()).ends_with("it is nested deeper than 64 levels, at byte 64")
    );
    let objects = r#"{"a":"#.repeat(200_000);
    assert!(
        refused(objects.as_bytes()).ends_with("it is nested deeper than 64 levels, at byte 320")
    );
}

#[test]
fn size_is_bounded() {
    let bounds = Bounds { bytes_max: 10, depth_max: 3 };
    assert!(super::parse(b"[1,2,3,45]", bounds).is_ok());
    let too_large = JsonError::TooLarge { bytes: 11, bytes_max: 10 };
    assert_eq!(super::parse(b"[1,2,3,456]", bounds), Err(too_large));
    let name = "n".repeat(NAME_BYTES_MAX + 1);
    let long = format!("{{\"{name}\":1}}");
    assert_eq!(
        refused(long.as_bytes()),
        "the name of property `nnnnnnnnnnnnnnnnnnnn…` has more than 1024 bytes, at byte 1"
    );
}

#[test]
fn numbers_are_counted_as_postgresql_writes_them() {
    // Each would take 300 zeros when written without an exponent.
    let many = format!("[{}0]", "1e-300,".repeat(100_000));
    assert!(refused(many.as_bytes()).starts_with("TooLarge"));
    let many = format!("[{}0]", "1.5e300,".repeat(100_000));
    assert!(refused(many.as_bytes()).starts_with("TooLarge"));
    let few = format!("[{}0]", "1e-300,".repeat(1_000));
    assert_eq!(parse(&few).as_array().unwrap().len(), 1_001);
}

#[test]
fn a_document_is_an_object() {
    assert!(parse_document(b"{}", 100).is_ok());
    for (text, kind) in [
        ("[]", "an array"),
        ("1", "a number"),
        ("null", "null"),
        ("\"a\"", "a string"),
        ("true", "a boolean"),
    ] {
        let error = DocumentsError::from(parse_document(text.as_bytes(), 100).unwrap_err());
        assert!(
            error
                .to_string()
                .contains(&format!("a document must be an object, but this is {kind}")),
            "{error}"
        );
    }
}

#[test]
fn equal_numbers_are_one_number() {
    for (texts, expected) in [
        (&["1", "1.0", "1e0", "10e-1", "0.1e1", "100E-2"][..], json!(1)),
        (&["0", "-0", "0.0", "-0.0e7", "0e99999999999999999999"], json!(0)),
        (&["-12", "-1.2e1", "-12.000"], json!(-12)),
        (&["9223372036854775807", "9223372036854775.807e3"], json!(i64::MAX)),
        (&["-9223372036854775808", "-9223372036854775808.0"], json!(i64::MIN)),
        (&["18446744073709551615", "18446744073709551615.000"], json!(u64::MAX)),
        (&["10000000000000000000", "1e19"], json!(10_000_000_000_000_000_000_u64)),
        (&["100000000000000000000", "1e20", "1.0E+20"], json!(1e20)),
        (&["0.1", "1e-1", "0.10", "0.0001e3"], json!(0.1)),
        (&["1.7976931348623157e308"], json!(f64::MAX)),
        (&["5e-324"], json!(5e-324)),
        (&["9007199254740993"], json!(9_007_199_254_740_993_i64)),
    ] {
        for text in texts {
            assert_eq!(parse(text), expected, "{text}");
            assert_eq!(parse(text).to_string(), expected.to_string(), "{text}");
        }
    }
}

#[test]
fn numbers_without_exact_representation_are_rejected() {
    let long = format!("1{}", "0".repeat(100_000));
    let tiny = format!("0.{}1", "0".repeat(100_000));
    let digits = "123456789".repeat(10_000);
    for text in [
        "18446744073709551616",
        "-9223372036854775809",
        "0.1000000000000000055511151231257827",
        "9007199254740993.5",
        "123456789012345678901234567890",
        "1.00000000000000000001",
        "1e309",
        "-1e309",
        "1e-400",
        "4e-324",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        &long,
        &tiny,
        &digits,
    ] {
        let said = refused(format!("{{\"a\":[0,{text}]}}").as_bytes());
        assert!(
            said.starts_with("/a/1: the number ") && said.contains("send it as a string"),
            "{said}"
        );
        assert!(said.len() < 200, "{said}");
    }
}

#[test]
fn malformed_numbers_are_rejected() {
    check(
        &[
            "01",
            "-",
            "-a",
            "1.",
            "1.e5",
            ".5",
            "+1",
            "1e",
            "1e+",
            "NaN",
            "Infinity",
            "-Infinity",
            "0x10",
            "1_000",
        ],
        expect![[r#"
            01  ->  expected the end, found '1', at byte 1
            -  ->  expected a digit, but the text ends, at byte 1
            -a  ->  expected a digit, found 'a', at byte 1
            1.  ->  expected a digit, but the text ends, at byte 2
            1.e5  ->  expected a digit, found 'e', at byte 2
            .5  ->  expected a value, found '.', at byte 0
            +1  ->  expected a value, found '+', at byte 0
            1e  ->  expected a digit, but the text ends, at byte 2
            1e+  ->  expected a digit, but the text ends, at byte 3
            NaN  ->  expected a value, found 'N', at byte 0
            Infinity  ->  expected a value, found 'I', at byte 0
            -Infinity  ->  expected a digit, found 'I', at byte 1
            0x10  ->  expected the end, found 'x', at byte 1
            1_000  ->  expected the end, found '_', at byte 1"#]],
    );
}

/// Values as people send them.
pub(crate) fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no others", |double| double.is_finite())
            .prop_map(Value::from),
        "[^\u{0}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map("[^\u{0}]{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn values_round_trip(value in values()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let read = parse(&text);
            prop_assert!(crate::core::identity::is_equivalent(&read, &value), "{text} -> {read}");
            // A value that was read is read again unchanged.
            prop_assert_eq!(parse(&read.to_string()), read);
        }
    }

    /// Texts that are nearly JSON: those accepted have the same value in serde_json, and those that
    /// serde_json rejects are rejected.
    #[test]
    fn invalid_json_is_rejected(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"\\u0041\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "1", "-", "0", ".5", "e3", "true", "null", " ", "\n", "\"", "\\",
        ]), 0..12),
    ) {
        let text = parts.concat();
        let theirs = serde_json::from_str::<Value>(&text);
        match (super::parse(text.as_bytes(), BOUNDS), theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert!(crate::core::identity::is_equivalent(&ours, &theirs), "{text}"),
            (Ok(ours), Err(error)) => prop_assert!(false, "{text} -> {ours}, but {error}"),
            (Err(_), Ok(_)) => {
                let is_twice = text.matches("\"a\"").count() + text.matches("A").count() > 1 || text.matches("\"b\"").count() > 1;
                prop_assert!(is_twice, "{text} is refused");
            }
            (Err(_), Err(_)) => {}
        }
    }

    /// Any number is accepted exactly if its text after parsing is numerically the text that was
    /// sent.
    #[test]
    fn a_number_is_read_if_nothing_is_lost(
        sign in prop::sample::select(vec!["", "-"]),
        whole in "0|[1-9][0-9]{0,24}",
        fraction in prop_oneof![Just(String::new()), "\\.[0-9]{1,24}"],
        exponent in prop_oneof![Just(String::new()), "[eE][+-]?[0-9]{1,3}"],
    ) {
        let text = format!("{sign}{whole}{fraction}{exponent}");
        let held = super::parse(text.as_bytes(), BOUNDS).ok().map(|value| value.to_string());
        let double: f64 = text.parse().unwrap();
        let nearest = if double.is_finite() { Some(exact(&format!("{double:e}"))) } else { None };
        let written = exact(&text);
        match held {
            Some(held) => prop_assert_eq!(exact(&held), written, "{}", text),
            None => prop_assert!(nearest.as_ref() != Some(&written), "{} is refused", text),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let ours = super::parse(&bytes, BOUNDS);
        if serde_json::from_slice::<Value>(&bytes).is_err() {
            prop_assert!(ours.is_err());
        }
    }
}

/// A decimal number as its sign, its digits without surrounding zeros, and its exponent, computed
/// from the text alone.
fn exact(text: &str) -> (bool, String, i64) {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().unwrap();
    let (whole, fraction) = number
        .trim_start_matches('-')
        .split_once('.')
        .unwrap_or((number.trim_start_matches('-'), ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let bare = digits.trim_end_matches('0');
    if bare.is_empty() {
        return (false, String::new(), 0);
    }
    let zeros = (digits.len() - bare.len()) as i64;
    (text.starts_with('-'), bare.to_owned(), exponent - fraction.len() as i64 + zeros)
}

//! What each type becomes in JSON.

use expect_test::{Expect, expect};

use super::*;

fn check(type_name: &str, text: &str, expected: Expect) {
    let oid = type_names::type_oid(type_name);
    let shown = serde_json::to_string(&to_cell(oid, Some(text.to_owned()))).unwrap();
    expected.assert_eq(&shown);
}

#[test]
fn values_are_what_json_keeps_exactly() {
    check("bool", "t", expect!["true"]);
    check("bool", "f", expect!["false"]);
    check("int2", "-32768", expect!["-32768"]);
    check("int8", "9007199254740991", expect!["9007199254740991"]);
    check("int8", "9007199254740992", expect![[r#""9007199254740992""#]]);
    check("int8", "-9223372036854775808", expect![[r#""-9223372036854775808""#]]);
    check("oid", "4294967295", expect!["4294967295"]);
    check("float4", "0.1", expect!["0.1"]);
    check("float8", "-0", expect!["-0.0"]);
    check("float8", "1e+300", expect!["1e+300"]);
    check("float8", "NaN", expect![[r#""NaN""#]]);
    check("float8", "-Infinity", expect![[r#""-Infinity""#]]);
    check("numeric", "1.10", expect![[r#""1.10""#]]);
    check("text", "{\"a\"", expect![[r#""{\"a\"""#]]);
    check("_int4", "{1,2}", expect![[r#""{1,2}""#]]);
    check("timestamptz", "2013-01-01 05:00:00+00", expect![[r#""2013-01-01 05:00:00+00""#]]);
}

#[test]
fn json_comes_as_it_is_stored() {
    check(
        "jsonb",
        r#"{"big": 12345678901234567890.123456789, "bigger": 1e999}"#,
        expect![[r#"{"big": 12345678901234567890.123456789, "bigger": 1e999}"#]],
    );
    check(
        "json",
        "[1,\n 2]",
        expect![[r#"
        [1,
         2]"#]],
    );
    check("json", " null ", expect!["null"]);
}

#[test]
fn null_and_unknown_types() {
    assert!(matches!(to_cell(16, None), Cell::Null));
    let answer = QueryAnswer {
        columns: vec![egret_branches::QueryColumn { name: "own".to_owned(), type_oid: 16_400 }],
        rows: vec![vec![Some("x".to_owned())], vec![None]],
        command: "SELECT 2".to_owned(),
        elapsed_ms: 1.5,
    };
    let shown = serde_json::to_string(&to_query_result(answer)).unwrap();
    expect![[r#"{"columns":[{"name":"own","type":"16400"}],"rows":[["x"],[null]],"command":"SELECT 2","elapsed_ms":1.5}"#]]
        .assert_eq(&shown);
}

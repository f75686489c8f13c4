//! Canonical identities, aliases and equality.

use expect_test::expect;
use serde_json::json;

use super::*;
use crate::core::json::{Bounds, parse};

fn identity(values: &[Value]) -> String {
    Identity::from_values(values).unwrap().as_str().to_owned()
}

#[test]
fn the_canonical_form() {
    let values =
        [json!("a \"quoted\"\\ä\n"), json!(1), json!(-2.5), json!(true), json!(false), json!("")];
    expect![[r#"["a \"quoted\"\\ä\n",1,-2.5,true,false,""]"#]].assert_eq(&identity(&values));
    assert_eq!(Identity::from_values(&values).unwrap().values(), values);
    // A text that looks like a number is a text, and parts are kept apart.
    assert_ne!(identity(&[json!("1")]), identity(&[json!(1)]));
    assert_ne!(identity(&[json!("a,b")]), identity(&[json!("a"), json!("b")]));
    assert_ne!(identity(&[json!("a\",\"b")]), identity(&[json!("a"), json!("b")]));
}

#[test]
fn equal_numbers_have_one_form() {
    let bounds = Bounds { bytes_max: 100, depth_max: 1 };
    for text in ["1", "1.0", "1e0", "10e-1"] {
        let strict = parse(text.as_bytes(), bounds).unwrap();
        let lax: Value = serde_json::from_str(text).unwrap();
        assert_eq!(identity(&[strict]), "[1]");
        assert_eq!(identity(&[lax]), "[1]", "{text}");
    }
    for (value, expected) in [
        (json!(-0.0), "[0]"),
        (json!(1e19), "[10000000000000000000]"),
        (json!(1e20), "[100000000000000000000]"),
        (json!(1.234_567_890_123_456_8e20), "[123456789012345680000]"),
        (json!(1e21), "[1e+21]"),
        (json!(-1.5e300), "[-1.5e+300]"),
        (json!(0.000_001), "[0.000001]"),
        (json!(1e-7), "[1e-7]"),
        (json!(-1.25e-9), "[-1.25e-9]"),
        (json!(0.1), "[0.1]"),
        (json!(i64::MIN), "[-9223372036854775808]"),
        (json!(u64::MAX), "[18446744073709551615]"),
    ] {
        assert_eq!(identity(&[value]), expected);
    }
}

#[test]
fn what_cannot_be_part_of_an_identity() {
    for (value, kind) in [(json!(null), "null"), (json!([]), "an array"), (json!({}), "an object")]
    {
        let error = Identity::from_values([&value]).unwrap_err();
        assert_eq!(error, format!("a part of an identity cannot be {kind}"));
    }
    let long = json!("x".repeat(IDENTITY_BYTES_MAX));
    let error = Identity::from_values([&long]).unwrap_err();
    assert_eq!(error, "an identity has at most 4096 bytes");
}

/// These aliases are stored in databases: they must never change.
#[test]
fn aliases_never_change() {
    let airports = Namespace::for_collection(&"airports".parse().unwrap());
    let airlines = Namespace::for_collection(&"airlines".parse().unwrap());
    let ewr = Identity::from_values([&json!("EWR")]).unwrap();
    expect!["b905ca7b-ca25-58e5-9d27-79c9f12e80e1"].assert_eq(&airports.alias(&ewr).to_string());
    assert_ne!(airports.alias(&ewr), airlines.alias(&ewr));
    assert_eq!(airports.alias(&ewr).0.get_version_num(), 5);
    assert_eq!(
        airports.alias(&Identity::from_stored("[\"EWR\"]".to_owned())),
        airports.alias(&ewr)
    );
}

#[test]
fn equality_ignores_property_order_and_number_form() {
    let text = r#"{"a":1,"b":[1.5,{"c":null,"d":2}]}"#;
    let same =
        [r#"{"b":[1.5,{"d":2,"c":null}],"a":1}"#, r#"{"b":[1.50,{"d":2.0,"c":null}],"a":1e0}"#];
    let other = [
        r#"{"a":1,"b":[1.5,{"c":null}]}"#,
        r#"{"a":1,"b":[1.5,{"c":null,"d":3}]}"#,
        r#"{"a":1,"b":[{"c":null,"d":2},1.5]}"#,
        r#"{"a":"1","b":[1.5,{"c":null,"d":2}]}"#,
        r#"{"a":1,"b":[1.5,{"c":null,"d":2}],"e":null}"#,
        r#"{"a":1,"b":[1.5,{"c":null,"e":2}]}"#,
        "[]",
    ];
    let value: Value = serde_json::from_str(text).unwrap();
    for text in same {
        assert!(is_equivalent(&value, &serde_json::from_str(text).unwrap()), "{text}");
    }
    for text in other {
        assert!(!is_equivalent(&value, &serde_json::from_str(text).unwrap()), "{text}");
        assert!(!is_equivalent(&serde_json::from_str(text).unwrap(), &value), "{text}");
    }
    assert!(!is_equivalent(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_f64)));
}

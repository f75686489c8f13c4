//! What is refused before PostgreSQL sees it.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Fields {
    #[serde(deserialize_with = "sql_text")]
    statement: String,
    #[serde(default, deserialize_with = "sql_text")]
    owner: Option<String>,
    #[serde(default, deserialize_with = "sql_text")]
    roles: Vec<String>,
}

#[test]
fn a_nul_is_refused_wherever_it_stands() {
    let read = |text: &str| serde_json::from_str::<Fields>(text).map_err(|error| error.to_string());
    let fields = read(r#"{"statement": "select 1", "owner": null}"#).unwrap();
    assert_eq!(fields.statement, "select 1");
    assert_eq!((fields.owner, fields.roles.len()), (None, 0));
    for text in [
        r#"{"statement": "select \u0000"}"#,
        r#"{"statement": "select 1", "owner": "\u0000"}"#,
        r#"{"statement": "select 1", "roles": ["app", "a\u0000b"]}"#,
    ] {
        let refused = read(text).err().unwrap();
        assert!(refused.contains("cannot store U+0000"), "{text}: {refused}");
    }
}

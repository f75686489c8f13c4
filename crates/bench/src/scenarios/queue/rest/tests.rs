//! What is read of an answer.

use super::*;

#[test]
fn a_field_is_found() {
    let json = r#"{"items":[{"id":"q1","queue":"rest","payload":"0017","lease":"abc"}]}"#;
    assert_eq!(json_string_field(json, "id"), Some("q1"));
    assert_eq!(json_string_field(json, "lease"), Some("abc"));
    assert_eq!(json_string_field(json, "payload"), Some("0017"));
    assert_eq!(json_string_field(json, "tags"), None);
}

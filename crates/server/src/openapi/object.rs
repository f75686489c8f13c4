//! Objects within the document, made where they are missing.

use serde_json::{Map, Value, json};

pub(super) fn object_at<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let object = value.as_object_mut().expect("a document is an object");
    object_at_map(object, key)
}

pub(super) fn object_at_map<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
) -> &'a mut Map<String, Value> {
    let value = object.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was just inserted as an object")
}

//! Where JSON is wrong is said by line and column, or by field.

use std::convert::Infallible;

use futures_util::stream;
use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the fields are only there to be read into")]
struct Order {
    name: String,
    items: Vec<u32>,
}

fn parse_error(text: &str) -> String {
    read_json::<Order>(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn says_where_json_is_wrong() {
    let table = [
        ("", "is empty"),
        ("{\"name\": \"a\",\n \"items\": [1,]}", "line 2 column 14"),
        ("{\"name\": \"a\", \"items\": [1, -2]}", "items[1]: invalid value"),
        ("{\"name\": 7, \"items\": []}", "name: invalid type"),
        ("{\"nam\": \"a\", \"items\": []}", "unknown field `nam`"),
        ("{\"name\": \"a\"}", "missing field `items`"),
        ("[]", "body"),
        ("{\"name\": \"a\", \"items\": []} x", "trailing characters"),
    ];
    for (text, expected) in table {
        let message = parse_error(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn takes_json_by_any_of_its_names() {
    let check = |text: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(text));
        check_content_type(&headers).is_ok()
    };
    assert!(check("application/json; charset=utf-8"));
    assert!(check("Application/JSON"));
    assert!(check("application/merge-patch+json"));
    assert!(!check("text/plain"));
    assert!(!check("application/jsonish"));
    assert!(check_content_type(&HeaderMap::new()).is_err());
}

#[tokio::test]
async fn a_body_of_unknown_length_is_bounded_from_its_first_frame_on() {
    let read = async |frames: &[&'static str]| {
        let frames: Vec<_> = frames.iter().map(|text| Ok::<_, Infallible>(*text)).collect();
        let request = Request::new(Body::from_stream(stream::iter(frames)));
        read_bounded(request, Limit::new("test.bytes_max", 4)).await.ok()
    };
    assert_eq!(read(&["abcd"]).await.as_deref(), Some(&b"abcd"[..]));
    assert_eq!(read(&["ab", "", "cd"]).await.as_deref(), Some(&b"abcd"[..]));
    for frames in [&["abcde"][..], &["", "abcde"], &["abc", "de"], &["ab", "cd", "e"]] {
        assert_eq!(read(frames).await, None, "{frames:?}");
    }
}

//! Against plain maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn labels_are_shown_as_promql_writes_them() {
    let check = |pairs: &[(&str, &str)], expected: &str| {
        assert_eq!(Labels::new(pairs.iter().copied()).to_string(), expected);
    };
    check(&[], "{}");
    check(&[("__name__", "up")], "up");
    check(&[("__name__", "a:b"), ("job", "x\"y\n")], r#"a:b{job="x\"y\n"}"#);
    check(&[("__name__", "http.ok"), ("a-b", "c")], r#"{"http.ok", "a-b"="c"}"#);
    check(&[("b", "2"), ("a", "1"), ("c", "")], r#"{a="1", b="2"}"#);
}

#[test]
fn what_is_no_key_is_told() {
    let key = Labels::new([("a", "1"), ("b", &"x".repeat(200))]);
    let key = key.as_key();
    for cut in 1..key.len() {
        let is_whole_label = cut == 8;
        assert_eq!(Labels::from_key(&key[..cut]).is_some(), is_whole_label, "{cut}");
    }
    let no = |key: &str| assert_eq!(Labels::from_key(key), None, "{key:?}");
    no("\n\u{6}\n\u{1}b\u{12}\u{1}1\n\u{6}\n\u{1}a\u{12}\u{1}1");
    no("\n\u{5}\n\u{1}b\u{12}\0");
    no("\u{b}\u{1}a\u{1}1");
    no("\n\u{7}\n\u{1}b\u{12}\u{1}1");
}

proptest! {
    #[test]
    fn they_are_a_sorted_map(pairs in prop::collection::vec((".{0,70}", ".{0,5000}"), 0..8)) {
        let all = pairs.iter().map(|(name, value)| (&**name, &**value));
        let mut map: BTreeMap<&str, &str> = all.clone().collect();
        map.retain(|_, value| !value.is_empty());
        let labels = Labels::new(all);
        prop_assert!(labels.iter().eq(map.iter().map(|(name, value)| (*name, *value))));
        for (name, value) in &map {
            prop_assert_eq!(labels.get(name), *value);
        }
        prop_assert_eq!(labels.get("not there, surely"), "");
        prop_assert_eq!(&LabelsBuilder::from_labels(&labels).build(), &labels);
        prop_assert_eq!(Labels::from_key(labels.as_key()), Some(labels));
    }
}

//! Limits of definitions that are settings.

use expect_test::expect;
use serde_json::json;

use crate::config::DocumentsConfig;
use crate::core::definition::limits::check_limits;
use crate::core::definition::tests::{given, lines};

#[test]
fn settings_limit_what_is_declared() {
    let paths: Vec<String> = (0..20).map(|number| format!("/p{number}")).collect();
    let file = json!({"collections": [{"collection": "a", "abstract": true, "identity": paths}]});
    let check = |identity_paths_max: u32| {
        let config = DocumentsConfig { identity_paths_max, ..DocumentsConfig::default() };
        check_limits(&given(&file), &config)
    };
    assert!(check(20).is_ok());
    assert!(check_limits(&given(&file), &DocumentsConfig::default()).is_ok());
    expect!["/collections/0/identity: there are 20, more than the maximum of 19 (`documents.identity_paths_max`)"]
        .assert_eq(&lines(check(19).unwrap_err()));
}

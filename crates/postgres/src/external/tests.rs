//! Connection strings; the checks themselves run against real servers in `tests/it`.

use super::*;

#[test]
fn a_wrong_connection_string_is_refused_without_repeating_it() {
    let error = parse("postgres://me:secret@host:notaport/db", "test").unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("postgres.url is not a connection string")
    );
}

#[test]
fn the_application_is_named_after_the_engine() {
    let connection = parse("host=localhost user=me", "views").unwrap();
    assert_eq!(connection.get_application_name(), Some("egret/views"));
}

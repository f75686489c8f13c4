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

#[test]
fn of_several_hosts_the_primary_is_wanted_and_none_is_waited_for_without_bound() {
    let connection = parse("postgres://me@one:1,two:2/db", "serve").unwrap();
    assert_eq!(
        connection.get_target_session_attrs(),
        TargetSessionAttrs::ReadWrite
    );
    assert_eq!(connection.get_connect_timeout(), Some(&CONNECT_TIMEOUT));
    assert_eq!(connection.get_tcp_user_timeout(), Some(&UNACKNOWLEDGED_MAX));
    assert_eq!(connection.get_keepalives_idle(), KEEPALIVE_IDLE);
    let said = "host=one connect_timeout=3 keepalives_idle=7 tcp_user_timeout=5";
    let connection = parse(said, "serve").unwrap();
    assert_eq!(
        connection.get_target_session_attrs(),
        TargetSessionAttrs::Any
    );
    let seconds = Duration::from_secs;
    assert_eq!(connection.get_connect_timeout(), Some(&seconds(3)));
    assert_eq!(connection.get_tcp_user_timeout(), Some(&seconds(5)));
    assert_eq!(connection.get_keepalives_idle(), seconds(7));
}

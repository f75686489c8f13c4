//! Connection strings; the checks themselves run against real servers in `tests/it`.

use super::*;

#[test]
fn a_wrong_connection_string_is_refused_without_repeating_it() {
    let error = parse("postgres://me:secret@host:notaport/db", "test").unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(error.to_string().starts_with("postgres.url is not a connection string"));
}

#[test]
fn the_application_is_named_after_the_engine() {
    let connection = parse("host=localhost user=me", "views").unwrap();
    assert_eq!(connection.get_application_name(), Some("egret/views"));
}

#[test]
fn of_several_hosts_the_primary_is_wanted_and_none_is_waited_for_without_bound() {
    let connection = parse("postgres://me@one:1,two:2/db", "serve").unwrap();
    assert_eq!(connection.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    assert_eq!(connection.get_connect_timeout(), Some(&CONNECT_TIMEOUT));
    assert_eq!(connection.get_tcp_user_timeout(), Some(&UNACKNOWLEDGED_MAX));
    assert_eq!(connection.get_keepalives_idle(), KEEPALIVE_IDLE);
    let said = "host=one connect_timeout=3 keepalives_idle=7 tcp_user_timeout=5000";
    let connection = parse(said, "serve").unwrap();
    assert_eq!(connection.get_target_session_attrs(), TargetSessionAttrs::Any);
    let seconds = Duration::from_secs;
    assert_eq!(connection.get_connect_timeout(), Some(&seconds(3)));
    assert_eq!(connection.get_tcp_user_timeout(), Some(&seconds(5)));
    assert_eq!(connection.get_keepalives_idle(), seconds(7));
}

#[test]
fn parameters_of_managed_services_are_understood() {
    let with = |query: &str| parse(&format!("postgres://u:p@127.0.0.1:5/db?{query}"), "test");
    use tokio_postgres::config::SslMode;
    for (query, mode) in [
        ("sslmode=disable", SslMode::Disable),
        ("sslmode=allow", SslMode::Prefer),
        ("sslmode=verify-full", SslMode::Require),
        ("sslmode=verify-ca", SslMode::Require),
        ("sslrootcert=system", SslMode::Require),
        ("gssencmode=disable&channel_binding=prefer&connect_timeout=3", SslMode::Prefer),
    ] {
        assert_eq!(with(query).unwrap().get_ssl_mode(), mode, "{query}");
    }
    for (query, reason) in [
        ("sslmode=sometimes", "sslmode `sometimes` is not one of"),
        ("sslmode=verify-ca&sslrootcert=/nonexistent/rds.pem", "sslrootcert /nonexistent/rds.pem"),
        ("sslcert=a", "sslcert and sslkey must be set together"),
        ("sslcert=/nonexistent/a&sslkey=/nonexistent/b", "sslcert /nonexistent/a"),
        ("ssl_min_protocol_version=TLSv1.4", "ssl_min_protocol_version is `tlsv1.4`"),
        (
            "ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2",
            "no version of TLS is left",
        ),
        ("colour=red", "colour"),
    ] {
        let error = with(query).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(reason), "{query}: {error}");
    }
    let missing = parse("postgres://u@h/db?passfile=/nonexistent/pgpass", "test").unwrap_err();
    assert!(missing.to_string().contains("passfile /nonexistent/pgpass"), "{missing}");
    let local = parse("postgres:///app", "test").unwrap();
    assert_eq!(local.get_hosts().len(), 1);
    assert_eq!(local.get_dbname(), Some("app"));
}

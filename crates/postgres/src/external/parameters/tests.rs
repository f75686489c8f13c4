//! Connection strings in their two forms, and what completes them.

use super::*;

fn text(string: &str) -> String {
    let none = |_: &str| None;
    match parse(string, &none).and_then(|mut found| adapt_for_driver(&mut found).map(|()| found)) {
        Ok(found) => to_keywords(&found).trim_end().to_owned(),
        Err(error) => error,
    }
}

#[test]
fn urls_and_keywords_are_read_alike() {
    for (string, expected) in [
        (
            "postgres://me:p%40s%27s@one:1,[::1]:2/app?options=-c%20a%3Db",
            r"dbname='app' host='one,::1' options='-c a=b' password='p@s\'s' port='1,2' user='me'",
        ),
        ("postgresql://%2Fvar%2Frun/app", "dbname='app' host='/var/run'"),
        (r"host = 'a b' password=x\ y user='it\'s'", r"host='a b' password='x y' user='it\'s'"),
        ("host=h ssl", "a word is not of the form `name=value`"),
        ("host=h gssencmode=disable application_name=x", "host='h'"),
        (
            "host=h gssencmode=require",
            "gssencmode is `require`, which Egret does not support: use disable, prefer",
        ),
        ("host=h target_session_attrs=primary", "host='h' target_session_attrs='read-write'"),
        (
            "host=h min_protocol_version=3.0 max_protocol_version=latest keepalives_count=3",
            "host='h' keepalives_retries='3'",
        ),
        ("host=h keepalives_count=0", "host='h'"),
        ("postgres://h/d?min_protocol_version=3.0&max_protocol_version=3.2", "dbname='d' host='h'"),
        (
            "host=h min_protocol_version=3.2",
            "min_protocol_version is `3.2`, which Egret does not support: use 3.0",
        ),
        (
            "host=h channel_binding=always",
            "channel_binding `always` is not one of disable, prefer, require",
        ),
        ("host=h load_balance_hosts=yes", "load_balance_hosts `yes` is not one of disable, random"),
        ("postgres://h/d?sslcrl=x", "sslcrl is not supported: remove it"),
    ] {
        assert_eq!(text(string), expected, "{string}");
    }
}

#[test]
fn a_service_file_and_variables_complete_a_string() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("services");
    std::fs::write(&path, "# mine\n[other]\nhost=no\n[app]\nhost=db\nuser = me\n\n[last]\n")
        .unwrap();
    let variable = |name: &str| match name {
        "PGSERVICEFILE" => Some(path.display().to_string()),
        "PGUSER" => Some("late".to_owned()),
        "PGPASSWORD" => Some("secret".to_owned()),
        _ => None,
    };
    let found = parse("service=app dbname=d", &variable).unwrap();
    assert_eq!(to_keywords(&found).trim_end(), "dbname='d' host='db' password='secret' user='me'");
    let error = parse("service=none", &variable).unwrap_err();
    assert_eq!(error, "service `none` is not defined in any service file");
}

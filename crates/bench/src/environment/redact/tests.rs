//! Nothing secret gets into a result.

use super::*;

fn check(word: &str, expected: &str) {
    assert_eq!(redact_word(word), expected);
}

#[test]
fn passwords_are_masked() {
    check("postgres://a:secret@h/db", "postgres://a:***@h/db");
    check("--url=postgres://a:se:c@ret@h:5432/db?x=1", "--url=postgres://a:***@h:5432/db?x=1");
    check("postgres://a@h/db?password=secret&x=1", "postgres://a@h/db?password=***&x=1");
    check("host=h password=secret dbname=x", "host=h password=*** dbname=x");
    check("host=h PassWord='se cr\\'et' dbname=x", "host=h PassWord=*** dbname=x");
    check("password='never closed", "password=***");
    // A client takes everything before the first `@` for credentials.
    check("postgres://u:pa/ss@h/db", "postgres://u:***@h/db");
    check("postgres://u:pa?ss@h/db", "postgres://u:***@h/db");
    check("postgres://u:p@ss/word@h/db", "postgres://u:***@h/db");
    check("postgres://u:pa ss@h/db", "postgres://u:***@h/db");
    check("host=h password = x dbname=y", "host=h password = *** dbname=y");
    check("host=h password\t=\n'a b' dbname=y", "host=h password\t=\n*** dbname=y");
    check("password=a\\ b\\' dbname=y", "password=*** dbname=y");
    check("password=a&b dbname=y", "password=*** dbname=y");
    check("sslpassword=x PASSWD=y", "sslpassword=*** PASSWD=***");
    check("postgres://h/db?password=a b&x=1", "postgres://h/db?password=***&x=1");
    check("password = ", "password = ***");
    check("passwordless=x the password", "passwordless=x the password");
    check("postgres://h/db", "postgres://h/db");
    check("postgres.url=postgres://a:b@h", "postgres.url=postgres://a:***@h");
    check("--file", "--file");
    let words = ["egret".to_owned(), "host=h password=x".to_owned()];
    assert_eq!(redact(&words), "egret 'host=h password=***'");
}

#[test]
fn settings_are_masked_by_name_and_by_form() {
    let check = |key: &str, value: &str, expected: &str| {
        assert_eq!(redact_setting(key, value), expected, "{key}");
    };
    check("postgres.url", "postgres://a:b@h", "postgres://a:***@h");
    check("telemetry.token", "x y", "***");
    check("x.dsn", "host=h password=x", "host=h password=***");
    check("server.port", "7070", "7070");
}

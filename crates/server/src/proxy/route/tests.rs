//! Where a branch may be written, what is left of the options, and what is refused.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn read(parameters: &[(&str, &str)]) -> Result<SessionRequest, ConnectionRefusal> {
    let owned = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    SessionRequest::parse(owned.collect())
}

fn check(database: &str, options: &str, expected: Expect) {
    let text = match read(&[("user", "u"), ("database", database), ("options", options)]) {
        Ok(wish) => {
            format!("{} in {} with {:?}", wish.route.database, wish.route.branch, wish.parameters)
        }
        Err(refusal) => format!("{} {}", refusal.sqlstate, refusal.message),
    };
    expected.assert_eq(&text);
}

#[test]
fn the_branch_stands_in_the_database_or_the_options() {
    check("app@pr-42", "", expect!["app in pr-42 with []"]);
    check("a@b@pr-42", "", expect!["a@b in pr-42 with []"]);
    check("app", "-c egret.branch=pr-42", expect!["app in pr-42 with []"]);
    check("app", "-cEgret.Branch=pr-42", expect!["app in pr-42 with []"]);
    check("app", "--egret.branch=pr-42", expect!["app in pr-42 with []"]);
    check("app@pr-42", "-c egret.branch=pr-42", expect!["app in pr-42 with []"]);
}

#[test]
fn other_options_stay() {
    check(
        "app",
        r"-c  geqo=off --egret.branch=x -c search_path=a\ b\\c -B 4",
        expect![[r#"app in x with [("options", "-c geqo=off -c search_path=a\\ b\\\\c -B 4")]"#]],
    );
    check(
        "app@x",
        r"  -c   geqo=off ",
        expect![[r#"app in x with [("options", "  -c   geqo=off ")]"#]],
    );
    check("app@x", "-c", expect![[r#"app in x with [("options", "-c")]"#]]);
}

#[test]
fn with_the_branch_option_a_database_name_is_not_split() {
    check("Weird@DB", "-c egret.branch=y", expect![[r#"Weird@DB in y with []"#]]);
    check("app@y", "-c egret.branch=y", expect![[r#"app in y with []"#]]);
}

#[test]
fn says_what_is_missing() {
    check("app", "", expect![[r#"3D000 "app" names no branch"#]]);
    check("app@", "", expect![[r#"3D000 "app@" names no branch"#]]);
    check("@x", "", expect![[r#"3D000 "@x" names no database"#]]);
    check("", "", expect![[r#"3D000 "u" names no branch"#]]);
    let refusal = read(&[("user", "u"), ("database", "shop")]).unwrap_err();
    let hint = refusal.hint.unwrap();
    assert!(hint.contains("\"shop@pr-42\""), "{hint}");
    assert_eq!(read(&[("database", "app@x")]).unwrap_err().sqlstate, "28000");
}

#[test]
fn replication_is_refused_and_its_denial_is_not() {
    for yes in ["true", "on", "1", "database", "o", ""] {
        let refusal = read(&[("user", "u"), ("database", "a@x"), ("replication", yes)]);
        assert_eq!(refusal.unwrap_err().sqlstate, "0A000", "{yes}");
    }
    for no in ["false", "f", "no", "OFF", "of", "0"] {
        let wish = read(&[("user", "u"), ("database", "a@x"), ("replication", no)]);
        assert_eq!(wish.unwrap().parameters, [], "{no}");
    }
}

#[test]
fn the_clients_own_settings_are_forwarded() {
    let wish = read(&[
        ("application_name", "psql"),
        ("database", "app@x"),
        ("DateStyle", "ISO"),
        ("user", "u"),
    ]);
    let forwarded = wish.unwrap().parameters;
    let expected = [("DateStyle", "ISO"), ("application_name", "psql")];
    assert_eq!(forwarded, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

proptest! {
    #[test]
    fn escaped_words_come_back(words in prop::collection::vec("[a-z \\\\\t=-]{1,8}", 0..5)) {
        let escaped: Vec<String> = words.iter().map(|word| escape_option(word)).collect();
        prop_assert_eq!(split_options(&escaped.join(" ")), words);
    }

    #[test]
    fn nothing_panics(database in ".{0,20}", options in ".{0,40}") {
        let _ = read(&[("user", "u"), ("database", &database), ("options", &options)]);
    }
}

//! Which database is meant, and what is said when none is.

use expect_test::{Expect, expect};

use super::*;

fn check(asked: Option<&str>, names: &[&str], expected: Expect) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let chosen =
        choose(asked, names).unwrap_or_else(|error| format!("error: {}", error.with_names()));
    expected.assert_eq(&chosen);
}

#[test]
fn the_database_asked_for_is_chosen_if_it_exists() {
    check(Some("shop"), &["postgres", "shop"], expect!["shop"]);
    check(Some("postgres"), &["postgres", "shop"], expect!["postgres"]);
    check(
        Some("ship"),
        &["postgres", "shop"],
        expect!["error: `ship` does not exist; there are: postgres, shop"],
    );
}

#[test]
fn without_a_name_it_is_the_only_one_besides_the_servers_own() {
    check(None, &["postgres"], expect!["postgres"]);
    check(None, &["postgres", "shop"], expect!["shop"]);
    check(None, &["shop"], expect!["shop"]);
    check(
        None,
        &["postgres", "shop", "weather"],
        expect![
            "error: there are several databases: choose one with --database, in the API with `database`: shop, weather"
        ],
    );
}

#[tokio::test]
async fn a_connection_string_names_one_database() {
    for (text, expected) in [
        ("host=db dbname=shop user=anna", "shop"),
        ("host=db user=anna", "anna"),
        ("host=db", "postgres"),
    ] {
        let databases = Databases::single(text.parse().unwrap());
        assert!(databases.is_remote());
        assert_eq!(databases.names().await.unwrap(), [expected]);
        assert_eq!(databases.choose(None).await.unwrap(), expected);
        let refused = databases.choose(Some("another")).await.unwrap_err();
        assert!(matches!(refused, DatabasesError::Unknown { .. }));
    }
}

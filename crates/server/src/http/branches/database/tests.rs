//! One database is chosen, none is postgres, several are named.

use expect_test::{Expect, expect};

use super::*;

fn check(databases: &[&str], expected: Expect) {
    let databases = databases.iter().map(|name| (*name).to_owned()).collect();
    let chosen = only_database(databases).unwrap_or_else(|error| error.to_string());
    expected.assert_eq(&chosen);
}

#[test]
fn the_only_database_is_meant() {
    check(&["flights", "postgres"], expect!["flights"]);
    check(&["postgres"], expect!["postgres"]);
    check(
        &["flights", "postgres", "weather"],
        expect!["database: the branch has `flights`, `weather`: name one"],
    );
}

//! Rows without a test and tests that do not exist are found; other tables are left alone.

use super::*;

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let page = file(
        PAGE,
        "| party | trusted |\n|---|---|\n| root | all |\n\n\
         | promise | test |\n|---|---|\n\
         | A token of `x` ends. | `egret::attack::tokens::it_ends` |\n\
         | Two tests. | `egret::attack::tokens::it_ends`, `server::gone` |\n\
         | None. | by hand |\n\n| after | table |\n",
    );
    let files = [
        file("crates/egret/tests/it/attack/tokens.rs", "fn it_ends() {}"),
        file("crates/server/src/gone.rs", "fn gone() {}"),
    ];
    let found: Vec<String> = check(&page, &files).iter().map(Finding::to_string).collect();
    assert_eq!(
        found,
        [
            "docs/security.md:8: no-such-test: server::gone",
            "docs/security.md:9: untested-promise: | None. | by hand |",
        ]
    );
}

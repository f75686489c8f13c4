//! What users see of errors that come from below the engine.

use egret_base::Rhythm;
use expect_test::{Expect, expect};

use super::*;

fn check(error: impl Into<QueueError>, expected: Expect) {
    let error = error.into();
    expected.assert_eq(&format!("{}: {error}", error.code()));
}

#[test]
fn rhythms_are_refused_by_the_part_that_is_wrong() {
    check(
        Rhythm::new("61 * * * *", "").unwrap_err(),
        expect!["invalid_request: cron: `61 * * * *`: Component error: Number out of bounds."],
    );
    check(
        Rhythm::new("* * * * *", "Mars/Base").unwrap_err(),
        expect![
            "invalid_request: time_zone: `Mars/Base` is not one of the IANA database, such as Europe/Zurich"
        ],
    );
}

#[test]
fn databases_are_refused_by_name() {
    let names = || vec!["shop".to_owned(), "weather".to_owned()];
    check(
        DatabasesError::Several { names: names() },
        expect!["invalid_request: database: there are several: name one of them: shop, weather"],
    );
    check(
        DatabasesError::Unknown {
            asked: "ship".to_owned(),
            names: names(),
        },
        expect!["invalid_request: database: `ship` does not exist; there are: shop, weather"],
    );
}

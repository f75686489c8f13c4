//! What users see of errors that come from below the engine.

use egret_base::CronSchedule;
use expect_test::{Expect, expect};

use super::*;

fn check(error: impl Into<QueueError>, expected: Expect) {
    let error = error.into();
    expected.assert_eq(&format!("{}: {error}", error.code()));
}

#[test]
fn rhythms_are_refused_by_the_part_that_is_wrong() {
    check(
        CronSchedule::new("61 * * * *", "").unwrap_err(),
        expect!["invalid_request: cron: `61 * * * *`: Component error: Number out of bounds."],
    );
    check(
        CronSchedule::new("* * * * *", "Mars/Base").unwrap_err(),
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
        expect![
            "invalid_request: database: there are several databases: choose one with --database, in the API with `database`: shop, weather"
        ],
    );
    check(
        DatabasesError::Unknown { asked: "ship".to_owned(), names: names() },
        expect!["database_not_found: database: `ship` does not exist; there are: shop, weather"],
    );
}

#[test]
fn only_limits_of_what_goes_by_itself_are_worth_another_attempt() {
    let of = |name: &'static str| QueueError::Limit(LimitExceeded { name, max: 1, asked: 2 });
    for name in PERMANENT_LIMITS {
        let error = of(name);
        assert_eq!((error.kind(), error.retryable()), (Kind::LimitReached, false));
    }
    for name in ["queue.tasks_max", "queue.tenant_tasks_max", "queue.waiting_max"] {
        assert!(of(name).retryable(), "{name}");
    }
}

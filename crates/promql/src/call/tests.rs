//! The calendar, against dates that are known.

use super::super::{EvalOptions, MemorySource, Query, QueryResult, SampleValue};

fn at(function: &str, seconds: i64) -> f64 {
    let query = Query::parse(&format!("{function}(vector({seconds}))")).expect("PromQL");
    let answer = query.instant(&MemorySource::default(), 0, &EvalOptions::default());
    match answer.expect("an answer").result {
        QueryResult::Vector(samples) => match samples[0].value {
            SampleValue::Float(value) => value,
            SampleValue::Histogram(_) => panic!("a time is a number"),
        },
        other => panic!("expected a vector, found {other:?}"),
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    // 2000-02-29T00:00:00Z, 1900-03-01, 2100-02-28T23:59:59Z, 1969-12-31T23:59:59Z.
    for (seconds, date, week_day, year_day, days) in [
        (951_782_400, 20_000_229.0, 2.0, 60.0, 29.0),
        (-2_203_891_200, 19_000_301.0, 4.0, 60.0, 31.0),
        (4_107_542_399, 21_000_228.0, 0.0, 59.0, 28.0),
        (-1, 19_691_231.0, 3.0, 365.0, 31.0),
    ] {
        let found =
            at("year", seconds) * 1e4 + at("month", seconds) * 100.0 + at("day_of_month", seconds);
        assert_eq!(found, date);
        assert_eq!(at("day_of_week", seconds), week_day, "{date}");
        assert_eq!(at("day_of_year", seconds), year_day, "{date}");
        assert_eq!(at("days_in_month", seconds), days, "{date}");
    }
    assert_eq!((at("hour", -1), at("minute", -1)), (23.0, 59.0));
}

#[test]
fn what_is_no_time_has_its_place_in_the_calendar() {
    let of = |function: &str, argument: &str| {
        let query = Query::parse(&format!("{function}(vector({argument}))")).expect("PromQL");
        let answer = query.instant(&MemorySource::default(), 0, &EvalOptions::default());
        match answer.expect("an answer").result {
            QueryResult::Vector(samples) => samples[0].value.clone(),
            other => panic!("expected a vector, found {other:?}"),
        }
    };
    // The smallest number of 64 bits, counted in seconds from 1970.
    for argument in ["NaN", "Inf", "-Inf", "1e300", "9223372036854775808"] {
        for (function, value) in [
            ("minute", 30.0),
            ("hour", 15.0),
            ("day_of_month", 4.0),
            ("month", 12.0),
            ("year", 292_277_026_596.0),
        ] {
            let found = of(function, argument);
            assert_eq!(found, SampleValue::Float(value), "{function}({argument})");
        }
    }
    assert_eq!(of("year", "253402300800"), SampleValue::Float(10_000.0));
}

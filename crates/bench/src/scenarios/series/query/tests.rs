//! What is asked about when.

use super::*;

const FLEET: Fleet = Fleet { seed: 5, series: 3_000, begin_ms: 1_795_000_020_000 };

const ACKNOWLEDGED: u64 = 2 * 5_760;

#[test]
fn only_samples_that_are_there_are_asked_about() {
    for acknowledged in [100, 400, ACKNOWLEDGED] {
        for number in 0..2_000 {
            let query = SeriesQuery::choose(&FLEET, number, acknowledged).unwrap();
            let moments = query.moments.to_vec();
            assert_eq!(moments.first(), Some(&query.moments.first_ms()));
            assert_eq!(moments.last(), Some(&query.moments.last_ms()));
            assert!(query.moments.last_ms() <= FLEET.step_ms(acknowledged));
            let reached_ms = query.moments.first_ms() - query.expr.lookback_ms();
            assert!(reached_ms >= FLEET.begin_ms, "{}", query.expr);
            // Where no sample ever is, and where subqueries are not evaluated.
            assert_eq!(query.moments.last_ms() % INTERVAL_MS, 0);
            let instant = matches!(query.moments, EvalTimes::One(_));
            assert_eq!(query.moments.last_ms() % MINUTE_MS == 0, !instant, "{}", query.expr);
        }
    }
    assert!(SeriesQuery::choose(&FLEET, 0, 3).is_none());
}

#[test]
fn most_are_about_the_last_hour() {
    let hour_ago_ms = FLEET.step_ms(ACKNOWLEDGED) - HOUR_MS;
    let queries: Vec<SeriesQuery> = (0..5_000)
        .map(|number| SeriesQuery::choose(&FLEET, number, ACKNOWLEDGED).unwrap())
        .collect();
    for query in &queries {
        let recent = query.moments.last_ms() > hour_ago_ms;
        assert_eq!(recent, query.is_hot, "{:?}", query.moments);
    }
    let hot = queries.iter().filter(|query| query.is_hot).count() as f64 / 5_000.0;
    assert!((0.78..0.82).contains(&hot), "{hot}");
    let kinds: std::collections::BTreeSet<usize> = queries.iter().map(|query| query.kind).collect();
    assert_eq!(kinds.len(), KINDS.len());
}

#[test]
fn the_same_number_is_the_same_query() {
    let text = |number| SeriesQuery::choose(&FLEET, number, ACKNOWLEDGED).unwrap().path("/api/v1");
    assert_eq!(text(77), text(77));
    assert_ne!(text(77), text(77 + KINDS.len() as u64));
}

#[test]
fn a_path_is_escaped() {
    let query = SeriesQuery {
        kind: 0,
        expr: super::super::expression::Selector::new("up").with_label("job", "a b/c").latest(),
        moments: EvalTimes::Each(1_795_000_000_000, 1_795_000_060_000, 15_000),
        is_hot: true,
    };
    assert_eq!(
        query.path("/api/v1"),
        "/api/v1/query_range?query=up%7Bjob%3D%22a%20b%2Fc%22%7D&start=1795000000&end=1795000060&step=15"
    );
}

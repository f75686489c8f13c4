//! Every kind can be asked and hits data.

use std::collections::BTreeSet;

use super::super::evaluate::Catalog;
use super::super::query::SeriesQuery;
use super::*;

#[test]
fn there_are_enough_and_no_two_are_the_same() {
    let fleet = fleet();
    let place = LabelValues::new(&fleet, 1);
    let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
    let texts: BTreeSet<_> =
        KINDS.iter().map(|kind| format!("{:?} {}", kind.form, kind.expr_for(&place))).collect();
    assert!(KINDS.len() >= 48, "{} kinds", KINDS.len());
    assert_eq!((names.len(), texts.len()), (KINDS.len(), KINDS.len()));
}

/// Two days of a fleet that fills its last node in part.
const ACKNOWLEDGED: u64 = 2 * 5_760;

fn fleet() -> Fleet {
    Fleet { seed: 3, series: 3_000, begin_ms: 1_795_000_020_000 }
}

#[test]
fn every_kind_has_an_answer_wherever_it_is_asked() {
    let catalog = Catalog::new(fleet());
    for (kind, known) in KINDS.iter().enumerate() {
        for random in 0..4 {
            let query =
                SeriesQuery::of_kind(catalog.fleet(), kind, mix(9, random), ACKNOWLEDGED).unwrap();
            let got = catalog.evaluate(&query.expr, query.moments.last_ms());
            assert!(!got.is_empty(), "{}: {}", known.name, query.expr);
            assert!(got.iter().all(|(_, value)| value.is_finite()), "{}: {got:?}", query.expr);
        }
    }
}

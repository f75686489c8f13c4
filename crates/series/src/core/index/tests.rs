//! Against looking at every series.

use std::collections::BTreeSet;

use egret_metrics_model::{Labels, MatchOp, Matcher};
use proptest::prelude::*;

use super::*;

fn matcher(name: &str, op: MatchOp, value: &str) -> LabelMatcher {
    let (name, value) = (name.into(), value.into());
    LabelMatcher::new(Matcher { name, op, value }).expect("a valid matcher")
}

fn any_matcher() -> impl Strategy<Value = LabelMatcher> {
    let op = prop_oneof![
        Just(MatchOp::Equal),
        Just(MatchOp::NotEqual),
        Just(MatchOp::Matches),
        Just(MatchOp::NotMatches)
    ];
    let value = prop::sample::select(vec!["", "1", "2", "3", "1|2", "[12]?", ".*", ".+", "9"]);
    let name = prop::sample::select(vec!["a", "b", "c", "zz"]);
    (name, op, value).prop_map(|(name, op, value)| matcher(name, op, value))
}

fn labels_of(n: u16) -> Labels {
    let value = |shift: u32| ((n >> shift) & 3).to_string();
    let pair = |name, shift| (name, if value(shift) == "0" { String::new() } else { value(shift) });
    let pairs = [pair("a", 0), pair("b", 2), pair("c", 4), ("n", n.to_string())];
    Labels::new(pairs.iter().map(|(name, value)| (*name, &**value)))
}

proptest! {
    #[test]
    fn what_is_found_is_what_matches(
        numbers in prop::collection::btree_set(0_u16..4_000, 0..60),
        steps in prop::collection::vec(0_u8..4, 0..30),
        matchers in prop::collection::vec(any_matcher(), 0..4),
        gone in 0_u16..5,
    ) {
        let index = Index::default();
        let mut all: BTreeSet<Labels> = BTreeSet::new();
        let mut numbers = numbers.into_iter();
        for step in steps {
            match step {
                0 => while let Some(work) = index.next_job(1) {
                    index.run_job(work);
                },
                1 if gone > 1 => {
                    let goes = |labels: &Labels| labels.as_key().len().is_multiple_of(gone as usize);
                    index.retain(|series| !goes(&series.labels));
                    all.retain(|labels| !goes(labels));
                }
                _ => for number in numbers.by_ref().take(3) {
                    let labels = labels_of(number);
                    index.add([Arc::new(HeadSeries::new(0, labels.clone()))].into_iter());
                    all.insert(labels);
                },
            }
        }
        let view = index.view();
        prop_assert_eq!(view.len(), all.len());
        let mut found = Vec::new();
        view.select(&matchers, &mut found);
        let found: Vec<_> = found.iter().map(|series| series.labels.clone()).collect();
        let matches = |labels: &&Labels| {
            matchers.iter().all(|matcher| matcher.matches(labels.get(&matcher.matcher().name)))
        };
        let mut expected: Vec<_> = all.iter().filter(matches).cloned().collect();
        expected.sort_by_key(|labels| labels.get("n").parse::<u16>().expect("a number"));
        prop_assert_eq!(found, expected);
        let mut names = BTreeSet::new();
        view.visit_names(|name| {
            names.insert(name.to_owned());
        });
        let expected = all.iter().flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned()));
        prop_assert_eq!(names, expected.collect::<BTreeSet<_>>());
        let mut ones = 0;
        view.visit_values("a", |value, count| if value == "1" { ones += count });
        prop_assert_eq!(ones, all.iter().filter(|labels| labels.get("a") == "1").count());
    }
}

#[test]
fn there_are_few_segments_however_many_series_come() {
    let index = Index::default();
    for round in 0..2_000 {
        index.add([Arc::new(HeadSeries::new(round, labels_of(round as u16)))].into_iter());
        while let Some(work) = index.next_job(1) {
            index.run_job(work);
        }
    }
    let segments = index.view().segments.len();
    assert!(segments < 24, "{segments} segments");
}

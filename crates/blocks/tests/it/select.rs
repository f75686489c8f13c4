//! Which series are selected, compared with looking at every one.

use std::ops::ControlFlow;

use egret_blocks::block::Block;
use egret_log::simulated::{SimulatedDisk, SplitMix64};
use egret_metrics_model::{LabelMatcher, Labels, MatchOp};

use super::{Content, matcher, open, publish};

/// Series of which some labels are missing, one has thousands of values, and one is everywhere.
fn written(series: u64) -> (Vec<Labels>, Block) {
    let mut chance = SplitMix64::new(series);
    let mut all = Content::new();
    for at in 0..series {
        let mut pairs = vec![
            ("__name__", format!("metric_{}", chance.next_below(20))),
            ("job", "node".to_owned()),
        ];
        pairs.push(("instance", format!("host-{}", chance.next_below(50))));
        pairs.push(("pod", format!("pod-{at:05}-{}", chance.next_below(9))));
        if chance.percent(50) {
            pairs.push((
                "mode",
                ["idle", "user", "system", "i.o"][chance.next_below(4) as usize].to_owned(),
            ));
        }
        let labels = Labels::new(pairs.iter().map(|(name, value)| (*name, &**value)));
        all.insert(labels, [(at as i64, at)].into());
    }
    let catalog = open(&SimulatedDisk::new(64 << 20)).expect("the disk works");
    publish(&catalog, &all).expect("the disk works");
    (all.into_keys().collect(), catalog.snapshot().blocks()[0].clone())
}

fn by_looking(all: &[Labels], matchers: &[LabelMatcher]) -> Vec<u32> {
    let takes = |labels: &Labels| {
        matchers.iter().all(|matcher| matcher.matches(labels.get(&matcher.matcher().name)))
    };
    (0..all.len() as u32).filter(|series| takes(&all[*series as usize])).collect()
}

fn any_matcher(chance: &mut SplitMix64) -> LabelMatcher {
    const OPS: [MatchOp; 4] =
        [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Matches, MatchOp::NotMatches];
    const NAMES: [&str; 6] = ["__name__", "job", "instance", "pod", "mode", "nothing"];
    const VALUES: [&str; 22] = [
        "",
        "node",
        "metric_1",
        "metric_1.*",
        "metric_(1|2|30)",
        "host-1",
        "host-[0-9]",
        "host-.*",
        ".*",
        ".+",
        "pod-0.*",
        ".*-3",
        "pod-00012-.*|pod-000.3-1",
        "idle|user|",
        "i.o",
        "i\\.o",
        "(?i)IDLE",
        "^idle$",
        "idle?",
        "$",
        "pod-(0|1)+.*",
        "host-1{0,1}",
    ];
    loop {
        let (name, op) = (NAMES[chance.next_below(6) as usize], OPS[chance.next_below(4) as usize]);
        let value = VALUES[chance.next_below(VALUES.len() as u64) as usize];
        if chance.percent(80) || name != "nothing" {
            return matcher(name, op, value);
        }
    }
}

#[test]
fn the_same_series_are_selected_as_by_looking_at_each() {
    let (all, block) = written(3000);
    let mut chance = SplitMix64::new(1);
    for _ in 0..1500 {
        let count = 1 + chance.next_below(3);
        let matchers: Vec<LabelMatcher> = (0..count).map(|_| any_matcher(&mut chance)).collect();
        let expected = by_looking(&all, &matchers);
        assert_eq!(block.select(&matchers).expect("it is whole"), expected, "{matchers:?}");
        assert_eq!(block.count_series(&matchers).expect("it is whole"), expected.len() as u64);
    }
}

#[test]
fn lists_of_values_are_looked_up_whatever_their_length() {
    let (all, block) = written(3000);
    for count in [1, 3, 40, 5_000] {
        let mut values: Vec<String> = (0..count).map(|at| format!("nobody-{at}")).collect();
        for at in [7, 1_500, 2_999] {
            values.push(all[at].get("pod").to_owned());
        }
        let values = values.join("|");
        for op in [MatchOp::Matches, MatchOp::NotMatches] {
            let matchers = [matcher("pod", op, &values)];
            let expected = by_looking(&all, &matchers);
            assert_eq!(block.select(&matchers).expect("it is whole"), expected, "{count}");
        }
    }
}

/// The values of a label that a block tells.
fn values_of(block: &Block, name: &str, matchers: &[LabelMatcher]) -> Vec<Box<str>> {
    let mut values = Vec::new();
    let told = block.label_values(name, matchers, |value| {
        values.push(value.into());
        ControlFlow::Continue(())
    });
    told.expect("it is whole");
    let mut first: Vec<Box<str>> = Vec::new();
    let told = block.label_values(name, matchers, |value| {
        first.push(value.into());
        ControlFlow::Break(())
    });
    told.expect("it is whole");
    assert_eq!(first[..], values[..values.len().min(1)], "it breaks off");
    values
}

#[test]
fn the_labels_of_what_is_selected_are_listed() {
    let (all, block) = written(700);
    let mut chance = SplitMix64::new(2);
    for _ in 0..200 {
        let matchers: Vec<LabelMatcher> =
            (0..chance.next_below(3)).map(|_| any_matcher(&mut chance)).collect();
        let selected = by_looking(&all, &matchers);
        let pairs = || selected.iter().flat_map(|series| all[*series as usize].iter());
        let sorted = |mut texts: Vec<Box<str>>| {
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        let names = sorted(pairs().map(|(name, _)| name.into()).collect());
        assert_eq!(block.label_names(&matchers).expect("it is whole"), names, "{matchers:?}");
        for name in ["mode", "pod", "nothing"] {
            let values = pairs().filter(|(other, _)| *other == name);
            let values = sorted(values.map(|(_, value)| value.into()).collect());
            assert_eq!(values_of(&block, name, &matchers), values, "{matchers:?}");
        }
    }
}

#[test]
fn what_a_label_costs_is_known() {
    let (all, block) = written(500);
    for figures in block.label_figures().expect("it is whole") {
        let having = all.iter().filter(|labels| !labels.get(&figures.name).is_empty()).count();
        assert_eq!(figures.series as usize, having, "{}", figures.name);
        let values = block.value_figures(&figures.name).expect("it is whole");
        assert_eq!(values.len() as u64, figures.values, "{}", figures.name);
        assert_eq!(values.iter().map(|(_, series)| *series as usize).sum::<usize>(), having);
    }
    assert_eq!(block.value_figures("nothing").expect("it is whole"), []);
}

#[test]
fn labels_and_their_hashes_come_back() {
    let (all, block) = written(301);
    for (series, labels) in (0..).zip(&all) {
        assert_eq!(block.labels(series).expect("it is whole"), *labels);
    }
    let mut told = 0;
    block
        .for_each_name((0..300).step_by(7), |series, name| {
            let labels = &all[series as usize];
            assert_eq!(name.labels(), *labels);
            assert_eq!(name.hash(), egret_blocks::core::page::labels_hash(labels));
            assert!(name.has_labels(labels) && !name.has_labels(&all[series as usize + 1]));
            told += 1;
        })
        .expect("it is whole");
    assert_eq!(told, 43);
}

#[test]
fn labels_as_long_as_they_may_be_are_no_matter() {
    let long = "x".repeat(64 << 10);
    let mut all = Content::new();
    for series in 0..300 {
        let value = format!("{long}{series}");
        let labels = Labels::new([("__name__", "long"), ("one", &*value), ("other", &*value)]);
        all.insert(labels, [(series, 1)].into());
    }
    let catalog = open(&SimulatedDisk::new(64 << 20)).expect("the disk works");
    publish(&catalog, &all).expect("the disk works");
    let snapshot = catalog.snapshot();
    let block = &snapshot.blocks()[0];
    for (series, labels) in (0..).zip(all.keys()) {
        assert_eq!(block.labels(series).expect("it is whole"), *labels);
        let equal = [matcher("other", MatchOp::Equal, labels.get("other"))];
        assert_eq!(block.select(&equal).expect("it is whole"), [series]);
    }
}

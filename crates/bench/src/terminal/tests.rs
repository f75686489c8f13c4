//! What is printed, as it is printed.

use expect_test::expect;

use super::*;
use crate::compare::statistics::Resampling;
use crate::compare::{Options, compare};
use crate::sample;

const WIDTH_MAX: usize = 120;

#[test]
fn a_result_with_everything() {
    let mut file = sample::file();
    file.errors.insert("timeout".to_owned(), 3);
    file.warnings.push("the generator used 0.9 of a core".to_owned());
    let text = format_result(&file);
    expect![[r#"
        branches · branches 100
        2 × Example CPU 3.0 GHz · 24.0 GB · btrfs · PostgreSQL 18.1 · egret 0.1.0 (0123456789ab)

        latency      p50      p95      p99      max  samples  course
        create   4.19 ms  6.26 ms  8.13 ms  10.0 ms     1000  ▅▆▇██

        figure    value  samples  course
        cores         2        1
        rate    1,235/s        1

        warm-up: 3.0 s, the rate was steady
        errors: 3 × timeout
        warning: the generator used 0.9 of a core
    "#]]
    .assert_eq(&text);
}

#[test]
fn runs_show_their_spread() {
    let text = format_result(&sample::file_with_runs(&[4.0, 4.4, 3.9]));
    expect![[r#"
        branches · branches 100
        2 × Example CPU 3.0 GHz · 24.0 GB · btrfs · PostgreSQL 18.1 · egret 0.1.0 (0123456789ab)

        latency      p50      p95      p99      max  samples  course
        create   4.19 ms  6.26 ms  8.13 ms  10.0 ms     1000  ▅▆▇██

        figure    value  samples  course
        cores         2        1
        rate    1,235/s        1

        of all runs   lowest   median  highest  runs
        create.p50   3.90 ms  4.00 ms  4.40 ms  ███

        warm-up: 3.0 s, the rate was steady
    "#]]
    .assert_eq(&text);
}

#[test]
fn long_and_hostile_names_keep_the_width() {
    let mut file = sample::file();
    let create = file.metrics["create"].clone();
    file.metrics.insert("a_very_long_name_of_a_metric_that_never_ends\u{1b}[2J".to_owned(), create);
    file.scenario = "branches\u{1b}[31m".to_owned();
    file.environment.cpu_model = "x".repeat(200);
    file.parameters.insert("text".to_owned(), "y".repeat(200).into());
    let text = format_result(&file);
    assert!(!text.contains('\u{1b}'));
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH_MAX, "{line}");
    }
}

#[test]
fn a_comparison_says_what_decides_it() {
    let options = |figures: &[&str]| Options {
        figures: figures.iter().map(|name| (*name).to_owned()).collect(),
        margin: 0.05,
        paired: true,
        allow_different: Vec::new(),
        resampling: Resampling::with_seed(1),
    };
    let a = sample::file_with_runs(&[4.0, 4.2, 3.8, 4.1, 3.9, 4.0]);
    let b = sample::file_with_runs(&[4.4, 4.1, 4.3, 4.2, 4.0, 4.5]);
    let labels = ["before.json".to_owned(), "after.json".to_owned()];
    let text = format_comparison(&compare(&a, &b, labels, &options(&["create"])).unwrap());
    expect![[r#"
        branches
        A  before.json (0123456789ab)
        B  after.json (0123456789ab)

        metric            A        B    B/A     95% interval  verdict
        create.p50  4.00 ms  4.25 ms  +6.4%  −0.1% to +12.4%  inconclusive

        inconclusive: margin 5%, 6 pairs
        hint: create.p50: about 297 pairs would probably decide it (--pairs 297)
        note: the same binary was measured in both
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_sparkline_begins_at_zero_and_loses_no_stall() {
    assert_eq!(sparkline(&[1.0, 2.0, 4.0, 8.0], 8), "▁▂▄█");
    let mut values = vec![1.0; 100];
    values[57] = 8.0;
    assert_eq!(sparkline(&values, 10), "▁▁▁▁▁█▁▁▁▁");
    assert_eq!(sparkline(&[1.0], 10), "");
    assert_eq!(sparkline(&[0.0, 0.0], 10), "");
}

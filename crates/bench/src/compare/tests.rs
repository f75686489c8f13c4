//! The promises of `compare`: two equal sides are equivalent, a tenth more is found, and what must
//! not be compared is refused.

use std::collections::BTreeMap;

use expect_test::expect;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::*;
use crate::result::Better;
use crate::sample::{self, Noise};

/// A machine shared with others: a few percent from run to run, and one run in twenty is a third
/// slower.
const SHARED: Noise = Noise { deviation: 0.03, outliers: 5.0, outlier_factor: 1.3 };
/// A machine without other load.
const CALM: Noise = Noise { deviation: 0.015, outliers: 2.0, outlier_factor: 1.3 };
const TRIALS: usize = 200;

fn options() -> Options {
    Options {
        figures: vec!["create".to_owned()],
        margin: 0.05,
        paired: false,
        allow_different: Vec::new(),
        resampling: Resampling::with_seed(1),
    }
}

fn labels() -> [String; 2] {
    ["a.json".to_owned(), "b.json".to_owned()]
}

fn compared(a: &[f64], b: &[f64], options: &Options) -> Comparison {
    let (a, b) = (sample::file_with_runs(a), sample::file_with_runs(b));
    compare(&a, &b, labels(), options).unwrap()
}

/// How many of [`TRIALS`] comparisons of a side with one `factor` times as slow come out as
/// `verdict`.
fn rate(verdict: Verdict, factor: f64, noise: Noise, runs: usize, paired: bool) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2_026);
    let found = (0..TRIALS)
        .filter(|trial| {
            let a = noise.runs(4.0, runs, &mut random);
            let b = noise.runs(4.0 * factor, runs, &mut random);
            let resampling = Resampling { seed: *trial as u64, resamples: 2_000 };
            let options = Options { paired, resampling, ..options() };
            compared(&a, &b, &options).verdict == verdict
        })
        .count();
    found as f64 / TRIALS as f64
}

fn report(what: &str, rate: f64) -> f64 {
    println!("{what}: {:.1}%", rate * 100.0);
    rate
}

#[test]
fn equal_sides_are_equivalent() {
    for (name, noise, pairs) in [("shared", SHARED, 20), ("calm", CALM, 10)] {
        let paired = rate(Verdict::Equivalent, 1.0, noise, pairs, true);
        assert!(report(&format!("A/A {name}, {pairs} pairs"), paired) >= 0.95);
        let unpaired = rate(Verdict::Equivalent, 1.0, noise, pairs, false);
        assert!(report(&format!("A/A {name}, {pairs} runs each"), unpaired) >= 0.95);
    }
}

/// All that an open loop measures: some runs have late operations, nothing is dropped.
#[test]
fn equal_open_loops_are_equivalent_in_all_they_measure() {
    const TRIALS: usize = 40;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2_027);
    let steady = Noise { deviation: 0.001, ..CALM };
    let mut side = || {
        let mut file = sample::file_with_runs(&CALM.runs(4.0, 10, &mut random));
        let rates = steady.runs(500.0, 10, &mut random);
        for (number, (run, rate)) in file.runs.iter_mut().zip(rates).enumerate() {
            let late = (number % 3) as f64 * rate.fract();
            run.metrics.extend([
                ("throughput".to_owned(), sample::scalar(rate, "1/s", Better::Higher)),
                ("late".to_owned(), sample::scalar(late, "count", Better::Neither)),
                ("dropped".to_owned(), sample::scalar(0.0, "count", Better::Lower)),
                ("success".to_owned(), sample::scalar(1.0, "ratio", Better::Higher)),
            ]);
        }
        file
    };
    let options = Options {
        figures: Vec::new(),
        paired: true,
        resampling: Resampling { seed: 1, resamples: 2_000 },
        ..options()
    };
    let verdicts = (0..TRIALS).map(|_| {
        let (a, b) = (side(), side());
        let comparison = compare(&a, &b, labels(), &options).unwrap();
        assert_eq!(comparison.rows.len(), 4, "all but `late`");
        comparison.verdict
    });
    let equivalent = verdicts.filter(|verdict| *verdict == Verdict::Equivalent);
    let rate = equivalent.count() as f64 / TRIALS as f64;
    assert!(report("A/A of open loops, 10 pairs", rate) >= 0.9);
}

#[test]
fn equal_sides_are_never_worse() {
    for pairs in [6, 10, 20] {
        let worse = rate(Verdict::Worse, 1.0, SHARED, pairs, true);
        assert!(report(&format!("A/A worse, {pairs} pairs"), worse) <= 0.01);
    }
}

#[test]
fn a_tenth_slower_is_found() {
    for (name, noise, pairs) in [("shared", SHARED, 20), ("calm", CALM, 10)] {
        let found = rate(Verdict::Worse, 1.1, noise, pairs, true);
        assert!(report(&format!("+10% {name}, {pairs} pairs"), found) >= 0.95);
    }
}

#[test]
fn a_tenth_slower_is_never_called_equivalent() {
    let missed = rate(Verdict::Equivalent, 1.1, SHARED, 20, true);
    assert!(report("+10% called equivalent", missed) <= 0.01);
}

#[test]
fn just_over_the_margin_is_rarely_called_equivalent() {
    let missed = rate(Verdict::Equivalent, 1.0501, SHARED, 20, true);
    assert!(report("+5.01% called equivalent", missed) <= 0.05);
}

#[test]
fn a_tenth_faster_is_better_and_a_rate_that_falls_is_worse() {
    let calm = [4.0, 4.02, 3.98, 4.01, 3.99, 4.0];
    let faster = calm.map(|value| value * 0.9);
    assert_eq!(compared(&calm, &faster, &options()).verdict, Verdict::Better);
    let turned = |values: &[f64]| {
        let mut file = sample::file_with_runs(values);
        for run in &mut file.runs {
            run.metrics.get_mut("create").unwrap().better = Better::Higher;
        }
        file
    };
    let (a, b) = (turned(&calm), turned(&faster));
    let comparison = compare(&a, &b, labels(), &options()).unwrap();
    assert_eq!(comparison.verdict, Verdict::Worse);
}

#[test]
fn too_few_runs_are_inconclusive_and_say_how_many_are_needed() {
    for (runs, paired, needed) in [(1, false, 5), (4, false, 5), (5, true, 6)] {
        let values = vec![4.0; runs];
        let comparison = compared(&values, &values, &Options { paired, ..options() });
        assert_eq!(comparison.verdict, Verdict::Inconclusive);
        assert_eq!(comparison.rows[0].runs_needed, Some(needed));
        assert_eq!(comparison.rows[0].interval, None);
    }
}

#[test]
fn an_open_comparison_says_how_many_pairs_would_decide_it() {
    let a = [4.0, 4.3, 3.8, 4.1, 3.7, 4.4];
    let b = [4.1, 4.0, 4.2, 3.8, 4.3, 3.9];
    let comparison = compared(&a, &b, &Options { paired: true, ..options() });
    assert_eq!(comparison.verdict, Verdict::Inconclusive);
    assert!(comparison.rows[0].runs_needed.unwrap() > 6);
}

#[test]
fn a_side_that_is_slow_now_and_then_is_not_equivalent() {
    let a = [4.0, 4.01, 3.99, 4.02, 3.98].repeat(4);
    let mut b = a.clone();
    b.rotate_left(1);
    for slow in b.iter_mut().take(5) {
        *slow *= 1.3;
    }
    let comparison = compared(&a, &b, &Options { paired: true, ..options() });
    assert_eq!(comparison.verdict, Verdict::Inconclusive);
    assert_eq!(comparison.rows[0].outliers, 5);
}

#[test]
fn zeros_are_judged_without_a_ratio() {
    let verdict = |a: f64, b: f64, better| {
        let with = |value| {
            let mut file = sample::file();
            file.metrics =
                BTreeMap::from([("deadlocks".to_owned(), sample::scalar(value, "count", better))]);
            file
        };
        let options = Options { figures: Vec::new(), ..options() };
        compare(&with(a), &with(b), labels(), &options).unwrap().verdict
    };
    assert_eq!(verdict(0.0, 0.0, Better::Lower), Verdict::Equivalent);
    assert_eq!(verdict(0.0, 3.0, Better::Lower), Verdict::Worse);
    assert_eq!(verdict(3.0, 0.0, Better::Lower), Verdict::Better);
    assert_eq!(verdict(3.0, 0.0, Better::Higher), Verdict::Worse);
}

#[test]
fn a_side_that_fails_more_is_not_equivalent() {
    let values = [4.0, 4.01, 3.99, 4.02, 3.98];
    let (a, mut b) = (sample::file_with_runs(&values), sample::file_with_runs(&values));
    b.runs[2].errors.insert("timeout".to_owned(), 100);
    let comparison = compare(&a, &b, labels(), &options()).unwrap();
    assert_eq!(comparison.rows[0].verdict, Verdict::Equivalent);
    assert_eq!(comparison.verdict, Verdict::Inconclusive);
    expect![
        "B failed 100 of 5100 operations and A 0 of 5000: the figures of the successful ones are not comparable"
    ]
    .assert_eq(comparison.notes.last().unwrap());
}

#[test]
fn failures_are_a_share_of_what_was_attempted() {
    let (a, mut b) = (sample::file(), sample::file());
    b.errors.insert("timeout".to_owned(), 500);
    let mut success = sample::scalar(0.5, "ratio", Better::Higher);
    success.samples = 1_000;
    b.metrics.insert(SUCCESS_METRIC.to_owned(), success);
    let note = failure_rate_note(&a, &b).unwrap();
    assert!(note.starts_with("B failed 500 of 1000 operations and A 0 of 1000"), "{note}");
}

#[test]
fn other_conditions_are_refused_each_by_name() {
    let (a, mut b) = (sample::file(), sample::file());
    b.environment.cpus = 4;
    b.environment.build_profile = "dev".to_owned();
    b.parameters.insert("branches".to_owned(), 25.into());
    let refused = compare(&a, &b, labels(), &options()).unwrap_err();
    expect![[r#"
        A and B were measured under different conditions:
          build_profile: release in A, dev in B
          cpus: 2 in A, 4 in B
          parameters.branches: 100 in A, 25 in B
        use --allow-different NAME for differences that are intended"#]]
    .assert_eq(&refused.to_string());
    let allow_different = ["build_profile", "cpus", "parameters"].map(str::to_owned);
    let options = Options { allow_different: allow_different.to_vec(), ..options() };
    let comparison = compare(&a, &b, labels(), &options).unwrap();
    assert_eq!(comparison.allowed.len(), 3);
}

/// What is said of `create` when `figures` figures in all have these values, B being `factor` times
/// A.
fn among(figures: usize, pairs: usize, factor: f64) -> Row {
    let a: Vec<f64> = (0..pairs).map(|pair| 4.0 + 0.05 * (pair % 3) as f64).collect();
    let b: Vec<f64> = a.iter().rev().map(|value| value * factor).collect();
    let sides = [a, b].map(|values| {
        let mut file = sample::file_with_runs(&values);
        for run in &mut file.runs {
            for number in 1..figures {
                let copy = run.metrics["create"].clone();
                run.metrics.insert(format!("more-{number}"), copy);
            }
        }
        file
    });
    let all = Options { figures: Vec::new(), paired: true, ..options() };
    let mut comparison = compare(&sides[0], &sides[1], labels(), &all).unwrap();
    assert_eq!(comparison.rows.len(), figures);
    comparison.rows.remove(0)
}

#[test]
fn more_figures_make_worse_harder_to_say() {
    let row = among(4, 8, 1.2);
    let (low, high) = row.interval.unwrap();
    let (joint_low, joint_high) = row.joint_interval.unwrap();
    assert!(joint_low < low && joint_high > high);
    assert_eq!(row.verdict, Verdict::Worse);
}

#[test]
fn so_many_figures_need_more_pairs() {
    assert_eq!(among(1, 6, 1.2).verdict, Verdict::Worse);
    let row = among(12, 6, 1.2);
    assert_eq!((row.verdict, row.joint_interval), (Verdict::Inconclusive, None));
    assert_eq!(row.runs_needed, Some(13));
    expect!["6 of at least 13 pairs that are needed to decide this many figures at once"]
        .assert_eq(&row.note.unwrap());
    assert_eq!(among(12, 13, 1.2).verdict, Verdict::Worse);
    // That nothing differs is read from the plain interval.
    assert_eq!(among(12, 6, 1.0).verdict, Verdict::Equivalent);
}

#[test]
fn percentiles_that_histograms_do_not_resolve_are_noted() {
    let notes = |value| compared(&[value; 6], &[value; 6], &options()).notes.join("; ");
    assert!(
        notes(0.018)
            .contains("one of which is 5.6% of it: --metric create.mean has a finer resolution")
    );
    assert!(!notes(4.0).contains("microseconds"));
}

#[test]
fn runs_that_do_not_match_cannot_be_paired() {
    let (a, b) = (sample::file_with_runs(&[4.0; 6]), sample::file_with_runs(&[4.0; 7]));
    let paired = Options { paired: true, ..options() };
    let refused = compare(&a, &b, labels(), &paired).unwrap_err();
    assert_eq!(refused.to_string(), "6 runs of A and 7 of B cannot be paired");
}

/// `compare` with these arguments.
fn answer(arguments: &[&str], json: bool) -> CompareOutput {
    #[derive(clap::Parser)]
    struct TestCli {
        #[command(flatten)]
        compare: CompareArgs,
    }
    let line: TestCli = clap::Parser::try_parse_from([&["compare"], arguments].concat()).unwrap();
    run(&line.compare, json, &mut |_| {}, &Interruption::new())
}

#[test]
fn what_is_no_result_file_cannot_be_compared() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (whole, cut, other) = (path("whole.json"), path("cut.json"), path("other.json"));
    sample::file().write(Path::new(&whole)).unwrap();
    let text = std::fs::read(&whole).unwrap();
    std::fs::write(&cut, &text[..text.len() / 2]).unwrap();
    std::fs::write(&other, r#"{"schema": 1, "name": "another program's"}"#).unwrap();
    for (file, reason) in [
        (&cut, "is not complete JSON"),
        (&other, "is not a result file"),
        (&path("missing.json"), "cannot read"),
    ] {
        let answer = answer(&[&whole, file], false);
        assert_eq!(answer.code, EXIT_CANNOT_COMPARE);
        let error = answer.error.unwrap();
        assert!(error.contains(reason) && error.contains(file), "{error}");
    }
}

#[test]
fn a_refusal_is_json_too() {
    let answer = answer(&["missing-a.json", "missing-b.json"], true);
    let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(value["verdict"], "cannot_compare");
    assert_eq!(value["differences"], json!([]));
}

#[test]
fn files_and_unknown_names_give_their_exit_codes() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, values: &[f64]| {
        let path = directory.path().join(name);
        sample::file_with_runs(values).write(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let a = write("a.json", &[4.0, 4.01, 3.99, 4.02, 3.98, 4.0]);
    let b = write("b.json", &[4.8, 4.81, 4.79, 4.82, 4.78, 4.8]);
    assert_eq!(answer(&[&a, &a], false).code, 0);
    assert_eq!(answer(&[&a, &b], false).code, 1);
    assert_eq!(answer(&[&b, &a], true).code, 0);
    assert_eq!(answer(&[&a, &b, "--margin", "30"], true).code, 0);
    assert_eq!(answer(&[&a, &b, "--allow-different", "weather"], true).code, 3);
    assert_eq!(answer(&[&a, &b, "--metric", "weather"], true).code, 3);
    assert_eq!(answer(&[&a, &b, "--metric", "create.p95"], true).code, 3);
}

//! Which run is the median one, what is refused beforehand, and what is kept whatever happens
//! later.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Parser;
use egret_bench_cli::BenchCommand;

use super::*;
use crate::record::{Recorder, Recording, scalar};
use crate::result::{Better, Cycle};

fn check(values: &[f64], expected: usize) {
    let runs: Vec<Run> = values
        .iter()
        .map(|value| Run {
            started_at: jiff::Timestamp::UNIX_EPOCH,
            metrics: [("rate".to_owned(), scalar("1/s", Better::Higher, *value, 1))].into(),
            errors: Default::default(),
            timeline: Vec::new(),
            warmup: None,
            cycles: Vec::new(),
        })
        .collect();
    assert_eq!(median_index(&runs, "rate"), Some(expected), "{values:?}");
}

#[test]
fn the_median_run_is_one_of_the_runs() {
    check(&[5.0], 0);
    check(&[5.0, 1.0], 1);
    check(&[5.0, 1.0, 3.0], 2);
    check(&[4.0, 1.0, 3.0, 2.0], 3);
    assert_eq!(median_index(&[], "rate"), None);
}

#[test]
fn a_result_that_cannot_be_written_is_refused_before_measuring() {
    let directory = tempfile::tempdir().unwrap();
    check_writable(&directory.path().join("x.json")).unwrap();
    check_writable(Path::new("x.json")).unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // A directory that takes no files, not even root's.
    assert!(check_writable(Path::new("/proc/x.json")).is_err());
    let error = check_writable(&directory.path().join("missing/x.json")).unwrap_err();
    assert!(error.downcast_ref::<crate::Refusal>().is_some(), "{error}");
    assert!(check_writable(directory.path()).is_err());
}

/// A scenario of one operation, whose end and plans go wrong.
struct Fake<const EXPLAINS: bool> {
    out: PathBuf,
    measured: u64,
    seen: Seen,
}

/// What it was asked to do, and whether the result was written by then.
type Seen = Arc<Mutex<Vec<(&'static str, bool)>>>;

impl<const EXPLAINS: bool> Fake<EXPLAINS> {
    fn note(&self, what: &'static str) {
        self.seen.lock().unwrap().push((what, self.out.exists()));
    }
}

impl<const EXPLAINS: bool> Scenario for Fake<EXPLAINS> {
    const NAME: &'static str = "fake";

    const CAN_EXPLAIN: bool = EXPLAINS;

    fn parameters(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    fn ranking_metric(&self) -> &str {
        "it"
    }

    async fn prepare(&mut self, _: &mut Stage) -> Result<()> {
        self.note("prepare");
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        self.note("measure");
        self.measured += 1;
        let mut observed = stage.open_window(None)?.close().await?;
        observed.profile = Some(Err("the server responded 403".to_owned()));
        let mut recorder = Recorder::default();
        let took = Duration::from_millis(self.measured);
        for _ in 0..2 {
            recorder.record_success("it", Duration::ZERO, Duration::ZERO, took);
        }
        let mut measurement = Measurement::new(observed, Recording::merge([recorder]));
        measurement.cycles.push(Cycle {
            index: self.measured,
            group: 0,
            at_ms: 0.0,
            latencies_ms: BTreeMap::new(),
            error: None,
        });
        Ok(measurement)
    }

    async fn explain(&mut self, _: &mut Stage) -> Result<Plans> {
        self.note("explain");
        bail!("relation \"t\" does not exist")
    }

    async fn clean(&mut self, _: &mut Stage) -> Result<()> {
        self.note("clean");
        bail!("a table could not be dropped")
    }
}

/// Runs it with these options.
async fn attempt<const EXPLAINS: bool>(
    directory: &Path,
    options: &str,
) -> (Result<()>, Vec<(&'static str, bool)>) {
    #[derive(Parser)]
    struct TestCli {
        #[command(subcommand)]
        command: BenchCommand,
    }
    let out = directory.join("result.json");
    let words = ["bench", "sql", "--file", "x.toml", "--url", "x", "--out"];
    let words = words.into_iter().chain([out.to_str().unwrap()]);
    let line = TestCli::parse_from(words.chain(options.split_whitespace()));
    let BenchCommand::Sql(args) = line.command else {
        panic!("that was sql");
    };
    let global =
        Global { json: true, endpoint: None, settings: Vec::new(), program: PathBuf::new() };
    let seen = Seen::default();
    let fake = Fake::<EXPLAINS> { out, measured: 0, seen: seen.clone() };
    let ran = run(fake, &args.run, &global).await;
    let seen = seen.lock().unwrap().clone();
    (ran, seen)
}

#[tokio::test]
async fn a_finished_measurement_is_kept_whatever_goes_wrong_later() {
    let directory = tempfile::tempdir().unwrap();
    let (ran, seen) = attempt::<true>(directory.path(), "--repeat 3 --explain").await;
    ran.unwrap();
    // What is removed is removed after the result is there.
    let expected = [
        ("prepare", false),
        ("measure", false),
        ("measure", false),
        ("measure", false),
        ("explain", false),
        ("clean", true),
    ];
    assert_eq!(seen, expected);
    let result = ResultFile::read(&directory.path().join("result.json")).unwrap();
    let missing = "there are no plans: relation \"t\" does not exist";
    assert!(result.warnings.iter().any(|warning| warning == missing));
    let profile = "the profile is incomplete: the server responded 403".to_owned();
    assert!(result.warnings.contains(&profile));
    assert!(result.attachments.is_empty());
    // The median run is on top, and nothing of the others is lost but histograms.
    assert_eq!(result.cycles[0].index, 2);
    let cycles: Vec<u64> = result.runs.iter().map(|run| run.cycles[0].index).collect();
    assert_eq!(cycles, [1, 2, 3]);
    for run in &result.runs {
        assert_eq!(run.timeline[0].operations["it"].count, 2);
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_before_anything_is() {
    let directory = tempfile::tempdir().unwrap();
    let check = async |options: &str, expected: &str| {
        let (ran, seen) = attempt::<false>(directory.path(), options).await;
        let error = ran.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(crate::Refusal::Usage(_))), "{error:#}");
        assert!(error.to_string().contains(expected), "{error:#}");
        assert_eq!(seen, []);
    };
    check("--explain", "the scenario `fake` records no plans").await;
    check("--profile", "there is no egret to profile").await;
}

//! `egret bench series` against a real Prometheus, where one is installed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Parser;
use egret_bench::result::ResultFile;
use egret_bench::{Global, Refusal};
use egret_bench_cli::BenchCommand;

#[derive(Parser)]
struct TestCli {
    #[command(subcommand)]
    command: BenchCommand,
}

async fn run(options: &str) -> anyhow::Result<()> {
    let words = ["bench", "series"].into_iter();
    let line = TestCli::parse_from(words.chain(options.split_whitespace()));
    let global =
        Global { json: false, endpoint: None, settings: Vec::new(), program: PathBuf::new() };
    egret_bench::run(line.command, &global).await.map(drop)
}

/// What was measured of Prometheus.
async fn measure(options: &str) -> ResultFile {
    let mut program = Command::new("prometheus");
    program.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let found = program.status();
    found.expect("tests/clients/prepare installs prometheus");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result.json");
    let fixed = "--peer prometheus --series 1600 --writers 3 --seed 7";
    let out_option = format!("--out {}", out.display());
    run(&format!("{fixed} {options} {out_option}")).await.unwrap();
    ResultFile::read(&out).unwrap()
}

fn value(result: &ResultFile, name: &str) -> f64 {
    let name = format!("prometheus_{name}");
    let metric = result.metrics.get(&name);
    metric.unwrap_or_else(|| panic!("no {name} in {:?}", result.metrics.keys())).value
}

#[tokio::test]
async fn every_kind_of_query_is_answered_as_the_generator_says() {
    let result = measure("--scenario queries --preload 400000").await;
    assert_eq!(value(&result, "wrong_answers"), 0.0, "{:?}", result.warnings);
    assert_eq!(value(&result, "empty_answers"), 0.0);
    assert!(value(&result, "checked_answers") > 1_000.0);
    assert!(value(&result, "read_geometric_mean") > 0.0);
}

#[tokio::test]
async fn a_load_is_written_and_asked_about_at_the_rates_that_are_given() {
    let options = "--preload 100000 --rate 5000 --read-rate 10 --readers 2 --seconds 4";
    let result = measure(options).await;
    assert_eq!(value(&result, "wrong_answers"), 0.0, "{:?}", result.warnings);
    let rate = value(&result, "samples_per_second");
    // A busy machine may be slower than the rate that is given, never faster.
    assert!(rate > 0.0 && rate < 6_000.0, "{rate}");
    for name in ["write", "read", "visibility", "bytes_per_sample", "rss_bytes"] {
        assert!(value(&result, name) > 0.0, "{name}");
    }
}

#[tokio::test]
async fn what_contradicts_itself_is_refused() {
    for (options, expected) in [
        ("", "there is nothing to measure"),
        ("--private --readers 0 --read-rate 5", "--read-rate needs --readers"),
        ("--private --series 1000 --writers 1001", "fewer --series than writers"),
        ("--private --series 1000 --rate 2e6", "at most 14 are supported"),
        ("--private --protocol rw2 --peer prometheus", "only remote write 1.0"),
        ("--scenario restart --server http://127.0.0.1:1", "give --private"),
    ] {
        let error = run(options).await.unwrap_err();
        let refusal = error.downcast_ref::<Refusal>();
        assert!(matches!(refusal, Some(Refusal::Usage(_))), "{options}: {error:#}");
        assert!(error.to_string().contains(expected), "{options}: {error:#}");
    }
}

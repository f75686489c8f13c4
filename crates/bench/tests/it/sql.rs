//! `egret bench sql` against a real PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use egret_bench::result::ResultFile;
use egret_bench::{Global, Refusal};
use egret_bench_cli::BenchCommand;
use egret_postgres_test::TestDatabase;
use serde_json::Value;

const MAJOR: u32 = 15;

#[derive(Parser)]
struct TestCli {
    #[command(subcommand)]
    command: BenchCommand,
}

/// A database, a workload file and a place for results.
struct Bench {
    database: TestDatabase,
    directory: tempfile::TempDir,
}

impl Bench {
    async fn new(workload: &str) -> Self {
        let database = TestDatabase::create(MAJOR).await;
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("workload.toml"), workload).unwrap();
        Self { database, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self) -> String {
        let server = &self.database.server;
        format!(
            "host={} port={} user=egret dbname={} sslmode=disable",
            server.socket_dir.display(),
            server.port,
            self.database.name
        )
    }

    async fn attempt(&self, options: &str) -> anyhow::Result<()> {
        let (file, url) = (self.path("workload.toml"), self.url());
        let out = self.path("result.json");
        let fixed = ["bench", "sql", "--file", path(&file), "--url", &url, "--out", path(&out)];
        let words = fixed.into_iter().chain(options.split_whitespace());
        let line = TestCli::parse_from(words);
        let global =
            Global { json: false, endpoint: None, settings: Vec::new(), program: PathBuf::new() };
        egret_bench::run(line.command, &global).await.map(drop)
    }

    async fn measure(&self, options: &str) -> ResultFile {
        let options = format!("--duration 1s --warmup-max 100ms {options}");
        self.attempt(&options).await.unwrap();
        self.check_schema();
        ResultFile::read(&self.path("result.json")).unwrap()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// What was really written is what the schema says.
    fn check_schema(&self) {
        let text = include_str!("../../schema/result-1.schema.json");
        let schema: Value = serde_json::from_str(text).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let written = self.json("result.json");
        let complaints: Vec<String> = validator
            .iter_errors(&written)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }

    async fn ask(&self, sql: &str) -> i64 {
        let client = self.database.connect().await;
        client.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const DEPOSITS: &str = r#"
name = "deposits"
setup = [
    "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL DEFAULT 0)",
    "CREATE TABLE torn_down (n int)",
    "INSERT INTO account SELECT generate_series(1, :accounts)",
]
teardown = ["DROP TABLE torn_down"]

[variables]
accounts = "10 * scale"
scale = { query = "SELECT 5" }

[[transaction]]
name = "deposit"
statements = [
    "BEGIN",
    "UPDATE account SET balance = balance + 1 WHERE id = :id",
    "COMMIT",
]
[transaction.parameters]
id = { zipf = { min = 1, max = "accounts", skew = 0.5 } }

[[transaction]]
name = "look"
weight = 2
statements = ["SELECT balance FROM account WHERE id = :id"]
[transaction.parameters]
id = { uniform = { min = 1, max = "accounts" } }
"#;

#[tokio::test]
async fn a_closed_loop_is_measured() {
    let bench = Bench::new(DEPOSITS).await;
    let result = bench.measure("--clients 4 --explain --repeat 3").await;
    let metrics = &result.metrics;
    let (deposit, look) = (&metrics["deposit"], &metrics["look"]);
    assert!(deposit.samples > 20 && look.samples > deposit.samples, "{metrics:?}");
    assert_eq!(metrics["all"].samples, deposit.samples + look.samples);
    assert!(metrics["capacity"].value > 40.0);
    assert_eq!(metrics["success"].value, 1.0);
    assert!(!metrics.contains_key("throughput"));
    assert!(result.errors.is_empty(), "{:?}", result.errors);
    for phase in ["deposit/execute", "commit", "look/execute"] {
        assert!(result.phases.contains_key(phase), "{:?}", result.phases);
    }
    assert_eq!(result.cycles.len(), 4);
    assert_eq!(result.runs.len(), 3);
    for run in &result.runs {
        assert_eq!(run.cycles.len(), 4);
        assert!(!run.timeline.is_empty() && run.warmup.is_some());
    }
    assert_eq!(result.parameters["variables"]["accounts"], 50.0);
    let data_set = &result.environment.data_set;
    let (shown, hash) = data_set.split_once(" sha256:").unwrap();
    assert_eq!(shown, "deposits accounts=50 scale=5");
    assert_eq!(hash.len(), 16);
    assert!(result.environment.postgres_version.unwrap().starts_with("15."));
    // One of the test server's own, and one that says where it is.
    assert_eq!(result.environment.postgres_settings["fsync"], "off");
    assert!(!result.environment.postgres_settings.contains_key("data_directory"));
    assert!(result.environment.fsync_ms.unwrap() > 0.0, "{:?}", result.warnings);

    assert_eq!(result.attachments["explain"], "result.explain.json");
    let plans = bench.json("result.explain.json");
    assert_eq!(plans.as_array().unwrap().len(), 2);
    assert_eq!(plans[0]["plan"][0]["Plan"]["Node Type"], "ModifyTable");
    assert!(plans[1]["plan"][0]["Execution Time"].is_number());

    // Every success is a deposit: of warm-ups, of three windows; the explained one was undone.
    let balance = bench.ask("SELECT sum(balance)::bigint FROM account").await;
    assert!(balance >= i64::try_from(deposit.samples).unwrap());
    let torn_down = "SELECT count(*) FROM pg_class WHERE relname = 'torn_down'";
    assert_eq!(bench.ask(torn_down).await, 0);
}

#[tokio::test]
async fn an_open_loop_keeps_its_schedule() {
    let bench = Bench::new(DEPOSITS).await;
    let result = bench.measure("--rate 100 --arrivals constant").await;
    let metrics = &result.metrics;
    assert_eq!(metrics["all"].samples, 100);
    assert!((90.0..101.0).contains(&metrics["throughput"].value), "{metrics:?}");
    assert!(metrics.contains_key("late") && !metrics.contains_key("capacity"));
    assert_eq!(metrics["dropped"].value, 0.0);
    assert!(result.phases.contains_key("look/queue"), "{:?}", result.phases);
}

#[tokio::test]
async fn failures_are_counted_by_their_sqlstate() {
    let bench = Bench::new(
        r#"
name = "conflicts"
setup = ["CREATE TABLE t (n int)", "INSERT INTO t VALUES (0)"]
[[transaction]]
name = "increment"
weight = 8
statements = ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT n FROM t", "UPDATE t SET n = n + 1", "COMMIT"]
[[transaction]]
name = "divide"
statements = ["SELECT 1 / :zero::int"]
[transaction.parameters]
zero = { constant = 0 }
[[transaction]]
name = "vanish"
statements = ["SELECT pg_terminate_backend(pg_backend_pid())"]
"#,
    )
    .await;
    let result = bench.measure("--clients 4").await;
    let errors = &result.errors;
    assert!(errors["40001 serialization_failure"] > 0, "{errors:?}");
    assert!(errors["SQLSTATE 22012"] > 0, "{errors:?}");
    // A lost connection is opened again, in the window, and that is a phase of its own.
    assert!(errors["57P01 admin_shutdown"] > 0, "{errors:?}");
    assert!(result.phases["connect"].count > 0);
    assert!(!result.metrics.contains_key("divide"), "a failure has no latency");
    // The answer may come before the end.
    let vanished = result.metrics.get("vanish").map_or(0, |metric| metric.samples);
    let increments = result.metrics["increment"].samples;
    let (succeeded, failed) = (increments + vanished, errors.values().sum::<u64>());
    let success = succeeded as f64 / (succeeded + failed) as f64;
    assert!((result.metrics["success"].value - success).abs() < 1e-9);
    // What failed was rolled back, so that later transactions of the connection work.
    let counted = bench.ask("SELECT n::bigint FROM t").await;
    assert!(counted >= i64::try_from(increments).unwrap());
    assert!(!errors.contains_key("25P02 in_failed_sql_transaction"), "{errors:?}");
}

#[tokio::test]
async fn values_travel_in_both_protocols() {
    for protocol in ["prepared", "simple"] {
        let bench = Bench::new(&format!(
            r#"
name = "values"
protocol = "{protocol}"
reconnect = true
setup = ["CREATE TABLE t (n bigint, s text, b boolean, d numeric, at timestamptz DEFAULT now())"]
[[transaction]]
name = "insert"
statements = ["INSERT INTO t (n, s, b, d) VALUES (:n, :s, :b, 1.0-:d)"]
[transaction.parameters]
n = {{ sequence = {{ start = 1, step = 1 }} }}
s = {{ choice = {{ values = ["it's", 'back\slash', "new\nline", "; DROP TABLE t", ":n $1"] }} }}
b = {{ choice = {{ values = [true, false] }} }}
d = {{ uniform = {{ min = -2, max = -1, decimals = 3 }} }}
"#
        ))
        .await;
        let result = bench.measure("--clients 2").await;
        assert!(result.errors.is_empty(), "{protocol}: {:?}", result.errors);
        assert!(result.phases["connect"].count >= result.metrics["insert"].samples);
        assert_eq!(bench.ask("SELECT count(DISTINCT s) FROM t").await, 5, "{protocol}");
        assert_eq!(bench.ask("SELECT count(*) FROM t WHERE d NOT BETWEEN 2 AND 3").await, 0);
        // A sequence gives each value once, in warm-up and window together.
        assert_eq!(bench.ask("SELECT count(*) - count(DISTINCT n) FROM t").await, 0);
    }
}

/// A sequence is what keys are made of: warm-up, runs and the explained statement use other ones.
#[tokio::test]
async fn a_sequence_serves_as_a_key_over_every_run() {
    let bench = Bench::new(
        r#"
name = "keys"
setup = ["CREATE TABLE t (id bigint PRIMARY KEY)"]
[[transaction]]
name = "insert"
statements = ["INSERT INTO t VALUES (:id)"]
[transaction.parameters]
id = { sequence = { start = 1 } }
"#,
    )
    .await;
    let result = bench.measure("--clients 4 --repeat 2 --explain").await;
    assert!(result.errors.is_empty(), "{:?}", result.errors);
    assert_eq!(bench.json("result.explain.json").as_array().unwrap().len(), 1);
    assert_eq!(bench.ask("SELECT max(id) - count(*) FROM t").await, 0);
}

#[tokio::test]
async fn statements_without_a_plan_are_executed_for_those_that_need_them() {
    let bench = Bench::new(
        r#"
name = "temporary"
protocol = "simple"
setup = ["CREATE TABLE kept (n int)"]
[[transaction]]
name = "copy"
statements = [
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "CREATE TEMP TABLE mine (n int) ON COMMIT DROP",
    "INSERT INTO mine VALUES (:n::int)",
    "INSERT INTO kept SELECT n FROM mine",
    "COMMIT",
]
[transaction.parameters]
n = { constant = 7 }
[[transaction]]
name = "wrong"
statements = ["SELECT 1 / (n - 7) FROM kept", "SELECT 2"]
[[transaction]]
name = "right"
statements = ["SELECT 3"]
"#,
    )
    .await;
    let result = bench.measure("--explain").await;
    let plans = bench.json("result.explain.json");
    let statements: Vec<&str> =
        plans.as_array().unwrap().iter().map(|plan| plan["statement"].as_str().unwrap()).collect();
    let expected =
        ["INSERT INTO mine VALUES ($1::int)", "INSERT INTO kept SELECT n FROM mine", "SELECT 3"];
    assert_eq!(statements, expected);
    let missing = "cannot get a plan of `SELECT 1 / (n - 7) FROM kept` and of the statements after it in `wrong`";
    let told = result.warnings.iter().any(|one| one.starts_with(missing));
    assert!(told, "{:?}", result.warnings);
}

#[tokio::test]
async fn other_data_is_another_data_set() {
    let mut found = std::collections::BTreeSet::new();
    for workload in [
        DEPOSITS.to_owned(),
        DEPOSITS.to_owned(),
        DEPOSITS.replace(
            "SELECT generate_series(1, :accounts)",
            "SELECT generate_series(1, :accounts) ORDER BY 1 DESC",
        ),
        DEPOSITS.replace(
            "[\n    \"CREATE TABLE account",
            "[\n    \"CREATE TABLE other (n int)\",\n    \"CREATE TABLE account",
        ),
    ] {
        let bench = Bench::new(&workload).await;
        let result = bench.measure("").await;
        found.insert(result.environment.data_set);
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

#[tokio::test]
async fn what_cannot_be_measured_is_said() {
    let bench = Bench::new(&DEPOSITS.replace("FROM account", "FROM acount")).await;
    // Statements are prepared when connections are made, so a mistake shows before any load.
    let error = format!("{:#}", bench.attempt("").await.unwrap_err());
    assert!(error.contains("relation \"acount\" does not exist"), "{error}");
    assert!(!bench.path("result.json").exists());
    // The setup had run, so the teardown did as well.
    let torn_down = "SELECT count(*) FROM pg_class WHERE relname = 'torn_down'";
    assert_eq!(bench.ask(torn_down).await, 0);

    let bench = Bench::new(&DEPOSITS.replace("SELECT 5", "SELECT 'five'")).await;
    let error = format!("{:#}", bench.attempt("").await.unwrap_err());
    assert!(error.contains("Some(\"five\") is not a number"), "{error}");

    let bench = Bench::new(DEPOSITS).await;
    let error = bench.attempt("--profile").await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(Refusal::Usage(_))), "{error:#}");
    let error = bench.attempt("--variable acounts=5").await.unwrap_err();
    assert!(error.to_string().contains("did you mean `accounts`?"), "{error:#}");
}

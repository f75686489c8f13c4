//! A burst: a number of concurrent users, each of which makes a branch, works in it and destroys
//! it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use egret_bench_cli::BranchMode;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Barrier, Mutex};
use tokio::task::{JoinSet, LocalSet};

use super::http_connection::{HttpConnection, timed};
use crate::postgres::ConnectionTarget;
use crate::process::{Snapshot, Usage};
use crate::record::Recorder;
use crate::result::Cycle;
use crate::server::Server;

/// Parameters of a burst.
#[derive(Clone, Debug)]
pub struct BurstPlan {
    /// Number of concurrent users.
    pub branches: u32,
    /// Work of each user in its branch.
    pub mode: BranchMode,
    /// Name of the database.
    pub database: String,
    /// What every write carries, so that it would be found in the source.
    pub marker: String,
    /// Unique among the bursts of this measurement.
    pub number: u64,
    /// Prefix of the names of its branches, distinct from those of other processes.
    pub prefix: String,
    /// The first processes of what is measured, where they are on this machine.
    pub roots: Vec<u32>,
    /// How branches are wished for, besides their names.
    pub preset: String,
    /// Whether the first query goes through the PostgreSQL door, and by what.
    pub client: Option<QueryClient>,
}

/// Client of the first query through the PostgreSQL port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryClient {
    /// A driver in this process.
    Driver,
    /// A psql process: libpq.
    Psql,
}

/// Results of a burst.
pub struct BurstOutcome {
    /// Latencies, without those of failed operations.
    pub recorder: Recorder,
    /// One entry per user.
    pub cycles: Vec<Cycle>,
    /// From the begin to the last answer.
    pub wall: Duration,
    /// When the last destruction was acknowledged.
    pub ended: Instant,
    /// Just before its begin; what came before it, opening connections above all, is not its work.
    pub before: Snapshot,
    /// What was used from there to its end.
    pub usage: Usage,
}

/// Steps of one user, and its error.
struct UserResult {
    steps: Vec<(&'static str, Duration)>,
    /// When it was meant to begin.
    began: Instant,
    error: Option<String>,
}

/// Runs a burst on a thread of its own, all of whose users begin at the same moment. When the
/// future is dropped the users stop; `burst_lock` is held until their thread has ended.
///
/// # Errors
/// When the users cannot connect.
pub async fn run(
    server: &Server,
    plan: &BurstPlan,
    origin: Instant,
    burst_lock: &Arc<Mutex<()>>,
) -> Result<BurstOutcome> {
    let (server, plan) = (server.clone(), Arc::new(plan.clone()));
    let (mut outcome_sender, outcome_receiver) = tokio::sync::oneshot::channel();
    let burst_guard = burst_lock.clone().lock_owned().await;
    // Deriving a key for SCRAM takes a client longer than all else; on the burst's thread alone
    // they would wait for one another and not for Egret.
    let client_runtime = Handle::current();
    std::thread::Builder::new()
        .name("burst".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let outcome = match runtime.context("a runtime") {
                Ok(runtime) => LocalSet::new().block_on(&runtime, async {
                    tokio::select! {
                        outcome = run_users(&server, &plan, origin, &client_runtime) => Some(outcome),
                        () = outcome_sender.closed() => None,
                    }
                }),
                Err(error) => Some(Err(error)),
            };
            drop(burst_guard);
            if let Some(outcome) = outcome {
                // The receiver is gone if the measurement was interrupted.
                let _ = outcome_sender.send(outcome);
            }
        })
        .context("start a thread for the burst")?;
    outcome_receiver.await.context("the burst's thread ended")?
}

async fn run_users(
    server: &Server,
    plan: &Arc<BurstPlan>,
    origin: Instant,
    client_runtime: &Handle,
) -> Result<BurstOutcome> {
    let mut connections = Vec::new();
    for _ in 0..plan.branches {
        connections.push(HttpConnection::open(server).await?);
    }
    let gate = Arc::new(Gate::new(connections.len()));
    let mut users = JoinSet::new();
    let before = Snapshot::take()?;
    let intended = Instant::now();
    for (index, connection) in connections.into_iter().enumerate() {
        let (plan, gate, clients) = (plan.clone(), gate.clone(), client_runtime.clone());
        users.spawn_local(async move {
            let result = match plan.client {
                None => run_by_api(connection, &plan, index, intended).await,
                Some(client) => {
                    run_by_proxy(connection, &plan, index, client, &gate, &clients).await
                }
            };
            (index, result)
        });
    }
    let mut results: Vec<(usize, UserResult)> = Vec::new();
    while let Some(user) = users.join_next().await {
        results.push(user.context("a user's task ended")?);
    }
    let ended = Instant::now();
    // While the pool still waits for a quiet moment.
    let usage = Snapshot::take()?.usage_since(&before, &plan.roots);
    results.sort_by_key(|(index, _)| *index);
    let (recorder, cycles) = summarize(results, plan, origin);
    Ok(BurstOutcome { recorder, cycles, wall: ended - intended, ended, before, usage })
}

/// Barrier of all users before those that come by the PostgreSQL port begin.
struct Gate {
    barrier: Barrier,
    /// When the first was let through: all were meant to begin then.
    opened: OnceLock<Instant>,
}

impl Gate {
    fn new(users: usize) -> Self {
        Self { barrier: Barrier::new(users), opened: OnceLock::new() }
    }

    /// Waits until all users have arrived, and returns when that was.
    async fn await_start(&self) -> Instant {
        self.barrier.wait().await;
        *self.opened.get_or_init(Instant::now)
    }
}

fn summarize(
    results: Vec<(usize, UserResult)>,
    plan: &BurstPlan,
    origin: Instant,
) -> (Recorder, Vec<Cycle>) {
    let mut recorder = Recorder::default();
    let mut cycles = Vec::new();
    for (index, result) in results {
        let begin = result.began.saturating_duration_since(origin);
        let mut step_start = begin;
        let mut latencies_ms = BTreeMap::new();
        for (step, latency) in result.steps {
            // Its steps follow one another; what is told by the server alone takes no time here.
            let elapsed = if step == "write_server" { Duration::ZERO } else { latency };
            recorder.record_success(step, step_start, step_start, step_start + latency);
            latencies_ms.insert(step.to_owned(), crate::record::millis(latency));
            step_start += elapsed;
        }
        if let Some(cause) = &result.error {
            recorder.record_failure(cause, step_start, step_start, step_start);
        }
        cycles.push(Cycle {
            index: index as u64,
            group: plan.number,
            at_ms: crate::record::millis(begin),
            latencies_ms,
            error: result.error,
        });
    }
    (recorder, cycles)
}

/// The write of a mode: its SQL and parameters.
pub(crate) fn write_statement(plan: &BurstPlan, index: usize) -> Option<(String, Vec<String>)> {
    match plan.mode {
        BranchMode::Read => None,
        BranchMode::Event => Some((
            "INSERT INTO event (kind, marker, payload) VALUES ($1, $2, $3)".to_owned(),
            vec![
                "order".to_owned(),
                plan.marker.clone(),
                json!({"user": index, "burst": plan.number, "total": "129.90"}).to_string(),
            ],
        )),
        BranchMode::Ddl => Some((
            format!(
                "CREATE TABLE feature (id bigint PRIMARY KEY, name text NOT NULL, made timestamptz DEFAULT now());
                 CREATE INDEX feature_name ON feature (name);
                 ALTER TABLE feature ADD COLUMN note text;
                 INSERT INTO feature (id, name, note) VALUES ({index}, 'new', '{}')",
                plan.marker
            ),
            Vec::new(),
        )),
    }
}

/// Everything through the API.
async fn run_by_api(
    mut connection: HttpConnection,
    plan: &BurstPlan,
    index: usize,
    intended: Instant,
) -> UserResult {
    let name = format!("{}{}-{index}", plan.prefix, plan.number);
    let mut steps = Vec::new();
    let work = async {
        let request = json!({"preset": plan.preset});
        connection.create(&name, &request).await?;
        // All of them were meant to begin at the same moment, also those that had to wait for a
        // turn.
        steps.push(("create", intended.elapsed()));
        for step in ["first_query", "second_query"] {
            let (answer, latency) =
                timed(connection.query(&name, &plan.database, "SELECT 1", &[])).await;
            answer?;
            steps.push((step, latency));
        }
        if let Some((sql, params)) = write_statement(plan, index) {
            let params: Vec<&str> = params.iter().map(String::as_str).collect();
            let (answer, took) =
                timed(connection.query(&name, &plan.database, &sql, &params)).await;
            let server = Duration::from_secs_f64(answer?.elapsed_ms / 1e3);
            steps.push(("write", took));
            steps.push(("write_server", server));
        }
        anyhow::Ok(())
    };
    let mut error = work.await.err();
    let (destroy_result, took) = timed(connection.destroy(&name)).await;
    match destroy_result {
        Ok(()) => steps.push(("destroy", took)),
        Err(destroy_error) => error = error.or(Some(destroy_error)),
    }
    UserResult {
        steps,
        began: intended,
        error: error.map(|error| normalized_cause(&error, &plan.prefix)),
    }
}

/// A fresh client of the PostgreSQL door, all of them at the same moment; the branch is made
/// before.
async fn run_by_proxy(
    mut connection: HttpConnection,
    plan: &BurstPlan,
    index: usize,
    client: QueryClient,
    gate: &Gate,
    client_runtime: &Handle,
) -> UserResult {
    let name = format!("{}{}-{index}", plan.prefix, plan.number);
    let prepare = async {
        connection.create(&name, &json!({"preset": plan.preset})).await?;
        connection.connection_url(&name, &plan.database).await
    };
    let prepared = prepare.await;
    let begun = gate.await_start().await;
    let query_task = client_runtime.spawn(async move {
        let url = prepared?;
        match client {
            QueryClient::Driver => {
                let target = ConnectionTarget::parse(&format!("{url}?sslmode=disable"))?;
                let mut session = target.connect_session().await?;
                session.with(async |client| client.simple_query("SELECT 1").await).await?;
            }
            QueryClient::Psql => psql(&url).await?,
        }
        anyhow::Ok(begun.elapsed())
    });
    let step = match client {
        QueryClient::Driver => "first_query_proxy",
        QueryClient::Psql => "first_query_psql",
    };
    let query_result = query_task.await.context("a client's task ended").flatten();
    // No branch is destroyed before all users have had an answer.
    gate.barrier.wait().await;
    let destroy_result = connection.destroy(&name).await;
    let error = query_result.as_ref().err().or(destroy_result.as_ref().err());
    UserResult {
        began: begun,
        error: error.map(|error| normalized_cause(error, &plan.prefix)),
        steps: query_result.map_or_else(|_| Vec::new(), |latency| vec![(step, latency)]),
    }
}

async fn psql(url: &str) -> Result<()> {
    let password = url.split(':').nth(2).and_then(|rest| rest.split('@').next());
    let url_without_password = url.replacen(&format!(":{}@", password.unwrap_or_default()), "@", 1);
    let output = tokio::process::Command::new("psql")
        .args(["-XAtq", "-c", "SELECT 1", &url_without_password])
        .env("PGPASSWORD", password.unwrap_or_default())
        .env("PGSSLMODE", "disable")
        .output()
        .await
        .context("run psql")?;
    if output.status.success() {
        Ok(())
    } else {
        Err(anyhow!("psql: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// A cause that is the same for failures of the same kind: without the branch's name.
fn normalized_cause(error: &anyhow::Error, prefix: &str) -> String {
    let text = format!("{error:#}");
    let words = text
        .split_whitespace()
        .map(|word| if word.trim_matches('`').starts_with(prefix) { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the failures of a burst say that backends blocked one another.
pub(crate) fn count_deadlocks(errors: &BTreeMap<String, u64>) -> u64 {
    let is_deadlock = |cause: &&String| cause.starts_with("SQLSTATE 40P01");
    errors.keys().filter(is_deadlock).map(|cause| errors[cause]).sum()
}

/// Wishes that no pool serves: the branch is made for this request.
pub(crate) fn cold_request() -> Value {
    json!({"settings": {"work_mem": "4MB"}})
}

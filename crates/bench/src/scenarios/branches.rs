//! `egret bench branches`: bursts of users who each make a branch, work in it and destroy it.
//!
//! ```text
//! pools filled ── burst ── refill ── burst ── refill ── …   the arms, once    proof
//! ```
//!
//! Of each burst every user is in the result. Refill and the processor time of a branch from the
//! pool's side to its deletion are always beside the latencies, so that the pool hides nothing.

mod arms;
mod burst;
mod data;
mod lane;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cli::BranchesArgs;
use crate::process::Snapshot;
use crate::record::{Recorder, Recording, millis, scalar};
use crate::refusal;
use crate::result::{Better, Cycle, Metric};
use crate::scenario::{Measurement, Scenario};
use crate::server::Server;
use crate::stage::Stage;
use arms::{Arms, Readiness};
use burst::{Client, Plan};
use data::{Fingerprint, Source};

/// Serial creates of the arms: as many before that do not count.
const ARM_WARMUP: u32 = 2;

/// Room on the volume of a private Egret beside the source and one whole copy of it.
const VOLUME_SPARE_BYTES: u64 = 3 << 30;

/// The scenario.
pub struct Branches {
    args: BranchesArgs,
    source: Option<Source>,
    marker: String,
    bursts: u64,
}

impl Branches {
    /// Checks the arguments.
    ///
    /// # Errors
    /// When they contradict one another.
    pub fn new(args: &BranchesArgs) -> Result<Self> {
        if !args.run.private && !args.settings.is_empty() {
            return Err(refusal::usage(
                "--setting is for a private Egret: configure the running one itself",
            ));
        }
        Ok(Self {
            marker: format!("egret-bench-{}", std::process::id()),
            args: args.clone(),
            source: None,
            bursts: 0,
        })
    }

    fn plan(&mut self, branches: u32, client: Option<Client>) -> Plan {
        self.bursts += 1;
        Plan {
            branches,
            mode: self.args.mode,
            database: self.args.database.clone(),
            marker: self.marker.clone(),
            number: self.bursts,
            preset: self.args.preset.clone(),
            client,
        }
    }

    fn pool(&self) -> u32 {
        self.args.pool.unwrap_or(self.args.branches)
    }

    fn source(&self) -> Result<&Source> {
        self.source.as_ref().context("the scenario is not prepared")
    }
}

/// Waits until the pools have what they should have.
async fn filled(server: &Server) -> Result<()> {
    server.get("v1/pools?filled=true").await.map(drop)
}

impl Scenario for Branches {
    const NAME: &'static str = "branches";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let all: [(&str, Value); 10] = [
            ("branches", args.branches.into()),
            ("bursts", args.bursts.into()),
            ("mode", format!("{:?}", args.mode).to_lowercase().into()),
            ("source_size_bytes", args.source_size.into()),
            ("pool", self.pool().into()),
            ("preset", args.preset.clone().into()),
            ("database", args.database.clone().into()),
            ("proxy", args.proxy.into()),
            ("psql", args.psql.into()),
            ("settings", json!(args.settings)),
        ];
        all.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        let volume = (self.args.source_size * 2 + VOLUME_SPARE_BYTES) >> 20;
        let mut settings = vec![
            ("branches.volume_size".to_owned(), format!("{volume}MB")),
            (
                "branches.pool_max".to_owned(),
                self.pool().max(1).to_string(),
            ),
            ("branches.template_refresh".to_owned(), String::new()),
        ];
        settings.retain(|(_, value)| !value.is_empty());
        settings.extend(self.args.settings.iter().cloned());
        settings
    }

    fn headline(&self) -> &str {
        "wall"
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        stage.progress.say("making the source");
        let source = Source::open(&server, &self.args.database).await?;
        let progress = stage.progress.clone();
        source
            .fill(self.args.source_size, |text| progress.say(text))
            .await?;
        stage.subject.ask(&source.client().await?, true).await?;
        // The whole of Egret is measured, not only its source.
        stage.subject.processes = server.pid().into_iter().collect();
        stage.subject.data_set = format!("generated, {} MB", self.args.source_size >> 20);
        self.source = Some(source);
        server.post("v1/templates", &json!({})).await?;
        let size = json!({"size": self.pool()});
        put(&server, &format!("v1/pools/{}", self.args.preset), &size).await?;
        stage.progress.say("filling the pool");
        filled(&server).await
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let server = stage.server()?.clone();
        let before = self.source()?.fingerprint().await?;
        let (mut figures, mut recorders, mut cycles) = (Figures::default(), Vec::new(), Vec::new());
        // What the first burst meets for the first time is not what bursts take.
        self.warm_up(&server, &mut cycles).await?;
        let roots: Vec<u32> = server.pid().into_iter().collect();
        figures.memory = hot_memory(&server).await?;
        let window = stage.open_window(None)?;
        for number in 0..self.args.bursts {
            stage
                .progress
                .say(format!("burst {} of {}", number + 1, self.args.bursts));
            let plan = self.plan(self.args.branches, None);
            let start = Snapshot::take()?;
            let outcome = burst::run(&server, &plan, window.origin()).await?;
            // While the pool still waits for a quiet moment.
            let usage = Snapshot::take()?.since(&start, &roots);
            figures.burst_cpu.push(usage.system);
            figures.generator.push(usage.own);
            filled(&server).await?;
            figures.refill.push(outcome.ended.elapsed());
            figures.wall.push(outcome.wall);
            let usage = Snapshot::take()?.since(&start, &roots);
            figures.cpu.push(usage.system);
            recorders.push(outcome.recorder);
            cycles.extend(outcome.cycles);
        }
        let clients = [
            (self.args.proxy, Client::Driver),
            (self.args.psql, Client::Psql),
        ];
        for (_, client) in clients.into_iter().filter(|(wanted, _)| *wanted) {
            for number in 0..self.args.bursts {
                stage.progress.say(format!(
                    "burst {} of {} through the proxy",
                    number + 1,
                    self.args.bursts
                ));
                let plan = self.plan(self.args.branches, Some(client));
                let outcome = burst::run(&server, &plan, window.origin()).await?;
                filled(&server).await?;
                recorders.push(outcome.recorder);
                cycles.extend(outcome.cycles);
            }
        }
        if self.args.arms > 0 {
            recorders.push(self.run_arms(stage, &server, window.origin()).await?);
        }
        let observed = window.close().await?;
        let after = self.source()?.fingerprint().await?;
        figures.mutations = self.mutations(&before, &after).await?;
        let mut measurement = Measurement::new(observed, Recording::merge(recorders));
        measurement.workers = u64::from(self.args.branches);
        measurement.cycles = cycles;
        figures.add_to(&mut measurement, &self.args);
        Ok(measurement)
    }

    async fn clean(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        if self.args.run.private {
            return Ok(());
        }
        put(
            &server,
            &format!("v1/pools/{}", self.args.preset),
            &json!({"size": null}),
        )
        .await?;
        let branches = server.get("v1/branches").await?;
        for branch in branches["items"].as_array().into_iter().flatten() {
            let name = branch["name"].as_str().unwrap_or_default();
            if name.starts_with("bench-") {
                server.delete(&format!("v1/branches/{name}")).await?;
            }
        }
        Ok(())
    }
}

async fn put(server: &Server, path: &str, body: &Value) -> Result<()> {
    let request = server.request(reqwest::Method::PUT, path).json(body);
    server.send(request).await.map(drop)
}

impl Branches {
    /// One burst of each kind that does not count; it stays in the result by itself, as group 0.
    async fn warm_up(&mut self, server: &Server, cycles: &mut Vec<Cycle>) -> Result<()> {
        let mut clients = vec![None];
        clients.extend(self.args.proxy.then_some(Some(Client::Driver)));
        for client in clients {
            let plan = self.plan(self.args.branches, client);
            let outcome = burst::run(server, &plan, Instant::now()).await?;
            let cold = outcome.cycles.into_iter();
            cycles.extend(cold.map(|cycle| Cycle { group: 0, ..cycle }));
            filled(server).await?;
        }
        Ok(())
    }

    /// 0, or how many signs there are that a branch's write reached the source.
    async fn mutations(&self, before: &Fingerprint, after: &Fingerprint) -> Result<u64> {
        let marked = self.source()?.marked(&self.marker).await?;
        Ok(u64::try_from(marked).unwrap_or_default() + u64::from(before != after))
    }

    /// Serial copies: Egret's own without the pool, and without Egret, in turn.
    async fn run_arms(
        &mut self,
        stage: &Stage,
        server: &Server,
        origin: Instant,
    ) -> Result<Recorder> {
        let mut recorder = Recorder::default();
        let mut note = |arm: &str, took: Duration| {
            let at = origin.elapsed().saturating_sub(took);
            recorder.success(arm, at, at, at + took);
        };
        let name = format!("bench-arm-{}", std::process::id());
        let (mut arms, mut request) = (None, burst::cold_wishes());
        request["name"] = name.clone().into();
        for round in 0..self.args.arms + ARM_WARMUP {
            stage.progress.say(format!(
                "copies one by one, {} of {}",
                round + 1,
                self.args.arms + ARM_WARMUP
            ));
            let counts = round >= ARM_WARMUP;
            let begun = Instant::now();
            let branch = server.post("v1/branches", &request).await?;
            let cold = begun.elapsed();
            if arms.is_none() {
                arms = Some(Arms::find(server, &branch).await?);
            }
            server.delete(&format!("v1/branches/{name}")).await?;
            // What is deleted behind must not slow what comes next.
            settled(server).await?;
            if counts {
                note("cold_create", cold);
            }
            let Some(arms) = arms.as_ref().and_then(Option::as_ref) else {
                continue;
            };
            for (arm, readiness) in [
                ("script_create", Readiness::Polled),
                ("watched_create", Readiness::Watched),
            ] {
                let took = tokio::task::block_in_place(|| arms.snapshot_and_start(readiness))?;
                if counts {
                    note(arm, took);
                }
            }
        }
        // What copies every byte needs the room for it.
        let free = server.get("v1/volume").await?["free_bytes"].as_u64();
        if free.unwrap_or_default() < self.args.source_size + VOLUME_SPARE_BYTES / 2 {
            return Ok(recorder);
        }
        let took = self.template_database().await?;
        note("template_database", took);
        if let Some(arms) = arms.flatten().filter(Arms::has_base_backup) {
            let status = server.get("v1/status").await?;
            let port = status["postgres"]["port"].as_u64().unwrap_or_default();
            let data_dir = server
                .door()
                .data_dir
                .as_ref()
                .context("no data directory")?;
            let password = std::fs::read_to_string(data_dir.join("superuser.password"))?;
            stage.progress.say("a base backup");
            let took = tokio::task::block_in_place(|| arms.base_backup(port, password.trim()))?;
            note("basebackup", took);
        }
        Ok(recorder)
    }

    /// `CREATE DATABASE … TEMPLATE` on the source itself.
    async fn template_database(&self) -> Result<Duration> {
        let admin = self.source()?.maintenance().await?;
        let copied = self.args.database.replace('"', "\"\"");
        let name = format!("bench_copy_{}", std::process::id());
        let begun = Instant::now();
        let sql = format!("CREATE DATABASE {name} TEMPLATE \"{copied}\" STRATEGY file_copy");
        admin.batch_execute(&sql).await?;
        let took = begun.elapsed();
        admin
            .batch_execute(&format!("DROP DATABASE {name}"))
            .await?;
        Ok(took)
    }
}

/// Waits until nothing is being deleted.
async fn settled(server: &Server) -> Result<()> {
    for _ in 0..1_000 {
        let check = server.post("v1/verify", &json!({})).await?;
        if check["tombstones"] == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("destroyed branches are still being deleted after 10 s")
}

/// The mean proportional set size of the branches in the pool, in bytes; `None` where Egret's
/// processes are not on this machine.
async fn hot_memory(server: &Server) -> Result<Option<(f64, u64)>> {
    let Some(pid) = server.pid() else {
        return Ok(None);
    };
    let pools = server.get("v1/pools").await?;
    let hot: u64 = pools["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pool| pool["hot"].as_u64())
        .sum();
    let snapshot = Snapshot::take()?;
    let branches = snapshot.tree(&[pid]).into_iter().filter(|pid| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| {
            cwd.parent()
                .is_some_and(|parent| parent.ends_with("branches"))
        })
    });
    let pss = |pid: u32| -> Option<u64> {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let kilobytes: u64 = branches.filter_map(pss).sum();
    Ok((hot > 0).then(|| ((kilobytes * 1_024) as f64 / hot as f64, hot)))
}

/// What bursts add up to besides latencies.
#[derive(Default)]
struct Figures {
    wall: Vec<Duration>,
    refill: Vec<Duration>,
    cpu: Vec<Duration>,
    burst_cpu: Vec<Duration>,
    generator: Vec<Duration>,
    mutations: u64,
    memory: Option<(f64, u64)>,
}

impl Figures {
    fn add_to(self, measurement: &mut Measurement, args: &BranchesArgs) {
        let recording = &measurement.recording;
        let (done, failed) = (recording.successes("destroy"), recording.failures());
        let per_branch = |all: &[Duration]| {
            let sum: Duration = all.iter().sum();
            millis(sum) / (f64::from(args.branches) * all.len().max(1) as f64)
        };
        let bursts = self.wall.len() as u64;
        let mut metrics = vec![
            ("wall", distribution(&self.wall)),
            ("refill", distribution(&self.refill)),
            (
                "cpu_ms_per_branch",
                scalar("ms", Better::Lower, per_branch(&self.cpu), bursts),
            ),
            (
                "burst_cpu_ms_per_branch",
                scalar("ms", Better::Lower, per_branch(&self.burst_cpu), bursts),
            ),
            (
                "generator_cpu_ms_per_branch",
                scalar("ms", Better::Neither, per_branch(&self.generator), bursts),
            ),
            (
                "deadlocks",
                scalar(
                    "count",
                    Better::Lower,
                    burst::deadlocks(&recording.errors) as f64,
                    done,
                ),
            ),
            (
                "source_mutations",
                scalar("count", Better::Lower, self.mutations as f64, done),
            ),
        ];
        let tried = u64::from(args.branches) * bursts;
        let share = (tried.saturating_sub(failed)) as f64 / tried.max(1) as f64;
        metrics.push(("success", scalar("ratio", Better::Higher, share, tried)));
        if let Some((bytes, hot)) = self.memory {
            metrics.push((
                "hot_branch_pss_bytes",
                scalar("bytes", Better::Lower, bytes, hot),
            ));
        }
        let latencies = recording.metrics();
        let median = |name: &str| latencies.get(name).and_then(|metric| metric.p50);
        for (name, arm) in [
            ("cold_create_ratio", "script_create"),
            ("cold_create_watched_ratio", "watched_create"),
        ] {
            if let (Some(cold), Some(arm)) = (median("cold_create"), median(arm)) {
                metrics.push((
                    name,
                    scalar("ratio", Better::Lower, cold / arm, u64::from(args.arms)),
                ));
            }
        }
        let names = metrics
            .into_iter()
            .map(|(name, metric)| (name.to_owned(), metric));
        measurement.metrics.extend(names);
    }
}

/// A latency metric of a few values.
fn distribution(values: &[Duration]) -> Metric {
    let mut recorder = Recorder::default();
    for value in values {
        recorder.success("it", Duration::ZERO, Duration::ZERO, *value);
    }
    let mut metrics = Recording::merge([recorder]).metrics();
    metrics
        .remove("it")
        .unwrap_or_else(|| scalar("ms", Better::Lower, 0.0, 0))
}

//! `egret bench branches`: bursts of users that each make a branch, work in it and destroy it.
//!
//! ```text
//! pools filled ── burst ── refill ── burst ── refill ── …   the arms, once    proof
//! ```
//!
//! Of each burst every user is in the result. Refill and the processor time of a branch from the
//! pool's side to its deletion are always beside the latencies, so that the pool hides nothing.

mod baseline;
mod burst;
mod data;
mod figures;
mod http_connection;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use egret_bench_cli::BranchesArgs;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::environment::{SETTINGS_QUERY, redact_setting};
use crate::record::{Recorder, Recording};
use crate::refusal;
use crate::result::Cycle;
use crate::scenario::{Measurement, Plans, Scenario};
use crate::server::Server;
use crate::stage::Stage;
use baseline::{BaselineCopy, Readiness};
use burst::{BurstPlan, QueryClient};
use data::{Fingerprint, Source};
use figures::Figures;

/// Serial creates of the arms: as many before that do not count.
const ARM_WARMUP_ROUNDS: u32 = 2;

/// Room on the volume of a private Egret beside the source and one whole copy of it.
const VOLUME_SPARE_BYTES: u64 = 3 << 30;

/// Room that must be left beside a copy of every byte, for it to be made at all.
const COPY_SPARE_BYTES: u64 = 256 << 20;

/// State of the scenario `branches`.
pub struct Branches {
    args: BranchesArgs,
    source: Option<Source>,
    marker: String,
    bursts: u64,
    /// The size of the pool that a running Egret's user had chosen.
    pool_before: Option<Value>,
    /// Whether a running Egret had a template, which is then replaced by one without our data.
    had_template: bool,
    /// Held while users are at work.
    burst_lock: Arc<Mutex<()>>,
}

impl Branches {
    /// Checks the arguments.
    ///
    /// # Errors
    /// When they contradict one another.
    pub fn new(args: &BranchesArgs) -> Result<Self> {
        if !args.run.private && !args.settings.is_empty() {
            return Err(refusal::usage(
                "--setting needs --private: configure a running Egret itself",
            ));
        }
        Ok(Self {
            marker: format!("egret-bench-{}", std::process::id()),
            args: args.clone(),
            source: None,
            bursts: 0,
            pool_before: None,
            had_template: false,
            burst_lock: Arc::default(),
        })
    }

    /// Prefix of the names of all branches made here, distinct from those of other processes.
    fn prefix() -> String {
        format!("bench-{}-", std::process::id())
    }

    fn next_plan(&mut self, server: &Server, client: Option<QueryClient>) -> BurstPlan {
        self.bursts += 1;
        BurstPlan {
            branches: self.args.branches,
            prefix: Self::prefix(),
            roots: server.pid().into_iter().collect(),
            mode: self.args.mode,
            database: self.args.database.clone(),
            marker: self.marker.clone(),
            number: self.bursts,
            preset: self.args.preset.clone(),
            client,
        }
    }

    /// The settings of a private Egret, without secrets.
    fn redacted_settings(&self) -> Value {
        let masked = self.args.settings.iter().map(|(key, value)| {
            let value = redact_setting(key, value);
            (key, value)
        });
        json!(masked.collect::<Vec<_>>())
    }

    fn mode(&self) -> String {
        format!("{:?}", self.args.mode).to_lowercase()
    }

    fn pool_size(&self) -> u32 {
        self.args.pool.unwrap_or(self.args.branches)
    }

    fn source(&self) -> Result<&Source> {
        self.source.as_ref().context("the scenario is not prepared")
    }
}

/// Waits until the pools have what they should have.
async fn await_pools_filled(server: &Server) -> Result<()> {
    server.get("v1/pools?filled=true").await.map(drop)
}

impl Scenario for Branches {
    const NAME: &'static str = "branches";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let all: [(&str, Value); 10] = [
            ("branches", args.branches.into()),
            ("bursts", args.bursts.into()),
            ("mode", self.mode().into()),
            ("source_size_bytes", args.source_size.into()),
            ("pool", self.pool_size().into()),
            ("preset", args.preset.clone().into()),
            ("database", args.database.clone().into()),
            ("proxy", args.proxy.into()),
            ("psql", args.psql.into()),
            ("settings", self.redacted_settings()),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        let volume = (self.args.source_size * 2 + VOLUME_SPARE_BYTES) >> 20;
        let mut settings = vec![
            ("branches.volume_size".to_owned(), format!("{volume}MB")),
            ("branches.pool_max".to_owned(), self.pool_size().max(1).to_string()),
        ];
        settings.extend(self.args.settings.iter().cloned());
        settings
    }

    fn ranking_metric(&self) -> &str {
        "wall"
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        self.save_pool_state(&server).await?;
        stage.progress.show("creating the source");
        let progress = stage.progress.clone();
        let source = self.source.insert(Source::open(&server, &self.args.database).await?);
        let bytes = source.fill(self.args.source_size, |text| progress.show(text)).await?;
        stage.subject.add_postgres_facts(&source.connect().await?, true).await?;
        // The whole of Egret is measured, not only its source.
        stage.subject.processes = server.pid().into_iter().collect();
        stage.subject.data_set = format!("generated, {} MB", bytes >> 20);
        server.post("v1/templates", &json!({})).await?;
        let size = json!({"size": self.pool_size()});
        put_json(&server, &format!("v1/pools/{}", self.args.preset), &size).await?;
        stage.progress.show("filling the pool");
        await_pools_filled(&server).await?;
        self.read_branch_settings(stage, &server).await?;
        await_pools_filled(&server).await
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let server = stage.server()?.clone();
        let before = self.source()?.fingerprint().await?;
        let (mut figures, mut recorders, mut cycles) = (Figures::default(), Vec::new(), Vec::new());
        // What the first burst meets for the first time is not what bursts take.
        self.warm_up(&server, &mut cycles).await?;
        figures.memory = figures::hot_memory(&server).await?;
        let window = stage.open_window(None)?;
        for number in 0..self.args.bursts {
            stage.progress.show(format!("burst {} of {}", number + 1, self.args.bursts));
            let plan = self.next_plan(&server, None);
            let outcome = burst::run(&server, &plan, window.origin(), &self.burst_lock).await?;
            await_pools_filled(&server).await?;
            figures.refill.push(outcome.ended.elapsed());
            figures.add_burst(&outcome, &plan.roots)?;
            recorders.push(outcome.recorder);
            cycles.extend(outcome.cycles);
        }
        let clients = [(self.args.proxy, QueryClient::Driver), (self.args.psql, QueryClient::Psql)];
        for (_, client) in clients.into_iter().filter(|(is_enabled, _)| *is_enabled) {
            for number in 0..self.args.bursts {
                stage.progress.show(format!(
                    "burst {} of {} through the proxy",
                    number + 1,
                    self.args.bursts
                ));
                let plan = self.next_plan(&server, Some(client));
                let outcome = burst::run(&server, &plan, window.origin(), &self.burst_lock).await?;
                await_pools_filled(&server).await?;
                recorders.push(outcome.recorder);
                cycles.extend(outcome.cycles);
            }
        }
        if self.args.arms > 0 {
            recorders.push(self.measure_baselines(stage, &server, window.origin()).await?);
        }
        let observed = window.close().await?;
        let after = self.source()?.fingerprint().await?;
        figures.mutations = self.count_mutations(&before, &after).await?;
        let mut measurement = Measurement::new(observed, Recording::merge(recorders));
        measurement.cycles = cycles;
        measurement.warnings.extend(figures.generator_warning());
        figures.add_metrics_to(&mut measurement, &self.args);
        Ok(measurement)
    }

    const CAN_EXPLAIN: bool = true;

    async fn explain(&mut self, stage: &mut Stage) -> Result<Plans> {
        let server = stage.server()?.clone();
        let name = format!("{}explain", Self::prefix());
        let plan = self.next_plan(&server, None);
        let branch_request = json!({"name": name, "preset": self.args.preset});
        server.post("v1/branches", &branch_request).await?;
        let mut plans = Plans::default();
        let statements =
            [Some(("SELECT 1".to_owned(), Vec::new())), burst::write_statement(&plan, 0)];
        for (statement, parameters) in statements.into_iter().flatten() {
            let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}");
            let asked = json!({"sql": sql, "params": parameters, "database": self.args.database});
            let path = format!("v1/branches/{name}/query");
            match server.post(&path, &asked).await {
                Ok(answer) => plans.plans.push(json!({
                    "transaction": self.mode(),
                    "statement": statement,
                    "parameters": parameters,
                    "plan": answer["rows"][0][0],
                })),
                Err(error) => {
                    plans.missing.push(format!("cannot get a plan of `{statement}`: {error:#}"))
                }
            }
        }
        server.delete(&format!("v1/branches/{name}")).await?;
        Ok(plans)
    }

    async fn clean(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        // Interrupted users make no more branches once their thread has ended.
        let _burst_guard = self.burst_lock.lock().await;
        if self.args.run.private {
            return Ok(());
        }
        if let Some(size) = self.pool_before.take() {
            let pool = format!("v1/pools/{}", self.args.preset);
            put_json(&server, &pool, &json!({"size": size})).await?;
        }
        let branches = server.get("v1/branches").await?;
        for branch in branches["items"].as_array().into_iter().flatten() {
            let name = branch["name"].as_str().unwrap_or_default();
            if name.starts_with(&Self::prefix()) {
                server.delete(&format!("v1/branches/{name}")).await?;
            }
        }
        if let Some(source) = self.source.take()
            && source.remove().await?
            && self.had_template
        {
            server.post("v1/templates", &json!({})).await?;
        }
        Ok(())
    }
}

async fn put_json(server: &Server, path: &str, body: &Value) -> Result<()> {
    let request = server.request(reqwest::Method::PUT, path).json(body);
    server.send(request).await.map(drop)
}

impl Branches {
    /// Saves what is restored at the end: the size of the pool, and whether there was a template.
    async fn save_pool_state(&mut self, server: &Server) -> Result<()> {
        let pools = server.get("v1/pools").await?;
        for pool in pools["items"].as_array().into_iter().flatten() {
            self.had_template |= !pool["template"].is_null();
            if pool["preset"] == *self.args.preset {
                let is_chosen = pool["chosen"] == true;
                let size = if is_chosen { pool["target"].clone() } else { Value::Null };
                self.pool_before = Some(size);
            }
        }
        Ok(())
    }

    /// Reads the settings of a branch, which differ from those of the source.
    async fn read_branch_settings(&self, stage: &mut Stage, server: &Server) -> Result<()> {
        let name = format!("{}look", Self::prefix());
        let branch_request = json!({"name": name, "preset": self.args.preset});
        server.post("v1/branches", &branch_request).await?;
        let question = json!({"sql": SETTINGS_QUERY, "database": self.args.database});
        let result = server.post(&format!("v1/branches/{name}/query"), &question).await;
        server.delete(&format!("v1/branches/{name}")).await?;
        let to_text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let answer = result?;
        let rows = answer["rows"].as_array().into_iter().flatten();
        if let Some(facts) = &mut stage.subject.postgres {
            facts.add_branch(rows.map(|row| (to_text(&row[0]), to_text(&row[1]))));
        }
        Ok(())
    }

    /// One burst of each kind that does not count; it stays in the result by itself, as group 0.
    async fn warm_up(&mut self, server: &Server, cycles: &mut Vec<Cycle>) -> Result<()> {
        let mut clients = vec![None];
        clients.extend(self.args.proxy.then_some(Some(QueryClient::Driver)));
        for client in clients {
            let plan = self.next_plan(server, client);
            let outcome = burst::run(server, &plan, Instant::now(), &self.burst_lock).await?;
            let cold = outcome.cycles.into_iter();
            cycles.extend(cold.map(|cycle| Cycle { group: 0, ..cycle }));
            await_pools_filled(server).await?;
        }
        Ok(())
    }

    /// 0, or how many signs there are that a branch's write reached the source.
    async fn count_mutations(&self, before: &Fingerprint, after: &Fingerprint) -> Result<u64> {
        let marked_rows = self.source()?.count_marked_rows(&self.marker).await?;
        Ok(u64::try_from(marked_rows).unwrap_or_default() + u64::from(before != after))
    }

    /// Serial copies: Egret's own without the pool, and without Egret, in turn.
    async fn measure_baselines(
        &mut self,
        stage: &Stage,
        server: &Server,
        origin: Instant,
    ) -> Result<Recorder> {
        let mut recorder = Recorder::default();
        let mut record = |arm: &str, duration: Duration| {
            let started = origin.elapsed().saturating_sub(duration);
            recorder.record_success(arm, started, started, started + duration);
        };
        let name = format!("{}arm", Self::prefix());
        let (mut baseline, mut request) = (None, burst::cold_request());
        request["name"] = name.clone().into();
        for round in 0..self.args.arms + ARM_WARMUP_ROUNDS {
            stage.progress.show(format!(
                "copies one by one, {} of {}",
                round + 1,
                self.args.arms + ARM_WARMUP_ROUNDS
            ));
            let is_measured = round >= ARM_WARMUP_ROUNDS;
            let begun = Instant::now();
            let branch = server.post("v1/branches", &request).await?;
            let cold = begun.elapsed();
            if baseline.is_none() {
                baseline = Some(BaselineCopy::from_branch(server, &branch).await?);
            }
            server.delete(&format!("v1/branches/{name}")).await?;
            // What is deleted behind must not slow what comes next.
            await_deletions(server).await?;
            if is_measured {
                record("cold_create", cold);
            }
            let Some(arms) = baseline.as_ref().and_then(Option::as_ref) else {
                continue;
            };
            for (arm, readiness) in
                [("script_create", Readiness::Polled), ("watched_create", Readiness::Watched)]
            {
                let took = tokio::task::block_in_place(|| arms.snapshot_and_start(readiness))?;
                if is_measured {
                    record(arm, took);
                }
            }
        }
        // What copies every byte needs the room for it.
        let free = server.get("v1/volume").await?["free_bytes"].as_u64();
        if free.unwrap_or_default() < self.args.source_size + COPY_SPARE_BYTES {
            return Ok(recorder);
        }
        let took = self.time_template_database().await?;
        record("template_database", took);
        if let Some(arms) = baseline.flatten().filter(BaselineCopy::has_base_backup) {
            let status = server.get("v1/status").await?;
            let port = status["postgres"]["port"].as_u64().unwrap_or_default();
            let data_dir = server.endpoint().data_dir.as_ref().context("no data directory")?;
            let password = std::fs::read_to_string(data_dir.join("superuser.password"))?;
            stage.progress.show("a base backup");
            let took = tokio::task::block_in_place(|| arms.base_backup(port, password.trim()))?;
            record("basebackup", took);
        }
        Ok(recorder)
    }

    /// `CREATE DATABASE … TEMPLATE` on the source itself.
    async fn time_template_database(&self) -> Result<Duration> {
        let admin = self.source()?.connect_maintenance().await?;
        let quoted = self.args.database.replace('"', "\"\"");
        let name = data::copy_name();
        let begun = Instant::now();
        let sql = format!("CREATE DATABASE {name} TEMPLATE \"{quoted}\" STRATEGY file_copy");
        admin.batch_execute(&sql).await?;
        let duration = begun.elapsed();
        admin.batch_execute(&format!("DROP DATABASE {name}")).await?;
        Ok(duration)
    }
}

/// Waits until nothing is being deleted.
async fn await_deletions(server: &Server) -> Result<()> {
    for _ in 0..1_000 {
        let check = server.post("v1/verify", &json!({})).await?;
        if check["tombstones"] == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("destroyed branches are still being deleted after 10 s")
}

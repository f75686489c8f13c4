//! The parts of the scenario in which nothing is written while it is measured: queries one by one,
//! a restart, memory with very many series, bytes on disk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::answer_checks::check_answers;
use super::components::Components;
use super::drive::{self, PreloadedSenders, SeriesLoad};
use super::evaluate::Catalog;
use super::figures;
use super::kinds::KINDS;
use super::query::SeriesQuery;
use super::read::{READ, ReaderResult, UncheckedAnswer};
use super::system::System;
use crate::footprint::rss_bytes;
use crate::http1::Connection;
use crate::record::{Recorder, Recording, scalar};
use crate::result::Better;
use crate::scenario::Measurement;
use crate::server_process::ServerProcess;
use crate::stage::Stage;

/// Each kind of query is asked so often, about another place each time; the first round is warm-up.
const ROUNDS: u64 = 21;

/// Queries after a restart.
const QUERIES_AFTER_RESTART: u64 = 2 * KINDS.len() as u64;

/// A restart that takes longer is a failure.
const RESTART_TIMEOUT: Duration = Duration::from_secs(600);

/// How long until it is tried again whether the server answers.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// `--scenario queries`: one query after the other, of each kind as many.
pub(super) async fn measure_queries(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<Measurement> {
    let preloaded = drive::preload_samples(stage, load, system).await?;
    let acknowledged = preloaded.acked_steps.acknowledged();
    stage.progress.show("asking");
    let window = stage.open_window(None)?;
    let origin = window.origin();
    let runner = QueryRunner::new(load, system, acknowledged);
    let (asker, round_results) = tokio::task::spawn_blocking(move || {
        let result = runner.run_rounds(origin);
        result.map(|results| (runner, results))
    })
    .await??;
    let observed = window.close().await?;
    let (mut reader_result, medians_ms) = round_results;
    let recorder = std::mem::take(&mut reader_result.recorder);
    let vendor = system.vendor;
    stage.progress.show("checking answers");
    let check_counts = tokio::task::spawn_blocking(move || {
        check_answers(vec![reader_result], &asker.catalog, vendor)
    })
    .await?;
    let mut measurement = Measurement::new(observed, Recording::merge([recorder]));
    let logarithms = medians_ms.iter().map(|median| median.ln()).sum::<f64>();
    let kinds = medians_ms.len();
    let mean = (logarithms / kinds.max(1) as f64).exp();
    let mean = scalar("ms", Better::Lower, mean, kinds as u64);
    measurement.metrics.insert("read_geometric_mean".to_owned(), mean);
    let warning = SeriesQuery::warning(&load.write_params.fleet, acknowledged);
    measurement.warnings.extend(warning);
    figures::add_check_counts(&mut measurement, check_counts);
    Ok(measurement)
}

/// `--scenario restart`: it is killed with what was preloaded, and started again.
pub(super) async fn measure_restart(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
    peer: Option<&mut ServerProcess>,
) -> Result<Measurement> {
    let PreloadedSenders { senders, acked_steps, preload } =
        drive::preload_samples(stage, load, system).await?;
    let acknowledged = acked_steps.acknowledged();
    // Their connections will not outlive it.
    drop(senders);
    let blocks = Components::read_gauge(system, "blocks").unwrap_or_default();
    let log_bytes = Components::read_gauge(system, "log_bytes");
    stage.progress.show("restarting");
    let window = stage.open_window(None)?;
    let begun = match (peer, &mut stage.private_server) {
        (Some(process), _) => process.kill_and_restart()?,
        (None, Some(private)) => private.kill_and_restart()?,
        (None, None) => bail!("only a private Egret can be killed"),
    };
    let runner = QueryRunner::new(load, system, acknowledged);
    let vendor = system.vendor;
    let (ready, reader_result, asker) = tokio::task::spawn_blocking(move || {
        let ready = runner.await_first_answer()?;
        let asked = runner.run_queries(QUERIES_AFTER_RESTART)?;
        anyhow::Ok((ready, asked, runner))
    })
    .await??;
    let origin = window.origin();
    let observed = window.close().await?;
    let mut recorder = Recorder::default();
    let [from, to] = [begun, ready].map(|moment| moment.saturating_duration_since(origin));
    recorder.record_success("restart", from, from, to);
    let check_counts = tokio::task::spawn_blocking(move || {
        check_answers(vec![reader_result], &asker.catalog, vendor)
    })
    .await?;
    let mut measurement = Measurement::new(observed, Recording::merge([recorder]));
    let samples = scalar("count", Better::Neither, preload.samples as f64, 1);
    measurement.metrics.insert("samples_preloaded".to_owned(), samples);
    if let Some(bytes) = log_bytes {
        let bytes = scalar("bytes", Better::Neither, bytes, 1);
        measurement.metrics.insert("log_bytes".to_owned(), bytes);
    }
    if blocks > 0.0 {
        measurement.warnings.push(
            "some samples were in blocks and not in the log: raise series.log_size and \
             series.head_size by --set"
                .to_owned(),
        );
    }
    figures::add_check_counts(&mut measurement, check_counts);
    Ok(measurement)
}

/// `--scenario cardinality`: a few samples of very many series.
pub(super) async fn measure_cardinality(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<Measurement> {
    let window = stage.open_window(None)?;
    let preloaded = drive::preload_samples(stage, load, system).await?;
    let observed = window.close().await?;
    let memory = system.process.and_then(rss_bytes);
    let memory = memory.context("its process is not on this machine, so its memory is unknown")?;
    let series = u64::from(load.write_params.fleet.series);
    let bytes = |value: f64| scalar("bytes", Better::Lower, value, series);
    let preload = preloaded.preload;
    let rate = preload.samples as f64 / preload.duration.as_secs_f64().max(1e-9);
    let mut measurement = Measurement::new(observed, Recording::default());
    measurement.metrics = BTreeMap::from([
        ("rss_bytes".to_owned(), bytes(memory as f64)),
        ("rss_bytes_per_series".to_owned(), bytes(memory as f64 / series as f64)),
        ("samples_per_second".to_owned(), scalar("1/s", Better::Higher, rate, preload.samples)),
    ]);
    Ok(measurement)
}

/// `--scenario disk`: what is preloaded, when all of it is in blocks.
pub(super) async fn measure_disk(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<Measurement> {
    let window = stage.open_window(None)?;
    let preloaded = drive::preload_samples(stage, load, system).await?;
    stage.progress.show("waiting for the disk");
    let system = system.clone();
    let disk = tokio::task::spawn_blocking(move || system.disk_bytes())
        .await??
        .context("its data directory is not on this machine")?;
    let observed = window.close().await?;
    let mut measurement = Measurement::new(observed, Recording::default());
    let samples = preloaded.preload.samples;
    measurement.metrics = BTreeMap::from([
        figures::bytes_per_sample(disk, samples),
        ("disk_bytes".to_owned(), scalar("bytes", Better::Lower, disk as f64, 1)),
    ]);
    Ok(measurement)
}

/// Asks one query after the other about what is there.
struct QueryRunner {
    system: System,
    catalog: Catalog,
    acknowledged: u64,
}

impl QueryRunner {
    fn new(load: &SeriesLoad, system: &System, acknowledged: u64) -> Self {
        Self {
            system: system.clone(),
            catalog: Catalog::new(load.write_params.fleet),
            acknowledged,
        }
    }

    /// All kinds in turns, and the medians of those that could be asked, in milliseconds.
    fn run_rounds(&self, origin: Instant) -> Result<(ReaderResult, Vec<f64>)> {
        let mut connection = Connection::open(&self.system.address.host)?;
        let mut result = ReaderResult::default();
        let mut latencies: Vec<Vec<Duration>> = vec![Vec::new(); KINDS.len()];
        for round in 0..ROUNDS {
            for (kind, kind_latencies) in latencies.iter_mut().enumerate() {
                let random = round * KINDS.len() as u64 + kind as u64;
                let fleet = self.catalog.fleet();
                let Some(query) = SeriesQuery::of_kind(fleet, kind, random, self.acknowledged)
                else {
                    continue;
                };
                let begun = Instant::now();
                let body = self.send_query(&mut connection, &query)?;
                let ended = Instant::now();
                if round > 0 {
                    kind_latencies.push(ended - begun);
                    let [from, to] = [begun, ended].map(|moment| moment - origin);
                    result.recorder.record_success(READ, from, from, to);
                    result.recorder.record_phase(READ, query.kind().name, ended - begun);
                }
                result.keep_answer(UncheckedAnswer { query, body });
            }
        }
        Ok((result, latencies.into_iter().filter_map(median_ms).collect()))
    }

    /// So many queries of all kinds.
    fn run_queries(&self, queries: u64) -> Result<ReaderResult> {
        let mut connection = Connection::open(&self.system.address.host)?;
        let mut result = ReaderResult::default();
        for number in 0..queries {
            if let Some(query) =
                SeriesQuery::choose(self.catalog.fleet(), number, self.acknowledged)
            {
                let body = self.send_query(&mut connection, &query)?;
                result.keep_answer(UncheckedAnswer { query, body });
            }
        }
        Ok(result)
    }

    fn send_query(&self, connection: &mut Connection, query: &SeriesQuery) -> Result<Vec<u8>> {
        let path = query.path(self.system.api);
        let request = self.system.request("GET", &path);
        let (status, body) = connection.exchange(&request, |body| body.to_vec())?;
        if status != 200 {
            let text = String::from_utf8_lossy(&body).into_owned();
            bail!("{} returned {status}: {text}", query.expr);
        }
        Ok(body)
    }

    /// Waits for the first answer. Whether what is answered is right is found out afterwards: a
    /// peer that has lost what it had acknowledged never answers with it.
    fn await_first_answer(&self) -> Result<Instant> {
        let begun = Instant::now();
        let query = SeriesQuery::choose(self.catalog.fleet(), 0, self.acknowledged)
            .context("there are no samples to query: give more --preload")?;
        loop {
            let answer = Connection::open(&self.system.address.host)
                .and_then(|mut connection| self.send_query(&mut connection, &query));
            match answer {
                Ok(_) => return Ok(Instant::now()),
                Err(error) if begun.elapsed() > RESTART_TIMEOUT => return Err(error),
                Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
    }
}

fn median_ms(mut latencies: Vec<Duration>) -> Option<f64> {
    latencies.sort_unstable();
    let middle = latencies.get(latencies.len() / 2)?;
    Some(middle.as_secs_f64() * 1_000.0)
}

//! The parts of the scenario in which nothing is written while it is measured: queries one by one,
//! a restart, memory with very many series, bytes on disk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::components::Components;
use super::drive::{self, PreloadedSenders, SeriesLoad};
use super::evaluate::Catalog;
use super::figures;
use super::kinds::KINDS;
use super::query::SeriesQuery;
use super::read::{READ, ReaderResult, UncheckedAnswer};
use super::system::System;
use super::verdict::judge;
use crate::footprint::rss_bytes;
use crate::http1::Connection;
use crate::record::{Recorder, Recording, scalar};
use crate::result::Better;
use crate::running::ServerProcess;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// Each kind of query is asked so often, about another place each time; the first round is warm-up.
const ROUNDS: u64 = 21;

/// Queries after a restart.
const QUERIES_AFTER: u64 = 2 * KINDS.len() as u64;

/// A restart that takes longer is a failure.
const RESTART_MAX: Duration = Duration::from_secs(600);

/// How long until it is tried again whether the server answers.
const RETRY: Duration = Duration::from_millis(5);

/// `--scenario queries`: one query after the other, of each kind as many.
pub(super) async fn queries(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<Measurement> {
    let loaded = drive::preload(stage, load, system).await?;
    let acknowledged = loaded.frontier.acknowledged();
    stage.progress.say("asking");
    let window = stage.open_window(None)?;
    let origin = window.origin();
    let asker = Asker::new(load, system, acknowledged);
    let (asker, asked) = tokio::task::spawn_blocking(move || {
        let asked = asker.rounds(origin);
        asked.map(|asked| (asker, asked))
    })
    .await??;
    let observed = window.close().await?;
    let (mut asked, medians_ms) = asked;
    let recorder = std::mem::take(&mut asked.recorder);
    let make = system.make;
    stage.progress.say("checking answers");
    let verdict =
        tokio::task::spawn_blocking(move || judge(vec![asked], &asker.catalog, make)).await?;
    let mut measurement = Measurement::new(observed, Recording::merge([recorder]));
    let logarithms = medians_ms.iter().map(|median| median.ln()).sum::<f64>();
    let kinds = medians_ms.len();
    let mean = (logarithms / kinds.max(1) as f64).exp();
    let mean = scalar("ms", Better::Lower, mean, kinds as u64);
    measurement
        .metrics
        .insert("read_geometric_mean".to_owned(), mean);
    let warning = SeriesQuery::warning(&load.sending.fleet, acknowledged);
    measurement.warnings.extend(warning);
    figures::add_verdict(&mut measurement, verdict);
    Ok(measurement)
}

/// `--scenario restart`: it is killed with what was preloaded, and started again.
pub(super) async fn restart(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
    peer: Option<&mut ServerProcess>,
) -> Result<Measurement> {
    let PreloadedSenders {
        lanes,
        frontier,
        preload,
    } = drive::preload(stage, load, system).await?;
    let acknowledged = frontier.acknowledged();
    // Their connections will not outlive it.
    drop(lanes);
    let blocks = Components::gauge(system, "blocks").unwrap_or_default();
    let log_bytes = Components::gauge(system, "log_bytes");
    stage.progress.say("restarting");
    let window = stage.open_window(None)?;
    let begun = match (peer, &mut stage.private) {
        (Some(running), _) => running.crash()?,
        (None, Some(private)) => private.crash()?,
        (None, None) => bail!("only a private Egret can be killed"),
    };
    let asker = Asker::new(load, system, acknowledged);
    let make = system.make;
    let (ready, asked, asker) = tokio::task::spawn_blocking(move || {
        let ready = asker.wait()?;
        let asked = asker.some(QUERIES_AFTER)?;
        anyhow::Ok((ready, asked, asker))
    })
    .await??;
    let origin = window.origin();
    let observed = window.close().await?;
    let mut recorder = Recorder::default();
    let [from, to] = [begun, ready].map(|moment| moment.saturating_duration_since(origin));
    recorder.success("restart", from, from, to);
    let verdict =
        tokio::task::spawn_blocking(move || judge(vec![asked], &asker.catalog, make)).await?;
    let mut measurement = Measurement::new(observed, Recording::merge([recorder]));
    let samples = scalar("count", Better::Neither, preload.samples as f64, 1);
    measurement
        .metrics
        .insert("samples_preloaded".to_owned(), samples);
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
    figures::add_verdict(&mut measurement, verdict);
    Ok(measurement)
}

/// `--scenario cardinality`: a few samples of very many series.
pub(super) async fn cardinality(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<Measurement> {
    let window = stage.open_window(None)?;
    let loaded = drive::preload(stage, load, system).await?;
    let observed = window.close().await?;
    let memory = system.process.and_then(rss_bytes);
    let memory = memory.context("its process is not on this machine, so its memory is unknown")?;
    let series = u64::from(load.sending.fleet.series);
    let bytes = |value: f64| scalar("bytes", Better::Lower, value, series);
    let preload = loaded.preload;
    let rate = preload.samples as f64 / preload.took.as_secs_f64().max(1e-9);
    let mut measurement = Measurement::new(observed, Recording::default());
    measurement.metrics = BTreeMap::from([
        ("rss_bytes".to_owned(), bytes(memory as f64)),
        (
            "rss_bytes_per_series".to_owned(),
            bytes(memory as f64 / series as f64),
        ),
        (
            "samples_per_second".to_owned(),
            scalar("1/s", Better::Higher, rate, preload.samples),
        ),
    ]);
    Ok(measurement)
}

/// `--scenario disk`: what is preloaded, when all of it is in blocks.
pub(super) async fn disk(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<Measurement> {
    let window = stage.open_window(None)?;
    let loaded = drive::preload(stage, load, system).await?;
    stage.progress.say("waiting for the disk");
    let system = system.clone();
    let disk = tokio::task::spawn_blocking(move || system.disk_bytes())
        .await??
        .context("its data directory is not on this machine")?;
    let observed = window.close().await?;
    let mut measurement = Measurement::new(observed, Recording::default());
    let samples = loaded.preload.samples;
    measurement.metrics = BTreeMap::from([
        figures::bytes_per_sample(disk, samples),
        (
            "disk_bytes".to_owned(),
            scalar("bytes", Better::Lower, disk as f64, 1),
        ),
    ]);
    Ok(measurement)
}

/// Asks one query after the other about what is there.
struct Asker {
    system: System,
    catalog: Catalog,
    acknowledged: u64,
}

impl Asker {
    fn new(load: &SeriesLoad, system: &System, acknowledged: u64) -> Self {
        Self {
            system: system.clone(),
            catalog: Catalog::new(load.sending.fleet),
            acknowledged,
        }
    }

    /// All kinds in turns, and the medians of those that could be asked, in milliseconds.
    fn rounds(&self, origin: Instant) -> Result<(ReaderResult, Vec<f64>)> {
        let mut connection = Connection::open(&self.system.address.host)?;
        let mut asked = ReaderResult::default();
        let mut took: Vec<Vec<Duration>> = vec![Vec::new(); KINDS.len()];
        for round in 0..ROUNDS {
            for (kind, took) in took.iter_mut().enumerate() {
                let random = round * KINDS.len() as u64 + kind as u64;
                let fleet = self.catalog.fleet();
                let Some(query) = SeriesQuery::of_kind(fleet, kind, random, self.acknowledged)
                else {
                    continue;
                };
                let begun = Instant::now();
                let body = self.ask(&mut connection, &query)?;
                let ended = Instant::now();
                if round > 0 {
                    took.push(ended - begun);
                    let [from, to] = [begun, ended].map(|moment| moment - origin);
                    asked.recorder.success(READ, from, from, to);
                    asked.recorder.phase(READ, query.kind().name, ended - begun);
                }
                asked.keep(UncheckedAnswer { query, body });
            }
        }
        Ok((asked, took.into_iter().filter_map(median_ms).collect()))
    }

    /// So many queries of all kinds.
    fn some(&self, queries: u64) -> Result<ReaderResult> {
        let mut connection = Connection::open(&self.system.address.host)?;
        let mut asked = ReaderResult::default();
        for number in 0..queries {
            if let Some(query) =
                SeriesQuery::choose(self.catalog.fleet(), number, self.acknowledged)
            {
                let body = self.ask(&mut connection, &query)?;
                asked.keep(UncheckedAnswer { query, body });
            }
        }
        Ok(asked)
    }

    fn ask(&self, connection: &mut Connection, query: &SeriesQuery) -> Result<Vec<u8>> {
        let path = query.path(self.system.api);
        let request = self.system.request("GET", &path);
        let (status, body) = connection.exchange(&request, |body| body.to_vec())?;
        if status != 200 {
            let said = String::from_utf8_lossy(&body).into_owned();
            bail!("{} returned {status}: {said}", query.expr);
        }
        Ok(body)
    }

    /// Waits for the first answer. Whether what is answered is right is found out afterwards: a
    /// peer that has lost what it had acknowledged never answers with it.
    fn wait(&self) -> Result<Instant> {
        let begun = Instant::now();
        let query = SeriesQuery::choose(self.catalog.fleet(), 0, self.acknowledged)
            .context("there are no samples to query: give more --preload")?;
        loop {
            let answered = Connection::open(&self.system.address.host)
                .and_then(|mut connection| self.ask(&mut connection, &query));
            match answered {
                Ok(_) => return Ok(Instant::now()),
                Err(error) if begun.elapsed() > RESTART_MAX => return Err(error),
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }
}

fn median_ms(mut took: Vec<Duration>) -> Option<f64> {
    took.sort_unstable();
    let middle = took.get(took.len() / 2)?;
    Some(middle.as_secs_f64() * 1_000.0)
}

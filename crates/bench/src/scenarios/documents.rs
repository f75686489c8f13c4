//! `egret bench documents`: writes and reads of JSON documents that refer to each other, over HTTP.
//!
//! The volume mix, and after it what one write and one read cost; other scenarios measure one thing
//! each. In the mix each write meets what was acknowledged before it, and at the end what each
//! client did last is looked for. Identities, aliases, references and bodies are compared.

mod client;
mod costs;
mod fixture;
mod loads;
mod workload;

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use egret_bench_cli::{DocumentsArgs, DocumentsScenario, Switch};
use serde_json::{Value, json};

use self::client::{ApiAddress, DocumentsClient, RequestSchedule, run_on_threads};
use self::costs::spread_target;
use self::fixture::{Counts, DocumentsFixture};
use self::workload::{DocumentShape, LiveDocuments};
use crate::load::{Pace as LoadPace, run_until_steady};
use crate::record::{Recorder, Recording, scalar};
use crate::result::{Better, Metric, Warmup};
use crate::scenario::{Measurement, Scenario};
use crate::schedule::Spacing;
use crate::stage::Stage;

/// Length of a measurement without `--seconds`.
const DURATION_DEFAULT: Duration = Duration::from_secs(60);

/// Length of a soak without `--seconds`.
const SOAK_DURATION_DEFAULT: Duration = Duration::from_secs(1_800);

/// Lines of a request of an import.
const IMPORT_LINES: u32 = 1_000;

/// Number of documents that refer to one, in the scenario `referrers`.
const REFERRER_COUNT: u32 = 100_000;

/// Connections that import the documents before the measurement.
const FILL_CLIENTS: u32 = 4;

/// Most documents of each collection whose ids are known for reads.
const KNOWN_IDS_MAX: u32 = 20_000;

/// Sessions that write when group commit is off.
const UNGROUPED_WRITERS: u32 = 16;

/// State of the scenario `documents`.
pub struct Documents {
    args: DocumentsArgs,
    seconds: Duration,
    shape: DocumentShape,
    fixture: Option<DocumentsFixture>,
    /// Documents that are there beforehand: ids of things, then of items.
    ids: Option<Arc<Ids>>,
    run_number: u32,
}

#[derive(Debug, Default)]
struct Ids {
    things: Vec<String>,
    items: Vec<String>,
    /// The thing that very many refer to, where the scenario has one.
    popular: Option<String>,
}

/// Results of a load.
struct DocumentsLoadResult {
    recorders: Vec<Recorder>,
    requests: u64,
    duration: Duration,
    live_documents: Vec<LiveDocuments>,
}

impl Documents {
    /// A scenario with the arguments of the command line.
    pub fn new(args: &DocumentsArgs) -> Self {
        let default_duration = match args.scenario {
            DocumentsScenario::Soak => SOAK_DURATION_DEFAULT,
            _ => DURATION_DEFAULT,
        };
        Self {
            seconds: args.seconds.unwrap_or(default_duration),
            shape: DocumentShape { references: args.references, bytes: args.body_bytes },
            args: args.clone(),
            fixture: None,
            ids: None,
            run_number: 0,
        }
    }

    /// Whether clients make documents and delete them: what they did at last is looked for.
    fn is_mix(&self) -> bool {
        use DocumentsScenario::{Soak, Volume};
        matches!(self.args.scenario, Soak | Volume)
    }

    fn address(&self, stage: &Stage) -> Result<ApiAddress> {
        let fixture = self.fixture.as_ref().context("the scenario is not prepared")?;
        let endpoint = stage.server()?.endpoint();
        let url = endpoint.url.trim_end_matches('/');
        let Some(host) = url.strip_prefix("http://") else {
            bail!("{url}: documents are sent by plain HTTP only");
        };
        Ok(ApiAddress {
            host: host.to_owned(),
            token: endpoint.token.clone().unwrap_or_default(),
            database: fixture.database.clone(),
        })
    }

    /// Runs `work` in all clients, which record it under the names in `operations`.
    async fn run_clients(
        &self,
        stage: &Stage,
        schedule: Arc<RequestSchedule>,
        origin: Instant,
        operations: &'static [&'static str],
        work: impl Fn(&mut DocumentsClient, u32) -> Result<LiveDocuments> + Send + Sync + 'static,
    ) -> Result<DocumentsLoadResult> {
        let address = self.address(stage)?;
        let (shared_schedule, start_barrier) =
            (schedule.clone(), Barrier::new(self.args.clients as usize));
        let results = run_on_threads(self.args.clients, move |number| {
            let client = DocumentsClient::open(address.clone(), schedule.clone(), origin).map(
                |mut client| {
                    client.preallocate(operations);
                    client
                },
            );
            // Nothing is due while clients are still being made, and none of them waits for one
            // that failed.
            start_barrier.wait();
            let mut client = client?;
            let live_documents = work(&mut client, number)?;
            Ok((client.recorder, client.requests, live_documents))
        });
        let mut result = DocumentsLoadResult {
            recorders: Vec::new(),
            requests: 0,
            duration: Duration::ZERO,
            live_documents: Vec::new(),
        };
        for (recorder, requests, left) in results.await? {
            result.recorders.push(recorder);
            result.requests += requests;
            result.live_documents.push(left);
        }
        result.duration = shared_schedule.start_time().elapsed();
        Ok(result)
    }

    /// Metrics of a load besides its latencies.
    fn figures(
        &self,
        load_result: &DocumentsLoadResult,
        counts: Counts,
    ) -> BTreeMap<String, Metric> {
        let requests = load_result.requests;
        let rate = requests as f64 / load_result.duration.as_secs_f64();
        let per_request = |count: i64| count as f64 / requests.max(1) as f64;
        let lower = |value: f64| scalar("count", Better::Lower, value, requests);
        let higher = |value: f64| scalar("1/s", Better::Higher, value, requests);
        let mut metrics = vec![
            ("requests_per_second", higher(rate)),
            ("flushes_per_write", lower(per_request(counts.flushes))),
            ("statements_per_request", lower(per_request(counts.transactions))),
            (
                "wal_bytes_per_request",
                scalar("bytes", Better::Lower, per_request(counts.wal_bytes), requests),
            ),
        ];
        if self.args.scenario == DocumentsScenario::Import {
            metrics.push(("documents_per_second", higher(rate * f64::from(IMPORT_LINES))));
        }
        let named = metrics.into_iter();
        named.map(|(name, metric)| (name.to_owned(), metric)).collect()
    }

    /// Number of documents whose state contradicts what the server has acknowledged.
    async fn count_lost(&self, stage: &Stage, live_documents: Vec<LiveDocuments>) -> Result<u64> {
        let (address, documents) = (self.address(stage)?, Arc::new(live_documents));
        let schedule = Arc::new(RequestSchedule::new(Duration::ZERO, None, stage.seed));
        let counts = run_on_threads(1, move |_| {
            let mut client =
                DocumentsClient::open(address.clone(), schedule.clone(), Instant::now())?;
            let losses = documents.iter().map(|left| workload::count_lost(&mut client, left));
            losses.sum::<Result<u64>>()
        });
        Ok(counts.await?.iter().sum())
    }

    /// Runs the measured load until it is steady.
    async fn warm_up(&mut self, stage: &mut Stage) -> Result<(Warmup, DocumentsLoadResult)> {
        stage.progress.show("warming up");
        self.run_number += 1;
        let warmup_max = self.args.warmup_max;
        let schedule = Arc::new(RequestSchedule::new(warmup_max, self.args.rate, !stage.seed));
        let load_pace = match self.args.rate {
            Some(rate) => LoadPace::Open { rate, spacing: Spacing::Poisson },
            None => LoadPace::Closed,
        };
        let work = self.run_scenario(stage, &schedule, Instant::now());
        run_until_steady(load_pace, warmup_max, &schedule.counter, work, || schedule.stop()).await
    }

    /// Runs `work` `count` times, spread over `clients`, as fast as possible and without recording.
    async fn run_untimed(
        &self,
        stage: &Stage,
        clients: u32,
        count: u32,
        work: impl Fn(&mut DocumentsClient, u32) -> Result<Option<String>> + Send + Sync + 'static,
    ) -> Result<Vec<String>> {
        let address = self.address(stage)?;
        let schedule = Arc::new(RequestSchedule::new(Duration::ZERO, None, stage.seed));
        let results = run_on_threads(clients, move |number| {
            let mut client =
                DocumentsClient::open(address.clone(), schedule.clone(), Instant::now())?;
            let own = (number..count).step_by(clients as usize);
            let outputs = own.map(|index| work(&mut client, index));
            outputs.collect::<Result<Vec<_>>>()
        });
        Ok(results.await?.into_iter().flatten().flatten().collect())
    }

    /// What is there beforehand: things, and as many items that refer to eight of them. They are
    /// put in as lines; then some of them, spread over all, are written once more as they are, so
    /// that their ids are known.
    async fn fill(&self, stage: &Stage) -> Result<Ids> {
        let (shape, count) = (self.shape, self.args.documents / 2);
        let thing = move |index: u32| shape.thing(&format!("t{index}"), 'a');
        let item = move |place: u32| {
            let target = |reference| format!("t{}", (place + reference * 7) % count);
            shape.item(&format!("i{place}"), target, 'a')
        };
        let mut ids = Ids {
            things: self.import_documents(stage, "things", count, thing).await?,
            items: self.import_documents(stage, "items", count, item).await?,
            popular: None,
        };
        if self.args.scenario == DocumentsScenario::Referrers {
            // Neither the first nor the last of what each refers to.
            let popular = count / 2;
            let referring = move |place: u32| {
                let to = |at| match at {
                    0 => format!("t{popular}"),
                    _ => spread_target(place, at, count),
                };
                shape.item(&format!("h{place}"), to, 'a')
            };
            self.import_documents(stage, "items", REFERRER_COUNT, referring).await?;
            let popular_ids = self.run_untimed(stage, 1, 1, move |client, _| {
                let reply = client.send_checked("POST", "documents/things", &thing(popular))?;
                Ok(Some(reply.id))
            });
            ids.popular = popular_ids.await?.pop();
        }
        Ok(ids)
    }

    async fn import_documents(
        &self,
        stage: &Stage,
        collection: &'static str,
        count: u32,
        body: impl Fn(u32) -> String + Copy + Send + Sync + 'static,
    ) -> Result<Vec<String>> {
        let parts = count.div_ceil(IMPORT_LINES);
        self.run_untimed(stage, FILL_CLIENTS, parts, move |client, part| {
            let lines = part * IMPORT_LINES..count.min((part + 1) * IMPORT_LINES);
            let text: String = lines.map(|index| body(index) + "\n").collect();
            let path = format!("collections/{collection}/import");
            client.send_checked("POST", &path, &text).map(|_| None)
        })
        .await?;
        let known_count = count.min(KNOWN_IDS_MAX);
        self.run_untimed(stage, self.args.clients, known_count, move |client, number| {
            let place = (u64::from(number) * u64::from(count) / u64::from(known_count)) as u32;
            let path = format!("documents/{collection}");
            let reply = client.send_checked("POST", &path, &body(place))?;
            ensure!(reply.status == 200, "a line was not imported");
            Ok(Some(reply.id))
        })
        .await
    }
}

impl Scenario for Documents {
    const NAME: &'static str = "documents";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let grouping = if args.grouping == Switch::On { "on" } else { "off" };
        let all = [
            ("scenario", json!(args.scenario.name())),
            ("clients", json!(args.clients)),
            ("seconds", json!(self.seconds.as_secs_f64())),
            ("references", json!(args.references)),
            ("body_bytes", json!(args.body_bytes)),
            ("rate", json!(args.rate)),
            ("grouping", json!(grouping)),
            ("documents", json!(args.documents)),
        ];
        let named = all.into_iter();
        named.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        // This scenario makes no branches, so no volume for them is made either.
        let mut settings = vec![("branches.volume".to_owned(), "copy".to_owned())];
        if self.args.grouping == Switch::Off {
            settings.push(("documents.group_max".to_owned(), "1".to_owned()));
            let writers = UNGROUPED_WRITERS.to_string();
            settings.push(("documents.writers".to_owned(), writers));
        }
        settings
    }

    fn ranking_metric(&self) -> &str {
        "requests_per_second"
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        let fixture = DocumentsFixture::open(&server, self.args.references).await?;
        let client = fixture.connect().await?;
        stage.subject.add_postgres_facts(&client, true).await?;
        stage.subject.data_set = format!(
            "{} documents of {} bytes with {} references",
            self.args.documents, self.args.body_bytes, self.args.references
        );
        self.fixture = Some(fixture);
        stage.progress.show("making documents");
        self.ids = Some(Arc::new(self.fill(stage).await?));
        client.batch_execute("VACUUM (ANALYZE)").await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let (warmup, warmup_result) = self.warm_up(stage).await?;
        self.run_number += 1;
        let fixture = self.fixture.as_ref().context("the scenario is not prepared")?;
        let session = fixture.connect().await?;
        let before = fixture.read_counts(&session).await?;
        let window = stage.open_window(Some(self.seconds))?;
        let origin = window.origin();
        stage.progress.show(self.args.scenario.name());
        let schedule = Arc::new(RequestSchedule::new(self.seconds, self.args.rate, stage.seed));
        let mut result = self.run_scenario(stage, &schedule, origin).await?;
        result.live_documents.extend(warmup_result.live_documents);
        let observed = window.close().await?;
        let counts = fixture.read_counts(&session).await?.since(before);
        let mut metrics = self.figures(&result, counts);
        if self.args.scenario == DocumentsScenario::Volume {
            stage.progress.show("reading");
            let rate = self.measure_reads(stage, origin, &mut result).await?;
            let rate = scalar("1/s", Better::Higher, rate, 1);
            metrics.insert("gets_per_second".to_owned(), rate);
            stage.progress.show("measuring the cost of single operations");
            self.measure_costs(stage, &mut metrics).await?;
        }
        let requests = result.requests;
        let count = |value: u64| scalar("count", Better::Lower, value as f64, requests);
        if self.is_mix() {
            stage.progress.show("checking that all documents exist");
            let lost_count = self.count_lost(stage, result.live_documents).await?;
            metrics.insert("lost".to_owned(), count(lost_count));
        }
        metrics.insert("fsck_errors".to_owned(), count(fixture.fsck().await?));
        let mut measurement = Measurement::new(observed, Recording::merge(result.recorders));
        measurement.metrics = metrics;
        measurement.warmup = Some(warmup);
        measurement.workers = self.args.clients.into();
        Ok(measurement)
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        match self.fixture.take() {
            // A private server is gone with its data.
            Some(fixture) if !self.args.run.private => fixture.remove().await,
            _ => Ok(()),
        }
    }
}

//! `egret bench documents`: writes and reads of JSON documents that refer to each other, over HTTP.
//!
//! The volume mix, and after it what one write and one read cost; other scenarios measure one thing
//! each. In the mix each write meets what was acknowledged before it, and at the end what each
//! client did last is looked for. Identities, aliases, references and bodies are compared.

mod client;
mod costs;
mod loads;
mod schema;
mod workload;

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use egret_bench_cli::{DocumentsArgs, DocumentsScenario, Switch};
use serde_json::{Value, json};

use self::client::{ApiAddress, DocumentsClient, RequestSchedule, each};
use self::costs::all_over;
use self::schema::{Counts, DocumentsFixture};
use self::workload::{DocumentShape, LiveDocuments};
use crate::load::{Pace as LoadPace, settle};
use crate::record::{Recorder, Recording, scalar};
use crate::result::{Better, Metric, Warmup};
use crate::scenario::{Measurement, Scenario};
use crate::schedule::Spacing;
use crate::stage::Stage;

/// Length of a measurement without `--seconds`.
const SECONDS: Duration = Duration::from_secs(60);

/// Length of a soak without `--seconds`.
const SOAK_SECONDS: Duration = Duration::from_secs(1_800);

/// Lines of a request of an import.
const LINES: u32 = 1_000;

/// Number of documents that refer to one, in the scenario `referrers`.
const REFERRERS: u32 = 100_000;

/// Connections that import the documents before the measurement.
const FILLERS: u32 = 4;

/// Most documents of each collection whose ids are known for reads.
const KNOWN_MAX: u32 = 20_000;

/// Sessions that write when group commit is off.
const WRITERS_ALONE: u32 = 16;

/// State of the scenario `documents`.
pub struct Documents {
    args: DocumentsArgs,
    seconds: Duration,
    shape: DocumentShape,
    site: Option<DocumentsFixture>,
    /// Documents that are there beforehand: ids of things, then of items.
    ids: Option<Arc<Ids>>,
    run: u32,
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
    took: Duration,
    left: Vec<LiveDocuments>,
}

impl Documents {
    /// A scenario with the arguments of the command line.
    pub fn new(args: &DocumentsArgs) -> Self {
        let usual = match args.scenario {
            DocumentsScenario::Soak => SOAK_SECONDS,
            _ => SECONDS,
        };
        Self {
            seconds: args.seconds.unwrap_or(usual),
            shape: DocumentShape {
                references: args.references,
                bytes: args.body_bytes,
            },
            args: args.clone(),
            site: None,
            ids: None,
            run: 0,
        }
    }

    /// Whether clients make documents and delete them: what they did at last is looked for.
    fn is_mix(&self) -> bool {
        use DocumentsScenario::{Soak, Volume};
        matches!(self.args.scenario, Soak | Volume)
    }

    fn address(&self, stage: &Stage) -> Result<ApiAddress> {
        let site = self.site.as_ref().context("the scenario is not prepared")?;
        let door = stage.server()?.door();
        let url = door.url.trim_end_matches('/');
        let Some(host) = url.strip_prefix("http://") else {
            bail!("{url}: documents are sent by plain HTTP only");
        };
        Ok(ApiAddress {
            host: host.to_owned(),
            token: door.token.clone().unwrap_or_default(),
            database: site.database.clone(),
        })
    }

    /// Runs `work` in all clients, which record it under the names in `operations`.
    async fn load(
        &self,
        stage: &Stage,
        pace: Arc<RequestSchedule>,
        origin: Instant,
        operations: &'static [&'static str],
        work: impl Fn(&mut DocumentsClient, u32) -> Result<LiveDocuments> + Send + Sync + 'static,
    ) -> Result<DocumentsLoadResult> {
        let address = self.address(stage)?;
        let (at, ready) = (pace.clone(), Barrier::new(self.args.clients as usize));
        let done = each(self.args.clients, move |number| {
            let client =
                DocumentsClient::open(address.clone(), pace.clone(), origin).map(|mut client| {
                    client.prepare(operations);
                    client
                });
            // Nothing is due while clients are still being made, and none of them waits for one
            // that failed.
            ready.wait();
            let mut client = client?;
            let left = work(&mut client, number)?;
            Ok((client.recorder, client.requests, left))
        });
        let mut ran = DocumentsLoadResult {
            recorders: Vec::new(),
            requests: 0,
            took: Duration::ZERO,
            left: Vec::new(),
        };
        for (recorder, requests, left) in done.await? {
            ran.recorders.push(recorder);
            ran.requests += requests;
            ran.left.push(left);
        }
        ran.took = at.begin().elapsed();
        Ok(ran)
    }

    /// Metrics of a load besides its latencies.
    fn figures(&self, ran: &DocumentsLoadResult, came: Counts) -> BTreeMap<String, Metric> {
        let requests = ran.requests;
        let rate = requests as f64 / ran.took.as_secs_f64();
        let per = |count: i64| count as f64 / requests.max(1) as f64;
        let lower = |value: f64| scalar("count", Better::Lower, value, requests);
        let higher = |value: f64| scalar("1/s", Better::Higher, value, requests);
        let mut all = vec![
            ("requests_per_second", higher(rate)),
            ("flushes_per_write", lower(per(came.flushes))),
            ("statements_per_request", lower(per(came.transactions))),
            (
                "wal_bytes_per_request",
                scalar("bytes", Better::Lower, per(came.wal_bytes), requests),
            ),
        ];
        if self.args.scenario == DocumentsScenario::Import {
            all.push(("documents_per_second", higher(rate * f64::from(LINES))));
        }
        let named = all.into_iter();
        named
            .map(|(name, metric)| (name.to_owned(), metric))
            .collect()
    }

    /// Number of documents whose state contradicts what the server has acknowledged.
    async fn lost(&self, stage: &Stage, left: Vec<LiveDocuments>) -> Result<u64> {
        let (address, left) = (self.address(stage)?, Arc::new(left));
        let pace = Arc::new(RequestSchedule::new(Duration::ZERO, None, stage.seed));
        let lost = each(1, move |_| {
            let mut client = DocumentsClient::open(address.clone(), pace.clone(), Instant::now())?;
            let each = left.iter().map(|left| workload::lost(&mut client, left));
            each.sum::<Result<u64>>()
        });
        Ok(lost.await?.iter().sum())
    }

    /// Runs the measured load until it is steady.
    async fn warm_up(&mut self, stage: &mut Stage) -> Result<(Warmup, DocumentsLoadResult)> {
        stage.progress.say("warming up");
        self.run += 1;
        let warmup_max = self.args.warmup_max;
        let pace = Arc::new(RequestSchedule::new(
            warmup_max,
            self.args.rate,
            !stage.seed,
        ));
        let kind = match self.args.rate {
            Some(rate) => LoadPace::Open {
                rate,
                spacing: Spacing::Poisson,
            },
            None => LoadPace::Closed,
        };
        let work = self.main(stage, &pace, Instant::now());
        settle(kind, warmup_max, &pace.pulse, work, || pace.stop()).await
    }

    /// Runs `work` `count` times, spread over `clients`, as fast as possible and without recording.
    async fn all(
        &self,
        stage: &Stage,
        clients: u32,
        count: u32,
        work: impl Fn(&mut DocumentsClient, u32) -> Result<Option<String>> + Send + Sync + 'static,
    ) -> Result<Vec<String>> {
        let address = self.address(stage)?;
        let pace = Arc::new(RequestSchedule::new(Duration::ZERO, None, stage.seed));
        let done = each(clients, move |number| {
            let mut client = DocumentsClient::open(address.clone(), pace.clone(), Instant::now())?;
            let own = (number..count).step_by(clients as usize);
            let made = own.map(|place| work(&mut client, place));
            made.collect::<Result<Vec<_>>>()
        });
        Ok(done.await?.into_iter().flatten().flatten().collect())
    }

    /// What is there beforehand: things, and as many items that refer to eight of them. They are
    /// put in as lines; then some of them, spread over all, are written once more as they are, so
    /// that their ids are known.
    async fn fill(&self, stage: &Stage) -> Result<Ids> {
        let (shape, count) = (self.shape, self.args.documents / 2);
        let thing = move |place: u32| shape.thing(&format!("t{place}"), 'a');
        let item = move |place: u32| {
            let to = |at| format!("t{}", (place + at * 7) % count);
            shape.item(&format!("i{place}"), to, 'a')
        };
        let mut ids = Ids {
            things: self.put_in(stage, "things", count, thing).await?,
            items: self.put_in(stage, "items", count, item).await?,
            popular: None,
        };
        if self.args.scenario == DocumentsScenario::Referrers {
            // Neither the first nor the last of what each refers to.
            let popular = count / 2;
            let referring = move |place: u32| {
                let to = |at| match at {
                    0 => format!("t{popular}"),
                    _ => all_over(place, at, count),
                };
                shape.item(&format!("h{place}"), to, 'a')
            };
            self.put_in(stage, "items", REFERRERS, referring).await?;
            let found = self.all(stage, 1, 1, move |client, _| {
                let answered = client.done("POST", "documents/things", &thing(popular))?;
                Ok(Some(answered.id))
            });
            ids.popular = found.await?.pop();
        }
        Ok(ids)
    }

    async fn put_in(
        &self,
        stage: &Stage,
        collection: &'static str,
        count: u32,
        body: impl Fn(u32) -> String + Copy + Send + Sync + 'static,
    ) -> Result<Vec<String>> {
        let parts = count.div_ceil(LINES);
        self.all(stage, FILLERS, parts, move |client, part| {
            let lines = part * LINES..count.min((part + 1) * LINES);
            let text: String = lines.map(|place| body(place) + "\n").collect();
            let path = format!("collections/{collection}/import");
            client.done("POST", &path, &text).map(|_| None)
        })
        .await?;
        let known = count.min(KNOWN_MAX);
        self.all(stage, self.args.clients, known, move |client, number| {
            let place = (u64::from(number) * u64::from(count) / u64::from(known)) as u32;
            let path = format!("documents/{collection}");
            let answered = client.done("POST", &path, &body(place))?;
            ensure!(answered.status == 200, "a line was not imported");
            Ok(Some(answered.id))
        })
        .await
    }
}

impl Scenario for Documents {
    const NAME: &'static str = "documents";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let grouping = if args.grouping == Switch::On {
            "on"
        } else {
            "off"
        };
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
        named
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        // This scenario makes no branches, so no volume for them is made either.
        let mut settings = vec![("branches.volume".to_owned(), "copy".to_owned())];
        if self.args.grouping == Switch::Off {
            settings.push(("documents.group_max".to_owned(), "1".to_owned()));
            let writers = WRITERS_ALONE.to_string();
            settings.push(("documents.writers".to_owned(), writers));
        }
        settings
    }

    fn headline(&self) -> &str {
        "requests_per_second"
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        let site = DocumentsFixture::open(&server, self.args.references).await?;
        let client = site.client().await?;
        stage.subject.ask(&client, true).await?;
        stage.subject.data_set = format!(
            "{} documents of {} bytes with {} references",
            self.args.documents, self.args.body_bytes, self.args.references
        );
        self.site = Some(site);
        stage.progress.say("making documents");
        self.ids = Some(Arc::new(self.fill(stage).await?));
        client.batch_execute("VACUUM (ANALYZE)").await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let (warmup, warmed) = self.warm_up(stage).await?;
        self.run += 1;
        let site = self.site.as_ref().context("the scenario is not prepared")?;
        let session = site.client().await?;
        let before = site.counts(&session).await?;
        let window = stage.open_window(Some(self.seconds))?;
        let origin = window.origin();
        stage.progress.say(self.args.scenario.name());
        let pace = Arc::new(RequestSchedule::new(
            self.seconds,
            self.args.rate,
            stage.seed,
        ));
        let mut ran = self.main(stage, &pace, origin).await?;
        ran.left.extend(warmed.left);
        let observed = window.close().await?;
        let came = site.counts(&session).await?.since(before);
        let mut metrics = self.figures(&ran, came);
        if self.args.scenario == DocumentsScenario::Volume {
            stage.progress.say("reading");
            let rate = self.reads(stage, origin, &mut ran).await?;
            let rate = scalar("1/s", Better::Higher, rate, 1);
            metrics.insert("gets_per_second".to_owned(), rate);
            stage
                .progress
                .say("measuring the cost of single operations");
            self.costs(stage, &mut metrics).await?;
        }
        let requests = ran.requests;
        let count = |value: u64| scalar("count", Better::Lower, value as f64, requests);
        if self.is_mix() {
            stage.progress.say("checking that all documents exist");
            let lost = self.lost(stage, ran.left).await?;
            metrics.insert("lost".to_owned(), count(lost));
        }
        metrics.insert("fsck_errors".to_owned(), count(site.fsck().await?));
        let mut measurement = Measurement::new(observed, Recording::merge(ran.recorders));
        measurement.metrics = metrics;
        measurement.warmup = Some(warmup);
        measurement.workers = self.args.clients.into();
        Ok(measurement)
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        match self.site.take() {
            // A private server is gone with its data.
            Some(site) if !self.args.run.private => site.remove().await,
            _ => Ok(()),
        }
    }
}

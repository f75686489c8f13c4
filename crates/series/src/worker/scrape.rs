//! Scrapes targets: one loop for each, each at its own moment of the interval, a bounded number at
//! a time.

mod discover;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use egret_base::{Clock, Condition};
use egret_metrics_model::{Labels, TimeMs};
use egret_metrics_wire::exposition::TextFormat;
use egret_outgoing::{Destinations, OutgoingClient};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use self::discover::{DiscoveredTargets, Jobs};
use super::fetch::{self, FetchedBody};
use super::rules::ReloadError;
use super::{Append, now_ms, timestamp, wait_until};
use crate::core::metadata::{Describe, Description, MetadataEntry};
use crate::core::rules::NewSample;
use crate::core::schedule::Schedule;
use crate::core::scrape::{
    Collect, DroppedStatus, Intake, ScrapeConfig, ScrapeDefaults, ScrapePage, ScrapeResult,
    ScrapeTarget, TargetHealth, TargetStatus, TargetsStatus,
};
use crate::metrics::ScrapeMetrics;

/// How late a scrape may begin and still have the time at which it was due: evenly spaced times
/// take less room. No more than a hundredth of the interval.
const LATE_MAX_MS: i64 = 20;

/// Options of the scraper.
#[derive(Clone, Debug)]
pub struct ScraperOptions {
    /// Files of jobs: paths, with `*` for any part of a name.
    pub files: Vec<String>,
    /// Targets of all jobs; over it nothing changes.
    pub targets_max: usize,
    /// Scrapes under way at a time.
    pub scrapes_at_once: usize,
    /// How targets are scraped of which a file does not say it.
    pub defaults: ScrapeDefaults,
    /// Where targets may redirect to, themselves aside.
    pub destinations: Destinations,
    /// Metrics of the scrapes.
    pub metrics: ScrapeMetrics,
}

impl Default for ScraperOptions {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            destinations: Destinations::default(),
            targets_max: 10_000,
            scrapes_at_once: 64,
            defaults: ScrapeDefaults::default(),
            metrics: ScrapeMetrics::default(),
        }
    }
}

/// A target that is asked without HTTP.
#[derive(Clone)]
pub struct OwnTarget {
    /// Name of the target's job.
    pub job: String,
    /// Value of the label `instance`.
    pub instance: String,
    /// URL of the same metrics, shown to people.
    pub url: String,
    /// Between two scrapes, in milliseconds.
    pub interval_ms: i64,
    /// Timeout of a scrape, in milliseconds.
    pub timeout_ms: i64,
    /// Yields the metrics of a scrape.
    pub collect: Arc<dyn Collect>,
}

/// Targets that are scraped.
pub struct Scraper {
    inner: Arc<ScraperInner>,
    jobs: tokio::sync::Mutex<Jobs>,
    /// Reads lists of targets again.
    refreshing: Mutex<Option<JoinHandle<()>>>,
}

struct ScraperInner {
    options: ScraperOptions,
    clock: Arc<dyn Clock>,
    append: Arc<dyn Append>,
    describe: Arc<dyn Describe>,
    permits: Semaphore,
    state: Mutex<ScraperState>,
    /// Lists of targets cannot be read.
    unlisted: Condition,
    /// Some targets are not scraped.
    refused: Condition,
    /// Samples of targets are not kept.
    unkept: Condition,
}

#[derive(Default)]
struct ScraperState {
    loops: BTreeMap<(String, ScrapeTarget), TargetLoop>,
    dropped: Vec<DroppedStatus>,
    dropped_counts: BTreeMap<String, u64>,
}

struct TargetLoop {
    job: Arc<ScrapeJob>,
    status: Arc<Mutex<TargetStatus>>,
    metadata: Shown,
    stop: watch::Sender<bool>,
    running: JoinHandle<Intake>,
}

/// What a target said of its metrics when it was last scraped.
type Shown = Arc<Mutex<Arc<[Arc<MetadataEntry>]>>>;

/// A job with what it is asked by.
struct ScrapeJob {
    config: ScrapeConfig,
    ask: Ask,
}

enum Ask {
    Http(OutgoingClient),
    Own(Arc<dyn Collect>),
}

impl Scraper {
    /// Targets of no file yet: [`Scraper::reload`] reads them, and begins.
    pub fn new(
        options: ScraperOptions,
        own: &[OwnTarget],
        clock: Arc<dyn Clock>,
        append: Arc<dyn Append>,
        describe: Arc<dyn Describe>,
    ) -> Self {
        let jobs = Jobs::new(own, &options);
        let inner = ScraperInner {
            permits: Semaphore::new(options.scrapes_at_once.max(1)),
            state: Mutex::default(),
            unlisted: Condition::new("scrape_lists_unreadable", "scrape jobs"),
            refused: Condition::new("scrape_targets_refused", "scrape jobs"),
            unkept: Condition::new("scrape_samples_not_kept", "scrape jobs"),
            options,
            clock,
            append,
            describe,
        };
        Self {
            inner: Arc::new(inner),
            jobs: tokio::sync::Mutex::new(jobs),
            refreshing: Mutex::default(),
        }
    }

    /// Reads the files again: targets that did not change go on, those that are no more end their
    /// series.
    ///
    /// # Errors
    /// [`ReloadError`] with everything that is wrong; then nothing changes.
    pub async fn reload(self: &Arc<Self>) -> Result<(), ReloadError> {
        let mut jobs = self.jobs.lock().await;
        let found = jobs.read(&self.inner.options.files).await?;
        self.apply(found).await;
        let refresh = jobs.refresh();
        let refreshing = refresh.map(|every| tokio::spawn(refresh_forever(self.clone(), every)));
        let before = std::mem::replace(&mut *lock(&self.refreshing), refreshing);
        // Aborting is safe: the task changes something only while it holds `jobs`, as we do here.
        if let Some(before) = before {
            before.abort();
        }
        Ok(())
    }

    /// Reads lists of targets again. One that cannot be read is as it was.
    async fn refresh(&self) {
        let mut jobs = self.jobs.lock().await;
        match jobs.find().await {
            Ok(found) => {
                self.inner
                    .unlisted
                    .recover("lists of targets are read again");
                self.apply(found).await;
            }
            Err(error) => {
                let message = "cannot read lists of targets; keeping the previous ones, retrying";
                self.inner.unlisted.fail(&error, message);
            }
        }
    }

    async fn apply(&self, found: DiscoveredTargets) {
        if found.problems.is_empty() {
            self.inner.refused.recover("all targets are scraped again");
        } else {
            let reason = found.problems.join("; ");
            self.inner
                .refused
                .fail(reason, "some targets are not scraped");
        }
        let mut wanted = found.targets;
        let mut ended = Vec::new();
        {
            let mut state = lock(&self.inner.state);
            state.dropped = found.dropped;
            state.dropped_counts = found.dropped_counts;
            let names: Vec<_> = state.loops.keys().cloned().collect();
            for name in names {
                let is_same = wanted
                    .get(&name)
                    .is_some_and(|job| Arc::ptr_eq(job, &state.loops[&name].job));
                if is_same {
                    wanted.remove(&name);
                } else if let Some(one) = state.loops.remove(&name) {
                    ended.push((name, one));
                }
            }
        }
        for (_, one) in &ended {
            // Without a receiver it has ended already.
            let _ = one.stop.send(true);
        }
        for (key, one) in ended {
            let Ok(mut intake) = one.running.await else {
                continue;
            };
            match wanted.remove(&key) {
                Some(job) => {
                    let (name, target) = key;
                    self.start(name, target, job, Some(intake))
                }
                None => {
                    let markers = intake.end(now_ms(&*self.inner.clock));
                    // Markers end series that are known.
                    let _ = self.inner.write(&markers, &[]).await;
                }
            }
        }
        for ((name, target), job) in wanted {
            self.start(name, target, job, None);
        }
        let count = lock(&self.inner.state).loops.len();
        self.inner.options.metrics.targets.set(count as i64);
    }

    fn start(
        &self,
        name: String,
        target: ScrapeTarget,
        job: Arc<ScrapeJob>,
        intake: Option<Intake>,
    ) {
        let status = Arc::new(Mutex::new(TargetStatus::new(&name, &target)));
        let metadata = Shown::default();
        let (stop, stopped) = watch::channel(false);
        let one = ScrapeTask {
            metadata: metadata.clone(),
            inner: self.inner.clone(),
            job: job.clone(),
            intake: intake.unwrap_or_else(|| Intake::new(&target)),
            target: target.clone(),
            status: status.clone(),
        };
        let running = tokio::spawn(one.run(stopped));
        let one = TargetLoop {
            job,
            status,
            metadata,
            stop,
            running,
        };
        lock(&self.inner.state).loops.insert((name, target), one);
    }

    /// The `data` of `/api/v1/targets`.
    pub fn status(&self) -> TargetsStatus {
        let state = lock(&self.inner.state);
        let active = state.loops.values().map(|one| lock(&one.status).clone());
        TargetsStatus {
            active_targets: active.collect(),
            dropped_targets: state.dropped.clone(),
            dropped_target_counts: Some(state.dropped_counts.clone()),
        }
    }

    /// What each target said of its metrics when it was last scraped, with the target's labels.
    pub fn metadata(&self) -> Vec<(Labels, Arc<[Arc<MetadataEntry>]>)> {
        let state = lock(&self.inner.state);
        let loops = state.loops.iter();
        let each = loops.map(|((_, target), one)| {
            let said = lock(&one.metadata).clone();
            (target.labels.clone(), said)
        });
        each.collect()
    }

    /// The jobs in force, this program's own first.
    pub async fn jobs(&self) -> Vec<ScrapeConfig> {
        let jobs = self.jobs.lock().await;
        jobs.configs().cloned().collect()
    }

    /// Ends all loops. Series are not ended: after a restart they go on.
    pub async fn stop(&self) {
        let _jobs = self.jobs.lock().await;
        if let Some(refreshing) = lock(&self.refreshing).take() {
            refreshing.abort();
        }
        let loops = std::mem::take(&mut lock(&self.inner.state).loops);
        // No answer of a target is needed any more.
        loops.values().for_each(|one| one.running.abort());
        for (_, one) in loops {
            let _ = one.running.await;
        }
    }
}

async fn refresh_forever(scraper: Arc<Scraper>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        scraper.refresh().await;
    }
}

impl ScraperInner {
    /// Writes a scrape. Returns how many samples have no room for their series, and why, if there
    /// are any.
    async fn write(&self, samples: &[NewSample], report: &[NewSample]) -> Option<String> {
        if samples.is_empty() && report.is_empty() {
            return None;
        }
        match self.append.append_scrape(samples, report).await {
            Ok(appended) => {
                self.note_kept();
                if appended.refused > 0 {
                    tracing::debug!(
                        refused = appended.refused,
                        "some scraped samples were refused"
                    );
                }
                appended.series_limit
            }
            Err(error) => {
                self.unkept.fail(&error, "cannot write scraped samples");
                None
            }
        }
    }

    fn note_kept(&self) {
        self.unkept.recover("writing scraped samples works again");
    }
}

/// The loop of one target.
struct ScrapeTask {
    inner: Arc<ScraperInner>,
    job: Arc<ScrapeJob>,
    intake: Intake,
    target: ScrapeTarget,
    status: Arc<Mutex<TargetStatus>>,
    metadata: Shown,
}

impl ScrapeTask {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Intake {
        let key = format!("{}{}", self.target.labels, self.target.url);
        let schedule = Schedule::new(&key, self.target.interval_ms);
        let mut at = schedule.first(now_ms(&*self.inner.clock));
        loop {
            tokio::select! {
                due = wait_until(&*self.inner.clock, &schedule, at) => at = due,
                _ = stopped.changed() => return self.intake,
            }
            self = self.scrape(at, &mut stopped).await;
            if *stopped.borrow() {
                return self.intake;
            }
            at = schedule.after(at, now_ms(&*self.inner.clock)).at;
        }
    }

    /// Scrapes once. A stop does not wait for the target's answer, which may take as long as its
    /// job allows.
    async fn scrape(mut self, due: TimeMs, stopped: &mut watch::Receiver<bool>) -> Self {
        let inner = self.inner.clone();
        let permit = tokio::select! {
            permit = inner.permits.acquire() => permit,
            _ = stopped.changed() => return self,
        };
        let now = now_ms(&*inner.clock);
        let late_max = LATE_MAX_MS.min(self.target.interval_ms / 100);
        let at = if now - due <= late_max { due } else { now };
        let begun = inner.clock.running();
        let fetched = tokio::select! {
            fetched = self.fetch() => fetched,
            _ = stopped.changed() => return self,
        };
        let took = inner.clock.running().saturating_sub(begun);
        drop(permit);
        let read = tokio::task::spawn_blocking(move || {
            let page = fetched
                .as_ref()
                .map_err(Clone::clone)
                .map(|fetched| ScrapePage {
                    text: &fetched.text,
                    format: fetched.format,
                });
            let (describe, mut said) = (inner.describe.clone(), Vec::new());
            let describe = &mut |one: Description<'_>| said.extend(describe.describe(one));
            let taken = self.intake.take(&self.job.config, page, at, took, describe);
            if taken.error.is_none() {
                *lock(&self.metadata) = said.into();
            }
            (self, taken)
        });
        let (this, taken) = read.await.expect("reading a page panics never");
        let has_failed = taken.error.is_some();
        let metrics = &this.inner.options.metrics;
        metrics.scraped(taken.scraped, took, has_failed);
        this.note(&taken, at, took);
        let unwritten = this.inner.write(&taken.samples, &taken.report).await;
        if let Some(unwritten) = unwritten {
            // The target is up; what is not kept of it is said until there is room.
            lock(&this.status).last_error = unwritten;
        }
        this
    }

    async fn fetch(&self) -> Result<FetchedBody, String> {
        let timeout = Duration::from_millis(self.target.timeout_ms.unsigned_abs());
        match &self.job.ask {
            Ask::Http(client) => {
                fetch::fetch(client, &self.job.config, &self.target.url, timeout).await
            }
            Ask::Own(collect) => {
                let collected = tokio::time::timeout(timeout, collect.collect()).await;
                let text = collected.map_err(|_| format!("no answer within {timeout:?}"))??;
                Ok(FetchedBody {
                    text,
                    format: TextFormat::Prometheus,
                })
            }
        }
    }

    fn note(&self, taken: &ScrapeResult, at: TimeMs, took: Duration) {
        let mut status = lock(&self.status);
        let error = taken.error.as_deref().unwrap_or("");
        if status.last_error != error && !error.is_empty() {
            tracing::debug!(target = %self.target.labels, error, "a scrape failed");
        }
        error.clone_into(&mut status.last_error);
        status.health = match taken.error {
            None => TargetHealth::Up,
            Some(_) => TargetHealth::Down,
        };
        status.last_scrape = Some(timestamp(at));
        status.last_scrape_duration = took.as_secs_f64();
    }
}

impl OwnTarget {
    fn target(&self) -> ScrapeTarget {
        let labels = Labels::new([("instance", &*self.instance), ("job", &*self.job)]);
        ScrapeTarget {
            discovered: labels.clone(),
            labels,
            url: self.url.clone(),
            interval_ms: self.interval_ms,
            timeout_ms: self.timeout_ms.min(self.interval_ms),
        }
    }
}

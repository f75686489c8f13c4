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
const START_DELAY_MAX_MS: i64 = 20;

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
    refresh_task: Mutex<Option<JoinHandle<()>>>,
}

struct ScraperInner {
    options: ScraperOptions,
    clock: Arc<dyn Clock>,
    append: Arc<dyn Append>,
    describe: Arc<dyn Describe>,
    permits: Semaphore,
    state: Mutex<ScraperState>,
    /// Lists of targets cannot be read.
    unreadable_lists: Condition,
    /// Some targets are not scraped.
    refused_targets: Condition,
    /// Samples of targets are not kept.
    unwritten_samples: Condition,
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
    metadata: LatestMetadata,
    stop: watch::Sender<bool>,
    task: JoinHandle<Intake>,
}

/// What a target said of its metrics when it was last scraped.
type LatestMetadata = Arc<Mutex<Arc<[Arc<MetadataEntry>]>>>;

/// A job with what it is asked by.
struct ScrapeJob {
    config: ScrapeConfig,
    fetch_method: FetchMethod,
}

enum FetchMethod {
    Http(OutgoingClient),
    InProcess(Arc<dyn Collect>),
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
            unreadable_lists: Condition::new("scrape_lists_unreadable", "scrape jobs"),
            refused_targets: Condition::new("scrape_targets_refused", "scrape jobs"),
            unwritten_samples: Condition::new("scrape_samples_not_kept", "scrape jobs"),
            options,
            clock,
            append,
            describe,
        };
        Self {
            inner: Arc::new(inner),
            jobs: tokio::sync::Mutex::new(jobs),
            refresh_task: Mutex::default(),
        }
    }

    /// Reads the files again: targets that did not change go on, those that are no more end their
    /// series.
    ///
    /// # Errors
    /// [`ReloadError`] with everything that is wrong; then nothing changes.
    pub async fn reload(self: &Arc<Self>) -> Result<(), ReloadError> {
        let mut jobs = self.jobs.lock().await;
        let discovered = jobs.read_jobs(&self.inner.options.files).await?;
        self.apply(discovered).await;
        let refresh_interval = jobs.refresh_interval();
        let refresh_task =
            refresh_interval.map(|interval| tokio::spawn(run_refresh_loop(self.clone(), interval)));
        let previous_task = std::mem::replace(&mut *lock(&self.refresh_task), refresh_task);
        // Aborting is safe: the task changes something only while it holds `jobs`, as we do here.
        if let Some(before) = previous_task {
            before.abort();
        }
        Ok(())
    }

    /// Reads lists of targets again. One that cannot be read is as it was.
    async fn refresh(&self) {
        let mut jobs = self.jobs.lock().await;
        match jobs.discover_targets().await {
            Ok(discovered) => {
                self.inner.unreadable_lists.recover("lists of targets are read again");
                self.apply(discovered).await;
            }
            Err(error) => {
                let message = "cannot read lists of targets; keeping the previous ones, retrying";
                self.inner.unreadable_lists.fail(&error, message);
            }
        }
    }

    async fn apply(&self, discovered: DiscoveredTargets) {
        if discovered.problems.is_empty() {
            self.inner.refused_targets.recover("all targets are scraped again");
        } else {
            let reason = discovered.problems.join("; ");
            self.inner.refused_targets.fail(reason, "some targets are not scraped");
        }
        let mut new_targets = discovered.targets;
        let mut ended_loops = Vec::new();
        {
            let mut state = lock(&self.inner.state);
            state.dropped = discovered.dropped;
            state.dropped_counts = discovered.dropped_counts;
            let names: Vec<_> = state.loops.keys().cloned().collect();
            for name in names {
                let is_same = new_targets
                    .get(&name)
                    .is_some_and(|job| Arc::ptr_eq(job, &state.loops[&name].job));
                if is_same {
                    new_targets.remove(&name);
                } else if let Some(target_loop) = state.loops.remove(&name) {
                    ended_loops.push((name, target_loop));
                }
            }
        }
        for (_, one) in &ended_loops {
            // Without a receiver it has ended already.
            let _ = one.stop.send(true);
        }
        for (key, one) in ended_loops {
            let Ok(mut intake) = one.task.await else {
                continue;
            };
            match new_targets.remove(&key) {
                Some(job) => {
                    let (name, target) = key;
                    self.start_loop(name, target, job, Some(intake))
                }
                None => {
                    let markers = intake.end_all(now_ms(&*self.inner.clock));
                    // Markers end series that are known.
                    let _ = self.inner.append_samples(&markers, &[]).await;
                }
            }
        }
        for ((name, target), job) in new_targets {
            self.start_loop(name, target, job, None);
        }
        let count = lock(&self.inner.state).loops.len();
        self.inner.options.metrics.targets.set(count as i64);
    }

    fn start_loop(
        &self,
        name: String,
        target: ScrapeTarget,
        job: Arc<ScrapeJob>,
        intake: Option<Intake>,
    ) {
        let status = Arc::new(Mutex::new(TargetStatus::new(&name, &target)));
        let metadata = LatestMetadata::default();
        let (stop, stopped) = watch::channel(false);
        let scrape_task = ScrapeTask {
            metadata: metadata.clone(),
            inner: self.inner.clone(),
            job: job.clone(),
            intake: intake.unwrap_or_else(|| Intake::new(&target)),
            target: target.clone(),
            status: status.clone(),
        };
        let task = tokio::spawn(scrape_task.run(stopped));
        let target_loop = TargetLoop { job, status, metadata, stop, task };
        lock(&self.inner.state).loops.insert((name, target), target_loop);
    }

    /// The `data` of `/api/v1/targets`.
    pub fn status(&self) -> TargetsStatus {
        let state = lock(&self.inner.state);
        let active = state.loops.values().map(|target_loop| lock(&target_loop.status).clone());
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
        let each = loops.map(|((_, target), target_loop)| {
            let said = lock(&target_loop.metadata).clone();
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
        if let Some(refreshing) = lock(&self.refresh_task).take() {
            refreshing.abort();
        }
        let loops = std::mem::take(&mut lock(&self.inner.state).loops);
        // No answer of a target is needed any more.
        loops.values().for_each(|target_loop| target_loop.task.abort());
        for (_, one) in loops {
            let _ = one.task.await;
        }
    }
}

async fn run_refresh_loop(scraper: Arc<Scraper>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        scraper.refresh().await;
    }
}

impl ScraperInner {
    /// Writes a scrape. Returns how many samples have no room for their series, and why, if there
    /// are any.
    async fn append_samples(&self, samples: &[NewSample], report: &[NewSample]) -> Option<String> {
        if samples.is_empty() && report.is_empty() {
            return None;
        }
        match self.append.append_scrape(samples, report).await {
            Ok(appended) => {
                self.note_written();
                if appended.refused > 0 {
                    tracing::debug!(
                        refused = appended.refused,
                        "some scraped samples were refused"
                    );
                }
                appended.series_limit
            }
            Err(error) => {
                self.unwritten_samples.fail(&error, "cannot write scraped samples");
                None
            }
        }
    }

    fn note_written(&self) {
        self.unwritten_samples.recover("writing scraped samples works again");
    }
}

/// The loop of one target.
struct ScrapeTask {
    inner: Arc<ScraperInner>,
    job: Arc<ScrapeJob>,
    intake: Intake,
    target: ScrapeTarget,
    status: Arc<Mutex<TargetStatus>>,
    metadata: LatestMetadata,
}

impl ScrapeTask {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Intake {
        let key = format!("{}{}", self.target.labels, self.target.url);
        let schedule = Schedule::new(&key, self.target.interval_ms);
        let mut scrape_time = schedule.first_after(now_ms(&*self.inner.clock));
        loop {
            tokio::select! {
                due = wait_until(&*self.inner.clock, &schedule, scrape_time) => scrape_time = due,
                _ = stopped.changed() => return self.intake,
            }
            self = self.scrape_once(scrape_time, &mut stopped).await;
            if *stopped.borrow() {
                return self.intake;
            }
            scrape_time = schedule.next_run(scrape_time, now_ms(&*self.inner.clock)).at;
        }
    }

    /// Scrapes once. A stop does not wait for the target's answer, which may take as long as its
    /// job allows.
    async fn scrape_once(mut self, due: TimeMs, stopped: &mut watch::Receiver<bool>) -> Self {
        let inner = self.inner.clone();
        let permit = tokio::select! {
            permit = inner.permits.acquire() => permit,
            _ = stopped.changed() => return self,
        };
        let now = now_ms(&*inner.clock);
        let late_max = START_DELAY_MAX_MS.min(self.target.interval_ms / 100);
        let scrape_time = if now - due <= late_max { due } else { now };
        let started = inner.clock.monotonic();
        let fetched = tokio::select! {
            fetched = self.fetch() => fetched,
            _ = stopped.changed() => return self,
        };
        let elapsed = inner.clock.monotonic().saturating_sub(started);
        drop(permit);
        let read = tokio::task::spawn_blocking(move || {
            let page = fetched
                .as_ref()
                .map_err(Clone::clone)
                .map(|fetched| ScrapePage { text: &fetched.text, format: fetched.format });
            let (describe, mut metadata) = (inner.describe.clone(), Vec::new());
            let describe =
                &mut |description: Description<'_>| metadata.extend(describe.describe(description));
            let result =
                self.intake.take_page(&self.job.config, page, scrape_time, elapsed, describe);
            if result.error.is_none() {
                *lock(&self.metadata) = metadata.into();
            }
            (self, result)
        });
        let (task, taken) = read.await.expect("reading a page panics never");
        let has_failed = taken.error.is_some();
        let metrics = &task.inner.options.metrics;
        metrics.record_scrape(taken.scraped, elapsed, has_failed);
        task.update_status(&taken, scrape_time, elapsed);
        let unwritten = task.inner.append_samples(&taken.samples, &taken.report).await;
        if let Some(unwritten) = unwritten {
            // The target is up; what is not kept of it is said until there is room.
            lock(&task.status).last_error = unwritten;
        }
        task
    }

    async fn fetch(&self) -> Result<FetchedBody, String> {
        let timeout = Duration::from_millis(self.target.timeout_ms.unsigned_abs());
        match &self.job.fetch_method {
            FetchMethod::Http(client) => {
                fetch::fetch(client, &self.job.config, &self.target.url, timeout).await
            }
            FetchMethod::InProcess(collect) => {
                let collected = tokio::time::timeout(timeout, collect.collect()).await;
                let text = collected.map_err(|_| format!("no answer within {timeout:?}"))??;
                Ok(FetchedBody { text, format: TextFormat::Prometheus })
            }
        }
    }

    fn update_status(&self, result: &ScrapeResult, scrape_time: TimeMs, elapsed: Duration) {
        let mut status = lock(&self.status);
        let error = result.error.as_deref().unwrap_or("");
        if status.last_error != error && !error.is_empty() {
            tracing::debug!(target = %self.target.labels, error, "a scrape failed");
        }
        error.clone_into(&mut status.last_error);
        status.health = match result.error {
            None => TargetHealth::Up,
            Some(_) => TargetHealth::Down,
        };
        status.last_scrape = Some(timestamp(scrape_time));
        status.last_scrape_duration = elapsed.as_secs_f64();
    }
}

impl OwnTarget {
    fn to_scrape_target(&self) -> ScrapeTarget {
        let labels = Labels::new([("instance", &*self.instance), ("job", &*self.job)]);
        ScrapeTarget {
            discovered_labels: labels.clone(),
            labels,
            url: self.url.clone(),
            interval_ms: self.interval_ms,
            timeout_ms: self.timeout_ms.min(self.interval_ms),
        }
    }
}

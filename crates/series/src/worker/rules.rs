//! Evaluates rules: one loop for each group, each at its own moment of the interval, a bounded
//! number at a time.

mod faults;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egret_base::sync::lock;
use egret_base::{Clock, CodedError, Kind};
use egret_metrics_model::{Labels, TimeMs};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use self::faults::RuleFaults;
use super::notify::{ReceiverConfig, Receivers};
use super::{Append, now_ms, wait_until};
use crate::core::rules::{
    AlertNotification, AlertsStatus, EvalEnvironment, Evaluate, Fingerprint, GroupSpec, GroupStart,
    NewSample, NotifyOptions, RESOLVED_RETENTION_MS, RuleGroup, RuleSpec, RulesStatus, parse,
};
use crate::core::yaml::TEXT_BYTES_MAX;
use crate::metrics::{NoticeMetrics, RuleMetrics};
use crate::store::files;

/// Options of the evaluation of rules.
#[derive(Clone, Debug)]
pub struct RulesOptions {
    /// Files of rules: paths, with `*` for any part of a name.
    pub files: Vec<String>,
    /// Between two evaluations of a group that does not say so itself, in milliseconds.
    pub interval_ms: i64,
    /// After how long receivers are notified again, in milliseconds.
    pub resend_ms: i64,
    /// Added to alerts; `$externalLabels` in templates.
    pub external_labels: Labels,
    /// How others reach Egret; `$externalURL` in templates.
    pub external_url: Arc<str>,
    /// Groups evaluated at a time.
    pub groups_at_once: usize,
    /// Metrics of the rules.
    pub metrics: RuleMetrics,
    /// Metrics of the notification of receivers.
    pub notice_metrics: NoticeMetrics,
}

impl Default for RulesOptions {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            interval_ms: 60_000,
            resend_ms: 60_000,
            external_labels: Labels::default(),
            external_url: "http://localhost:7070".into(),
            groups_at_once: 2,
            metrics: RuleMetrics::default(),
            notice_metrics: NoticeMetrics::default(),
        }
    }
}

/// Why files were not taken. What was there before goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was reloaded, the previous files stay in force: {}", problems.join("; "))]
pub struct ReloadError {
    /// Everything that is wrong, each with its file and place.
    pub problems: Vec<String>,
}

impl CodedError for ReloadError {
    fn code(&self) -> &'static str {
        "series_files_invalid"
    }

    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// Rules that are evaluated.
pub struct Rules {
    inner: Arc<RulesInner>,
    /// Held while files are read and loops replaced.
    next_group_start: tokio::sync::Mutex<GroupStart>,
    /// Resends the notices of alerts whose rules were removed.
    resend_task: Mutex<Option<JoinHandle<()>>>,
}

struct RulesInner {
    options: RulesOptions,
    clock: Arc<dyn Clock>,
    evaluate: Arc<dyn Evaluate>,
    append: Arc<dyn Append>,
    receivers: Receivers,
    permits: Semaphore,
    loops: Mutex<BTreeMap<GroupKey, GroupLoop>>,
    /// Alerts that ended because their rules are no more: told again for as long as others that
    /// were resolved. Held while they are told, so that of one that fires again that is told after.
    ended_alerts: tokio::sync::Mutex<BTreeMap<Fingerprint, AlertNotification>>,
}

type GroupKey = (Arc<str>, Arc<str>);

struct GroupLoop {
    group: Arc<Mutex<RuleGroup>>,
    /// Dropped or changed, it ends the loop.
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Rules {
    /// Rules of no file yet: [`Rules::reload`] reads them.
    ///
    /// # Errors
    /// If a receiver cannot be started.
    pub fn new(
        options: RulesOptions,
        clock: Arc<dyn Clock>,
        evaluate: Arc<dyn Evaluate>,
        append: Arc<dyn Append>,
        receivers: Vec<ReceiverConfig>,
    ) -> Result<Self, String> {
        let metrics = options.notice_metrics.clone();
        let receivers = Receivers::start(receivers, &options.external_url, metrics)?;
        let inner = RulesInner {
            permits: Semaphore::new(options.groups_at_once.max(1)),
            loops: Mutex::default(),
            ended_alerts: tokio::sync::Mutex::default(),
            options,
            clock,
            evaluate,
            append,
            receivers,
        };
        Ok(Self {
            inner: Arc::new(inner),
            next_group_start: tokio::sync::Mutex::new(GroupStart::Restore),
            resend_task: Mutex::default(),
        })
    }

    /// Reads the files again: groups that did not change go on, changed ones go on with what is
    /// still theirs. Of rules that are no more the alerts are told as resolved, and the series end.
    ///
    /// # Errors
    /// [`ReloadError`] with everything that is wrong; then nothing changes.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let specs = self.read_specs().await?;
        self.apply(specs).await;
        Ok(())
    }

    /// Reads the files, and changes nothing.
    ///
    /// # Errors
    /// As [`Rules::reload`].
    pub(crate) async fn read_specs(&self) -> Result<Vec<GroupSpec>, ReloadError> {
        let patterns = self.inner.options.files.clone();
        let result = tokio::task::spawn_blocking(move || read_specs(&patterns)).await;
        let specs = result.unwrap_or_else(|error| Err(vec![error.to_string()]));
        specs.map_err(|problems| ReloadError { problems })
    }

    /// Goes on with groups that were read.
    pub async fn apply(&self, specs: Vec<GroupSpec>) {
        let mut group_start = self.next_group_start.lock().await;
        let mut new_specs: BTreeMap<GroupKey, GroupSpec> =
            specs.into_iter().map(|spec| ((spec.file.clone(), spec.name.clone()), spec)).collect();
        let ended_loops: Vec<(GroupKey, GroupLoop)> = lock(&self.inner.loops)
            .extract_if(.., |name, group_loop| {
                let is_same =
                    new_specs.get(name).is_some_and(|spec| spec == lock(&group_loop.group).spec());
                if is_same {
                    new_specs.remove(name);
                }
                !is_same
            })
            .collect();
        for (_, one) in &ended_loops {
            one.stop();
        }
        let (now, notify_options) =
            (now_ms(&*self.inner.clock), self.inner.options.notify_options());
        let (mut notices, mut stale_markers, mut changed_groups) =
            (Vec::new(), Vec::new(), Vec::new());
        for (name, one) in ended_loops {
            let old_group = one.join().await;
            if let Some(spec) = new_specs.remove(&name) {
                let mut group = self.new_group(spec, GroupStart::Fresh);
                notices.extend(group.adopt(old_group, now, notify_options));
                changed_groups.push((name, group));
                continue;
            }
            let retired = old_group.retire(now, notify_options);
            notices.extend(retired.notices);
            stale_markers.extend(retired.samples);
        }
        self.notify_ended(notices).await;
        if let Err(problem) = self.inner.append_samples(&stale_markers).await {
            tracing::warn!(problem, "cannot end the series of removed rule groups");
        }
        for (name, group) in changed_groups {
            self.start_loop(name, group);
        }
        for (name, spec) in new_specs {
            let group = self.new_group(spec, *group_start);
            self.start_loop(name, group);
        }
        *group_start = GroupStart::Fresh;
    }

    fn new_group(&self, spec: GroupSpec, group_start: GroupStart) -> RuleGroup {
        RuleGroup::new(spec, self.inner.options.interval_ms, group_start)
    }

    fn start_loop(&self, name: GroupKey, group: RuleGroup) {
        let group = Arc::new(Mutex::new(group));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run_group_loop(self.inner.clone(), group.clone(), stopped));
        let group_loop = GroupLoop { group, stop, task };
        lock(&self.inner.loops).insert(name, group_loop);
    }

    /// Notifies receivers of alerts whose rules were removed, now and for a while.
    async fn notify_ended(&self, notices: Vec<AlertNotification>) {
        if notices.is_empty() {
            return;
        }
        let notices = notices.into_iter().map(|notice| (notice.fingerprint, notice));
        self.inner.ended_alerts.lock().await.extend(notices);
        self.inner.notify_ended().await;
        let resend_task = tokio::spawn(resend_ended(self.inner.clone()));
        if let Some(previous_task) = lock(&self.resend_task).replace(resend_task) {
            previous_task.abort();
        }
    }

    /// The `data` of `/api/v1/rules`.
    pub fn status(&self) -> RulesStatus {
        let loops = lock(&self.inner.loops);
        let groups = loops.values().map(|group_loop| lock(&group_loop.group).status());
        RulesStatus { groups: groups.collect(), group_next_token: None }
    }

    /// The `data` of `/api/v1/alerts`.
    pub fn alerts(&self) -> AlertsStatus {
        self.status().alerts()
    }

    /// Ends all loops. Series are not ended: after a restart they go on.
    pub async fn stop(&self) {
        let _reloading = self.next_group_start.lock().await;
        let loops = std::mem::take(&mut *lock(&self.inner.loops));
        loops.values().for_each(GroupLoop::stop);
        for (_, group_loop) in loops {
            group_loop.join().await;
        }
        if let Some(resend_task) = lock(&self.resend_task).take() {
            resend_task.abort();
        }
        self.inner.receivers.stop().await;
    }
}

impl RulesOptions {
    fn notify_options(&self) -> NotifyOptions<'_> {
        NotifyOptions {
            external_labels: &self.external_labels,
            external_url: &self.external_url,
            resend_ms: self.resend_ms,
        }
    }
}

fn read_specs(patterns: &[String]) -> Result<Vec<GroupSpec>, Vec<String>> {
    let documents = files::read_matching(patterns, TEXT_BYTES_MAX as u64)
        .map_err(|error| vec![error.to_string()])?;
    let (mut groups, mut problems) = (Vec::new(), Vec::new());
    for document in documents {
        match parse(&document.path, &document.text) {
            Ok(parsed) => groups.extend(parsed),
            Err(errors) => problems.extend(errors.iter().map(ToString::to_string)),
        }
    }
    if problems.is_empty() { Ok(groups) } else { Err(problems) }
}

impl GroupLoop {
    /// Asks the loop to end after the rule that is being evaluated.
    fn stop(&self) {
        // Without a receiver it has ended already.
        let _ = self.stop.send(true);
    }

    /// Waits for its end, after [`GroupLoop::stop`].
    async fn join(self) -> RuleGroup {
        let _ = self.task.await;
        let group = Arc::into_inner(self.group)
            .expect("the loop held the only other reference and has ended");
        group.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run_group_loop(
    inner: Arc<RulesInner>,
    group: Arc<Mutex<RuleGroup>>,
    mut stopped: watch::Receiver<bool>,
) {
    let (schedule, faults) = (lock(&group).schedule(), RuleFaults::new());
    let mut eval_time = schedule.first_after(now_ms(&*inner.clock));
    let mut missed = 0;
    loop {
        tokio::select! {
            due = wait_until(&*inner.clock, &schedule, eval_time) => eval_time = due,
            _ = stopped.changed() => return,
        }
        let permit = inner.permits.acquire().await;
        inner.evaluate_group(&group, &faults, eval_time, missed, &stopped).await;
        drop(permit);
        if *stopped.borrow() {
            return;
        }
        let next = schedule.next_run(eval_time, now_ms(&*inner.clock));
        (eval_time, missed) = (next.at, next.missed);
    }
}

async fn resend_ended(inner: Arc<RulesInner>) {
    let mut has_ended = true;
    while has_ended {
        let resend_ms = u64::try_from(inner.options.resend_ms).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(resend_ms)).await;
        has_ended = inner.notify_ended().await;
    }
}

impl RulesInner {
    /// Notifies receivers of alerts whose rules were removed. Returns whether some are due again.
    async fn notify_ended(&self) -> bool {
        let mut ended = self.ended_alerts.lock().await;
        let now = now_ms(&*self.clock);
        ended.retain(|_, notice| now - notice.made_at <= RESOLVED_RETENTION_MS);
        let mut by_name: BTreeMap<&str, Vec<AlertNotification>> = BTreeMap::new();
        for notice in ended.values() {
            let named_notices = by_name.entry(notice.labels.get("alertname")).or_default();
            named_notices.push(notice.clone());
        }
        for (_, notices) in by_name {
            self.receivers.notify(notices).await;
        }
        !ended.is_empty()
    }

    /// Evaluates the rules of a group, one after the other: each sees what those before it have
    /// recorded.
    async fn evaluate_group(
        self: &Arc<Self>,
        group: &Mutex<RuleGroup>,
        faults: &RuleFaults,
        eval_time: TimeMs,
        missed: u64,
        stopped: &watch::Receiver<bool>,
    ) {
        let started = self.clock.monotonic();
        let rules = lock(group).spec().rules.len();
        for rule in 0..rules {
            if *stopped.borrow() {
                return;
            }
            self.evaluate_rule(group, faults, rule, eval_time, stopped.clone()).await;
        }
        self.options.metrics.record_missed(missed);
        let elapsed = self.clock.monotonic().saturating_sub(started);
        let stale_markers = lock(group).finish_evaluation(eval_time, elapsed, missed);
        if let Err(problem) = self.append_samples(&stale_markers).await {
            tracing::warn!(problem, "cannot end the series that rules no longer yield");
        }
        self.restore_alerts(group, eval_time).await;
    }

    async fn evaluate_rule(
        self: &Arc<Self>,
        group: &Mutex<RuleGroup>,
        faults: &RuleFaults,
        rule: usize,
        eval_time: TimeMs,
        mut stopped: watch::Receiver<bool>,
    ) {
        let started = self.clock.monotonic();
        let (spec, offset_ms, limit, file) = {
            let group = lock(group);
            let spec = group.spec();
            let rule = spec.rules[rule].clone();
            (rule, spec.query_offset_ms, spec.limit, spec.file.clone())
        };
        let name = spec.name.clone();
        let inner = self.clone();
        let evaluation = tokio::task::spawn_blocking(move || {
            let environment = EvalEnvironment {
                evaluate: &*inner.evaluate,
                external_labels: &inner.options.external_labels,
                external_url: &inner.options.external_url,
            };
            spec.evaluate(eval_time, offset_ms, limit, environment)
        });
        let found = tokio::select! {
            found = evaluation => found.unwrap_or_else(|error| Err(error.to_string())),
            // The queries may take long. Nothing was changed yet, and the result is no longer
            // needed.
            _ = stopped.changed() => return,
        };
        let elapsed = self.clock.monotonic().saturating_sub(started);
        let has_failed = found.is_err();
        let notify_options = self.options.notify_options();
        let group_evaluation =
            lock(group).apply_result(rule, eval_time, found, elapsed, notify_options);
        let file_name = file.rsplit('/').next().unwrap_or_default();
        let subject = format!("{file_name}: {name} (rule {} of its group)", rule + 1);
        faults.note_problems(&subject, &group_evaluation.problems);
        // What ended is told before its series end, and what fires after it was written: whichever
        // of the two a crash prevents, it is made up for after the restart, under the same key.
        let (resolved, firing): (Vec<AlertNotification>, Vec<AlertNotification>) =
            group_evaluation.notices.into_iter().partition(|notice| notice.is_resolved);
        let accepted = self.receivers.notify(resolved).await;
        lock(group).record_notified(rule, &accepted);
        let written = self.append_samples(&group_evaluation.samples).await;
        faults.note_written(&subject, &written);
        let has_failed = has_failed || written.is_err();
        let took = self.clock.monotonic().saturating_sub(started);
        self.options.metrics.record_evaluation(took, has_failed);
        lock(group).record_appended(rule, written);
        if !firing.is_empty() {
            let mut ended_alerts = self.ended_alerts.lock().await;
            ended_alerts
                .retain(|alert, _| !firing.iter().any(|notice| notice.fingerprint == *alert));
        }
        let told = self.receivers.notify(firing).await;
        lock(group).record_notified(rule, &told);
    }

    async fn append_samples(&self, samples: &[NewSample]) -> Result<(), String> {
        if samples.is_empty() {
            return Ok(());
        }
        let appended = self.append.append(samples).await.map_err(|error| error.to_string())?;
        if appended.refused > 0 {
            tracing::debug!(refused = appended.refused, "some samples of rules were refused");
        }
        Ok(())
    }

    async fn restore_alerts(self: &Arc<Self>, group: &Mutex<RuleGroup>, eval_time: TimeMs) {
        let restore_queries = lock(group).restore_queries(eval_time);
        if restore_queries.is_empty() {
            return;
        }
        let others: Vec<RuleSpec> = lock(&self.loops)
            .values()
            .filter(|other| !std::ptr::eq(&*other.group, group))
            .flat_map(|other| lock(&other.group).spec().rules.clone())
            .collect();
        for (rule, matchers, range) in restore_queries {
            let inner = self.clone();
            let result = tokio::task::spawn_blocking(move || {
                let last = inner.evaluate.last_samples(matchers, range);
                last.map_err(|error| error.to_string())
            })
            .await
            .unwrap_or_else(|error| Err(error.to_string()));
            let samples = result.unwrap_or_else(|problem| {
                tracing::warn!(problem, "cannot read the state of alerts before the start");
                Vec::new()
            });
            lock(group).restore_alerts(rule, &samples, &others, eval_time);
        }
    }
}

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
    NewSample, NotifyOptions, RESOLVED_KEPT_MS, RuleGroup, RuleSpec, RulesStatus, parse,
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
    reloading: tokio::sync::Mutex<GroupStart>,
    /// Resends the notices of alerts whose rules were removed.
    telling_again: Mutex<Option<JoinHandle<()>>>,
}

struct RulesInner {
    options: RulesOptions,
    clock: Arc<dyn Clock>,
    evaluate: Arc<dyn Evaluate>,
    append: Arc<dyn Append>,
    receivers: Receivers,
    permits: Semaphore,
    loops: Mutex<BTreeMap<Name, GroupLoop>>,
    /// Alerts that ended because their rules are no more: told again for as long as others that
    /// were resolved. Held while they are told, so that of one that fires again that is told after.
    ended: tokio::sync::Mutex<BTreeMap<Fingerprint, AlertNotification>>,
}

type Name = (Arc<str>, Arc<str>);

struct GroupLoop {
    group: Arc<Mutex<RuleGroup>>,
    /// Dropped or changed, it ends the loop.
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
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
            ended: tokio::sync::Mutex::default(),
            options,
            clock,
            evaluate,
            append,
            receivers,
        };
        Ok(Self {
            inner: Arc::new(inner),
            reloading: tokio::sync::Mutex::new(GroupStart::AfterStart),
            telling_again: Mutex::default(),
        })
    }

    /// Reads the files again: groups that did not change go on, changed ones go on with what is
    /// still theirs. Of rules that are no more the alerts are told as resolved, and the series end.
    ///
    /// # Errors
    /// [`ReloadError`] with everything that is wrong; then nothing changes.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let specs = self.read().await?;
        self.apply(specs).await;
        Ok(())
    }

    /// Reads the files, and changes nothing.
    ///
    /// # Errors
    /// As [`Rules::reload`].
    pub async fn read(&self) -> Result<Vec<GroupSpec>, ReloadError> {
        let patterns = self.inner.options.files.clone();
        let read = tokio::task::spawn_blocking(move || read(&patterns)).await;
        let specs = read.unwrap_or_else(|error| Err(vec![error.to_string()]));
        specs.map_err(|problems| ReloadError { problems })
    }

    /// Goes on with groups that were read.
    pub async fn apply(&self, specs: Vec<GroupSpec>) {
        let mut begin = self.reloading.lock().await;
        let mut wanted: BTreeMap<Name, GroupSpec> = specs
            .into_iter()
            .map(|spec| ((spec.file.clone(), spec.name.clone()), spec))
            .collect();
        let ended: Vec<(Name, GroupLoop)> = lock(&self.inner.loops)
            .extract_if(.., |name, one| {
                let same = wanted
                    .get(name)
                    .is_some_and(|spec| spec == lock(&one.group).spec());
                if same {
                    wanted.remove(name);
                }
                !same
            })
            .collect();
        for (_, one) in &ended {
            one.stop();
        }
        let (now, telling) = (now_ms(&*self.inner.clock), self.inner.options.telling());
        let (mut notices, mut markers, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for (name, one) in ended {
            let old = one.end().await;
            if let Some(spec) = wanted.remove(&name) {
                let mut group = self.group(spec, GroupStart::Anew);
                notices.extend(group.adopt(old, now, telling));
                changed.push((name, group));
                continue;
            }
            let retired = old.retire(now, telling);
            notices.extend(retired.notices);
            markers.extend(retired.samples);
        }
        self.tell_ended(notices).await;
        if let Err(problem) = self.inner.write(&markers).await {
            tracing::warn!(problem, "cannot end the series of removed rule groups");
        }
        for (name, group) in changed {
            self.start(name, group);
        }
        for (name, spec) in wanted {
            let group = self.group(spec, *begin);
            self.start(name, group);
        }
        *begin = GroupStart::Anew;
    }

    fn group(&self, spec: GroupSpec, begin: GroupStart) -> RuleGroup {
        RuleGroup::new(spec, self.inner.options.interval_ms, begin)
    }

    fn start(&self, name: Name, group: RuleGroup) {
        let group = Arc::new(Mutex::new(group));
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(run(self.inner.clone(), group.clone(), stopped));
        let one = GroupLoop {
            group,
            stop,
            running,
        };
        lock(&self.inner.loops).insert(name, one);
    }

    /// Notifies receivers of alerts whose rules were removed, now and for a while.
    async fn tell_ended(&self, notices: Vec<AlertNotification>) {
        if notices.is_empty() {
            return;
        }
        let notices = notices
            .into_iter()
            .map(|notice| (notice.fingerprint, notice));
        self.inner.ended.lock().await.extend(notices);
        self.inner.tell_ended().await;
        let again = tokio::spawn(tell_ended_again(self.inner.clone()));
        if let Some(before) = lock(&self.telling_again).replace(again) {
            before.abort();
        }
    }

    /// The `data` of `/api/v1/rules`.
    pub fn status(&self) -> RulesStatus {
        let loops = lock(&self.inner.loops);
        let groups = loops.values().map(|one| lock(&one.group).status());
        RulesStatus {
            groups: groups.collect(),
            group_next_token: None,
        }
    }

    /// The `data` of `/api/v1/alerts`.
    pub fn alerts(&self) -> AlertsStatus {
        self.status().alerts()
    }

    /// Ends all loops. Series are not ended: after a restart they go on.
    pub async fn stop(&self) {
        let _reloading = self.reloading.lock().await;
        let loops = std::mem::take(&mut *lock(&self.inner.loops));
        loops.values().for_each(GroupLoop::stop);
        for (_, one) in loops {
            one.end().await;
        }
        if let Some(telling) = lock(&self.telling_again).take() {
            telling.abort();
        }
        self.inner.receivers.stop().await;
    }
}

impl RulesOptions {
    fn telling(&self) -> NotifyOptions<'_> {
        NotifyOptions {
            external_labels: &self.external_labels,
            external_url: &self.external_url,
            resend_ms: self.resend_ms,
        }
    }
}

fn read(patterns: &[String]) -> Result<Vec<GroupSpec>, Vec<String>> {
    let documents = files::read_matching(patterns, TEXT_BYTES_MAX as u64)
        .map_err(|error| vec![error.to_string()])?;
    let (mut groups, mut problems) = (Vec::new(), Vec::new());
    for document in documents {
        match parse(&document.path, &document.text) {
            Ok(found) => groups.extend(found),
            Err(errors) => problems.extend(errors.iter().map(ToString::to_string)),
        }
    }
    if problems.is_empty() {
        Ok(groups)
    } else {
        Err(problems)
    }
}

impl GroupLoop {
    /// Asks the loop to end after the rule that is being evaluated.
    fn stop(&self) {
        // Without a receiver it has ended already.
        let _ = self.stop.send(true);
    }

    /// Waits for its end, after [`GroupLoop::stop`].
    async fn end(self) -> RuleGroup {
        let _ = self.running.await;
        let group = Arc::into_inner(self.group)
            .expect("the loop held the only other reference and has ended");
        group.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(
    inner: Arc<RulesInner>,
    group: Arc<Mutex<RuleGroup>>,
    mut stopped: watch::Receiver<bool>,
) {
    let (schedule, faults) = (lock(&group).schedule(), RuleFaults::new());
    let mut at = schedule.first(now_ms(&*inner.clock));
    let mut missed = 0;
    loop {
        tokio::select! {
            due = wait_until(&*inner.clock, &schedule, at) => at = due,
            _ = stopped.changed() => return,
        }
        let permit = inner.permits.acquire().await;
        inner.pass(&group, &faults, at, missed, &stopped).await;
        drop(permit);
        if *stopped.borrow() {
            return;
        }
        let next = schedule.after(at, now_ms(&*inner.clock));
        (at, missed) = (next.at, next.missed);
    }
}

async fn tell_ended_again(inner: Arc<RulesInner>) {
    let mut are_left = true;
    while are_left {
        let resend_ms = u64::try_from(inner.options.resend_ms).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(resend_ms)).await;
        are_left = inner.tell_ended().await;
    }
}

impl RulesInner {
    /// Notifies receivers of alerts whose rules were removed. Returns whether some are due again.
    async fn tell_ended(&self) -> bool {
        let mut ended = self.ended.lock().await;
        let now = now_ms(&*self.clock);
        ended.retain(|_, notice| now - notice.at <= RESOLVED_KEPT_MS);
        let mut by_name: BTreeMap<&str, Vec<AlertNotification>> = BTreeMap::new();
        for notice in ended.values() {
            let of_name = by_name.entry(notice.labels.get("alertname")).or_default();
            of_name.push(notice.clone());
        }
        for (_, notices) in by_name {
            self.receivers.tell(notices).await;
        }
        !ended.is_empty()
    }

    /// Evaluates the rules of a group, one after the other: each sees what those before it have
    /// recorded.
    async fn pass(
        self: &Arc<Self>,
        group: &Mutex<RuleGroup>,
        faults: &RuleFaults,
        at: TimeMs,
        missed: u64,
        stopped: &watch::Receiver<bool>,
    ) {
        let begun = self.clock.running();
        let rules = lock(group).spec().rules.len();
        for rule in 0..rules {
            if *stopped.borrow() {
                return;
            }
            self.evaluate(group, faults, rule, at, stopped.clone())
                .await;
        }
        self.options.metrics.missed(missed);
        let took = self.clock.running().saturating_sub(begun);
        let markers = lock(group).finish(at, took, missed);
        if let Err(problem) = self.write(&markers).await {
            tracing::warn!(problem, "cannot end the series that rules no longer yield");
        }
        self.restore(group, at).await;
    }

    async fn evaluate(
        self: &Arc<Self>,
        group: &Mutex<RuleGroup>,
        faults: &RuleFaults,
        rule: usize,
        at: TimeMs,
        mut stopped: watch::Receiver<bool>,
    ) {
        let begun = self.clock.running();
        let (spec, offset_ms, limit, file) = {
            let group = lock(group);
            let spec = group.spec();
            let rule = spec.rules[rule].clone();
            (rule, spec.query_offset_ms, spec.limit, spec.file.clone())
        };
        let name = spec.name.clone();
        let inner = self.clone();
        let found = tokio::task::spawn_blocking(move || {
            let around = EvalEnvironment {
                evaluate: &*inner.evaluate,
                external_labels: &inner.options.external_labels,
                external_url: &inner.options.external_url,
            };
            spec.evaluate(at, offset_ms, limit, around)
        });
        let found = tokio::select! {
            found = found => found.unwrap_or_else(|error| Err(error.to_string())),
            // The queries may take long. Nothing was changed yet, and the result is no longer
            // needed.
            _ = stopped.changed() => return,
        };
        let took = self.clock.running().saturating_sub(begun);
        let has_failed = found.is_err();
        let telling = self.options.telling();
        let settled = lock(group).settle(rule, at, found, took, telling);
        let file_name = file.rsplit('/').next().unwrap_or_default();
        let subject = format!("{file_name}: {name} (rule {} of its group)", rule + 1);
        faults.note_problems(&subject, &settled.problems);
        // What ended is told before its series end, and what fires after it was written: whichever
        // of the two a crash prevents, it is made up for after the restart, under the same key.
        let (ended, firing): (Vec<AlertNotification>, Vec<AlertNotification>) = settled
            .notices
            .into_iter()
            .partition(|notice| notice.is_resolved);
        let told = self.receivers.tell(ended).await;
        lock(group).told(rule, &told);
        let written = self.write(&settled.samples).await;
        faults.note_written(&subject, &written);
        let has_failed = has_failed || written.is_err();
        let took = self.clock.running().saturating_sub(begun);
        self.options.metrics.evaluated(took, has_failed);
        lock(group).appended(rule, written);
        if !firing.is_empty() {
            let mut ended = self.ended.lock().await;
            ended.retain(|alert, _| !firing.iter().any(|notice| notice.fingerprint == *alert));
        }
        let told = self.receivers.tell(firing).await;
        lock(group).told(rule, &told);
    }

    async fn write(&self, samples: &[NewSample]) -> Result<(), String> {
        if samples.is_empty() {
            return Ok(());
        }
        let appended = self
            .append
            .append(samples)
            .await
            .map_err(|error| error.to_string())?;
        if appended.refused > 0 {
            tracing::debug!(
                refused = appended.refused,
                "some samples of rules were refused"
            );
        }
        Ok(())
    }

    async fn restore(self: &Arc<Self>, group: &Mutex<RuleGroup>, at: TimeMs) {
        let wanted = lock(group).to_restore(at);
        if wanted.is_empty() {
            return;
        }
        let others: Vec<RuleSpec> = lock(&self.loops)
            .values()
            .filter(|other| !std::ptr::eq(&*other.group, group))
            .flat_map(|other| lock(&other.group).spec().rules.clone())
            .collect();
        for (rule, matchers, range) in wanted {
            let inner = self.clone();
            let read = tokio::task::spawn_blocking(move || {
                let last = inner.evaluate.last(matchers, range);
                last.map_err(|error| error.to_string())
            })
            .await
            .unwrap_or_else(|error| Err(error.to_string()));
            let written = read.unwrap_or_else(|problem| {
                tracing::warn!(problem, "cannot read the state of alerts before the start");
                Vec::new()
            });
            lock(group).restore(rule, &written, &others, at);
        }
    }
}

//! Samples that must be found after the writes, and those that may be.

use std::collections::BTreeMap;

use egret_metrics_model::{TimeMs, TimeSpan};

/// A series and the time of one of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SampleKey {
    pub series: u64,
    pub time_ms: TimeMs,
}

/// Samples by series and time.
pub(super) type Samples = BTreeMap<SampleKey, f64>;

/// A deletion with unknown outcome: it failed, or the power went.
#[derive(Debug)]
pub(super) struct UncertainDeletion {
    pub span: TimeSpan,
    /// The only series, or all.
    pub series: Option<u64>,
    /// What was to be deleted and was not written since: gone as a whole in the end, or there.
    samples: Samples,
}

impl UncertainDeletion {
    fn covers(&self, key: &SampleKey) -> bool {
        let TimeSpan { start, end } = self.span;
        (start..=end).contains(&key.time_ms) && self.series.is_none_or(|one| one == key.series)
    }
}

#[derive(Debug, Default)]
pub(super) struct ExpectedState {
    /// What was acknowledged and neither deleted since nor over.
    acknowledged: Samples,
    /// Samples that are over: they may be there or not.
    expired: Samples,
    /// What was being written when the power went: there as a whole, or not.
    unanswered: Samples,
    uncertain_deletion: Option<UncertainDeletion>,
}

impl ExpectedState {
    /// The value that a sample was written with before, if it was.
    pub(crate) fn value(&self, key: &SampleKey) -> Option<f64> {
        self.acknowledged.get(key).or(self.expired.get(key)).copied()
    }

    pub(crate) fn add_acknowledged(&mut self, samples: Samples) {
        for key in samples.keys() {
            self.expired.remove(key);
            if let Some(deletion) = &mut self.uncertain_deletion {
                deletion.samples.remove(key);
            }
        }
        self.acknowledged.extend(samples);
    }

    pub(crate) fn add_unanswered(&mut self, samples: Samples) {
        self.unanswered = samples;
    }

    /// What is older than that is deleted some time.
    pub(crate) fn expire(&mut self, oldest_ms: TimeMs) {
        let is_expired = |key: &SampleKey, _: &mut f64| key.time_ms < oldest_ms;
        self.expired.extend(self.acknowledged.extract_if(.., is_expired));
    }

    pub(crate) fn begin_deletion(&mut self, span: TimeSpan, series: Option<u64>) {
        let mut deletion = UncertainDeletion { span, series, samples: Samples::new() };
        let all = self.acknowledged.iter().filter(|(key, _)| deletion.covers(key));
        deletion.samples = all.map(|(key, value)| (*key, *value)).collect();
        self.uncertain_deletion = Some(deletion);
    }

    pub(crate) fn finish_deletion(&mut self) {
        if let Some(deletion) = self.uncertain_deletion.take() {
            self.acknowledged.retain(|key, _| !deletion.covers(key));
            self.expired.retain(|key, _| !deletion.covers(key));
        }
    }

    /// Learns from what is found what became of what was under way: nothing is any more.
    pub(crate) fn resolve_uncertain(&mut self, found: &Samples) {
        let unanswered = std::mem::take(&mut self.unanswered);
        let unsure = self.uncertain_deletion.take();
        let is_uncertain = |key: &SampleKey| unsure.as_ref().is_some_and(|one| one.covers(key));
        let is_new = |key: &SampleKey| self.value(key).is_none();
        let (new_uncertain, new_samples): (Samples, Samples) = unanswered
            .into_iter()
            .filter(|(key, _)| is_new(key))
            .partition(|(key, _)| is_uncertain(key));
        if new_samples.iter().all(|(key, value)| found.get(key) == Some(value)) {
            self.acknowledged.extend(new_samples);
        }
        let is_found = |(key, value): &(SampleKey, f64)| found.get(key) == Some(value);
        self.acknowledged.extend(new_uncertain.into_iter().filter(is_found));
        if let Some(unsure) = unsure {
            let mut deleted_keys = unsure.samples.keys();
            let is_first_found = deleted_keys.next().map(|key| found.contains_key(key));
            assert!(
                deleted_keys.all(|key| is_first_found == Some(found.contains_key(key))),
                "half of a deletion was done: {unsure:?}"
            );
            self.acknowledged.retain(|key, _| !unsure.covers(key) || found.contains_key(key));
        }
    }

    /// Panics unless all is there that has to be, and nothing that must not.
    pub(crate) fn check(&self, found: &Samples, step: u64) {
        let is_uncertain = |key: &SampleKey| {
            self.uncertain_deletion.as_ref().is_some_and(|deletion| deletion.covers(key))
        };
        let mut acknowledged = self.acknowledged.iter();
        let lost = acknowledged.find(|(key, value)| match found.get(key) {
            Some(found) => found != *value,
            None => !is_uncertain(key),
        });
        let mut all = found.iter();
        let extra = all.find(|(key, value)| self.value(key) != Some(**value));
        assert!(
            lost.is_none() && extra.is_none(),
            "step {step}: lost {lost:?}, not to be there {extra:?}"
        );
    }
}

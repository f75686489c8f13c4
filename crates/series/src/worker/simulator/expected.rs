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
    before: Samples,
}

impl UncertainDeletion {
    fn has(&self, key: &SampleKey) -> bool {
        let TimeSpan { start, end } = self.span;
        (start..=end).contains(&key.time_ms) && self.series.is_none_or(|one| one == key.series)
    }
}

#[derive(Debug, Default)]
pub(super) struct ExpectedState {
    /// What was acknowledged and neither deleted since nor over.
    kept: Samples,
    /// Samples that are over: they may be there or not.
    over: Samples,
    /// What was being written when the power went: there as a whole, or not.
    pending: Samples,
    deleting: Option<UncertainDeletion>,
}

impl ExpectedState {
    /// The value that a sample was written with before, if it was.
    pub(crate) fn value(&self, key: &SampleKey) -> Option<f64> {
        self.kept.get(key).or(self.over.get(key)).copied()
    }

    pub(crate) fn acknowledged(&mut self, samples: Samples) {
        for key in samples.keys() {
            self.over.remove(key);
            if let Some(unsure) = &mut self.deleting {
                unsure.before.remove(key);
            }
        }
        self.kept.extend(samples);
    }

    pub(crate) fn unanswered(&mut self, samples: Samples) {
        self.pending = samples;
    }

    /// What is older than that is deleted some time.
    pub(crate) fn expire(&mut self, oldest_ms: TimeMs) {
        let is_over = |key: &SampleKey, _: &mut f64| key.time_ms < oldest_ms;
        self.over.extend(self.kept.extract_if(.., is_over));
    }

    pub(crate) fn deletion_begun(&mut self, span: TimeSpan, series: Option<u64>) {
        let mut unsure = UncertainDeletion {
            span,
            series,
            before: Samples::new(),
        };
        let all = self.kept.iter().filter(|(key, _)| unsure.has(key));
        unsure.before = all.map(|(key, value)| (*key, *value)).collect();
        self.deleting = Some(unsure);
    }

    pub(crate) fn deleted(&mut self) {
        if let Some(unsure) = self.deleting.take() {
            self.kept.retain(|key, _| !unsure.has(key));
            self.over.retain(|key, _| !unsure.has(key));
        }
    }

    /// Learns from what is found what became of what was under way: nothing is any more.
    pub(crate) fn settle(&mut self, found: &Samples) {
        let pending = std::mem::take(&mut self.pending);
        let unsure = self.deleting.take();
        let is_unsure = |key: &SampleKey| unsure.as_ref().is_some_and(|one| one.has(key));
        let is_new = |key: &SampleKey| self.value(key).is_none();
        let (new_unsure, new): (Samples, Samples) = pending
            .into_iter()
            .filter(|(key, _)| is_new(key))
            .partition(|(key, _)| is_unsure(key));
        if new.iter().all(|(key, value)| found.get(key) == Some(value)) {
            self.kept.extend(new);
        }
        let written = |(key, value): &(SampleKey, f64)| found.get(key) == Some(value);
        self.kept.extend(new_unsure.into_iter().filter(written));
        if let Some(unsure) = unsure {
            let mut before = unsure.before.keys();
            let first = before.next().map(|key| found.contains_key(key));
            assert!(
                before.all(|key| first == Some(found.contains_key(key))),
                "half of a deletion was done: {unsure:?}"
            );
            self.kept
                .retain(|key, _| !unsure.has(key) || found.contains_key(key));
        }
    }

    /// Panics unless all is there that has to be, and nothing that must not.
    pub(crate) fn check(&self, found: &Samples, step: u64) {
        let is_unsure = |key: &SampleKey| self.deleting.as_ref().is_some_and(|of| of.has(key));
        let mut kept = self.kept.iter();
        let lost = kept.find(|(key, value)| match found.get(key) {
            Some(found) => found != *value,
            None => !is_unsure(key),
        });
        let mut all = found.iter();
        let extra = all.find(|(key, value)| self.value(key) != Some(**value));
        assert!(
            lost.is_none() && extra.is_none(),
            "step {step}: lost {lost:?}, not to be there {extra:?}"
        );
    }
}

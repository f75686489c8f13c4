//! From the lines of a text, each of which says one thing of a metric, to all that is said of it.

use std::borrow::Cow;

use egret_metrics_wire::MetricKind;
use egret_metrics_wire::exposition::TextItem;

use super::Description;

/// What was said so far of the metric that the lines are about.
#[derive(Debug, Default)]
pub(crate) struct MetadataLines<'a> {
    metric: Cow<'a, str>,
    kind: MetricKind,
    unit: Cow<'a, str>,
    help: Cow<'a, str>,
}

impl<'a> MetadataLines<'a> {
    /// Takes what a line says; samples say nothing. When it is about another metric, `emit` is
    /// called with what was said of the one before.
    pub(crate) fn add_item(
        &mut self,
        item: TextItem<'a, '_>,
        emit: &mut dyn FnMut(Description<'_>),
    ) {
        match item {
            TextItem::Help(metric, help) => self.select_metric(metric, emit).help = help,
            TextItem::Kind(metric, kind) => self.select_metric(metric, emit).kind = kind,
            TextItem::Unit(metric, unit) => self.select_metric(metric, emit).unit = unit,
            TextItem::Sample { .. } => {}
        }
    }

    /// The kind of the metric that the lines are about.
    pub(crate) fn kind(&self) -> MetricKind {
        self.kind
    }

    fn select_metric(
        &mut self,
        metric: Cow<'a, str>,
        emit: &mut dyn FnMut(Description<'_>),
    ) -> &mut Self {
        if self.metric != metric {
            self.finish(emit);
            self.metric = metric;
        }
        self
    }

    /// The text has ended: calls `emit` with what was said last.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Description<'_>)) {
        let last = std::mem::take(self);
        if !last.metric.is_empty() {
            emit(Description {
                metric: &last.metric,
                kind: last.kind,
                unit: &last.unit,
                help: &last.help,
            });
        }
    }
}

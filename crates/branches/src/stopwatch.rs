//! How long the parts of an operation take, as receipts and metrics show it.

use std::time::Instant;

use crate::model::{Phase, Receipt, Template};

/// Measures the parts of an operation one after the other.
pub(crate) struct Stopwatch {
    started: Instant,
    phase_start: Instant,
    phases: Vec<Phase>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Self { started: now, phase_start: now, phases: Vec::new() }
    }

    /// Ends the phase that has run since the last call.
    pub(crate) fn end_phase(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.push(Phase { name: name.to_owned(), ms: milliseconds(now - self.phase_start) });
        self.phase_start = now;
    }

    pub(crate) fn total_ms(&self) -> f64 {
        milliseconds(self.started.elapsed())
    }

    pub(crate) fn phases(&self) -> &[Phase] {
        &self.phases
    }
}

/// Milliseconds to three decimals, as receipts show them.
pub(crate) fn milliseconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

impl Receipt {
    /// What has been measured until now of a creation from a template.
    pub(crate) fn new(kind: &str, template: &Template, stopwatch: &Stopwatch) -> Self {
        Self {
            kind: kind.to_owned(),
            template: template.id,
            template_lsn: template.lsn.clone(),
            template_taken_at: template.taken_at,
            total_ms: stopwatch.total_ms(),
            phases: stopwatch.phases().to_vec(),
            source: template.source.clone(),
        }
    }
}

//! What tests of this and other crates share: waits for a condition, the log of conditions, and
//! reports of skipped checks.

mod eventually;
mod long;

use std::fmt::Debug;
use std::io::Write;
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use egret_base::condition::active;
use egret_base::sync::lock;

pub use eventually::{Observation, eventually, eventually_blocking};
pub use long::{repetitions, run_over_seeds};

/// Reports that a test skips its check, past the capture of the output of tests that pass.
pub fn not_checked(reason: impl std::fmt::Display) {
    // Without standard error there is no reader.
    let _ = std::io::stderr().write_all(format!("NOT CHECKED: {reason}\n").as_bytes());
}

/// Log lines of conditions, of all tests of this process.
static LINES: Mutex<Vec<LogLine>> = Mutex::new(Vec::new());

#[derive(Clone, Debug, Default)]
struct LogLine {
    level: String,
    condition: String,
    subject: String,
}

/// The log lines of one condition, from [`ConditionLog::watch`] on.
#[derive(Debug)]
pub struct ConditionLog {
    name: &'static str,
    subject: String,
}

impl ConditionLog {
    /// Watches the conditions of a name whose subject contains this text, which no other test of
    /// the process has.
    ///
    /// # Panics
    /// When the process has another log already.
    pub fn watch(name: &'static str, subject: &str) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::subscriber::set_global_default(Recorder).expect("no other log is set");
        });
        let subject = subject.to_owned();
        Self { name, subject }
    }

    /// The levels of the lines so far.
    pub fn levels(&self) -> Vec<String> {
        let lines = lock(&LINES);
        lines
            .iter()
            .filter(|line| line.condition == self.name && line.subject.contains(&self.subject))
            .map(|line| line.level.clone())
            .collect()
    }

    /// Whether the condition lasts at this moment.
    pub fn is_active(&self) -> bool {
        self.reason().is_some()
    }

    /// The latest failure, while the condition lasts.
    pub fn reason(&self) -> Option<String> {
        let mut active = active().into_iter();
        let found = active.find(|one| one.name == self.name && one.subject.contains(&self.subject));
        found.map(|one| one.reason)
    }
}

/// Keeps the lines that have a condition.
struct Recorder;

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "condition" => self.condition = value.to_owned(),
            "subject" => self.subject = value.to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        if !line.condition.is_empty() {
            line.level = event.metadata().level().to_string();
            let mut lines = lock(&LINES);
            lines.push(line);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

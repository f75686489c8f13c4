//! A warning or error that no test provokes on purpose fails the run.

use std::fmt::Write as _;
use std::sync::{Mutex, Once};

use egret_base_test::eventually;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Messages that some test provokes: crashes, refusals, a full volume, strangers.
const PROVOKED: [&str; 24] = [
    "cannot write the manifest of a branch",
    "cannot write manifests of branches; retrying",
    "cannot undo a failed reset of a branch; retrying",
    "cannot finish the reset of a branch yet; retrying",
    "a branch does not start after its reset was undone",
    "cannot discard an unused branch of the pool yet; retrying",
    "the postmaster of a branch exited unexpectedly",
    "cannot restart a branch; retrying",
    "cannot start a branch again",
    "the embedded server is not running",
    "the embedded server does not accept sessions",
    "ignoring an unexpected file on the volume",
    "a branch cannot run",
    "a branch was missing from the registry; restored it from its manifest",
    "a template was missing from the registry; restored it from its manifest",
    "maintenance of a branch or template failed; retrying",
    "cannot take over the running server of a branch",
    "cannot plan maintenance of branches; retrying",
    "postgres did not stop in time",
    // A postmaster of the pool is killed, perhaps while its sessions are being connected.
    "cannot fill the pool; retrying",
    "the volume is full: growing branches are suspended",
    "a server that runs a branch user's code exceeded a limit; its session is closed",
    "cannot verify a branch: reading the source took too long",
    "the branches of a tenant have reached their disk limit: growing branches are suspended",
];

static UNEXPECTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What was provoked, with its fields.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct LogChecker;

/// Takes an event's message and fields apart.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.fields, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl<S: Subscriber> Layer<S> for LogChecker {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut line = EventText::default();
        event.record(&mut line);
        let text = format!("{}: {}{}", event.metadata().level(), line.message, line.fields);
        let lines = if PROVOKED.contains(&line.message.as_str()) { &SEEN } else { &UNEXPECTED };
        lines.lock().unwrap().push(text);
    }
}

/// Listens from now on, in all tests of this process.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(LogChecker);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// The provoked warnings and errors so far that contain a text.
pub fn seen(text: &str) -> usize {
    let seen = SEEN.lock().unwrap();
    seen.iter().filter(|line| line.contains(text)).count()
}

/// Waits until a provoked warning or error contains a text.
pub async fn await_seen(text: &str) {
    eventually(text, async || seen(text) > 0).await;
}

/// Fails when anything unexpected was logged until now, by whichever test.
pub fn assert_quiet() {
    let unexpected = std::mem::take(&mut *UNEXPECTED.lock().unwrap());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

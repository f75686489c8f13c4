//! A warning or error that no test provokes on purpose fails the run.

use std::fmt::Write as _;
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Messages that some test provokes: crashes, refusals, a full volume, strangers.
const PROVOKED: [&str; 24] = [
    "the manifest of a branch was not written",
    "manifests of branches were not written",
    "a reset that failed was not undone: that is tried again",
    "the reset of a branch is not over yet",
    "a branch did not start after its reset was undone",
    "a branch that was never handed out was not thrown away yet",
    "the postmaster of a branch ended by itself",
    "a branch did not start again",
    "a branch did not come back",
    "the embedded server is not running",
    "the embedded server does not accept sessions",
    "something on the volume is not Egret's; it is left alone",
    "a branch cannot run",
    "a branch was missing from the registry and is there again",
    "a template was missing from the registry and is there again",
    "something due was not done and is tried again",
    "a running branch could not be taken over",
    "what is due could not be planned",
    "postgres did not stop in time",
    // A postmaster of the pool is killed, perhaps while its sessions are being connected.
    "the pool was not filled",
    "the volume is full: branches that grow are suspended",
    "a server that runs code of a branch was given up",
    "a branch was not verified, for the source was not read in time",
    "branches of a tenant take all that they may: those that grow are suspended",
];

static UNEXPECTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What was provoked, with its fields.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Watch;

/// Takes an event's message and fields apart.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.fields, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl<S: Subscriber> Layer<S> for Watch {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!(
            "{}: {}{}",
            event.metadata().level(),
            line.message,
            line.fields
        );
        let lines = if PROVOKED.contains(&line.message.as_str()) {
            &SEEN
        } else {
            &UNEXPECTED
        };
        lines.lock().unwrap().push(text);
    }
}

/// Listens from now on, in all tests of this process.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Watch);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// The provoked warnings and errors so far that contain a text.
pub fn seen(text: &str) -> usize {
    let seen = SEEN.lock().unwrap();
    seen.iter().filter(|line| line.contains(text)).count()
}

/// Fails when anything unexpected was logged until now, by whichever test.
pub fn assert_quiet() {
    let unexpected = std::mem::take(&mut *UNEXPECTED.lock().unwrap());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

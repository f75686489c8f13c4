//! Order of start and stop, and what happens when a start fails.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::*;

struct RecordingService {
    name: &'static str,
    fails: bool,
    events: Arc<Mutex<Vec<String>>>,
}

impl RecordingService {
    fn note(&self, what: &str) {
        self.events.lock().unwrap().push(format!("{what} {}", self.name));
    }
}

impl Service for RecordingService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            self.note("start");
            if self.fails {
                return Err(StartError {
                    service: self.name,
                    message: "told to".to_owned(),
                    is_fatal: self.name == "server",
                });
            }
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        Readiness::Ready
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.note("stop") })
    }
}

/// Polls a future that never waits for anything.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future of this test must not wait"),
    }
}

fn stack(failing: Option<&'static str>) -> (Stack, Arc<Mutex<Vec<String>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let mut stack = Stack::default();
    for name in ["postgres", "branches", "server"] {
        stack.push(Arc::new(RecordingService {
            name,
            fails: failing == Some(name),
            events: events.clone(),
        }));
    }
    (stack, events)
}

#[test]
fn stops_in_reverse_order() {
    let (stack, events) = stack(None);
    run(stack.start()).unwrap();
    run(stack.stop());
    let seen = events.lock().unwrap().join(", ");
    assert_eq!(
        seen,
        "start postgres, start branches, start server, stop server, stop branches, stop postgres"
    );
}

#[test]
fn a_fatal_failure_stops_what_had_started() {
    let (stack, events) = stack(Some("server"));
    let error = run(stack.start()).unwrap_err();
    assert_eq!(error.to_string(), "server could not start: told to");
    let seen = events.lock().unwrap().join(", ");
    assert_eq!(seen, "start postgres, start branches, start server, stop branches, stop postgres");
}

#[test]
fn a_failed_service_stops_only_those_that_need_it() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let service = |name, fails| Arc::new(RecordingService { name, fails, events: events.clone() });
    let mut stack = Stack::default();
    stack.push_eager(service("queue", false));
    stack.push(service("postgres", true));
    stack.push_dependent(service("branches", false), "postgres");
    stack.push(service("views", false));
    run(stack.start()).unwrap();
    let seen = events.lock().unwrap().join(", ");
    assert_eq!(seen, "start queue, start postgres, start views");
    let failed: Vec<_> =
        stack.failed_parts().into_iter().map(|failed| (failed.part, failed.reason)).collect();
    let expected =
        [("branches", "it needs postgres, which could not start"), ("postgres", "told to")];
    assert_eq!(failed, expected.map(|(part, reason)| (part.to_owned(), reason.to_owned())));
    let failed = Readiness::Failed("told to".to_owned());
    assert_eq!(stack.readiness()[1], ("postgres", failed));
    assert_eq!(stack.readiness()[3], ("views", Readiness::Ready));
}

#[test]
fn eager_ones_start_first_and_stop_in_their_place() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let service = |name, fails| Arc::new(RecordingService { name, fails, events: events.clone() });
    let mut stack = Stack::default();
    stack.push_eager(service("queue", false));
    stack.push(service("postgres", false));
    stack.push_eager(service("server", false));
    run(stack.start()).unwrap();
    run(stack.stop());
    let mut seen = events.lock().unwrap().split_off(0).join(", ");
    assert_eq!(
        seen,
        "start queue, start server, start postgres, stop server, stop postgres, stop queue"
    );
    run(stack.start()).unwrap();
    seen = events.lock().unwrap().join(", ");
    assert_eq!(seen, "start queue, start server, start postgres");
}

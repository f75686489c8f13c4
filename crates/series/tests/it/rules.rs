//! Evaluation of rules, and notification of receivers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::lifecycle::BoxFuture;
use egret_base::task::{TaskReceipt, TaskRejection, TaskRequest, TaskSink};
use egret_base::{Clock, Kind, SystemClock};
use egret_base_test::{ConditionLog, eventually};
use egret_metrics_model::is_stale;
use egret_series::core::rules::NewSample;
use egret_series::worker::notify::{Destination, ReceiverConfig};
use egret_series::worker::rules::{Rules, RulesOptions};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::web::{Answer, Memory, Request, Web, first_matching, serve};

/// A queue: tasks of the same key are one.
struct Queue {
    tasks: Mutex<BTreeMap<String, u32>>,
    /// Refuses so many batches first.
    refusals_left: AtomicU32,
    enqueued: mpsc::UnboundedSender<(String, Value)>,
}

impl TaskSink for Queue {
    fn check_queue(&self, _: &str) -> Result<(), TaskRejection> {
        Ok(())
    }

    fn enqueue<'a>(
        &'a self,
        tasks: &'a [TaskRequest<'a>],
    ) -> BoxFuture<'a, Vec<Result<TaskReceipt, TaskRejection>>> {
        Box::pin(async move {
            let refuse = |left: u32| left.checked_sub(1);
            if self.refusals_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuse).is_ok()
            {
                let refused = TaskRejection {
                    code: "busy",
                    kind: Kind::Unavailable,
                    retryable: true,
                    message: "come again".to_owned(),
                };
                return vec![Err(refused); tasks.len()];
            }
            let take = |task: &TaskRequest<'_>| {
                let mut tasks = self.tasks.lock().expect("no panic");
                *tasks.entry(task.key.to_owned()).or_default() += 1;
                let payload = serde_json::from_slice(task.payload).expect("JSON");
                let _ = self.enqueued.send((task.queue.to_owned(), payload));
                let replayed = tasks[task.key] > 1;
                Ok(TaskReceipt { id: Default::default(), replayed })
            };
            tasks.iter().map(take).collect()
        })
    }
}

const RULES: &str = r#"
groups:
  - name: g
    interval: 50ms
    rules:
      - record: job:up
        expr: up + 10
      - alert: Down
        expr: job:up == 10
        labels: {severity: page}
        annotations: {summary: "{{ $labels.i }} is at {{ $value }}"}
"#;

fn options(directory: &Path) -> RulesOptions {
    RulesOptions {
        files: vec![directory.join("*.yml").display().to_string()],
        resend_ms: 100,
        external_url: "http://egret".into(),
        ..RulesOptions::default()
    }
}

fn now() -> i64 {
    SystemClock.now().as_micros() / 1_000
}

fn receiver(destination: Destination) -> ReceiverConfig {
    ReceiverConfig { name: "r".to_owned(), destination, repeat_ms: None }
}

fn start(directory: &Path, memory: &Arc<Memory>, receivers: Vec<ReceiverConfig>) -> Rules {
    Rules::new(options(directory), Arc::new(SystemClock), memory.clone(), memory.clone(), receivers)
        .expect("rules")
}

fn set_up(memory: &Memory, value: f64) {
    memory.set(&[("__name__", "up"), ("i", "a")], now(), value);
}

fn is_series(metric: &'static str) -> impl Fn(&NewSample) -> bool {
    move |sample| sample.labels.metric() == metric && !is_stale(sample.value)
}

fn body(request: &Request) -> Value {
    serde_json::from_str(&request.body).expect("JSON")
}

/// A queue, a webhook and an Alertmanager that wait for alerts.
struct TestReceivers {
    queue: Arc<Queue>,
    tasks: mpsc::UnboundedReceiver<(String, Value)>,
    hook: Web,
    manager: Web,
}

impl TestReceivers {
    async fn new() -> Self {
        let (taken, tasks) = mpsc::unbounded_channel();
        let queue =
            Queue { tasks: Mutex::default(), refusals_left: AtomicU32::new(2), enqueued: taken };
        Self {
            queue: Arc::new(queue),
            tasks,
            hook: serve(|_: &Request| Some(Answer::text(""))).await,
            manager: serve(|_: &Request| Some(Answer::text(""))).await,
        }
    }

    fn receivers(&self) -> Vec<ReceiverConfig> {
        vec![
            receiver(Destination::Tasks {
                sink: self.queue.clone(),
                tenant: "t".to_owned(),
                queue: "alerts".to_owned(),
            }),
            receiver(Destination::Webhook { url: format!("http://{}/hook", self.hook.address) }),
            receiver(Destination::Alertmanager {
                url: format!("http://{}/", self.manager.address),
            }),
        ]
    }

    /// All of them are told that it fires.
    async fn expect_notifications(&mut self) {
        let (queue_name, task) = first_matching(&mut self.tasks, "a task", |_| true).await;
        assert_eq!(queue_name, "alerts");
        assert_eq!(task["status"], "firing");
        assert_eq!(task["annotations"]["summary"], "a is at 10");
        assert_eq!(task["labels"]["alertname"], "Down");
        let told = first_matching(&mut self.hook.requests, "a webhook", |_| true).await;
        assert_eq!(told.line, "POST /hook");
        assert_eq!(body(&told)["version"], "4");
        assert_eq!(body(&told)["alerts"][0]["fingerprint"], task["fingerprint"]);
        let told = first_matching(&mut self.manager.requests, "an Alertmanager's", |_| true).await;
        assert_eq!(told.line, "POST /api/v2/alerts");
        assert_eq!(body(&told)[0]["labels"]["severity"], "page");
        // With every resend, as it expects.
        first_matching(&mut self.manager.requests, "the alert again", |_| true).await;
    }
}

#[tokio::test]
async fn alerts_are_told_once_whatever_happens() {
    let mut waiting = TestReceivers::new().await;
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.yml"), RULES).expect("a file");
    let memory = Arc::new(Memory::default());
    set_up(&memory, 0.0);
    let rules = start(directory.path(), &memory, waiting.receivers());
    rules.reload().await.expect("the file is good");
    waiting.expect_notifications().await;
    let status = serde_json::to_value(rules.status()).expect("JSON");
    assert_eq!(status["groups"][0]["rules"][1]["state"], "firing");
    let alerts = serde_json::to_value(rules.alerts()).expect("JSON");
    assert_eq!(alerts["alerts"][0]["value"], "1e+01");
    rules.stop().await;

    // The alert fires on: the same task again, which the queue knows.
    let rules = start(directory.path(), &memory, waiting.receivers());
    rules.reload().await.expect("the file is good");
    let is = |status: &'static str| move |(_, task): &(String, Value)| task["status"] == status;
    first_matching(&mut waiting.tasks, "the task again", is("firing")).await;
    set_up(&memory, 1.0);
    first_matching(&mut waiting.tasks, "its end", is("resolved")).await;
    first_matching(&mut waiting.hook.requests, "its end by webhook", |told| {
        body(told)["status"] == "resolved"
    })
    .await;
    rules.stop().await;
    let made = waiting.queue.tasks.lock().expect("no panic").clone();
    let states: Vec<&str> = made.keys().filter_map(|key| key.split('/').nth(4)).collect();
    assert_eq!(states, ["firing", "resolved"], "{made:?}");
}

#[tokio::test]
async fn a_queue_that_takes_no_alerts_is_one_line_at_its_start_and_one_at_its_end() {
    let mut waiting = TestReceivers::new().await;
    waiting.queue.refusals_left.store(u32::MAX, Ordering::Relaxed);
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.yml"), RULES).expect("a file");
    let memory = Arc::new(Memory::default());
    set_up(&memory, 0.0);
    let refusing =
        ReceiverConfig { name: "queue/refusing".to_owned(), ..waiting.receivers().remove(0) };
    let rules = start(directory.path(), &memory, vec![refusing]);
    let log = ConditionLog::watch("alert_queue_refusing", "queue/refusing");
    rules.reload().await.expect("the file is good");
    eventually("three tasks are refused", async || {
        waiting.queue.refusals_left.load(Ordering::Relaxed) <= u32::MAX - 3 && log.is_active()
    })
    .await;
    assert!(log.reason().is_some_and(|reason| reason.contains("come again")));
    waiting.queue.refusals_left.store(0, Ordering::Relaxed);
    first_matching(&mut waiting.tasks, "a task", |_| true).await;
    rules.stop().await;
    assert!(!log.is_active());
    assert_eq!(log.levels(), ["WARN", "INFO"]);
}

/// All receivers are told that the alert fires, and that it has ended once its rule is gone.
async fn ends_with_its_rule(without: &str) {
    let mut waiting = TestReceivers::new().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.yml");
    std::fs::write(&file, RULES).expect("a file");
    let memory = Arc::new(Memory::default());
    set_up(&memory, 0.0);
    let rules = start(directory.path(), &memory, waiting.receivers());
    rules.reload().await.expect("the file is good");
    waiting.expect_notifications().await;

    // A queue that is busy just then is told later.
    waiting.queue.refusals_left.store(1, Ordering::Relaxed);
    std::fs::write(&file, without).expect("a file");
    rules.reload().await.expect("the file is good");
    let (_, task) = first_matching(&mut waiting.tasks, "its end", |_| true).await;
    assert_eq!(task["status"], "resolved");
    assert_eq!(task["labels"]["alertname"], "Down");
    first_matching(&mut waiting.hook.requests, "its end by webhook", |told| {
        body(told)["status"] == "resolved"
    })
    .await;
    first_matching(&mut waiting.manager.requests, "its end", |told| {
        body(told)[0]["endsAt"] == task["endsAt"]
    })
    .await;
    assert!(rules.alerts().alerts.is_empty());

    // It fires again with its rule, and is no more told as resolved.
    std::fs::write(&file, RULES).expect("a file");
    rules.reload().await.expect("the file is good");
    let (_, task) = first_matching(&mut waiting.tasks, "the alert again", |_| true).await;
    assert_eq!(task["status"], "firing");
    let is_new = |told: &Request| body(told)[0]["startsAt"] == task["startsAt"];
    first_matching(&mut waiting.manager.requests, "the new one", is_new).await;
    for _ in 0..3 {
        let told = first_matching(&mut waiting.manager.requests, "it again", |_| true).await;
        assert!(is_new(&told), "{told:?}");
    }
    rules.stop().await;
}

#[tokio::test]
async fn an_alert_ends_with_its_group() {
    ends_with_its_rule("").await;
}

#[tokio::test]
async fn an_alert_ends_with_its_rule() {
    let (others, _) = RULES.split_once("      - alert").expect("it is there");
    ends_with_its_rule(others).await;
}

#[tokio::test]
async fn a_webhook_that_fails_is_tried_again() {
    let count = AtomicU32::new(0);
    let mut hook = serve(move |_: &Request| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Some(Answer::status(500)),
        1 => Some(Answer::status(429)),
        _ => Some(Answer::status(204)),
    })
    .await;
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.yml"), RULES).expect("a file");
    let memory = Arc::new(Memory::default());
    set_up(&memory, 0.0);
    let url = format!("http://{}", hook.address);
    let rules = start(directory.path(), &memory, vec![receiver(Destination::Webhook { url })]);
    rules.reload().await.expect("the file is good");
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(first_matching(&mut hook.requests, "an attempt", |_| true).await.body);
    }
    assert!(bodies.windows(2).all(|two| two[0] == two[1]), "{bodies:?}");
    // Told once: the next that comes is its end.
    set_up(&memory, 1.0);
    let next = first_matching(&mut hook.requests, "its end", |_| true).await;
    assert_eq!(body(&next)["status"], "resolved");
    rules.stop().await;
}

#[tokio::test]
async fn a_reload_takes_all_or_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.yml");
    std::fs::write(&file, RULES).expect("a file");
    let memory = Arc::new(Memory::default());
    let mut samples = memory.listen();
    set_up(&memory, 1.0);
    let rules = start(directory.path(), &memory, Vec::new());
    rules.reload().await.expect("the file is good");
    first_matching(&mut samples, "a recorded sample", is_series("job:up")).await;

    std::fs::write(&file, RULES.replace("job:up == 10", "job:up ==").replace("up + 10", "sum("))
        .expect("a file");
    let error = rules.reload().await.expect_err("the file is bad");
    assert_eq!(error.problems.len(), 2, "{error}");
    assert!(
        error.problems[0].contains("a.yml: 7:15: group \"g\", rule 1, \"job:up\": could not parse"),
        "{error}"
    );
    first_matching(&mut samples, "a recorded sample still", is_series("job:up")).await;

    std::fs::write(&file, RULES.replace("record: job:up", "record: job:new")).expect("a file");
    rules.reload().await.expect("the file is good");
    first_matching(&mut samples, "the end of the old series", |sample| {
        sample.labels.metric() == "job:up" && is_stale(sample.value)
    })
    .await;
    first_matching(&mut samples, "the new series", is_series("job:new")).await;

    std::fs::write(&file, "").expect("a file");
    rules.reload().await.expect("the file is good");
    first_matching(&mut samples, "the end of the new series", |sample| {
        sample.labels.metric() == "job:new" && is_stale(sample.value)
    })
    .await;
    assert!(rules.status().groups.is_empty());
    rules.stop().await;
}

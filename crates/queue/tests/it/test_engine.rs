//! An engine in a directory of its own, and callers of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::lifecycle::Service;
use egret_base::{SystemClock, SystemEntropy};
use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{
    EnqueueReceipt, Enqueues, Format, NewTask, Options, ProduceSink, QueueConfig, QueueError,
    QueueView, Queues, ReportKind, ReportSink, Reports, SettingsChange, TaskAssignment, WorkSink,
    WorkSpec, Worker,
};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The tenant of most tests.
pub const TENANT: &str = "acme";

/// Longer than anything that works takes.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct TestEngine {
    pub queues: Queues,
    pub config: QueueConfig,
    pub directory: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

/// Two partitions, whatever the machine.
pub fn config() -> QueueConfig {
    QueueConfig { partitions: 2, ..QueueConfig::default() }
}

fn engine(config: &QueueConfig, directory: &std::path::Path) -> Queues {
    let options = Options {
        config: config.clone(),
        directory: directory.to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        destinations: Default::default(),
    };
    Queues::new(options, &mut Registry::default())
}

impl TestEngine {
    pub async fn new(config: QueueConfig) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let directory = kept.path().join("queue");
        Self::open(config, directory, Some(kept)).await
    }

    /// Why an engine with these settings does not start.
    pub async fn start_error(config: QueueConfig) -> String {
        let kept = tempfile::tempdir().unwrap();
        let queues = engine(&config, &kept.path().join("queue"));
        queues.start().await.unwrap_err().message
    }

    pub async fn open(
        config: QueueConfig,
        directory: PathBuf,
        kept: Option<tempfile::TempDir>,
    ) -> Self {
        let queues = engine(&config, &directory);
        queues.start().await.unwrap();
        Self { queues, config, directory, _temporary: kept }
    }

    /// Stops the engine and starts another one on what it left.
    pub async fn restart(&mut self) {
        self.queues.stop().await;
        self.queues = engine(&self.config, &self.directory);
        self.queues.start().await.unwrap();
    }

    pub async fn stop(self) {
        self.queues.stop().await;
    }

    pub async fn create_queue(&self, name: &str, change: SettingsChange) {
        self.queues.put_queue(TENANT, name, &change).await.unwrap();
    }

    pub async fn view(&self, name: &str) -> QueueView {
        self.queues.view_queue(TENANT, name).await.unwrap()
    }

    /// Enqueues tasks and waits for what becomes of each, in their order.
    pub async fn enqueue(
        &self,
        queue: &str,
        tasks: &[NewTask<'_>],
    ) -> Vec<Result<EnqueueReceipt, QueueError>> {
        let (told, mut outcomes) = Outcomes::new();
        let handle = self.queues.get_or_create_queue(TENANT, queue).await.unwrap();
        let mut results: Vec<Option<Result<EnqueueReceipt, QueueError>>> = vec![None; tasks.len()];
        let mut enqueues = Enqueues::new(&self.queues).unwrap();
        let mut expected = 0;
        for (number, task) in tasks.iter().enumerate() {
            match enqueues.add(number as u64, &handle, task) {
                Ok(()) => expected += 1,
                Err(error) => results[number] = Some(Err(error)),
            }
        }
        let sink: Arc<dyn ProduceSink> = told;
        enqueues.submit(&sink);
        for _ in 0..expected {
            let (number, outcome) = run_with_timeout(outcomes.recv()).await.unwrap();
            results[number as usize] = Some(outcome);
        }
        results.into_iter().map(Option::unwrap).collect()
    }

    pub async fn enqueue_one(&self, queue: &str, task: NewTask<'_>) -> TaskId {
        let mut outcomes = self.enqueue(queue, &[task]).await;
        outcomes.remove(0).unwrap().id
    }

    /// A worker with room for `credits` tasks.
    pub async fn worker(&self, queue: &str, credits: u32) -> TestWorker {
        self.worker_with(queue, credits, None).await
    }

    pub async fn worker_with(
        &self,
        queue: &str,
        credits: u32,
        lease_ms: Option<u64>,
    ) -> TestWorker {
        let (tasks, came) = unbounded_channel();
        let (reported, outcomes) = unbounded_channel();
        let sink = Arc::new(ChannelSink { tasks, report_outcomes: reported });
        let spec = WorkSpec { queues: vec![queue.to_owned()], worker: "hand".to_owned(), lease_ms };
        let (worker, _) = self.queues.register_worker(TENANT, &spec, sink.clone()).await.unwrap();
        worker.add_credits(credits).unwrap();
        TestWorker {
            queues: self.queues.clone(),
            worker,
            sink,
            events: Mutex::new(came),
            outcomes: Mutex::new(outcomes),
        }
    }
}

/// Waits for something that comes soon.
pub async fn run_with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("it comes within a minute")
}

type Outcome = (u64, Result<EnqueueReceipt, QueueError>);

pub struct Outcomes(UnboundedSender<Outcome>);

impl Outcomes {
    pub fn new() -> (Arc<Self>, UnboundedReceiver<Outcome>) {
        let (sender, receiver) = unbounded_channel();
        (Arc::new(Self(sender)), receiver)
    }
}

impl ProduceSink for Outcomes {
    fn deliver_receipts(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            // The test may have ended.
            let _ = self.0.send(outcome.clone());
        }
    }
}

/// What a worker is told.
#[derive(Clone, Debug)]
pub enum WorkerEvent {
    Task { id: TaskId, lease: Lease, attempt: u16 },
    Lost(TaskId, AttemptEnd),
    Ended,
}

struct ChannelSink {
    tasks: UnboundedSender<WorkerEvent>,
    report_outcomes: UnboundedSender<(u64, Result<(), QueueError>)>,
}

impl ReportSink for ChannelSink {
    fn deliver_outcomes(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        for outcome in outcomes {
            // The test may have ended.
            let _ = self.report_outcomes.send(outcome.clone());
        }
    }
}

impl WorkSink for ChannelSink {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        for task in tasks {
            let _ = self.tasks.send(WorkerEvent::Task {
                id: task.id,
                lease: task.lease,
                attempt: task.attempt,
            });
        }
    }

    fn notify_lost_lease(&self, id: TaskId, _: Lease, end: AttemptEnd) {
        let _ = self.tasks.send(WorkerEvent::Lost(id, end));
    }

    fn notify_end(&self, _: QueueError) {
        let _ = self.tasks.send(WorkerEvent::Ended);
    }
}

pub struct TestWorker {
    queues: Queues,
    pub worker: Worker,
    sink: Arc<ChannelSink>,
    events: Mutex<UnboundedReceiver<WorkerEvent>>,
    outcomes: Mutex<UnboundedReceiver<(u64, Result<(), QueueError>)>>,
}

impl TestWorker {
    #[allow(clippy::await_holding_lock, reason = "each test has its own")]
    pub async fn next(&self) -> WorkerEvent {
        let mut came = self.events.lock().unwrap();
        run_with_timeout(came.recv()).await.unwrap()
    }

    pub async fn task(&self) -> (TaskId, Lease, u16) {
        match self.next().await {
            WorkerEvent::Task { id, lease, attempt } => (id, lease, attempt),
            other => panic!("{other:?} came instead of a task"),
        }
    }

    /// Whether nothing has come.
    pub fn is_idle(&self) -> bool {
        self.events.lock().unwrap().try_recv().is_err()
    }

    /// Says something of a task and waits for what becomes of that.
    pub async fn report(
        &self,
        lease: Lease,
        kind: ReportKind,
        text: &str,
    ) -> Result<(), QueueError> {
        let mut reports = Reports::new(&self.queues, TENANT)?;
        reports.add(0, &lease.to_bytes(), kind, text.as_bytes(), Format::Bytes)?;
        self.submit(reports).await
    }

    /// Hands in a report and waits for what becomes of it.
    #[allow(clippy::await_holding_lock, reason = "each test has its own")]
    pub async fn submit(&self, reports: Reports<'_>) -> Result<(), QueueError> {
        let sink: Arc<dyn ReportSink> = self.sink.clone();
        reports.submit(&sink);
        let mut outcomes = self.outcomes.lock().unwrap();
        run_with_timeout(outcomes.recv()).await.unwrap().1
    }

    pub async fn complete(&self, lease: Lease, result: &str) {
        self.report(lease, ReportKind::Complete, result).await.unwrap();
        self.worker.add_credits(1).unwrap();
    }
}

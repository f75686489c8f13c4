//! A queue engine with outboxes in databases of one test.

use std::path::Path;
use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::settings::ConfigDuration;
use egret_base::{SystemClock, SystemEntropy};
use egret_base_test::eventually;
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::{Client, Config};
use egret_postgres_test::TestDatabase;
use egret_queue::model::TaskState;
use egret_queue::{
    Detail, DurabilityMode, Options, Outbox, OutboxSteps, OutboxView, QueueConfig, Queues,
    SettingsChange, TaskView,
};
use prometheus_client::registry::Registry;

/// Whose the queues are.
pub const TENANT: &str = "default";

/// Does nothing before a step.
pub struct NoopOutboxSteps;

impl OutboxSteps for NoopOutboxSteps {
    fn before(&self, _: &'static str) {}
}

/// Settings that keep a test quick.
pub fn config() -> QueueConfig {
    QueueConfig {
        partitions: 2,
        callbacks: false,
        durability: DurabilityMode::None,
        outbox_poll: ConfigDuration::ms(50),
        ..QueueConfig::default()
    }
}

/// A started engine in a directory, with a queue `q`.
pub async fn queues_in(directory: &Path, config: QueueConfig) -> Queues {
    let options = Options {
        config,
        directory: directory.to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        destinations: Default::default(),
    };
    let queues = Queues::new(options, &mut Registry::default());
    queues.start().await.unwrap();
    queues.put_queue(TENANT, "q", &SettingsChange::default()).await.unwrap();
    queues
}

/// The outbox of one database, not started.
pub fn outbox(queues: &Queues, connection: Config, steps: Arc<dyn OutboxSteps>) -> Outbox {
    let databases = Databases::single(connection);
    Outbox::with_steps(queues.clone(), databases, &mut Registry::default(), steps)
}

fn connection(database: &TestDatabase) -> Config {
    let mut connection = database.connection();
    connection.application_name("egret/queue");
    connection
}

/// A database with an outbox, and an engine that reads it.
pub struct Rig {
    pub database: TestDatabase,
    pub client: Client,
    pub queues: Queues,
    pub outbox: Outbox,
    config: QueueConfig,
    directory: tempfile::TempDir,
}

impl Rig {
    /// Installs the outbox, without a reader.
    pub async fn install(major: u32) -> Self {
        Self::install_with(major, config()).await
    }

    pub async fn install_with(major: u32, config: QueueConfig) -> Self {
        let database = TestDatabase::create(major).await;
        let directory = tempfile::tempdir().unwrap();
        let queues = queues_in(directory.path(), config.clone()).await;
        let outbox = outbox(&queues, connection(&database), Arc::new(NoopOutboxSteps));
        let installed = outbox.install(None, &[]).await.unwrap();
        assert_eq!(installed, database.name);
        let client = database.connect().await;
        Self { database, client, queues, outbox, config, directory }
    }

    /// Ends engine and outbox, and starts others on what they left.
    pub async fn restart(&mut self) {
        self.outbox.stop().await;
        self.queues.stop().await;
        self.queues = queues_in(self.directory.path(), self.config.clone()).await;
        let connection = connection(&self.database);
        self.outbox = outbox(&self.queues, connection, Arc::new(NoopOutboxSteps));
        self.outbox.start().await.unwrap();
    }

    pub async fn start(major: u32) -> Self {
        let rig = Self::install(major).await;
        rig.outbox.start().await.unwrap();
        rig
    }

    pub async fn stop(self) {
        self.outbox.stop().await;
        self.queues.stop().await;
    }

    /// Waits until no row waits in the outbox.
    pub async fn await_drained(&self) {
        await_drained(&self.client).await;
    }

    /// Every task of a queue, without payloads.
    pub async fn tasks(&self, queue: &str) -> Vec<TaskView> {
        tasks(&self.queues, queue).await
    }

    /// The only task of a queue, whole.
    pub async fn only_task(&self, queue: &str) -> TaskView {
        let tasks = self.tasks(queue).await;
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        let whole = self.queues.task(TENANT, tasks[0].id, Detail::Whole);
        whole.await.unwrap()
    }

    pub async fn view(&self) -> OutboxView {
        let mut views = self.outbox.list().await.unwrap().outboxes;
        assert_eq!(views.len(), 1, "{views:?}");
        views.remove(0)
    }

    /// Waits until the view of the outbox is as expected, and returns it.
    pub async fn await_view(
        &self,
        what: &str,
        is_expected: impl Fn(&OutboxView) -> bool,
    ) -> OutboxView {
        eventually(what, async || {
            let view = self.view().await;
            if is_expected(&view) { Ok(view) } else { Err(view) }
        })
        .await
    }

    /// Waits until the outbox is read.
    pub async fn await_reading(&self) {
        let is_read = |view: &OutboxView| view.reader == "reading";
        self.await_view("the outbox is read", is_read).await;
    }

    /// Waits until a query returns an expected number.
    pub async fn await_count(&self, what: &str, sql: &str, is_expected: impl Fn(i64) -> bool) {
        eventually(what, async || {
            let count = count(&self.client, sql).await;
            if is_expected(count) { Ok(()) } else { Err(count) }
        })
        .await;
    }

    /// What a statement is refused with: its SQLSTATE and message.
    pub async fn refusal(&self, sql: &str) -> (String, String) {
        refusal(&self.client, sql).await
    }
}

pub async fn refusal(client: &Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.unwrap_err();
    let error = error.as_db_error().expect("the server refused it");
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Waits until no row waits in the outbox.
pub async fn await_drained(client: &Client) {
    eventually("the outbox is empty", async || {
        let left = count(client, "SELECT count(*) FROM egret.outbox").await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

pub async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Every task of a queue, without payloads.
pub async fn tasks(queues: &Queues, queue: &str) -> Vec<TaskView> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page =
            queues.tasks(TENANT, queue, None::<TaskState>, "", 1_000, &cursor).await.unwrap();
        all.extend(page.tasks);
        match page.next {
            Some(next) => cursor = next,
            None => return all,
        }
    }
}

/// The payloads of every task of a queue, in order of their text.
pub async fn payloads(queues: &Queues, queue: &str) -> Vec<String> {
    let mut payloads = Vec::new();
    for task in tasks(queues, queue).await {
        let whole = queues.task(TENANT, task.id, Detail::Whole).await.unwrap();
        payloads.push(String::from_utf8(whole.payload).unwrap());
    }
    payloads.sort();
    payloads
}

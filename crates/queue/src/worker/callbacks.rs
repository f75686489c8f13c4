//! Callbacks: a signed POST reports that a task has ended, retried until it succeeds.
//!
//! A callback is a task itself, made in the same step that ended the other one, in a queue that
//! belongs to no tenant. So it survives what tasks survive, is retried as tasks are, and delays no
//! other request.

mod lanes;
mod send;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use egret_base::parts::KnownParts;
use egret_base::sync::lock;
use egret_base::{Entropy, SIGNATURE_HEADER, Signer, durable};
use egret_outgoing::{ClientOptions, Delivery, OutgoingClient, OutgoingError};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use tokio::sync::mpsc;

use crate::core::state::CALLBACK_QUEUE;
use crate::error::{QueueError, io_error};
use crate::metrics::CallbackOutcome;
use crate::model::{
    AttemptEnd, Backoff, Jitter, Lease, QueueSettings, Retention, RetryPolicy, TaskId, TaskState,
};
use crate::store::content::{self, Format};
use crate::worker::destination;
use crate::worker::engine_state::EngineState;
use crate::worker::queues::Queues;
use crate::worker::reports::Reports;
use crate::worker::session::WorkSession;
use crate::worker::sinks::{CallbackSubject, ReportSink, TaskAssignment, WorkSink};
use crate::worker::submission::ReportKind;
use crate::worker::task_view::Detail;
use crate::worker::task_view::TaskView;
use crate::worker::worker_handle::Worker;

/// The file that holds what callbacks are signed with.
const KEY_FILE: &str = "callback.key";

/// The name of the callbacks' queue, for the log.
const CALLBACK_QUEUE_NAME: &str = "egret.callbacks";

/// How long a lease of a callback lasts beyond its timeout, in milliseconds.
const LEASE_MARGIN_MS: u64 = 20_000;

/// Bytes of a result that a callback contains; for a longer one it contains the size.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// A callback to be sent.
struct Callback {
    lease: Lease,
    attempt: u16,
    ended_task: TaskId,
    state: TaskState,
    tenant: String,
    queue: String,
    url: String,
}

struct Sink(mpsc::UnboundedSender<Callback>);

impl ReportSink for Sink {
    fn deliver_outcomes(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        for (_, outcome) in outcomes {
            if let Err(error) = outcome {
                tracing::debug!(%error, "cannot record the outcome of a callback; it will be sent again");
            }
        }
    }
}

impl WorkSink for Sink {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        for task in tasks {
            let Some(CallbackSubject { task: ended_task, state, queue, tenant }) = task.subject
            else {
                continue;
            };
            let Ok(private) = content::decode_private(task.private) else {
                continue;
            };
            // Without a receiver the engine stops, and the lease expires. Credits bound the queue.
            let _ = self.0.send(Callback {
                lease: task.lease,
                attempt: task.attempt,
                ended_task,
                state,
                tenant: tenant.to_owned(),
                queue: queue.to_owned(),
                url: private.callback_url.to_owned(),
            });
        }
    }

    fn notify_lost_lease(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn notify_end(&self, _: QueueError) {}
}

/// Retries for about a day, with growing delays.
fn settings(timeout_ms: u64) -> QueueSettings {
    let retention = Retention { age_ms: 3_600_000, count: 10_000 };
    QueueSettings {
        max_attempts: 32,
        retry: RetryPolicy {
            backoff: Backoff::Exponential,
            base_ms: 1_000,
            max_ms: 3_600_000,
            jitter: Jitter::Equal,
        },
        lease_ms: timeout_ms + LEASE_MARGIN_MS,
        // The keys are tenants, which take turns without a limit.
        key_concurrency: 0,
        completed: retention,
        dead: Retention { age_ms: 7 * 86_400_000, count: 100_000 },
        cancelled: retention,
        ..QueueSettings::default()
    }
}

impl Queues {
    /// Starts to send callbacks, including those from before.
    pub(super) async fn start_callbacks(&self) -> Result<(), QueueError> {
        let config = &self.inner.config;
        let timeout = config.callback_timeout;
        let settings = settings(timeout.0);
        let lease_ms = settings.lease_ms;
        for partition in 0..self.inner.partitions()?.len() {
            // A partition that could not start makes none.
            if self.inner.partitions()?[partition].failure.get().is_none() {
                self.define_in_partition(
                    partition,
                    CALLBACK_QUEUE,
                    "",
                    CALLBACK_QUEUE_NAME,
                    &settings,
                )
                .await?;
            }
        }
        if !config.callbacks {
            return Ok(());
        }
        let key = match self.inner.callback_key() {
            Ok(key) => key,
            Err(error) => {
                let condition = &self.inner.callback_key_lost;
                condition
                    .fail(error, "no callbacks are sent until egret is restarted with its key");
                return Ok(());
            }
        };
        self.inner.record_callback_key(false);
        let options =
            ClientOptions { timeout: Some(timeout.duration()), ..ClientOptions::default() };
        let client =
            OutgoingClient::new(self.inner.destinations.clone(), &options).map_err(|error| {
                QueueError::Invalid { what: "queue.callbacks", reason: error.to_string() }
            })?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let sink: Arc<dyn WorkSink> = Arc::new(Sink(sender));
        let partitions = self.inner.partitions()?.len();
        let session =
            WorkSession::new("egret", vec![(CALLBACK_QUEUE, lease_ms)], sink.clone(), partitions);
        let worker = Worker::new(self.clone(), session);
        worker.add_credits(config.callback_concurrency)?;
        let callback_sender =
            Arc::new(CallbackSender { queues: self.clone(), client, key, sink, worker });
        let send_task = tokio::spawn(send::send_all(callback_sender, receiver));
        *lock(&self.inner.callbacks) = Some(send_task);
        Ok(())
    }
}

struct CallbackSender {
    queues: Queues,
    client: OutgoingClient,
    key: [u8; 32],
    sink: Arc<dyn WorkSink>,
    worker: Worker,
}

struct Failure {
    text: String,
    permanent: bool,
}

impl CallbackSender {
    /// Sends a callback and records the outcome. Returns how the receiver responded.
    async fn send(&self, callback: &Callback) -> Delivery {
        let body = self.build_body(callback).await;
        let started = Instant::now();
        let (delivery, outcome, failure) = match self.attempt(callback, body).await {
            Ok(Ok(())) => (Delivery::Answered(started.elapsed()), CallbackOutcome::Delivered, None),
            Ok(Err(failure)) => {
                (Delivery::Answered(started.elapsed()), CallbackOutcome::Refused, Some(failure))
            }
            Err(text) => (
                Delivery::Unanswered(text.clone()),
                CallbackOutcome::Unanswered,
                // A name may resolve to another address the next time.
                Some(Failure { text, permanent: false }),
            ),
        };
        self.count(outcome);
        match failure {
            None => self.record_outcome(callback, ReportKind::Complete, ""),
            Some(Failure { text, permanent }) => {
                tracing::debug!(task = %callback.ended_task, attempt = callback.attempt, error = text, "a callback failed");
                self.record_outcome(callback, ReportKind::Fail { permanent }, &text);
            }
        }
        delivery
    }

    /// Posts a callback. Returns the receiver's verdict, or why there is none.
    async fn attempt(
        &self,
        callback: &Callback,
        body: String,
    ) -> Result<Result<(), Failure>, String> {
        // It was allowed when the task was made; settings may have changed.
        if let Err(error) =
            destination::check_callback_url(&callback.url, &self.queues.inner.destinations)
        {
            return Ok(Err(Failure { text: error.to_string(), permanent: true }));
        }
        let to_text = |error: OutgoingError| error.to_string();
        let tenant_key = derive_tenant_key(&self.key, &callback.tenant);
        let at_seconds = self.queues.inner.clock.now().as_millis_unsigned() / 1_000;
        let request = self
            .client
            .post(&callback.url)
            .map_err(to_text)?
            .header("content-type", "application/json")
            .header("egret-task", callback.ended_task.to_string())
            .header(SIGNATURE_HEADER, signature(&tenant_key, at_seconds, body.as_bytes()))
            .body(body);
        let response = request.send().await.map_err(to_text)?;
        if response.is_success() {
            return Ok(Ok(()));
        }
        Ok(Err(Failure {
            text: format!("the receiver answered {}", response.status_text()),
            // The receiver is gone permanently.
            permanent: response.status() == 410,
        }))
    }

    fn count(&self, outcome: CallbackOutcome) {
        self.queues.inner.metrics.callbacks.count(outcome);
    }

    fn record_outcome(&self, callback: &Callback, kind: ReportKind, text: &str) {
        if let Err(error) = self.report(callback, kind, text) {
            tracing::debug!(%error, "cannot record the outcome of a callback; it will be sent again");
        }
    }

    /// Body of the request: the task, or the remaining facts if its retention is over.
    async fn build_body(&self, callback: &Callback) -> String {
        let result = self.queues.read_task(callback.ended_task, Detail::Whole).await;
        match result {
            Ok(view) => task_body(&view, &callback.tenant, callback.attempt),
            Err(_) => json!({
                "tenant": callback.tenant,
                "id": callback.ended_task.to_string(),
                "queue": callback.queue,
                "state": callback.state.as_str(),
                "delivery": callback.attempt,
            })
            .to_string(),
        }
    }

    fn report(&self, callback: &Callback, kind: ReportKind, text: &str) -> Result<(), QueueError> {
        let mut reports = Reports::new(&self.queues, "")?;
        let lease = callback.lease.to_bytes();
        reports.add(0, &lease, kind, text.as_bytes(), Format::Bytes)?;
        let sink: Arc<dyn ReportSink> = self.sink.clone();
        reports.submit(&sink);
        Ok(())
    }
}

fn task_body(view: &TaskView, tenant: &str, delivery: u16) -> String {
    let mut body = json!({
        "id": view.id.to_string(),
        "tenant": tenant,
        "queue": view.queue,
        "state": view.state.as_str(),
        "attempts": view.attempts,
        "ended_at_ms": view.ended_ms,
        "tags": view.tags,
        "metadata": view.metadata,
        "delivery": delivery,
    });
    let members = body.as_object_mut().expect("it was just made as an object");
    if !view.error.is_empty() {
        members.insert("error".to_owned(), json!(view.error));
    }
    if !view.attachments.is_empty() {
        let named = view.attachments.iter().map(|attachment| {
            json!({"name": attachment.name, "content_type": attachment.content_type, "size_bytes": attachment.size_bytes})
        });
        members.insert("attachments".to_owned(), named.collect());
    }
    if view.result.len() > RESULT_BYTES_MAX {
        members.insert("result_bytes".to_owned(), json!(view.result.len()));
    } else if view.result_format == Format::Json && !view.result.is_empty() {
        // As its worker wrote it: numbers keep all their digits.
        if let Ok(result) = std::str::from_utf8(&view.result) {
            let mut text = body.to_string();
            text.truncate(text.len() - 1);
            return format!("{text},\"result\":{result}}}");
        }
    } else if !view.result.is_empty() {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &view.result);
        members.insert("result_base64".to_owned(), json!(text));
    }
    body.to_string()
}

/// The key of one tenant, so that its receivers cannot forge callbacks of others: HMAC-SHA-256 of
/// `egret callback key:<tenant>` with the engine's key.
fn derive_tenant_key(key: &[u8; 32], tenant: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(b"egret callback key:");
    mac.update(tenant.as_bytes());
    mac.finalize().into_bytes().into()
}

impl Queues {
    /// The key that signs the callbacks of a tenant, as 64 hexadecimal digits.
    ///
    /// # Errors
    /// When its file cannot be read or made.
    pub fn callback_key(&self, tenant: &str) -> Result<String, QueueError> {
        let key = derive_tenant_key(&self.inner.callback_key()?, tenant);
        Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Signer for Queues {
    fn sign(&self, tenant: &str, at_seconds: u64, body: &[u8]) -> Result<String, String> {
        let key = self.inner.callback_key().map_err(|error| error.to_string())?;
        Ok(signature(&derive_tenant_key(&key, tenant), at_seconds, body))
    }
}

impl EngineState {
    fn callback_key(&self) -> Result<[u8; 32], QueueError> {
        let _access = lock(&self.callback_key_access);
        let is_new = !self.directory.join(KEY_FILE).exists();
        let key = load_or_create_key(&self.directory, &*self.entropy)?;
        if is_new {
            self.record_callback_key(true);
        }
        Ok(key)
    }

    /// Records for later starts that there is a key, and reports when a new one replaces a lost
    /// one.
    fn record_callback_key(&self, is_new: bool) {
        let recorded = KnownParts::read(&self.directory).and_then(|known| {
            if is_new && known.number(KEY_FILE).is_some() {
                self.callback_key_lost.fail(
                    "the key was missing, and a new one was made: receivers that check \
                     signatures with the old key refuse callbacks",
                    "restore the file, or give receivers the new key",
                );
            }
            known.change(|known| {
                known.insert(KEY_FILE.to_owned(), 1);
            })
        });
        if let Err(error) = recorded {
            tracing::warn!(%error, "cannot record that the callback key exists");
        }
    }
}

/// `t=<seconds>,v1=<HMAC-SHA-256 of "<seconds>.<body>" in hexadecimal>`, as Stripe signs its
/// webhooks.
fn signature(key: &[u8; 32], at_seconds: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(format!("{at_seconds}.").as_bytes());
    mac.update(body);
    let digest = mac.finalize().into_bytes();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at_seconds},v1={hex}")
}

/// The key that callbacks are signed with: 64 hexadecimal digits in a file that only its owner
/// reads, made at the first start.
fn load_or_create_key(directory: &Path, entropy: &dyn Entropy) -> Result<[u8; 32], QueueError> {
    let path = directory.join(KEY_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let parsed = parse_key(text.trim());
            return parsed.ok_or_else(|| QueueError::Io {
                doing: "reading",
                path: path.display().to_string(),
                reason: "it is not 64 hexadecimal digits: delete it, and a new key is made"
                    .to_owned(),
            });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("reading", &path)(error)),
    }
    let mut key = [0; 32];
    entropy.fill(&mut key);
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{text}\n");
    durable::write_file(&path, text.as_bytes(), 0o600).map_err(io_error("writing", &path))?;
    Ok(key)
}

fn parse_key(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests;

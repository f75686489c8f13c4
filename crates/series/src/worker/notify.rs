//! Notifies the receivers of alerts: tasks for a queue, webhooks, an Alertmanager.
//!
//! A task is stored before an evaluation goes on, under a key of the alert and its state: after a
//! crash, the repeated notification is the same task. Notifications by HTTP wait in a bounded queue
//! for each receiver, so that a slow one delays no rule; those that fail are due again with the
//! next resend.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use egret_base::{Condition, TaskRequest, TaskSink};
use egret_outgoing::{ClientOptions, Destinations, OutgoingClient};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::core::rules::{
    AlertNotification, NotificationLog, alertmanager_body, task_body, webhook_body,
};
use crate::metrics::NoticeMetrics;

/// Batches that wait for one receiver; over it they are not taken and due again.
const QUEUED_BATCHES_MAX: usize = 256;
/// Attempts at one request.
const ATTEMPTS_MAX: u32 = 3;
/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after the first failure; doubled after each.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Alerts of one request.
const REQUEST_ALERTS_MAX: usize = 64;

/// A receiver of alerts and its settings.
pub struct ReceiverConfig {
    /// The name, for the log and for webhooks.
    pub name: String,
    /// Where alerts are sent.
    pub destination: Destination,
    /// After how long an alert that still fires is told again, in milliseconds; `None`: never. An
    /// Alertmanager is told with every resend, as it expects.
    pub repeat_ms: Option<i64>,
}

/// Where alerts are sent.
pub enum Destination {
    /// Tasks of a queue, one for each notification.
    Tasks {
        /// Takes the tasks in.
        sink: Arc<dyn TaskSink>,
        /// Tenant of the queue.
        tenant: String,
        /// Name of the queue.
        queue: String,
    },
    /// A POST of Alertmanager's webhook payload, version 4.
    Webhook {
        /// URL of the webhook.
        url: String,
    },
    /// An Alertmanager, by its HTTP API.
    Alertmanager {
        /// Its address, without `/api/v2/alerts`.
        url: String,
    },
}

enum Receiver {
    Tasks(Tasks),
    Http {
        /// Too many alerts wait.
        backlog: Condition,
        /// Nothing once it has been stopped.
        queue: Mutex<Option<ReceiverQueue>>,
    },
}

/// A queue that takes alerts.
struct Tasks {
    name: String,
    sink: Arc<dyn TaskSink>,
    tenant: String,
    queue: String,
    notification_log: Mutex<NotificationLog>,
    metrics: NoticeMetrics,
    enqueue_failure: Condition,
}

/// The queue of one receiver, and the task that sends what is in it.
struct ReceiverQueue {
    sender: mpsc::Sender<Vec<AlertNotification>>,
    task: JoinHandle<()>,
}

/// All receivers of alerts.
pub(super) struct Receivers {
    receivers: Vec<Receiver>,
}

impl Receivers {
    /// Begins to send.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub(crate) fn start(
        configs: Vec<ReceiverConfig>,
        external_url: &str,
        metrics: NoticeMetrics,
    ) -> Result<Self, String> {
        let receivers = configs
            .into_iter()
            .map(|config| Receiver::start(config, external_url, metrics.clone()));
        Ok(Self { receivers: receivers.collect::<Result<_, _>>()? })
    }

    /// Notifies all receivers. Returns the notices that each receiver has taken: enqueued as a
    /// task, or waiting to be sent.
    pub(crate) async fn notify(&self, notices: Vec<AlertNotification>) -> Vec<AlertNotification> {
        if notices.is_empty() {
            return notices;
        }
        let mut accepted = vec![true; notices.len()];
        for receiver in &self.receivers {
            match receiver {
                Receiver::Tasks(tasks) => tasks.enqueue(&notices, &mut accepted).await,
                Receiver::Http { backlog: behind, queue: sending, .. } => {
                    let queue = lock(sending);
                    let sender = queue.as_ref().map(|sending| &sending.sender);
                    let is_accepted =
                        sender.is_some_and(|line| line.try_send(notices.clone()).is_ok());
                    if is_accepted {
                        behind.recover("a receiver keeps up with its alerts again");
                    } else {
                        let reason =
                            format_args!("{QUEUED_BATCHES_MAX} lists of alerts are queued");
                        behind.fail(reason, "too many alerts are queued for a receiver; retrying");
                        accepted.fill(false);
                    }
                }
            }
        }
        let notified = notices.into_iter().zip(accepted).filter(|(_, taken)| *taken);
        notified.map(|(notice, _)| notice).collect()
    }

    /// Ends; what waits is given the time of one attempt.
    pub(crate) async fn stop(&self) {
        for receiver in &self.receivers {
            let Receiver::Http { queue: sending, .. } = receiver else {
                continue;
            };
            let Some(ReceiverQueue { sender: line, mut task }) = lock(sending).take() else {
                continue;
            };
            drop(line);
            let stopped = tokio::time::timeout(ATTEMPT_TIMEOUT, &mut task).await;
            if stopped.is_err() {
                task.abort();
            }
        }
    }
}

impl Receiver {
    fn start(
        config: ReceiverConfig,
        external_url: &str,
        metrics: NoticeMetrics,
    ) -> Result<Self, String> {
        let notification_log = NotificationLog::new(config.repeat_ms);
        let (url, payload_format) = match config.destination {
            Destination::Tasks { sink, tenant, queue } => {
                return Ok(Self::Tasks(Tasks {
                    enqueue_failure: Condition::new("alert_queue_refusing", config.name.as_str()),
                    name: config.name,
                    sink,
                    tenant,
                    queue,
                    notification_log: Mutex::new(notification_log),
                    metrics,
                }));
            }
            Destination::Webhook { url } => {
                let external_url = external_url.to_owned();
                (url, PayloadFormat::Webhook { external_url, notification_log })
            }
            Destination::Alertmanager { url } => {
                let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
                (url, PayloadFormat::Alertmanager)
            }
        };
        let options = ClientOptions { timeout: Some(ATTEMPT_TIMEOUT), ..ClientOptions::default() };
        // Receivers are named by the operator's configuration; redirects are not followed.
        let client = OutgoingClient::new(Destinations::default(), &options)
            .map_err(|error| format!("receiver {:?}: {error}", config.name))?;
        let (sender, batches) = mpsc::channel(QUEUED_BATCHES_MAX);
        let http_sender = HttpSender {
            unreachable: Condition::new("alert_receiver_unreachable", config.name.as_str()),
            name: config.name.clone(),
            client,
            url,
            payload_format,
            metrics,
        };
        Ok(Self::Http {
            backlog: Condition::new("alert_receiver_behind", config.name),
            queue: Mutex::new(Some(ReceiverQueue {
                sender,
                task: tokio::spawn(http_sender.send_all(batches)),
            })),
        })
    }
}

impl Tasks {
    async fn enqueue(&self, notices: &[AlertNotification], accepted: &mut [bool]) {
        let due: Vec<_> = {
            let notification_log = lock(&self.notification_log);
            let due = notices.iter().enumerate();
            due.filter_map(|(index, notice)| {
                Some((index, notice, notification_log.due_key(notice)?))
            })
            .collect()
        };
        if due.is_empty() {
            return;
        }
        let texts: Vec<(String, String)> = due
            .iter()
            .map(|(_, notice, _)| (task_body(notice), notice.fingerprint.to_string()))
            .collect();
        let tasks: Vec<TaskRequest<'_>> = due
            .iter()
            .zip(&texts)
            .map(|((_, _, occasion), (payload, fingerprint))| TaskRequest {
                tenant: &self.tenant,
                queue: &self.queue,
                payload: payload.as_bytes(),
                key: &occasion.key,
                // That it fires and that it is resolved are worked on in this order.
                ordering_key: fingerprint,
                unique_key: "",
            })
            .collect();
        let mut outcomes = self.sink.enqueue(&tasks).await.into_iter();
        let mut failure = None;
        for (at, notice, notification_key) in due {
            match outcomes.next() {
                Some(Ok(_)) => {
                    self.metrics.record_delivered(&self.name, 1);
                    lock(&self.notification_log).record_delivered(notice, notification_key);
                }
                other => {
                    self.metrics.record_failed(&self.name, 1);
                    let error = other
                        .and_then(Result::err)
                        .map(|error| error.message)
                        .unwrap_or_else(|| "no answer".to_owned());
                    failure = Some(format!("{}: {error}", notice.labels));
                    accepted[at] = false;
                }
            }
        }
        match failure {
            Some(reason) => {
                self.enqueue_failure.fail(reason, "cannot enqueue alerts as tasks; retrying")
            }
            None => self.enqueue_failure.recover("alerts are enqueued as tasks again"),
        }
    }
}

enum PayloadFormat {
    Webhook { external_url: String, notification_log: NotificationLog },
    Alertmanager,
}

/// Sends to one receiver.
struct HttpSender {
    name: String,
    client: OutgoingClient,
    url: String,
    payload_format: PayloadFormat,
    metrics: NoticeMetrics,
    unreachable: Condition,
}

impl HttpSender {
    async fn send_all(mut self, mut batches: mpsc::Receiver<Vec<AlertNotification>>) {
        while let Some(notices) = batches.recv().await {
            for notices in notices.chunks(REQUEST_ALERTS_MAX) {
                self.send(notices).await;
            }
        }
    }

    async fn send(&mut self, notices: &[AlertNotification]) {
        let due: Vec<_> = match &self.payload_format {
            PayloadFormat::Alertmanager => notices.iter().map(|notice| (notice, None)).collect(),
            PayloadFormat::Webhook { notification_log: ledger, .. } => notices
                .iter()
                .filter_map(|notice| Some((notice, Some(ledger.due_key(notice)?))))
                .collect(),
        };
        if due.is_empty() {
            return;
        }
        let alerts: Vec<&AlertNotification> = due.iter().map(|(notice, _)| *notice).collect();
        let body = match &self.payload_format {
            PayloadFormat::Alertmanager => alertmanager_body(&alerts),
            PayloadFormat::Webhook { external_url, .. } => {
                webhook_body(&self.name, external_url, &alerts)
            }
        };
        match self.send_with_retries(&body).await {
            Err(problem) => {
                let (receiver, count) = (&self.name, alerts.len());
                self.metrics.record_failed(receiver, count);
                let reason = format_args!("{count} alerts: {problem}");
                let message = "cannot send alerts; retrying";
                self.unreachable.fail(reason, message);
            }
            Ok(()) => {
                self.metrics.record_delivered(&self.name, alerts.len());
                self.unreachable.recover("alerts are sent again");
                if let PayloadFormat::Webhook { notification_log: ledger, .. } =
                    &mut self.payload_format
                {
                    for (notice, notification_key) in due {
                        if let Some(occasion) = notification_key {
                            ledger.record_delivered(notice, occasion);
                        }
                    }
                }
            }
        }
    }

    async fn send_with_retries(&self, body: &str) -> Result<(), String> {
        let mut retry_delay = FIRST_RETRY_DELAY;
        let mut attempt = 1;
        loop {
            let request = self
                .client
                .post_configured(&self.url)
                .map_err(|error| error.to_string())?
                .header("content-type", "application/json")
                .body(body.to_owned());
            let (problem, is_final) = match request.send().await {
                Ok(answer) if answer.is_success() => return Ok(()),
                Ok(answer) => {
                    let is_final = matches!(answer.status(), 400..=499) && answer.status() != 429;
                    let status = answer.status_text();
                    (format!("the receiver answered {status}"), is_final)
                }
                Err(error) => (error.to_string(), false),
            };
            if is_final || attempt == ATTEMPTS_MAX {
                return Err(problem);
            }
            tokio::time::sleep(retry_delay).await;
            retry_delay *= 2;
            attempt += 1;
        }
    }
}

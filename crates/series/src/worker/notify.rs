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
const WAITING_MAX: usize = 256;
/// Attempts at one request.
const ATTEMPTS_MAX: u32 = 3;
/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after the first failure; doubled after each.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Alerts of one request.
const ALERTS_MAX: usize = 64;

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
        behind: Condition,
        /// Nothing once it has been stopped.
        sending: Mutex<Option<ReceiverQueue>>,
    },
}

/// A queue that takes alerts.
struct Tasks {
    name: String,
    sink: Arc<dyn TaskSink>,
    tenant: String,
    queue: String,
    ledger: Mutex<NotificationLog>,
    metrics: NoticeMetrics,
    refusing: Condition,
}

/// The queue of one receiver, and the task that sends what is in it.
struct ReceiverQueue {
    line: mpsc::Sender<Vec<AlertNotification>>,
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
        Ok(Self {
            receivers: receivers.collect::<Result<_, _>>()?,
        })
    }

    /// Notifies all receivers. Returns the notices that each receiver has taken: enqueued as a
    /// task, or waiting to be sent.
    pub(crate) async fn tell(&self, notices: Vec<AlertNotification>) -> Vec<AlertNotification> {
        if notices.is_empty() {
            return notices;
        }
        let mut taken = vec![true; notices.len()];
        for receiver in &self.receivers {
            match receiver {
                Receiver::Tasks(tasks) => tasks.enqueue(&notices, &mut taken).await,
                Receiver::Http {
                    behind, sending, ..
                } => {
                    let sending = lock(sending);
                    let line = sending.as_ref().map(|sending| &sending.line);
                    let is_taken = line.is_some_and(|line| line.try_send(notices.clone()).is_ok());
                    if is_taken {
                        behind.recover("a receiver keeps up with its alerts again");
                    } else {
                        let reason = format_args!("{WAITING_MAX} lists of alerts are queued");
                        behind.fail(
                            reason,
                            "too many alerts are queued for a receiver; retrying",
                        );
                        taken.fill(false);
                    }
                }
            }
        }
        let told = notices.into_iter().zip(taken).filter(|(_, taken)| *taken);
        told.map(|(notice, _)| notice).collect()
    }

    /// Ends; what waits is given the time of one attempt.
    pub(crate) async fn stop(&self) {
        for receiver in &self.receivers {
            let Receiver::Http { sending, .. } = receiver else {
                continue;
            };
            let Some(ReceiverQueue { line, mut task }) = lock(sending).take() else {
                continue;
            };
            drop(line);
            let ended = tokio::time::timeout(ATTEMPT_TIMEOUT, &mut task).await;
            if ended.is_err() {
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
        let ledger = NotificationLog::new(config.repeat_ms);
        let (url, form) = match config.destination {
            Destination::Tasks {
                sink,
                tenant,
                queue,
            } => {
                return Ok(Self::Tasks(Tasks {
                    refusing: Condition::new("alert_queue_refusing", config.name.as_str()),
                    name: config.name,
                    sink,
                    tenant,
                    queue,
                    ledger: Mutex::new(ledger),
                    metrics,
                }));
            }
            Destination::Webhook { url } => {
                let external_url = external_url.to_owned();
                (
                    url,
                    Form::Webhook {
                        external_url,
                        ledger,
                    },
                )
            }
            Destination::Alertmanager { url } => {
                let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
                (url, Form::Alertmanager)
            }
        };
        let options = ClientOptions {
            timeout: Some(ATTEMPT_TIMEOUT),
            ..ClientOptions::default()
        };
        // Receivers are named by the operator's configuration; redirects are not followed.
        let client = OutgoingClient::new(Destinations::default(), &options)
            .map_err(|error| format!("receiver {:?}: {error}", config.name))?;
        let (line, waiting) = mpsc::channel(WAITING_MAX);
        let post = Post {
            unreachable: Condition::new("alert_receiver_unreachable", config.name.as_str()),
            name: config.name.clone(),
            client,
            url,
            form,
            metrics,
        };
        Ok(Self::Http {
            behind: Condition::new("alert_receiver_behind", config.name),
            sending: Mutex::new(Some(ReceiverQueue {
                line,
                task: tokio::spawn(post.send_all(waiting)),
            })),
        })
    }
}

impl Tasks {
    async fn enqueue(&self, notices: &[AlertNotification], taken: &mut [bool]) {
        let due: Vec<_> = {
            let ledger = lock(&self.ledger);
            let due = notices.iter().enumerate();
            due.filter_map(|(at, notice)| Some((at, notice, ledger.occasion(notice)?)))
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
        for (at, notice, occasion) in due {
            match outcomes.next() {
                Some(Ok(_)) => {
                    self.metrics.told(&self.name, 1);
                    lock(&self.ledger).told(notice, occasion);
                }
                refused => {
                    self.metrics.failed(&self.name, 1);
                    let error = refused
                        .and_then(Result::err)
                        .map(|error| error.message)
                        .unwrap_or_else(|| "no answer".to_owned());
                    failure = Some(format!("{}: {error}", notice.labels));
                    taken[at] = false;
                }
            }
        }
        match failure {
            Some(reason) => self
                .refusing
                .fail(reason, "cannot enqueue alerts as tasks; retrying"),
            None => self.refusing.recover("alerts are enqueued as tasks again"),
        }
    }
}

enum Form {
    Webhook {
        external_url: String,
        ledger: NotificationLog,
    },
    Alertmanager,
}

/// Sends to one receiver.
struct Post {
    name: String,
    client: OutgoingClient,
    url: String,
    form: Form,
    metrics: NoticeMetrics,
    unreachable: Condition,
}

impl Post {
    async fn send_all(mut self, mut waiting: mpsc::Receiver<Vec<AlertNotification>>) {
        while let Some(notices) = waiting.recv().await {
            for notices in notices.chunks(ALERTS_MAX) {
                self.send(notices).await;
            }
        }
    }

    async fn send(&mut self, notices: &[AlertNotification]) {
        let due: Vec<_> = match &self.form {
            Form::Alertmanager => notices.iter().map(|notice| (notice, None)).collect(),
            Form::Webhook { ledger, .. } => notices
                .iter()
                .filter_map(|notice| Some((notice, Some(ledger.occasion(notice)?))))
                .collect(),
        };
        if due.is_empty() {
            return;
        }
        let alerts: Vec<&AlertNotification> = due.iter().map(|(notice, _)| *notice).collect();
        let body = match &self.form {
            Form::Alertmanager => alertmanager_body(&alerts),
            Form::Webhook { external_url, .. } => webhook_body(&self.name, external_url, &alerts),
        };
        match self.attempts(&body).await {
            Err(problem) => {
                let (receiver, count) = (&self.name, alerts.len());
                self.metrics.failed(receiver, count);
                let reason = format_args!("{count} alerts: {problem}");
                let message = "cannot send alerts; retrying";
                self.unreachable.fail(reason, message);
            }
            Ok(()) => {
                self.metrics.told(&self.name, alerts.len());
                self.unreachable.recover("alerts are sent again");
                if let Form::Webhook { ledger, .. } = &mut self.form {
                    for (notice, occasion) in due {
                        if let Some(occasion) = occasion {
                            ledger.told(notice, occasion);
                        }
                    }
                }
            }
        }
    }

    async fn attempts(&self, body: &str) -> Result<(), String> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let request = self
                .client
                .post_named(&self.url)
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
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }
}

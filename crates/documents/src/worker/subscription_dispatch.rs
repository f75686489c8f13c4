//! Delivers feed changes to subscriptions, as webhooks or as tasks of a queue.
//!
//! Delivery is at least once, in commit order, with retries. Subscriptions are independent: a slow
//! receiver delays only its own. The position of each is stored in the database, so after a crash
//! the last delivery may repeat; tasks carry a unique key and webhooks the positions, by which
//! repetitions can be recognized.

mod delivery;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egret_base::condition::ConditionSet;
use egret_base::sync::lock;
use egret_base::{Clock, Condition, Signer, TaskSink};
use egret_outgoing::{
    Admission, ClientOptions, Delivery, Destinations, OutgoingClient, Slots, receiver_of,
};
use egret_postgres::tokio_postgres::Client;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::delivery::DeliveryError;
use super::feed_tailer::{FeedListener, FeedTailer};
use super::ownership::{OwnershipManager, OwnershipState};
use crate::error::DocumentsError;
use crate::model::{FeedPosition, TenantId};
use crate::store::collections;
use crate::store::subscriptions::{self, Destination, Subscription};

/// Deliveries of a database that run at a time, at most.
const DELIVERIES_MAX: usize = 64;

/// How often subscriptions are reloaded while there are some, or after an error.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// How often subscriptions are reloaded while there are none: another Egret may have created one.
const IDLE_RELOAD_INTERVAL: Duration = Duration::from_secs(30);

/// Timeout of a webhook request.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after the first failed delivery; doubled after each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);

/// Upper limit of that pause.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// Key of a subscription: number of its tenant, and name.
type SubscriptionKey = (TenantId, String);

/// Consecutive failed deliveries of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryFailure {
    /// Number of failures since the last success.
    pub count: u32,
    /// Message of the last error.
    pub error: String,
    retry_at: Instant,
}

pub(crate) struct SubscriptionDispatcher {
    ownership: Arc<OwnershipManager>,
    feed: Arc<FeedTailer>,
    channels: DeliveryChannels,
    client: OutgoingClient,
    failures: Mutex<HashMap<SubscriptionKey, DeliveryFailure>>,
    reload_requested: Notify,
    /// Condition: the change feed cannot be read.
    feed_condition: Condition,
    /// Condition: subscriptions cannot be loaded.
    list_condition: Condition,
    /// Conditions of unreachable receivers, by [`subject`].
    receiver_conditions: ConditionSet,
}

/// Dependencies for delivering and signing changes.
#[derive(Clone)]
pub(crate) struct DeliveryChannels {
    /// Queue engine that takes tasks; none: deliveries to queues fail.
    pub tasks: Option<Arc<dyn TaskSink>>,
    /// Signer of webhook requests; none: they are not signed.
    pub signer: Option<Arc<dyn Signer>>,
    /// Source of the time in signatures.
    pub clock: Arc<dyn Clock>,
}

/// Subscriptions and running deliveries.
struct DispatchState {
    session: Option<Arc<Client>>,
    /// Subscriptions as loaded, with positions advanced by deliveries since.
    subscriptions: BTreeMap<SubscriptionKey, Subscription>,
    /// Time of the next reload; none: now.
    reload_at: Option<Instant>,
    /// Names of the subscriptions' tenants, by number.
    tenants: HashMap<TenantId, String>,
    deliveries: JoinSet<DeliveryResult>,
    /// Subscriptions with a running delivery.
    delivering: HashSet<SubscriptionKey>,
    /// Start of the last delivery of each.
    started_at: HashMap<SubscriptionKey, Instant>,
    /// Delivery slots by receiver and tenant, so that a receiver that does not answer delays no
    /// other.
    slots: Slots,
    /// Origin of the times passed to `slots`.
    slots_origin: Instant,
}

impl DispatchState {
    fn new() -> Self {
        Self {
            session: None,
            subscriptions: BTreeMap::new(),
            reload_at: None,
            tenants: HashMap::new(),
            deliveries: JoinSet::new(),
            delivering: HashSet::new(),
            started_at: HashMap::new(),
            slots: Slots::new(DELIVERIES_MAX, 0),
            slots_origin: Instant::now(),
        }
    }

    fn elapsed_ms(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.slots_origin);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Key for slots: host and port of a webhook, or name of a queue.
fn receiver_key(subscription: &Subscription) -> String {
    match &subscription.destination {
        Destination::Webhook(url) => receiver_of(url),
        Destination::Queue(queue) => format!("queue {queue}"),
    }
}

/// Result of a delivery.
struct DeliveryResult {
    /// The subscription as it was before the delivery.
    subscription: Subscription,
    /// New position, or the error.
    result: Result<FeedPosition, DeliveryError>,
    elapsed: Duration,
}

impl SubscriptionDispatcher {
    /// Creates the dispatcher of a database; fails if no HTTP client can be created.
    pub(crate) fn new(
        ownership: Arc<OwnershipManager>,
        feed: Arc<FeedTailer>,
        channels: DeliveryChannels,
        destinations: Destinations,
    ) -> Result<Self, DocumentsError> {
        let options = ClientOptions { timeout: Some(POST_TIMEOUT), ..ClientOptions::default() };
        let client = OutgoingClient::new(destinations, &options)
            .map_err(|error| DocumentsError::Database { reason: error.to_string() })?;
        let database = ownership.database.as_str();
        Ok(Self {
            feed_condition: Condition::new("documents_feed_disconnected", database),
            list_condition: Condition::new("documents_subscriptions_unreadable", database),
            receiver_conditions: ConditionSet::new("documents_receiver_unreachable"),
            ownership,
            feed,
            channels,
            client,
            failures: Mutex::default(),
            reload_requested: Notify::new(),
        })
    }

    /// Failures of a subscription since its last success, if there are any.
    pub(crate) fn failure(&self, tenant: TenantId, name: &str) -> Option<DeliveryFailure> {
        self.failures().get(&(tenant, name.to_owned())).cloned()
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<SubscriptionKey, DeliveryFailure>> {
        lock(&self.failures)
    }

    /// Reloads the subscriptions: one was created, changed or deleted.
    pub(crate) fn request_reload(&self) {
        self.reload_requested.notify_one();
    }

    /// Delivers changes until shutdown. Deliveries interrupted by it are repeated later.
    pub(crate) async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut state = DispatchState::new();
        let mut listener: Option<FeedListener> = None;
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = self.reload_if_due(&mut state) => {}
            }
            // Without subscriptions, the feed need not be read.
            if state.subscriptions.is_empty() {
                listener = None;
            } else if let Some(listening) = &mut listener {
                listening.mark_seen();
            } else {
                listener = Some(self.feed.listen());
            }
            self.start_deliveries(&mut state);
            let wake_at = self.next_wake(&state);
            tokio::select! {
                _ = stopping.changed() => break,
                Some(joined) = state.deliveries.join_next() => {
                    self.finish_delivery(&mut state, joined);
                    while let Some(done) = state.deliveries.try_join_next() {
                        self.finish_delivery(&mut state, done);
                    }
                }
                result = await_changes(&mut listener) => match result {
                    Ok(()) => self.feed_condition.recover("changes of documents are read again"),
                    Err(DocumentsError::Stopping) => break,
                    Err(error) => {
                        self.feed_condition.fail(&error, "cannot read changes of documents; retrying");
                    }
                },
                () = self.reload_requested.notified() => state.reload_at = None,
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
        state.deliveries.shutdown().await;
    }

    /// Reloads the subscriptions if it is time to, and clears them while this Egret is not the
    /// owner.
    async fn reload_if_due(&self, state: &mut DispatchState) {
        if self.ownership.state() != OwnershipState::Owner {
            if self.ownership.state() == OwnershipState::Removed {
                // Nothing is left to be read.
                self.list_condition.end();
                self.feed_condition.end();
            }
            state.subscriptions.clear();
            // Reload as soon as this Egret becomes the owner.
            state.reload_at = None;
            return;
        }
        let now = Instant::now();
        if state.reload_at.is_some_and(|at| now < at) {
            return;
        }
        let result = self.reload(state).await;
        if result.is_ok() {
            self.list_condition.recover("subscriptions to documents are read again");
        }
        let delay = match result {
            Ok(()) if state.subscriptions.is_empty() => IDLE_RELOAD_INTERVAL,
            Ok(()) => RELOAD_INTERVAL,
            Err(error) => {
                let message = "cannot read the subscriptions to documents; retrying";
                self.list_condition.fail(&error, message);
                state.session = None;
                RELOAD_INTERVAL
            }
        };
        state.reload_at = Some(now + delay);
    }

    async fn reload(&self, state: &mut DispatchState) -> Result<(), DocumentsError> {
        let existing = state.session.clone();
        let session = match existing.filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => Arc::new(self.ownership.connect().await?),
        };
        state.session = Some(session.clone());
        let loaded = subscriptions::read_all(&session).await?;
        let is_known =
            |subscription: &Subscription| state.tenants.contains_key(&subscription.tenant);
        if !loaded.iter().all(is_known) {
            let names = collections::read_tenants(&*session).await?;
            state.tenants = names.into_iter().map(|(name, id)| (id, name)).collect();
        }
        state.subscriptions = loaded.into_iter().map(|one| (subscription_key(&one), one)).collect();
        let is_loaded = |key: &SubscriptionKey| state.subscriptions.contains_key(key);
        let removed_keys: Vec<SubscriptionKey> =
            self.failures().extract_if(|key, _| !is_loaded(key)).map(|(key, _)| key).collect();
        for key in removed_keys {
            self.receiver_conditions.end(&self.subject(&key));
        }
        state.started_at.retain(|key, _| is_loaded(key));
        Ok(())
    }

    /// Starts deliveries for subscriptions with pending changes; those that waited longest come
    /// first.
    fn start_deliveries(self: &Arc<Self>, state: &mut DispatchState) {
        let Some(session) = &state.session else {
            return;
        };
        let (buffered_position, now) = (self.feed.buffered_position(), Instant::now());
        let mut due: Vec<(&SubscriptionKey, &Subscription)> = state
            .subscriptions
            .iter()
            .filter(|(key, subscription)| {
                subscription.position < buffered_position
                    && !state.delivering.contains(*key)
                    && self.is_due(key, now)
            })
            .collect();
        let now_ms = state.elapsed_ms(now);
        due.sort_by_key(|(key, _)| state.started_at.get(*key).copied());
        for (key, one) in due {
            match state.slots.acquire(&receiver_key(one), &key.0.0.to_string(), now_ms) {
                Admission::Granted => {}
                Admission::Busy => continue,
                Admission::Unreachable(reason) => {
                    self.postpone(key, &reason, now);
                    continue;
                }
            }
            state.delivering.insert(key.clone());
            state.started_at.insert(key.clone(), now);
            let tenant = state.tenants.get(&one.tenant).cloned().unwrap_or_default();
            let (dispatcher, session, one) = (self.clone(), session.clone(), one.clone());
            state.deliveries.spawn(async move {
                let result = dispatcher.deliver_next(&session, &one, &tenant).await;
                let elapsed = now.elapsed();
                DeliveryResult { subscription: one, result, elapsed }
            });
        }
    }

    fn is_due(&self, key: &SubscriptionKey, now: Instant) -> bool {
        let failures = self.failures();
        failures.get(key).is_none_or(|failure| failure.retry_at <= now)
    }

    /// Time at which to wake up if nothing happens before.
    fn next_wake(&self, state: &DispatchState) -> Instant {
        let now = Instant::now();
        if self.ownership.state() != OwnershipState::Owner {
            return now + RELOAD_INTERVAL;
        }
        let failures = self.failures();
        let retry_times = failures.values().map(|failed| failed.retry_at);
        let again = retry_times.filter(|again| *again > now);
        again.fold(state.reload_at.unwrap_or(now), Instant::min)
    }

    /// Records the result of a delivery.
    fn finish_delivery(
        &self,
        state: &mut DispatchState,
        joined: Result<DeliveryResult, JoinError>,
    ) {
        let DeliveryResult { subscription: one, result: told, elapsed: took } =
            match joined.map_err(JoinError::try_into_panic) {
                Ok(done) => done,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                // Cancelled, which only happens at shutdown.
                Err(Err(_)) => return,
            };
        let key = subscription_key(&one);
        self.record_result(&key, &told);
        state.delivering.remove(&key);
        let slot_outcome = match &told {
            Err(DeliveryError::Unanswered(reason)) => Delivery::Unanswered(reason.clone()),
            _ => Delivery::Answered(took),
        };
        let now_ms = state.elapsed_ms(Instant::now());
        let tenant = key.0.0.to_string();
        state.slots.release(&receiver_key(&one), &tenant, slot_outcome, now_ms);
        match (told, state.subscriptions.get_mut(&key)) {
            // Otherwise it was reloaded meanwhile, perhaps with a position reset by a caller.
            (Ok(position), Some(loaded)) if loaded.position == one.position => {
                loaded.position = position;
            }
            (Ok(_), _) => {}
            (Err(_), _) => state.reload_at = None,
        }
    }

    /// Postpones a subscription whose receiver does not answer other subscriptions either.
    fn postpone(&self, key: &SubscriptionKey, reason: &str, now: Instant) {
        let mut failures = self.failures();
        let failure = failures.entry(key.clone()).or_insert_with(|| DeliveryFailure {
            count: 1,
            error: format!("not sent, because the receiver does not answer: {reason}"),
            retry_at: now,
        });
        failure.retry_at = now + RELOAD_INTERVAL;
    }

    /// Name of a subscription in conditions of its receiver.
    fn subject(&self, (tenant, name): &SubscriptionKey) -> String {
        format!("{}: {name} of tenant {}", self.ownership.database, tenant.0)
    }

    fn record_result(&self, key: &SubscriptionKey, result: &Result<FeedPosition, DeliveryError>) {
        let mut failures = self.failures();
        match result {
            Ok(_) => {
                failures.remove(key);
                let message = "changes of documents are delivered again";
                self.receiver_conditions.recover(&self.subject(key), message);
            }
            Err(error) => {
                let error = error.reason();
                let count = failures.get(key).map_or(0, |failed| failed.count) + 1;
                let delay = RETRY_DELAY_MIN * 2_u32.saturating_pow((count - 1).min(10));
                let message = "cannot deliver changes of documents; retrying";
                self.receiver_conditions.fail(&self.subject(key), error, message);
                let failure = DeliveryFailure {
                    count,
                    error: error.to_owned(),
                    retry_at: Instant::now() + delay.min(RETRY_DELAY_MAX),
                };
                failures.insert(key.clone(), failure);
            }
        }
    }
}

/// Waits for further changes; forever without a listener.
async fn await_changes(listener: &mut Option<FeedListener>) -> Result<(), DocumentsError> {
    match listener {
        Some(listening) => listening.wait().await,
        None => std::future::pending().await,
    }
}

fn subscription_key(subscription: &Subscription) -> SubscriptionKey {
    (subscription.tenant, subscription.name.clone())
}

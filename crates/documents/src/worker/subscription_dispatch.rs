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
const TOLD_TOGETHER: usize = 64;

/// How often subscriptions are reloaded while there are some, or after an error.
const LOOK: Duration = Duration::from_secs(1);

/// How often subscriptions are reloaded while there are none: another Egret may have created one.
const LOOK_FOR_NEW: Duration = Duration::from_secs(30);

/// Timeout of a webhook request.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after the first failed delivery; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Upper limit of that pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Key of a subscription: number of its tenant, and name.
type SubscriptionKey = (TenantId, String);

/// Consecutive failed deliveries of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryFailure {
    /// Number of failures since the last success.
    pub times: u32,
    /// Message of the last error.
    pub error: String,
    again: Instant,
}

pub(crate) struct SubscriptionDispatcher {
    keeper: Arc<OwnershipManager>,
    follower: Arc<FeedTailer>,
    hands: DeliveryChannels,
    client: OutgoingClient,
    failed: Mutex<HashMap<SubscriptionKey, DeliveryFailure>>,
    look: Notify,
    /// Condition: the change feed cannot be read.
    unseen: Condition,
    /// Condition: subscriptions cannot be loaded.
    unlisted: Condition,
    /// Conditions of unreachable receivers, by [`subject`].
    unreachable: ConditionSet,
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
    all: BTreeMap<SubscriptionKey, Subscription>,
    /// Time of the next reload; none: now.
    look_at: Option<Instant>,
    /// Names of the subscriptions' tenants, by number.
    tenants: HashMap<TenantId, String>,
    under_way: JoinSet<DeliveryResult>,
    /// Subscriptions with a running delivery.
    told_now: HashSet<SubscriptionKey>,
    /// Start of the last delivery of each.
    begun: HashMap<SubscriptionKey, Instant>,
    /// Delivery slots by receiver and tenant, so that a receiver that does not answer delays no
    /// other.
    slots: Slots,
    /// Origin of the times passed to `slots`.
    since: Instant,
}

impl DispatchState {
    fn new() -> Self {
        Self {
            session: None,
            all: BTreeMap::new(),
            look_at: None,
            tenants: HashMap::new(),
            under_way: JoinSet::new(),
            told_now: HashSet::new(),
            begun: HashMap::new(),
            slots: Slots::new(TOLD_TOGETHER, 0),
            since: Instant::now(),
        }
    }

    fn elapsed_ms(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.since);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Key for slots: host and port of a webhook, or name of a queue.
fn receiver(one: &Subscription) -> String {
    match &one.destination {
        Destination::Webhook(url) => receiver_of(url),
        Destination::Queue(queue) => format!("queue {queue}"),
    }
}

/// Result of a delivery.
struct DeliveryResult {
    /// The subscription as it was before the delivery.
    one: Subscription,
    /// New position, or the error.
    told: Result<FeedPosition, DeliveryError>,
    took: Duration,
}

impl SubscriptionDispatcher {
    /// Creates the dispatcher of a database; fails if no HTTP client can be created.
    pub(crate) fn new(
        keeper: Arc<OwnershipManager>,
        follower: Arc<FeedTailer>,
        hands: DeliveryChannels,
        destinations: Destinations,
    ) -> Result<Self, DocumentsError> {
        let options = ClientOptions {
            timeout: Some(POST_TIMEOUT),
            ..ClientOptions::default()
        };
        let client = OutgoingClient::new(destinations, &options).map_err(|error| {
            DocumentsError::Database {
                reason: error.to_string(),
            }
        })?;
        let database = keeper.database.as_str();
        Ok(Self {
            unseen: Condition::new("documents_feed_disconnected", database),
            unlisted: Condition::new("documents_subscriptions_unreadable", database),
            unreachable: ConditionSet::new("documents_receiver_unreachable"),
            keeper,
            follower,
            hands,
            client,
            failed: Mutex::default(),
            look: Notify::new(),
        })
    }

    /// Failures of a subscription since its last success, if there are any.
    pub(crate) fn failed(&self, tenant: TenantId, name: &str) -> Option<DeliveryFailure> {
        self.failures().get(&(tenant, name.to_owned())).cloned()
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<SubscriptionKey, DeliveryFailure>> {
        lock(&self.failed)
    }

    /// Reloads the subscriptions: one was created, changed or deleted.
    pub(crate) fn look(&self) {
        self.look.notify_one();
    }

    /// Delivers changes until shutdown. Deliveries interrupted by it are repeated later.
    pub(crate) async fn tell(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut desk = DispatchState::new();
        let mut listening: Option<FeedListener> = None;
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = self.look_up(&mut desk) => {}
            }
            // Without subscriptions, the feed need not be read.
            if desk.all.is_empty() {
                listening = None;
            } else if let Some(listening) = &mut listening {
                listening.begin();
            } else {
                listening = Some(self.follower.listen());
            }
            self.begin(&mut desk);
            let until = self.until(&desk);
            tokio::select! {
                _ = stopping.changed() => break,
                Some(done) = desk.under_way.join_next() => {
                    self.end(&mut desk, done);
                    while let Some(done) = desk.under_way.try_join_next() {
                        self.end(&mut desk, done);
                    }
                }
                heard = more(&mut listening) => match heard {
                    Ok(()) => self.unseen.recover("changes of documents are read again"),
                    Err(DocumentsError::Stopping) => break,
                    Err(error) => {
                        self.unseen.fail(&error, "cannot read changes of documents; retrying");
                    }
                },
                () = self.look.notified() => desk.look_at = None,
                () = tokio::time::sleep_until(until) => {}
            }
        }
        desk.under_way.shutdown().await;
    }

    /// Reloads the subscriptions if it is time to, and clears them while this Egret is not the
    /// owner.
    async fn look_up(&self, desk: &mut DispatchState) {
        if self.keeper.standing() != OwnershipState::Owner {
            if self.keeper.standing() == OwnershipState::Gone {
                // Nothing is left to be read.
                self.unlisted.end();
                self.unseen.end();
            }
            desk.all.clear();
            // Reload as soon as this Egret becomes the owner.
            desk.look_at = None;
            return;
        }
        let now = Instant::now();
        if desk.look_at.is_some_and(|at| now < at) {
            return;
        }
        let looked_up = self.all(desk).await;
        if looked_up.is_ok() {
            self.unlisted
                .recover("subscriptions to documents are read again");
        }
        let patience = match looked_up {
            Ok(()) if desk.all.is_empty() => LOOK_FOR_NEW,
            Ok(()) => LOOK,
            Err(error) => {
                let message = "cannot read the subscriptions to documents; retrying";
                self.unlisted.fail(&error, message);
                desk.session = None;
                LOOK
            }
        };
        desk.look_at = Some(now + patience);
    }

    async fn all(&self, desk: &mut DispatchState) -> Result<(), DocumentsError> {
        let there = desk.session.clone();
        let session = match there.filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => Arc::new(self.keeper.client().await?),
        };
        desk.session = Some(session.clone());
        let all = subscriptions::all(&session).await?;
        let is_known = |one: &Subscription| desk.tenants.contains_key(&one.tenant);
        if !all.iter().all(is_known) {
            let names = collections::tenants(&*session).await?;
            desk.tenants = names.into_iter().map(|(name, id)| (id, name)).collect();
        }
        desk.all = all.into_iter().map(|one| (key(&one), one)).collect();
        let is_there = |key: &SubscriptionKey| desk.all.contains_key(key);
        let gone: Vec<SubscriptionKey> = self
            .failures()
            .extract_if(|key, _| !is_there(key))
            .map(|(key, _)| key)
            .collect();
        for key in gone {
            self.unreachable.end(&self.subject(&key));
        }
        desk.begun.retain(|key, _| is_there(key));
        Ok(())
    }

    /// Starts deliveries for subscriptions with pending changes; those that waited longest come
    /// first.
    fn begin(self: &Arc<Self>, desk: &mut DispatchState) {
        let Some(session) = &desk.session else {
            return;
        };
        let (reached, now) = (self.follower.reached(), Instant::now());
        let mut due: Vec<(&SubscriptionKey, &Subscription)> = desk
            .all
            .iter()
            .filter(|(key, one)| {
                one.position < reached && !desk.told_now.contains(*key) && self.is_due(key, now)
            })
            .collect();
        let now_ms = desk.elapsed_ms(now);
        due.sort_by_key(|(key, _)| desk.begun.get(*key).copied());
        for (key, one) in due {
            match desk
                .slots
                .take(&receiver(one), &key.0.0.to_string(), now_ms)
            {
                Admission::Granted => {}
                Admission::Busy => continue,
                Admission::Unreachable(reason) => {
                    self.postpone(key, &reason, now);
                    continue;
                }
            }
            desk.told_now.insert(key.clone());
            desk.begun.insert(key.clone(), now);
            let tenant = desk.tenants.get(&one.tenant).cloned().unwrap_or_default();
            let (teller, session, one) = (self.clone(), session.clone(), one.clone());
            desk.under_way.spawn(async move {
                let told = teller.tell_one(&session, &one, &tenant).await;
                let took = now.elapsed();
                DeliveryResult { one, told, took }
            });
        }
    }

    fn is_due(&self, key: &SubscriptionKey, now: Instant) -> bool {
        let failures = self.failures();
        failures.get(key).is_none_or(|failed| failed.again <= now)
    }

    /// Time at which to wake up if nothing happens before.
    fn until(&self, desk: &DispatchState) -> Instant {
        let now = Instant::now();
        if self.keeper.standing() != OwnershipState::Owner {
            return now + LOOK;
        }
        let failures = self.failures();
        let again = failures.values().map(|failed| failed.again);
        let again = again.filter(|again| *again > now);
        again.fold(desk.look_at.unwrap_or(now), Instant::min)
    }

    /// Records the result of a delivery.
    fn end(&self, desk: &mut DispatchState, done: Result<DeliveryResult, JoinError>) {
        let DeliveryResult { one, told, took } = match done.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // Cancelled, which only happens at shutdown.
            Err(Err(_)) => return,
        };
        let key = key(&one);
        self.note(&key, &told);
        desk.told_now.remove(&key);
        let delivery = match &told {
            Err(DeliveryError::Unanswered(reason)) => Delivery::Unanswered(reason.clone()),
            _ => Delivery::Answered(took),
        };
        let now_ms = desk.elapsed_ms(Instant::now());
        let tenant = key.0.0.to_string();
        desk.slots
            .give_back(&receiver(&one), &tenant, delivery, now_ms);
        match (told, desk.all.get_mut(&key)) {
            // Otherwise it was reloaded meanwhile, perhaps with a position reset by a caller.
            (Ok(position), Some(known)) if known.position == one.position => {
                known.position = position;
            }
            (Ok(_), _) => {}
            (Err(_), _) => desk.look_at = None,
        }
    }

    /// Postpones a subscription whose receiver does not answer other subscriptions either.
    fn postpone(&self, key: &SubscriptionKey, reason: &str, now: Instant) {
        let mut failures = self.failures();
        let failed = failures
            .entry(key.clone())
            .or_insert_with(|| DeliveryFailure {
                times: 1,
                error: format!("not sent, because the receiver does not answer: {reason}"),
                again: now,
            });
        failed.again = now + LOOK;
    }

    /// Name of a subscription in conditions of its receiver.
    fn subject(&self, (tenant, name): &SubscriptionKey) -> String {
        format!("{}: {name} of tenant {}", self.keeper.database, tenant.0)
    }

    fn note(&self, key: &SubscriptionKey, told: &Result<FeedPosition, DeliveryError>) {
        let mut failures = self.failures();
        match told {
            Ok(_) => {
                failures.remove(key);
                let message = "changes of documents are delivered again";
                self.unreachable.recover(&self.subject(key), message);
            }
            Err(error) => {
                let error = error.reason();
                let times = failures.get(key).map_or(0, |failed| failed.times) + 1;
                let pause = FIRST_PAUSE * 2_u32.saturating_pow((times - 1).min(10));
                let message = "cannot deliver changes of documents; retrying";
                self.unreachable.fail(&self.subject(key), error, message);
                let failed = DeliveryFailure {
                    times,
                    error: error.to_owned(),
                    again: Instant::now() + pause.min(PAUSE_MAX),
                };
                failures.insert(key.clone(), failed);
            }
        }
    }
}

/// Waits for further changes; forever without a listener.
async fn more(listening: &mut Option<FeedListener>) -> Result<(), DocumentsError> {
    match listening {
        Some(listening) => listening.wait().await,
        None => std::future::pending().await,
    }
}

fn key(one: &Subscription) -> SubscriptionKey {
    (one.tenant, one.name.clone())
}

//! Tells those who want to know what becomes of documents: by POST, or as tasks of a queue.
//!
//! Each is told in the order of commits, from where he was told last, as often as it takes, and by himself: nobody waits for somebody else's address.
//! How far he is stands in the database: after a crash he is told what he may have been told before. As a task that is the same task, as a POST it
//! has the same position.

mod delivery;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egret_base::condition::ConditionSet;
use egret_base::{Clock, Condition, Signer, TaskSink};
use egret_outgoing::{
    Admission, ClientOptions, Delivery, Destinations, OutgoingClient, Slots, receiver_of,
};
use egret_postgres::tokio_postgres::Client;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::delivery::DeliveryError;
use super::follower::{Follower, Listening};
use super::keeper::{Keeper, Standing};
use crate::error::DocumentsError;
use crate::store::collections;
use crate::store::subscriptions::{self, Destination, Subscription};

/// Those of a database who are told at a time.
const TOLD_TOGETHER: usize = 64;

/// How soon is looked again who is to be told, and where something failed.
const LOOK: Duration = Duration::from_secs(1);

/// How soon is looked whether somebody is to be told whom another Egret has been asked to tell.
const LOOK_FOR_NEW: Duration = Duration::from_secs(30);

/// How long one POST may take.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait after the first failure; doubled after each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long at most.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A subscription, by tenant and name.
type Key = (i32, String);

/// What failed, and how often one after the other.
#[derive(Clone, Debug)]
pub struct Failed {
    /// How often.
    pub times: u32,
    /// What the last time.
    pub error: String,
    again: Instant,
}

/// See the module.
pub struct Teller {
    keeper: Arc<Keeper>,
    follower: Arc<Follower>,
    hands: Hands,
    client: OutgoingClient,
    failed: Mutex<HashMap<Key, Failed>>,
    look: Notify,
    /// Changes of documents cannot be seen.
    unseen: Condition,
    /// Subscriptions cannot be looked up.
    unlisted: Condition,
    /// Receivers of subscriptions, by [`subject`].
    unreachable: ConditionSet,
}

/// By whom others are told.
#[derive(Clone)]
pub struct Hands {
    /// Who takes tasks for queues, where there are any.
    pub tasks: Option<Arc<dyn TaskSink>>,
    /// Who signs what is posted, where there is a key.
    pub signer: Option<Arc<dyn Signer>>,
    /// Says when it is signed.
    pub clock: Arc<dyn Clock>,
}

/// Who is told, and what is under way.
struct Desk {
    session: Option<Arc<Client>>,
    /// Those who are told: as they were looked up, and how far they have been told since.
    all: BTreeMap<Key, Subscription>,
    /// When they are looked up again; none: now.
    look_at: Option<Instant>,
    /// What their tenants are called.
    tenants: HashMap<i32, String>,
    under_way: JoinSet<Done>,
    /// Who is being told.
    told_now: HashSet<Key>,
    /// When each was told last.
    begun: HashMap<Key, Instant>,
    /// Shared by receivers and tenants, so that one that does not answer delays no other.
    slots: Slots,
    /// The zero of the time that the slots are given.
    since: Instant,
}

impl Desk {
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

/// What slots are counted by: host and port of a webhook, or a queue.
fn receiver(one: &Subscription) -> String {
    match &one.destination {
        Destination::Webhook(url) => receiver_of(url),
        Destination::Queue(queue) => format!("queue {queue}"),
    }
}

/// Somebody has been told.
struct Done {
    /// As he was before.
    one: Subscription,
    /// Up to which position, or why not.
    told: Result<i64, DeliveryError>,
    took: Duration,
}

impl Teller {
    /// For a database.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        keeper: Arc<Keeper>,
        follower: Arc<Follower>,
        hands: Hands,
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

    /// What failed last with a subscription, if something did.
    pub fn failed(&self, tenant: i32, name: &str) -> Option<Failed> {
        self.failures().get(&(tenant, name.to_owned())).cloned()
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Key, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be somebody new to be told, or somebody is not to be told any more.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Tells all, again and again, until everything stops. What is under way then is told again another time.
    pub async fn tell(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut desk = Desk::new();
        let mut listening: Option<Listening> = None;
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = self.look_up(&mut desk) => {}
            }
            // Nobody asks for what changes where nobody is told.
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
                    Ok(()) => self.unseen.recover("changes of documents are seen again"),
                    Err(DocumentsError::Stopping) => break,
                    Err(error) => {
                        self.unseen.fail(&error, "changes of documents cannot be seen; retrying");
                    }
                },
                () = self.look.notified() => desk.look_at = None,
                () = tokio::time::sleep_until(until) => {}
            }
        }
        desk.under_way.shutdown().await;
    }

    /// Looks up who is to be told, if it is time to.
    async fn look_up(&self, desk: &mut Desk) {
        if self.keeper.standing() != Standing::Owner {
            desk.all.clear();
            // As soon as this Egret is the one that tells.
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

    async fn all(&self, desk: &mut Desk) -> Result<(), DocumentsError> {
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
            desk.tenants = names.into_iter().map(|(name, id)| (id.0, name)).collect();
        }
        desk.all = all.into_iter().map(|one| (key(&one), one)).collect();
        let is_there = |key: &Key| desk.all.contains_key(key);
        let gone: Vec<Key> = self
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

    /// Begins to tell those for whom there is something, whoever has waited longest first.
    fn begin(self: &Arc<Self>, desk: &mut Desk) {
        let Some(session) = &desk.session else {
            return;
        };
        let (reached, now) = (self.follower.reached(), Instant::now());
        let due = desk.all.iter().filter(|(key, one)| {
            one.position < reached && !desk.told_now.contains(*key) && self.is_due(key, now)
        });
        let mut due: Vec<(&Key, &Subscription)> = due.collect();
        let now_ms = desk.elapsed_ms(now);
        due.sort_by_key(|(key, _)| desk.begun.get(*key).copied());
        for (key, one) in due {
            match desk.slots.take(&receiver(one), &key.0.to_string(), now_ms) {
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
                Done { one, told, took }
            });
        }
    }

    fn is_due(&self, key: &Key, now: Instant) -> bool {
        let failures = self.failures();
        failures.get(key).is_none_or(|failed| failed.again <= now)
    }

    /// When there is something to be done though nothing happens.
    fn until(&self, desk: &Desk) -> Instant {
        let now = Instant::now();
        if self.keeper.standing() != Standing::Owner {
            return now + LOOK;
        }
        let failures = self.failures();
        let again = failures.values().map(|failed| failed.again);
        let again = again.filter(|again| *again > now);
        again.fold(desk.look_at.unwrap_or(now), Instant::min)
    }

    /// Notes what has become of it.
    fn end(&self, desk: &mut Desk, done: Result<Done, JoinError>) {
        let Done { one, told, took } = match done.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // Nobody else ends it.
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
        let tenant = key.0.to_string();
        desk.slots
            .give_back(&receiver(&one), &tenant, delivery, now_ms);
        match (told, desk.all.get_mut(&key)) {
            // Else it has been looked up since, and somebody may have set it back.
            (Ok(position), Some(known)) if known.position == one.position => {
                known.position = position;
            }
            (Ok(_), _) => {}
            (Err(_), _) => desk.look_at = None,
        }
    }

    /// Notes that a subscription waits for a receiver that does not answer others either.
    fn postpone(&self, key: &Key, reason: &str, now: Instant) {
        let mut failures = self.failures();
        let failed = failures.entry(key.clone()).or_insert_with(|| Failed {
            times: 1,
            error: format!("not sent, as the receiver does not answer: {reason}"),
            again: now,
        });
        failed.again = now + LOOK;
    }

    /// What a subscription is called where its receiver has a fault.
    fn subject(&self, (tenant, name): &Key) -> String {
        format!("{}: {name} of tenant {tenant}", self.keeper.database)
    }

    fn note(&self, key: &Key, told: &Result<i64, DeliveryError>) {
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
                let message = "changes of documents cannot be delivered; retrying";
                self.unreachable.fail(&self.subject(key), error, message);
                let failed = Failed {
                    times,
                    error: error.to_owned(),
                    again: Instant::now() + pause.min(PAUSE_MAX),
                };
                failures.insert(key.clone(), failed);
            }
        }
    }
}

/// Waits for what comes, where somebody listens.
async fn more(listening: &mut Option<Listening>) -> Result<(), DocumentsError> {
    match listening {
        Some(listening) => listening.wait().await,
        None => std::future::pending().await,
    }
}

fn key(one: &Subscription) -> Key {
    (one.tenant, one.name.clone())
}

//! Tells those who want to know what becomes of documents: by POST, or as tasks of a queue.
//!
//! Each is told in the order of commits, from where he was told last, as often as it takes, and by himself: nobody waits for somebody else's address.
//! How far he is stands in the database: after a crash he is told what he may have been told before. As a task that is the same task, as a POST it
//! has the same position.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_base::{Clock, SIGNATURE_HEADER, Signer, TaskRequest, TaskSink, Timestamp};
use egret_outgoing::{ClientOptions, Destinations, OutgoingClient};
use egret_postgres::tokio_postgres::{Client, Error as PgError};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::catalogue::Catalogue;
use super::follower::{Follower, Listening};
use super::keeper::{Keeper, Standing};
use crate::error::DocumentsError;
use crate::model::ChangeKind;
use crate::store::collections;
use crate::store::feed::Group;
use crate::store::subscriptions::{self, Destination, Subscription};

/// Changes that somebody is told at a time.
const CHANGES_TOGETHER: usize = 1_000;

/// Those of a database who are told at a time.
const TOLD_TOGETHER: usize = 64;

/// As many of them may be slow, so that there is room for the others.
const SLOW_TOGETHER: usize = 32;

/// Whoever takes this long is slow.
const SLOW: Duration = Duration::from_secs(1);

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
#[derive(Default)]
struct Desk {
    session: Option<Arc<Client>>,
    /// Those who are told: as they were looked up, and how far they have been told since.
    all: BTreeMap<Key, Subscription>,
    /// When they are looked up again; none: now.
    look_at: Option<Instant>,
    /// What their tenants are called.
    tenants: HashMap<i32, String>,
    under_way: JoinSet<Done>,
    /// Who is being told, and whether he is slow.
    told_now: HashMap<Key, bool>,
    /// When each was told last.
    begun: HashMap<Key, Instant>,
    slow: HashSet<Key>,
}

/// Somebody has been told.
struct Done {
    /// As he was before.
    one: Subscription,
    /// Up to which position, or why not.
    told: Result<i64, String>,
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
        Ok(Self {
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
        let mut desk = Desk::default();
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
                    Ok(()) => {}
                    Err(DocumentsError::Stopping) => break,
                    Err(error) => self.warn(&error),
                },
                () = self.look.notified() => desk.look_at = None,
                () = tokio::time::sleep_until(until) => {}
            }
        }
        desk.under_way.shutdown().await;
    }

    fn warn(&self, error: &DocumentsError) {
        let database = &self.keeper.database;
        tracing::warn!(%error, database, "nobody is told what becomes of documents");
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
        let patience = match self.all(desk).await {
            Ok(()) if desk.all.is_empty() => LOOK_FOR_NEW,
            Ok(()) => LOOK,
            Err(error) => {
                self.warn(&error);
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
        self.failures().retain(|key, _| is_there(key));
        desk.begun.retain(|key, _| is_there(key));
        desk.slow.retain(is_there);
        Ok(())
    }

    /// Begins to tell those for whom there is something, whoever has waited longest first.
    fn begin(self: &Arc<Self>, desk: &mut Desk) {
        let Some(session) = &desk.session else {
            return;
        };
        let (reached, now) = (self.follower.reached(), Instant::now());
        let due = desk.all.iter().filter(|(key, one)| {
            one.position < reached && !desk.told_now.contains_key(*key) && self.is_due(key, now)
        });
        let mut due: Vec<(&Key, &Subscription)> = due.collect();
        due.sort_by_key(|(key, _)| desk.begun.get(*key).copied());
        for (key, one) in due {
            let is_slow = desk.slow.contains(key);
            let slow = desk.told_now.values().filter(|is_slow| **is_slow).count();
            if desk.told_now.len() >= TOLD_TOGETHER || (is_slow && slow >= SLOW_TOGETHER) {
                continue;
            }
            desk.told_now.insert(key.clone(), is_slow);
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
        match took >= SLOW {
            true => desk.slow.insert(key.clone()),
            false => desk.slow.remove(&key),
        };
        match (told, desk.all.get_mut(&key)) {
            // Else it has been looked up since, and somebody may have set it back.
            (Ok(position), Some(known)) if known.position == one.position => {
                known.position = position;
            }
            (Ok(_), _) => {}
            (Err(_), _) => desk.look_at = None,
        }
    }

    fn note(&self, key: &Key, told: &Result<i64, String>) {
        let mut failures = self.failures();
        match told {
            Ok(_) => _ = failures.remove(key),
            Err(error) => {
                let times = failures.get(key).map_or(0, |failed| failed.times) + 1;
                let pause = FIRST_PAUSE * 2_u32.saturating_pow((times - 1).min(10));
                let name = &key.1;
                tracing::warn!(%error, subscription = name, times, "changes of documents could not be told; they are told again");
                let failed = Failed {
                    times,
                    error: error.clone(),
                    again: Instant::now() + pause.min(PAUSE_MAX),
                };
                failures.insert(key.clone(), failed);
            }
        }
    }

    /// Tells somebody the next that there is. Returns up to which position.
    async fn tell_one(
        &self,
        session: &Client,
        one: &Subscription,
        tenant: &str,
    ) -> Result<i64, String> {
        let said = |error: PgError| egret_base::error::chain(&error);
        let groups = match self.follower.after(one.position).await {
            Ok(groups) => groups,
            Err(DocumentsError::ChangesGone { forgotten }) => {
                // It goes on with what there is, and says so once.
                subscriptions::advance(session, one, forgotten)
                    .await
                    .map_err(said)?;
                return Err(format!(
                    "changes up to position {forgotten} were forgotten before they could be told, `documents.feed_kept`"
                ));
            }
            Err(error) => return Err(error.to_string()),
        };
        let catalogue = self.keeper.writer.catalogue();
        let (changes, position) = changes(&groups, one, &catalogue);
        if !changes.is_empty() {
            match &one.destination {
                Destination::Webhook(url) => self.post(url, (one, tenant), &changes).await?,
                Destination::Queue(queue) => self.hand_over(queue, one, tenant, &changes).await?,
            }
        }
        if position > one.position {
            subscriptions::advance(session, one, position)
                .await
                .map_err(said)?;
        }
        Ok(position)
    }

    async fn post(
        &self,
        url: &str,
        (one, tenant): (&Subscription, &str),
        changes: &[Value],
    ) -> Result<(), String> {
        let body = json!({
            "subscription": one.name,
            "database": self.keeper.database,
            "changes": changes,
        });
        let body = body.to_string();
        let mut request = self
            .client
            .post(url)
            .map_err(|error| error.to_string())?
            .header("content-type", "application/json");
        if let Some(signer) = &self.hands.signer {
            let at_seconds = self.hands.clock.now().as_millis_unsigned() / 1_000;
            let signature = signer.sign(tenant, at_seconds, body.as_bytes())?;
            request = request.header(SIGNATURE_HEADER, signature);
        }
        // The address may hold a secret: neither logs nor lists repeat it.
        let sent = request.body(body).send().await;
        let answer = sent.map_err(|error| error.to_string())?;
        if answer.is_success() {
            return Ok(());
        }
        Err(format!("the receiver answered {}", answer.status_text()))
    }

    async fn hand_over(
        &self,
        queue: &str,
        one: &Subscription,
        tenant: &str,
        changes: &[Value],
    ) -> Result<(), String> {
        let sink = self
            .hands
            .tasks
            .as_ref()
            .ok_or("there are no queues here")?;
        let database = &self.keeper.database;
        let texts: Vec<(String, String, &str)> = changes
            .iter()
            .map(|change| {
                let key = format!("documents/{database}/{}/{}", one.name, change["position"]);
                (change.to_string(), key, change["id"].as_str().unwrap_or(""))
            })
            .collect();
        let requests: Vec<TaskRequest<'_>> = texts
            .iter()
            .map(|(payload, key, document)| TaskRequest {
                tenant,
                queue,
                payload: payload.as_bytes(),
                key,
                // What becomes of one document is worked on in order.
                ordering_key: document,
                unique_key: "",
            })
            .collect();
        let outcomes = sink.enqueue(&requests).await;
        match outcomes.into_iter().find_map(Result::err) {
            Some(refused) => Err(refused.message),
            None => Ok(()),
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

fn moment(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What a subscription is told of groups, and up to which position that is.
fn changes(groups: &[Arc<Group>], one: &Subscription, catalogue: &Catalogue) -> (Vec<Value>, i64) {
    let (mut told, mut reached) = (Vec::new(), one.position);
    for group in groups {
        let each = (group.before() + 1..).zip(&group.changes);
        for (position, &(kind, tenant, collection, id, version)) in each {
            if position <= one.position {
                continue;
            }
            if told.len() == CHANGES_TOGETHER {
                return (told, reached);
            }
            reached = position;
            let (Some(declared), Some(kind)) =
                (catalogue.by_number(collection), ChangeKind::of(kind))
            else {
                continue;
            };
            let is_wanted =
                tenant == one.tenant && one.collection.is_none_or(|wanted| wanted == collection);
            if is_wanted {
                told.push(json!({
                    "position": position,
                    "at": moment(group.at),
                    "kind": kind.as_str(),
                    "collection": declared.collection.name(),
                    "id": id.to_string(),
                    "version": version,
                }));
            }
        }
    }
    (told, reached)
}

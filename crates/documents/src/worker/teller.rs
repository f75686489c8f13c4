//! Tells those who want to know what becomes of documents: by POST, or as tasks of a queue.
//!
//! Each is told in the order of commits, from where he was told last, as often as it takes. How far he is stands in the database: after a crash
//! he is told what he may have been told before. As a task that is the same task, as a POST it has the same position.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_base::{Clock, SIGNATURE_HEADER, Signer, TaskRequest, TaskSink, Timestamp};
use egret_postgres::tokio_postgres::Client;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::catalogue::Catalogue;
use super::keeper::{Keeper, Standing};
use crate::error::DocumentsError;
use crate::model::ChangeKind;
use crate::store::collections;
use crate::store::feed::{FORGOTTEN, GROUPS, Group};
use crate::store::subscriptions::{self, Destination, Subscription};

/// Groups that are read at a time.
const GROUPS_TOGETHER: i64 = 50;

/// How soon is looked again where something failed, or is not known.
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
    hands: Hands,
    client: reqwest::Client,
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

/// Who has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// It is not known.
    Unknown,
    /// There is nobody.
    Nobody,
    /// Some, and there is more.
    Some,
    /// All there is, or what failed comes later.
    All,
}

impl Teller {
    /// For a database.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(keeper: Arc<Keeper>, hands: Hands) -> Result<Self, DocumentsError> {
        // Another part of the program may have installed the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .user_agent(concat!("Egret/", env!("CARGO_PKG_VERSION")))
            .timeout(POST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| DocumentsError::Database {
                reason: egret_base::error::chain(&error),
            })?;
        Ok(Self {
            keeper,
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

    /// There may be somebody new to be told.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Tells all, again and again, until everything stops.
    pub async fn tell(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut reached = self.keeper.writer.reached();
        let mut client = None;
        while !*stopping.borrow() {
            reached.mark_unchanged();
            let mut told = Told::Unknown;
            if self.keeper.standing() == Standing::Owner {
                tokio::select! {
                    _ = stopping.changed() => break,
                    done = self.once(&mut client) => match done {
                        Ok(done) => told = done,
                        Err(error) => {
                            let database = &self.keeper.database;
                            tracing::warn!(%error, database, "nobody is told what becomes of documents");
                            client = None;
                        }
                    }
                }
            }
            let patience = match told {
                Told::Some => continue,
                Told::Nobody => LOOK_FOR_NEW,
                Told::All | Told::Unknown => LOOK,
            };
            tokio::select! {
                _ = stopping.changed() => break,
                // Nobody asks for what changes where nobody is told.
                _ = reached.changed(), if told == Told::All => {}
                () = self.look.notified() => {}
                () = tokio::time::sleep(patience) => {}
            }
        }
    }

    /// Tells each the next that there is.
    async fn once(&self, client: &mut Option<Client>) -> Result<Told, DocumentsError> {
        let client = match client {
            Some(client) if !client.is_closed() => client,
            client => client.insert(self.keeper.client().await?),
        };
        let all = subscriptions::all(client).await?;
        if all.is_empty() {
            return Ok(Told::Nobody);
        }
        let names = collections::tenants(client).await?;
        let names: HashMap<i32, String> =
            names.into_iter().map(|(name, id)| (id.0, name)).collect();
        let now = Instant::now();
        let is_due = |one: &Subscription| {
            let failed = self.failed(one.tenant, &one.name);
            failed.is_none_or(|failed| failed.again <= now)
        };
        let client = &*client;
        let due = all.iter().filter(|one| is_due(one)).map(|one| {
            let tenant = names.get(&one.tenant).map_or("", String::as_str);
            async move {
                let told = self.tell_one(client, one, tenant).await;
                self.note(one, &told);
                told.unwrap_or(false)
            }
        });
        match join_all(due).await.contains(&true) {
            true => Ok(Told::Some),
            false => Ok(Told::All),
        }
    }

    fn note(&self, one: &Subscription, told: &Result<bool, String>) {
        let key = (one.tenant, one.name.clone());
        let mut failures = self.failures();
        match told {
            Ok(_) => _ = failures.remove(&key),
            Err(error) => {
                let times = failures.get(&key).map_or(0, |failed| failed.times) + 1;
                let pause = FIRST_PAUSE * 2_u32.saturating_pow((times - 1).min(10));
                let name = &one.name;
                tracing::warn!(%error, subscription = name, times, "changes of documents could not be told; they are told again");
                let failed = Failed {
                    times,
                    error: error.clone(),
                    again: Instant::now() + pause.min(PAUSE_MAX),
                };
                failures.insert(key, failed);
            }
        }
    }

    async fn tell_one(
        &self,
        client: &Client,
        one: &Subscription,
        tenant: &str,
    ) -> Result<bool, String> {
        let said = |error: egret_postgres::tokio_postgres::Error| egret_base::error::chain(&error);
        let rows = client
            .query(GROUPS, &[&one.position, &GROUPS_TOGETHER])
            .await
            .map_err(said)?;
        let groups: Vec<Group> = rows.iter().map(Group::of).collect();
        let forgotten: i64 = client.query_one(FORGOTTEN, &[]).await.map_err(said)?.get(0);
        if one.position < forgotten {
            // It goes on with what there is, and says so once.
            subscriptions::advance(client, one, forgotten)
                .await
                .map_err(said)?;
            return Err(format!(
                "changes up to position {forgotten} were forgotten before they could be told, `documents.feed_kept`"
            ));
        }
        let Some(last) = groups.last().map(|group| group.position) else {
            return Ok(false);
        };
        let catalogue = self.keeper.writer.catalogue();
        let changes = changes(&groups, one, &catalogue);
        if !changes.is_empty() {
            match &one.destination {
                Destination::Webhook(url) => self.post(url, (one, tenant), &changes).await?,
                Destination::Queue(queue) => self.hand_over(queue, one, tenant, &changes).await?,
            }
        }
        subscriptions::advance(client, one, last)
            .await
            .map_err(said)?;
        Ok(groups.len() as i64 == GROUPS_TOGETHER)
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
            .header("content-type", "application/json");
        if let Some(signer) = &self.hands.signer {
            let at_seconds = self.hands.clock.now().as_millis_unsigned() / 1_000;
            let signature = signer.sign(tenant, at_seconds, body.as_bytes())?;
            request = request.header(SIGNATURE_HEADER, signature);
        }
        let sent = request.body(body).send().await;
        let answer = sent.map_err(|error| egret_base::error::chain(&error))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("{url} answers {status}")),
        }
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

fn moment(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What a subscription is told of groups.
fn changes(groups: &[Group], one: &Subscription, catalogue: &Catalogue) -> Vec<Value> {
    let mut told = Vec::new();
    for group in groups {
        let positions = group.before() + 1..;
        for (position, (kind, tenant, collection, id, version)) in
            positions.zip(group.changes.iter().copied())
        {
            let is_wanted = tenant == one.tenant
                && position > one.position
                && one.collection.is_none_or(|wanted| wanted == collection);
            let (Some(declared), Some(kind)) =
                (catalogue.by_number(collection), ChangeKind::of(kind))
            else {
                continue;
            };
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
    told
}

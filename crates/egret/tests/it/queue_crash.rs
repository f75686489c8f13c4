//! Chains, delayed tasks and schedules through `kill -9`: what was acknowledged is there and done
//! once, a chain is whole or not there, no delay ends early, and each run of a schedule comes once.
//! `EGRET_CRASHES` sets how often the server is killed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base_test::eventually;
use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, crashes};

/// Number of kills of the server, unless `EGRET_CRASHES` says otherwise.
const CRASHES: u64 = 4;

/// Tasks of a chain.
const LENGTH: usize = 3;

const DELAY: Duration = Duration::from_millis(400);

/// Longer than anything that works takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What callers have seen.
#[derive(Default)]
struct CallerLog {
    /// Tasks that were acknowledged.
    made: BTreeSet<String>,
    /// When the completion of a task was acknowledged.
    completed: HashMap<String, Instant>,
    /// When the request for a delayed task began.
    delayed: HashMap<String, Instant>,
    /// The place in its chain by task.
    chained: HashMap<String, (u64, usize)>,
    /// What should not have been.
    faults: Vec<String>,
}

/// Callers of one Egret, which is killed and started again.
struct Callers {
    http: Client,
    url: String,
    token: String,
    stopping: AtomicBool,
    chains: AtomicU64,
    acknowledged: AtomicU64,
    seen: Mutex<CallerLog>,
}

impl Callers {
    /// The answer to a request; `None` where there is none, or a refusal as Egret stops or starts.
    async fn ask(&self, method: Method, path: &str, body: Value) -> Option<Value> {
        let request = self
            .http
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(&self.token)
            .json(&body);
        let response = request.send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let text = response.text().await.ok()?;
        Some(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn count(&self) {
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes chains, of which every other one has keys that may lead to several partitions.
    async fn make_chains(&self) {
        while !self.is_stopping() {
            let chain = self.chains.fetch_add(1, Ordering::AcqRel);
            let task = |at: usize| {
                let after = at.checked_sub(1).map(|before| format!("#{before}"));
                let key = (chain % 2 == 1).then(|| format!("{chain}-{at}"));
                json!({
                    "payload": {"chain": chain, "at": at},
                    "tags": [format!("chain-{chain}")],
                    "after": after.into_iter().collect::<Vec<_>>(),
                    "ordering_key": key,
                })
            };
            let tasks: Vec<Value> = (0..LENGTH).map(task).collect();
            let answer = self.ask(Method::POST, "/v1/queues/q/tasks", json!(tasks)).await;
            let Some(answer) = answer else {
                continue;
            };
            let mut seen = self.seen.lock().unwrap();
            for (at, item) in answer["items"].as_array().unwrap().iter().enumerate() {
                let Some(id) = item["id"].as_str() else {
                    continue;
                };
                seen.made.insert(id.to_owned());
                seen.chained.insert(id.to_owned(), (chain, at));
            }
            drop(seen);
            self.count();
        }
    }

    async fn make_delayed(&self) {
        while !self.is_stopping() {
            let begun = Instant::now();
            let task = json!({"payload": "delayed", "delay_ms": DELAY.as_millis() as u64});
            let answer = self.ask(Method::POST, "/v1/queues/q/tasks", task).await;
            let Some(answer) = answer else {
                continue;
            };
            let id = answer["id"].as_str().unwrap().to_owned();
            let mut seen = self.seen.lock().unwrap();
            seen.made.insert(id.clone());
            seen.delayed.insert(id, begun);
            drop(seen);
            self.count();
        }
    }

    /// Works until nothing is left, once the others have stopped.
    async fn work(&self) {
        loop {
            let was_stopping = self.is_stopping();
            let claim = json!({"max": 20, "lease_ms": 1_000, "wait_ms": 200});
            let begun = Instant::now();
            let claimed = self.ask(Method::POST, "/v1/queues/q/claim", claim).await;
            let Some(claimed) = claimed else {
                continue;
            };
            let items = claimed["items"].as_array().unwrap();
            for item in items {
                self.handle(item, begun).await;
            }
            if items.is_empty() && was_stopping && self.is_done().await {
                return;
            }
        }
    }

    /// Completes a task that a claim got which was sent at `claimed`.
    async fn handle(&self, item: &Value, claimed: Instant) {
        let id = item["id"].as_str().unwrap().to_owned();
        self.look_at(&id, claimed);
        let report = json!({"lease": item["lease"], "result": "done"});
        let path = format!("/v1/tasks/{id}/complete");
        if self.ask(Method::POST, &path, report).await.is_some() {
            let mut seen = self.seen.lock().unwrap();
            seen.completed.insert(id, Instant::now());
            drop(seen);
            self.count();
        }
    }

    /// Compares a task that was handed out with what is known of it.
    fn look_at(&self, id: &str, claimed: Instant) {
        let mut seen = self.seen.lock().unwrap();
        let completed = seen.completed.get(id).copied();
        if completed.is_some_and(|completed| completed < claimed) {
            seen.faults.push(format!("{id} came again"));
        }
        let early = seen.delayed.get(id).is_some_and(|begun| begun.elapsed() < DELAY);
        if early {
            seen.faults.push(format!("{id} came before its delay was over"));
        }
    }

    /// Whether no task of the queue is left to be done.
    async fn is_done(&self) -> bool {
        let queue = self.ask(Method::GET, "/v1/queues/q", Value::Null).await;
        let Some(queue) = queue else {
            return false;
        };
        let count = |state: &str| queue["counts"][state].as_u64().unwrap();
        ["ready", "delayed", "waiting", "leased"].iter().all(|state| count(state) == 0)
    }

    /// All tasks of a queue, by id.
    async fn tasks(&self, queue: &str) -> BTreeMap<String, Value> {
        let mut tasks = BTreeMap::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/queues/{queue}/tasks?limit=1000{cursor}");
            let page = self.ask(Method::GET, &path, Value::Null).await.unwrap();
            for task in page["items"].as_array().unwrap() {
                tasks.insert(task["id"].as_str().unwrap().to_owned(), task.clone());
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return tasks,
            }
        }
    }
}

fn callers(place: &Place) -> Arc<Callers> {
    // Another test may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = Client::builder().no_proxy().timeout(PATIENCE);
    Arc::new(Callers {
        http: http.build().unwrap(),
        url: format!("http://127.0.0.1:{}", place.ports[0]),
        token: place.admin_token(),
        stopping: AtomicBool::new(false),
        chains: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        seen: Mutex::default(),
    })
}

#[tokio::test]
async fn chains_delays_and_schedules_survive_kills() {
    let crashes = crashes(CRASHES);
    let mut place = Place::new("queue-crash");
    place.variables = vec![
        ("EGRET_QUEUE_PARTITIONS", "3".to_owned()),
        ("EGRET_BRANCHES_VOLUME", "copy".to_owned()),
    ];
    let mut server = place.start(&["serve"]);
    for line in ["queue create q --max-attempts 100", "queue create ticks"] {
        place.json(&line.split(' ').collect::<Vec<_>>());
    }
    let put =
        ["queue", "cron", "put", "each-second", "ticks", "* * * * * *", "1", "--missed", "all"];
    place.json(&put);
    let callers = callers(&place);
    let running: Vec<_> = (0..3)
        .flat_map(|_| {
            let [chains, delayed, working] = [0; 3].map(|_| callers.clone());
            [
                tokio::spawn(async move { chains.make_chains().await }),
                tokio::spawn(async move { delayed.make_delayed().await }),
                tokio::spawn(async move { working.work().await }),
            ]
        })
        .collect();
    for crash in 0..crashes {
        let enough = callers.acknowledged.load(Ordering::Acquire) + 150 + 117 * crash % 400;
        eventually("enough is acknowledged", async || {
            callers.acknowledged.load(Ordering::Acquire) >= enough
        })
        .await;
        server.kill();
        server = place.start(&["serve"]);
    }
    callers.stopping.store(true, Ordering::Release);
    for task in running {
        task.await.unwrap();
    }
    place.json(&["queue", "cron", "delete", "each-second"]);
    check_tasks(&callers).await;
    check_ticks(&callers).await;
    server.stop(Signal::TERM);
}

async fn check_tasks(callers: &Callers) {
    let tasks = callers.tasks("q").await;
    let seen = callers.seen.lock().unwrap();
    assert!(seen.faults.is_empty(), "{:#?}", seen.faults);
    for id in &seen.made {
        let state = tasks.get(id).map(|task| &task["state"]);
        assert_eq!(state, Some(&json!("completed")), "{id}");
    }
    // Also a chain whose maker got no answer is whole.
    let mut chains: BTreeMap<&str, usize> = BTreeMap::new();
    for tag in tasks.values().filter_map(|task| task["tags"][0].as_str()) {
        *chains.entry(tag).or_default() += 1;
    }
    let torn: Vec<_> = chains.iter().filter(|(_, count)| **count != LENGTH).collect();
    assert!(torn.is_empty() && !chains.is_empty(), "{torn:?}");
    // A task of a chain ended after the one before it.
    let mut ends: BTreeMap<(u64, usize), &str> = BTreeMap::new();
    for (id, place) in &seen.chained {
        ends.insert(*place, tasks[id]["ended_at"].as_str().unwrap());
    }
    for ((chain, at), end) in &ends {
        if let Some(before) = at.checked_sub(1) {
            let before = ends[&(*chain, before)];
            assert!(
                before <= *end,
                "chain {chain}: {at} ended at {end}, the one before at {before}"
            );
        }
    }
}

/// Each second from the first run to the last has one task.
async fn check_ticks(callers: &Callers) {
    let tasks = callers.tasks("ticks").await;
    let second = |task: &Value| {
        let at: egret_base::Timestamp = task["created_at"].as_str().unwrap().parse().unwrap();
        at.as_micros() / 1_000_000
    };
    let mut seconds: Vec<i64> = tasks.values().map(second).collect();
    seconds.sort_unstable();
    assert!(seconds.len() > 1, "{seconds:?}");
    let odd: Vec<_> = seconds.windows(2).filter(|pair| pair[1] != pair[0] + 1).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

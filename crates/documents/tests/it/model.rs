//! Linearizability test: many clients execute random operations at once, and their results must be
//! those of a model in memory that executes them one after the other, in the order of the feed.
//!
//! A write has its position in the feed by document and version. An operation that was rejected or
//! changed nothing must be right at some moment between its request and its answer.
//! `EGRET_DOCUMENTS_OPERATIONS` sets the number of operations, `EGRET_DOCUMENTS_SEED` the seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::CodedError;
use egret_documents::DocumentsError;
use egret_documents::api::ChangesQuery;
use egret_documents::core::decision::Condition;
use egret_documents::model::{ChangeKind, FeedPosition, WriteOutcome, WriteReceipt};
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::World;

const CLIENTS: usize = 16;

/// Few codes, so that clients conflict.
const CODES: u64 = 24;

const NODES: &str = r#"{"collection": "nodes", "identity": ["/code"], "identity_mutable": true,
    "references": [{"name": "refs", "to": "nodes", "paths": {"/refs/*": "/code"}}],
    "schema": {"type": "object", "properties": {"code": {"type": "integer"}, "text": {"type": "integer"},
        "refs": {"type": "array", "items": {"type": "integer"}}}, "required": ["code", "text", "refs"]}}"#;

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A document that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Body {
    code: u64,
    text: u64,
    refs: Vec<u64>,
}

impl Body {
    fn json(&self) -> Value {
        json!({"code": self.code, "text": self.text, "refs": self.refs})
    }
}

#[derive(Clone, Debug)]
enum ModelOp {
    Upsert(Body),
    Put(Uuid, Body),
    Delete(Uuid),
}

/// A result: effect, document and version; or the code of an error.
type ModelResult = Result<(WriteOutcome, Uuid, i32), &'static str>;

/// An operation with the logical times of its request and its answer.
#[derive(Clone, Debug)]
struct Event {
    op: ModelOp,
    result: ModelResult,
    started_at: u64,
    ended_at: u64,
}

impl Event {
    fn written_version(&self) -> Option<(Uuid, i32, bool)> {
        match self.result {
            Ok((WriteOutcome::Created | WriteOutcome::Changed, id, version)) => {
                Some((id, version, false))
            }
            Ok((WriteOutcome::Removed, id, version)) => Some((id, version, true)),
            _ => None,
        }
    }
}

/// A document of the model. Its body names its targets by their current codes.
#[derive(Clone, Debug)]
struct Node {
    body: Body,
    version: i32,
    targets: BTreeSet<Uuid>,
}

#[derive(Default)]
struct Model {
    nodes: BTreeMap<Uuid, Node>,
    codes: BTreeMap<u64, Uuid>,
}

impl Model {
    /// Result of an operation in the current state. A created document gets `id`.
    fn expected_result(&self, op: &ModelOp, id: Uuid) -> ModelResult {
        match op {
            ModelOp::Delete(id) => match self.nodes.get(id) {
                None => Err("not_found"),
                Some(node) => {
                    let refers =
                        |other: &Uuid, node: &Node| other != id && node.targets.contains(id);
                    if self.nodes.iter().any(|(other, node)| refers(other, node)) {
                        Err("still_referenced")
                    } else {
                        Ok((WriteOutcome::Removed, *id, node.version))
                    }
                }
            },
            ModelOp::Upsert(body) => match self.codes.get(&body.code) {
                Some(id) => self.put(*id, body),
                None => match self.targets(body, Some((id, body.code))) {
                    Some(_) => Ok((WriteOutcome::Created, id, 1)),
                    None => Err("unresolved_reference"),
                },
            },
            ModelOp::Put(id, body) => {
                if self.nodes.contains_key(id) {
                    self.put(*id, body)
                } else {
                    Err("not_found")
                }
            }
        }
    }

    fn put(&self, id: Uuid, body: &Body) -> ModelResult {
        let node = &self.nodes[&id];
        let is_moved = node.body.code != body.code;
        if node.body == *body {
            return Ok((WriteOutcome::Unchanged, id, node.version));
        }
        if is_moved && self.codes.contains_key(&body.code) {
            return Err("identity_conflict");
        }
        match self.targets(body, is_moved.then_some((id, node.body.code))) {
            Some(_) => Ok((WriteOutcome::Changed, id, node.version + 1)),
            None => Err("unresolved_reference"),
        }
    }

    /// Targets of a body; with it a document may change its code. A reference of the document to
    /// itself follows the change, even if the body has the old code.
    fn targets(&self, body: &Body, moved: Option<(Uuid, u64)>) -> Option<BTreeSet<Uuid>> {
        let resolve = |code: &u64| match moved {
            Some((id, _)) if *code == body.code => Some(id),
            Some((id, old)) if *code == old => {
                let is_own = self.nodes[&id].targets.contains(&id);
                is_own.then_some(id)
            }
            _ => self.codes.get(code).copied(),
        };
        body.refs.iter().map(resolve).collect()
    }

    /// Applies a result. Returns the other documents rewritten by it, with their versions.
    fn apply(&mut self, op: &ModelOp, id: Uuid) -> Vec<(Uuid, i32)> {
        let mut body = match op {
            ModelOp::Delete(_) => {
                let node = self.nodes.remove(&id).unwrap();
                self.codes.remove(&node.body.code);
                return Vec::new();
            }
            ModelOp::Upsert(body) | ModelOp::Put(_, body) => body.clone(),
        };
        let old = self.nodes.get(&id).map(|node| node.body.code);
        let moved = old.filter(|old| *old != body.code).map(|old| (id, old));
        let new = old.is_none().then_some((id, body.code));
        let targets = self.targets(&body, moved.or(new)).unwrap();
        let version = self.nodes.get(&id).map_or(1, |node| node.version + 1);
        if let Some((_, old)) = moved {
            self.codes.remove(&old);
            let refs = body.refs.iter_mut();
            refs.filter(|code| **code == old).for_each(|code| *code = body.code);
        }
        self.codes.insert(body.code, id);
        let node = Node { body: body.clone(), version, targets };
        self.nodes.insert(id, node);
        let Some((_, old)) = moved else {
            return Vec::new();
        };
        let mut followed = Vec::new();
        for (other, node) in &mut self.nodes {
            if *other != id && node.targets.contains(&id) {
                let refs = node.body.refs.iter_mut();
                refs.filter(|code| **code == old).for_each(|code| *code = body.code);
                node.version += 1;
                followed.push((*other, node.version));
            }
        }
        followed
    }
}

/// Random numbers from a seed (xorshift64*).
struct Xorshift64(u64);

impl Xorshift64 {
    fn random_below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

struct ModelRun {
    world: World,
    clock: AtomicU64,
    known_ids: Mutex<Vec<Uuid>>,
}

async fn client(shared: Arc<ModelRun>, mut random: Xorshift64, operations: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..operations {
        let count = random.random_below(4);
        let mut refs: Vec<u64> = (0..count).map(|_| random.random_below(CODES)).collect();
        refs.sort_unstable();
        refs.dedup();
        let body = Body { code: random.random_below(CODES), text: random.random_below(3), refs };
        let id = {
            let known = shared.known_ids.lock().unwrap();
            let recent = known.len().min(CODES as usize * 2) as u64;
            (recent > 0).then(|| known[known.len() - 1 - random.random_below(recent) as usize])
        };
        let op = match (random.random_below(10), id) {
            (0..2, Some(id)) => ModelOp::Put(id, body),
            (2..5, Some(id)) => ModelOp::Delete(id),
            _ => ModelOp::Upsert(body),
        };
        let started_at = shared.clock.fetch_add(1, Ordering::SeqCst);
        let result = execute(&shared.world, &op).await;
        let ended_at = shared.clock.fetch_add(1, Ordering::SeqCst);
        let told = match result {
            Ok(written) => Ok((written.outcome, written.id.uuid(), written.version)),
            Err(error) => Err(error.code()),
        };
        if let Ok((WriteOutcome::Created, id, _)) = told {
            shared.known_ids.lock().unwrap().push(id);
        }
        events.push(Event { op, result: told, started_at, ended_at });
    }
    events
}

async fn execute(world: &World, op: &ModelOp) -> Result<WriteReceipt, DocumentsError> {
    use egret_documents::model::DocumentId;
    match op {
        ModelOp::Upsert(body) => world.post("nodes", &body.json()).await,
        ModelOp::Put(id, body) => {
            let id = DocumentId::from_stored(*id);
            world.put("nodes", id, &body.json(), Condition::Always).await
        }
        ModelOp::Delete(id) => world.delete("nodes", DocumentId::from_stored(*id)).await,
    }
}

/// The whole feed: document, version, and whether it was deleted.
async fn read_feed(world: &World) -> Vec<(Uuid, i32, bool)> {
    let mut query = ChangesQuery { collection: None, after: Some(FeedPosition(0)) };
    let mut all = Vec::new();
    loop {
        let changes = world.documents.changes(&world.caller, &query, Some(1_000)).await.unwrap();
        if changes.items.is_empty() {
            return all;
        }
        query.after = Some(changes.position);
        for change in changes.items {
            all.push((change.id.uuid(), change.version, change.kind == ChangeKind::Delete));
            assert_eq!(change.position.0, all.len() as i64, "a gap in the feed");
        }
    }
}

/// Checks operations without effect: removes those that are right in the current state, and fails
/// for those that can be right at no later one.
fn check_without_effect(model: &Model, pending: &mut Vec<(usize, &Event)>, position: usize) {
    pending.retain(|(last, event)| {
        let is_right = model.expected_result(&event.op, Uuid::nil()) == event.result;
        assert!(
            is_right || *last > position,
            "at no moment before change {position} was this right: {event:?}"
        );
        !is_right
    });
}

fn replay(events: &[Event], feed: &[(Uuid, i32, bool)]) -> Model {
    let positions: HashMap<_, usize> = feed.iter().zip(1..).map(|(one, at)| (*one, at)).collect();
    let mut events_by_position = vec![None; feed.len() + 1];
    let (mut ends, mut begins) = (Vec::new(), Vec::new());
    for event in events {
        if let Some(wrote) = event.written_version() {
            let place = positions[&wrote];
            assert!(events_by_position[place].is_none(), "two are told of one change: {event:?}");
            events_by_position[place] = Some(event);
            ends.push((event.ended_at, place));
            begins.push((event.started_at, place));
        }
    }
    // An operation that ended before another began precedes it.
    ends.sort_unstable();
    begins.sort_unstable_by_key(|(begun, _)| std::cmp::Reverse(*begun));
    let mut without_effect: Vec<(usize, usize, &Event)> = Vec::new();
    make_running_max(&mut ends);
    make_running_min(&mut begins);
    begins.reverse();
    for event in events.iter().filter(|event| event.written_version().is_none()) {
        let before = ends.partition_point(|(ended, _)| *ended < event.started_at);
        let first = if before == 0 { 0 } else { ends[before - 1].1 };
        let after = begins.partition_point(|(begun, _)| *begun <= event.ended_at);
        let last = begins.get(after).map_or(feed.len(), |(_, place)| place - 1);
        without_effect.push((first, last, event));
    }
    without_effect.sort_by_key(|(first, ..)| *first);
    let mut silent = without_effect.into_iter().peekable();
    let (mut model, mut open, mut followed) = (Model::default(), Vec::new(), BTreeSet::new());
    for position in 0..=feed.len() {
        if position > 0 {
            let (id, version, _) = feed[position - 1];
            match events_by_position[position] {
                Some(event) => {
                    assert_eq!(model.expected_result(&event.op, id), event.result, "{event:?}");
                    followed.extend(model.apply(&event.op, id));
                }
                None => {
                    assert!(followed.remove(&(id, version)), "nobody asked for change {position}")
                }
            }
        }
        // Not between the changes of one cascade: no operation can observe that state.
        if followed.is_empty() {
            while let Some((_, last, event)) = silent.next_if(|(first, ..)| *first <= position) {
                open.push((last, event));
            }
            check_without_effect(&model, &mut open, position);
        }
    }
    assert!(open.is_empty() && silent.next().is_none() && followed.is_empty());
    model
}

fn make_running_max(all: &mut [(u64, usize)]) {
    let mut most = 0;
    for (_, place) in all {
        most = most.max(*place);
        *place = most;
    }
}

fn make_running_min(all: &mut [(u64, usize)]) {
    let mut least = usize::MAX;
    for (_, place) in all {
        least = least.min(*place);
        *place = least;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_operations_are_linearizable() {
    let operations = env_number("EGRET_DOCUMENTS_OPERATIONS", 8_000);
    let seed = env_number("EGRET_DOCUMENTS_SEED", 1);
    let world = World::new(18).await;
    world.apply(NODES).await.unwrap();
    let shared =
        Arc::new(ModelRun { world, clock: AtomicU64::new(0), known_ids: Mutex::default() });
    let each = operations / CLIENTS as u64;
    let clients = (1..=CLIENTS as u64).map(|number| {
        let random = Xorshift64((seed << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        tokio::spawn(client(shared.clone(), random, each))
    });
    let events: Vec<Event> = join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();
    let world = Arc::into_inner(shared).unwrap().world;
    let feed = read_feed(&world).await;
    let model = replay(&events, &feed);
    let sql = "SELECT id, version, body FROM egret.document ORDER BY id";
    let rows = world.client.query(sql, &[]).await.unwrap();
    let there: Vec<(Uuid, i32, Value)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let nodes = model.nodes.iter();
    let wanted = nodes.map(|(id, node)| (*id, node.version, node.body.json()));
    assert_eq!(there, wanted.collect::<Vec<_>>());
    let outcomes = events.iter().fold(BTreeMap::new(), |mut all, event| {
        let name = event.result.map_or_else(|code| code, |(done, ..)| done.as_str());
        *all.entry(name).or_insert(0) += 1;
        all
    });
    // Every possible outcome has occurred.
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
    println!("{} changes, {outcomes:?}", feed.len());
    world.stop().await;
}

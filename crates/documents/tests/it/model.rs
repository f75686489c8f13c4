//! The engine beside a model of it in memory: many clients do random things at once, and what each was told is what the model says when all is
//! done one after the other, in the order of the feed.
//!
//! What was written has its place there by its document and version. What was refused, or changed nothing, has to be right at some moment between
//! its question and its answer. `EGRET_DOCUMENTS_OPERATIONS` says how many operations, `EGRET_DOCUMENTS_SEED` which.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::Coded;
use egret_documents::DocumentsError;
use egret_documents::api::Following;
use egret_documents::core::decide::Condition;
use egret_documents::model::{ChangeKind, Done, Written};
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::World;

const CLIENTS: usize = 16;

/// Few, so that clients meet.
const CODES: u64 = 24;

const NODES: &str = r#"{"collection": "nodes", "identity": ["/code"], "identity_mutable": true,
    "references": [{"name": "refs", "to": "nodes", "paths": {"/refs/*": "/code"}}],
    "schema": {"type": "object", "properties": {"code": {"type": "integer"}, "text": {"type": "integer"},
        "refs": {"type": "array", "items": {"type": "integer"}}}, "required": ["code", "text", "refs"]}}"#;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// What somebody wants to be there.
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
enum Asked {
    Upsert(Body),
    Put(Uuid, Body),
    Delete(Uuid),
}

/// What was told: what was done, to which document at which version, or the code of an error.
type Told = Result<(Done, Uuid, i32), &'static str>;

/// An operation with when it began and ended, in the order of all that happened.
#[derive(Clone, Debug)]
struct Event {
    asked: Asked,
    told: Told,
    begun: u64,
    ended: u64,
}

impl Event {
    fn wrote(&self) -> Option<(Uuid, i32, bool)> {
        match self.told {
            Ok((Done::Created | Done::Changed, id, version)) => Some((id, version, false)),
            Ok((Done::Removed, id, version)) => Some((id, version, true)),
            _ => None,
        }
    }
}

/// A document of the model. What it refers to is named by what those are called at the moment.
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
    /// What is told of an operation now, and what is done then. A document that is made is called `id`.
    fn told(&self, asked: &Asked, id: Uuid) -> Told {
        match asked {
            Asked::Delete(id) => match self.nodes.get(id) {
                None => Err("not_found"),
                Some(node) => {
                    let refers =
                        |other: &Uuid, node: &Node| other != id && node.targets.contains(id);
                    match self.nodes.iter().any(|(other, node)| refers(other, node)) {
                        true => Err("still_referenced"),
                        false => Ok((Done::Removed, *id, node.version)),
                    }
                }
            },
            Asked::Upsert(body) => match self.codes.get(&body.code) {
                Some(id) => self.put(*id, body),
                None => match self.targets(body, Some((id, body.code))) {
                    Some(_) => Ok((Done::Created, id, 1)),
                    None => Err("unresolved_reference"),
                },
            },
            Asked::Put(id, body) => match self.nodes.contains_key(id) {
                true => self.put(*id, body),
                false => Err("not_found"),
            },
        }
    }

    fn put(&self, id: Uuid, body: &Body) -> Told {
        let node = &self.nodes[&id];
        let is_moved = node.body.code != body.code;
        if node.body == *body {
            return Ok((Done::Unchanged, id, node.version));
        }
        if is_moved && self.codes.contains_key(&body.code) {
            return Err("identity_conflict");
        }
        match self.targets(body, is_moved.then_some((id, node.body.code))) {
            Some(_) => Ok((Done::Changed, id, node.version + 1)),
            None => Err("unresolved_reference"),
        }
    }

    /// What a body refers to; with it a document may get its code, and lose another. One that refers to itself does so by the new one from then on,
    /// even where what was sent has the old one.
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

    /// Does what was told. Returns the other documents that change with it, with their versions.
    fn apply(&mut self, asked: &Asked, id: Uuid) -> Vec<(Uuid, i32)> {
        let mut body = match asked {
            Asked::Delete(_) => {
                let node = self.nodes.remove(&id).unwrap();
                self.codes.remove(&node.body.code);
                return Vec::new();
            }
            Asked::Upsert(body) | Asked::Put(_, body) => body.clone(),
        };
        let old = self.nodes.get(&id).map(|node| node.body.code);
        let moved = old.filter(|old| *old != body.code).map(|old| (id, old));
        let new = old.is_none().then_some((id, body.code));
        let targets = self.targets(&body, moved.or(new)).unwrap();
        let version = self.nodes.get(&id).map_or(1, |node| node.version + 1);
        if let Some((_, old)) = moved {
            self.codes.remove(&old);
            let refs = body.refs.iter_mut();
            refs.filter(|code| **code == old)
                .for_each(|code| *code = body.code);
        }
        self.codes.insert(body.code, id);
        let node = Node {
            body: body.clone(),
            version,
            targets,
        };
        self.nodes.insert(id, node);
        let Some((_, old)) = moved else {
            return Vec::new();
        };
        let mut followed = Vec::new();
        for (other, node) in &mut self.nodes {
            if *other != id && node.targets.contains(&id) {
                let refs = node.body.refs.iter_mut();
                refs.filter(|code| **code == old)
                    .for_each(|code| *code = body.code);
                node.version += 1;
                followed.push((*other, node.version));
            }
        }
        followed
    }
}

/// Random numbers that a seed decides (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// What clients share.
struct Shared {
    world: World,
    clock: AtomicU64,
    known: Mutex<Vec<Uuid>>,
}

async fn client(shared: Arc<Shared>, mut random: Random, operations: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..operations {
        let count = random.below(4);
        let mut refs: Vec<u64> = (0..count).map(|_| random.below(CODES)).collect();
        refs.sort_unstable();
        refs.dedup();
        let body = Body {
            code: random.below(CODES),
            text: random.below(3),
            refs,
        };
        let id = {
            let known = shared.known.lock().unwrap();
            let recent = known.len().min(CODES as usize * 2) as u64;
            (recent > 0).then(|| known[known.len() - 1 - random.below(recent) as usize])
        };
        let asked = match (random.below(10), id) {
            (0..2, Some(id)) => Asked::Put(id, body),
            (2..5, Some(id)) => Asked::Delete(id),
            _ => Asked::Upsert(body),
        };
        let begun = shared.clock.fetch_add(1, Ordering::SeqCst);
        let told = ask(&shared.world, &asked).await;
        let ended = shared.clock.fetch_add(1, Ordering::SeqCst);
        let told = match told {
            Ok(written) => Ok((written.done, written.id.uuid(), written.version)),
            Err(error) => Err(error.code()),
        };
        if let Ok((Done::Created, id, _)) = told {
            shared.known.lock().unwrap().push(id);
        }
        events.push(Event {
            asked,
            told,
            begun,
            ended,
        });
    }
    events
}

async fn ask(world: &World, asked: &Asked) -> Result<Written, DocumentsError> {
    use egret_documents::model::DocumentId;
    match asked {
        Asked::Upsert(body) => world.post("nodes", &body.json()).await,
        Asked::Put(id, body) => {
            let id = DocumentId::stored(*id);
            world
                .put("nodes", id, &body.json(), Condition::Always)
                .await
        }
        Asked::Delete(id) => world.delete("nodes", DocumentId::stored(*id)).await,
    }
}

/// The whole feed: document, version, and whether it went.
async fn feed(world: &World) -> Vec<(Uuid, i32, bool)> {
    let mut following = Following {
        collection: None,
        after: Some(0),
    };
    let mut all = Vec::new();
    loop {
        let changes = world
            .documents
            .changes(&world.caller, &following, Some(1_000))
            .await
            .unwrap();
        if changes.items.is_empty() {
            return all;
        }
        following.after = Some(changes.position);
        for change in changes.items {
            all.push((
                change.id.uuid(),
                change.version,
                change.kind == ChangeKind::Delete,
            ));
            assert_eq!(change.position, all.len() as i64, "a gap in the feed");
        }
    }
}

/// Looks at operations without effect whose time has come, and leaves out those that are right at the moment.
fn settle(model: &Model, open: &mut Vec<(usize, &Event)>, position: usize) {
    open.retain(|(last, event)| {
        let is_right = model.told(&event.asked, Uuid::nil()) == event.told;
        assert!(
            is_right || *last > position,
            "at no moment before change {position} was this right: {event:?}"
        );
        !is_right
    });
}

fn replay(events: &[Event], feed: &[(Uuid, i32, bool)]) -> Model {
    let places: HashMap<_, usize> = feed.iter().zip(1..).map(|(one, at)| (*one, at)).collect();
    let mut at = vec![None; feed.len() + 1];
    let (mut ends, mut begins) = (Vec::new(), Vec::new());
    for event in events {
        if let Some(wrote) = event.wrote() {
            let place = places[&wrote];
            assert!(at[place].is_none(), "two are told of one change: {event:?}");
            at[place] = Some(event);
            ends.push((event.ended, place));
            begins.push((event.begun, place));
        }
    }
    // What had ended before an operation began came before it, and what began after it had ended after it.
    ends.sort_unstable();
    begins.sort_unstable_by_key(|(begun, _)| std::cmp::Reverse(*begun));
    let mut silent: Vec<(usize, usize, &Event)> = Vec::new();
    running_max(&mut ends);
    running_min(&mut begins);
    begins.reverse();
    for event in events.iter().filter(|event| event.wrote().is_none()) {
        let before = ends.partition_point(|(ended, _)| *ended < event.begun);
        let first = if before == 0 { 0 } else { ends[before - 1].1 };
        let after = begins.partition_point(|(begun, _)| *begun <= event.ended);
        let last = begins.get(after).map_or(feed.len(), |(_, place)| place - 1);
        silent.push((first, last, event));
    }
    silent.sort_by_key(|(first, ..)| *first);
    let mut silent = silent.into_iter().peekable();
    let (mut model, mut open, mut followed) = (Model::default(), Vec::new(), BTreeSet::new());
    for position in 0..=feed.len() {
        if position > 0 {
            let (id, version, _) = feed[position - 1];
            match at[position] {
                Some(event) => {
                    assert_eq!(model.told(&event.asked, id), event.told, "{event:?}");
                    followed.extend(model.apply(&event.asked, id));
                }
                None => assert!(
                    followed.remove(&(id, version)),
                    "nobody asked for change {position}"
                ),
            }
        }
        // In the midst of what follows from another identity nobody looks.
        if followed.is_empty() {
            while let Some((_, last, event)) = silent.next_if(|(first, ..)| *first <= position) {
                open.push((last, event));
            }
            settle(&model, &mut open, position);
        }
    }
    assert!(open.is_empty() && silent.next().is_none() && followed.is_empty());
    model
}

fn running_max(all: &mut [(u64, usize)]) {
    let mut most = 0;
    for (_, place) in all {
        most = most.max(*place);
        *place = most;
    }
}

fn running_min(all: &mut [(u64, usize)]) {
    let mut least = usize::MAX;
    for (_, place) in all {
        least = least.min(*place);
        *place = least;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_do_at_once_is_what_the_model_does_one_after_the_other() {
    let operations = setting("EGRET_DOCUMENTS_OPERATIONS", 8_000);
    let seed = setting("EGRET_DOCUMENTS_SEED", 1);
    let world = World::new(18).await;
    world.apply(NODES).await.unwrap();
    let shared = Arc::new(Shared {
        world,
        clock: AtomicU64::new(0),
        known: Mutex::default(),
    });
    let each = operations / CLIENTS as u64;
    let clients = (1..=CLIENTS as u64).map(|number| {
        let random = Random((seed << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        tokio::spawn(client(shared.clone(), random, each))
    });
    let events = join_all(clients).await.into_iter().flat_map(Result::unwrap);
    let events: Vec<Event> = events.collect();
    let world = Arc::into_inner(shared).unwrap().world;
    let feed = feed(&world).await;
    let model = replay(&events, &feed);
    let sql = "SELECT id, version, body FROM egret.document ORDER BY id";
    let rows = world.client.query(sql, &[]).await.unwrap();
    let there = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
    let there: Vec<(Uuid, i32, Value)> = there.collect();
    let nodes = model.nodes.iter();
    let wanted = nodes.map(|(id, node)| (*id, node.version, node.body.json()));
    assert_eq!(there, wanted.collect::<Vec<_>>());
    let outcomes = events.iter().fold(BTreeMap::new(), |mut all, event| {
        let name = event
            .told
            .map_or_else(|code| code, |(done, ..)| done.as_str());
        *all.entry(name).or_insert(0) += 1;
        all
    });
    // All that can happen has.
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
    println!("{} changes, {outcomes:?}", feed.len());
    world.stop().await;
}

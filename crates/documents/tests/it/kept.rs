//! History: earlier versions, their retention, and restoring.

use std::sync::Arc;
use std::time::Duration;

use egret_base::{Clock, Entropy, ManualClock, SystemEntropy};
use egret_documents::DocumentsConfig;
use egret_documents::model::{FeedPosition, WriteOutcome, WriteReceipt};
use serde_json::{Value, json};

use crate::world::{World, collection_name, error_code};

const NOTES: &str = r#"{"collections": [
    {"collection": "people", "identity": ["/name"],
        "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    {"collection": "notes", "identity": ["/id"], "history": {"versions": 3, "deleted": true, "days": 30},
        "references": [{"name": "author", "to": "people", "paths": {"/author": "/name"}}],
        "schema": {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"},
            "author": {"type": "string"}}, "required": ["id"]}}
]}"#;

async fn texts(world: &World, note: &WriteReceipt) -> Vec<(i32, Value)> {
    let notes = collection_name("notes");
    let found = world.documents.versions(&world.caller, &notes, note.id, None, None);
    let text = |body: &str| serde_json::from_str::<Value>(body).unwrap()["text"].clone();
    let items = found.await.unwrap().items;
    items.iter().map(|one| (one.version, text(&one.body))).collect()
}

#[tokio::test]
async fn as_many_versions_as_declared_are_kept() {
    let world = World::new(18).await;
    world.apply(NOTES).await.unwrap();
    let note = world.create("notes", &json!({"id": 1, "text": "a"})).await;
    assert_eq!(texts(&world, &note).await, []);
    for text in ["b", "c", "d", "e"] {
        world.create("notes", &json!({"id": 1, "text": text})).await;
    }
    // A write without changes adds no version.
    world.create("notes", &json!({"id": 1, "text": "e"})).await;
    assert_eq!(texts(&world, &note).await, [(4, json!("d")), (3, json!("c")), (2, json!("b"))]);
    let notes = collection_name("notes");
    let back = world.documents.restore(&world.caller, &notes, note.id, Some(2));
    assert_eq!(back.await.unwrap().version, 6);
    assert_eq!(world.get("notes", note.id).await.unwrap()["text"], "b");
    let none = world.documents.restore(&world.caller, &notes, note.id, None);
    assert_eq!(error_code(none.await), "not_deleted");
    let gone = world.documents.restore(&world.caller, &notes, note.id, Some(1));
    assert_eq!(error_code(gone.await), "not_found");
    world.stop().await;
}

#[tokio::test]
async fn deleted_documents_are_restored_with_their_id_if_all_targets_exist() {
    let world = World::new(15).await;
    world.apply(NOTES).await.unwrap();
    let ann = world.create("people", &json!({"name": "ann"})).await;
    let body = json!({"id": 1, "text": "a", "author": "ann"});
    let note = world.create("notes", &body).await;
    world.delete("notes", note.id).await.unwrap();
    world.delete("people", ann.id).await.unwrap();
    assert_eq!(error_code(world.get("notes", note.id).await), "not_found");
    let notes = collection_name("notes");
    let deleted = world.documents.deleted(&world.caller, &notes, None, None).await;
    assert_eq!(deleted.unwrap().items[0].id, note.id);
    let restore = || world.documents.restore(&world.caller, &notes, note.id, None);
    assert_eq!(error_code(restore().await), "unresolved_reference");
    world.create("people", &json!({"name": "ann"})).await;
    let back = restore().await.unwrap();
    assert_eq!((back.id, back.version, back.outcome), (note.id, 2, WriteOutcome::Created));
    assert_eq!(world.get("notes", note.id).await.unwrap(), body);
    assert_eq!(error_code(restore().await), "not_deleted");
    // The restored document is found by its identity again.
    assert_eq!(world.create("notes", &body).await.outcome, WriteOutcome::Unchanged);
    // The identity of a deleted document can be taken by another.
    world.delete("notes", note.id).await.unwrap();
    world.create("notes", &json!({"id": 1, "text": "other"})).await;
    assert_eq!(error_code(restore().await), "identity_conflict");
    // Collection `people` has no history.
    let people = collection_name("people");
    let none = world.documents.restore(&world.caller, &people, ann.id, None);
    assert_eq!(error_code(none.await), "not_found");
    world.stop().await;
}

#[tokio::test]
async fn restored_documents_keep_their_creator() {
    let world = World::new(18).await;
    world.apply(NOTES).await.unwrap();
    let note = world.create("notes", &json!({"id": 1, "text": "a"})).await;
    world.delete("notes", note.id).await.unwrap();
    let other =
        egret_documents::Caller { author: Some("another".to_owned()), ..world.caller.clone() };
    let notes = collection_name("notes");
    let back = world.documents.restore(&other, &notes, note.id, None);
    back.await.unwrap();
    let stored = world.documents.get(&world.caller, &notes, note.id).await.unwrap();
    assert_eq!(stored.created_by.as_deref(), Some("tester"));
    assert_eq!(stored.modified_by.as_deref(), Some("another"));
    world.stop().await;
}

#[tokio::test]
async fn without_deleted_history_no_version_is_kept() {
    let world = World::new(18).await;
    let definitions = NOTES.replace(r#""deleted": true, "#, "");
    world.apply(&definitions).await.unwrap();
    let note = world.create("notes", &json!({"id": 1, "text": "a"})).await;
    world.create("notes", &json!({"id": 1, "text": "b"})).await;
    assert_eq!(texts(&world, &note).await, [(1, json!("a"))]);
    world.delete("notes", note.id).await.unwrap();
    let kept = "SELECT count(*) FROM egret.document_version";
    assert_eq!(world.query_number(kept).await, 0);
    let notes = collection_name("notes");
    let found = world.documents.versions(&world.caller, &notes, note.id, None, None);
    assert_eq!(error_code(found.await), "not_found");
    world.stop().await;
}

fn swept(clock: Arc<dyn Clock>) -> (DocumentsConfig, Arc<dyn Clock>, Arc<dyn Entropy>) {
    let config = DocumentsConfig {
        sweep_interval: egret_base::settings::ConfigDuration::ms(20),
        ..DocumentsConfig::default()
    };
    (config, clock, Arc::new(SystemEntropy))
}

const DAYS: &str = r#"{"collections": [
    {"collection": "days", "identity": ["/day"], "retention_days": 10,
        "schema": {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}},
    {"collection": "holds", "identity": ["/day"],
        "references": [{"name": "day", "to": "days", "paths": {"/day": "/day"}}],
        "schema": {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}}
]}"#;

#[tokio::test]
async fn retention_deletes_unreferenced_documents() {
    let clock = Arc::new(ManualClock::starting_at(egret_base::Timestamp::from_micros(
        1_800_000_000_000_000,
    )));
    let world = World::with(18, swept(clock.clone())).await;
    world.apply(DAYS).await.unwrap();
    for day in 1..=3 {
        world.create("days", &json!({"day": day})).await;
    }
    let hold = world.create("holds", &json!({"day": 2})).await;
    clock.advance(Duration::from_secs(11 * 86_400));
    world.create("days", &json!({"day": 4})).await;
    let left = "SELECT count(*) FROM egret.document";
    world.await_number(left, 3).await;
    world.delete("holds", hold.id).await.unwrap();
    world.await_number(left, 1).await;
    world.stop().await;
}

#[tokio::test]
async fn followers_of_deleted_changes_get_an_error() {
    let world = World::with(18, swept(Arc::new(egret_base::SystemClock))).await;
    world.apply(NOTES).await.unwrap();
    for text in ["a", "b", "c"] {
        world.create("notes", &json!({"id": 1, "text": text})).await;
    }
    let old = "UPDATE egret.document_version SET replaced_at = replaced_at - interval '31 days' WHERE version = 1;
        UPDATE egret.document_feed SET at = at - interval '8 days' WHERE position <= 2;
        INSERT INTO egret.document_request VALUES (1, gen_random_uuid(), gen_random_uuid(), now() - interval '25 hours', '{}', '{}', '{}')";
    world.client.batch_execute(old).await.unwrap();
    world.await_number("SELECT count(*) FROM egret.document_version", 1).await;
    world.await_number("SELECT count(*) FROM egret.document_request", 0).await;
    world.await_number("SELECT forgotten FROM egret.document_owner", 2).await;
    let following = |after| egret_documents::api::ChangesQuery {
        collection: None,
        after: Some(FeedPosition(after)),
    };
    let changes =
        async |after| world.documents.changes(&world.caller, &following(after), None).await;
    assert_eq!(error_code(changes(1).await), "changes_gone");
    assert_eq!(changes(2).await.unwrap().items.len(), 1);
    assert_eq!(changes(3).await.unwrap().items.len(), 0);
    // A position beyond the end of the feed.
    assert_eq!(error_code(changes(4).await), "changes_gone");
    let ahead = world.documents.next_changes(&world.caller, &mut following(4)).await;
    assert_eq!(error_code(ahead), "changes_gone");
    world.stop_documents().await;
}

//! Decisions on batches.

use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::core::collection::{Collection, DeclaredCollection, Draft};
use crate::core::decision::{Condition, CurrentDocument};
use crate::core::definition::{Definitions, parse};
use crate::model::{CollectionId, DocumentNumber, TenantId};

const FILE: &str = r#"{"collections": [
    {"collection": "airports", "identity": ["/faa"], "schema": {"type": "object",
        "properties": {"faa": {"type": "string"}}, "required": ["faa"]}},
    {"collection": "flights", "identity": ["/number"], "references": [{"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}}],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": "string"}},
            "required": ["number", "origin"]}}]}"#;

fn declared(name: &str, id: i32) -> Arc<DeclaredCollection> {
    let all = Definitions::default().with(parse(FILE.as_bytes()).unwrap()).unwrap();
    let definition = all.get(&name.parse().unwrap()).unwrap();
    Arc::new(DeclaredCollection {
        id: CollectionId(id),
        collection: Collection::compile(&all, definition).unwrap(),
    })
}

fn request(declared: &Arc<DeclaredCollection>, op: WriteOp<Box<Draft>>) -> WriteRequest {
    WriteRequest {
        tenant: TenantId(1),
        declared: declared.clone(),
        op,
        condition: Condition::Always,
        author: None,
        trace: None,
        rights: std::sync::Arc::default(),
    }
}

fn put(declared: &Arc<DeclaredCollection>, body: &str) -> WriteRequest {
    let draft = declared.collection.parse(body.as_bytes(), 1_000).unwrap();
    request(declared, WriteOp::Put(None, Box::new(draft)))
}

fn id(number: u64) -> DocumentId {
    DocumentId::from_stored(Uuid::from_u64_pair(number, 1))
}

/// A context in which nothing exists.
fn nothing(request: &WriteRequest) -> WriteContext {
    WriteContext {
        alias_owners: vec![None; request.draft().map_or(0, |draft| draft.aliases.len())],
        targets: vec![None; request.draft().map_or(0, |draft| draft.references.len())],
        ..WriteContext::default()
    }
}

fn current(declared: &DeclaredCollection, number: u64, request: &WriteRequest) -> CurrentDocument {
    CurrentDocument {
        collection: declared.id,
        id: id(number),
        version: 1,
        targets: vec![],
        aliases: request.draft().unwrap().aliases.clone(),
    }
}

fn ids() -> impl FnMut() -> DocumentId {
    let mut next = 100;
    move || {
        next += 1;
        id(next)
    }
}

#[test]
fn writes_may_refer_to_documents_of_the_same_batch_in_any_order() {
    let (airports, flights) = (declared("airports", 1), declared("flights", 2));
    let flight = || put(&flights, r#"{"number": 1, "origin": "JFK"}"#);
    let airport = || put(&airports, r#"{"faa": "JFK"}"#);
    for all in [[flight(), airport()], [airport(), flight()]] {
        let contexts: Vec<WriteContext> = all.iter().map(nothing).collect();
        let plan = decide(&all, &contexts, ids()).unwrap();
        let made = plan.iter().find_map(|planned| match planned {
            PlannedWrite::Create { id, targets } if targets.is_empty() => Some(id.number()),
            _ => None,
        });
        let refers = |planned: &PlannedWrite| matches!(planned, PlannedWrite::Create { targets, .. } if *targets == [made.unwrap()]);
        assert!(plan.iter().any(refers), "{plan:?}");
    }
    let alone = [flight()];
    let contexts = [nothing(&alone[0])];
    assert_eq!(decide(&alone, &contexts, ids()), Err((0, WriteRejection::Unresolved(vec![0]))));
}

#[test]
fn writes_cannot_refer_to_documents_deleted_in_the_batch() {
    let (airports, flights) = (declared("airports", 1), declared("flights", 2));
    let airport = put(&airports, r#"{"faa": "JFK"}"#);
    let all = [
        put(&flights, r#"{"number": 1, "origin": "JFK"}"#),
        request(&airports, WriteOp::Delete(id(7))),
    ];
    let mut contexts: Vec<WriteContext> = all.iter().map(nothing).collect();
    contexts[0].targets = vec![Some(DocumentNumber(7))];
    contexts[1].current = Some(current(&airports, 7, &airport));
    assert_eq!(decide(&all, &contexts, ids()), Err((0, WriteRejection::Unresolved(vec![0]))));
    assert_eq!(decide(&all[..1], &contexts[..1], ids()).map(|plan| plan.len()), Ok(1));
}

#[test]
fn a_batch_cannot_write_one_document_or_identity_twice() {
    let airports = declared("airports", 1);
    let jfk = || put(&airports, r#"{"faa": "JFK"}"#);
    let twice = [put(&airports, r#"{"faa": "LAX"}"#), jfk(), jfk()];
    let contexts: Vec<WriteContext> = twice.iter().map(nothing).collect();
    assert_eq!(decide(&twice, &contexts, ids()), Err((2, WriteRejection::Duplicate { before: 1 })));
    // One item by id, and one by the identity of the same document.
    let both = [request(&airports, WriteOp::Delete(id(7))), jfk()];
    let mut contexts: Vec<WriteContext> = both.iter().map(nothing).collect();
    contexts[0].current = Some(current(&airports, 7, &both[1]));
    contexts[1].current = contexts[0].current.clone();
    assert_eq!(decide(&both, &contexts, ids()), Err((1, WriteRejection::Duplicate { before: 0 })));
}

#[test]
fn lock_sets_of_a_batch_have_no_duplicates() {
    let (airports, flights) = (declared("airports", 1), declared("flights", 2));
    let all = [
        put(&airports, r#"{"faa": "JFK"}"#),
        put(&flights, r#"{"number": 1, "origin": "JFK"}"#),
        put(&flights, r#"{"number": 2, "origin": "LAX"}"#),
        put(&flights, r#"{"number": 3, "origin": "LAX"}"#),
    ];
    let locks = lock_set(&all);
    assert_eq!((locks.exclusive.len(), locks.shared.len()), (4, 1));
}

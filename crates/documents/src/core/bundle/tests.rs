//! Writes that are done all or none.

use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::core::collection::Collection;
use crate::core::decide::{Condition, Present};
use crate::core::definition::{Definitions, read};
use crate::core::group::Declared;
use crate::model::{CollectionId, TenantId};

const FILE: &str = r#"{"collections": [
    {"collection": "airports", "identity": ["/faa"], "schema": {"type": "object",
        "properties": {"faa": {"type": "string"}}, "required": ["faa"]}},
    {"collection": "flights", "identity": ["/number"], "references": [{"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}}],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": "string"}},
            "required": ["number", "origin"]}}]}"#;

fn declared(name: &str, id: i32) -> Arc<Declared> {
    let all = Definitions::default()
        .with(read(FILE.as_bytes()).unwrap())
        .unwrap();
    let definition = all.get(&name.parse().unwrap()).unwrap();
    Arc::new(Declared {
        id: CollectionId(id),
        collection: Collection::of(&all, definition).unwrap(),
    })
}

fn asked(declared: &Arc<Declared>, what: What) -> Asked {
    Asked {
        tenant: TenantId(1),
        declared: declared.clone(),
        what,
        condition: Condition::Always,
        author: None,
        trace: None,
        rights: std::sync::Arc::default(),
    }
}

fn put(declared: &Arc<Declared>, body: &str) -> Asked {
    let draft = declared.collection.read(body.as_bytes(), 1_000).unwrap();
    asked(declared, What::Put(None, Box::new(draft)))
}

fn id(number: u64) -> DocumentId {
    DocumentId::stored(Uuid::from_u64_pair(number, 1))
}

/// Nothing of what it is about is there.
fn nothing(asked: &Asked) -> Met {
    Met {
        taken: vec![None; asked.draft().map_or(0, |draft| draft.aliases.len())],
        targets: vec![None; asked.draft().map_or(0, |draft| draft.references.len())],
        ..Met::default()
    }
}

fn there(declared: &Declared, number: u64, names: &Asked) -> Present {
    Present {
        collection: declared.id,
        id: id(number),
        version: 1,
        targets: vec![],
        names: names.draft().unwrap().aliases.clone(),
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
fn one_refers_to_what_another_makes_whichever_comes_first() {
    let (airports, flights) = (declared("airports", 1), declared("flights", 2));
    let flight = || put(&flights, r#"{"number": 1, "origin": "JFK"}"#);
    let airport = || put(&airports, r#"{"faa": "JFK"}"#);
    for all in [[flight(), airport()], [airport(), flight()]] {
        let met: Vec<Met> = all.iter().map(nothing).collect();
        let fates = decide(&all, &met, ids()).unwrap();
        let made = fates.iter().find_map(|fate| match fate {
            Fate::Create(id, targets) if targets.is_empty() => Some(id.number()),
            _ => None,
        });
        let refers =
            |fate: &Fate| matches!(fate, Fate::Create(_, targets) if *targets == [made.unwrap()]);
        assert!(fates.iter().any(refers), "{fates:?}");
    }
    let alone = [flight()];
    let met = [nothing(&alone[0])];
    assert_eq!(
        decide(&alone, &met, ids()),
        Err((0, Verdict::Unresolved(vec![0])))
    );
}

#[test]
fn what_one_deletes_another_does_not_refer_to() {
    let (airports, flights) = (declared("airports", 1), declared("flights", 2));
    let airport = put(&airports, r#"{"faa": "JFK"}"#);
    let all = [
        put(&flights, r#"{"number": 1, "origin": "JFK"}"#),
        asked(&airports, What::Remove(id(7))),
    ];
    let mut met: Vec<Met> = all.iter().map(nothing).collect();
    met[0].targets = vec![Some(7)];
    met[1].present = Some(there(&airports, 7, &airport));
    assert_eq!(
        decide(&all, &met, ids()),
        Err((0, Verdict::Unresolved(vec![0])))
    );
    assert_eq!(
        decide(&all[..1], &met[..1], ids()).map(|fates| fates.len()),
        Ok(1)
    );
}

#[test]
fn two_are_not_about_one_document_or_one_identity() {
    let airports = declared("airports", 1);
    let jfk = || put(&airports, r#"{"faa": "JFK"}"#);
    let twice = [put(&airports, r#"{"faa": "LAX"}"#), jfk(), jfk()];
    let met: Vec<Met> = twice.iter().map(nothing).collect();
    assert_eq!(
        decide(&twice, &met, ids()),
        Err((2, Verdict::Twice { before: 1 }))
    );
    // One by its id, and one by the identity that it has.
    let both = [asked(&airports, What::Remove(id(7))), jfk()];
    let mut met: Vec<Met> = both.iter().map(nothing).collect();
    met[0].present = Some(there(&airports, 7, &both[1]));
    met[1].present = met[0].present.clone();
    assert_eq!(
        decide(&both, &met, ids()),
        Err((1, Verdict::Twice { before: 0 }))
    );
}

#[test]
fn what_several_claim_is_claimed_once() {
    let (airports, flights) = (declared("airports", 1), declared("flights", 2));
    let all = [
        put(&airports, r#"{"faa": "JFK"}"#),
        put(&flights, r#"{"number": 1, "origin": "JFK"}"#),
        put(&flights, r#"{"number": 2, "origin": "LAX"}"#),
        put(&flights, r#"{"number": 3, "origin": "LAX"}"#),
    ];
    let claims = claims(&all);
    assert_eq!((claims.alone.len(), claims.shared.len()), (4, 1));
}

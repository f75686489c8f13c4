//! Rights by collection and by claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_base::{CodedError, Kind};
use egret_documents::DocumentsError;
use egret_documents::api::{Caller, ChangesQuery, CountMode, DocumentProjection, FindQuery};
use egret_documents::core::decision::Condition;
use egret_documents::core::rights::{Reach, Rights};
use egret_documents::model::{DocumentId, FeedPosition, WriteReceipt};
use egret_postgres::database_watch::DatabaseVisitor;
use serde_json::{Value, json};

use crate::world::{FLIGHTS, World, collection_name, error_code};

const SCHOOLS: &str = r#"{"collections": [
    {"collection": "schools", "identity": ["/school"], "query": ["/school"], "claims": {"school": "/school"},
        "schema": {"type": "object", "properties": {"school": {"type": "string"}}, "required": ["school"]}},
    {"collection": "marks", "identity": ["/id"], "query": ["/school"], "claims": {"school": "/school"},
        "references": [{"name": "school", "to": "schools", "paths": {"/school": "/school"}}],
        "schema": {"type": "object", "properties": {"id": {"type": "integer"}, "school": {"type": "string"}, "mark": {"type": "integer"}},
            "required": ["id", "school"]}},
    {"collection": "notices", "identity": ["/id"],
        "schema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}}
]}"#;

fn caller_of_school(world: &World, school: &str) -> Caller {
    let claims = BTreeMap::from([("school".to_owned(), BTreeSet::from([school.to_owned()]))]);
    let rights = Rights { claims: Some(claims), ..Rights::default() };
    Caller { rights: Arc::new(rights), ..world.caller.clone() }
}

async fn create_school(school: &str, world: &World) {
    world.create("schools", &json!({"school": school})).await;
}

#[tokio::test]
async fn documents_are_seen_and_written_within_claims() {
    let world = World::new(18).await;
    world.apply(SCHOOLS).await.unwrap();
    create_school("a", &world).await;
    create_school("b", &world).await;
    let own = world.create("marks", &json!({"id": 1, "school": "a"})).await;
    let other = world.create("marks", &json!({"id": 2, "school": "b"})).await;
    let caller = caller_of_school(&world, "a");
    let (documents, marks) = (&world.documents, collection_name("marks"));
    assert!(documents.get(&caller, &marks, own.id).await.is_ok());
    let hidden = documents.get(&caller, &marks, other.id).await;
    assert_eq!(error_code(hidden), "not_found");
    let find = FindQuery { count: CountMode::Exact, ..FindQuery::default() };
    let page = documents.find(&caller, &marks, &find).await.unwrap();
    assert_eq!((page.items.len(), page.count), (1, Some(1)));
    let write = async |body: Value| {
        let body = body.to_string();
        documents.upsert(&caller, &marks, body.as_bytes(), Condition::Always).await
    };
    assert!(write(json!({"id": 3, "school": "a"})).await.is_ok());
    assert_eq!(error_code(write(json!({"id": 4, "school": "b"})).await), "access_denied");
    // A document outside the claims cannot be claimed by rewriting it.
    assert_eq!(error_code(write(json!({"id": 2, "school": "a"})).await), "access_denied");
    let gone = documents.delete(&caller, &marks, other.id, Condition::Always);
    assert_eq!(error_code(gone.await), "not_found");
    world.stop().await;
}

#[tokio::test]
async fn embedded_targets_are_restricted_by_rights_and_claims() {
    let world = World::new(16).await;
    world.apply(SCHOOLS).await.unwrap();
    create_school("a", &world).await;
    let mark = world.create("marks", &json!({"id": 1, "school": "a"})).await;
    let caller = Caller {
        rights: Arc::new(Rights {
            read: Reach::Only(BTreeSet::from([collection_name("marks")])),
            write: Reach::Only(BTreeSet::new()),
            claims: caller_of_school(&world, "a").rights.claims.clone(),
        }),
        ..world.caller.clone()
    };
    let (documents, marks, schools) =
        (&world.documents, collection_name("marks"), collection_name("schools"));
    let shape = DocumentProjection {
        embed: vec![collection_name("school")],
        ..DocumentProjection::default()
    };
    let found = documents.get_projected(&caller, &marks, mark.id, &shape).await;
    assert!(found.unwrap().embedded.is_empty());
    let denied = documents.find(&caller, &schools, &FindQuery::default()).await;
    assert_eq!(error_code(denied), "access_denied");
    let denied = documents.delete(&caller, &marks, mark.id, Condition::Always);
    assert_eq!(error_code(denied.await), "access_denied");
    world.stop().await;
}

#[tokio::test]
async fn changes_are_returned_to_callers_who_see_the_whole_collection() {
    let world = World::new(18).await;
    world.apply(SCHOOLS).await.unwrap();
    create_school("a", &world).await;
    world.create("notices", &json!({"id": 1})).await;
    let query = ChangesQuery { collection: None, after: Some(FeedPosition(0)) };
    let visible_collections = async |caller: &Caller| {
        let changes = world.documents.changes(caller, &query, None).await.unwrap().items;
        let names = changes.iter().map(|one| one.collection.to_string());
        names.collect::<Vec<String>>()
    };
    assert_eq!(visible_collections(&world.caller).await, ["schools", "notices"]);
    assert_eq!(visible_collections(&caller_of_school(&world, "a")).await, ["notices"]);
    world.stop().await;
}

const CITIES: &str = r#"{"collections": [
    {"collection": "cities", "identity": ["/city"], "identity_mutable": true,
        "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    {"collection": "streets", "identity": ["/city", "/street"],
        "references": [{"name": "city", "to": "cities", "paths": {"/city": "/city"}}],
        "schema": {"type": "object", "properties": {"city": {"type": "string"}, "street": {"type": "string"}},
            "required": ["city", "street"]}},
    {"collection": "houses", "identity": ["/id"], "query": ["/owner"], "claims": {"owner": "/owner"},
        "references": [{"name": "street", "to": "streets", "paths": {"/city": "/city", "/street": "/street"}}],
        "schema": {"type": "object", "properties": {"id": {"type": "integer"}, "owner": {"type": "string"},
            "city": {"type": "string"}, "street": {"type": "string"}}, "required": ["id", "owner", "city", "street"]}}
]}"#;

fn reach(names: &[&str]) -> Reach {
    Reach::Only(names.iter().map(|name| collection_name(name)).collect())
}

fn claim(owner: &str) -> Option<BTreeMap<String, BTreeSet<String>>> {
    let owners = BTreeSet::from([owner.to_owned()]);
    Some(BTreeMap::from([("owner".to_owned(), owners)]))
}

/// Changes the identity of a city with these rights.
async fn rename(
    world: &World,
    rights: Rights,
    city: DocumentId,
    to: &str,
) -> Result<WriteReceipt, DocumentsError> {
    let caller = Caller { rights: Arc::new(rights), ..world.caller.clone() };
    let body = json!({"city": to}).to_string();
    let cities = collection_name("cities");
    let documents = &world.documents;
    documents.replace(&caller, &cities, city, body.as_bytes(), Condition::Always).await
}

/// An identity change needs write access to all documents it rewrites.
#[tokio::test]
async fn an_identity_changes_with_the_right_to_write_all_that_follow() {
    let world = World::new(18).await;
    world.apply(CITIES).await.unwrap();
    let city = world.create("cities", &json!({"city": "old"})).await;
    let street = json!({"city": "old", "street": "s"});
    let street = world.create("streets", &street).await;
    let house = json!({"id": 1, "owner": "ann", "city": "old", "street": "s"});
    let house = world.create("houses", &house).await;
    let all = ["cities", "streets", "houses"];
    let refused = [
        (vec!["cities"], vec!["cities"], None, false),
        (all.to_vec(), vec!["cities", "streets"], None, true),
        (vec!["cities"], vec!["cities", "streets"], None, false),
        (all.to_vec(), all.to_vec(), claim("bob"), true),
    ];
    for (read, write, claims, is_named) in refused {
        let rights = Rights { read: reach(&read), write: reach(&write), claims };
        let error = rename(&world, rights, city.id, "new").await.unwrap_err();
        let told = error.to_string();
        assert_eq!(error_code(Err::<(), _>(error)), "access_denied", "{told}");
        assert_eq!(told.contains("houses"), is_named, "{told}");
        for (collection, id) in [("houses", house.id), ("streets", street.id)] {
            assert_eq!(world.get(collection, id).await.unwrap()["city"], "old");
        }
    }
    let rights = Rights { read: reach(&["cities"]), write: reach(&all), claims: claim("ann") };
    rename(&world, rights, city.id, "new").await.unwrap();
    assert_eq!(world.get("houses", house.id).await.unwrap()["city"], "new");
    // A city without referrers can be renamed all the same.
    let alone = world.create("cities", &json!({"city": "alone"})).await;
    let rights = Rights { read: reach(&["cities"]), write: reach(&["cities"]), claims: None };
    rename(&world, rights, alone.id, "lone").await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_answered_as_one_without_documents() {
    let world = World::new(18).await;
    let mut answers = Vec::new();
    for database in [&*world.database.name, "not_there"] {
        let caller = Caller { database: Some(database.to_owned()), ..world.caller.clone() };
        let refused = world.documents.collections(&caller).await.unwrap_err();
        let message = refused.to_string().replace(database, "it");
        answers.push((refused.code(), refused.kind(), message));
    }
    assert_eq!(answers[0], answers[1]);
    assert!(!answers[1].2.contains(&world.database.name));
    // A declaration reports the missing database, since it accepts any that exists; other databases
    // are not named.
    let caller = Caller { database: Some("not_there".to_owned()), ..world.caller.clone() };
    let declared = world.documents.apply(&caller, FLIGHTS.as_bytes()).await;
    let refused = declared.unwrap_err();
    assert_eq!(refused.code(), "database_not_found");
    assert_eq!(refused.kind(), Kind::NotFound);
    assert_eq!(refused.to_string(), "database: `not_there` does not exist");
    world.stop_documents().await;
}

#[tokio::test]
async fn documents_that_were_removed_from_outside_are_not_found_at_once() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let made = world.create("airports", &json!({"faa": "JFK"})).await;
    world.get("airports", made.id).await.unwrap();
    let drop = "DROP SCHEMA egret CASCADE";
    world.client.batch_execute(drop).await.unwrap();
    for _ in 0..3 {
        let refused = world.get("airports", made.id).await.unwrap_err();
        assert_eq!(refused.code(), "collection_not_found", "{refused}");
    }
    world.stop_documents().await;
}

#[tokio::test]
async fn no_session_stays_where_documents_were_removed_from_outside() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let made = world.create("airports", &json!({"faa": "JFK"})).await;
    world.get("airports", made.id).await.unwrap();
    let database = &world.database.name;
    world.documents.visit(database).await.unwrap();
    world.get("airports", made.id).await.unwrap();
    let drop = "DROP SCHEMA egret CASCADE";
    world.client.batch_execute(drop).await.unwrap();
    world.documents.visit(database).await.unwrap();
    assert!(world.documents.ownership_states().is_empty());
    let sessions = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    world.await_number(sessions, 0).await;
    world.stop_documents().await;
}

#[tokio::test]
async fn documents_of_which_a_table_is_missing_are_not_taken_for_removed() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let made = world.create("airports", &json!({"faa": "JFK"})).await;
    let lose = "DROP TABLE egret.document_alias CASCADE; \
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    world.client.batch_execute(lose).await.unwrap();
    for _ in 0..5 {
        let refused = world.get("airports", made.id).await.unwrap_err();
        assert_ne!(refused.code(), "collection_not_found", "{refused}");
    }
    world.stop_documents().await;
}

#[tokio::test]
async fn no_request_takes_a_missing_table_for_a_removal() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let lose = "DROP TABLE egret.collection CASCADE";
    world.client.batch_execute(lose).await.unwrap();
    let refusals = [
        world.documents.collections(&world.caller).await.map(drop),
        world.apply(FLIGHTS).await.map(drop),
        world.documents.fsck(&world.caller, false).await.map(drop),
    ];
    for refused in refusals {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "document_statement_failed", "{refused}");
        let message = refused.to_string();
        assert!(message.contains("egret.collection"), "{message}");
    }
    let lose = "DROP SCHEMA egret CASCADE";
    world.client.batch_execute(lose).await.unwrap();
    let refused = world.documents.collections(&world.caller).await.unwrap_err();
    assert_eq!(refused.code(), "collection_not_found", "{refused}");
    world.stop_documents().await;
}

//! Indexes on query paths: exactly the required ones exist, and each serves its path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_base::settings::ConfigDuration;
use egret_documents::DocumentsConfig;
use egret_documents::api::{Caller, FindQuery};
use egret_documents::core::rights::Rights;
use egret_postgres::installation::inventory;
use serde_json::{Value, json};

use crate::world::{World, collection_name, default_parts, error_code};

/// Number of indexes on paths, in all partitions.
const INDEXES: &str =
    "SELECT count(*) FROM pg_indexes WHERE schemaname = 'egret' AND indexname ~ '_by_[0-9]+_'";

/// Properties named like elements of arrays.
const ODD: &str = r#"{"collection": "odd", "identity": ["/id"], "query": ["/a/0", "/b/1"], "claims": {"region": "/b/1"},
    "schema": {"type": "object", "properties": {"id": {"type": "integer"}, "a": {"properties": {"0": {"type": "number"}}},
        "b": {"properties": {"1": {"type": "string"}}}}, "required": ["id"]}}"#;

/// Ids of the documents found, in order.
async fn ids(world: &World, caller: &Caller, filter: &str, sort: Option<&str>) -> Vec<i64> {
    let find = FindQuery {
        filters: vec![filter.to_owned()],
        sort: sort.map(str::to_owned),
        ..FindQuery::default()
    };
    let page = world.documents.find(caller, &collection_name("odd"), &find).await;
    let items = page.unwrap().items.into_iter();
    let id = |body: Value| body["id"].as_i64().unwrap();
    items.map(|one| id(one.stored.parse_body().unwrap())).collect()
}

#[tokio::test]
async fn a_path_leads_into_no_array() {
    for version in [15, 18] {
        let world = World::new(version).await;
        world.apply(ODD).await.unwrap();
        // Too long for an index entry, compressed or not.
        let long: String = (0..4_000).map(|n| (n * 7_919 % 10_007).to_string()).collect();
        let mut made = Vec::new();
        for body in [
            json!({"id": 1, "a": {"0": 5}, "b": {"1": "south"}}),
            json!({"id": 2, "a": ["x", 5], "b": ["north", "south"]}),
            json!({"id": 3, "a": [7], "b": ["north", long]}),
            json!({"id": 4, "a": "0", "b": null}),
        ] {
            made.push(world.create("odd", &body).await.id);
        }
        let found = async |filter: &str, sort| ids(&world, &world.caller, filter, sort).await;
        assert_eq!(found("/a/0 exists", None).await, [1]);
        assert_eq!(found("/a/0 exists false", None).await, [2, 3, 4]);
        assert_eq!(found("/a/0 >= 5", None).await, [1]);
        assert_eq!(found("/b/1 prefix s", None).await, [1]);
        assert_eq!(
            found("/b/1 exists false", Some("-/a/0")).await,
            [4, 3, 2],
            "the last made first, as the order says"
        );
        let values = BTreeSet::from(["south".to_owned()]);
        let rights = Rights {
            claims: Some(BTreeMap::from([("region".to_owned(), values)])),
            ..Rights::default()
        };
        let caller = Caller { rights: Arc::new(rights), ..world.caller.clone() };
        assert_eq!(ids(&world, &caller, "/b/1 exists", None).await, [1]);
        for (id, is_seen) in made.into_iter().zip([true, false, false, false]) {
            let told = world.documents.get(&caller, &collection_name("odd"), id).await;
            if is_seen { assert!(told.is_ok()) } else { assert_eq!(error_code(told), "not_found") }
        }
        world.stop().await;
    }
}

/// A collection with this many query paths.
fn found_by(collection: &str, paths: i64) -> String {
    let names: Vec<String> = (0..paths).map(|path| format!("p{path}")).collect();
    let mut properties = json!({collection: {"type": "string"}});
    for name in &names {
        properties[name] = json!({"type": "integer"});
    }
    let query: Vec<String> = names.iter().map(|name| format!("/{name}")).collect();
    let definition = json!({
        "collection": collection, "identity": [format!("/{collection}")], "query": query,
        "schema": {"type": "object", "properties": properties, "required": [collection]},
    });
    definition.to_string()
}

#[tokio::test]
async fn collections_that_are_declared_at_the_same_time_keep_all_their_indexes() {
    let world = World::new(18).await;
    world.apply(&found_by("first", 1)).await.unwrap();
    for paths in 1..=4 {
        let (first, second) = (found_by("first", paths), found_by("second", paths));
        let (first, second) = tokio::join!(world.apply(&first), world.apply(&second));
        first.unwrap();
        second.unwrap();
        assert_eq!(world.query_number(INDEXES).await, 16 * 2 * paths);
    }
    world.stop().await;
}

#[tokio::test]
async fn indexes_that_are_lost_come_again_and_others_go() {
    let (config, clock, entropy) = default_parts();
    let config = DocumentsConfig { sweep_interval: ConfigDuration::ms(50), ..config };
    let world = World::with(18, (config, clock, entropy)).await;
    world.apply(&found_by("notes", 2)).await.unwrap();
    assert_eq!(world.query_number(INDEXES).await, 32);
    let one = "SELECT min(indexname)::text FROM pg_indexes WHERE schemaname = 'egret' AND indexname ~ '_by_[0-9]+_'";
    let one: String = world.client.query_one(one, &[]).await.unwrap().get(0);
    let lose = format!(
        "DROP INDEX egret.{one}; CREATE INDEX document_0_by_1_00000000000000ff ON egret.document_0 (number)"
    );
    world.client.batch_execute(&lose).await.unwrap();
    let lost = format!(
        "SELECT count(*) FROM pg_indexes WHERE schemaname = 'egret' AND indexname = '{one}'"
    );
    world.await_number(&lost, 1).await;
    world.await_number(INDEXES, 32).await;
    let odd =
        "SELECT count(*) FROM pg_indexes WHERE indexname = 'document_0_by_1_00000000000000ff'";
    assert_eq!(world.query_number(odd).await, 0);
    world.stop().await;
}

#[tokio::test]
async fn nothing_of_egret_is_taken_for_a_users() {
    let world = World::new(18).await;
    world.apply(ODD).await.unwrap();
    let found = inventory(&world.client).await.unwrap().unwrap();
    assert_eq!(found.obstacles, []);
    assert_eq!(found.indexes, Vec::<String>::new());
    world.stop().await;
}

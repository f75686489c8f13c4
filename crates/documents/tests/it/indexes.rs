//! Values at query paths: exactly those of the declared paths are stored, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::settings::ConfigDuration;
use egret_documents::DocumentsConfig;
use egret_documents::api::{Caller, FindQuery};
use egret_documents::core::rights::Rights;
use egret_postgres::installation::inventory;
use serde_json::{Value, json};

use crate::world::{
    EngineParts, WRONG_VALUES, World, collection_name, default_parts, engine_with, error_code,
};

/// Number of query paths whose values are complete.
const PATHS: &str = "SELECT count(*) FROM egret.query_path WHERE state = 'a'";

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
async fn collections_that_are_declared_at_the_same_time_keep_all_their_paths() {
    let world = World::new(18).await;
    world.apply(&found_by("first", 1)).await.unwrap();
    for paths in 1..=4 {
        let (first, second) = (found_by("first", paths), found_by("second", paths));
        let (first, second) = tokio::join!(world.apply(&first), world.apply(&second));
        first.unwrap();
        second.unwrap();
        assert_eq!(world.query_number(PATHS).await, 2 * paths);
    }
    world.stop().await;
}

/// The engine's settings, with a short pause between two repairs.
fn frequent_sweeps() -> EngineParts {
    let (config, clock, entropy) = default_parts();
    (DocumentsConfig { sweep_interval: ConfigDuration::ms(50), ..config }, clock, entropy)
}

#[tokio::test]
async fn values_follow_every_change_of_documents_and_paths() {
    for version in [15, 18] {
        let world = World::with(version, frequent_sweeps()).await;
        world.apply(&found_by("notes", 2)).await.unwrap();
        let mut ids = Vec::new();
        for number in 0..20 {
            let body = json!({"notes": format!("n{number}"), "p0": number % 3, "p2": number});
            ids.push(world.create("notes", &body).await.id);
        }
        assert_eq!(world.query_number(WRONG_VALUES).await, 0);
        let changed = json!({"notes": "n1", "p0": 7});
        world.post("notes", &changed).await.unwrap();
        world.delete("notes", ids[2]).await.unwrap();
        assert_eq!(world.query_number(WRONG_VALUES).await, 0);
        // More paths, of documents that are there; then fewer, whose values go.
        world.apply(&found_by("notes", 3)).await.unwrap();
        assert_eq!(world.query_number(PATHS).await, 3);
        assert_eq!(world.query_number(WRONG_VALUES).await, 0);
        assert_eq!(world.query_number("SELECT count(*) FROM egret.document_value").await, 19 * 3);
        world.apply(&found_by("notes", 1)).await.unwrap();
        world.await_number("SELECT count(*) FROM egret.document_value", 19).await;
        world.await_number("SELECT count(*) FROM egret.query_path", 1).await;
        assert_eq!(world.query_number(WRONG_VALUES).await, 0);
        world.stop().await;
    }
}

/// A version of Egret whose paths had indexes of their own leaves a database, or one that was
/// killed while it added values.
#[tokio::test]
async fn values_of_earlier_versions_are_added_by_the_next_owner() {
    let world = World::with(18, frequent_sweeps()).await;
    world.apply(&found_by("notes", 2)).await.unwrap();
    for number in 0..450 {
        world.create("notes", &json!({"notes": format!("n{number}"), "p0": number})).await;
    }
    let database = world.database.clone();
    world.documents.stop().await;
    let uninstall = "DROP TABLE egret.query_path, egret.document_value;
        DROP FUNCTION egret.document_inserted, egret.document_updated, egret.document_deleted CASCADE;
        DROP FUNCTION egret.document_key, egret.document_member;
        DELETE FROM egret.migration WHERE name = 'query values';
        CREATE INDEX document_0_by_1_00000000000000ff ON egret.document_0 (number)";
    world.client.batch_execute(uninstall).await.unwrap();
    let documents = engine_with(&database, frequent_sweeps(), None);
    let next = World::on_database(database, documents).await;
    let count = async |world: &World| {
        let find = FindQuery { filters: vec!["/p0 >= 400".to_owned()], ..FindQuery::default() };
        let page = world.documents.find(&world.caller, &collection_name("notes"), &find).await;
        page.unwrap().items.len()
    };
    // Before, during and after the values are added.
    assert_eq!(count(&next).await, 50);
    next.await_number(PATHS, 2).await;
    assert_eq!(count(&next).await, 50);
    assert_eq!(next.query_number(WRONG_VALUES).await, 0);
    let old =
        "SELECT count(*) FROM pg_indexes WHERE indexname = 'document_0_by_1_00000000000000ff'";
    assert_eq!(next.query_number(old).await, 0);
    next.documents.stop().await;
    // As if that Egret had been killed after the first documents of a path.
    let interrupt = "UPDATE egret.query_path SET state = 'b', built_tenant = 1,
            built_number = (SELECT number FROM egret.document ORDER BY number OFFSET 99 LIMIT 1) WHERE path = '{p0}';
        DELETE FROM egret.document_value AS v USING egret.query_path AS p
        WHERE p.path_id = v.path_id AND p.state = 'b' AND v.number > p.built_number";
    next.client.batch_execute(interrupt).await.unwrap();
    let database = next.database.clone();
    let documents = engine_with(&database, frequent_sweeps(), None);
    let last = World::on_database(database, documents).await;
    assert_eq!(count(&last).await, 50);
    last.await_number(PATHS, 2).await;
    assert_eq!(last.query_number(WRONG_VALUES).await, 0);
    last.stop().await;
}

#[tokio::test]
async fn paths_beyond_the_limits_are_refused_by_name() {
    let (config, clock, entropy) = default_parts();
    let config = DocumentsConfig { query_paths_max: 24, query_paths_total_max: 40, ..config };
    let world = World::with(18, (config, clock, entropy)).await;
    let reason = async |file: String| world.apply(&file).await.unwrap_err().to_string();
    let told = reason(found_by("first", 25)).await;
    assert!(told.contains("`documents.query_paths_max`"), "{told}");
    world.apply(&found_by("first", 24)).await.unwrap();
    let told = reason(found_by("second", 17)).await;
    assert!(told.contains("`documents.query_paths_total_max`"), "{told}");
    world.apply(&found_by("second", 16)).await.unwrap();
    assert_eq!(world.query_number(PATHS).await, 40);
    world.stop().await;
}

/// Writers change and delete documents while the values of a new path are added.
#[tokio::test]
async fn values_are_added_while_documents_change() {
    let world = World::new(18).await;
    world.apply(&found_by("notes", 1)).await.unwrap();
    for number in 0..300 {
        world.create("notes", &json!({"notes": format!("n{number}"), "p0": number})).await;
    }
    let changes = async {
        for round in 0..6 {
            for number in (round..300).step_by(5) {
                let body = json!({"notes": format!("n{number}"), "p0": -round, "p1": number});
                let id = world.post("notes", &body).await.unwrap().id;
                if number % 7 == 0 {
                    world.delete("notes", id).await.unwrap();
                }
            }
        }
    };
    let declarations = async {
        for paths in 2..=8 {
            world.apply(&found_by("notes", paths)).await.unwrap();
        }
    };
    tokio::join!(changes, declarations);
    assert_eq!(world.query_number(PATHS).await, 8);
    assert_eq!(world.query_number(WRONG_VALUES).await, 0);
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

//! Queries: filters, orders, cursors, counts, embedding.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_documents::api::{Caller, CountMode, DocumentProjection, FindPage, FindQuery};
use egret_documents::core::rights::{Reach, Rights};
use egret_documents::model::CollectionName;
use egret_documents::{DocumentsConfig, DocumentsError};
use futures_util::future::join_all;
use proptest::prelude::{Strategy, any, prop, prop_oneof};
use proptest::strategy::{Just, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::world::{World, collection_name, default_parts, error_code};

const FLIGHTS: &str = r#"{"collections": [
    {"collection": "airports", "identity": ["/faa"], "query": ["/name"], "schema": {"type": "object",
        "properties": {"faa": {"type": "string"}, "name": {"type": ["integer", "null"]}}, "required": ["faa"]}},
    {"collection": "flights", "identity": ["/number"], "query": ["/origin", "/delay", "/late", "/where/it's \"here\"", "/number"],
        "references": [
            {"name": "origin", "to": "airports", "paths": {"/from": "/faa"}},
            {"name": "stops", "to": "airports", "paths": {"/stops/*": "/faa"}}],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": ["string", "null"]},
            "delay": {"type": "number"}, "late": {"type": "boolean"}, "from": {"type": "string"},
            "stops": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"it's \"here\"": {"type": "string"}}}}, "required": ["number"]}}]}"#;

impl World {
    async fn find(&self, collection: &str, find: &FindQuery) -> Result<FindPage, DocumentsError> {
        self.documents.find(&self.caller, &collection_name(collection), find).await
    }

    /// All documents found, page by page.
    async fn numbers(&self, filters: &[&str], sort: Option<&str>, limit: u32) -> Vec<i64> {
        let mut find = FindQuery {
            filters: filters.iter().map(|&filter| filter.to_owned()).collect(),
            sort: sort.map(str::to_owned),
            limit: Some(limit),
            count: CountMode::Exact,
            ..FindQuery::default()
        };
        let mut numbers = Vec::new();
        loop {
            let page = self.find("flights", &find).await.unwrap();
            let count = page.count;
            numbers.extend(
                page.items
                    .iter()
                    .map(|found| found.stored.parse_body().unwrap()["number"].as_i64().unwrap()),
            );
            find.cursor = page.next;
            if find.cursor.is_none() {
                assert_eq!(count, Some(numbers.len() as i64));
                return numbers;
            }
        }
    }
}

/// Numbers of flights that match filters, in order of creation.
fn flights() -> Vec<Value> {
    let origin = prop_oneof![
        Just(Value::Null),
        "[A-C]{1,2}".prop_map(Value::from),
        "[é€😀]{1,2}".prop_map(Value::from)
    ];
    let flight =
        (prop::option::of(origin), prop::option::of(-3..4i32), prop::option::of(any::<bool>()));
    let mut runner = TestRunner::deterministic();
    let drawn = prop::collection::vec(flight, 60).new_tree(&mut runner).unwrap().current();
    let each = drawn.into_iter().enumerate().map(|(number, (origin, delay, late))| {
        let mut flight = json!({ "number": number });
        if let Some(origin) = origin {
            flight["origin"] = origin;
        }
        if let Some(delay) = delay {
            flight["delay"] = json!(f64::from(delay) / 2.0);
        }
        if let Some(late) = late {
            flight["late"] = json!(late);
        }
        flight
    });
    each.collect()
}

type Test = fn(&Value) -> bool;

/// Filters, each with the flights that match it.
const CASES: [(&str, Test); 11] = [
    ("/origin = A", |one| one["origin"] == "A"),
    ("/origin != A", |one| one["origin"].is_string() && one["origin"] != "A"),
    ("/origin prefix A", |one| one["origin"].as_str().is_some_and(|text| text.starts_with('A'))),
    ("/origin prefix é", |one| one["origin"].as_str().is_some_and(|text| text.starts_with('é'))),
    ("/origin >= B", |one| one["origin"].as_str().is_some_and(|text| text >= "B")),
    (r#"/origin in ["A", "€"]"#, |one| one["origin"] == "A" || one["origin"] == "€"),
    ("/origin exists", |one| one["origin"].is_string()),
    ("/origin exists false", |one| !one["origin"].is_string()),
    ("/delay > 0.5", |one| one["delay"].as_f64().is_some_and(|delay| delay > 0.5)),
    ("/delay <= -1", |one| one["delay"].as_f64().is_some_and(|delay| delay <= -1.0)),
    ("/late = true", |one| one["late"] == true),
];

#[tokio::test]
async fn queries_return_matches_in_the_requested_order() {
    for version in [15, 18] {
        let world = World::new(version).await;
        world.apply(FLIGHTS).await.unwrap();
        // A document of another collection, with other values at the same path.
        for faa in ["A", "B"] {
            world.create("airports", &json!({"faa": faa, "name": 1})).await;
        }
        let all = flights();
        for flight in &all {
            world.create("flights", flight).await;
        }
        for (filter, test) in CASES {
            let expected: Vec<i64> = all
                .iter()
                .filter(|one| test(one))
                .map(|one| one["number"].as_i64().unwrap())
                .collect();
            assert_eq!(world.numbers(&[filter], None, 7).await, expected, "{filter}");
        }
        assert_ordered(&world, &all).await;
        world.stop().await;
    }
}

async fn assert_ordered(world: &World, all: &[Value]) {
    let text = |one: &Value| one["origin"].as_str().map(str::to_owned);
    // By value, those without one last, and in the order in which they were made among equals.
    let mut by_origin: Vec<&Value> = all.iter().collect();
    by_origin.sort_by_key(|one| (text(one).is_none(), text(one)));
    let numbers = |order: &[&Value]| {
        order.iter().map(|one| one["number"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(world.numbers(&[], Some("/origin"), 4).await, numbers(&by_origin));
    let (valued, mut valueless): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|one| one["delay"].is_number());
    // Descending: among equals the last created comes first.
    let ordered: Vec<i64> = {
        let mut keyed: Vec<(f64, i64)> = valued
            .iter()
            .map(|one| (one["delay"].as_f64().unwrap(), one["number"].as_i64().unwrap()))
            .collect();
        keyed.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        valueless.reverse();
        keyed.into_iter().map(|(_, number)| number).chain(numbers(&valueless)).collect()
    };
    assert_eq!(world.numbers(&[], Some("-/delay"), 5).await, ordered);
    let late: Vec<i64> =
        ordered.iter().copied().filter(|number| all[*number as usize]["late"] == true).collect();
    assert_eq!(world.numbers(&["/late = true"], Some("-/delay"), 3).await, late);
}

#[tokio::test]
async fn pages_are_read_by_values_and_matches_are_estimated() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = 'egret'";
    let before = world.query_number(indexes).await;
    let paths = "SELECT count(*) FROM egret.query_path WHERE state = 'a'";
    assert_eq!(world.query_number(paths).await, 6);
    world.apply(FLIGHTS).await.unwrap();
    let fewer = FLIGHTS.replace(r#", "/late""#, "");
    world.apply(&fewer).await.unwrap();
    assert_eq!(world.query_number(paths).await, 5);
    assert_eq!(world.query_number(indexes).await, before);
    world.client.batch_execute(
        "INSERT INTO egret.document_tenant (name) VALUES ('default') ON CONFLICT DO NOTHING;
         INSERT INTO egret.document (tenant_id, collection_id, number, id, version, modified_at, targets, body)
         SELECT 1, 2, egret.document_number(id), id, 1, now(), '{}', jsonb_build_object('number', n, 'delay', n % 100)
         FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, 20000) AS n) AS s;
         ANALYZE egret.document",
    ).await.unwrap();
    let mut find = FindQuery {
        filters: vec!["/delay = 7".to_owned()],
        count: CountMode::Planned,
        limit: Some(10),
        ..FindQuery::default()
    };
    let page = world.find("flights", &find).await.unwrap();
    assert_eq!((page.items.len(), page.count), (10, Some(200)), "few are counted");
    let read = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables WHERE relname ~ '^document_[0-9]+$'";
    let scans =
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'document_value_pkey'";
    let scanned = world.query_number(read).await;
    // The statistics of other sessions come a moment after they end what they do.
    eventually("the statistics count a use", async || {
        world.find("flights", &find).await.unwrap();
        world.client.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
        (world.query_number(scans).await > 0).then_some(())
    })
    .await;
    assert_eq!(world.query_number(read).await, scanned);
    find.filters = vec!["/delay >= 1".to_owned()];
    let page = world.find("flights", &find).await.unwrap();
    assert!(page.count.is_some_and(|count| count > 1_000), "{:?}", page.count);
    world.stop_documents().await;
}

/// Far more matches than candidates that are sorted: the statement reads another source.
#[tokio::test]
async fn wide_filters_are_tested_in_the_order_of_the_page() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    world.client.batch_execute(
        "INSERT INTO egret.document_tenant (name) VALUES ('default') ON CONFLICT DO NOTHING;
         INSERT INTO egret.document (tenant_id, collection_id, number, id, version, modified_at, targets, body)
         SELECT 1, 2, n, (lpad(to_hex(n), 16, '0') || '8000000000000000')::uuid, 1, now(), '{}',
             jsonb_build_object('number', n, 'late', n % 3 <> 0) || CASE WHEN n % 2 = 0 THEN jsonb_build_object('delay', n % 1000) ELSE '{}' END
         FROM generate_series(1, 24000) AS n",
    ).await.unwrap();
    let is_late = |number: &i64| number % 3 != 0;
    let mut expected: Vec<i64> = (1..=24_000).filter(is_late).collect();
    assert_eq!(world.numbers(&["/late = true"], None, 1_000).await, expected);
    assert_eq!(world.numbers(&["/late >= true"], None, 1_000).await, expected);
    // Without a value last, and in the order of creation among equals.
    expected.sort_by_key(|number| {
        (number % 2, if number % 2 == 0 { number % 1_000 } else { 0 }, *number)
    });
    assert_eq!(world.numbers(&["/late = true"], Some("/delay"), 1_000).await, expected);
    expected.retain(|number| number % 2 == 0 && number % 1_000 < 30);
    assert_eq!(world.numbers(&["/late = true", "/delay < 30"], Some("/delay"), 7).await, expected);
    assert_eq!(
        world.numbers(&["/delay < 30", "/late = true"], Some("/number"), 7).await.len(),
        expected.len()
    );
    world.stop_documents().await;
}

/// Doubles cannot tell these numbers apart.
#[tokio::test]
async fn numbers_compare_exactly() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    for (number, delay) in ["-9007199254740993", "-9007199254740992", "0.1", "0.30000000000000004"]
        .into_iter()
        .enumerate()
    {
        let body = format!(r#"{{"number": {number}, "delay": {delay}}}"#);
        world.create("flights", &serde_json::from_str(&body).unwrap()).await;
    }
    let read = "SELECT count(DISTINCT number_key) FROM egret.document_value AS v JOIN egret.query_path AS p USING (path_id) WHERE p.path = '{delay}'";
    let bodies = "SELECT count(DISTINCT body -> 'delay') FROM egret.document WHERE body ? 'delay'";
    assert_eq!(world.query_number(read).await, world.query_number(bodies).await);
    let order = world.numbers(&[], Some("/delay"), 10).await;
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(world.numbers(&["/delay < -9007199254740992"], None, 10).await, [0]);
    world.stop_documents().await;
}

#[tokio::test]
async fn fields_and_embedded_targets_are_returned() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    for faa in ["JFK", "LAX", "ORD"] {
        world.create("airports", &json!({"faa": faa})).await;
    }
    let flight = json!({"number": 1, "origin": "x", "from": "JFK", "stops": ["LAX", "ORD"], "where": {"it's \"here\"": "yes"}});
    let made = world.create("flights", &flight).await;
    world.create("flights", &json!({"number": 2})).await;
    let name = |name: &str| name.parse::<CollectionName>().unwrap();
    let shape = DocumentProjection {
        fields: vec![
            "/number".parse().unwrap(),
            "/where/it's \"here\"".parse().unwrap(),
            "/none".parse().unwrap(),
        ],
        embed: vec![name("origin"), name("stops")],
    };
    let find = FindQuery { projection: shape.clone(), ..FindQuery::default() };
    let page = world.find("flights", &find).await.unwrap();
    assert_eq!(page.items[0].fields, Some(json!({"number": 1, "where": {"it's \"here\"": "yes"}})));
    let embedded = json!({"origin": {"faa": "JFK"}, "stops": [{"faa": "LAX"}, {"faa": "ORD"}]});
    assert_eq!(Value::Object(page.items[0].embedded.clone()), embedded);
    assert_eq!(
        (page.items[1].fields.clone(), page.items[1].embedded.len()),
        (Some(json!({"number": 2})), 0)
    );
    let alone = world
        .documents
        .get_projected(&world.caller, &collection_name("flights"), made.id, &shape)
        .await
        .unwrap();
    assert_eq!(Value::Object(alone.embedded), embedded);
    let unknown = FindQuery {
        projection: DocumentProjection {
            embed: vec![name("plane")],
            ..DocumentProjection::default()
        },
        ..FindQuery::default()
    };
    assert_eq!(error_code(world.find("flights", &unknown).await), "query_invalid");
    let long = json!({"number": 3, "origin": "x".repeat(1_025)});
    assert_eq!(error_code(world.post("flights", &long).await), "validation_failed");
    world.create("flights", &json!({"number": 3, "origin": "x".repeat(1_024)})).await;
    world.stop().await;
}

#[tokio::test]
async fn referrers_are_returned_page_by_page() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let jfk = world.create("airports", &json!({"faa": "JFK"})).await;
    for number in 0..5 {
        world.create("flights", &json!({"number": number, "from": "JFK", "stops": ["JFK"]})).await;
    }
    let (mut cursor, mut numbers) = (None::<String>, Vec::new());
    loop {
        let airports = collection_name("airports");
        let referring = world
            .documents
            .referrers(&world.caller, &airports, jfk.id, cursor.as_deref(), Some(2))
            .await
            .unwrap();
        let each = referring.items.iter().map(|(name, stored)| {
            assert_eq!(name.as_str(), "flights");
            stored.parse_body().unwrap()["number"].as_i64().unwrap()
        });
        numbers.extend(each);
        cursor = referring.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    let wrong = world
        .documents
        .referrers(&world.caller, &collection_name("airports"), jfk.id, Some("x"), None)
        .await;
    assert_eq!(error_code(wrong), "query_invalid");
    world.stop().await;
}

#[tokio::test]
async fn abandoned_queries_are_cancelled_and_sessions_are_bounded() {
    let (config, clock, entropy) = default_parts();
    let config = DocumentsConfig {
        queries: 3,
        // Longer than PostgreSQL's `statement_timeout` can be.
        query_timeout: ConfigDuration::secs(30 * 86_400),
        ..config
    };
    let world = World::with(18, (config, clock, entropy)).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("flights", &json!({"number": 1})).await;
    let other = world.database.connect().await;
    let lock = "BEGIN; LOCK TABLE egret.document IN ACCESS EXCLUSIVE MODE";
    other.batch_execute(lock).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let find = FindQuery::default();
    for _ in 0..3 {
        tokio::select! {
            _ = join_all((0..5).map(|_| world.find("flights", &find))) => panic!("the table is locked"),
            () = world.await_number(waiting, 2) => {}
        }
        world.await_number(waiting, 0).await;
    }
    other.batch_execute("COMMIT").await.unwrap();
    let page = world.find("flights", &find).await.unwrap();
    assert_eq!(page.items.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn collections_without_rights_are_hidden() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let rights = Rights {
        read: Reach::Only(BTreeSet::from([collection_name("airports")])),
        write: Reach::Only(BTreeSet::new()),
        ..Rights::default()
    };
    let caller = Caller { rights: Arc::new(rights), ..world.caller.clone() };
    let collections = world.documents.collections(&caller).await.unwrap();
    let names: Vec<&str> = collections.iter().map(|one| one.collection.as_str()).collect();
    assert_eq!(names, ["airports"]);
    let flights = collection_name("flights");
    let hidden = world.documents.collection(&caller, &flights).await;
    assert_eq!(error_code(hidden), "collection_not_found");
    let told = async |caller: &Caller| {
        let told = world.documents.describe_openapi(caller).await.unwrap();
        let of = |name: &str| told.paths.keys().any(|path| path.contains(name));
        (of("airports"), of("flights"))
    };
    assert_eq!(told(&caller).await, (true, false));
    assert_eq!(told(&world.caller).await, (true, true));
    world.stop().await;
}

#[tokio::test]
async fn a_document_is_found_by_its_identity() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let jfk = json!({"faa": "JFK", "name": 7});
    let made = world.create("airports", &jfk).await;
    let by = |identity: &str| FindQuery {
        identity: Some(identity.to_owned()),
        count: CountMode::Exact,
        ..FindQuery::default()
    };
    let page = world.find("airports", &by(r#"{"faa": "JFK"}"#)).await.unwrap();
    let ids: Vec<_> = page.items.iter().map(|one| one.stored.id).collect();
    assert_eq!((ids, page.count), (vec![made.id], Some(1)));
    let none = world.find("airports", &by(r#"{"faa": "LGA"}"#)).await.unwrap();
    assert_eq!((none.items.len(), none.count), (0, Some(0)));
    // The same identity in another collection has another alias.
    let other = world.find("flights", &by(r#"{"number": 1}"#)).await.unwrap();
    assert!(other.items.is_empty());
    for wrong in ["{}", "5", "{", r#"{"faa": null}"#, r#"{"faa": ["JFK"]}"#] {
        assert_eq!(error_code(world.find("airports", &by(wrong)).await), "query_invalid");
    }
    let both = FindQuery { filters: vec!["/name = 7".to_owned()], ..by(r#"{"faa": "JFK"}"#) };
    assert_eq!(error_code(world.find("airports", &both).await), "query_invalid");
    world.stop().await;
}

//! Imports, exports, and size limits of pages.

use egret_base::CodedError;
use egret_base::settings::ByteSize;
use egret_base_test::eventually;
use egret_documents::DocumentsConfig;
use egret_documents::api::{Caller, DocumentProjection, FindPageItem, FindQuery};
use egret_documents::model::DocumentId;
use serde_json::{Value, json};

use crate::world::{EngineParts, FLIGHTS, World, collection_name, default_parts, error_code};

fn lines(all: &[Value]) -> Vec<u8> {
    let each = all.iter().map(|one| format!("{one}\n"));
    each.collect::<String>().into_bytes()
}

#[tokio::test]
async fn imports_are_idempotent() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let airports = collection_name("airports");
    let text = lines(&[json!({"faa": "JFK"}), json!({"faa": "LGA", "name": "La Guardia"})]);
    let import = || world.documents.import(&world.caller, &airports, &text);
    let told = import().await.unwrap();
    assert_eq!((told.created, told.changed, told.unchanged), (2, 0, 0));
    let told = import().await.unwrap();
    assert_eq!((told.created, told.changed, told.unchanged), (0, 0, 2));
    let mut export = world.documents.export(&world.caller, &airports).await.unwrap();
    let mut out = String::new();
    loop {
        let page = export.next().await.unwrap();
        if page.is_empty() {
            break;
        }
        page.iter().for_each(|one| out.push_str(&one.body));
    }
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&out).into_iter().map(Result::unwrap).collect();
    assert_eq!(documents, [json!({"faa": "JFK"}), json!({"faa": "LGA", "name": "La Guardia"})]);
    drop(export);
    world.stop().await;
}

#[tokio::test]
async fn rejected_lines_do_not_affect_others() {
    let world = World::new(15).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    let text = b"{\"number\": 1, \"origin\": \"JFK\"}\n\n{\"number\": \"x\"}\nnonsense\n{\"number\": 2, \"origin\": \"XXX\"}\r\n{\"number\": 3, \"origin\": \"JFK\"}";
    let flights = collection_name("flights");
    let told = world.documents.import(&world.caller, &flights, text).await.unwrap();
    assert_eq!(told.created, 2);
    let refused = told.rejected.iter().map(|(place, error)| (*place, error.code()));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [(2, "validation_failed"), (3, "validation_failed"), (4, "unresolved_reference")]
    );
    let many = "{}\n".repeat(egret_documents::api::IMPORT_LINES_MAX + 1);
    let refused = world.documents.import(&world.caller, &flights, many.as_bytes());
    assert_eq!(error_code(refused.await), "payload_too_large");
    world.stop().await;
}

#[tokio::test]
async fn an_export_has_one_snapshot() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let airports = collection_name("airports");
    for number in 0..10 {
        world.create("airports", &json!({"faa": format!("A{number}")})).await;
    }
    let mut export = world.documents.export(&world.caller, &airports).await.unwrap();
    let first = export.next().await.unwrap();
    for number in 0..10 {
        world.create("airports", &json!({"faa": format!("B{number}")})).await;
    }
    assert_eq!(first.len(), 10);
    assert_eq!(export.next().await.unwrap().len(), 0);
    drop(export);
    world.stop().await;
}

#[tokio::test]
async fn relaxed_imports_wait_for_no_flush() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let relaxed = Caller { is_relaxed: true, ..world.caller.clone() };
    let airports = collection_name("airports");
    let flushed = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint";
    let before = world.query_number(flushed).await;
    // Background flushes of the server happen now and then: try several times.
    let mut was_left = false;
    for number in 0..50 {
        let text = lines(&[json!({"faa": format!("A{number}")})]);
        world.documents.import(&relaxed, &airports, &text).await.unwrap();
        let written = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn())::bigint";
        was_left |= world.query_number(written).await > 0;
    }
    assert!(was_left, "flushed from {before} on after each");
    world.stop().await;
}

const PADDED: &str = r#"{"collections": [
    {"collection": "groups", "identity": ["/name"], "schema": {"type": "object",
        "properties": {"name": {"type": "string"}, "pad": {"type": "string"}}, "required": ["name"]}},
    {"collection": "items", "identity": ["/number"], "query": ["/rank"], "history": {"versions": 50, "deleted": true},
        "references": [{"name": "groups", "to": "groups", "paths": {"/groups/*": "/name"}}],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "rank": {"type": "integer"}, "pad": {"type": "string"},
            "groups": {"type": "array", "items": {"type": "string"}}}, "required": ["number"]}}
]}"#;

const PAGE_BYTES: usize = 64 << 10;

fn bounded() -> EngineParts {
    let (config, clock, entropy) = default_parts();
    let config = DocumentsConfig { page_bytes_max: ByteSize(PAGE_BYTES as u64), ..config };
    (config, clock, entropy)
}

/// Hundreds of small items, then larger ones, and one that exceeds the size of a page.
fn items() -> Vec<Value> {
    let item = |number: usize| {
        let pad = match number {
            410 => 2 * PAGE_BYTES,
            300.. => 5_000,
            _ => 20,
        };
        let mut item = json!({"number": number, "groups": ["a"], "pad": "x".repeat(pad)});
        if !number.is_multiple_of(3) {
            item["rank"] = json!(number % 10);
        }
        item
    };
    (0..420).map(item).collect()
}

/// Checks that the bodies of a page fit its size, unless it is a single one.
fn assert_bounded<'a>(bodies: impl Iterator<Item = &'a String>) -> usize {
    let bytes: Vec<usize> = bodies.map(String::len).collect();
    assert!(bytes.len() == 1 || bytes.iter().sum::<usize>() <= PAGE_BYTES);
    bytes.len()
}

fn number(body: &str) -> i64 {
    serde_json::from_str::<Value>(body).unwrap()["number"].as_i64().unwrap()
}

impl World {
    async fn padded(&self) {
        self.apply(PADDED).await.unwrap();
        self.create("groups", &json!({"name": "a"})).await;
        let (name, text) = (collection_name("items"), lines(&items()));
        let told = self.documents.import(&self.caller, &name, &text).await;
        assert_eq!(told.unwrap().created, 420);
    }

    /// The items in the order of their numbers as JSON text.
    async fn in_order(&self, order: &str) -> Vec<i64> {
        let sql = format!(
            "SELECT (body ->> 'number')::bigint FROM egret.document WHERE body ? 'number' ORDER BY {order}"
        );
        let rows = self.client.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// All documents found page by page, and the number on each page.
    async fn paged(&self, sort: Option<&str>, limit: u32) -> (Vec<FindPageItem>, Vec<usize>) {
        let mut find =
            FindQuery { sort: sort.map(str::to_owned), limit: Some(limit), ..FindQuery::default() };
        let name = collection_name("items");
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        loop {
            let page = self.documents.find(&self.caller, &name, &find).await.unwrap();
            let bodies = page.items.iter().map(|found| &found.stored.body);
            counts.push(assert_bounded(bodies));
            all.extend(page.items);
            find.cursor = page.next;
            if find.cursor.is_none() {
                return (all, counts);
            }
        }
    }
}

#[tokio::test]
async fn a_page_ends_before_it_has_too_much_and_the_next_goes_on_after_it() {
    for version in [15, 18] {
        let world = World::with(version, bounded()).await;
        world.padded().await;
        let rank = "(body ->> 'rank')::numeric";
        for (sort, order) in [
            (None, "number".to_owned()),
            (Some("/rank"), format!("{rank} NULLS LAST, number")),
            (Some("-/rank"), format!("{rank} DESC NULLS LAST, number DESC")),
        ] {
            let expected = world.in_order(&order).await;
            for limit in [7, 127, 128, 1_000] {
                let (found, counts) = world.paged(sort, limit).await;
                let found = found.iter().map(|one| number(&one.stored.body));
                assert_eq!(found.collect::<Vec<_>>(), expected, "{sort:?} {limit}");
                assert!(counts.iter().all(|count| (1..=limit as usize).contains(count)));
                // More than ten times the size of a page.
                assert!(counts.len() > 10, "{counts:?}");
            }
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn referrers_and_versions_are_paged_by_bytes_too() {
    let world = World::with(18, bounded()).await;
    world.padded().await;
    let (documents, caller) = (&world.documents, &world.caller);
    let (groups, items) = (collection_name("groups"), collection_name("items"));
    let expected = world.in_order("number").await;
    let group = world.create("groups", &json!({"name": "a"})).await.id;
    let (mut cursor, mut found) = (None::<String>, Vec::new());
    loop {
        let page = documents
            .referrers(caller, &groups, group, cursor.as_deref(), Some(1_000))
            .await
            .unwrap();
        assert_bounded(page.items.iter().map(|(_, stored)| &stored.body));
        found.extend(page.items.iter().map(|(_, one)| number(&one.body)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, expected);

    let (all, _) = world.paged(None, 1_000).await;
    let is_larger = |one: &&FindPageItem| one.stored.body.len() > 4_000;
    let larger: Vec<&FindPageItem> = all.iter().filter(is_larger).collect();
    let last = larger[larger.len() - 1];
    for pad in 0..40 {
        let pad = format!("{pad}{}", "y".repeat(5_000));
        let body = json!({"number": number(&last.stored.body), "pad": pad});
        world.create("items", &body).await;
    }
    let (mut cursor, mut found, mut pages) = (None::<String>, Vec::new(), 0);
    loop {
        let id = last.stored.id;
        let page =
            documents.versions(caller, &items, id, cursor.as_deref(), Some(1_000)).await.unwrap();
        assert_bounded(page.items.iter().map(|version| &version.body));
        found.extend(page.items.iter().map(|version| version.version));
        (cursor, pages) = (page.next, pages + 1);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, (1..=40).rev().collect::<Vec<i32>>());
    assert!(pages > 3, "{pages}");

    let gone: Vec<DocumentId> = larger[..40].iter().map(|one| one.stored.id).collect();
    for id in &gone {
        world.delete("items", *id).await.unwrap();
    }
    let (mut cursor, mut found, mut pages) = (None::<String>, Vec::new(), 0);
    loop {
        let page = documents.deleted(caller, &items, cursor.as_deref(), Some(1_000)).await.unwrap();
        assert_bounded(page.items.iter().map(|version| &version.body));
        found.extend(page.items.iter().map(|version| version.id));
        (cursor, pages) = (page.next, pages + 1);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, gone);
    assert!(pages > 3, "{pages}");
    world.stop().await;
}

#[tokio::test]
async fn embedded_documents_are_bounded() {
    let world = World::with(18, bounded()).await;
    world.apply(PADDED).await.unwrap();
    let names: Vec<String> = (0..10).map(|number| format!("g{number}")).collect();
    for name in &names {
        let group = json!({"name": name, "pad": "z".repeat(10_000)});
        world.create("groups", &group).await;
    }
    for number in 0..3 {
        let item = json!({"number": number, "groups": &names[..4]});
        world.create("items", &item).await;
    }
    let all = json!({"number": 3, "groups": names});
    let all = world.create("items", &all).await.id;
    let (documents, caller, items) = (&world.documents, &world.caller, collection_name("items"));
    let shape = DocumentProjection {
        embed: vec![collection_name("groups")],
        ..DocumentProjection::default()
    };
    let of =
        |limit| FindQuery { limit: Some(limit), projection: shape.clone(), ..FindQuery::default() };
    let page = documents.find(caller, &items, &of(1)).await.unwrap();
    let embedded = page.items[0].embedded["groups"].as_array().unwrap();
    assert_eq!(embedded.len(), 4);
    // Several references to the same documents.
    let refused = documents.find(caller, &items, &of(3)).await.unwrap_err();
    assert_eq!(refused.code(), "embedded_too_large");
    assert!(refused.to_string().contains("documents.page_bytes_max"));
    assert!(!refused.retryable());
    let refused = documents.get_projected(caller, &items, all, &shape);
    assert_eq!(error_code(refused.await), "embedded_too_large");
    // The limit also holds for many small documents.
    let many: Vec<Value> = (0..700).map(|n| json!({"name": format!("{n}")})).collect();
    let (groups, text) = (collection_name("groups"), lines(&many));
    let imported = documents.import(caller, &groups, &text).await;
    assert_eq!(imported.unwrap().created, 700);
    let names: Vec<&Value> = many.iter().map(|group| &group["name"]).collect();
    let some = json!({"number": 4, "groups": &names[..400]});
    let some = world.create("items", &some).await.id;
    let found = documents.get_projected(caller, &items, some, &shape).await;
    let embedded = &found.unwrap().embedded;
    assert_eq!(embedded["groups"], Value::from(many[..400].to_vec()));
    let each = json!({"number": 5, "groups": names});
    let each = world.create("items", &each).await.id;
    let refused = documents.get_projected(caller, &items, each, &shape);
    assert_eq!(error_code(refused.await), "embedded_too_large");
    world.stop().await;
}

#[tokio::test]
async fn exports_are_bounded_in_number_and_chunk_size() {
    let (config, clock, entropy) = default_parts();
    let config = DocumentsConfig { exports: 1, ..config };
    let world = World::with(18, (config, clock, entropy)).await;
    world.apply(FLIGHTS).await.unwrap();
    for number in 0..12 {
        let name = "x".repeat(900_000);
        let airport = json!({"faa": format!("A{number}"), "name": name});
        world.create("airports", &airport).await;
    }
    let airports = collection_name("airports");
    let export = || world.documents.export(&world.caller, &airports);
    let mut first = export().await.unwrap();
    let refused = export().await.err().unwrap();
    assert_eq!((refused.code(), refused.retryable()), ("overloaded", true));
    assert!(refused.to_string().contains("documents.exports"));
    let mut counts = Vec::new();
    loop {
        let page = first.next().await.unwrap();
        if page.is_empty() {
            break;
        }
        let bytes: usize = page.iter().map(|one| one.body.len()).sum();
        assert!(bytes <= 4 << 20, "{bytes}");
        counts.push(page.len());
    }
    assert_eq!(counts, [4, 4, 4]);
    drop(first);
    // Its session ends asynchronously.
    eventually("the export's session is given back", export).await;
    world.stop().await;
}

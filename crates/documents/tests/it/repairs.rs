//! Consistency check and repair.

use egret_base_test::eventually;
use egret_documents::api::{FindingKind, FsckReport};
use serde_json::json;

use crate::world::{FLIGHTS, World, error_code};

async fn world() -> World {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    for faa in ["JFK", "LGA"] {
        world.create("airports", &json!({"faa": faa})).await;
    }
    for number in 1..=3 {
        let flight = json!({"number": number, "origin": "JFK", "stops": ["LGA"]});
        world.create("flights", &flight).await;
    }
    world
}

async fn fsck(world: &World, repair: bool) -> FsckReport {
    world.documents.fsck(&world.caller, repair).await.unwrap()
}

fn kinds(checked: &FsckReport) -> Vec<(FindingKind, bool)> {
    let each = checked.findings.iter();
    each.map(|one| (one.kind, one.is_repaired)).collect()
}

#[tokio::test]
async fn a_consistent_database_has_no_findings() {
    let world = world().await;
    let checked = fsck(&world, false).await;
    assert_eq!((checked.documents, checked.aliases, checked.edges, checked.count), (5, 5, 6, 0));
    world.stop().await;
}

#[tokio::test]
async fn aliases_and_edges_are_repaired() {
    use FindingKind::{AliasMissing, AliasStale, EdgeStale, Edges};
    let world = world().await;
    let damage = "DELETE FROM egret.document_alias WHERE number = (SELECT number FROM egret.document WHERE body ->> 'number' = '1');
        UPDATE egret.document_edge SET target_2 = NULL WHERE source = (SELECT number FROM egret.document WHERE body ->> 'number' = '2');
        UPDATE egret.document SET targets = '{}' WHERE body ->> 'number' = '3';
        INSERT INTO egret.document_edge (tenant_id, collection_id, source, target) SELECT 1, 2, 7, number FROM egret.document WHERE body ->> 'faa' = 'LGA';
        INSERT INTO egret.document_alias SELECT 1, collection_id, gen_random_uuid(), number FROM egret.document WHERE body ->> 'number' = '3'";
    world.client.batch_execute(damage).await.unwrap();
    let found = fsck(&world, false).await;
    let mut told = kinds(&found);
    told.sort_by_key(|(kind, _)| kind.as_str());
    told.dedup();
    assert_eq!(
        told,
        [(AliasMissing, false), (AliasStale, false), (EdgeStale, false), (Edges, false)]
    );
    let repaired = fsck(&world, true).await;
    assert!(repaired.findings.iter().all(|one| one.is_repaired));
    assert_eq!(fsck(&world, false).await.count, 0);
    world.stop().await;
}

#[tokio::test]
async fn unrepairable_findings_are_reported() {
    let world = world().await;
    let damage = "DELETE FROM egret.document WHERE body ->> 'faa' = 'LGA';
        DELETE FROM egret.document_alias AS a WHERE NOT EXISTS (SELECT FROM egret.document AS d WHERE d.number = a.number);
        UPDATE egret.document SET body = '{\"number\": \"none\"}' WHERE body ->> 'number' = '3'";
    world.client.batch_execute(damage).await.unwrap();
    let found = fsck(&world, true).await;
    let count = |kind| found.findings.iter().filter(|one| one.kind == kind).count();
    assert_eq!(count(FindingKind::Dangling), 2);
    assert_eq!(count(FindingKind::Body), 1);
    assert!(found.findings.iter().all(|one| {
        let is_of_owner = matches!(one.kind, FindingKind::Dangling | FindingKind::Body);
        !(is_of_owner && one.is_repaired)
    }));
    world.stop_documents().await;
}

#[tokio::test]
async fn a_damaged_document_affects_no_other() {
    let world = world().await;
    let damage = "UPDATE egret.document SET body = body - 'number' WHERE body ->> 'number' = '1'";
    world.client.batch_execute(damage).await.unwrap();
    let damaged =
        "SELECT id FROM egret.document WHERE body ->> 'number' IS NULL AND body ->> 'faa' IS NULL";
    let row = world.client.query_one(damaged, &[]).await.unwrap();
    let id = egret_documents::model::DocumentId::from_stored(row.get(0));
    for round in 0..5 {
        let other = json!({"faa": format!("O{round}")});
        let (refused, done) =
            futures_util::future::join(world.delete("flights", id), world.post("airports", &other))
                .await;
        assert_eq!(error_code(refused), "document_damaged");
        done.unwrap();
    }
    world.stop_documents().await;
}

#[tokio::test]
async fn an_edge_from_nowhere_holds_up_nobody() {
    let world = world().await;
    let damage = "INSERT INTO egret.document_edge (tenant_id, collection_id, source, target) SELECT 1, 2, 7, number FROM egret.document WHERE body ->> 'faa' = 'LGA'";
    world.client.batch_execute(damage).await.unwrap();
    for number in 1..=3 {
        let flight = json!({"number": number, "origin": "JFK"});
        world.create("flights", &flight).await;
    }
    let lga = world.create("airports", &json!({"faa": "LGA"})).await;
    assert_eq!(error_code(world.delete("airports", lga.id).await), "still_referenced");
    fsck(&world, true).await;
    world.delete("airports", lga.id).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_database_that_was_restored_is_read_anew() {
    let world = world().await;
    let jfk = json!({"faa": "JFK"});
    let before = world.create("airports", &jfk).await;
    let epoch = "SELECT epoch FROM egret.document_owner";
    let owned = world.query_number(epoch).await;
    // As after a restore in which tenants were numbered differently.
    let restored = "BEGIN;
        ALTER TABLE egret.document_tenant ALTER tenant_id SET GENERATED BY DEFAULT;
        UPDATE egret.document_tenant SET tenant_id = 7;
        UPDATE egret.document SET tenant_id = 7;
        UPDATE egret.document_alias SET tenant_id = 7;
        UPDATE egret.document_edge SET tenant_id = 7;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
        COMMIT";
    world.client.batch_execute(restored).await.unwrap();
    eventually("the owner changes", async || world.query_number(epoch).await != owned).await;
    // Terminated sessions are noticed one by one.
    let after = eventually("a write succeeds", async || {
        let after = world.post("airports", &jfk).await;
        if let Err(error) = &after {
            assert_eq!(egret_base::CodedError::code(error), "unavailable", "{error}");
        }
        after
    })
    .await;
    assert_eq!((after.id, after.version), (before.id, before.version));
    world.stop_documents().await;
}

#[tokio::test]
async fn a_repair_leaves_no_findings() {
    let world = world().await;
    // One document notes a target that its body lacks, and edges of another have a wrong
    // collection.
    let damage = "UPDATE egret.document SET targets = targets || (SELECT array_agg(number) FROM egret.document WHERE body ->> 'number' = '3')
            WHERE body ->> 'number' = '1';
        INSERT INTO egret.document_edge (tenant_id, collection_id, source, target) SELECT d.tenant_id, d.collection_id, d.number, t.number FROM egret.document AS d, egret.document AS t
            WHERE d.body ->> 'number' = '1' AND t.body ->> 'number' = '3';
        UPDATE egret.document_edge SET collection_id = collection_id + 100
            WHERE source = (SELECT number FROM egret.document WHERE body ->> 'number' = '2')";
    world.client.batch_execute(damage).await.unwrap();
    let repaired = fsck(&world, true).await;
    assert!(repaired.count > 0);
    assert!(repaired.findings.iter().all(|one| one.is_repaired));
    assert_eq!(fsck(&world, false).await.findings, []);
    world.stop().await;
}

#[tokio::test]
async fn a_document_that_cannot_be_read_keeps_the_edges_that_it_notes() {
    let world = world().await;
    let damage = "UPDATE egret.document SET body = body - 'number' WHERE body ->> 'number' = '3';
        UPDATE egret.document_edge SET target_2 = 7
            WHERE source = (SELECT number FROM egret.document WHERE body ->> 'number' IS NULL AND body ->> 'faa' IS NULL)";
    world.client.batch_execute(damage).await.unwrap();
    let mut told = kinds(&fsck(&world, true).await);
    told.sort_by_key(|(kind, _)| kind.as_str());
    assert_eq!(
        told,
        [(FindingKind::Body, false), (FindingKind::EdgeStale, true), (FindingKind::Edges, true)]
    );
    let as_noted = "SELECT count(*) FROM egret.document_edge AS e JOIN egret.document AS d ON d.number = e.source AND d.collection_id = e.collection_id \
         WHERE d.targets = ARRAY[e.target, e.target_2]";
    assert_eq!(world.query_number(as_noted).await, 3);
    assert_eq!(kinds(&fsck(&world, false).await), [(FindingKind::Body, false)]);
    world.stop_documents().await;
}

#[tokio::test]
async fn a_document_that_cannot_be_read_keeps_what_it_refers_to() {
    let world = world().await;
    let damage = "UPDATE egret.document SET body = body - 'number' WHERE body ->> 'number' = '3';
        UPDATE egret.document_edge SET collection_id = collection_id + 100
            WHERE source = (SELECT number FROM egret.document WHERE body ->> 'number' IS NULL AND body ->> 'faa' IS NULL);
        DELETE FROM egret.document_edge WHERE source IN (SELECT number FROM egret.document WHERE body ->> 'number' = '2')";
    world.client.batch_execute(damage).await.unwrap();
    fsck(&world, true).await;
    let as_noted = "SELECT count(*) FROM egret.document_edge AS e JOIN egret.document AS d ON d.number = e.source AND d.collection_id = e.collection_id \
         WHERE d.targets = ARRAY[e.target, e.target_2]";
    assert_eq!(world.query_number(as_noted).await, 3);
    assert_eq!(world.query_number("SELECT count(*) FROM egret.document_edge").await, 3);
    assert_eq!(kinds(&fsck(&world, false).await), [(FindingKind::Body, false)]);
    world.stop_documents().await;
}

//! References as foreign keys (`documents.strict_foreign_keys`).

use egret_documents::DocumentsConfig;
use serde_json::json;

use crate::world::{FLIGHTS, World, default_parts, error_code};

async fn refused(version: u32) {
    let (_, clock, entropy) = default_parts();
    let config = DocumentsConfig { strict_foreign_keys: true, ..DocumentsConfig::default() };
    let world = World::with(version, (config, clock, entropy)).await;
    world.apply(FLIGHTS).await.unwrap();
    let airport = world.create("airports", &json!({"faa": "JFK"})).await;
    let flight = world.create("flights", &json!({"number": 1, "origin": "JFK"})).await;
    assert_eq!(error_code(world.delete("airports", airport.id).await), "still_referenced");
    // With edges removed or added behind Egret's back, the server's foreign keys still reject the
    // deletion.
    let behind = "DELETE FROM egret.document_edge; UPDATE egret.document SET targets = '{}'";
    world.client.batch_execute(behind).await.unwrap();
    let hidden = "INSERT INTO egret.document_edge (tenant_id, collection_id, source, target) SELECT tenant_id, collection_id, number, number FROM egret.document WHERE body ? 'faa'";
    world.client.batch_execute(hidden).await.unwrap();
    assert_eq!(error_code(world.delete("airports", airport.id).await), "still_referenced");
    let undo = "DELETE FROM egret.document_edge";
    world.client.batch_execute(undo).await.unwrap();
    world.documents.fsck(&world.caller, true).await.unwrap();
    world.delete("flights", flight.id).await.unwrap();
    // A cached alias whose document was deleted behind Egret's back.
    let gone = "DELETE FROM egret.document WHERE body ? 'faa'";
    world.client.batch_execute(gone).await.unwrap();
    world.client.batch_execute("UPDATE egret.document_owner SET number = number").await.unwrap();
    assert_eq!(
        error_code(world.post("flights", &json!({"number": 2, "origin": "JFK"})).await),
        "unresolved_reference"
    );
    world.stop_documents().await;
}

#[tokio::test]
async fn the_server_refuses_by_itself_up_to_17() {
    refused(17).await;
}

#[tokio::test]
async fn the_server_refuses_by_itself_from_18_on() {
    refused(18).await;
}

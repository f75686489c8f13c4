//! Changes of definitions of collections with documents.

use egret_documents::DocumentsError;
use egret_documents::api::DeclarationOutcome;
use serde_json::json;

use crate::world::{FLIGHTS, World, error_code};

async fn outcomes(world: &World, file: &str) -> Result<Vec<DeclarationOutcome>, DocumentsError> {
    let applied = world.apply(file).await?;
    Ok(applied.into_iter().map(|one| one.outcome).collect())
}

#[tokio::test]
async fn a_definition_is_rejected_with_the_documents_that_violate_it() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let outcomes = async |file: &str| outcomes(&world, file).await;
    assert_eq!(
        outcomes(FLIGHTS).await.unwrap(),
        [DeclarationOutcome::Unchanged, DeclarationOutcome::Unchanged]
    );
    let jfk = world.create("airports", &json!({"faa": "JFK"})).await;
    world.create("airports", &json!({"faa": "LAX", "name": "Los Angeles"})).await;
    let stricter = FLIGHTS.replace(r#""required": ["faa"]"#, r#""required": ["faa", "name"]"#);
    let refused = world.apply(&stricter).await.unwrap_err();
    let DocumentsError::DefinitionInvalid { violations } = &refused else { panic!("{refused}") };
    assert_eq!(violations.len(), 1);
    assert!(violations[0].message.starts_with(&format!("document {}: ", jfk.id)), "{refused}");
    // Nothing of the rejected definition is in effect.
    world.create("airports", &json!({"faa": "ORD"})).await;
    for faa in ["JFK", "ORD"] {
        world.create("airports", &json!({"faa": faa, "name": "named"})).await;
    }
    assert_eq!(
        outcomes(&stricter).await.unwrap(),
        [DeclarationOutcome::Changed, DeclarationOutcome::Unchanged]
    );
    assert_eq!(
        error_code(world.post("airports", &json!({"faa": "SFO"})).await),
        "validation_failed"
    );

    world.stop().await;
}

/// Airports with two kinds of codes, an abstract collection of places, and flights.
fn places(airports: &str, references: &str) -> String {
    format!(
        r#"{{"collections": [
    {{"collection": "places", "abstract": true, "identity": ["/code"]}},
    {{"collection": "airports", {airports}, "schema": {{"type": "object", "properties": {{"faa": {{"type": "string"}},
        "icao": {{"type": "string"}}}}, "required": ["faa", "icao"]}}}},
    {{"collection": "flights", "identity": ["/number"], "references": [{references}],
        "schema": {{"type": "object", "properties": {{"number": {{"type": "integer"}}, "origin": {{"type": "string"}}, "icao": {{"type": "string"}},
            "at": {{"type": "string"}}}}, "required": ["number"]}}}}
]}}"#
    )
}

const BY_FAA: &str = r#""identity": ["/faa"]"#;
const TO_FAA: &str = r#"{"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}}"#;
const TO_ICAO: &str = r#"{"name": "origin", "to": "airports", "paths": {"/icao": "/icao"}}"#;

/// The message for the first document that is invalid under a definition.
async fn refused(world: &World, file: &str) -> String {
    let DocumentsError::DefinitionInvalid { violations } = world.apply(file).await.unwrap_err()
    else {
        panic!("it is taken")
    };
    violations[0].message.clone()
}

#[tokio::test]
async fn references_are_rebuilt_when_their_declaration_changes() {
    let world = World::new(18).await;
    world.apply(&places(BY_FAA, "")).await.unwrap();
    let jfk = world.create("airports", &json!({"faa": "JFK", "icao": "KJFK"})).await;
    let body = json!({"number": 1, "origin": "JFK", "icao": "KJFK"});
    let flight = world.create("flights", &body).await;
    let lost = world.create("flights", &json!({"number": 2, "origin": "LAX"})).await;
    let message = refused(&world, &places(BY_FAA, TO_FAA)).await;
    let said = format!("document {}: `airports` has no document with /faa", lost.id);
    assert!(message.starts_with(&said), "{message}");
    world.delete("flights", lost.id).await.unwrap();
    world.apply(&places(BY_FAA, TO_FAA)).await.unwrap();
    assert_eq!(error_code(world.delete("airports", jfk.id).await), "still_referenced");
    // It was not rewritten: neither its version nor the feed has changed.
    assert_eq!(world.create("flights", &body).await.version, flight.version);
    world.check_tables().await;
    // Another identity of the target, and references by it.
    let message = refused(&world, &places(r#""identity": ["/icao"]"#, TO_FAA)).await;
    assert!(message.starts_with("the identity of `airports` is `/icao`"), "{message}");
    world.create("airports", &json!({"faa": "XXX", "icao": "KXXX"})).await;
    let twice = world.create("airports", &json!({"faa": "YYY", "icao": "KXXX"})).await;
    let by_icao = places(r#""identity": ["/icao"]"#, TO_ICAO);
    let message = refused(&world, &by_icao).await;
    assert!(message.ends_with("another document has its identity"), "{message}");
    world.delete("airports", twice.id).await.unwrap();
    world.apply(&by_icao).await.unwrap();
    world.check_tables().await;
    assert_eq!(error_code(world.delete("airports", jfk.id).await), "still_referenced");
    let same = world.create("airports", &json!({"faa": "KEN", "icao": "KJFK"})).await;
    assert_eq!((same.id, same.version), (jfk.id, 2));
    // Without the reference.
    world.apply(&places(r#""identity": ["/icao"]"#, "")).await.unwrap();
    world.delete("airports", jfk.id).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn aliases_in_abstract_collections_are_rebuilt() {
    let world = World::new(18).await;
    let extends = |path: &str| {
        format!(
            r#"{BY_FAA}, "extends": [{{"collection": "places", "identity": {{"{path}": "/code"}}}}]"#
        )
    };
    let at = r#"{"name": "at", "to": "places", "paths": {"/at": "/code"}}"#;
    world.apply(&places(BY_FAA, "")).await.unwrap();
    let jfk = world.create("airports", &json!({"faa": "JFK", "icao": "KJFK"})).await;
    world.create("flights", &json!({"number": 1, "at": "JFK"})).await;
    let message = refused(&world, &places(BY_FAA, at)).await;
    assert!(message.contains("`places` has no document with /code"), "{message}");
    world.apply(&places(&extends("/faa"), at)).await.unwrap();
    world.check_tables().await;
    assert_eq!(error_code(world.delete("airports", jfk.id).await), "still_referenced");
    // The flight's reference would have no target.
    for airports in [BY_FAA.to_owned(), extends("/icao")] {
        let message = refused(&world, &places(&airports, at)).await;
        assert!(message.contains("`places` has no document with /code"), "{message}");
    }
    world.apply(&places(&extends("/icao"), "")).await.unwrap();
    world.delete("airports", jfk.id).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_satisfy_the_new_definition() {
    let world = std::sync::Arc::new(World::new(18).await);
    world.apply(FLIGHTS).await.unwrap();
    let strict = FLIGHTS.replace(
        r#""name": {"type": "string"}}"#,
        r#""name": {"type": "string", "maxLength": 3}}"#,
    );
    let strict = strict.replace(r#""required": ["faa"]"#, r#""required": ["faa", "name"]"#);
    for round in 0..10 {
        let writers = (0..8).map(|writer| {
            let world = world.clone();
            tokio::spawn(async move {
                let body = json!({"faa": format!("{round}-{writer}"), "name": "a long name"});
                world.post("airports", &body).await.map(|_| ()).map_err(|error| error.to_string())
            })
        });
        let writers: Vec<_> = writers.collect();
        let is_strict = world.apply(&strict).await.is_ok();
        for writer in writers {
            _ = writer.await.unwrap();
        }
        let long = "SELECT count(*) FROM egret.document WHERE length(body ->> 'name') > 3";
        let long = world.query_number(long).await;
        assert!(!is_strict || long == 0, "round {round}: {long}");
        world.client.batch_execute("SELECT 1").await.unwrap();
        if is_strict {
            world.apply(FLIGHTS).await.unwrap();
        }
        // Deletes the documents created, so that the next round starts empty.
        let page = world
            .documents
            .find(&world.caller, &crate::world::collection_name("airports"), &Default::default())
            .await
            .unwrap();
        for found in page.items {
            world.delete("airports", found.stored.id).await.unwrap();
        }
    }
    std::sync::Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test]
async fn wide_identities_are_taken_and_misspelt_keywords_reported() {
    let world = World::new(18).await;
    let names: Vec<String> = (1..=20).map(|number| format!("p{number}")).collect();
    let identity: Vec<String> = names.iter().map(|name| format!("/{name}")).collect();
    let properties: serde_json::Map<String, serde_json::Value> =
        names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
    let schema =
        json!({"type": "object", "required": names, "properties": properties, "maxPropertys": 20});
    let wide = json!({"collection": "wide", "identity": identity, "schema": schema});
    let applied = world.apply(&wide.to_string()).await.unwrap();
    let warnings: Vec<String> = applied[0].warnings.iter().map(ToString::to_string).collect();
    let expected = "/schema/maxPropertys: `maxPropertys` is not a keyword and checks nothing: is `maxProperties` meant?";
    assert_eq!(warnings, [expected]);
    let document: serde_json::Map<String, serde_json::Value> =
        names.iter().map(|name| (name.clone(), json!(name))).collect();
    world.create("wide", &document.into()).await;
    world.stop().await;
}

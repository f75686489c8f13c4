//! Definitions that change while there are documents.

use egret_documents::DocumentsError;
use egret_documents::api::Outcome;
use serde_json::json;

use crate::world::{FLIGHTS, World, code};

async fn outcomes(world: &World, file: &str) -> Result<Vec<Outcome>, DocumentsError> {
    let applied = world.apply(file).await?;
    Ok(applied.into_iter().map(|one| one.outcome).collect())
}

#[tokio::test]
async fn a_definition_that_documents_are_not_is_refused_with_the_documents() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let outcomes = async |file: &str| outcomes(&world, file).await;
    assert_eq!(
        outcomes(FLIGHTS).await.unwrap(),
        [Outcome::Unchanged, Outcome::Unchanged]
    );
    let jfk = world.made("airports", &json!({"faa": "JFK"})).await;
    world
        .made("airports", &json!({"faa": "LAX", "name": "Los Angeles"}))
        .await;
    let stricter = FLIGHTS.replace(r#""required": ["faa"]"#, r#""required": ["faa", "name"]"#);
    let refused = world.apply(&stricter).await.unwrap_err();
    let DocumentsError::DefinitionInvalid { violations } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(violations.len(), 1);
    assert!(
        violations[0]
            .message
            .starts_with(&format!("document {}: ", jfk.id)),
        "{refused}"
    );
    // Nothing of it holds.
    world.made("airports", &json!({"faa": "ORD"})).await;
    for faa in ["JFK", "ORD"] {
        world
            .made("airports", &json!({"faa": faa, "name": "named"}))
            .await;
    }
    assert_eq!(
        outcomes(&stricter).await.unwrap(),
        [Outcome::Changed, Outcome::Unchanged]
    );
    assert_eq!(
        code(world.post("airports", &json!({"faa": "SFO"})).await),
        "validation_failed"
    );

    world
        .made("flights", &json!({"number": 1, "origin": "JFK"}))
        .await;
    let without = FLIGHTS.replace(
        r#"{"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}},"#,
        "",
    );
    assert_eq!(code(world.apply(&without).await), "definition_invalid");
    let other = FLIGHTS.replace(
        r#""identity": ["/number"]"#,
        r#""identity": ["/number", "/origin"]"#,
    );
    assert_eq!(code(world.apply(&other).await), "definition_invalid");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_meanwhile_is_what_the_definition_says() {
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
                world
                    .post("airports", &body)
                    .await
                    .map(|_| ())
                    .map_err(|error| error.to_string())
            })
        });
        let writers: Vec<_> = writers.collect();
        let is_strict = world.apply(&strict).await.is_ok();
        for writer in writers {
            _ = writer.await.unwrap();
        }
        let long = "SELECT count(*) FROM egret.document WHERE length(body ->> 'name') > 3";
        let long = world.number(long).await;
        assert!(!is_strict || long == 0, "round {round}: {long}");
        world.client.batch_execute("SELECT 1").await.unwrap();
        if is_strict {
            world.apply(FLIGHTS).await.unwrap();
        }
        // Those that were taken go, so that the next round begins without.
        let page = world
            .documents
            .find(
                &world.caller,
                &crate::world::named("airports"),
                &Default::default(),
            )
            .await
            .unwrap();
        for found in page.items {
            world.delete("airports", found.stored.id).await.unwrap();
        }
    }
    std::sync::Arc::into_inner(world).unwrap().stop().await;
}

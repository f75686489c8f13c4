//! The document of all routes is `docs/reference/openapi.json`.

use std::sync::Arc;

use egret_base::{ManualClock, SeededEntropy, Timestamp};
use expect_test::expect_file;
use serde_json::Value;

use super::OpenApiDocument;
use crate::http;
use crate::tokens::Tokens;

/// The document of all routes, in the order in which the binary adds them.
fn document() -> Value {
    let mut collected = http::documented().into_openapi();
    for routes in [
        http::clock::documented().into_openapi(),
        http::queues::documented().into_openapi(),
        http::outboxes::documented().into_openapi(),
        http::series::documented().into_openapi(),
        http::views::documented().into_openapi(),
        http::installations::documented().into_openapi(),
        http::documents::documented().into_openapi(),
        http::branches::documented().into_openapi(),
        http::branches::documented_connection().into_openapi(),
    ] {
        collected.merge(routes);
    }
    let directory = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(
        &directory.path().join("state.db"),
        &["branches", "documents", "queue", "series", "views"],
        Arc::new(ManualClock::starting_at(Timestamp::from_micros(0))),
        Arc::new(SeededEntropy::new(1)),
    )
    .unwrap();
    let document = OpenApiDocument::complete(&collected, env!("CARGO_PKG_VERSION"), &tokens);
    serde_json::from_slice(&document.unwrap().json).unwrap()
}

#[test]
fn the_reference_is_the_openapi_document_of_the_server() {
    let mut text = serde_json::to_string_pretty(&document()).unwrap();
    text.push('\n');
    expect_file!["../../../../docs/reference/openapi.json"].assert_eq(&text);
}

//! How fast bodies of a kilobyte are read: by serde_json, by our own parser, and as documents of a
//! collection with eight references.
//!
//! `cargo run --release -p egret-documents --example read_speed`

use std::hint::black_box;
use std::time::Instant;

use egret_documents::core::collection::Collection;
use egret_documents::core::definition::{self, Definitions};
use egret_documents::core::json::parse_document;
use serde_json::{Value, json};

const BODIES: u32 = 100_000;

fn main() {
    let definitions = Definitions::default();
    let file = serde_json::to_vec(&file()).expect("a value is JSON");
    let given = definition::parse(&file).expect("the definitions are right");
    let definitions = definitions.with(given).expect("they fit together");
    let name = "flights".parse().expect("it is a name");
    let flights = definitions.get(&name).expect("it is declared");
    let flights = Collection::compile(&definitions, flights).expect("it fits");
    let body = serde_json::to_vec(&body()).expect("a value is JSON");
    println!("a body has {} bytes", body.len());
    measure("serde_json", || {
        black_box(serde_json::from_slice::<Value>(black_box(&body)).expect("it is JSON"));
    });
    measure("json::read_document", || {
        black_box(parse_document(black_box(&body), 1 << 20).expect("it is JSON"));
    });
    let value = parse_document(&body, 1 << 20).expect("it is JSON");
    let schema = flights.schema().expect("it is not abstract");
    measure("Schema::check", || {
        black_box(schema.validate(black_box(&value))).expect("it matches");
    });
    measure("Collection::read", || {
        black_box(flights.parse(black_box(&body), 1 << 20).expect("it matches"));
    });
}

fn measure(what: &str, mut once: impl FnMut()) {
    let started = Instant::now();
    (0..BODIES).for_each(|_| once());
    let each = started.elapsed().as_secs_f64() / f64::from(BODIES);
    println!("{what}: {:.2} µs, {:.0}/s", each * 1e6, 1.0 / each);
}

fn file() -> Value {
    let references: Vec<Value> = (0..8)
        .map(|n| json!({"name": format!("r{n}"), "to": "airports", "paths": {format!("/to/r{n}"): "/faa"}}))
        .collect();
    let targets: Value = (0..8).map(|n| (format!("r{n}"), json!({"type": "string"}))).collect();
    json!({"collections": [
        {"collection": "airports", "identity": ["/faa"], "schema": {"required": ["faa"], "properties": {"faa": {"type": "string"}}}},
        {"collection": "flights", "identity": ["/date", "/carrier", "/number"], "references": references, "schema": {
            "type": "object",
            "required": ["date", "carrier", "number"],
            "properties": {
                "date": {"type": "string", "format": "date"},
                "carrier": {"type": "string", "pattern": "^[A-Z0-9]{2}$"},
                "number": {"type": "integer", "minimum": 1},
                "to": {"type": "object", "additionalProperties": false, "properties": targets},
                "numbers": {"type": "array", "items": {"type": "number"}},
                "text": {"type": "string", "maxLength": 1000},
            },
        }},
    ]})
}

fn body() -> Value {
    let to: Value = (0..8).map(|n| (format!("r{n}"), json!(format!("A{n}B")))).collect();
    let numbers: Vec<f64> = (0..20).map(|n| f64::from(n) * 1.375 + 0.1).collect();
    json!({
        "date": "2013-01-01", "carrier": "UA", "number": 1545, "to": to, "numbers": numbers,
        "text": "the quick brown fox jumps over the lazy dog ".repeat(10),
        "delay": -2.5, "dest": null, "cancelled": false, "tail": "N14228", "more": {"a": 1, "b": [true, false], "c": "x\ny"},
    })
}

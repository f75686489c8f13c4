//! All flights of a year as documents: what is refused at first is what is unknown, no more and no
//! less, and is taken once that has been made of the report.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use egret::demo;
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::{beside, check};
use crate::server::PostgresServer;

const FLIGHTS: &str = "SELECT jsonb_strip_nulls(jsonb_build_object('date', make_date(year, month, day), 'carrier', carrier, 'flight', flight, 'hour', hour, \
     'tailnum', coalesce(tailnum, 'unknown'), 'origin', origin, 'dest', dest, 'dep_delay', dep_delay, 'arr_delay', arr_delay, 'distance', distance))::text \
     FROM flights";

/// Writes the rows of a query, each a document, to a file.
async fn export(client: &Client, sql: &str, path: &Path) {
    let rows = client.query(sql, &[]).await.unwrap();
    let lines = rows.iter().fold(String::new(), |mut lines, row| {
        writeln!(lines, "{}", row.get::<_, &str>(0)).unwrap();
        lines
    });
    std::fs::write(path, lines).unwrap();
}

/// The demo's tables as files of documents.
async fn export_all(external: &PostgresServer, file: impl Fn(&str) -> PathBuf) {
    let mut client = external.connect("postgres").await;
    demo::load(&mut client, &mut |_| {}).await.unwrap();
    for table in ["airlines", "airports", "planes"] {
        let sql = format!("SELECT jsonb_strip_nulls(to_jsonb(t))::text FROM {table} AS t");
        export(&client, &sql, &file(&format!("{table}.ndjson"))).await;
    }
    export(&client, FLIGHTS, &file("flights.ndjson")).await;
}

#[test]
fn flights_are_imported_once_what_they_refer_to_is_there() {
    let (external, place, server) = beside("documents-flights");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    Runtime::new().unwrap().block_on(export_all(&external, file));
    let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
    let said = |code: i32, arguments: &[&str], expected: &[&str]| {
        check(&place, code, "", arguments, expected)
    };
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/flights/collections.json");
    said(0, &["collection", "apply", definitions], &["collection flights is created"]);
    for (table, count) in [("airlines", 16), ("airports", 1_458), ("planes", 3_322)] {
        let lines = text(file(&format!("{table}.ndjson")));
        let expected = format!("{count} documents are new");
        said(0, &["document", "import", table, &lines], &[&expected]);
    }
    let lines = text(file("flights.ndjson"));
    let (refused, missing) = (text(file("refused.ndjson")), text(file("missing")));
    let import = [
        "document",
        "import",
        "flights",
        &lines,
        "--refused",
        &refused,
        "--missing",
        &missing,
        "--relaxed",
    ];
    let expected = [
        "277977 documents are new",
        "58799 lines were refused",
        "7602 lines: unresolved_reference, destination in airports: 4 of them do not exist",
        "52606 lines: unresolved_reference, plane in planes: 722 of them do not exist",
    ];
    said(1, &import, &expected);
    for (collection, count) in [("airports", 4), ("planes", 722)] {
        let lines = text(file("missing").join(format!("{collection}.ndjson")));
        let expected = format!("{count} documents are new");
        said(0, &["document", "import", collection, &lines], &[&expected]);
    }
    let expected = ["58799 documents are new", "277977 unchanged", "0 lines were refused"];
    said(0, &["document", "import", "flights", &lines], &expected);
    let expected = ["342298 documents, 342298 identities and 1347104 references: 0 findings"];
    said(0, &["document", "fsck"], &expected);
    server.stop(rustix::process::Signal::INT);
}

//! The owner of a database on an external server: no superuser of it, while Egret is one.

use egret_base_test::eventually_blocking;
use egret_postgres_test::trap_sql;
use rustix::process::Signal;

use crate::place::{Place, text};
use crate::server::PostgresServer;

const FLIGHTS: &str = "CREATE TABLE public.flights (id int PRIMARY KEY, carrier text)";

/// Exit code, and all that was said.
fn said(place: &Place, arguments: &[&str]) -> (i32, String) {
    let output = place.run(arguments);
    let all = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().unwrap(), all)
}

#[test]
fn traps_of_a_databases_owner_catch_no_command_and_no_engine() {
    let external = PostgresServer::start();
    let mut place = Place::new("database-owner");
    let admin = external.url();
    place.psql(&admin, "CREATE DATABASE shop").unwrap();
    let url = admin.replace("dbname=postgres", "dbname=shop");
    place.psql(&url, FLIGHTS).unwrap();
    place.psql(&url, &trap_sql("mallory", "shop")).unwrap();
    let is_caught = |place: &Place| {
        let sql = "SELECT is_called OR (SELECT rolsuper FROM pg_catalog.pg_roles
            WHERE rolname OPERATOR(pg_catalog.=) 'mallory') FROM trap.caught";
        place.psql(&url, sql).unwrap()
    };

    let checked = said(&place, &["check", &url]);
    assert_eq!(checked.0, 0, "{}", checked.1);
    assert_eq!(is_caught(&place), "f", "by egret check");

    place.variables.push(("EGRET_POSTGRES_URL", url.clone()));
    let server = place.start(&["serve"]);
    place.json(&["queue", "outbox", "install"]);
    let counted = "select carrier, count(*) as flights from public.flights group by carrier";
    place.json(&["view", "create", "by_carrier", "--sql", counted]);
    place.json(&["view", "refresh", "by_carrier"]);
    place.json(&["view", "verify", "by_carrier"]);
    place.json(&["view", "list"]);
    let collections = place.directory.join("collections.json");
    let airports = r#"{"collections": [{"collection": "airports", "identity": ["/faa"], "schema": {"type": "object", "properties": {"faa": {"type": "string"}}, "required": ["faa"]}}]}"#;
    std::fs::write(&collections, airports).unwrap();
    place.json(&["collection", "apply", collections.to_str().unwrap()]);
    place.json(&["document", "query", "airports"]);
    place.json(&["queue", "outbox", "status"]);
    place.json(&["status"]);
    eventually_blocking("the server is measured", || {
        let answer = place.json(&["series", "query", "pg_up"]);
        answer["data"]["result"][0]["value"][1] == "1"
    });
    assert_eq!(is_caught(&place), "f", "by egret serve");
    server.stop(Signal::TERM);

    let (code, all) = said(&place, &["uninstall", &url, "--force"]);
    assert_eq!(code, 0, "{all}");
    assert_eq!(is_caught(&place), "f", "by egret uninstall");
}

//! `egret view …` and `egret uninstall` with the whole program: an embedded server with a branch,
//! and an external server.

use egret_base_test::eventually_blocking;
use rustix::process::Signal;

use crate::place::{Place, Server, text};

const FLIGHTS: &str = "CREATE TABLE flights (id int PRIMARY KEY, carrier text, delay int);
    INSERT INTO flights VALUES (1, 'UA', 10), (2, 'UA', 70), (3, 'DL', 5)";

const BY_CARRIER: &str = "select carrier, count(*) as flights from flights group by carrier";

const SHOWN: &str =
    "SELECT string_agg(carrier || ' ' || flights, ', ' ORDER BY carrier) FROM by_carrier";

/// A view that fell behind shows this in the end.
#[track_caller]
fn until(place: &Place, url: &str, sql: &str, expected: &str) {
    eventually_blocking(&format!("`{sql}` returns {expected}"), || {
        let shown = place.psql(url, sql).unwrap();
        if shown == expected { Ok(()) } else { Err(shown) }
    });
}

/// An Egret beside a PostgreSQL server that it does not run.
fn beside(purpose: &str) -> (crate::server::PostgresServer, Place, Server) {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new(purpose);
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let server = place.start(&["serve"]);
    (external, place, server)
}

/// Exit code, and all that was said.
fn said(place: &Place, arguments: &[&str]) -> (i32, String) {
    let output = place.run(arguments);
    let all = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().unwrap(), all)
}

/// What the command must say, with exit code 0.
fn check(place: &Place, arguments: &[&str], expected: &[&str]) {
    let (code, all) = said(place, arguments);
    assert_eq!(code, 0, "{arguments:?}: {all}");
    for expected in expected {
        assert!(all.contains(expected), "{arguments:?}: {all}");
    }
}

/// How it must fail.
fn refused(place: &Place, arguments: &[&str], code: i32, expected: &[&str]) {
    let (found, all) = said(place, arguments);
    assert_eq!(found, code, "{arguments:?}: {all}");
    for expected in expected {
        assert!(all.contains(expected), "{arguments:?}: {all}");
    }
}

#[test]
fn a_view_is_made_looked_at_and_dropped() {
    let (external, place, server) = beside("views");
    place.psql(&external.url(), FLIGHTS).unwrap();
    let file = place.directory.join("query.sql");
    std::fs::write(&file, format!("{BY_CARRIER}\n")).unwrap();
    let file = file.to_str().unwrap();
    let validate = ["view", "validate", "--file", file];
    check(&place, &validate, &["can be maintained incrementally", "carrier text, flights bigint"]);
    let explain = ["view", "explain", "--sql", BY_CARRIER];
    check(&place, &explain, &["stage 1", "public.flights"]);
    let create = [
        "view",
        "create",
        "by_carrier",
        "--file",
        file,
        "--lag",
        "1h",
        "--index",
        "flights,carrier",
    ];
    check(&place, &create, &["view public.by_carrier is created", "1h"]);
    refused(&place, &create, 1, &["view `public.by_carrier` exists"]);
    let listed = ["postgres", "public.by_carrier", "auto", "1h", "active"];
    check(&place, &["view", "list"], &listed);
    let standing =
        ["database postgres", "public.flights", "table", "  public.by_carrier", "active"];
    check(&place, &["view", "graph"], &standing);
    let edges = ["\"from\": \"public.flights\"", "\"to\": \"public.by_carrier\""];
    check(&place, &["view", "graph", "--json"], &edges);
    check(&place, &["view", "list", "--database", "postgres"], &listed);
    check(&place, &["view", "show", "by_carrier"], &["public.flights", BY_CARRIER]);
    check(&place, &["view", "explain", "by_carrier"], &["stage 1"]);
    server.stop(Signal::TERM);
}

#[test]
fn a_view_is_refreshed_changed_and_dropped() {
    let (external, place, server) = beside("views-changed");
    place.psql(&external.url(), FLIGHTS).unwrap();
    let create = [
        "view",
        "create",
        "by_carrier",
        "--sql",
        BY_CARRIER,
        "--mode",
        "incremental",
        "--lag",
        "1h",
    ];
    place.json(&create);
    let more = "INSERT INTO flights VALUES (4, 'AA', 0), (5, 'DL', 0)";
    place.psql(&external.url(), more).unwrap();
    let refreshed = ["incremental, 2 changes read", "1 added, 1 changed, 0 removed"];
    check(&place, &["view", "refresh", "public.by_carrier"], &refreshed);
    assert_eq!(place.psql(&external.url(), SHOWN).unwrap(), "AA 1, DL 2, UA 2");
    check(&place, &["view", "refresh", "by_carrier"], &["nothing had changed"]);
    check(&place, &["view", "history", "by_carrier"], &["OUTCOME", "incremental"]);
    check(&place, &["view", "verify", "by_carrier"], &["3 rows"]);
    let alter = ["view", "alter", "by_carrier", "--manual", "--mode", "full"];
    check(&place, &alter, &["manual", "full"]);
    check(&place, &["view", "alter", "by_carrier", "--suspend"], &["suspended"]);
    check(&place, &["status"], &["1 (1 suspended)"]);
    check(&place, &["view", "drop", "by_carrier"], &["view by_carrier is dropped"]);
    refused(&place, &["view", "show", "by_carrier"], 1, &["does not exist"]);
    server.stop(Signal::TERM);
}

#[test]
fn a_role_asks_for_views_once_it_may() {
    let (external, place, server) = beside("views-allow");
    let url = external.url();
    let setup = format!(
        "{FLIGHTS}; CREATE ROLE app; GRANT SELECT ON flights TO app; GRANT CREATE ON SCHEMA public TO app"
    );
    place.psql(&url, &setup).unwrap();
    let installed = "SELECT count(*) FROM pg_namespace WHERE nspname = 'egret'";
    let unknown = ["view", "allow", "app", "nobody"];
    refused(&place, &unknown, 1, &["there is no role `nobody`"]);
    assert_eq!(place.psql(&url, installed).unwrap(), "0");
    refused(&place, &["view", "allow"], 2, &["<ROLE>"]);
    place.json(&["view", "create", "others", "--sql", BY_CARRIER]);
    let ask = format!("SET ROLE app; SELECT egret.create_view('by_carrier', $${BY_CARRIER}$$)");
    let said = place.psql(&url, &ask).unwrap_err();
    assert!(said.contains("permission denied"), "{said}");
    refused(&place, &unknown, 1, &["there is no role `nobody`"]);
    let said = place.psql(&url, &ask).unwrap_err();
    assert!(said.contains("permission denied"), "{said}");
    let told = ["app may manage views in database postgres"];
    check(&place, &["view", "allow", "app"], &told);
    place.psql(&url, &ask).unwrap();
    let made = "SELECT count(*) FROM egret.view WHERE name = 'by_carrier' AND owner = 'app'";
    until(&place, &url, made, "1");
    check(&place, &["view", "show", "by_carrier"], &["app"]);
    server.stop(Signal::TERM);
}

#[test]
fn a_view_of_the_source_is_kept_fresh_and_that_of_a_branch_is_not() {
    let place = Place::new("views-branch");
    let server = place.start(&["serve"]);
    let password = std::fs::read_to_string(place.data_dir().join("superuser.password")).unwrap();
    let source = |database: &str| {
        let (password, port) = (password.trim(), place.ports[2]);
        format!("postgres://egret:{password}@127.0.0.1:{port}/{database}")
    };
    let made = place.psql(&source("postgres"), "CREATE DATABASE shop");
    made.unwrap();
    let shop = source("shop");
    let insert = |url: &str, row: &str| {
        let sql = format!("INSERT INTO flights VALUES {row}");
        place.psql(url, &sql).unwrap();
    };
    place.psql(&shop, FLIGHTS).unwrap();
    let create = ["view", "create", "by_carrier", "--sql", BY_CARRIER, "--lag", "50ms"];
    place.json(&create);
    assert_eq!(place.psql(&shop, SHOWN).unwrap(), "DL 1, UA 2");
    insert(&shop, "(4, 'AA', 0)");
    until(&place, &shop, SHOWN, "AA 1, DL 1, UA 2");

    // What a branch has of it stays as it is there.
    place.json(&["branch", "create", "copy", "--from", "head"]);
    let copy = place.connection_string("copy", "shop");
    insert(&copy, "(5, 'AA', 0)");
    insert(&shop, "(5, 'DL', 0)");
    until(&place, &shop, SHOWN, "AA 1, DL 2, UA 2");
    assert_eq!(place.psql(&copy, SHOWN).unwrap(), "AA 1, DL 1, UA 2");

    // What changes while Egret is away is found when it is back.
    server.kill();
    insert(&shop, "(6, 'AA', 0)");
    let server = place.start(&["serve"]);
    until(&place, &shop, SHOWN, "AA 2, DL 2, UA 2");
    check(&place, &["view", "verify", "by_carrier"], &["3 rows"]);
    place.json(&["view", "drop", "by_carrier"]);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_query_that_cannot_be_kept_is_refused_with_its_place() {
    let (external, place, server) = beside("views-refused");
    place.psql(&external.url(), FLIGHTS).unwrap();
    let dice = "select carrier,\n  random() as dice\nfrom flights";
    for arguments in
        [vec!["view", "validate", "--sql", dice], vec!["view", "create", "dice", "--sql", dice]]
    {
        refused(
            &place,
            &arguments,
            1,
            &["at position 19", "in line 2 of the query: random() as dice"],
        );
    }
    refused(&place, &["view", "create", "dice"], 2, &["--sql"]);
    refused(&place, &["view", "alter", "dice"], 2, &["--mode"]);
    refused(&place, &["view", "show", "a.b.c"], 1, &["more parts than a schema and a name"]);

    // Something else than Egret writes to the storage of a view.
    place.json(&["view", "create", "by_carrier", "--sql", BY_CARRIER, "--manual"]);
    let url = external.url();
    let storage = "SELECT c.oid::regclass FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
        JOIN pg_class c ON c.oid = d.refobjid
        WHERE r.ev_class = 'by_carrier'::regclass AND c.relnamespace = 'egret'::regnamespace LIMIT 1";
    let storage = place.psql(&url, storage).unwrap();
    place.psql(&url, &format!("DELETE FROM {storage}")).unwrap();
    refused(
        &place,
        &["view", "verify", "by_carrier"],
        1,
        &["2 are missing", "egret view repair by_carrier"],
    );
    check(&place, &["view", "repair", "by_carrier"], &["is rebuilt"]);
    check(&place, &["view", "verify", "by_carrier"], &["2 rows"]);

    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'egret/views'";
    server.stop(Signal::TERM);
    assert_eq!(place.psql(&url, sessions).unwrap(), "0");
}

#[test]
fn uninstall_says_what_it_would_remove_and_then_leaves_nothing() {
    let (external, place, server) = beside("views-uninstall");
    let url = external.url();
    check(&place, &["uninstall"], &["this database contains nothing of egret"]);
    place.psql(&url, FLIGHTS).unwrap();
    let size = "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_proc) + (SELECT count(*) FROM pg_trigger)
                    + (SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_') + (SELECT count(*) FROM pg_type)";
    let before = place.psql(&url, size).unwrap();
    let create = ["view", "create", "by_carrier", "--sql", BY_CARRIER];
    let install = || {
        place.json(&create);
        place.json(&["queue", "outbox", "install"]);
        place.psql(&url, "CREATE VIEW most AS SELECT max(flights) FROM by_carrier").unwrap();
    };
    install();
    let foretold = [
        "nothing is removed",
        "an outbox with 0 rows",
        "the view public.by_carrier",
        "table egret.outbox",
        "these objects are yours",
        "view public.most, which depends on view public.by_carrier",
    ];
    check(&place, &["uninstall"], &foretold);
    refused(&place, &["uninstall", "--force"], 1, &["view public.most"]);
    assert_eq!(place.psql(&url, "SELECT count(*) FROM most").unwrap(), "1", "nothing is gone");
    let in_use = ["other objects depend on view", "public.most depends on view public"];
    refused(&place, &["view", "drop", "by_carrier"], 1, &in_use);
    check(&place, &["view", "show", "by_carrier"], &["active"]);
    check(&place, &["uninstall", "--database", "elsewhere"], &["contains nothing of egret"]);
    place.psql(&url, "DROP VIEW most").unwrap();
    check(
        &place,
        &["uninstall", "--force"],
        &["nothing of egret is left in postgres: 1 view is removed"],
    );
    assert_eq!(place.psql(&url, size).unwrap(), before);
    assert_eq!(place.json(&["view", "list"])["items"], serde_json::json!([]));

    install();
    server.stop(Signal::TERM);
    without_a_server(&place, &url);
    assert_eq!(place.psql(&url, size).unwrap(), before);
    check(&place, &["uninstall", &url], &["contains nothing of egret"]);
}

/// The same where no Egret works in the database.
fn without_a_server(place: &Place, url: &str) {
    refused(place, &["uninstall"], 3, &["give the connection string"]);
    let told = [
        "nothing is removed",
        "the view public.by_carrier",
        "view public.most, which depends on view public.by_carrier",
    ];
    check(place, &["uninstall", url], &told);
    refused(place, &["uninstall", url, "--force"], 1, &["view public.most"]);
    place.psql(url, "DROP VIEW most").unwrap();
    check(place, &["uninstall", url, "--force"], &["schema egret is removed"]);
}

#[test]
fn no_view_is_said_to_be_missing_while_a_database_is_closed() {
    let place = Place::new("views-closed");
    let server = place.start(&["serve"]);
    let maintenance = place.source("postgres");
    for sql in [
        "CREATE DATABASE shop",
        "CREATE DATABASE archive",
        "ALTER DATABASE archive ALLOW_CONNECTIONS false",
    ] {
        place.psql(&maintenance, sql).unwrap();
    }
    let show = ["view", "show", "nothing"];
    let unknown = ["not every database accepts sessions", "name its database"];
    refused(&place, &show, 1, &unknown);
    let missing = ["nothing` does not exist"];
    let of_shop = [&show[..], &["--database", "shop"]].concat();
    refused(&place, &of_shop, 1, &missing);
    let open = "ALTER DATABASE archive ALLOW_CONNECTIONS true";
    place.psql(&maintenance, open).unwrap();
    refused(&place, &show, 1, &missing);
    server.stop(Signal::TERM);
}

#[test]
fn a_database_can_be_dropped_once_nothing_of_egret_is_left_in_it() {
    let place = Place::new("views-dropped");
    let server = place.start(&["serve"]);
    let maintenance = place.source("postgres");
    place.psql(&maintenance, "CREATE DATABASE shop").unwrap();
    let shop = ["--database", "shop"];
    let create = ["view", "create", "one", "--sql", "select 1 as x"];
    place.json(&[&create[..], &shop].concat());
    place.json(&[&["queue", "outbox", "install"][..], &shop].concat());
    place.json(&[&["uninstall", "--force"][..], &shop].concat());
    place.psql(&maintenance, "DROP DATABASE shop").unwrap();
    server.stop(Signal::TERM);
}

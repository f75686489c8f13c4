//! What users define runs with the rights of its author: views, functions, triggers, casts,
//! policies.

use std::io::{Read, Write};
use std::net::TcpStream;

use egret_base_test::eventually_blocking;
use egret_postgres_test::attacker_sql;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, Server, text};

/// The role, and a table that is not the attacker's.
fn prepare(place: &Place, url: &str) {
    place.psql(url, &attacker_sql("mallory", "public.accounts")).unwrap();
    let accounts = "CREATE TABLE public.accounts (id int PRIMARY KEY, balance int);
        INSERT INTO public.accounts VALUES (1, 10), (2, 20)";
    place.psql(url, accounts).unwrap();
    // The attacker opens its own tables, so that no view over them is refused for want of a right.
    let grant = "GRANT SELECT ON ALL TABLES IN SCHEMA mallory TO egret_views";
    place.psql(url, grant).unwrap();
}

/// An embedded server with a database of its own for the attacks.
fn embedded(purpose: &str) -> (Place, Server, String) {
    let place = Place::new(purpose);
    let server = place.start(&["serve"]);
    place.psql(&place.source("postgres"), "CREATE DATABASE shop").unwrap();
    let url = place.source("shop");
    (place, server, url)
}

/// Status and body of a request.
fn request(place: &Place, method: &str, path: &str, token: &str, body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", place.ports[0])).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: egret\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn admin(place: &Place) -> String {
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    token.trim().to_owned()
}

/// A token that may do nothing but make and read views.
fn views_token(place: &Place) -> String {
    let asked = json!({"name": "attacker", "scopes": ["views:read", "views:write"]});
    let (status, answer) = request(place, "POST", "/v1/tokens", &admin(place), &asked);
    assert!(status < 300, "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    let made: Value = serde_json::from_str(body.trim()).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

/// Attempts to make a view; what was answered.
fn attempt(place: &Place, token: &str, name: &str, query: &str, mode: &str) -> (u16, String) {
    let asked = json!({"name": name, "database": "shop", "query": query, "mode": mode});
    request(place, "POST", "/v1/views", token, &asked)
}

const AS_SUPERUSER: &str =
    "SELECT count(*) FROM mallory.seen WHERE is_super = 'true' OR who = 'egret'";

#[test]
fn code_of_a_role_is_not_run_by_views_as_a_superuser() {
    let (place, server, url) = embedded("attack-rights-code");
    prepare(&place, &url);
    // What the attacker has noted while preparing is the attacker's own.
    let token = views_token(&place);
    let queries = [
        "SELECT mallory.steal(id) AS s, id FROM mallory.plain",
        "SELECT mallory.steal(1) AS s",
        "SELECT id OPERATOR(mallory.##) id AS s, id FROM mallory.plain",
        "SELECT b::text AS s, id FROM mallory.plain",
        "SELECT id::mallory.checked AS s, id FROM mallory.plain",
        "SELECT '{1}'::mallory.checked[] AS s, id FROM mallory.plain",
        "SELECT mallory.gathered(id) AS s FROM mallory.plain",
        "SELECT count(*) AS s FROM mallory.indexed",
        "SELECT id FROM mallory.partly",
        "SELECT id FROM mallory.constrained",
        "SELECT id, of_domain FROM mallory.ranged",
        "SELECT id, g FROM mallory.generated",
        "SELECT id, d FROM mallory.defaulted",
        "SELECT id FROM mallory.secured",
        "SELECT s, id FROM mallory.shown",
        "SELECT id FROM mallory.\"a\"\"; DROP TABLE public.accounts; --\"",
    ];
    for (at, query) in queries.iter().enumerate() {
        for mode in ["auto", "full", "immediate"] {
            let name = format!("v{at}_{mode}");
            let (status, answer) = attempt(&place, &token, &name, query, mode);
            assert!(!answer.contains("root:"), "{query}: {answer}");
            assert!(status < 500, "{query} {mode}: {answer}");
        }
        let as_superuser = place.psql(&url, AS_SUPERUSER).unwrap();
        assert_eq!(as_superuser, "0", "{query}");
    }
    // Writers fire the triggers of those that were made.
    for table in ["plain (id)", "defaulted (id)", "ranged (id)"] {
        let insert = format!("SET ROLE mallory; INSERT INTO mallory.{table} VALUES (7)");
        place.psql(&url, &insert).unwrap();
    }
    assert_eq!(place.psql(&url, AS_SUPERUSER).unwrap(), "0");
    assert_eq!(place.psql(&url, "SELECT count(*) FROM accounts").unwrap(), "2");
    server.stop(Signal::TERM);
}

#[test]
fn a_token_for_views_reads_no_secrets() {
    let (place, server, url) = embedded("attack-rights-secrets");
    place.psql(&url, "CREATE TABLE accounts (id int PRIMARY KEY, balance int)").unwrap();
    place.json(&["queue", "outbox", "install", "--database", "shop"]);
    let token = views_token(&place);
    let total = "SELECT sum(balance) AS total FROM accounts";
    let (status, answer) = attempt(&place, &token, "total", total, "auto");
    assert_eq!(status, 403, "{answer}");
    let grant = "GRANT SELECT ON public.accounts TO egret_views";
    assert!(answer.contains(grant), "{answer}");
    place.psql(&url, grant).unwrap();
    let (status, answer) = attempt(&place, &token, "total", total, "auto");
    assert!(status < 300, "{answer}");
    for (at, query) in [
        "SELECT rolname::text AS r, rolpassword AS p FROM pg_authid",
        "SELECT usename::text AS r, passwd AS p FROM pg_shadow",
        "SELECT table_to_xml('pg_authid', true, true, '')::text AS x",
        "SELECT query_to_xml('select * from pg_authid', true, true, '')::text AS x",
        "SELECT schema_to_xml('egret', true, true, '')::text AS x",
        "SELECT pg_read_file('/etc/passwd') AS x",
        "SELECT pg_ls_dir('/') AS x",
        "SELECT payload FROM egret.outbox",
        "SELECT id, query FROM egret.view",
        "SELECT set_config('role', 'egret', false) AS x",
        "SELECT 1 AS x; CREATE ROLE intruder SUPERUSER",
        "SELECT 1 AS x) ; CREATE ROLE intruder SUPERUSER; --",
    ]
    .iter()
    .enumerate()
    {
        for mode in ["auto", "full"] {
            let (status, answer) = attempt(&place, &token, &format!("s{at}{mode}"), query, mode);
            assert!((400..500).contains(&status), "{query}: {answer}");
            assert!(!answer.contains("SCRAM-SHA"), "{query}: {answer}");
        }
    }
    let intruders = "SELECT count(*) FROM pg_roles WHERE rolname = 'intruder'";
    assert_eq!(place.psql(&url, intruders).unwrap(), "0");
    server.stop(Signal::TERM);
}

#[test]
fn the_role_of_views_is_no_superuser_and_nobodys_login() {
    let (place, server, url) = embedded("attack-rights-role");
    place.psql(&url, "CREATE TABLE accounts (id int PRIMARY KEY, balance int)").unwrap();
    for mode in ["auto", "full", "immediate"] {
        let query = "SELECT id, balance FROM accounts";
        let (status, answer) = attempt(&place, &admin(&place), mode, query, mode);
        assert!(status < 300, "{answer}");
    }
    let role = "SELECT rolsuper, rolcanlogin, rolcreaterole, rolbypassrls, \
                (SELECT count(*) FROM pg_auth_members WHERE roleid = role.oid) \
                FROM pg_roles AS role WHERE rolname = 'egret_views'";
    assert_eq!(place.psql(&url, role).unwrap(), "f|f|f|f|0");
    let owners =
        "SELECT count(*) FROM pg_views WHERE schemaname = 'public' AND viewowner <> 'egret_views'";
    assert_eq!(place.psql(&url, owners).unwrap(), "0");
    let written = "SET search_path = public; INSERT INTO accounts VALUES (1, 10); SELECT balance FROM immediate";
    assert!(place.psql(&url, written).unwrap().ends_with("10"));
    place.json(&["view", "refresh", "auto", "--database", "shop"]);
    assert_eq!(place.psql(&url, "SELECT balance FROM auto").unwrap(), "10");
    // A right that is taken back ends what reads by it.
    place
        .psql(
            &url,
            "REVOKE SELECT ON accounts FROM egret_views; INSERT INTO accounts VALUES (2, 20)",
        )
        .unwrap();
    let refused = place.run(&["view", "refresh", "full", "--database", "shop"]);
    let told = text(&refused.stdout) + &text(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    assert!(told.contains("permission denied") || told.contains("may not read"), "{told}");
    let token = views_token(&place);
    let query = "SELECT id FROM accounts";
    let (status, answer) = attempt(&place, &token, "again", query, "auto");
    assert_eq!(status, 403, "{answer}");
    let repaired =
        request(&place, "POST", "/v1/views/full/repair?database=shop", &token, &json!({}));
    assert_eq!(repaired.0, 403, "{}", repaired.1);
    server.stop(Signal::TERM);
}

#[test]
fn views_of_superusers_are_given_to_the_role_of_views_at_the_start() {
    let (place, server, url) = embedded("attack-rights-upgrade");
    place
        .psql(&url, "CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 10)")
        .unwrap();
    for mode in ["auto", "immediate"] {
        let query = "SELECT id, balance FROM accounts";
        let (status, answer) = attempt(&place, &admin(&place), mode, query, mode);
        assert!(status < 300, "{answer}");
    }
    server.stop(Signal::TERM);
    let server = place.start(&["serve"]);
    // As an earlier version has left them.
    let before = "UPDATE egret.view SET owner = 'egret'; ALTER VIEW auto OWNER TO egret; ALTER VIEW immediate OWNER TO egret; \
                  REVOKE SELECT ON accounts FROM egret_views";
    place.psql(&url, before).unwrap();
    server.stop(Signal::TERM);
    let server = place.start(&["serve"]);
    place.json(&["view", "refresh", "auto", "--database", "shop"]);
    let owners = "SELECT string_agg(DISTINCT owner::text, ',') FROM egret.view";
    assert_eq!(place.psql(&url, owners).unwrap(), "egret_views");
    let written = "INSERT INTO accounts VALUES (2, 20); SELECT count(*) FROM immediate";
    assert!(place.psql(&url, written).unwrap().ends_with('2'));
    server.stop(Signal::TERM);
}

#[test]
fn enqueue_runs_no_code_of_its_caller_as_its_owner() {
    let (place, server, url) = embedded("attack-rights-enqueue");
    prepare(&place, &url);
    place.json(&["queue", "outbox", "install", "--database", "shop", "--grant", "mallory"]);
    let attack = "SET ROLE mallory; SET search_path = mallory, pg_temp, pg_catalog;
        CREATE FUNCTION mallory.octet_length(bytea) RETURNS int LANGUAGE sql AS 'SELECT length(mallory.note())';
        CREATE FUNCTION mallory.convert_to(text, text) RETURNS bytea LANGUAGE sql AS $$SELECT mallory.note()::bytea$$;
        CREATE FUNCTION pg_temp.outbox_put() RETURNS uuid LANGUAGE sql AS $$SELECT mallory.note()::uuid$$;
        CREATE FUNCTION mallory.same(text, text) RETURNS boolean LANGUAGE sql AS $$SELECT mallory.note() IS NULL$$;
        CREATE OPERATOR mallory.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mallory.same);
        SELECT egret.enqueue('mail', '{}'::jsonb, metadata => '{\"a\": \"b\"}', tags => ARRAY['x'], delay => '1s')";
    place.psql(&url, attack).unwrap();
    assert_eq!(place.psql(&url, AS_SUPERUSER).unwrap(), "0");
    let denied = place.psql(&url, "SET ROLE mallory; SELECT * FROM egret.outbox");
    assert!(denied.unwrap_err().contains("permission denied"));
    server.stop(Signal::TERM);
}

#[test]
fn tables_of_users_do_not_land_in_the_schema_of_egret() {
    let (place, server, url) = embedded("attack-rights-schema");
    place.json(&["queue", "outbox", "install", "--database", "shop"]);
    place
        .psql(&url, "CREATE TABLE invoices (id int PRIMARY KEY, amount int); INSERT INTO invoices VALUES (1, 100)")
        .unwrap();
    let schema = "SELECT schemaname FROM pg_tables WHERE tablename = 'invoices'";
    assert_eq!(place.psql(&url, schema).unwrap(), "public");
    for stray in [
        "SET search_path = \"$user\", public; CREATE TABLE strays (id int)",
        "CREATE TABLE egret.strays (id int)",
        "ALTER TABLE invoices SET SCHEMA egret",
    ] {
        let refused = place.psql(&url, stray).unwrap_err();
        assert!(refused.contains("schema egret belongs to Egret"), "{refused}");
    }
    server.stop(Signal::TERM);
}

fn nothing_is_done_in_a_database_that_does_not_exist(place: &Place) {
    for (method, path, body) in [
        ("DELETE", "/v1/installations/no_such_db", Value::Null),
        ("POST", "/v1/outboxes", json!({"database": "no_such_db"})),
        ("DELETE", "/v1/outboxes/no_such_db", Value::Null),
        ("POST", "/v1/outboxes/no_such_db/retry", Value::Null),
    ] {
        let (status, answer) = request(place, method, path, &admin(place), &body);
        assert_eq!(status, 404, "{path}: {answer}");
        assert!(answer.contains("database_not_found"), "{answer}");
    }
}

#[test]
fn a_removal_drops_nothing_of_users() {
    let (place, server, url) = embedded("attack-rights-removal");
    place.psql(&url, "CREATE TABLE accounts (id int PRIMARY KEY, balance int)").unwrap();
    place.json(&["queue", "outbox", "install", "--database", "shop"]);
    let query = "SELECT id, balance FROM accounts";
    let (status, answer) = attempt(&place, &admin(&place), "kept", query, "auto");
    assert!(status < 300, "{answer}");
    // As it came there before it was refused, and with a view of a user's over one of Egret's.
    let stray = "SET application_name = 'egret/test'; CREATE TABLE egret.invoices AS SELECT 1 AS id; \
                 CREATE VIEW public.mine AS SELECT * FROM public.kept";
    place.psql(&url, stray).unwrap();
    let (status, answer) = request(
        &place,
        "DELETE",
        "/v1/installations/shop?force=true",
        &admin(&place),
        &Value::Null,
    );
    assert_eq!(status, 409, "{answer}");
    assert!(answer.contains("postgres_user_objects"), "{answer}");
    for named in ["ALTER TABLE egret.invoices SET SCHEMA public", "view public.mine"] {
        assert!(answer.contains(named), "{answer}");
    }
    let checked = place.run(&["check"]);
    let told = text(&checked.stdout) + &text(&checked.stderr);
    assert!(told.contains("ALTER TABLE egret.invoices SET SCHEMA public"), "{told}");
    let foretold = place.run(&["uninstall", "--database", "shop"]);
    let told = text(&foretold.stdout);
    for named in ["table egret.outbox", "these objects are yours", "egret.invoices"] {
        assert!(told.contains(named), "{told}");
    }
    assert_eq!(place.psql(&url, "SELECT count(*) FROM kept").unwrap(), "0");
    place
        .psql(&url, "ALTER TABLE egret.invoices SET SCHEMA public; DROP VIEW public.mine")
        .unwrap();
    place.json(&["uninstall", "--database", "shop", "--force"]);
    assert_eq!(place.psql(&url, "SELECT id FROM invoices").unwrap(), "1");
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'egret'";
    assert_eq!(place.psql(&url, schema).unwrap(), "0");
    nothing_is_done_in_a_database_that_does_not_exist(&place);
    let unknown = json!({"database": "shop", "grant": ["nobody_here"]});
    let (status, answer) = request(&place, "POST", "/v1/outboxes", &admin(&place), &unknown);
    assert_eq!(status, 400, "{answer}");
    server.stop(Signal::TERM);
}

#[test]
fn an_unreachable_server_is_not_an_empty_list() {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new("attack-rights-unreachable");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let server = place.start(&["serve"]);
    drop(external);
    eventually_blocking("the server is reported as unreachable", || {
        let ready = place.get("/readyz");
        if ready.contains("PostgreSQL:") { Ok(()) } else { Err(ready) }
    });
    let (status, answer) = request(&place, "GET", "/v1/views", &admin(&place), &Value::Null);
    assert_eq!(status, 503, "{answer}");
    let list = place.run(&["view", "list"]);
    assert!(!list.status.success(), "{}", text(&list.stdout));
    server.stop(Signal::TERM);
}

#[test]
fn a_database_without_connections_is_not_taken_for_an_empty_one() {
    let (place, server, _) = embedded("attack-rights-closed");
    place.json(&["queue", "outbox", "install", "--database", "shop"]);
    let maintenance = place.source("postgres");
    for sql in [
        "ALTER DATABASE shop ALLOW_CONNECTIONS false",
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = 'shop'",
    ] {
        place.psql(&maintenance, sql).unwrap();
    }
    let listed = request(&place, "GET", "/v1/installations", &admin(&place), &Value::Null);
    assert_eq!(listed.0, 200, "{}", listed.1);
    assert!(listed.1.contains(r#""unreachable":["shop"]"#), "{}", listed.1);
    let path = "/v1/installations/shop?force=true";
    let (status, answer) = request(&place, "DELETE", path, &admin(&place), &Value::Null);
    assert_eq!(status, 503, "{answer}");
    assert!(
        answer.contains("postgres_database_unreachable") && answer.contains("shop"),
        "{answer}"
    );
    assert_eq!(place.json(&["view", "list"])["incomplete"], true);
    let outboxes = place.json(&["queue", "outbox", "status"]);
    assert_eq!(outboxes["incomplete"], true);
    let refused = place.run(&["uninstall", "--database", "shop", "--force"]);
    assert!(!refused.status.success(), "{}", text(&refused.stdout));
    let told = text(&refused.stderr);
    assert!(told.contains("cannot find out whether egret has objects"), "{told}");
    place.psql(&maintenance, "ALTER DATABASE shop ALLOW_CONNECTIONS true").unwrap();
    place.json(&["uninstall", "--database", "shop", "--force"]);
    server.stop(Signal::TERM);
}

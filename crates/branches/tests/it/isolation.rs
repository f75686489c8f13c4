//! What a branch's role can and cannot do, and that nothing of the source goes on in a branch.

use egret_base::CodedError;
use egret_base_test::eventually;
use egret_branches::model::{BranchSource, DEFAULT_TENANT, NewBranch};
use egret_branches::{Children, ClientRequest, ROLE};

use crate::home::{Home, attach, name};
use crate::resident::{leased, parameters, psql};

const HOSTILE: [(&str, &str); 12] = [
    ("COPY item TO PROGRAM 'id'", "permission denied to COPY to or from an external program"),
    ("COPY item FROM '/etc/passwd'", "permission denied to COPY from a file"),
    ("SELECT pg_read_file('/etc/passwd')", "permission denied for function pg_read_file"),
    ("SELECT lo_import('/etc/passwd')", "permission denied for function lo_import"),
    ("ALTER ROLE egret_branch SUPERUSER", "permission denied to alter role"),
    ("CREATE ROLE other SUPERUSER", "permission denied to create role"),
    ("SET ROLE egret", "permission denied to set role"),
    ("SET SESSION AUTHORIZATION egret", "permission denied to set session authorization"),
    ("ALTER SYSTEM SET archive_command = 'id'", "permission denied to set parameter"),
    (
        "CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'libc', 'getpid'",
        "permission denied for language c",
    ),
    ("CREATE EXTENSION file_fdw", "permission denied to create extension"),
    ("SELECT rolpassword FROM pg_authid", "permission denied for table pg_authid"),
];

/// One object of each kind that has an owner, made by the superuser, and roles with rights that
/// must not reach a branch.
const OBJECTS: &str = "CREATE ROLE app_owner LOGIN PASSWORD 'secret' CREATEROLE;
             CREATE ROLE second_admin SUPERUSER LOGIN PASSWORD 'secret';
             GRANT pg_execute_server_program, egret TO app_owner;
             CREATE SCHEMA shop AUTHORIZATION app_owner;
             SET ROLE app_owner;
             CREATE TABLE shop.orders (id int PRIMARY KEY);
             RESET ROLE;
             CREATE TYPE mood AS ENUM ('fine');
             CREATE DOMAIN positive AS int CHECK (VALUE > 0);
             CREATE FUNCTION one() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
             CREATE PROCEDURE nothing() LANGUAGE sql AS '';
             CREATE AGGREGATE total (int) (SFUNC = int4pl, STYPE = int, INITCOND = 0);
             CREATE VIEW seen AS SELECT * FROM item;
             CREATE MATERIALIZED VIEW stored AS SELECT * FROM item;
             CREATE SEQUENCE numbers;
             CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY, s serial);
             CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at);
             CREATE TABLE parts_2013 PARTITION OF parts FOR VALUES FROM ('2013-01-01') TO ('2014-01-01');
             CREATE STATISTICS item_stats ON id, name FROM item;
             CREATE TEXT SEARCH CONFIGURATION plain (COPY = simple);
             CREATE COLLATION numeric_order (provider = icu, locale = 'en-u-kn-true');
             CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
             CREATE PUBLICATION everything FOR ALL TABLES;
             SELECT lo_create(0)";

/// What the owner of these may do.
const ALLOWED: [&str; 22] = [
    "ALTER TABLE item ADD COLUMN price numeric",
    "DROP TABLE shop.orders",
    "ALTER TYPE mood ADD VALUE 'better'",
    "ALTER DOMAIN positive DROP CONSTRAINT positive_check",
    "CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 2'",
    "DROP PROCEDURE nothing",
    "DROP AGGREGATE total (int)",
    "DROP VIEW seen",
    "REFRESH MATERIALIZED VIEW stored",
    "ALTER SEQUENCE numbers RESTART",
    "ALTER TABLE counted ALTER COLUMN id RESTART",
    "ALTER TABLE parts ADD COLUMN name text",
    "DROP STATISTICS item_stats",
    "DROP TEXT SEARCH CONFIGURATION plain",
    "DROP COLLATION numeric_order",
    "DROP OPERATOR === (int, int)",
    "CREATE TABLE made (id int)",
    "CREATE SCHEMA mine",
    "CREATE DATABASE another",
    "VACUUM item",
    "CHECKPOINT",
    "CREATE ROLE helper; GRANT SELECT ON made TO helper; REVOKE ALL ON made FROM helper; DROP ROLE helper",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_role_owns_what_it_may_change_and_reaches_nothing_else() {
    let home = Home::new("role");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    source.batch_execute(OBJECTS).await.unwrap();
    egret.branch("one").await;
    for (sql, refusal) in HOSTILE {
        let error = egret.ask("one", sql).await.unwrap_err().to_string();
        assert!(error.contains(refusal), "{sql}: {error}");
    }
    for sql in [
        "SET ROLE second_admin; COPY item TO PROGRAM 'id'",
        "SET ROLE app_owner; COPY item TO PROGRAM 'id'",
        "SET ROLE app_owner; SET ROLE egret",
        "SET ROLE app_owner; CREATE ROLE helper SUPERUSER",
    ] {
        egret.ask("one", sql).await.unwrap_err();
    }
    for sql in ALLOWED {
        if let Err(error) = egret.ask("one", sql).await {
            panic!("{sql}: {error}");
        }
    }
    egret.stop().await;
}

/// Traps for a superuser's session: names that mean something else by a database's own settings,
/// and a function that would make the trapper a superuser when a superuser runs it.
const TRAPS: &str = "
    CREATE SCHEMA trap;
    CREATE FUNCTION trap.spring() RETURNS text LANGUAGE plpgsql AS $$
    BEGIN ALTER ROLE egret_branch SUPERUSER; RETURN 'caught'; END $$;
    CREATE VIEW trap.pg_database AS SELECT trap.spring()::name AS datname, true AS datallowconn, false AS datistemplate;
    CREATE VIEW trap.pg_prepared_xacts AS SELECT trap.spring() AS gid, current_database() AS database;
    CREATE FUNCTION trap.current_database() RETURNS name LANGUAGE sql AS 'SELECT trap.spring()::name';
    CREATE FUNCTION trap.pg_current_wal_insert_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS $$
    BEGIN PERFORM trap.spring(); RETURN '0/0'; END $$";

#[tokio::test(flavor = "multi_thread")]
async fn no_trap_in_a_branch_catches_egrets_own_sessions() {
    let home = Home::new("trap");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    for database in ["app", "postgres"] {
        let branches = &egret.branches;
        let run = async |sql: &str| {
            branches.query(DEFAULT_TENANT, &name("one"), database, sql, &[], None).await.unwrap()
        };
        run(TRAPS).await;
        run(&format!("ALTER DATABASE {database} SET search_path = trap, pg_catalog")).await;
        run(&format!("ALTER DATABASE {database} SET default_transaction_read_only = on")).await;
    }
    egret.branches.databases(DEFAULT_TENANT, &name("one")).await.unwrap();
    let mut child = NewBranch::named(name("two"));
    child.from = BranchSource::Branch(name("one"));
    egret.branches.create(child).await.unwrap();
    for branch in ["one", "two"] {
        let sql = "SELECT rolsuper::text FROM pg_catalog.pg_roles WHERE rolname = 'egret_branch'";
        assert_eq!(egret.ask(branch, sql).await.unwrap().as_deref(), Some("false"), "{branch}");
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_reaches_the_host_is_taken_away_and_event_triggers_stay_whose_they_are() {
    let home = Home::new("reach");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    for sql in [
        "CREATE ROLE helper LOGIN",
        "GRANT EXECUTE ON FUNCTION pg_read_file(text), lo_export(oid, text) TO helper",
        "GRANT ALTER SYSTEM ON PARAMETER archive_command TO helper",
        "GRANT SET ON PARAMETER log_min_messages TO PUBLIC",
        "CREATE FUNCTION native() RETURNS int LANGUAGE internal AS 'pg_backend_pid'",
        "CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
        "CREATE EVENT TRIGGER watching ON ddl_command_start EXECUTE FUNCTION on_ddl()",
        "CREATE EXTENSION file_fdw",
        "CREATE SERVER host FOREIGN DATA WRAPPER file_fdw",
        "CREATE FOREIGN TABLE ran (line text) SERVER host OPTIONS (program 'id')",
        "GRANT SELECT ON ran TO PUBLIC",
        "CREATE DATABASE closed",
        "ALTER DATABASE closed ALLOW_CONNECTIONS false",
        "CREATE DATABASE model IS_TEMPLATE true",
    ] {
        source.batch_execute(sql).await.unwrap();
    }
    egret.branch("one").await;
    for (sql, refusal) in [
        (
            "SET ROLE helper; SELECT pg_read_file('/etc/passwd')",
            "permission denied for function pg_read_file",
        ),
        (
            "SET ROLE helper; SELECT lo_export(1, '/tmp/x')",
            "permission denied for function lo_export",
        ),
        ("SET log_min_messages = debug1", "permission denied to set parameter"),
        ("SELECT * FROM ran", "relation \"ran\" does not exist"),
        ("SELECT native()", "permission denied for function native"),
        (
            "CREATE OR REPLACE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''x''; END'",
            "must be owner of function on_ddl",
        ),
    ] {
        let error = egret.ask("one", sql).await.unwrap_err().to_string();
        assert!(error.contains(refusal), "{sql}: {error}");
    }
    let may = "SELECT has_parameter_privilege('helper', 'archive_command', 'ALTER SYSTEM')::text";
    assert_eq!(egret.ask("one", may).await.unwrap().as_deref(), Some("false"));
    let closed = "SELECT datallowconn::text FROM pg_database WHERE datname = 'closed'";
    assert_eq!(egret.ask("one", closed).await.unwrap().as_deref(), Some("false"));
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_out_of_the_data_directory_are_refused_by_name() {
    let home = Home::new("link");
    let egret = home.start().await;
    egret.make_app().await;
    let link = home.directory.join("volume/source/pg_stat/elsewhere");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let error = egret.branches.create(NewBranch::named(name("one"))).await.unwrap_err();
    assert!(error.to_string().contains("pg_stat/elsewhere is a link"), "{error}");
    std::fs::remove_file(&link).unwrap();
    egret.branch("one").await;
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_source_goes_on_in_a_branch() {
    let mut home = Home::new("neutral");
    home.postgres.sessions_max = 30;
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    for sql in [
        "ALTER SYSTEM SET max_prepared_transactions = 5",
        "ALTER SYSTEM SET archive_command = 'exit 1'",
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
        "ALTER SYSTEM SET synchronous_commit = local",
        "ALTER SYSTEM SET wal_level = logical",
    ] {
        source.batch_execute(sql).await.unwrap();
    }
    egret.stop().await;
    let egret = home.start().await;
    let source = egret.source("app").await;
    source
        .batch_execute(
            "SELECT pg_create_physical_replication_slot('kept_by_the_source', true);
             SELECT pg_create_logical_replication_slot('decoded', 'pgoutput');
             CREATE SUBSCRIPTION other CONNECTION 'host=127.0.0.1 port=1 password=secret' PUBLICATION p
                 WITH (connect = false, slot_name = NONE)",
        )
        .await
        .unwrap();
    source
        .batch_execute(
            "BEGIN; UPDATE item SET name = 'held' WHERE id = 1; PREPARE TRANSACTION 'held'",
        )
        .await
        .unwrap();
    egret.branch("one").await;
    for (sql, expected) in [
        ("SELECT count(*) FROM pg_replication_slots", "0"),
        ("SELECT count(*) FROM pg_stat_subscription", "0"),
        ("SELECT count(*) FROM pg_prepared_xacts", "0"),
        ("SHOW archive_command", "(disabled)"),
        ("SHOW synchronous_standby_names", ""),
        ("SHOW listen_addresses", ""),
        ("SHOW fsync", "off"),
        ("UPDATE item SET name = 'free' WHERE id = 1 RETURNING name", "free"),
    ] {
        let found = egret.ask("one", sql).await.unwrap().unwrap_or_default();
        assert_eq!(found, expected, "{sql}");
    }
    let kept: i64 = source
        .query_one("SELECT (SELECT count(*) FROM pg_replication_slots) + (SELECT count(*) FROM pg_prepared_xacts)", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(kept, 3, "the source keeps its own");
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tablespaces_are_refused_by_name() {
    let home = Home::new("tablespace");
    let egret = home.start().await;
    egret.make_app().await;
    let space = home.directory.join("space");
    std::fs::create_dir(&space).unwrap();
    let owner = egret_postgres_test::owner();
    egret_postgres::cluster::create_private_directory(&space, &owner).unwrap();
    let source = egret.source("app").await;
    let sql = format!("CREATE TABLESPACE elsewhere LOCATION '{}'", space.display());
    source.batch_execute(&sql).await.unwrap();
    let error = egret.branches.create(NewBranch::named(name("one"))).await.unwrap_err();
    assert!(error.to_string().contains("elsewhere"), "{error}");
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_a_password_does_not_come_to_another_branch_of_the_name() {
    let (_home, egret, _) = leased("resident-namesake").await;
    let (old, _) = egret.branches.verifier(DEFAULT_TENANT, &name("one")).await.unwrap();
    egret.destroy("one").await;
    egret.branch("one").await;
    let (one, psql) = (name("one"), psql());
    let request = ClientRequest { role: ROLE, database: "app", parameters: &psql };
    let refused = egret.branches.attach_client(DEFAULT_TENANT, &one, old, request);
    let code = refused.await.map(|_| ()).unwrap_err().code();
    assert_eq!(code, "branch_not_found");
    attach(&egret, "one", "app", &psql).await.unwrap();
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_taught_the_pool_no_other_tenant_sees() {
    let (home, egret, _) = leased("resident-tenants").await;
    egret.destroy("one").await;
    egret.fill(0).await;
    egret.branch("one").await;
    let mine = parameters(&[("application_name", "mine of default"), ("client_encoding", "UTF8")]);
    attach(&egret, "one", "app", &mine).await.unwrap();
    egret.destroy("one").await;
    egret.fill(1).await;
    let mut request = NewBranch::named(name("theirs"));
    request.tenant = "acme".to_owned();
    let theirs = egret.branches.create(request).await.unwrap().into_branch();
    assert_eq!(theirs.receipt.as_ref().unwrap().kind, "pooled");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%default%'";
    // A session that was told to end may take a moment.
    eventually("no session of the other tenant is left", async || {
        let asked = egret.branches.query("acme", &theirs.name, "app", sql, &[], None);
        asked.await.unwrap().rows[0][0].as_deref() == Some("0")
    })
    .await;
    let destroyed = egret.branches.destroy("acme", &theirs.name, Children::Refuse, |_| true);
    destroyed.await.unwrap();
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

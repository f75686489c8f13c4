//! Schema `egret`: ordered, checksummed, transactional, removed by one call.

use std::time::Duration;

use egret_base::CodedError;
use egret_postgres::PostgresError;
use egret_postgres::installation::{inventory, uninstall, uninstall_within};
use egret_postgres::migrate::{Migration, migrate, remove_engine};
use egret_postgres::pool;
use egret_postgres_test::TestDatabase;

const FIRST: Migration = Migration {
    name: "first",
    sql: "CREATE TABLE egret.collection (collection_id int PRIMARY KEY)",
};
const SECOND: Migration =
    Migration { name: "second", sql: "ALTER TABLE egret.collection ADD COLUMN name text" };
const BROKEN: Migration =
    Migration { name: "broken", sql: "CREATE TABLE egret.half (id int); SELECT 1/0" };

#[tokio::test(flavor = "multi_thread")]
async fn steps_run_once_in_order_and_all_or_none() {
    for major in 15..=18 {
        let database = TestDatabase::create(major).await;
        let mut client = database.connect().await;
        migrate(&mut client, "test", &[FIRST]).await.unwrap();
        client.batch_execute("INSERT INTO egret.collection VALUES (1)").await.unwrap();
        migrate(&mut client, "test", &[FIRST, SECOND]).await.unwrap();
        migrate(&mut client, "test", &[FIRST, SECOND]).await.unwrap();
        let names: i64 = client
            .query_one("SELECT count(name) + count(*) FROM egret.collection", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(names, 1);

        migrate(&mut client, "test", &[FIRST, SECOND, BROKEN]).await.unwrap_err();
        let half: bool =
            client.query_one("SELECT to_regclass('egret.half') IS NULL", &[]).await.unwrap().get(0);
        assert!(half, "a failed step leaves nothing");

        let older = migrate(&mut client, "test", &[FIRST]).await.unwrap_err().to_string();
        assert!(older.contains("newer Egret"), "{older}");
        let changed = Migration { name: "first", sql: "SELECT 1" };
        let error = migrate(&mut client, "test", &[changed, SECOND]).await.unwrap_err().to_string();
        assert!(error.contains("test/first has changed"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_leaves_nothing() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    let before = catalogue_size(&client).await;
    migrate(&mut client, "test", &[FIRST, SECOND]).await.unwrap();
    let found = inventory(&client).await.unwrap().unwrap();
    assert_eq!((found.views.len(), found.obstacles.len()), (0, 0));
    assert_eq!(
        found.objects,
        ["table egret.collection", "function egret.guard_schema()", "table egret.migration",]
    );
    let removed = uninstall(&mut client, false).await.unwrap();
    assert_eq!(removed, Some(found));
    assert_eq!(catalogue_size(&client).await, before);
    assert_eq!(inventory(&client).await.unwrap(), None);
    assert_eq!(uninstall(&mut client, false).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_waits_for_a_lock_names_what_holds_it() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    let found = inventory(&client).await.unwrap();
    let user = database.connect().await;
    // The second one is what every migration and removal takes.
    let key = 0x2f4a_9c61_7b0d_35e8_i64;
    for lock in [
        "LOCK TABLE egret.collection IN ACCESS SHARE MODE",
        &format!("SELECT pg_advisory_xact_lock({key})"),
    ] {
        user.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
        let holder = "SELECT format('process %s of role %s', pg_backend_pid(), session_user)";
        let holder: String = user.query_one(holder, &[]).await.unwrap().get(0);
        let refused = uninstall_within(&mut client, true, Duration::from_millis(300)).await;
        let error = refused.unwrap_err();
        assert_eq!(error.code(), "postgres_lock_timeout");
        assert!(error.to_string().contains(&holder), "{error}");
        assert_eq!(inventory(&client).await.unwrap(), found);
        user.batch_execute("ROLLBACK").await.unwrap();
    }
    let removed = uninstall_within(&mut client, true, Duration::from_secs(30)).await;
    assert_eq!(removed.unwrap(), found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_quotes_all_names_has_no_objects_of_users() {
    let database = TestDatabase::create(18).await;
    let user = database.connect().await;
    let quotes = format!("ALTER DATABASE {} SET quote_all_identifiers = on", database.name);
    user.batch_execute(&quotes).await.unwrap();
    let mut client = pool::connect(&database.connection()).await.unwrap();
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    let found = inventory(&client).await.unwrap().unwrap();
    assert!(found.obstacles.is_empty(), "{found:?}");
    assert!(found.objects.contains(&"table egret.collection".to_owned()), "{found:?}");
    uninstall(&mut client, false).await.unwrap();
    assert_eq!(inventory(&client).await.unwrap(), None);
}

/// Sessions of tests are taken for Egret's own by their application_name; a user's have another.
const AS_USER: &str = "SET application_name = psql; SET search_path = public;";

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_users_are_in_the_way_of_a_removal() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    client.batch_execute("SET search_path = public").await.unwrap();
    let obstacles = [
        (
            "CREATE TABLE egret.\"My invoices\" (id serial)",
            "ALTER TABLE egret.\"My invoices\" SET SCHEMA public",
        ),
        ("CREATE TABLE egret.changes_7 (id int)", "ALTER TABLE egret.changes_7 SET SCHEMA public"),
        ("CREATE SEQUENCE egret.numbers", "ALTER SEQUENCE egret.numbers SET SCHEMA public"),
        (
            "CREATE FUNCTION egret.double(int) RETURNS int LANGUAGE sql AS 'SELECT 2'",
            "ALTER FUNCTION egret.double(integer) SET SCHEMA public",
        ),
        ("CREATE TYPE egret.mood AS ENUM ('glad')", "ALTER TYPE egret.mood SET SCHEMA public"),
        ("CREATE DOMAIN egret.positive AS int", "SET SCHEMA public"),
        (
            "CREATE MATERIALIZED VIEW egret.kept AS SELECT 1 AS one",
            "ALTER MATERIALIZED VIEW egret.kept SET SCHEMA public",
        ),
        (
            "CREATE VIEW things AS SELECT collection_id FROM egret.collection",
            "view public.things, which depends on",
        ),
        (
            "CREATE TABLE child () INHERITS (egret.collection)",
            "table public.child, which depends on table egret.collection",
        ),
        ("CREATE TABLE pointer (id int REFERENCES egret.collection)", "on table public.pointer"),
        ("CREATE TABLE box (one egret.collection)", "column one of table public.box"),
        ("CREATE EXTENSION citext SCHEMA egret", "ALTER EXTENSION citext SET SCHEMA public"),
    ];
    for (make, expected) in obstacles {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute(make).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        let refused = uninstall(&mut client, true).await.unwrap_err();
        assert_eq!(refused.code(), "postgres_user_objects", "{make}: {refused}");
        assert!(refused.to_string().contains(expected), "{make}: {refused}");
        let drop = drop_of(make);
        client.batch_execute(&drop).await.unwrap();
    }
    uninstall(&mut client, true).await.unwrap();
    assert_eq!(inventory(&client).await.unwrap(), None);
}

/// They would go silently with the tables that they are on, and the functions that they call.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_and_rules_of_users_are_in_the_way_of_a_removal() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    client
        .batch_execute(
            "SET search_path = public; CREATE TABLE own (id int); \
             CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        )
        .await
        .unwrap();
    for (make, object, remedy) in [
        (
            "CREATE TRIGGER mine AFTER INSERT ON egret.collection FOR EACH ROW EXECUTE FUNCTION own()",
            "trigger mine on table egret.collection",
            "DROP TRIGGER mine ON egret.collection",
        ),
        (
            "CREATE RULE mine AS ON DELETE TO egret.collection DO INSTEAD NOTHING",
            "rule mine on table egret.collection",
            "DROP RULE mine ON egret.collection",
        ),
    ] {
        client.batch_execute(make).await.unwrap();
        let refused = uninstall(&mut client, true).await.unwrap_err();
        assert_eq!(refused.code(), "postgres_user_objects", "{make}: {refused}");
        let expected = format!("{object}, which depends on table egret.collection ({remedy})");
        assert!(refused.to_string().contains(&expected), "{make}: {refused}");
        let transaction = client.transaction().await.unwrap();
        let removed = remove_engine(&transaction, "test", "DROP TABLE egret.collection").await;
        let refused = removed.unwrap_err();
        assert_eq!(refused.code(), "postgres_user_objects", "{make}: {refused}");
        assert!(refused.to_string().contains(remedy), "{make}: {refused}");
        transaction.rollback().await.unwrap();
        client.batch_execute(remedy).await.unwrap();
    }
    uninstall(&mut client, true).await.unwrap();
}

/// They would go silently with the tables that they are on.
#[tokio::test(flavor = "multi_thread")]
async fn columns_and_policies_of_users_are_in_the_way_of_a_removal_and_indexes_are_named() {
    for major in [15, 18] {
        let database = TestDatabase::create(major).await;
        let mut client = database.connect().await;
        migrate(&mut client, "test", &[FIRST]).await.unwrap();
        for (make, object, remedy) in [
            (
                "ALTER TABLE egret.collection ADD COLUMN note text",
                "column note of table egret.collection",
                "ALTER TABLE egret.collection DROP COLUMN note",
            ),
            (
                "CREATE POLICY mine ON egret.collection USING (true)",
                "policy mine on table egret.collection",
                "DROP POLICY mine ON egret.collection",
            ),
        ] {
            client.batch_execute(make).await.unwrap();
            let refused = uninstall(&mut client, true).await.unwrap_err();
            assert_eq!(refused.code(), "postgres_user_objects", "{make}: {refused}");
            let expected = format!("{object} ({remedy})");
            assert!(refused.to_string().contains(&expected), "{make}: {refused}");
            client.batch_execute(remedy).await.unwrap();
        }
        let index = "CREATE INDEX mine ON egret.collection (collection_id)";
        client.batch_execute(index).await.unwrap();
        let found = inventory(&client).await.unwrap().unwrap();
        assert_eq!(found.obstacles, []);
        assert_eq!(found.indexes, ["index egret.mine"]);
        uninstall(&mut client, true).await.unwrap();
    }
}

/// What drops again what a statement makes.
fn drop_of(make: &str) -> String {
    let object = make.split('(').next().unwrap().split(" AS").next().unwrap();
    let mut words = object.split(' ').skip(1).collect::<Vec<_>>();
    let kind = if words[0] == "MATERIALIZED" {
        words.remove(0);
        "MATERIALIZED VIEW"
    } else {
        words[0]
    };
    let name = words[1..].join(" ").replace(" SCHEMA egret", "");
    format!("DROP {kind} {name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_of_a_user_lands_in_the_schema() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    let user = database.connect().await;
    user.batch_execute(AS_USER).await.unwrap();
    user.batch_execute("CREATE TABLE ordinary (id int); CREATE SEQUENCE numbers; CREATE VIEW shown AS SELECT 1 AS one")
        .await
        .unwrap();
    for stray in [
        "SET search_path = \"$user\", public; CREATE TABLE invoices (id int)",
        "CREATE TABLE egret.invoices (id serial PRIMARY KEY)",
        "CREATE TABLE egret.changes_7 (id int)",
        "CREATE TABLE egret.copied AS SELECT 1 AS one",
        "SELECT 1 AS one INTO egret.copied",
        "CREATE VIEW egret.shown AS SELECT 1 AS one",
        "CREATE FUNCTION egret.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE egret.mood AS ENUM ('glad')",
        "CREATE DOMAIN egret.positive AS int",
        "ALTER TABLE ordinary SET SCHEMA egret",
        "ALTER SEQUENCE numbers SET SCHEMA egret",
        "ALTER VIEW shown SET SCHEMA egret",
        "CREATE EXTENSION citext SCHEMA egret",
        "CREATE COLLATION egret.sorted (locale = 'C')",
    ] {
        let Err(refused) = user.batch_execute(stray).await else {
            panic!("{stray}: it is not refused");
        };
        let told = refused.as_db_error().unwrap().message();
        assert!(told.contains("schema egret belongs to Egret"), "{stray}: {told}");
        user.batch_execute(AS_USER).await.unwrap();
    }
    // An administrator may tune Egret's tables: further indexes and storage parameters are kept.
    user.batch_execute(
        "CREATE INDEX ON egret.collection (collection_id); ALTER TABLE egret.collection SET (fillfactor = 90)",
    )
    .await
    .unwrap();
    assert!(inventory(&client).await.unwrap().unwrap().obstacles.is_empty());
}

/// Restores, and programs that replicate, set what triggers do not fire for otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn no_object_lands_in_the_schema_in_a_session_that_replicates() {
    for major in [15, 18] {
        let database = TestDatabase::create(major).await;
        let mut client = database.connect().await;
        migrate(&mut client, "test", &[FIRST]).await.unwrap();
        let user = database.connect().await;
        user.batch_execute(AS_USER).await.unwrap();
        user.batch_execute(
            "CREATE TABLE ordinary (id int); SET session_replication_role = replica",
        )
        .await
        .unwrap();
        // As an earlier version has made it, and as this one leaves it.
        user.batch_execute("ALTER EVENT TRIGGER egret_schema ENABLE").await.unwrap();
        migrate(&mut client, "test", &[FIRST, SECOND]).await.unwrap();
        for stray in [
            "CREATE TABLE egret.invoices (id int)",
            "ALTER TABLE ordinary SET SCHEMA egret",
            "CREATE VIEW egret.shown AS SELECT 1 AS one",
        ] {
            let refused = user.batch_execute(stray).await.unwrap_err();
            let told = refused.as_db_error().unwrap().message();
            assert!(told.contains("schema egret belongs to Egret"), "{stray}: {told}");
        }
    }
}

async fn catalogue_size(client: &egret_postgres::tokio_postgres::Client) -> i64 {
    let sql = "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_namespace) + (SELECT count(*) FROM pg_type)";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_migrate_one_after_the_other() {
    let database = TestDatabase::create(18).await;
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let (first, second) = tokio::join!(
        migrate(&mut one, "test", &[FIRST, SECOND]),
        migrate(&mut other, "test", &[FIRST, SECOND]),
    );
    first.unwrap();
    second.unwrap();
}

/// What a view makes over a table of another role.
const CAPTURE: Migration = Migration {
    name: "capture",
    sql: "CREATE TABLE egret.view (id bigint, schema name, name name);
          CREATE TABLE egret.view_capture (id bigint); INSERT INTO egret.view_capture VALUES (1);
          CREATE FUNCTION egret.capture_1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
          CREATE TRIGGER egret_insert_1 AFTER INSERT ON public.t EXECUTE FUNCTION egret.capture_1()",
};

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_few_rights_removes_its_egret_and_no_superuser_does() {
    for major in [15, 18] {
        let database = TestDatabase::create(major).await;
        let mut client = database.connect().await;
        let (name, role) = (&database.name, format!("weak_{}", database.name));
        client
            .batch_execute(&format!(
                "SET search_path = public; CREATE ROLE {role}; GRANT CREATE ON DATABASE {name} TO {role};
                 CREATE TABLE t (id int); GRANT SELECT, TRIGGER ON t TO {role}"
            ))
            .await
            .unwrap();
        let become_weak = format!("SET ROLE {role}");
        client.batch_execute(&become_weak).await.unwrap();
        migrate(&mut client, "test", &[CAPTURE]).await.unwrap();
        // A table of another role may have any name, and what is Egret's is known by that role's
        // tables only.
        client.batch_execute("RESET ROLE").await.unwrap();
        let refused = uninstall(&mut client, true).await.unwrap_err();
        assert!(matches!(refused, PostgresError::ForeignSchema { .. }), "{refused}");
        client.batch_execute(&become_weak).await.unwrap();
        let removed = uninstall(&mut client, true).await.unwrap().unwrap();
        assert_eq!(removed.objects.len(), 4, "{removed:?}");
        assert_eq!(inventory(&client).await.unwrap(), None);
        client.batch_execute("RESET ROLE").await.unwrap();
        let left = "SELECT count(*) FROM pg_catalog.pg_trigger WHERE NOT tgisinternal";
        let left: i64 = client.query_one(left, &[]).await.unwrap().get(0);
        assert_eq!(left, 0);
        let forget = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        client.batch_execute(&forget).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_somebody_else_can_change_is_not_touched() {
    let database = TestDatabase::create(15).await;
    let mut client = database.connect().await;
    let role = format!("mallory_{}", std::process::id());
    let traps = [
        // A view in place of the table that Egret would read and write.
        format!(
            "CREATE SCHEMA egret AUTHORIZATION {role}; SET ROLE {role};
             CREATE VIEW egret.migration AS SELECT 1 / 0 AS checksum, 'test' AS engine, 1 AS position;
             RESET ROLE"
        ),
        format!("CREATE SCHEMA egret; GRANT CREATE ON SCHEMA egret TO {role}"),
        "CREATE SCHEMA egret; GRANT CREATE ON SCHEMA egret TO public".to_owned(),
        format!("CREATE SCHEMA egret; CREATE TABLE egret.outbox (); ALTER TABLE egret.outbox OWNER TO {role}"),
    ];
    client.batch_execute(&format!("CREATE ROLE {role}")).await.unwrap();
    for trap in &traps {
        client.batch_execute(trap).await.unwrap();
        let refused = migrate(&mut client, "test", &[FIRST]).await.unwrap_err();
        assert!(
            matches!(&refused, PostgresError::ForeignSchema { roles } if *roles == role || roles == "public"),
            "{trap}: {refused}"
        );
        client.batch_execute("DROP SCHEMA egret CASCADE").await.unwrap();
    }
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    client.batch_execute(&format!("DROP ROLE {role}")).await.unwrap();
}

//! Schema `egret`: ordered, checksummed, transactional, removed by one call.

use egret_base::Coded;
use egret_postgres::PostgresError;
use egret_postgres::migrate::{Migration, installation, migrate, uninstall};
use egret_postgres::test_support::TestDatabase;

const FIRST: Migration = Migration {
    name: "first",
    sql: "CREATE TABLE egret.thing (id int PRIMARY KEY)",
};
const SECOND: Migration = Migration {
    name: "second",
    sql: "ALTER TABLE egret.thing ADD COLUMN name text",
};
const BROKEN: Migration = Migration {
    name: "broken",
    sql: "CREATE TABLE egret.half (id int); SELECT 1/0",
};

#[tokio::test(flavor = "multi_thread")]
async fn steps_run_once_in_order_and_all_or_none() {
    for major in 15..=18 {
        let database = TestDatabase::create(major).await;
        let mut client = database.connect().await;
        migrate(&mut client, "test", &[FIRST]).await.unwrap();
        client
            .batch_execute("INSERT INTO egret.thing VALUES (1)")
            .await
            .unwrap();
        migrate(&mut client, "test", &[FIRST, SECOND])
            .await
            .unwrap();
        migrate(&mut client, "test", &[FIRST, SECOND])
            .await
            .unwrap();
        let names: i64 = client
            .query_one("SELECT count(name) + count(*) FROM egret.thing", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(names, 1);

        migrate(&mut client, "test", &[FIRST, SECOND, BROKEN])
            .await
            .unwrap_err();
        let half: bool = client
            .query_one("SELECT to_regclass('egret.half') IS NULL", &[])
            .await
            .unwrap()
            .get(0);
        assert!(half, "a failed step leaves nothing");

        let older = migrate(&mut client, "test", &[FIRST])
            .await
            .unwrap_err()
            .to_string();
        assert!(older.contains("newer Egret"), "{older}");
        let changed = Migration {
            name: "first",
            sql: "SELECT 1",
        };
        let error = migrate(&mut client, "test", &[changed, SECOND])
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("test/first has changed"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_leaves_nothing() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    let before = catalogue_size(&client).await;
    migrate(&mut client, "test", &[FIRST, SECOND])
        .await
        .unwrap();
    let found = installation(&client).await.unwrap().unwrap();
    assert_eq!(found.dependents, Vec::<String>::new());
    let removed = uninstall(&mut client, false).await.unwrap();
    assert!(removed >= 2, "{removed}");
    assert_eq!(removed, found.objects);
    assert_eq!(catalogue_size(&client).await, before);
    assert_eq!(installation(&client).await.unwrap(), None);
    assert_eq!(uninstall(&mut client, false).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_read_the_schema_go_with_it_only_by_force() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    let before = catalogue_size(&client).await;
    // The user of this session has the name of the schema, which is therefore first in its search path.
    let readers = "SET search_path = public;
                   CREATE VIEW things AS SELECT id FROM egret.thing;
                   CREATE VIEW \"Few things\" AS SELECT id FROM things LIMIT 3;
                   CREATE VIEW others AS SELECT 1 AS one";
    client.batch_execute(readers).await.unwrap();
    let found = installation(&client).await.unwrap().unwrap();
    let dependents = ["public.\"Few things\"", "public.things"];
    assert_eq!(found.dependents, dependents);
    let refused = uninstall(&mut client, false).await.unwrap_err();
    assert_eq!(refused.code(), "postgres_schema_in_use");
    assert!(
        refused.to_string().contains(&dependents.join(", ")),
        "{refused}"
    );
    assert_eq!(installation(&client).await.unwrap(), Some(found));
    uninstall(&mut client, true).await.unwrap();
    let left = "SELECT string_agg(viewname, ', ') FROM pg_views WHERE schemaname = 'public'";
    let left: String = client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "others");
    assert!(catalogue_size(&client).await < before);
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
    client
        .batch_execute(&format!("CREATE ROLE {role}"))
        .await
        .unwrap();
    for trap in &traps {
        client.batch_execute(trap).await.unwrap();
        let refused = migrate(&mut client, "test", &[FIRST]).await.unwrap_err();
        assert!(
            matches!(&refused, PostgresError::ForeignSchema { roles } if *roles == role || roles == "public"),
            "{trap}: {refused}"
        );
        client
            .batch_execute("DROP SCHEMA egret CASCADE")
            .await
            .unwrap();
    }
    migrate(&mut client, "test", &[FIRST]).await.unwrap();
    client
        .batch_execute(&format!("DROP ROLE {role}"))
        .await
        .unwrap();
}

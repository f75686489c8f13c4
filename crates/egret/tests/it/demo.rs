//! The demo's load against a real server: complete, typed, all or nothing, and once.

use egret::demo::{self, LoadOutcome, LoadProgress};
use tokio_postgres::Client;

use crate::server::PostgresServer;

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn flights_database(server: &PostgresServer) -> Client {
    let client = server.connect("postgres").await;
    client.batch_execute("CREATE DATABASE flights").await.unwrap();
    server.connect("flights").await
}

async fn load(client: &mut Client) -> anyhow::Result<LoadOutcome> {
    demo::load(client, &mut |_| {}).await
}

#[tokio::test]
async fn everything_arrives_typed_and_keyed() {
    let server = PostgresServer::start();
    let mut client = flights_database(&server).await;
    let mut seen = Vec::new();
    let outcome = demo::load(&mut client, &mut |progress| seen.push(progress)).await.unwrap();
    let LoadOutcome::Loaded(receipt) = outcome else {
        panic!("an empty database was taken for a loaded one");
    };
    assert_eq!(receipt.rows(), 336_776 + 16 + 1_458 + 3_322 + 26_115);
    assert_eq!(receipt.flights_without_plane, 52_606);
    assert_eq!(receipt.flights_without_airport, 7_602);
    assert_eq!(seen.last(), Some(&LoadProgress::Keys));
    assert!(seen.contains(&LoadProgress::Rows { sent: receipt.rows(), total: receipt.rows() }));

    for (sql, expected) in [
        ("SELECT count(*) FROM airlines", 16),
        ("SELECT count(*) FROM airports", 1_458),
        ("SELECT count(*) FROM planes", 3_322),
        ("SELECT count(*) FROM weather", 26_115),
        ("SELECT count(*) FROM flights", 336_776),
        ("SELECT count(*) FROM flights WHERE dep_time IS NULL", 8_255),
        ("SELECT count(*) FROM flights WHERE tailnum IS NULL", 2_512),
        (
            "SELECT count(*) FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE p.tailnum IS NULL",
            52_606,
        ),
        (
            "SELECT count(*) FROM flights f LEFT JOIN airports a ON a.faa = f.dest WHERE a.faa IS NULL",
            7_602,
        ),
        ("SELECT count(*) FROM flights WHERE plane_tailnum <> tailnum OR dest_faa <> dest", 0),
        ("SELECT max(flight_id) FROM flights", 336_776),
        ("SELECT sum(distance)::bigint FROM flights", 350_217_607),
        ("SELECT count(*) FROM airports WHERE tzone IS NULL", 3),
        ("SELECT count(*) FROM flights WHERE time_hour < '2013-01-01 05:00-05'", 0),
        ("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND convalidated", 5),
        (
            "SELECT count(*) FROM pg_constraint WHERE contype = 'p' AND connamespace = 'public'::regnamespace",
            5,
        ),
    ] {
        assert_eq!(count(&client, sql).await, expected, "{sql}");
    }
    // Every foreign key of the large table has an index that begins with its column.
    assert_eq!(
        count(
            &client,
            "SELECT count(*) FROM pg_constraint c WHERE contype = 'f' AND conrelid = 'flights'::regclass AND NOT EXISTS (
                 SELECT FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1])"
        )
        .await,
        0
    );
}

#[tokio::test]
async fn a_second_load_does_nothing() {
    let server = PostgresServer::start();
    let mut client = flights_database(&server).await;
    load(&mut client).await.unwrap();
    client.batch_execute("DELETE FROM flights WHERE flight_id = 1").await.unwrap();
    assert!(matches!(load(&mut client).await.unwrap(), LoadOutcome::AlreadyLoaded));
    assert_eq!(count(&client, "SELECT count(*) FROM flights").await, 336_775);
}

#[tokio::test]
async fn an_interrupted_load_leaves_nothing() {
    let server = PostgresServer::start();
    let mut client = flights_database(&server).await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let other = std::sync::Arc::new(server.connect("postgres").await);
    let runtime = tokio::runtime::Handle::current();
    let mut killed = false;
    let result = demo::load(&mut client, &mut |progress| {
        if matches!(progress, LoadProgress::Rows { sent, .. } if sent > 100_000) && !killed {
            killed = true;
            let other = other.clone();
            runtime.spawn(async move {
                other.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
            });
        }
    })
    .await;
    assert!(killed && result.is_err(), "{result:?}");

    let mut client = server.connect("flights").await;
    assert_eq!(
        count(&client, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
            .await,
        0
    );
    assert!(matches!(load(&mut client).await.unwrap(), LoadOutcome::Loaded(_)));
}

#[tokio::test]
async fn a_table_of_the_users_is_left_alone() {
    let server = PostgresServer::start();
    let mut client = server.connect("postgres").await;
    client.batch_execute("CREATE TABLE planes (mine int)").await.unwrap();
    let error = load(&mut client).await.unwrap_err().to_string();
    assert!(
        error.starts_with("the database already has planes, which the demo did not create"),
        "{error}"
    );
    assert_eq!(count(&client, "SELECT count(*) FROM planes").await, 0);
    assert_eq!(
        count(&client, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").await,
        1
    );
}

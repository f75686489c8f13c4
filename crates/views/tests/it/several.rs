//! Several views of one table, each refreshed in its own time, from one record of what changed.

use egret_base::CodedError;
use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_views::testing::{create, install};

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn check(client: &Client, view: &str, query: &str) {
    let sql = format!(
        "SELECT count(*) FROM ((TABLE {view} EXCEPT ALL {query}) UNION ALL ({query} EXCEPT ALL TABLE {view})) AS d"
    );
    assert_eq!(count(client, &sql).await, 0, "{view}: {query}");
}

#[tokio::test]
async fn each_sees_every_change_once_and_none_is_kept_longer() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    install(&mut client).await.unwrap();
    client
        .batch_execute(
            "SET search_path = public; CREATE TABLE t (id int PRIMARY KEY, a int, b text, c int);
             INSERT INTO t SELECT i, i % 3, 'b' || i % 2, i FROM generate_series(1, 20) AS i",
        )
        .await
        .unwrap();
    let queries = [
        ("one", "SELECT a, count(*) AS n FROM t GROUP BY a"),
        ("two", "SELECT b, sum(c) AS s FROM t GROUP BY b"),
        ("three", "SELECT x.id, y.b FROM t AS x JOIN t AS y ON x.a = y.c"),
    ];
    let mut views = Vec::new();
    for (at, (name, query)) in (0..).zip(queries) {
        views.push(create(&mut client, "public", name, query).await.unwrap());
        let insert = format!("INSERT INTO t VALUES ({}, 1, 'new', 2)", 100 + at);
        client.batch_execute(&insert).await.unwrap();
        // The first two only: the third is not filled yet.
        for view in views.iter().take(2) {
            view.refresh(&mut client).await.unwrap();
        }
    }
    for round in 0..6_i32 {
        let change = format!(
            "UPDATE t SET a = a + 1 WHERE id % 4 = {}; UPDATE t SET b = 'other' WHERE id = {round}; \
             INSERT INTO t VALUES ({}, {round}, 'more', {round})",
            round % 4,
            200 + round
        );
        client.batch_execute(&change).await.unwrap();
        for (at, view) in (0..).zip(&views) {
            if round % (at + 1) == 0 {
                let done = view.refresh(&mut client).await.unwrap();
                assert_eq!(done.is_full, at == 2 && round == 0, "{round} {at}");
            }
        }
    }
    for view in &views {
        view.refresh(&mut client).await.unwrap();
    }
    for (name, query) in queries {
        check(&client, name, query).await;
    }
    assert_eq!(count(&client, "SELECT count(*) FROM egret.changes_1").await, 0);
    let captures = count(&client, "SELECT count(*) FROM egret.view_capture").await;
    assert_eq!(captures, 1, "one record of one table");
    let again = create(&mut client, "public", "one", queries[0].1).await;
    assert_eq!(again.err().map(|error| error.code()), Some("view_exists"));
}

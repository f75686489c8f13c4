//! Transactions that stay open while a view is refreshed, several times: each of their changes is
//! seen once, after they have committed, whatever came before and after them.

use egret_base::{Entropy, SeededEntropy};
use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_views::testing::{create, install};

const QUERIES: [&str; 4] = [
    "SELECT t.a, t.c, u.d FROM t JOIN u ON t.c = u.c",
    "SELECT t.c, count(*) AS n, sum(u.d) AS s, max(u.d) AS m FROM t LEFT JOIN u ON t.c = u.c GROUP BY t.c",
    "SELECT DISTINCT t.c FROM t FULL JOIN u ON t.c = u.c",
    "SELECT a, c, d FROM t UNION ALL SELECT a, c, d FROM u",
];

const WRITERS: usize = 4;

struct Chance(SeededEntropy);

impl Chance {
    fn random_below(&mut self, limit: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % limit
    }
}

/// Something of writer `writer` that touches no row of another.
fn change(chance: &mut Chance, writer: usize) -> String {
    let table = if chance.random_below(2) == 0 { "t" } else { "u" };
    let (value, key) = (chance.random_below(5), chance.random_below(4));
    match chance.random_below(5) {
        0..3 => format!("INSERT INTO {table} VALUES ({writer}, {key}, {value})"),
        3 => format!("UPDATE {table} SET c = {key}, d = d + 1 WHERE a = {writer} AND d = {value}"),
        _ => format!("DELETE FROM {table} WHERE a = {writer} AND d = {value}"),
    }
}

async fn difference(client: &Client, query: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM (SELECT r, sum(w) FROM (SELECT ROW(v.*)::text AS r, 1 AS w FROM v UNION ALL \
         SELECT ROW(q.*)::text, -1 FROM ({query}) AS q) AS b GROUP BY r HAVING sum(w) <> 0) AS d"
    );
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn each_change_of_a_transaction_that_stayed_open_is_seen_once() {
    for (seed, query) in (1..).zip(QUERIES) {
        let database = TestDatabase::create(18).await;
        let mut client = database.connect().await;
        install(&mut client).await.unwrap();
        client
            .batch_execute(
                "CREATE TABLE t (a int, c int, d int); CREATE TABLE u (a int, c int, d int)",
            )
            .await
            .unwrap();
        let view = create(&mut client, "public", "v", query).await.unwrap();
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            writers.push((database.connect().await, false));
        }
        let mut chance = Chance(SeededEntropy::new(seed));
        let mut moved = 0;
        for step in 0..400 {
            let at = chance.random_below(WRITERS as u64) as usize;
            let change = change(&mut chance, at);
            let (writer, is_open) = &mut writers[at];
            let said = match (*is_open, chance.random_below(5)) {
                (true, 0) => "COMMIT",
                (true, 1) => "ROLLBACK",
                (true, _) => change.as_str(),
                (false, _) => "BEGIN",
            };
            *is_open = !matches!(said, "COMMIT" | "ROLLBACK");
            writer.batch_execute(said).await.unwrap();
            if step % 7 == 0 {
                let refreshed = view.refresh(&mut client).await.unwrap();
                assert_eq!(refreshed.is_full, step == 0);
                moved += refreshed.added + refreshed.changed + refreshed.removed;
                let wrong = difference(&client, query).await;
                assert_eq!(wrong, 0, "step {step} of {query}");
            }
        }
        assert!(moved > 20, "{moved} rows moved in {query}");
    }
}

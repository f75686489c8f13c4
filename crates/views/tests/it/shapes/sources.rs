//! What is read: views, partitions, tables without a key, and columns that are computed.

use crate::world::World;

use super::{apply_changes, check_changes};

#[tokio::test]
async fn views_are_inlined() {
    check_changes(
        "CREATE VIEW plain AS SELECT id, k, i + 1 AS more, c FROM t WHERE o IS NOT FALSE;
         CREATE VIEW named (key, number) AS SELECT k, count(*) FROM t GROUP BY k;
         CREATE VIEW joined AS SELECT plain.id, named.number, u.c FROM plain JOIN named ON plain.k = named.key LEFT JOIN u USING (k);
         CREATE VIEW with_cte AS WITH x AS (SELECT DISTINCT k FROM w) SELECT x.k, u.id FROM x JOIN u USING (k);
         CREATE VIEW renamed AS SELECT c AS old FROM w; ALTER VIEW renamed RENAME COLUMN old TO new;
         CREATE VIEW guarded WITH (security_barrier) AS SELECT k, i FROM t WHERE i > 2;",
        &[
            "SELECT * FROM plain",
            "SELECT number, count(*) AS n FROM named GROUP BY number",
            "SELECT * FROM joined",
            "SELECT a.id, b.number FROM joined AS a LEFT JOIN joined AS b ON a.number = b.id",
            "SELECT * FROM with_cte",
            "SELECT new FROM renamed UNION ALL SELECT c FROM plain",
            "SELECT k, sum(i) AS s FROM guarded GROUP BY k",
        ],
    )
    .await;
}

/// What changes partitioned tables and one beside them.
const PARTITIONS: [&str; 7] = [
    "INSERT INTO p VALUES (1, 'a', 1), (150, 'b', 2), (150, 'b', 2), (NULL, NULL, NULL); INSERT INTO q VALUES (1, 'x'), (2, 'y')",
    "UPDATE p SET v = v + 1; UPDATE q SET name = name || 'z' WHERE id = 1",
    "UPDATE p SET id = 160 WHERE id = 1; UPDATE p SET id = 2, c = 'b' WHERE v = 3",
    "UPDATE q SET id = id + 4",
    "INSERT INTO p_low VALUES (7, 'a', 1); DELETE FROM p_rest WHERE id IS NULL; INSERT INTO q_odd VALUES (1, 'w')",
    "DELETE FROM p WHERE c = 'b' AND v = 3; UPDATE q_odd SET name = 'v'",
    "DELETE FROM p; DELETE FROM q; INSERT INTO p SELECT i, 'c', i FROM generate_series(50, 150, 10) AS i",
];

#[tokio::test]
async fn partitioned_tables() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE p (id int, c text, v int) PARTITION BY RANGE (id);
             CREATE TABLE p_low PARTITION OF p FOR VALUES FROM (0) TO (100) PARTITION BY LIST (c);
             CREATE TABLE p_low_a PARTITION OF p_low FOR VALUES IN ('a');
             CREATE TABLE p_low_b (v int, gone int, c text, id int); ALTER TABLE p_low_b DROP COLUMN gone; ALTER TABLE p_low ATTACH PARTITION p_low_b DEFAULT;
             CREATE TABLE p_rest PARTITION OF p DEFAULT;
             CREATE TABLE q (id int PRIMARY KEY, name text) PARTITION BY HASH (id);
             CREATE TABLE q_even PARTITION OF q FOR VALUES WITH (MODULUS 2, REMAINDER 0);
             CREATE TABLE q_odd PARTITION OF q FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        )
        .await;
        for query in [
            "SELECT * FROM p",
            "SELECT c, count(*) AS n, sum(v) AS s, max(id) AS m FROM p GROUP BY c",
            "SELECT p.id, q.name FROM p FULL JOIN q ON p.id % 5 = q.id",
            "SELECT id, name FROM q WHERE name <> 'y'",
            "SELECT a.id, b.v FROM p AS a JOIN p AS b ON a.c = b.c",
        ] {
            world.view(query).await;
        }
        // A row of a table by hash may only be put where it belongs.
        let odd = "SELECT satisfies_hash_partition('q'::regclass, 2, 1, 1)";
        let is_odd = world.text(odd).await.as_deref() == Some("true");
        let all = PARTITIONS.map(|change| {
            if is_odd {
                change.to_owned()
            } else {
                change.replace("INSERT INTO q_odd", "INSERT INTO q_even")
            }
        });
        apply_changes(&mut world, &all.each_ref().map(String::as_str)).await;
    }
}

#[tokio::test]
async fn tables_without_a_key_or_with_another_than_a_primary_one() {
    check_changes(
        "CREATE TABLE other (a int NOT NULL, b text NOT NULL, c int, UNIQUE (b, a)); CREATE TABLE late (a int NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED, b text);
         CREATE TABLE part (a int NOT NULL, b text); CREATE UNIQUE INDEX ON part (a) WHERE b IS NULL; CREATE TABLE nullable (a int UNIQUE, b text);
         CREATE FUNCTION follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO other SELECT id, coalesce(c, ''), i FROM u ON CONFLICT (b, a) DO UPDATE SET c = excluded.c + 1;
             UPDATE other SET a = a + 10000 WHERE a % 2 = 0;
             DELETE FROM late; INSERT INTO late SELECT DISTINCT ON (i) i, c FROM u WHERE i IS NOT NULL ORDER BY i, id; UPDATE late SET a = a + 1;
             INSERT INTO part SELECT 1, c FROM w WHERE c IS NOT NULL; DELETE FROM part WHERE b = 'a';
             INSERT INTO nullable VALUES (NULL, 'x'), (NULL, 'x'); UPDATE nullable SET b = b || 'y';
             RETURN NULL; END $$;
         CREATE TRIGGER follows AFTER UPDATE ON u EXECUTE FUNCTION follows();",
        &[
            "SELECT k, c FROM w",
            "SELECT a, b, c FROM other",
            "SELECT c FROM other WHERE a > 3",
            "SELECT a, b FROM late",
            "SELECT a, b FROM part",
            "SELECT a, b FROM nullable",
            "SELECT o.a, l.b, w.c FROM other AS o LEFT JOIN late AS l ON o.c = l.a LEFT JOIN w ON w.i = l.a",
        ],
    )
    .await;
}

#[tokio::test]
async fn generated_columns() {
    for (version, kinds) in [(15, vec!["STORED"]), (18, vec!["STORED", "VIRTUAL"])] {
        for kind in kinds {
            let mut world = World::new(
                version,
                &format!(
                    "CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, b int, sum int GENERATED ALWAYS AS (a + b) {kind},
                         label text GENERATED ALWAYS AS ('l' || a) {kind})"
                ),
            )
            .await;
            for query in [
                "SELECT id, sum, label FROM g",
                "SELECT sum, count(*) AS n FROM g GROUP BY sum",
                "SELECT label FROM g WHERE sum > 5",
                "SELECT x.id, y.label FROM g AS x LEFT JOIN g AS y ON x.sum = y.a",
            ] {
                world.view(query).await;
            }
            apply_changes(
                &mut world,
                &[
                    "INSERT INTO g (a, b) VALUES (1, 2), (3, 4), (NULL, 1)",
                    "UPDATE g SET b = b + 1",
                    "UPDATE g SET a = 7 WHERE a IS NULL",
                    "DELETE FROM g WHERE sum > 6",
                ],
            )
            .await;
        }
    }
}

//! Subqueries within subqueries, and what they come to of rows that there are none of.

use super::check_changes;

#[tokio::test]
async fn values_of_no_rows_know_the_row_around_them() {
    check_changes(
        "",
        &[
            "SELECT t.id, (SELECT coalesce(max(u.i), t.i) FROM u WHERE u.k = t.k) AS m FROM t",
            "SELECT t.id, (SELECT count(*) + t.k FROM u WHERE u.i < t.i) AS n FROM t",
            "SELECT t.id, (SELECT count(*) FROM u WHERE u.k = t.k HAVING count(*) < t.i) AS n FROM t",
            "SELECT t.id FROM t WHERE (SELECT count(*) + t.k FROM u WHERE u.k = t.i) > 1",
            "SELECT t.id, EXISTS (SELECT count(*) FROM u WHERE u.i < t.k HAVING count(*) >= t.k) AS e FROM t",
            "SELECT t.id, ARRAY(SELECT coalesce(sum(u.i), t.k) FROM u WHERE u.i > t.i) AS a FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn values_within_values() {
    check_changes(
        "",
        &[
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.i < t.i AND u.k = (SELECT min(w.k) FROM w)) AS m FROM t",
            "SELECT t.id, ARRAY(SELECT u.id FROM u WHERE u.i < t.i AND u.k = (SELECT min(w.k) FROM w) ORDER BY u.id) AS a FROM t",
            "SELECT t.id, EXISTS (SELECT FROM u WHERE u.i < t.i AND (SELECT max(w.i) FROM w) = u.k) AS e FROM t",
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.k = (SELECT min(w.k) FROM w)) AS m FROM t",
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.k = t.k AND u.i = (SELECT max(x.i) FROM u AS x WHERE x.k = t.k)) AS m FROM t",
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.i = t.k + u.k) AS m FROM t",
            "SELECT t.id, x.n FROM t, LATERAL (SELECT count(*) + (SELECT count(*) FROM w WHERE w.k = t.k) AS n FROM u WHERE u.k = t.k) AS x",
            "SELECT t.id, x.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.k = t.k HAVING count(*) < (SELECT count(*) FROM w WHERE w.k = t.k)) AS x",
            "SELECT t.id, (SELECT count(*) + (SELECT count(*) FROM w WHERE w.k < t.k) FROM u WHERE u.i < t.i) AS n FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn sides_of_a_union_that_are_told_apart_have_one_type() {
    check_changes(
        "CREATE TABLE n (id integer PRIMARY KEY, v numeric, k numeric); INSERT INTO n VALUES (1, 3, 1), (2, 1.5, NULL)",
        &[
            "SELECT x.id, x.v / 2 AS q FROM (SELECT id, i AS v FROM t UNION ALL SELECT id, v FROM n) AS x",
            "SELECT x.id, rank() OVER (PARTITION BY x.k ORDER BY x.id) AS r FROM (SELECT id, k FROM t UNION ALL SELECT id, k FROM n) AS x",
            "SELECT x.id, x.v / 2 AS q FROM (SELECT id, i AS v FROM t UNION ALL SELECT id, v FROM n UNION ALL SELECT id, k FROM u) AS x",
        ],
    )
    .await;
}

#[tokio::test]
async fn groups_of_null_on_both_sides_of_a_full_join() {
    check_changes(
        "",
        &[
            "SELECT a.k, a.n, b.k AS k2, b.n AS m FROM (SELECT k, count(*) AS n FROM t GROUP BY k) AS a \
             FULL JOIN (SELECT k, count(*) AS n FROM u GROUP BY k) AS b ON a.k = b.k",
            "SELECT a.k, b.k AS k2 FROM (SELECT DISTINCT k FROM t) AS a FULL JOIN (SELECT DISTINCT k FROM w) AS b ON a.k = b.k",
            "SELECT a.n, b.m FROM (SELECT count(*) AS n FROM t) AS a FULL JOIN (SELECT count(*) AS m FROM u) AS b ON a.n = b.m",
        ],
    )
    .await;
}

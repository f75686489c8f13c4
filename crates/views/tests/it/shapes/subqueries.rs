//! WHERE with subqueries.

use super::check_changes;

#[tokio::test]
async fn rows_for_which_something_exists_or_nothing_does() {
    check_changes(
        "",
        &[
            "SELECT id, c FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k)",
            "SELECT id, c FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.k = t.k)",
            "SELECT id, i FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k AND u.i > 2) AND i > 1",
            "SELECT id, i FROM t WHERE NOT EXISTS (SELECT FROM w WHERE w.i BETWEEN t.i - 1 AND t.i) AND NOT EXISTS (SELECT FROM u WHERE u.c = t.c)",
            "SELECT c, i FROM w WHERE EXISTS (SELECT FROM u JOIN t ON t.k = u.k WHERE u.c = w.c OR t.i = w.i)",
            "SELECT c, count(*) AS n, sum(i) AS s FROM w WHERE NOT EXISTS (SELECT FROM u WHERE u.k = w.k) GROUP BY c",
            "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.i > 7)",
            "SELECT id FROM t WHERE NOT EXISTS (SELECT FROM w WHERE w.k IS NULL)",
            "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k AND EXISTS (SELECT FROM w WHERE w.k = u.k AND w.i = u.i))",
            "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k AND NOT EXISTS (SELECT FROM w WHERE w.c = u.c))",
            "SELECT t.id, u.id AS j FROM t JOIN u ON t.k = u.k WHERE EXISTS (SELECT FROM w WHERE w.i = t.i AND w.k = u.k)",
            "SELECT x.id FROM t AS x WHERE NOT EXISTS (SELECT FROM t AS y WHERE y.k = x.k AND y.i > x.i)",
        ],
    )
    .await;
}

#[tokio::test]
async fn rows_that_are_in_a_subquery_or_not_where_nulls_make_it_unknown() {
    check_changes(
        "",
        &[
            "SELECT id, k FROM t WHERE k IN (SELECT k FROM u)",
            "SELECT id, k FROM t WHERE i NOT IN (SELECT k FROM u)",
            "SELECT id, k FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)",
            "SELECT id, i FROM t WHERE i NOT IN (SELECT u.i FROM u WHERE u.k = t.k)",
            "SELECT id, i FROM t WHERE i + 1 IN (SELECT w.i * 2 FROM w WHERE w.c < t.c)",
            "SELECT id FROM t WHERE (k, c) IN (SELECT k, c FROM u)",
            "SELECT id FROM t WHERE (k, c) NOT IN (SELECT k, c FROM w)",
            "SELECT c, k FROM w WHERE k IN (SELECT u.k FROM u WHERE u.i IN (SELECT t.i FROM t WHERE t.o))",
            "SELECT id FROM t WHERE k IN (SELECT k FROM u UNION ALL SELECT i FROM w)",
            "SELECT id FROM t WHERE i NOT IN (SELECT count(*) FROM u GROUP BY k)",
            "SELECT id FROM t WHERE i NOT IN (SELECT DISTINCT k FROM w)",
            "SELECT id FROM t WHERE NOT (NOT (k IN (SELECT k FROM w)))",
        ],
    )
    .await;
}

#[tokio::test]
async fn rows_compared_with_any_or_all_of_a_subquery() {
    check_changes(
        "",
        &[
            "SELECT id, i FROM t WHERE i > ANY (SELECT i FROM u)",
            "SELECT id, i FROM t WHERE i >= ALL (SELECT i FROM u WHERE u.k = t.k)",
            "SELECT id, i FROM t WHERE NOT (i > ANY (SELECT i FROM w WHERE w.k = t.k))",
            "SELECT id, i FROM t WHERE NOT (i < ALL (SELECT i FROM w))",
            "SELECT id, c FROM t WHERE c <> ALL (SELECT c FROM u)",
            "SELECT id, c FROM t WHERE c LIKE ANY (SELECT c || '%' FROM u)",
            "SELECT id, i FROM t WHERE i = ANY (SELECT sum(i) FROM w GROUP BY k)",
            "SELECT id, i FROM t WHERE i < ALL (SELECT max(i) FROM u)",
            "SELECT id, i FROM t WHERE i NOT IN (SELECT count(*) FROM u WHERE k > 1 HAVING count(*) > 1)",
            "SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE k > 90)",
        ],
    )
    .await;
}

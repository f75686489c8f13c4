//! INTERSECT, EXCEPT and UNION, and grouping sets.

use super::check_changes;

#[tokio::test]
async fn rows_of_both_sides_or_of_one() {
    check_changes(
        "",
        &[
            "SELECT k, c FROM t INTERSECT SELECT k, c FROM u",
            "SELECT k FROM t INTERSECT ALL SELECT k FROM w",
            "SELECT k, c FROM w EXCEPT SELECT k, c FROM u",
            "SELECT k FROM w EXCEPT ALL SELECT k FROM u",
            "SELECT k AS x, count(*) AS n FROM t GROUP BY k EXCEPT SELECT k, count(*) FROM u GROUP BY k",
            "(SELECT k FROM t UNION SELECT i FROM u) EXCEPT (SELECT k FROM w INTERSECT SELECT i FROM w)",
            "SELECT k, count(*) AS n FROM (SELECT k FROM w INTERSECT ALL SELECT i FROM w) AS x GROUP BY k",
            "SELECT i FROM t INTERSECT SELECT b FROM t",
            "SELECT id FROM t WHERE k IN (SELECT k FROM u EXCEPT SELECT i FROM w)",
            "SELECT c FROM t EXCEPT ALL SELECT c FROM u ORDER BY c LIMIT 3",
            "SELECT m, f FROM t EXCEPT SELECT m * 2, f FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn several_sets_of_keys() {
    check_changes(
        "",
        &[
            "SELECT k, c, count(*) AS n, sum(i) AS s FROM t GROUP BY ROLLUP (k, c)",
            "SELECT k, c, count(*) AS n, grouping(k, c) AS g FROM w GROUP BY CUBE (k, c)",
            "SELECT k, c, i, sum(id) AS s FROM u GROUP BY GROUPING SETS ((k, c), (i), ())",
            "SELECT coalesce(upper(c), 'all') AS c, max(i) AS m FROM t GROUP BY ROLLUP (upper(c))",
            "SELECT k, o, count(*) AS n FROM t GROUP BY k, ROLLUP (o) HAVING count(*) > 1",
            "SELECT k, c, sum(i) AS s FROM t GROUP BY DISTINCT ROLLUP (k, c), ROLLUP (k)",
            "SELECT k, c, count(*) AS n FROM w GROUP BY GROUPING SETS ((k), (k), ROLLUP (k, c))",
            "SELECT k, c, count(*) AS n FROM t GROUP BY ROLLUP (k, c) ORDER BY k NULLS LAST, c NULLS LAST LIMIT 4",
            "SELECT t.k, u.c, count(*) AS n FROM t LEFT JOIN u ON t.k = u.k GROUP BY CUBE (t.k, u.c)",
            "SELECT abs(b) AS a, -m AS m, to_char(d, 'YYYY-MM') AS d, sum(i) AS s FROM t GROUP BY GROUPING SETS ((), (b, m), (d))",
            "SELECT k FROM t GROUP BY ROLLUP (k)",
            "SELECT k, c, sum(i) AS s, rank() OVER (PARTITION BY grouping(k, c) ORDER BY sum(i) DESC) AS r FROM t GROUP BY ROLLUP (k, c)",
            "SELECT upper(c) AS c, sum(sum(i)) OVER (ORDER BY upper(c) NULLS LAST) + count(*) AS s FROM u GROUP BY CUBE (upper(c))",
            "SELECT k, generate_series(1, count(*)) + coalesce(k, 0) AS g FROM t GROUP BY ROLLUP (k)",
            "SELECT k, c, count(*) AS n, (SELECT max(u.i) FROM u WHERE u.k = t.k) AS m, lag(k) OVER (ORDER BY grouping(k, c), k, c) AS l FROM t GROUP BY ROLLUP (k, c)",
            "SELECT id, x.one FROM t, (SELECT 1 AS one FROM u GROUP BY ()) AS x",
        ],
    )
    .await;
}

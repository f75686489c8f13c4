//! Joins, three deep and deeper.

use super::check_changes;

#[tokio::test]
async fn inner_joins() {
    check_changes(
        "",
        &[
            "SELECT t.id, u.id AS j, w.c, x.i FROM t JOIN u ON t.k = u.k JOIN w ON w.k = u.k JOIN t AS x ON x.id = u.i",
            "SELECT t.id, u.c, w.i FROM t JOIN (u JOIN w ON u.k = w.k) ON t.k = u.k",
            "SELECT t.id, u.c, w.i FROM t, u, w WHERE t.k = u.k AND u.k = w.k AND t.i > 1",
        ],
    )
    .await;
}

#[tokio::test]
async fn left_joins() {
    check_changes(
        "",
        &[
            "SELECT t.id, u.id AS j, w.c, x.i FROM t LEFT JOIN u ON t.k = u.k LEFT JOIN w ON u.k = w.k LEFT JOIN t AS x ON x.id = w.i",
            "SELECT t.id, u.c, w.i FROM t LEFT JOIN (u JOIN w ON u.k = w.k) ON t.k = u.k",
            "SELECT t.id, u.c, w.i FROM t LEFT JOIN (u LEFT JOIN w ON u.k = w.k AND w.i > 1) ON t.k = u.k AND t.o",
            // Rows that match nothing, and nothing else.
            "SELECT t.id FROM t LEFT JOIN u ON t.k = u.k WHERE u.id IS NULL",
            "SELECT t.id, u.id AS j FROM t LEFT JOIN u ON false",
            "SELECT t.id, u.id AS j FROM t LEFT JOIN u ON true",
        ],
    )
    .await;
}

#[tokio::test]
async fn right_joins() {
    check_changes(
        "",
        &[
            "SELECT t.id, u.id AS j, w.c FROM t RIGHT JOIN u ON t.k = u.k RIGHT JOIN w ON u.k = w.k",
            "SELECT t.id, u.id AS j, w.c, x.i FROM t RIGHT JOIN (u RIGHT JOIN w ON u.k = w.k) ON t.k = w.k JOIN t AS x ON x.k = w.k",
            "SELECT t.id, w.c, u.i FROM t LEFT JOIN u ON t.k = u.k RIGHT JOIN w ON w.k = t.k AND w.i = u.i",
        ],
    )
    .await;
}

#[tokio::test]
async fn full_joins() {
    check_changes(
        "",
        &[
            "SELECT t.id, u.id AS j, w.c FROM t FULL JOIN u ON t.k = u.k FULL JOIN w ON u.k = w.k",
            "SELECT k, t.c, u.c AS d, w.c AS e FROM t FULL JOIN u USING (k) FULL JOIN w USING (k)",
            "SELECT t.id, u.id AS j, x.id AS l FROM t FULL JOIN (u FULL JOIN t AS x ON u.i = x.i) ON t.k = u.k",
            "SELECT t.id, u.id AS j, w.c FROM t LEFT JOIN u ON t.k = u.k FULL JOIN w ON t.i = w.i AND u.c = w.c",
        ],
    )
    .await;
}

#[tokio::test]
async fn cross_joins() {
    check_changes(
        "",
        &[
            "SELECT t.id, u.id AS j, w.c FROM t CROSS JOIN u CROSS JOIN w WHERE w.i = 1",
            "SELECT u.id, w.c, x.c AS d FROM u, w, w AS x",
            "SELECT u.id, one.n FROM u CROSS JOIN (SELECT 1 AS n) AS one",
            "SELECT u.id, g.n FROM u CROSS JOIN (SELECT count(*) AS n FROM t) AS g",
        ],
    )
    .await;
}

#[tokio::test]
async fn natural_joins() {
    check_changes(
        "CREATE VIEW x AS SELECT k, i AS n FROM t;",
        &[
            "SELECT * FROM w NATURAL JOIN u",
            "SELECT * FROM w NATURAL LEFT JOIN x NATURAL LEFT JOIN u",
            "SELECT * FROM w NATURAL RIGHT JOIN u NATURAL JOIN x",
            "SELECT * FROM w NATURAL FULL JOIN u NATURAL FULL JOIN x",
        ],
    )
    .await;
}

#[tokio::test]
async fn joins_using_columns() {
    check_changes(
        "",
        &[
            "SELECT k, t.k AS a, u.k AS b, w.k AS c FROM t JOIN u USING (k) JOIN w USING (k)",
            "SELECT k, s.c, t.id, w.i FROM t LEFT JOIN u USING (k) LEFT JOIN w USING (k) LEFT JOIN (SELECT id, c FROM u) AS s (i, c) ON s.i = t.i",
            "SELECT both_keys.k, t.id FROM t JOIN w USING (k) AS both_keys",
            "SELECT k, i, t.id, w.c FROM t RIGHT JOIN w USING (k, i)",
            "SELECT k, i, t.id, u.id AS j FROM t FULL JOIN u USING (i, k) WHERE k IS NOT NULL",
            "SELECT j.k, j.i, j.d FROM (t JOIN w USING (k, i)) AS j (k, i, id, c, b, m, f, o, v, h, d, s, c2)",
            "SELECT k, count(*) AS n FROM t FULL JOIN w USING (k) GROUP BY k",
        ],
    )
    .await;
}

/// Of the type that the server finds for both.
#[tokio::test]
async fn joins_using_columns_of_different_types() {
    check_changes(
        "CREATE VIEW wide AS SELECT k::numeric AS k, i::bigint AS i, c::varchar(2) AS c, id FROM u;",
        &[
            "SELECT k, k / 2 AS half, t.id FROM t JOIN wide USING (k)",
            "SELECT k, k / 2 AS half, t.id, wide.id AS j FROM t LEFT JOIN wide USING (k)",
            "SELECT k, k / 2 AS half, t.id, wide.id AS j FROM wide RIGHT JOIN t USING (k)",
            "SELECT k, k / 2 AS half, t.id, wide.id AS j FROM t RIGHT JOIN wide USING (k)",
            "SELECT k, k / 2 AS half, t.id, wide.id AS j FROM t FULL JOIN wide USING (k)",
            "SELECT k, i, k / 2 AS half, sum(t.m) AS s FROM t JOIN wide USING (k, i) GROUP BY k, i",
        ],
    )
    .await;
}

#[tokio::test]
async fn joins_on_more_than_equality() {
    check_changes(
        "",
        &[
            "SELECT t.id, u.id AS j, w.c FROM t JOIN u ON t.i < u.i AND t.k <> u.k LEFT JOIN w ON w.i BETWEEN t.i AND u.i",
            "SELECT t.id, u.id AS j, w.k FROM t LEFT JOIN u ON t.k = u.k OR t.i = u.i LEFT JOIN w ON w.k > u.k",
            "SELECT t.id, u.id AS j, w.i FROM t RIGHT JOIN u ON t.c || 'x' = u.c OR t.c IS NULL RIGHT JOIN w ON w.k + 1 >= u.k",
            "SELECT t.id, u.id AS j FROM t LEFT JOIN u ON t.c IS NOT DISTINCT FROM u.c",
        ],
    )
    .await;
}

#[tokio::test]
async fn joins_of_a_table_with_itself() {
    check_changes(
        "",
        &[
            "SELECT a.id, b.id AS x, c.id AS y, d.id AS z FROM t AS a JOIN t AS b ON a.i = b.k JOIN t AS c ON c.k = b.k JOIN t AS d ON d.i = c.i",
            "SELECT a.id, b.id AS x, c.id AS y FROM t AS a LEFT JOIN t AS b ON a.i = b.k LEFT JOIN t AS c ON c.k = b.i",
            "SELECT a.c, b.c AS x, c.c AS y FROM w AS a FULL JOIN w AS b ON a.i = b.k FULL JOIN w AS c ON c.k = b.i",
            "SELECT a.k, count(*) AS n, sum(b.i) AS s FROM w AS a LEFT JOIN w AS b ON a.k < b.k GROUP BY a.k",
            "SELECT a.id FROM t AS a LEFT JOIN t AS b ON b.i > a.i WHERE b.id IS NULL",
        ],
    )
    .await;
}

/// So many that the statement for their changes would name the tables thousands of times, or
/// millions: parts of them are kept apart.
#[tokio::test]
async fn outer_joins_nested_deep() {
    let chain: String = (1..=8)
        .map(|at| {
            let table = if at % 2 == 0 { "u" } else { "w" };
            format!(" LEFT JOIN {table} AS x{at} ON x{at}.i = x{}.i AND x{at}.c = 'a'", at - 1)
        })
        .collect();
    let full =
        "SELECT coalesce(t.k, u.k) AS k, t.i, u.c FROM t FULL JOIN u ON t.k = u.k AND t.i = u.i";
    let pair = format!(
        "SELECT a.k, a.i, b.c FROM ({full}) AS a FULL JOIN ({full}) AS b ON a.k = b.k AND a.i = b.i"
    );
    check_changes(
        "",
        &[
            &format!("SELECT x0.id, x1.c, x8.i FROM t AS x0{chain}"),
            &format!("SELECT count(*) AS n, sum(x8.i) AS s FROM t AS x0{chain}"),
            &format!("SELECT a.k, a.c, b.i FROM ({pair}) AS a LEFT JOIN ({pair}) AS b ON a.k = b.i"),
            &format!("SELECT a.k, a.c FROM ({pair}) AS a WHERE EXISTS (SELECT FROM ({pair}) AS b WHERE b.k = a.k AND b.c = a.c)"),
            &format!("SELECT count(*) AS n FROM ({pair}) AS a LEFT JOIN ({pair}) AS b ON true"),
        ],
    )
    .await;
}

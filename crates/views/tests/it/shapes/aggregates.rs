//! Every aggregate: by groups, with a filter, over everything, and of joined rows. `{}` is where a
//! filter goes.

use super::check_changes;

async fn check_aggregates(setup: &str, aggregates: &[&str]) {
    let list = |filter: &str| {
        let calls = (1..).zip(aggregates);
        let calls = calls.map(|(at, call)| format!("{} AS x{at}", call.replace("{}", filter)));
        calls.collect::<Vec<_>>().join(", ")
    };
    let (plain, filtered) = (list(""), list(" FILTER (WHERE o OR k = 1)"));
    let queries = [
        format!("SELECT c, {plain} FROM t GROUP BY c"),
        format!("SELECT k, {filtered} FROM t GROUP BY k"),
        format!("SELECT {plain}, {} FROM t", filtered.replace(" AS x", " AS y")),
        format!(
            "SELECT k % 2 AS odd, {plain} FROM t JOIN (SELECT k AS key FROM w) AS w ON k = key GROUP BY k % 2"
        ),
    ];
    check_changes(setup, &queries.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn counts_sums_and_averages() {
    check_aggregates(
        "",
        &[
            "count(*){}",
            "count(i){}",
            "count(c || c){}",
            "sum(i){}",
            "sum(b){}",
            "sum(m){}",
            "sum(f){}",
            "sum(i * m){}",
            "avg(i){}",
            "avg(b){}",
            "avg(m){}",
            "avg(f){}",
            "sum(i){} + count(*){}",
            "sum(s - '2013-01-01'){}",
            "sum(m * (1 - m)){}",
            "avg(m * 0.5){}",
            "sum(CASE WHEN k = 1 THEN m * 2 ELSE 0 END){}",
            "avg(CASE WHEN i > 3 THEN m * m ELSE i END){}",
            "sum(coalesce(m, 0.125)){}",
            "sum(CASE WHEN k = 1 THEN m WHEN k = 2 THEN 0.125 ELSE 0 END){}",
        ],
    )
    .await;
}

#[tokio::test]
async fn least_and_greatest() {
    check_aggregates(
        "",
        &[
            "min(i){}", "max(i){}", "min(c){}", "max(c){}", "min(m){}", "max(f){}", "min(d){}",
            "max(s){}", "max(v){}",
        ],
    )
    .await;
}

#[tokio::test]
async fn of_truth_and_of_bits() {
    check_aggregates(
        "",
        &[
            "bool_and(o){}",
            "bool_or(o){}",
            "every(i > 1){}",
            "bool_or(i IS NULL){}",
            "bit_and(i){}",
            "bit_or(b){}",
            "bit_xor(i){}",
            "bit_xor(i::bit(8)){}",
        ],
    )
    .await;
}

/// Those of whole and decimal numbers are exact. Those of floats are rounded here: SQL leaves open
/// in which order they are added up.
#[tokio::test]
async fn of_statistics() {
    let mut all: Vec<String> = Vec::new();
    for function in ["stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"] {
        all.extend([
            format!("{function}(i){{}}"),
            format!("{function}(m){{}}"),
            format!("round(({function}(f){{}})::numeric, 6)"),
        ]);
    }
    for function in [
        "corr",
        "covar_pop",
        "covar_samp",
        "regr_avgx",
        "regr_avgy",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
    ] {
        all.push(format!("round(({function}(f, i){{}})::numeric, 6)"));
    }
    all.push("regr_count(f, i){}".to_owned());
    check_aggregates("", &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn of_texts_arrays_and_json_in_order() {
    check_aggregates(
        "",
        &[
            "string_agg(c, ',' ORDER BY c, id){}",
            "string_agg(c, c ORDER BY id DESC){}",
            "array_agg(i ORDER BY i DESC NULLS LAST, id){}",
            "array_agg(c ORDER BY id){}",
            "json_agg(c ORDER BY id){}",
            "jsonb_agg(h ORDER BY id){}",
            "json_agg(m ORDER BY m, id){}",
            "json_object_agg(id, c ORDER BY id){}",
            "jsonb_object_agg(id, i ORDER BY id){}",
            "string_agg(c::bytea, '\\x00' ORDER BY id){}",
        ],
    )
    .await;
}

#[tokio::test]
async fn of_ordered_sets() {
    check_aggregates(
        "",
        &[
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY i){}",
            "percentile_cont(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY f){}",
            "percentile_disc(0.5) WITHIN GROUP (ORDER BY m){}",
            "percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY c DESC){}",
            "mode() WITHIN GROUP (ORDER BY i){}",
            "rank(3) WITHIN GROUP (ORDER BY i){}",
            "dense_rank(3, 'b') WITHIN GROUP (ORDER BY i, c){}",
            "percent_rank(2) WITHIN GROUP (ORDER BY m DESC){}",
            "cume_dist(2) WITHIN GROUP (ORDER BY i){}",
        ],
    )
    .await;
}

#[tokio::test]
async fn of_different_values() {
    check_aggregates(
        "",
        &[
            "count(DISTINCT i){}",
            "count(DISTINCT c){}",
            "sum(DISTINCT m){}",
            "avg(DISTINCT i){}",
            "string_agg(DISTINCT c, ',' ORDER BY c){}",
            "array_agg(DISTINCT i ORDER BY i DESC){}",
            "count(DISTINCT (i, c)){}",
            "max(DISTINCT i){}",
        ],
    )
    .await;
}

#[tokio::test]
async fn of_ranges() {
    check_aggregates(
        "",
        &[
            "range_agg(int4range(i, i + 2)){}",
            "range_intersect_agg(int4range(0, i + 1)){}",
            "range_agg(numrange(m, m, '[]')){}",
        ],
    )
    .await;
}

/// Also one that is called like one of the server's own and does something else.
#[tokio::test]
async fn that_users_define() {
    check_aggregates(
        "CREATE AGGREGATE product(numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
         CREATE FUNCTION keep(anyelement, anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1';
         CREATE AGGREGATE first(anyelement) (SFUNC = keep, STYPE = anyelement);
         CREATE FUNCTION weigh(numeric, numeric, numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1 + coalesce($2 * $3, 0)';
         CREATE AGGREGATE weighted(numeric, numeric) (SFUNC = weigh, STYPE = numeric, INITCOND = '0');
         CREATE SCHEMA mine; CREATE AGGREGATE mine.sum(int) (SFUNC = int4pl, STYPE = int, INITCOND = '1000');
         CREATE AGGREGATE mine.share(float8 ORDER BY anyelement)
             (SFUNC = ordered_set_transition, STYPE = internal, FINALFUNC = percentile_disc_final, FINALFUNC_EXTRA);",
        &[
            "product(m){}",
            "product(DISTINCT i){}",
            "first(c ORDER BY id){}",
            "weighted(m, i){}",
            "mine.sum(i){}",
            "mine.share(0.5) WITHIN GROUP (ORDER BY m){}",
            "sum(i){}",
        ],
    )
    .await;
}

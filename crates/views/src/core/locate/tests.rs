//! Places in queries as the server prints them, and as they were written.

use super::*;

/// What stands in `written` where `marked` stands in `resolved`.
fn check(resolved: &str, marked: &str, written: &str, expected: Option<&str>) {
    let position = resolved.find(marked).unwrap() + 1;
    let found = locate_position(resolved, position, written);
    let expected = expected.map(|expected| written.find(expected).unwrap() + 1);
    assert_eq!(found, expected, "{resolved}: {marked}");
}

#[test]
fn a_word_is_found_where_it_was_written() {
    let resolved = " SELECT t.a,\n    random() AS dice\n   FROM t\n  WHERE (t.a > 1)\n LIMIT 3";
    let written = "select a, -- random\n RANDOM() as dice from T where a > 1 limit 3";
    check(resolved, "random()", written, Some("RANDOM"));
    check(resolved, "LIMIT", written, Some("limit"));
}

#[test]
fn a_repeated_word_is_located_by_its_occurrence() {
    let resolved = "SELECT max(t.a) AS max, max(t.b) OVER () AS over FROM t";
    let written = "select max(a) as max, max(b) over () as over from t";
    check(resolved, "max(t.b)", written, Some("max(b)"));
}

#[test]
fn column_names_added_by_the_server_are_ignored() {
    let resolved = "SELECT 'é'::text, random() AS random FROM t";
    check(resolved, "random()", "select 'é', random() from t", Some("random()"));
}

#[test]
fn a_bracket_is_located_by_its_content() {
    let resolved = "SELECT t.a FROM t WHERE (t.a > ( SELECT avg(t_1.a) AS avg FROM t t_1))";
    let written = "select a from t where a > (select avg(a) from t)";
    check(resolved, "( SELECT", written, Some("select avg"));
}

#[test]
fn a_schema_need_not_have_been_written() {
    let resolved = "SELECT public.reads() AS reads FROM public.t";
    check(resolved, "public.reads", "select reads() as reads from t", Some("reads()"));
}

#[test]
fn an_ambiguous_position_is_none() {
    check("SELECT random() AS random FROM t", "random()", "select random() random from t", None);
    assert_eq!(locate_position("SELECT 1", 4, "select 1"), None);
    assert_eq!(locate_position("SELECT 'open", 1, "select 1"), None);
}

#[test]
fn a_call_is_a_name_with_arguments() {
    let query = "SELECT now AS now, pg_catalog.now() AS later, now() FROM t";
    assert_eq!(find_call(query, "now"), Some(31));
    assert_eq!(find_call(query, "random"), None);
}

#[test]
fn the_clock_is_found_where_it_is_called() {
    for query in [
        "SELECT now()",
        "SELECT a FROM t WHERE b < CURRENT_DATE - 1",
        "SELECT pg_catalog.transaction_timestamp () AS a",
        "SELECT LOCALTIME(3)",
    ] {
        assert!(calls_clock(query), "{query}");
    }
    for query in [
        "SELECT now FROM t",
        "SELECT 'now()', 'current_date'",
        "SELECT \"current_date\" FROM t AS now -- now()",
    ] {
        assert!(!calls_clock(query), "{query}");
    }
}

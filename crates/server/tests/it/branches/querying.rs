//! Statements through the API: values by type, parameters, databases, and what PostgreSQL refuses.

use reqwest::Method;
use serde_json::{Value, json};

use super::rig::shared;

#[tokio::test]
async fn values_come_as_json_where_json_is_exact() {
    let rig = shared();
    rig.create_branch("types").await;
    let answer = rig
        .query(
            "types",
            "SELECT true AS bool, 1::int2 AS int2, -2 AS int4, 9007199254740991 AS safe,
                9007199254740993 AS large, 4294967295::oid AS oid, 1.5::float4 AS float4,
                0.1::float8 AS float8, 'NaN'::float8 AS nan, '-Infinity'::float8 AS infinite,
                1.10::numeric AS numeric, 'ü \"'::text AS text, NULL::int AS nothing,
                '{\"a\": [1, 2.50]}'::jsonb AS jsonb, '{1,2}'::int[] AS array,
                '\\x00ff'::bytea AS bytea, '2013-01-01'::date AS date, 'small'::pg_catalog.name AS name,
                ROW(1, 2) AS record, '[1,2)'::int4range AS range",
        )
        .await;
    let columns = answer["columns"].as_array().unwrap();
    let types: Vec<&str> = columns.iter().map(|one| one["type"].as_str().unwrap()).collect();
    assert_eq!(
        types.join(" "),
        "bool int2 int4 int8 int8 oid float4 float8 float8 float8 numeric text int4 jsonb _int4 bytea \
         date name record int4range"
    );
    assert_eq!(columns[0]["name"], "bool");
    assert_eq!(
        answer["rows"],
        json!([[
            true, 1, -2, 9_007_199_254_740_991_u64, "9007199254740993", 4_294_967_295_u64, 1.5, 0.1,
            "NaN", "-Infinity", "1.10", "ü \"", null, {"a": [1, 2.5]}, "{1,2}", "\\x00ff",
            "2013-01-01", "small", "(1,2)", "[1,2)"
        ]])
    );
    assert_eq!(answer["command"], "SELECT 1");
    assert!(answer["elapsed_ms"].as_f64().unwrap() > 0.0);
    rig.query("types", "CREATE TYPE mood AS ENUM ('calm')").await;
    let answer = rig.query("types", "SELECT 'calm'::mood AS mood").await;
    let own = answer["columns"][0]["type"].as_str().unwrap();
    assert!(own.parse::<u32>().unwrap() >= 16_384, "{own}");
    assert_eq!(answer["rows"], json!([["calm"]]));
    rig.destroy("types").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn parameters_limits_and_several_statements() {
    let rig = shared();
    rig.create_branch("asks").await;
    let path = "/v1/branches/asks/query";
    let sql = "SELECT $1::int + 1, $2::text, $3::int";
    let body = json!({"sql": sql, "params": ["41", "'; DROP TABLE item; --", null]});
    let answer = rig.post(path, body).await;
    assert_eq!(answer["rows"], json!([[42, "'; DROP TABLE item; --", null]]));
    let answer = rig.query("asks", "INSERT INTO item VALUES (0, 'x'); SELECT 7").await;
    assert_eq!(answer["rows"], json!([[7]]));
    let answer = rig.query("asks", "DELETE FROM item WHERE id <= 10").await;
    assert_eq!(answer["command"], "DELETE 11");
    assert_eq!(answer["columns"], json!([]));

    let body = json!({"sql": "SELECT * FROM item", "rows_max": 3});
    let problem = rig.expect_problem(Method::POST, path, body, 400, "limit_exceeded").await;
    assert!(problem["detail"].as_str().unwrap().contains("query_rows_max is 3"), "{problem}");
    let body = json!({"sql": "SELECT generate_series(1, 100001)", "rows_max": 1_000_000});
    rig.expect_problem(Method::POST, path, body, 400, "limit_exceeded").await;
    let body = json!({"sql": "SELECT repeat('x', 17 * 1024 * 1024)"});
    let problem = rig.expect_problem(Method::POST, path, body, 400, "limit_exceeded").await;
    assert!(problem["detail"].as_str().unwrap().contains("query_bytes_max"), "{problem}");
    rig.destroy("asks").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn what_postgresql_refuses_is_told_in_its_own_words() {
    let rig = shared();
    rig.create_branch("refuses").await;
    let path = "/v1/branches/refuses/query";
    let refused = async |sql: &str, code: &str| {
        let body = json!({"sql": sql});
        rig.expect_problem(Method::POST, path, body, 400, code).await
    };
    let problem = refused("SELECT * FROM itme", "sql_error").await;
    assert_eq!(problem["sqlstate"], "42P01");
    assert_eq!(problem["position"], 15);
    assert_eq!(problem["title"], "Bad Request");
    assert_eq!(problem["retryable"], false);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("relation \"itme\" does not exist"), "{detail}");
    let problem = refused("SELECT nmae FROM item", "sql_error").await;
    assert_eq!(problem["hint"], "Perhaps you meant to reference the column \"item.name\".");
    let problem = refused("INSERT INTO item VALUES (1, 'twice')", "sql_error").await;
    assert_eq!(problem["sqlstate"], "23505");
    assert_eq!(problem["sql_detail"], "Key (id)=(1) already exists.");
    assert_eq!(problem.get("position"), None);
    let problem = refused("COPY item TO PROGRAM 'id'", "sql_error").await;
    assert_eq!(problem["sqlstate"], "42501");
    refused("COPY item TO STDOUT", "copy_refused").await;
    refused("SELECT 1 \u{0}", "statement_unsendable").await;
    let end = "SELECT pg_terminate_backend(pg_backend_pid())";
    let problem = refused(end, "branch_session_ended").await;
    assert_eq!(problem["retryable"], false);
    let answer = rig.query("refuses", "SELECT 1").await;
    assert_eq!(answer["rows"], json!([[1]]));
    let body = json!({"sql": "SELECT 1", "database": "nowhere"});
    let problem = rig.expect_problem(Method::POST, path, body, 400, "sql_error").await;
    assert_eq!(problem["sqlstate"], "3D000");
    let body = json!({"sql": "SELECT 1", "parms": []});
    let problem = rig.expect_problem(Method::POST, path, body, 400, "json_invalid").await;
    assert!(problem["detail"].as_str().unwrap().contains("`params`"), "{problem}");
    rig.destroy("refuses").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_branch_with_several_databases_asks_which() {
    let rig = shared();
    rig.create_branch("several").await;
    rig.query("several", "CREATE DATABASE reports").await;
    let asked = [
        (Method::POST, "query", json!({"sql": "SELECT 1"})),
        (Method::POST, "verify", json!({})),
        (Method::GET, "connection", Value::Null),
    ];
    for (method, what, body) in asked {
        let path = format!("/v1/branches/several/{what}");
        let problem = rig.expect_problem(method, &path, body, 400, "invalid_request").await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("`app`, `reports`"), "{detail}");
    }
    let body = json!({"sql": "SELECT current_database()", "database": "reports"});
    let answer = rig.post("/v1/branches/several/query", body).await;
    assert_eq!(answer["rows"], json!([["reports"]]));
    let path = "/v1/branches/several/connection?database=a%00b";
    rig.expect_problem(Method::GET, path, Value::Null, 400, "invalid_request").await;
    let path = "/v1/branches/several/connection?database=nodb";
    let problem =
        rig.expect_problem(Method::GET, path, Value::Null, 404, "branch_database_not_found").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("no database `nodb`"), "{detail}");
    assert!(detail.contains("`app`") && detail.contains("`reports`"), "{detail}");
    let connection = rig.get("/v1/branches/several/connection?database=reports").await;
    assert_eq!(connection["database"], "reports@several");
    let proof = rig.post("/v1/branches/several/verify", json!({"database": "reports"})).await;
    assert_eq!(proof["source_unchanged"], true);
    rig.destroy("several").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_proof_finds_the_branch_apart_from_its_source() {
    let rig = shared();
    rig.create_branch("proof").await;
    let response = rig.request(Method::POST, "/v1/branches/proof/verify").send();
    let proof = super::rig::expect_status(response.await.unwrap(), 200).await;
    assert_eq!(proof["branch"], "proof");
    assert_eq!(proof["marker_in_branch"], true, "{proof}");
    assert_eq!(proof["marker_in_source"], false, "{proof}");
    assert_eq!(proof["source_unchanged"], true, "{proof}");
    assert!(proof["tables_checked"].as_u64().unwrap() >= 1, "{proof}");
    let answer = rig
        .query("proof", "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'egret_marker%'")
        .await;
    assert_eq!(answer["rows"], json!([[0]]), "the marker stays in the branch");
    rig.destroy("proof").await;
    rig.assert_no_warnings();
}

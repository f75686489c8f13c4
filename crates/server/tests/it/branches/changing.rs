//! Protection, lifetime, labels, families, and states that do not allow something.

use reqwest::Method;
use serde_json::json;

use super::rig::{expect_status, shared};
use crate::proxy::running_proxy::expect_failure;

#[tokio::test]
async fn a_patch_changes_what_it_names() {
    let rig = shared();
    let path = "/v1/branches/patched";
    rig.create_branch("patched").await;
    let patch = async |body| expect_status(rig.send(Method::PATCH, path, body).await, 200).await;
    let now = patch(json!({"labels": {"a": "1"}, "ttl_ms": 60_000_000})).await;
    assert_eq!(now["labels"], json!({"a": "1"}));
    assert_eq!(now["ttl_ms"], 60_000_000);
    let now = patch(json!({"protected": true})).await;
    assert_eq!(now["protected"], true);
    assert_eq!(now["labels"], json!({"a": "1"}));
    assert_eq!(now["ttl_ms"], 60_000_000);
    let now = patch(json!({"ttl_ms": null, "labels": {}})).await;
    assert_eq!(now["ttl_ms"], json!(null));
    assert_eq!(now["expires_at"], json!(null));
    assert_eq!(now["labels"], json!({}));
    let now = patch(json!({})).await;
    assert_eq!(now["protected"], true);

    rig.expect_problem(Method::PATCH, path, json!({"state": "running"}), 400, "json_invalid").await;
    rig.expect_problem(Method::PATCH, path, json!({"ttl_ms": 0}), 400, "invalid_request").await;
    rig.expect_problem(Method::DELETE, path, json!({}), 409, "branch_protected").await;
    let reset = format!("{path}/reset");
    rig.expect_problem(Method::POST, &reset, json!({}), 409, "branch_protected").await;
    patch(json!({"protected": false})).await;
    rig.destroy("patched").await;
    rig.expect_problem(Method::PATCH, path, json!({}), 404, "branch_not_found").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_family_goes_together_or_not_at_all() {
    let rig = shared();
    rig.create_branch("parent").await;
    rig.query("parent", "UPDATE item SET name = 'inherited'").await;
    let wish = json!({"name": "child", "from": "branch:parent"});
    let child = expect_status(rig.send(Method::POST, "/v1/branches", wish).await, 201).await;
    assert_eq!(child["parent"]["branch"], "parent");
    let answer = rig.query("child", "SELECT DISTINCT name FROM item").await;
    assert_eq!(answer["rows"], json!([["inherited"]]));
    let path = "/v1/branches/parent";
    let problem =
        rig.expect_problem(Method::DELETE, path, json!({}), 409, "branch_has_children").await;
    assert!(problem["detail"].as_str().unwrap().contains("(child)"), "{problem}");
    let unknown = format!("{path}?children=yes");
    rig.expect_problem(Method::DELETE, &unknown, json!({}), 400, "parameter_invalid").await;
    let all = format!("{path}?children=true");
    let gone = expect_status(rig.request(Method::DELETE, &all).send().await.unwrap(), 202).await;
    assert_eq!(gone["state"], "destroying");
    rig.expect_problem(Method::GET, "/v1/branches/child", json!({}), 404, "branch_not_found").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn every_operation_on_a_missing_branch_responds_not_found() {
    let rig = shared();
    let asks = [
        (Method::GET, "", json!({})),
        (Method::PATCH, "", json!({})),
        (Method::DELETE, "", json!({})),
        (Method::POST, "/query", json!({"sql": "SELECT 1"})),
        (Method::POST, "/reset", json!({})),
        (Method::POST, "/suspend", json!({})),
        (Method::POST, "/resume", json!({})),
        (Method::POST, "/verify", json!({})),
        (Method::GET, "/connection", json!({})),
    ];
    let count = asks.len();
    for (method, more, body) in asks {
        let path = format!("/v1/branches/nobody{more}");
        rig.expect_problem(method, &path, body, 404, "branch_not_found").await;
    }
    // As many operations as are documented for a branch by its name.
    let document = rig.get("/openapi.json").await;
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths
        .filter(|(path, _)| path.starts_with("/v1/branches/{name}"))
        .map(|(_, item)| item.as_object().unwrap().len());
    assert_eq!(operations.sum::<usize>(), count);
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_reset_goes_to_the_template_it_is_told() {
    let rig = shared();
    rig.create_branch("mover").await;
    let source = rig.source("app").await;
    source.batch_execute("CREATE TABLE IF NOT EXISTS later ()").await.unwrap();
    let taken = rig.send(Method::POST, "/v1/templates", json!({})).await;
    let id = expect_status(taken, 201).await["id"].as_str().unwrap().to_owned();
    let path = "/v1/branches/mover/reset";
    rig.post(path, json!({"to": null})).await;
    rig.post(path, serde_json::Value::Null).await;
    let moved = rig.post(path, json!({"to": format!("template:{id}")})).await;
    assert_eq!(moved["parent"]["template"], id);
    let answer = rig.query("mover", "SELECT to_regclass('later') IS NOT NULL").await;
    assert_eq!(answer["rows"], json!([[true]]));
    for (to, code, status) in [
        ("head", "json_invalid", 400),
        (&*id, "json_invalid", 400),
        ("template:00000000-0000-7000-8000-000000000000", "template_not_found", 404),
    ] {
        rig.expect_problem(Method::POST, path, json!({"to": to}), status, code).await;
    }
    rig.destroy("mover").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_branch_that_cannot_run_says_so_and_a_reset_helps() {
    let rig = super::rig::Rig::start_own(|_| ()).await;
    let made = rig.create_branch("broken").await;
    let url = rig.url("broken").await;
    rig.post("/v1/branches/broken/suspend", json!({})).await;
    let id = made["id"].as_str().unwrap();
    let data = rig.directory.join("volume/branches").join(id.replace('-', ""));
    std::fs::write(data.join("PG_VERSION"), "1\n").unwrap();
    let response = rig.send(Method::POST, "/v1/branches/broken/resume", json!({})).await;
    assert!(response.status().is_server_error(), "{}", response.status());
    let shown = rig.get("/v1/branches/broken").await;
    assert_eq!(shown["state"], "failed");
    assert!(shown["failure"].as_str().unwrap().len() > 10, "{shown}");
    let suspend = "/v1/branches/broken/suspend";
    let problem =
        rig.expect_problem(Method::POST, suspend, json!({}), 409, "branch_wrong_state").await;
    assert!(problem["detail"].as_str().unwrap().contains("is failed"), "{problem}");
    let text = expect_failure(rig.psql(&url, "select 1").await);
    assert!(text.contains("branch \"broken\" is failed: "), "{text}");
    rig.post("/v1/branches/broken/reset", json!({})).await;
    assert_eq!(rig.query("broken", "SELECT 1").await["rows"], json!([[1]]));
    rig.stop().await;
}

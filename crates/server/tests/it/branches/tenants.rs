//! Scopes for branches, and the separation of tenants.

use reqwest::Method;
use serde_json::{Value, json};

use super::rig::{expect_status, shared};
use crate::proxy::running_proxy::{expect_failure, expect_success};
use crate::test_server::problem;

#[tokio::test]
async fn each_operation_needs_its_scope() {
    let rig = shared();
    rig.create_branch("scoped").await;
    let read = rig.token("default", &["branches:read"]);
    let other = rig.token("default", &["metrics:*", "status:*"]);
    let one = "/v1/branches/scoped";
    let asks = [
        (Method::GET, "/v1/branches".to_owned(), "branches:read"),
        (Method::GET, one.to_owned(), "branches:read"),
        (Method::GET, "/v1/volume".to_owned(), "branches:read"),
        (Method::GET, "/v1/templates".to_owned(), "branches:read"),
        (Method::GET, "/v1/pools".to_owned(), "branches:read"),
        (Method::POST, "/v1/branches".to_owned(), "branches:write"),
        (Method::POST, "/v1/templates".to_owned(), "branches:write"),
        (Method::PATCH, one.to_owned(), "branches:write"),
        (Method::DELETE, one.to_owned(), "branches:write"),
        (Method::POST, format!("{one}/query"), "branches:write"),
        (Method::POST, format!("{one}/reset"), "branches:write"),
        (Method::POST, format!("{one}/suspend"), "branches:write"),
        (Method::POST, format!("{one}/resume"), "branches:write"),
        (Method::POST, format!("{one}/verify"), "branches:write"),
        (Method::GET, format!("{one}/connection"), "branches:write"),
        (Method::POST, "/v1/volume".to_owned(), "admin"),
        (Method::PUT, "/v1/pools/small".to_owned(), "admin"),
        (Method::POST, "/v1/verify".to_owned(), "admin"),
    ];
    let write = rig.token("default", &["branches:write"]);
    for (method, path, needed) in asks {
        let ask = |token: &str| {
            let request = rig.with_token(token, method.clone(), &path);
            request.json(&json!({})).send()
        };
        let says = format!("`{needed}`");
        let refusals = [
            (&other, true),
            (&read, needed != "branches:read"),
            (&write, needed != "branches:write"),
        ];
        for (token, refused) in refusals {
            if refused {
                let problem = problem(ask(token).await.unwrap(), 403, "scope_missing").await;
                assert!(problem["detail"].as_str().unwrap().contains(&says), "{path}: {problem}");
            }
        }
        if needed == "branches:read" {
            assert_eq!(ask(&read).await.unwrap().status(), 200, "{path}");
        }
    }
    crate::openapi::assert_whole(&rig.get("/openapi.json").await);
    let check = rig.post("/v1/verify", json!({})).await;
    assert!(check["branches"].as_u64().unwrap() >= 1, "{check}");
    assert!(check["findings"].is_array() && check["consistent"].is_boolean(), "{check}");
    rig.destroy("scoped").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn tenants_do_not_see_each_others_branches() {
    let rig = shared();
    let (ours, theirs) = (rig.token("acme", &["branches:*"]), rig.token("rival", &["branches:*"]));
    let ask = async |token: &str, method: Method, path: &str, body: Value| {
        let request = rig.with_token(token, method, path).json(&body);
        request.send().await.unwrap()
    };
    let made = ask(&ours, Method::POST, "/v1/branches", json!({"name": "secret"})).await;
    let made = expect_status(made, 201).await;
    assert_eq!(made["tenant"], "acme");
    let child = json!({"name": "grandsecret", "from": "branch:secret"});
    let child = ask(&ours, Method::POST, "/v1/branches", child).await;
    let template =
        expect_status(child, 201).await["parent"]["template"].as_str().unwrap().to_owned();

    let list = expect_status(ask(&theirs, Method::GET, "/v1/branches", json!({})).await, 200).await;
    assert_eq!(list["items"], json!([]));
    for (method, more) in [
        (Method::GET, ""),
        (Method::DELETE, ""),
        (Method::PATCH, ""),
        (Method::POST, "/reset"),
        (Method::GET, "/connection"),
    ] {
        let path = format!("/v1/branches/secret{more}");
        problem(ask(&theirs, method, &path, json!({})).await, 404, "branch_not_found").await;
    }
    let wish = json!({"name": "stolen", "from": "branch:secret"});
    problem(ask(&theirs, Method::POST, "/v1/branches", wish).await, 404, "branch_not_found").await;

    // What was taken of a branch is as private as the branch.
    let shown = async |token: &str| {
        let list =
            expect_status(ask(token, Method::GET, "/v1/templates", json!({})).await, 200).await;
        let items = list["items"].as_array().unwrap().clone();
        items.iter().any(|item| item["id"] == *template)
    };
    assert!(shown(&ours).await);
    assert!(!shown(&theirs).await);
    let wish = json!({"name": "stolen", "from": format!("template:{template}")});
    problem(ask(&theirs, Method::POST, "/v1/branches", wish).await, 404, "template_not_found")
        .await;

    // The same name twice, each in its own tenant, each through the proxy.
    let made = ask(&theirs, Method::POST, "/v1/branches", json!({"name": "secret"})).await;
    expect_status(made, 201).await;
    let reset = json!({"to": format!("template:{template}")});
    let refused = ask(&theirs, Method::POST, "/v1/branches/secret/reset", reset).await;
    problem(refused, 404, "template_not_found").await;
    let url = async |token: &str| {
        let path = "/v1/branches/secret/connection";
        let connection = expect_status(ask(token, Method::GET, path, json!({})).await, 200).await;
        connection["url"].as_str().unwrap().to_owned()
    };
    let (our_url, their_url) = (url(&ours).await, url(&theirs).await);
    assert!(our_url.ends_with("/app@secret.acme"), "{our_url}");
    expect_success(rig.psql(&our_url, "CREATE TABLE ours ()").await);
    let seen = rig.psql(&their_url, "SELECT to_regclass('ours') IS NULL").await;
    assert_eq!(expect_success(seen), "t\n");
    let crossed = their_url.replace("secret.rival", "secret.acme");
    let text = expect_failure(rig.psql(&crossed, "select 1").await);
    assert!(text.contains("password authentication failed"), "{text}");

    for (token, path) in
        [(&ours, "/v1/branches/secret?children=true"), (&theirs, "/v1/branches/secret")]
    {
        expect_status(ask(token, Method::DELETE, path, json!({})).await, 202).await;
    }
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_scope_of_one_branch_destroys_no_other() {
    let rig = shared();
    rig.create_branch("stem").await;
    let admin = rig.token("default", &["branches:*"]);
    let leaf = json!({"name": "leaf", "from": "branch:stem"});
    let made = rig.with_token(&admin, Method::POST, "/v1/branches");
    assert_eq!(made.json(&leaf).send().await.unwrap().status(), 201);
    let narrow = rig.token("default", &["branches/stem:write"]);
    let destroy = |token: &str, query: &str| {
        let path = format!("/v1/branches/stem{query}");
        rig.with_token(token, Method::DELETE, &path).send()
    };
    let refused = destroy(&narrow, "?children=true").await.unwrap();
    let refused = problem(refused, 403, "branch_children_beyond_scopes").await;
    assert!(!refused["detail"].as_str().unwrap().contains("leaf"), "{refused}");
    let refused = destroy(&narrow, "").await.unwrap();
    let refused = problem(refused, 409, "branch_has_children").await;
    assert!(!refused["detail"].as_str().unwrap().contains("leaf"), "{refused}");
    let both = rig.token("default", &["branches/stem:write", "branches/leaf:write"]);
    let gone = destroy(&both, "?children=true").await.unwrap();
    assert_eq!(gone.status(), 202);
}

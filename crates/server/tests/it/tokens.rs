//! Tokens: their scopes and ends, and how they are made and revoked.

use std::time::Duration;

use egret_base_test::eventually;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::test_server::{TestServer, problem};

#[tokio::test]
async fn each_route_requires_its_scopes() {
    let test_server = TestServer::start().await;
    let doors = [
        ("/healthz", None),
        ("/readyz", None),
        ("/openapi.json", None),
        ("/docs", None),
        ("/docs/page.js", None),
        ("/metrics", Some("metrics:read")),
        ("/v1/status", Some("status:read")),
        ("/v1/tokens", Some("admin")),
        ("/debug/profile?seconds=0", Some("admin")),
    ];
    let holders =
        [vec!["admin"], vec!["metrics:read"], vec!["status:*"], vec!["branches:*", "metrics:*"]];
    for (path, needed) in doors {
        let response = test_server.request_without_token(Method::GET, path).send().await.unwrap();
        let Some(needed) = needed else {
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            continue;
        };
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"egret\"");
        problem(response, 401, "token_missing").await;
        for scopes in &holders {
            let area = needed.split(':').next().unwrap();
            let any = format!("{area}:*");
            let allowed =
                scopes.iter().any(|scope| *scope == "admin" || *scope == needed || *scope == any);
            let token = test_server.token(scopes, None);
            let response = test_server
                .request_without_token(Method::GET, path)
                .bearer_auth(token)
                .send()
                .await
                .unwrap();
            if allowed {
                assert!(
                    ![401, 403].contains(&response.status().as_u16()),
                    "{path} with {scopes:?}"
                );
            } else {
                let detail = problem(response, 403, "scope_missing").await["detail"].to_string();
                assert!(detail.contains(&format!("`{needed}`")), "{detail}");
            }
        }
    }
    test_server.stop().await;
}

#[tokio::test]
async fn whatever_is_no_token_is_refused_alike() {
    let test_server = TestServer::start().await;
    let admin = test_server.admin.clone();
    let last = if admin.ends_with('A') { "B" } else { "A" };
    let forged = format!("{}{last}", &admin[..admin.len() - 1]);
    let table = [
        "Basic YWRtaW46YWRtaW4=".to_owned(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer egret_".to_owned(),
        format!("Bearer {forged}"),
        format!("Bearer {admin}x"),
        format!("Token {admin}x"),
        admin.clone(),
    ];
    for header in table {
        let request = test_server
            .request_without_token(Method::GET, "/v1/tokens")
            .header("authorization", &header);
        problem(request.send().await.unwrap(), 401, "token_invalid").await;
    }
    let lower = test_server
        .request_without_token(Method::GET, "/v1/tokens")
        .header("authorization", format!("bearer {admin}"));
    assert_eq!(lower.send().await.unwrap().status(), StatusCode::OK);
    test_server.stop().await;
}

#[tokio::test]
async fn a_token_is_made_listed_used_and_revoked() {
    let test_server = TestServer::start().await;
    let wish = json!({"name": "ci", "scopes": ["status:read", "status:read"], "tenant": "acme", "ttl_ms": 60_000});
    let response =
        test_server.request(Method::POST, "/v1/tokens").json(&wish).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let made: Value = response.json().await.unwrap();
    assert_eq!(made["tenant"], "acme");
    assert_eq!(made["scopes"], json!(["status:read"]));
    assert_eq!(made["expires_at"], "2027-01-15T08:01:00.000000Z");
    let token = made["token"].as_str().unwrap();
    let use_it =
        || test_server.request_without_token(Method::GET, "/v1/status").bearer_auth(token).send();
    assert_eq!(use_it().await.unwrap().status(), StatusCode::OK);
    let listed: Value = test_server.get("/v1/tokens").await.json().await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(listed["items"][1]["id"], made["id"]);
    assert_eq!(listed["items"][1]["last_used_at"], "2027-01-15T08:00:00.000000Z");
    assert!(listed["items"][1].get("token").is_none());
    let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    let response = test_server.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    problem(use_it().await.unwrap(), 401, "token_invalid").await;
    let again = test_server.request(Method::DELETE, &path).send().await.unwrap();
    problem(again, 404, "token_not_found").await;
    test_server.stop().await;
}

#[tokio::test]
async fn the_last_token_of_the_operator_is_revoked_by_force_alone() {
    let test_server = TestServer::start().await;
    let last = test_server.tokens.list()[0].id.clone();
    let revoke = |query: &str| {
        test_server.request(Method::DELETE, &format!("/v1/tokens/{last}{query}")).send()
    };
    problem(revoke("").await.unwrap(), 409, "token_last_admin").await;
    // Another tenant's does not count, nor does one that has expired.
    for (tenant, ttl_ms) in [("acme", Value::Null), ("default", json!(60_000))] {
        let wish = json!({"name": "x", "scopes": ["admin"], "tenant": tenant, "ttl_ms": ttl_ms});
        let made = test_server.request(Method::POST, "/v1/tokens").json(&wish);
        assert_eq!(made.send().await.unwrap().status(), StatusCode::CREATED);
    }
    test_server.clock.advance(std::time::Duration::from_secs(61));
    problem(revoke("").await.unwrap(), 409, "token_last_admin").await;
    let revoked = revoke("?force=true").await.unwrap();
    assert_eq!(revoked.status(), StatusCode::NO_CONTENT);
    problem(revoke("").await.unwrap(), 401, "token_invalid").await;
    test_server.stop().await;
}

#[tokio::test]
async fn a_token_ends_at_its_time() {
    let test_server = TestServer::start().await;
    let token = test_server.token(&["status:read"], Some(1_000));
    let use_it =
        || test_server.request_without_token(Method::GET, "/v1/status").bearer_auth(&token).send();
    assert_eq!(use_it().await.unwrap().status(), StatusCode::OK);
    test_server.clock.advance(Duration::from_millis(1_000));
    let detail = problem(use_it().await.unwrap(), 401, "token_expired").await["detail"].to_string();
    assert!(detail.contains("2027-01-15T08:00:01.000000Z"), "{detail}");
    test_server.stop().await;
}

/// The latest reason why the ends of tokens cannot be written.
fn unwritten() -> Option<String> {
    let mut active = egret_base::condition::active().into_iter();
    let found =
        active.find(|one| one.name == "state_unwritable" && one.subject == "expired tokens");
    found.map(|one| one.reason)
}

#[tokio::test]
async fn state_that_cannot_be_written_is_one_line_at_its_start_and_one_at_its_end() {
    let test_server = TestServer::start().await;
    test_server.token(&["status:read"], Some(1_000));
    let state = rusqlite::Connection::open(test_server.path("state.db")).unwrap();
    let refuse = |reason: &str| {
        let trigger = format!(
            "DROP TRIGGER IF EXISTS refuse; CREATE TRIGGER refuse BEFORE UPDATE ON token
             BEGIN SELECT RAISE(FAIL, '{reason}'); END"
        );
        state.execute_batch(&trigger).unwrap();
    };
    refuse("no room");
    test_server.clock.advance(Duration::from_millis(1_000));
    // Another reason is that of another attempt.
    for reason in ["no room", "still no room", "no room yet"] {
        refuse(reason);
        eventually("the reason is reported", async || {
            let latest = unwritten();
            match &latest {
                Some(text) if text.contains(reason) => Ok(()),
                _ => Err(latest),
            }
        })
        .await;
    }
    let ready: Value = test_server.get("/readyz").await.json().await.unwrap();
    assert_eq!(ready["ready"], true);
    let names = ready["conditions"].as_array().unwrap();
    assert!(names.contains(&json!("state_unwritable")), "{ready}");
    assert!(!ready.to_string().contains("no room"), "{ready}");
    let status: Value = test_server.get("/v1/status").await.json().await.unwrap();
    let conditions = status["conditions"].as_array().unwrap();
    let is_it = |one: &&Value| one["subject"] == "expired tokens";
    let found = conditions.iter().find(is_it).unwrap();
    assert!(found["reason"].to_string().contains("no room yet"), "{found}");
    state.execute_batch("DROP TRIGGER refuse").unwrap();
    eventually("the condition ends", async || unwritten().is_none()).await;
    let log = test_server.log();
    let lines = log.lines().filter(|line| line.contains("\"state_unwritable\""));
    let are_warnings: Vec<bool> = lines.map(|line| line.contains(" WARN ")).collect();
    assert_eq!(are_warnings, [true, false], "{log}");
}

#[tokio::test]
async fn the_last_use_is_on_disk_after_a_clean_stop() {
    let test_server = TestServer::start().await;
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    let (state, clock) = (test_server.path("state.db"), test_server.clock.clone());
    egret_base::lifecycle::Service::stop(test_server.server.as_ref()).await;
    let entropy = std::sync::Arc::new(egret_base::SeededEntropy::new(1));
    let reopened =
        egret_server::Tokens::open(&state, &["branches"], clock.clone(), entropy).unwrap();
    assert!(reopened.list()[0].last_used_at.is_some());
    test_server.stop().await;
}

/// What concerns the whole server is refused to an administrator of another tenant, operation by
/// operation; tokens of its own tenant are all that it may manage.
#[tokio::test]
async fn an_admin_of_a_tenant_is_admin_of_that_tenant_only() {
    let test_server = TestServer::start().await;
    let wish = json!({"name": "acme", "scopes": ["admin"], "tenant": "acme"});
    let made: Value = test_server
        .request(Method::POST, "/v1/tokens")
        .json(&wish)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let acme = made["token"].as_str().unwrap();
    let ask = |method: Method, path: &str, body: Value| {
        let request = test_server.request_without_token(method, path).bearer_auth(acme);
        match body {
            Value::Null => request.send(),
            body => request.json(&body).send(),
        }
    };
    let document: Value = test_server.get("/openapi.json").await.json().await.unwrap();
    let mut host_wide = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["x-egret-operator"] == true {
                host_wide += 1;
                let method: Method = method.to_ascii_uppercase().parse().unwrap();
                let response = ask(method, path, Value::Null).await.unwrap();
                problem(response, 403, "operator_only").await;
            }
        }
    }
    assert!(host_wide > 0);
    // Figures of the whole server are no right of a tenant's administrator.
    for path in ["/metrics", "/v1/status"] {
        let response = ask(Method::GET, path, Value::Null).await.unwrap();
        problem(response, 403, "scope_missing").await;
    }
    let listed: Value =
        ask(Method::GET, "/v1/tokens", Value::Null).await.unwrap().json().await.unwrap();
    let ids: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&made["id"]]);
    for wish in [
        json!({"name": "x", "scopes": ["admin"], "tenant": "default"}),
        json!({"name": "x", "scopes": ["queue:read"], "tenant": "other"}),
        json!({"name": "x", "scopes": ["metrics:read"]}),
    ] {
        let response = ask(Method::POST, "/v1/tokens", wish).await.unwrap();
        problem(response, 403, "token_exceeds_creator").await;
    }
    let own =
        ask(Method::POST, "/v1/tokens", json!({"name": "x", "scopes": ["status:read", "admin"]}));
    problem(own.await.unwrap(), 403, "token_exceeds_creator").await;
    let own: Value = ask(Method::POST, "/v1/tokens", json!({"name": "x", "scopes": ["admin"]}))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(own["tenant"], "acme");
    let operators = test_server.tokens.list()[0].id.clone();
    let response = ask(Method::DELETE, &format!("/v1/tokens/{operators}"), Value::Null);
    problem(response.await.unwrap(), 404, "token_not_found").await;
    let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    let response = ask(Method::DELETE, &path, Value::Null).await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    test_server.stop().await;
}

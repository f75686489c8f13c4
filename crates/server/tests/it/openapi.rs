//! The OpenAPI document is complete, and its page loads nothing from other servers.

use std::collections::HashSet;

use regex::Regex;
use reqwest::Method;
use serde_json::Value;

use crate::test_server::TestServer;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

async fn document(test_server: &TestServer) -> Value {
    test_server
        .request_without_token(Method::GET, "/openapi.json")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap()
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|inner| references(inner, found));
        }
        Value::Array(array) => array.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

/// Every reference leads somewhere and every operation says all there is to say.
pub fn assert_whole(document: &Value) {
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], "0.0.0-test");
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference
            .strip_prefix('#')
            .unwrap_or_else(|| panic!("{reference} leaves the document"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let mut ids = HashSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = format!("{method} {path}");
            assert!(METHODS.contains(&method.as_str()), "{name}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{name}");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
            assert_eq!(operation["tags"].as_array().unwrap().len(), 1, "{name}");
            assert!(!operation["security"].as_array().unwrap().is_empty(), "{name}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("default"), "{name}");
            assert!(responses.keys().any(|status| status.starts_with(['2', '3'])), "{name}");
            let public = operation["security"][0].as_object().unwrap().is_empty();
            assert_eq!(responses.contains_key("401"), !public, "{name}");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            for part in path.split('/').filter_map(|part| part.strip_prefix('{')) {
                let part = part.trim_end_matches('}');
                let has = parameters.iter().any(|one| one["name"] == part && one["in"] == "path");
                assert!(has, "{name} does not document {part}");
            }
        }
    }
}

#[tokio::test]
async fn every_reference_resolves_and_every_operation_is_whole() {
    let test_server = TestServer::start().await;
    let document = document(&test_server).await;
    assert_whole(&document);
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/debug/profile",
        "/v1/status",
        "/v1/tokens",
        "/v1/tokens/{id}",
        "/openapi.json",
        "/docs",
    ] {
        assert!(document["paths"].get(path).is_some(), "{path} is not documented");
    }
    let field = &document["components"]["schemas"]["Problem"]["properties"];
    for name in ["type", "title", "status", "code", "detail", "retryable", "request_id"] {
        assert!(field.get(name).is_some(), "a problem's {name} is not documented");
    }
    assert!(field.get("grpc_code").is_none());
    test_server.stop().await;
}

/// Whether the first parameter in a path may be a text, by the pattern and the length that are
/// published for it.
pub fn allows(document: &Value, path: &str, text: &str) -> bool {
    let operations = document["paths"][path].as_object().unwrap();
    let schema = &operations.values().next().unwrap()["parameters"][0]["schema"];
    let pattern = Regex::new(schema["pattern"].as_str().unwrap()).unwrap();
    let length = text.chars().count() as u64;
    pattern.is_match(text) && length <= schema["maxLength"].as_u64().unwrap()
}

#[tokio::test]
async fn ids_of_tokens_have_the_published_form() {
    let test_server = TestServer::start().await;
    let document = document(&test_server).await;
    let listed: Value = test_server.get("/v1/tokens").await.json().await.unwrap();
    let ids: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["id"].as_str().unwrap())
        .collect();
    assert!(!ids.is_empty());
    for id in ids {
        assert!(allows(&document, "/v1/tokens/{id}", id), "{id}");
    }
    for text in ["", "0123456789a", "0123456789abc", "0123456789AB"] {
        assert!(!allows(&document, "/v1/tokens/{id}", text), "{text}");
    }
    test_server.stop().await;
}

#[tokio::test]
async fn every_documented_operation_is_served() {
    let test_server = TestServer::start().await;
    let document = document(&test_server).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_ascii_uppercase().parse().unwrap();
            // An invalid profile, so that none is taken.
            let path = path.replace("{id}", "none").replace("/profile", "/profile?seconds=0");
            let response = test_server.request(method.clone(), &path).send().await.unwrap();
            let code = response.headers().contains_key("allow");
            assert!(!code, "{method} {path} is documented but not served");
            let text = response.text().await.unwrap();
            let problem = "\"code\":\"route_not_found\"";
            assert!(!text.contains(problem), "{method} {path}: {text}");
        }
    }
    test_server.stop().await;
}

#[tokio::test]
async fn the_page_loads_nothing_from_other_hosts() {
    let test_server = TestServer::start().await;
    let mut all = String::new();
    for (path, kind) in [
        ("/docs", "text/html"),
        ("/docs/page.css", "text/css"),
        ("/docs/page.js", "text/javascript"),
    ] {
        let response = test_server.request_without_token(Method::GET, path).send().await.unwrap();
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with(kind));
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        all.push_str(&response.text().await.unwrap());
    }
    for forbidden in [
        "http:",
        "https:",
        "//cdn",
        "@import",
        "url(",
        "innerHTML",
        "eval(",
        "style=\"",
        "onclick=",
    ] {
        assert!(!all.contains(forbidden), "the page has {forbidden}");
    }
    for needed in ["/docs/page.css", "/docs/page.js", "prefers-color-scheme", "/openapi.json"] {
        assert!(all.contains(needed), "the page lacks {needed}");
    }
    test_server.stop().await;
}

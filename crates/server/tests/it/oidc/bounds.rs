//! Tokens of another kind, and what made-up ones may cost.

use std::time::Duration;

use egret_server::OidcConfig;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::OidcTestServer;
use super::issuer::SigningKey;
use crate::test_server::problem;

/// An ID token for Egret's audience, as an issuer makes it that marks access tokens by RFC 9068 and
/// one that does not.
#[tokio::test]
async fn an_id_token_is_no_access_token() {
    let strict = |config: &mut OidcConfig| config.token_types = "at+jwt".to_owned();
    let guarded = OidcTestServer::with(strict).await;
    let signed = |header: Value, changed: Value| {
        let mut whole = guarded.key.header();
        let fields = whole.as_object_mut().unwrap();
        fields.extend(header.as_object().unwrap().clone());
        fields.retain(|_, value| !value.is_null());
        guarded.key.sign_with(&whole, &guarded.claims(changed))
    };
    for typ in [json!("JWT"), json!(null), json!("none")] {
        let token = signed(json!({ "typ": typ }), json!({}));
        problem(guarded.send(&token).await, 401, "token_invalid").await;
    }
    let access = signed(json!({"typ": "application/at+jwt"}), json!({}));
    assert_eq!(guarded.status(&access).await, StatusCode::OK);
    guarded.test_server.stop().await;

    let guarded = OidcTestServer::open().await;
    for changed in [
        json!({"nonce": "n-0S6_WzA2Mj", "at_hash": "MTIzNDU2Nzg5MDEyMzQ1Ng"}),
        json!({"typ": "ID"}),
        json!({"token_use": "id"}),
    ] {
        let mut header = guarded.key.header();
        header["typ"] = json!("JWT");
        let token = guarded.key.sign_with(&header, &guarded.claims(changed));
        let refused = problem(guarded.send(&token).await, 401, "token_invalid").await;
        let detail = refused["detail"].to_string();
        assert!(detail.contains("send the access token"), "{detail}");
    }
    let access = guarded.token(json!({"typ": "Bearer", "nonce": "n"}));
    assert_eq!(guarded.status(&access).await, StatusCode::OK);
    guarded.test_server.stop().await;
}

#[tokio::test]
async fn an_address_that_sends_made_up_tokens_is_refused_before_they_are_verified() {
    let guarded = OidcTestServer::open().await;
    let known = guarded.token(json!({}));
    assert_eq!(guarded.status(&known).await, StatusCode::OK);
    let stranger = SigningKey::new("first");
    let mut sent = 0;
    let refused = loop {
        let token = stranger.sign(&guarded.claims(json!({ "sub": sent.to_string() })));
        let response = guarded.send(&token).await;
        if response.status() != StatusCode::UNAUTHORIZED {
            break response;
        }
        sent += 1;
    };
    assert_eq!(sent, 600);
    assert!(refused.headers().contains_key("retry-after"));
    problem(refused, 429, "oidc_failures_per_address_max").await;
    // Known tokens go on, and so do others after a minute.
    assert_eq!(guarded.status(&known).await, StatusCode::OK);
    let other = guarded.token(json!({"sub": "other"}));
    let response = guarded.send(&other).await;
    problem(response, 429, "oidc_failures_per_address_max").await;
    guarded.test_server.clock.advance(Duration::from_secs(60));
    assert_eq!(guarded.status(&other).await, StatusCode::OK);
    guarded.test_server.stop().await;
}

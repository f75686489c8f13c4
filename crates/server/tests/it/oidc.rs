//! Tokens of an OpenID Connect provider: which are accepted, for what, until when, and what an
//! attacker with others can cause.

mod bounds;
mod issuer;
mod settings;

use std::time::Duration;

use egret_base::Clock;
use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_server::{OidcConfig, OidcOptions};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use self::issuer::{Issuer, SigningKey, encode, message};
use crate::queues::rig::Rig;
use crate::test_server::{TestServer, TestServerSetup, problem};

/// A server that accepts the tokens of a provider.
struct OidcTestServer {
    test_server: TestServer,
    issuer: Issuer,
    key: SigningKey,
}

fn options(issuer: &Issuer, change: impl FnOnce(&mut OidcConfig)) -> OidcOptions {
    let mut config = OidcConfig {
        issuer: Some(issuer.url.clone()),
        audience: Some("egret".to_owned()),
        tenant_claim: Some("tenant".to_owned()),
        clock_leeway: ConfigDuration::secs(0),
        ..OidcConfig::default()
    };
    change(&mut config);
    OidcOptions { config, destinations: Default::default() }
}

impl OidcTestServer {
    async fn open() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut OidcConfig)) -> Self {
        let key = SigningKey::new("first");
        let issuer = Issuer::start(&[&key]).await;
        let options = options(&issuer, change);
        let test_server = TestServerSetup::new().start(|builder| builder.oidc(options)).await;
        let guarded = Self { test_server, issuer, key };
        guarded.await_fetches(1).await;
        guarded
    }

    /// Waits until the keys were fetched so often, well or badly.
    async fn await_fetches(&self, count: u64) {
        let outcomes = ["ok", "failed"];
        eventually("the keys have been fetched", async || {
            let metrics = self.test_server.get("/metrics").await.text().await.unwrap();
            let of = |outcome: &str| {
                let name = format!("egret_oidc_key_fetches_total{{outcome=\"{outcome}\"}} ");
                let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
                line.map_or(0, |value| value.parse().unwrap())
            };
            let fetched = outcomes.map(of).iter().sum::<u64>();
            if fetched < count { Err(fetched) } else { Ok(()) }
        })
        .await;
    }

    fn claims(&self, changed: Value) -> Value {
        claims(&self.issuer.url, &self.test_server, changed)
    }

    fn token(&self, changed: Value) -> String {
        self.key.sign(&self.claims(changed))
    }

    fn request(&self, token: &str) -> RequestBuilder {
        self.test_server.request_without_token(Method::GET, "/v1/status").bearer_auth(token)
    }

    async fn send(&self, token: &str) -> Response {
        self.request(token).send().await.unwrap()
    }

    async fn status(&self, token: &str) -> StatusCode {
        self.send(token).await.status()
    }

    /// Stops, and checks that the only warning is that of keys that cannot be read.
    async fn stop_with_failures(self) {
        let Self { test_server: house, .. } = self;
        egret_base::lifecycle::Service::stop(house.server.as_ref()).await;
        let log = house.log();
        let warnings: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
            .collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("cannot read the keys of oidc.issuer"));
    }
}

/// The claims of a good token for ten minutes, changed; a null takes a claim away.
fn claims(issuer: &str, test_server: &TestServer, changed: Value) -> Value {
    let now = test_server.clock.now().as_micros() / 1_000_000;
    let mut claims = json!({
        "iss": issuer, "aud": ["other", "egret"], "sub": "anna", "iat": now, "exp": now + 600,
        "tenant": "default", "scope": "openid status:read unknown:read",
    });
    let fields = claims.as_object_mut().unwrap();
    fields.extend(changed.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    claims
}

#[tokio::test]
async fn a_token_of_the_issuer_may_what_its_claims_say() {
    let guarded = OidcTestServer::open().await;
    let token = guarded.token(json!({}));
    assert_eq!(guarded.status(&token).await, StatusCode::OK);
    // Other ways to show a token come to the same place.
    let path = "/v1/status";
    let basic = guarded.test_server.request_without_token(Method::GET, path);
    let basic = basic.basic_auth("anybody", Some(&token)).send().await;
    assert_eq!(basic.unwrap().status(), StatusCode::OK);
    let header = format!("Token {token}");
    let influx = guarded.test_server.request_without_token(Method::GET, path);
    let influx = influx.header("authorization", header).send().await;
    assert_eq!(influx.unwrap().status(), StatusCode::OK);

    let none = guarded.token(json!({"scope": "openid email"}));
    problem(guarded.send(&none).await, 403, "scope_missing").await;
    // What concerns the whole server takes the operator's tenant.
    let acme = guarded.token(json!({"tenant": "acme"}));
    problem(guarded.send(&acme).await, 403, "scope_missing").await;
    // Tokens of Egret's own are what they were.
    assert_eq!(guarded.test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    let log = guarded.test_server.stop().await;
    assert!(!log.contains(&token), "{log}");
}

/// Tokens that must not be accepted, with the reason that the metrics have for each; and a
/// signature that no answer may repeat.
fn refused_tokens(guarded: &OidcTestServer) -> (Vec<(String, &'static str)>, String) {
    let now = guarded.test_server.clock.now().as_micros() / 1_000_000;
    let of = |changed: Value| guarded.token(changed);
    let stranger = SigningKey::new("first");
    let good = guarded.claims(json!({}));
    let header = |changed: Value| {
        let mut header = guarded.key.header();
        header.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        guarded.key.sign_with(&header, &good)
    };
    let good_token = guarded.token(json!({}));
    let (signed, signature) = good_token.rsplit_once('.').unwrap();
    let (head, _) = signed.split_once('.').unwrap();
    let root = encode(guarded.claims(json!({"sub": "root"})).to_string().as_bytes());
    let table = vec![
        (of(json!({"iss": "https://evil.example"})), "issuer"),
        (of(json!({"iss": format!("{}/", guarded.issuer.url)})), "issuer"),
        (of(json!({"aud": "other"})), "audience"),
        (of(json!({"aud": null})), "audience"),
        (of(json!({"exp": now})), "expired"),
        (of(json!({"exp": null})), "claim"),
        (of(json!({"exp": "4000000000"})), "claim"),
        (of(json!({"exp": now + 90_000})), "lifetime"),
        (of(json!({"nbf": now + 1})), "not_yet_valid"),
        (of(json!({"iat": now + 1})), "not_yet_valid"),
        (of(json!({"sub": null})), "claim"),
        (of(json!({"tenant": null})), "claim"),
        (of(json!({"tenant": "../acme"})), "claim"),
        (stranger.sign(&good), "signature"),
        (format!("{head}.{root}.{signature}"), "signature"),
        (format!("{signed}."), "signature"),
        (header(json!({"alg": "RS256"})), "algorithm"),
        (header(json!({"alg": "ES384"})), "algorithm"),
        (header(json!({"crit": ["exp"]})), "malformed"),
        (header(json!({"typ": "logout+jwt"})), "type"),
        (of(json!({"nonce": "n"})), "type"),
        (of(json!({"typ": "ID"})), "type"),
        ("..".to_owned(), "malformed"),
    ];
    (table, signature.to_owned())
}

#[tokio::test]
async fn a_token_that_is_not_for_this_server_is_refused() {
    let guarded = OidcTestServer::open().await;
    let (table, signature) = refused_tokens(&guarded);
    let mut expected = std::collections::BTreeMap::new();
    for (token, reason) in table {
        let code = if reason == "expired" { "token_expired" } else { "token_invalid" };
        let response = guarded.send(&token).await;
        let challenge = response.headers()["www-authenticate"].to_str().unwrap();
        assert_eq!(challenge, "Bearer realm=\"egret\", error=\"invalid_token\"");
        let answer = problem(response, 401, code).await.to_string();
        assert!(!answer.contains(&signature) && !answer.contains("evil"), "{answer}");
        *expected.entry(reason).or_insert(0) += 1;
    }
    let metrics = guarded.test_server.get("/metrics").await.text().await.unwrap();
    for (reason, count) in expected {
        let line = format!("egret_oidc_tokens_rejected_total{{reason=\"{reason}\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    // None of them has made the server ask for keys again.
    assert_eq!(guarded.issuer.fetches(), 1);
    guarded.test_server.stop().await;
}

/// A token without signature, and one whose MAC is keyed with the issuer's public key.
#[tokio::test]
async fn algorithms_that_need_no_private_key_are_refused() {
    let guarded = OidcTestServer::open().await;
    let good = guarded.claims(json!({"scope": "status:read admin"}));
    for alg in ["none", "None", "nOnE"] {
        let unsigned = message(&json!({"alg": alg, "kid": "first"}), &good);
        for signature in ["", "c2ln"] {
            let token = format!("{unsigned}.{signature}");
            problem(guarded.send(&token).await, 401, "token_invalid").await;
        }
    }
    let signed = message(&json!({"alg": "HS256", "kid": "first"}), &good);
    let jwk = guarded.key.public().to_string();
    let point = [&[4], guarded.key.point()].concat();
    for secret in [jwk.as_bytes(), &point, guarded.key.point(), b""] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let mac = ring::hmac::sign(&key, signed.as_bytes());
        let token = format!("{signed}.{}", encode(mac.as_ref()));
        problem(guarded.send(&token).await, 401, "token_invalid").await;
    }
    guarded.test_server.stop().await;
}

#[tokio::test]
async fn a_token_too_long_is_refused_before_it_is_decoded() {
    let guarded = OidcTestServer::open().await;
    let long = guarded.token(json!({"padding": "x".repeat(16 << 10)}));
    let refused = problem(guarded.send(&long).await, 401, "token_invalid").await;
    let detail = refused["detail"].to_string();
    assert!(detail.contains("oidc_token_bytes_max is 16384"), "{detail}");
    let metrics = guarded.test_server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("egret_oidc_tokens_verified_total 0"), "{metrics}");
    guarded.test_server.stop().await;
}

#[tokio::test]
async fn tokens_with_unknown_keys_cause_one_fetch_in_a_pause() {
    let guarded = OidcTestServer::open().await;
    guarded.test_server.clock.advance(Duration::from_secs(10));
    let server = &guarded;
    let asking = (0..40).map(|number| {
        let header = json!({"alg": "ES256", "kid": format!("random-{number}")});
        let token = guarded.key.sign_with(&header, &guarded.claims(json!({})));
        async move {
            let response = server.send(&token).await;
            // Of a key that a fetch has missed which was begun before, it is not certain that there
            // is none.
            let is_certain = response.status() == StatusCode::UNAUTHORIZED;
            let (status, code) =
                if is_certain { (401, "token_invalid") } else { (503, "oidc_keys_unavailable") };
            problem(response, status, code).await
        }
    });
    futures_util::future::join_all(asking).await;
    // One, and one that follows it for tokens that came meanwhile.
    let fetches = guarded.issuer.fetches();
    assert!((2..=3).contains(&fetches), "{fetches}");
    // Until the pause is over no token causes another.
    guarded.test_server.clock.advance(Duration::from_millis(9_999));
    let other = SigningKey::new("other").sign(&guarded.claims(json!({})));
    problem(guarded.send(&other).await, 401, "token_invalid").await;
    assert_eq!(guarded.issuer.fetches(), fetches);
    guarded.test_server.stop().await;
}

#[tokio::test]
async fn a_new_key_is_found_and_a_withdrawn_one_ends_its_tokens() {
    let guarded = OidcTestServer::open().await;
    let old = guarded.token(json!({}));
    assert_eq!(guarded.status(&old).await, StatusCode::OK);
    let second = SigningKey::new("second");
    guarded.issuer.publish(&[&guarded.key, &second]);
    guarded.test_server.clock.advance(Duration::from_secs(10));
    let new = second.sign(&guarded.claims(json!({})));
    assert_eq!(guarded.status(&new).await, StatusCode::OK);
    assert_eq!(guarded.status(&old).await, StatusCode::OK);
    // Another key under the id of the first: what the first has signed ends.
    let replaced = SigningKey::new("first");
    guarded.issuer.publish(&[&replaced, &second]);
    guarded.test_server.server.oidc().unwrap().refresh();
    guarded.await_fetches(3).await;
    eventually("the withdrawn key ends its tokens", async || {
        guarded.status(&old).await != StatusCode::OK
    })
    .await;
    problem(guarded.send(&old).await, 401, "token_invalid").await;
    assert_eq!(guarded.status(&new).await, StatusCode::OK);
    let own = replaced.sign(&guarded.claims(json!({})));
    assert_eq!(guarded.status(&own).await, StatusCode::OK);
    guarded.test_server.stop().await;
}

#[tokio::test]
async fn known_keys_go_on_while_the_issuer_is_down() {
    let key = SigningKey::new("first");
    let issuer = Issuer::start(&[&key]).await;
    let url = issuer.url.clone();
    let options = options(&issuer, |config| config.keys_age_max = ConfigDuration::secs(3_600));
    let test_server = TestServerSetup::new().start(|builder| builder.oidc(options)).await;
    let guarded = OidcTestServer { test_server, issuer, key };
    guarded.await_fetches(1).await;
    let OidcTestServer { test_server, issuer, key } = guarded;
    issuer.stop().await;
    let oidc = test_server.server.oidc().unwrap();
    let guarded = OidcTestServer { test_server, issuer: Issuer::start(&[]).await, key };
    oidc.refresh();
    guarded.await_fetches(2).await;
    let token = |changed: Value| guarded.key.sign(&claims(&url, &guarded.test_server, changed));
    let known = token(json!({"sub": "one"}));
    assert_eq!(guarded.status(&known).await, StatusCode::OK);
    // Of a key that is not known nothing can be said.
    let other = SigningKey::new("other").sign(&claims(&url, &guarded.test_server, json!({})));
    let response = guarded.send(&other).await;
    assert_eq!(response.headers()["retry-after"], "1");
    problem(response, 503, "oidc_keys_unavailable").await;
    // Beyond their age the keys count no more, and neither does what they have signed.
    guarded.test_server.clock.advance(Duration::from_secs(3_601));
    problem(guarded.send(&token(json!({}))).await, 503, "oidc_keys_unavailable").await;
    assert_eq!(guarded.test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    guarded.stop_with_failures().await;
}

#[tokio::test]
async fn an_issuer_that_hangs_holds_few_requests_and_not_for_long() {
    let guarded = OidcTestServer::open().await;
    guarded.issuer.hang();
    guarded.test_server.clock.advance(Duration::from_secs(10));
    let unknown = SigningKey::new("other").sign(&guarded.claims(json!({})));
    let asking = (0..100).map(|_| async {
        problem(guarded.send(&unknown).await, 503, "oidc_keys_unavailable").await
    });
    let known = async {
        let token = guarded.token(json!({}));
        assert_eq!(guarded.status(&token).await, StatusCode::OK);
        assert_eq!(guarded.test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    };
    tokio::join!(futures_util::future::join_all(asking), known);
    assert_eq!(guarded.issuer.fetches(), 2);
    guarded.test_server.stop().await;
}

#[tokio::test]
async fn an_operators_admin_is_granted_by_the_settings_only() {
    for (admin, status) in [(false, 403), (true, 200)] {
        let guarded = OidcTestServer::with(|config| config.admin = admin).await;
        let tokens = |token: String| {
            let request = guarded.test_server.request_without_token(Method::GET, "/v1/tokens");
            request.bearer_auth(token).send()
        };
        let admin = guarded.token(json!({"scope": "admin"}));
        assert_eq!(tokens(admin).await.unwrap().status(), status);
        // An administrator of another tenant is one of that tenant alone.
        let acme = guarded.token(json!({"scope": "admin", "tenant": "acme"}));
        let listed: Value = tokens(acme).await.unwrap().json().await.unwrap();
        assert_eq!(listed["items"], json!([]));
        guarded.test_server.stop().await;
    }
}

#[tokio::test]
async fn an_open_stream_ends_with_the_token() {
    let key = SigningKey::new("first");
    let issuer = Issuer::start(&[&key]).await;
    let options = options(&issuer, |_| {});
    let rig = Rig::with_settings(|_| {}, |builder| builder.oidc(options)).await;
    rig.create_queue("q").await;
    let token = key.sign(&claims(&issuer.url, &rig.test_server, json!({"scope": "queue:*"})));
    let mut client = rig.client_of(&token).await;
    let mut watch =
        client.watch(egret_proto::queue::v1::WatchRequest::default()).await.unwrap().into_inner();
    let mut events = rig
        .test_server
        .request_without_token(Method::GET, "/v1/tasks/events")
        .bearer_auth(&token)
        .send()
        .await
        .unwrap();
    assert!(events.chunk().await.unwrap().is_some());
    rig.test_server.clock.advance(Duration::from_secs(600));
    while events.chunk().await.unwrap().is_some() {}
    let status = loop {
        match watch.message().await {
            Ok(message) => assert!(message.is_some(), "it ended as if all was said"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    let again =
        rig.test_server.request_without_token(Method::GET, "/v1/queues").bearer_auth(&token);
    problem(again.send().await.unwrap(), 401, "token_expired").await;
    rig.close().await;
}

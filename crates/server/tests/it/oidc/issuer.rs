//! An OpenID Connect provider on this machine: discovery, keys, and tokens signed with them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What a running provider answers.
struct Answers {
    issuer: String,
    keys: Mutex<Value>,
    /// Replaces fields of the discovery document.
    discovery: Mutex<Value>,
    fetches: AtomicUsize,
    is_hanging: Mutex<bool>,
}

pub struct Issuer {
    pub url: String,
    answers: Arc<Answers>,
    stopping: CancellationToken,
    serving: JoinHandle<()>,
}

impl Issuer {
    /// A provider with these keys.
    pub async fn start(keys: &[&SigningKey]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = Arc::new(Answers {
            issuer: url.clone(),
            keys: Mutex::new(Value::Null),
            discovery: Mutex::new(json!({})),
            fetches: AtomicUsize::new(0),
            is_hanging: Mutex::new(false),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys_of))
            .with_state(answers.clone());
        let stopping = CancellationToken::new();
        let stopped = stopping.clone().cancelled_owned();
        let serving = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
            serving.await.unwrap();
        });
        let issuer = Self { url, answers, stopping, serving };
        issuer.publish(keys);
        issuer
    }

    /// Shows these keys from now on.
    pub fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        *self.answers.keys.lock().unwrap() = json!({ "keys": keys });
    }

    /// Replaces fields of the discovery document.
    pub fn describe(&self, fields: Value) {
        *self.answers.discovery.lock().unwrap() = fields;
    }

    /// Answers nothing any more, and lets connections wait.
    pub fn hang(&self) {
        *self.answers.is_hanging.lock().unwrap() = true;
    }

    /// Stops listening, and closes the connections that there are.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.serving.await.unwrap();
    }

    /// How often the keys were asked for.
    pub fn fetches(&self) -> usize {
        self.answers.fetches.load(Ordering::SeqCst)
    }
}

async fn discovery(State(answers): State<Arc<Answers>>) -> Json<Value> {
    let issuer = &answers.issuer;
    let mut document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")});
    let changed = answers.discovery.lock().unwrap().clone();
    let fields = changed.as_object().unwrap().clone();
    document.as_object_mut().unwrap().extend(fields);
    Json(document)
}

async fn keys_of(State(answers): State<Arc<Answers>>) -> Json<Value> {
    answers.fetches.fetch_add(1, Ordering::SeqCst);
    let is_hanging = *answers.is_hanging.lock().unwrap();
    if is_hanging {
        std::future::pending::<()>().await;
    }
    Json(answers.keys.lock().unwrap().clone())
}

/// A key of the provider.
pub struct SigningKey {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub fn new(id: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    /// The public key as a JWK.
    pub fn public(&self) -> Value {
        let (x, y) = self.point().split_at(32);
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": encode(x), "y": encode(y),
        })
    }

    pub fn point(&self) -> &[u8] {
        &self.pair.public_key().as_ref()[1..]
    }

    pub fn header(&self) -> Value {
        json!({"alg": "ES256", "typ": "at+jwt", "kid": self.id})
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&self.header(), claims)
    }

    /// A signed token with another header.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", encode(signature.unwrap().as_ref()))
    }
}

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What of a token is signed.
pub fn message(header: &Value, claims: &Value) -> String {
    let part = |json: &Value| encode(json.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

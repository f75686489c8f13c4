//! A request waits for a fetch that was begun after it, and tokens cause few of them.

use std::task::Poll;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egret_base::ManualClock;
use futures_util::poll;
use serde_json::json;

use super::*;

struct Rig {
    clock: Arc<ManualClock>,
    store: KeyStore,
}

fn rig() -> Rig {
    let issuer = "https://issuer.example";
    let config = OidcConfig { issuer: Some(issuer.to_owned()), ..OidcConfig::default() };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let source = KeySource::open(&config, issuer, Default::default()).unwrap();
    let clock = Arc::new(ManualClock::default());
    let store = KeyStore::open(&config, source, clock.clone(), OidcMetrics::default());
    Rig { clock, store: store.unwrap() }
}

/// Keys of these ids. Nothing is verified with them.
fn keys(ids: &[&str]) -> KeySet {
    let point = URL_SAFE_NO_PAD.encode([7; 32]);
    let keys: Vec<_> = ids
        .iter()
        .map(|id| json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": point}))
        .collect();
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn token(key: &str) -> String {
    let header = json!({"alg": "EdDSA", "kid": key}).to_string();
    format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(header))
}

impl Rig {
    fn complete_fetch(&self, ids: &[&str]) {
        self.store.begin_fetch();
        self.store.end_fetch(Ok(keys(ids)));
    }

    fn is_requested(&self) -> bool {
        self.store.lock_fetches().is_requested
    }
}

#[tokio::test]
async fn a_key_that_appears_while_keys_are_fetched_is_found_by_the_next_fetch() {
    let rig = rig();
    rig.complete_fetch(&["old"]);
    rig.store.begin_fetch();
    let text = token("new");
    let signed = SignedToken::parse(&text).unwrap();
    let mut found = Box::pin(rig.store.find_key(&signed));
    assert!(poll!(&mut found).is_pending());
    assert!(rig.is_requested());
    // What was read before the key appeared does not decide.
    rig.store.end_fetch(Ok(keys(&["old"])));
    assert!(poll!(&mut found).is_pending());
    rig.complete_fetch(&["old", "new"]);
    assert!(matches!(poll!(&mut found), Poll::Ready(Ok(_))));
}

#[tokio::test]
async fn a_key_that_a_running_fetch_brings_is_not_waited_for_any_longer() {
    let rig = rig();
    rig.store.begin_fetch();
    let text = token("new");
    let signed = SignedToken::parse(&text).unwrap();
    let mut found = Box::pin(rig.store.find_key(&signed));
    assert!(poll!(&mut found).is_pending());
    rig.store.end_fetch(Ok(keys(&["new"])));
    assert!(matches!(poll!(&mut found), Poll::Ready(Ok(_))));
}

#[tokio::test]
async fn made_up_keys_cause_one_fetch_and_one_that_follows_it_in_a_pause() {
    let rig = rig();
    rig.complete_fetch(&["old"]);
    rig.clock.advance(rig.store.refresh_pause);
    let texts: Vec<String> = (0..4).map(|number| token(&format!("made-up-{number}"))).collect();
    let tokens: Vec<_> = texts.iter().map(|text| SignedToken::parse(text).unwrap()).collect();
    let mut asked: Vec<_> =
        tokens.iter().map(|token| Box::pin(rig.store.find_key(token))).collect();
    let [first, second, third, fourth] = asked.as_mut_slice() else {
        unreachable!("there are four");
    };
    assert!(poll!(first.as_mut()).is_pending());
    rig.store.begin_fetch();
    assert!(poll!(second.as_mut()).is_pending());
    rig.store.end_fetch(Ok(keys(&["old"])));
    assert!(matches!(poll!(first.as_mut()), Poll::Ready(Err(JwtRefusal::KeyUnknown))));
    assert!(poll!(second.as_mut()).is_pending());
    // During the one that follows no further one is wanted; what it does not bring is not certain.
    rig.store.begin_fetch();
    assert!(poll!(third.as_mut()).is_pending());
    assert!(!rig.is_requested());
    rig.store.end_fetch(Ok(keys(&["old"])));
    assert!(matches!(poll!(second.as_mut()), Poll::Ready(Err(JwtRefusal::KeyUnknown))));
    assert!(matches!(poll!(third.as_mut()), Poll::Ready(Err(JwtRefusal::KeysUnavailable))));
    assert!(matches!(poll!(fourth.as_mut()), Poll::Ready(Err(JwtRefusal::KeyUnknown))));
    assert!(!rig.is_requested());
}

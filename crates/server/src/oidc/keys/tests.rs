//! Keys verify what their kind allows, and key sets are read within bounds.

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};

use super::*;

/// A public RSA key, and tokens that its discarded private key has signed with each algorithm.
const RSA: &str = include_str!("rsa.json");

fn rsa() -> Value {
    serde_json::from_str(RSA).unwrap()
}

fn read(keys: Value) -> Result<KeySet, String> {
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes())
}

fn verifies(keys: &KeySet, text: &str) -> Result<bool, JwtRefusal> {
    let signed = SignedToken::parse(text).unwrap();
    keys.find(&signed).map(|key| key.verifies(&signed))
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn message(header: &Value) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(b"{}"))
}

#[test]
fn each_rsa_algorithm_verifies_its_signature_and_no_other() {
    let rsa = rsa();
    let keys = read(json!([rsa["jwk"]])).unwrap();
    for (name, token) in rsa["tokens"].as_object().unwrap() {
        let token = token.as_str().unwrap();
        assert_eq!(verifies(&keys, token), Ok(true), "{name}");
        let (head, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = head.split_once('.').unwrap();
        let altered = format!("{header}.{}.{signature}", encode(b"{\"sub\":\"root\"}"));
        assert_eq!(verifies(&keys, &altered), Ok(false), "{name}");
        for other in rsa["tokens"].as_object().unwrap().keys() {
            let header = json!({"alg": other, "kid": "rsa"}).to_string();
            let payload = head.split_once('.').unwrap().1;
            let renamed = format!("{}.{payload}.{signature}", encode(header.as_bytes()));
            assert_eq!(verifies(&keys, &renamed), Ok(other == name), "{name} as {other}");
        }
    }
}

#[test]
fn ed25519_and_p384_verify() {
    let random = SystemRandom::new();
    let document = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
    let edwards = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let p384 = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
    let point = p384.public_key().as_ref();
    let keys = read(json!([
        {"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": encode(edwards.public_key().as_ref())},
        {"kty": "EC", "crv": "P-384", "kid": "p", "x": encode(&point[1..49]), "y": encode(&point[49..])},
    ])).unwrap();
    let signed = message(&json!({"alg": "EdDSA", "kid": "e"}));
    let signature = edwards.sign(signed.as_bytes());
    let token = format!("{signed}.{}", encode(signature.as_ref()));
    assert_eq!(verifies(&keys, &token), Ok(true));
    let signed = message(&json!({"alg": "ES384", "kid": "p"}));
    let signature = p384.sign(&random, signed.as_bytes()).unwrap();
    let token = format!("{signed}.{}", encode(signature.as_ref()));
    assert_eq!(verifies(&keys, &token), Ok(true));
    // The same signature under the id of another key's kind.
    let signed = message(&json!({"alg": "ES384", "kid": "e"}));
    let token = format!("{signed}.{}", encode(signature.as_ref()));
    assert_eq!(verifies(&keys, &token), Err(JwtRefusal::Algorithm));
}

#[test]
fn a_key_is_used_only_for_what_its_issuer_names() {
    let rsa = rsa();
    let token = rsa["tokens"]["RS256"].as_str().unwrap();
    let with = |name: &str, value: &str| {
        let mut key = rsa["jwk"].clone();
        key[name] = json!(value);
        key
    };
    let keys = read(json!([with("alg", "RS512")])).unwrap();
    assert_eq!(verifies(&keys, token), Err(JwtRefusal::Algorithm));
    let keys = read(json!([with("alg", "RS256")])).unwrap();
    assert_eq!(verifies(&keys, token), Ok(true));
    let keys = read(json!([with("kid", "other")])).unwrap();
    assert_eq!(verifies(&keys, token), Err(JwtRefusal::KeyUnknown));
    for unusable in [with("use", "enc"), with("alg", "HS256"), with("alg", "RSA-OAEP")] {
        assert!(read(json!([unusable])).unwrap_err().contains("no usable key"));
    }
}

#[test]
fn a_token_without_key_id_means_the_only_key_for_its_algorithm() {
    let (one, mut two) = (rsa()["jwk"].clone(), rsa()["jwk"].clone());
    two["kid"] = json!("two");
    let text = format!("{}.c2ln", message(&json!({"alg": "RS256"})));
    let signed = SignedToken::parse(&text).unwrap();
    let keys = read(json!([one])).unwrap();
    assert!(keys.find(&signed).is_ok());
    let keys = read(json!([one, two])).unwrap();
    assert_eq!(keys.find(&signed).unwrap_err(), JwtRefusal::KeyUnknown);
}

#[test]
fn unusable_keys_are_passed_over_and_sets_are_bounded() {
    let rsa = rsa()["jwk"].clone();
    let with = |name: &str, value: Value| {
        let mut key = rsa.clone();
        key[name] = value;
        key
    };
    let keys = read(json!([
        rsa,
        with("n", json!(encode(&[0x81; 128]))),
        with("n", json!(encode(&[0x81; 513]))),
        with("e", json!(encode(&[1; 5]))),
        with("n", json!(7)),
        {"kty": "oct", "k": "AAAA", "kid": "secret"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "X25519", "x": encode(&[1; 32])},
        "text",
    ]));
    assert_eq!(keys.unwrap().len(), 1);
    let error = read(json!(vec![rsa; KEYS_MAX.max as usize + 1])).unwrap_err();
    assert!(error.contains("oidc_keys_max"), "{error}");
    assert!(KeySet::read(b"<html>").is_err());
}

#[test]
fn another_key_under_the_same_id_is_another_key() {
    let one = rsa()["jwk"].clone();
    let mut two = one.clone();
    two["n"] = json!(encode(&[0x81; 256]));
    let prints = |key: &Value| read(json!([key])).unwrap().fingerprints();
    assert_eq!(prints(&one), prints(&one));
    assert_ne!(prints(&one), prints(&two));
}

//! Tokens are taken apart within bounds, and only asymmetric algorithms have names.

use serde_json::{Value, json};

use super::*;

fn token(header: &Value) -> String {
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    format!("{header}.e30.c2ln")
}

fn refused(text: &str) -> JwtRefusal {
    match SignedToken::parse(text) {
        Ok(_) => panic!("`{text}` was taken"),
        Err(refusal) => refusal,
    }
}

#[test]
fn a_signed_token_is_taken_apart() {
    let text = token(&json!({"alg": "ES256", "kid": "a", "typ": "at+jwt", "jku": "https://evil"}));
    let signed = SignedToken::parse(&text).unwrap();
    assert_eq!(signed.algorithm, Algorithm::Es256);
    assert_eq!(signed.key_id.as_deref(), Some("a"));
    assert_eq!(signed.signature, b"sig");
    assert_eq!(signed.claims().unwrap(), json!({}));
}

#[test]
fn algorithms_without_a_public_key_do_not_exist() {
    for alg in ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "es256", "ES256K", "dir"] {
        let text = token(&json!({"alg": alg}));
        assert_eq!(refused(&text), JwtRefusal::Algorithm, "{alg}");
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let critical = json!({"alg": "ES256", "crit": ["b64"], "b64": false});
    let repeated = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","alg":"HS256"}"#);
    let long_id = json!({"alg": "ES256", "kid": "k".repeat(KEY_ID_BYTES_MAX + 1)});
    for text in [
        "a.b".to_owned(),
        "..".to_owned(),
        "e30.e30.c2ln".to_owned(),
        "e30=.e30.c2ln".to_owned(),
        format!("{}.x", token(&json!({"alg": "ES256"}))),
        token(&json!(["ES256"])),
        token(&critical),
        token(&long_id),
        format!("{repeated}.e30.c2ln"),
        token(&json!({"alg": "ES256"})) + "=",
    ] {
        let refusal = refused(&text);
        assert!(matches!(refusal, JwtRefusal::Malformed(_)), "{text}: {refusal}");
    }
    let long = "x".repeat(TOKEN_BYTES_MAX.max as usize + 1);
    assert!(matches!(refused(&long), JwtRefusal::TooLong(_)));
}

#[test]
fn three_parts_are_the_form_of_a_token() {
    assert!(has_jwt_form("a.b.c"));
    for text in ["egret_k3m9x2p7q4w8_secret", "a.b", "a.b.c.d", ""] {
        assert!(!has_jwt_form(text), "{text}");
    }
}

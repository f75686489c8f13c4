//! Identities of clients other than a token of Egret's: certificates of clients, and tokens of an
//! issuer.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ED25519,
    PublicKeyData, SigningKey,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, text};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for `host` and its key; returns their paths.
fn write_certificate(place: &Place, name: &str, host: &str, authority: &Authority) -> [String; 2] {
    let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let texts = [("crt", certificate.pem()), ("key", key.serialize_pem())];
    texts.map(|(kind, text)| write(place, &format!("{name}.{kind}"), &text))
}

fn write(place: &Place, name: &str, text: &str) -> String {
    let path = place.directory.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_command_line_shows_a_certificate_where_the_server_requires_one() {
    let mut place = Place::new("client-certificate");
    let (servers, clients) = (authority(), authority());
    let [certificate, key] = write_certificate(&place, "server", "127.0.0.1", &servers);
    let client = write_certificate(&place, "client", "client", &clients);
    let foreign = write_certificate(&place, "foreign", "client", &servers);
    let trusted = write(&place, "servers.pem", &servers.pem());
    place.variables = vec![
        ("EGRET_SERVER_TLS_CERTIFICATE", certificate),
        ("EGRET_SERVER_TLS_KEY", key),
        ("EGRET_SERVER_TLS_CLIENT_AUTH", "required".to_owned()),
        ("EGRET_SERVER_TLS_CLIENT_CA", write(&place, "clients.pem", &clients.pem())),
    ];
    let server = place.start(&["serve"]);
    let list = |flags: &[&str]| place.run(&[&["token", "list"], flags].concat());
    let shown = |[certificate, key]: &[String; 2]| {
        let flags = ["--client-cert", certificate, "--client-key", key];
        let own = list(&flags);
        let by_authority = list(&[&flags[..], &["--ca-file", &trusted]].concat());
        [own, by_authority]
    };
    // With the certificate of the configuration, and with an authority that vouches for it.
    for ran in shown(&client) {
        assert!(ran.status.success(), "{}", text(&ran.stderr));
    }
    for ran in shown(&foreign) {
        assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stdout));
    }
    assert_eq!(list(&[]).status.code(), Some(3));
    // An authority that vouches for nothing here: the server runs, and is not trusted.
    let other = write(&place, "others.pem", &clients.pem());
    let untrusted = list(&["--ca-file", &other]);
    assert_eq!(untrusted.status.code(), Some(3));
    let message = text(&untrusted.stderr);
    assert!(message.contains("is not trusted: name the issuer's"), "{message}");
    let half = list(&["--client-cert", &client[0]]);
    assert_eq!(half.status.code(), Some(2));
    assert!(text(&half.stderr).contains("--client-key or EGRET_CLIENT_KEY"));
    // By variables as well.
    let variables = ["EGRET_CLIENT_CERT", "EGRET_CLIENT_KEY"].into_iter().zip(client);
    let mut command = place.command(&["token", "list"]);
    let ran = command.envs(variables).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    server.stop(Signal::TERM);
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token of an issuer with these claims beside the usual ones.
fn sign(key: &KeyPair, changed: &Value) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "egret", "sub": "anna@example", "tenant": "acme",
        "exp": since.as_secs() + 600,
    });
    let fields = changed.as_object().unwrap().clone();
    claims.as_object_mut().unwrap().extend(fields);
    let header = json!({"alg": "EdDSA", "kid": "k"}).to_string();
    let message = [header, claims.to_string()].map(|part| encode(part.as_bytes()));
    let message = message.join(".");
    let signature = key.sign(message.as_bytes()).unwrap();
    format!("{message}.{}", encode(&signature))
}

#[test]
fn a_token_of_the_issuer_causes_nothing_beyond_its_claims() {
    let mut place = Place::new("issuer-token");
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let public = encode(key.der_bytes());
    let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": public}]});
    place.variables = vec![
        ("EGRET_OIDC_ISSUER", "https://issuer.example".to_owned()),
        ("EGRET_OIDC_AUDIENCE", "egret".to_owned()),
        ("EGRET_OIDC_TENANT_CLAIM", "tenant".to_owned()),
        ("EGRET_OIDC_ROLES_CLAIM", "groups".to_owned()),
        ("EGRET_OIDC_ROLE_SCOPES", "ops=queue:operate queue:read".to_owned()),
        ("EGRET_OIDC_JWKS_FILE", write(&place, "keys.json", &keys.to_string())),
    ];
    let server = place.start(&["serve"]);
    let run = |changed: Value, arguments: &[&str]| {
        let token = write(&place, "token", &sign(&key, &changed));
        place.run(&[arguments, &["--token-file", &token]].concat())
    };
    let refused = |changed: Value, arguments: &[&str]| {
        let ran = run(changed, arguments);
        assert_eq!(ran.status.code(), Some(1), "{}", text(&ran.stdout));
        text(&ran.stderr)
    };
    let ops = || json!({"groups": ["ops", "others"]});
    let made = run(ops(), &["queue", "create", "orders"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let said = refused(ops(), &["queue", "enqueue", "orders", "1"]);
    assert!(said.contains("lacks the scope"), "{said}");
    // Of another group there are no scopes, and administrators of the host are made by the
    // settings.
    let said = refused(json!({"groups": ["others"]}), &["queue", "list"]);
    assert!(said.contains("lacks the scope"), "{said}");
    let operator = json!({"tenant": "default", "scope": "admin"});
    let said = refused(operator, &["token", "list"]);
    assert!(said.contains("lacks the scope"), "{said}");
    let said = refused(json!({"aud": "others"}), &["queue", "list"]);
    assert!(said.contains("oidc.audience"), "{said}");
    // The queue is the tenant's.
    let own = place.json(&["queue", "list"]);
    assert_eq!(own["items"], json!([]), "{own}");
    let audit = place.json(&["audit", "--operation", "putQueue"]).to_string();
    assert!(audit.contains("anna@example") && audit.contains("\"oidc:"), "{audit}");
    server.stop(Signal::TERM);
}

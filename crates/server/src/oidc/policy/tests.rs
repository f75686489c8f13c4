//! From claims to a token: nothing is granted that the settings do not name.

use std::sync::Arc;

use egret_base::settings::ConfigDuration;
use egret_base::{ManualClock, SeededEntropy};
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;

struct Rig {
    tokens: Tokens,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(
            &directory.path().join("state.db"),
            &["documents", "queue"],
            Arc::new(ManualClock::default()),
            Arc::new(SeededEntropy::new(1)),
        );
        Self { tokens: tokens.unwrap(), _directory: directory }
    }

    fn read(&self, change: impl FnOnce(&mut OidcConfig)) -> Result<Policy, String> {
        let mut config = OidcConfig {
            audience: Some("egret".to_owned()),
            tenant: Some("default".to_owned()),
            ..OidcConfig::default()
        };
        change(&mut config);
        let policy = Policy::read(&config, "https://issuer.example".to_owned(), &self.tokens);
        policy.map_err(|error| error.to_string())
    }

    fn token(
        &self,
        change: impl FnOnce(&mut OidcConfig),
        claims: &Value,
    ) -> Result<Token, JwtRefusal> {
        let mut whole = json!({
            "iss": "https://issuer.example", "aud": "egret", "sub": "anna", "exp": NOW + 60,
        });
        let fields = claims.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(fields);
        let now = Timestamp::from_micros(NOW * 1_000_000);
        self.read(change).unwrap().to_token(&whole, now, &self.tokens)
    }
}

#[test]
fn scopes_come_from_the_claim_and_unknown_ones_are_ignored() {
    let rig = Rig::new();
    for claim in [
        json!("openid queue:read email nothing:read queue/orders:work"),
        json!(["queue:read", "queue/orders:work", 7, "queue:fly"]),
    ] {
        let token = rig.token(|_| {}, &json!({ "scope": claim })).unwrap();
        assert_eq!(token.scopes, ["queue/orders:work", "queue:read"]);
    }
    let token = rig.token(|_| {}, &json!({"scope": {"queue:read": true}}));
    assert!(token.unwrap().scopes.is_empty());
    let prefixed = |config: &mut OidcConfig| config.scopes_prefix = "egret:".to_owned();
    let claims = json!({"scope": "egret:queue:read queue:write"});
    assert_eq!(rig.token(prefixed, &claims).unwrap().scopes, ["queue:read"]);
    let many: Vec<String> = (0..65).map(|at| format!("queue/q{at}:read")).collect();
    let refused = rig.token(|_| {}, &json!({ "scope": many })).unwrap_err();
    assert!(matches!(refused, JwtRefusal::Claim(_)));
}

#[test]
fn roles_become_scopes_by_the_settings_only() {
    let rig = Rig::new();
    let by_role = |config: &mut OidcConfig| {
        config.roles_claim = Some("/realm_access/roles".to_owned());
        config.role_scopes =
            "ops=queue:* documents:read; cn=dev,dc=example=queue/dev:work".to_owned();
    };
    let claims = json!({"realm_access": {"roles": ["ops", "admin"]}, "roles": ["admin"]});
    let token = rig.token(by_role, &claims).unwrap();
    assert_eq!(token.scopes, ["documents:read", "queue:*"]);
    let claims = json!({"realm_access": {"roles": "cn=dev,dc=example"}});
    assert_eq!(rig.token(by_role, &claims).unwrap().scopes, ["queue/dev:work"]);
}

#[test]
fn the_tenant_is_named_or_the_token_is_refused() {
    let rig = Rig::new();
    let by_claim = |config: &mut OidcConfig| {
        config.tenant = None;
        config.tenant_claim = Some("org".to_owned());
    };
    let token = rig.token(by_claim, &json!({"org": "acme"})).unwrap();
    assert_eq!(token.tenant, "acme");
    for org in [json!(null), json!(""), json!("Acme"), json!(["acme"]), json!("a".repeat(64))] {
        let refused = rig.token(by_claim, &json!({ "org": org })).unwrap_err();
        assert!(matches!(refused, JwtRefusal::Claim(_)), "{org}");
    }
    // With a fixed tenant no claim counts.
    assert_eq!(rig.token(|_| {}, &json!({"org": "acme"})).unwrap().tenant, "default");
}

#[test]
fn admin_of_the_operators_tenant_takes_a_setting() {
    let rig = Rig::new();
    let claims = json!({"scope": "admin queue:read"});
    assert_eq!(rig.token(|_| {}, &claims).unwrap().scopes, ["queue:read"]);
    let allowed = |config: &mut OidcConfig| config.admin = true;
    assert_eq!(rig.token(allowed, &claims).unwrap().scopes, ["admin", "queue:read"]);
    let tenant = |config: &mut OidcConfig| config.tenant = Some("acme".to_owned());
    assert_eq!(rig.token(tenant, &claims).unwrap().scopes, ["admin", "queue:read"]);
}

#[test]
fn times_are_checked_with_the_leeway() {
    let rig = Rig::new();
    let at = |claims: Value| rig.token(|_| {}, &claims);
    let seconds = |at: i64| Timestamp::from_micros((NOW + at) * 1_000_000);
    assert_eq!(at(json!({"exp": NOW + 60})).unwrap().expires_at, Some(seconds(120)));
    assert_eq!(at(json!({"exp": NOW - 59})).unwrap().expires_at, Some(seconds(1)));
    assert_eq!(at(json!({"exp": NOW - 60})), Err(JwtRefusal::Expired { at: seconds(0) }));
    assert!(at(json!({"nbf": NOW + 60, "iat": NOW + 60})).is_ok());
    assert_eq!(at(json!({"nbf": NOW + 61})), Err(JwtRefusal::NotYetValid));
    assert_eq!(at(json!({"iat": NOW + 61})), Err(JwtRefusal::NotYetValid));
    assert_eq!(at(json!({"exp": NOW + 86_401})), Err(JwtRefusal::Lifetime));
    assert_eq!(at(json!({"exp": 1e300})), Err(JwtRefusal::Lifetime));
    for claims in [
        json!({"exp": null}),
        json!({"exp": "1900000000"}),
        json!({"exp": [NOW + 60]}),
        json!({"nbf": "0"}),
        json!({"iat": true}),
    ] {
        assert!(matches!(at(claims.clone()), Err(JwtRefusal::Claim(_))), "{claims}");
    }
    assert!(matches!(at(json!({"exp": -1e300})), Err(JwtRefusal::Expired { .. })));
}

#[test]
fn subjects_are_told_apart_and_shown_within_bounds() {
    let rig = Rig::new();
    let id = |subject: &str| rig.token(|_| {}, &json!({ "sub": subject })).unwrap();
    assert_eq!(id("anna").id, id("anna").id);
    assert_ne!(id("anna").id, id("anna ").id);
    assert!(id("anna").id.starts_with("oidc:") && id("anna").id.len() == 37);
    let shown = id(&format!("a\nb{}", "ü".repeat(400))).name;
    assert_eq!((shown.chars().count(), &shown[..3]), (100, "a?b"));
    for subject in [json!(null), json!(""), json!(7), json!("s".repeat(1_025))] {
        let refused = rig.token(|_| {}, &json!({ "sub": subject }));
        assert!(matches!(refused, Err(JwtRefusal::Claim(_))), "{subject}");
    }
}

#[test]
fn claims_of_the_settings_are_kept_and_no_others() {
    let rig = Rig::new();
    let schools = |config: &mut OidcConfig| config.claims = "school, /address/country".to_owned();
    let claims =
        json!({"school": [255_901, "255902"], "address": {"country": "AT"}, "email": "a@b"});
    let kept = rig.token(schools, &claims).unwrap().claims;
    assert_eq!(
        serde_json::to_value(kept).unwrap(),
        json!({"/address/country": ["AT"], "school": ["255901", "255902"]})
    );
    let many: Vec<usize> = (0..1_001).collect();
    let refused = rig.token(schools, &json!({ "school": many }));
    assert!(matches!(refused, Err(JwtRefusal::Claim(_))));
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let rig = Rig::new();
    type Change = fn(&mut OidcConfig);
    let table: [(&str, Change); 9] = [
        ("oidc.audience", |config| config.audience = None),
        ("oidc.tenant", |config| config.tenant = None),
        ("oidc.tenant", |config| config.tenant = Some("Acme".to_owned())),
        ("oidc.tenant", |config| config.tenant_claim = Some("org".to_owned())),
        ("oidc.algorithms", |config| config.algorithms = "ES256,HS256".to_owned()),
        ("oidc.algorithms", |config| config.algorithms = String::new()),
        ("oidc.clock_leeway", |config| config.clock_leeway = ConfigDuration::secs(301)),
        ("oidc.roles_claim", |config| config.role_scopes = "ops=admin".to_owned()),
        ("oidc.role_scopes", |config| {
            config.roles_claim = Some("roles".to_owned());
            config.role_scopes = "ops=queu:read".to_owned();
        }),
    ];
    for (setting, change) in table {
        let error = rig.read(change).unwrap_err();
        assert!(error.starts_with(&format!("{setting}: ")), "{error}");
    }
}

#[test]
fn scopes_of_the_whole_server_are_for_the_operators_tenant() {
    let rig = Rig::new();
    let by_claim = |config: &mut OidcConfig| {
        config.tenant = None;
        config.tenant_claim = Some("org".to_owned());
    };
    let claims = |org: &str| json!({"org": org, "scope": "metrics:read status:* queue:read"});
    let token = rig.token(by_claim, &claims("acme")).unwrap();
    assert_eq!(token.scopes, ["queue:read"]);
    let token = rig.token(by_claim, &claims("default")).unwrap();
    assert_eq!(token.scopes, ["metrics:read", "queue:read", "status:*"]);
}

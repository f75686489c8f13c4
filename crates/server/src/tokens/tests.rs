//! Tokens are checked, end, are revoked and survive a reopening; parsing never panics.

use egret_base::{ManualClock, SeededEntropy};
use proptest::prelude::*;
use std::fs;

use super::*;

struct TestStore {
    clock: Arc<ManualClock>,
    entropy: Arc<SeededEntropy>,
    directory: tempfile::TempDir,
}

impl TestStore {
    fn new() -> Self {
        Self {
            clock: Arc::new(ManualClock::starting_at(Timestamp::from_micros(
                1_800_000_000_000_000,
            ))),
            entropy: Arc::new(SeededEntropy::new(11)),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self) -> Tokens {
        let path = self.path("state.db");
        Tokens::open(&path, &["branches"], self.clock.clone(), self.entropy.clone()).unwrap()
    }
}

fn request(scopes: &[&str]) -> TokenRequest {
    TokenRequest {
        name: "ci".to_owned(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        claims: std::collections::BTreeMap::new(),
        tenant: None,
        ttl_ms: None,
    }
}

/// What follows `egret_`, the id and its underscore.
fn secret_of(token: &str) -> &str {
    token.split_at(19).1
}

fn code_of<T: std::fmt::Debug>(result: Result<T, TokenError>) -> &'static str {
    result.unwrap_err().code()
}

#[test]
fn a_token_works_until_revoked_and_over_a_reopening() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let made = tokens.create(&request(&["branches:read"])).unwrap();
    assert_eq!(**tokens.authenticate(&made.token).unwrap(), made.details);
    drop(tokens);
    let tokens = bench.open();
    assert_eq!(tokens.authenticate(&made.token).unwrap().id, made.details.id);
    tokens.revoke(&made.details.id, false).unwrap();
    assert_eq!(code_of(tokens.authenticate(&made.token)), "token_invalid");
    assert_eq!(code_of(tokens.revoke(&made.details.id, false)), "token_not_found");
    assert_eq!(code_of(bench.open().authenticate(&made.token)), "token_invalid");
}

#[test]
fn a_token_ends_and_is_swept_later() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let made = tokens.create(&TokenRequest { ttl_ms: Some(1_000), ..request(&["admin"]) }).unwrap();
    bench.clock.advance(Duration::from_millis(999));
    tokens.authenticate(&made.token).unwrap();
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(code_of(tokens.authenticate(&made.token)), "token_expired");
    assert_eq!(tokens.list().len(), 1);
    bench.clock.advance(ENDED_RETENTION);
    let other = tokens.create(&request(&["admin"])).unwrap();
    assert_eq!(tokens.list(), [other.details]);
}

#[test]
fn an_expired_token_stays_expired_when_the_clock_is_set_back() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let made = tokens.create(&TokenRequest { ttl_ms: Some(1_000), ..request(&["admin"]) }).unwrap();
    bench.clock.advance(Duration::from_millis(1_000));
    assert!(tokens.end_expired());
    tokens.write_expirations().unwrap();
    assert!(!tokens.end_expired());
    bench.clock.set_back(Duration::from_millis(1_000));
    assert_eq!(code_of(tokens.authenticate(&made.token)), "token_expired");
    drop(tokens);
    let tokens = bench.open();
    assert_eq!(code_of(tokens.authenticate(&made.token)), "token_expired");
}

#[test]
fn a_tenant_has_a_bound_of_its_own() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let of_acme = TokenRequest { tenant: Some("acme".to_owned()), ..request(&["branches:read"]) };
    for _ in 0..TENANT_TOKENS_MAX.max {
        tokens.create(&of_acme).unwrap();
    }
    assert_eq!(code_of(tokens.create(&of_acme)), "tenant_tokens_max");
    tokens.create(&request(&["branches:read"])).unwrap();
}

#[test]
fn a_token_makes_none_with_more_rights_than_its_own() {
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    let bench = TestStore::new();
    let tokens = bench.open();
    let admin_of = |tenant: &str, ttl_ms| {
        let wish = TokenRequest { tenant: Some(tenant.to_owned()), ttl_ms, ..request(&["admin"]) };
        tokens.create(&wish).unwrap().details
    };
    let (operator, acme) = (admin_of("default", None), admin_of("acme", Some(60_000)));
    let made = request(&["queue:read"]).restrict_to_creator(&acme, now).unwrap();
    assert_eq!((made.tenant.as_deref(), made.ttl_ms), (Some("acme"), Some(60_000)));
    let of_default =
        TokenRequest { tenant: Some("default".to_owned()), ..request(&["queue:read"]) };
    let longer = TokenRequest { ttl_ms: Some(60_001), ..request(&["queue:read"]) };
    let refused =
        [of_default.clone(), longer.clone(), request(&["metrics:read"]), request(&["status:*"])];
    for wish in refused {
        assert_eq!(
            code_of(wish.clone().restrict_to_creator(&acme, now)),
            "token_exceeds_creator",
            "{wish:?}"
        );
        wish.restrict_to_creator(&operator, now).unwrap();
    }
}

#[test]
fn the_secret_is_nowhere_in_the_store() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let made = tokens.create(&request(&["admin"])).unwrap();
    assert!(!format!("{made:?}").contains(&made.token));
    drop(tokens);
    let secret = secret_of(&made.token);
    for entry in fs::read_dir(bench.directory.path()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}

#[test]
fn the_last_use_is_noted_to_the_minute_and_written_behind() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let made = tokens.create(&request(&["admin"])).unwrap();
    let first = bench.clock.now();
    tokens.authenticate(&made.token).unwrap();
    bench.clock.advance(Duration::from_secs(59));
    tokens.authenticate(&made.token).unwrap();
    assert_eq!(tokens.list()[0].last_used_at, Some(first));
    tokens.write_last_used().unwrap();
    assert_eq!(bench.open().list()[0].last_used_at, Some(first));
    bench.clock.advance(Duration::from_secs(1));
    tokens.authenticate(&made.token).unwrap();
    tokens.write_last_used().unwrap();
    assert_eq!(bench.open().list()[0].last_used_at, Some(bench.clock.now()));
}

#[test]
fn bad_requests_are_refused_by_field() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let long = "x".repeat(101);
    let table = [
        (TokenRequest { name: String::new(), ..request(&["admin"]) }, "name"),
        (TokenRequest { name: long, ..request(&["admin"]) }, "name"),
        (TokenRequest { tenant: Some("A b".to_owned()), ..request(&["admin"]) }, "tenant"),
        (TokenRequest { ttl_ms: Some(0), ..request(&["admin"]) }, "ttl_ms"),
        (TokenRequest { ttl_ms: Some(u64::MAX), ..request(&["admin"]) }, "ttl_ms"),
        (
            TokenRequest {
                claims: [("school".to_owned(), [String::new()].into())].into(),
                ..request(&["admin"])
            },
            "claims",
        ),
        (request(&[]), "scopes"),
        (request(&["branch:read"]), "did you mean `branches`?"),
        (request(&["branches:drop"]), "`branches:drop` is not a scope"),
        (request(&["branches"]), "`branches` is not a scope"),
    ];
    for (wrong, expected) in table {
        let message = tokens.create(&wrong).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    assert!(tokens.list().is_empty());
}

#[test]
fn scopes_allow_what_they_say() {
    let table = [
        ("admin", "branches:write", true),
        ("admin", "admin", true),
        ("branches:*", "branches:read", true),
        ("branches:read", "branches:read", true),
        ("branches:read", "branches:write", false),
        ("branches:*", "admin", false),
        ("branches:*", "metrics:read", false),
        ("queue:write", "queue:produce", false),
        ("queue/orders:produce", "queue:produce", true),
        ("queue/orders:produce", "queue:work", false),
        ("queue/a:b:work", "queue:work", true),
    ];
    for (granted, needed, allowed) in table {
        assert_eq!(Scope::allows(granted, needed), allowed, "{granted} for {needed}");
    }
}

#[test]
fn scopes_name_parts_and_prefixes() {
    let areas = ["branches", "queue", "views", "documents", "series"];
    let valid = [
        "queue/orders:produce",
        "queue/orders.*:work",
        "queue/a:b:operate",
        "queue/*:read",
        "views/report.late:read",
        "branches/pr-*:write",
        "documents/flights:read",
    ];
    for text in valid {
        let scope = Scope::parse(text, &areas).unwrap();
        assert_eq!(scope.to_string(), text);
    }
    let invalid = [
        "queue/:produce",
        "queue/a*b:produce",
        "queue/a b:produce",
        "queue/orders:drop",
        "views/late:produce",
        "series/up:read",
        "documents/fl*:read",
    ];
    for text in invalid {
        assert!(Scope::parse(text, &areas).is_err(), "{text}");
    }
    let bench = TestStore::new();
    let tokens = Tokens::open(
        &bench.path("state.db"),
        &["queue"],
        bench.clock.clone(),
        bench.entropy.clone(),
    )
    .unwrap();
    let made = tokens.create(&request(&["queue/orders:produce", "queue/eu.*:*"])).unwrap();
    let reach = made.details.reach("queue", &["produce", "write"]);
    for (queue, is_covered) in [("orders", true), ("orders2", false), ("eu.x", true), ("eu", false)]
    {
        assert_eq!(reach.covers(queue), is_covered, "{queue}");
    }
    assert!(!made.details.reach("queue", &["work", "write"]).covers("orders"));
}

#[test]
fn the_first_admin_token_is_made_once_and_again_when_lost() {
    use std::os::unix::fs::PermissionsExt;
    let bench = TestStore::new();
    let file = bench.path("admin.token");
    let tokens = bench.open();
    let made = tokens.ensure_admin(&file).unwrap().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", made.token));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(tokens.ensure_admin(&file).unwrap(), None);
    drop(tokens);
    fs::remove_file(bench.path("state.db")).unwrap();
    let tokens = bench.open();
    let again = tokens.ensure_admin(&file).unwrap().unwrap();
    assert_ne!(again.token, made.token);
    assert_eq!(code_of(tokens.authenticate(&made.token)), "token_invalid");
    tokens.authenticate(fs::read_to_string(&file).unwrap().trim()).unwrap();
}

#[test]
fn a_wrong_secret_is_refused() {
    let bench = TestStore::new();
    let tokens = bench.open();
    let made = tokens.create(&request(&["admin"])).unwrap();
    let other = PresentedToken::generate(&SeededEntropy::new(5));
    let forged = made.token.replace(secret_of(&made.token), secret_of(&other.text()));
    assert_eq!(code_of(tokens.authenticate(&forged)), "token_invalid");
    assert_eq!(code_of(tokens.authenticate(&other.text())), "token_invalid");
}

/// What may happen to the store, for the comparison with a plain list.
#[derive(Clone, Debug)]
enum StoreOp {
    Create { ttl_ms: Option<u64> },
    Revoke(usize),
    Advance { ms: u64 },
    Reopen,
}

fn store_op() -> impl Strategy<Value = StoreOp> {
    prop_oneof![
        proptest::option::of(1..5_000_u64).prop_map(|ttl_ms| StoreOp::Create { ttl_ms }),
        (0..8_usize).prop_map(StoreOp::Revoke),
        (0..3_000_u64).prop_map(|ms| StoreOp::Advance { ms }),
        Just(StoreOp::Reopen),
    ]
}

/// The same store as a list: each token with its end and whether it is revoked.
fn check_against_list(steps: Vec<StoreOp>) {
    let bench = TestStore::new();
    let mut tokens = bench.open();
    let mut list: Vec<(NewToken, bool)> = Vec::new();
    for step in steps {
        match step {
            StoreOp::Create { ttl_ms } => {
                let wish = TokenRequest { ttl_ms, ..request(&["branches:*"]) };
                list.push((tokens.create(&wish).unwrap(), false));
            }
            StoreOp::Revoke(index) => {
                if let Some((token, revoked)) = list.get_mut(index) {
                    let outcome = tokens.revoke(&token.details.id, false);
                    assert_eq!(outcome.is_err(), *revoked);
                    *revoked = true;
                }
            }
            StoreOp::Advance { ms } => bench.clock.advance(Duration::from_millis(ms)),
            StoreOp::Reopen => {
                drop(tokens);
                tokens = bench.open();
            }
        }
        let now = bench.clock.now();
        for (token, revoked) in &list {
            let expired = token.details.expires_at.is_some_and(|end| end <= now);
            let code = tokens.authenticate(&token.token).map_or_else(|error| error.code(), |_| "");
            let expected = match (revoked, expired) {
                (true, _) => "token_invalid",
                (false, true) => "token_expired",
                (false, false) => "",
            };
            assert_eq!(code, expected);
        }
        assert_eq!(tokens.list().len(), list.iter().filter(|(_, revoked)| !revoked).count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_store_agrees_with_a_list(steps in proptest::collection::vec(store_op(), 1..24)) {
        check_against_list(steps);
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in ".{0,80}", near in "egret_[0-9a-zé_-]{0,60}") {
        let _ = PresentedToken::parse(&text);
        let _ = PresentedToken::parse(&near);
        let _ = Scope::parse(&text, &["branches"]);
    }

    #[test]
    fn generated_tokens_round_trip(seed in any::<u64>()) {
        let token = PresentedToken::generate(&SeededEntropy::new(seed));
        prop_assert_eq!(token.text().len(), 6 + 12 + 1 + 43);
        prop_assert_eq!(PresentedToken::parse(&token.text()), Ok(token));
    }
}

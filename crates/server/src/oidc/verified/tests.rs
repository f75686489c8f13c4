//! Remembered tokens end at their time and with their key, and make room that no request holds.

use std::collections::{BTreeMap, HashSet};

use super::*;
use crate::tokens::Token;

fn token(expires_at: i64) -> LiveToken {
    token_of("default", expires_at)
}

fn token_of(tenant: &str, expires_at: i64) -> LiveToken {
    let token = Token {
        id: "oidc:0".to_owned(),
        name: "anna".to_owned(),
        tenant: tenant.to_owned(),
        scopes: Vec::new(),
        claims: BTreeMap::new(),
        created_at: Timestamp::from_micros(0),
        expires_at: Some(Timestamp::from_micros(expires_at)),
        last_used_at: None,
    };
    LiveToken::without_secret(token, Timestamp::from_micros(0))
}

fn digest_of_number(number: u64) -> TokenDigest {
    token_digest(&number.to_string())
}

#[test]
fn tokens_end_at_their_time_and_with_their_key() {
    let tokens = VerifiedTokens::default();
    let held: Vec<_> = [(1, 10, [1; 32]), (2, 20, [1; 32]), (3, 20, [2; 32])]
        .map(|(number, end, key)| tokens.insert(digest_of_number(number), token(end), key).unwrap())
        .into();
    tokens.end_expired(Timestamp::from_micros(10));
    assert_eq!(tokens.len(), 2);
    assert!(matches!(held[0].refusal(), Some(crate::TokenError::Expired { .. })));
    tokens.end_tokens_of_other_keys(&HashSet::from([[2; 32]]));
    assert!(matches!(held[1].refusal(), Some(crate::TokenError::Invalid)));
    assert!(tokens.find(&digest_of_number(2)).is_none());
    assert!(held[2].refusal().is_none() && tokens.find(&digest_of_number(3)).is_some());
}

/// Most tokens of a tenant in tests; twice as many are the most of all.
const TENANT_MAX: u64 = 100;

fn small_cache() -> VerifiedTokens {
    let limit = |of: Limit, max| Limit::new(of.name, max);
    VerifiedTokens::with_limits(
        limit(VERIFIED_MAX, 2 * TENANT_MAX),
        limit(TENANT_VERIFIED_MAX, TENANT_MAX),
    )
}

#[test]
fn at_the_limit_unused_tokens_make_room_and_used_ones_stay() {
    let tokens = small_cache();
    let insert = |number: u64| tokens.insert(digest_of_number(number), token(10), [0; 32]);
    let mut held = Vec::new();
    for number in 0..TENANT_MAX {
        let token = insert(number).unwrap();
        if number % 2 == 0 {
            held.push(token);
        }
    }
    for number in TENANT_MAX..TENANT_MAX + 50 {
        held.push(insert(number).unwrap());
        assert!(tokens.len() as u64 <= TENANT_MAX);
    }
    // All are in use now.
    let refused = insert(u64::MAX).unwrap_err();
    assert_eq!(refused.name, "oidc_tokens_verified_per_tenant_max");
    assert!(tokens.find(&digest_of_number(0)).is_some());
    drop(held);
    assert!(insert(u64::MAX).is_ok());
}

#[test]
fn a_tenant_leaves_room_for_tokens_of_others() {
    let tokens = small_cache();
    let insert = |tenant: &'static str, number: u64| {
        let digest = token_digest(&format!("{tenant} {number}"));
        tokens.insert(digest, token_of(tenant, 10), [0; 32])
    };
    let fill = |tenant| (0..TENANT_MAX).map(move |number| (tenant, number));
    let held: Vec<_> =
        fill("acme").map(|(tenant, number)| insert(tenant, number).unwrap()).collect();
    assert!(insert("acme", u64::MAX).is_err());
    let others: Vec<_> =
        fill("others").map(|(tenant, number)| insert(tenant, number).unwrap()).collect();
    let refused = insert("third", 0).unwrap_err();
    assert_eq!(refused.name, "oidc_tokens_verified_max");
    drop((held, others));
    assert!(insert("third", 0).is_ok());
}

#[test]
fn the_token_that_was_not_used_makes_room() {
    let tokens = small_cache();
    let insert = |number: u64| tokens.insert(digest_of_number(number), token(10), [0; 32]);
    for number in 0..TENANT_MAX {
        insert(number).unwrap();
    }
    // All but one are used again; it is the only one that goes.
    for number in (0..TENANT_MAX).filter(|number| *number != 40) {
        let used = tokens.find(&digest_of_number(number)).unwrap();
        used.record_use(Timestamp::from_micros(100_000_000));
    }
    insert(TENANT_MAX).unwrap();
    assert!(tokens.find(&digest_of_number(40)).is_none());
    assert_eq!(tokens.len() as u64, TENANT_MAX);
}

#[test]
fn entries_of_forgotten_tokens_refuse_no_other() {
    let tokens = small_cache();
    let insert = |tenant: &'static str, number: u64| {
        let digest = token_digest(&format!("{tenant} {number}"));
        tokens.insert(digest, token_of(tenant, 10), [0; 32])
    };
    // Of the first tenant's tokens most were forgotten for its own bound.
    for number in 0..2 * TENANT_MAX {
        insert("acme", number).unwrap();
    }
    for number in 0..TENANT_MAX {
        insert("others", number).unwrap();
    }
    for number in 0..TENANT_MAX {
        insert("third", number).unwrap();
        assert!(tokens.len() as u64 <= 2 * TENANT_MAX);
    }
    // Tokens that come back and go again leave no entries that count as theirs.
    for number in 0..20 * (TENANT_MAX + 1) {
        insert("acme", number % (TENANT_MAX + 1)).unwrap();
        let remembered = tokens.read();
        let of_tenant = &remembered.tenants["acme"];
        assert!(of_tenant.queue.0.len() <= 2 * of_tenant.count + STALE_MAX);
        assert!(remembered.queue.0.len() <= 2 * remembered.by_digest.len() + STALE_MAX);
    }
}

#[test]
fn queues_stay_as_small_as_what_is_remembered() {
    let tokens = small_cache();
    for number in 0..20 * TENANT_MAX {
        tokens.insert(digest_of_number(number), token(10), [0; 32]).unwrap();
        let remembered = tokens.read();
        let bound = 2 * remembered.by_digest.len() + STALE_MAX;
        assert!(remembered.queue.0.len() <= bound);
        let tenant = &remembered.tenants["default"];
        assert_eq!(tenant.count, remembered.by_digest.len());
        assert!(tenant.queue.0.len() <= bound);
    }
    tokens.end_expired(Timestamp::from_micros(10));
    assert_eq!(tokens.len(), 0);
    assert!(tokens.read().tenants.is_empty());
}

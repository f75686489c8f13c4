//! Shares of tokens and tenants.

use egret_base::settings::ByteSize;

use super::*;

fn quotas() -> Arc<Quotas> {
    Quotas::new(&ServerConfig {
        concurrency_max: 4,
        concurrency_per_tenant_max: 3,
        concurrency_per_token_max: 2,
        body_memory_max: ByteSize(100),
        body_memory_per_tenant_max: ByteSize(60),
        body_memory_per_token_max: ByteSize(50),
        ..ServerConfig::default()
    })
}

fn enter(quotas: &Arc<Quotas>, token: &str, tenant: &str) -> Result<Permit, &'static str> {
    let holder = Holder { token_id: token, tenant };
    let entered = quotas.acquire(holder, Resource::Request);
    entered.map_err(|error| match error {
        RequestError::Busy { limit, .. } | RequestError::QuotaExceeded { limit, .. } => limit,
        other => panic!("{other}"),
    })
}

#[test]
fn a_token_a_tenant_and_all_have_their_bounds() {
    let quotas = quotas();
    let held = [enter(&quotas, "a", "one"), enter(&quotas, "a", "one")].map(Result::unwrap);
    let refused = enter(&quotas, "a", "one").unwrap_err();
    assert_eq!(refused, "server.concurrency_per_token_max");
    let other = enter(&quotas, "b", "one").unwrap();
    let refused = enter(&quotas, "b", "one").unwrap_err();
    assert_eq!(refused, "server.concurrency_per_tenant_max");
    let neighbour = enter(&quotas, "c", "two").unwrap();
    assert_eq!(enter(&quotas, "c", "two").unwrap_err(), "server.concurrency_max");
    assert_eq!(quotas.exhausted(), Some(("server.concurrency_max", 4)));
    drop((held, other, neighbour));
    assert_eq!((quotas.exhausted(), quotas.in_use()), (None, [0; 3]));
}

#[test]
fn memory_of_bodies_is_counted_before_it_is_allocated() {
    let quotas = quotas();
    let limit = |refused: Result<(), RequestError>| match refused.unwrap_err() {
        RequestError::BodyMemory { limit, .. } => limit,
        other => panic!("{other}"),
    };
    let first = enter(&quotas, "a", "one").unwrap();
    first.reserve_body(50).unwrap();
    assert_eq!(limit(first.reserve_body(1)), "server.body_memory_per_token_max");
    let second = enter(&quotas, "b", "one").unwrap();
    assert_eq!(limit(second.reserve_body(11)), "server.body_memory_per_tenant_max");
    let third = enter(&quotas, "c", "two").unwrap();
    third.reserve_body(50).unwrap();
    assert_eq!(quotas.exhausted(), Some(("server.body_memory_max", 100)));
    first.release_body(20);
    assert_eq!(quotas.in_use(), [3, 0, 80]);
    drop((first, second, third));
    assert_eq!(quotas.in_use(), [0; 3]);
}

#[test]
fn tokens_without_requests_are_forgotten() {
    let quotas = quotas();
    let kept = enter(&quotas, "kept", "kept").unwrap();
    for number in 0..10_000 {
        enter(&quotas, &format!("token-{number}"), &format!("tenant-{number}")).unwrap();
    }
    let entries: usize = quotas.tokens.iter().map(|tokens| lock(tokens).len()).sum();
    assert!(entries <= SHARDS * IDLE_ENTRIES_MAX, "{entries}");
    assert!(lock(&quotas.tenants).len() <= IDLE_ENTRIES_MAX + entries);
    assert_eq!(quotas.in_use(), [1, 0, 0]);
    drop(kept);
}

#[test]
fn changed_limits_hold_for_requests_from_then_on() {
    let quotas = quotas();
    let held = [enter(&quotas, "a", "one"), enter(&quotas, "a", "one")].map(Result::unwrap);
    let mut config = ServerConfig { concurrency_per_token_max: 3, ..ServerConfig::default() };
    let limits = ServerLimits(quotas.clone());
    limits.change(&config).unwrap();
    let third = enter(&quotas, "a", "one").unwrap();
    config.concurrency_per_token_max = 1;
    limits.change(&config).unwrap();
    drop((held, third));
    let first = enter(&quotas, "a", "one").unwrap();
    let refused = enter(&quotas, "a", "one").unwrap_err();
    assert_eq!(refused, "server.concurrency_per_token_max");
    // An address that is none changes nothing.
    config.concurrency_per_token_max = 3;
    config.address = "localhost".to_owned();
    assert!(limits.change(&config).is_err());
    assert!(enter(&quotas, "a", "one").is_err());
    drop(first);
    assert!(enter(&quotas, "a", "one").is_ok());
}

#[test]
fn every_limit_that_can_change_is_named() {
    let scopes = [QuotaScope::All, QuotaScope::Tenant, QuotaScope::Token];
    let settings = Resource::CONFIGURED
        .into_iter()
        .flat_map(|resource| scopes.map(|scope| resource.setting(scope)));
    assert!(settings.eq(ServerLimits::SETTINGS));
}

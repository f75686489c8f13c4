//! What is stored comes back, and names are unique among the living.

use std::collections::BTreeMap;

use egret_base::Timestamp;

use super::*;
use crate::model::{
    BranchSource, Loss, LossKind, Phase, Preset, Receipt, SourceIdentity, TemplateState,
};

fn template() -> Template {
    Template {
        id: TemplateId::new(Timestamp::from_micros(1), [1; 10]),
        state: TemplateState::Ready,
        origin_branch: Some(BranchId::new(Timestamp::from_micros(1), [2; 10])),
        tenant: None,
        origin_branch_name: Some("parent".parse().unwrap()),
        source: SourceIdentity { name: "main".into(), system_identifier: "42".into() },
        lsn: "0/1A2B3C".into(),
        taken_at: Timestamp::from_micros(5),
        postgres_major: 18,
        preload_libraries: String::new(),
        phases: vec![Phase { name: "snapshot".into(), ms: 9.5 }],
        losses: Some(vec![Loss {
            kind: LossKind::UnloggedRelations,
            total: Some(1),
            names: vec!["app.public.cache".into()],
        }]),
        superuser: false,
    }
}

fn branch(number: u8) -> Branch {
    let template = template();
    Branch {
        id: BranchId::new(Timestamp::from_micros(7), [number; 10]),
        tenant: "default".into(),
        name: "pr-42".parse().unwrap(),
        state: BranchState::Running,
        template: template.id,
        parent_branch: template.origin_branch_name.clone(),
        from: BranchSource::Branch("parent".parse().unwrap()),
        preset: Preset::Large,
        durable: true,
        superuser: true,
        role_passwords: true,
        waits_for_room: true,
        notice: Some("suspended".into()),
        protected: true,
        settings: BTreeMap::from([("work_mem".into(), "8MB".into())]),
        labels: BTreeMap::from([("pr".into(), "42".into())]),
        created_at: Timestamp::from_micros(7),
        ttl_ms: Some(60_000),
        expires_at: Some(Timestamp::from_micros(60_000_007)),
        failure: Some("none yet".into()),
        receipt: Some(Receipt {
            kind: "cold".into(),
            template: template.id,
            template_lsn: template.lsn.clone(),
            template_taken_at: template.taken_at,
            total_ms: 80.25,
            phases: template.phases.clone(),
            source: template.source,
        }),
        boot_id: Some("boot".into()),
        postmaster: Some((4_711, 123_456)),
    }
}

fn registry() -> (tempfile::TempDir, Registry) {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&directory.path().join("state.db")).unwrap();
    (directory, registry)
}

#[test]
fn what_is_stored_comes_back() {
    let (directory, registry) = registry();
    registry.put_template(&template()).unwrap();
    registry.insert_branch(&branch(1)).unwrap();
    assert_eq!(registry.templates(), vec![template()]);
    assert_eq!(registry.branches(), vec![branch(1)]);
    assert_eq!(registry.branch(branch(1).id), Some(branch(1)));
    assert_eq!(registry.losses(template().id), template().losses);
    let again = Registry::open(&directory.path().join("state.db")).unwrap();
    assert_eq!(again.templates(), vec![template()]);
    assert_eq!(again.branches(), vec![branch(1)]);
    registry.delete_template(template().id).unwrap();
    registry.delete_branch(branch(1).id).unwrap();
    assert!(registry.templates().is_empty() && registry.branches().is_empty());
}

#[test]
fn what_a_reset_changes_comes_back() {
    let (directory, registry) = registry();
    let before = Branch {
        superuser: false,
        parent_branch: None,
        receipt: None,
        state: BranchState::Resetting,
        ..branch(1)
    };
    registry.insert_branch(&before).unwrap();
    registry.update_branch(&branch(1)).unwrap();
    assert_eq!(registry.branches(), vec![branch(1)]);
    let again = Registry::open(&directory.path().join("state.db")).unwrap();
    assert_eq!(again.branches(), vec![branch(1)]);
}

#[test]
fn a_name_is_unique_among_the_living() {
    let (_directory, registry) = registry();
    registry.insert_branch(&branch(1)).unwrap();
    registry.insert_branch(&branch(2)).unwrap_err();
    let mut tombstone = branch(1);
    tombstone.state = BranchState::Destroying;
    registry.update_branch(&tombstone).unwrap();
    registry.insert_branch(&branch(2)).unwrap();
    let found = registry.branch_named("default", &branch(2).name);
    assert_eq!(found.map(|branch| branch.id), Some(branch(2).id));
    assert_eq!(registry.branch_named("other", &branch(2).name), None);
}

#[test]
fn branches_are_counted_in_all_and_of_a_tenant() {
    let (_directory, registry) = registry();
    let of = |tenant: &str, number: u8| Branch {
        tenant: tenant.to_owned(),
        name: format!("pr-{number}").parse().unwrap(),
        ..branch(number)
    };
    registry.insert_branches(&[of("one", 1), of("one", 2), of("two", 3)]).unwrap();
    let counts = registry.counts_where("one", |branch| branch.id != of("one", 2).id);
    assert_eq!((counts.all, counts.of_tenant), (2, 1));
    assert_eq!(registry.counts_where("", |_| true).of_tenant, 0);
}

#[test]
fn changes_touch_only_what_was_asked_for() {
    let (_directory, registry) = registry();
    registry.insert_branch(&branch(1)).unwrap();
    let change = BranchUpdate { ttl_ms: Some(None), ..BranchUpdate::default() };
    registry.apply_update(branch(1).id, &change, Timestamp::from_micros(9)).unwrap();
    let found = registry.branch(branch(1).id).unwrap();
    assert_eq!((found.ttl_ms, found.expires_at, found.protected), (None, None, true));
    assert_eq!(found.labels, branch(1).labels);
}

#[test]
fn a_lease_makes_a_pooled_row_its_holders_or_nobodys() {
    let (directory, registry) = registry();
    let pooled = |number: u8| Branch {
        tenant: String::new(),
        name: format!("pool-{number}").parse().unwrap(),
        state: BranchState::Pooled,
        durable: false,
        superuser: false,
        role_passwords: false,
        waits_for_room: false,
        notice: None,
        ..branch(number)
    };
    registry.insert_branches(&[pooled(1), pooled(2)]).unwrap();
    let lease = |number: u8| Branch {
        durable: false,
        superuser: false,
        role_passwords: false,
        waits_for_room: false,
        notice: None,
        settings: pooled(number).settings,
        parent_branch: pooled(number).parent_branch,
        ..branch(number)
    };
    assert!(registry.lease_branch(&lease(1)).unwrap());
    assert!(!registry.lease_branch(&lease(2)).unwrap());
    assert_eq!(registry.branch_named("", &pooled(1).name), None);
    let named = registry.branch_named("default", &branch(1).name);
    assert_eq!(named, Some(lease(1)));
    let again = Registry::open(&directory.path().join("state.db")).unwrap();
    assert_eq!(again.branch(branch(1).id), Some(lease(1)));
    assert_eq!(again.branch(branch(2).id), Some(pooled(2)));
}

#[test]
fn the_sizes_of_pools_stay() {
    let (directory, registry) = registry();
    registry.set_pool_size("small", Some(7)).unwrap();
    registry.set_pool_size("large", Some(3)).unwrap();
    registry.set_pool_size("large", None).unwrap();
    let again = Registry::open(&directory.path().join("state.db")).unwrap();
    let sizes = again.pool_sizes().unwrap();
    assert_eq!(sizes, BTreeMap::from([("small".to_owned(), 7)]));
}

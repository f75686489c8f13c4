//! What is due, case by case, and that doing what is due leaves nothing due.

use std::collections::BTreeMap;

use egret_base::settings::ConfigDuration;
use egret_base::{Entropy, SeededEntropy};
use proptest::prelude::*;

use super::*;
use crate::model::{BranchSource, Preset, SourceIdentity};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn template(number: u8, origin: Option<BranchId>, taken_s: i64) -> Template {
    Template {
        id: TemplateId::new(at(taken_s), [number; 10]),
        state: TemplateState::Ready,
        origin_branch: origin,
        tenant: None,
        origin_branch_name: None,
        source: SourceIdentity { name: "main".into(), system_identifier: "1".into() },
        lsn: "0/0".into(),
        taken_at: at(taken_s),
        postgres_major: 18,
        preload_libraries: String::new(),
        phases: vec![],
        losses: None,
        superuser: false,
    }
}

fn branch(number: u8, template: TemplateId) -> Branch {
    Branch {
        id: BranchId::new(at(0), [number; 10]),
        tenant: "default".into(),
        name: format!("b{number}").parse().unwrap(),
        state: BranchState::Running,
        template,
        parent_branch: None,
        from: BranchSource::NewestTemplate,
        preset: Preset::Small,
        durable: false,
        superuser: false,
        role_passwords: false,
        waits_for_room: false,
        notice: None,
        protected: false,
        settings: BTreeMap::new(),
        labels: BTreeMap::new(),
        created_at: at(i64::from(number)),
        ttl_ms: None,
        expires_at: None,
        failure: None,
        receipt: None,
        boot_id: None,
        postmaster: None,
    }
}

fn due(
    branches: &[Branch],
    templates: &[Template],
    config: &BranchesConfig,
    now: i64,
) -> Vec<Command> {
    let view = View {
        branches: branches
            .iter()
            .map(|branch| BranchFacts { branch, sessions: 0, idle_since: Some(branch.created_at) })
            .collect(),
        templates,
        has_source: true,
    };
    plan(&view, config, at(now))
}

#[test]
fn a_branch_expires_after_its_children_and_never_while_protected() {
    let head = template(1, None, 0);
    let mut parent = branch(1, head.id);
    parent.expires_at = Some(at(10));
    let of_parent = template(2, Some(parent.id), 5);
    let mut child = branch(2, of_parent.id);
    let config = BranchesConfig::default();
    let templates = [head, of_parent];
    assert_eq!(due(std::slice::from_ref(&parent), &templates, &config, 9), vec![]);
    assert_eq!(due(&[parent.clone(), child.clone()], &templates, &config, 11), vec![]);
    child.state = BranchState::Destroying;
    let after = due(&[parent.clone(), child.clone()], &templates, &config, 11);
    assert_eq!(after, vec![Command::Expire(parent.id)]);
    parent.protected = true;
    assert_eq!(due(&[parent], &templates, &config, 11), vec![]);
}

#[test]
fn idle_branches_are_suspended_when_asked_for() {
    let head = template(1, None, 0);
    let (templates, branches) = ([head.clone()], [branch(1, head.id)]);
    let mut config = BranchesConfig::default();
    assert_eq!(due(&branches, &templates, &config, 1_000), vec![]);
    config.idle_suspend = Some(ConfigDuration::secs(100));
    assert_eq!(due(&branches, &templates, &config, 50), vec![]);
    let suspend = vec![Command::Suspend(branches[0].id)];
    assert_eq!(due(&branches, &templates, &config, 1_000), suspend);
}

#[test]
fn old_unused_templates_go_and_the_newest_stay() {
    let templates =
        [template(1, None, 0), template(2, None, 10), template(3, None, 20), template(4, None, 30)];
    let user = branch(1, templates[0].id);
    let config = BranchesConfig::default();
    let commands = due(&[user], &templates, &config, 1_000);
    assert_eq!(commands, vec![Command::PurgeTemplate(templates[1].id)]);
}

#[test]
fn a_template_is_refreshed_by_age_when_asked_for() {
    let head = [template(1, None, 0)];
    let mut config = BranchesConfig::default();
    assert_eq!(due(&[], &head, &config, 1_000), vec![]);
    config.template_refresh = Some(ConfigDuration::secs(60));
    assert_eq!(due(&[], &head, &config, 59), vec![]);
    assert_eq!(due(&[], &head, &config, 60), vec![Command::RefreshTemplate]);
}

/// Carries out a command as the engine would, on the values alone.
fn apply(command: &Command, branches: &mut [Branch], templates: &mut Vec<Template>) {
    match command {
        Command::Expire(id) => find(branches, *id).state = BranchState::Destroying,
        Command::Suspend(id) => find(branches, *id).state = BranchState::Suspended,
        Command::PurgeTemplate(id) => templates.retain(|template| template.id != *id),
        Command::RefreshTemplate => {}
    }
}

fn find(branches: &mut [Branch], id: BranchId) -> &mut Branch {
    branches.iter_mut().find(|branch| branch.id == id).expect("commands name living branches")
}

#[test]
fn a_lifetime_ends_once() {
    let mut expired = branch(1, template(1, None, 0).id);
    expired.expires_at = Some(at(10));
    assert!(!is_expired(&expired, at(9)));
    assert!(is_expired(&expired, at(10)));
    expired.protected = true;
    assert!(!is_expired(&expired, at(10)));
    expired.protected = false;
    expired.state = BranchState::Destroying;
    assert!(!is_expired(&expired, at(10)));
}

proptest! {
    /// From any registry: carrying out what is due, tombstones purged beside it, ends, never
    /// touches the protected, and never removes a template in use.
    #[test]
    fn doing_what_is_due_settles(seed in any::<u64>()) {
        let entropy = SeededEntropy::new(seed);
        let byte = || entropy.ten_bytes()[0];
        let mut templates: Vec<Template> = (0..4).map(|n| template(n, None, i64::from(byte()))).collect();
        let mut branches: Vec<Branch> = Vec::new();
        for number in 0..12_u8 {
            let chosen = templates[usize::from(byte()) % templates.len()].id;
            let mut one = branch(number, chosen);
            one.state = match byte() % 4 {
                0 => BranchState::Destroying,
                1 => BranchState::Suspended,
                _ => BranchState::Running,
            };
            one.protected = byte() % 4 == 0;
            one.expires_at = (byte() % 2 == 0).then(|| at(i64::from(byte())));
            if byte() % 3 == 0 {
                templates.push(template(100 + number, Some(one.id), i64::from(byte())));
            }
            branches.push(one);
        }
        let config = BranchesConfig { idle_suspend: Some(ConfigDuration::secs(30)), ..BranchesConfig::default() };
        let protected: Vec<BranchId> = branches.iter().filter(|b| b.protected && b.state != BranchState::Destroying).map(|b| b.id).collect();
        for round in 0.. {
            prop_assert!(round < 50, "never settles");
            let commands = due(&branches, &templates, &config, 1_000);
            if commands.is_empty() {
                break;
            }
            for command in &commands {
                apply(command, &mut branches, &mut templates);
            }
            branches.retain(|branch| branch.state != BranchState::Destroying);
        }
        prop_assert!(branches.iter().all(|b| templates.iter().any(|t| t.id == b.template)));
        prop_assert!(protected.iter().all(|id| branches.iter().any(|b| b.id == *id)));
    }
}

//! Each state of a row against each state of the disk.

use super::*;
use crate::model::{BranchSource, Preset, SourceIdentity};

fn template(number: u8, state: TemplateState) -> Template {
    Template {
        id: TemplateId::new(Timestamp::from_micros(0), [number; 10]),
        state,
        origin_branch: None,
        tenant: None,
        origin_branch_name: None,
        source: SourceIdentity { name: "main".into(), system_identifier: "1".into() },
        lsn: "0/0".into(),
        taken_at: Timestamp::from_micros(0),
        postgres_major: 18,
        preload_libraries: String::new(),
        phases: vec![],
        losses: None,
        superuser: false,
    }
}

fn branch(state: BranchState) -> Branch {
    Branch {
        id: BranchId::new(Timestamp::from_micros(0), [9; 10]),
        tenant: "default".into(),
        name: "b".parse().unwrap(),
        state,
        template: template(1, TemplateState::Ready).id,
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
        created_at: Timestamp::from_micros(0),
        ttl_ms: None,
        expires_at: None,
        failure: None,
        receipt: None,
        boot_id: Some("boot-1".into()),
        postmaster: None,
    }
}

fn disk(branch: &Branch, exists: bool, runs: bool) -> DiskSurvey {
    let mut disk = DiskSurvey { boot_id: "boot-1".into(), ..DiskSurvey::default() };
    disk.templates.insert(branch.template);
    if exists {
        disk.branches.insert(branch.id);
        disk.sockets.insert(branch.id);
    }
    if runs {
        disk.postmasters.insert(branch.id);
    }
    disk
}

fn repairs(branch: &Branch, disk: &DiskSurvey) -> Vec<Repair> {
    reconcile(std::slice::from_ref(branch), &[template(1, TemplateState::Ready)], disk)
}

#[test]
fn every_state_of_a_row_against_the_disk() {
    use BranchState as S;
    let id = branch(S::Running).id;
    let table: [(S, bool, bool, Option<Repair>); 12] = [
        (S::Creating, false, false, Some(Repair::Discard(id))),
        (S::Creating, true, true, Some(Repair::Discard(id))),
        (S::Running, true, true, Some(Repair::Adopt(id))),
        (S::Running, true, false, Some(Repair::Start(id))),
        (S::Running, false, false, Some(Repair::Fail(id, FILES_MISSING))),
        (S::Suspended, true, false, None),
        (S::Suspended, true, true, Some(Repair::StopStray(id))),
        (S::Suspended, false, false, Some(Repair::Fail(id, FILES_MISSING))),
        (S::Resetting, false, false, Some(Repair::FinishReset(id))),
        (S::Resetting, true, true, Some(Repair::FinishReset(id))),
        (S::Destroying, true, true, None),
        (S::Failed, false, false, None),
    ];
    for (state, exists, runs, expected) in table {
        let branch = branch(state);
        let found = repairs(&branch, &disk(&branch, exists, runs));
        assert_eq!(found, Vec::from_iter(expected), "{state} exists={exists} runs={runs}");
    }
}

#[test]
fn only_a_durable_branch_is_trusted_after_the_machine_crashed() {
    let mut branch = branch(BranchState::Running);
    let mut disk = disk(&branch, true, false);
    disk.boot_id = "boot-2".into();
    assert_eq!(repairs(&branch, &disk), vec![Repair::Fail(branch.id, MACHINE_CRASHED)]);
    branch.boot_id = None;
    assert!(!ran_during_crash(&branch, "boot-2"));
    branch.boot_id = Some("boot-1".into());
    assert!(ran_during_crash(&branch, "boot-2"));
    assert!(!ran_during_crash(&branch, "boot-1"));
    // One that was being woken is suspended still.
    branch.state = BranchState::Suspended;
    assert_eq!(repairs(&branch, &disk), vec![Repair::Fail(branch.id, MACHINE_CRASHED)]);
    branch.state = BranchState::Running;
    branch.durable = true;
    assert!(!ran_during_crash(&branch, "boot-2"));
    assert_eq!(repairs(&branch, &disk), vec![Repair::Start(branch.id)]);
}

#[test]
fn a_lost_registry_is_made_again_from_manifests_and_strangers_are_left_alone() {
    let branch = branch(BranchState::Running);
    let mut disk = disk(&branch, true, true);
    let nameless = BranchId::new(Timestamp::from_micros(5_000_000), [5; 10]);
    // As one that waited in the pool before it was created.
    let newer = BranchId::new(Timestamp::from_micros(0), [5; 10]);
    let created_at = Timestamp::from_micros(9_000_000);
    disk.branch_manifests = BTreeMap::from([(branch.id, branch.created_at), (newer, created_at)]);
    disk.branches.extend([nameless, newer]);
    disk.template_manifests.insert(branch.template);
    disk.foreign.insert("branches/lost+found".into());
    let repairs = reconcile(&[], &[], &disk);
    assert_eq!(
        repairs,
        vec![
            Repair::RestoreTemplate(branch.template),
            Repair::RestoreBranch(newer),
            Repair::RestoreBranch(branch.id),
            Repair::ReportForeign(format!("branches/{}", nameless.hex())),
            Repair::ReportForeign("branches/lost+found".into()),
        ]
    );
}

#[test]
fn interrupted_builds_and_stray_sockets_go() {
    let stray = BranchId::new(Timestamp::from_micros(5), [5; 10]);
    let building = template(3, TemplateState::Building);
    let disk = DiskSurvey { sockets: BTreeSet::from([stray]), ..DiskSurvey::default() };
    let repairs = reconcile(&[], std::slice::from_ref(&building), &disk);
    assert_eq!(repairs, vec![Repair::DiscardTemplate(building.id), Repair::RemoveSocket(stray)]);
}

#[test]
fn what_a_reset_has_left_goes_unless_the_reset_needs_it_or_no_row_knows_it() {
    let mut branch = branch(BranchState::Suspended);
    let mut disk = disk(&branch, true, false);
    disk.leftovers.insert(branch.id);
    assert_eq!(repairs(&branch, &disk), vec![Repair::RemoveLeftovers(branch.id)]);
    branch.state = BranchState::Resetting;
    assert_eq!(repairs(&branch, &disk), vec![Repair::FinishReset(branch.id)]);
    disk.branches.clear();
    disk.sockets.clear();
    let template = template(1, TemplateState::Ready);
    let found = reconcile(&[], std::slice::from_ref(&template), &disk);
    assert!(
        matches!(&found[..], [Repair::ReportForeign(name)] if name.contains("files of a reset")),
        "{found:?}"
    );
}

#[test]
fn files_that_a_reset_has_put_aside_are_files_of_their_branch() {
    let branch = branch(BranchState::Suspended);
    let mut disk = disk(&branch, false, false);
    disk.leftovers.insert(branch.id);
    disk.former_files.insert(branch.id);
    assert_eq!(repairs(&branch, &disk), vec![Repair::RemoveLeftovers(branch.id)]);
    disk.branch_manifests.insert(branch.id, branch.created_at);
    let template = template(1, TemplateState::Ready);
    for exists in [false, true] {
        if exists {
            disk.branches.insert(branch.id);
        }
        let found = reconcile(&[], std::slice::from_ref(&template), &disk);
        assert_eq!(found, vec![Repair::RestoreBranch(branch.id)], "{exists}");
    }
}

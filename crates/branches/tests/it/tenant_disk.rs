//! A tenant that takes its share of the volume is stopped, and no other one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base::{CodedError, Kind};
use egret_base_test::eventually;
use egret_branches::model::{Branch, BranchSource, BranchState, NewBranch};
use egret_branches::{BranchesError, Children, CrashPoints};

use crate::home::{Egret, Home, disk_bytes, name};
use crate::resets::Gate;

/// A table of about 8 MB, hardly any of which goes to the log.
fn table() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(
        "CREATE TABLE big_{number} AS SELECT repeat(md5(n::text), 60) FROM generate_series(1, 4000) AS n"
    )
}

async fn home_of(purpose: &str) -> (Home, Egret) {
    let mut home = Home::new(purpose);
    home.config.tenant_disk_max = Some(ByteSize::mib(60));
    let egret = home.start().await;
    egret.make_app().await;
    (home, egret)
}

async fn branch(egret: &Egret, tenant: &str, wanted: &str) -> Result<Branch, BranchesError> {
    let request = NewBranch { tenant: tenant.to_owned(), ..NewBranch::named(name(wanted)) };
    Ok(egret.branches.create(request).await?.into_branch())
}

async fn ask(egret: &Egret, tenant: &str, branch: &str, sql: &str) -> Result<(), BranchesError> {
    let branch = name(branch);
    let asked = egret.branches.query(tenant, &branch, "app", sql, &[], None);
    asked.await.map(drop)
}

async fn state(egret: &Egret, tenant: &str, branch: &str) -> BranchState {
    let shown = egret.branches.show(tenant, &name(branch)).await.unwrap();
    shown.branch.state
}

async fn await_suspension(egret: &Egret, tenant: &str, branch: &str) {
    eventually("the branch is suspended", async || match state(egret, tenant, branch).await {
        BranchState::Suspended => Ok(()),
        state => Err(state),
    })
    .await;
}

/// Writes until the branch is suspended; returns how often.
async fn grow_until_suspended(egret: &Egret, tenant: &str, branch: &str) -> u32 {
    let mut times = 0;
    loop {
        let grown = ask(egret, tenant, branch, &table()).await;
        if state(egret, tenant, branch).await == BranchState::Suspended {
            return times;
        }
        if let Err(error) = grown {
            assert_ne!(error.code(), "limit_exceeded", "it is not suspended: {error}");
        }
        times += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_over_its_share_of_the_volume_is_stopped_and_no_other_one() {
    let (home, egret) = home_of("tenants").await;
    for (tenant, branch_name) in [("one", "greedy"), ("one", "quiet"), ("two", "neighbour")] {
        branch(&egret, tenant, branch_name).await.unwrap();
    }
    let times = grow_until_suspended(&egret, "one", "greedy").await;
    assert!(times >= 4, "{times} times 8 MB are within 60 MB");
    let shown = egret.branches.show("one", &name("greedy")).await.unwrap();
    let notice = shown.notice.unwrap_or_default();
    assert!(notice.contains("branches.tenant_disk_max"), "{notice}");
    assert_eq!(state(&egret, "one", "quiet").await, BranchState::Running);
    assert_eq!(state(&egret, "two", "neighbour").await, BranchState::Running);
    // Nothing new and no more growth for the tenant.
    for refused in [
        branch(&egret, "one", "late").await.map(drop),
        ask(&egret, "one", "greedy", "SELECT 1").await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "limit_exceeded", "{refused}");
        let text = refused.to_string();
        assert!(text.contains("branches.tenant_disk_max is 60MB"), "{text}");
    }
    // The other tenant neither waits nor is refused.
    ask(&egret, "two", "neighbour", &table()).await.unwrap();
    branch(&egret, "two", "late").await.unwrap();
    ask(&egret, "one", "quiet", "SELECT 1").await.unwrap();
    // The next Egret knows why it is suspended.
    egret.stop().await;
    let egret = home.start().await;
    let refused = ask(&egret, "one", "greedy", "SELECT 1").await.unwrap_err();
    assert_eq!(refused.code(), "limit_exceeded", "{refused}");
    // A reset makes room: where its copy shares all blocks with the template it is not refused.
    let greedy = name("greedy");
    let reset = egret.branches.reset("one", &greedy, None).await;
    reset.unwrap();
    ask(&egret, "one", "greedy", "SELECT 1").await.unwrap();
    branch(&egret, "one", "late").await.unwrap();
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_copies_of_resets_and_of_templates_are_within_the_share_of_their_tenant() {
    let mut home = Home::new("share-copy");
    home.config.volume = "copy".to_owned();
    let egret = home.start().await;
    egret.make_app().await;
    let first = branch(&egret, "one", "first").await.unwrap();
    egret.stop().await;
    let template = home.directory.join("volume/templates");
    let bytes = disk_bytes(&template.join(first.template.hex()));
    // There is room for two copies and not for three.
    home.config.tenant_disk_max = Some(ByteSize(bytes / 5 * 14));
    let gate = Gate::at("reset.swap");
    let egret = home.start_with(Some(gate.clone())).await;
    let first = name("first");
    let meanwhile = async {
        gate.reached().await;
        let second = branch(&egret, "one", "second").await;
        gate.open();
        second
    };
    let (reset, second) = tokio::join!(egret.branches.reset("one", &first, None), meanwhile);
    reset.unwrap();
    // The one that is staged counts.
    let refused = second.unwrap_err();
    assert_eq!(refused.code(), "limit_exceeded", "{refused}");
    branch(&egret, "one", "second").await.unwrap();
    let reset = egret.branches.reset("one", &first, None).await;
    let child = NewBranch {
        tenant: "one".to_owned(),
        from: BranchSource::Branch(first),
        ..NewBranch::named(name("child"))
    };
    let child = egret.branches.create(child).await;
    for refused in [reset.map(drop), child.map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "limit_exceeded", "{refused}");
        let text = refused.to_string();
        assert!(text.contains("branches.tenant_disk_max"), "{text}");
    }
    // Refused before it was built.
    let templates = egret.branches.templates("one").unwrap();
    let of_branches = templates.iter().filter(|template| template.origin.branch.is_some());
    assert_eq!(of_branches.count(), 0);
    assert_eq!(state(&egret, "one", "first").await, BranchState::Running);
    ask(&egret, "one", "first", "SELECT 1").await.unwrap();
    egret.assert_consistent().await;
    egret.stop().await;
}

/// How long files are kept at most: a test that fails must end.
const DAM_MAX: Duration = Duration::from_secs(120);

/// Keeps files of destroyed branches from being deleted until it is opened.
#[derive(Default)]
struct Dam {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Dam {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl CrashPoints for Dam {
    fn before(&self, step: &'static str) {
        if step == "purge.files" {
            tokio::task::block_in_place(|| {
                let is_open = self.is_open.lock().unwrap();
                let is_shut = |is_open: &mut bool| !*is_open;
                drop(self.opened.wait_timeout_while(is_open, DAM_MAX, is_shut));
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_lasts_keeps_no_branch_from_being_stopped() {
    let mut home = Home::new("deletion-lasts");
    home.config.tenant_disk_max = Some(ByteSize::mib(60));
    home.config.pool_quiet = ConfigDuration::secs(3_600);
    home.config.pool_patience = ConfigDuration::secs(3_600);
    let dam = Arc::new(Dam::default());
    let egret = home.start_with(Some(dam.clone())).await;
    egret.make_app().await;
    let first = branch(&egret, "one", "first").await.unwrap();
    for _ in 0..5 {
        ask(&egret, "one", "first", &table()).await.unwrap();
    }
    branch(&egret, "one", "second").await.unwrap();
    branch(&egret, "two", "neighbour").await.unwrap();
    let first_name = name("first");
    let destroyed = egret.branches.destroy("one", &first_name, Children::Refuse, |_| true);
    destroyed.await.unwrap();
    // The tenant that deletes is stopped, and so is another one.
    grow_until_suspended(&egret, "one", "second").await;
    grow_until_suspended(&egret, "two", "neighbour").await;
    let files = home.directory.join("volume/branches").join(first.id.hex());
    assert!(files.exists());
    dam.open();
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_waits_for_a_deletion_in_vain_is_to_be_tried_again() {
    let mut home = Home::new("deletion-waits");
    home.config.tenant_disk_max = Some(ByteSize::mib(60));
    home.config.tenant_purge_timeout = ConfigDuration::ms(1);
    home.config.pool_quiet = ConfigDuration::secs(3_600);
    home.config.pool_patience = ConfigDuration::secs(3_600);
    let dam = Arc::new(Dam::default());
    let egret = home.start_with(Some(dam.clone())).await;
    egret.make_app().await;
    branch(&egret, "one", "first").await.unwrap();
    for _ in 0..5 {
        ask(&egret, "one", "first", &table()).await.unwrap();
    }
    branch(&egret, "one", "second").await.unwrap();
    let first_name = name("first");
    let destroyed = egret.branches.destroy("one", &first_name, Children::Refuse, |_| true);
    destroyed.await.unwrap();
    // Eight tables are more than the limit; the three of the branch that lives are far from it.
    for _ in 0..3 {
        ask(&egret, "one", "second", &table()).await.unwrap();
    }
    let mut number = 0;
    // The tenant is measured behind.
    let refused = eventually("a create is refused", async || {
        number += 1;
        branch(&egret, "one", &format!("more-{number}")).await.err()
    })
    .await;
    assert_eq!(refused.code(), "branch_deletion_lasts", "{refused}");
    assert_eq!(refused.kind(), Kind::Unavailable);
    assert!(refused.retryable());
    dam.open();
    eventually("the deletion is over", async || {
        let late = branch(&egret, "one", "late").await;
        if let Err(refused) = &late {
            assert_eq!(refused.code(), "branch_deletion_lasts", "{refused}");
        }
        late
    })
    .await;
    egret.assert_consistent().await;
    egret.stop().await;
}

/// Counts the branches that are suspended.
#[derive(Default)]
struct SuspensionCounter(AtomicU32);

impl CrashPoints for SuspensionCounter {
    fn before(&self, step: &'static str) {
        if step == "suspend.stop" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_has_destroyed_is_deleted_before_a_living_branch_is_stopped() {
    let mut home = Home::new("destroyed");
    home.config.tenant_disk_max = Some(ByteSize::mib(60));
    // Files of destroyed branches are deleted at leisure.
    home.config.pool_quiet = ConfigDuration::secs(3_600);
    home.config.pool_patience = ConfigDuration::secs(3_600);
    let suspensions = Arc::new(SuspensionCounter::default());
    let egret = home.start_with(Some(suspensions.clone())).await;
    egret.make_app().await;
    let first = branch(&egret, "one", "first").await.unwrap();
    for _ in 0..5 {
        ask(&egret, "one", "first", &table()).await.unwrap();
    }
    let first_name = name("first");
    let destroyed = egret.branches.destroy("one", &first_name, Children::Refuse, |_| true);
    destroyed.await.unwrap();
    let files = home.directory.join("volume/branches").join(first.id.hex());
    assert!(files.exists());
    branch(&egret, "one", "second").await.unwrap();
    // 40 MB of each are too much, and those of one are not.
    for _ in 0..5 {
        ask(&egret, "one", "second", &table()).await.unwrap();
    }
    eventually("the files of the branch are deleted", async || !files.exists()).await;
    ask(&egret, "one", "second", "SELECT 1").await.unwrap();
    assert_eq!(state(&egret, "one", "second").await, BranchState::Running);
    assert_eq!(suspensions.0.load(Ordering::SeqCst), 0);
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_shares_among_its_own_branches_counts_once() {
    let (_home, egret) = home_of("shares").await;
    branch(&egret, "one", "parent").await.unwrap();
    for _ in 0..5 {
        ask(&egret, "one", "parent", &table()).await.unwrap();
    }
    // From then on the parent has nothing of that alone; were it counted for each, it would be too
    // much.
    for child in ["child", "second"] {
        let request = NewBranch {
            tenant: "one".to_owned(),
            from: BranchSource::Branch(name("parent")),
            ..NewBranch::named(name(child))
        };
        egret.branches.create(request).await.unwrap();
    }
    let own = egret.branches.show("one", &name("parent")).await.unwrap();
    assert!(own.diverged_bytes.unwrap() < ByteSize::mib(20).bytes(), "{own:?}");
    for _ in 0..4 {
        // It may be suspended before the last one.
        let _ = ask(&egret, "one", "child", &table()).await;
    }
    // 40 MB and 32 MB are too much; what the child alone has would not be.
    await_suspension(&egret, "one", "child").await;
    assert_eq!(state(&egret, "one", "parent").await, BranchState::Running);
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_hides_bytes_in_deep_directories_is_stopped_until_it_is_reset() {
    for volume in ["auto", "copy"] {
        let mut home = Home::new(&format!("hides-{volume}"));
        home.config.volume = volume.to_owned();
        // Copies count as a whole.
        home.config.tenant_disk_max = Some(ByteSize::mib(if volume == "copy" { 400 } else { 60 }));
        let egret = home.start().await;
        egret.make_app().await;
        let hider = branch(&egret, "one", "hider").await.unwrap();
        branch(&egret, "one", "quiet").await.unwrap();
        let mut place = home.directory.join("volume/branches").join(hider.id.hex());
        place.extend(["d"; 20]);
        std::fs::create_dir_all(&place).unwrap();
        for number in 0..7 {
            let hidden = place.join(number.to_string());
            std::fs::write(hidden, vec![number; 64 << 20]).unwrap();
            if state(&egret, "one", "hider").await == BranchState::Suspended {
                break;
            }
        }
        await_suspension(&egret, "one", "hider").await;
        let shown = egret.branches.show("one", &name("hider")).await.unwrap();
        let notice = shown.notice.unwrap_or_default();
        assert!(notice.contains("nest deeper than 16"), "{notice}");
        let refused = ask(&egret, "one", "hider", "SELECT 1").await.unwrap_err();
        assert_eq!(refused.code(), "branch_wrong_state", "{refused}");
        assert!(refused.to_string().contains("reset or destroy it"), "{refused}");
        assert_eq!(state(&egret, "one", "quiet").await, BranchState::Running);
        egret.branches.reset("one", &name("hider"), None).await.unwrap();
        ask(&egret, "one", "hider", "SELECT 1").await.unwrap();
        egret.assert_consistent().await;
        egret.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_holds_its_share_of_templates_gets_no_more_and_others_do() {
    let mut home = Home::new("tenant-templates");
    home.config.tenant_templates_max = 2;
    home.config.templates_max = 4;
    let egret = home.start().await;
    egret.make_app().await;
    for tenant in ["one", "two"] {
        branch(&egret, tenant, "parent").await.unwrap();
    }
    let child = async |tenant: &str, wanted: &str, from: BranchSource| {
        let request =
            NewBranch { tenant: tenant.to_owned(), from, ..NewBranch::named(name(wanted)) };
        egret.branches.create(request).await.map(drop)
    };
    // One of the source, which both share, and one of the tenant's own.
    let of_parent = || BranchSource::Branch(name("parent"));
    child("one", "child", of_parent()).await.unwrap();
    for from in [of_parent(), BranchSource::Head] {
        let refused = child("one", "second", from).await.unwrap_err();
        assert_eq!(refused.code(), "limit_exceeded", "{refused}");
        let text = refused.to_string();
        assert!(text.contains("branches.tenant_templates_max is 2"), "{text}");
        assert!(text.contains("destroy such branches"), "{text}");
    }
    child("two", "child", of_parent()).await.unwrap();
    // The template goes with the last of its branches.
    let child_name = name("child");
    let destroyed = egret.branches.destroy("one", &child_name, Children::Refuse, |_| true);
    destroyed.await.unwrap();
    egret.assert_consistent().await;
    eventually("the template is given back", async || {
        let second = child("one", "second", of_parent()).await;
        if let Err(refused) = &second {
            assert_eq!(refused.code(), "limit_exceeded", "{refused}");
        }
        second
    })
    .await;
    egret.assert_consistent().await;
    egret.stop().await;
}

//! The pool with real postmasters: leases, refills, sizes, templates, deaths, a full volume.

use std::collections::BTreeMap;

use egret_base::CodedError;
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base_test::eventually;
use egret_branches::model::{Branch, BranchSource, BranchState, DEFAULT_TENANT, NewBranch, Preset};
use egret_branches::{BranchesError, Children, CreateOutcome};

use crate::home::{Egret, Home, alive, attach, backends, kill, name};

/// A home whose pools do not wait long for quiet.
pub fn brisk(purpose: &str) -> Home {
    let mut home = Home::new(purpose);
    home.config.pool_quiet = ConfigDuration::ms(5);
    home
}

pub fn kind(branch: &Branch) -> &str {
    &branch.receipt.as_ref().expect("a creation has one").kind
}

async fn made(egret: &Egret, request: NewBranch) -> Branch {
    egret.branches.create(request).await.unwrap().into_branch()
}

pub async fn count(egret: &Egret, branch: &str) -> String {
    let rows = egret.ask(branch, "SELECT count(*) FROM item").await;
    rows.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_create_takes_a_hot_branch_and_the_pool_refills() {
    let mut home = brisk("pool");
    home.config.pool_min = 2;
    let egret = home.start().await;
    egret.make_app().await;
    let template = egret.branches.refresh_template().await.unwrap();
    let pool = egret.filled().await;
    assert_eq!((pool.target, pool.hot, pool.chosen), (2, 2, false));
    assert_eq!(pool.template, Some(template.id.to_string()));
    let ready = home.pooled(&egret).await;

    let branch = egret.branch("one").await;
    assert_eq!(branch.state, BranchState::Running);
    let pid = ready.get(&branch.id.hex()).copied();
    assert_eq!(pid, branch.postmaster.map(|(pid, _)| pid));
    let receipt = branch.receipt.as_ref().unwrap();
    let phases: Vec<&str> = receipt.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!((receipt.kind.as_str(), phases), ("pooled", vec!["lease"]));
    assert_eq!(receipt.template, template.id);
    assert_eq!(receipt.template_lsn, template.lsn);
    assert_eq!(count(&egret, "one").await, "1000");
    egret.ask("one", "DELETE FROM item").await.unwrap();
    let one = name("one");
    let verified = egret.branches.verify(DEFAULT_TENANT, &one, "app").await;
    assert!(verified.unwrap().source_unchanged);

    home.assert_nothing_leaks(&egret).await;
    assert_eq!(egret.pool().hot, 2);
    assert_eq!(home.pooled(&egret).await.len(), 2);
    // What is done with it afterwards is what is done with any branch.
    egret.branches.reset(DEFAULT_TENANT, &one, None).await.unwrap();
    assert_eq!(count(&egret, "one").await, "1000");
    egret.branches.suspend(DEFAULT_TENANT, &one).await.unwrap();
    assert_eq!(count(&egret, "one").await, "1000");
    egret.destroy("one").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wishes_of_ones_own_are_made_cold() {
    let home = brisk("pool-cold");
    let egret = home.start().await;
    egret.make_app().await;
    let template = egret.branches.refresh_template().await.unwrap();
    egret.fill(2).await;
    let ready = home.pooled(&egret).await;
    type Wish<'a> = &'a dyn Fn(&mut NewBranch);
    let work_mem = BTreeMap::from([("work_mem".to_owned(), "8MB".to_owned())]);
    let wishes: [(&str, Wish); 6] = [
        ("settings", &|asked| asked.settings = work_mem.clone()),
        ("durable", &|asked| asked.durable = true),
        ("twin", &|asked| asked.preset = Preset::Twin),
        ("medium", &|asked| asked.preset = Preset::Medium),
        ("template", &|asked| asked.from = BranchSource::Template(template.id)),
        ("nested", &|asked| asked.from = BranchSource::Branch(name("durable"))),
    ];
    for (wish, set) in wishes {
        let mut request = NewBranch::named(name(wish));
        set(&mut request);
        assert_eq!(kind(&made(&egret, request).await), "cold", "{wish}");
    }
    assert_eq!(home.pooled(&egret).await, ready, "the pool was left alone");

    // Labels, a lifetime and protection are no reason to make another.
    let mut request = NewBranch::named(name("labelled"));
    request.labels = BTreeMap::from([("pr".to_owned(), "42".to_owned())]);
    request.ttl_ms = Some(3_600_000);
    request.protected = true;
    let branch = made(&egret, request.clone()).await;
    assert_eq!((kind(&branch), &branch.labels), ("pooled", &request.labels));
    let lifetime = branch.expires_at.unwrap().since(branch.created_at);
    assert_eq!((lifetime.as_secs(), branch.protected), (3_600, true));

    let sized = egret.branches.resize_pool(Preset::Medium, Some(1)).await;
    sized.unwrap();
    egret.filled().await;
    let mut request = NewBranch::named(name("medium-too"));
    request.preset = Preset::Medium;
    assert_eq!(kind(&made(&egret, request).await), "pooled");
    let buffers = egret.ask("medium-too", "SHOW shared_buffers").await;
    assert_eq!(buffers.unwrap().as_deref(), Some("32MB"));

    let mut request = NewBranch::named(name("head"));
    request.from = BranchSource::Head;
    assert_eq!(kind(&made(&egret, request).await), "cold");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demand_raises_the_target_up_to_its_limit() {
    let mut home = brisk("pool-demand");
    (home.config.pool_min, home.config.pool_demand_max) = (1, 3);
    let egret = home.start().await;
    egret.make_app().await;
    egret.branches.refresh_template().await.unwrap();
    assert_eq!(egret.filled().await.target, 1);
    for (burst, target) in [(2, 2), (3, 3)] {
        let requests = (0..burst)
            .map(|number| NewBranch::named(name(&format!("b{burst}-{number}"))))
            .map(|request| egret.branches.create(request));
        let made = futures_util::future::try_join_all(requests).await.unwrap();
        let pooled =
            made.into_iter().filter(|created| kind(&created.clone().into_branch()) == "pooled");
        assert!((1..=burst).contains(&pooled.count()));
        let pool = egret.filled().await;
        assert_eq!((pool.target, pool.hot, pool.chosen), (target, target as usize, false));
    }
    // Ten minutes later the demand is forgotten.
    home.clock.jump(700);
    assert_eq!(egret.filled().await.hot, 1);
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chosen_size_holds_over_a_restart_and_has_limits() {
    let mut home = brisk("pool-resize");
    (home.config.pool_min, home.config.pool_max) = (1, 4);
    let egret = home.start().await;
    egret.make_app().await;
    let branches = &egret.branches;
    let error = branches.resize_pool(Preset::Small, Some(5)).await.unwrap_err();
    assert_eq!(error.code(), "limit_exceeded");
    assert!(!error.retryable(), "{error}");
    assert!(error.to_string().contains("branches.pool_max is 4, but 5"), "{error}");
    let error = branches.resize_pool(Preset::Twin, Some(1)).await.unwrap_err();
    assert!(error.to_string().contains("preset twin are not pooled"), "{error}");
    // A template is built for it.
    let pool = egret.fill(3).await;
    assert_eq!((pool.target, pool.hot, pool.chosen), (3, 3, true));
    let error = branches.resize_pool(Preset::Large, Some(2)).await;
    assert_eq!(error.unwrap_err().code(), "limit_exceeded");
    let before = home.pooled(&egret).await;
    egret.stop().await;
    assert!(before.values().all(|pid| !alive(*pid)), "a clean stop leaves no postmaster");

    let egret = home.start().await;
    let pool = egret.filled().await;
    assert_eq!((pool.target, pool.hot, pool.chosen), (3, 3, true));
    home.assert_nothing_leaks(&egret).await;
    let after = home.pooled(&egret).await;
    assert!(after.keys().all(|id| !before.contains_key(id)), "they are new");
    let pool = egret.fill(0).await;
    assert_eq!((pool.target, pool.hot, pool.filling), (0, 0, 0));
    home.assert_nothing_leaks(&egret).await;
    assert_eq!(kind(&egret.branch("one").await), "cold");
    egret.branches.resize_pool(Preset::Small, None).await.unwrap();
    let pool = egret.filled().await;
    assert_eq!((pool.target, pool.hot, pool.chosen), (1, 1, false));
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;

    let egret = home.start().await;
    assert_eq!(egret.filled().await.target, 1, "the choice is forgotten");
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_pool_ends() {
    let mut home = brisk("pool-wait");
    home.config.pool_min = 2;
    let egret = home.start().await;
    // Without a template there is nothing to wait for.
    let pool = egret.filled().await;
    assert_eq!((pool.hot, pool.template), (0, None));
    egret.make_app().await;
    egret.branches.refresh_template().await.unwrap();
    // A caller that waits for more than will ever be there learns of a smaller size, and of a stop.
    home.assert_nothing_leaks(&egret).await;
    let wait = async || egret.branches.await_pools_filled().await;
    egret.branches.resize_pool(Preset::Small, Some(3)).await.unwrap();
    let shrink = async {
        egret.branches.resize_pool(Preset::Small, Some(1)).await.unwrap();
    };
    let (filled, ()) = tokio::join!(wait(), shrink);
    assert_eq!(filled.unwrap()[0].target, 1);
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_equal_names_one_takes_a_branch_out() {
    let home = brisk("pool-names");
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(4).await;
    let requests = (0..8).map(|_| egret.branches.create(NewBranch::named(name("race"))));
    let made = futures_util::future::try_join_all(requests).await.unwrap();
    let new = made.iter().filter(|created| matches!(created, CreateOutcome::New(_)));
    assert_eq!(new.count(), 1);
    let ids: Vec<_> = made.into_iter().map(|created| created.into_branch().id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    let mut other = NewBranch::named(name("race"));
    other.labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    other.preset = Preset::Large;
    let error = egret.branches.create(other).await.unwrap_err();
    assert_eq!(error.code(), "branch_name_taken");
    // The same name of two tenants.
    let mut theirs = NewBranch::named(name("race"));
    theirs.tenant = "acme".to_owned();
    let theirs = made_for(&egret, theirs).await;
    assert_ne!(theirs.id, ids[0]);
    egret.branches.destroy("acme", &name("race"), Children::Refuse, |_| true).await.unwrap();
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

async fn made_for(egret: &Egret, request: NewBranch) -> Branch {
    let branch = made(egret, request).await;
    assert_eq!(kind(&branch), "pooled");
    branch
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refresh_nobody_gets_old_data() {
    let mut home = brisk("pool-template");
    home.config.templates_kept = 1;
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(2).await;
    let old = egret.pool().template;
    let before = home.pooled(&egret).await;
    let source = egret.source("app").await;
    let halve = "DELETE FROM item WHERE id > 500";
    source.batch_execute(halve).await.unwrap();
    drop(source);
    let template = egret.branches.refresh_template().await.unwrap();
    // The pool may still be full of old ones, and must not be used.
    let branch = egret.branch("first").await;
    assert_eq!(branch.template, template.id);
    assert_eq!(count(&egret, "first").await, "500");
    let pool = egret.filled().await;
    assert_eq!((pool.hot, pool.template), (2, Some(template.id.to_string())));
    let branch = egret.branch("second").await;
    assert_eq!((kind(&branch), branch.template), ("pooled", template.id));
    assert_eq!(count(&egret, "second").await, "500");
    home.assert_nothing_leaks(&egret).await;
    assert!(before.values().all(|pid| !alive(*pid)), "old ones are retired");
    // No branch uses the old template, and it has been there for long enough.
    home.clock.jump(120);
    let kept = || egret.branches.templates(DEFAULT_TENANT).unwrap();
    eventually("the old template is deleted", async || {
        kept().iter().all(|kept| Some(&kept.id) != old.as_ref())
    })
    .await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_postmaster_of_the_pool_is_replaced_and_not_leased() {
    let home = brisk("pool-kill");
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(3).await;
    for round in 0..3 {
        let before = home.pooled(&egret).await;
        let victims: Vec<i32> = before.values().copied().take(2).collect();
        victims.iter().for_each(|pid| kill(*pid));
        // Whether it comes from the pool or not, it works.
        let branch = format!("round{round}");
        egret.branch(&branch).await;
        assert_eq!(count(&egret, &branch).await, "1000");
        home.assert_nothing_leaks(&egret).await;
        assert_eq!(egret.pool().hot, 3);
        let after = home.pooled(&egret).await;
        assert!(victims.iter().all(|pid| !after.values().any(|other| other == pid)));
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_of_the_pool_is_not_handed_out() {
    let home = brisk("pool-backend");
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(1).await;
    for round in 0..4 {
        let ready = home.pooled(&egret).await;
        let postmaster = *ready.values().next().unwrap();
        let waiting = backends(postmaster);
        assert_eq!(waiting.len(), 2, "{waiting:?}");
        // One after the other, either purpose is the victim.
        kill(*waiting.keys().nth(round % 2).unwrap());
        let branch = format!("round{round}");
        egret.branch(&branch).await;
        let parameters = [("application_name", "psql"), ("client_encoding", "UTF8")];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let attached = attach(&egret, &branch, "app", &parameters).await.unwrap();
        if let Some(resident) = &attached.warm_session {
            assert!(alive(resident.key.pid), "round {round}");
        }
        assert_eq!(count(&egret, &branch).await, "1000", "round {round}");
        drop(attached);
        egret.destroy(&branch).await;
        home.assert_nothing_leaks(&egret).await;
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nearly_full_volume_stops_the_filling_and_creates() {
    let mut home = brisk("pool-full");
    home.config.volume_size = ByteSize::mib(700);
    // Told by this from the full volumes of other tests.
    home.config.free_min = ByteSize::mib(149);
    home.config.free_critical = ByteSize::mib(20);
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(1).await;
    let ballast = home.directory.join("volume/ballast");
    let file = std::fs::File::create(&ballast).unwrap();
    let free = || egret.branches.volume().unwrap().free_bytes;
    let mut taken = 0;
    // Well below the limit: what the kernel frees behind must not lift the volume above it again.
    let aim = ByteSize::mib(90);
    while ByteSize(free()) >= aim {
        taken += free() - aim.bytes() + (8 << 20);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, taken).unwrap();
        file.sync_all().unwrap();
    }
    let refused = egret.branches.create(NewBranch::named(name("late"))).await;
    assert!(matches!(refused, Err(BranchesError::VolumeFull { .. })), "{refused:?}");
    egret.branches.resize_pool(Preset::Small, Some(2)).await.unwrap();
    let waited = egret.branches.await_pools_filled().await;
    assert!(matches!(waited, Err(BranchesError::VolumeFull { .. })), "{waited:?}");
    assert_eq!((egret.pool().hot, egret.pool().filling), (1, 0));
    let source = egret.source("app").await;
    source.batch_execute("DELETE FROM item").await.unwrap();
    drop(source);
    // Looked at twenty times a second, it is one line.
    let least = format!("branches.free_min is {}", ByteSize::mib(149));
    eventually("the volume is reported as full", async || is_full(&least)).await;
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let volume = std::fs::File::open(home.directory.join("volume")).unwrap();
    rustix::fs::syncfs(&volume).unwrap();
    drop(volume);
    // btrfs gives room back behind.
    eventually("the volume has room", async || ByteSize(free()) >= ByteSize::mib(200)).await;
    assert_eq!(egret.filled().await.hot, 2);
    assert_eq!(kind(&egret.branch("late").await), "pooled");
    eventually("the volume is not full", async || !is_full(&least)).await;
    assert_eq!(crate::logs::seen(&least), 1);
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

/// Whether a volume is full, of which this is said.
fn is_full(reason: &str) -> bool {
    let mut active = egret_base::condition::active().into_iter();
    active.any(|one| one.name == "branches_volume_full" && one.reason.contains(reason))
}

#[tokio::test(flavor = "multi_thread")]
async fn where_every_byte_is_copied_a_pool_is_asked_for_and_makes_way_for_a_volume() {
    let mut home = brisk("pool-copy");
    home.config.volume = "copy".to_owned();
    home.config.pool_min = 2;
    let egret = home.start().await;
    egret.make_app().await;
    assert_eq!(kind(&egret.branch("one").await), "cold");
    let pool = egret.filled().await;
    assert_eq!((pool.target, pool.hot), (0, 0), "nothing is copied unasked");
    egret.destroy("one").await;
    egret.fill(2).await;
    assert_eq!(kind(&egret.branch("one").await), "pooled");
    egret.destroy("one").await;
    home.assert_nothing_leaks(&egret).await;

    let volume = egret.branches.create_volume(ByteSize::gib(1)).await.unwrap();
    assert_eq!(volume.driver, "btrfs");
    assert_eq!(kind(&egret.branch("one").await), "cold");
    assert_eq!(count(&egret, "one").await, "1000");
    let pool = egret.filled().await;
    assert_eq!((pool.target, pool.hot), (2, 2));
    assert_eq!(kind(&egret.branch("two").await), "pooled");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

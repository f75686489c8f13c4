//! What a user does with branches, from creation to destruction.

use std::collections::BTreeMap;

use egret_base::CodedError;
use egret_base_test::eventually;
use egret_branches::model::{
    BranchSource, BranchState, BranchUpdate, DEFAULT_TENANT, NewBranch, Preset,
};
use egret_branches::{Children, CreateOutcome};

use crate::home::{Egret, Home, name};

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_a_writable_copy_and_the_source_does_not_change() {
    let home = Home::new("branch");
    let egret = home.start().await;
    egret.make_app().await;
    let branch = egret.branch("demo").await;
    assert_eq!(branch.state, BranchState::Running);
    let receipt = branch.receipt.expect("a creation has a receipt");
    let phases: Vec<&str> = receipt.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(phases, ["template", "intent", "clone", "start"]);
    assert_eq!(
        egret.ask("demo", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("1000")
    );

    egret.ask("demo", "DELETE FROM item WHERE id > 10").await.unwrap();
    egret.ask("demo", "ALTER TABLE item ADD COLUMN price numeric").await.unwrap();
    assert_eq!(
        egret.ask("demo", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("10")
    );
    let source = egret.source("app").await;
    let left: i64 = source.query_one("SELECT count(*) FROM item", &[]).await.unwrap().get(0);
    assert_eq!(left, 1_000);

    let proof = egret.branches.verify(DEFAULT_TENANT, &name("demo"), "app").await.unwrap();
    assert!(
        proof.source_unchanged && proof.marker_in_branch && !proof.marker_in_source,
        "{proof:?}"
    );
    assert_eq!((proof.checksums_equal, proof.catalogue_equal), (Some(true), Some(true)));
    let shown = egret.branches.show(DEFAULT_TENANT, &name("demo")).await.unwrap();
    assert!(shown.diverged_bytes > Some(0), "{shown:?}");
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn creation_is_idempotent_by_name_and_refuses_contradictions() {
    let home = Home::new("idempotent");
    let egret = home.start().await;
    egret.make_app().await;
    let first = egret.branch("one").await;
    let again = egret.branches.create(NewBranch::named(name("one"))).await.unwrap();
    let CreateOutcome::Existing(again) = again else {
        panic!("the second request makes nothing new");
    };
    assert_eq!(again.id, first.id);

    let mut other = NewBranch::named(name("one"));
    other.preset = Preset::Large;
    let error = egret.branches.create(other).await.unwrap_err();
    assert_eq!(error.code(), "branch_name_taken");

    let requests = (0..8).map(|_| egret.branches.create(NewBranch::named(name("race"))));
    let made = futures_util::future::try_join_all(requests).await.unwrap();
    let new = made.iter().filter(|created| matches!(created, CreateOutcome::New(_))).count();
    assert_eq!(new, 1, "of several equal requests one makes the branch");

    let mut wrong = NewBranch::named(name("two"));
    wrong.settings = BTreeMap::from([("shared_bufers".to_owned(), "32MB".to_owned())]);
    let error = egret.branches.create(wrong.clone()).await.unwrap_err();
    assert!(error.to_string().contains("did you mean shared_buffers?"), "{error}");
    wrong.settings = BTreeMap::from([("shared_buffers".to_owned(), "lots".to_owned())]);
    let error = egret.branches.create(wrong.clone()).await.unwrap_err();
    assert!(error.to_string().contains("`lots` is not a number"), "{error}");
    egret.assert_consistent().await;
    wrong.settings = BTreeMap::from([("shared_buffers".to_owned(), "48MB".to_owned())]);
    egret.branches.create(wrong).await.unwrap();
    let buffers = egret.ask("two", "SHOW shared_buffers").await.unwrap();
    assert_eq!(buffers.as_deref(), Some("48MB"));
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_of_a_branch_has_its_state_and_outlives_nothing() {
    let home = Home::new("nested");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("parent").await;
    egret.ask("parent", "CREATE TABLE made_here AS SELECT 42 AS answer").await.unwrap();
    let mut request = NewBranch::named(name("child"));
    request.from = BranchSource::Branch(name("parent"));
    egret.branches.create(request).await.unwrap();
    let answer = async |branch| {
        let answer = egret.ask(branch, "SELECT answer FROM made_here").await;
        answer.unwrap()
    };
    assert_eq!(answer("child").await.as_deref(), Some("42"));
    egret.ask("child", "UPDATE made_here SET answer = 43").await.unwrap();
    assert_eq!(answer("parent").await.as_deref(), Some("42"));

    let refused = egret
        .branches
        .destroy(DEFAULT_TENANT, &name("parent"), Children::Refuse, |_| true)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "branch_has_children");
    // The API's own parameter, and no option of the command line.
    let text = refused.to_string();
    assert!(text.contains("`children`") && !text.contains("--"), "{text}");
    egret.branches.reset(DEFAULT_TENANT, &name("child"), None).await.unwrap();
    assert_eq!(answer("child").await.as_deref(), Some("42"));
    egret
        .branches
        .destroy(DEFAULT_TENANT, &name("parent"), Children::Destroy, |_| true)
        .await
        .unwrap();
    egret.assert_consistent().await;
    assert!(egret.branches.list(DEFAULT_TENANT, |_| true).await.unwrap().is_empty());
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_head_sees_what_a_template_does_not() {
    let home = Home::new("head");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("early").await;
    let source = egret.source("app").await;
    source.batch_execute("DELETE FROM item WHERE id <= 500").await.unwrap();
    let mut request = NewBranch::named(name("late"));
    request.from = BranchSource::Head;
    egret.branches.create(request).await.unwrap();
    egret.branch("newest").await;
    for (branch, rows) in [("early", "1000"), ("late", "500"), ("newest", "500")] {
        let found = egret.ask(branch, "SELECT count(*) FROM item").await.unwrap();
        assert_eq!(found.as_deref(), Some(rows), "{branch}");
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_suspend_and_resume() {
    let home = Home::new("states");
    let egret = home.start().await;
    egret.make_app().await;
    let branches = &egret.branches;
    let one = name("one");
    egret.branch("one").await;
    let password = branches.credentials(DEFAULT_TENANT, &one).unwrap().password;
    egret.ask("one", "DROP TABLE item").await.unwrap();
    branches.reset(DEFAULT_TENANT, &one, None).await.unwrap();
    assert_eq!(
        egret.ask("one", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("1000")
    );
    assert_eq!(branches.credentials(DEFAULT_TENANT, &one).unwrap().password, password);

    egret.ask("one", "DELETE FROM item").await.unwrap();
    let suspended = branches.suspend(DEFAULT_TENANT, &one).await.unwrap();
    assert_eq!(suspended.state, BranchState::Suspended);
    egret.assert_consistent().await;
    assert_eq!(egret.ask("one", "SELECT count(*) FROM item").await.unwrap().as_deref(), Some("0"));
    let woken = branches.show(DEFAULT_TENANT, &one).await.unwrap();
    assert_eq!(woken.branch.state, BranchState::Running);

    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn protect_and_expire() {
    let home = Home::new("protect");
    let egret = home.start().await;
    egret.make_app().await;
    let branches = &egret.branches;
    let one = name("one");
    egret.branch("one").await;
    let protect = BranchUpdate { protected: Some(true), ..BranchUpdate::default() };
    branches.update(DEFAULT_TENANT, &one, &protect).unwrap();
    let refused =
        branches.destroy(DEFAULT_TENANT, &one, Children::Refuse, |_| true).await.unwrap_err();
    assert_eq!(refused.code(), "branch_protected");
    assert_eq!(
        branches.reset(DEFAULT_TENANT, &one, None).await.unwrap_err().code(),
        "branch_protected"
    );
    let unprotect =
        BranchUpdate { protected: Some(false), ttl_ms: Some(Some(1)), ..BranchUpdate::default() };
    branches.update(DEFAULT_TENANT, &one, &unprotect).unwrap();
    eventually("the branch is deleted at its end", async || {
        let listed = branches.list(DEFAULT_TENANT, |_| true).await.unwrap();
        listed.iter().all(|view| view.branch.name != "one")
    })
    .await;
    assert_eq!(egret.ask("one", "SELECT 1").await.unwrap_err().code(), "branch_not_found");
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_postmaster_comes_back_with_what_was_committed() {
    let home = Home::new("revive");
    let egret = home.start().await;
    egret.make_app().await;
    let mut request = NewBranch::named(name("one"));
    request.durable = true;
    let branch = egret.branches.create(request).await.unwrap().into_branch();
    egret.ask("one", "UPDATE item SET name = 'kept' WHERE id = 1").await.unwrap();
    let (pid, _) = branch.postmaster.unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // Sessions fail until it is back; then nothing that was acknowledged is lost.
    let found = eventually("the branch accepts sessions", async || {
        egret.ask("one", "SELECT name FROM item WHERE id = 1").await
    })
    .await;
    assert_eq!(found.as_deref(), Some("kept"));
    egret.assert_consistent().await;
    egret.stop().await;
}

/// Waits until branch `one` has a session.
async fn await_session(egret: &Egret) {
    eventually("the branch has a session", async || {
        let shown = egret.branches.show(DEFAULT_TENANT, &name("one")).await;
        shown.unwrap().sessions > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_does_not_wait_for_sessions_and_happens_once() {
    let home = Home::new("destroy");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let asking = egret.ask("one", "SELECT pg_sleep(600)::text");
    let destroying = async {
        await_session(&egret).await;
        egret
            .branches
            .destroy(DEFAULT_TENANT, &name("one"), Children::Refuse, |_| true)
            .await
            .unwrap();
        let again =
            egret.branches.destroy(DEFAULT_TENANT, &name("one"), Children::Refuse, |_| true).await;
        assert_eq!(again.unwrap_err().code(), "branch_not_found");
    };
    let (asked, ()) = tokio::join!(asking, destroying);
    asked.unwrap_err();
    // The name is free at once.
    egret.branch("one").await;
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_named() {
    let mut home = Home::new("limits");
    home.config.branches_max = 1;
    home.config.query_rows_max = 100;
    home.config.query_timeout = egret_base::settings::ConfigDuration::ms(1_000);
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let error = egret.branches.create(NewBranch::named(name("two"))).await.unwrap_err();
    assert!(error.to_string().contains("branches.branches_max is 1, but 2"), "{error}");
    let error = egret.ask("one", "SELECT * FROM item").await.unwrap_err();
    assert!(error.to_string().contains("query_rows_max"), "{error}");
    let error = egret.ask("one", "SELECT pg_sleep(600)").await.unwrap_err();
    assert_eq!(error.code(), "query_timeout");
    let mut forever = NewBranch::named(name("two"));
    forever.ttl_ms = Some(u64::MAX);
    let error = egret.branches.create(forever).await.unwrap_err();
    assert!(error.to_string().contains("branches.ttl_max"), "{error}");
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lifetime_ends_in_the_middle_of_a_transaction() {
    let home = Home::new("ttl");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let asking = egret.ask("one", "BEGIN; UPDATE item SET name = 'x'; SELECT pg_sleep(600)");
    let expiring = async {
        await_session(&egret).await;
        let soon = BranchUpdate { ttl_ms: Some(Some(1)), ..BranchUpdate::default() };
        egret.branches.update(DEFAULT_TENANT, &name("one"), &soon).unwrap();
    };
    let (asked, ()) = tokio::join!(asking, expiring);
    asked.unwrap_err();
    egret.assert_consistent().await;
    assert!(egret.branches.list(DEFAULT_TENANT, |_| true).await.unwrap().is_empty());
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_against_connections_ends_them_or_makes_them_wait() {
    let home = Home::new("reset-connect");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    egret.ask("one", "DELETE FROM item").await.unwrap();
    let (stop, mut stopped) = tokio::sync::watch::channel(());
    let (branches, one) = (egret.branches.clone(), name("one"));
    let asking = tokio::spawn(async move {
        let mut answered = 0;
        while !stopped.has_changed().unwrap() {
            let sql = "SELECT count(*) FROM item";
            let answer = branches.query(DEFAULT_TENANT, &one, "app", sql, &[], None).await;
            // Either state of the branch, or the end of its server; never half of one.
            if let Ok(answer) = answer {
                let count = answer.rows[0][0].as_deref();
                assert!(matches!(count, Some("0" | "1000")), "{count:?}");
                answered += 1;
            }
        }
        stopped.borrow_and_update();
        answered
    });
    for _ in 0..5 {
        egret.branches.reset(DEFAULT_TENANT, &name("one"), None).await.unwrap();
        let rows = egret.ask("one", "SELECT count(*) FROM item").await.unwrap();
        assert_eq!(rows.as_deref(), Some("1000"));
    }
    stop.send(()).unwrap();
    assert!(asking.await.unwrap() > 0);
    egret.assert_consistent().await;
    egret.stop().await;
}

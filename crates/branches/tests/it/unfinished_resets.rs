//! Resets that fail and cannot be undone at once, and interrupted ones that cannot be done again at
//! once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::CodedError;
use egret_branches::model::{Branch, BranchState, BranchUpdate, DEFAULT_TENANT};
use egret_branches::{Children, CrashPoints};
use futures_util::FutureExt;

use crate::home::{Home, name};
use crate::resets::{
    Gate, assert_item, assert_resetting, change_schema, count, hidden, interrupted, reset,
    start_emptied, state,
};

/// Has the registry refuse each end of a reset.
const REFUSAL: &str = "CREATE TRIGGER refusal BEFORE UPDATE ON branch
    WHEN OLD.state = 'resetting' BEGIN SELECT RAISE(ABORT, 'refused'); END";

/// Has servers not start, so many times, and start again after that.
#[derive(Default)]
struct StartFailures {
    starts: AtomicU32,
    /// What a server does not start without.
    control: Mutex<PathBuf>,
    /// The registry, where it is to refuse the end of a reset from then on.
    state: Mutex<Option<PathBuf>>,
}

impl StartFailures {
    fn arm(&self, home: &Home, branch: &Branch, starts: u32) {
        let data = home.directory.join("volume/branches").join(branch.id.hex());
        *self.control.lock().unwrap() = data.join("global/pg_control");
        self.starts.store(starts, Ordering::SeqCst);
    }
}

impl CrashPoints for StartFailures {
    fn before(&self, step: &'static str) {
        if step != "start.launch" {
            return;
        }
        let control = self.control.lock().unwrap();
        let less = |starts: u32| starts.checked_sub(1);
        let taken = self.starts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if taken.is_ok() {
            std::fs::rename(&*control, hidden(&control)).unwrap();
        } else if hidden(&control).exists() {
            std::fs::rename(hidden(&control), &*control).unwrap();
        }
        if let Some(state) = self.state.lock().unwrap().take() {
            change_schema(&state, REFUSAL);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_while_an_earlier_one_is_not_undone_yet_goes_back_to_the_own_template() {
    let home = Home::new("reset-twice");
    let saboteur = Arc::new(StartFailures::default());
    let (egret, one) = start_emptied(&home, saboteur.clone()).await;
    let source = egret.source("app").await;
    let delete = "DELETE FROM item WHERE id > 10";
    source.batch_execute(delete).await.unwrap();
    drop(source);
    let other = egret.branches.refresh_template().await.unwrap();
    let registry = home.directory.join("state.db");
    *saboteur.state.lock().unwrap() = Some(registry.clone());
    saboteur.arm(&home, &one, 1);
    let one_name = name("one");
    let to_other = egret.branches.reset(DEFAULT_TENANT, &one_name, Some(other.id));
    to_other.await.unwrap_err();
    assert_resetting(&egret);
    change_schema(&registry, "DROP TRIGGER refusal");
    reset(&egret).await.unwrap();
    assert_eq!(count(&egret).await, "1000");
    let shown = egret.branches.show(DEFAULT_TENANT, &one_name).await;
    let template = shown.unwrap().branch.parent.template;
    assert_eq!(template, one.template.to_string());
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_reset_whose_end_cannot_be_recorded_is_done_as_soon_as_it_can() {
    let (home, kept) = interrupted("reset-unwritten", "reset.swap").await;
    let registry = home.directory.join("state.db");
    change_schema(&registry, REFUSAL);
    let egret = home.start().await;
    let waits =
        format!("yet; retrying condition=\"branches_not_starting\" subject=\"branch {}\"", kept.id);
    crate::logs::await_seen(&waits).await;
    assert_resetting(&egret);
    change_schema(&registry, "DROP TRIGGER refusal");
    egret.resets_are_over().await;
    assert_item(&egret, "item 1").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_does_not_start_after_its_reset_was_undone_is_started_later() {
    let home = Home::new("reset-undone");
    let saboteur = Arc::new(StartFailures::default());
    let (egret, one) = start_emptied(&home, saboteur.clone()).await;
    // That of the reset, and the one with which it is undone.
    saboteur.arm(&home, &one, 2);
    reset(&egret).await.unwrap_err();
    egret.assert_consistent().await;
    assert_eq!(state(&egret).await, BranchState::Running);
    assert_eq!(count(&egret).await, "0");
    // Egret has stopped it: it has not ended by itself, which counts towards a crash loop.
    let ended = format!("exited unexpectedly branch={}", one.id);
    assert_eq!(crate::logs::seen(&ended), 0);
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_protected_while_it_is_reset_is_not_destroyed_after_that() {
    let home = Home::new("reset-protect");
    let gate = Gate::at("reset.swap");
    let (egret, _) = start_emptied(&home, gate.clone()).await;
    let one = name("one");
    let meanwhile = async {
        gate.reached().await;
        let destroying = egret.branches.destroy(DEFAULT_TENANT, &one, Children::Refuse, |_| true);
        let mut destroying = std::pin::pin!(destroying);
        // It waits for the reset.
        assert!((&mut destroying).now_or_never().is_none());
        let change = BranchUpdate { protected: Some(true), ..BranchUpdate::default() };
        let changed = egret.branches.update(DEFAULT_TENANT, &one, &change);
        gate.open();
        changed.unwrap();
        destroying.await
    };
    let (done, destroyed) = tokio::join!(reset(&egret), meanwhile);
    done.unwrap();
    let refused = destroyed.unwrap_err();
    assert_eq!(refused.code(), "branch_protected", "{refused}");
    assert_eq!(count(&egret).await, "1000");
    egret.stop().await;
}

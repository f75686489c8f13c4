//! Manifests agree with the rows of their branches, also when rows are changed at the same time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use egret_base::CodedError;
use egret_base_test::eventually;
use egret_branches::model::{Branch, BranchId, BranchState, BranchUpdate, DEFAULT_TENANT};
use egret_branches::{Branches, CrashPoints};

use crate::home::{Home, name};
use crate::resets::{count, reset, start_emptied, state};

fn manifest(home: &Home, id: BranchId) -> Branch {
    let path = format!("volume/branches/{}.json", id.hex());
    let text = std::fs::read(home.directory.join(path)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn labelled(value: &str) -> BranchUpdate {
    BranchUpdate {
        labels: Some(BTreeMap::from([("is".to_owned(), value.to_owned())])),
        ..BranchUpdate::default()
    }
}

/// Changes labels of branch `one` while its server starts, once it is armed.
#[derive(Default)]
struct Changer {
    branches: OnceLock<Branches>,
    is_armed: AtomicBool,
}

impl CrashPoints for Changer {
    fn before(&self, step: &'static str) {
        if step == "start.launch" && self.is_armed.swap(false, Ordering::SeqCst) {
            let branches = self.branches.get().unwrap();
            let changed = branches.update(DEFAULT_TENANT, &name("one"), &labelled("changed"));
            changed.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_during_a_start_is_in_the_manifest() {
    let home = Home::new("manifest-start");
    let changer = Arc::new(Changer::default());
    let egret = home.start_with(Some(changer.clone())).await;
    assert!(changer.branches.set(egret.branches.clone()).is_ok());
    egret.make_app().await;
    let one = egret.branch("one").await;
    let suspended = egret.branches.suspend(DEFAULT_TENANT, &name("one")).await;
    suspended.unwrap();
    changer.is_armed.store(true, Ordering::SeqCst);
    egret.ask("one", "SELECT 1").await.unwrap();
    assert!(!changer.is_armed.load(Ordering::SeqCst));
    let written = manifest(&home, one.id);
    assert_eq!(written.state, BranchState::Running);
    assert_eq!(written.labels.get("is").map(String::as_str), Some("changed"));
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_could_not_be_written_is_written_later() {
    let home = Home::new("manifest-later");
    let egret = home.start().await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    let obstacle = new_manifest(&home, one.id);
    std::fs::create_dir(&obstacle).unwrap();
    let change = labelled("changed");
    let changed = egret.branches.update(DEFAULT_TENANT, &name("one"), &change);
    let labels = changed.unwrap().labels;
    assert_ne!(manifest(&home, one.id).labels, labels);
    std::fs::remove_dir(obstacle).unwrap();
    eventually("the manifest is written", async || manifest(&home, one.id).labels == labels).await;
    egret.stop().await;
}

/// Where a manifest is written before it gets its name.
fn new_manifest(home: &Home, id: BranchId) -> PathBuf {
    let path = format!("volume/branches/{}.json.new", id.hex());
    home.directory.join(path)
}

/// Puts a directory in the way of a manifest before a reset is over, once.
#[derive(Default)]
struct Obstacle(Mutex<Option<PathBuf>>);

impl CrashPoints for Obstacle {
    fn before(&self, step: &'static str) {
        if step == "reset.commit"
            && let Some(path) = self.0.lock().unwrap().take()
        {
            std::fs::create_dir(path).unwrap();
        }
    }
}

/// Files that the manifest does not describe would be another branch's, were the registry lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_whose_manifest_cannot_be_written_leaves_the_branch_as_it_was() {
    let home = Home::new("manifest-reset");
    let obstacle = Arc::new(Obstacle::default());
    let (egret, one) = start_emptied(&home, obstacle.clone()).await;
    let path = new_manifest(&home, one.id);
    *obstacle.0.lock().unwrap() = Some(path.clone());
    let refused = reset(&egret).await.unwrap_err();
    assert_eq!(refused.code(), "branch_files", "{refused}");
    std::fs::remove_dir(path).unwrap();
    assert_eq!(state(&egret).await, BranchState::Running);
    assert_eq!(count(&egret).await, "0");
    reset(&egret).await.unwrap();
    assert_eq!(count(&egret).await, "1000");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_the_same_time_do_not_meet_in_the_manifest() {
    let home = Home::new("manifest-race");
    let egret = home.start().await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let branches = &egret.branches;
            scope.spawn(move || {
                for number in 0..25 {
                    let change = labelled(&format!("{thread}-{number}"));
                    let changed = branches.update(DEFAULT_TENANT, &name("one"), &change);
                    changed.unwrap();
                }
            });
        }
    });
    let shown = egret.branches.show(DEFAULT_TENANT, &name("one")).await;
    assert_eq!(manifest(&home, one.id).labels, shown.unwrap().branch.labels);
    egret.stop().await;
}

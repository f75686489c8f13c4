//! Manifests say what the rows of their branches say, whoever changes these at the same time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use egret_branches::model::{Branch, BranchId, BranchState, Change, DEFAULT_TENANT};
use egret_branches::{Branches, Steps};

use crate::home::{Home, name};

fn manifest(home: &Home, id: BranchId) -> Branch {
    let path = format!("volume/branches/{}.json", id.hex());
    let text = std::fs::read(home.directory.join(path)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn labelled(value: &str) -> Change {
    Change {
        labels: Some(BTreeMap::from([("is".to_owned(), value.to_owned())])),
        ..Change::default()
    }
}

/// Changes labels of branch `one` while its server starts, once it is armed.
#[derive(Default)]
struct Changer {
    branches: OnceLock<Branches>,
    is_armed: AtomicBool,
}

impl Steps for Changer {
    fn before(&self, step: &'static str) {
        if step == "start.launch" && self.is_armed.swap(false, Ordering::SeqCst) {
            let branches = self.branches.get().unwrap();
            let changed = branches.change(DEFAULT_TENANT, &name("one"), &labelled("changed"));
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
    assert_eq!(
        written.labels.get("is").map(String::as_str),
        Some("changed")
    );
    egret.stop().await;
}

/// Puts a directory in the way of a manifest before it is written after a reset.
#[derive(Default)]
struct Obstacle(OnceLock<PathBuf>);

impl Steps for Obstacle {
    fn before(&self, step: &'static str) {
        if step == "reset.commit" {
            std::fs::create_dir(self.0.get().unwrap()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_could_not_be_written_after_a_reset_is_written_later() {
    let home = Home::new("manifest-later");
    let obstacle = Arc::new(Obstacle::default());
    let egret = home.start_with(Some(obstacle.clone())).await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    let new = format!("volume/branches/{}.json.new", one.id.hex());
    let new = home.directory.join(new);
    obstacle.0.set(new.clone()).unwrap();
    let name = name("one");
    let reset = egret.branches.reset(DEFAULT_TENANT, &name, None);
    let row = reset.await.unwrap();
    assert_ne!(manifest(&home, one.id).postmaster, row.postmaster);
    std::fs::remove_dir(new).unwrap();
    while manifest(&home, one.id).postmaster != row.postmaster {
        tokio::task::yield_now().await;
    }
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
                    let changed = branches.change(DEFAULT_TENANT, &name("one"), &change);
                    changed.unwrap();
                }
            });
        }
    });
    let shown = egret.branches.show(DEFAULT_TENANT, &name("one")).await;
    assert_eq!(manifest(&home, one.id).labels, shown.unwrap().branch.labels);
    egret.stop().await;
}

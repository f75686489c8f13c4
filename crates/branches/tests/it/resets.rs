//! A reset that fails leaves the branch as it was.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::Coded;
use egret_branches::Steps;
use egret_branches::model::{BranchState, DEFAULT_TENANT};

use crate::home::{Egret, Home, name};

const COUNT: &str = "SELECT count(*) FROM item";

/// Moves a directory or file away before a step is taken, once each time that it is armed.
struct Thief {
    step: &'static str,
    path: Mutex<PathBuf>,
    is_armed: AtomicBool,
}

impl Thief {
    fn at(step: &'static str) -> Arc<Self> {
        Arc::new(Self {
            step,
            path: Mutex::default(),
            is_armed: AtomicBool::new(false),
        })
    }

    fn arm(&self, path: PathBuf) {
        *self.path.lock().unwrap() = path;
        self.is_armed.store(true, Ordering::SeqCst);
    }
}

fn hidden(path: &std::path::Path) -> PathBuf {
    path.with_extension("hidden")
}

impl Steps for Thief {
    fn before(&self, step: &'static str) {
        if step == self.step && self.is_armed.swap(false, Ordering::SeqCst) {
            let path = self.path.lock().unwrap();
            std::fs::rename(&*path, hidden(&path)).unwrap();
        }
    }
}

async fn reset(egret: &Egret) -> Result<(), egret_branches::BranchesError> {
    let reset = egret.branches.reset(DEFAULT_TENANT, &name("one"), None);
    reset.await.map(drop)
}

async fn state(egret: &Egret) -> BranchState {
    let shown = egret.branches.show(DEFAULT_TENANT, &name("one")).await;
    let branch = shown.unwrap().branch;
    assert_eq!(branch.failure, None);
    branch.state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_cannot_copy_leaves_the_branch_running_as_it_was() {
    let mut home = Home::new("reset-copy");
    home.config.volume = "copy".to_owned();
    let thief = Thief::at("create.clone");
    let egret = home.start_with(Some(thief.clone())).await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    egret.ask("one", "DELETE FROM item").await.unwrap();
    let start = "SELECT pg_postmaster_start_time()::text";
    let before = egret.ask("one", start).await.unwrap();
    let templates = home.directory.join("volume/templates");
    let template = templates.join(one.template.hex());
    thief.arm(template.clone());
    let refused = reset(&egret).await.unwrap_err();
    assert_eq!(refused.code(), "branch_files", "{refused}");
    std::fs::rename(hidden(&template), &template).unwrap();
    assert_eq!(state(&egret).await, BranchState::Running);
    // Its server was not stopped at all.
    assert_eq!(egret.ask("one", start).await.unwrap(), before);
    let rows = egret.ask("one", COUNT).await.unwrap();
    assert_eq!(rows.as_deref(), Some("0"));
    reset(&egret).await.unwrap();
    let rows = egret.ask("one", COUNT).await.unwrap();
    assert_eq!(rows.as_deref(), Some("1000"));
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_whose_server_does_not_start_leaves_the_branch_as_it_was() {
    let mut home = Home::new("reset-start");
    // No pool is filled, whose starts the thief would meet.
    home.config.volume = "copy".to_owned();
    let thief = Thief::at("start.launch");
    let egret = home.start_with(Some(thief.clone())).await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    egret.ask("one", "DELETE FROM item").await.unwrap();
    let data = home.directory.join("volume/branches").join(one.id.hex());
    for expected in [BranchState::Running, BranchState::Suspended] {
        if expected == BranchState::Suspended {
            let suspended = egret.branches.suspend(DEFAULT_TENANT, &name("one")).await;
            suspended.unwrap();
        }
        thief.arm(data.join("global/pg_control"));
        reset(&egret).await.unwrap_err();
        assert_eq!(state(&egret).await, expected);
        let rows = egret.ask("one", COUNT).await.unwrap();
        assert_eq!(rows.as_deref(), Some("0"), "{expected}");
    }
    reset(&egret).await.unwrap();
    let rows = egret.ask("one", COUNT).await.unwrap();
    assert_eq!(rows.as_deref(), Some("1000"));
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

//! What cannot be recorded does not stay half done until the next start.

use std::path::Path;

use egret_base::CodedError;
use egret_base_test::eventually;
use egret_branches::model::{BranchState, NewBranch};

use crate::home::{Home, name};
use crate::resets::change_schema;

const ALLOW: &str = "DROP TRIGGER refusal";

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_cannot_be_recorded_leaves_nothing_as_soon_as_that_can_be() {
    let home = Home::new("unrecorded");
    let egret = home.start().await;
    egret.make_app().await;
    let registry = home.directory.join("state.db");
    change_schema(
        &registry,
        "CREATE TRIGGER refusal BEFORE UPDATE ON branch WHEN OLD.state = 'creating'
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    let request = NewBranch::named(name("one"));
    egret.branches.create(request.clone()).await.unwrap_err();
    // What is not there is not given as one that existed.
    let refused = egret.branches.create(request).await.unwrap_err();
    assert_eq!(refused.code(), "branch_wrong_state", "{refused}");
    let is_creating = || {
        let counts = egret.branches.count_by_state().unwrap();
        counts.contains_key("creating")
    };
    assert!(is_creating());
    change_schema(&registry, ALLOW);
    eventually("the create is given up", async || !is_creating()).await;
    let one = egret.branch("one").await;
    assert_eq!(one.state, BranchState::Running);
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_cannot_be_recorded_leaves_nothing() {
    let home = Home::new("unrecorded-t");
    let egret = home.start().await;
    let registry = home.directory.join("state.db");
    change_schema(
        &registry,
        "CREATE TRIGGER refusal BEFORE UPDATE ON template WHEN NEW.state = 'ready'
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    egret.branches.refresh_template().await.unwrap_err();
    assert!(is_empty(&home.directory.join("volume/templates")));
    change_schema(&registry, ALLOW);
    egret.branches.refresh_template().await.unwrap();
    egret.stop().await;
}

//! Servers that do not get ready, and what a start of Egret makes of what it finds.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_branches::CrashPoints;
use egret_branches::model::{BranchState, DEFAULT_TENANT};

use crate::crashes::crash;
use crate::home::{Home, kill, lose_registry, name};
use crate::resets::{ITEM, assert_item, assert_needs_reset, change_row, hidden, start_changed};

/// A home where branch `kept` is suspended.
async fn suspended(home: Home) -> Home {
    let (egret, _) = start_changed(&home).await;
    let suspended = egret.branches.suspend(DEFAULT_TENANT, &name("kept")).await;
    suspended.unwrap();
    egret.stop().await;
    home
}

/// A home where Egret has died while the server of branch `kept`, which was suspended, got ready.
async fn dead_while_waking(purpose: &str) -> Home {
    let home = suspended(Home::new(purpose)).await;
    assert!(crash(&home, "wake", "start.ready").await);
    eventually("the server of the branch has started", async || !home.postmasters().is_empty())
        .await;
    home
}

/// The boot in which branch `kept` may have written what is not on the disk, as the registry says.
fn recorded_boot(home: &Path) -> Option<String> {
    let state = home.join("state.db");
    let connection = egret_state::rusqlite::Connection::open(state).unwrap();
    let sql = "SELECT boot_id FROM branch WHERE name = 'kept'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_being_woken_when_the_machine_crashed_is_not_trusted() {
    let home = dead_while_waking("wake-torn").await;
    home.postmasters().into_values().for_each(kill);
    eventually("all processes of branches end", async || {
        home.processes("volume/branches").is_empty()
    })
    .await;
    // It has run in a boot that is known.
    change_row(
        &home,
        "UPDATE branch SET boot_id = 'another' WHERE name = 'kept' AND boot_id IS NOT NULL",
    );
    let egret = home.start().await;
    assert_needs_reset(&egret).await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_being_started_when_egret_died_is_stopped_onto_the_disk() {
    let home = dead_while_waking("wake-stray").await;
    assert!(recorded_boot(&home.directory).is_some());
    let egret = home.start().await;
    let shown = egret.branches.show(DEFAULT_TENANT, &name("kept")).await;
    assert_eq!(shown.unwrap().branch.state, BranchState::Suspended);
    assert_eq!(recorded_boot(&home.directory), None);
    assert_item(&egret, "mine").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

/// Takes from a server what it does not start without, once, and looks what is recorded then.
struct ControlFileThief {
    home: PathBuf,
    control: Mutex<Option<PathBuf>>,
    boot: Mutex<Option<String>>,
}

impl CrashPoints for ControlFileThief {
    fn before(&self, step: &'static str) {
        if step == "start.launch"
            && let Some(control) = self.control.lock().unwrap().take()
        {
            std::fs::rename(&control, hidden(&control)).unwrap();
            *self.boot.lock().unwrap() = recorded_boot(&self.home);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_of_a_branch_is_recorded_until_what_it_wrote_is_on_the_disk() {
    let home = suspended(Home::new("wake-fails")).await;
    let saboteur = Arc::new(ControlFileThief {
        home: home.directory.clone(),
        control: Mutex::default(),
        boot: Mutex::default(),
    });
    let egret = home.start_with(Some(saboteur.clone())).await;
    let kept = name("kept");
    let shown = egret.branches.show(DEFAULT_TENANT, &kept).await.unwrap();
    let data = home.directory.join("volume/branches").join(shown.branch.id.replace('-', ""));
    let control = data.join("global/pg_control");
    *saboteur.control.lock().unwrap() = Some(control.clone());
    let resumed = egret.branches.resume(DEFAULT_TENANT, &kept).await;
    resumed.unwrap_err();
    assert!(saboteur.boot.lock().unwrap().is_some());
    assert_eq!(recorded_boot(&home.directory), None);
    let shown = egret.branches.show(DEFAULT_TENANT, &kept).await.unwrap();
    assert_eq!(shown.branch.state, BranchState::Failed);
    std::fs::rename(hidden(&control), &control).unwrap();
    egret.resume("kept").await;
    assert!(recorded_boot(&home.directory).is_some());
    assert_item(&egret, "mine").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_registry_gives_a_name_to_the_branch_that_had_it_last() {
    let mut home = Home::new("lost-name");
    // Files of destroyed branches are deleted at leisure.
    home.config.pool_quiet = ConfigDuration::secs(3_600);
    home.config.pool_patience = ConfigDuration::secs(3_600);
    let egret = home.start().await;
    egret.make_app().await;
    let first = egret.branch("one").await;
    egret.destroy("one").await;
    egret.branch("one").await;
    let update = "UPDATE item SET name = 'mine' WHERE id = 1";
    egret.ask("one", update).await.unwrap();
    let files = home.directory.join("volume/branches").join(first.id.hex());
    assert!(files.exists());
    egret.stop().await;
    lose_registry(&home);
    let egret = home.start().await;
    let item = egret.ask("one", ITEM).await.unwrap();
    assert_eq!(item.as_deref(), Some("mine"));
    assert!(files.exists(), "what is not known is not deleted");
    egret.stop().await;
}

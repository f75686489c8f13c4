//! The same work on every driver, and moving from one to another.

use std::path::Path;
use std::process::Command;

use egret_base::CodedError;
use egret_base::settings::ByteSize;
use egret_base_test::eventually;
use egret_branches::model::{BranchSource, BranchState, DEFAULT_TENANT, NewBranch};
use egret_branches::{BranchesError, open_volume};

use crate::home::{Egret, Home, disk_bytes, name};
use crate::resets::Gate;

/// Writes to the source while it is copied, and checks that each copy is of one moment: the two
/// tables that every transaction changes together agree.
async fn copies_are_consistent(egret: &Egret) {
    let source = egret.source("app").await;
    source
        .batch_execute("CREATE TABLE one (n int); INSERT INTO one VALUES (0); CREATE TABLE other (n int); INSERT INTO other VALUES (0)")
        .await
        .unwrap();
    let writer = egret.source("app").await;
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn(async move {
        let mut written = 0_u32;
        while stopped.try_recv().is_err() {
            writer
                .batch_execute(
                    "BEGIN; UPDATE one SET n = n + 1; UPDATE other SET n = n + 1; COMMIT",
                )
                .await
                .unwrap();
            written += 1;
        }
        written
    });
    for number in 0..3 {
        let mut request = NewBranch::named(name(&format!("moment{number}")));
        request.from = BranchSource::Head;
        egret.branches.create(request).await.unwrap();
    }
    stop.send(()).unwrap();
    assert!(writing.await.unwrap() > 0);
    for number in 0..3 {
        let sql = "SELECT (SELECT n FROM one) = (SELECT n FROM other)";
        let equal = egret.ask(&format!("moment{number}"), sql).await.unwrap();
        assert_eq!(equal.as_deref(), Some("t"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn btrfs_on_an_image_of_its_own() {
    let home = Home::new("btrfs");
    let egret = home.start().await;
    let volume = egret.branches.volume().unwrap();
    assert_eq!(volume.driver, "btrfs", "{volume:?}");
    assert!(volume.image.is_some());
    egret.make_app().await;
    copies_are_consistent(&egret).await;
    egret.stop().await;
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(home.directory.to_str().unwrap()), "the image is unmounted");
    let egret = home.start().await;
    assert_eq!(
        egret.ask("moment0", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("1000")
    );
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copying_works_everywhere_and_says_what_it_costs() {
    let mut home = Home::new("copy");
    home.config.volume = "copy".to_owned();
    let egret = home.start().await;
    let volume = egret.branches.volume().unwrap();
    assert_eq!(volume.driver, "copy");
    assert!(volume.note.contains("copies every byte"), "{}", volume.note);
    egret.make_app().await;
    copies_are_consistent(&egret).await;
    let mut child = NewBranch::named(name("child"));
    child.from = BranchSource::Branch(name("moment1"));
    egret.branches.create(child).await.unwrap();
    egret.assert_consistent().await;
    egret.stop().await;
}

/// An XFS of its own, which shares blocks between files, where the volume goes.
fn mount_xfs(directory: &Path) {
    let (image, root) = (directory.join("xfs.img"), directory.join("volume"));
    std::fs::create_dir(&root).unwrap();
    std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    for (program, arguments) in [
        ("mkfs.xfs", vec!["-q".as_ref(), image.as_os_str()]),
        ("mount", vec!["-o".as_ref(), "loop".as_ref(), image.as_os_str(), root.as_os_str()]),
    ] {
        let status = Command::new(program).args(arguments).status().unwrap();
        assert!(status.success(), "{program}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reflink_is_chosen_on_btrfs_when_asked_for() {
    let mut home = Home::new("insist");
    // The source was made as a subvolume before the setting changed.
    drop(open_volume(&home.directory, &home.config).unwrap());
    home.config.volume = "reflink".to_owned();
    let egret = home.start().await;
    assert_eq!(egret.branches.volume().unwrap().driver, "reflink");
    egret.make_app().await;
    egret.branch("one").await;
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cloning_file_by_file_shares_blocks() {
    let home = Home::new("reflink");
    mount_xfs(&home.directory);
    let egret = home.start().await;
    assert_eq!(egret.branches.volume().unwrap().driver, "reflink");
    egret.make_app().await;
    copies_are_consistent(&egret).await;
    let before = egret.branches.volume().unwrap().free_bytes;
    egret.branch("cheap").await;
    let after = egret.branches.volume().unwrap().free_bytes;
    let used = ByteSize(before.saturating_sub(after));
    assert!(used < ByteSize::mib(30), "a clone of more than 30 MB took {used}");
    egret.stop().await;
}

/// Makes a template of about 70 MB, and stops Egret. Returns the free bytes of the volume, and the
/// bytes of the template.
async fn measure_template(home: &Home) -> (u64, u64) {
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    // About 40 MB, beside which what the source writes to its log is little.
    let ballast = "CREATE TABLE ballast AS SELECT repeat(md5(n::text), 60) FROM generate_series(1, 20000) AS n";
    source.batch_execute(ballast).await.unwrap();
    drop(source);
    let template = egret.branches.refresh_template().await.unwrap();
    let template = home.directory.join("volume/templates").join(template.id.hex());
    let bytes = disk_bytes(&template);
    let free = egret.branches.volume().unwrap().free_bytes;
    egret.stop().await;
    (free, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_at_the_same_time_do_not_all_take_the_room_of_one() {
    let mut home = Home::new("copies");
    mount_xfs(&home.directory);
    home.config.volume = "copy".to_owned();
    let (free, bytes) = measure_template(&home).await;
    // There is room for one copy, and not for another one beside it.
    home.config.free_min = ByteSize(free - bytes / 2 * 3);
    let gate = Gate::at("create.clone");
    let egret = home.start_with(Some(gate.clone())).await;
    let create = |wanted: &str| egret.branches.create(NewBranch::named(name(wanted)));
    let meanwhile = async {
        gate.reached().await;
        let second = create("second").await;
        gate.open();
        second
    };
    let (first, second) = tokio::join!(create("first"), meanwhile);
    first.unwrap();
    let refused = second.unwrap_err();
    assert!(matches!(refused, BranchesError::VolumeFull { .. }), "{refused}");
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_copy_has_written_is_not_kept_free_for_it_again() {
    let mut home = Home::new("written");
    mount_xfs(&home.directory);
    home.config.volume = "copy".to_owned();
    let (free, bytes) = measure_template(&home).await;
    // There is room for two copies, and not for a third one.
    home.config.free_min = ByteSize(free - bytes / 4 * 11);
    let gate = Gate::at("create.clone");
    let egret = home.start_with(Some(gate.clone())).await;
    let create = |wanted: &str| egret.branches.create(NewBranch::named(name(wanted)));
    let meanwhile = async {
        gate.reached().await;
        // As if all of the first copy were written and its end not noticed yet.
        let first = egret.branches.show(DEFAULT_TENANT, &name("first")).await.unwrap();
        let copy = home.directory.join("volume/branches").join(first.branch.id.replace('-', ""));
        std::fs::create_dir(&copy).unwrap();
        std::fs::write(copy.join("written"), vec![1; bytes as usize]).unwrap();
        let second = create("second").await;
        std::fs::remove_dir_all(&copy).unwrap();
        gate.open();
        second
    };
    let (first, second) = tokio::join!(create("first"), meanwhile);
    second.unwrap();
    first.unwrap();
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_at_the_same_time_do_not_all_take_the_share_of_a_tenant() {
    let mut home = Home::new("share");
    mount_xfs(&home.directory);
    home.config.volume = "copy".to_owned();
    let (_, bytes) = measure_template(&home).await;
    home.config.tenant_disk_max = Some(ByteSize(bytes / 2 * 3));
    let gate = Gate::at("create.clone");
    let egret = home.start_with(Some(gate.clone())).await;
    let create = |wanted: &str| egret.branches.create(NewBranch::named(name(wanted)));
    let meanwhile = async {
        gate.reached().await;
        let second = create("second").await;
        gate.open();
        second
    };
    let (first, second) = tokio::join!(create("first"), meanwhile);
    first.unwrap();
    let refused = second.unwrap_err().to_string();
    assert!(refused.contains("branches.tenant_disk_max"), "{refused}");
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_egret_that_copies_moves_onto_a_volume() {
    let mut home = Home::new("move");
    home.config.volume = "copy".to_owned();
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let refused = egret.branches.create_volume(ByteSize::gib(1)).await.unwrap_err();
    assert!(refused.to_string().contains("branches exist"), "{refused}");
    egret.destroy("one").await;
    egret.assert_consistent().await;
    let volume = egret.branches.create_volume(ByteSize::gib(1)).await.unwrap();
    assert_eq!(volume.driver, "btrfs");
    egret.branch("two").await;
    assert_eq!(
        egret.ask("two", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("1000")
    );
    let again = egret.branches.create_volume(ByteSize::gib(1)).await.unwrap_err();
    assert_eq!(again.code(), "volume_unusable");
    egret.stop().await;
    home.config.volume = "auto".to_owned();
    let egret = home.start().await;
    assert_eq!(
        egret.ask("two", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("1000")
    );
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nearly_full_volume_refuses_new_branches_and_keeps_the_source() {
    let mut home = Home::new("full");
    home.config.volume_size = ByteSize::mib(700);
    home.config.free_min = ByteSize::mib(150);
    home.config.free_critical = ByteSize::mib(80);
    let egret = home.start().await;
    egret.make_app().await;
    // Younger than the one that grows, and no reason to stop.
    egret.branch("greedy").await;
    egret.branch("neighbour").await;
    egret.ask("greedy", "CREATE TABLE big (t text)").await.unwrap();
    // The branch fills the volume until it is suspended.
    let grow = "INSERT INTO big SELECT repeat(md5(n::text), 60) FROM generate_series(1, 5000) AS n";
    loop {
        let _ = egret.ask("greedy", grow).await;
        let shown = egret.branches.show(DEFAULT_TENANT, &name("greedy")).await;
        if shown.unwrap().branch.state == BranchState::Suspended {
            break;
        }
    }
    let neighbour = egret.branches.show(DEFAULT_TENANT, &name("neighbour")).await;
    assert_eq!(neighbour.unwrap().branch.state, BranchState::Running);
    let woken = egret.ask("greedy", grow).await.unwrap_err();
    assert!(matches!(woken, BranchesError::VolumeFull { .. }), "{woken}");
    let error = egret.branches.create(NewBranch::named(name("late"))).await.unwrap_err();
    assert!(matches!(error, BranchesError::VolumeFull { .. }), "{error}");
    let source = egret.source("app").await;
    source.batch_execute("UPDATE item SET name = 'still writable'").await.unwrap();
    egret.destroy("greedy").await;
    egret.assert_consistent().await;
    // The kernel frees the space of a deleted subvolume behind.
    eventually("the volume has room", async || {
        match egret.branches.create(NewBranch::named(name("late"))).await {
            Err(error @ BranchesError::VolumeFull { .. }) => Err(error),
            result => Ok(result.unwrap()),
        }
    })
    .await;
    egret.stop().await;
}

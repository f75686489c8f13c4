//! What the common group of a data directory is called, and was.

use super::*;

#[test]
fn a_directory_that_takes_the_place_of_another_has_another_group() {
    let place = tempfile::tempdir().unwrap();
    let (data, aside) = (place.path().join("data"), place.path().join("aside"));
    std::fs::create_dir(&data).unwrap();
    let first = group_name(&data).unwrap();
    assert_eq!(group_name(&data).unwrap(), first);
    // As it is in another mount namespace: the same path, and another directory.
    std::fs::rename(&data, &aside).unwrap();
    group_name(&data).unwrap_err();
    std::fs::create_dir(&data).unwrap();
    assert_ne!(group_name(&data).unwrap(), first);
}

#[test]
fn a_server_that_an_earlier_version_left_keeps_its_group_until_it_ends() {
    let Some(base) = TestGroup::new("former") else {
        return;
    };
    let former = former_group_name(&std::env::temp_dir()).unwrap();
    let former = base.0.child(&former);
    let (kept, foreign) = (former.child("kept-1"), former.child("foreign-1"));
    for group in [&former, &kept, &foreign] {
        group.create().unwrap();
    }
    let (mut server, mut stranger) = (server_in(&kept), server_in(&foreign));
    let groups = base.open(&[]);
    let adopted = groups.lease_of_process(server.id().cast_signed()).expect("its group");
    assert_eq!(adopted.group, kept);
    // An Egret with the same path in another mount namespace may have this one.
    assert_eq!(groups.remove_leftovers(), 0);
    adopted.release();
    assert!(!server.wait().unwrap().success(), "it is killed");
    assert!(!kept.path().exists());
    assert!(foreign.is_populated().unwrap());
    foreign.kill_and_remove(Duration::from_secs(60)).unwrap();
    stranger.wait().unwrap();
    drop(groups);
    // The next start removes what is empty.
    drop(base.open(&[]));
    assert!(!former.path().exists());
}

#[test]
fn servers_in_the_group_of_the_former_name_count_among_all_processes() {
    let Some(base) = TestGroup::new("former-count").filter(|base| base.has("pids")) else {
        return;
    };
    let groups = base.open(&["pids"]);
    let former = former_group_name(&std::env::temp_dir()).unwrap();
    let former = base.0.child(&former);
    let kept = former.child("kept-1");
    former.create().unwrap();
    kept.create().unwrap();
    let mut server = server_in(&kept);
    let state = groups.groups.as_ref().unwrap();
    assert_eq!(state.count_processes(), 1);
    kept.kill_and_remove(Duration::from_secs(60)).unwrap();
    server.wait().unwrap();
    assert_eq!(state.count_processes(), 0);
    drop(groups);
    former.kill_and_remove(Duration::from_secs(60)).unwrap();
}

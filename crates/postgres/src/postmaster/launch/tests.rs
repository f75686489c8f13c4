//! What a start that fails leaves behind: nothing.

use std::time::Duration;

use egret_postgres_test::{Guardian, test_directory};

use super::*;
use crate::cluster;
use crate::postmaster::{StopMode, pids_in_directory};
use crate::provision::{self, BinarySearchSpec};

async fn launch_in(directory: &Path) -> Launch {
    let spec =
        BinarySearchSpec { configured: None, cache: provision::default_cache(), major: Some(18) };
    let binaries = provision::find_or_fetch(&spec).await.unwrap();
    let owner = RunAsUser::resolve("egret").unwrap();
    let (data, socket_dir) = (directory.join("data"), directory.join("run"));
    let password = directory.join("password");
    cluster::create(&binaries, &data, &owner, &egret_base::SystemEntropy, &password).unwrap();
    cluster::create_private_directory(&socket_dir, &owner).unwrap();
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Launch {
        binaries,
        data,
        socket_dir,
        port: 5432,
        settings: vec![setting("listen_addresses", ""), setting("logging_collector", "off")],
        owner,
        isolation: None,
        log_file: directory.join("log"),
        oom_score_adj: 0,
        nice: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_watched_is_ended() {
    let directory = test_directory("unwatched");
    let _guardian = Guardian::new(&directory);
    let launch = launch_in(&directory).await;
    let (owned, data) = (launch.clone(), launch.data.clone());
    // As where this process has no descriptor left.
    let unwatched: Watch = |pid, data| {
        assert!(!process::is_zombie(pid.as_raw_nonzero().get()), "it runs");
        let error = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        Err(io_error("watch process", data)(error))
    };
    let started = tokio::task::spawn_blocking(move || start_watched(&owned, None, unwatched));
    let error = started.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("watch process"), "{error}");
    assert_eq!(pids_in_directory(&data), Vec::<i32>::new());
    // And the next start finds the directory free.
    let postmaster = Postmaster::launch(&launch).await.unwrap();
    let timeout = Duration::from_secs(60);
    postmaster.await_ready(timeout, &launch.log_file).await.unwrap();
    postmaster.stop(StopMode::Immediate, timeout).await;
}

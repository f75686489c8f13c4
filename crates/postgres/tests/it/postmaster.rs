//! Single postmasters of every version: readiness, failure to start, freezing.

use std::time::Duration;

use egret_postgres::cluster;
use egret_postgres::postmaster::{Launch, Postmaster, StopMode, kill_orphans, pids_in_directory};
use egret_postgres::{PostgresError, pool, tuning};
use egret_postgres_test::{Guardian, TestDatabase, binaries, owner, test_directory};

#[tokio::test(flavor = "multi_thread")]
async fn every_supported_version_serves() {
    for major in 15..=18 {
        let database = TestDatabase::create(major).await;
        let client = database.connect().await;
        let number: i32 = client
            .query_one("SELECT current_setting('server_version_num')::int", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(number / 10_000, major as i32);
    }
}

async fn launch(
    directory: &std::path::Path,
    settings: &[(&str, &str)],
) -> Result<(Postmaster, std::path::PathBuf), PostgresError> {
    let (binaries, owner) = (binaries(18).await, owner());
    let (data, socket_dir) = (directory.join("data"), directory.join("run"));
    if !cluster::is_complete(&data) {
        cluster::create(
            &binaries,
            &data,
            &owner,
            &egret_base::SystemEntropy,
            &directory.join("password"),
        )
        .unwrap();
        cluster::configure(&binaries, &data, &owner, &tuning::detect_machine(directory), 20)
            .unwrap();
    }
    cluster::create_private_directory(&socket_dir, &owner).unwrap();
    let mut all = vec![
        ("listen_addresses".to_owned(), String::new()),
        ("logging_collector".to_owned(), "off".to_owned()),
        ("shared_buffers".to_owned(), "16MB".to_owned()),
    ];
    all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let log_file = directory.join("log");
    let postmaster = Postmaster::launch(&Launch {
        binaries,
        data,
        socket_dir,
        port: 5432,
        settings: all,
        owner,
        log_file: log_file.clone(),
        oom_score_adj: 500,
        nice: 5,
        isolation: None,
    })
    .await?;
    postmaster.await_ready(Duration::from_secs(60), &log_file).await?;
    Ok((postmaster, log_file))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_setting_is_reported_with_the_servers_own_words() {
    let directory = test_directory("wrong");
    let _guardian = Guardian::new(&directory);
    let error = launch(&directory, &[("no_such_setting", "1")]).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("unrecognized configuration parameter"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_runs_on_after_it_is_thawed() {
    let directory = test_directory("freeze");
    let _guardian = Guardian::new(&directory);
    let (postmaster, _) = launch(&directory, &[]).await.unwrap();
    let connection = egret_postgres::superuser::socket_connection(
        &directory.join("run"),
        5432,
        egret_postgres::provision::DEFAULT_MAJOR,
        "postgres",
        "test",
    );
    let client = pool::connect(&connection).await.unwrap();
    let frozen = postmaster.freeze().unwrap();
    for pid in pids_in_directory(&directory.join("data")) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let state = stat.rsplit_once(") ").unwrap().1.chars().next();
        assert_eq!(state, Some('T'), "{stat}");
    }
    drop(frozen);
    let row = client.query_one("SELECT 'awake'", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "awake");
    let adjusted =
        std::fs::read_to_string(format!("/proc/{}/oom_score_adj", postmaster.pid())).unwrap();
    assert_eq!(adjusted.trim(), "500");
    postmaster.stop(StopMode::Fast, Duration::from_secs(30)).await;
    assert!(!postmaster.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_orphans_waits_for_their_end() {
    let directory = test_directory("orphans");
    let _guardian = Guardian::new(&directory);
    let (postmaster, _) = launch(&directory, &[]).await.unwrap();
    let frozen = postmaster.freeze().unwrap();
    // Killed while its children are stopped: they stay behind, as a busy backend would.
    let pid = rustix::process::Pid::from_raw(postmaster.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    postmaster.await_exit().await;
    let error = launch(&directory, &[]).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, PostgresError::StillInUse { .. }), "{error}");
    kill_orphans(&directory.join("data")).await;
    drop(frozen);
    let (again, _) = launch(&directory, &[]).await.unwrap();
    again.stop(StopMode::Immediate, Duration::from_secs(30)).await;
}

//! A start after a crash between any two steps of a change that goes through all partitions.

use std::path::Path;
use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{SystemClock, SystemEntropy};
use prometheus_client::registry::Registry;

use super::*;
use crate::config::QueueConfig;
use crate::worker::internal_enqueue::EnqueueRequest;
use crate::worker::new_task::NewTask;
use crate::worker::settings_change::SettingsChange;

const PARTITIONS: usize = 3;

async fn start(directory: &Path) -> Queues {
    let options = crate::worker::queues::Options {
        config: QueueConfig { partitions: PARTITIONS as u32, ..QueueConfig::default() },
        directory: directory.to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        destinations: Default::default(),
    };
    let queues = Queues::new(options, &mut Registry::default());
    queues.start().await.unwrap();
    queues
}

async fn restart(queues: Queues, directory: &Path) -> Queues {
    queues.stop().await;
    start(directory).await
}

/// Which partitions have the queue.
async fn partitions_with_queue(queues: &Queues, id: u32) -> Vec<usize> {
    let mut homes = Vec::new();
    for partition in 0..PARTITIONS {
        let has =
            queues.inner.run_in_turn(partition, move |turn| turn.state.queue_by_id(id).is_some());
        if has.await.unwrap() {
            homes.push(partition);
        }
    }
    homes
}

async fn create_queue(queues: &Queues, name: &str) -> u32 {
    let change = SettingsChange::default();
    queues.put_queue("t", name, &change).await.unwrap().id
}

async fn run(queues: &Queues, partition: usize, command: Command<'static>) {
    let asked = queues.inner.run_in_turn(partition, move |turn| turn.run(&command));
    asked.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_queue_that_was_being_made_is_made() {
    for steps in 1..=PARTITIONS {
        let home = tempfile::tempdir().unwrap();
        let queues = start(home.path()).await;
        create_queue(&queues, "before").await;
        let id = 2;
        for partition in 0..steps {
            let settings = QueueSettings::default();
            let defined = queues.define_in_partition(partition, id, "t", "half", &settings);
            defined.await.unwrap();
        }
        let queues = restart(queues, home.path()).await;
        assert_eq!(partitions_with_queue(&queues, id).await, [0, 1, 2], "after {steps} steps");
        assert_eq!(queues.view_queue("t", "half").await.unwrap().name, "half");
        assert_eq!(create_queue(&queues, "after").await, id + 1);
        queues.stop().await;
    }
}

#[tokio::test]
async fn a_queue_that_was_being_deleted_is_deleted() {
    for steps in 1..=PARTITIONS {
        let home = tempfile::tempdir().unwrap();
        let queues = start(home.path()).await;
        let id = create_queue(&queues, "half").await;
        for partition in (0..PARTITIONS).rev().take(steps) {
            run(&queues, partition, Command::DeleteQueue { queue: id }).await;
        }
        let queues = restart(queues, home.path()).await;
        assert!(partitions_with_queue(&queues, id).await.is_empty(), "after {steps} steps");
        assert!(queues.view_queue("t", "half").await.is_err());
        // Another one of the name is another queue, and stays.
        assert_eq!(create_queue(&queues, "half").await, id + 1);
        let queues = restart(queues, home.path()).await;
        assert_eq!(partitions_with_queue(&queues, id + 1).await, [0, 1, 2]);
        queues.stop().await;
    }
}

#[tokio::test]
async fn a_queue_that_was_being_changed_is_changed() {
    for steps in 1..=PARTITIONS {
        let home = tempfile::tempdir().unwrap();
        let queues = start(home.path()).await;
        let id = create_queue(&queues, "half").await;
        let settings = QueueSettings { max_attempts: 7, ..QueueSettings::default() };
        for partition in 0..steps {
            let defined = queues.define_in_partition(partition, id, "t", "half", &settings);
            defined.await.unwrap();
            let flow = Command::SetFlow { queue: id, paused: true, draining: false };
            run(&queues, partition, flow).await;
        }
        let queues = restart(queues, home.path()).await;
        for partition in 0..PARTITIONS {
            let asked = queues.inner.run_in_turn(partition, move |turn| {
                let here = turn.state.queue_by_id(id).unwrap();
                (here.settings.max_attempts, here.paused, here.draining)
            });
            assert_eq!(asked.await.unwrap(), (7, true, false), "after {steps} steps");
        }
        queues.stop().await;
    }
}

/// How many queues a partition knows.
async fn queues_of(queues: &Queues, partition: usize) -> usize {
    let asked = queues.inner.run_in_turn(partition, |turn| turn.state.queues().count());
    asked.await.unwrap()
}

/// The parts that have failed, each by name.
fn failed_partitions(queues: &Queues) -> Vec<String> {
    let parts = queues.failed_parts();
    parts.into_iter().map(|failed| failed.part).collect()
}

#[tokio::test]
async fn a_partition_whose_directory_is_gone_stops_only_itself() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start(directory.path()).await;
    create_queue(&queues, "q").await;
    queues.stop().await;
    std::fs::remove_dir_all(directory.path().join("001")).unwrap();
    let queues = start(directory.path()).await;
    assert_eq!(failed_partitions(&queues), ["queue/001"]);
    for partition in [0, 2] {
        let asked = queues.inner.run_in_turn(partition, |turn| turn.state.queues().count());
        assert!(asked.await.is_ok(), "partition {partition} serves");
    }
    let asked = queues.inner.run_in_turn(1, |_| ()).await;
    assert!(matches!(
        asked,
        Err(QueueError::PartitionUnusable { partition: 1, reason }) if reason.contains("001/log")
    ));
    queues.stop().await;
    assert!(!directory.path().join("001").exists());
    let mended = crate::repair::repair(directory.path(), "001", "now").unwrap();
    assert_eq!(mended.unwrap().action, "create it empty");
    let queues = start(directory.path()).await;
    assert_eq!(failed_partitions(&queues), Vec::<String>::new());
    queues.stop().await;
}

/// The first snapshot is damaged, and the log still begins with the first record.
#[tokio::test]
async fn a_damaged_snapshot_that_the_log_stands_for_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start(directory.path()).await;
    create_queue(&queues, "q").await;
    let before = queues_of(&queues, 1).await;
    queues.stop().await;
    let path = directory.path().join("001/snapshot-0000000000000003");
    std::fs::write(&path, b"EGRETQSN").unwrap();
    let queues = start(directory.path()).await;
    let parts = queues.failed_parts();
    let [failed] = parts.as_slice() else {
        panic!("one part has failed: {parts:?}");
    };
    assert_eq!(failed.part, "queue/001");
    for word in ["snapshot-0000000000000003 is damaged", "egret repair"] {
        assert!(failed.reason.contains(word), "{failed:?}");
    }
    queues.stop().await;
    let mended = crate::repair::repair(directory.path(), "001", "now").unwrap().unwrap();
    assert_eq!(
        (&*mended.action, &*mended.loss),
        ("leave out snapshot-0000000000000003: the log has its whole content", "nothing")
    );
    let kept = "001.damaged-now/snapshot-0000000000000003";
    assert!(directory.path().join(kept).exists());
    let queues = start(directory.path()).await;
    assert_eq!(queues_of(&queues, 1).await, before);
    queues.stop().await;
}

/// The snapshot is said to be of more records than the log has, as where the log is an older copy.
#[tokio::test]
async fn records_that_only_a_damaged_snapshot_had_are_named_as_lost() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start(directory.path()).await;
    create_queue(&queues, "q").await;
    let before = queues_of(&queues, 1).await;
    queues.stop().await;
    for number in [0x64, 0xc8] {
        let path = directory.path().join(format!("001/snapshot-{number:016x}"));
        std::fs::write(&path, b"EGRETQSN").unwrap();
    }
    let mended = crate::repair::repair(directory.path(), "001", "now").unwrap().unwrap();
    assert!(mended.loss.contains("changes to tasks"), "{mended:?}");
    assert!(mended.loss.ends_with(" to 199"), "{mended:?}");
    let queues = start(directory.path()).await;
    assert_eq!(failed_partitions(&queues), Vec::<String>::new());
    assert_eq!(queues_of(&queues, 1).await, before);
    queues.stop().await;
}

#[tokio::test]
async fn a_snapshot_of_a_later_version_is_not_repaired() {
    let directory = tempfile::tempdir().unwrap();
    start(directory.path()).await.stop().await;
    let mut later = b"EGRETQSN".to_vec();
    later.extend(9_u32.to_le_bytes());
    let path = directory.path().join("001/snapshot-0000000000000003");
    std::fs::write(&path, later).unwrap();
    let repaired = crate::repair::repair(directory.path(), "001", "now");
    let error = repaired.unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
    assert!(path.exists());
    // The other partitions are examined all the same.
    std::fs::remove_dir_all(directory.path().join("002")).unwrap();
    let examination = crate::repair::examine(directory.path());
    let unexamined: Vec<&str> =
        examination.unexamined.iter().map(|part| part.part.as_str()).collect();
    let findings = examination.findings.iter();
    let damaged: Vec<&str> = findings.map(|finding| finding.part.as_str()).collect();
    assert_eq!((unexamined, damaged), (vec!["queue/001"], vec!["queue/002"]));
}

#[tokio::test]
async fn a_flipped_bit_in_the_last_record_stops_only_its_partition() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start(directory.path()).await;
    create_queue(&queues, "q").await;
    queues.stop().await;
    let segment = directory.path().join("002/log/00000000000000000001.log");
    let mut content = std::fs::read(&segment).unwrap();
    let last = content.iter().rposition(|byte| *byte != 0).unwrap();
    content[last] ^= 1;
    std::fs::write(&segment, content).unwrap();
    let queues = start(directory.path()).await;
    let parts = queues.failed_parts();
    let [failed] = parts.as_slice() else {
        panic!("one part has failed: {parts:?}");
    };
    assert_eq!(failed.part, "queue/002");
    assert!(failed.reason.contains("log: corrupt segment"), "{failed:?}");
    assert!(queues.inner.run_in_turn(0, |_| ()).await.is_ok());
    assert!(queues.inner.run_in_turn(2, |_| ()).await.is_err());
    queues.stop().await;
}

#[tokio::test]
async fn a_start_knows_which_queues_have_priorities() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start(directory.path()).await;
    for (name, priority) in [("plain", None), ("usual", Some(5)), ("urgent", Some(9))] {
        create_queue(&queues, name).await;
        let task = NewTask { priority, ..NewTask::default() };
        let order = EnqueueRequest { tenant: "t", queue: name, task, origin: None };
        queues.enqueue_many(&[order]).await.remove(0).unwrap();
    }
    let queues = restart(queues, directory.path()).await;
    let has_priorities = |name| queues.find_queue("t", name).unwrap().has_priorities();
    let found = ["plain", "usual", "urgent"].map(has_priorities);
    assert_eq!(found, [false, false, true]);
    queues.stop().await;
}

//! Kills, full disks, callbacks that no receiver accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use egret_base::CodedError;
use egret_queue::model::{Backoff, Jitter, RetryPolicy, TaskId, TaskState};
use egret_queue::{Detail, NewTask, QueueConfig, ReportKind, SettingsChange};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::test_engine::{TENANT, TestEngine, WorkerEvent, config, run_with_timeout};

/// Where a program that is killed has its files.
pub const DIRECTORY: &str = "EGRET_TEST_QUEUE_DIRECTORY";

fn task(payload: &str) -> NewTask<'_> {
    NewTask { payload: payload.as_bytes(), ..NewTask::default() }
}

/// Not a test of its own: the program that is killed. Says on its output what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_of_the_kills() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let mut config = config();
    config.snapshot_after = egret_base::settings::ByteSize::mib(1);
    config.lease_grace = egret_base::settings::ConfigDuration::ms(0);
    let home = TestEngine::open(config, PathBuf::from(directory), None).await;
    let change = SettingsChange {
        lease_ms: Some(200),
        max_attempts: Some(10_000),
        ..SettingsChange::default()
    };
    home.create_queue("load", change).await;
    let hand = home.worker("load", 64).await;
    let say = |kind: char, ids: &mut dyn Iterator<Item = TaskId>| {
        let text: String = ids.map(|id| format!("{kind} {id}\n")).collect();
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap();
    };
    // The parent process kills it.
    let payload = "x".repeat(500);
    loop {
        let made = home.enqueue("load", &vec![task(&payload); 50]).await;
        say('E', &mut made.into_iter().map(|one| one.unwrap().id));
        for _ in 0..30 {
            // On a slow machine leases end before their tasks are looked at.
            let WorkerEvent::Task { id, lease, .. } = hand.next().await else {
                continue;
            };
            if hand.report(lease, ReportKind::Complete, &id.to_string()).await.is_ok() {
                say('C', &mut std::iter::once(id));
            }
            hand.worker.add_credits(1).unwrap();
        }
    }
}

/// A child that ends with its test.
pub struct ChildGuard(pub Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a test of this program as a program of its own, which is told where its files are.
pub fn start(test: &str, directory: &Path) -> ChildGuard {
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .args([test, "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    ChildGuard(child.unwrap())
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_or_done_twice_by_twenty_kills() {
    let kept = tempfile::tempdir().unwrap();
    let directory = kept.path().join("queue");
    let (mut made, mut done) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..20_u64 {
        let mut victim = start("faults::child_of_the_kills", &directory);
        let output = BufReader::new(victim.0.stdout.take().unwrap());
        // Anywhere in the load, and somewhere else each time.
        let enough = 80 + (round * 7919) % 400;
        let mut seen = 0;
        for line in output.lines() {
            let line = line.unwrap();
            if let Some(("E" | "C", id)) = line.split_once(' ') {
                let id: TaskId = id.parse().unwrap();
                if line.starts_with('E') {
                    assert!(made.insert(id), "an id came twice")
                } else {
                    assert!(done.insert(id), "{id} was completed twice")
                }
                seen += 1;
            }
            if seen == enough {
                victim.0.kill().unwrap();
            }
        }
        assert!(seen >= enough, "round {round} ended by itself after {seen} lines");
    }
    let home = TestEngine::open(config(), directory, None).await;
    let mut states: BTreeMap<TaskState, u64> = BTreeMap::new();
    for id in &made {
        let view = home.queues.task(TENANT, *id, Detail::Whole).await.unwrap();
        *states.entry(view.state).or_default() += 1;
        if done.contains(id) {
            assert_eq!(view.state, TaskState::Completed);
            assert_eq!(view.result, id.to_string().as_bytes());
        }
    }
    let counts = home.view("load").await;
    // What was not acknowledged before a kill may be there too, and is whole then.
    for (state, count) in states {
        assert!(counts.count(state) >= count, "{state:?}");
    }
    home.stop().await;
}

/// A file system of its own, so small that it is soon full.
pub struct SmallFileSystem(pub PathBuf);

impl SmallFileSystem {
    pub fn mount(parent: &Path, megabytes: u32) -> Option<Self> {
        let place = parent.join("small");
        std::fs::create_dir(&place).unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&place)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(place))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // A file may still be open for a moment, such as in a child that another test just starts.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_taken_in_and_work_goes_on() {
    // How far ahead of the writer the next segment is made differs from round to round.
    for payload_bytes in [200_000, 170_000, 140_000, 110_000, 80_000] {
        fill_a_disk(payload_bytes).await;
    }
}

async fn fill_a_disk(payload_bytes: usize) {
    let kept = tempfile::tempdir().unwrap();
    let Some(small) = SmallFileSystem::mount(kept.path(), 100) else {
        // Only root may mount.
        assert!(!rustix::process::geteuid().is_root());
        return;
    };
    let mut config = config();
    config.partitions = 1;
    // The disk is full before the tenant has as much as it may.
    config.tenant_tasks_bytes_max = egret_base::settings::ByteSize::gib(10);
    let home = TestEngine::open(config, small.0.join("queue"), None).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let payload = "x".repeat(payload_bytes);
    let mut made = 0;
    let refused = loop {
        match home.enqueue("mail", &[task(&payload)]).await.remove(0) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused.code(), refused.retryable()), ("queue_disk_full", true));
    assert!(made > 100, "{made}");
    let hand = home.worker("mail", 10).await;
    for _ in 0..100 {
        let (_, lease, _) = hand.task().await;
        hand.complete(lease, "done though the disk is full").await;
    }
    assert_eq!(home.view("mail").await.count(TaskState::Completed), 100);
    drop(hand);
    home.stop().await;
    drop(small);
}

/// Answers requests one after the other with the statuses given, and gives their heads and bodies.
async fn receive(listener: &TcpListener, statuses: &[&str]) -> Vec<(String, String)> {
    let mut requests = Vec::new();
    for status in statuses {
        let (mut stream, _) = run_with_timeout(listener.accept()).await.unwrap();
        let mut bytes = Vec::new();
        let (head, body) = loop {
            let read = stream.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "the request ends early");
            let text = String::from_utf8(bytes.clone()).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() == length {
                break (head, body.to_owned());
            }
        };
        requests.push((head, body));
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    requests
}

/// As a receiver computes it.
fn expected_signature(key: &str, at: &str, body: &str) -> String {
    let digits = key.as_bytes().as_chunks::<2>().0;
    let byte = |two: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let key: Vec<u8> = digits.iter().map(byte).collect();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{at}.{body}").as_bytes());
    let digest = mac.finalize().into_bytes();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_callback_is_signed_and_comes_again_until_it_is_taken() {
    let home = TestEngine::new(QueueConfig { callback_private: true, ..config() }).await;
    let change = SettingsChange {
        retry: Some(RetryPolicy {
            backoff: Backoff::Fixed,
            base_ms: 1,
            max_ms: 1,
            jitter: Jitter::None,
        }),
        ..SettingsChange::default()
    };
    home.create_queue("mail", change).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/told?by=egret", listener.local_addr().unwrap());
    let id = home.enqueue_one("mail", NewTask { callback_url: &url, ..task("x") }).await;
    let hand = home.worker("mail", 1).await;
    let (_, lease, _) = hand.task().await;
    hand.complete(lease, "fine").await;
    let requests = receive(&listener, &["500 Oops", "200 OK"]).await;
    let key = home.queues.callback_key(TENANT).unwrap();
    assert_ne!(key, home.queues.callback_key("other").unwrap());
    for (delivery, (head, body)) in (1..).zip(&requests) {
        assert!(head.starts_with("post /told?by=egret http/1.1"), "{head}");
        let signature = head.split("egret-signature: t=").nth(1).unwrap();
        let (at, signature) = signature.split_once(",v1=").unwrap();
        assert_eq!(signature[..64], expected_signature(&key, at, body), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["id"], id.to_string());
        assert_eq!(body["state"], "completed");
        assert_eq!(body["delivery"], delivery);
        assert_eq!(body["result_base64"], "ZmluZQ==");
    }
    let page = home.queues.list_queues(TENANT).await.unwrap();
    assert_eq!(page.len(), 1, "the callbacks' queue is nobody's");
    home.stop().await;
}

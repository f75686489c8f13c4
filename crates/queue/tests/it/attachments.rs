//! Results in files beside the log: whole or not there, and gone with their tasks.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use egret_base::CodedError;
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base_test::eventually;
use egret_queue::model::{Lease, Retention, TaskId, TaskState};
use egret_queue::testing::attachment;
use egret_queue::{
    Attachment, Defer, Detail, Format, NewTask, QueueConfig, QueueError, ReportKind, Reports,
    SettingsChange, Upload,
};
use expect_test::expect;

use crate::faults::{DIRECTORY, SmallFileSystem, start};
use crate::test_engine::{TENANT, TestEngine, TestWorker, config};

const TYPE: &str = "application/pdf";

/// Names of all files, in order.
fn files(home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![home.join("attachments")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path)
            } else {
                found.push(path.file_name().unwrap().to_string_lossy().into_owned())
            }
        }
    }
    found.sort();
    found
}

async fn lease_task(home: &TestEngine, hand: &TestWorker) -> (TaskId, Lease) {
    let id = home.enqueue_one("files", NewTask::default()).await;
    let (claimed, lease, _) = hand.task().await;
    assert_eq!(claimed, id);
    (id, lease)
}

async fn start_upload(
    home: &TestEngine,
    id: TaskId,
    lease: Lease,
    name: &str,
) -> Result<Upload, QueueError> {
    home.queues.start_upload(TENANT, id, lease, name, TYPE).await
}

async fn upload(
    home: &TestEngine,
    id: TaskId,
    lease: Lease,
    name: &str,
    bytes: &[u8],
) -> Result<Attachment, QueueError> {
    let mut upload = start_upload(home, id, lease, name).await?;
    for chunk in bytes.chunks(1 << 20) {
        upload.write(chunk).await?;
    }
    upload.finish().await
}

async fn complete(
    home: &TestEngine,
    hand: &TestWorker,
    lease: Lease,
    names: &[&str],
) -> Result<(), QueueError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let manifest = home.queues.build_manifest(TENANT, lease, &names).await?;
    let mut reports = Reports::new(&home.queues, TENANT)?;
    reports.add_attached(0, &lease.to_bytes(), b"{}", Format::Json, &manifest)?;
    hand.submit(reports).await
}

async fn read(home: &TestEngine, id: TaskId, name: &str) -> Result<Vec<u8>, QueueError> {
    let opened = home.queues.attachment(TENANT, id, name).await?;
    let mut bytes = Vec::new();
    let size_bytes = opened.attachment.size_bytes;
    opened.file.take(size_bytes).read_to_end(&mut bytes).unwrap();
    assert_eq!(crc32c::crc32c(&bytes), opened.attachment.crc32c);
    Ok(bytes)
}

/// Waits until the files are those.
async fn await_files(home: &TestEngine, expected: &[&str]) {
    eventually("the files are those expected", async || {
        let files = files(&home.directory);
        if files == expected { Ok(()) } else { Err(files) }
    })
    .await;
}

async fn engine_with_worker(config: QueueConfig) -> (TestEngine, TestWorker) {
    let home = TestEngine::new(config).await;
    home.create_queue("files", SettingsChange::default()).await;
    let hand = home.worker("files", 100).await;
    (home, hand)
}

#[tokio::test]
async fn what_a_completion_names_is_kept_and_the_rest_goes() {
    let (mut home, hand) = engine_with_worker(config()).await;
    let (id, lease) = lease_task(&home, &hand).await;
    let long = vec![7; 3_000_000];
    let sent = upload(&home, id, lease, "long.pdf", &long).await.unwrap();
    assert_eq!((sent.size_bytes, &*sent.content_type), (3_000_000, TYPE));
    upload(&home, id, lease, "empty", b"").await.unwrap();
    upload(&home, id, lease, "unnamed", b"x").await.unwrap();
    // Nothing is seen of it before the task is completed.
    assert_eq!(read(&home, id, "empty").await.unwrap_err().code(), "attachment_not_found");
    complete(&home, &hand, lease, &["long.pdf", "empty", "empty"]).await.unwrap();
    // The same again is accepted again.
    complete(&home, &hand, lease, &["long.pdf", "empty"]).await.unwrap();
    let token = format!("{:016x}", lease.token);
    let kept = [format!("{token}.empty"), format!("{token}.long.pdf")];
    home.queues.sweep_attachments().await.unwrap();
    assert_eq!(files(&home.directory), kept);
    drop(hand);
    home.restart().await;
    home.queues.sweep_attachments().await.unwrap();
    let view = home.queues.task(TENANT, id, Detail::Whole).await.unwrap();
    assert_eq!((view.state, &*view.result), (TaskState::Completed, &b"{}"[..]));
    assert_eq!((view.attachments.len(), &view.attachments[0]), (2, &sent));
    assert_eq!(read(&home, id, "long.pdf").await.unwrap(), long);
    assert_eq!(read(&home, id, "empty").await.unwrap(), b"");
    let stranger = home.queues.attachment("other", id, "empty").await;
    assert_eq!(stranger.unwrap_err().code(), "task_not_found");
    home.queues.delete_task(TENANT, id).await.unwrap();
    await_files(&home, &[]).await;
    home.stop().await;
}

#[tokio::test]
async fn only_the_lease_that_holds_a_task_may_attach() {
    let (home, hand) = engine_with_worker(config()).await;
    let (id, first) = lease_task(&home, &hand).await;
    upload(&home, id, first, "early", b"first").await.unwrap();
    let late = start_upload(&home, id, first, "late").await.unwrap();
    let said = ReportKind::Defer { delay_ms: 0, mode: Defer::Release };
    hand.report(first, said, "").await.unwrap();
    let (_, second, _) = hand.task().await;
    let lost = |outcome: Result<Attachment, QueueError>| outcome.unwrap_err().code();
    assert_eq!(lost(late.finish().await), "lease_lost");
    assert_eq!(lost(upload(&home, id, first, "more", b"").await), "lease_lost");
    let stranger = home.queues.start_upload("other", id, second, "x", TYPE).await;
    assert_eq!(stranger.err().map(|error| error.code()), Some("lease_lost"));
    // What another lease has sent cannot be named.
    let refused = complete(&home, &hand, second, &["early"]).await;
    assert_eq!(refused.unwrap_err().code(), "attachment_not_found");
    upload(&home, id, second, "early", b"second").await.unwrap();
    upload(&home, id, second, "early", b"second").await.unwrap();
    let other = upload(&home, id, second, "early", b"changed").await;
    assert_eq!(lost(other), "attachment_exists");
    complete(&home, &hand, second, &["early"]).await.unwrap();
    assert_eq!(lost(upload(&home, id, second, "more", b"").await), "lease_lost");
    assert_eq!(read(&home, id, "early").await.unwrap(), b"second");
    home.queues.sweep_attachments().await.unwrap();
    assert_eq!(files(&home.directory), [format!("{:016x}.early", second.token)]);
    drop(hand);
    home.stop().await;
}

#[tokio::test]
async fn limits_have_names_and_leave_nothing() {
    let mut small = config();
    small.attachment_bytes_max = ByteSize(10 << 10);
    small.attachments_max = 2;
    small.attachments_bytes_total_max = ByteSize(15 << 10);
    small.tenant_attachments_bytes_max = ByteSize(15 << 10);
    let (home, hand) = engine_with_worker(small).await;
    let (id, lease) = lease_task(&home, &hand).await;
    let refused = |outcome: Result<Attachment, QueueError>| outcome.unwrap_err().to_string();
    expect!["the attachment has 10241 bytes, but queue.attachment_bytes_max is 10240: send a reference instead"]
        .assert_eq(&refused(upload(&home, id, lease, "a", &[0; 10_241]).await));
    upload(&home, id, lease, "a", &[0; 10_240]).await.unwrap();
    let full = refused(upload(&home, id, lease, "b", &[0; 10_240]).await);
    assert!(full.contains("queue.attachments_bytes_total_max"), "{full}");
    upload(&home, id, lease, "b", b"").await.unwrap();
    let third = refused(upload(&home, id, lease, "c", b"").await);
    assert!(third.contains("queue.attachments_max"), "{third}");
    for name in ["", ".hidden", "a/b", "..", "a b", &"x".repeat(129)] {
        let refused = start_upload(&home, id, lease, name).await;
        assert_eq!(refused.err().map(|error| error.code()), Some("invalid_request"));
    }
    assert_eq!(files(&home.directory).len(), 2);
    // Room comes back with what goes.
    let said = ReportKind::Fail { permanent: true };
    hand.report(lease, said, "no").await.unwrap();
    home.queues.sweep_attachments().await.unwrap();
    assert_eq!(files(&home.directory), [""; 0]);
    let (id, lease) = lease_task(&home, &hand).await;
    upload(&home, id, lease, "b", &[0; 10_240]).await.unwrap();
    drop(hand);
    home.stop().await;
}

#[tokio::test]
async fn retention_takes_the_files_along() {
    let home = TestEngine::new(config()).await;
    let change = SettingsChange {
        completed: Some(Retention { age_ms: 0, count: 1 }),
        ..SettingsChange::default()
    };
    home.create_queue("files", change).await;
    let hand = home.worker("files", 100).await;
    let mut kept = String::new();
    // Ended tasks are counted in each of the two partitions by itself.
    for _ in 0..6 {
        let (id, lease) = lease_task(&home, &hand).await;
        upload(&home, id, lease, "a", b"bytes").await.unwrap();
        complete(&home, &hand, lease, &["a"]).await.unwrap();
        kept = format!("{:016x}.a", lease.token);
    }
    let count = home.view("files").await.count(TaskState::Completed) as usize;
    assert!(count < 6);
    eventually("old files are deleted", async || {
        let files = files(&home.directory);
        if files.len() <= count { Ok(()) } else { Err(files) }
    })
    .await;
    assert!(files(&home.directory).contains(&kept));
    home.queues.purge(TENANT, "files", &[]).await.unwrap();
    await_files(&home, &[]).await;
    drop(hand);
    home.stop().await;
}

#[tokio::test]
async fn a_damaged_file_is_told() {
    let (home, hand) = engine_with_worker(config()).await;
    let (id, lease) = lease_task(&home, &hand).await;
    upload(&home, id, lease, "a", b"bytes").await.unwrap();
    complete(&home, &hand, lease, &["a"]).await.unwrap();
    let name = format!("{:016x}.a", lease.token);
    let spread = format!("{:02x}", id.number() & 0xff);
    let path = home.directory.join("attachments").join(spread).join(id.to_string()).join(name);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let refused = read(&home, id, "a").await.unwrap_err();
    assert_eq!(refused.code(), "attachment_damaged");
    std::fs::remove_file(&path).unwrap();
    let refused = read(&home, id, "a").await.unwrap_err();
    assert_eq!(refused.code(), "attachment_not_found");
    drop(hand);
    home.stop().await;
}

#[tokio::test]
async fn on_a_full_disk_an_attachment_is_refused_and_its_task_completed_without() {
    let kept = tempfile::tempdir().unwrap();
    let Some(small) = SmallFileSystem::mount(kept.path(), 80) else {
        // Only root may mount.
        assert!(!rustix::process::geteuid().is_root());
        return;
    };
    let mut config = config();
    config.partitions = 1;
    let home = TestEngine::open(config, small.0.join("queue"), None).await;
    home.create_queue("files", SettingsChange::default()).await;
    let hand = home.worker("files", 1).await;
    let (id, lease) = lease_task(&home, &hand).await;
    upload(&home, id, lease, "fits", &[1; 1 << 20]).await.unwrap();
    let refused = upload(&home, id, lease, "large", &vec![0; 60 << 20]).await.unwrap_err();
    assert_eq!((refused.code(), refused.retryable()), ("queue_disk_full", true));
    assert_eq!(files(&home.directory).len(), 1);
    complete(&home, &hand, lease, &["fits"]).await.unwrap();
    assert_eq!(read(&home, id, "fits").await.unwrap(), [1; 1 << 20]);
    drop(hand);
    home.stop().await;
    drop(small);
}

/// Not a test of its own: the program that is killed while it has sent one attachment and sends
/// another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_attaches() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let home = TestEngine::open(config(), PathBuf::from(directory), None).await;
    home.create_queue("files", SettingsChange::default()).await;
    // Long enough for what is sent here, and still awaited by the test.
    let hand = home.worker_with("files", 1, Some(5_000)).await;
    let (id, lease) = lease_task(&home, &hand).await;
    upload(&home, id, lease, "sent", b"whole").await.unwrap();
    let mut upload = start_upload(&home, id, lease, "half").await.unwrap();
    upload.write(&[0; 4 << 20]).await.unwrap();
    println!("sent {id}");
    std::io::stdout().flush().unwrap();
    // The parent process kills it.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_kill_before_the_completion_leaves_nothing() {
    let kept = tempfile::tempdir().unwrap();
    let directory = kept.path().join("queue");
    let mut victim = start("attachments::child_that_attaches", &directory);
    let mut output = BufReader::new(victim.0.stdout.take().unwrap()).lines();
    let told = output.find(|line| line.as_ref().unwrap().starts_with("sent "));
    assert!(told.is_some(), "it ended by itself");
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    assert_eq!(files(&directory).len(), 2);
    let mut config = config();
    config.lease_grace = ConfigDuration::ms(0);
    let home = TestEngine::open(config, directory, None).await;
    // Another attempt begins when the lease is over.
    let hand = home.worker("files", 1).await;
    let (id, lease, _) = hand.task().await;
    home.queues.sweep_attachments().await.unwrap();
    assert_eq!(files(&home.directory), [""; 0]);
    upload(&home, id, lease, "sent", b"again").await.unwrap();
    complete(&home, &hand, lease, &["sent"]).await.unwrap();
    assert_eq!(read(&home, id, "sent").await.unwrap(), b"again");
    drop(hand);
    home.stop().await;
}

fn check(attachment: &Attachment, expected: expect_test::Expect) {
    let mut tail = Vec::new();
    attachment::put_tail(&mut tail, attachment);
    let hex: String = tail.iter().map(|byte| format!("{byte:02x}")).collect();
    expected.assert_eq(&hex);
    let whole = attachment.size_bytes + tail.len() as u64;
    let read = attachment::take_tail(&tail, whole, &attachment.name);
    assert_eq!(read.as_ref(), Ok(attachment));
    assert!(attachment::take_tail(&tail, whole + 1, "x").is_err());
    for at in 0..tail.len() {
        let mut damaged = tail.clone();
        damaged[at] ^= 1;
        assert!(attachment::take_tail(&damaged, whole, "x").is_err());
        assert!(attachment::take_tail(&tail[at + 1..], whole, "x").is_err());
    }
    let mut manifest = Vec::new();
    attachment::put_manifest(&mut manifest, std::slice::from_ref(attachment));
    manifest.extend_from_slice(b"rest");
    let (read, rest) = attachment::take_manifest(&manifest).unwrap();
    assert_eq!((&*read, rest), (std::slice::from_ref(attachment), &b"rest"[..]));
    for length in 0..manifest.len() - 4 {
        assert!(attachment::take_manifest(&manifest[..length]).is_err());
    }
}

/// Files of version 1 must be read for ever.
#[test]
fn the_end_of_a_file_is_written_as_ever() {
    let attachment = Attachment {
        name: "report.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        size_bytes: 300,
        crc32c: 0x0102_0304,
    };
    check(
        &attachment,
        expect!["746578742f706c61696e2c01000000000000040302010a00010010a198574547524554415454"],
    );
}

/// What a tenant's attachments take is not taken from others, before a restart and after.
#[tokio::test]
async fn a_tenant_leaves_room_for_attachments_of_others() {
    let mut small = config();
    small.attachments_bytes_total_max = ByteSize(100 << 10);
    let (mut home, hand) = engine_with_worker(small).await;
    let (id, lease) = lease_task(&home, &hand).await;
    let name = |number: usize| format!("a{number}");
    let mut sent = 0;
    let refused = loop {
        match upload(&home, id, lease, &name(sent), &[0; 10 << 10]).await {
            Ok(_) => sent += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(sent, 4, "{refused}");
    assert!(refused.contains("queue.tenant_attachments_bytes_max"), "{refused}");
    drop(hand);
    home.restart().await;
    // Egret knows again whose they are.
    let full = upload(&home, id, lease, &name(sent), &[0; 10 << 10]).await;
    let refused = full.unwrap_err().to_string();
    assert!(refused.contains("queue.tenant_attachments_bytes_max"), "{refused}");
    let other = SettingsChange::default();
    home.queues.put_queue("other", "files", &other).await.unwrap();
    let theirs = home.queues.get_or_create_queue("other", "files").await.unwrap();
    let chain = [egret_queue::ChainTask {
        queue: theirs,
        task: NewTask::default(),
        links: Vec::new(),
        origin: None,
    }];
    home.queues.enqueue_chain(&chain).await.unwrap();
    let spec = egret_queue::WorkSpec {
        queues: vec!["files".to_owned()],
        worker: "other".to_owned(),
        lease_ms: None,
    };
    let patience = std::time::Duration::ZERO;
    let claimed = home.queues.claim("other", &spec, 1, patience).await.unwrap();
    let (id, lease) = (claimed[0].id, claimed[0].lease);
    let attach = home.queues.start_upload("other", id, lease, "theirs", TYPE);
    let mut upload = attach.await.unwrap();
    upload.write(&[0; 10 << 10]).await.unwrap();
    upload.finish().await.unwrap();
    home.stop().await;
}

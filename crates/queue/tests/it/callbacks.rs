//! Callbacks to several receivers, of which some do not answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_queue::model::TaskState;
use egret_queue::{CallbackView, NewTask, QueueConfig, SettingsChange};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::test_engine::{TENANT, TestEngine, config, run_with_timeout};

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = listener.local_addr().unwrap().to_string();
    (listener, receiver)
}

/// Completes `count` tasks whose callbacks go to a URL.
async fn complete(home: &TestEngine, queue: &str, url: &str, count: usize) {
    let task = NewTask { callback_url: url, ..NewTask::default() };
    home.enqueue(queue, &vec![task; count]).await;
    let hand = home.worker(queue, 100).await;
    for _ in 0..count {
        let (_, lease, _) = hand.task().await;
        hand.complete(lease, "done").await;
    }
}

/// Takes connections and answers nothing, and counts them.
fn hang(listener: TcpListener) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let hanging = tokio::spawn(async move {
        let mut streams: Vec<TcpStream> = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.push(stream);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (count, hanging)
}

/// Takes one request, answers it, and gives back its head and body in lower case.
async fn receive(listener: &TcpListener, status: &str) -> (String, String) {
    let (mut stream, _) = run_with_timeout(listener.accept()).await.unwrap();
    let mut bytes = Vec::new();
    let request = loop {
        run_with_timeout(stream.read_buf(&mut bytes)).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        if body.len() == value_of(head, "content-length").parse::<usize>().unwrap() {
            break (head.to_owned(), body.to_owned());
        }
    };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    request
}

/// The value of a header.
fn value_of(head: &str, name: &str) -> String {
    let after = head.split(&format!("{name}: ")).nth(1).unwrap();
    after.lines().next().unwrap().to_owned()
}

/// Answers one request with success and gives the id of its task.
async fn accept_callback(listener: &TcpListener) -> String {
    let (head, _) = receive(listener, "200 OK").await;
    value_of(&head, "egret-task")
}

async fn list_callbacks(
    home: &TestEngine,
    state: Option<TaskState>,
    limit: usize,
) -> Vec<CallbackView> {
    let (mut callbacks, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = home.queues.callbacks(TENANT, None, state, limit, &cursor).await.unwrap();
        assert!(page.callbacks.len() <= limit);
        callbacks.extend(page.callbacks);
        match page.next {
            Some(next) => cursor = next,
            None => return callbacks,
        }
    }
}

/// The timeout is longer than the test's patience: whatever waits for the receiver that hangs is
/// not sent.
#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other() {
    let home = TestEngine::new(QueueConfig {
        callback_private: true,
        callback_timeout: ConfigDuration::secs(3_600),
        ..config()
    })
    .await;
    home.create_queue("mail", SettingsChange::default()).await;
    let (dead, dead_receiver) = listener().await;
    let (alive, alive_receiver) = listener().await;
    let (count, hanging) = hang(dead);
    let secret = format!("http://{dead_receiver}/hook?token=secret");
    complete(&home, "mail", &secret, 200).await;
    complete(&home, "mail", &format!("http://{alive_receiver}/"), 40).await;
    let mut told = BTreeSet::new();
    for _ in 0..40 {
        told.insert(accept_callback(&alive).await);
    }
    assert_eq!(told.len(), 40);
    let slots = home.config.callback_concurrency as usize / 4;
    assert!(count.load(Ordering::SeqCst) <= slots);
    let all = list_callbacks(&home, None, 7).await;
    let waiting: Vec<&CallbackView> =
        all.iter().filter(|callback| callback.receiver == dead_receiver).collect();
    let ids: BTreeSet<String> = waiting.iter().map(|one| one.id.to_string()).collect();
    assert_eq!(ids.len(), 200, "each is listed once");
    assert!(!format!("{all:?}").contains("secret"));
    assert!(
        waiting.iter().all(|one| one.queue == "mail" && one.task_state == TaskState::Completed)
    );
    let page = home.queues.callbacks("other", None, None, 100, "");
    assert!(page.await.unwrap().callbacks.is_empty());
    hanging.abort();
    home.stop().await;
}

/// A port on which nothing listens: the callbacks fail, wait for their next attempt, and say why.
#[tokio::test]
async fn callbacks_to_an_unreachable_receiver_are_listed_with_the_reason() {
    let home = TestEngine::new(QueueConfig { callback_private: true, ..config() }).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let (gone, receiver) = listener().await;
    drop(gone);
    complete(&home, "mail", &format!("http://{receiver}/"), 20).await;
    let failed = eventually("all callbacks wait for their next attempt", async || {
        let failed = list_callbacks(&home, Some(TaskState::Delayed), 100).await;
        if failed.len() == 20 { Ok(failed) } else { Err(failed) }
    })
    .await;
    for callback in &failed {
        assert!(!callback.error.is_empty(), "{callback:?}");
        assert!(callback.next_ms > 0, "{callback:?}");
    }
    let postponed = |one: &&CallbackView| one.error.starts_with("not sent");
    assert!(failed.iter().filter(postponed).count() > 0, "{failed:?}");
    home.stop().await;
}

/// The queue of a task may be deleted before its callback has arrived: that is still of the task's
/// tenant, and signed with that one's key.
#[tokio::test]
async fn a_callback_that_outlives_its_queue_is_of_its_tenant() {
    let home = TestEngine::new(QueueConfig { callback_private: true, ..config() }).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let (alive, receiver) = listener().await;
    complete(&home, "mail", &format!("http://{receiver}/"), 1).await;
    let (_, first) = receive(&alive, "500 Oops").await;
    home.queues.delete_queue(TENANT, "mail", true).await.unwrap();
    let (_, second) = receive(&alive, "200 OK").await;
    for body in [first, second] {
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["tenant"], TENANT);
    }
    home.stop().await;
}

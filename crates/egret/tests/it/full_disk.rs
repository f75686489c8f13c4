//! The queue on a real file system that is full: what is refused, what goes on, and what comes
//! back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use egret_base_test::eventually;
use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, Server};

/// Bytes of a payload, and tasks of a request.
const PAYLOAD_BYTES: usize = 100_000;
const BATCH: usize = 20;

/// An ext4 of its own in a file, mounted where the queue keeps its logs.
struct Disk(PathBuf);

impl Disk {
    /// `None` where nothing may be mounted.
    fn mount(place: &Place, megabytes: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            egret_base_test::not_checked("a disk of its own takes root");
            return None;
        }
        let (image, mounted) = (place.directory.join("disk"), place.data_dir().join("queue"));
        std::fs::create_dir_all(&mounted).unwrap();
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(u64::from(megabytes) << 20).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &mounted]));
        let disk = Self(mounted);
        std::fs::remove_dir(disk.0.join("lost+found")).unwrap();
        Some(disk)
    }

    fn free_bytes(&self) -> u64 {
        let status = rustix::fs::statvfs(&self.0).unwrap();
        status.f_bavail * status.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A file may still be open for a moment, such as in a child that another test just starts.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// A server, and what it has acknowledged.
struct FullDiskServer<'a> {
    place: &'a Place,
    server: Option<Server>,
    http: reqwest::Client,
    /// The payload's number of each task, by id.
    known: BTreeMap<String, u64>,
    next: u64,
}

/// A payload that is another one for each number.
fn payload(number: u64) -> String {
    format!("{number} {}", "x".repeat(PAYLOAD_BYTES))
}

impl<'a> FullDiskServer<'a> {
    fn start(place: &'a Place) -> Self {
        Self {
            server: Some(place.start(&["serve"])),
            place,
            http: client(),
            known: BTreeMap::new(),
            next: 0,
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let token = std::fs::read_to_string(self.place.data_dir().join("admin.token")).unwrap();
        let url = format!("http://127.0.0.1:{}{path}", self.place.ports[0]);
        let request = self.http.request(method.clone(), url).bearer_auth(token.trim());
        let request = match method {
            Method::GET => request,
            _ => request.json(&body),
        };
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn done(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!(status.is_success(), "{path}: {status}: {answer}");
        answer
    }

    /// Enqueues a batch; `false` when some of it is refused because the disk is full.
    async fn enqueue(&mut self, delay_ms: u64) -> bool {
        let first = self.next;
        self.next += BATCH as u64;
        let task = |number| json!({"payload": payload(number), "delay_ms": delay_ms});
        let tasks: Vec<Value> = (first..self.next).map(task).collect();
        let answer = self.done(Method::POST, "/v1/queues/q/tasks", json!(tasks)).await;
        let mut all = true;
        for (number, item) in (first..).zip(answer["items"].as_array().unwrap()) {
            match item["id"].as_str() {
                Some(id) => {
                    self.known.insert(id.to_owned(), number);
                }
                None => {
                    assert_eq!(item["error"]["code"], "queue_disk_full", "{item}");
                    assert_eq!(item["error"]["retryable"], true);
                    all = false;
                }
            }
        }
        all
    }

    /// Enqueues until the disk is full, and checks the answer to that.
    async fn fill(&mut self) {
        while self.enqueue(0).await {}
        let one = json!({"payload": payload(0)});
        let (status, problem) = self.ask(Method::POST, "/v1/queues/q/tasks", one).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
        assert_eq!(problem["code"], "queue_disk_full");
        let detail = problem["detail"].as_str().unwrap();
        let inside = self.place.directory.to_str().unwrap();
        assert!(!detail.contains(inside), "a tenant need not know: {detail}");
        let ready = self.done(Method::GET, "/readyz", Value::Null).await;
        let names = ready["conditions"].as_array().unwrap();
        assert!(names.contains(&json!("queue_log_full")), "{ready}");
    }

    /// Claims and completes so many tasks.
    async fn work(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let asked = json!({"max": left.min(10), "wait_ms": 10_000});
            let claimed = self.done(Method::POST, "/v1/queues/q/claim", asked).await;
            for task in claimed["items"].as_array().unwrap() {
                let id = task["id"].as_str().unwrap();
                assert_eq!(task["payload"], payload(self.known[id]));
                let report = json!({"lease": task["lease"], "result": self.known[id]});
                self.done(Method::POST, &format!("/v1/tasks/{id}/complete"), report).await;
                left -= 1;
            }
        }
    }

    async fn task(&self, id: &str) -> Value {
        let path = format!("/v1/tasks/{id}");
        self.done(Method::GET, &path, Value::Null).await
    }

    /// Every acknowledged task is there, with what it carries; how many are completed.
    async fn count_completed(&self) -> usize {
        let mut completed = 0;
        for (id, number) in &self.known {
            let task = self.task(id).await;
            assert_eq!(task["payload"], payload(*number), "{id}");
            if task["state"] == "completed" {
                assert_eq!(task["result"], *number, "{id}");
                completed += 1;
            }
        }
        completed
    }

    /// Purges tasks in a state, of which nothing is known from then on.
    async fn purge(&mut self, state: &str) {
        let mut gone = Vec::new();
        for id in self.known.keys() {
            if self.task(id).await["state"] == state {
                gone.push(id.clone());
            }
        }
        let asked = json!({"states": [state]});
        let purged = self.done(Method::POST, "/v1/queues/q/purge", asked).await;
        assert_eq!(purged["deleted"], gone.len());
        self.known.retain(|id, _| !gone.contains(id));
    }

    fn kill_and_start(&mut self) {
        self.server.take().expect("it runs").kill();
        self.server = Some(self.place.start(&["serve"]));
    }
}

/// A client that speaks HTTP/1.1 and follows no proxy.
fn client() -> reqwest::Client {
    // Every test may be the first; the others find it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn leave(file: &Path, bytes: usize) {
    std::fs::write(file, vec![b'x'; bytes]).unwrap();
    std::fs::File::open(file).unwrap().sync_all().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_tasks_loses_none_and_takes_them_again_when_there_is_room() {
    let mut place = Place::new("full");
    let variables = [
        ("EGRET_QUEUE_PARTITIONS", "1"),
        // As small as it may be.
        ("EGRET_QUEUE_SEGMENT_SIZE", "13MB"),
        // The disk is full before the tenant has as much as it may.
        ("EGRET_QUEUE_TENANT_TASKS_BYTES_MAX", "10GB"),
    ];
    let variables = variables.map(|(name, value)| (name, value.to_owned()));
    place.variables.extend(variables);
    let Some(disk) = Disk::mount(&place, 144) else {
        return;
    };
    let foreign = disk.0.parent().unwrap().join("queue/foreign");
    let mut site = FullDiskServer::start(&place);
    site.done(Method::PUT, "/v1/queues/q", json!({})).await;
    // These stay until the end, through every compaction.
    assert!(site.enqueue(86_400_000).await);
    leave(&foreign, 50 << 20);
    site.fill().await;
    assert!(disk.free_bytes() < 16 << 20, "{}", disk.free_bytes());
    site.work(50).await;
    assert!(!site.enqueue(0).await, "the reserve is for work");

    // A crash of Egret in that state loses nothing, and work goes on after it.
    site.kill_and_start();
    assert_eq!(site.count_completed().await, 50);
    site.work(50).await;
    site.kill_and_start();
    assert_eq!(site.count_completed().await, 100);

    // What others have left there goes: tasks are taken in again by themselves.
    std::fs::remove_file(&foreign).unwrap();
    eventually("tasks are accepted again", async || site.enqueue(0).await).await;
    site.fill().await;

    // What is purged makes room as well, though a purge itself adds next to nothing to the log.
    site.purge("completed").await;
    site.purge("ready").await;
    eventually("tasks are accepted again", async || site.enqueue(0).await).await;
    site.fill().await;
    site.work(20).await;
    let known = site.known.len();
    site.kill_and_start();
    assert_eq!(site.count_completed().await, 20);
    assert_eq!(site.known.len(), known);

    let FullDiskServer { server, .. } = site;
    server.expect("it runs").stop(Signal::TERM);
    let log = place.log();
    assert!(log.contains("the queue accepts no tasks"), "{log}");
    assert!(log.contains("the queue accepts tasks again"), "{log}");
    assert!(!log.contains(" ERROR "), "{log}");
    // Each start of Egret opens the volume first.
    for run in log.split("the volume is open") {
        let lines = run.lines().filter(|line| line.contains("\"queue_log_full\""));
        let begins: Vec<bool> = lines.map(|line| line.contains(" WARN ")).collect();
        let turns = (0..begins.len()).map(|at| at % 2 == 0);
        assert!(turns.eq(begins), "its start and its end, in turn: {run}");
    }
    drop(disk);
}

//! Ten thousand connections that say nothing, beside those that work.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_base_test::eventually;
use egret_proto::queue::v1;
use egret_proto::queue::v1::queue_client::QueueClient;
use egret_proto::queue::v1::task_report::Report;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::place::{Place, Server};

/// Connections of which nothing ever comes, and the workers among them that have opened a stream
/// and take nothing.
const IDLE: u64 = 10_000;
const WORKERS: u64 = 1_000;

/// Files that tests and server need beside.
const OTHERS: u64 = 1_000;

/// Files of the server's own, such as segments and sessions of its pools, that come and go.
const OWN_FILES: u64 = 64;

/// What a connection may cost the server on average, in bytes of resident memory: a task each,
/// hyper's buffers, and for a worker its stream and its session in every partition.
const BYTES_PER_CONNECTION: u64 = 48 << 10;

/// Connections opened at a time.
const AT_ONCE: usize = 64;

/// How many connections this machine allows; said where it is fewer than wanted.
fn allowed() -> u64 {
    let known = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: known.maximum, maximum: known.maximum };
    setrlimit(Resource::Nofile, raised).unwrap();
    let most = known.maximum.unwrap_or(u64::MAX);
    let count = IDLE.min(most.saturating_sub(OTHERS));
    if count < IDLE {
        eprintln!("only {count} of {IDLE} connections: the hard limit on open files is {most}");
    }
    assert!(count > WORKERS, "the hard limit on open files, {most}, is too low to test anything");
    count
}

/// What the kernel says of the server: files that are open, how many may be, bytes of memory.
fn open_files(server: &Server) -> u64 {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    entries.count() as u64
}

fn open_files_max(server: &Server) -> Vec<String> {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let numbers = line.unwrap().split_whitespace().take(2);
    numbers.map(str::to_owned).collect()
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() << 10
}

/// A connection from one of several addresses, of which each has its own ports.
async fn connect(port: u16, number: u64) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let from = [127, 0, 0, 2 + (number % 8) as u8];
    socket.bind((from, 0).into()).unwrap();
    socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
}

struct IdleServer {
    place: Place,
    server: Server,
    token: String,
    http: reqwest::Client,
}

impl IdleServer {
    fn start() -> Self {
        let mut place = Place::new("idle");
        // As most systems begin; it is the server's to want more.
        place.runner = vec!["prlimit", "--nofile=1024:"];
        let variables = [
            // An idle connection is closed after this.
            ("EGRET_SERVER_HEADER_TIMEOUT", "1h"),
            ("EGRET_QUEUE_DURABILITY", "none"),
        ];
        let variables = variables.map(|(name, value)| (name, value.to_owned()));
        place.variables.extend(variables);
        let server = place.start(&["serve"]);
        let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
        // Every test may be the first; the others find it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Connections of its own go with their answers: what is counted is the others'.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
        Self { http: http.build().unwrap(), token: token.trim().to_owned(), place, server }
    }

    async fn put(&self, path: &str) -> Value {
        self.ask(Method::PUT, path, json!({})).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let url = format!("http://127.0.0.1:{}{path}", self.place.ports[0]);
        let request = self.http.request(method, url).bearer_auth(&self.token).json(&body);
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// What the server counts as open.
    async fn connections(&self) -> u64 {
        let url = format!("http://127.0.0.1:{}/metrics", self.place.ports[0]);
        let request = self.http.get(url).bearer_auth(&self.token);
        let text = request.send().await.unwrap().text().await.unwrap();
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("egret_http_connections_open "));
        count.unwrap().parse().unwrap()
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", self.token).parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        request
    }

    async fn client(&self) -> QueueClient<Channel> {
        let url = format!("http://127.0.0.1:{}", self.place.ports[0]);
        let channel = Channel::from_shared(url).unwrap().connect().await;
        QueueClient::new(channel.unwrap())
    }

    /// A worker over a connection of its own that is there and takes nothing.
    async fn worker(&self) -> (QueueClient<Channel>, Streaming<v1::WorkResponse>) {
        let mut client = self.client().await;
        let hello = v1::WorkRequest {
            hello: Some(v1::Hello { queues: vec!["q".to_owned()], ..v1::Hello::default() }),
            ..v1::WorkRequest::default()
        };
        let messages = stream::iter([hello]).chain(stream::pending());
        let mut answers = client.work(self.request(messages)).await.unwrap().into_inner();
        let first = answers.message().await.unwrap().expect("it begins");
        assert!(first.welcome.is_some());
        (client, answers)
    }

    /// A hundred tasks made, taken and completed over HTTP.
    async fn work_over_http(&self) {
        let tasks: Vec<Value> = (0..100).map(|number| json!({"payload": number})).collect();
        let made = self.post("/v1/queues/q/tasks", json!(tasks)).await;
        let made = ids(&made);
        let mut seen = BTreeSet::new();
        while seen.len() < 100 {
            let asked = json!({"max": 50, "wait_ms": 10_000});
            let claimed = self.post("/v1/queues/q/claim", asked).await;
            let reports = claimed["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|task| json!({"complete": {"lease": task["lease"]}}));
            let answer = self.post("/v1/reports", reports.collect()).await;
            for outcome in answer["items"].as_array().unwrap() {
                assert_eq!(outcome, &json!({"accepted": true}));
            }
            seen.extend(ids(&claimed));
        }
        assert_eq!(seen, made);
    }

    /// The same over gRPC.
    async fn work_over_grpc(&self) {
        let mut client = self.client().await;
        let asked = v1::EnqueueRequest {
            queue: "q".to_owned(),
            tasks: vec![v1::NewTask::default(); 100],
            atomic: false,
        };
        let made: BTreeSet<String> = client
            .enqueue(self.request(asked))
            .await
            .unwrap()
            .into_inner()
            .outcomes
            .into_iter()
            .map(|one| one.id)
            .collect();
        let mut seen = BTreeSet::new();
        while seen.len() < 100 {
            let asked = v1::ClaimRequest {
                queues: vec!["q".to_owned()],
                max: 50,
                wait_ms: 10_000,
                ..v1::ClaimRequest::default()
            };
            let claimed = client.claim(self.request(asked)).await.unwrap();
            let tasks = claimed.into_inner().tasks;
            let reports = tasks.iter().map(|task| v1::TaskReport {
                lease: task.lease.clone(),
                report: Some(Report::Completed(v1::Completed::default())),
            });
            let asked = v1::ReportRequest { reports: reports.collect() };
            let answer = client.report(self.request(asked)).await.unwrap();
            let outcomes = answer.into_inner().outcomes;
            assert!(outcomes.iter().all(|outcome| outcome.error.is_none()));
            seen.extend(tasks.into_iter().map(|task| task.id));
        }
        assert_eq!(seen, made);
    }
}

fn ids(answer: &Value) -> BTreeSet<String> {
    let items = answer["items"].as_array().unwrap().iter();
    items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the number of open connections is as expected.
async fn await_connections(site: &IdleServer, is_expected: impl Fn(u64) -> bool) {
    eventually("connections are open as expected", async || {
        let open = site.connections().await;
        if is_expected(open) { Ok(()) } else { Err(open) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_leave_the_others_alone() {
    let count = allowed();
    let site = Arc::new(IdleServer::start());
    // The clients have a runtime of their own, with which they go all at once.
    let clients = Runtime::new().unwrap();
    let [soft, hard] = open_files_max(&site.server).try_into().unwrap();
    assert_eq!(soft, hard, "it takes what it may");
    site.put("/v1/queues/q").await;
    site.work_over_http().await;
    site.work_over_grpc().await;
    // No other connection is open by now, but for the one that asks.
    await_connections(&site, |open| open <= 1).await;
    let (files, bytes) = (open_files(&site.server), resident_bytes(&site.server));

    let port = site.place.ports[0];
    let workers = stream::iter(0..WORKERS).map(|_| {
        let site = site.clone();
        clients.spawn(async move { site.worker().await })
    });
    let workers: Vec<_> = workers.buffer_unordered(AT_ONCE).try_collect().await.unwrap();
    let idle = stream::iter(WORKERS..count).map(|number| connect(port, number));
    let idle: Vec<TcpStream> = idle.buffer_unordered(AT_ONCE).collect().await;
    await_connections(&site, |open| open > count).await;
    assert!(open_files(&site.server) > count);
    site.work_over_http().await;
    site.work_over_grpc().await;
    let grown = resident_bytes(&site.server).saturating_sub(bytes);
    eprintln!("{count} idle connections: {} bytes each", grown / count);
    assert!(grown <= count * BYTES_PER_CONNECTION, "{grown} bytes more for {count} connections");

    drop((workers, idle));
    clients.shutdown_background();
    await_connections(&site, |open| open <= 1).await;
    eventually("the server closes its files", async || {
        let open = open_files(&site.server);
        if open > files + OWN_FILES { Err(open) } else { Ok(()) }
    })
    .await;
    site.work_over_http().await;
    let site = Arc::into_inner(site).expect("the clients are gone");
    let IdleServer { place, server, .. } = site;
    server.stop(Signal::TERM);
    let log = place.log();
    let loud = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let loud: Vec<&str> = log.lines().filter(loud).collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

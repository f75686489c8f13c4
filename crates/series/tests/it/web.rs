//! An HTTP server of a test's own, and series in memory that loops write to and read from.

use std::sync::{Arc, Mutex};

use egret_base::lifecycle::BoxFuture;
use egret_base_test::eventually;
use egret_metrics_model::{Labels, Matcher, TimeMs, TimeSpan};
use egret_promql::{Answer as QueryAnswer, EvalOptions, MemorySource, Query, QueryError};
use egret_series::core::metadata::{Describe, Description, MetadataEntry, MetadataStore};
use egret_series::core::rules::{Evaluate, NewSample, last_samples};
use egret_series::worker::{Append, AppendError, AppendResult};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method, path and query.
    pub line: String,
    /// With names in lower case.
    pub head: String,
    pub body: String,
}

/// What is answered; nothing: the connection stays open and silent.
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(body: &str) -> Self {
        Self {
            status: 200,
            headers: "content-type: text/plain; version=0.0.4\r\n".to_owned(),
            body: body.into(),
        }
    }

    pub fn status(status: u16) -> Self {
        Self { status, headers: String::new(), body: Vec::new() }
    }
}

pub struct Web {
    pub address: String,
    pub requests: mpsc::UnboundedReceiver<Request>,
}

/// Answers requests until the test ends.
pub async fn serve(answer: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Web {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let (sender, requests) = mpsc::unbounded_channel();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_connection(stream, answer.clone(), sender.clone()));
        }
    });
    Web { address, requests }
}

async fn serve_connection(
    mut stream: TcpStream,
    answer: Arc<impl Fn(&Request) -> Option<Answer>>,
    requests: mpsc::UnboundedSender<Request>,
) {
    let mut read = Vec::new();
    loop {
        let request = loop {
            if let Some(request) = parse_request(&mut read) {
                break request;
            }
            let mut chunk = [0; 4_096];
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(count) => read.extend_from_slice(&chunk[..count]),
            }
        };
        let answered = answer(&request);
        let _ = requests.send(request);
        let Some(Answer { status, headers, body }) = answered else {
            let _ = stream.read(&mut [0; 1]).await;
            return;
        };
        let head =
            format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n", body.len());
        if stream.write_all(head.as_bytes()).await.is_err()
            || stream.write_all(&body).await.is_err()
        {
            return;
        }
    }
}

/// A whole request, if it is there.
fn parse_request(read: &mut Vec<u8>) -> Option<Request> {
    let text = String::from_utf8_lossy(read).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let (line, head) = head.split_once("\r\n").unwrap_or((head, ""));
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
    let body = rest.get(..length)?.to_owned();
    let request = Request { line: line.trim_end_matches(" HTTP/1.1").to_owned(), head, body };
    let taken = text.find("\r\n\r\n").expect("it was found before") + 4 + length;
    read.drain(..taken);
    Some(request)
}

/// Series in memory, and what is said of metrics.
pub struct Memory {
    source: Mutex<MemorySource>,
    metadata: Mutex<MetadataStore>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<NewSample>>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            source: Mutex::default(),
            metadata: Mutex::new(MetadataStore::new(1 << 20)),
            listeners: Mutex::default(),
        }
    }
}

impl Memory {
    pub fn set(&self, labels: &[(&str, &str)], time: TimeMs, value: f64) {
        let labels = Labels::new(labels.iter().copied());
        self.source.lock().expect("no panic").add(&labels, time, value);
    }

    /// Samples that are appended from now on.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<NewSample> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners.lock().expect("no panic").push(sender);
        receiver
    }
}

impl Append for Memory {
    fn append<'a>(
        &'a self,
        samples: &'a [NewSample],
    ) -> BoxFuture<'a, Result<AppendResult, AppendError>> {
        Box::pin(async move {
            let mut source = self.source.lock().expect("no panic");
            let mut listeners = self.listeners.lock().expect("no panic");
            for sample in samples {
                source.add(&sample.labels, sample.time_ms, sample.value);
                listeners.retain(|listener| listener.send(sample.clone()).is_ok());
            }
            Ok(AppendResult::default())
        })
    }

    fn append_scrape<'a>(
        &'a self,
        samples: &'a [NewSample],
        report: &'a [NewSample],
    ) -> BoxFuture<'a, Result<AppendResult, AppendError>> {
        Box::pin(async move {
            self.append(samples).await?;
            self.append(report).await
        })
    }
}

impl Describe for Memory {
    fn describe(&self, description: Description<'_>) -> Option<Arc<MetadataEntry>> {
        let mut metadata = self.metadata.lock().expect("no panic");
        metadata.add(description, 0)
    }
}

impl Evaluate for Memory {
    fn instant(&self, query: &Query, at: TimeMs) -> Result<QueryAnswer, QueryError> {
        query.instant(&*self.source.lock().expect("no panic"), at, &EvalOptions::default())
    }

    fn last_samples(
        &self,
        matchers: Vec<Matcher>,
        range: TimeSpan,
    ) -> Result<Vec<(Labels, TimeMs, f64)>, QueryError> {
        last_samples(&*self.source.lock().expect("no panic"), matchers, range)
    }
}

/// The first thing that comes which is wanted.
pub async fn first_matching<T: std::fmt::Debug>(
    receiver: &mut mpsc::UnboundedReceiver<T>,
    what: &str,
    wanted: impl Fn(&T) -> bool,
) -> T {
    eventually(what, async || {
        let next = receiver.recv().await.expect("the sender is there");
        if wanted(&next) { Ok(next) } else { Err(next) }
    })
    .await
}

//! gRPC as a client of ours speaks it: the generated client, with a token on every call.

use std::time::Duration;

use egret_proto::queue::v1;
use egret_proto::queue::v1::queue_client::QueueClient;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::rig::Rig;

/// Longer than anything that works takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What comes soon, or the test fails.
pub async fn within_timeout<T>(coming: impl Future<Output = T>) -> T {
    let coming = tokio::time::timeout(TIMEOUT, coming).await;
    coming.expect("it comes within a minute")
}

/// Puts a token on every call.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert("authorization", self.0.clone());
        Ok(request)
    }
}

pub type Client = QueueClient<InterceptedService<Channel, Bearer>>;

impl Rig {
    /// A connection of its own.
    pub async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(self.test_server.base.clone()).unwrap();
        within_timeout(endpoint.connect()).await.unwrap()
    }

    /// A client over a connection of its own.
    pub async fn client_of(&self, token: &str) -> Client {
        let bearer = Bearer(format!("Bearer {token}").parse().unwrap());
        QueueClient::with_interceptor(self.channel().await, bearer)
    }

    /// A client with the admin token over a connection that is there.
    pub fn client_over(&self, channel: Channel) -> Client {
        let bearer = Bearer(format!("Bearer {}", self.test_server.admin).parse().unwrap());
        QueueClient::with_interceptor(channel, bearer)
    }

    /// The same with the admin token.
    pub async fn grpc(&self) -> Client {
        self.client_of(&self.test_server.admin).await
    }
}

/// Asserts what a refused call ends with, and gives back the message.
pub fn expect_error(status: &Status, code: Code, egret_code: &str) -> String {
    let found = status.metadata().get("egret-code").map(|code| code.to_str().unwrap());
    assert_eq!((status.code(), found), (code, Some(egret_code)), "{status:?}");
    status.message().to_owned()
}

/// A task that carries this text.
pub fn task(payload: &'static str) -> v1::NewTask {
    v1::NewTask { payload: payload.into(), ..v1::NewTask::default() }
}

/// Enqueues tasks and gives back their ids.
pub async fn enqueue(client: &mut Client, queue: &str, tasks: &[&'static str]) -> Vec<String> {
    let asked = v1::EnqueueRequest {
        atomic: false,
        queue: queue.to_owned(),
        tasks: tasks.iter().map(|payload| task(payload)).collect(),
    };
    let answer = within_timeout(client.enqueue(asked)).await.unwrap().into_inner();
    let made = answer.outcomes.into_iter();
    made.map(|one| match one.error {
        None => one.id,
        Some(error) => panic!("{error:?}"),
    })
    .collect()
}

/// Sends a client's messages on a stream; its side is closed when this is dropped.
pub type Outgoing<T> = UnboundedSender<T>;

/// A side of a stream to send on, and what the call is made with.
pub fn outgoing<T: Send + 'static>() -> (Outgoing<T>, impl futures_util::Stream<Item = T> + Send) {
    let (sender, receiver) = unbounded_channel();
    let messages = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let next = receiver.recv().await?;
        Some((next, receiver))
    });
    (sender, messages)
}

/// A worker's side of a `Work` stream.
pub struct WorkerStream {
    pub out: Option<Outgoing<v1::WorkRequest>>,
    answers: Streaming<v1::WorkResponse>,
    /// Fields that were received and not taken yet.
    unread: v1::WorkResponse,
}

impl WorkerStream {
    /// Begins with these queues, credits, and a lease time.
    pub async fn begin(client: &mut Client, queue: &str, credits: u32, lease_ms: u64) -> Self {
        let mut hand = Self::open(client).await;
        hand.send(v1::WorkRequest {
            hello: Some(v1::Hello {
                queues: vec![queue.to_owned()],
                worker: "w".to_owned(),
                lease_ms,
            }),
            credits,
            ..v1::WorkRequest::default()
        });
        let welcome = hand.read_until(|kept| kept.welcome.take()).await;
        assert!(welcome.lease_ms > 0);
        hand
    }

    /// A stream on which nothing was sent yet.
    pub async fn open(client: &mut Client) -> Self {
        let (out, messages) = outgoing();
        let answers = within_timeout(client.work(messages)).await.unwrap().into_inner();
        Self { out: Some(out), answers, unread: v1::WorkResponse::default() }
    }

    pub fn send(&mut self, message: v1::WorkRequest) {
        let out = self.out.as_ref().expect("the side is open");
        out.send(message).unwrap();
    }

    pub fn credits(&mut self, credits: u32) {
        self.send(v1::WorkRequest { credits, ..v1::WorkRequest::default() });
    }

    /// Sends a report under a lease.
    pub fn report(&mut self, lease: &[u8], report: v1::task_report::Report) {
        let report = v1::TaskReport { lease: lease.to_vec().into(), report: Some(report) };
        self.send(v1::WorkRequest { reports: vec![report], ..v1::WorkRequest::default() });
    }

    pub fn complete(&mut self, lease: &[u8], result: &'static str) {
        self.report(lease, completion(result));
    }

    /// The next message, or the end: nothing, or why.
    async fn next(&mut self) -> Result<Option<v1::WorkResponse>, Status> {
        within_timeout(self.answers.message()).await
    }

    /// Reads until there is what is looked for.
    async fn read_until<T>(
        &mut self,
        mut look: impl FnMut(&mut v1::WorkResponse) -> Option<T>,
    ) -> T {
        loop {
            if let Some(found) = look(&mut self.unread) {
                return found;
            }
            let next = self.next().await.unwrap().expect("the stream goes on");
            self.record(next);
        }
    }

    fn record(&mut self, next: v1::WorkResponse) {
        let kept = &mut self.unread;
        kept.welcome = next.welcome.or(kept.welcome.take());
        kept.tasks.extend(next.tasks);
        kept.accepted.extend(next.accepted);
        kept.refused.extend(next.refused);
        kept.lost.extend(next.lost);
        kept.drained |= next.drained;
    }

    pub async fn next_task(&mut self) -> v1::Assignment {
        let take =
            |kept: &mut v1::WorkResponse| (!kept.tasks.is_empty()).then(|| kept.tasks.remove(0));
        self.read_until(take).await
    }

    /// Waits until a report is accepted.
    pub async fn await_accepted(&mut self, number: u64) {
        self.read_until(|kept| {
            let at = kept.accepted.iter().position(|other| *other == number)?;
            Some(kept.accepted.remove(at))
        })
        .await;
    }

    /// Waits until a report is refused, and says why.
    pub async fn await_refusal(&mut self, number: u64) -> v1::Error {
        self.read_until(|kept| {
            let at = kept.refused.iter().position(|other| other.number == number)?;
            kept.refused.remove(at).error
        })
        .await
    }

    pub async fn next_lost_lease(&mut self) -> v1::LostLease {
        let take =
            |kept: &mut v1::WorkResponse| (!kept.lost.is_empty()).then(|| kept.lost.remove(0));
        self.read_until(take).await
    }

    /// Takes the credits back; what was pushed before has come then.
    pub async fn drain(&mut self) {
        self.send(v1::WorkRequest { drain: true, ..v1::WorkRequest::default() });
        self.read_until(|kept| std::mem::take(&mut kept.drained).then_some(())).await;
    }

    /// Reads to the end: everything that came and was not asked for, and why it ended.
    pub async fn end(mut self) -> (v1::WorkResponse, Option<Status>) {
        loop {
            match self.next().await {
                Ok(Some(next)) => self.record(next),
                Ok(None) => return (self.unread, None),
                Err(status) => return (self.unread, Some(status)),
            }
        }
    }

    /// What came and was not asked for.
    pub fn unread(&self) -> &v1::WorkResponse {
        &self.unread
    }
}

pub fn completion(result: &'static str) -> v1::task_report::Report {
    v1::task_report::Report::Completed(v1::Completed {
        result: result.into(),
        ..v1::Completed::default()
    })
}

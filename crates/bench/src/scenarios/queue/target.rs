//! The Egret whose queue is measured, through its gRPC door.

use anyhow::{Context, Result, bail};
use egret_proto::queue::v1;
use egret_proto::queue::v1::queue_client::QueueClient;
use serde_json::json;
use tonic::transport::{Channel, Endpoint};

use super::egret::Egret;
use super::figures::ResourceSampler;
use crate::server::Server;
use crate::stage::Stage;

#[derive(Clone)]
pub(super) struct QueueTarget {
    server: Server,
    process: Option<u32>,
    pub(super) host: String,
    pub(super) token: String,
}

impl QueueTarget {
    /// The stage's Egret.
    ///
    /// # Errors
    /// When there is none, or it speaks TLS only.
    pub(super) fn from_stage(stage: &Stage) -> Result<Self> {
        let server = stage.server()?.clone();
        let url = server.endpoint().url.trim_end_matches('/').to_owned();
        let Some(host) = url.strip_prefix("http://") else {
            bail!("{url}: tasks are sent by plain HTTP/2 only");
        };
        // A private one may have been started again.
        let private = stage.private_server.as_ref().map(|private| private.pid());
        Ok(Self {
            process: private.or(server.pid()),
            host: host.to_owned(),
            token: server.endpoint().token.clone().unwrap_or_default(),
            server,
        })
    }

    /// The same Egret, as another tenant sees it.
    ///
    /// # Errors
    /// When Egret makes no token for that tenant.
    pub(super) async fn as_tenant(&self, tenant: &str) -> Result<Self> {
        let token_request = json!({
            "name": "egret-bench",
            "tenant": tenant,
            "scopes": ["queue:read", "queue:write"],
        });
        let token_reply = self.server.post("v1/tokens", &token_request).await?;
        let token = token_reply["token"].as_str().context("a token without a text")?;
        Ok(Self { token: token.to_owned(), ..self.clone() })
    }

    /// Looks at its memory, and at the disk that its queues take.
    pub(super) fn resource_sampler(&self) -> ResourceSampler {
        let data = self.server.endpoint().data_dir.as_ref();
        ResourceSampler::new(self.process, data.map(|data| data.join("queue")))
    }

    /// What connects a load to one of its queues.
    pub(super) fn connector(
        &self,
        queue: &str,
    ) -> impl FnOnce() -> ConnectFuture + Send + 'static + use<> {
        let (target, queue) = (self.clone(), queue.to_owned());
        move || Box::pin(async move { Egret::open(&target.host, &target.token, &queue).await })
    }

    /// Makes a queue, or changes it.
    ///
    /// # Errors
    /// When Egret refuses.
    pub(super) async fn put_queue(
        &self,
        name: &str,
        settings: Option<v1::QueueSettings>,
    ) -> Result<()> {
        let request = v1::PutQueueRequest { name: name.to_owned(), settings };
        let answer = self.connect_client().await?.put_queue(self.authorize(request)?).await;
        answer.context("make a queue").map(drop)
    }

    /// How many tasks a queue has in each state.
    ///
    /// # Errors
    /// When Egret does not answer.
    pub(super) async fn task_counts(&self, name: &str) -> Result<v1::TaskCounts> {
        let request = v1::QueueRequest { name: name.to_owned() };
        let answer = self.connect_client().await?.get_queue(self.authorize(request)?).await;
        let info = answer.context("look at a queue")?.into_inner();
        Ok(info.counts.unwrap_or_default())
    }

    /// Deletes a queue with its tasks.
    ///
    /// # Errors
    /// When Egret refuses.
    pub(super) async fn delete_queue(&self, name: &str) -> Result<()> {
        let request = v1::DeleteQueueRequest { name: name.to_owned(), force: true };
        let mut client = self.connect_client().await?;
        let answer = client.delete_queue(self.authorize(request)?).await;
        answer.context("delete a queue").map(drop)
    }

    async fn connect_client(&self) -> Result<QueueClient<Channel>> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.host))?;
        let channel = endpoint.connect().await.context("connect by gRPC")?;
        Ok(QueueClient::new(channel))
    }

    fn authorize<T>(&self, message: T) -> Result<tonic::Request<T>> {
        let mut request = tonic::Request::new(message);
        let value = format!("Bearer {}", self.token);
        let value = value.parse().context("the token")?;
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }
}

type ConnectFuture = std::pin::Pin<Box<dyn Future<Output = Result<Egret>> + Send>>;

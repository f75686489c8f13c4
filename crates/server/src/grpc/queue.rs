//! `egret.queue.v1.Queue`: the queue engine over gRPC.

mod calls;
mod contract;
mod convert;
mod encode;
mod produce;
mod response_buffer;
mod wait;
mod watch;
mod work;

use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use egret_proto::EncodedMessage;
use egret_proto::queue::v1;
use egret_proto::queue::v1::server::queue_server::SERVICE_NAME;
use egret_proto::queue::v1::server::{Queue, QueueServer};
use egret_queue::{Detail, QueueError, Queues};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tower::ServiceExt;

use super::malformed_message;
use super::service::{GrpcService, MESSAGE_BYTES_MAX};
use crate::access::Caller;
use crate::problem::grpc_status;
use crate::queue::{Changes, id, patience, rights};
use crate::request_context::RequestContext;
use crate::tokens::TokenError;
use contract::{CALLS, LASTING};
use produce::Produce;
use wait::WaitTasks;
use watch::TaskChangeStream;
use work::Work;

/// The queue's service, for [`crate::Builder::grpc`]. Streams end when `stopping` is cancelled.
pub fn service(queues: Queues, stopping: CancellationToken) -> GrpcService {
    let service = QueueServer::new(QueueService { queues, stopping })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new))
        .map_response(|response| malformed_message::answered(response.map(axum::body::Body::new)));
    let mut router = Router::new();
    let mut scopes = Vec::new();
    for (call, any_of) in CALLS {
        let path = format!("/{SERVICE_NAME}/{call}");
        router = router.route_service(&path, service.clone());
        scopes.push((path, *any_of));
    }
    let lasting = LASTING.map(|call| format!("/{SERVICE_NAME}/{call}"));
    GrpcService {
        router,
        scopes,
        lasting: lasting.to_vec(),
    }
}

#[derive(Clone)]
struct QueueService {
    queues: Queues,
    stopping: CancellationToken,
}

/// The caller, which the access layer has noted, and the message.
fn asked<T>(request: Request<T>) -> Result<(Caller, T), Status> {
    let context = request.extensions().get::<Arc<RequestContext>>();
    let known = context.and_then(|context| context.caller());
    let caller = known.ok_or_else(|| grpc_status(&TokenError::Missing))?;
    let caller = caller.clone();
    Ok((caller, request.into_inner()))
}

/// Notes the object of a call for the audit log.
fn note_object<T>(request: &Request<T>, object: &str) {
    if let Some(context) = request.extensions().get::<Arc<RequestContext>>() {
        context.note_object(object);
    }
}

fn refused(error: QueueError) -> Status {
    grpc_status(&error)
}

/// Insists that the caller may do one of `actions` in a queue.
fn require(caller: &Caller, queue: &str, actions: &[&str]) -> Result<(), Status> {
    rights::require(caller, queue, actions).map_err(|error| grpc_status(&error))
}

fn answer<T>(result: Result<T, QueueError>) -> Answer<T> {
    result.map(Response::new).map_err(refused)
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Queue for QueueService {
    type ProduceStream = Produce;
    type WorkStream = Work;
    type WatchStream = TaskChangeStream;
    type WaitTasksStream = WaitTasks;

    async fn produce(&self, request: Request<Streaming<v1::ProduceRequest>>) -> Answer<Produce> {
        let (caller, inbound) = asked(request)?;
        answer(Ok(Produce::new(
            self.queues.clone(),
            caller,
            inbound,
            self.stopping.clone(),
        )))
    }

    async fn work(&self, request: Request<Streaming<v1::WorkRequest>>) -> Answer<Work> {
        let (caller, inbound) = asked(request)?;
        answer(Ok(Work::new(
            self.queues.clone(),
            caller,
            inbound,
            self.stopping.clone(),
        )))
    }

    async fn put_queue(&self, request: Request<v1::PutQueueRequest>) -> Answer<v1::QueueInfo> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let change = asked.settings.as_ref().map(convert::settings).transpose();
        let change = change.map_err(refused)?.unwrap_or_default();
        let put = self.queues.put_queue(tenant, &asked.name, &change).await;
        put.map_err(refused)?;
        self.view(tenant, &asked.name).await
    }

    async fn get_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::READ)?;
        self.view(tenant, &asked.name).await
    }

    async fn wait_tasks(
        &self,
        request: Request<Streaming<v1::WaitTasksRequest>>,
    ) -> Answer<WaitTasks> {
        let (caller, inbound) = asked(request)?;
        let (queues, stopping) = (self.queues.clone(), self.stopping.clone());
        answer(Ok(WaitTasks::new(queues, caller, inbound, stopping)))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let (caller, asked) = asked(request)?;
        let states = convert::states(&asked.states).map_err(refused)?;
        let changes = Changes::begin(&self.queues, &caller, &asked.queues, &states).await;
        let changes = changes.map_err(|problem| problem.to_grpc_status())?;
        Ok(Response::new(TaskChangeStream::new(
            changes,
            self.stopping.clone(),
        )))
    }

    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Answer<v1::EnqueueResponse> {
        let (caller, asked) = asked(request)?;
        let v1::EnqueueRequest {
            queue,
            tasks,
            atomic,
        } = asked;
        let outcomes = calls::enqueue(&self.queues, &caller, &queue, &tasks, atomic).await;
        let outcomes = outcomes.map_err(|problem| problem.to_grpc_status())?;
        let outcomes = outcomes.iter().enumerate();
        let outcomes = outcomes.map(|(at, outcome)| convert::enqueued(at, outcome));
        Ok(Response::new(v1::EnqueueResponse {
            outcomes: outcomes.collect(),
        }))
    }

    async fn claim(&self, request: Request<v1::ClaimRequest>) -> Answer<EncodedMessage> {
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        for queue in &asked.queues {
            require(&caller, queue, rights::WORK)?;
        }
        let tasks = self
            .waiting(calls::claim(&self.queues, tenant, asked))
            .await;
        let mut message = Vec::new();
        for task in tasks.map_err(refused)? {
            encode::claimed(&mut message, &task.assigned());
        }
        Ok(Response::new(EncodedMessage(Bytes::from(message))))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Answer<v1::ReportResponse> {
        let (caller, asked) = asked(request)?;
        let outcomes = calls::report(&self.queues, &caller, &asked.reports).await;
        let outcome = |outcome: &Result<(), QueueError>| v1::ReportOutcome {
            error: outcome.as_ref().err().map(convert::error),
        };
        Ok(Response::new(v1::ReportResponse {
            outcomes: outcomes.map_err(refused)?.iter().map(outcome).collect(),
        }))
    }

    async fn get_task(&self, request: Request<v1::GetTaskRequest>) -> Answer<v1::Task> {
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &asked.id, rights::RESULT)
            .await?;
        let detail = if asked.brief {
            Detail::Brief
        } else {
            Detail::Whole
        };
        let task = calls::task(&self.queues, tenant, &asked.id, detail).await;
        answer(task)
    }

    async fn wait_task(&self, request: Request<v1::WaitTaskRequest>) -> Answer<v1::Task> {
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &asked.id, rights::RESULT)
            .await?;
        let waited = async {
            let patience = patience(asked.wait_ms)?;
            let wait = self.queues.wait(tenant, id(&asked.id)?, patience);
            self.waiting(wait).await
        };
        answer(waited.await.map(|view| convert::task(&view)))
    }

    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Answer<v1::ListTasksResponse> {
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.queue, rights::READ)?;
        answer(calls::list(&self.queues, tenant, &asked).await)
    }

    async fn cancel_task(&self, request: Request<v1::TaskRequest>) -> Answer<v1::Task> {
        note_object(&request, &request.get_ref().id);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &asked.id, rights::OPERATE)
            .await?;
        let done = async {
            let id = id(&asked.id)?;
            self.queues.cancel(tenant, id).await?;
            let view = rights::changed_task(&self.queues, &caller, id).await?;
            Ok(convert::task(&view))
        };
        answer(done.await)
    }

    async fn requeue_task(&self, request: Request<v1::TaskRequest>) -> Answer<v1::Task> {
        note_object(&request, &request.get_ref().id);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &asked.id, rights::OPERATE)
            .await?;
        let done = async {
            let id = id(&asked.id)?;
            self.queues.requeue(tenant, id).await?;
            let view = rights::changed_task(&self.queues, &caller, id).await?;
            Ok(convert::task(&view))
        };
        answer(done.await)
    }

    async fn delete_task(
        &self,
        request: Request<v1::TaskRequest>,
    ) -> Answer<v1::DeleteTaskResponse> {
        note_object(&request, &request.get_ref().id);
        let (caller, asked) = asked(request)?;
        let deleted = async {
            let task = id(&asked.id)?;
            rights::require_deletion(&self.queues, &caller, task).await?;
            self.queues.delete_task(caller.tenant(), task).await
        };
        answer(deleted.await.map(|()| v1::DeleteTaskResponse {}))
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Answer<v1::ListQueuesResponse> {
        let (caller, _) = asked(request)?;
        let tenant = caller.tenant();
        let views = self.queues.list_queues(tenant).await.map_err(refused)?;
        let reach = rights::reach(&caller, rights::READ);
        let views = views.iter().filter(|view| reach.covers(&view.name));
        Ok(Response::new(v1::ListQueuesResponse {
            queues: views.map(convert::queue_info).collect(),
        }))
    }

    async fn delete_queue(
        &self,
        request: Request<v1::DeleteQueueRequest>,
    ) -> Answer<v1::DeleteQueueResponse> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let deleted = self
            .queues
            .delete_queue(tenant, &asked.name, asked.force)
            .await;
        answer(deleted.map(|()| v1::DeleteQueueResponse {}))
    }

    async fn pause_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let set = self
            .queues
            .set_flow(tenant, &asked.name, Some(true), None)
            .await;
        set.map_err(refused)?;
        self.view(tenant, &asked.name).await
    }

    async fn resume_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let set = self
            .queues
            .set_flow(tenant, &asked.name, Some(false), Some(false))
            .await;
        set.map_err(refused)?;
        self.view(tenant, &asked.name).await
    }

    async fn drain_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let set = self
            .queues
            .set_flow(tenant, &asked.name, None, Some(true))
            .await;
        set.map_err(refused)?;
        self.view(tenant, &asked.name).await
    }

    async fn purge_queue(
        &self,
        request: Request<v1::PurgeQueueRequest>,
    ) -> Answer<v1::PurgeQueueResponse> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let purged = async {
            let states = convert::states(&asked.states)?;
            self.queues.purge(tenant, &asked.name, &states).await
        };
        answer(
            purged
                .await
                .map(|deleted| v1::PurgeQueueResponse { deleted }),
        )
    }

    async fn requeue_dead(
        &self,
        request: Request<v1::RequeueDeadRequest>,
    ) -> Answer<v1::RequeueDeadResponse> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.name, rights::OPERATE)?;
        let requeued = self
            .queues
            .requeue_dead(tenant, &asked.name, asked.limit)
            .await;
        answer(requeued.map(|requeued| v1::RequeueDeadResponse { requeued }))
    }

    async fn put_schedule(&self, request: Request<v1::Schedule>) -> Answer<v1::Schedule> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        require(&caller, &asked.queue, rights::OPERATE)?;
        let known = rights::require_schedule_name(&self.queues, &caller, &asked.name).await;
        known.map_err(|problem| problem.to_grpc_status())?;
        let put = async {
            let schedule = convert::new_schedule(&asked)?;
            self.queues.put_schedule(tenant, &schedule).await
        };
        answer(put.await.map(|view| convert::schedule(&view)))
    }

    async fn get_schedule(&self, request: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &asked.name, rights::READ)
            .await?;
        let view = self.queues.schedule(tenant, &asked.name).await;
        answer(view.map(|view| convert::schedule(&view)))
    }

    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Answer<v1::ListSchedulesResponse> {
        let (caller, _) = asked(request)?;
        let tenant = caller.tenant();
        let views = self.queues.schedules(tenant).await.map_err(refused)?;
        let reach = rights::reach(&caller, rights::READ);
        let views = views.iter().filter(|view| reach.covers(&view.queue));
        Ok(Response::new(v1::ListSchedulesResponse {
            schedules: views.map(convert::schedule).collect(),
        }))
    }

    async fn delete_schedule(
        &self,
        request: Request<v1::ScheduleRequest>,
    ) -> Answer<v1::DeleteScheduleResponse> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &asked.name, rights::OPERATE)
            .await?;
        let deleted = self.queues.delete_schedule(tenant, &asked.name).await;
        answer(deleted.map(|()| v1::DeleteScheduleResponse {}))
    }

    async fn pause_schedule(&self, request: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &asked.name, rights::OPERATE)
            .await?;
        let view = self.queues.pause_schedule(tenant, &asked.name, true).await;
        answer(view.map(|view| convert::schedule(&rights::changed_schedule(&caller, view))))
    }

    async fn resume_schedule(&self, request: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        note_object(&request, &request.get_ref().name);
        let (caller, asked) = asked(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &asked.name, rights::OPERATE)
            .await?;
        let view = self.queues.pause_schedule(tenant, &asked.name, false).await;
        answer(view.map(|view| convert::schedule(&rights::changed_schedule(&caller, view))))
    }
}

impl QueueService {
    /// Waits for a future, but not longer than the server runs.
    async fn waiting<T>(
        &self,
        work: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.stopping.cancelled() => Err(QueueError::Stopping),
        }
    }

    /// Insists that the caller may do one of `actions` in the queue of a task.
    async fn require_task(
        &self,
        caller: &Caller,
        task: &str,
        actions: &[&str],
    ) -> Result<(), Status> {
        let task = id(task).map_err(refused)?;
        let required = rights::require_task(&self.queues, caller, task, actions).await;
        required.map_err(refused)
    }

    /// Insists that the caller may do one of `actions` in the queue of a schedule.
    async fn require_schedule(
        &self,
        caller: &Caller,
        name: &str,
        actions: &[&str],
    ) -> Result<(), Status> {
        let required = rights::require_schedule(&self.queues, caller, name, actions).await;
        required.map_err(refused)
    }

    async fn view(&self, tenant: &str, name: &str) -> Answer<v1::QueueInfo> {
        let view = self.queues.view_queue(tenant, name).await;
        answer(view.map(|view| convert::queue_info(&view)))
    }
}

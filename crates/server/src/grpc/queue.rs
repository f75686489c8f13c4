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
use crate::queue::{Changes, parse_task_id, rights, wait_duration};
use crate::request_context::RequestContext;
use crate::tokens::TokenError;
use contract::{CALLS, LONG_LIVED_CALLS};
use produce::Produce;
use wait::WaitTasks;
use watch::TaskChangeStream;
use work::Work;

/// The queue's service, for [`crate::Builder::grpc`]. Streams end when `stopping` is cancelled.
pub fn service(queues: Queues, stopping: CancellationToken) -> GrpcService {
    let service = QueueServer::new(QueueService { queues, stopping })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new))
        .map_response(|response| {
            malformed_message::assign_code_to_response(response.map(axum::body::Body::new))
        });
    let mut router = Router::new();
    let mut scopes = Vec::new();
    for (call, any_of) in CALLS {
        let path = format!("/{SERVICE_NAME}/{call}");
        router = router.route_service(&path, service.clone());
        scopes.push((path, *any_of));
    }
    let long_lived_paths = LONG_LIVED_CALLS.map(|call| format!("/{SERVICE_NAME}/{call}"));
    GrpcService { router, scopes, long_lived_paths: long_lived_paths.to_vec() }
}

#[derive(Clone)]
struct QueueService {
    queues: Queues,
    stopping: CancellationToken,
}

/// The caller, which the access layer has noted, and the message.
fn authenticated_message<T>(request: Request<T>) -> Result<(Caller, T), Status> {
    let context = request.extensions().get::<Arc<RequestContext>>();
    let known = context.and_then(|context| context.caller());
    let caller = known.ok_or_else(|| grpc_status(&TokenError::Missing))?;
    let caller = caller.clone();
    Ok((caller, request.into_inner()))
}

/// Notes the object of a call for the audit log.
fn set_audit_object<T>(request: &Request<T>, object: &str) {
    if let Some(context) = request.extensions().get::<Arc<RequestContext>>() {
        context.set_object(object);
    }
}

fn error_status(error: QueueError) -> Status {
    grpc_status(&error)
}

/// Insists that the caller may do one of `actions` in a queue.
fn require(caller: &Caller, queue: &str, actions: &[&str]) -> Result<(), Status> {
    rights::require(caller, queue, actions).map_err(|error| grpc_status(&error))
}

fn to_response<T>(result: Result<T, QueueError>) -> Answer<T> {
    result.map(Response::new).map_err(error_status)
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Queue for QueueService {
    type ProduceStream = Produce;
    type WorkStream = Work;
    type WatchStream = TaskChangeStream;
    type WaitTasksStream = WaitTasks;

    async fn produce(&self, request: Request<Streaming<v1::ProduceRequest>>) -> Answer<Produce> {
        let (caller, inbound) = authenticated_message(request)?;
        to_response(Ok(Produce::new(self.queues.clone(), caller, inbound, self.stopping.clone())))
    }

    async fn work(&self, request: Request<Streaming<v1::WorkRequest>>) -> Answer<Work> {
        let (caller, inbound) = authenticated_message(request)?;
        to_response(Ok(Work::new(self.queues.clone(), caller, inbound, self.stopping.clone())))
    }

    async fn put_queue(&self, request: Request<v1::PutQueueRequest>) -> Answer<v1::QueueInfo> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let change = message.settings.as_ref().map(convert::parse_settings).transpose();
        let change = change.map_err(error_status)?.unwrap_or_default();
        let result = self.queues.put_queue(tenant, &message.name, &change).await;
        result.map_err(error_status)?;
        self.view_queue(tenant, &message.name).await
    }

    async fn get_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::READ)?;
        self.view_queue(tenant, &message.name).await
    }

    async fn wait_tasks(
        &self,
        request: Request<Streaming<v1::WaitTasksRequest>>,
    ) -> Answer<WaitTasks> {
        let (caller, inbound) = authenticated_message(request)?;
        let (queues, stopping) = (self.queues.clone(), self.stopping.clone());
        to_response(Ok(WaitTasks::new(queues, caller, inbound, stopping)))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let (caller, message) = authenticated_message(request)?;
        let states = convert::parse_states(&message.states).map_err(error_status)?;
        let changes = Changes::subscribe(&self.queues, &caller, &message.queues, &states).await;
        let changes = changes.map_err(|problem| problem.to_grpc_status())?;
        Ok(Response::new(TaskChangeStream::new(changes, self.stopping.clone())))
    }

    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Answer<v1::EnqueueResponse> {
        let (caller, message) = authenticated_message(request)?;
        let v1::EnqueueRequest { queue, tasks, atomic } = message;
        let outcomes = calls::enqueue(&self.queues, &caller, &queue, &tasks, atomic).await;
        let outcomes = outcomes.map_err(|problem| problem.to_grpc_status())?;
        let outcomes = outcomes.iter().enumerate();
        let outcomes = outcomes.map(|(index, outcome)| convert::to_enqueued(index, outcome));
        Ok(Response::new(v1::EnqueueResponse { outcomes: outcomes.collect() }))
    }

    async fn claim(&self, request: Request<v1::ClaimRequest>) -> Answer<EncodedMessage> {
        let (caller, asked) = authenticated_message(request)?;
        let tenant = caller.tenant();
        for queue in &asked.queues {
            require(&caller, queue, rights::WORK)?;
        }
        let tasks = self.run_until_stopping(calls::claim(&self.queues, tenant, asked)).await;
        let mut message = Vec::new();
        for task in tasks.map_err(error_status)? {
            encode::put_claimed_task(&mut message, &task.as_assignment());
        }
        Ok(Response::new(EncodedMessage(Bytes::from(message))))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Answer<v1::ReportResponse> {
        let (caller, message) = authenticated_message(request)?;
        let outcomes = calls::report(&self.queues, &caller, &message.reports).await;
        let outcome = |outcome: &Result<(), QueueError>| v1::ReportOutcome {
            error: outcome.as_ref().err().map(convert::to_error),
        };
        Ok(Response::new(v1::ReportResponse {
            outcomes: outcomes.map_err(error_status)?.iter().map(outcome).collect(),
        }))
    }

    async fn get_task(&self, request: Request<v1::GetTaskRequest>) -> Answer<v1::Task> {
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &message.id, rights::READ_RESULT).await?;
        let detail = if message.brief { Detail::Brief } else { Detail::Whole };
        let result = calls::get_task(&self.queues, tenant, &message.id, detail).await;
        to_response(result)
    }

    async fn wait_task(&self, request: Request<v1::WaitTaskRequest>) -> Answer<v1::Task> {
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &message.id, rights::READ_RESULT).await?;
        let wait_result = async {
            let timeout = wait_duration(message.wait_ms)?;
            let wait = self.queues.wait(tenant, parse_task_id(&message.id)?, timeout);
            self.run_until_stopping(wait).await
        };
        to_response(wait_result.await.map(|view| convert::task(&view)))
    }

    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Answer<v1::ListTasksResponse> {
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.queue, rights::READ)?;
        to_response(calls::list_tasks(&self.queues, tenant, &message).await)
    }

    async fn cancel_task(&self, request: Request<v1::TaskRequest>) -> Answer<v1::Task> {
        set_audit_object(&request, &request.get_ref().id);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &message.id, rights::OPERATE).await?;
        let cancellation = async {
            let id = parse_task_id(&message.id)?;
            self.queues.cancel(tenant, id).await?;
            let view = rights::view_changed_task(&self.queues, &caller, id).await?;
            Ok(convert::task(&view))
        };
        to_response(cancellation.await)
    }

    async fn requeue_task(&self, request: Request<v1::TaskRequest>) -> Answer<v1::Task> {
        set_audit_object(&request, &request.get_ref().id);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_task(&caller, &message.id, rights::OPERATE).await?;
        let requeueing = async {
            let id = parse_task_id(&message.id)?;
            self.queues.requeue(tenant, id).await?;
            let view = rights::view_changed_task(&self.queues, &caller, id).await?;
            Ok(convert::task(&view))
        };
        to_response(requeueing.await)
    }

    async fn delete_task(
        &self,
        request: Request<v1::TaskRequest>,
    ) -> Answer<v1::DeleteTaskResponse> {
        set_audit_object(&request, &request.get_ref().id);
        let (caller, message) = authenticated_message(request)?;
        let deletion = async {
            let task = parse_task_id(&message.id)?;
            rights::require_deletion(&self.queues, &caller, task).await?;
            self.queues.delete_task(caller.tenant(), task).await
        };
        to_response(deletion.await.map(|()| v1::DeleteTaskResponse {}))
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Answer<v1::ListQueuesResponse> {
        let (caller, _) = authenticated_message(request)?;
        let tenant = caller.tenant();
        let views = self.queues.list_queues(tenant).await.map_err(error_status)?;
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
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let deleted = self.queues.delete_queue(tenant, &message.name, message.force).await;
        to_response(deleted.map(|()| v1::DeleteQueueResponse {}))
    }

    async fn pause_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let result = self.queues.set_queue_flags(tenant, &message.name, Some(true), None).await;
        result.map_err(error_status)?;
        self.view_queue(tenant, &message.name).await
    }

    async fn resume_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let result =
            self.queues.set_queue_flags(tenant, &message.name, Some(false), Some(false)).await;
        result.map_err(error_status)?;
        self.view_queue(tenant, &message.name).await
    }

    async fn drain_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let result = self.queues.set_queue_flags(tenant, &message.name, None, Some(true)).await;
        result.map_err(error_status)?;
        self.view_queue(tenant, &message.name).await
    }

    async fn purge_queue(
        &self,
        request: Request<v1::PurgeQueueRequest>,
    ) -> Answer<v1::PurgeQueueResponse> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let purge = async {
            let states = convert::parse_states(&message.states)?;
            self.queues.purge(tenant, &message.name, &states).await
        };
        to_response(purge.await.map(|deleted| v1::PurgeQueueResponse { deleted }))
    }

    async fn requeue_dead(
        &self,
        request: Request<v1::RequeueDeadRequest>,
    ) -> Answer<v1::RequeueDeadResponse> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.name, rights::OPERATE)?;
        let requeued = self.queues.requeue_dead(tenant, &message.name, message.limit).await;
        to_response(requeued.map(|requeued| v1::RequeueDeadResponse { requeued }))
    }

    async fn put_schedule(&self, request: Request<v1::Schedule>) -> Answer<v1::Schedule> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        require(&caller, &message.queue, rights::OPERATE)?;
        let allowed = rights::require_schedule_name(&self.queues, &caller, &message.name).await;
        allowed.map_err(|problem| problem.to_grpc_status())?;
        let creation = async {
            let schedule = convert::new_schedule(&message)?;
            self.queues.put_schedule(tenant, &schedule).await
        };
        to_response(creation.await.map(|view| convert::schedule(&view)))
    }

    async fn get_schedule(&self, request: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &message.name, rights::READ).await?;
        let view = self.queues.schedule(tenant, &message.name).await;
        to_response(view.map(|view| convert::schedule(&view)))
    }

    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Answer<v1::ListSchedulesResponse> {
        let (caller, _) = authenticated_message(request)?;
        let tenant = caller.tenant();
        let views = self.queues.schedules(tenant).await.map_err(error_status)?;
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
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &message.name, rights::OPERATE).await?;
        let deleted = self.queues.delete_schedule(tenant, &message.name).await;
        to_response(deleted.map(|()| v1::DeleteScheduleResponse {}))
    }

    async fn pause_schedule(&self, request: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &message.name, rights::OPERATE).await?;
        let view = self.queues.set_schedule_paused(tenant, &message.name, true).await;
        to_response(
            view.map(|view| convert::schedule(&rights::view_changed_schedule(&caller, view))),
        )
    }

    async fn resume_schedule(&self, request: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        set_audit_object(&request, &request.get_ref().name);
        let (caller, message) = authenticated_message(request)?;
        let tenant = caller.tenant();
        self.require_schedule(&caller, &message.name, rights::OPERATE).await?;
        let view = self.queues.set_schedule_paused(tenant, &message.name, false).await;
        to_response(
            view.map(|view| convert::schedule(&rights::view_changed_schedule(&caller, view))),
        )
    }
}

impl QueueService {
    /// Waits for a future, but not longer than the server runs.
    async fn run_until_stopping<T>(
        &self,
        work: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        tokio::select! {
            biased;
            result = work => result,
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
        let task = parse_task_id(task).map_err(error_status)?;
        let result = rights::require_task(&self.queues, caller, task, actions).await;
        result.map_err(error_status)
    }

    /// Insists that the caller may do one of `actions` in the queue of a schedule.
    async fn require_schedule(
        &self,
        caller: &Caller,
        name: &str,
        actions: &[&str],
    ) -> Result<(), Status> {
        let result = rights::require_schedule(&self.queues, caller, name, actions).await;
        result.map_err(error_status)
    }

    async fn view_queue(&self, tenant: &str, name: &str) -> Answer<v1::QueueInfo> {
        let view = self.queues.view_queue(tenant, name).await;
        to_response(view.map(|view| convert::queue_info(&view)))
    }
}

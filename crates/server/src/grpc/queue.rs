//! `egret.queue.v1.Queue`: the queue engine over gRPC.

mod convert;
mod encode;
mod outlet;
mod produce;
mod work;

use axum::Router;
use egret_proto::queue::v1;
use egret_proto::queue::v1::server::queue_server::SERVICE_NAME;
use egret_proto::queue::v1::server::{Queue, QueueServer};
use egret_queue::Queues;
use tonic::{Request, Response, Status, Streaming};
use tower::ServiceExt;

use super::GrpcService;
use crate::access::Caller;
use crate::problem::grpc_status;
use crate::tokens::TokenError;
use produce::Produce;
use work::Work;

/// The largest message that is read, in bytes.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Every call of the contract.
const CALLS: &[&str] = &[
    "Produce",
    "Work",
    "Watch",
    "Enqueue",
    "Claim",
    "Report",
    "GetTask",
    "WaitTask",
    "ListTasks",
    "CancelTask",
    "RequeueTask",
    "DeleteTask",
    "PutQueue",
    "GetQueue",
    "ListQueues",
    "DeleteQueue",
    "PauseQueue",
    "ResumeQueue",
    "DrainQueue",
    "PurgeQueue",
    "RequeueDead",
    "PutSchedule",
    "GetSchedule",
    "ListSchedules",
    "DeleteSchedule",
    "PauseSchedule",
    "ResumeSchedule",
];

/// Calls that change nothing; every other one needs `queue:write`.
const READS: [&str; 8] = [
    "Watch",
    "GetTask",
    "WaitTask",
    "ListTasks",
    "GetQueue",
    "ListQueues",
    "GetSchedule",
    "ListSchedules",
];

/// The queue engine's service, for [`Builder::grpc`](crate::Builder::grpc).
pub fn service(queues: Queues) -> GrpcService {
    let service = QueueServer::new(Door { queues })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new));
    let mut router = Router::new();
    let mut scopes = Vec::new();
    for call in CALLS {
        let path = format!("/{SERVICE_NAME}/{call}");
        router = router.route_service(&path, service.clone());
        let reads = READS.contains(call);
        let scope = if reads { "queue:read" } else { "queue:write" };
        scopes.push((path, vec![scope.to_owned()]));
    }
    GrpcService { router, scopes }
}

#[derive(Clone)]
struct Door {
    queues: Queues,
}

/// Who calls, as the access layer has noted.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let known = request.extensions().get::<Caller>().cloned();
    known.ok_or_else(|| grpc_status(&TokenError::Missing))
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Queue for Door {
    type ProduceStream = Produce;
    type WorkStream = Work;
    type WatchStream = futures_util::stream::Empty<Result<v1::WatchResponse, Status>>;

    async fn produce(&self, request: Request<Streaming<v1::ProduceRequest>>) -> Answer<Produce> {
        let caller = caller(&request)?;
        let inbound = request.into_inner();
        Ok(Response::new(Produce::new(
            self.queues.clone(),
            caller.tenant(),
            inbound,
        )))
    }

    async fn work(&self, request: Request<Streaming<v1::WorkRequest>>) -> Answer<Work> {
        let caller = caller(&request)?;
        let inbound = request.into_inner();
        Ok(Response::new(Work::new(
            self.queues.clone(),
            caller.tenant(),
            inbound,
        )))
    }

    async fn put_queue(&self, request: Request<v1::PutQueueRequest>) -> Answer<v1::QueueInfo> {
        let caller = caller(&request)?;
        let asked = request.into_inner();
        let change = asked.settings.as_ref().map(convert::settings).transpose();
        let change = change.map_err(|error| grpc_status(&error))?;
        let change = change.unwrap_or_default();
        let put = self
            .queues
            .put_queue(caller.tenant(), &asked.name, &change)
            .await;
        put.map_err(|error| grpc_status(&error))?;
        self.get_queue_of(&caller, &asked.name).await
    }

    async fn get_queue(&self, request: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        let caller = caller(&request)?;
        self.get_queue_of(&caller, &request.into_inner().name).await
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        Err(Status::unimplemented("not built"))
    }

    async fn enqueue(&self, _: Request<v1::EnqueueRequest>) -> Answer<v1::EnqueueResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn claim(&self, _: Request<v1::ClaimRequest>) -> Answer<v1::ClaimResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn report(&self, _: Request<v1::ReportRequest>) -> Answer<v1::ReportResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn get_task(&self, _: Request<v1::GetTaskRequest>) -> Answer<v1::Task> {
        Err(Status::unimplemented("not built"))
    }

    async fn wait_task(&self, _: Request<v1::WaitTaskRequest>) -> Answer<v1::Task> {
        Err(Status::unimplemented("not built"))
    }

    async fn list_tasks(&self, _: Request<v1::ListTasksRequest>) -> Answer<v1::ListTasksResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn cancel_task(&self, _: Request<v1::TaskRequest>) -> Answer<v1::Task> {
        Err(Status::unimplemented("not built"))
    }

    async fn requeue_task(&self, _: Request<v1::TaskRequest>) -> Answer<v1::Task> {
        Err(Status::unimplemented("not built"))
    }

    async fn delete_task(&self, _: Request<v1::TaskRequest>) -> Answer<v1::DeleteTaskResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn list_queues(
        &self,
        _: Request<v1::ListQueuesRequest>,
    ) -> Answer<v1::ListQueuesResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn delete_queue(
        &self,
        _: Request<v1::DeleteQueueRequest>,
    ) -> Answer<v1::DeleteQueueResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn pause_queue(&self, _: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        Err(Status::unimplemented("not built"))
    }

    async fn resume_queue(&self, _: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        Err(Status::unimplemented("not built"))
    }

    async fn drain_queue(&self, _: Request<v1::QueueRequest>) -> Answer<v1::QueueInfo> {
        Err(Status::unimplemented("not built"))
    }

    async fn purge_queue(
        &self,
        _: Request<v1::PurgeQueueRequest>,
    ) -> Answer<v1::PurgeQueueResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn requeue_dead(
        &self,
        _: Request<v1::RequeueDeadRequest>,
    ) -> Answer<v1::RequeueDeadResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn put_schedule(&self, _: Request<v1::Schedule>) -> Answer<v1::Schedule> {
        Err(Status::unimplemented("not built"))
    }

    async fn get_schedule(&self, _: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        Err(Status::unimplemented("not built"))
    }

    async fn list_schedules(
        &self,
        _: Request<v1::ListSchedulesRequest>,
    ) -> Answer<v1::ListSchedulesResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn delete_schedule(
        &self,
        _: Request<v1::ScheduleRequest>,
    ) -> Answer<v1::DeleteScheduleResponse> {
        Err(Status::unimplemented("not built"))
    }

    async fn pause_schedule(&self, _: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        Err(Status::unimplemented("not built"))
    }

    async fn resume_schedule(&self, _: Request<v1::ScheduleRequest>) -> Answer<v1::Schedule> {
        Err(Status::unimplemented("not built"))
    }
}

impl Door {
    async fn get_queue_of(&self, caller: &Caller, name: &str) -> Answer<v1::QueueInfo> {
        let view = self.queues.view_queue(caller.tenant(), name).await;
        let view = view.map_err(|error| grpc_status(&error))?;
        Ok(Response::new(convert::queue_info(&view)))
    }
}

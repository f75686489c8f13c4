//! Attachments of results: sent before the completion that names them, read after it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use egret_base::condition;
use egret_queue::model::{Lease, TaskId};
use egret_queue::{self as engine, AttachmentFile, Detail, QueueError, Queues};
use futures_util::Stream;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::io::{AsyncRead, ReadBuf, Take};
use utoipa::ToSchema;

use crate::access::Caller;
use crate::extract::{Json, Path, body_error, drain};
use crate::problem::Problem;
use crate::queue::{self, invalid, rights};

/// The header with the lease.
const LEASE_HEADER: &str = "egret-lease";

/// The content type of an attachment that is sent without one.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// Bytes that are read from a file at once.
const CHUNK_BYTES: usize = 256 << 10;

/// An attachment of a result, without its bytes.
#[derive(Serialize, ToSchema)]
pub(super) struct Attachment<'a> {
    /// Its name, unique within its task.
    #[schema(example = "report.pdf")]
    name: &'a str,
    /// Its content type, as it was sent.
    #[schema(example = "application/pdf")]
    content_type: &'a str,
    /// Its size, in bytes.
    size_bytes: u64,
    /// The CRC-32C of its bytes, as 8 hexadecimal digits.
    #[schema(example = "e3069283")]
    crc32c: String,
}

impl<'a> From<&'a engine::Attachment> for Attachment<'a> {
    fn from(attachment: &'a engine::Attachment) -> Self {
        Self {
            name: &attachment.name,
            content_type: &attachment.content_type,
            size_bytes: attachment.size_bytes,
            crc32c: format!("{:08x}", attachment.crc32c),
        }
    }
}

/// Attachments of a task, in the order in which its completion named them.
#[derive(Serialize, ToSchema)]
pub(super) struct Attachments<'a> {
    /// The attachments.
    items: Vec<Attachment<'a>>,
}

fn read_lease(headers: &HeaderMap) -> Result<Lease, QueueError> {
    let given = headers.get(LEASE_HEADER).and_then(|value| value.to_str().ok());
    let text = given.ok_or_else(|| invalid("lease", "the header egret-lease is missing"))?;
    text.parse().map_err(|reason| invalid("lease", reason))
}

/// Send an attachment
///
/// An attachment is a part of the result that is too large for the result itself: any bytes, sent
/// under the lease before the completion that names it. Sending the same attachment again is
/// accepted. A name has 1 to 128 letters, digits and `-_.`, and does not begin with `.`.
/// Attachments that no completion names are deleted.
#[utoipa::path(put, path = "/v1/tasks/{id}/attachments/{name}", operation_id = "putAttachment",
    tag = "queue", extensions(("x-egret-parts" = json!(true)), ("x-egret-lasting" = json!(true)), ("x-egret-piecemeal" = json!(true))),
    security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id."),
        ("name" = String, Path, description = "The attachment's name."),
        ("egret-lease" = String, Header, description = "The lease, exactly as it was received with the task.")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream",
        description = "The bytes of the attachment, of the type in the header content-type."),
    responses(
        (status = 201, description = "The attachment was stored.", body = Attachment),
        (status = 409, description = "The lease has ended, or another attachment has this name.",
            body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The attachment is larger than `queue.attachment_bytes_max`.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "The limit `queue.attachments_max` or \
            `queue.attachments_bytes_total_max` is reached.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put_attachment(
    State(queues): State<Queues>,
    caller: Caller,
    Path((id, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, mut body) = request.into_parts();
    let result = match (queue::parse_task_id(&id), read_lease(&head.headers)) {
        (Ok(id), Ok(lease)) => {
            let content_type = head
                .headers
                .get(header::CONTENT_TYPE)
                .map_or(Ok(DEFAULT_CONTENT_TYPE), |value| value.to_str())
                .unwrap_or_default();
            store_attachment(&queues, &caller, id, lease, &name, content_type, &mut body).await
        }
        (Err(error), _) | (_, Err(error)) => Err(error.into()),
    };
    match result {
        Ok(attachment) => {
            let answer = Json(Attachment::from(&attachment));
            Ok((StatusCode::CREATED, answer).into_response())
        }
        Err(problem) => {
            drain(body, queues.config().attachment_bytes_max.bytes()).await;
            Err(problem)
        }
    }
}

async fn store_attachment(
    queues: &Queues,
    caller: &Caller,
    id: TaskId,
    lease: Lease,
    name: &str,
    content_type: &str,
    body: &mut Body,
) -> Result<engine::Attachment, Problem> {
    rights::require_task(queues, caller, id, rights::WORK).await?;
    let begun = queues.start_upload(caller.tenant(), id, lease, name, content_type);
    let mut upload = begun.await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_error(&error))?;
        if let Some(bytes) = frame.data_ref() {
            upload.write(bytes).await?;
        }
    }
    Ok(upload.finish().await?)
}

/// List a task's attachments
///
/// The list has the attachments that the task's completion named.
#[utoipa::path(get, path = "/v1/tasks/{id}/attachments", operation_id = "listAttachments", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:produce"]), ("token" = ["queue:read"])),
    params(("id" = String, Path, description = "The task's id.")),
    responses(
        (status = 200, description = "The attachments.", body = Attachments),
        (status = 404, description = "No task has this id.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn list_attachments(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = queue::parse_task_id(&id)?;
    rights::require_task(&queues, &caller, id, rights::READ_RESULT).await?;
    let lookup = queues.task(caller.tenant(), id, Detail::Whole);
    let view = lookup.await?;
    let items = view.attachments.iter().map(Attachment::from).collect();
    Ok(Json(Attachments { items }).into_response())
}

/// Get an attachment
///
/// The response has the bytes as they were sent. A response that is aborted because the file is
/// damaged must not be used.
#[utoipa::path(get, path = "/v1/tasks/{id}/attachments/{name}", operation_id = "getAttachment",
    tag = "queue", extensions(("x-egret-parts" = json!(true)), ("x-egret-lasting" = json!(true))),
    security(("token" = ["queue:produce"]), ("token" = ["queue:read"])),
    params(("id" = String, Path, description = "The task's id."),
        ("name" = String, Path, description = "The attachment's name.")),
    responses(
        (status = 200, description = "Its bytes.", body = Vec<u8>,
            content_type = "application/octet-stream"),
        (status = 404, description = "The task has no such attachment.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn get_attachment(
    State(queues): State<Queues>,
    caller: Caller,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id = queue::parse_task_id(&id)?;
    rights::require_task(&queues, &caller, id, rights::READ_RESULT).await?;
    let opening = queues.attachment(caller.tenant(), id, &name);
    let AttachmentFile { attachment, file } = opening.await?;
    let headers = [
        (header::CONTENT_TYPE, attachment.content_type.clone()),
        (header::CONTENT_LENGTH, attachment.size_bytes.to_string()),
        // A browser must not take what a worker sent for a page of Egret's.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}\"", attachment.name)),
    ];
    let file = tokio::fs::File::from_std(file);
    let bytes = FileBytes {
        file: tokio::io::AsyncReadExt::take(file, attachment.size_bytes),
        remaining_bytes: attachment.size_bytes,
        crc32c: 0,
        expected_crc32c: attachment.crc32c,
    };
    Ok((headers, Body::from_stream(bytes)).into_response())
}

/// The bytes of a file; the last ones are sent only if the checksum of all of them is right.
struct FileBytes {
    file: Take<tokio::fs::File>,
    remaining_bytes: u64,
    crc32c: u32,
    expected_crc32c: u32,
}

impl Stream for FileBytes {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.remaining_bytes == 0 {
            return Poll::Ready(None);
        }
        let mut bytes = BytesMut::zeroed(CHUNK_BYTES.min(self.remaining_bytes as usize));
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.file).poll_read(context, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            Poll::Ready(Ok(())) => {}
        }
        let length = buffer.filled().len();
        bytes.truncate(length);
        self.remaining_bytes -= length as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes);
        let is_intact = self.remaining_bytes > 0 || self.crc32c == self.expected_crc32c;
        if length == 0 || !is_intact {
            self.remaining_bytes = 0;
            let damaged = std::io::Error::other("the file differs from what was uploaded");
            let message = "an attachment is damaged; its download was aborted";
            condition::occur("answers_broken_off", "attachments", &damaged, message);
            return Poll::Ready(Some(Err(damaged)));
        }
        Poll::Ready(Some(Ok(bytes.freeze())))
    }
}

//! What is no message, or too large a one: refused with a code, on a connection that goes on.

use bytes::{BufMut, Bytes, BytesMut};
use egret_proto::queue::v1;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::rig::Rig;
use super::wire::{WorkerStream, enqueue, expect_error, within_timeout};

/// The largest message that the contract allows.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// A message behind its head: whether it is compressed, and its length.
fn frame(compressed: u8, length: usize, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(compressed);
    frame.put_u32(length as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// Sends bytes as they are to a call, and gives back what it ended with.
async fn send(channel: &mut Channel, token: &str, call: &str, body: Bytes) -> Status {
    std::future::poll_fn(|context| GrpcService::<Body>::poll_ready(channel, context))
        .await
        .unwrap();
    let request = Request::post(format!("/egret.queue.v1.Queue/{call}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {token}"))
        .body(Body::new(Full::new(body)))
        .unwrap();
    let response: Response<Body> =
        within_timeout(GrpcService::call(channel, request)).await.unwrap();
    assert_eq!(response.status(), 200);
    let (head, body) = response.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers) {
        return status;
    }
    let body = within_timeout(body.collect()).await.unwrap();
    let trailers = body.trailers().expect("a call ends with a status");
    Status::from_header_map(trailers).expect("a call ends with a status")
}

#[tokio::test]
async fn what_is_no_message_ends_its_call_and_nothing_else() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let mut channel = rig.channel().await;
    let mut client = rig.grpc().await;
    let mut hand = WorkerStream::begin(&mut client, "q", 10, 60_000).await;
    let streams = ["Produce", "Work"];
    let calls = ["Enqueue", "Report", "Claim", "PutQueue", "GetTask"];
    let token = &rig.test_server.admin;
    for call in streams.into_iter().chain(calls) {
        for (what, body) in [
            // Field 1 says that it is longer than what is there.
            ("malformed", frame(0, 2, &[0x0a, 0x7f])),
            // A key that is no varint.
            ("no key", frame(0, 11, &[0xff; 11])),
            // Compressed, although no compression was negotiated.
            ("compressed", frame(1, 2, &[0x0a, 0x00])),
            // A flag that is not defined.
            ("odd flag", frame(9, 0, &[])),
            // The client ends within a message.
            ("cut short", frame(0, 100, &[0x0a])),
        ] {
            let status = send(&mut channel, token, call, body).await;
            assert_ne!(status.code(), Code::Ok, "{call}: {what}");
            let said = expect_error(&status, Code::InvalidArgument, "invalid_request");
            assert!(!said.is_empty(), "{call}: {what}");
        }
    }
    // Neither a stream beside them nor the connection has noticed.
    let id = enqueue(&mut client, "q", &["x"]).await.remove(0);
    assert_eq!(hand.next_task().await.id, id);
    let empty = send(&mut channel, token, "ListQueues", frame(0, 0, &[])).await;
    assert_eq!(empty.code(), Code::Ok, "{empty:?}");
    drop(hand);
    rig.close().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_by_its_head() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let mut channel = rig.channel().await;
    let token = &rig.test_server.admin;
    for call in ["Produce", "Work", "Enqueue", "Report"] {
        let head = frame(0, MESSAGE_BYTES_MAX + 1, &[0; 64]);
        let status = send(&mut channel, token, call, head).await;
        let said = expect_error(&status, Code::ResourceExhausted, "payload_too_large");
        assert!(said.contains("8388608"), "{call}: {said}");
    }
    // As large as allowed, with payloads that are each within their own limit.
    let mut client = rig.grpc().await;
    let payload = Bytes::from(vec![b'x'; 1 << 20]);
    let task =
        |bytes: usize| v1::NewTask { payload: payload.slice(..bytes), ..v1::NewTask::default() };
    let asked = |tasks| v1::EnqueueRequest { atomic: false, queue: "q".to_owned(), tasks };
    let large = asked(vec![task(1 << 20); 7]);
    let answer = within_timeout(client.enqueue(large)).await.unwrap().into_inner();
    assert!(answer.outcomes.iter().all(|one| one.error.is_none()));
    // One payload too large is refused by itself, by the name of its limit.
    let over = Bytes::from(vec![b'x'; (1 << 20) + 1]);
    let over = v1::NewTask { payload: over, ..v1::NewTask::default() };
    let answer = within_timeout(client.enqueue(asked(vec![over, task(1)]))).await;
    let outcomes = answer.unwrap().into_inner().outcomes;
    let error = outcomes[0].error.as_ref().unwrap();
    assert_eq!(error.code, "payload_too_large");
    assert!(error.message.contains("queue.payload_bytes_max"), "{error:?}");
    assert!(outcomes[1].error.is_none());
    // What is large comes back in messages that a client takes with its usual limit, 4 MiB.
    let mut hand = WorkerStream::begin(&mut client, "q", 8, 60_000).await;
    for _ in 0..8 {
        let task = hand.next_task().await;
        hand.complete(&task.lease, "seen");
    }
    for number in 0..8 {
        hand.await_accepted(number).await;
    }
    drop(hand);
    rig.close().await;
}

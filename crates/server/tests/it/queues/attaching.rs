//! Attachments: sent, named, listed, read, refused.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::rig::{Rig, expect_status};
use crate::test_server::problem;

fn send(rig: &Rig, task: &Value, name: &str, bytes: Vec<u8>) -> RequestBuilder {
    let path = format!("/v1/tasks/{}/attachments/{name}", task["id"].as_str().unwrap());
    rig.test_server
        .request(Method::PUT, &path)
        .header("egret-lease", task["lease"].as_str().unwrap())
        .body(bytes)
}

async fn enqueue_and_claim(rig: &Rig) -> Value {
    rig.enqueue("q", json!({})).await;
    rig.claim("q").await
}

#[tokio::test]
async fn what_is_larger_than_any_other_body_comes_back_as_it_was_sent() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let task = enqueue_and_claim(&rig).await;
    let id = task["id"].as_str().unwrap();
    let bytes: Vec<u8> = (0..10 << 20).map(|at| (at / 7) as u8).collect();
    let sending =
        send(&rig, &task, "scan.tiff", bytes.clone()).header("content-type", "image/tiff");
    let sent = expect_status(sending, 201).await;
    let crc = format!("{:08x}", crc32c::crc32c(&bytes));
    let expected = json!({"name": "scan.tiff", "content_type": "image/tiff",
        "size_bytes": bytes.len(), "crc32c": crc});
    assert_eq!(sent, expected);
    expect_status(send(&rig, &task, "note", b"ok".to_vec()), 201).await;
    let list = format!("/v1/tasks/{id}/attachments");
    assert_eq!(rig.get(&list).await, json!({"items": []}));
    let done = json!({"result": {"pages": 3}, "attachments": ["scan.tiff", "note"]});
    rig.report(&task, "complete", done.clone(), 204).await;
    rig.report(&task, "complete", done, 204).await;
    let listed = rig.get(&list).await;
    assert_eq!(listed["items"][0], expected);
    assert_eq!(listed["items"][1]["content_type"], "application/octet-stream");
    let shown = rig.task(id).await;
    assert_eq!(shown["attachments"], listed["items"]);
    assert_eq!(shown["result"], json!({"pages": 3}));
    let response = rig.test_server.get(&format!("{list}/scan.tiff")).await;
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "image/tiff");
    assert_eq!(header("content-length"), bytes.len().to_string());
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("content-disposition"), "attachment; filename=\"scan.tiff\"");
    assert!(response.bytes().await.unwrap() == bytes);
    rig.delete(&format!("/v1/tasks/{id}"), 204).await;
    let gone = rig.test_server.get(&format!("{list}/scan.tiff")).await;
    problem(gone, 404, "task_not_found").await;
    rig.close().await;
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let task = enqueue_and_claim(&rig).await;
    let refused = async |request: RequestBuilder, status: u16, code: &str| {
        problem(request.send().await.unwrap(), status, code).await
    };
    let other = enqueue_and_claim(&rig).await;
    let mut foreign = task.clone();
    foreign["lease"] = other["lease"].clone();
    refused(send(&rig, &foreign, "a", vec![0; 8 << 20]), 409, "lease_lost").await;
    refused(send(&rig, &task, ".a", vec![]), 400, "invalid_request").await;
    let path = format!("/v1/tasks/{}/attachments/a", task["id"].as_str().unwrap());
    refused(rig.test_server.request(Method::PUT, &path), 400, "invalid_request").await;
    // The answer comes although the client is still sending.
    refused(send(&rig, &task, "a", vec![0; 65 << 20]), 413, "payload_too_large").await;
    let unsent = json!({"attachments": ["a"]});
    let code = rig.report(&task, "complete", unsent.clone(), 404).await;
    assert_eq!(code["code"], "attachment_not_found");
    let mut report = unsent;
    report["lease"] = task["lease"].clone();
    let mut whole = json!({"lease": other["lease"]});
    let reports = json!([{"complete": report}, {"complete": whole.clone()}]);
    let outcomes = rig.post("/v1/reports", reports, 200).await;
    assert_eq!(outcomes["items"][0]["error"]["code"], "attachment_not_found");
    assert_eq!(outcomes["items"][1]["error"], Value::Null);
    expect_status(send(&rig, &task, "a", b"x".to_vec()), 201).await;
    whole = json!([{"complete": {"lease": task["lease"], "attachments": ["a"]}}]);
    let outcomes = rig.post("/v1/reports", whole, 200).await;
    assert_eq!(outcomes["items"][0]["error"], Value::Null, "{outcomes}");
    refused(rig.test_server.request(Method::GET, &format!("{path}b")), 404, "attachment_not_found")
        .await;
    let reader = rig.token("default", &["queue:read"]);
    let writing = rig.test_server.request_without_token(Method::PUT, &path).bearer_auth(reader);
    assert_eq!(writing.send().await.unwrap().status(), 403);
    rig.close().await;
}

//! Answers that come late.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;

/// The body of an answer that ends only when it has begun.
async fn respond_late(result: Result<Value, Problem>) -> (u16, String) {
    let (end, ended) = oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        ended.await.expect("it is told");
        result
    });
    let short = Duration::from_millis(1);
    let response = respond_within(work, short, short).await;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, SPACE);
    end.send(()).unwrap();
    let rest = body.collect().await.unwrap().to_bytes();
    (status, String::from_utf8(rest.to_vec()).unwrap())
}

#[tokio::test]
async fn a_late_response_begins_before_its_result_exists() {
    let (status, text) = respond_late(Ok(json!({"documents": 7}))).await;
    assert_eq!(status, 200);
    assert_eq!(text.trim_start(), r#"{"documents":7}"#);
    let (status, text) = respond_late(Err(Problem::stopping())).await;
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &problem["code"]), (200, &json!("stopping")));
    assert!(problem["type"].as_str().unwrap().starts_with("/errors#"));
}

#[tokio::test]
async fn an_answer_in_time_has_its_status() {
    let long = Duration::from_secs(60);
    let work = tokio::spawn(async { Err::<Value, _>(Problem::stopping()) });
    let response = respond_within(work, long, long).await;
    assert_eq!(response.status().as_u16(), 503);
}

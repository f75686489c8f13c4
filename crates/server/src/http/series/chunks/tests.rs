//! Answers are whole, or broken off visibly.

use http_body_util::BodyExt;

use super::*;

#[tokio::test]
async fn a_finished_response_is_complete() {
    let (mut chunks, body) = streamed_body();
    let writing = tokio::task::spawn_blocking(move || {
        assert!(chunks.send("one, ".into()).is_continue());
        chunks
    });
    let chunks = writing.await.expect("it is written");
    chunks.finish("two".into()).await;
    let whole = body.collect().await.expect("it is whole").to_bytes();
    assert_eq!(whole, "one, two");
}

#[tokio::test]
async fn a_client_that_reads_nothing_blocks_no_other() {
    let (mut chunks, body) = streamed_body_with_wait(Duration::ZERO);
    let writing = tokio::task::spawn_blocking(move || {
        for _ in 0..QUEUED_CHUNKS_MAX {
            assert!(chunks.send("x".into()).is_continue());
        }
        assert!(chunks.send("x".into()).is_break());
        chunks
    });
    let chunks = writing.await.expect("it ends");
    assert!(chunks.is_aborted());
    chunks.finish("the end".into()).await;
    let error = body.collect().await.expect_err("it is not whole");
    assert!(error.to_string().contains("aborted"), "{error}");
}

#[tokio::test]
async fn nothing_is_written_for_a_disconnected_client() {
    let (mut chunks, body) = streamed_body();
    drop(body);
    let writing = tokio::task::spawn_blocking(move || chunks.send("x".into()));
    assert!(writing.await.expect("it ends").is_break());
}

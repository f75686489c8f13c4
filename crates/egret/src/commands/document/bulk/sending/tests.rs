//! A server that cannot take every line at once: what it may take later comes again, and nothing
//! else does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::*;
use crate::api::Address;
use crate::cli::{Color, DatabaseArgs};

/// What the server answers to a request, by how many came before it and by its lines.
type Script = fn(usize, &[String]) -> Response;

/// A server, and the lines of each request that it got.
struct Fake {
    api: Api,
    requests: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Fake {
    async fn new(script: Script) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let seen = requests.clone();
        let app = Router::new().fallback(move |body: Bytes| async move {
            let text = String::from_utf8(body.to_vec()).unwrap();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let mut seen = seen.lock().unwrap();
            let answer = script(seen.len(), &lines);
            seen.push(lines);
            answer
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { api: api(&format!("http://{address}")), requests }
    }

    /// Sends the lines with this patience; returns the totals, and whether the server was away.
    async fn deliver(
        &self,
        text: &str,
        patience: Duration,
    ) -> (Result<ImportTotals, Failure>, bool) {
        let command = command();
        let output = Output::new(false, Color::Never);
        let sender = ChunkSender {
            retry_timeout: patience,
            ..ChunkSender::new(&self.api, &command, output)
        };
        let answer = sender.deliver(text.as_bytes()).await;
        (answer, sender.was_unreachable())
    }

    fn requests(&self) -> Vec<Vec<String>> {
        self.requests.lock().unwrap().clone()
    }
}

fn api(url: &str) -> Api {
    let address =
        Address { url: url.parse().unwrap(), certificate: None, authorities: None, identity: None };
    Api::new(address, crate::api::Credentials::default()).unwrap()
}

fn command() -> ImportDocuments {
    ImportDocuments {
        collection: "airports".to_owned(),
        file: PathBuf::from("-"),
        refused: None,
        missing: None,
        relaxed: false,
        anew: false,
        place: DatabaseArgs { database: None },
    }
}

/// The answer that all lines were created but the `refused` ones: line number, error code, and
/// whether it may be retried.
fn said(lines: usize, refused: &[(usize, &str, bool)]) -> Response {
    let refused: Vec<Value> = refused
        .iter()
        .map(|(line, code, retryable)| {
            json!({"line": line, "problem": {"code": code, "detail": "not now", "retryable": retryable}})
        })
        .collect();
    let created = lines - refused.len();
    Json(json!({"created": created, "changed": 0, "unchanged": 0, "refused": refused}))
        .into_response()
}

fn numbered(lines: std::ops::RangeInclusive<usize>) -> Vec<String> {
    lines.map(|line| line.to_string()).collect()
}

#[tokio::test]
async fn only_what_may_be_taken_later_is_sent_again() {
    let fake = Fake::new(|before, lines| match before {
        0 => said(
            lines.len(),
            &[(1, "validation_failed", false), (2, "unavailable", true), (4, "unavailable", true)],
        ),
        1 => said(lines.len(), &[(2, "validation_failed", false)]),
        _ => panic!("{lines:?}"),
    })
    .await;
    let (answer, was_away) = fake.deliver("1\n\n2\n3\n4\n", RETRY_TIMEOUT).await;
    let answer = answer.unwrap();
    assert_eq!(answer.created, 2);
    // Places count the empty line.
    let refused: Vec<usize> = answer.refused.iter().map(|(place, _)| *place).collect();
    assert_eq!(refused, [0, 4]);
    let again = vec!["2".to_owned(), "4".to_owned()];
    assert_eq!(fake.requests(), [numbered(1..=4), again]);
    assert!(was_away);
}

#[tokio::test]
async fn fewer_lines_come_at_a_time_where_too_much_waits() {
    let fake = Fake::new(|_, lines| match lines.len() {
        ..=25 => said(lines.len(), &[]),
        count => {
            let all: Vec<_> = (1..=count).map(|line| (line, "overloaded", true)).collect();
            said(count, &all)
        }
    })
    .await;
    let text = numbered(1..=40).join("\n");
    let (answer, was_away) = fake.deliver(&text, RETRY_TIMEOUT).await;
    assert_eq!(answer.unwrap().created, 40);
    let all = [numbered(1..=40), numbered(1..=20), numbered(21..=40)];
    assert_eq!(fake.requests(), all);
    assert!(!was_away);
}

#[tokio::test]
async fn a_request_is_sent_again_as_its_lines_are() {
    let fake = Fake::new(|before, lines| match before {
        0 => {
            let problem = json!({"code": "stopping", "detail": "egret is stopping"});
            (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response()
        }
        _ => said(lines.len(), &[]),
    })
    .await;
    let (answer, was_away) = fake.deliver("1\n2", RETRY_TIMEOUT).await;
    assert_eq!(answer.unwrap().created, 2);
    assert_eq!(fake.requests(), [numbered(1..=2), numbered(1..=2)]);
    assert!(was_away);
}

#[tokio::test]
async fn patience_ends() {
    let fake = Fake::new(|_, lines| said(lines.len(), &[(1, "overloaded", true)])).await;
    let (answer, _) = fake.deliver("1\n2", Duration::from_millis(100)).await;
    let failure = answer.unwrap_err();
    assert_eq!(failure.code, "overloaded");
    assert_eq!(failure.message, "gave up on 1 lines after retrying for 100ms: not now");
    let one = vec!["1".to_owned()];
    assert_eq!(fake.requests(), [numbered(1..=2), one]);
}

#[tokio::test]
async fn a_server_that_never_answered_is_not_retried() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (api, command) = (api(&format!("http://{address}")), command());
    let sender = ChunkSender::new(&api, &command, Output::new(false, Color::Never));
    let failure = sender.deliver(b"1").await.unwrap_err();
    assert_eq!(failure.code, "server_unreachable");
}

#[tokio::test]
async fn a_chunk_that_is_too_large_is_sent_in_halves() {
    let fake = Fake::new(|_, lines| {
        if lines.contains(&"3".to_owned()) {
            let problem = json!({"code": "body_too_large", "detail": "too long"});
            (StatusCode::PAYLOAD_TOO_LARGE, Json(problem)).into_response()
        } else {
            said(lines.len(), &[])
        }
    })
    .await;
    let (answer, _) = fake.deliver("1\n2\n3\n4", RETRY_TIMEOUT).await;
    let answer = answer.unwrap();
    assert_eq!(answer.created, 3);
    let refused: Vec<(usize, &str)> =
        answer.refused.iter().map(|(place, problem)| (*place, problem.code.as_str())).collect();
    assert_eq!(refused, [(2, "body_too_large")]);
}

#[tokio::test]
async fn a_new_epoch_counts_as_an_absence_of_the_server() {
    let fake = Fake::new(|before, lines| {
        let epoch = if before == 0 { 3 } else { 4 };
        let answer = json!({"created": lines.len(), "changed": 0, "unchanged": 0, "refused": [], "epoch": epoch});
        Json(answer).into_response()
    })
    .await;
    let command = command();
    let sender = ChunkSender::new(&fake.api, &command, Output::new(false, Color::Never));
    sender.deliver(b"1").await.unwrap();
    assert!(!sender.was_unreachable());
    sender.deliver(b"2").await.unwrap();
    assert!(sender.was_unreachable());
}

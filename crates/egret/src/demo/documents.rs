//! The demo's flights as documents, each of which refers to its airline, its plane and two
//! airports. What is not there at first is made of what is refused for the want of it. Then
//! something is refused, and a change is followed. All of it goes through the HTTP door, as by any
//! program.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use egret_postgres::pool;
use egret_postgres::tokio_postgres::Client;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use super::delays::decode_response;
use crate::api::{Api, RawRequest};
use crate::commands::document::reasons::{DocumentProblem, Reasons};
use crate::commands::events::{Event, Listener, follow};
use crate::failure::Failure;

/// The collections as they are declared.
const COLLECTIONS: &str = include_str!("../../../../demo/flights/collections.json");

const FLIGHTS: &str = include_str!("sql/documents.sql");

/// How many there are.
const FLIGHTS_COUNT: i64 = 336_776;

/// What flights refer to: tables, which are collections of the same name.
const TARGETS: [&str; 3] = ["airlines", "airports", "planes"];

/// Lines of a request.
const CHUNK_LINES: usize = 1_000;

/// Requests on their way at a time.
const REQUESTS_IN_FLIGHT: usize = 4;

/// How long the change is waited for.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// A flight whose origin does not exist.
pub(super) const DANGLING_FLIGHT: &str = r#"{"date": "2013-01-01", "carrier": "UA", "flight": 1, "hour": 5, "tailnum": "unknown", "origin": "XXX", "dest": "ORD"}"#;

/// Results of the flights as documents.
pub(super) struct DocumentsResult {
    /// Results of the import; `None` if an earlier start has done it.
    pub imported: Option<FlightImport>,
    /// Why a flight from nowhere is refused.
    pub dangling_refusal: String,
    /// Why an airport cannot be deleted.
    pub deletion_refusal: String,
    /// The change as a follower received it; `None` if it did not come.
    pub change_event: Option<String>,
}

/// Results of the import.
pub(super) struct FlightImport {
    /// Number of flights that were accepted at first.
    pub accepted: u64,
    /// How long that took, in seconds.
    pub seconds: f64,
    /// Reasons for which the others were rejected.
    pub reasons: Vec<String>,
    /// Number of documents made of the missing references that the import has reported.
    pub missing: u64,
    /// Number of flights that were accepted after that.
    pub accepted_later: u64,
}

#[derive(Deserialize)]
struct FlightBatchResponse {
    created: u64,
    refused: Vec<RefusalItem>,
}

#[derive(Deserialize)]
struct RefusalItem {
    line: usize,
    problem: DocumentProblem,
}

/// Declares the collections, puts in what is not there, and shows what holds of it.
pub(super) async fn load_documents(
    api: &Api,
    source: &egret_postgres::tokio_postgres::Config,
    database: &str,
) -> anyhow::Result<DocumentsResult> {
    let query = [("database", database)];
    let definitions = Some(serde_json::from_str(COLLECTIONS)?);
    let path = ["collections"];
    decode_response::<Json>(api.call(Method::POST, &path, &query, definitions).await)?;
    let demo = Demo { api, database };
    let client = pool::connect(source).await?;
    let imported = if demo.count_flights().await? < FLIGHTS_COUNT {
        Some(demo.import_all(&client).await?)
    } else {
        None
    };
    let airport =
        "SELECT jsonb_strip_nulls(to_jsonb(t))::text FROM airports AS t WHERE faa = 'JFK'";
    let airport: String = client.query_one(airport, &[]).await?.get(0);
    let airport: Json = serde_json::from_str(&airport)?;
    let path = ["documents", "airports"];
    let written: Json =
        decode_response(api.call(Method::POST, &path, &query, Some(airport.clone())).await)?;
    let id = written["id"].as_str().context("a document without an id")?;
    let dangling_flight = Some(serde_json::from_str(DANGLING_FLIGHT)?);
    let path = ["documents", "flights"];
    let dangling_refusal =
        expect_refusal(api.call(Method::POST, &path, &query, dangling_flight).await)?;
    let deletion_refusal =
        expect_refusal(api.delete(&["documents", "airports", id], &query).await)?;
    Ok(DocumentsResult {
        imported,
        dangling_refusal,
        deletion_refusal,
        change_event: demo.follow_change(id, &airport).await?,
    })
}

/// What is said of what must not be done.
fn expect_refusal(answer: Result<Json, Failure>) -> anyhow::Result<String> {
    match answer {
        Err(failure) if failure.code == "unavailable" => bail!("{}", failure.message),
        Err(failure) => Ok(failure.message),
        Ok(_) => bail!("a write that must be refused was accepted"),
    }
}

struct Demo<'a> {
    api: &'a Api,
    database: &'a str,
}

impl Demo<'_> {
    /// How many flights are there.
    async fn count_flights(&self) -> anyhow::Result<i64> {
        let query = [("database", self.database), ("count", "exact"), ("limit", "1")];
        let page: Json = decode_response(self.api.get(&["documents", "flights"], &query).await)?;
        page["count"].as_i64().context("a page that is not counted")
    }

    async fn import_all(&self, client: &Client) -> anyhow::Result<FlightImport> {
        for table in TARGETS {
            let sql = format!("SELECT jsonb_strip_nulls(to_jsonb(t))::text FROM {table} AS t");
            self.import(table, &lines(client, &sql).await?).await?;
        }
        let flights = lines(client, FLIGHTS).await?;
        let started_at = Instant::now();
        let (accepted, refused) = self.import("flights", &flights).await?;
        let seconds = started_at.elapsed().as_secs_f64();
        let mut reasons = Reasons::default();
        refused.iter().for_each(|(_, problem)| reasons.add(problem));
        let mut missing = 0;
        for (collection, documents) in reasons.missing() {
            let documents: Vec<String> = documents.iter().cloned().collect();
            missing += self.import(collection, &documents).await?.0;
        }
        let retried: Vec<String> = refused.into_iter().map(|(line, _)| line).collect();
        let (accepted_later, still_refused) = self.import("flights", &retried).await?;
        if let Some((line, problem)) = still_refused.first() {
            bail!("a flight is refused, {}: {line}", problem.code);
        }
        Ok(FlightImport { accepted, seconds, reasons: reasons.lines(), missing, accepted_later })
    }

    /// Puts in documents; they can be put in again. Returns how many are new, and which were
    /// refused, with why.
    async fn import(
        &self,
        collection: &str,
        lines: &[String],
    ) -> anyhow::Result<(u64, Vec<(String, DocumentProblem)>)> {
        let requests = stream::iter(lines.chunks(CHUNK_LINES)).map(|chunk| async move {
            let path = ["collections", collection, "import"].map(str::to_owned);
            let query = [("database", self.database), ("durability", "relaxed")];
            let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let raw = RawRequest {
                query: query.into(),
                body: Some(("application/x-ndjson", chunk.join("\n").into_bytes())),
                ..RawRequest::new(Method::POST, path.into())
            };
            let answer: FlightBatchResponse =
                decode_response(self.api.send_raw(raw).await.and_then(|answer| answer.json()))?;
            let line = |item: RefusalItem| Some((chunk.get(item.line - 1)?.clone(), item.problem));
            let refused = answer.refused.into_iter().filter_map(line);
            anyhow::Ok((answer.created, refused.collect::<Vec<_>>()))
        });
        let answers = requests.buffered(REQUESTS_IN_FLIGHT);
        answers
            .try_fold((0, Vec::new()), |(created, mut refused_lines), (more, refused)| async move {
                refused_lines.extend(refused);
                Ok((created + more, refused_lines))
            })
            .await
    }

    /// Changes an airport while changes are followed, and changes it back.
    async fn follow_change(&self, id: &str, airport: &Json) -> anyhow::Result<Option<String>> {
        let (connected_sender, connected) = oneshot::channel();
        let mut listener = ChangeListener {
            database: self.database,
            connected_sender: Some(connected_sender),
            change_event: None,
        };
        let path = ["document-changes", "events"];
        let changing = async {
            connected.await.context("cannot follow changes")?;
            self.patch(id, &json!({"name": "Idlewild"})).await
        };
        let following = async {
            let result = follow(&path, self.api, &mut listener).await;
            result.map_err(|failure| anyhow::anyhow!("{}", failure.message))
        };
        let both = async { tokio::try_join!(following, changing) };
        let outcome = tokio::time::timeout(EVENT_TIMEOUT, both).await;
        self.patch(id, &json!({"name": airport["name"]})).await?;
        match outcome {
            Ok(done) => done.map(|_| listener.change_event),
            Err(_) => Ok(None),
        }
    }

    async fn patch(&self, id: &str, patch: &Json) -> anyhow::Result<()> {
        let path = ["documents", "airports", id].map(str::to_owned);
        let raw = RawRequest {
            query: vec![("database".to_owned(), self.database.to_owned())],
            body: Some(("application/merge-patch+json", patch.to_string().into_bytes())),
            ..RawRequest::new(Method::PATCH, path.into())
        };
        let answer = self.api.send_raw(raw).await;
        answer
            .map(drop)
            .map_err(|failure| anyhow::anyhow!("cannot change an airport: {}", failure.message))
    }
}

async fn lines(client: &Client, sql: &str) -> anyhow::Result<Vec<String>> {
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

struct ChangeListener<'a> {
    database: &'a str,
    connected_sender: Option<oneshot::Sender<()>>,
    change_event: Option<String>,
}

impl Listener for ChangeListener<'_> {
    const EVENT_BYTES_MAX: usize = 16 << 20;

    fn query(&self) -> Vec<(&str, String)> {
        vec![("database", self.database.to_owned()), ("collection", "airports".to_owned())]
    }

    fn handle_event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event.kind {
            Some("following") => {
                if let Some(connected_sender) = self.connected_sender.take() {
                    // The receiver is gone when the caller has stopped waiting.
                    _ = connected_sender.send(());
                }
            }
            Some("changes") => {
                let changes: Json = serde_json::from_str(event.data)
                    .map_err(|error| Failure::failed("unexpected_answer", error.to_string()))?;
                self.change_event = changes["items"].get(0).map(Json::to_string);
            }
            _ => {}
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.change_event.is_some()
    }

    fn on_disconnected(&self, failure: &Failure) {
        tracing::debug!(message = failure.message, "lost the connection to the followed changes");
    }
}

//! `egret collection …` and `egret document …`: JSON whose references never dangle.

mod bulk;
mod history;
pub(crate) mod reasons;
mod request;
mod subscription;
mod tail;

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use egret_base::Timestamp;
use reqwest::Method;
use reqwest::header::{self, HeaderName};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use self::request::{as_str_pairs, database_parameters};
use crate::api::{Api, RawRequest};
use crate::cli::{self, CountKind, DatabaseArgs, DocumentArgs, PatchKind, ProjectionArgs};
use crate::failure::Failure;
use crate::output::{Output, listing};
use crate::responses::Items;

pub(crate) async fn run_collection(
    command: cli::Collection,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::Collection::Apply { files, place } => {
            for file in files {
                let raw = RawRequest {
                    query: database_parameters(&place),
                    body: Some(("application/json", read_input(&file)?)),
                    ..RawRequest::new(Method::POST, vec!["collections".to_owned()])
                };
                let answer =
                    output.wait_with_spinner("declaring", api.send_raw(raw)).await?.json()?;
                output.print_answer(&answer, |list: Items<ApplyResult>| {
                    describe_applied(&list.items)
                })?;
            }
            Ok(())
        }
        cli::Collection::List(place) => {
            let query = database_parameters(&place);
            let answer = api.get(&["collections"], &as_str_pairs(&query)).await?;
            output.print_answer(&answer, |list: Items<Summary>| {
                let rows = list.items.iter().map(Summary::row);
                listing(&["collection", "version", "changed"], rows)
            })
        }
        cli::Collection::Show { collection, place } => {
            let query = database_parameters(&place);
            let answer = api.get(&["collections", &collection], &as_str_pairs(&query)).await?;
            if output.is_json() {
                output.print_json(&answer)
            } else {
                output.print_json(&answer["definition"])
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct ApplyResult {
    collection: String,
    outcome: String,
    #[serde(default)]
    warnings: Vec<ApplyWarning>,
}

#[derive(Debug, Deserialize)]
struct ApplyWarning {
    pointer: String,
    message: String,
}

fn describe_applied(items: &[ApplyResult]) -> String {
    let mut lines = String::new();
    for result in items {
        lines += &format!("collection {} is {}\n", result.collection, result.outcome);
        for warning in &result.warnings {
            lines += &format!("  warning: {}: {}\n", warning.pointer, warning.message);
        }
    }
    lines
}

#[derive(Debug, Deserialize)]
struct Summary {
    collection: String,
    version: i32,
    changed_at: Timestamp,
}

impl Summary {
    fn row(&self) -> Vec<String> {
        vec![self.collection.clone(), self.version.to_string(), self.changed_at.to_string()]
    }
}

pub(crate) async fn run(command: cli::Document, api: &Api, output: Output) -> Result<(), Failure> {
    use cli::Document as Command;
    match command {
        Command::Put(put) => write(put, api, output).await,
        Command::Get { document, shape, meta } => get(&document, &shape, meta, api, output).await,
        Command::Query(query) => query_documents(*query, api, output).await,
        Command::Referrers { document, paged } => {
            let query = page_parameters(&document.place, paged);
            let path = path_below(&document, "referrers");
            print_page(&fetch(path, query, api).await?, output)
        }
        Command::Tail(tail) => tail::run(tail, api, output).await,
        Command::Patch(patch) => {
            let body = Some((patch.kind.media_type(), read_input(&patch.file)?));
            let document = &patch.document;
            let raw = write_request(Method::PATCH, document, patch.if_match, body);
            let etag = api.send_raw(raw).await?.etag;
            report_written(&document.id, etag, "is changed", output)
        }
        Command::Import(import) => bulk::import(import, api, output).await,
        Command::Export { collection, meta, place } => {
            bulk::export(&collection, meta, &place, api, output).await
        }
        Command::Versions { document, paged } => {
            let query = page_parameters(&document.place, paged);
            history::list(path_below(&document, "versions"), query, api, output).await
        }
        Command::Deleted { collection, paged, place } => {
            let path = ["collections", &collection, "deleted"].map(str::to_owned);
            history::list(path.into(), page_parameters(&place, paged), api, output).await
        }
        Command::Restore { document, version } => restore(&document, version, api, output).await,
        Command::Subscription(command) => subscription::run(command, api, output).await,
        Command::Fsck { repair, place } => fsck(repair, &place, api, output).await,
        Command::Delete { document, if_match } => {
            api.send_raw(write_request(Method::DELETE, &document, if_match, None)).await?;
            report_written(&document.id, None, "is deleted", output)
        }
    }
}

async fn get(
    document: &DocumentArgs,
    shape: &ProjectionArgs,
    meta: bool,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut query = database_parameters(&document.place);
    add_projection(&mut query, shape);
    if meta {
        query.push(("meta".to_owned(), "true".to_owned()));
    }
    // A document is JSON as it is, with all digits of its numbers.
    output.print_bytes(&fetch(document_path(document), query, api).await?)
}

async fn restore(
    document: &DocumentArgs,
    version: Option<i32>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut query = database_parameters(&document.place);
    query.extend(version.map(|version| ("version".to_owned(), version.to_string())));
    let raw =
        RawRequest { query, ..RawRequest::new(Method::POST, path_below(document, "restore")) };
    let etag = api.send_raw(raw).await?.etag;
    report_written(&document.id, etag, "is restored", output)
}

async fn fetch(
    path: Vec<String>,
    query: Vec<(String, String)>,
    api: &Api,
) -> Result<Bytes, Failure> {
    let raw = RawRequest { query, ..RawRequest::new(Method::GET, path) };
    Ok(api.send_raw(raw).await?.body)
}

/// A call that writes a document, perhaps at a version only.
fn write_request(
    method: Method,
    document: &DocumentArgs,
    if_match: Option<String>,
    body: Option<(&'static str, Vec<u8>)>,
) -> RawRequest {
    let condition = if_match.map(|etag| (header::IF_MATCH, etag));
    RawRequest {
        query: database_parameters(&document.place),
        headers: condition.into_iter().collect(),
        body,
        ..RawRequest::new(method, document_path(document))
    }
}

impl PatchKind {
    fn media_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
        }
    }
}

async fn write(put: cli::PutDocument, api: &Api, output: Output) -> Result<(), Failure> {
    let mut headers: Vec<_> =
        put.if_match.map(|etag| (header::IF_MATCH, etag)).into_iter().collect();
    if put.new {
        headers.push((header::IF_NONE_MATCH, "*".to_owned()));
    }
    let idempotency_key = put.idempotency_key.into_iter();
    headers.extend(idempotency_key.map(|key| (HeaderName::from_static("idempotency-key"), key)));
    let mut path = vec!["documents".to_owned(), put.collection];
    path.extend(put.id.clone());
    let method = match put.id {
        Some(_) => Method::PUT,
        None => Method::POST,
    };
    let raw = RawRequest {
        query: database_parameters(&put.place),
        headers,
        body: Some(("application/json", read_input(&put.file)?)),
        ..RawRequest::new(method, path)
    };
    let answer = api.send_raw(raw).await?;
    let outcome = match answer.status {
        201 => "is created",
        _ => "is stored",
    };
    let id = match put.id {
        Some(id) => id,
        None => answer.json()?["id"].as_str().unwrap_or_default().to_owned(),
    };
    report_written(&id, answer.etag, outcome, output)
}

fn report_written(
    id: &str,
    etag: Option<String>,
    outcome: &str,
    output: Output,
) -> Result<(), Failure> {
    let answer = json!({"id": id, "etag": etag});
    output.print_answer(&answer, |_: Json| match &etag {
        Some(etag) => format!("document {id} {outcome}, version {etag}"),
        None => format!("document {id} {outcome}"),
    })
}

#[derive(Debug, Deserialize)]
struct CheckReport {
    documents: u64,
    aliases: u64,
    edges: u64,
    findings_count: u64,
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    kind: String,
    collection: Option<String>,
    id: Option<String>,
    message: String,
    is_repaired: bool,
}

impl Finding {
    fn row(self) -> Vec<String> {
        let repaired = if self.is_repaired { "repaired" } else { "" };
        vec![
            self.kind,
            self.collection.unwrap_or_default(),
            self.id.unwrap_or_default(),
            self.message,
            repaired.to_owned(),
        ]
    }
}

async fn fsck(
    repair: bool,
    place: &DatabaseArgs,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut query = database_parameters(place);
    if repair {
        query.push(("repair".to_owned(), "true".to_owned()));
    }
    let raw =
        RawRequest { query, ..RawRequest::new(Method::POST, vec!["document-checks".to_owned()]) };
    let answer = output.wait_with_spinner("checking", api.send_raw(raw)).await?.json()?;
    let report: CheckReport = crate::output::decode(&answer)?;
    let unrepaired =
        report.findings_count - report.findings.iter().filter(|one| one.is_repaired).count() as u64;
    output.print_answer(&answer, |checked: CheckReport| {
        let summary = format!(
            "{} documents, {} identities and {} references: {} findings",
            checked.documents, checked.aliases, checked.edges, checked.findings_count
        );
        if checked.findings.is_empty() {
            return summary;
        }
        let rows = checked.findings.into_iter().map(Finding::row);
        let head = ["finding", "collection", "document", "what", ""];
        format!("{}{summary}", listing(&head, rows))
    })?;
    match unrepaired {
        0 => Ok(()),
        left => {
            Err(Failure::failed("documents_disagree", format!("{left} findings were not repaired")))
        }
    }
}

async fn query_documents(
    query: cli::QueryDocuments,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut parameters = database_parameters(&query.place);
    let mut add = |name: &str, value: Option<String>| {
        parameters.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("identity", query.identity);
    for filter in query.filters {
        add("filter", Some(filter));
    }
    add("sort", query.sort);
    add("limit", query.limit.map(|limit| limit.to_string()));
    add("cursor", query.cursor);
    let count = query.count.map(|count| match count {
        CountKind::Exact => "exact",
        CountKind::Planned => "planned",
    });
    add("count", count.map(str::to_owned));
    add_projection(&mut parameters, &query.shape);
    let path = vec!["documents".to_owned(), query.collection];
    print_page(&fetch(path, parameters, api).await?, output)
}

#[derive(Debug, Deserialize)]
struct DocumentPage<'a> {
    #[serde(borrow)]
    items: Vec<Item<'a>>,
    count: Option<i64>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Item<'a> {
    id: String,
    collection: Option<String>,
    #[serde(borrow)]
    document: &'a RawValue,
    #[serde(borrow)]
    embedded: Option<&'a RawValue>,
}

/// A page of documents: a line for each.
fn print_page(body: &[u8], output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.print_bytes(body);
    }
    let page: DocumentPage<'_> = serde_json::from_slice(body).map_err(|error| {
        Failure::failed("failed", format!("the response is not a page: {error}"))
    })?;
    let lines = page.items.iter().map(|item| {
        let collection = item.collection.iter().map(|name| format!("{name} "));
        let embedded = item.embedded.iter().map(|embedded| format!(" {embedded}"));
        let collection: String = collection.collect();
        let embedded: String = embedded.collect();
        format!("{collection}{} {}{embedded}\n", item.id, item.document)
    });
    output.print_text(&lines.collect::<String>())?;
    if let Some(count) = page.count {
        output.print_remark(&format!("{count} in all"));
    }
    if let Some(next) = page.next {
        output.print_remark(&format!("more: --cursor {next}"));
    }
    Ok(())
}

fn document_path(document: &DocumentArgs) -> Vec<String> {
    vec!["documents".to_owned(), document.collection.clone(), document.id.clone()]
}

fn page_parameters(place: &DatabaseArgs, paged: cli::PageArgs) -> Vec<(String, String)> {
    let mut query = database_parameters(place);
    let limit = paged.limit.map(|limit| ("limit".to_owned(), limit.to_string()));
    query.extend(limit);
    query.extend(paged.cursor.map(|cursor| ("cursor".to_owned(), cursor)));
    query
}

/// What is asked for beneath a document.
fn path_below(document: &DocumentArgs, segment: &str) -> Vec<String> {
    let mut path = document_path(document);
    path.push(segment.to_owned());
    path
}

fn add_projection(query: &mut Vec<(String, String)>, shape: &ProjectionArgs) {
    let fields = shape.fields.iter().map(|fields| ("fields".to_owned(), fields.clone()));
    query.extend(fields);
    let embed = shape.embed.iter().map(|embed| ("embed".to_owned(), embed.clone()));
    query.extend(embed);
}

/// What a file holds, or standard input.
fn read_input(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

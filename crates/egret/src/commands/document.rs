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

use self::request::{borrowed, queried};
use crate::api::{Api, RawRequest};
use crate::cli::{self, CountKind, DatabaseArgs, DocumentArgs, PatchKind, ProjectionArgs};
use crate::failure::Failure;
use crate::output::{Output, listing};
use crate::responses::Items;

pub(crate) async fn collection(
    command: cli::Collection,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match command {
        cli::Collection::Apply { files, place } => {
            for file in files {
                let raw = RawRequest {
                    query: queried(&place),
                    body: Some(("application/json", text_of(&file)?)),
                    ..RawRequest::new(Method::POST, vec!["collections".to_owned()])
                };
                let answer = output.waiting("declaring", api.raw(raw)).await?.json()?;
                output.answer(&answer, |list: Items<ApplyResult>| applied(&list.items))?;
            }
            Ok(())
        }
        cli::Collection::List(place) => {
            let query = queried(&place);
            let answer = api.get(&["collections"], &borrowed(&query)).await?;
            output.answer(&answer, |list: Items<Summary>| {
                let rows = list.items.iter().map(Summary::row);
                listing(&["collection", "version", "changed"], rows)
            })
        }
        cli::Collection::Show { collection, place } => {
            let query = queried(&place);
            let answer = api
                .get(&["collections", &collection], &borrowed(&query))
                .await?;
            if output.is_json() {
                output.json(&answer)
            } else {
                output.json(&answer["definition"])
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct ApplyResult {
    collection: String,
    outcome: String,
}

fn applied(items: &[ApplyResult]) -> String {
    let lines = items
        .iter()
        .map(|one| format!("collection {} is {}\n", one.collection, one.outcome));
    lines.collect()
}

#[derive(Debug, Deserialize)]
struct Summary {
    collection: String,
    version: i32,
    changed_at: Timestamp,
}

impl Summary {
    fn row(&self) -> Vec<String> {
        vec![
            self.collection.clone(),
            self.version.to_string(),
            self.changed_at.to_string(),
        ]
    }
}

pub(crate) async fn run(command: cli::Document, api: &Api, output: Output) -> Result<(), Failure> {
    use cli::Document as Command;
    match command {
        Command::Put(put) => write(put, api, output).await,
        Command::Get {
            document,
            shape,
            meta,
        } => get(&document, &shape, meta, api, output).await,
        Command::Query(query) => look(*query, api, output).await,
        Command::Referrers { document, paged } => {
            let query = paged_query(&document.place, paged);
            let path = below(&document, "referrers");
            page(&read(path, query, api).await?, output)
        }
        Command::Tail(tail) => tail::run(tail, api, output).await,
        Command::Patch(patch) => {
            let body = Some((patch.kind.media_type(), text_of(&patch.file)?));
            let document = &patch.document;
            let raw = written(Method::PATCH, document, patch.if_match, body);
            let etag = api.raw(raw).await?.etag;
            told(&document.id, etag, "is changed", output)
        }
        Command::Import(import) => bulk::import(import, api, output).await,
        Command::Export {
            collection,
            meta,
            place,
        } => bulk::export(&collection, meta, &place, api, output).await,
        Command::Versions { document, paged } => {
            let query = paged_query(&document.place, paged);
            history::list(below(&document, "versions"), query, api, output).await
        }
        Command::Deleted {
            collection,
            paged,
            place,
        } => {
            let path = ["collections", &collection, "deleted"].map(str::to_owned);
            history::list(path.into(), paged_query(&place, paged), api, output).await
        }
        Command::Restore { document, version } => restore(&document, version, api, output).await,
        Command::Subscription(command) => subscription::run(command, api, output).await,
        Command::Fsck { repair, place } => fsck(repair, &place, api, output).await,
        Command::Delete { document, if_match } => {
            api.raw(written(Method::DELETE, &document, if_match, None))
                .await?;
            told(&document.id, None, "is deleted", output)
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
    let mut query = queried(&document.place);
    shaped(&mut query, shape);
    if meta {
        query.push(("meta".to_owned(), "true".to_owned()));
    }
    // A document is JSON as it is, with all digits of its numbers.
    output.bytes(&read(path(document), query, api).await?)
}

async fn restore(
    document: &DocumentArgs,
    version: Option<i32>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut query = queried(&document.place);
    query.extend(version.map(|version| ("version".to_owned(), version.to_string())));
    let raw = RawRequest {
        query,
        ..RawRequest::new(Method::POST, below(document, "restore"))
    };
    let etag = api.raw(raw).await?.etag;
    told(&document.id, etag, "is restored", output)
}

async fn read(
    path: Vec<String>,
    query: Vec<(String, String)>,
    api: &Api,
) -> Result<Bytes, Failure> {
    let raw = RawRequest {
        query,
        ..RawRequest::new(Method::GET, path)
    };
    Ok(api.raw(raw).await?.body)
}

/// A call that writes a document, perhaps at a version only.
fn written(
    method: Method,
    document: &DocumentArgs,
    if_match: Option<String>,
    body: Option<(&'static str, Vec<u8>)>,
) -> RawRequest {
    let condition = if_match.map(|etag| (header::IF_MATCH, etag));
    RawRequest {
        query: queried(&document.place),
        headers: condition.into_iter().collect(),
        body,
        ..RawRequest::new(method, path(document))
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
    let mut headers: Vec<_> = put
        .if_match
        .map(|etag| (header::IF_MATCH, etag))
        .into_iter()
        .collect();
    if put.new {
        headers.push((header::IF_NONE_MATCH, "*".to_owned()));
    }
    let key = put.idempotency_key.into_iter();
    headers.extend(key.map(|key| (HeaderName::from_static("idempotency-key"), key)));
    let mut path = vec!["documents".to_owned(), put.collection];
    path.extend(put.id.clone());
    let method = match put.id {
        Some(_) => Method::PUT,
        None => Method::POST,
    };
    let raw = RawRequest {
        query: queried(&put.place),
        headers,
        body: Some(("application/json", text_of(&put.file)?)),
        ..RawRequest::new(method, path)
    };
    let answer = api.raw(raw).await?;
    let done = match answer.status {
        201 => "is created",
        _ => "is stored",
    };
    let id = match put.id {
        Some(id) => id,
        None => answer.json()?["id"].as_str().unwrap_or_default().to_owned(),
    };
    told(&id, answer.etag, done, output)
}

fn told(id: &str, etag: Option<String>, done: &str, output: Output) -> Result<(), Failure> {
    let answer = json!({"id": id, "etag": etag});
    output.answer(&answer, |_: Json| match &etag {
        Some(etag) => format!("document {id} {done}, version {etag}"),
        None => format!("document {id} {done}"),
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
    let mut query = queried(place);
    if repair {
        query.push(("repair".to_owned(), "true".to_owned()));
    }
    let raw = RawRequest {
        query,
        ..RawRequest::new(Method::POST, vec!["document-checks".to_owned()])
    };
    let answer = output.waiting("checking", api.raw(raw)).await?.json()?;
    let checked: CheckReport = crate::output::decode(&answer)?;
    let left = checked.findings_count
        - checked
            .findings
            .iter()
            .filter(|one| one.is_repaired)
            .count() as u64;
    output.answer(&answer, |checked: CheckReport| {
        let looked = format!(
            "{} documents, {} identities and {} references: {} findings",
            checked.documents, checked.aliases, checked.edges, checked.findings_count
        );
        if checked.findings.is_empty() {
            return looked;
        }
        let rows = checked.findings.into_iter().map(Finding::row);
        let head = ["finding", "collection", "document", "what", ""];
        format!("{}{looked}", listing(&head, rows))
    })?;
    match left {
        0 => Ok(()),
        left => Err(Failure::failed(
            "documents_disagree",
            format!("{left} findings were not repaired"),
        )),
    }
}

async fn look(query: cli::QueryDocuments, api: &Api, output: Output) -> Result<(), Failure> {
    let mut asked = queried(&query.place);
    let mut add = |name: &str, value: Option<String>| {
        asked.extend(value.map(|value| (name.to_owned(), value)));
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
    shaped(&mut asked, &query.shape);
    let path = vec!["documents".to_owned(), query.collection];
    page(&read(path, asked, api).await?, output)
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
fn page(body: &[u8], output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.bytes(body);
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
    output.text(&lines.collect::<String>())?;
    if let Some(count) = page.count {
        output.remark(&format!("{count} in all"));
    }
    if let Some(next) = page.next {
        output.remark(&format!("more: --cursor {next}"));
    }
    Ok(())
}

fn path(document: &DocumentArgs) -> Vec<String> {
    vec![
        "documents".to_owned(),
        document.collection.clone(),
        document.id.clone(),
    ]
}

fn paged_query(place: &DatabaseArgs, paged: cli::PageArgs) -> Vec<(String, String)> {
    let mut query = queried(place);
    let limit = paged
        .limit
        .map(|limit| ("limit".to_owned(), limit.to_string()));
    query.extend(limit);
    query.extend(paged.cursor.map(|cursor| ("cursor".to_owned(), cursor)));
    query
}

/// What is asked for beneath a document.
fn below(document: &DocumentArgs, what: &str) -> Vec<String> {
    let mut path = path(document);
    path.push(what.to_owned());
    path
}

fn shaped(query: &mut Vec<(String, String)>, shape: &ProjectionArgs) {
    let fields = shape
        .fields
        .iter()
        .map(|fields| ("fields".to_owned(), fields.clone()));
    query.extend(fields);
    let embed = shape
        .embed
        .iter()
        .map(|embed| ("embed".to_owned(), embed.clone()));
    query.extend(embed);
}

/// What a file holds, or standard input.
fn text_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

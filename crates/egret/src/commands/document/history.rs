//! What documents were.

use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::{Api, RawRequest};
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, Deserialize)]
struct HistoryPage<'a> {
    #[serde(borrow)]
    items: Vec<Version<'a>>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Version<'a> {
    id: String,
    version: i32,
    replaced_at: String,
    is_deleted: bool,
    #[serde(borrow)]
    document: &'a RawValue,
}

/// Prints a page of versions: a line for each.
pub(super) async fn list(
    path: Vec<String>,
    query: Vec<(String, String)>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let raw = RawRequest { query, ..RawRequest::new(Method::GET, path) };
    let body = api.send_raw(raw).await?.body;
    if output.is_json() {
        return output.print_bytes(&body);
    }
    let page: HistoryPage<'_> = serde_json::from_slice(&body).map_err(|error| {
        Failure::failed("failed", format!("the response is not a page: {error}"))
    })?;
    let lines = page.items.iter().map(|item| {
        let end = if item.is_deleted { "deleted" } else { "until" };
        format!(
            "{} version {} {end} {} {}\n",
            item.id, item.version, item.replaced_at, item.document
        )
    });
    output.print_text(&lines.collect::<String>())?;
    if let Some(next) = page.next {
        output.print_remark(&format!("more: --cursor {next}"));
    }
    Ok(())
}

//! `egret audit`: what was changed and what was refused, with the token and the address.

use std::time::Duration;

use egret_base::settings::ConfigDuration;
use egret_base::{Clock, SystemClock, Timestamp};

use crate::api::Api;
use crate::failure::Failure;
use crate::output::{Output, format_duration, listing, printable};
use crate::responses::{AuditEntry, Items};

/// Which entries are listed.
pub(crate) struct AuditRequest {
    pub(crate) since: Option<ConfigDuration>,
    pub(crate) token: Option<String>,
    pub(crate) operation: Option<String>,
    pub(crate) limit: u32,
}

pub(crate) async fn list(request: AuditRequest, api: &Api, output: Output) -> Result<(), Failure> {
    let mut query = vec![("limit", request.limit.to_string())];
    if let Some(ConfigDuration(since_ms)) = request.since {
        let since = subtract(SystemClock.now(), Duration::from_millis(since_ms));
        query.push(("since", since.to_string()));
    }
    query.extend(request.token.map(|token| ("token", token)));
    query.extend(request.operation.map(|operation| ("operation", operation)));
    let query: Vec<(&str, &str)> =
        query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = api.get(&["audit"], &query).await?;
    output.print_answer(&answer, table)
}

fn subtract(now: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(micros))
}

fn table(entries: Items<AuditEntry>) -> String {
    let absent = || "-".to_owned();
    let mut head = vec!["at", "operation", "object", "status", "token", "tenant", "address"];
    // Only sessions through the proxy have one.
    let has_remarks = entries.items.iter().any(|entry| entry.reason.is_some());
    head.extend(has_remarks.then_some("remark"));
    let columns = head.len();
    let rows = entries.items.into_iter().map(|entry| {
        // Of a session the role stands in the place of the token.
        let holder = entry.token_name.or(entry.token).or(entry.role);
        let duration = entry.duration_ms.map(format_duration);
        let remark: Vec<String> = entry.reason.into_iter().chain(duration).collect();
        let cells = [
            entry.at,
            entry.operation,
            entry.object.unwrap_or_else(absent),
            entry.status.to_string(),
            holder.unwrap_or_else(absent),
            entry.tenant.unwrap_or_else(absent),
            entry.address.unwrap_or_else(absent),
            remark.join(" after "),
        ];
        let cells = cells.iter().take(columns);
        cells.map(|cell| one_line(cell)).collect()
    });
    listing(&head, rows)
}

/// Names that clients without a token may choose neither steer the terminal nor look like lines.
fn one_line(text: &str) -> String {
    printable(&text.replace(['\n', '\r'], " "))
}

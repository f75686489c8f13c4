//! JSON Schemas of strings in requests: names, ids and durations, as the engines check them.
//!
//! The patterns have no flags and look neither ahead nor behind, so that all dialects of regular
//! expressions read them alike. Where an engine counts bytes, the length that is published is right
//! for ASCII. Blanks around a duration or a cron expression, which the engines leave out, are not
//! published, nor are other blanks between fields than spaces.

use egret_queue::limits;
use serde_json::{Value, json};

use crate::tokens::{CLAIM_LENGTH_MAX, NAME_LENGTH_MAX, TENANT_LENGTH_MAX};

/// A UUID of version 7.
const UUID: &str = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

/// The beginning of a branch's name, and what may follow.
const BRANCH_NAME: (&str, &str) = ("[a-z0-9]", "[a-z0-9_-]");

/// A field of an expression of the times at which something is done.
const CRON_FIELD: &str = "[0-9A-Za-z*,/?#-]+";

/// The names of such expressions, without the `@` before them. They are taken in upper and lower
/// case.
const CRON_NAMES: [&str; 6] = ["hourly", "daily", "weekly", "monthly", "yearly", "annually"];

/// Any character but U+0000, which PostgreSQL's text type cannot hold.
const WITHOUT_NUL: &str = "[^\\u0000]";

/// Durations that are at least ten milliseconds and no longer than what a number of them can say.
const DURATION: &str = "(?:[1-9][0-9]{1,10} *ms|[1-9][0-9]{0,7} *s|[1-9][0-9]{0,5} *(?:min|m)|[1-9][0-9]{0,4} *h|[1-9][0-9]{0,2} *d)";

/// The id of a task, a document or a template.
pub(super) fn id() -> Value {
    json!({"format": "uuid", "pattern": format!("^{UUID}$")})
}

/// The id of a task, or its place in the same call: `#0`.
pub(super) fn task_reference() -> Value {
    json!({"pattern": format!("^(?:{UUID}|#[0-9]{{1,3}})$")})
}

pub(super) fn branch_name() -> Value {
    let (first, other) = BRANCH_NAME;
    json!({
        "pattern": format!("^{first}{other}*$"),
        "minLength": 1,
        "maxLength": egret_branches::model::NAME_CHARS_MAX,
    })
}

/// Where a branch comes from.
pub(super) fn branch_origin() -> Value {
    let (first, other) = BRANCH_NAME;
    let rest_max = egret_branches::model::NAME_CHARS_MAX - 1;
    let name = format!("{first}{other}{{0,{rest_max}}}");
    json!({"pattern": format!("^(?:template|head|template:{UUID}|branch:{name})$")})
}

/// The template of a reset.
pub(super) fn template_origin() -> Value {
    json!({"pattern": format!("^template:{UUID}$")})
}

/// The name of a queue or of a schedule.
pub(super) fn queue_name() -> Value {
    json!({
        "pattern": "^[A-Za-z0-9_.:][A-Za-z0-9_.:-]*$",
        "minLength": 1,
        "maxLength": limits::NAME_BYTES_MAX,
    })
}

/// The name of a queue, or an empty string where the path names the queue.
pub(super) fn other_queue_name() -> Value {
    json!({
        "pattern": "^(?:[A-Za-z0-9_.:][A-Za-z0-9_.:-]*)?$",
        "maxLength": limits::NAME_BYTES_MAX,
    })
}

pub(super) fn attachment_name() -> Value {
    json!({
        "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
        "minLength": 1,
        "maxLength": limits::ATTACHMENT_NAME_BYTES_MAX,
    })
}

/// A key, a tag or another text that a task carries.
pub(super) fn task_text() -> Value {
    json!({"maxLength": limits::TEXT_BYTES_MAX})
}

/// The address of a callback, or nothing.
pub(super) fn callback_url() -> Value {
    json!({"pattern": "^(?:https?://.+)?$", "maxLength": limits::TEXT_BYTES_MAX})
}

/// A lease, as a worker was given it.
pub(super) fn lease() -> Value {
    json!({"pattern": "^0[0-9a-fA-F]{31}$", "minLength": 32, "maxLength": 32})
}

pub(super) fn base64() -> Value {
    let whole = "(?:[A-Za-z0-9+/]{4})*";
    let rest = "(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?";
    json!({"contentEncoding": "base64", "pattern": format!("^{whole}{rest}$")})
}

/// When tasks of a schedule are made.
pub(super) fn cron() -> Value {
    let names = CRON_NAMES.map(case_insensitive).join("|");
    let fields = cron_fields("3,4");
    json!({"pattern": format!("^(?:@(?:{names})|{fields})$")})
}

/// The fields of a cron expression, so many of them between the first and the last one, which may
/// begin with `+`.
fn cron_fields(middle_count: &str) -> String {
    format!("{CRON_FIELD}(?: +{CRON_FIELD}){{{middle_count}}} +[+]?{CRON_FIELD}")
}

/// A pattern of a word of small letters that takes each of them as a capital, too.
fn case_insensitive(word: &str) -> String {
    word.chars().map(|letter| format!("[{}{letter}]", letter.to_ascii_uppercase())).collect()
}

pub(super) fn time_zone() -> Value {
    json!({"pattern": "^[A-Za-z0-9_+/-]*$"})
}

/// The name of a collection, a reference or a subscription.
pub(super) fn collection_name() -> Value {
    json!({
        "pattern": "^[a-z][a-z0-9_-]*$",
        "minLength": 1,
        "maxLength": egret_documents::model::NAME_CHARS_MAX,
    })
}

/// A path in documents, as definitions have it.
pub(super) fn document_path() -> Value {
    path_pattern("(?:[^~/]|~[01])*")
}

/// A path in documents without wildcards: none of its steps is `*`.
pub(super) fn single_document_path() -> Value {
    let character = "(?:[^~/]|~[01])";
    path_pattern(&format!("(?:(?:[^*~/]|~[01]){character}*|[*]{character}+)?"))
}

fn path_pattern(step: &str) -> Value {
    let steps = egret_documents::model::DEPTH_MAX - 1;
    json!({
        "pattern": format!("^(?:/{step}){{1,{steps}}}$"),
        "minLength": 1,
        "maxLength": egret_documents::core::path::PATH_BYTES_MAX,
    })
}

/// The name of a view, with its schema or without.
pub(super) fn view_name() -> Value {
    let bytes_max = egret_views::model::NAME_BYTES_MAX;
    let part =
        format!("(?:[^\".\\u0000]{{1,{bytes_max}}}|\"(?:[^\"\\u0000]|\"\"){{1,{bytes_max}}}\")");
    json!({
        "pattern": format!("^{part}(?:[.]{part})?$"),
        "not": {"pattern": "^(?:egret|\"egret\")[.]"},
    })
}

/// When a view is refreshed.
pub(super) fn view_schedule() -> Value {
    let fields = cron_fields("3");
    json!({"pattern": format!("^(?:manual|{DURATION}|{fields})$")})
}

pub(super) fn duration() -> Value {
    json!({"pattern": format!("^{DURATION}$")})
}

/// A text that becomes a statement or a name of PostgreSQL.
pub(super) fn sql_text() -> Value {
    json!({"pattern": format!("^{WITHOUT_NUL}*$")})
}

pub(super) fn token_id() -> Value {
    json!({"pattern": "^[0-9a-hjkmnp-tv-z]{12}$", "minLength": 12, "maxLength": 12})
}

pub(super) fn token_name() -> Value {
    printable(NAME_LENGTH_MAX)
}

/// The name of a claim, or a value.
pub(super) fn claim() -> Value {
    printable(CLAIM_LENGTH_MAX)
}

pub(super) fn tenant() -> Value {
    json!({"pattern": "^[a-z0-9_-]+$", "minLength": 1, "maxLength": TENANT_LENGTH_MAX})
}

fn printable(length_max: usize) -> Value {
    json!({
        "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
        "minLength": 1,
        "maxLength": length_max,
    })
}

#[cfg(test)]
mod tests;

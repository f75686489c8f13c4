//! The published schemas of strings accept the same values as the engines.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret_base::CronSchedule;
use egret_base::settings::{ConfigDuration, Value as _};
use egret_branches::model::{BranchName, BranchSource};
use egret_documents::core::path::Path;
use egret_documents::model::CollectionName;
use egret_queue::model::{Lease, TaskId};
use egret_queue::testing::attachment;
use egret_views::model::{Schedule, ViewName};
use regex::Regex;

use super::*;
use crate::tokens::{Scope, check_tenant};

/// Whether a schema accepts a string.
fn allows(schema: &Value, text: &str) -> bool {
    let pattern = Regex::new(schema["pattern"].as_str().unwrap()).unwrap();
    let length = text.chars().count() as u64;
    let is_refused = schema.get("not").is_some_and(|not| allows(not, text));
    pattern.is_match(text)
        && length >= schema["minLength"].as_u64().unwrap_or(0)
        && length <= schema["maxLength"].as_u64().unwrap_or(u64::MAX)
        && !is_refused
}

/// Compares a published schema with the engine's own check.
fn check(schema: &Value, is_taken: impl Fn(&str) -> bool, texts: &[&str]) {
    for text in texts {
        assert_eq!(allows(schema, text), is_taken(text), "{text:?}");
    }
    assert!(texts.iter().any(|text| is_taken(text)));
    assert!(texts.iter().any(|text| !is_taken(text)));
}

/// Whether `T` can be parsed from it.
fn parses<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

const VERSION_7: &str = "0197a3c2-7a53-7c11-9d2e-3f1c5a7b9d10";
const VERSION_4: &str = "0197a3c2-7a53-4c11-9d2e-3f1c5a7b9d10";

#[test]
fn ids() {
    let upper = VERSION_7.to_ascii_uppercase();
    let texts = ["", VERSION_7, &upper, VERSION_4, "0197a3c2", "#0"];
    check(&id(), parses::<TaskId>, &texts);
    let leases = ["0".repeat(32), "0aF9".repeat(8), "1".repeat(32), "f".repeat(32)];
    let leases: Vec<&str> = leases.iter().map(String::as_str).collect();
    check(&lease(), parses::<Lease>, &[&leases[..], &["", "0"]].concat());
    assert!(allows(&task_reference(), "#12") && allows(&task_reference(), VERSION_7));
    assert!(!allows(&task_reference(), "12"));
}

#[test]
fn names() {
    let (longest, longer) = ("a".repeat(63), "a".repeat(64));
    let plain =
        ["", "a", "a-b_c", "0", "-a", "_a", "A", "a.b", "a b", "ä", "a\n", &longest, &longer];
    check(&branch_name(), parses::<BranchName>, &plain);
    check(&collection_name(), parses::<CollectionName>, &plain);
    check(&tenant(), |text| check_tenant(text).is_ok(), &plain);
    let longest = "a".repeat(128);
    let attachments = ["", "a", ".a", "a.b", "-", "a/b", "ä", &longest];
    let is_name = |text: &str| attachment::check_name(text).is_ok();
    check(&attachment_name(), is_name, &attachments);
    let origins = [
        "",
        "template",
        "head",
        "branch:a",
        "branch:",
        "branch:A",
        "other",
        "template:x",
        &format!("template:{VERSION_7}"),
        &format!("template:{VERSION_4}"),
        &format!("branch:{}", "a".repeat(64)),
    ];
    check(&branch_origin(), parses::<BranchSource>, &origins);
}

#[test]
fn names_of_views_and_paths_in_documents() {
    let (longest, longer) = ("v".repeat(63), "v".repeat(64));
    let names = [
        "",
        "v",
        "s.v",
        "s.v.w",
        ".v",
        "s.",
        "a b",
        "\"s.t\".v",
        "\"a\"\"b\"",
        "\"a",
        "egret.v",
        "\"egret\".v",
        "egret",
        "Ä",
        "\0",
        &longest,
        &longer,
    ];
    check(&view_name(), parses::<ViewName>, &names);
    let deep = "/a".repeat(63);
    let deeper = "/a".repeat(64);
    let paths = ["", "a", "/", "/a", "/a/*/b", "/a~0b~1c", "/a~", "/a~2", "//", &deep, &deeper];
    check(&document_path(), parses::<Path>, &paths);
    let is_single = |text: &str| text.parse::<Path>().is_ok_and(|path| !path.is_plural());
    let paths = [&paths[..], &["/*", "/**", "/*a", "/a*", "/~0*", "/*~0", "/a/*", "/*/a"]].concat();
    check(&single_document_path(), is_single, &paths);
}

#[test]
fn times() {
    let texts = [
        "",
        "manual",
        "5s",
        "10ms",
        "1min",
        "1m",
        "2h",
        "7d",
        "5",
        "5 weeks",
        "15 min",
        "1  h",
        "1.5s",
        "-1s",
        "*/5 * * * *",
        "*/5  *   * * *",
        "0 8 * * MON-FRI",
        "0 8 13 * +FRI",
        "* * * *",
    ];
    check(&view_schedule(), parses::<Schedule>, &texts);
    let spans = ["", "5s", "10ms", "1m", "15 min", "999d", "5", "s"];
    check(&duration(), |text| ConfigDuration::read(text).is_ok(), &spans);
}

#[test]
fn cron_expressions() {
    let texts = [
        "",
        "* * * * *",
        "*/5  *  * * *",
        "0 0 8 * * MON",
        "@hourly",
        "@annually",
        "@Daily",
        "@WEEKLY",
        "@daily ly",
        "0 8 13 * +FRI",
        "0 0 8 13 * +fri#L",
        "0 8 +13 * *",
        "0 8 13 * +",
        "@never",
        "* * * *",
    ];
    check(&cron(), |text| CronSchedule::parse_strict(text, "").is_ok(), &texts);
}

#[test]
fn bytes_in_base64() {
    let texts = ["", "AAAA", "AA==", "AB==", "AAA=", "AAB=", "A", "AAA", "AA=A", "A A=", "+/=="];
    check(&base64(), |text| STANDARD.decode(text).is_ok(), &texts);
}

#[test]
fn scopes() {
    let areas = ["metrics", "queue", "documents", "views"];
    let pattern = json!({"pattern": Scope::pattern(&areas)});
    let (longest, longer) = ("q".repeat(128), "q".repeat(129));
    let texts = [
        "",
        "admin",
        "admin:read",
        "queue:read",
        "queue:produce",
        "queue:*",
        "queue:",
        "queue",
        "queue/a:work",
        "queue/a*:read",
        "queue/*:read",
        "queue/:read",
        "queue/a b:read",
        "documents/a:read",
        "documents/a*:read",
        "documents:operate",
        "views/s.v:*",
        "metrics:read",
        "metrics/a:read",
        "other:read",
        &format!("queue/{longest}:read"),
        &format!("queue/{longer}:read"),
    ];
    check(&pattern, |text| Scope::parse(text, &areas).is_ok(), &texts);
}

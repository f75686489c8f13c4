//! Schema `egret` of the source in a branch: what others have in it is not there.

use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{ask, hostile};
use crate::place::Place;

/// In each secret of the source, so that a search for it finds all.
const SECRET: &str = "kept-from-branches";

/// A tenant with a token of its own.
struct Tenant<'a> {
    place: &'a Place,
    token: String,
}

impl Tenant<'_> {
    fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        // Another test may have done so.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://127.0.0.1:{}/v1/{path}", self.place.ports[0]);
        let client = Client::builder().no_proxy().build().unwrap();
        let request = client.request(method, &url).bearer_auth(&self.token);
        Runtime::new().unwrap().block_on(async {
            let answer = request.json(body).send().await.unwrap();
            let status = answer.status();
            let body = answer.text().await.unwrap();
            assert!(status.is_success(), "{url}: {status} {body}");
            serde_json::from_str(&body).unwrap_or_default()
        })
    }

    fn write(&self, number: u32, note: &str) {
        let note = json!({"n": number.to_string(), "note": note});
        self.send(Method::POST, "documents/notes", &note);
    }
}

/// Egret with documents of two tenants, a webhook of each, rows of an outbox, and a failed view.
fn fill(place: &Place) {
    let made = place.json(&["token", "create", "other", "--tenant", "other", "--scope", "admin"]);
    let other = made["token"].as_str().unwrap().to_owned();
    let tenants = [place.admin_token(), other].map(|token| Tenant { place, token });
    let collection = json!({"collections": [{"collection": "notes", "identity": ["/n"], "history": {"versions": 3},
        "schema": {"type": "object", "required": ["n"],
            "properties": {"n": {"type": "string"}, "note": {"type": "string"}}}}]});
    tenants[0].send(Method::POST, "collections", &collection);
    for (at, tenant) in tenants.iter().enumerate() {
        let hook =
            json!({"webhook": format!("http://me:{SECRET}@127.0.0.1:9/{SECRET}"), "after": 0});
        tenant.send(Method::PUT, "document-subscriptions/hook", &hook);
        for number in 0..40 {
            let note = if at == 0 { "ours" } else { SECRET };
            tenant.write(number, note);
        }
    }
    place.json(&["queue", "outbox", "install", "--database", "postgres"]);
    let source = place.source("postgres");
    // For a queue that does not exist, so that it stays.
    let enqueue = format!("SELECT egret.enqueue('nowhere', '{{\"to\": \"{SECRET}\"}}'::jsonb)");
    place.psql(&source, &enqueue).unwrap();
    place.psql(&source, "ANALYZE").unwrap();
}

/// Every table and view of schema `egret`, and statistics, as text.
const EVERYTHING: &str = "SELECT string_agg(query_to_xml(format('SELECT * FROM egret.%I', relname), true, true, '')::text, '')
    || (SELECT string_agg(coalesce(most_common_vals::text, '') || coalesce(histogram_bounds::text, ''), '') FROM pg_stats)
    FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relkind IN ('r', 'v', 'm')";

const NOTES: &str = "SELECT count(*) FROM egret.document";

#[test]
fn a_branch_holds_nothing_that_schema_egret_keeps_for_others() {
    let mut place = Place::new("branch-schema-egret");
    place.variables = vec![("EGRET_OUTGOING_ALLOW", "127.0.0.1".to_owned())];
    let server = place.start(&["serve"]);
    fill(&place);
    let source = place.source("postgres");
    assert_eq!(place.psql(&source, NOTES).unwrap(), "80");
    let rows =
        "SELECT (SELECT count(*) FROM egret.outbox) + (SELECT count(*) FROM egret.outbox_rejected)";
    assert_eq!(place.psql(&source, rows).unwrap(), "1");
    assert!(ask(&source, EVERYTHING).unwrap().contains(SECRET));

    place.json(&["branch", "create", "plain"]);
    for url in [place.connection_string("plain", "postgres"), hostile(&place, "admin")] {
        assert_eq!(ask(&url, NOTES).unwrap(), "40");
        let everything = ask(&url, EVERYTHING).unwrap();
        assert!(everything.contains("ours"), "{everything}");
        assert!(!everything.contains(SECRET), "{everything}");
        for table in ["outbox", "outbox_rejected", "document_subscription", "document_request"] {
            let rows = ask(&url, &format!("SELECT count(*) FROM egret.{table}"));
            assert_eq!(rows.unwrap(), "0", "{table}");
        }
        // Nothing of Egret runs there with other rights than those of the caller, and works still.
        let elevated = "SELECT count(*) FROM pg_proc WHERE prosecdef AND proowner = 10";
        assert_eq!(ask(&url, elevated).unwrap(), "0");
        ask(&url, "SELECT egret.enqueue('nowhere', '{}'::jsonb)").unwrap();
        let triggers = "SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
            JOIN pg_proc p ON p.oid = tgfoid WHERE pronamespace = 'egret'::regnamespace
            AND relnamespace <> pronamespace AND NOT tgisinternal";
        assert_eq!(ask(&url, triggers).unwrap(), "0");
    }
    // The source has all of it.
    assert_eq!(place.psql(&source, NOTES).unwrap(), "80");
    server.stop(Signal::TERM);
}

#[test]
fn documents_of_all_tenants_or_of_none_are_in_branches_where_a_setting_says_so() {
    for (setting, notes) in [("all", "80"), ("none", "0")] {
        let mut place = Place::new(&format!("branch-documents-{setting}"));
        place.variables = vec![
            ("EGRET_OUTGOING_ALLOW", "127.0.0.1".to_owned()),
            ("EGRET_BRANCHES_DOCUMENTS", setting.to_owned()),
        ];
        let server = place.start(&["serve"]);
        fill(&place);
        place.json(&["branch", "create", "plain"]);
        let url = place.connection_string("plain", "postgres");
        assert_eq!(ask(&url, NOTES).unwrap(), notes);
        let webhooks = "SELECT count(*) FROM egret.document_subscription";
        assert_eq!(ask(&url, webhooks).unwrap(), "0");
        server.stop(Signal::TERM);
    }
}

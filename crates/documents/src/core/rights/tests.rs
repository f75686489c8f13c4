//! Rights of callers on documents, by claim.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::*;
use crate::core::definition::parse;

fn definition() -> Definition {
    let file = json!({"collection": "marks", "identity": ["/id"], "query": ["/school", "/year"],
        "claims": {"school": "/school", "year": "/year"},
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "integer"}, "school": {"type": "string"}, "year": {"type": "integer"}}}});
    let mut given = parse(file.to_string().as_bytes()).unwrap();
    given.pop().unwrap().definition
}

fn rights(claims: &[(&str, &[&str])]) -> Rights {
    let values = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    let each = claims.iter().map(|(name, all)| ((*name).to_owned(), values(all)));
    let claims: BTreeMap<String, BTreeSet<String>> = each.collect();
    Rights { claims: Some(claims), ..Rights::default() }
}

#[test]
fn a_document_is_seen_by_those_whose_claims_all_have_its_values() {
    let definition = definition();
    let rights = rights(&[("school", &["a", "b"]), ("year", &["2026"])]);
    let missing = |body| rights.missing_claim(&definition, &body).map(str::to_owned);
    assert_eq!(missing(json!({"id": 1, "school": "b", "year": 2026})), None);
    assert_eq!(missing(json!({"id": 1, "school": "c", "year": 2026})).as_deref(), Some("school"));
    assert_eq!(missing(json!({"id": 1, "school": "a", "year": 2025})).as_deref(), Some("year"));
    // A document without a value at the path is not covered by any claim.
    assert_eq!(missing(json!({"id": 1, "school": "a"})).as_deref(), Some("year"));
}

#[test]
fn without_a_claim_nothing_is_seen_and_without_claims_everything() {
    let definition = definition();
    let body = json!({"id": 1, "school": "a", "year": 2026});
    assert!(rights(&[]).missing_claim(&definition, &body).is_some());
    assert!(!rights(&[]).is_unrestricted(&definition));
    assert!(Rights::default().missing_claim(&definition, &body).is_none());
    assert!(Rights::default().is_unrestricted(&definition));
}

#[test]
fn queries_are_bound_by_claims() {
    let filters =
        rights(&[("school", &["a"]), ("year", &["2026", "x"])]).claim_filters(&definition());
    let tests: Vec<&Test> = filters.iter().map(|filter| &filter.test).collect();
    assert_eq!(tests, [&Test::In(vec![json!("a")]), &Test::In(vec![json!(2026)])]);
}

#[test]
fn collections_are_read_and_written_by_those_who_may() {
    let rights = Rights {
        read: Reach::All,
        write: Reach::Only(BTreeSet::from(["marks".parse().unwrap()])),
        claims: None,
    };
    assert!(rights.allows(Action::Write, &"marks".parse().unwrap()));
    assert!(!rights.allows(Action::Write, &"schools".parse().unwrap()));
    assert!(rights.allows(Action::Read, &"schools".parse().unwrap()));
}

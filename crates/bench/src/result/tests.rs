//! What is written is what the schema says; what is no result is refused with the reason.

use serde_json::json;

use super::*;
use crate::sample;

fn schema() -> jsonschema::Validator {
    let text = include_str!("../../schema/result-1.schema.json");
    let schema: Value = serde_json::from_str(text).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn schema_errors(value: &Value) -> Vec<String> {
    schema().iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn sample_json() -> Value {
    let mut file = sample::file();
    file.environment.egret_commit = format!("{}+dirty", "0a".repeat(20));
    let of_second = file.timeline[0].operations.get_mut("create").unwrap();
    of_second.histogram = Some("HISTFAAA".to_owned());
    file.runs = vec![Run {
        errors: BTreeMap::from([("40001 serialization_failure".to_owned(), 3)]),
        ..Run::from_result(&file)
    }];
    file.attachments = BTreeMap::from([("profile".to_owned(), "x.folded.txt".to_owned())]);
    file.cycles[0].error = Some("timeout".to_owned());
    serde_json::to_value(file).unwrap()
}

#[test]
fn a_written_file_is_what_the_schema_says() {
    assert_eq!(schema_errors(&sample_json()), Vec::<String>::new());
}

/// Without this a field could be added to the types and forgotten in the schema.
#[test]
fn the_schema_names_every_field_and_no_other() {
    for pointer in [
        "",
        "/environment",
        "/environment/generator",
        "/metrics/create",
        "/timeline/0",
        "/timeline/0/operations/create",
        "/warmup",
        "/cycles/0",
        "/phases/clone",
        "/runs/0",
        "/runs/0/warmup",
        "/runs/0/cycles/0",
        "/runs/0/timeline/0",
    ] {
        let mut file = sample_json();
        let object = file.pointer_mut(pointer).and_then(Value::as_object_mut);
        object.unwrap().insert("new_field".to_owned(), json!(1));
        assert_eq!(schema_errors(&file).len(), 1, "{pointer}");
        assert!(serde_json::from_value::<ResultFile>(file).is_err(), "{pointer}");
    }
}

#[test]
fn a_run_of_several_keeps_everything_but_histograms() {
    let mut file = sample::file();
    let of_second = file.timeline[0].operations.get_mut("create").unwrap();
    of_second.histogram = Some("HISTFAAA".to_owned());
    let run = Run::from_result(&file);
    assert_eq!((&run.warmup, &run.cycles), (&file.warmup, &file.cycles));
    assert_eq!(run.timeline.len(), file.timeline.len());
    assert!(!serde_json::to_string(&run).unwrap().contains("histogram"));
}

/// Files of before a field was there, as far as this program's own tests can say it.
#[test]
fn what_was_written_earlier_is_read() {
    let mut old = sample_json();
    for (pointer, field) in [
        ("/warmup", "watched"),
        ("/warmup", "standard_error"),
        ("/runs/0", "timeline"),
        ("/runs/0", "warmup"),
        ("/runs/0", "cycles"),
    ] {
        let object = old.pointer_mut(pointer).and_then(Value::as_object_mut);
        assert!(object.unwrap().remove(field).is_some(), "{pointer} {field}");
    }
    assert_eq!(schema_errors(&old), Vec::<String>::new());
    serde_json::from_value::<ResultFile>(old).unwrap();
}

#[test]
fn the_schema_refuses_what_cannot_be() {
    for (pointer, wrong) in [
        ("/schema", json!(2)),
        ("/metrics/create/unit", json!("parsecs")),
        ("/metrics/create/p50", json!(-1)),
        ("/metrics/create/histogram", json!("no base64!")),
        ("/started_at", json!("yesterday")),
        ("/environment/binary_sha256", json!("short")),
        ("/timeline/0/second", json!(-1)),
    ] {
        let mut file = sample_json();
        *file.pointer_mut(pointer).unwrap() = wrong;
        assert_eq!(schema_errors(&file).len(), 1, "{pointer}");
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let file = sample::file();
    file.write(&path).unwrap();
    assert_eq!(ResultFile::read(&path).unwrap(), file);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_is_no_result_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let check = |bytes: &[u8], expected: &str| {
        fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", ResultFile::read(&path).unwrap_err());
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("result.json"), "{error}");
    };
    let whole = serde_json::to_vec(&sample_json()).unwrap();
    check(&whole[..whole.len() / 2], "is not complete JSON");
    check(b"", "is not complete JSON");
    check(b"\x00\xff", "is not complete JSON");
    check(b"[1, 2]", "format null is not 1");
    check(b"{\"schema\": 9}", "format 9 is not 1");
    check(b"{\"schema\": 1}", "is not a result file: missing field");
    let error = ResultFile::read(&directory.path().join("missing")).unwrap_err();
    assert!(format!("{error:#}").contains("cannot read"), "{error:#}");
}

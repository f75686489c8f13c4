//! What is noted is read again, by the same import alone, and as far as it was written.

use std::path::Path;

use super::*;
use crate::cli::DatabaseArgs;

/// An import of a file in a directory.
fn import(directory: &Path, noted: FlushMode) -> ProgressFile {
    let path = directory.join("flights.ndjson");
    if !path.exists() {
        std::fs::write(&path, "{}\n").unwrap();
    }
    let command = ImportDocuments {
        collection: "flights".to_owned(),
        file: path.clone(),
        refused: None,
        missing: None,
        relaxed: false,
        anew: false,
        place: DatabaseArgs { database: None },
    };
    let server = "http://somebody:secret@127.0.0.1:7070/".parse().unwrap();
    let source = ImportIdentity::new(&server, &command, &path.metadata().unwrap());
    ProgressFile::new(directory.join("progress"), source, noted)
}

fn mark(lines: u64) -> Checkpoint {
    let counts = LineCounts { lines, ..LineCounts::default() };
    Checkpoint { offset: lines * 10, counts, refusals: None }
}

fn missing(airport: &str) -> DocumentProblem {
    let reference = json!({"reference": "origin", "to": "airports", "identity": {"/faa": airport}});
    let problem =
        json!({"code": "unresolved_reference", "detail": "no", "references": [reference]});
    serde_json::from_value(problem).unwrap()
}

fn left(progress: &ProgressFile) -> ResumeState {
    match progress.read_prior().unwrap() {
        PriorProgress::SameImport(left) => left,
        PriorProgress::Nothing => panic!("nothing is noted"),
        PriorProgress::OtherImport(what) => panic!("{what}"),
    }
}

/// What is another than it was for `changed`.
fn another(directory: &Path, change: impl FnOnce(&mut ImportIdentity)) -> String {
    let mut changed = import(directory, FlushMode::Immediate);
    change(&mut changed.identity);
    match changed.read_prior().unwrap() {
        PriorProgress::OtherImport(what) => what,
        PriorProgress::SameImport(_) | PriorProgress::Nothing => panic!("it is not noticed"),
    }
}

#[test]
fn what_is_noted_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = import(directory.path(), FlushMode::Immediate);
    assert!(matches!(first.read_prior(), Ok(PriorProgress::Nothing)));
    first.add_refusal(&missing("LAX"));
    first.write_checkpoint(&mark(1)).unwrap();
    first.add_refusal(&missing("SFO"));
    first.write_checkpoint(&mark(2)).unwrap();
    // The next was being written.
    let path = &first.path;
    let mut text = std::fs::read_to_string(path).unwrap();
    assert!(!text.contains("secret"), "{text}");
    text.push_str("{\"refused\":{\"code\":\"validation_failed\"}}\n{\"reached\":{\"offset\":30,");
    std::fs::write(path, text).unwrap();

    let mut second = import(directory.path(), FlushMode::Immediate);
    let found = left(&second);
    assert_eq!(found.checkpoint, mark(2));
    let reasons =
        ["2 lines: unresolved_reference, origin in airports: 2 of them do not exist".to_owned()];
    assert_eq!(found.reasons.lines(), reasons);
    second.resume(&found).unwrap();
    second.write_checkpoint(&mark(3)).unwrap();

    let third = import(directory.path(), FlushMode::Immediate);
    let found = left(&third);
    assert_eq!((found.checkpoint, found.reasons.lines()), (mark(3), reasons.to_vec()));
    third.remove();
    assert!(matches!(third.read_prior(), Ok(PriorProgress::Nothing)));
}

#[test]
fn what_may_be_taken_back_is_written_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut progress = import(directory.path(), FlushMode::Deferred);
    progress.add_refusal(&missing("LAX"));
    progress.write_checkpoint(&mark(1)).unwrap();
    assert!(matches!(progress.read_prior(), Ok(PriorProgress::Nothing)));
    progress.add_refusal(&missing("SFO"));
    progress.write_checkpoint(&mark(2)).unwrap();
    let found = left(&progress);
    assert_eq!(found.checkpoint, mark(1));
    let reason = "1 lines: unresolved_reference, origin in airports: 1 of them do not exist";
    assert_eq!(found.reasons.lines(), [reason]);
}

#[test]
fn another_import_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), FlushMode::Immediate).write_checkpoint(&mark(1)).unwrap();
    let another = |change: fn(&mut ImportIdentity)| another(directory.path(), change);
    assert_eq!(
        another(|source| source.server = "http://127.0.0.1:7071".to_owned()),
        "an import to http://127.0.0.1:7070 was interrupted"
    );
    assert_eq!(
        another(|source| source.database = Some("flights".to_owned())),
        "an import without --database was interrupted"
    );
    assert_eq!(
        another(|source| source.collection = "planes".to_owned()),
        "an import to collection flights was interrupted"
    );
    let changed = "the file has changed since its import was interrupted";
    assert_eq!(another(|source| source.file_bytes += 1), changed);
    assert_eq!(another(|source| source.file_changed_at.1 += 1), changed);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let progress = import(directory.path(), FlushMode::Immediate);
    for text in ["42% done", "{\"collection\": \"flights\", \"offset\": 7}\n"] {
        std::fs::write(&progress.path, text).unwrap();
        let Err(failure) = progress.read_prior() else {
            panic!("it is taken for a progress: {text}");
        };
        assert!(failure.message.contains("is not the progress file"), "{failure}");
    }
}

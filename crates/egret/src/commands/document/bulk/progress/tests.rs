//! What is noted is read again, by the same import alone, and as far as it was written.

use std::path::Path;

use super::*;
use crate::cli::Place;

/// An import of a file in a directory.
fn import(directory: &Path, noted: Noted) -> Progress {
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
        place: Place { database: None },
    };
    let server = "http://somebody:secret@127.0.0.1:7070/".parse().unwrap();
    let source = Source::new(&server, &command, &path.metadata().unwrap());
    Progress::new(directory.join("progress"), source, noted)
}

fn mark(lines: u64) -> Mark {
    let counts = Counts {
        lines,
        ..Counts::default()
    };
    Mark {
        offset: lines * 10,
        counts,
        refusals: None,
    }
}

fn missing(airport: &str) -> Problem {
    let reference = json!({"reference": "origin", "to": "airports", "identity": {"/faa": airport}});
    let problem =
        json!({"code": "unresolved_reference", "detail": "no", "references": [reference]});
    serde_json::from_value(problem).unwrap()
}

fn left(progress: &Progress) -> Left {
    match progress.earlier().unwrap() {
        Earlier::This(left) => left,
        Earlier::Nothing => panic!("nothing is noted"),
        Earlier::Another(what) => panic!("{what}"),
    }
}

/// What is another than it was for `changed`.
fn another(directory: &Path, change: impl FnOnce(&mut Source)) -> String {
    let mut changed = import(directory, Noted::AtOnce);
    change(&mut changed.source);
    match changed.earlier().unwrap() {
        Earlier::Another(what) => what,
        Earlier::This(_) | Earlier::Nothing => panic!("it is not noticed"),
    }
}

#[test]
fn what_is_noted_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = import(directory.path(), Noted::AtOnce);
    assert!(matches!(first.earlier(), Ok(Earlier::Nothing)));
    first.refuse(&missing("LAX"));
    first.note(&mark(1)).unwrap();
    first.refuse(&missing("SFO"));
    first.note(&mark(2)).unwrap();
    // The next was being written.
    let path = &first.path;
    let mut text = std::fs::read_to_string(path).unwrap();
    assert!(!text.contains("secret"), "{text}");
    text.push_str("{\"refused\":{\"code\":\"validation_failed\"}}\n{\"reached\":{\"offset\":30,");
    std::fs::write(path, text).unwrap();

    let mut second = import(directory.path(), Noted::AtOnce);
    let found = left(&second);
    assert_eq!(found.mark, mark(2));
    let reasons =
        ["2 lines: unresolved_reference, origin in airports: 2 of them are not there".to_owned()];
    assert_eq!(found.reasons.lines(), reasons);
    second.go_on(&found).unwrap();
    second.note(&mark(3)).unwrap();

    let third = import(directory.path(), Noted::AtOnce);
    let found = left(&third);
    assert_eq!(
        (found.mark, found.reasons.lines()),
        (mark(3), reasons.to_vec())
    );
    third.forget();
    assert!(matches!(third.earlier(), Ok(Earlier::Nothing)));
}

#[test]
fn what_may_be_taken_back_is_written_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut progress = import(directory.path(), Noted::Later);
    progress.refuse(&missing("LAX"));
    progress.note(&mark(1)).unwrap();
    assert!(matches!(progress.earlier(), Ok(Earlier::Nothing)));
    progress.refuse(&missing("SFO"));
    progress.note(&mark(2)).unwrap();
    let found = left(&progress);
    assert_eq!(found.mark, mark(1));
    let reason = "1 lines: unresolved_reference, origin in airports: 1 of them are not there";
    assert_eq!(found.reasons.lines(), [reason]);
}

#[test]
fn another_import_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), Noted::AtOnce)
        .note(&mark(1))
        .unwrap();
    let another = |change: fn(&mut Source)| another(directory.path(), change);
    assert_eq!(
        another(|source| source.server = "http://127.0.0.1:7071".to_owned()),
        "an import to http://127.0.0.1:7070 was broken off"
    );
    assert_eq!(
        another(|source| source.database = Some("flights".to_owned())),
        "an import without --database was broken off"
    );
    assert_eq!(
        another(|source| source.collection = "planes".to_owned()),
        "an import to collection flights was broken off"
    );
    let changed = "the file has changed since its import was broken off";
    assert_eq!(another(|source| source.file_bytes += 1), changed);
    assert_eq!(another(|source| source.file_changed_at.1 += 1), changed);
}

#[test]
fn what_somebody_else_wrote_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let progress = import(directory.path(), Noted::AtOnce);
    for text in ["42% done", "{\"collection\": \"flights\", \"offset\": 7}\n"] {
        std::fs::write(&progress.path, text).unwrap();
        let Err(failure) = progress.earlier() else {
            panic!("it is taken for a progress: {text}");
        };
        assert!(
            failure.message.contains("does not say how far"),
            "{failure}"
        );
    }
}

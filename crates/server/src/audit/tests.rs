//! Entries are written, rotated, found again; a flood of requests without success leaves the others in place.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn options(directory: &std::path::Path) -> AuditOptions {
    AuditOptions {
        directory: directory.join("audit"),
        file_bytes_max: 1_000,
        files_max: 3,
    }
}

fn entry(number: u64, token: Option<&str>) -> AuditEntry {
    AuditEntry {
        at: Timestamp::from_micros(1_800_000_000_000_000 + number as i64),
        request_id: format!("r{number}"),
        token: token.map(str::to_owned),
        token_name: None,
        tenant: token.map(|_| "default".to_owned()),
        address: Some("127.0.0.1".to_owned()),
        operation: "deleteQueue".to_owned(),
        object: Some("orders".to_owned()),
        status: 204,
        suppressed: 0,
    }
}

fn all() -> AuditFilter {
    AuditFilter {
        limit: 1_000,
        ..AuditFilter::default()
    }
}

#[test]
fn entries_are_rotated_and_found_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    assert_eq!(log.read(&all()).unwrap(), []);
    for number in 0..40 {
        log.record(entry(number, Some("t")));
    }
    let found = log.read(&all()).unwrap();
    assert_eq!(found[0], entry(39, Some("t")));
    assert!(found.windows(2).all(|pair| pair[0].at > pair[1].at));
    assert!(found.len() < 40);
    let files: Vec<_> = std::fs::read_dir(directory.path().join("audit"))
        .unwrap()
        .map(|file| file.unwrap())
        .collect();
    assert_eq!(files.len(), 3);
    for file in files {
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert!(metadata.len() <= 1_000);
    }
    let of = |token: &str| AuditFilter {
        token: Some(token.to_owned()),
        ..all()
    };
    assert_eq!(log.read(&of("other")).unwrap(), []);
    assert_eq!(log.read(&of("t")).unwrap(), found);
    drop(log);
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    assert_eq!(log.read(&all()).unwrap(), found);
}

#[test]
fn requests_without_success_are_bounded_and_counted() {
    for token in [None, Some("narrow")] {
        let directory = tempfile::tempdir().unwrap();
        let many = AuditOptions {
            file_bytes_max: 1 << 20,
            ..options(directory.path())
        };
        let log = AuditLog::start(many, &mut Registry::default()).unwrap();
        for number in 0..1_000 {
            log.record(AuditEntry {
                status: 403,
                ..entry(number, token)
            });
        }
        log.record(entry(1_000, token));
        log.record(AuditEntry {
            status: 404,
            ..entry(1_001, Some("other"))
        });
        let found = log.read(&all()).unwrap();
        assert_eq!(found.len() as u64, FAILED_PER_MINUTE_MAX + 2);
        assert_eq!(found[1].suppressed, 1_000 - FAILED_PER_MINUTE_MAX);
    }
}

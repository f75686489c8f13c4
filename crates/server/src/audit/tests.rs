//! Entries are written, rotated, found again; a flood of requests without success leaves the others in place.

use std::os::unix::fs::PermissionsExt;

use super::lines::LinesFromEnd;
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

fn turn(log: &AuditLog) -> AuditTurn {
    let mut enter = std::pin::pin!(log.enter("default"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match enter.as_mut().poll(&mut context) {
        std::task::Poll::Ready(turn) => turn.unwrap(),
        std::task::Poll::Pending => panic!("another query reads"),
    }
}

#[test]
fn entries_are_rotated_and_found_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    assert_eq!(log.read(&turn(&log), &all()).unwrap(), []);
    for number in 0..40 {
        log.record(entry(number, Some("t")));
    }
    let found = log.read(&turn(&log), &all()).unwrap();
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
    assert_eq!(log.read(&turn(&log), &of("other")).unwrap(), []);
    assert_eq!(log.read(&turn(&log), &of("t")).unwrap(), found);
    drop(log);
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    assert_eq!(log.read(&turn(&log), &all()).unwrap(), found);
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
        let found = log.read(&turn(&log), &all()).unwrap();
        assert_eq!(found.len() as u64, FAILED_PER_MINUTE_MAX + 2);
        assert_eq!(found[1].suppressed, 1_000 - FAILED_PER_MINUTE_MAX);
    }
}

#[tokio::test]
async fn queries_read_one_at_a_time_and_a_tenant_has_few() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    let reading = log.enter("one").await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(log.enter("one"))).collect();
    let mut other = Box::pin(log.enter("two"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for wait in waiting.iter_mut().chain([&mut other]) {
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
    let refused = log.enter("one").await.unwrap_err();
    assert!(
        matches!(
            refused,
            RequestError::QuotaExceeded {
                limit: "audit_queries_per_tenant_max",
                max: 4
            }
        ),
        "{refused}"
    );
    drop((reading, waiting));
    drop(other.await.unwrap());
    drop(log.enter("one").await.unwrap());
}

#[test]
fn a_file_is_read_from_its_end_in_pieces() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    let lines = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut lines = LinesFromEnd::new(std::fs::File::open(&path).unwrap()).unwrap();
        std::iter::from_fn(|| lines.previous().unwrap())
            .map(|line| String::from_utf8(line).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(""), [""; 0]);
    assert_eq!(lines("torn"), ["torn"]);
    assert_eq!(lines("a\n\nb\n"), ["", "b", "", "a"]);
    let long = "l".repeat(50_000);
    let many = format!("first\n{}last\n", format!("{long}\n").repeat(20));
    let found = lines(&many);
    assert_eq!(found.len(), 23);
    assert_eq!((&*found[1], &*found[22]), ("last", "first"));
    assert!(found[2..22].iter().all(|line| *line == long));
    for size in [65_537, 131_072, 300_000] {
        let too_long = "t".repeat(size);
        assert_eq!(lines(&format!("a\n{too_long}\nb\n")), ["", "b", "a"]);
        assert_eq!(lines(&too_long), [""; 0]);
    }
}

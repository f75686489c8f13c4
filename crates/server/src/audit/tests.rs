//! Entries are written, rotated, found again; floods of requests without success and of sessions
//! leave the others in place.

use std::os::unix::fs::PermissionsExt;

use egret_base::{ManualClock, SystemEntropy};

use super::lines::LinesFromEnd;
use super::quota::{FAILED_PER_MINUTE_MAX, FAILED_PER_TENANT_MINUTE_MAX};
use super::session_quota::{SESSIONS_PER_MINUTE_MAX, SESSIONS_PER_TENANT_MINUTE_MAX};
use super::*;

fn options(directory: &std::path::Path) -> AuditOptions {
    AuditOptions { directory: directory.join("audit"), file_bytes_max: 1_000, files_max: 3 }
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
        database: None,
        role: None,
        reason: None,
        duration_ms: None,
    }
}

fn all() -> AuditFilter {
    AuditFilter { limit: 1_000, ..AuditFilter::default() }
}

fn acquire_turn(log: &AuditLog) -> AuditTurn {
    let mut enter = std::pin::pin!(log.acquire_turn("default"));
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
    assert_eq!(log.read(&acquire_turn(&log), &all()).unwrap(), []);
    for number in 0..40 {
        log.record(entry(number, Some("t")));
    }
    let found = log.read(&acquire_turn(&log), &all()).unwrap();
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
    let of = |token: &str| AuditFilter { token: Some(token.to_owned()), ..all() };
    assert_eq!(log.read(&acquire_turn(&log), &of("other")).unwrap(), []);
    assert_eq!(log.read(&acquire_turn(&log), &of("t")).unwrap(), found);
    drop(log);
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    assert_eq!(log.read(&acquire_turn(&log), &all()).unwrap(), found);
}

#[test]
fn rotated_files_are_not_overwritten_whatever_the_clock_says() {
    for micros_per_entry in [0, -1] {
        let directory = tempfile::tempdir().unwrap();
        let mut files =
            AuditFiles::new(AuditOptions { files_max: 100, ..options(directory.path()) });
        for number in 0..40 {
            let at = Timestamp::from_micros(1_800_000_000_000_000 + number * micros_per_entry);
            files.append(&AuditEntry { at, ..entry(number as u64, Some("t")) }).unwrap();
        }
        let found = files.read(&all()).unwrap();
        let numbers: Vec<String> = found.into_iter().map(|entry| entry.request_id).collect();
        let expected: Vec<String> = (0..40).rev().map(|number| format!("r{number}")).collect();
        assert_eq!(numbers, expected);
    }
}

#[test]
fn requests_without_success_are_bounded_and_counted() {
    for token in [None, Some("narrow")] {
        let directory = tempfile::tempdir().unwrap();
        let many = AuditOptions { file_bytes_max: 1 << 20, ..options(directory.path()) };
        let log = AuditLog::start(many, &mut Registry::default()).unwrap();
        for number in 0..1_000 {
            log.record(AuditEntry { status: 403, ..entry(number, token) });
        }
        log.record(entry(1_000, token));
        log.record(AuditEntry { status: 404, ..entry(1_001, Some("other")) });
        let found = log.read(&acquire_turn(&log), &all()).unwrap();
        assert_eq!(found.len() as u64, FAILED_PER_MINUTE_MAX + 2);
        assert_eq!(found[1].suppressed, 1_000 - FAILED_PER_MINUTE_MAX);
    }
}

fn open_with_large_files(directory: &std::path::Path) -> Arc<AuditLog> {
    let options = AuditOptions { file_bytes_max: 4 << 20, ..options(directory) };
    Arc::new(AuditLog::start(options, &mut Registry::default()).unwrap())
}

#[test]
fn many_tokens_of_a_tenant_have_a_bound_together() {
    let directory = tempfile::tempdir().unwrap();
    let log = open_with_large_files(directory.path());
    let refused = |number: u64, token: &str, tenant: &str| AuditEntry {
        status: 403,
        tenant: Some(tenant.to_owned()),
        ..entry(number, Some(token))
    };
    for number in 0..1_000 {
        log.record(refused(number, &format!("made-{}", number % 100), "acme"));
    }
    log.record(refused(1_000, "other", "default"));
    let found = log.read(&acquire_turn(&log), &all()).unwrap();
    assert_eq!(found.len() as u64, FAILED_PER_TENANT_MINUTE_MAX + 1);
    assert_eq!(found[0].token.as_deref(), Some("other"));
    assert_eq!(found[0].suppressed, 1_000 - FAILED_PER_TENANT_MINUTE_MAX);
}

fn attempt(branch: &str, address: u8) -> SessionAttempt {
    SessionAttempt {
        address: [127, 0, 0, address].into(),
        tenant: "acme".to_owned(),
        branch: branch.to_owned(),
        database: "app".to_owned(),
        role: "egret_branch".to_owned(),
        is_authenticated: true,
    }
}

fn sessions(log: &Arc<AuditLog>) -> (Arc<ManualClock>, SessionAudit) {
    let clock = Arc::new(ManualClock::starting_at(entry(0, None).at));
    let sessions = SessionAudit::new(log.clone(), clock.clone(), Arc::new(SystemEntropy));
    (clock, sessions)
}

#[test]
fn a_session_is_recorded_when_it_opens_and_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let log = open_with_large_files(directory.path());
    let (_, sessions) = sessions(&log);
    let mut record = sessions.record_opening(&attempt("pr-42", 1)).unwrap();
    record.set_end_reason("finished");
    drop(record);
    let found = log.read(&acquire_turn(&log), &all()).unwrap();
    let [end, open] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(open.request_id, end.request_id);
    assert_eq!(open.operation, "openBranchSession");
    assert_eq!(open.object.as_deref(), Some("pr-42"));
    assert_eq!(open.role.as_deref(), Some("egret_branch"));
    assert_eq!(open.address.as_deref(), Some("127.0.0.1"));
    assert_eq!((open.status, open.duration_ms), (200, None));
    assert_eq!(end.operation, "endBranchSession");
    assert_eq!(end.reason.as_deref(), Some("finished"));
    assert!(end.duration_ms.is_some());
}

#[test]
fn a_flood_of_sessions_is_counted_and_others_are_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let log = open_with_large_files(directory.path());
    let (clock, sessions) = sessions(&log);
    for _ in 0..1_000 {
        drop(sessions.record_opening(&attempt("pr-42", 1)));
    }
    drop(sessions.record_opening(&attempt("pr-42", 2)));
    let found = log.read(&acquire_turn(&log), &all()).unwrap();
    let opened = |address: &str| {
        let opened = found.iter().filter(|entry| {
            entry.operation == "openBranchSession" && entry.address.as_deref() == Some(address)
        });
        let counts: Vec<u64> = opened.map(|entry| entry.suppressed).collect();
        (counts.len() as u64, counts.iter().sum::<u64>())
    };
    // The latest one that was counted only is recorded with the number of those before it.
    let counted = 1_000 - SESSIONS_PER_MINUTE_MAX;
    let recorded = SESSIONS_PER_MINUTE_MAX + 1;
    assert_eq!(opened("127.0.0.1"), (recorded, counted - 1));
    assert_eq!(opened("127.0.0.2"), (1, 0));
    // Another minute is another flood.
    clock.advance(Duration::from_secs(60));
    drop(sessions.record_opening(&attempt("pr-42", 1)));
    let again = log.read(&acquire_turn(&log), &all()).unwrap();
    assert_eq!(again.len(), found.len() + 2);
}

#[test]
fn many_branches_of_a_tenant_have_a_bound_together() {
    let directory = tempfile::tempdir().unwrap();
    let log = open_with_large_files(directory.path());
    let (_, sessions) = sessions(&log);
    let opened = (0..400).filter(|number| {
        let attempt = attempt(&format!("pr-{number}"), 1);
        sessions.record_opening(&attempt).is_some()
    });
    assert_eq!(opened.count() as u64, SESSIONS_PER_TENANT_MINUTE_MAX);
}

#[test]
fn refused_sessions_have_bounds_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let log = open_with_large_files(directory.path());
    let (_, sessions) = sessions(&log);
    let refusal = || SessionRefusal { status: 401, reason: "password" };
    for number in 0..1_000 {
        let guess =
            SessionAttempt { is_authenticated: false, ..attempt(&format!("guess-{number}"), 1) };
        sessions.record_refusal(&guess, refusal());
    }
    // Neither a request without a token nor a client with the password is counted among them.
    log.record(AuditEntry { status: 401, ..entry(1, None) });
    sessions.record_refusal(&attempt("pr-42", 1), refusal());
    let found = log.read(&acquire_turn(&log), &all()).unwrap();
    assert_eq!(found.len() as u64, FAILED_PER_MINUTE_MAX + 2);
    assert_eq!(found[1].suppressed, 1_000 - FAILED_PER_MINUTE_MAX);
    assert_eq!(found[2].reason.as_deref(), Some("password"));
}
#[tokio::test]
async fn queries_read_one_at_a_time_and_a_tenant_has_few() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::start(options(directory.path()), &mut Registry::default()).unwrap();
    let reading = log.acquire_turn("one").await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(log.acquire_turn("one"))).collect();
    let mut other = Box::pin(log.acquire_turn("two"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for wait in waiting.iter_mut().chain([&mut other]) {
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
    let refused = log.acquire_turn("one").await.unwrap_err();
    assert!(
        matches!(
            refused,
            RequestError::QuotaExceeded { limit: "audit_queries_per_tenant_max", max: 4 }
        ),
        "{refused}"
    );
    drop((reading, waiting));
    drop(other.await.unwrap());
    drop(log.acquire_turn("one").await.unwrap());
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

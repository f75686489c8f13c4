//! Messages and kinds of errors.

use expect_test::expect;

use super::*;

#[test]
fn error_messages_codes_and_kinds() {
    let violations = |count: usize| {
        let all = (0..count).map(|index| Violation::new(format!("/{index}"), "must be a string"));
        all.collect::<Vec<_>>()
    };
    let errors = [
        DocumentsError::DefinitionInvalid { violations: violations(1) },
        DocumentsError::ValidationFailed { violations: violations(3) },
        DocumentsError::PayloadTooLarge {
            bytes: 12,
            bytes_max: 10,
            limit: "documents.document_bytes_max",
        },
    ];
    let lines: Vec<String> = errors
        .iter()
        .map(|error| format!("{} {:?} {}: {error}", error.code(), error.kind(), error.retryable()))
        .collect();
    expect![[r#"
        definition_invalid Invalid false: the definition is not valid: /0: must be a string
        validation_failed Invalid false: the document is not valid: /0: must be a string (and 2 more)
        payload_too_large TooLarge false: the body has 12 bytes with its numbers written out, more than the maximum of 10 (`documents.document_bytes_max`)"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn rejected_values_are_not_retryable() {
    let said = |code: &str| DocumentsError::Server {
        code: Some(SqlState::from_code(code)),
        message: String::new(),
        is_lost: false,
    };
    for code in ["22P02", "22003", "54000", "54001"] {
        let error = said(code);
        assert_eq!((error.kind(), error.retryable()), (Kind::Invalid, false));
        assert!(error.is_caused_by_write(), "{code}");
    }
    for code in ["40001", "53100", "57P01", "58030"] {
        let error = said(code);
        assert_eq!((error.kind(), error.retryable()), (Kind::Unavailable, true));
    }
}

#[test]
fn only_errors_with_a_code_are_attributed_to_the_server() {
    let not_running = egret_postgres::PostgresError::NotRunning { reason: "stopped".to_owned() };
    let error = DocumentsError::from(not_running);
    assert_eq!(error.to_string(), "PostgreSQL is not ready: stopped");
    let removed = DocumentsError::Removed {
        missing: "relation \"egret.document\" does not exist".to_owned(),
    };
    let error = removed.into_damaged_schema();
    let message = "PostgreSQL reports: relation \"egret.document\" does not exist";
    assert_eq!(error.to_string(), message);
}

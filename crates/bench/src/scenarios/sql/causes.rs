//! Why a transaction failed, in few enough words to count by.

use crate::postgres::Fault;

/// SQLSTATEs that a load meets, by the names of PostgreSQL's appendix A.
const SQLSTATE_NAMES: [(&str, &str); 16] = [
    ("08006", "connection_failure"),
    ("22P02", "invalid_text_representation"),
    ("23502", "not_null_violation"),
    ("23503", "foreign_key_violation"),
    ("23505", "unique_violation"),
    ("23514", "check_violation"),
    ("25P02", "in_failed_sql_transaction"),
    ("40001", "serialization_failure"),
    ("40P01", "deadlock_detected"),
    ("42P01", "undefined_table"),
    ("53100", "disk_full"),
    ("53200", "out_of_memory"),
    ("53300", "too_many_connections"),
    ("55P03", "lock_not_available"),
    ("57014", "query_canceled"),
    ("57P01", "admin_shutdown"),
];

/// The cause: its SQLSTATE with the name, or what happened to the connection.
pub(super) fn cause(fault: &Fault) -> String {
    let Some(code) = &fault.code else {
        return fault.message.clone();
    };
    match SQLSTATE_NAMES.iter().find(|(known, _)| known == code) {
        Some((_, name)) => format!("{code} {name}"),
        None => format!("SQLSTATE {code}"),
    }
}

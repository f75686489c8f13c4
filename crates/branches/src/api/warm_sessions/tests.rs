//! Which texts may define parameters that DISCARD ALL does not take back.

use super::may_define_parameters;

#[test]
fn parameters_of_the_users_own_are_seen_in_the_text() {
    for sql in [
        "SET app.tenant = 'mine'",
        "set session app.tenant='mine'",
        "BEGIN; SET LOCAL app.tenant TO 1; COMMIT",
        "SELECT pg_catalog.set_config('app.tenant', '1', false)",
        "SELECT setseed(0.5)",
        "SET/* of mine */app.tenant = 'mine'",
        "SET -- of mine\n app . tenant = 'mine'",
        "SET \"app\".\"tenant\" = 'mine'",
        "SELECT '/*'; SET app.tenant = '*/'",
    ] {
        assert!(may_define_parameters(sql), "{sql}");
    }
    for sql in ["SELECT 1", "SET work_mem = '1MB'", "UPDATE t SET a = b.c", "SELECT 'set'", ""] {
        assert!(!may_define_parameters(sql), "{sql}");
    }
}

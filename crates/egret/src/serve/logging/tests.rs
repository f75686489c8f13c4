//! What libraries would show of secrets is written at no level.

use super::{cap_revealing_libraries, silence_notices};

#[test]
fn libraries_that_show_what_they_send_stay_at_info() {
    assert_eq!(cap_revealing_libraries("info"), "info");
    assert_eq!(cap_revealing_libraries("warn,h2=error"), "warn,h2=error");
    assert_eq!(cap_revealing_libraries("info,tokio_postgres::query=debug, hyper"), "info");
    for level in ["debug", "TRACE", "5", "trace,tokio_postgres=trace"] {
        let directives = cap_revealing_libraries(level);
        for library in super::REVEALING_LIBRARIES {
            assert!(directives.contains(&format!("{library}=info")), "{directives}");
        }
        assert!(!directives.contains("tokio_postgres=trace"));
    }
    assert!(cap_revealing_libraries("debug,h2=warn").contains("h2=warn"));
}

#[test]
fn what_servers_tell_sessions_is_written_where_it_is_named_only() {
    let directives = |text: &str| silence_notices(text.to_owned());
    assert_eq!(directives("info"), "info,tokio_postgres::connection=off");
    assert_eq!(
        directives("info,tokio_postgres=info"),
        "info,tokio_postgres=info,tokio_postgres::connection=off"
    );
    let named = "warn, tokio_postgres::connection=info";
    assert_eq!(directives(named), named);
}

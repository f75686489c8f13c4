//! Variables of services are told from settings.

use super::*;
use crate::configuration::{declared_settings, variable_name};

#[test]
fn a_services_variables_are_told_from_settings() {
    for (name, value) in [
        ("EGRET_SERVICE_HOST", "10.96.0.12"),
        ("EGRET_SERVICE_PORT", "7070"),
        ("EGRET_SERVICE_PORT_HTTP", "7070"),
        ("EGRET_SERVICE_PORT_PG_PROXY", "7432"),
        ("EGRET_PORT", "tcp://10.96.0.12:7070"),
        ("EGRET_PORT_7070_TCP", "tcp://10.96.0.12:7070"),
        ("EGRET_PORT_7070_TCP_PROTO", "tcp"),
        ("EGRET_PORT_7070_TCP_PORT", "7070"),
        ("EGRET_PORT_7070_TCP_ADDR", "10.96.0.12"),
        ("EGRET_PORT_53_UDP_ADDR", "10.96.0.12"),
        ("EGRET_SERVER_PORT", "tcp://10.96.0.12:7070"),
        ("EGRET_PROXY_PORT_7432_TCP_PORT", "7432"),
        ("EGRET_QUEUE_SERVICE_HOST", "10.96.0.12"),
        ("EGRET_PRIMARY_PORT", "udp://[fd00::1]:7070"),
    ] {
        assert!(is_injected(name, value), "{name}={value}");
    }
    for (name, value) in [
        ("EGRET_SERVER_PORT", "7070"),
        ("EGRET_SERVER_PORT", "banana"),
        ("EGRET_PORT", "7070"),
        ("EGRET_POSTGRES_URL", "tcp://10.96.0.12:7070"),
        ("EGRET_PORT_NAME", "x"),
        ("EGRET_PORT_7070", "x"),
        ("EGRET_PORT_7070_TCP_OTHER", "x"),
        ("OTHER_SERVICE_HOST", "10.96.0.12"),
    ] {
        assert!(!is_injected(name, value), "{name}={value}");
    }
}

#[test]
fn no_setting_is_taken_for_one() {
    for setting in declared_settings() {
        let name = variable_name(&setting.key);
        assert!(!is_injected(&name, &setting.default), "{name}");
    }
}

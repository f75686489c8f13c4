//! Connection strings for names and hosts that need care.

use expect_test::{Expect, expect};

use super::*;

fn check(address: &str, host_header: Option<&str>, database: &str, expected: Expect) {
    let address: SocketAddr = address.parse().unwrap();
    let mut headers = HeaderMap::new();
    if let Some(text) = host_header {
        headers.insert(header::HOST, text.parse().unwrap());
    }
    let host = public_host(address, &Uri::from_static("/v1"), &headers);
    let credentials = Credentials { user: "egret_branch".to_owned(), password: "a-b_c".to_owned() };
    let connection = build_connection(host, address.port(), database.to_owned(), credentials);
    expected.assert_eq(&format!("{} {}", connection.host, connection.url));
}

#[test]
fn the_string_leads_to_the_proxy() {
    check(
        "127.0.0.1:7432",
        Some("elsewhere:7070"),
        "flights@pr-42",
        expect!["127.0.0.1 postgresql://egret_branch:a-b_c@127.0.0.1:7432/flights@pr-42"],
    );
    check(
        "[::1]:7432",
        None,
        "my data/ü@pr-42.acme",
        expect!["::1 postgresql://egret_branch:a-b_c@[::1]:7432/my%20data%2F%C3%BC@pr-42.acme"],
    );
}

#[test]
fn a_proxy_on_every_address_has_the_name_the_caller_used() {
    check(
        "0.0.0.0:7432",
        Some("db.example:7070"),
        "a@b",
        expect!["db.example postgresql://egret_branch:a-b_c@db.example:7432/a@b"],
    );
    check(
        "[::]:7432",
        Some("[fd00::1]:7070"),
        "a@b",
        expect!["fd00::1 postgresql://egret_branch:a-b_c@[fd00::1]:7432/a@b"],
    );
    check(
        "0.0.0.0:7432",
        Some("not a host"),
        "a@b",
        expect!["localhost postgresql://egret_branch:a-b_c@localhost:7432/a@b"],
    );
}

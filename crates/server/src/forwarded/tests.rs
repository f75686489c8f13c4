//! The right-most address that is no proxy's counts, of requests that a trusted proxy passes on
//! only.

use http::HeaderValue;

use super::*;

const PROXIES: &str = "10.0.0.0/8, 192.0.2.1,2001:db8:1::/48";

fn client(header: &str, peer: &str, lines: &[&str]) -> String {
    let proxies = TrustedProxies::read(PROXIES, header).unwrap();
    let mut headers = HeaderMap::new();
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_bytes()).unwrap();
        headers.append(HeaderName::from_bytes(header.as_bytes()).unwrap(), value);
    }
    let client = proxies.client_address(peer.parse().unwrap(), &headers);
    let is_forwarded = if client.is_forwarded { " forwarded" } else { "" };
    format!("{}{is_forwarded}", client.ip)
}

#[test]
fn the_right_most_untrusted_address_is_the_clients() {
    for (lines, expected) in [
        (&["203.0.113.7"][..], "203.0.113.7 forwarded"),
        // What a client writes itself stands to the left.
        (&["127.0.0.1, 203.0.113.7"], "203.0.113.7 forwarded"),
        (&["10.9.9.9, 203.0.113.7"], "203.0.113.7 forwarded"),
        (&["nonsense, 203.0.113.7"], "203.0.113.7 forwarded"),
        (&["198.51.100.1", "203.0.113.7"], "203.0.113.7 forwarded"),
        // Proxies behind each other.
        (&["198.51.100.1, 203.0.113.7,10.1.2.3 , 192.0.2.1"], "203.0.113.7 forwarded"),
        (&["203.0.113.7", "10.1.2.3"], "203.0.113.7 forwarded"),
        // A proxy itself.
        (&["10.1.2.3, 10.4.5.6"], "10.1.2.3 forwarded"),
        (&["203.0.113.7:4711"], "203.0.113.7 forwarded"),
        (&["2001:db8::7"], "2001:db8::7 forwarded"),
        (&["[2001:db8::7]"], "2001:db8::7 forwarded"),
        (&["[2001:db8::7]:443"], "2001:db8::7 forwarded"),
        (&["203.0.113.7, 2001:db8:1::5"], "203.0.113.7 forwarded"),
        (&["::ffff:203.0.113.7"], "203.0.113.7 forwarded"),
        (&["203.0.113.7, ::ffff:10.1.2.3"], "203.0.113.7 forwarded"),
    ] {
        assert_eq!(client("x-forwarded-for", "10.0.0.1", lines), expected, "{lines:?}");
    }
}

#[test]
fn a_header_that_cannot_be_read_says_nothing() {
    let many = ["10.1.2.3"; ENTRIES_MAX].join(",");
    for line in [
        "",
        ",",
        "nonsense",
        "unknown",
        "203.0.113.7, nonsense",
        "203.0.113.7, nonsense, 10.1.2.3",
        "203.0.113.7,",
        "203.0.113.7:",
        "203.0.113.7:99999",
        "203.0.113.700",
        "203.0.113.7 10.1.2.3",
        "[203.0.113.7]",
        "2001:db8::7]",
        "\u{e9}",
        &format!("203.0.113.7,{many}"),
    ] {
        assert_eq!(client("x-forwarded-for", "10.0.0.1", &[line]), "10.0.0.1", "{line}");
    }
    assert_eq!(client("x-forwarded-for", "10.0.0.1", &[]), "10.0.0.1");
}

#[test]
fn headers_of_others_than_proxies_are_not_looked_at() {
    for peer in ["203.0.113.9", "11.0.0.1", "2001:db8:2::1"] {
        assert_eq!(client("x-forwarded-for", peer, &["198.51.100.1"]), peer);
    }
    let proxies = TrustedProxies::read("", "x-forwarded-for").unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("198.51.100.1"));
    let here = "127.0.0.1".parse().unwrap();
    assert_eq!(proxies.client_address(here, &headers).ip, here);
    // The other header is a client's own.
    let proxies = TrustedProxies::read(PROXIES, "forwarded").unwrap();
    let proxy = "10.0.0.1".parse().unwrap();
    assert_eq!(proxies.client_address(proxy, &headers).ip, proxy);
}

#[test]
fn elements_of_rfc_7239_are_read() {
    for (line, expected) in [
        ("for=203.0.113.7", "203.0.113.7 forwarded"),
        ("For=\"203.0.113.7:4711\";proto=https;by=10.0.0.1", "203.0.113.7 forwarded"),
        ("proto=https; for=\"[2001:db8::7]:443\"", "2001:db8::7 forwarded"),
        ("for=198.51.100.1, for=203.0.113.7, for=10.1.2.3", "203.0.113.7 forwarded"),
        // A quote that a client has opened swallows nothing.
        ("for=\", for=203.0.113.7", "203.0.113.7 forwarded"),
        ("for=\"198.51.100.1, for=203.0.113.7", "203.0.113.7 forwarded"),
        ("for=unknown", "10.0.0.1"),
        ("for=_hidden", "10.0.0.1"),
        ("for=", "10.0.0.1"),
        ("by=203.0.113.7", "10.0.0.1"),
        ("for=198.51.100.1;for=203.0.113.7", "10.0.0.1"),
        ("for=\"203.0.113.7", "10.0.0.1"),
        ("203.0.113.7", "10.0.0.1"),
    ] {
        assert_eq!(client("forwarded", "10.0.0.1", &[line]), expected, "{line}");
    }
}

#[test]
fn settings_that_cannot_be_used_are_refused_by_name() {
    for (networks, header, expected) in [
        ("localhost", "forwarded", "server.trusted_proxies"),
        ("10.0.0.0/33", "forwarded", "server.trusted_proxies"),
        ("10.0.0.1;10.0.0.2", "forwarded", "server.trusted_proxies"),
        ("", "x-real-ip", "server.forwarded_header"),
    ] {
        let refused = TrustedProxies::read(networks, header).unwrap_err();
        assert_eq!(refused.0, expected, "{networks} {header}");
    }
}

//! What the settings allow is allowed, and disguised addresses are seen through.

use super::*;

fn allowed(allow: &str, url: &str) -> bool {
    let destinations = Destinations::new(allow).unwrap();
    match destinations.check_permission(&parse_url(url).unwrap()) {
        Ok(Permission::ByName) => true,
        Ok(Permission::ByAddress) => url.contains(|c: char| c.is_ascii_digit()),
        Err(_) => false,
    }
}

#[test]
fn what_is_allowed_by_name_is_allowed_and_no_more() {
    for (allow, url, expected) in [
        ("", "http://10.1.2.3/", false),
        ("10.0.0.0/8", "http://10.1.2.3/", true),
        ("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", true),
        ("10.0.0.0/8", "http://11.1.2.3/", true),
        ("10.0.0.0/8", "http://127.0.0.1/", false),
        ("10.0.0.7:8080", "http://10.0.0.7:8080/", true),
        ("10.0.0.7:8080", "http://10.0.0.7/", false),
        ("127.0.0.1", "http://2130706433:99/", true),
        ("[::1]:80", "http://[::1]/", true),
        ("fd00::/8, 0.0.0.0/0", "http://[fd00::1]/", true),
        ("0.0.0.0/0", "http://[fd00::1]/", false),
        ("hooks.internal", "http://HOOKS.internal./x", true),
        ("hooks.internal:8080", "http://hooks.internal:8080/", true),
        ("hooks.internal:8080", "http://hooks.internal/", false),
        ("*.internal", "http://a.b.internal/", true),
        ("*.internal", "http://internal/", false),
        ("*.internal", "http://notinternal/", false),
    ] {
        assert_eq!(allowed(allow, url), expected, "{allow}: {url}");
    }
}

#[test]
fn what_names_no_destination_is_refused() {
    for entry in ["10.0.0.0/33", "http://x", "a b", "*", "*x", "x:y", "::/129"] {
        let error = Destinations::new(entry).err().unwrap();
        assert!(error.contains(entry), "{error}");
    }
}

#[test]
fn disguised_addresses_of_this_machine_are_refused() {
    let destinations = Destinations::new("").unwrap();
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://0/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.100.100.200/",
    ] {
        let error = destinations.check(url).unwrap_err();
        assert!(matches!(error, OutgoingError::Refused { .. }), "{url}: {error}");
    }
    for url in ["ftp://example.org", "example.org", "file:///etc/passwd", "http://"] {
        let error = destinations.check(url).unwrap_err();
        assert!(matches!(error, OutgoingError::Url { .. }), "{url}: {error}");
    }
}

#[test]
fn a_changed_list_holds_for_every_copy() {
    let destinations = Destinations::new("10.0.0.7:8080").unwrap();
    let copy = destinations.clone();
    let is_allowed = |url: &str| copy.check(url).is_ok();
    assert!(is_allowed("http://10.0.0.7:8080/"));
    assert_eq!(destinations.set_allowed("10.0.0.8"), Ok(true));
    assert!(!is_allowed("http://10.0.0.7:8080/") && is_allowed("http://10.0.0.8/"));
    assert!(destinations.set_allowed("10.0.0.0/64").is_err());
    assert!(is_allowed("http://10.0.0.8/"));
    assert_eq!(destinations.set_allowed("10.0.0.8"), Ok(false));
}

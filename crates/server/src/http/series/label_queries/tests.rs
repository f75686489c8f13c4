//! Names that an address cannot hold.

use super::unescape_name;

#[test]
fn names_are_unescaped() {
    for (name, expected) in [
        ("job", None),
        ("U__http_2e_status", Some("http.status")),
        ("U__a__b", Some("a_b")),
        ("U__", Some("")),
        ("U___1f414_", Some("🐔")),
        ("U__a_zz_", None),
        ("U__a_b", None),
    ] {
        assert_eq!(unescape_name(name).as_deref(), expected, "{name}");
    }
}

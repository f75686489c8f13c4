//! What patterns say.

use super::*;

fn check(pattern: &str, expected: &str) {
    let found = match match_candidates(pattern) {
        MatchCandidates::Unbounded => "anywhere".to_owned(),
        MatchCandidates::All => "everywhere".to_owned(),
        MatchCandidates::Only(places) => {
            let shown = |place: &PrefixOrValue| {
                let text = String::from_utf8_lossy(&place.bytes).into_owned();
                if place.is_exact { text } else { text + "…" }
            };
            places.iter().map(shown).collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(found, expected, "{pattern}");
}

#[test]
fn literals_and_prefixes_are_found() {
    check("a|b|cd", "a b cd");
    check("host-(1|2)", "host-1 host-2");
    check("api-.*", "api-…");
    check(
        "(api|web)-[0-9]+",
        "api-0… api-1… api-2… api-3… api-4… api-5… api-6… api-7… api-8… api-9… web-0… web-1… web-2… web-3… web-4… web-5… web-6… web-7… web-8… web-9…",
    );
    check("", "");
    check("a?", " a");
    check(".*", "everywhere");
    check(".+", "everywhere");
    check(".*foo", "anywhere");
    check("(?i)get|put", "GET GEt GeT Get PUT PUt PuT Put gET gEt geT get pUT pUt puT put");
}

#[test]
fn look_around_makes_no_exact_value() {
    check("^a$", "a…");
    check(r"a\b.*", "a…");
}

#[test]
fn unparsable_patterns_are_unbounded() {
    check("a{", "anywhere");
    check("(", "anywhere");
}

//! Regular expressions match what RE2 matches, and are recognised for what they are.

use super::{LabelMatcher, MatchOp, Matcher, MatcherError};

fn matcher(pattern: &str) -> Result<LabelMatcher, MatcherError> {
    LabelMatcher::new(Matcher { name: "a".into(), op: MatchOp::Matches, value: pattern.into() })
}

fn check(pattern: &str, taken: &[&str], refused: &[&str]) {
    let matcher = matcher(pattern).expect("a regular expression");
    for value in taken {
        assert!(matcher.matches(value), "{pattern} takes {value:?}");
    }
    for value in refused {
        assert!(!matcher.matches(value), "{pattern} does not take {value:?}");
    }
}

#[test]
fn values_are_matched_as_re2_matches_them() {
    check(".*", &["", "a\nb"], &[]);
    check(".+", &["x", "\n"], &[""]);
    check("a|b|", &["a", "b", ""], &["ab", "c"]);
    check("foo.*", &["foo", "foo\nbar"], &["fo", "xfoo"]);
    check(".*foo", &["foo", "xfoo"], &["foox"]);
    check(".*foo.*", &["foo", "xfoox"], &["fo"]);
    check("(a|b)c", &["ac", "bc"], &["c", "abc"]);
    check("\\d+", &["123"], &["", "1a", "١"]);
    check("\\w\\s\\W", &["a \u{e9}", "_\t-"], &["\u{e9} -", "a\u{a0}-"]);
    check("[\\d_]+", &["1_"], &["a"]);
    check("[[a]+", &["[a"], &["]"]);
    check("[a&&b]+", &["a&b"], &["c"]);
    check("[]a]+", &["]a"], &["b"]);
    check("[[:alpha:]]+", &["ab"], &["1"]);
    check("(?i)Foo", &["foo", "FOO"], &["fo"]);
    check("\\Qa.b\\E+", &["a.b", "a.bb"], &["axb"]);
    check("{a}", &["{a}"], &["a"]);
    check("a{,2}", &["a{,2}"], &["aa"]);
    check("a{2}", &["aa"], &["a"]);
    check("a.?b", &["ab", "axb"], &["a"]);
    check("^foo$", &["foo"], &["foo\n"]);
    check("\\bfoo\\b", &["foo"], &["xfoo"]);
    check("a*?", &["", "aa"], &["b"]);
}

#[test]
fn what_re2_refuses_is_refused() {
    for pattern in ["(", "a**", "a{1001}", "[", "\\", "*a", "a{2}{3}", "(?<a", "\\z\\Z"] {
        assert!(matcher(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn lists_and_prefixes_are_found() {
    let of = |pattern: &str| {
        let matcher = matcher(pattern).expect("a regular expression");
        let literals = matcher.literals().map(|found| found.join(","));
        (literals, matcher.prefix().to_owned())
    };
    let list = |values: &str, prefix: &str| (Some(values.to_owned()), prefix.to_owned());
    let prefix = |prefix: &str| (None, prefix.to_owned());
    assert_eq!(of("b|a|c|a"), list("a,b,c", ""));
    assert_eq!(of("foo"), list("foo", "foo"));
    assert_eq!(of("(a|b)c"), list("ac,bc", ""));
    assert_eq!(of("api-(v1|v2)"), list("api-v1,api-v2", "api-v"));
    assert_eq!(of("^(?:x|y)$"), list("x,y", ""));
    assert_eq!(of("a\\.b"), list("a.b", "a.b"));
    assert_eq!(of("[0-2]x"), list("0x,1x,2x", ""));
    assert_eq!(of("foo.*"), prefix("foo"));
    assert_eq!(of("foo.+bar"), prefix("foo"));
    assert_eq!(of("foo(bar|baz).*"), prefix("fooba"));
    assert_eq!(of(".*"), prefix(""));
    assert_eq!(of("\\bfoo"), prefix(""));
    assert_eq!(of("(?i)a.*"), prefix(""));
}

#[test]
fn what_is_large_is_quick_or_refused() {
    let million: Vec<String> = (0..1_000_000).map(|at| format!("v{at}")).collect();
    let list = matcher(&million.join("|")).expect("a list");
    assert_eq!(list.literals().map(<[_]>::len), Some(1_000_000));
    assert!(list.matches("v999999") && !list.matches("w"));
    let long = matcher(&format!("{}.*", "x".repeat(64 << 10))).expect("a prefix");
    assert!(!long.matches("x"));
    assert!(
        matcher(&format!("{}.", "(x?y)".repeat(20_000))).is_ok_and(|found| !found.matches("z"))
    );
    assert!(matcher("((a{100}){100}){100}").is_err());
    assert!(matcher(&"(".repeat(10_000)).is_err());
    assert!(matcher(&format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000))).is_err());
}

#[test]
fn a_list_may_be_as_long_as_it_likes_and_nothing_else() {
    let values: Vec<String> = (0..200_000).map(|at| format!("value-{at}")).collect();
    let list = values.join("|");
    let long = matcher(&list).expect("it is a list");
    assert!(long.matches("value-199999") && !long.matches("value-200000"));
    assert_eq!(long.literals().map(<[_]>::len), Some(200_000));
    let error = matcher(&format!("({list})+")).expect_err("it is too large");
    let text = error.to_string();
    assert!(
        text.starts_with("error parsing regexp: expression too large: `(value-0|value-1|"),
        "{text}"
    );
    assert!(text.len() < 400, "{}", text.len());
}

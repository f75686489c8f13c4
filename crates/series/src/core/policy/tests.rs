//! Rules as people write them.

use expect_test::{Expect, expect};

use super::*;

fn check(keep: &str, coarsen: &str, expected: Expect) {
    let shown = match parse_policy(keep, coarsen, None, None) {
        Err((setting, reason)) => format!("{setting}: {reason}"),
        Ok(policy) => {
            let keep = policy
                .retention_rules
                .iter()
                .map(|rule| format!("{} {}", rule.selector.len(), rule.keep_ms));
            let coarsen = policy
                .downsample_rules
                .iter()
                .map(|rule| format!("[{}] {} {}", rule.name, rule.after_ms, rule.interval_ms));
            keep.chain(coarsen).collect::<Vec<_>>().join("\n")
        }
    };
    expected.assert_eq(&shown);
}

#[test]
fn rules_are_read() {
    check("", " ", expect![""]);
    check(
        r#"{job="debug"} 1d; {__name__=~"a;}b", x!="\"}"} 6h ;"#,
        r#"{} after 30d every 5m;{job='a'} after 1h30m every 1m"#,
        expect![[r#"
            1 86400000
            2 21600000
            [{} after 30d every 5m] 2592000000 300000
            [{job='a'} after 1h30m every 1m] 5400000 60000"#]],
    );
}

#[test]
fn what_is_wrong_is_told() {
    check("1d", "", expect!["series.keep: `1d` does not begin with a selector in braces"]);
    check(
        r#"{job="a"}"#,
        "",
        expect![[
            r#"series.keep: `duration` is missing after `{job="a"}`: the form is `{selector} duration`"#
        ]],
    );
    check(
        r#"{job="a"} 0s"#,
        "",
        expect![[r#"series.keep: `0s` after `{job="a"}` must be longer than 0"#]],
    );
    check(
        r#"{job="a"} 1d 2d"#,
        "",
        expect![[
            r#"series.keep: `1d 2d` after `{job="a"}` is not of the form `{selector} duration`"#
        ]],
    );
    check(
        "",
        r#"{job="a"} every 5m"#,
        expect![[
            r#"series.coarsen: `every 5m` after `{job="a"}` is not of the form `{selector} after duration every duration`"#
        ]],
    );
    check(
        "",
        r#"{job="a"} after 30d; {job="b"} after 1d every 5m"#,
        expect![[
            r#"series.coarsen: `every duration` is missing after `{job="a"} after 30d`: the form is `{selector} after duration every duration`"#
        ]],
    );
    check(
        "",
        r#"{job="a"} after 30d every 0s"#,
        expect![[r#"series.coarsen: `0s` after `{job="a"}` must be longer than 0"#]],
    );
    check(
        r#"{job=~"("} 1d"#,
        "",
        expect!["series.keep: 1:2: parse error: error parsing regexp: unclosed group: `(`"],
    );
}

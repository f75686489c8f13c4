//! Steps as files have them, with what Prometheus makes of the labels.

use egret_metrics_model::Labels;
use expect_test::{Expect, expect};

use super::*;
use crate::core::yaml;

fn apply(steps: &str, labels: &[(&str, &str)]) -> String {
    let configs: Vec<RelabelConfig> = match yaml::parse(steps) {
        Ok(configs) => configs,
        Err(error) => return format!("error: {error}"),
    };
    let relabeling = match Relabeling::new(&configs) {
        Ok(relabeling) => relabeling,
        Err(error) => return format!("error: {error}"),
    };
    let mut builder = LabelsBuilder::from_labels(&Labels::new(labels.iter().copied()));
    if relabeling.apply(&mut builder) { builder.build().to_string() } else { "dropped".to_owned() }
}

const LABELS: [(&str, &str); 4] = [("a", "foo"), ("b", "bar"), ("c", "baz"), ("__meta_x_y", "Z")];

fn check(steps: &[&str], expected: Expect) {
    let lines = steps.iter().map(|steps| format!("{steps} -> {}\n", apply(steps, &LABELS)));
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn replacing() {
    check(
        &[
            "[{source_labels: [a], regex: 'f(.*)', target_label: d, replacement: 'ch${1}-ch$1'}]",
            "[{source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: 'b${1}${2}m'}]",
            "[{source_labels: [a], regex: 'f', target_label: b, replacement: bar2}]",
            "[{source_labels: [a], regex: 'f(?P<rest>.*)', target_label: '${rest}_x', replacement: '$rest$$'}]",
            "[{source_labels: [a], target_label: b}, {source_labels: [b], separator: '', target_label: b, replacement: 'x$1'}]",
            "[{source_labels: [nothing], regex: '.+', target_label: a, replacement: x}]",
            "[{target_label: new, replacement: static}]",
            "[{source_labels: [a], target_label: a, replacement: ''}]",
            "[{source_labels: [a], regex: '(.*)', target_label: '${2}', replacement: x}]",
            "[{source_labels: [a], regex: 'f(o+)', target_label: n, replacement: '$1x ${1}x $9'}]",
        ],
        expect![[r#"
            [{source_labels: [a], regex: 'f(.*)', target_label: d, replacement: 'ch${1}-ch$1'}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", d="choo-choo"}
            [{source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: 'b${1}${2}m'}] -> {__meta_x_y="Z", a="boobam", b="bar", c="baz"}
            [{source_labels: [a], regex: 'f', target_label: b, replacement: bar2}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
            [{source_labels: [a], regex: 'f(?P<rest>.*)', target_label: '${rest}_x', replacement: '$rest$$'}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", oo_x="oo$"}
            [{source_labels: [a], target_label: b}, {source_labels: [b], separator: '', target_label: b, replacement: 'x$1'}] -> {__meta_x_y="Z", a="foo", b="xfoo", c="baz"}
            [{source_labels: [nothing], regex: '.+', target_label: a, replacement: x}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
            [{target_label: new, replacement: static}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", new="static"}
            [{source_labels: [a], target_label: a, replacement: ''}] -> {__meta_x_y="Z", b="bar", c="baz"}
            [{source_labels: [a], regex: '(.*)', target_label: '${2}', replacement: x}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
            [{source_labels: [a], regex: 'f(o+)', target_label: n, replacement: '$1x ${1}x $9'}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", n=" oox "}
        "#]],
    );
}

#[test]
fn keeping_and_dropping() {
    check(
        &[
            "[{source_labels: [a], regex: 'f', action: keep}]",
            "[{source_labels: [a], regex: 'f.*', action: keep}]",
            "[{source_labels: [a], regex: 'fo', action: drop}]",
            "[{source_labels: [a, b], separator: '-', regex: 'foo-bar', action: drop}]",
            "[{source_labels: [a], target_label: b, action: keepequal}]",
            "[{source_labels: [a], target_label: a, action: keepequal}]",
            "[{source_labels: [a], target_label: a, action: dropequal}]",
            "[{source_labels: [a], target_label: b, action: dropequal}]",
        ],
        expect![[r#"
            [{source_labels: [a], regex: 'f', action: keep}] -> dropped
            [{source_labels: [a], regex: 'f.*', action: keep}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
            [{source_labels: [a], regex: 'fo', action: drop}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
            [{source_labels: [a, b], separator: '-', regex: 'foo-bar', action: drop}] -> dropped
            [{source_labels: [a], target_label: b, action: keepequal}] -> dropped
            [{source_labels: [a], target_label: a, action: keepequal}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
            [{source_labels: [a], target_label: a, action: dropequal}] -> dropped
            [{source_labels: [a], target_label: b, action: dropequal}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz"}
        "#]],
    );
}

#[test]
fn names_hashes_and_case() {
    check(
        &[
            "[{regex: '__meta_(.*)', action: labelmap}]",
            "[{regex: '(a|b)', action: labelmap, replacement: 'x_$1'}]",
            "[{regex: '(a|__.*)', action: labeldrop}]",
            "[{regex: '(a|b)', action: labelkeep}]",
            "[{source_labels: [c], target_label: d, modulus: 1000, action: hashmod}]",
            "[{source_labels: [a, b], target_label: d, modulus: 4, action: hashmod}]",
            "[{source_labels: [__meta_x_y, a], target_label: d, action: lowercase}]",
            "[{source_labels: [a, b], target_label: d, action: uppercase}]",
        ],
        expect![[r#"
            [{regex: '__meta_(.*)', action: labelmap}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", x_y="Z"}
            [{regex: '(a|b)', action: labelmap, replacement: 'x_$1'}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", x_a="foo", x_b="bar"}
            [{regex: '(a|__.*)', action: labeldrop}] -> {b="bar", c="baz"}
            [{regex: '(a|b)', action: labelkeep}] -> {a="foo", b="bar"}
            [{source_labels: [c], target_label: d, modulus: 1000, action: hashmod}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", d="976"}
            [{source_labels: [a, b], target_label: d, modulus: 4, action: hashmod}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", d="2"}
            [{source_labels: [__meta_x_y, a], target_label: d, action: lowercase}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", d="z;foo"}
            [{source_labels: [a, b], target_label: d, action: uppercase}] -> {__meta_x_y="Z", a="foo", b="bar", c="baz", d="FOO;BAR"}
        "#]],
    );
}

#[test]
fn what_is_refused() {
    check(
        &[
            "[{source_labels: [a]}]",
            "[{source_labels: [a], action: hashmod, target_label: b}]",
            "[{action: sing}]",
            "[{regex: '(', target_label: b}]",
            "[{regx: 'a'}]",
            "[{action: labeldrop, regex: a, source_labels: [a]}]",
            "[{action: keepequal, regex: a, target_label: a}]",
            "[{action: lowercase, replacement: x, target_label: a}]",
            "[{action: uppercase, target_label: '$1'}]",
            "[{action: labelmap, replacement: ''}]",
            "[{target_label: a, regex: '((a{1,1000}){1,1000}){1,1000}'}]",
            &format!("[{{target_label: a, replacement: '{}'}}]", "$0".repeat(65)),
        ],
        expect![[r#"
            [{source_labels: [a]}] -> error: relabel configuration for replace action requires 'target_label' value
            [{source_labels: [a], action: hashmod, target_label: b}] -> error: relabel configuration for hashmod requires non-zero modulus
            [{action: sing}] -> error: 1:11: unknown variant `sing`, expected one of replace, keep, drop, keepequal, dropequal, hashmod, labelmap, labeldrop, labelkeep, lowercase, uppercase
            [{regex: '(', target_label: b}] -> error: error parsing regexp: unclosed group: `(`
            [{regx: 'a'}] -> error: 1:3: unknown field `regx`, expected one of source_labels, separator, regex, modulus, target_label, replacement, action
            [{action: labeldrop, regex: a, source_labels: [a]}] -> error: labeldrop action requires only 'regex', and no other fields
            [{action: keepequal, regex: a, target_label: a}] -> error: keepequal action requires only 'source_labels' and 'target_label', and no other fields
            [{action: lowercase, replacement: x, target_label: a}] -> error: 'replacement' can not be set for lowercase action
            [{action: uppercase, target_label: '$1'}] -> error: "$1" is invalid 'target_label' for uppercase action
            [{action: labelmap, replacement: ''}] -> error: "" is invalid 'replacement' for labelmap action
            [{target_label: a, regex: '((a{1,1000}){1,1000}){1,1000}'}] -> error: error parsing regexp: Compiled regex exceeds size limit of 8388608 bytes.: `((a{1,1000}){1,1000}){1,1000}`
            [{target_label: a, replacement: '$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0'}] -> error: relabel configuration refers to what was matched more than 64 times
        "#]],
    );
}

#[test]
fn a_hash_is_that_of_prometheus() {
    // `printf abc | md5sum` ends in d28e17f72.
    assert_eq!(md5_hash("abc"), 0xd696_3f7d_28e1_7f72);
}

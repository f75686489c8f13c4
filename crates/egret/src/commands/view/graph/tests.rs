//! Graphs of views that were made up.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

/// A view of a database that reads these.
fn view(database: &str, name: &str, reads: &[&str]) -> View {
    let told = json!({
        "database": database, "name": name, "query": "", "owner": "app", "mode": "auto", "schedule": "5s", "state": "active",
        "reason": null, "failures": 0, "reads": reads, "read_by": [], "snapshot": "1:1:", "fresh_at": null, "lag_ms": 0,
        "waiting_changes": 0, "size_bytes": 0, "durations": null, "last_refresh": null,
    });
    serde_json::from_value(told).expect("it is what is told of a view")
}

fn views(all: &[(&str, &[&str])]) -> Vec<View> {
    let view = |(name, reads): &(&str, &[&str])| view("shop", name, reads);
    all.iter().map(view).collect()
}

/// Without what is the same in all lines, and without colours.
fn check(views: &[View], expected: Expect) {
    let text = anstream::adapter::strip_str(&text(views)).to_string();
    let lines = text.lines().map(str::trim_end);
    expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
}

const DIAMOND: [(&str, &[&str]); 4] = [
    ("public.base", &["public.t"]),
    ("public.named", &["public.u", "public.base"]),
    ("public.sums", &["public.base"]),
    ("public.top", &["public.named", "public.u", "public.sums"]),
];

#[test]
fn a_view_of_a_diamond_is_shown_once() {
    let mut all = views(&DIAMOND);
    all[3].waiting_changes = 12;
    all[3].lag_ms = Some(1500);
    all[3].state = "failing".to_owned();
    check(
        &all,
        expect![[r#"
        VIEW              MODE   SCHEDULE  STATE    LAG  WAITING  ALSO READS
        database shop
        public.t          table
          public.base     auto   5s        active   0ms
            public.named  auto   5s        active   0ms           public.u
              public.top  auto   5s        failing  1s   12       public.sums, public.u
            public.sums   auto   5s        active   0ms"#]],
    );
}

#[test]
fn a_chain_is_indented_and_a_shortcut_named() {
    let chain: [(&str, &[&str]); 3] = [
        ("public.a", &["public.t"]),
        ("public.b", &["public.a"]),
        ("public.c", &["public.a", "public.b", "public.b"]),
    ];
    check(
        &views(&chain),
        expect![[r#"
        VIEW            MODE   SCHEDULE  STATE   LAG  WAITING  ALSO READS
        database shop
        public.t        table
          public.a      auto   5s        active  0ms
            public.b    auto   5s        active  0ms
              public.c  auto   5s        active  0ms           public.a"#]],
    );
}

#[test]
fn views_that_read_the_same_table_are_components_of_their_own() {
    let apart: [(&str, &[&str]); 5] = [
        ("public.a", &["public.t"]),
        ("public.b", &["public.a"]),
        ("public.c", &["public.t", "public.u"]),
        ("public.d", &[]),
        ("public.e", &["public.v", "public.c"]),
    ];
    check(
        &views(&apart),
        expect![[r#"
        VIEW           MODE   SCHEDULE  STATE   LAG  WAITING  ALSO READS
        database shop
        public.t       table
          public.a     auto   5s        active  0ms
            public.b   auto   5s        active  0ms

        public.t       table
          public.c     auto   5s        active  0ms           public.u
            public.e   auto   5s        active  0ms           public.v

        public.d       auto   5s        active  0ms"#]],
    );
}

#[test]
fn two_components_that_a_view_joins_are_one() {
    let joined: [(&str, &[&str]); 4] = [
        ("public.x", &["public.t"]),
        ("public.y", &["public.u"]),
        ("public.z", &["public.y", "public.x"]),
        ("public.a", &["public.z"]),
    ];
    check(
        &views(&joined),
        expect![[r#"
        VIEW            MODE   SCHEDULE  STATE   LAG  WAITING  ALSO READS
        database shop
        public.t        table
          public.x      auto   5s        active  0ms
            public.z    auto   5s        active  0ms           public.y
              public.a  auto   5s        active  0ms
        public.u        table
          public.y      auto   5s        active  0ms"#]],
    );
}

#[test]
fn names_with_dots_and_quotes_are_told_apart() {
    let odd: [(&str, &[&str]); 3] = [
        ("public.\"a.b\"", &["\"public.a\".b"]),
        ("\"public.a\".\"say \"\"hi\"\"\"", &["public.\"a.b\""]),
        ("public.c", &["public.a.b"]),
    ];
    check(
        &views(&odd),
        expect![[r#"
        VIEW                         MODE   SCHEDULE  STATE   LAG  WAITING  ALSO READS
        database shop
        "public.a".b                 table
          public."a.b"               auto   5s        active  0ms
            "public.a"."say ""hi"""  auto   5s        active  0ms

        public.a.b                   table
          public.c                   auto   5s        active  0ms"#]],
    );
}

#[test]
fn databases_are_apart() {
    let all = [
        view("shop", "public.a", &["public.t"]),
        view("lab", "public.a", &["public.b"]),
        view("lab", "public.b", &["public.t"]),
    ];
    check(
        &all,
        expect![[r#"
        VIEW           MODE   SCHEDULE  STATE   LAG  WAITING  ALSO READS
        database lab
        public.t       table
          public.b     auto   5s        active  0ms
            public.a   auto   5s        active  0ms

        database shop
        public.t       table
          public.a     auto   5s        active  0ms"#]],
    );
    check(&[], expect!["VIEW  MODE  SCHEDULE  STATE  LAG  WAITING  ALSO READS"]);
}

#[test]
fn programs_are_told_nodes_and_edges() {
    let all = views(&DIAMOND);
    let answer = serde_json::to_value(to_report(&all)).expect("it is JSON");
    let named = |node: &serde_json::Value| format!("{} {}", node["kind"], node["name"]);
    let nodes: Vec<String> = answer["nodes"].as_array().unwrap().iter().map(named).collect();
    let read = |edge: &serde_json::Value| format!("{} -> {}", edge["from"], edge["to"]);
    let edges: Vec<String> = answer["edges"].as_array().unwrap().iter().map(read).collect();
    let first = serde_json::to_string_pretty(&answer["nodes"][0]).unwrap();
    let shown = [nodes.join("\n"), edges.join("\n"), first].join("\n\n");
    expect![[r#"
        "view" "public.base"
        "view" "public.named"
        "view" "public.sums"
        "table" "public.t"
        "view" "public.top"
        "table" "public.u"

        "public.t" -> "public.base"
        "public.base" -> "public.named"
        "public.u" -> "public.named"
        "public.base" -> "public.sums"
        "public.named" -> "public.top"
        "public.sums" -> "public.top"
        "public.u" -> "public.top"

        {
          "database": "shop",
          "name": "public.base",
          "kind": "view",
          "component": "public.base",
          "mode": "auto",
          "schedule": "5s",
          "state": "active",
          "lag_ms": 0,
          "waiting_changes": 0
        }"#]]
    .assert_eq(&shown);
}

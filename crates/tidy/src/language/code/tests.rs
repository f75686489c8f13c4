//! Token rules on small texts.

use expect_test::{Expect, expect};

use super::*;

fn check_text(text: &str, expected: Expect) {
    let code = Code::read(text.parse().unwrap(), false);
    let lines: Vec<String> = code.check("a.rs").iter().map(Finding::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn types_are_found_in_every_scope() {
    let text = "pub(crate) struct A; mod m { enum B {} fn f() { union C {} } }\nunsafe trait D {}
        macro_rules! m { () => { struct E; struct $name; } } const S: &str = \"struct F\";";
    let code = Code::read(text.parse().unwrap(), false);
    let names: Vec<&str> = code.types.iter().map(|found| found.text.as_str()).collect();
    assert_eq!(names, ["A", "B", "C", "D", "E"]);
}

#[test]
fn parameters_are_no_tuples() {
    check_text(
        "fn a(pair: (u8, u8)) {}
        fn b<F: Fn(u8, u8) -> u8>(&self, (x, y): &'a mut (u8, Vec<u8>)) {}
        fn c(f: &(dyn Fn(u8, u8) + Sync), map: HashMap<(u8, u8), u8>, unit: ()) -> (u8, u8) {}
        fn d(f: impl Fn(u8, u8), rows: &[(u8, u8)], f: fn(u8, u8)) {}
        trait T { fn e(map: HashMap<u8, u8>, mut pair: (u8, u8)); }",
        expect![[r#"
            a.rs:1: tuple-parameter: a
            a.rs:2: tuple-parameter: b
            a.rs:5: tuple-parameter: e"#]],
    );
}

#[test]
fn booleans_are_not_matched() {
    check_text(
        "fn f() { match is_ready() { true => a(), false => b() }
        match x { Some(true) => true, _ => false };
        match (a, b) { (true, _) => 1, _ => 2 };
        match x.y { false if z => { 1 } _ => match w { 1 => { 2 } true => 3 } }
        }",
        expect![[r#"
            a.rs:1: bool-match: match is_ready ()
            a.rs:4: bool-match: match x . y
            a.rs:4: bool-match: match w"#]],
    );
}

#[test]
fn strings_name_no_persons_outside_tests() {
    check_text(
        "/// Nobody reads it.\nfn f() { warn!(\"nobody\", \"nobody waits\"); }
        #[cfg(test)] mod inner { const A: &str = \"nobody waits\"; }",
        expect![[r#"a.rs:2: person-text: "nobody waits""#]],
    );
}

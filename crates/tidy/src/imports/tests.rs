//! Which files import which, and what of that breaks a rule.

use super::*;

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<File> = files
        .iter()
        .map(|(path, text)| File { path: format!("crates/x/src/{path}"), text: (*text).to_owned() })
        .collect();
    check(&files).iter().map(|finding| format!("{}: {}", finding.rule, finding.subject)).collect()
}

/// Six files, of which each imports the next one by `import`, and the last one the first.
fn ring(import: &str) -> Vec<String> {
    let names = ["a", "b", "c", "d", "e", "f"];
    let texts: Vec<(String, String)> = (0..names.len())
        .map(|at| {
            let next = names[(at + 1) % names.len()];
            (format!("{}.rs", names[at]), import.replace("NEXT", next))
        })
        .collect();
    let root = names.map(|name| format!("mod {name};")).join("\n");
    let mut files: Vec<(&str, &str)> =
        texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    files.push(("lib.rs", &root));
    found(&files)
}

#[test]
fn a_circle_of_six_files_is_found() {
    let expected = ["import-circle: 6 files: a, b, c, d, e, f"];
    assert_eq!(ring("use crate::NEXT::Thing;"), expected);
    assert_eq!(ring("use super::{NEXT::{Thing, Other as Own}};"), expected);
    assert_eq!(ring("fn f() { let _ = [crate::NEXT::make(1)]; }"), expected);
    assert_eq!(ring("pub(in crate::NEXT) fn f() {}"), [""; 0]);
    assert_eq!(ring("#[cfg(test)]\nuse crate::NEXT::Thing;\nfn f(crate_: u8) {}"), [""; 0]);
}

#[test]
fn a_re_exported_name_counts_where_it_is_defined() {
    let text = "use crate::parent::Thing;";
    let mut files = vec![
        ("lib.rs", "mod parent;"),
        (
            "parent.rs",
            "pub use a::Thing; use b::B; use c::C; use d::D; use e::E; mod a; mod b; mod c; mod d; mod e;",
        ),
        ("parent/a.rs", "pub struct Thing;"),
        ("parent/b.rs", "use super::{Thing,};"),
        ("parent/c.rs", text),
        ("parent/d.rs", text),
        ("parent/e.rs", text),
    ];
    assert_eq!(found(&files), [""; 0]);
    // A type of the parent itself makes a circle of all.
    let own = "pub struct Thing; use a::A; use b::B; use c::C; use d::D; use e::E;";
    files[1].1 = own;
    files[2].1 = text;
    assert_eq!(found(&files), ["import-circle: parent and files below it"]);
}

#[test]
fn a_room_imports_those_below_it_only() {
    let files = [
        ("api/mod.rs", "use crate::worker::Loop; use crate::core::Plan;"),
        ("worker.rs", "use crate::store::Rows; #[cfg(test)] mod simulator;"),
        ("worker/simulator.rs", "use crate::api::Call; mod world;"),
        ("worker/simulator/world.rs", "use crate::api::Call;"),
        ("store.rs", "use crate::core::Plan; use crate::model::Id;"),
        ("core/mod.rs", "use crate::model::Id; mod plan;"),
        ("core/plan.rs", "fn f() { crate::api::call() }"),
        ("model.rs", "use crate::api::Id;"),
    ];
    assert_eq!(found(&files), ["room-import: core imports api"]);
}

//! Each rule finds its small bad snippet and leaves the good one alone.

use expect_test::{Expect, expect};

use super::*;

fn check_text(path: &str, text: &str, expected: Expect) {
    let file = File { path: path.to_owned(), text: text.to_owned() };
    let lines: Vec<String> = check(&file).iter().map(Finding::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_file_opens_by_saying_what_lives_there() {
    check_text("a.rs", "#![no_std]\n//! What it is.\n", expect![""]);
    check_text(
        "a.rs",
        "fn main() {}\n",
        expect!["a.rs:1: opening: the file must open with `//!` and say what lives there"],
    );
    check_text(
        "a.rs",
        "//!\nfn main() {}\n",
        expect!["a.rs:1: opening: the file must open with `//!` and say what lives there"],
    );
}

#[test]
fn functions_and_files_have_a_length() {
    let body = "    work();\n".repeat(69);
    check_text(
        "a.rs",
        &format!(
            "//! A file.\nstruct S;\nimpl S {{\n/// Long.\nfn long(&self) {{\n{body}}}\nfn next();\n}}\n"
        ),
        expect!["a.rs:5: long-function: long"],
    );
    let body = "    work();\n".repeat(68);
    check_text("a.rs", &format!("//! A file.\nfn fits() {{\n{body}}}\n"), expect![""]);
    check_text(
        "a.rs",
        &format!("//! A file.\n{}", "const A: u8 = 0;\n".repeat(500)),
        expect!["a.rs:501: long-file: file"],
    );
}

#[test]
fn unwrap_is_for_tests() {
    let code = "//! A file.\nfn f() { g(x.unwrap()); format!(\"{}\", y.unwrap()); }\n";
    check_text(
        "crates/a/src/lib.rs",
        code,
        expect![[r#"
            crates/a/src/lib.rs:2: unwrap: .unwrap()
            crates/a/src/lib.rs:2: unwrap: .unwrap()"#]],
    );
    check_text("crates/a/src/lib/tests.rs", code, expect![""]);
    check_text("crates/a/tests/it/main.rs", code, expect![""]);
    check_text(
        "crates/a/src/lib.rs",
        "//! A `.unwrap()` in words.\nfn f() { x.unwrap_or(\".unwrap()\"); }\n#[cfg(test)]\nmod inner { fn g() { x.unwrap(); } }\n",
        expect![""],
    );
    check_text(
        "crates/a/src/lib.rs",
        "//! A file.\n#[cfg(test)]\nmod tests;\nmod real { fn g() { x.unwrap(); } }\n",
        expect!["crates/a/src/lib.rs:4: unwrap: .unwrap()"],
    );
}

#[test]
fn nothing_is_left_unfinished_or_ignored() {
    check_text(
        "a.rs",
        "//! A file.\n#[test]\n#[ignore = \"slow\"]\nfn f() { todo!(); unimplemented!(\"x\"); dbg!(1); }\n#[cfg_attr(x, ignore)]\nfn g() {}\n#[must_use]\nfn ignore() {}\n",
        expect![[r#"
            a.rs:3: ignored-test: #[ignore]
            a.rs:4: unfinished: todo!
            a.rs:4: unfinished: unimplemented!
            a.rs:4: unfinished: dbg!
            a.rs:5: ignored-test: #[ignore]"#]],
    );
}

#[test]
fn unsafe_lives_in_one_crate() {
    let code = "//! Not unsafe.\nfn f() { unsafe { g() } }\n";
    check_text("crates/a/src/lib.rs", code, expect!["crates/a/src/lib.rs:2: unsafe: unsafe"]);
    check_text("crates/linux/src/lib.rs", code, expect![""]);
}

#[test]
fn tests_do_not_sleep() {
    let code = "//! A file.\nasync fn f() { tokio::time::sleep(MS).await; std::thread::sleep(MS); run(\"pg_sleep(1)\"); }\n";
    check_text(
        "crates/a/tests/it/main.rs",
        code,
        expect![[r#"
            crates/a/tests/it/main.rs:2: sleep-in-test: sleep
            crates/a/tests/it/main.rs:2: sleep-in-test: sleep"#]],
    );
    check_text("crates/a/src/lib.rs", code, expect![""]);
}

#[test]
fn names_say_something() {
    check_text(
        "crates/a/src/utils.rs",
        "//! A file.\nmod helpers { }\nmod typed { }\n",
        expect![[r#"
            crates/a/src/utils.rs:1: vague-name: utils
            crates/a/src/utils.rs:2: vague-name: helpers"#]],
    );
    check_text(
        "crates/common/src/lib.rs",
        "//! A file.\n",
        expect!["crates/common/src/lib.rs:1: vague-name: common"],
    );
}

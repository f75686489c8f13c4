//! Broken links, missing targets and long pages are found; commands are told from their output.

use super::*;

fn page(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

fn shown(text: &str) -> Vec<String> {
    shell_commands(text)
        .iter()
        .map(|command| format!("{}: {}", command.line, command.words.join(" ")))
        .collect()
}

#[test]
fn links_resolve_to_files_and_headings() {
    let start = page(
        "docs/start.md",
        "# Start here\n[a](other.md) [b](other.md#what-it-costs) [c](../README.md) [d](#start-here) [e](https://x.org/y)\n\
         [f](gone.md) [g](other.md#gone) [h](#gone) [i](../../out.md) `[j](in-code.md)`\n\n[k]: pictures/a.png\n[l]: pictures/b.png\n\
         ```text\n[m](in-fence.md)\n```\n",
    );
    let pages = [
        start.clone(),
        page("docs/other.md", "## What it *costs*?\n"),
        page("README.md", "# Egret\n"),
    ];
    let broken = check_links(&start, &pages, |path| path == "docs/pictures/a.png");
    let targets: Vec<&str> = broken.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(
        targets,
        ["../README.md", "gone.md", "other.md#gone", "#gone", "../../out.md", "pictures/b.png"]
    );
    assert_eq!(broken[5].line, 6);
    let readme = page("README.md", "[start](docs/start.md)");
    assert!(check_links(&readme, &pages, |_| false).is_empty());
}

#[test]
fn pages_of_the_book_are_in_its_summary() {
    let pages = [
        page("docs/SUMMARY.md", "# Book\n- [A](guide/a.md)\n"),
        page("docs/guide/a.md", "# A\n"),
        page("docs/guide/b.md", "# B\n"),
        page("README.md", "# Egret\n"),
    ];
    let unlisted = check_summary(&pages);
    let paths: Vec<&str> = unlisted.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(paths, ["docs/guide/b.md"]);
}

#[test]
fn equal_headings_get_numbers() {
    assert_eq!(heading_anchors("# A b\n## A b\n```sh\n# A b\n```\n#no\n"), ["a-b", "a-b-1"]);
}

#[test]
fn prompted_lines_are_commands_and_the_rest_is_output() {
    assert_eq!(
        shown(
            "```console\n$ egret branch create demo --ttl 2h   # a copy\negret is an output line\n$ make run\n```\n```text\n$ not this\n```\n"
        ),
        ["2: egret branch create demo --ttl 2h", "4: make run"]
    );
    assert_eq!(
        shown(
            "```sh\nEGRET_TOKEN=x egret status --json | jq '.a | .b' > out.txt && make test 2>&1\negret branch query a \\\n  'select 1; select 2'\n```\n"
        ),
        [
            "2: egret status --json",
            "2: jq .a | .b",
            "2: make test",
            "3: egret branch query a select 1; select 2"
        ]
    );
}

#[test]
fn make_targets_exist() {
    let makefile = "run: toolchain ## x\n\ntest:\n\techo a: b\n";
    let text = "Use `make run` or `make fly`.\n```sh\nmake test\nmake -j2 swim\n```\n`make` alone is fine.\n";
    let findings = check_make_targets(&page("README.md", text), makefile);
    let subjects: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, ["swim", "fly"]);
}

#[test]
fn pages_have_a_length() {
    let lines = "x\n".repeat(121);
    assert!(check_length(&page("crates/a/README.md", &lines)).is_some());
    assert!(check_length(&page("README.md", &"x\n".repeat(150))).is_none());
    assert!(check_length(&page("README.md", &"x\n".repeat(151))).is_some());
    assert!(check_length(&page("docs/long.md", &lines)).is_none());
    assert!(check_length(&page("ARCHITECTURE.md", &lines)).is_none());
    assert!(check_length(&page("ARCHITECTURE.md", &"x\n".repeat(301))).is_some());
}

//! The checker on right and wrong claims, then every page of the checkout.

use egret_tidy::tree;
use expect_test::expect;

use super::*;
use crate::result::Better;
use crate::sample;

/// What is found on a page beside one file with known figures.
fn check_page(text: &str) -> String {
    let mut file = sample::file();
    let mut create = sample::scalar(4.4, "ms", Better::Lower);
    (create.p50, create.p95) = (Some(4.2123), Some(0.953));
    file.metrics.insert("create".to_owned(), create);
    let size = sample::scalar(6_449_000.0, "bytes", Better::Lower);
    file.metrics.insert("size".to_owned(), size);
    let mut other = file.clone();
    other.metrics.get_mut("create").unwrap().p50 = Some(50.0);
    let published = Published::from([
        ("a.json".to_owned(), Ok(file)),
        ("b.json".to_owned(), Ok(other)),
        ("cut.json".to_owned(), Err("cut.json is not complete JSON".to_owned())),
    ]);
    let page = File { path: "page.md".to_owned(), text: text.to_owned() };
    let findings = check(&page, &published);
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    lines.join("\n")
}

#[test]
fn right_numbers_are_not_found() {
    for text in [
        "It takes 4.2 ms<!-- result: a.json create -->.",
        "It takes 4.21 ms <!-- result: a.json create.p50 -->.",
        "| **4 ms**<!-- result: a.json create.p50 --> | `953 µs`<!--result: a.json create.p95--> |",
        "0.95 ms<!-- result: a.json create.p95 --> and 0.004 s<!-- result: a.json create -->",
        "mean 4.4 ms<!-- result: a.json create.mean -->",
        "6.4 MB<!-- result: a.json size -->, 1,235/s<!-- result: a.json rate -->",
        "1234.5 /s<!-- result: a.json rate -->, 2<!-- result: a.json cores --> cores",
        "11.9×<!-- result: b.json create / a.json create --> or 1187%<!-- result: b.json create / a.json create -->",
        "~12 times<!-- result: b.json create / a.json create -->",
    ] {
        assert_eq!(check_page(text), "", "{text}");
    }
}

#[test]
fn wrong_numbers_are_found_with_the_right_ones() {
    let text = "
4.3 ms<!-- result: a.json create -->
4.20 ms<!-- result: a.json create -->
4.2 µs<!-- result: a.json create --> then 4.2 ms<!-- result: a.json create.p95 -->
6.5 MB<!-- result: a.json size -->
13×<!-- result: b.json create / a.json create -->";
    expect![[r#"
        page.md:2: result-claim: a.json create is 4.2123, the page says 4.3 ms
        page.md:3: result-claim: a.json create is 4.2123, the page says 4.20 ms
        page.md:4: result-claim: a.json create is 4.2123, the page says 4.2 µs
        page.md:4: result-claim: a.json create.p95 is 0.953, the page says 4.2 ms
        page.md:5: result-claim: a.json size is 6449000, the page says 6.5 MB
        page.md:6: result-claim: b.json create / a.json create is 11.87, the page says 13×"#]]
    .assert_eq(&check_page(text));
}

#[test]
fn claims_that_cannot_be_checked_are_found() {
    let text = "
4.2 MB<!-- result: a.json create -->
4.2<!-- result: a.json create -->
fast<!-- result: a.json create -->
4.2 ms<!-- result: missing.json create -->
4.2 ms<!-- result: cut.json create -->
4.2 ms<!-- result: a.json creation -->
4.2 ms<!-- result: a.json create.p99 -->
4.2 ms<!-- result: a.json create.p98 -->
4.2 ms<!-- result: a.json -->
4.2 ms<!-- results: a.json create -->
4.2 ms<!-- result: a.json create
2×<!-- result: a.json create / a.json size -->";
    expect![[r#"
        page.md:2: result-claim: a.json create is in Time, not in Size
        page.md:3: result-claim: a.json create is in Time, not in Bare
        page.md:4: result-claim: there is no number before the claim
        page.md:5: result-claim: results/missing.json does not exist
        page.md:6: result-claim: cut.json is not complete JSON
        page.md:7: result-claim: results/a.json has no creation
        page.md:8: result-claim: results/a.json has no create.p99
        page.md:9: result-claim: metric create.p98: p98 is not a statistic: use p50, p90, p95, p99, p999, max or mean
        page.md:10: result-claim: `a.json`: write a file and a metric
        page.md:11: result-claim: write it as <!-- result: FILE METRIC --> on one line
        page.md:12: result-claim: write it as <!-- result: FILE METRIC --> on one line
        page.md:13: result-claim: a.json create / a.json size: a ratio needs two equal units"#]]
    .assert_eq(&check_page(text));
}

#[test]
fn code_claims_nothing() {
    let text = "
Write `9 ms<!-- result: a.json create -->` for it.

```markdown
9 ms<!-- result: a.json create -->
```

And 4.2 ms.<!-- another comment -->";
    assert_eq!(check_page(text), "");
}

/// All files of `results/`, read as what they claim to be.
fn published() -> Published {
    let directory = tree::checkout_root().join("results");
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let read = read(&path).map_err(|error| format!("{error:#}"));
            (name, read)
        })
        .collect()
}

#[test]
fn every_number_that_claims_a_result_is_in_it() {
    let published = published();
    let findings: Vec<String> = tree::read_files(&tree::checkout_root())
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .flat_map(|page| check(page, &published))
        .map(|finding| finding.to_string())
        .collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn what_the_schema_refuses_is_not_published() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sql-x.json");
    let mut file = sample::file();
    file.write(&path).unwrap();
    assert_eq!(read(&path).unwrap(), file);
    // Nothing but the schema knows the units.
    file.metrics.get_mut("create").unwrap().unit = "parsecs".to_owned();
    file.write(&path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("/metrics/create/unit"), "{error}");
}

#[test]
fn every_published_file_is_a_result_of_its_scenario_and_listed() {
    let list = std::fs::read_to_string(tree::checkout_root().join("results/README.md")).unwrap();
    for (name, result) in published() {
        let file = result.unwrap_or_else(|reason| panic!("{reason}"));
        let prefix = format!("{}-", file.scenario);
        assert!(name.starts_with(&prefix), "{name} must begin with {prefix}");
        assert!(list.contains(&name), "results/README.md does not list {name}");
    }
}

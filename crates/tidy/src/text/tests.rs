//! Hosts and paths of one machine are found wherever they stand; look-alikes are not.

use super::*;

fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
    let file = File { path: path.to_owned(), text: text.to_owned() };
    check(&file).iter().map(|finding| (finding.rule, finding.line)).collect()
}

#[test]
fn registry_hosts_are_found_except_in_lock_files() {
    let text = format!("fine\nsee https://index.{}/x\n", REGISTRY_HOSTS[0]);
    assert_eq!(rules("docs/a.md", &text), [("registry-host", 2)]);
    assert_eq!(rules("tests/clients/package-lock.json", &text), []);
}

#[test]
fn paths_of_one_machine_are_found() {
    for path in MACHINE_PATHS {
        let text = format!("cd {path}egret\n");
        assert_eq!(rules("Makefile", &text), [("machine-path", 1)], "{path}");
        let text = format!("/srv{path}egret $DIR{path}x\n");
        assert_eq!(rules("Makefile", &text), [], "{path}");
    }
}

//! Rules for every text file: nothing that holds only on one machine, or only with one registry.

use crate::Finding;
use crate::tree::File;

// Written in halves, so that this file does not break its own rule.
const REGISTRY_HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.", "golang.org"),
];
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
const LOCK_FILES: [&str; 2] = ["Cargo.lock", "package-lock.json"];

/// Registry hosts and paths of one machine in one file. Lock files may name their registry.
pub fn check(file: &File) -> Vec<Finding> {
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    if LOCK_FILES.contains(&name) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
            findings.push(Finding::new("registry-host", &file.path, index + 1, *host));
        }
        for path in MACHINE_PATHS.iter().filter(|path| begins_absolute_path(line, path)) {
            findings.push(Finding::new("machine-path", &file.path, index + 1, *path));
        }
    }
    findings
}

/// Whether `line` holds `path` as the beginning of an absolute path: `a/home/b` is not one.
fn begins_absolute_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(offset, _)| {
        !line[..offset]
            .ends_with(|before: char| before.is_alphanumeric() || "._-~$})".contains(before))
    })
}

#[cfg(test)]
mod tests;

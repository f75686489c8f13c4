//! Finds the commit and the build profile of a program, so that its status and the results of the
//! load harness can name what was measured. The build script of both programs.
//!
//! No variable begins with `EGRET_`: `cargo test` passes them on to the programs that tests start,
//! which would read them as settings.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new("../..");
    let profile = profile();
    println!("cargo::rustc-env=BUILD_PROFILE={profile}");
    println!("cargo::rerun-if-changed=../egret/build.rs");
    // Also where git fails now: it may answer the next time. The log grows with each commit. Git
    // knows where they are: in a worktree `.git` is no directory.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(root, &["rev-parse", "--git-path", name]);
        let path = path.map_or_else(|| root.join(".git").join(name), |path| root.join(path));
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let Some(commit) = git(root, &["rev-parse", "HEAD"]) else {
        // A source archive has no commit.
        println!("cargo::rustc-env=BUILD_COMMIT=unknown");
        return;
    };
    // What a daily build measures is published nowhere, and looking at every source file after each
    // change would make such builds slow; so it does not vouch for being the commit.
    let dirty = if profile == "dev" {
        true
    } else {
        for watched in ["crates", "Cargo.toml", "Cargo.lock"] {
            println!("cargo::rerun-if-changed={}", root.join(watched).display());
        }
        let changes = ["status", "--porcelain", "--untracked-files=no"];
        git(root, &changes).is_none_or(|changes| !changes.is_empty())
    };
    let suffix = if dirty { "+dirty" } else { "" };
    println!("cargo::rustc-env=BUILD_COMMIT={commit}{suffix}");
}

/// What git answers; `None` without git or outside a checkout.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The profile's name, from `…/target/PROFILE/build/PACKAGE-HASH/out`: cargo tells a build
/// script only which profile it inherits from.
fn profile() -> String {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
    let name = out
        .as_deref()
        .and_then(|out| out.ancestors().nth(3)?.file_name()?.to_str())
        .unwrap_or("unknown");
    match name {
        "debug" => "dev".to_owned(),
        name => name.to_owned(),
    }
}

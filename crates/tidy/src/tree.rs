//! Which files the rules look at: everything a checkout holds except what is built or fetched.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the checkout.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Contents of the file.
    pub text: String,
}

const BUILT_OR_FETCHED: [&str; 6] =
    ["target", "node_modules", "dist", "dist-test", "__pycache__", ".git"];

/// The root of the checkout this crate was built in.
pub fn checkout_root() -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_directory
        .ancestors()
        .nth(2)
        .expect("the crate lies two directories below the root")
        .to_owned()
}

/// Every text file below `root`, sorted by path. Files that are not UTF-8 are data, not text.
pub fn read_files(root: &Path) -> Vec<File> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory).expect("a checkout can be read");
        for entry in entries.map(|entry| entry.expect("a checkout can be read")) {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let name = entry.file_name();
            // Directories, but in a worktree `.git` is a file that says where the real one is.
            if BUILT_OR_FETCHED.iter().any(|skipped| name == *skipped) {
                continue;
            }
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(&path)
            {
                let relative = path.strip_prefix(root).expect("found below the root");
                found.push(File { path: relative.to_string_lossy().into_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

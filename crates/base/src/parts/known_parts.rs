//! Which parts of the data there were at an earlier start, kept outside of the parts themselves:
//! storage that is missing is found by it, where an empty directory would look like a new one.
//!
//! A text file: a heading, a line `NAME NUMBER` for each part, and a checksum of what precedes it.
//! The number is what the owner of the part wants to know at the next start, such as how far its
//! log reached.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use crate::durable;
use crate::sync::lock;

const HEADING: &str = "egret known parts 1";

/// The file's name, in the directory whose parts it lists.
pub const KNOWN_PARTS: &str = "known-parts";

/// The parts that are known to exist.
pub struct KnownParts {
    path: PathBuf,
    was_absent: bool,
    parts: Mutex<BTreeMap<String, u64>>,
}

impl KnownParts {
    /// Reads the list of a directory. If it is absent or damaged, it is empty and will be written
    /// anew.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let path = directory.join(KNOWN_PARTS);
        let text = match std::fs::read(&path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let parts = text.as_deref().and_then(parse);
        Ok(Self { path, was_absent: parts.is_none(), parts: Mutex::new(parts.unwrap_or_default()) })
    }

    /// Whether there was no list to read, as in a directory that an earlier version made.
    pub fn was_absent(&self) -> bool {
        self.was_absent
    }

    /// The number of a part, if it is known.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.parts().get(name).copied()
    }

    /// Changes the list and makes it durable, unless it is as it was.
    ///
    /// # Errors
    /// What the system says; the change holds for this process all the same.
    pub fn change(&self, change: impl FnOnce(&mut BTreeMap<String, u64>)) -> io::Result<()> {
        let mut parts = self.parts();
        let before = parts.clone();
        change(&mut parts);
        if *parts == before && self.path.exists() {
            return Ok(());
        }
        durable::write_file(&self.path, format(&parts).as_bytes(), 0o600)
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        lock(&self.parts)
    }
}

fn format(parts: &BTreeMap<String, u64>) -> String {
    let mut text = format!("{HEADING}\n");
    for (name, number) in parts {
        text.push_str(&format!("{name} {number}\n"));
    }
    let sum = checksum(&text);
    text.push_str(&format!("checksum {sum:016x}\n"));
    text
}

fn parse(text: &str) -> Option<BTreeMap<String, u64>> {
    let body = text.strip_suffix('\n')?;
    let (body, last) = body.rsplit_once('\n')?;
    let body = format!("{body}\n");
    let sum = last.strip_prefix("checksum ")?;
    if u64::from_str_radix(sum, 16) != Ok(checksum(&body)) {
        return None;
    }
    let lines = body.strip_prefix(HEADING)?.trim_start_matches('\n').lines();
    lines
        .map(|line| {
            let (name, number) = line.rsplit_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        })
        .collect()
}

/// FNV-1a, of 64 bits.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(directory: &Path) -> KnownParts {
        KnownParts::read(directory).expect("it is read")
    }

    #[test]
    fn what_is_noted_is_known_at_the_next_start() {
        let place = tempfile::tempdir().expect("a directory");
        let list = known(place.path());
        assert!(list.was_absent());
        let note = |parts: &mut BTreeMap<String, u64>| {
            parts.insert("queue".to_owned(), 0);
            parts.insert("queue/001".to_owned(), 17);
        };
        list.change(note).expect("it is written");
        let list = known(place.path());
        assert!(!list.was_absent());
        assert_eq!(list.number("queue/001"), Some(17));
        assert_eq!(list.number("series"), None);
    }

    #[test]
    fn a_damaged_list_knows_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let note = |parts: &mut BTreeMap<String, u64>| {
            parts.insert("000".to_owned(), 7);
        };
        known(place.path()).change(note).expect("it is written");
        let path = place.path().join(KNOWN_PARTS);
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::write(&path, text.replace('7', "9")).expect("it is written");
        assert!(known(place.path()).was_absent());
    }
}

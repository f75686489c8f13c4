//! The identity of a part, written in its directory: it reveals a directory that was copied or
//! moved into the place of another.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::durable;

/// The file's name, in the directory of a part.
const PLACE_FILE: &str = "place";

/// The part that a directory says it is, such as `queue/001`. `None` where it says nothing, as one
/// of an earlier version does, or nothing that could be a part: the file is damaged, which says
/// nothing of the data.
pub fn read_place(directory: &Path) -> io::Result<Option<String>> {
    match std::fs::read(directory.join(PLACE_FILE)) {
        Ok(bytes) => {
            let stated = String::from_utf8_lossy(&bytes).trim().to_owned();
            Ok(is_place(&stated).then_some(stated))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a text is an engine and a number of three digits.
fn is_place(text: &str) -> bool {
    text.split_once('/').is_some_and(|(engine, number)| {
        ["queue", "series"].contains(&engine)
            && number.len() == 3
            && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Checks that a directory is the part `place`, and has it say so where it says nothing yet. On a
/// full disk it says so at a later start.
///
/// # Errors
/// `InvalidData` when it says that it is another part, or what the system says.
pub fn claim_place(directory: &Path, place: &str) -> io::Result<()> {
    match read_place(directory)? {
        Some(stated) if stated == place => Ok(()),
        Some(stated) => {
            let reason = format!(
                "it is the directory of {stated}, copied or moved to the place of {place}: put each directory back in its place; `egret repair` shows what else can be done"
            );
            Err(io::Error::new(ErrorKind::InvalidData, reason))
        }
        None => {
            let content = format!("{place}\n");
            let written =
                durable::write_file(&directory.join(PLACE_FILE), content.as_bytes(), 0o600);
            if let Err(error) = written {
                tracing::warn!(%error, place, "cannot write the name of a part into its directory");
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_part_for_ever() {
        let place = tempfile::tempdir().expect("a directory");
        assert_eq!(read_place(place.path()).expect("it is read"), None);
        for _ in 0..2 {
            claim_place(place.path(), "queue/001").expect("it is that part");
        }
        let error = claim_place(place.path(), "queue/000").expect_err("it is another one");
        let said = error.to_string();
        assert!(said.starts_with("it is the directory of queue/001, copied or moved"), "{said}");
    }

    #[test]
    fn a_damaged_file_costs_no_part() {
        let place = tempfile::tempdir().expect("a directory");
        for damaged in ["", "queue/0\u{1}1", "queue/01", "oueue/001"] {
            std::fs::write(place.path().join(PLACE_FILE), damaged).expect("it is written");
            claim_place(place.path(), "queue/001").expect("it says nothing");
            let stated = read_place(place.path()).expect("it is read");
            assert_eq!(stated.as_deref(), Some("queue/001"));
        }
    }
}

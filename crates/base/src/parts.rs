//! The number of parts that an engine's data is split into. It is chosen when the directory is made
//! and never changes, because it decides where each record is.

mod known_parts;
mod part_identity;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::durable;

pub use known_parts::{KNOWN_PARTS, KnownParts};
pub use part_identity::{claim_place, read_place};

/// More parts than this are no use on any machine.
pub const PARTS_MAX: u32 = 64;

/// As many parts as there are cores, but no more than this.
const CORES_MAX: usize = 8;

/// Why the number of parts is not known.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// The requested number is not possible.
    #[error("{0}")]
    Invalid(String),
    /// The file with the number could not be read or written.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was attempted: `reading` or `writing`.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// How many parts the data in a directory has, by the file `name` in it. The first time that is
/// `configured`, or a number that suits the machine if `configured` is 0.
///
/// # Errors
/// [`PartsError::Invalid`] when another number is asked for than the directory was made with, or
/// more than [`PARTS_MAX`]; [`PartsError::Io`], also when the file contradicts what is known of the
/// parts.
pub fn load_or_create_count(
    directory: &Path,
    name: &str,
    configured: u32,
) -> Result<usize, PartsError> {
    if configured > PARTS_MAX {
        let reason = format!("{configured} is more than {PARTS_MAX}");
        return Err(PartsError::Invalid(reason));
    }
    let io_error = |doing: &'static str, file: &str| {
        let path = directory.join(file);
        move |source| PartsError::Io { doing, path, source }
    };
    let count_file_error = |doing: &'static str| io_error(doing, name);
    let stored = stored_count(directory, name).map_err(count_file_error("reading"))?;
    // It reads no file but the list.
    let expected =
        expected_count(directory, name, stored).map_err(io_error("reading", KNOWN_PARTS))?;
    let Some(recorded) = stored else {
        if expected > 0 {
            let reason = format!(
                "it is missing, but the data is in {expected} parts: `egret repair` writes the right number"
            );
            let missing = std::io::Error::new(ErrorKind::NotFound, reason);
            return Err(count_file_error("reading")(missing));
        }
        let count = match configured {
            0 => default_count(),
            asked => asked as usize,
        };
        write_count(directory, name, count).map_err(count_file_error("writing"))?;
        return Ok(count);
    };
    if expected != recorded {
        let reason = format!(
            "it says {recorded}, but the data is in {expected} parts: `egret repair` writes the right number"
        );
        let contradiction = std::io::Error::new(ErrorKind::InvalidData, reason);
        return Err(count_file_error("reading")(contradiction));
    }
    if configured != 0 && configured as usize != recorded {
        return Err(PartsError::Invalid(format!(
            "it is {configured}, but {} was made with {recorded}: leave it at 0, or use another data directory",
            directory.display()
        )));
    }
    Ok(recorded)
}

/// The number of parts that the file `name` holds, if it is there.
///
/// # Errors
/// `InvalidData` when it holds no number from 1 to [`PARTS_MAX`], or what the system says.
pub fn stored_count(directory: &Path, name: &str) -> io::Result<Option<usize>> {
    let bytes = match std::fs::read(directory.join(name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let count = text.trim().parse::<usize>().ok();
    let count = count.filter(|count| (1..=PARTS_MAX as usize).contains(count));
    let damaged = || io::Error::new(ErrorKind::InvalidData, "it does not hold a number of parts");
    count.map(Some).ok_or_else(damaged)
}

/// Writes the number of parts to the file `name`, durably.
pub fn write_count(directory: &Path, name: &str, count: usize) -> io::Result<()> {
    durable::write_file(&directory.join(name), format!("{count}\n").as_bytes(), 0o600)
}

/// The number of parts, where the file `name` may not say it or say it wrongly: the one that an
/// earlier start noted under that name in the list of known parts. Where none did, what is `stored`
/// in the file, but no less than what the directories of parts show, and the parts that are known
/// to have been there.
pub fn expected_count(directory: &Path, name: &str, stored: Option<usize>) -> io::Result<usize> {
    let known = KnownParts::read(directory)?;
    let recorded = known.number(name).and_then(|noted| usize::try_from(noted).ok());
    if let Some(noted) = recorded.filter(|noted| (1..=PARTS_MAX as usize).contains(noted)) {
        return Ok(noted);
    }
    let exists = |name: &str| directory.join(name).is_dir() || known.number(name).is_some();
    let numbers = 0..PARTS_MAX as usize;
    let last = numbers.rev().find(|number| exists(&format!("{number:03}")));
    Ok(last.map_or(0, |last| last + 1).max(stored.unwrap_or(0)))
}

/// The name in the list of known parts by which it is noted that the log of a part has an end mark.
pub fn end_mark_name(part: &str) -> String {
    format!("{part}/end")
}

fn default_count() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().min(CORES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_or_error(directory: &Path, asked: u32) -> String {
        match load_or_create_count(directory, "shards", asked) {
            Ok(count) => count.to_string(),
            Err(error) => {
                let directory = directory.display().to_string();
                error.to_string().replace(&directory, "DIRECTORY")
            }
        }
    }

    #[test]
    fn it_stays_what_it_was_first() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path();
        assert_eq!(count_or_error(directory, 65), "65 is more than 64");
        assert_eq!(count_or_error(directory, 3), "3");
        assert_eq!(count_or_error(directory, 0), "3");
        assert_eq!(count_or_error(directory, 3), "3");
        assert_eq!(
            count_or_error(directory, 4),
            "it is 4, but DIRECTORY was made with 3: leave it at 0, or use another data directory"
        );
        std::fs::write(directory.join("shards"), "many").expect("it is written");
        assert_eq!(
            count_or_error(directory, 0),
            "reading DIRECTORY/shards: it does not hold a number of parts"
        );
    }

    #[test]
    fn a_number_that_contradicts_what_is_known_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path();
        assert_eq!(count_or_error(directory, 2), "2");
        std::fs::create_dir(directory.join("001")).expect("it is made");
        let fewer = "reading DIRECTORY/shards: it says 1, but the data is in 2 parts: `egret repair` writes the right number";
        write_count(directory, "shards", 1).expect("it is written");
        assert_eq!(count_or_error(directory, 0), fewer);
        assert_eq!(count_or_error(directory, 2), fewer);
        let known = KnownParts::read(directory).expect("it is read");
        let noted = known.change(|parts| {
            parts.insert("shards".to_owned(), 2);
        });
        noted.expect("it is written");
        write_count(directory, "shards", 4).expect("it is written");
        assert_eq!(count_or_error(directory, 0), fewer.replace("says 1", "says 4"));
        write_count(directory, "shards", 2).expect("it is written");
        assert_eq!(count_or_error(directory, 0), "2");
        std::fs::remove_file(directory.join("shards")).expect("it is removed");
        let missing = "reading DIRECTORY/shards: it is missing, but the data is in 2 parts: `egret repair` writes the right number";
        assert_eq!(count_or_error(directory, 0), missing);
        assert_eq!(count_or_error(directory, 4), missing);
        assert!(!directory.join("shards").exists());
    }

    #[test]
    fn a_list_of_parts_that_cannot_be_read_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path();
        assert_eq!(count_or_error(directory, 2), "2");
        std::fs::create_dir(directory.join(KNOWN_PARTS)).expect("it is made");
        let refusal = count_or_error(directory, 2);
        assert!(refusal.starts_with("reading DIRECTORY/known-parts: "), "{refusal}");
    }

    #[test]
    fn a_machine_has_at_least_one_and_at_most_eight() {
        let place = tempfile::tempdir().expect("a directory");
        let count = load_or_create_count(place.path(), "shards", 0).expect("it is made");
        assert!((1..=CORES_MAX).contains(&count));
    }
}

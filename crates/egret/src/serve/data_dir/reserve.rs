//! Disk space that is kept back, so that a start is possible on a disk that is full: a file that is
//! given up then, and made again when there is room.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::FallocateFlags;

/// The size of the file, in bytes.
const RESERVE_BYTES: u64 = 16 << 20;

/// Free space that must be there beside the file before it is made, in bytes.
const FREE_BYTES_MIN: u64 = 8 * RESERVE_BYTES;

const RESERVE_FILE: &str = "reserve";

/// Gives the space up when there is next to no other.
///
/// # Errors
/// The operating system's.
pub(super) fn release_if_full(data_dir: &Path) -> io::Result<()> {
    let path = data_dir.join(RESERVE_FILE);
    if !path.exists() || free_bytes(data_dir)? >= RESERVE_BYTES {
        return Ok(());
    }
    fs::remove_file(&path)?;
    tracing::warn!(
        reserve_bytes = RESERVE_BYTES,
        "the disk is full: releasing the reserve for the start; free some space"
    );
    Ok(())
}

/// Takes the space again where there is room.
///
/// # Errors
/// The operating system's; nothing is left of the file then.
pub(super) fn create_if_room(data_dir: &Path) -> io::Result<()> {
    let path = data_dir.join(RESERVE_FILE);
    if path.exists() || free_bytes(data_dir)? < RESERVE_BYTES + FREE_BYTES_MIN {
        return Ok(());
    }
    let file = File::create(&path)?;
    let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES);
    allocated.map_err(io::Error::from).inspect_err(|_| {
        // What fails here is told; the next start tries again.
        let _ = fs::remove_file(&path);
    })
}

fn free_bytes(directory: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_taken_once_and_kept_while_there_is_room() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join(RESERVE_FILE);
        create_if_room(place.path()).expect("there is room");
        let size = fs::metadata(&path).expect("it is there").len();
        assert_eq!(size, RESERVE_BYTES);
        create_if_room(place.path()).expect("it is there already");
        release_if_full(place.path()).expect("nothing is to be done");
        assert!(path.exists());
    }
}

//! What a log needs of a file system, so that a simulated one can stand in for it.

mod directory;

use std::io;

pub use directory::Directory;

/// A directory with the files of one log. Names are plain file names.
pub trait Disk: Clone + Send + Sync + 'static {
    /// The type of an open file.
    type File: DiskFile;
    /// Keeps other writers out until it is dropped.
    type Lock: Send + Sync + 'static;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Makes a new, empty file and opens it for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, or what the system says.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file; one that has the new name is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file. Readers that have it open can go on reading.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Names of all files in the directory.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;

    /// Bytes of disk space that are free for this process.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Takes the directory for one writer.
    ///
    /// # Errors
    /// `WouldBlock` with the holder's process id as text when another writer has the lock.
    fn lock(&self) -> io::Result<Self::Lock>;

    /// The directory's path, for messages.
    fn display_path(&self) -> String;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync + 'static {
    /// Writes some of `bytes` at `offset` and answers how many.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Appends bytes from `offset` on to `buffer`, at most as many as it has spare capacity for,
    /// and answers how many; 0 at the end.
    fn read_at(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize>;

    /// Makes the content durable (fdatasync).
    ///
    /// # Errors
    /// What the system says. After it, nothing is known about writes since the last success.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts the file off after so many bytes.
    fn truncate(&self, size_bytes: u64) -> io::Result<()>;

    /// Size of the file, in bytes.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Whether the file can also be reached by another name, so that what is written to it changes
    /// there too.
    fn has_other_names(&self) -> io::Result<bool>;
}

/// How much is written at once where zeros are.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// Writes all of `bytes` at `offset`, however many calls it takes.
pub fn write_all<F: DiskFile + ?Sized>(
    file: &F,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The `length` bytes from `offset` on, fewer only where the file ends.
pub fn read_exactly<F: DiskFile + ?Sized>(
    file: &F,
    offset: u64,
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let position = offset + buffer.len() as u64;
        match file.read_at(&mut buffer, position) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(length);
    Ok(buffer)
}

/// How much of a new file is written between two syncs: a longer write would hold up concurrent
/// syncs of the log.
const FILL_BYTES: u64 = 128 << 10;

/// Fills a new file with zeros, durably.
pub(crate) fn fill_with_zeros(file: &impl DiskFile, bytes: u64) -> io::Result<()> {
    let mut offset = 0;
    while offset < bytes {
        let end = bytes.min(offset + FILL_BYTES);
        write_zeros(file, offset, end)?;
        file.sync_data()?;
        offset = end;
    }
    Ok(())
}

/// Writes zeros from `from` to `to`.
pub(crate) fn write_zeros(file: &impl DiskFile, from: u64, to: u64) -> io::Result<()> {
    let mut offset = from;
    while offset < to {
        let length = (to - offset).min(ZEROS.len() as u64);
        write_all(file, &ZEROS[..length as usize], offset)?;
        offset += length;
    }
    Ok(())
}

/// Whether `error` says that the disk has lost a part of what was to be read, as it will say again.
pub fn is_media_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Whether `error` says that there is no space, which leaves a log usable.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

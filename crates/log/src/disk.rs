//! What a log needs of a file system, so that a simulated one can stand in for it.

mod directory;

use std::io;

pub use directory::Directory;

/// A directory with the files of one log. Names are plain file names.
pub trait Disk: Clone + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;
    /// Keeps other writers out until it is dropped.
    type Lock: Send + Sync + 'static;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Makes a new, empty file and opens it for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, or what the system says.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file; one that has the new name is replaced.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file. Whoever has it open can go on reading.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Every file's name.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_directory(&self) -> io::Result<()>;

    /// Bytes of disk space that are free for this process.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Takes the directory for one writer.
    ///
    /// # Errors
    /// `WouldBlock` with the holder's process id as text when somebody has it.
    fn lock(&self) -> io::Result<Self::Lock>;

    /// The directory's path, for messages.
    fn place(&self) -> String;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync + 'static {
    /// Writes some of `bytes` at `offset` and answers how many.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Appends bytes from `offset` on to `buffer`, at most as many as it has spare capacity for,
    /// and answers how many; 0 at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize>;

    /// Makes the content durable (fdatasync).
    ///
    /// # Errors
    /// What the system says. After it, nothing is known about writes since the last success.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts the file off after so many bytes.
    ///
    /// # Errors
    /// What the system says.
    fn truncate(&self, size_bytes: u64) -> io::Result<()>;

    /// Size in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Whether the file can also be reached by another name, so that what is written to it changes there too.
    ///
    /// # Errors
    /// What the system says.
    fn has_other_names(&self) -> io::Result<bool>;
}

/// How much is written at once where zeros are.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// Writes all of `bytes` at `offset`, however many calls it takes.
///
/// # Errors
/// What the system says.
pub fn write_all(
    file: &(impl DiskFile + ?Sized),
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
///
/// # Errors
/// What the system says.
pub fn read_exactly(
    file: &(impl DiskFile + ?Sized),
    offset: u64,
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let reached = offset + buffer.len() as u64;
        match file.read_at(&mut buffer, reached) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(length);
    Ok(buffer)
}

/// How much of a new file is written between two syncs: a longer one would hold up the syncs of
/// whoever appends at the same time.
const FILL_BYTES: u64 = 128 << 10;

/// Fills a new file with zeros, durably.
pub(crate) fn fill(file: &impl DiskFile, bytes: u64) -> io::Result<()> {
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

/// Whether `error` says that there is no space, which leaves a log usable.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

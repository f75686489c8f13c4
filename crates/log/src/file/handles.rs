//! The files of segments that are read, open for as long as they are used: a log may have more
//! segments than a process may have open files.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use egret_base::sync::lock;

use crate::Seq;
use crate::disk::Disk;
use crate::format::{Salt, SegmentHeader};

/// What tells one segment from another, also from one that takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    salt: Salt,
    first: Seq,
}

impl Identity {
    pub(crate) fn from_header(header: &SegmentHeader) -> Self {
        Self { salt: header.salt, first: header.first }
    }
}

/// The open files of a log's segments, at most `open_max`. A caller that uses a file keeps it open,
/// even if it is evicted here.
pub(crate) struct Handles<D: Disk> {
    pub disk: D,
    open_max: usize,
    /// The last used one first.
    open_files: Mutex<VecDeque<(Identity, Arc<D::File>)>>,
    /// What reads of single records have taken from the files.
    fetched_bytes: AtomicU64,
}

impl<D: Disk> Handles<D> {
    pub(crate) fn new(disk: D, open_max: usize) -> Self {
        Self { disk, open_max, open_files: Mutex::default(), fetched_bytes: AtomicU64::new(0) }
    }

    /// The file of a segment, if it is open.
    pub(crate) fn get(&self, segment: Identity) -> Option<Arc<D::File>> {
        let mut open_files = self.lock_open_files();
        let index = open_files.iter().position(|(known, _)| *known == segment)?;
        if index > 0 {
            let entry = open_files.remove(index)?;
            open_files.push_front(entry);
        }
        Some(Arc::clone(&open_files[0].1))
    }

    /// Keeps a file that has just been opened. Returns it, or the one that another thread has
    /// opened meanwhile.
    pub(crate) fn insert(&self, segment: Identity, file: Arc<D::File>) -> Arc<D::File> {
        let mut open_files = self.lock_open_files();
        let existing = open_files.iter().find(|(known, _)| *known == segment);
        if let Some((_, file)) = existing {
            return Arc::clone(file);
        }
        open_files.push_front((segment, Arc::clone(&file)));
        let evicted = if open_files.len() > self.open_max { open_files.pop_back() } else { None };
        drop(open_files);
        // Closing a file that has been deleted takes as long as giving its space back.
        drop(evicted);
        file
    }

    /// So many bytes were read for the sake of one record.
    pub(crate) fn add_fetched_bytes(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }

    /// Closes the file of a segment that is no more.
    pub(crate) fn evict(&self, segment: Identity) {
        let mut open_files = self.lock_open_files();
        let index = open_files.iter().position(|(known, _)| *known == segment);
        let evicted = index.and_then(|at| open_files.remove(at));
        drop(open_files);
        drop(evicted);
    }

    fn lock_open_files(&self) -> MutexGuard<'_, VecDeque<(Identity, Arc<D::File>)>> {
        lock(&self.open_files)
    }
}

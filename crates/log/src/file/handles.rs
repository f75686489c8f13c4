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
    pub(crate) fn of(header: &SegmentHeader) -> Self {
        Self {
            salt: header.salt,
            first: header.first,
        }
    }
}

/// The open files of a log's segments, at most `open_max`. A caller that uses a file keeps it open,
/// even if it is evicted here.
pub(crate) struct Handles<D: Disk> {
    pub disk: D,
    most: usize,
    /// The last used one first.
    held: Mutex<VecDeque<(Identity, Arc<D::File>)>>,
    /// What reads of single records have taken from the files.
    fetched_bytes: AtomicU64,
}

impl<D: Disk> Handles<D> {
    pub(crate) fn new(disk: D, most: usize) -> Self {
        Self {
            disk,
            most,
            held: Mutex::default(),
            fetched_bytes: AtomicU64::new(0),
        }
    }

    /// The file of a segment, if it is open.
    pub(crate) fn get(&self, segment: Identity) -> Option<Arc<D::File>> {
        let mut held = self.held();
        let at = held.iter().position(|(known, _)| *known == segment)?;
        if at > 0 {
            let used = held.remove(at)?;
            held.push_front(used);
        }
        Some(Arc::clone(&held[0].1))
    }

    /// Keeps a file that has just been opened. Returns it, or the one that another thread has
    /// opened meanwhile.
    pub(crate) fn keep(&self, segment: Identity, file: Arc<D::File>) -> Arc<D::File> {
        let mut held = self.held();
        let known = held.iter().find(|(known, _)| *known == segment);
        if let Some((_, file)) = known {
            return Arc::clone(file);
        }
        held.push_front((segment, Arc::clone(&file)));
        let superfluous = if held.len() > self.most {
            held.pop_back()
        } else {
            None
        };
        drop(held);
        // Closing a file that has been deleted takes as long as giving its space back.
        drop(superfluous);
        file
    }

    /// So many bytes were read for the sake of one record.
    pub(crate) fn note_fetched(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }

    /// Closes the file of a segment that is no more.
    pub(crate) fn forget(&self, segment: Identity) {
        let mut held = self.held();
        let at = held.iter().position(|(known, _)| *known == segment);
        let closed = at.and_then(|at| held.remove(at));
        drop(held);
        drop(closed);
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<(Identity, Arc<D::File>)>> {
        lock(&self.held)
    }
}

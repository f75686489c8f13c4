//! Parts that could not start, or stopped working, while the others go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::sync::lock;

/// A part that does not work: a whole service, or a piece of one, such as one partition of the
/// queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// The service, or the service and its piece: `queue`, `queue/001`.
    pub part: String,
    /// Why it does not work.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// Removes the path of a directory from a reason: a caller that may see the reason need not learn
/// where the host keeps its data.
pub fn hide_directory(reason: &str, directory: &Path) -> String {
    let prefix = format!("{}/", directory.display());
    reason.replace(&prefix, "")
}

/// What to do about a service that could not start.
const REMEDY: &str = "remove the cause, then restart egret";

/// The services that could not start, with the reason of each. Clones share the list.
#[derive(Clone, Default)]
pub struct Failures(Arc<FailureList>);

#[derive(Default)]
struct FailureList {
    /// Whether the list has an entry, so that a request of a healthy Egret takes no lock.
    has_failures: AtomicBool,
    reasons: Mutex<BTreeMap<&'static str, String>>,
    /// The directory whose path is left out of the reasons.
    directory: Option<PathBuf>,
}

impl Failures {
    /// A list whose reasons name files by their paths in `directory`.
    pub fn with_hidden_directory(directory: &Path) -> Self {
        Self(Arc::new(FailureList {
            directory: Some(directory.to_owned()),
            ..FailureList::default()
        }))
    }

    /// Notes that a service could not start.
    pub fn record(&self, service: &'static str, reason: String) {
        let reason = match &self.0.directory {
            Some(directory) => hide_directory(&reason, directory),
            None => reason,
        };
        self.reasons().insert(service, reason);
        self.0.has_failures.store(true, Ordering::Release);
    }

    /// Whether every service could start. Takes no lock.
    pub fn is_empty(&self) -> bool {
        !self.0.has_failures.load(Ordering::Acquire)
    }

    /// Why a service could not start, if it could not.
    pub fn reason(&self, service: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        self.reasons().get(service).cloned()
    }

    /// Every service that could not start.
    pub fn parts(&self) -> Vec<FailedPart> {
        let failed = |(service, reason): (&&'static str, &String)| FailedPart {
            part: (*service).to_owned(),
            reason: reason.clone(),
            remedy: REMEDY.to_owned(),
        };
        self.reasons().iter().map(failed).collect()
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        lock(&self.0.reasons)
    }
}

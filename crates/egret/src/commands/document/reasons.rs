//! Why lines of an import were refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::request::file_failure;
use crate::failure::Failure;

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DocumentProblem {
    pub(crate) code: String,
    detail: Option<String>,
    /// Whether the line may be taken later: it is not refused for good then.
    #[serde(default, skip_serializing)]
    pub(super) retryable: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) references: Vec<UnresolvedReference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    violations: Vec<Json>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct UnresolvedReference {
    reference: String,
    pub(super) to: String,
    identity: Json,
}

impl DocumentProblem {
    /// A line that the server does not even read.
    pub(super) fn from_failure(failure: Failure) -> Self {
        Self {
            code: failure.code,
            detail: Some(failure.message),
            retryable: false,
            references: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// What of it [`Reasons`] asks for, as it is read again.
    pub(super) fn to_record(&self) -> Json {
        json!({"code": self.code, "references": self.references})
    }

    /// The failure of a command that cannot go on because of it.
    pub(super) fn into_failure(self) -> Failure {
        let message = self.detail.unwrap_or_else(|| self.code.clone());
        Failure { retryable: self.retryable, ..Failure::failed(&self.code, message) }
    }
}

/// Why lines were refused, and how many: by the code, and by what a reference is to.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    by_code: BTreeMap<(String, String), (u64, BTreeSet<String>)>,
    /// What is not there, by collection: documents with nothing but their identity.
    missing: BTreeMap<String, BTreeSet<String>>,
}

impl Reasons {
    pub(crate) fn add(&mut self, problem: &DocumentProblem) {
        let mut counted = BTreeSet::new();
        for reference in &problem.references {
            let target = format!("{} in {}", reference.reference, reference.to);
            let missing = self.missing.entry(reference.to.clone()).or_default();
            missing.insert(reference.stub().to_string());
            let reason = self.by_code.entry((problem.code.clone(), target.clone())).or_default();
            // A line counts once, whatever it names there.
            reason.0 += u64::from(counted.insert(target));
            reason.1.insert(reference.identity.to_string());
        }
        if problem.references.is_empty() {
            let reason = self.by_code.entry((problem.code.clone(), String::new()));
            reason.or_default().0 += 1;
        }
    }

    /// What is not there, by collection: documents with nothing but their identity.
    pub(crate) fn missing(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.missing
    }

    /// Writes what is not there, a file for each collection.
    pub(super) fn write_missing(&self, directory: &Path) -> Result<(), Failure> {
        for (collection, documents) in &self.missing {
            let path = directory.join(format!("{collection}.ndjson"));
            let lines: String = documents.iter().map(|document| format!("{document}\n")).collect();
            let written = std::fs::create_dir_all(directory);
            written
                .and_then(|()| std::fs::write(&path, lines))
                .map_err(|error| file_failure(&path, &error))?;
        }
        Ok(())
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let entries = self.by_code.iter();
        entries
            .map(|((code, to), (lines, names))| match to.as_str() {
                "" => format!("{lines} lines: {code}"),
                to => format!("{lines} lines: {code}, {to}: {} of them do not exist", names.len()),
            })
            .collect()
    }
}

impl UnresolvedReference {
    /// A document with nothing but the identity that is named.
    fn stub(&self) -> Json {
        let mut stub = json!({});
        for (pointer, value) in self.identity.as_object().into_iter().flatten() {
            let names =
                pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~"));
            let slot = names.fold(&mut stub, |place, name| &mut place[name]);
            *slot = value.clone();
        }
        stub
    }
}

//! Proof of isolation, and the check that registry and disk agree.

use std::sync::atomic::Ordering;
use std::time::Instant;

use egret_base::condition;
use egret_postgres::PostgresError;
use egret_postgres::pidfile::PidFile;
use serde::Serialize;

use crate::core::reconcile::DiskSurvey;
use crate::engine::{Branches, Inner};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchName, BranchState, Template, TemplateState};
use crate::stopwatch::milliseconds;
use crate::store::{files, proof};

/// How often a registry in motion is compared with the disk before the last look counts.
pub(crate) const COMPARISONS_MAX: u32 = 20;

/// What was proved of a branch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proof {
    /// Name of the verified branch.
    pub branch: String,
    /// The schema, table and row that were written to the branch.
    pub marker: String,
    /// Whether the branch has it.
    pub marker_in_branch: bool,
    /// Whether any database of the source has it.
    pub marker_in_source: bool,
    /// Whether the source was not written to meanwhile, so that checksums can be compared.
    pub source_quiet: bool,
    /// Tables of the source that were read, before and after.
    pub tables_checked: u64,
    /// Whether the rows of all of them are the same; `None` when the source was not quiet.
    pub checksums_equal: Option<bool>,
    /// Whether all definitions are the same; `None` when the source was not quiet.
    pub catalogue_equal: Option<bool>,
    /// The verdict: nothing of the branch's writes is in the source.
    pub source_unchanged: bool,
    /// How long it took, in milliseconds.
    pub elapsed_ms: f64,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kind of the object: `branch`, `template`, `socket`, `postmaster`, `file`.
    pub what: &'static str,
    /// Name or id of the object.
    pub which: String,
    /// What does not fit, as a sentence.
    pub detail: String,
}

/// Whether every directory, postmaster and socket belongs to exactly one row or tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegistryCheck {
    /// Whether there is no finding.
    pub consistent: bool,
    /// Living branches, those in pools left out.
    pub branches: usize,
    /// Number of templates that the registry has.
    pub templates: usize,
    /// Branches whose files wait for deletion.
    pub tombstones: usize,
    /// What does not fit.
    pub findings: Vec<Finding>,
}

impl Branches {
    /// Writes a marker to the branch (a schema, a table, a row) and proves that the source did not
    /// change: it has no such marker and, as long as no other session writes to it, its tables'
    /// checksums and its definitions are what they were.
    ///
    /// # Errors
    /// [`BranchesError`] when the branch or the source cannot be asked.
    pub async fn verify(
        &self,
        tenant: &str,
        name: &BranchName,
        database: &str,
    ) -> Result<Proof, BranchesError> {
        let started = Instant::now();
        let endpoint = self.attach(tenant, name).await?;
        let branch = self.inner.find_branch(tenant, name)?;
        let inner = &self.inner;
        let source =
            proof::Source { server: &inner.source, statement_timeout: inner.config.verify_timeout };
        let id = BranchId::new(self.inner.now(), self.inner.entropy.ten_bytes());
        let marker = format!("egret_marker_{}", id.hex());
        let reading = proof::read_source_state(source);
        let before = inner.read_source(name, reading).await?;
        let marker_in_branch = inner.write_marker(&branch, database, &marker).await?;
        let read = async {
            let found = proof::source_has_schema(source, &marker).await?;
            Ok((found, proof::read_source_state(source).await?))
        };
        let (marker_in_source, after) = inner.read_source(name, read).await?;
        drop(endpoint);
        let quiet = before.transactions == after.transactions;
        let checksums_equal = quiet.then(|| before.tables == after.tables);
        let catalogue_equal = quiet.then(|| before.catalogue == after.catalogue);
        let unchanged =
            !marker_in_source && checksums_equal != Some(false) && catalogue_equal != Some(false);
        Ok(Proof {
            branch: name.to_string(),
            marker,
            marker_in_branch,
            marker_in_source,
            source_quiet: quiet,
            tables_checked: after.tables_checked,
            checksums_equal,
            catalogue_equal,
            source_unchanged: marker_in_branch && unchanged,
            elapsed_ms: milliseconds(started.elapsed()),
        })
    }

    /// Compares registry and disk. What is in motion meanwhile is looked at again, for as often as
    /// [`COMPARISONS_MAX`].
    ///
    /// # Errors
    /// [`BranchesError`] when either cannot be read.
    pub async fn check_registry(&self) -> Result<RegistryCheck, BranchesError> {
        let registry = &self.inner.state()?.registry;
        let mut comparisons = 0;
        loop {
            let before = (registry.branches(), registry.templates());
            let paths = self.inner.paths.clone();
            let disk = crate::store::source::run_blocking(move || files::survey(&paths)).await?;
            let after = (registry.branches(), registry.templates());
            comparisons += 1;
            if before == after || comparisons == COMPARISONS_MAX {
                return Ok(self.compare(&after.0, &after.1, &disk));
            }
        }
    }

    fn compare(
        &self,
        branches: &[Branch],
        templates: &[Template],
        disk: &DiskSurvey,
    ) -> RegistryCheck {
        let mut findings: Vec<Finding> =
            branches.iter().filter_map(|branch| self.check_branch(branch, disk)).collect();
        for template in templates {
            if template.state == TemplateState::Ready && !disk.templates.contains(&template.id) {
                findings.push(finding(
                    "template",
                    template.id.to_string(),
                    "its files are missing",
                ));
            }
        }
        let is_unknown = |id: &BranchId| branches.iter().all(|branch| branch.id != *id);
        for id in disk.branches.iter().filter(|id| is_unknown(id)) {
            findings.push(finding("branch", id.to_string(), "its files belong to no row"));
        }
        for id in disk.leftovers.iter().filter(|id| is_unknown(id)) {
            findings.push(finding(
                "file",
                id.to_string(),
                "its files left from a reset belong to no row",
            ));
        }
        for id in disk.sockets.iter().filter(|id| is_unknown(id)) {
            findings.push(finding("socket", id.to_string(), "its directory belongs to no row"));
        }
        for id in &disk.templates {
            if templates.iter().all(|template| template.id != *id) {
                findings.push(finding("template", id.to_string(), "its files belong to no row"));
            }
        }
        findings.extend(
            disk.foreign.iter().map(|name| finding("file", name.clone(), "it is not Egret's")),
        );
        let count = |state: BranchState| {
            let counted = branches.iter().filter(|branch| branch.state == state);
            counted.count()
        };
        let tombstones = count(BranchState::Destroying);
        RegistryCheck {
            consistent: findings.is_empty(),
            branches: branches.len() - tombstones - count(BranchState::Pooled),
            templates: templates.len(),
            tombstones,
            findings,
        }
    }

    fn check_branch(&self, branch: &Branch, disk: &DiskSurvey) -> Option<Finding> {
        let exists = disk.branches.contains(&branch.id);
        let is_running = disk.postmasters.contains(&branch.id);
        let name = branch.name.to_string();
        match branch.state {
            BranchState::Running if !exists => {
                Some(finding("branch", name, "its files are missing"))
            }
            BranchState::Running if !is_running => {
                Some(finding("postmaster", name, "it does not run"))
            }
            BranchState::Running => {
                let listed_pid =
                    PidFile::read(&self.inner.paths.branch(branch.id)).map(|file| file.pid);
                let recorded_pid = branch.postmaster.map(|(pid, _)| pid);
                (listed_pid != recorded_pid)
                    .then(|| finding("postmaster", name, "the running one is not the recorded one"))
            }
            BranchState::Suspended if is_running => {
                Some(finding("postmaster", name, "it runs although the branch is suspended"))
            }
            BranchState::Suspended if !exists => {
                Some(finding("branch", name, "its files are missing"))
            }
            _ => None,
        }
    }

    /// Sessions connected to a branch now.
    pub fn sessions(&self, branch: &Branch) -> u32 {
        // Looked up and not made: the branch may be gone by now, and its place with it.
        let slot = self.inner.existing_slot(branch.id);
        slot.map_or(0, |slot| slot.sessions.load(Ordering::Acquire))
    }
}

impl Inner {
    /// Awaits one reading of the source for a proof of isolation. Each has the whole of
    /// `branches.verify_timeout`: what the branch takes to wake or to write is not the source's.
    async fn read_source<T>(
        &self,
        name: &BranchName,
        read: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, BranchesError> {
        let timeout = self.config.verify_timeout.duration();
        let read = tokio::time::timeout(timeout, self.await_unless_stopping(read));
        let Ok(result) = read.await else {
            let error = BranchesError::VerifyTimeout {
                name: name.to_string(),
                timeout_ms: self.config.verify_timeout.0,
            };
            let message = "cannot verify a branch: reading the source took too long";
            condition::occur("branches_not_verified", "source", &error, message);
            return Err(error);
        };
        result
    }

    /// Writes a marker to a branch, whose user may hold the session up.
    async fn write_marker(
        &self,
        branch: &Branch,
        database: &str,
        marker: &str,
    ) -> Result<bool, BranchesError> {
        let limit = self.receive_limit();
        let exchange = async {
            let mut session = self.open_session(branch, database).await?;
            let written = proof::write_marker(&mut session, marker).await?;
            session.close().await;
            Ok(written)
        };
        let subject = format!("branch {}", branch.id);
        self.within_bounds(&subject, &limit, exchange).await
    }
}

fn finding(what: &'static str, which: String, detail: &str) -> Finding {
    Finding { what, which, detail: detail.to_owned() }
}

//! What is shown of branches, templates and the volume.

use std::collections::BTreeMap;
use std::time::Instant;

use egret_base::{CodedError, Timestamp};
use serde::Serialize;

use crate::core::attempts::{Attempts, SessionFailure};
use crate::engine::{Branches, Inner};
use crate::error::{BranchesError, io_error};
use crate::model::{
    Branch, BranchId, BranchName, BranchState, Loss, Phase, Receipt, Template, TemplateId,
    TemplateState,
};
use crate::store::source::{self, run_blocking};

/// A branch as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct BranchView {
    /// The recorded part, flattened into the same object.
    #[serde(flatten)]
    pub branch: ShownBranch,
    /// Its age in milliseconds.
    pub age_ms: u64,
    /// Number of sessions connected now.
    pub sessions: u32,
    /// Bytes that are its own, where they were asked for: every file has to be looked at.
    pub diverged_bytes: Option<u64>,
    /// What its template lost of its origin; `None` while that is not known.
    pub losses: Option<Vec<Loss>>,
    /// What Egret has done to the branch without a request, and why.
    pub notice: Option<String>,
}

/// The recorded part of a [`BranchView`].
#[derive(Clone, Debug, Serialize)]
pub struct ShownBranch {
    pub id: String,
    pub name: String,
    pub tenant: String,
    /// What it is doing.
    pub state: BranchState,
    /// Where it came from.
    pub parent: ShownParent,
    pub preset: crate::model::Preset,
    /// Whether it survives a crash of the machine.
    pub durable: bool,
    /// Whether its role is a superuser of it.
    pub superuser: bool,
    /// Whether roles of the application enter it with their own passwords.
    pub role_passwords: bool,
    /// Whether it refuses to be destroyed, reset or expired.
    pub protected: bool,
    pub labels: BTreeMap<String, String>,
    /// Settings one by one.
    pub settings: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it is destroyed by itself.
    pub expires_at: Option<Timestamp>,
    /// Its lifetime in milliseconds.
    pub ttl_ms: Option<u64>,
    pub failure: Option<String>,
    /// What its creation did.
    pub receipt: Option<Receipt>,
}

/// Where a branch came from.
#[derive(Clone, Debug, Serialize)]
pub struct ShownParent {
    pub template: String,
    /// The branch that the template was taken from.
    pub branch: Option<String>,
}

/// A template as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct TemplateView {
    /// Id of the template.
    pub id: String,
    /// What it is doing.
    pub state: TemplateState,
    /// Where it was taken from.
    pub origin: ShownOrigin,
    /// WAL position of the snapshot.
    pub lsn: String,
    /// When the snapshot was taken.
    pub taken_at: Timestamp,
    /// Its age in milliseconds.
    pub age_ms: u64,
    /// Branches made from it that exist.
    pub branches: usize,
    /// Major version of the server.
    pub postgres_major: u32,
    /// What building it took.
    pub phases: Vec<Phase>,
}

/// Where a template was taken from.
#[derive(Clone, Debug, Serialize)]
pub struct ShownOrigin {
    pub source: String,
    /// The branch, when it was taken from one.
    pub branch: Option<String>,
}

/// The volume as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeView {
    /// How copies are made.
    pub driver: &'static str,
    /// Root directory of the volume.
    pub path: String,
    /// The image mounted there.
    pub image: Option<String>,
    /// Room in all, in bytes.
    pub size_bytes: u64,
    /// Free room, in bytes.
    pub free_bytes: u64,
    /// Below this nothing is created.
    pub free_bytes_min: u64,
    /// What the driver costs.
    pub note: &'static str,
    /// What keeps branches apart from the machine and from each other.
    pub isolation: String,
    /// What bounds their memory, processor time and processes.
    pub limits: String,
}

impl Branches {
    /// Living branches of a tenant that `fits` accepts, oldest first; no other one is measured.
    pub async fn list(
        &self,
        tenant: &str,
        fits: impl Fn(&Branch) -> bool,
    ) -> Result<Vec<BranchView>, BranchesError> {
        let is_listed = |branch: &Branch| {
            branch.tenant == tenant && branch.state != BranchState::Destroying && fits(branch)
        };
        let mut shown = Vec::new();
        for branch in self.inner.state()?.registry.branches_where(is_listed) {
            shown.push(self.measured_view(branch).await?);
        }
        Ok(shown)
    }

    /// One branch.
    ///
    /// # Errors
    /// [`BranchesError::NotFound`].
    pub async fn show(&self, tenant: &str, name: &BranchName) -> Result<BranchView, BranchesError> {
        self.measured_view(self.inner.find_branch(tenant, name)?).await
    }

    async fn measured_view(&self, branch: Branch) -> Result<BranchView, BranchesError> {
        let diverged_bytes = self.inner.diverged_bytes(&branch).await?;
        Ok(BranchView { diverged_bytes: Some(diverged_bytes), ..self.view(branch) })
    }

    /// A branch with what is known of it without looking at its files.
    pub fn view(&self, branch: Branch) -> BranchView {
        BranchView {
            age_ms: age_ms(self.inner.now(), branch.created_at),
            sessions: self.sessions(&branch),
            diverged_bytes: None,
            losses: self.losses(&branch),
            notice: branch.notice.clone().or_else(|| {
                let slot = self.inner.existing_slot(branch.id);
                slot.and_then(|slot| slot.notice())
            }),
            branch: ShownBranch {
                id: branch.id.to_string(),
                name: branch.name.to_string(),
                tenant: branch.tenant,
                state: branch.state,
                parent: ShownParent {
                    template: branch.template.to_string(),
                    branch: branch.parent_branch.map(|name| name.to_string()),
                },
                preset: branch.preset,
                durable: branch.durable,
                superuser: branch.superuser,
                role_passwords: branch.role_passwords,
                protected: branch.protected,
                labels: branch.labels,
                settings: branch.settings,
                created_at: branch.created_at,
                expires_at: branch.expires_at,
                ttl_ms: branch.ttl_ms,
                failure: branch.failure,
                receipt: branch.receipt,
            },
        }
    }

    fn losses(&self, branch: &Branch) -> Option<Vec<Loss>> {
        let registry = &self.inner.state().ok()?.registry;
        registry.losses(branch.template)
    }

    /// Names of a branch's databases that can be connected to, templates left out. Wakes the
    /// branch.
    ///
    /// # Errors
    /// [`BranchesError`] when it cannot run.
    pub async fn databases(
        &self,
        tenant: &str,
        name: &BranchName,
    ) -> Result<Vec<String>, BranchesError> {
        let mut attempts = Attempts::default();
        let started_at = Instant::now();
        let time_max = self.inner.config.query_timeout.duration();
        loop {
            let mut endpoint = self.attach(tenant, name).await?;
            let slot = endpoint.guard.slot();
            if let Some(known) = self.inner.list_databases_on_warm_session(slot).await {
                return Ok(known);
            }
            let error = match self.inner.databases_of(endpoint.branch).await {
                Ok(databases) => return Ok(databases),
                Err(error) => error,
            };
            let failure = if endpoint.was_stopped() {
                Some(SessionFailure::Stopped)
            } else {
                error.retryable().then_some(SessionFailure::NoAnswer)
            };
            let wait = failure.and_then(|failure| attempts.wait_after(failure));
            let Some(wait) = wait.filter(|_| started_at.elapsed() < time_max) else {
                return Err(error);
            };
            drop(endpoint);
            tokio::time::sleep(wait).await;
        }
    }

    /// The templates that a tenant may use, oldest first: those of the source and of its branches.
    pub fn templates(&self, tenant: &str) -> Result<Vec<TemplateView>, BranchesError> {
        let registry = &self.inner.state()?.registry;
        let count_branches = |id: TemplateId| {
            registry
                .count_where(|branch| branch.template == id && branch.state != BranchState::Pooled)
        };
        let templates = registry.templates();
        Ok(templates
            .iter()
            .filter(|template| template.is_usable_by(tenant))
            .map(|template| self.template_view(template, count_branches(template.id)))
            .collect())
    }

    /// A template with the number of branches that were made from it.
    pub fn template_view(&self, template: &Template, branches: usize) -> TemplateView {
        TemplateView {
            id: template.id.to_string(),
            state: template.state,
            origin: ShownOrigin {
                source: template.source.name.clone(),
                branch: template.origin_branch_name.as_ref().map(ToString::to_string),
            },
            lsn: template.lsn.clone(),
            taken_at: template.taken_at,
            age_ms: age_ms(self.inner.now(), template.taken_at),
            branches,
            postgres_major: template.postgres_major,
            phases: template.phases.clone(),
        }
    }

    /// The volume and the room on it.
    pub fn volume(&self) -> Result<VolumeView, BranchesError> {
        let mounted = self.inner.mounted();
        let space = mounted.space()?;
        let driver = mounted.volume.driver();
        let isolation = &self.inner.state()?.isolation;
        Ok(VolumeView {
            driver: driver.name(),
            path: mounted.root.display().to_string(),
            image: mounted.image.map(|image| image.display().to_string()),
            size_bytes: space.size,
            free_bytes: space.free,
            free_bytes_min: self.inner.config.free_min.bytes(),
            note: driver.note(),
            isolation: isolation.describe(),
            limits: isolation.groups().describe(),
        })
    }

    /// How many branches are in each state, tombstones included and those in pools left out.
    pub fn count_by_state(&self) -> Result<BTreeMap<&'static str, usize>, BranchesError> {
        let mut counts = BTreeMap::new();
        let is_not_pooled = |branch: &Branch| branch.state != BranchState::Pooled;
        for branch in self.inner.state()?.registry.branches_where(is_not_pooled) {
            *counts.entry(branch.state.as_str()).or_default() += 1;
        }
        Ok(counts)
    }
}

fn age_ms(now: Timestamp, then: Timestamp) -> u64 {
    u64::try_from(now.since(then).as_millis()).unwrap_or(u64::MAX)
}

impl Inner {
    /// Names of the databases of a branch that runs.
    pub(crate) async fn databases_of(&self, id: BranchId) -> Result<Vec<String>, BranchesError> {
        let limit = self.receive_limit();
        let exchange = async {
            let (client, _) = self.connect_as_superuser(&self.paths.socket_dir(id), &limit).await?;
            Ok(source::connectable_databases(&client).await?)
        };
        let subject = format!("branch {id}");
        self.within_bounds(&subject, &limit, exchange).await
    }

    /// Bytes of a branch that are its own; nothing while its files come or go.
    async fn diverged_bytes(&self, branch: &Branch) -> Result<u64, BranchesError> {
        if !matches!(branch.state, BranchState::Running | BranchState::Suspended) {
            return Ok(0);
        }
        let (volume, data) = (self.mounted().volume, self.paths.branch(branch.id));
        let cloned_at = branch.created_at;
        run_blocking(move || match volume.diverged_bytes(&data, cloned_at) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            result => result.map_err(io_error("measure", &data)),
        })
        .await
    }
}

//! Creating a branch: intent, clone, start, receipt.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egret_base::Limit;
use egret_base::settings::ByteSize;
use egret_base::sync::lock;

use egret_postgres::PostgresError;

use crate::core::request;
use crate::engine::{Branches, Inner};
use crate::error::{BranchesError, io_error};
use crate::model::{
    Branch, BranchId, BranchSource, BranchState, NewBranch, Receipt, RolePassword, Template,
    TemplateId, TemplateState,
};
use crate::stopwatch::Stopwatch;
use crate::store::prepare;
use crate::store::source::run_blocking;

/// Outcome of a create request.
#[derive(Clone, Debug)]
pub enum CreateOutcome {
    /// A branch that this request created.
    New(Branch),
    /// A branch of that name that an equal request had created before.
    Existing(Branch),
}

impl CreateOutcome {
    /// The branch, new or not.
    pub fn into_branch(self) -> Branch {
        match self {
            CreateOutcome::New(branch) | CreateOutcome::Existing(branch) => branch,
        }
    }
}

impl Branches {
    /// Makes a branch and returns when it accepts connections. Idempotent by name: the same request
    /// again answers with the branch that exists.
    ///
    /// # Errors
    /// [`BranchesError`]; a failed creation leaves a tombstone that is cleaned up behind.
    pub async fn create(&self, request: NewBranch) -> Result<CreateOutcome, BranchesError> {
        if let Some(branch) = self.inner.create_from_pool(&request)? {
            return Ok(CreateOutcome::New(branch));
        }
        // A caller that goes away must not leave the work half done.
        let inner = self.inner.clone();
        tokio::spawn(async move { inner.create(request).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }
}

impl Inner {
    /// A branch of the pool, where there is one for the request and its name is free.
    fn create_from_pool(
        self: &Arc<Self>,
        request: &NewBranch,
    ) -> Result<Option<Branch>, BranchesError> {
        let mut stopwatch = Stopwatch::start();
        request::validate(request, &self.config, self.machine_memory)?;
        let registry = &self.state()?.registry;
        if registry.branch_named(&request.tenant, &request.name).is_some() {
            return Ok(None);
        }
        self.check_branch_count(&request.tenant)?;
        self.check_free_room(self.recent_free_room()?)?;
        if !self.has_tenant_room(&request.tenant) {
            return Ok(None);
        }
        let leased = self.lease(request, &mut stopwatch)?;
        if leased.is_some() {
            self.metrics.count_lease(&stopwatch);
        }
        Ok(leased)
    }

    /// Refuses when there are as many branches as there may be; those in the pool do not count.
    fn check_branch_count(&self, tenant: &str) -> Result<(), BranchesError> {
        let is_counted = |branch: &Branch| {
            !matches!(branch.state, BranchState::Destroying | BranchState::Pooled)
        };
        let counts = self.state()?.registry.counts_where(tenant, is_counted);
        let limit = Limit::new("branches.branches_max", u64::from(self.config.branches_max));
        limit.check(counts.all as u64 + 1)?;
        let tenant_max = u64::from(self.config.tenant_branches_max);
        Ok(Limit::new("branches.tenant_branches_max", tenant_max)
            .check(counts.of_tenant as u64 + 1)?)
    }

    async fn create(self: &Arc<Self>, request: NewBranch) -> Result<CreateOutcome, BranchesError> {
        let mut stopwatch = Stopwatch::start();
        if let Some(existing) = self.find_existing(&request).await? {
            return Ok(CreateOutcome::Existing(existing));
        }
        self.check_superuser(request.superuser)?;
        let passwords =
            if request.role_passwords { self.read_role_passwords().await? } else { Vec::new() };
        self.check_branch_count(&request.tenant)?;
        self.check_tenant_room(&request.tenant, 0).await?;
        // Both may take a while, which the removal of other templates need not await.
        let (template, copy_bytes) = self.resolve_template_with_room(&request).await?;
        self.check_superuser(template.superuser)?;
        self.check_tenant_room(&request.tenant, copy_bytes).await?;
        // From here until the row is there the template may not be removed.
        let removal_guard = self.template_removal_lock.read().await;
        self.find_ready_template(template.id, &request.tenant)?;
        let id = BranchId::new(self.now(), self.entropy.ten_bytes());
        let branch = self.new_branch_row(id, &request, &template);
        stopwatch.end_phase("template");
        let slot = self.slot(branch.id);
        let _slot_guard = slot.lock.lock().await;
        self.crash_points.before("create.intent");
        if let Err(error) = self.insert_within_limits(&branch, passwords) {
            lock(&self.slots).remove(&id);
            // Another request created a branch of that name first. A task that holds that branch's
            // slot may be waiting for the gate: release the gate before waiting for the task.
            drop(removal_guard);
            if let Some(existing) = self.find_existing(&request).await? {
                return Ok(CreateOutcome::Existing(existing));
            }
            return Err(error);
        }
        drop(removal_guard);
        stopwatch.end_phase("intent");
        match self.clone_and_start(branch.clone(), &template, &mut stopwatch).await {
            Ok(branch) => {
                self.metrics.count_creation(&stopwatch);
                Ok(CreateOutcome::New(branch))
            }
            Err(error) => {
                self.metrics.count_failure();
                self.discard(branch.id);
                Err(attribute_start_failure(error, &request))
            }
        }
    }

    /// Records a branch that is about to be made, unless there are as many as there may be.
    /// Requests at the same time would each find the place that there is for one.
    fn insert_within_limits(
        &self,
        branch: &Branch,
        passwords: Vec<RolePassword>,
    ) -> Result<(), BranchesError> {
        let registry = &self.state()?.registry;
        let _intent_guard = lock(&self.intent_lock);
        if registry.branch_named(&branch.tenant, &branch.name).is_none() {
            self.check_branch_count(&branch.tenant)?;
        }
        Ok(registry.insert_branch_with_passwords(branch, passwords)?)
    }

    /// Records that a branch of the pool is handed out, unless there are as many as there may be.
    /// Returns whether its name was free.
    pub(super) fn lease_within_limits(&self, branch: &Branch) -> Result<bool, BranchesError> {
        let registry = &self.state()?.registry;
        let _intent_guard = lock(&self.intent_lock);
        if registry.branch_named(&branch.tenant, &branch.name).is_some() {
            return Ok(false);
        }
        self.check_branch_count(&branch.tenant)?;
        Ok(registry.lease_branch(branch)?)
    }

    /// The living branch of that name, when the request fits it; waits for one that is just made.
    async fn find_existing(&self, request: &NewBranch) -> Result<Option<Branch>, BranchesError> {
        let registry = &self.state()?.registry;
        let Some(found) = registry.branch_named(&request.tenant, &request.name) else {
            return Ok(None);
        };
        request::check_same_request(&found, request)?;
        let slot = self.slot(found.id);
        let _slot_guard = slot.lock.lock().await;
        let found = registry.branch_named(&request.tenant, &request.name);
        match found {
            Some(branch) if branch.state == BranchState::Creating => {
                Err(BranchesError::WrongState {
                    name: branch.name.to_string(),
                    state: branch.state.as_str(),
                    hint: "its creation failed, which is not recorded yet: try again in a moment"
                        .to_owned(),
                })
            }
            found => Ok(found),
        }
    }

    /// The row as it stands before anything is done.
    pub(super) fn new_branch_row(
        &self,
        id: BranchId,
        request: &NewBranch,
        template: &Template,
    ) -> Branch {
        let now = self.now();
        let ttl_ms = request.ttl_ms.or(self.config.ttl_default.map(|span| span.0));
        Branch {
            id,
            tenant: request.tenant.clone(),
            name: request.name.clone(),
            state: BranchState::Creating,
            template: template.id,
            parent_branch: template.origin_branch_name.clone(),
            from: request.from.clone(),
            preset: request.preset,
            durable: request::is_durable(request),
            superuser: request.superuser || template.superuser,
            role_passwords: request.role_passwords,
            waits_for_room: false,
            notice: None,
            protected: request.protected,
            settings: request.settings.clone(),
            labels: request.labels.clone(),
            created_at: now,
            ttl_ms,
            expires_at: ttl_ms.map(|ms| now.plus(Duration::from_millis(ms))),
            failure: None,
            receipt: None,
            boot_id: None,
            postmaster: None,
        }
    }

    /// Clones, starts and records.
    async fn clone_and_start(
        self: &Arc<Self>,
        mut branch: Branch,
        template: &Template,
        stopwatch: &mut Stopwatch,
    ) -> Result<Branch, BranchesError> {
        let to = self.paths.branch(branch.id);
        self.clone_template_for(&branch.tenant, branch.template, to).await?;
        if branch.durable {
            self.flush_volume().await?;
        }
        stopwatch.end_phase("clone");
        self.start_postmaster(&mut branch, template).await?;
        stopwatch.end_phase("start");
        if branch.superuser {
            self.grant_superuser(&branch).await?;
            stopwatch.end_phase("superuser");
        }
        branch.state = BranchState::Running;
        branch.receipt = Some(Receipt::new("cold", template, stopwatch));
        self.crash_points.before("create.record");
        self.state()?.registry.update_branch(&branch)?;
        self.crash_points.before("create.manifest");
        self.write_branch_manifest(branch.id)?;
        self.crash_points.before("create.done");
        stopwatch.end_phase("record");
        Ok(branch)
    }

    /// Clones a template's files for a branch of no tenant yet.
    pub(crate) async fn clone_template(
        &self,
        template: TemplateId,
        to: PathBuf,
    ) -> Result<(), BranchesError> {
        let _reservation = self.reserve_room(&self.paths.template(template), &to).await?;
        self.copy_template(template, to).await
    }

    /// Clones a template's files for a branch of a tenant, within its share of the volume.
    pub(super) async fn clone_template_for(
        self: &Arc<Self>,
        tenant: &str,
        template: TemplateId,
        to: PathBuf,
    ) -> Result<(), BranchesError> {
        let from = self.paths.template(template);
        let _reservation = self.reserve_tenant_room(tenant, &from, &to).await?;
        self.copy_template(template, to).await
    }

    /// Copies a template's files; the caller has reserved the room.
    async fn copy_template(&self, template: TemplateId, to: PathBuf) -> Result<(), BranchesError> {
        let volume = self.mounted().volume;
        let from = self.paths.template(template);
        self.crash_points.before("create.clone");
        let cloned =
            run_blocking(move || volume.clone_tree(&from, &to).map_err(io_error("clone", &from)));
        match cloned.await {
            Err(error) if error.is_disk_full() => Err(BranchesError::VolumeFull {
                free: ByteSize(self.mounted().space()?.free).rounded_down(),
                needed: self.config.free_min,
            }),
            cloned => cloned,
        }
    }

    /// Makes the role of a branch with fresh files a superuser.
    pub(crate) async fn grant_superuser(&self, branch: &Branch) -> Result<(), BranchesError> {
        let limit = self.receive_limit();
        let exchange = async {
            let (client, _) =
                self.connect_as_superuser(&self.paths.socket_dir(branch.id), &limit).await?;
            Ok(prepare::grant_superuser(&client).await?)
        };
        let subject = format!("branch {}", branch.id);
        self.within_bounds(&subject, &limit, exchange).await
    }

    /// Refuses a superuser where the operating system would not bound what it does.
    pub(super) fn check_superuser(&self, superuser: bool) -> Result<(), BranchesError> {
        let isolation = &self.state()?.isolation;
        if !superuser || isolation.bounds_superusers() {
            return Ok(());
        }
        Err(BranchesError::Isolation {
            reason: format!(
                "a superuser in a branch needs Linux 6.12 with Landlock, or Egret running as \
                 root; this machine offers: {}",
                isolation.describe()
            ),
        })
    }

    /// Turns a branch into a tombstone; the worker does the rest.
    pub(crate) fn mark_deleted(&self, mut branch: Branch) -> Result<(), BranchesError> {
        branch.state = BranchState::Destroying;
        branch.postmaster = None;
        self.state()?.registry.update_branch(&branch)?;
        self.wakeup.notify_one();
        Ok(())
    }

    /// Refuses when the volume has too little room for anything new.
    pub(crate) fn check_room(&self) -> Result<(), BranchesError> {
        self.check_free_room(ByteSize(self.mounted().space()?.free))
    }

    /// Free room of the volume a moment ago: a lease takes none, and asking takes its time.
    fn recent_free_room(&self) -> Result<ByteSize, BranchesError> {
        if let Some(free) = self.pool.cached_free_room() {
            return Ok(free);
        }
        let free = self.mounted().space()?.free;
        self.pool.cache_free_room(free);
        Ok(ByteSize(free))
    }

    fn check_free_room(&self, free: ByteSize) -> Result<(), BranchesError> {
        if free < self.config.free_min {
            return Err(BranchesError::VolumeFull {
                free: free.rounded_down(),
                needed: self.config.free_min,
            });
        }
        Ok(())
    }

    /// A template that is ready and that the tenant may use.
    pub(crate) fn find_ready_template(
        &self,
        id: TemplateId,
        tenant: &str,
    ) -> Result<Template, BranchesError> {
        let is_usable =
            |found: &Template| found.state == TemplateState::Ready && found.is_usable_by(tenant);
        let found = self.state()?.registry.template(id).filter(is_usable);
        found.ok_or_else(|| BranchesError::TemplateNotFound { id: id.to_string() })
    }

    /// Like [`Self::check_room_for_copy`], and reports a template that is removed meanwhile as not
    /// found.
    pub(super) async fn check_room_for_template(
        &self,
        id: TemplateId,
    ) -> Result<u64, BranchesError> {
        let checked = self.check_room_for_copy(&self.paths.template(id)).await;
        if let Err(BranchesError::Io { source, .. }) = &checked
            && source.kind() == ErrorKind::NotFound
            && !self.is_ready(id)?
        {
            return Err(BranchesError::TemplateNotFound { id: id.to_string() });
        }
        checked
    }

    fn is_ready(&self, id: TemplateId) -> Result<bool, BranchesError> {
        let found = self.state()?.registry.template(id);
        Ok(found.is_some_and(|found| found.state == TemplateState::Ready))
    }

    /// The template that a request names, with the bytes that a copy takes. Where Egret chose it
    /// and it is removed meanwhile, another one is chosen, once.
    async fn resolve_template_with_room(
        self: &Arc<Self>,
        request: &NewBranch,
    ) -> Result<(Template, u64), BranchesError> {
        let template = self.resolve_template(request).await?;
        match self.check_room_for_template(template.id).await {
            Err(BranchesError::TemplateNotFound { .. })
                if matches!(request.from, BranchSource::Head | BranchSource::NewestTemplate) =>
            {
                let template = self.resolve_template(request).await?;
                let copy_bytes = self.check_room_for_template(template.id).await?;
                Ok((template, copy_bytes))
            }
            checked => Ok((template, checked?)),
        }
    }

    /// The template that a request names, built now where it has to be.
    async fn resolve_template(
        self: &Arc<Self>,
        request: &NewBranch,
    ) -> Result<Template, BranchesError> {
        match &request.from {
            BranchSource::NewestTemplate => match self.newest_template()? {
                Some(template) => Ok(Template::clone(&template)),
                None => {
                    // Of several first requests one builds and the others use what it built.
                    let build = self.begin_head_build().await;
                    match self.newest_template()? {
                        Some(template) => Ok(Template::clone(&template)),
                        None => self.build_from_head(&build, None).await,
                    }
                }
            },
            BranchSource::Head => {
                let build = self.begin_head_build().await;
                self.build_from_head(&build, Some(&request.tenant)).await
            }
            BranchSource::Template(id) => self.find_ready_template(*id, &request.tenant),
            BranchSource::Branch(name) => {
                let parent = self.find_branch(&request.tenant, name)?;
                self.build_from_branch(&parent).await
            }
        }
    }
}

/// Turns the failed start of a branch with settings of its user into a refusal of these settings,
/// with the server's message.
fn attribute_start_failure(error: BranchesError, request: &NewBranch) -> BranchesError {
    match error {
        BranchesError::Postgres(PostgresError::StartFailed { log, .. })
            if !request.settings.is_empty() =>
        {
            let (_, message) = log.split_once("FATAL:").unwrap_or(("", &log));
            BranchesError::Invalid {
                what: "settings",
                reason: format!(
                    "PostgreSQL does not start with these settings: {}",
                    message.trim()
                ),
            }
        }
        other => other,
    }
}

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
use crate::error::{BranchesError, io};
use crate::model::{
    Branch, BranchId, BranchSource, BranchState, NewBranch, Receipt, RolePassword, Template,
    TemplateId, TemplateState,
};
use crate::stopwatch::Stopwatch;
use crate::store::prepare;
use crate::store::source::blocking;

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
        if let Some(branch) = self.inner.create_at_once(&request)? {
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
    fn create_at_once(
        self: &Arc<Self>,
        asked: &NewBranch,
    ) -> Result<Option<Branch>, BranchesError> {
        let mut watch = Stopwatch::start();
        request::validate(asked, &self.config, self.machine_memory)?;
        let registry = &self.started()?.registry;
        if registry.branch_named(&asked.tenant, &asked.name).is_some() {
            return Ok(None);
        }
        self.check_count(&asked.tenant)?;
        self.check_free(self.free_lately()?)?;
        if !self.has_tenant_room(&asked.tenant) {
            return Ok(None);
        }
        let leased = self.lease(asked, &mut watch)?;
        if leased.is_some() {
            self.metrics.leased(&watch);
        }
        Ok(leased)
    }

    /// Refuses when there are as many branches as there may be; those in the pool do not count.
    fn check_count(&self, tenant: &str) -> Result<(), BranchesError> {
        let counts = |branch: &Branch| {
            !matches!(branch.state, BranchState::Destroying | BranchState::Pooled)
        };
        let counts = self.started()?.registry.counts_where(tenant, counts);
        let limit = Limit::new("branches.branches_max", u64::from(self.config.branches_max));
        limit.check(counts.all as u64 + 1)?;
        let most = u64::from(self.config.tenant_branches_max);
        Ok(Limit::new("branches.tenant_branches_max", most).check(counts.of_tenant as u64 + 1)?)
    }

    async fn create(self: &Arc<Self>, asked: NewBranch) -> Result<CreateOutcome, BranchesError> {
        let mut watch = Stopwatch::start();
        if let Some(existing) = self.existing(&asked).await? {
            return Ok(CreateOutcome::Existing(existing));
        }
        self.check_superuser(asked.superuser)?;
        let passwords = if asked.role_passwords {
            self.read_role_passwords().await?
        } else {
            Vec::new()
        };
        self.check_count(&asked.tenant)?;
        self.check_tenant_room(&asked.tenant, 0).await?;
        // Both may take a while, which the removal of other templates need not await.
        let (template, copied) = self.template_with_room(&asked).await?;
        self.check_superuser(template.superuser)?;
        self.check_tenant_room(&asked.tenant, copied).await?;
        // From here until the row is there the template may not be removed.
        let gate = self.templates_gate.read().await;
        self.template(template.id, &asked.tenant)?;
        let id = BranchId::new(self.now(), self.entropy.ten());
        let branch = self.row(id, &asked, &template);
        watch.phase("template");
        let slot = self.slot(branch.id);
        let _held = slot.lock.lock().await;
        self.steps.before("create.intent");
        if let Err(error) = self.insert_counted(&branch, passwords) {
            lock(&self.slots).remove(&id);
            // Another request created a branch of that name first. A task that holds that branch's
            // slot may be waiting for the gate: release the gate before waiting for the task.
            drop(gate);
            if let Some(existing) = self.existing(&asked).await? {
                return Ok(CreateOutcome::Existing(existing));
            }
            return Err(error);
        }
        drop(gate);
        watch.phase("intent");
        match self.make(branch.clone(), &template, &mut watch).await {
            Ok(branch) => {
                self.metrics.created(&watch);
                Ok(CreateOutcome::New(branch))
            }
            Err(error) => {
                self.metrics.failed();
                self.discard(branch.id);
                Err(attribute_start_failure(error, &asked))
            }
        }
    }

    /// Records a branch that is about to be made, unless there are as many as there may be.
    /// Requests at the same time would each find the place that there is for one.
    fn insert_counted(
        &self,
        branch: &Branch,
        passwords: Vec<RolePassword>,
    ) -> Result<(), BranchesError> {
        let registry = &self.started()?.registry;
        let _turn = lock(&self.intents);
        if registry
            .branch_named(&branch.tenant, &branch.name)
            .is_none()
        {
            self.check_count(&branch.tenant)?;
        }
        Ok(registry.insert_branch_with(branch, passwords)?)
    }

    /// Records that a branch of the pool is handed out, unless there are as many as there may be.
    /// Returns whether its name was free.
    pub(super) fn lease_counted(&self, branch: &Branch) -> Result<bool, BranchesError> {
        let registry = &self.started()?.registry;
        let _turn = lock(&self.intents);
        if registry
            .branch_named(&branch.tenant, &branch.name)
            .is_some()
        {
            return Ok(false);
        }
        self.check_count(&branch.tenant)?;
        Ok(registry.lease_branch(branch)?)
    }

    /// The living branch of that name, when the request fits it; waits for one that is just made.
    async fn existing(&self, asked: &NewBranch) -> Result<Option<Branch>, BranchesError> {
        let registry = &self.started()?.registry;
        let Some(found) = registry.branch_named(&asked.tenant, &asked.name) else {
            return Ok(None);
        };
        request::same(&found, asked)?;
        let slot = self.slot(found.id);
        let _held = slot.lock.lock().await;
        let found = registry.branch_named(&asked.tenant, &asked.name);
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
    pub(super) fn row(&self, id: BranchId, asked: &NewBranch, template: &Template) -> Branch {
        let now = self.now();
        let ttl_ms = asked.ttl_ms.or(self.config.ttl_default.map(|span| span.0));
        Branch {
            id,
            tenant: asked.tenant.clone(),
            name: asked.name.clone(),
            state: BranchState::Creating,
            template: template.id,
            parent_branch: template.origin_branch_name.clone(),
            from: asked.from.clone(),
            preset: asked.preset,
            durable: request::durable(asked),
            superuser: asked.superuser || template.superuser,
            role_passwords: asked.role_passwords,
            waits_for_room: false,
            notice: None,
            protected: asked.protected,
            settings: asked.settings.clone(),
            labels: asked.labels.clone(),
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
    async fn make(
        self: &Arc<Self>,
        mut branch: Branch,
        template: &Template,
        watch: &mut Stopwatch,
    ) -> Result<Branch, BranchesError> {
        self.clone_template(branch.template, self.paths.branch(branch.id))
            .await?;
        if branch.durable {
            self.flush_volume().await?;
        }
        watch.phase("clone");
        self.start_postmaster(&mut branch, template).await?;
        watch.phase("start");
        if branch.superuser {
            self.grant_superuser(&branch).await?;
            watch.phase("superuser");
        }
        branch.state = BranchState::Running;
        branch.receipt = Some(Receipt::new("cold", template, watch));
        self.steps.before("create.record");
        self.started()?.registry.update_branch(&branch)?;
        self.steps.before("create.manifest");
        self.write_branch_manifest(branch.id)?;
        self.steps.before("create.done");
        watch.phase("record");
        Ok(branch)
    }

    /// Clones a template's files for a branch.
    pub(crate) async fn clone_template(
        &self,
        template: TemplateId,
        to: PathBuf,
    ) -> Result<(), BranchesError> {
        let volume = self.mounted().volume;
        let from = self.paths.template(template);
        let _room = self.promise_room(&from).await?;
        self.steps.before("create.clone");
        let cloned = blocking(move || volume.clone_tree(&from, &to).map_err(io("clone", &from)));
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
            let (client, _) = self.enter(&self.paths.socket(branch.id), &limit).await?;
            Ok(prepare::grant_superuser(&client).await?)
        };
        let subject = format!("branch {}", branch.id);
        self.within_bounds(&subject, &limit, exchange).await
    }

    /// Refuses a superuser where the operating system would not bound what it does.
    pub(super) fn check_superuser(&self, superuser: bool) -> Result<(), BranchesError> {
        let isolation = &self.started()?.isolation;
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
        self.started()?.registry.update_branch(&branch)?;
        self.due.notify_one();
        Ok(())
    }

    /// Refuses when the volume has too little room for anything new.
    pub(crate) fn check_room(&self) -> Result<(), BranchesError> {
        self.check_free(ByteSize(self.mounted().space()?.free))
    }

    /// Free room of the volume a moment ago: a lease takes none, and asking takes its time.
    fn free_lately(&self) -> Result<ByteSize, BranchesError> {
        if let Some(free) = self.pool.free() {
            return Ok(free);
        }
        let free = self.mounted().space()?.free;
        self.pool.note_free(free);
        Ok(ByteSize(free))
    }

    fn check_free(&self, free: ByteSize) -> Result<(), BranchesError> {
        if free < self.config.free_min {
            return Err(BranchesError::VolumeFull {
                free: free.rounded_down(),
                needed: self.config.free_min,
            });
        }
        Ok(())
    }

    /// A template that is ready and that the tenant may use.
    pub(crate) fn template(&self, id: TemplateId, tenant: &str) -> Result<Template, BranchesError> {
        let usable = |found: &Template| found.state == TemplateState::Ready && found.is_for(tenant);
        let found = self.started()?.registry.template(id).filter(usable);
        found.ok_or_else(|| BranchesError::TemplateNotFound { id: id.to_string() })
    }

    /// Refuses as [`Inner::check_room_for`]; the template may be removed meanwhile, which is said.
    pub(super) async fn check_room_for_template(
        &self,
        id: TemplateId,
    ) -> Result<u64, BranchesError> {
        let checked = self.check_room_for(&self.paths.template(id)).await;
        if let Err(BranchesError::Io { source, .. }) = &checked
            && source.kind() == ErrorKind::NotFound
            && !self.is_ready(id)?
        {
            return Err(BranchesError::TemplateNotFound { id: id.to_string() });
        }
        checked
    }

    fn is_ready(&self, id: TemplateId) -> Result<bool, BranchesError> {
        let found = self.started()?.registry.template(id);
        Ok(found.is_some_and(|found| found.state == TemplateState::Ready))
    }

    /// The template that a request names, with the bytes that a copy takes. Where Egret chose it
    /// and it is removed meanwhile, another one is chosen, once.
    async fn template_with_room(
        self: &Arc<Self>,
        asked: &NewBranch,
    ) -> Result<(Template, u64), BranchesError> {
        let template = self.template_for(asked).await?;
        match self.check_room_for_template(template.id).await {
            Err(BranchesError::TemplateNotFound { .. })
                if matches!(
                    asked.from,
                    BranchSource::Head | BranchSource::NewestTemplate
                ) =>
            {
                let template = self.template_for(asked).await?;
                let copied = self.check_room_for_template(template.id).await?;
                Ok((template, copied))
            }
            checked => Ok((template, checked?)),
        }
    }

    /// The template that a request names, built now where it has to be.
    async fn template_for(self: &Arc<Self>, asked: &NewBranch) -> Result<Template, BranchesError> {
        match &asked.from {
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
                self.build_from_head(&build, Some(&asked.tenant)).await
            }
            BranchSource::Template(id) => self.template(*id, &asked.tenant),
            BranchSource::Branch(name) => {
                let parent = self.find(&asked.tenant, name)?;
                self.build_from_branch(&parent).await
            }
        }
    }
}

/// Turns the failed start of a branch with settings of its user into a refusal of these settings,
/// with the server's message.
fn attribute_start_failure(error: BranchesError, asked: &NewBranch) -> BranchesError {
    match error {
        BranchesError::Postgres(PostgresError::StartFailed { log, .. })
            if !asked.settings.is_empty() =>
        {
            let (_, said) = log.split_once("FATAL:").unwrap_or(("", &log));
            BranchesError::Invalid {
                what: "settings",
                reason: format!(
                    "PostgreSQL does not start with these settings: {}",
                    said.trim()
                ),
            }
        }
        other => other,
    }
}

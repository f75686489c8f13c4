//! Destroy, suspend, resume, protect and expire.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::sync::lock;
use egret_postgres::postmaster::StopMode;
use futures_util::{StreamExt, stream};

use crate::core::plan::{SuspendReason, is_expired};
use crate::core::reconcile::{MACHINE_CRASHED, ran_during_crash};
use crate::core::request;
use crate::engine::{BranchSlot, Branches, Inner};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchName, BranchState, BranchUpdate, Template, TemplateId};
use crate::stopwatch::Stopwatch;
use crate::store::files::remove_directory;
use crate::store::source::run_blocking;

/// Proof that a branch's slot is held.
type SlotGuard<'a> = tokio::sync::MutexGuard<'a, ()>;

/// What happens to a branch's children when it is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Their existence refuses the destruction.
    Refuse,
    /// They are destroyed with it.
    Destroy,
}

impl Branches {
    /// Destroys a branch: acknowledged at once, files deleted behind. The name is free at once.
    /// `covers` says which of its descendants the caller has a right to; others are neither
    /// destroyed nor named.
    ///
    /// # Errors
    /// [`BranchesError`] when it is protected or has children that are not to go with it or that
    /// the caller has no right to.
    pub async fn destroy(
        &self,
        tenant: &str,
        name: &BranchName,
        children: Children,
        is_permitted: impl Fn(&BranchName) -> bool,
    ) -> Result<Branch, BranchesError> {
        let branch = self.inner.find_branch(tenant, name)?;
        let descendants = self.inner.descendants(&branch)?;
        let (permitted, forbidden): (Vec<&Branch>, Vec<&Branch>) =
            descendants.iter().partition(|child| is_permitted(&child.name));
        if let (Children::Refuse, Some(_)) = (children, descendants.first()) {
            let names = permitted.iter().map(|child| child.name.to_string());
            let others = format!("{} beyond your scopes", forbidden.len());
            let children: Vec<String> =
                names.chain((!forbidden.is_empty()).then_some(others)).collect();
            return Err(BranchesError::HasChildren {
                name: name.to_string(),
                children: children.join(", "),
            });
        }
        if !forbidden.is_empty() {
            return Err(BranchesError::ChildrenBeyondScopes {
                name: name.to_string(),
                count: forbidden.len(),
            });
        }
        for candidate in descendants.iter().chain([&branch]) {
            if candidate.protected {
                return Err(BranchesError::Protected { name: candidate.name.to_string() });
            }
        }
        for child in descendants {
            match self.inner.destroy(child).await {
                // It has gone meanwhile, as where its lifetime was over.
                Err(BranchesError::NotFound { .. }) => {}
                destroyed => drop(destroyed?),
            }
        }
        self.inner.destroy(branch).await
    }

    /// Brings a branch back to its template, or to another one. Sessions end; the connection string
    /// stays the same.
    pub async fn reset(
        &self,
        tenant: &str,
        name: &BranchName,
        target_template: Option<TemplateId>,
    ) -> Result<Branch, BranchesError> {
        let (inner, branch) = (self.inner.clone(), self.inner.find_branch(tenant, name)?);
        tokio::spawn(async move { inner.reset(branch, target_template).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }

    /// Stops a branch's postmaster cleanly; the next connection wakes it.
    pub async fn suspend(&self, tenant: &str, name: &BranchName) -> Result<Branch, BranchesError> {
        let (inner, branch) = (self.inner.clone(), self.inner.find_branch(tenant, name)?);
        tokio::spawn(async move { inner.suspend(branch).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }

    /// Starts a suspended branch, or one that failed.
    pub async fn resume(&self, tenant: &str, name: &BranchName) -> Result<Branch, BranchesError> {
        let (inner, branch) = (self.inner.clone(), self.inner.find_branch(tenant, name)?);
        tokio::spawn(async move { inner.wake(branch).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }

    /// Changes protection, lifetime or labels.
    ///
    /// # Errors
    /// [`BranchesError`] when a value is out of range; nothing has changed then.
    pub fn update(
        &self,
        tenant: &str,
        name: &BranchName,
        update: &BranchUpdate,
    ) -> Result<Branch, BranchesError> {
        let inner = &self.inner;
        if let Some(labels) = &update.labels {
            request::check_labels(labels, &inner.config)?;
        }
        request::check_ttl(update.ttl_ms.flatten(), &inner.config)?;
        let branch = inner.find_branch(tenant, name)?;
        let registry = &inner.state()?.registry;
        registry.apply_update(branch.id, update, inner.now())?;
        let changed = inner.find_branch(tenant, name)?;
        inner.refresh_manifest(&changed);
        inner.wakeup.notify_one();
        Ok(changed)
    }
}

impl Inner {
    /// Living branches made from templates of this one, and theirs, deepest first.
    pub(crate) fn descendants(&self, branch: &Branch) -> Result<Vec<Branch>, BranchesError> {
        let registry = &self.state()?.registry;
        let templates = registry.templates();
        let mut found: Vec<Branch> = Vec::new();
        let mut parents = vec![branch.id];
        // A registry of an earlier version may hold a cycle.
        let mut visited = HashSet::from([branch.id]);
        while let Some(parent) = parents.pop() {
            let templates_of_parent: Vec<TemplateId> = templates
                .iter()
                .filter(|template| template.origin_branch == Some(parent))
                .map(|template| template.id)
                .collect();
            if templates_of_parent.is_empty() {
                continue;
            }
            let children = registry.branches_where(|child| {
                child.state != BranchState::Destroying
                    && templates_of_parent.contains(&child.template)
            });
            for child in children {
                if visited.insert(child.id) {
                    parents.push(child.id);
                    found.push(child);
                }
            }
        }
        found.reverse();
        Ok(found)
    }

    /// Refuses a template that would make a branch its own descendant. The caller holds `lineage`
    /// until the row is stored.
    pub(super) fn check_lineage(
        &self,
        branch: &Branch,
        template: &Template,
    ) -> Result<(), BranchesError> {
        let Some(origin) = template.origin_branch else {
            return Ok(());
        };
        let is_descendant = || -> Result<bool, BranchesError> {
            let descendants = self.descendants(branch)?;
            Ok(descendants.iter().any(|descendant| descendant.id == origin))
        };
        if origin != branch.id && !is_descendant()? {
            return Ok(());
        }
        let name = template.origin_branch_name.as_ref();
        Err(BranchesError::Cycle {
            name: branch.name.to_string(),
            template: template.id.to_string(),
            origin: name.map_or_else(|| origin.to_string(), ToString::to_string),
        })
    }

    /// Makes a tombstone; the worker stops the postmaster and deletes the files.
    pub(crate) async fn destroy(&self, branch: Branch) -> Result<Branch, BranchesError> {
        let slot = self.slot(branch.id);
        let slot_guard = slot.lock.lock().await;
        let found = self.state()?.registry.branch(branch.id);
        let Some(living) = found.filter(|found| found.state != BranchState::Destroying) else {
            return Err(BranchesError::NotFound { name: branch.name.to_string() });
        };
        // That may have changed while the slot was held.
        if living.protected {
            return Err(BranchesError::Protected { name: living.name.to_string() });
        }
        self.make_tombstone(living, &slot, &slot_guard)
    }

    /// Makes the tombstone; the caller holds the slot.
    fn make_tombstone(
        &self,
        mut branch: Branch,
        slot: &BranchSlot,
        _: &SlotGuard<'_>,
    ) -> Result<Branch, BranchesError> {
        branch.state = BranchState::Destroying;
        self.crash_points.before("destroy.intent");
        self.state()?.registry.update_branch(&branch)?;
        *lock(&slot.postmaster_to_stop) = slot.take_postmaster();
        self.metrics.count_destruction();
        self.pool.note_activity();
        self.pool.wakeup.notify_one();
        Ok(branch)
    }

    /// Destroys a branch whose lifetime is over, unless that has changed since it was planned.
    pub(crate) async fn expire(&self, id: BranchId) -> Result<(), BranchesError> {
        let slot = self.slot(id);
        let slot_guard = slot.lock.lock().await;
        let found = self.state()?.registry.branch(id);
        let Some(branch) = found.filter(|branch| is_expired(branch, self.now())) else {
            return Ok(());
        };
        tracing::info!(branch = %branch.name, "its lifetime is over");
        self.make_tombstone(branch, &slot, &slot_guard)?;
        Ok(())
    }

    /// Suspends a branch, unless it does not run any more, or is in use and was to be suspended for
    /// being idle. `notice` says why; it is shown with the branch until that runs again. Returns
    /// whether this call suspended it.
    pub(crate) async fn suspend_if_due(
        self: &Arc<Self>,
        id: BranchId,
        why: SuspendReason,
        notice: String,
    ) -> Result<bool, BranchesError> {
        self.crash_points.before("suspend.turn");
        // Before the slot: while it is held, clients of the branch wait.
        let _permit = match why {
            SuspendReason::Idle => Some(self.suspend_permits.acquire().await),
            SuspendReason::NoRoom | SuspendReason::TenantDisk => None,
        };
        let slot = self.slot(id);
        let slot_guard = slot.lock.lock().await;
        let is_in_use = why == SuspendReason::Idle && slot.sessions.load(Ordering::Acquire) > 0;
        let found = self.state()?.registry.branch(id);
        let Some(mut branch) =
            found.filter(|branch| branch.state == BranchState::Running && !is_in_use)
        else {
            return Ok(false);
        };
        tracing::info!(branch = %branch.name, ?why, "suspending");
        branch.waits_for_room = why == SuspendReason::TenantDisk;
        branch.notice = Some(notice);
        self.suspend_running(branch, &slot_guard).await.map(|_| true)
    }

    /// Deletes what is behind the tombstones that `is_selected` says; what fails is tried again.
    pub(crate) async fn purge_tombstones(&self, is_selected: impl Fn(&Branch) -> bool) {
        let Ok(state) = self.state() else {
            return;
        };
        let is_selected_tombstone =
            |branch: &Branch| branch.state == BranchState::Destroying && is_selected(branch);
        stream::iter(state.registry.branches_where(is_selected_tombstone))
            .for_each_concurrent(self.start_concurrency(), async |branch| {
                let (subject, faults) = (branch.id.to_string(), &self.faults.deletions);
                match self.purge(branch).await {
                    Ok(()) => faults.recover(&subject, "files of a destroyed branch are deleted"),
                    Err(_) if self.stopping.load(Ordering::Acquire) => {}
                    Err(error) => {
                        let message = "cannot delete the files of a destroyed branch yet; retrying";
                        faults.fail(&subject, &error, message);
                    }
                }
            })
            .await;
    }

    /// Deletes what is behind a tombstone, then the row.
    pub(crate) async fn purge(&self, branch: Branch) -> Result<(), BranchesError> {
        let slot = self.slot(branch.id);
        let _slot_guard = slot.lock.lock().await;
        if self.state()?.registry.branch(branch.id).is_none() {
            // Another task has deleted it meanwhile.
            lock(&self.slots).remove(&branch.id);
            return Ok(());
        }
        let mut stopwatch = Stopwatch::start();
        self.crash_points.before("purge.stop");
        self.stop_postmaster(branch.id, StopMode::Immediate).await?;
        let socket_dir = self.paths.socket_dir(branch.id);
        stopwatch.end_phase("stop");
        self.crash_points.before("purge.files");
        self.remove_branch_manifest(branch.id)?;
        self.remove_files(branch.id).await?;
        run_blocking(move || remove_directory(&socket_dir)).await?;
        stopwatch.end_phase("files");
        self.crash_points.before("purge.row");
        self.state()?.registry.delete_branch(branch.id)?;
        stopwatch.end_phase("row");
        self.metrics.observe_deletion(&stopwatch);
        self.crash_points.before("purge.done");
        lock(&self.slots).remove(&branch.id);
        lock(&self.verifiers).remove(&branch.id);
        Ok(())
    }

    pub(crate) async fn suspend(self: &Arc<Self>, branch: Branch) -> Result<Branch, BranchesError> {
        let slot = self.slot(branch.id);
        let slot_guard = slot.lock.lock().await;
        let branch = self.find_branch(&branch.tenant, &branch.name)?;
        match branch.state {
            BranchState::Suspended => return Ok(branch),
            BranchState::Running => {}
            state => {
                return Err(BranchesError::WrongState {
                    name: branch.name.to_string(),
                    state: state.as_str(),
                    hint: "only a running branch can be suspended".to_owned(),
                });
            }
        }
        self.suspend_running(branch, &slot_guard).await
    }

    /// Stops a running branch cleanly, onto the disk; the caller holds the slot.
    async fn suspend_running(
        &self,
        mut branch: Branch,
        _: &SlotGuard<'_>,
    ) -> Result<Branch, BranchesError> {
        self.crash_points.before("suspend.stop");
        self.stop_postmaster(branch.id, StopMode::Fast).await?;
        self.flush_volume().await?;
        branch.state = BranchState::Suspended;
        branch.boot_id = None;
        branch.postmaster = None;
        self.state()?.registry.update_branch(&branch)?;
        self.refresh_manifest(&branch);
        Ok(branch)
    }

    /// Starts a branch that does not run; one that runs is left as it is.
    pub(crate) async fn wake(self: &Arc<Self>, branch: Branch) -> Result<Branch, BranchesError> {
        let slot = self.slot(branch.id);
        let _slot_guard = slot.lock.lock().await;
        let mut branch = self.find_branch(&branch.tenant, &branch.name)?;
        if slot.postmaster().is_some() {
            return Ok(branch);
        }
        if !matches!(
            branch.state,
            BranchState::Running | BranchState::Suspended | BranchState::Failed
        ) {
            return Err(BranchesError::WrongState {
                name: branch.name.to_string(),
                state: branch.state.as_str(),
                hint: "wait until that is done".to_owned(),
            });
        }
        // A failure of another kind may have been recorded since the crash.
        let is_torn = ran_during_crash(&branch, &self.state()?.boot_id);
        if is_torn || branch.failure.as_deref() == Some(MACHINE_CRASHED) {
            return Err(BranchesError::WrongState {
                name: branch.name.to_string(),
                state: branch.state.as_str(),
                hint: MACHINE_CRASHED.to_owned(),
            });
        }
        self.check_room()?;
        if branch.waits_for_room {
            self.measure_tenant_room(&branch.tenant, 0).await?;
            self.check_fully_counted(&branch).await?;
            branch.waits_for_room = false;
        }
        let was_stopped = branch.state != BranchState::Running;
        let notice = branch.notice.take();
        if let Err(error) = self.start_branch(&mut branch).await {
            branch.notice = notice;
            // Its files are in order: it is woken as soon as there is room for its server, say.
            if !error.is_external() {
                self.record_failure(branch, &error);
            }
            return Err(error);
        }
        if was_stopped {
            slot.clear_notice();
        }
        *lock(&slot.idle_since) = Some(self.now());
        Ok(branch)
    }
}

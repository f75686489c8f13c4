//! Destroy, suspend, resume, protect and expire.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::sync::lock;
use egret_postgres::postmaster::StopMode;
use futures_util::{StreamExt, stream};

use crate::core::plan::SuspendReason;
use crate::core::reconcile::{MACHINE_CRASHED, ran_in_a_crash};
use crate::core::request;
use crate::engine::{BranchSlot, Branches, Inner};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchName, BranchState, BranchUpdate, Template, TemplateId};
use crate::stopwatch::Stopwatch;
use crate::store::files::remove_directory;
use crate::store::source::blocking;

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
        covers: impl Fn(&BranchName) -> bool,
    ) -> Result<Branch, BranchesError> {
        let branch = self.inner.find(tenant, name)?;
        let family = self.inner.descendants(&branch)?;
        let (known, beyond): (Vec<&Branch>, Vec<&Branch>) =
            family.iter().partition(|child| covers(&child.name));
        if let (Children::Refuse, Some(_)) = (children, family.first()) {
            let names = known.iter().map(|child| child.name.to_string());
            let others = format!("{} beyond your scopes", beyond.len());
            let children: Vec<String> = names
                .chain((!beyond.is_empty()).then_some(others))
                .collect();
            return Err(BranchesError::HasChildren {
                name: name.to_string(),
                children: children.join(", "),
            });
        }
        if !beyond.is_empty() {
            return Err(BranchesError::ChildrenBeyondScopes {
                name: name.to_string(),
                count: beyond.len(),
            });
        }
        for one in family.iter().chain([&branch]) {
            if one.protected {
                return Err(BranchesError::Protected {
                    name: one.name.to_string(),
                });
            }
        }
        for child in family {
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
        to: Option<TemplateId>,
    ) -> Result<Branch, BranchesError> {
        let (inner, branch) = (self.inner.clone(), self.inner.find(tenant, name)?);
        tokio::spawn(async move { inner.reset(branch, to).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }

    /// Stops a branch's postmaster cleanly; the next connection wakes it.
    pub async fn suspend(&self, tenant: &str, name: &BranchName) -> Result<Branch, BranchesError> {
        let (inner, branch) = (self.inner.clone(), self.inner.find(tenant, name)?);
        tokio::spawn(async move { inner.suspend(branch).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }

    /// Starts a suspended branch, or one that failed.
    pub async fn resume(&self, tenant: &str, name: &BranchName) -> Result<Branch, BranchesError> {
        let (inner, branch) = (self.inner.clone(), self.inner.find(tenant, name)?);
        tokio::spawn(async move { inner.wake(branch).await })
            .await
            .map_err(|_| BranchesError::Stopping)?
    }

    /// Changes protection, lifetime or labels.
    ///
    /// # Errors
    /// [`BranchesError`] when a value is out of range; nothing has changed then.
    pub fn change(
        &self,
        tenant: &str,
        name: &BranchName,
        change: &BranchUpdate,
    ) -> Result<Branch, BranchesError> {
        let inner = &self.inner;
        if let Some(labels) = &change.labels {
            request::labels(labels, &inner.config)?;
        }
        request::ttl(change.ttl_ms.flatten(), &inner.config)?;
        let branch = inner.find(tenant, name)?;
        let registry = &inner.started()?.registry;
        registry.change_branch(branch.id, change, inner.now())?;
        let changed = inner.find(tenant, name)?;
        inner.refresh_manifest(&changed);
        inner.due.notify_one();
        Ok(changed)
    }
}

impl Inner {
    /// Living branches made from templates of this one, and theirs, deepest first.
    pub(crate) fn descendants(&self, branch: &Branch) -> Result<Vec<Branch>, BranchesError> {
        let registry = &self.started()?.registry;
        let templates = registry.templates();
        let mut found: Vec<Branch> = Vec::new();
        let mut parents = vec![branch.id];
        // A registry of an earlier version may hold a cycle.
        let mut visited = HashSet::from([branch.id]);
        while let Some(parent) = parents.pop() {
            let origins: Vec<TemplateId> = templates
                .iter()
                .filter(|template| template.origin_branch == Some(parent))
                .map(|template| template.id)
                .collect();
            if origins.is_empty() {
                continue;
            }
            let children = registry.branches_where(|child| {
                child.state != BranchState::Destroying && origins.contains(&child.template)
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
        let descends = || -> Result<bool, BranchesError> {
            let family = self.descendants(branch)?;
            Ok(family.iter().any(|descendant| descendant.id == origin))
        };
        if origin != branch.id && !descends()? {
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
        let held = slot.lock.lock().await;
        let found = self.started()?.registry.branch(branch.id);
        let Some(living) = found.filter(|found| found.state != BranchState::Destroying) else {
            return Err(BranchesError::NotFound {
                name: branch.name.to_string(),
            });
        };
        // That may have changed while the slot was held.
        if living.protected {
            return Err(BranchesError::Protected {
                name: living.name.to_string(),
            });
        }
        self.entomb(living, &slot, &held)
    }

    /// Makes the tombstone; the caller holds the slot.
    fn entomb(
        &self,
        mut branch: Branch,
        slot: &BranchSlot,
        _: &SlotGuard<'_>,
    ) -> Result<Branch, BranchesError> {
        branch.state = BranchState::Destroying;
        self.steps.before("destroy.intent");
        self.started()?.registry.update_branch(&branch)?;
        *lock(&slot.doomed) = slot.take_live();
        self.metrics.destroyed();
        self.pool.note_activity();
        self.pool.due.notify_one();
        Ok(branch)
    }

    /// Destroys a branch whose lifetime is over, unless that has changed since it was planned.
    pub(crate) async fn expire(&self, id: BranchId) -> Result<(), BranchesError> {
        let slot = self.slot(id);
        let held = slot.lock.lock().await;
        let found = self.started()?.registry.branch(id);
        let over = |branch: &Branch| {
            !branch.protected && branch.expires_at.is_some_and(|at| at <= self.now())
        };
        let Some(branch) = found.filter(over) else {
            return Ok(());
        };
        tracing::info!(branch = %branch.name, "its lifetime is over");
        self.entomb(branch, &slot, &held)?;
        Ok(())
    }

    /// Suspends a branch, unless it does not run any more, or is in use and was to be suspended for
    /// being idle. `notice` says why; it is shown with the branch until that runs again. Returns
    /// whether this call suspended it.
    pub(crate) async fn suspend_due(
        self: &Arc<Self>,
        id: BranchId,
        why: SuspendReason,
        notice: String,
    ) -> Result<bool, BranchesError> {
        self.steps.before("suspend.turn");
        // Before the slot: while it is held, clients of the branch wait.
        let _turn = match why {
            SuspendReason::Idle => Some(self.suspensions.acquire().await),
            SuspendReason::NoRoom | SuspendReason::TenantDisk => None,
        };
        let slot = self.slot(id);
        let held = slot.lock.lock().await;
        let used = why == SuspendReason::Idle && slot.sessions.load(Ordering::Acquire) > 0;
        let found = self.started()?.registry.branch(id);
        let Some(mut branch) = found.filter(|branch| branch.state == BranchState::Running && !used)
        else {
            return Ok(false);
        };
        tracing::info!(branch = %branch.name, ?why, "suspending");
        branch.waits_for_room = why == SuspendReason::TenantDisk;
        branch.notice = Some(notice);
        self.put_down(branch, &held).await.map(|_| true)
    }

    /// Deletes what is behind the tombstones that `is_wanted` says; what fails is tried again.
    pub(crate) async fn purge_tombstones(&self, is_wanted: impl Fn(&Branch) -> bool) {
        let Ok(started) = self.started() else {
            return;
        };
        let leaving =
            |branch: &Branch| branch.state == BranchState::Destroying && is_wanted(branch);
        stream::iter(started.registry.branches_where(leaving))
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
        let _held = slot.lock.lock().await;
        if self.started()?.registry.branch(branch.id).is_none() {
            // Another task has deleted it meanwhile.
            lock(&self.slots).remove(&branch.id);
            return Ok(());
        }
        let mut watch = Stopwatch::start();
        self.steps.before("purge.stop");
        self.stop_postmaster(branch.id, StopMode::Immediate).await?;
        let socket = self.paths.socket(branch.id);
        watch.phase("stop");
        self.steps.before("purge.files");
        self.remove_branch_manifest(branch.id)?;
        self.remove_files(branch.id).await?;
        blocking(move || remove_directory(&socket)).await?;
        watch.phase("files");
        self.steps.before("purge.row");
        self.started()?.registry.delete_branch(branch.id)?;
        watch.phase("row");
        self.metrics.deleted(&watch);
        self.steps.before("purge.done");
        lock(&self.slots).remove(&branch.id);
        lock(&self.verifiers).remove(&branch.id);
        Ok(())
    }

    pub(crate) async fn suspend(self: &Arc<Self>, branch: Branch) -> Result<Branch, BranchesError> {
        let slot = self.slot(branch.id);
        let held = slot.lock.lock().await;
        let branch = self.find(&branch.tenant, &branch.name)?;
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
        self.put_down(branch, &held).await
    }

    /// Stops a running branch cleanly, onto the disk; the caller holds the slot.
    async fn put_down(
        &self,
        mut branch: Branch,
        _: &SlotGuard<'_>,
    ) -> Result<Branch, BranchesError> {
        self.steps.before("suspend.stop");
        self.stop_postmaster(branch.id, StopMode::Fast).await?;
        self.flush_volume().await?;
        branch.state = BranchState::Suspended;
        branch.boot_id = None;
        branch.postmaster = None;
        self.started()?.registry.update_branch(&branch)?;
        self.refresh_manifest(&branch);
        Ok(branch)
    }

    /// Starts a branch that does not run; one that runs is left as it is.
    pub(crate) async fn wake(self: &Arc<Self>, branch: Branch) -> Result<Branch, BranchesError> {
        let slot = self.slot(branch.id);
        let _held = slot.lock.lock().await;
        let mut branch = self.find(&branch.tenant, &branch.name)?;
        if slot.live().is_some() {
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
        let is_torn = ran_in_a_crash(&branch, &self.started()?.boot_id);
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
            self.check_counted(&branch).await?;
            branch.waits_for_room = false;
        }
        let was_stopped = branch.state != BranchState::Running;
        let notice = branch.notice.take();
        if let Err(error) = self.start_again(&mut branch).await {
            branch.notice = notice;
            // Its files are in order: it is woken as soon as there is room for its server, say.
            if !error.is_external() {
                self.give_up(branch, &error);
            }
            return Err(error);
        }
        if was_stopped {
            slot.forget_notice();
        }
        *lock(&slot.idle_since) = Some(self.now());
        Ok(branch)
    }
}

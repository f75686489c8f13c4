//! Building a template: snapshot, neutralise, recover, prepare, stop, seal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_postgres::bounded::{self, ReceiveLimit};
use egret_postgres::cluster::create_private_directory;
use egret_postgres::postmaster::{Launch, Postmaster, StopMode, kill_orphans};
use tokio::sync::{MutexGuard, RwLockReadGuard};

use super::promised_room::PromisedRoom;
use crate::core::preset;
use crate::engine::{Branches, Inner, SOURCE};
use crate::error::{BranchesError, io_error};
use crate::model::{Branch, BranchState, Preset, Template, TemplateId, TemplateState};
use crate::stopwatch::Stopwatch;
use crate::store::files::SOCKET_PORT;
use crate::store::files::{manifest_path, remove_directory, remove_file, write_durable_manifest};
use crate::store::prepare;
use crate::store::recovery_loss::{self, LossReport};
use crate::store::source::{self, Admission, SourceFacts, run_blocking};

mod limits;

/// Proof that the caller is the only builder of a template of the source.
pub(crate) struct HeadBuild<'a> {
    _build_guard: RwLockReadGuard<'a, ()>,
    _head_guard: MutexGuard<'a, ()>,
}

impl Branches {
    /// Builds a fresh template from the source's head.
    ///
    /// # Errors
    /// [`BranchesError`]; a failed build leaves nothing.
    pub async fn refresh_template(&self) -> Result<Template, BranchesError> {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let build = inner.begin_head_build().await;
            inner.build_from_head(&build, None).await
        })
        .await
        .map_err(|_| BranchesError::Stopping)?
    }
}

impl Inner {
    /// Waits until no other template of the source is built.
    pub(crate) async fn begin_head_build(&self) -> HeadBuild<'_> {
        HeadBuild {
            _build_guard: self.build_lock.read().await,
            _head_guard: self.head_build_lock.lock().await,
        }
    }

    /// The same without waiting: `None` while another template of the source is built.
    pub(crate) fn try_begin_head_build(&self) -> Option<HeadBuild<'_>> {
        Some(HeadBuild {
            _build_guard: self.build_lock.try_read().ok()?,
            _head_guard: self.head_build_lock.try_lock().ok()?,
        })
    }

    /// The branch as it is now, where it can be branched.
    fn find_branchable(&self, branch: &Branch) -> Result<Branch, BranchesError> {
        let found = self.state()?.registry.branch(branch.id);
        let found = found
            .filter(|found| found.state != BranchState::Destroying)
            .ok_or_else(|| BranchesError::NotFound { name: branch.name.to_string() })?;
        if !matches!(found.state, BranchState::Running | BranchState::Suspended) {
            return Err(BranchesError::WrongState {
                name: found.name.to_string(),
                state: found.state.as_str(),
                hint: "only a running or suspended branch can be branched".to_owned(),
            });
        }
        Ok(found)
    }

    /// Builds a template from the source as it is now, for a branch of `tenant` alone or for all.
    pub(crate) async fn build_from_head(
        self: &Arc<Self>,
        _: &HeadBuild<'_>,
        tenant: Option<&str>,
    ) -> Result<Template, BranchesError> {
        let mut stopwatch = Stopwatch::start();
        // Before the source does anything for it.
        if let Some(tenant) = tenant {
            self.check_tenant_templates(tenant)?;
        }
        let connection = self.source.connection("postgres", "branches");
        let client = self.source.open_session(&connection).await?;
        let data = self.source.layout().data;
        let facts = source::examine(&client, SOURCE, &data).await?;
        source::checkpoint(&client).await?;
        stopwatch.end_phase("checkpoint");
        let (mut template, reservation) = self.record_template_intent(&facts, None).await?;
        let to = self.paths.template(template.id);
        self.crash_points.before("template.copy");
        let volume = self.mounted().volume;
        let owner = self.state()?.owner.clone();
        let result = async {
            template.taken_at = self.now();
            template.lsn = source::wal_position(&client).await?;
            source::copy_data_directory(&client, &volume, &data, &to, &owner).await?;
            drop(reservation);
            stopwatch.end_phase("snapshot");
            self.finish_template(&mut template, &facts, &mut stopwatch).await
        }
        .await;
        self.record_or_discard(template, result).await
    }

    /// Builds a template from a branch as it is now, its running processes frozen for the moment of
    /// the snapshot: a running `fsync=off` server has no order of writes that a snapshot could
    /// keep.
    ///
    /// Builds of one branch follow one another, and so do those of a tenant beyond a number: a
    /// server that does not answer delays no other tenant, and no request that needs the branch's
    /// slot.
    pub(crate) async fn build_from_branch(
        self: &Arc<Self>,
        parent: &Branch,
    ) -> Result<Template, BranchesError> {
        let mut stopwatch = Stopwatch::start();
        let _build_guard = self.build_lock.read().await;
        let slot = self.slot(parent.id);
        let _branch_build_guard = slot.build_lock.lock().await;
        let tenant_permits = self.tenant_build_permits(&parent.tenant);
        let _tenant_permit = tenant_permits.acquire().await;
        // What is being done to the branch comes first.
        drop(slot.lock.lock().await);
        let parent = self.find_branchable(parent)?;
        // Before its slot is taken: what the tenant has destroyed may have to be deleted first.
        self.check_room_of_tenant(&parent).await?;
        let state_at_checkpoint = (parent.template, slot.postmaster().map(|live| live.pid()));
        let position = match slot.postmaster() {
            Some(_) => match self.checkpoint_branch(&parent).await {
                Ok(position) => Some(position),
                // It was suspended meanwhile, or its postmaster ended: the files are what there is.
                Err(_) if slot.running_postmaster().is_none() => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        let slot_guard = slot.lock.lock().await;
        let parent = self.find_branchable(&parent)?;
        let live = slot.postmaster();
        if live.is_none() {
            // Its postmaster may just have died and left a backend at work.
            kill_orphans(&self.paths.branch(parent.id)).await;
        }
        let origin_template = self.template_of(&parent)?;
        // Of other data, after a reset, the position says nothing.
        let state_at_copy = (parent.template, live.as_ref().map(|live| live.pid()));
        let lsn = position
            .filter(|_| state_at_copy == state_at_checkpoint)
            .unwrap_or_else(|| origin_template.lsn.clone());
        let parent = with_superuser_of(parent, &origin_template);
        let facts = facts_of_branch(&parent, origin_template);
        stopwatch.end_phase("checkpoint");
        self.check_tenant_templates(&parent.tenant)?;
        let (mut template, reservation) =
            self.record_template_intent(&facts, Some(&parent)).await?;
        template.lsn = lsn;
        let (from, to) = (self.paths.branch(parent.id), self.paths.template(template.id));
        let volume = self.mounted().volume;
        self.crash_points.before("template.copy");
        template.taken_at = self.now();
        let copied = run_blocking(move || {
            let _frozen = live.as_ref().map(|postmaster| postmaster.freeze()).transpose()?;
            volume.clone_tree(&from, &to).map_err(io_error("snapshot", &from))
        })
        .await;
        drop(reservation);
        // What follows is done to the copy; the parent is free for others.
        drop(slot_guard);
        let result = async {
            copied?;
            stopwatch.end_phase("snapshot");
            self.finish_template(&mut template, &facts, &mut stopwatch).await
        }
        .await;
        self.record_or_discard(template, result).await
    }

    /// Checkpoints a running branch, so that there is little to recover; returns where its log
    /// stands.
    async fn checkpoint_branch(&self, branch: &Branch) -> Result<String, BranchesError> {
        let limit = self.receive_limit();
        let exchange = async {
            let (client, _) =
                self.connect_as_superuser(&self.paths.socket_dir(branch.id), &limit).await?;
            source::checkpoint(&client).await?;
            Ok(source::wal_position(&client).await?)
        };
        let subject = format!("branch {}", branch.id);
        self.within_bounds(&subject, &limit, exchange).await
    }

    /// Writes the intent, and keeps room for the copy.
    async fn record_template_intent(
        self: &Arc<Self>,
        facts: &SourceFacts,
        parent: Option<&Branch>,
    ) -> Result<(Template, PromisedRoom<'_>), BranchesError> {
        let state = self.state()?;
        let copied = match parent {
            Some(branch) => self.paths.branch(branch.id),
            None => self.source.layout().data,
        };
        self.check_room()?;
        let now = self.now();
        let id = TemplateId::new(now, self.entropy.ten_bytes());
        let to = self.paths.template(id);
        let reservation = match parent {
            Some(branch) => self.reserve_tenant_room(&branch.tenant, &copied, &to).await?,
            None => self.reserve_room(&copied, &to).await?,
        };
        self.check_template_count()?;
        let template = Template {
            id,
            state: TemplateState::Building,
            origin_branch: parent.map(|branch| branch.id),
            tenant: parent.map(|branch| branch.tenant.clone()),
            origin_branch_name: parent.map(|branch| branch.name.clone()),
            source: facts.identity.clone(),
            lsn: String::new(),
            taken_at: now,
            postgres_major: state.binaries.major,
            preload_libraries: preset::without_schedulers(&facts.preload_libraries),
            phases: Vec::new(),
            losses: None,
            superuser: parent.is_some_and(|branch| branch.superuser),
        };
        self.crash_points.before("template.intent");
        state.registry.put_template(&template)?;
        Ok((template, reservation))
    }

    /// Turns a raw copy into something that branches can be cloned from.
    async fn finish_template(
        &self,
        template: &mut Template,
        facts: &SourceFacts,
        stopwatch: &mut Stopwatch,
    ) -> Result<(), BranchesError> {
        let owner = self.state()?.owner.clone();
        let data = self.paths.template(template.id);
        let files = data.clone();
        let unlogged = run_blocking(move || {
            prepare::neutralise_files(&files, &owner)?;
            recovery_loss::find_unlogged_files(&files).map_err(io_error("read", &files))
        })
        .await?;
        let mut report = unlogged.map(LossReport::new);
        stopwatch.end_phase("neutralise");
        self.crash_points.before("template.recover");
        let postmaster = self.start_builder(template, facts).await?;
        stopwatch.end_phase("recover");
        let prepared = self.prepare(template, report.as_mut()).await;
        stopwatch.end_phase("prepare");
        // Fast and not immediate: the shutdown checkpoint is what branches start from.
        let mode = match &prepared {
            Ok(()) => StopMode::Fast,
            Err(_) => StopMode::Immediate,
        };
        postmaster.stop(mode, self.config.stop_timeout.duration()).await;
        remove_directory(&self.paths.builder_socket_dir(template.id))?;
        prepared?;
        stopwatch.end_phase("stop");
        self.flush_volume().await?;
        let volume = self.mounted().volume;
        let sealed = data.clone();
        self.crash_points.before("template.seal");
        run_blocking(move || volume.seal(&sealed).map_err(io_error("seal", &sealed))).await?;
        stopwatch.end_phase("seal");
        template.state = TemplateState::Ready;
        template.phases = stopwatch.phases().to_vec();
        template.losses = Some(report.map_or_else(Vec::new, LossReport::finish));
        write_durable_manifest(&data, template)
    }

    async fn start_builder(
        &self,
        template: &Template,
        facts: &SourceFacts,
    ) -> Result<Postmaster, BranchesError> {
        let state = self.state()?;
        let socket_dir = self.paths.builder_socket_dir(template.id);
        create_private_directory(&socket_dir, &state.owner)?;
        let log_file = socket_dir.join("server.log");
        let name = "template".parse().expect("a branch may be named template");
        let mut settings = preset::settings(
            Preset::Large,
            false,
            &std::collections::BTreeMap::new(),
            state.binaries.major,
            &template.preload_libraries,
            &name,
        );
        // What the source had prepared is read back before it can be rolled back.
        settings.push((
            "max_prepared_transactions".to_owned(),
            facts.max_prepared_transactions.clone(),
        ));
        // Handing objects over locks each of them, in one transaction.
        settings.push(("max_locks_per_transaction".to_owned(), "2048".to_owned()));
        settings.push(("min_wal_size".to_owned(), "32MB".to_owned()));
        settings.push(("max_wal_size".to_owned(), "64MB".to_owned()));
        let postmaster = Postmaster::launch(&Launch {
            binaries: state.binaries.clone(),
            data: self.paths.template(template.id),
            socket_dir: socket_dir.clone(),
            port: SOCKET_PORT,
            settings,
            owner: state.owner.clone(),
            isolation: Some(state.isolation.clone()),
            log_file: log_file.clone(),
            oom_score_adj: 0,
            nice: 0,
        })
        .await?;
        let starting = postmaster.await_ready(self.config.start_timeout.duration(), &log_file);
        if let Err(error) = self.await_unless_stopping(starting).await {
            postmaster.stop(StopMode::Immediate, self.config.stop_timeout.duration()).await;
            return Err(error);
        }
        Ok(postmaster)
    }

    /// Roles and databases; a copy of a branch has both already. Names in `report` what is lost in
    /// each database.
    async fn prepare(
        &self,
        template: &Template,
        report: Option<&mut LossReport>,
    ) -> Result<(), BranchesError> {
        let limit = self.receive_limit();
        let preparing = self.prepare_databases(template, report, &limit);
        let subject = format!("template {}", template.id);
        self.within_bounds(&subject, &limit, preparing).await
    }

    async fn prepare_databases(
        &self,
        template: &Template,
        mut report: Option<&mut LossReport>,
        limit: &Arc<ReceiveLimit>,
    ) -> Result<(), BranchesError> {
        let socket_dir = self.paths.builder_socket_dir(template.id);
        let (client, connection) = self.connect_as_superuser(&socket_dir, limit).await?;
        let databases = source::all_databases(&client).await?;
        let documents = self.document_retention()?;
        if template.origin_branch.is_none() {
            prepare::prepare_roles(&client).await?;
        }
        for (database, allows_connections) in databases {
            if !allows_connections {
                source::allow_connections(&client, &database, &Admission::Open).await?;
            }
            let mut database_config = connection.clone();
            database_config.dbname(&database);
            let database_client = bounded::connect(&database_config, limit)
                .await
                .map_err(|error| error.in_database(&database))?;
            if template.origin_branch.is_none() {
                prepare::prepare_database(&database_client, documents).await?;
            } else {
                prepare::roll_back_prepared(&database_client).await?;
            }
            if let Some(report) = &mut report {
                report.add_database(&database_client).await?;
            }
            if !allows_connections {
                source::allow_connections(&client, &database, &Admission::Closed).await?;
            }
        }
        Ok(())
    }

    /// Records a finished template, or removes what a failed build left.
    async fn record_or_discard(
        &self,
        template: Template,
        result: Result<(), BranchesError>,
    ) -> Result<Template, BranchesError> {
        let recorded = result.and_then(|()| {
            self.crash_points.before("template.record");
            Ok(self.state()?.registry.put_template(&template)?)
        });
        if let Err(error) = recorded {
            self.discard_build(template).await;
            return Err(error);
        }
        self.pool.request_refill();
        tracing::info!(template = %template.id, lsn = template.lsn, "a template is ready");
        Ok(template)
    }

    /// Removes what a failed build left: later, where that fails, as any template that is not used.
    async fn discard_build(&self, mut template: Template) {
        let Err(error) = self.remove_template(template.id).await else {
            return;
        };
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        tracing::warn!(template = %template.id, %error, "what a failed build of a template left is removed later");
        template.state = TemplateState::Removing;
        let recorded =
            self.state().and_then(|started| Ok(started.registry.put_template(&template)?));
        if let Err(error) = recorded {
            tracing::error!(template = %template.id, %error, "what a failed build of a template left stays until the next start");
        }
    }

    /// Removes a template's files, then its row.
    pub(crate) async fn remove_template(&self, id: TemplateId) -> Result<(), BranchesError> {
        let data = self.paths.template(id);
        if let Some(postmaster) = self.adopt_postmaster(&data)? {
            postmaster.stop(StopMode::Immediate, self.config.stop_timeout.duration()).await;
        }
        let volume = self.mounted().volume;
        let (socket, crash_points) = (self.paths.builder_socket_dir(id), self.crash_points.clone());
        run_blocking(move || {
            crash_points.before("template.files");
            remove_file(&manifest_path(&data))?;
            volume.remove(&data).map_err(io_error("remove", &data))?;
            crash_points.before("template.socket");
            remove_directory(&socket)
        })
        .await?;
        self.state()?.registry.delete_template(id)?;
        Ok(())
    }

    /// Removes a template that no branch uses; one that is used meanwhile stays.
    pub(crate) async fn purge_template(&self, id: TemplateId) -> Result<(), BranchesError> {
        let _permit = self.template_deletion_permits.acquire().await;
        let registry = &self.state()?.registry;
        let removal_guard = self.template_removal_lock.write().await;
        if self.is_template_held(id)? || registry.count_where(|branch| branch.template == id) > 0 {
            return Ok(());
        }
        let Some(mut template) = registry.template(id) else {
            return Ok(());
        };
        template.state = TemplateState::Removing;
        registry.put_template(&template)?;
        drop(removal_guard);
        self.remove_template(id).await
    }
}

/// A branch as a superuser's where its template is: the template may hold roles that the branch
/// does not show.
fn with_superuser_of(branch: Branch, template: &Template) -> Branch {
    Branch { superuser: branch.superuser || template.superuser, ..branch }
}

/// What a copy of a branch needs to know.
fn facts_of_branch(branch: &Branch, origin: Template) -> SourceFacts {
    let prepared = branch.settings.get("max_prepared_transactions").cloned();
    SourceFacts {
        identity: origin.source,
        preload_libraries: origin.preload_libraries,
        max_prepared_transactions: prepared.unwrap_or_else(|| "0".to_owned()),
    }
}

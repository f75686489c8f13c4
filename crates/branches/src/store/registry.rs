//! The registry: branches and templates in `state.db`, intent before action.
//!
//! No other process writes these tables while Egret runs (it holds the data directory's lock), so
//! they are read once and looked up in memory after. A change is written to `state.db` first and to
//! memory after, one change after the other, so that the two agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use egret_base::sync::{lock, read_lock, write_lock};
use egret_state::rusqlite::{self, params};
use egret_state::{Database, Migration, StateError, Tables};

use crate::model::{
    Branch, BranchId, BranchName, BranchState, BranchUpdate, Loss, RolePassword, Template,
    TemplateId, TemplateState,
};

mod rows;

const MIGRATIONS: &[Migration] = &[
    Migration { name: "branches", sql: include_str!("sql/registry.sql") },
    Migration { name: "pool", sql: include_str!("sql/registry_pool.sql") },
    Migration { name: "superuser", sql: include_str!("sql/registry_superuser.sql") },
    Migration { name: "losses", sql: include_str!("sql/registry_losses.sql") },
    Migration { name: "role_passwords", sql: include_str!("sql/registry_role_passwords.sql") },
    Migration {
        name: "template_superuser",
        sql: include_str!("sql/registry_template_superuser.sql"),
    },
    Migration {
        name: "superuser_descendants",
        sql: include_str!("sql/registry_superuser_descendants.sql"),
    },
    Migration { name: "room", sql: include_str!("sql/registry_room.sql") },
    Migration { name: "notice", sql: include_str!("sql/registry_notice.sql") },
];

/// The tables of `state.db` that belong to this engine.
pub const TABLES: Tables = Tables { component: "branches", migrations: MIGRATIONS };

/// The tables of this engine in `state.db`.
pub struct Registry {
    /// Commits here are flushed.
    durable_database: Database,
    /// For what may be lost with the machine: of a branch that is not durable only its files'
    /// existence matters then, and that was flushed before they were made.
    relaxed_database: Database,
    /// Held from before a change is written until it is known, so that changes follow one another.
    change_lock: Mutex<()>,
    /// Locked for moments only, never while something is flushed: readers do not wait for a disk.
    state: RwLock<RegistryState>,
}

/// How many branches there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BranchCounts {
    pub all: usize,
    /// Those of one tenant, which a query names.
    pub of_tenant: usize,
}

/// Rows of the tables, kept in memory.
#[derive(Default)]
struct RegistryState {
    branches: HashMap<BranchId, Branch>,
    /// Ids of living branches by tenant and name.
    names: HashMap<String, HashMap<BranchName, BranchId>>,
    templates: BTreeMap<TemplateId, Template>,
    /// Passwords of roles, of the branches that were requested with them.
    role_passwords: HashMap<BranchId, Vec<RolePassword>>,
    /// The newest template of the source that is ready.
    newest_template: Option<Arc<Template>>,
}

impl RegistryState {
    fn put_branch(&mut self, branch: Branch) {
        if branch.state == BranchState::Destroying {
            self.free_name(&branch);
        } else {
            self.names
                .entry(branch.tenant.clone())
                .or_default()
                .insert(branch.name.clone(), branch.id);
        }
        self.branches.insert(branch.id, branch);
    }

    fn refresh_newest_template(&mut self) {
        let is_ready = |found: &&Template| {
            found.state == TemplateState::Ready && found.origin_branch.is_none()
        };
        let heads = self.templates.values().filter(is_ready);
        let newest = heads.max_by_key(|template| (template.taken_at, template.id));
        self.newest_template = newest.cloned().map(Arc::new);
    }

    /// Frees a branch's name, unless another branch has taken it since this one became a tombstone.
    fn free_name(&mut self, branch: &Branch) {
        if let Some(names) = self.names.get_mut(&branch.tenant)
            && names.get(&branch.name) == Some(&branch.id)
        {
            names.remove(&branch.name);
        }
    }
}

type StateResult<T> = Result<T, StateError>;

impl Registry {
    /// Opens the registry, making its tables where they are missing.
    pub fn open(path: &Path) -> StateResult<Self> {
        let durable_database = Database::open(path, TABLES.component, TABLES.migrations)?;
        let mut state = RegistryState::default();
        for branch in rows::branches(&durable_database.lock())? {
            state.put_branch(branch);
        }
        for template in rows::templates(&durable_database.lock())? {
            state.templates.insert(template.id, template);
        }
        for (branch, password) in rows::role_passwords(&durable_database.lock())? {
            state.role_passwords.entry(branch).or_default().push(password);
        }
        state.refresh_newest_template();
        Ok(Self {
            durable_database,
            relaxed_database: Database::open_relaxed(path)?,
            change_lock: Mutex::default(),
            state: RwLock::new(state),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, RegistryState> {
        // The maps are changed by single calls, so a panic elsewhere leaves them whole.
        read_lock(&self.state)
    }

    fn write(&self) -> RwLockWriteGuard<'_, RegistryState> {
        write_lock(&self.state)
    }

    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        lock(&self.change_lock)
    }

    /// Records a branch.
    ///
    /// # Errors
    /// [`StateError`]; a second living branch of the same tenant and name is refused.
    pub(crate) fn insert_branch(&self, branch: &Branch) -> StateResult<()> {
        self.insert_branches(std::slice::from_ref(branch))
    }

    /// Records a branch with the passwords of roles that it is entered by.
    ///
    /// # Errors
    /// [`StateError`], as [`Registry::insert_branch`].
    pub(crate) fn insert_branch_with_passwords(
        &self,
        branch: &Branch,
        passwords: Vec<RolePassword>,
    ) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        let mut connection = self.durable_database.lock();
        let transaction = connection.transaction()?;
        rows::insert_branch(&transaction, branch)?;
        for password in &passwords {
            rows::insert_role_password(&transaction, branch.id, password)?;
        }
        transaction.commit()?;
        let mut state = self.write();
        state.put_branch(branch.clone());
        if !passwords.is_empty() {
            state.role_passwords.insert(branch.id, passwords);
        }
        Ok(())
    }

    /// The password that a role has in a branch which was asked for with such.
    pub(crate) fn role_password(&self, id: BranchId, role: &str) -> Option<RolePassword> {
        let state = self.read();
        let passwords = state.role_passwords.get(&id)?;
        let found = passwords.iter().find(|password| password.role == role);
        found.cloned()
    }

    /// Records several branches, all or none.
    pub(crate) fn insert_branches(&self, branches: &[Branch]) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        let mut connection = self.durable_database.lock();
        let transaction = connection.transaction()?;
        for branch in branches {
            rows::insert_branch(&transaction, branch)?;
        }
        transaction.commit()?;
        let mut state = self.write();
        for branch in branches {
            state.put_branch(branch.clone());
        }
        Ok(())
    }

    /// Stores everything about a branch that changes with its state.
    pub(crate) fn update_branch(&self, branch: &Branch) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        let may_be_lost = branch.state == BranchState::Destroying && !branch.durable;
        let database = if may_be_lost { &self.relaxed_database } else { &self.durable_database };
        rows::update_branch(&database.lock(), branch)?;
        let mut state = self.write();
        if let Some(stored) = state.branches.get(&branch.id) {
            let updated = Branch {
                protected: stored.protected,
                labels: stored.labels.clone(),
                ttl_ms: stored.ttl_ms,
                expires_at: stored.expires_at,
                ..branch.clone()
            };
            state.put_branch(updated);
        }
        Ok(())
    }

    /// Turns a row of the pool into the leased branch: the whole row becomes `branch`. The commit
    /// is not flushed: after a crash of the machine right after it, the row is the pool's again and
    /// is discarded.
    ///
    /// Returns whether the row was changed; it is not when the name is taken.
    pub(crate) fn lease_branch(&self, branch: &Branch) -> StateResult<bool> {
        let _change_guard = self.lock_changes();
        if self.branch_named(&branch.tenant, &branch.name).is_some() {
            return Ok(false);
        }
        rows::lease_branch(&self.relaxed_database.lock(), branch)?;
        let mut state = self.write();
        if let Some(pooled) = state.branches.remove(&branch.id) {
            state.free_name(&pooled);
        }
        state.put_branch(branch.clone());
        Ok(true)
    }

    /// Stores a change that the user asked for.
    pub(crate) fn apply_update(
        &self,
        id: BranchId,
        update: &BranchUpdate,
        now: egret_base::Timestamp,
    ) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        let Some(mut updated) = self.branch(id) else {
            return Ok(());
        };
        if let Some(protected) = update.protected {
            updated.protected = protected;
        }
        if let Some(ttl_ms) = update.ttl_ms {
            updated.ttl_ms = ttl_ms;
            updated.expires_at = ttl_ms.map(|ms| now.plus(std::time::Duration::from_millis(ms)));
        }
        if let Some(labels) = &update.labels {
            updated.labels.clone_from(labels);
        }
        rows::update_user_fields(&self.durable_database.lock(), &updated)?;
        self.write().put_branch(updated);
        Ok(())
    }

    /// Forgets a branch whose files are gone.
    pub(crate) fn delete_branch(&self, id: BranchId) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        if self.read().role_passwords.contains_key(&id) {
            rows::delete_role_passwords(&self.relaxed_database.lock(), id)?;
        }
        self.relaxed_database
            .lock()
            .prepare_cached("DELETE FROM branch WHERE id = ?1")?
            .execute([id.to_string()])?;
        let mut state = self.write();
        state.role_passwords.remove(&id);
        if let Some(branch) = state.branches.remove(&id) {
            state.free_name(&branch);
        }
        Ok(())
    }

    /// Every branch, tombstones and those of the pool included, oldest first.
    pub fn branches(&self) -> Vec<Branch> {
        self.branches_where(|_| true)
    }

    /// The branches that fit, oldest first.
    pub(crate) fn branches_where(&self, fits: impl Fn(&Branch) -> bool) -> Vec<Branch> {
        let state = self.read();
        let mut branches: Vec<Branch> =
            state.branches.values().filter(|branch| fits(branch)).cloned().collect();
        drop(state);
        branches.sort_by_key(|branch| (branch.created_at, branch.id));
        branches
    }

    /// Tenants of branches that are named.
    pub fn tenants(&self) -> BTreeSet<String> {
        let state = self.read();
        let named = state.names.iter().filter(|(_, names)| !names.is_empty());
        named.map(|(tenant, _)| tenant.clone()).collect()
    }

    /// How many of the branches that fit there are, in all and of a tenant.
    pub(crate) fn counts_where(
        &self,
        tenant: &str,
        fits: impl Fn(&Branch) -> bool,
    ) -> BranchCounts {
        let mut counts = BranchCounts::default();
        for branch in self.read().branches.values().filter(|branch| fits(branch)) {
            counts.all += 1;
            counts.of_tenant += usize::from(branch.tenant == tenant);
        }
        counts
    }

    /// How many branches fit.
    pub(crate) fn count_where(&self, fits: impl Fn(&Branch) -> bool) -> usize {
        let state = self.read();
        state.branches.values().filter(|branch| fits(branch)).count()
    }

    /// The living branch of this name.
    pub(crate) fn branch_named(&self, tenant: &str, name: &BranchName) -> Option<Branch> {
        let state = self.read();
        let id = state.names.get(tenant)?.get(name)?;
        state.branches.get(id).cloned()
    }

    /// The branch of this id.
    pub fn branch(&self, id: BranchId) -> Option<Branch> {
        self.read().branches.get(&id).cloned()
    }

    /// Records a template or stores its present state.
    pub(crate) fn put_template(&self, template: &Template) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        rows::put_template(&self.durable_database.lock(), template)?;
        let mut state = self.write();
        state.templates.insert(template.id, template.clone());
        state.refresh_newest_template();
        Ok(())
    }

    /// Forgets a template whose files are gone.
    pub(crate) fn delete_template(&self, id: TemplateId) -> StateResult<()> {
        let _change_guard = self.lock_changes();
        self.durable_database
            .lock()
            .execute("DELETE FROM template WHERE id = ?1", [id.to_string()])?;
        let mut state = self.write();
        state.templates.remove(&id);
        state.refresh_newest_template();
        Ok(())
    }

    /// Every template, oldest first.
    pub fn templates(&self) -> Vec<Template> {
        let mut templates: Vec<Template> = self.read().templates.values().cloned().collect();
        templates.sort_by_key(|template| (template.taken_at, template.id));
        templates
    }

    /// The newest template of the source that is ready.
    pub(crate) fn newest_template(&self) -> Option<Arc<Template>> {
        self.read().newest_template.clone()
    }

    /// What a template lost of its origin; `None` where that is not known.
    pub fn losses(&self, id: TemplateId) -> Option<Vec<Loss>> {
        self.read().templates.get(&id)?.losses.clone()
    }

    /// The template of this id.
    pub fn template(&self, id: TemplateId) -> Option<Template> {
        self.read().templates.get(&id).cloned()
    }

    /// Flushes what was only written; see [`Database::checkpoint`].
    pub fn checkpoint(&self) -> StateResult<()> {
        self.relaxed_database.checkpoint()
    }

    /// The sizes of pools that a user chose, by preset.
    pub(crate) fn pool_sizes(&self) -> StateResult<BTreeMap<String, u32>> {
        let connection = self.durable_database.lock();
        let mut statement = connection.prepare("SELECT preset, size FROM pool")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Stores the size that a user chose for the pool of a preset; `None` leaves it to the
    /// configuration again.
    pub(crate) fn set_pool_size(&self, preset: &str, size: Option<u32>) -> StateResult<()> {
        let connection = self.durable_database.lock();
        match size {
            Some(size) => connection.execute(
                "INSERT OR REPLACE INTO pool (preset, size) VALUES (?1, ?2)",
                params![preset, size],
            )?,
            None => connection.execute("DELETE FROM pool WHERE preset = ?1", [preset])?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;

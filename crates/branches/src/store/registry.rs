//! The registry: branches and templates in `state.db`, intent before action.

use std::path::Path;

use egret_state::rusqlite::{self, OptionalExtension, Row, params};
use egret_state::{Database, Migration, StateError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{
    Branch, BranchId, BranchName, BranchState, Change, SourceIdentity, Template, TemplateId,
    TemplateState,
};

const MIGRATIONS: &[Migration] = &[Migration {
    name: "branches",
    sql: include_str!("sql/registry.sql"),
}];

/// The tables of this engine in `state.db`.
pub struct Registry {
    database: Database,
}

type Answer<T> = Result<T, StateError>;

impl Registry {
    /// Opens the registry, making its tables where they are missing.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(path: &Path) -> Answer<Self> {
        Ok(Self {
            database: Database::open(path, "branches", MIGRATIONS)?,
        })
    }

    /// Records a branch.
    ///
    /// # Errors
    /// [`StateError`]; a second living branch of the same tenant and name is refused.
    pub fn insert_branch(&self, branch: &Branch) -> Answer<()> {
        self.database
            .lock()
            .prepare_cached(include_str!("sql/insert_branch.sql"))?
            .execute(params![
                branch.id.to_string(),
                branch.tenant,
                branch.name.as_str(),
                branch.state.as_str(),
                branch.template.to_string(),
                branch.parent_branch.as_ref().map(BranchName::as_str),
                branch.from.to_string(),
                branch.preset.as_str(),
                branch.durable,
                branch.protected,
                json(&branch.settings),
                json(&branch.labels),
                branch.created_at.as_micros(),
                branch.ttl_ms.map(|ms| ms as i64),
                branch.expires_at.map(|at| at.as_micros()),
                branch.failure,
                branch.receipt.as_ref().map(json),
                branch.boot_id,
                branch.postmaster.map(|(pid, _)| pid),
                branch.postmaster.map(|(_, ticks)| ticks as i64),
            ])?;
        Ok(())
    }

    /// Stores everything about a branch that changes with its state.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn update_branch(&self, branch: &Branch) -> Answer<()> {
        self.database
            .lock()
            .prepare_cached(include_str!("sql/update_branch.sql"))?
            .execute(params![
                branch.id.to_string(),
                branch.state.as_str(),
                branch.template.to_string(),
                branch.failure,
                branch.receipt.as_ref().map(json),
                branch.boot_id,
                branch.postmaster.map(|(pid, _)| pid),
                branch.postmaster.map(|(_, ticks)| ticks as i64),
                branch.parent_branch.as_ref().map(BranchName::as_str),
            ])?;
        Ok(())
    }

    /// Stores a change that the user asked for.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn change_branch(
        &self,
        id: BranchId,
        change: &Change,
        now: egret_base::Timestamp,
    ) -> Answer<()> {
        let mut connection = self.database.lock();
        let transaction = connection.transaction()?;
        let id = id.to_string();
        if let Some(protected) = change.protected {
            transaction.execute(
                "UPDATE branch SET protected = ?2 WHERE id = ?1",
                params![id, protected],
            )?;
        }
        if let Some(ttl_ms) = change.ttl_ms {
            let expires =
                ttl_ms.map(|ms| now.plus(std::time::Duration::from_millis(ms)).as_micros());
            transaction.execute(
                "UPDATE branch SET ttl_ms = ?2, expires_at = ?3 WHERE id = ?1",
                params![id, ttl_ms.map(|ms| ms as i64), expires],
            )?;
        }
        if let Some(labels) = &change.labels {
            transaction.execute(
                "UPDATE branch SET labels = ?2 WHERE id = ?1",
                params![id, json(labels)],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Forgets a branch whose files are gone.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn delete_branch(&self, id: BranchId) -> Answer<()> {
        self.database
            .lock()
            .execute("DELETE FROM branch WHERE id = ?1", [id.to_string()])?;
        Ok(())
    }

    /// Every branch, tombstones included, oldest first.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn branches(&self) -> Answer<Vec<Branch>> {
        let connection = self.database.lock();
        let mut statement =
            connection.prepare_cached("SELECT * FROM branch ORDER BY created_at, id")?;
        let rows = statement.query_map([], branch_from)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The living branch of this name.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn branch_named(&self, tenant: &str, name: &BranchName) -> Answer<Option<Branch>> {
        let connection = self.database.lock();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM branch WHERE tenant = ?1 AND name = ?2 AND state <> 'destroying'",
        )?;
        Ok(statement
            .query_row([tenant, name.as_str()], branch_from)
            .optional()?)
    }

    /// The branch of this id.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn branch(&self, id: BranchId) -> Answer<Option<Branch>> {
        let connection = self.database.lock();
        let mut statement = connection.prepare_cached("SELECT * FROM branch WHERE id = ?1")?;
        Ok(statement
            .query_row([id.to_string()], branch_from)
            .optional()?)
    }

    /// Records a template or stores its present state.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn put_template(&self, template: &Template) -> Answer<()> {
        self.database
            .lock()
            .prepare_cached(include_str!("sql/put_template.sql"))?
            .execute(params![
                template.id.to_string(),
                template.state.as_str(),
                template.origin_branch.map(|id| id.to_string()),
                template.tenant,
                template.origin_branch_name.as_ref().map(BranchName::as_str),
                json(&template.source),
                template.lsn,
                template.taken_at.as_micros(),
                template.postgres_major,
                template.preload_libraries,
                json(&template.phases),
            ])?;
        Ok(())
    }

    /// Forgets a template whose files are gone.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn delete_template(&self, id: TemplateId) -> Answer<()> {
        self.database
            .lock()
            .execute("DELETE FROM template WHERE id = ?1", [id.to_string()])?;
        Ok(())
    }

    /// Every template, oldest first.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn templates(&self) -> Answer<Vec<Template>> {
        let connection = self.database.lock();
        let mut statement =
            connection.prepare_cached("SELECT * FROM template ORDER BY taken_at, id")?;
        let rows = statement.query_map([], template_from)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("these values have text keys and always serialise")
}

/// A text column parsed into its type; what cannot be parsed is reported with the column's name.
fn parsed<T: std::str::FromStr<Err = String>>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    text.parse()
        .map_err(|message: String| unreadable(column, message))
}

fn parsed_option<T: std::str::FromStr<Err = String>>(
    row: &Row<'_>,
    column: &str,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| {
        text.parse()
            .map_err(|message: String| unreadable(column, message))
    })
    .transpose()
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| unreadable(column, error.to_string()))
}

fn unreadable(column: &str, message: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        0,
        rusqlite::types::Type::Text,
        format!("column {column}: {message}").into(),
    )
}

fn branch_from(row: &Row<'_>) -> rusqlite::Result<Branch> {
    let receipt: Option<String> = row.get("receipt")?;
    let pid: Option<i32> = row.get("pid")?;
    let ticks: Option<i64> = row.get("start_ticks")?;
    let ttl_ms: Option<i64> = row.get("ttl_ms")?;
    let expires_at: Option<i64> = row.get("expires_at")?;
    Ok(Branch {
        id: parsed::<BranchId>(row, "id")?,
        tenant: row.get("tenant")?,
        name: parsed::<BranchName>(row, "name")?,
        state: parsed::<BranchState>(row, "state")?,
        template: parsed::<TemplateId>(row, "template")?,
        parent_branch: parsed_option::<BranchName>(row, "parent_branch")?,
        from: parsed(row, "origin")?,
        preset: parsed(row, "preset")?,
        durable: row.get("durable")?,
        protected: row.get("protected")?,
        settings: from_json(row, "settings")?,
        labels: from_json(row, "labels")?,
        created_at: egret_base::Timestamp::from_micros(row.get("created_at")?),
        ttl_ms: ttl_ms.and_then(|ms| u64::try_from(ms).ok()),
        expires_at: expires_at.map(egret_base::Timestamp::from_micros),
        failure: row.get("failure")?,
        receipt: receipt
            .map(|text| {
                serde_json::from_str(&text)
                    .map_err(|error| unreadable("receipt", error.to_string()))
            })
            .transpose()?,
        boot_id: row.get("boot_id")?,
        postmaster: pid.zip(ticks.and_then(|ticks| u64::try_from(ticks).ok())),
    })
}

fn template_from(row: &Row<'_>) -> rusqlite::Result<Template> {
    Ok(Template {
        id: parsed::<TemplateId>(row, "id")?,
        state: parsed::<TemplateState>(row, "state")?,
        origin_branch: parsed_option::<BranchId>(row, "origin_branch")?,
        tenant: row.get("tenant")?,
        origin_branch_name: parsed_option::<BranchName>(row, "origin_branch_name")?,
        source: from_json::<SourceIdentity>(row, "source")?,
        lsn: row.get("lsn")?,
        taken_at: egret_base::Timestamp::from_micros(row.get("taken_at")?),
        postgres_major: row.get("postgres_major")?,
        preload_libraries: row.get("preload_libraries")?,
        phases: from_json(row, "phases")?,
    })
}

#[cfg(test)]
mod tests;

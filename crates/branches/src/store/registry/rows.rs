//! The registry's SQL, and what lies between a row and its value.

use std::sync::Arc;

use egret_postgres::wire::scram::Verifier;
use egret_state::StateError;
use egret_state::rusqlite::{self, Connection, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{
    Branch, BranchId, BranchName, BranchState, RolePassword, SourceIdentity, Template, TemplateId,
    TemplateState,
};

type StateResult<T> = Result<T, StateError>;

pub(super) fn insert_branch(connection: &Connection, branch: &Branch) -> StateResult<()> {
    connection
        .prepare_cached(include_str!("../sql/insert_branch.sql"))?
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
            branch.superuser,
            branch.role_passwords,
            branch.waits_for_room,
            branch.notice,
        ])?;
    Ok(())
}

pub(super) fn update_branch(connection: &Connection, branch: &Branch) -> StateResult<()> {
    connection
        .prepare_cached(include_str!("../sql/update_branch.sql"))?
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
            branch.waits_for_room,
            branch.superuser,
            branch.notice,
        ])?;
    Ok(())
}

pub(super) fn lease_branch(connection: &Connection, branch: &Branch) -> StateResult<()> {
    let leased = connection
        .prepare_cached(include_str!("../sql/lease_branch.sql"))?
        .execute(params![
            branch.id.to_string(),
            branch.tenant,
            branch.name.as_str(),
            branch.state.as_str(),
            branch.from.to_string(),
            branch.protected,
            json(&branch.labels),
            branch.created_at.as_micros(),
            branch.ttl_ms.map(|ms| ms as i64),
            branch.expires_at.map(|at| at.as_micros()),
            branch.receipt.as_ref().map(json),
            branch.boot_id,
            branch.postmaster.map(|(pid, _)| pid),
            branch.postmaster.map(|(_, ticks)| ticks as i64),
        ])?;
    assert_eq!(leased, 1, "the row of branch {} is in the pool", branch.id);
    Ok(())
}

pub(super) fn change_branch(connection: &Connection, branch: &Branch) -> StateResult<()> {
    connection
        .prepare_cached(include_str!("../sql/change_branch.sql"))?
        .execute(params![
            branch.id.to_string(),
            branch.protected,
            branch.ttl_ms.map(|ms| ms as i64),
            branch.expires_at.map(|at| at.as_micros()),
            json(&branch.labels),
        ])?;
    Ok(())
}

pub(super) fn put_template(connection: &Connection, template: &Template) -> StateResult<()> {
    connection
        .prepare_cached(include_str!("../sql/put_template.sql"))?
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
            template.losses.as_ref().map(json),
            template.superuser,
        ])?;
    Ok(())
}

pub(super) fn branches(connection: &Connection) -> StateResult<Vec<Branch>> {
    let mut statement = connection.prepare("SELECT * FROM branch")?;
    let rows = statement.query_map([], branch_from)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn insert_role_password(
    connection: &Connection,
    branch: BranchId,
    password: &RolePassword,
) -> StateResult<()> {
    connection
        .prepare_cached(
            "INSERT INTO role_password (branch, role, verifier, valid_until) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            branch.to_string(),
            password.role,
            password.verifier.to_string(),
            password.valid_until.map(|at| at.as_micros()),
        ])?;
    Ok(())
}

pub(super) fn delete_role_passwords(connection: &Connection, branch: BranchId) -> StateResult<()> {
    connection.execute(
        "DELETE FROM role_password WHERE branch = ?1",
        [branch.to_string()],
    )?;
    Ok(())
}

pub(super) fn role_passwords(
    connection: &Connection,
) -> StateResult<Vec<(BranchId, RolePassword)>> {
    let mut statement = connection.prepare("SELECT * FROM role_password")?;
    let rows = statement.query_map([], role_password_from)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn role_password_from(row: &Row<'_>) -> rusqlite::Result<(BranchId, RolePassword)> {
    let verifier: String = row.get("verifier")?;
    let valid_until: Option<i64> = row.get("valid_until")?;
    let verifier = verifier
        .parse::<Verifier>()
        .map_err(|error| unreadable("verifier", error.to_string()))?;
    let password = RolePassword {
        role: row.get("role")?,
        verifier: Arc::new(verifier),
        valid_until: valid_until.map(egret_base::Timestamp::from_micros),
    };
    Ok((parsed::<BranchId>(row, "branch")?, password))
}

pub(super) fn templates(connection: &Connection) -> StateResult<Vec<Template>> {
    let mut statement = connection.prepare("SELECT * FROM template")?;
    let rows = statement.query_map([], template_from)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
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
    parse_json(&text, column)
}

fn parse_json<T: DeserializeOwned>(text: &str, column: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| unreadable(column, error.to_string()))
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
        superuser: row.get("superuser")?,
        role_passwords: row.get("role_passwords")?,
        waits_for_room: row.get("waits_for_room")?,
        notice: row.get("notice")?,
        protected: row.get("protected")?,
        settings: from_json(row, "settings")?,
        labels: from_json(row, "labels")?,
        created_at: egret_base::Timestamp::from_micros(row.get("created_at")?),
        ttl_ms: ttl_ms.and_then(|ms| u64::try_from(ms).ok()),
        expires_at: expires_at.map(egret_base::Timestamp::from_micros),
        failure: row.get("failure")?,
        receipt: receipt
            .map(|text| parse_json(&text, "receipt"))
            .transpose()?,
        boot_id: row.get("boot_id")?,
        postmaster: pid.zip(ticks.and_then(|ticks| u64::try_from(ticks).ok())),
    })
}

fn template_from(row: &Row<'_>) -> rusqlite::Result<Template> {
    let losses: Option<String> = row.get("losses")?;
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
        losses: losses.map(|text| parse_json(&text, "losses")).transpose()?,
        superuser: row.get("superuser")?,
    })
}

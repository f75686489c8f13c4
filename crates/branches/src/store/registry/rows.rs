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
    connection.prepare_cached(include_str!("../sql/insert_branch.sql"))?.execute(params![
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
        to_json(&branch.settings),
        to_json(&branch.labels),
        branch.created_at.as_micros(),
        branch.ttl_ms.map(|ms| ms as i64),
        branch.expires_at.map(|at| at.as_micros()),
        branch.failure,
        branch.receipt.as_ref().map(to_json),
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
    connection.prepare_cached(include_str!("../sql/update_branch.sql"))?.execute(params![
        branch.id.to_string(),
        branch.state.as_str(),
        branch.template.to_string(),
        branch.failure,
        branch.receipt.as_ref().map(to_json),
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
    let leased =
        connection.prepare_cached(include_str!("../sql/lease_branch.sql"))?.execute(params![
            branch.id.to_string(),
            branch.tenant,
            branch.name.as_str(),
            branch.state.as_str(),
            branch.from.to_string(),
            branch.protected,
            to_json(&branch.labels),
            branch.created_at.as_micros(),
            branch.ttl_ms.map(|ms| ms as i64),
            branch.expires_at.map(|at| at.as_micros()),
            branch.receipt.as_ref().map(to_json),
            branch.boot_id,
            branch.postmaster.map(|(pid, _)| pid),
            branch.postmaster.map(|(_, ticks)| ticks as i64),
        ])?;
    assert_eq!(leased, 1, "the row of branch {} is in the pool", branch.id);
    Ok(())
}

pub(super) fn update_user_fields(connection: &Connection, branch: &Branch) -> StateResult<()> {
    connection.prepare_cached(include_str!("../sql/change_branch.sql"))?.execute(params![
        branch.id.to_string(),
        branch.protected,
        branch.ttl_ms.map(|ms| ms as i64),
        branch.expires_at.map(|at| at.as_micros()),
        to_json(&branch.labels),
    ])?;
    Ok(())
}

pub(super) fn put_template(connection: &Connection, template: &Template) -> StateResult<()> {
    connection.prepare_cached(include_str!("../sql/put_template.sql"))?.execute(params![
        template.id.to_string(),
        template.state.as_str(),
        template.origin_branch.map(|id| id.to_string()),
        template.tenant,
        template.origin_branch_name.as_ref().map(BranchName::as_str),
        to_json(&template.source),
        template.lsn,
        template.taken_at.as_micros(),
        template.postgres_major,
        template.preload_libraries,
        to_json(&template.phases),
        template.losses.as_ref().map(to_json),
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
    connection.execute("DELETE FROM role_password WHERE branch = ?1", [branch.to_string()])?;
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
        .map_err(|error| column_error("verifier", error.to_string()))?;
    let password = RolePassword {
        role: row.get("role")?,
        verifier: Arc::new(verifier),
        valid_until: valid_until.map(egret_base::Timestamp::from_micros),
    };
    Ok((parse_column::<BranchId>(row, "branch")?, password))
}

pub(super) fn templates(connection: &Connection) -> StateResult<Vec<Template>> {
    let mut statement = connection.prepare("SELECT * FROM template")?;
    let rows = statement.query_map([], template_from)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("these values have text keys and always serialise")
}

/// A text column parsed into its type; what cannot be parsed is reported with the column's name.
fn parse_column<T: std::str::FromStr<Err = String>>(
    row: &Row<'_>,
    column: &str,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    text.parse().map_err(|message: String| column_error(column, message))
}

fn parse_optional_column<T: std::str::FromStr<Err = String>>(
    row: &Row<'_>,
    column: &str,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| text.parse().map_err(|message: String| column_error(column, message)))
        .transpose()
}

fn parse_json_column<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse_json(&text, column)
}

fn parse_json<T: DeserializeOwned>(text: &str, column: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| column_error(column, error.to_string()))
}

fn column_error(column: &str, message: String) -> rusqlite::Error {
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
        id: parse_column::<BranchId>(row, "id")?,
        tenant: row.get("tenant")?,
        name: parse_column::<BranchName>(row, "name")?,
        state: parse_column::<BranchState>(row, "state")?,
        template: parse_column::<TemplateId>(row, "template")?,
        parent_branch: parse_optional_column::<BranchName>(row, "parent_branch")?,
        from: parse_column(row, "origin")?,
        preset: parse_column(row, "preset")?,
        durable: row.get("durable")?,
        superuser: row.get("superuser")?,
        role_passwords: row.get("role_passwords")?,
        waits_for_room: row.get("waits_for_room")?,
        notice: row.get("notice")?,
        protected: row.get("protected")?,
        settings: parse_json_column(row, "settings")?,
        labels: parse_json_column(row, "labels")?,
        created_at: egret_base::Timestamp::from_micros(row.get("created_at")?),
        ttl_ms: ttl_ms.and_then(|ms| u64::try_from(ms).ok()),
        expires_at: expires_at.map(egret_base::Timestamp::from_micros),
        failure: row.get("failure")?,
        receipt: receipt.map(|text| parse_json(&text, "receipt")).transpose()?,
        boot_id: row.get("boot_id")?,
        postmaster: pid.zip(ticks.and_then(|ticks| u64::try_from(ticks).ok())),
    })
}

fn template_from(row: &Row<'_>) -> rusqlite::Result<Template> {
    let losses: Option<String> = row.get("losses")?;
    Ok(Template {
        id: parse_column::<TemplateId>(row, "id")?,
        state: parse_column::<TemplateState>(row, "state")?,
        origin_branch: parse_optional_column::<BranchId>(row, "origin_branch")?,
        tenant: row.get("tenant")?,
        origin_branch_name: parse_optional_column::<BranchName>(row, "origin_branch_name")?,
        source: parse_json_column::<SourceIdentity>(row, "source")?,
        lsn: row.get("lsn")?,
        taken_at: egret_base::Timestamp::from_micros(row.get("taken_at")?),
        postgres_major: row.get("postgres_major")?,
        preload_libraries: row.get("preload_libraries")?,
        phases: parse_json_column(row, "phases")?,
        losses: losses.map(|text| parse_json(&text, "losses")).transpose()?,
        superuser: row.get("superuser")?,
    })
}

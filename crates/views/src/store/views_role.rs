//! The role that owns views without a named owner, where Egret connects as a superuser.

use egret_postgres::tokio_postgres::GenericClient;

use crate::error::ViewsError;
use crate::model::Grants;

/// Owner of views without a named owner, where Egret connects as a superuser: see
/// `install/role.sql`.
pub(crate) const VIEWS_ROLE: &str = "egret_views";

/// Runs a statement that creates a temporary view, as [`VIEWS_ROLE`].
pub(crate) const PROBE_AS_VIEWS_ROLE: &str = "SELECT egret.probe_as_views($1)";

/// Key of the advisory lock for grants: concurrent updates of one catalogue row would fail. The
/// first eight bytes of SHA-256("egret/views/rights"), positive.
const GRANT_LOCK_KEY: i64 = 0x3e86_8d26_d020_589c;

/// Whether queries must run as [`VIEWS_ROLE`]: this session is a superuser's.
pub(crate) async fn runs_as_views_role(client: &impl GenericClient) -> Result<bool, ViewsError> {
    let sql = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The owner of a new view: never a superuser.
pub(crate) async fn choose_owner(
    client: &impl GenericClient,
    requested_owner: Option<&str>,
) -> Result<Option<String>, ViewsError> {
    if !runs_as_views_role(client).await? {
        return Ok(requested_owner.map(str::to_owned));
    }
    let Some(asked) = requested_owner else {
        return Ok(Some(VIEWS_ROLE.to_owned()));
    };
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND rolsuper)";
    let is_superuser: bool = client.query_one(sql, &[&asked]).await?.get(0);
    Ok(Some(if is_superuser { VIEWS_ROLE.to_owned() } else { asked.to_owned() }))
}

/// Grants [`VIEWS_ROLE`] the privileges that it lacks to read relations, and to resolve their
/// names.
///
/// # Errors
/// [`ViewsError::PrivilegeMissing`] if it lacks SELECT on one of them and may not be granted
/// anything.
pub(crate) async fn grant_select(
    transaction: &impl GenericClient,
    relations: &[u32],
    grants: Grants,
) -> Result<(), ViewsError> {
    let sql = include_str!("sql/missing_rights.sql");
    let missing = transaction.query(sql, &[&VIEWS_ROLE, &relations]).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let unreadable =
        missing.iter().find_map(|row| Some((row, row.get::<_, Option<String>>("relation")?)));
    if let Some((row, relation)) = unreadable.filter(|_| grants == Grants::Nothing) {
        return Err(ViewsError::PrivilegeMissing {
            what: format!("`{VIEWS_ROLE}` may not read {relation}, and only an admin may grant it"),
            grant: row.get("statement"),
        });
    }
    let lock = "SELECT pg_catalog.pg_advisory_xact_lock($1)";
    transaction.query_one(lock, &[&GRANT_LOCK_KEY]).await?;
    for row in transaction.query(sql, &[&VIEWS_ROLE, &relations]).await? {
        transaction.batch_execute(row.get("statement")).await?;
    }
    Ok(())
}

/// Makes [`VIEWS_ROLE`] the owner of a view, with the privileges that refreshes need.
pub(crate) async fn transfer_to_views_role(
    transaction: &impl GenericClient,
    view: i64,
) -> Result<(), ViewsError> {
    let sql = include_str!("sql/hand_over.sql");
    for row in transaction.query(sql, &[&view]).await? {
        transaction.batch_execute(row.get(0)).await?;
    }
    Ok(())
}

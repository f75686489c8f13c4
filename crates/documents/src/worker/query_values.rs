//! Completes the values at query paths: adds those of documents that existed before their path, and
//! deletes those of dropped paths.
//!
//! Several sessions may do this: each caller that declares collections, and periodically the owner.
//! Each holds a lock meanwhile. Progress is recorded with the values, so a later session goes on
//! where one has ended.

use std::time::Duration;

use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{Client, Error as PgError};

use crate::error::DocumentsError;
use crate::model::DocumentNumber;
use crate::store::collections;
use crate::store::query_values::{self, UnbuiltPaths};

/// Pause between two attempts to take the lock.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How often a transaction is repeated that a writer's has deadlocked with.
const DEADLOCK_RETRIES_MAX: u32 = 10;

/// Adds all values that are missing; waits for the lock.
///
/// On an error, the rest is added later by [`repair`].
pub(crate) async fn complete(client: &Client) -> Result<(), DocumentsError> {
    while !query_values::try_lock(client).await? {
        tokio::time::sleep(LOCK_RETRY_DELAY).await;
    }
    let result = add_values(client).await;
    unlock(client, result).await
}

/// Adds values that are missing and deletes those of dropped paths, unless another session holds
/// the lock.
pub(crate) async fn repair(client: &Client) -> Result<(), DocumentsError> {
    if query_values::are_complete(client).await? || !query_values::try_lock(client).await? {
        return Ok(());
    }
    let result = match add_values(client).await {
        Ok(()) => delete_dropped(client).await,
        Err(error) => Err(error),
    };
    unlock(client, result).await
}

async fn unlock(client: &Client, result: Result<(), DocumentsError>) -> Result<(), DocumentsError> {
    let unlock_result = query_values::unlock(client).await;
    result?;
    Ok(unlock_result?)
}

async fn add_values(client: &Client) -> Result<(), DocumentsError> {
    // First: no query uses these indexes, and so many of them can make every statement fail.
    for name in query_values::old_indexes(client).await? {
        query_values::drop_index(client, &name).await?;
    }
    for group in query_values::unbuilt_paths(client).await? {
        build(client, group).await?;
    }
    Ok(())
}

async fn delete_dropped(client: &Client) -> Result<(), DocumentsError> {
    query_values::drop_orphans(client).await?;
    for path in query_values::dropped_paths(client).await? {
        while !query_values::delete_values(client, path).await? {}
    }
    Ok(())
}

/// Adds the values of all documents, tenant after tenant. Documents of tenants that appear
/// meanwhile have theirs.
async fn build(client: &Client, mut paths: UnbuiltPaths) -> Result<(), DocumentsError> {
    let mut tenants: Vec<_> = collections::read_tenants(client).await?.into_values().collect();
    tenants.sort_unstable();
    tenants.retain(|tenant| *tenant >= paths.tenant);
    for tenant in tenants {
        if tenant > paths.tenant {
            (paths.tenant, paths.number) = (tenant, DocumentNumber::MIN);
        }
        while build_next(client, &mut paths).await? {}
    }
    Ok(query_values::activate(client, &paths.path_ids).await?)
}

/// Adds the values of the next documents. A writer may change several of them in another order.
async fn build_next(client: &Client, paths: &mut UnbuiltPaths) -> Result<bool, PgError> {
    let mut retries = 0;
    loop {
        match query_values::build_values(client, paths).await {
            Err(error)
                if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
                    && retries < DEADLOCK_RETRIES_MAX =>
            {
                retries += 1;
            }
            result => return result,
        }
    }
}

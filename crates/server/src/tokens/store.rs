//! The tokens' table in `state.db`; the only place with SQL.

use egret_base::Timestamp;
use egret_state::rusqlite::{self, Row, params};
use egret_state::{Database, Migration, StateError};

use super::model::Token;

pub(super) const MIGRATIONS: [Migration; 3] = [
    Migration {
        name: "tokens",
        sql: "CREATE TABLE token (
              id TEXT PRIMARY KEY,
              secret_sha256 BLOB NOT NULL CHECK (length(secret_sha256) = 32),
              name TEXT NOT NULL,
              tenant TEXT NOT NULL,
              scopes TEXT NOT NULL,
              created_at INTEGER NOT NULL,
              expires_at INTEGER,
              last_used_at INTEGER,
              revoked_at INTEGER) STRICT",
    },
    Migration {
        name: "claims",
        sql: "ALTER TABLE token ADD COLUMN claims TEXT NOT NULL DEFAULT '{}'",
    },
    // A token that was seen expired stays so, whatever the wall clock says later.
    Migration {
        name: "has_expired",
        sql: "ALTER TABLE token ADD COLUMN has_expired INTEGER NOT NULL DEFAULT 0",
    },
];

/// A row of a token that is not revoked.
pub(super) struct TokenRow {
    pub token: Token,
    pub secret_sha256: [u8; 32],
    /// Whether it was seen expired.
    pub has_expired: bool,
}

/// Every token that is not revoked.
pub(super) fn read_live(database: &Database) -> Result<Vec<TokenRow>, StateError> {
    let connection = database.lock();
    let mut statement = connection.prepare(
        "SELECT id, name, tenant, scopes, created_at, expires_at, last_used_at, secret_sha256, claims,
                has_expired
           FROM token WHERE revoked_at IS NULL",
    )?;
    let tokens = statement
        .query_map([], |row| {
            Ok(TokenRow {
                token: read_token(row)?,
                secret_sha256: row.get(7)?,
                has_expired: row.get(9)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(tokens)
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<Token> {
    let timestamp = |index| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_micros))
    };
    let scopes: String = row.get(3)?;
    let claims: String = row.get(8)?;
    let claims = serde_json::from_str(&claims).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(8, rusqlite::types::Type::Text, Box::new(error))
    })?;
    Ok(Token {
        id: row.get(0)?,
        name: row.get(1)?,
        tenant: row.get(2)?,
        scopes: scopes.split(' ').map(str::to_owned).collect(),
        claims,
        created_at: Timestamp::from_micros(row.get(4)?),
        expires_at: timestamp(5)?,
        last_used_at: timestamp(6)?,
    })
}

/// Inserts a new token.
pub(super) fn insert(
    database: &Database,
    token: &Token,
    secret_sha256: &[u8; 32],
) -> Result<(), StateError> {
    // No scope holds a space, so a space separates them.
    let scopes = token.scopes.join(" ");
    let claims = serde_json::to_string(&token.claims).expect("claims are text");
    database.lock().execute(
        "INSERT INTO token (id, secret_sha256, name, tenant, scopes, created_at, expires_at, claims)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            token.id,
            secret_sha256,
            token.name,
            token.tenant,
            scopes,
            token.created_at.as_micros(),
            token.expires_at.map(Timestamp::as_micros),
            claims,
        ],
    )?;
    Ok(())
}

/// Marks a token as revoked.
pub(super) fn revoke(database: &Database, id: &str, now: Timestamp) -> Result<(), StateError> {
    database
        .lock()
        .execute("UPDATE token SET revoked_at = ?2 WHERE id = ?1", params![id, now.as_micros()])?;
    Ok(())
}

/// Writes times of last use, each an id with microseconds since the Unix epoch.
pub(super) fn write_last_used(database: &Database, rows: &[(&str, i64)]) -> Result<(), StateError> {
    let mut connection = database.lock();
    let transaction = connection.transaction()?;
    {
        let mut statement =
            transaction.prepare("UPDATE token SET last_used_at = ?2 WHERE id = ?1")?;
        for (id, last_used_at) in rows {
            statement.execute(params![id, last_used_at])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Deletes tokens that were revoked or expired before `horizon`.
pub(super) fn delete_ended(database: &Database, horizon: Timestamp) -> Result<(), StateError> {
    database.lock().execute(
        "DELETE FROM token WHERE revoked_at <= ?1 OR expires_at <= ?1",
        [horizon.as_micros()],
    )?;
    Ok(())
}

/// Marks tokens as expired.
pub(super) fn write_expired(database: &Database, ids: &[&str]) -> Result<(), StateError> {
    let mut connection = database.lock();
    let transaction = connection.transaction()?;
    {
        let mut statement =
            transaction.prepare("UPDATE token SET has_expired = 1 WHERE id = ?1")?;
        for id in ids {
            statement.execute([id])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

//! Warm sessions: connected before a client asks, as the branch's own role.
//!
//! One answers queries through the API, again and again; the others each wait for a client of the
//! proxy, serve that one and are closed. A session is used only if its user could not tell it from
//! a fresh one: the startup parameters are the same, what an earlier query left is discarded, and
//! the defaults of role and database are still those that the session started with.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use egret_base::sync::lock;
use egret_postgres::databases::CONNECTABLE_DATABASES;
use egret_postgres::wire::{RawSession, Startup, WireError};

use super::warm_up::WarmUpPart;
use crate::engine::warm_session::{BYTES_MAX, ROWS_MAX};
use crate::engine::{BranchSlot, Inner};
use crate::engine::{Profile, Purpose, WarmSession};
use crate::model::{BranchId, TemplateId};
use crate::store::prepare::ROLE;

/// Settings that a client's parameters may name if sessions are to be made for them beforehand:
/// what drivers send. Anything else is its client's own affair.
const COMMON_PARAMETERS: [&str; 7] = [
    "application_name",
    "client_encoding",
    "datestyle",
    "extra_float_digits",
    "intervalstyle",
    "search_path",
    "timezone",
];

/// Startup parameters of sessions for queries through the API.
fn query_startup(database: &str) -> Startup {
    Startup {
        user: ROLE.to_owned(),
        database: database.to_owned(),
        parameters: vec![
            ("application_name".to_owned(), "egret/query".to_owned()),
            ("client_encoding".to_owned(), "UTF8".to_owned()),
        ],
    }
}

/// Whether the server is gone, for a moment (class 57P: it starts, stops or recovers) or for good.
fn is_server_gone(error: &WireError) -> bool {
    match error {
        WireError::Unreachable { .. } | WireError::Lost(_) => true,
        error => error.server().is_some_and(|refusal| refusal.sqlstate.starts_with("57P")),
    }
}

/// Whether a text may set a parameter of the user's own, such as `app.tenant`. DISCARD ALL leaves
/// such a parameter defined: `current_setting('app.tenant', true)` is empty then, and not NULL.
/// It leaves the seed of `random()` as well.
/// What functions and triggers define is not seen here.
pub(crate) fn may_define_parameters(sql: &str) -> bool {
    // Both with and without comments: what looks like a comment may be within a string.
    [sql, &without_comments(sql)].into_iter().any(sets_custom_parameter)
}

fn sets_custom_parameter(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase().replace('.', " . ");
    let words: Vec<&str> = sql
        .split(|c: char| c.is_whitespace() || matches!(c, ';' | '=' | ','))
        .filter(|word| !word.is_empty())
        .collect();
    let names_two_parts = |index: usize| {
        let mut rest = words[index + 1..].iter();
        let name = rest.find(|word| !matches!(**word, "session" | "local"));
        name.is_some() && rest.next() == Some(&".")
    };
    sql.contains("set_config")
        || sql.contains("setseed")
        || (0..words.len()).any(|at| words[at] == "set" && names_two_parts(at))
}

/// The text with each comment replaced by a blank, even where it is within a string.
fn without_comments(sql: &str) -> String {
    let mut rest = sql;
    let mut stripped = String::with_capacity(sql.len());
    while let Some(start) = rest.find("/*").into_iter().chain(rest.find("--")).min() {
        let end = if rest[start..].starts_with("--") { "\n" } else { "*/" };
        stripped.push_str(&rest[..start]);
        stripped.push(' ');
        let inside = &rest[start + 2..];
        rest = inside.find(end).map_or("", |length| &inside[length + end.len()..]);
    }
    stripped + rest
}

impl BranchSlot {
    /// Counts a use of the branch; returns the count before it.
    pub(crate) fn count_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::AcqRel)
    }

    fn take_warm_session(&self, purpose: Purpose, startup: &Startup) -> Option<WarmSession> {
        let mut warm_sessions = lock(&self.warm_sessions);
        let fits = |warm_session: &WarmSession| {
            warm_session.purpose == purpose && warm_session.startup == *startup
        };
        let index = warm_sessions.iter().position(fits)?;
        Some(warm_sessions.swap_remove(index))
    }

    /// Starts the idle time of the sessions that wait, when the branch is leased: in the pool they
    /// were not idle.
    pub(crate) fn restart_idle_time(&self) {
        let now = Instant::now();
        for warm_session in lock(&self.warm_sessions).iter_mut() {
            warm_session.idle_since = now;
        }
    }

    /// Whether no waiting session has ended or received anything.
    pub(crate) fn are_warm_sessions_quiet(&self) -> bool {
        let warm_sessions = lock(&self.warm_sessions);
        warm_sessions.iter().all(|resident| resident.session.is_quiet())
    }

    /// Closes the sessions that fit: what waits in a database keeps others from dropping it.
    pub(crate) fn close_warm_sessions(&self, fits: impl Fn(&WarmSession) -> bool) {
        let closing: Vec<WarmSession> =
            lock(&self.warm_sessions).extract_if(.., |warm_session| fits(warm_session)).collect();
        for resident in closing {
            tokio::spawn(resident.close());
        }
    }

    /// Closes the sessions whose parameters were learned from clients of other tenants.
    pub(crate) fn close_sessions_of_other_tenants(&self, tenant: &str) {
        self.close_warm_sessions(|warm_session| {
            let learned_from = warm_session.learned_from.as_deref();
            learned_from.is_some_and(|other| other != tenant)
        });
    }
}

impl Inner {
    /// A session for a query through the API: the resident one, else a new one.
    pub(crate) async fn acquire_query_session(
        &self,
        id: BranchId,
        slot: &BranchSlot,
        database: &str,
    ) -> Result<WarmSession, WireError> {
        let uses = slot.count_use();
        slot.close_warm_sessions(|warm_session| warm_session.startup.database != database);
        let startup = query_startup(database);
        if let Some(mut resident) = slot.take_warm_session(Purpose::Query, &startup)
            && let Ok(true) = resident.try_reset(uses).await
        {
            return Ok(resident);
        }
        // Boxed as it is rare: the future of every query would carry what it needs.
        Box::pin(WarmSession::connect(&self.paths.socket_dir(id), uses, Purpose::Query, startup))
            .await
    }

    /// Keeps a session for the next query, unless none are to be kept, one waits already, the
    /// branch has ended, or a session is in another database: it may want to drop or copy the
    /// database that this one would wait in.
    pub(crate) async fn release_query_session(
        &self,
        slot: &BranchSlot,
        mut warm_session: WarmSession,
    ) {
        warm_session.idle_since = Instant::now();
        let rejected = {
            let mut warm_sessions = lock(&slot.warm_sessions);
            let has_query_session =
                warm_sessions.iter().any(|other| other.purpose == Purpose::Query);
            let database = &warm_session.startup.database;
            let is_other_database_used =
                lock(&slot.databases).iter().any(|other| other != database);
            let has_ended = slot.postmaster().is_none() || !warm_session.session.is_idle();
            if self.config.pool_sessions == 0
                || has_query_session
                || is_other_database_used
                || has_ended
            {
                Some(warm_session)
            } else {
                warm_sessions.push(warm_session);
                None
            }
        };
        if let Some(resident) = rejected {
            resident.close().await;
        }
    }

    /// A session that waits for just such a client.
    pub(crate) async fn take_client_session(
        &self,
        slot: &BranchSlot,
        tenant: &str,
        database: &str,
        parameters: &[(String, String)],
    ) -> Option<RawSession> {
        let uses = slot.count_use();
        self.record_client_profile(tenant, database, parameters);
        slot.close_warm_sessions(|warm_session| warm_session.startup.database != database);
        let startup = Startup {
            user: ROLE.to_owned(),
            database: database.to_owned(),
            parameters: parameters.to_vec(),
        };
        let mut resident = slot.take_warm_session(Purpose::Client, &startup)?;
        match resident.try_reset(uses).await {
            Ok(true) => resident.session.into_raw().ok(),
            _ => {
                tokio::spawn(resident.close());
                None
            }
        }
    }

    /// Remembers what a client asked for, so that sessions are made for the next one like it.
    fn record_client_profile(&self, tenant: &str, database: &str, parameters: &[(String, String)]) {
        let is_common = |(name, _): &(String, String)| {
            COMMON_PARAMETERS.contains(&name.to_ascii_lowercase().as_str())
        };
        if parameters.iter().all(is_common) {
            *lock(&self.pool.profile) = Profile {
                tenant: Some(tenant.to_owned()),
                database: Some(database.to_owned()),
                parameters: parameters.to_vec(),
            };
        }
    }

    /// Connects what a branch of the pool keeps ready. Sessions that the server refuses are left
    /// out: that is the user's own configuration (a login trigger, a limit on connections), and
    /// without a warm session a client gets a fresh one.
    ///
    /// # Errors
    /// [`WireError`] when there is no server to talk to.
    pub(crate) async fn connect_warm_sessions(
        self: &Arc<Self>,
        id: BranchId,
        template: TemplateId,
        slot: &BranchSlot,
        database: &str,
    ) -> Result<(), WireError> {
        // Sessions of an earlier attempt, or from before they were lost, are dropped.
        slot.drop_warm_sessions();
        let profile = lock(&self.pool.profile).clone();
        let client = Startup {
            user: ROLE.to_owned(),
            database: profile.database.unwrap_or_else(|| database.to_owned()),
            parameters: profile.parameters.clone(),
        };
        let mut startups = vec![(Purpose::Query, query_startup(database))];
        for _ in 0..self.config.pool_sessions {
            startups.push((Purpose::Client, client.clone()));
        }
        let uses = slot.uses.load(Ordering::Acquire);
        for (purpose, startup) in startups {
            let connecting = async {
                let mut warm_session =
                    WarmSession::connect(&self.paths.socket_dir(id), uses, purpose, startup)
                        .await?;
                if self.config.pool_rehearsal {
                    let database = &warm_session.startup.database;
                    let part = match purpose {
                        Purpose::Query => WarmUpPart::First,
                        Purpose::Client => WarmUpPart::Further,
                    };
                    let session = &mut warm_session.session;
                    self.warm_up(session, template, database, part).await?;
                }
                Ok(warm_session)
            };
            match connecting.await {
                Ok(mut resident) => {
                    if purpose == Purpose::Client {
                        resident.learned_from.clone_from(&profile.tenant);
                    }
                    lock(&slot.warm_sessions).push(resident);
                }
                Err(error) if is_server_gone(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!(branch = %id, ?purpose, %error, "no session waits");
                    if purpose == Purpose::Client {
                        // Its database may not exist; the next session may still succeed.
                        *lock(&self.pool.profile) = Profile::default();
                    }
                }
            }
        }
        Ok(())
    }

    /// The databases of a branch, asked on the session that waits for queries; `None` without one.
    pub(crate) async fn list_databases_on_warm_session(
        &self,
        slot: &BranchSlot,
    ) -> Option<Vec<String>> {
        let mut warm_session = {
            let mut warm_sessions = lock(&slot.warm_sessions);
            let is_query_session = |resident: &WarmSession| resident.purpose == Purpose::Query;
            let index = warm_sessions.iter().position(is_query_session)?;
            warm_sessions.swap_remove(index)
        };
        if !warm_session.session.is_quiet() {
            return None;
        }
        let query = warm_session.session.query(CONNECTABLE_DATABASES, &[], ROWS_MAX, BYTES_MAX);
        let timeout = self.config.query_timeout.duration();
        let answer = tokio::time::timeout(timeout, query).await.ok()?.ok()?;
        self.release_query_session(slot, warm_session).await;
        let names = answer.rows.into_iter();
        Some(names.filter_map(|row| row.into_iter().next()?).collect())
    }
}

#[cfg(test)]
mod tests;

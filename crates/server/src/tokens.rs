//! API tokens with scopes, a tenant and an end, checked from memory.
//!
//! `state.db` holds every token's SHA-256, never its secret. All tokens are in memory as well, so
//! that a request touches no disk; the number of tokens is bounded. The time of last use is noted
//! in memory and written behind by [`Tokens::write_last_used`], at most once a minute per token.

mod creator;
mod live;
mod model;
mod scope;
mod secret;
mod store;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use egret_base::sync::{lock, read_lock, write_lock};
use egret_base::{Clock, CodedError, Entropy, Kind, Limit, LimitExceeded, Timestamp, durable};
use egret_state::{Database, StateError, Tables};

use crate::oidc::JwtRefusal;

pub use live::LiveToken;
pub(crate) use live::TokenEnd;
pub(crate) use model::{
    CLAIM_LENGTH_MAX, CLAIM_VALUES_MAX, CLAIMS_MAX, NAME_LENGTH_MAX, SCOPES_MAX, TENANT_LENGTH_MAX,
    TTL_MS_MAX, check_claims, check_tenant, printable_name,
};
pub use model::{DEFAULT_TENANT, NewToken, Token, TokenRequest};
pub use scope::{ADMIN, Reach, Scope, ScopeError};
pub use secret::{MalformedToken, PresentedToken};

/// Most tokens that are neither revoked nor swept away after their end.
pub const TOKENS_MAX: Limit = Limit::new("tokens_max", 10_000);

/// Most of them of a tenant other than the default one, whose administrator makes them.
pub(crate) const TENANT_TOKENS_MAX: Limit = Limit::new("tenant_tokens_max", 1_000);

/// The last admin token is revoked without `force` only if another one is valid for at least this
/// long.
const ADMIN_VALIDITY_MIN: Duration = Duration::from_secs(86_400);

/// How long revoked and expired tokens are kept in `state.db`, for later inspection.
const ENDED_RETENTION: Duration = Duration::from_secs(30 * 86_400);

/// Why a token is not accepted, not made or not found.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The request carries no token.
    #[error("no token: send the header `Authorization: Bearer egret_…`")]
    Missing,
    /// What was sent is no token of this server, or is revoked. Says no more, so as to tell a
    /// guesser nothing.
    #[error("the token is not valid: it is malformed, unknown or revoked")]
    Invalid,
    /// A token of an OpenID Connect provider is not accepted.
    #[error(transparent)]
    Jwt(JwtRefusal),
    /// The token's time is over.
    #[error("the token expired at {at}: ask for a new one")]
    Expired {
        /// The moment at which it expired.
        at: Timestamp,
    },
    /// The token lacks a scope.
    #[error("the token lacks the scope `{scope}`: use one that has it")]
    ScopeMissing {
        /// The scope that it lacks.
        scope: String,
    },
    /// The operation concerns the whole server, and the token is of another tenant than the
    /// operator's.
    #[error("this operation concerns the whole server: use a token of tenant `{DEFAULT_TENANT}`")]
    OperatorOnly,
    /// The token would make one with more rights than its own.
    #[error("a token cannot create one with more rights than its own: {reason}")]
    ExceedsCreator {
        /// Which right it lacks.
        reason: String,
    },
    /// A scope cannot be read or is not known.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// A field of the request for a new token is out of range.
    #[error("{field}: {message}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// No live token has this id.
    #[error("there is no token `{id}`")]
    NotFound {
        /// The id asked for.
        id: String,
    },
    /// Without this token there would be none for the operator.
    #[error(
        "token `{id}` is the last of tenant `{DEFAULT_TENANT}` with scope `{ADMIN}`: create another one first, or set `force` to revoke it anyway"
    )]
    LastAdmin {
        /// Public id of the token.
        id: String,
    },
    /// There are too many tokens.
    #[error("too many tokens: {0}; revoke some first")]
    TooMany(#[from] LimitExceeded),
    /// `state.db` could not be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The admin token's file could not be written.
    #[error("cannot write the admin token to {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl CodedError for TokenError {
    fn code(&self) -> &'static str {
        match self {
            TokenError::Missing => "token_missing",
            TokenError::Invalid => "token_invalid",
            TokenError::Jwt(refusal) => refusal.code(),
            TokenError::Expired { .. } => "token_expired",
            TokenError::ScopeMissing { .. } => "scope_missing",
            TokenError::OperatorOnly => "operator_only",
            TokenError::ExceedsCreator { .. } => "token_exceeds_creator",
            TokenError::Scope(_) => "scope_invalid",
            TokenError::Field { .. } => "token_field_invalid",
            TokenError::NotFound { .. } => "token_not_found",
            TokenError::LastAdmin { .. } => "token_last_admin",
            TokenError::TooMany(exceeded) => exceeded.name,
            TokenError::State(error) => error.code(),
            TokenError::File { .. } => "token_file",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            TokenError::Missing | TokenError::Invalid | TokenError::Expired { .. } => {
                Kind::Unauthenticated
            }
            TokenError::Jwt(refusal) => refusal.kind(),
            TokenError::ScopeMissing { .. }
            | TokenError::OperatorOnly
            | TokenError::ExceedsCreator { .. } => Kind::Denied,
            TokenError::Scope(_) | TokenError::Field { .. } => Kind::Invalid,
            TokenError::NotFound { .. } => Kind::NotFound,
            TokenError::LastAdmin { .. } => Kind::Conflict,
            TokenError::TooMany(_) => Kind::LimitReached,
            TokenError::State(error) => error.kind(),
            TokenError::File { .. } => Kind::Internal,
        }
    }
}

/// The token store: `state.db` and its copy in memory.
pub struct Tokens {
    database: Database,
    areas: Vec<&'static str>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    live_tokens: RwLock<HashMap<String, Arc<LiveToken>>>,
    /// Held over a change of `state.db` and memory together, so that the two agree.
    change_lock: Mutex<()>,
}

impl Tokens {
    /// The tables of `state.db` that belong to this store.
    pub const TABLES: Tables = Tables { component: "tokens", migrations: &store::MIGRATIONS };

    /// Opens the store in the `state.db` at `state_path`.
    ///
    /// `engines` are the names before the colon that scopes may have, beside the server's own.
    ///
    /// # Errors
    /// [`TokenError::State`] when `state.db` cannot be used.
    pub fn open(
        state_path: &Path,
        engines: &[&'static str],
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, TokenError> {
        let Tables { component, migrations } = Self::TABLES;
        let database = Database::open(state_path, component, migrations)?;
        store::delete_ended(&database, subtract_duration(clock.now(), ENDED_RETENTION))?;
        let live_tokens = store::read_live(&database)?
            .into_iter()
            .map(|row| {
                let token = if row.has_expired {
                    LiveToken::new_expired(row.token, row.secret_sha256)
                } else {
                    LiveToken::new(row.token, row.secret_sha256)
                };
                (token.id.clone(), Arc::new(token))
            })
            .collect();
        Ok(Self {
            database,
            areas: scope::SERVER_AREAS.iter().chain(engines).copied().collect(),
            clock,
            entropy,
            live_tokens: RwLock::new(live_tokens),
            change_lock: Mutex::new(()),
        })
    }

    /// Reads a scope and checks that its area is a known one.
    ///
    /// # Errors
    /// [`ScopeError`] naming the known areas.
    pub(crate) fn parse_scope(&self, text: &str) -> Result<Scope, ScopeError> {
        Scope::parse(text, &self.areas)
    }

    /// The scopes that are accepted, as a regular expression.
    pub(crate) fn scope_pattern(&self) -> String {
        Scope::pattern(&self.areas)
    }

    /// Makes a token; blocks on the disk. The secret is in the result and nowhere else.
    ///
    /// # Errors
    /// [`TokenError::Field`] and [`TokenError::Scope`] for bad input, [`TokenError::TooMany`] over
    /// [`TOKENS_MAX`].
    pub fn create(&self, request: &TokenRequest) -> Result<NewToken, TokenError> {
        let (token, presented) = self.draft_token(request)?;
        self.insert_token(token, &presented)
    }

    /// Whether a live token of this id belongs to a tenant.
    pub(crate) fn has_token_of_tenant(&self, id: &str, tenant: &str) -> bool {
        let live_tokens = self.read_live();
        live_tokens.get(id).is_some_and(|live| live.tenant == tenant)
    }

    /// Every token that is not revoked, oldest first; expired ones stay in the list until swept.
    pub fn list(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> =
            self.read_live().values().map(|live| live.to_token()).collect();
        tokens.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        tokens
    }

    /// Revokes a token at once; blocks on the disk. The operator's last one with scope `admin`
    /// takes `force`.
    ///
    /// # Errors
    /// [`TokenError::NotFound`] when no live token has this id; [`TokenError::LastAdmin`].
    pub fn revoke(&self, id: &str, force: bool) -> Result<(), TokenError> {
        let _change = self.lock_changes();
        if !self.read_live().contains_key(id) {
            return Err(TokenError::NotFound { id: id.to_owned() });
        }
        if !force && self.is_last_admin(id) {
            return Err(TokenError::LastAdmin { id: id.to_owned() });
        }
        store::revoke(&self.database, id, self.clock.now())?;
        if let Some(token) = self.write_live().remove(id) {
            token.end(TokenEnd::Revoked);
        }
        Ok(())
    }

    /// Ends the tokens whose time has come, and with them the requests that hold them; touches no
    /// disk. Returns whether there are expirations to be written.
    pub(crate) fn end_expired(&self) -> bool {
        let now = self.clock.now();
        let mut has_unwritten = false;
        for token in self.read_live().values() {
            has_unwritten |= token.end_if_expired(now) && token.has_unwritten_end();
        }
        has_unwritten
    }

    /// Writes which tokens have expired, so that they stay expired over a restart even if the wall
    /// clock was set back; blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError::State`]; the next call writes them then.
    pub(crate) fn write_expirations(&self) -> Result<(), TokenError> {
        let unwritten: Vec<Arc<LiveToken>> =
            self.read_live().values().filter(|live| live.has_unwritten_end()).cloned().collect();
        let ids: Vec<&str> = unwritten.iter().map(|live| live.id.as_str()).collect();
        store::write_expired(&self.database, &ids)?;
        unwritten.iter().for_each(|live| live.mark_end_written());
        Ok(())
    }

    /// Looks up the token with this text; touches no disk.
    ///
    /// # Errors
    /// [`TokenError::Invalid`] or [`TokenError::Expired`].
    pub fn authenticate(&self, text: &str) -> Result<Arc<LiveToken>, TokenError> {
        let presented =
            PresentedToken::parse(text).map_err(|MalformedToken| TokenError::Invalid)?;
        let token = self.read_live().get(presented.id()).cloned();
        // An unknown id costs the same comparison as a known one.
        let expected = token.as_ref().map_or([0; 32], |live| live.secret_sha256);
        let matches = presented.matches(&expected);
        let live = token.filter(|_| matches).ok_or(TokenError::Invalid)?;
        self.record_use(&live)?;
        Ok(live)
    }

    /// Notes the use of a token, unless it has ended.
    ///
    /// # Errors
    /// [`TokenError`]: why it is not accepted any more.
    pub(crate) fn record_use(&self, token: &LiveToken) -> Result<(), TokenError> {
        let now = self.clock.now();
        token.end_if_expired(now);
        if let Some(refusal) = token.refusal() {
            return Err(refusal);
        }
        token.record_use(now);
        Ok(())
    }

    /// Writes the times of last use that `state.db` lacks; blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError::State`]; the times are written by the next call then.
    pub(crate) fn write_last_used(&self) -> Result<(), TokenError> {
        let unwritten: Vec<(Arc<LiveToken>, i64)> = self
            .read_live()
            .values()
            .filter_map(|live| Some((live.clone(), live.unwritten_use()?)))
            .collect();
        if unwritten.is_empty() {
            return Ok(());
        }
        let rows: Vec<(&str, i64)> =
            unwritten.iter().map(|(live, used)| (live.id.as_str(), *used)).collect();
        store::write_last_used(&self.database, &rows)?;
        for (live, used) in &unwritten {
            live.mark_use_written(*used);
        }
        Ok(())
    }

    /// Creates an admin token if there is none; blocks on the disk.
    ///
    /// When there is none (first start, or `state.db` was rebuilt) one is made, written to `path`
    /// with mode 0600 and returned, to be shown once.
    ///
    /// # Errors
    /// [`TokenError::File`] or [`TokenError::State`].
    pub fn ensure_admin(&self, path: &Path) -> Result<Option<NewToken>, TokenError> {
        let now = self.clock.now();
        if self.read_live().values().any(|live| is_admin(live, now)) {
            return Ok(None);
        }
        let (token, presented) = self.draft_token(&TokenRequest {
            name: "first-start".to_owned(),
            scopes: vec![ADMIN.to_owned()],
            claims: BTreeMap::new(),
            tenant: None,
            ttl_ms: None,
        })?;
        // Write the file first: a crash in between leaves a file that the next start replaces,
        // rather than an admin token whose secret is lost.
        let text = format!("{}\n", presented.text().as_str());
        durable::write_file(path, text.as_bytes(), 0o600)
            .map_err(|source| TokenError::File { path: path.to_owned(), source })?;
        self.insert_token(token, &presented).map(Some)
    }

    /// Whether a token is an admin token of the operator, and no other one is valid for long enough
    /// to replace it.
    fn is_last_admin(&self, id: &str) -> bool {
        let (now, live) = (self.clock.now(), self.read_live());
        let admins: Vec<_> = live.values().filter(|live| is_admin(live, now)).collect();
        let is_long_valid = |live: &LiveToken| {
            let until = live.expires_at.map(|at| subtract_duration(at, ADMIN_VALIDITY_MIN));
            live.id != id && until.is_none_or(|until| until >= now)
        };
        admins.iter().any(|live| live.id == id) && !admins.iter().any(|live| is_long_valid(live))
    }

    fn draft_token(&self, request: &TokenRequest) -> Result<(Token, PresentedToken), TokenError> {
        let now = self.clock.now();
        let presented = PresentedToken::generate(self.entropy.as_ref());
        let token = request.validate(presented.id(), now, &self.areas)?;
        Ok((token, presented))
    }

    fn insert_token(
        &self,
        token: Token,
        presented: &PresentedToken,
    ) -> Result<NewToken, TokenError> {
        let _change = self.lock_changes();
        self.sweep()?;
        TOKENS_MAX.check(self.read_live().len() as u64 + 1)?;
        if token.tenant != DEFAULT_TENANT {
            let is_same_tenant = |live: &&Arc<LiveToken>| live.tenant == token.tenant;
            let count = self.read_live().values().filter(is_same_tenant).count();
            TENANT_TOKENS_MAX.check(count as u64 + 1)?;
        }
        let secret_sha256 = presented.sha256();
        store::insert(&self.database, &token, &secret_sha256)?;
        let live = Arc::new(LiveToken::new(token.clone(), secret_sha256));
        self.write_live().insert(token.id.clone(), live);
        Ok(NewToken { details: token, token: presented.text() })
    }

    /// Deletes tokens whose retention after their end is over, so that neither the file nor memory
    /// grows with time.
    fn sweep(&self) -> Result<(), TokenError> {
        let horizon = subtract_duration(self.clock.now(), ENDED_RETENTION);
        store::delete_ended(&self.database, horizon)?;
        self.write_live().retain(|_, live| live.expires_at.is_none_or(|at| at > horizon));
        Ok(())
    }

    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        lock(&self.change_lock)
    }

    fn read_live(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, Arc<LiveToken>>> {
        // The map is changed by single calls only, so a panic elsewhere leaves it whole.
        read_lock(&self.live_tokens)
    }

    fn write_live(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, Arc<LiveToken>>> {
        write_lock(&self.live_tokens)
    }
}

/// Whether a token lets the operator do everything at this time.
fn is_admin(token: &LiveToken, now: Timestamp) -> bool {
    !token.end_if_expired(now)
        && token.tenant == DEFAULT_TENANT
        && token.scopes.iter().any(|scope| scope == ADMIN)
}

fn subtract_duration(now: Timestamp, duration: Duration) -> Timestamp {
    let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(micros))
}

#[cfg(test)]
mod tests;

//! A token as held in memory, with the signal that notifies open requests of its end.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use egret_base::Timestamp;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::TokenError;
use super::model::Token;

/// Resolution of the time of last use.
const LAST_USED_RESOLUTION: Duration = Duration::from_secs(60);

const NEVER: i64 = i64::MIN;

/// Why a token is no longer valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenEnd {
    Revoked,
    Expired { at: Timestamp },
}

/// A token that was valid when it was looked up. It derefs to its [`Token`], which does not change.
#[derive(Debug)]
pub struct LiveToken {
    token: Token,
    pub(super) secret_sha256: [u8; 32],
    /// Microseconds since the Unix epoch; [`NEVER`] before the first use.
    last_used: AtomicI64,
    /// The value of `last_used` that `state.db` has.
    last_used_written: AtomicI64,
    /// Set once: an end is final, even if the wall clock is set back afterwards.
    end: OnceLock<TokenEnd>,
    /// Whether `state.db` knows that the token has expired.
    is_end_written: AtomicBool,
    end_signal: CancellationToken,
}

impl Deref for LiveToken {
    type Target = Token;

    fn deref(&self) -> &Token {
        &self.token
    }
}

impl LiveToken {
    pub(super) fn new(token: Token, secret_sha256: [u8; 32]) -> Self {
        let last_used = token.last_used_at.map_or(NEVER, Timestamp::as_micros);
        Self {
            token,
            secret_sha256,
            last_used: AtomicI64::new(last_used),
            last_used_written: AtomicI64::new(last_used),
            end: OnceLock::new(),
            is_end_written: AtomicBool::new(false),
            end_signal: CancellationToken::new(),
        }
    }

    /// A token that `state.db` says has been seen expired.
    pub(super) fn new_expired(token: Token, secret_sha256: [u8; 32]) -> Self {
        let live = Self::new(token, secret_sha256);
        let at = live.token.expires_at.unwrap_or(live.token.created_at);
        live.end(TokenEnd::Expired { at });
        live.is_end_written.store(true, Ordering::Release);
        live
    }

    /// A token that is not in the store: its holder proves it in another way than by a secret of
    /// Egret's.
    pub(crate) fn without_secret(token: Token, used_at: Timestamp) -> Self {
        let live = Self::new(token, [0; 32]);
        live.record_use(used_at);
        live
    }

    /// Ends the token and wakes every request that holds it.
    pub(crate) fn end(&self, end: TokenEnd) {
        if self.end.set(end).is_ok() {
            self.end_signal.cancel();
        }
    }

    /// Ends the token if its time has come; returns whether it has ended by now.
    pub(crate) fn end_if_expired(&self, now: Timestamp) -> bool {
        if self.end.get().is_some() {
            return true;
        }
        match self.token.expires_at.filter(|at| *at <= now) {
            Some(at) => {
                self.end(TokenEnd::Expired { at });
                true
            }
            None => false,
        }
    }

    /// Why the token is not accepted any more; `None` while it is.
    pub(crate) fn refusal(&self) -> Option<TokenError> {
        Some(match *self.end.get()? {
            TokenEnd::Revoked => TokenError::Invalid,
            TokenEnd::Expired { at } => TokenError::Expired { at },
        })
    }

    /// Completes when the token ends.
    pub(crate) fn await_end(&self) -> WaitForCancellationFutureOwned {
        self.end_signal.clone().cancelled_owned()
    }

    pub(super) fn is_expired(&self) -> bool {
        matches!(self.end.get(), Some(TokenEnd::Expired { .. }))
    }

    /// Whether the token expired without `state.db` knowing yet.
    pub(super) fn has_unwritten_end(&self) -> bool {
        self.is_expired() && !self.is_end_written.load(Ordering::Acquire)
    }

    pub(super) fn mark_end_written(&self) {
        self.is_end_written.store(true, Ordering::Release);
    }

    /// Notes a use, to the minute.
    pub(crate) fn record_use(&self, now: Timestamp) {
        let previous = self.last_used.load(Ordering::Relaxed);
        if previous == NEVER || now.since(Timestamp::from_micros(previous)) >= LAST_USED_RESOLUTION
        {
            self.last_used.store(now.as_micros(), Ordering::Relaxed);
        }
    }

    /// When it was last used, to the minute.
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        let last_used = self.last_used.load(Ordering::Relaxed);
        (last_used != NEVER).then(|| Timestamp::from_micros(last_used))
    }

    /// The time of last use that `state.db` lacks.
    pub(super) fn unwritten_use(&self) -> Option<i64> {
        let last_used = self.last_used.load(Ordering::Relaxed);
        (last_used != self.last_used_written.load(Ordering::Relaxed)).then_some(last_used)
    }

    pub(super) fn mark_use_written(&self, last_used: i64) {
        self.last_used_written.store(last_used, Ordering::Relaxed);
    }

    /// The token as it is shown, with its time of last use.
    pub(super) fn to_token(&self) -> Token {
        Token { last_used_at: self.last_used(), ..self.token.clone() }
    }
}

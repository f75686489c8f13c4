//! Whether a running server accepts sessions.
//!
//! A postmaster lives through crash recovery: when one of its processes was killed or has panicked
//! it ends all sessions, and refuses new ones until recovery is over. One session is kept open, so
//! that its end reports a crash at once. It is replaced from time to time, because a postmaster
//! that can no longer fork does not end its sessions.

use std::convert::Infallible;
use std::time::Duration;

use egret_base::Condition;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::error::describe;
use crate::postmaster::Postmaster;

/// How often the postmaster and the session are looked at.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// After so many rounds the session is replaced by a new one.
const ROUNDS_PER_SESSION: u32 = 10;
/// The wait after an attempt that opened no session, before that is reported and the next one
/// begins.
const RETRY_WAIT: Duration = Duration::from_millis(100);
/// How long the server may take to open a session, or to answer an empty command.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Watches whether a server accepts sessions, for as long as the future is polled. `report` is
/// called with the outcome of every attempt to open one; the error says why there is none.
pub(crate) async fn watch_sessions(
    postmaster: &Postmaster,
    connection: &tokio_postgres::Config,
    mut report: impl FnMut(Result<(), SessionRefusal>),
) -> Infallible {
    let fault = Condition::new("postgres_not_accepting", "embedded server");
    let mut kept_session = None;
    loop {
        match open_probe(postmaster, connection).await {
            Ok(session) => {
                fault.recover("the embedded server accepts sessions again");
                report(Ok(()));
                kept_session = watch_session(postmaster, session.or(kept_session)).await;
            }
            Err(reason) => {
                // If the postmaster itself has ended, the caller notices that meanwhile.
                tokio::time::sleep(RETRY_WAIT).await;
                fault.fail(&reason, "the embedded server does not accept sessions");
                kept_session = check_session(kept_session).await;
                report(Err(SessionRefusal {
                    reason,
                    answers_open_sessions: kept_session.is_some(),
                }));
            }
        }
    }
}

/// Why a server opens no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRefusal {
    pub(crate) reason: String,
    /// Whether a session that was open before is still answered.
    pub(crate) answers_open_sessions: bool,
}

/// A session and the task that drives its connection, which ends with it.
struct ProbeSession {
    client: Client,
    driver: JoinHandle<()>,
}

/// Opens a session; `None` where the server refuses this one alone, such as when all connections
/// are taken.
async fn open_probe(
    postmaster: &Postmaster,
    connection: &tokio_postgres::Config,
) -> Result<Option<ProbeSession>, String> {
    if postmaster.is_stopped() {
        return Err("its postmaster is stopped by a signal: continue it with SIGCONT".to_owned());
    }
    let connecting = tokio::time::timeout(ANSWER_MAX, connection.connect(NoTls));
    match connecting.await {
        Err(_) => Err(format!("it does not answer within {ANSWER_MAX:?}")),
        Ok(Err(error)) if shows_live_server(&error) => Ok(None),
        Ok(Err(error)) => Err(describe(&error)),
        Ok(Ok((client, driver))) => {
            let driver = tokio::spawn(async move {
                if let Err(error) = driver.await {
                    tracing::debug!(error = describe(&error), "the probe's session ended");
                }
            });
            Ok(Some(ProbeSession { client, driver }))
        }
    }
}

/// Whether a refusal comes of a server that accepts sessions: the database is gone or closed, all
/// connections are taken, or the role may not enter.
fn shows_live_server(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        ]
        .contains(code)
            || code.code().starts_with("28")
    })
}

/// The session, if it answers.
async fn check_session(session: Option<ProbeSession>) -> Option<ProbeSession> {
    let session = session?;
    let answer = tokio::time::timeout(ANSWER_MAX, session.client.batch_execute("")).await;
    matches!(answer, Ok(Ok(()))).then_some(session)
}

/// Returns when the session is to be replaced: it has ended, gives no answer or is old, or the
/// postmaster is stopped. What is returned may still answer.
async fn watch_session(
    postmaster: &Postmaster,
    session: Option<ProbeSession>,
) -> Option<ProbeSession> {
    let Some(mut session) = session else {
        tokio::time::sleep(ROUND_INTERVAL).await;
        return None;
    };
    for _ in 0..ROUNDS_PER_SESSION {
        let has_ended = tokio::select! {
            _ = &mut session.driver => true,
            () = tokio::time::sleep(ROUND_INTERVAL) => false,
        };
        if has_ended {
            return None;
        }
        if postmaster.is_stopped() {
            break;
        }
        session = check_session(Some(session)).await?;
    }
    Some(session)
}

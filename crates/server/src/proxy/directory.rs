//! The interface through which the proxy looks up branches and opens them.

use std::path::PathBuf;
use std::sync::Arc;

use egret_base::lifecycle::BoxFuture;
use egret_branches::model::BranchId;
use egret_postgres::wire::RawSession;
use egret_postgres::wire::scram::Verifier;

use super::route::Route;

/// Finds branches, their credentials and their servers.
pub trait Directory: Send + Sync + 'static {
    /// What a client that names `user` has to prove. Called before authentication, so it must not
    /// wake or start anything.
    ///
    /// # Errors
    /// A [`ConnectionRefusal`]. One with SQLSTATE 3D000 says that there is no such branch, which a
    /// client without a password must not learn: it is refused at the end of an exchange that no
    /// password can pass.
    fn lookup<'a>(
        &'a self,
        user: &'a str,
        route: &'a Route,
    ) -> BoxFuture<'a, Result<Entry, ConnectionRefusal>>;

    /// A verifier that no password fits, for a branch that does not exist. The same for all users
    /// of one route, and after a restart, as that of a branch is. None while the directory cannot
    /// tell which branches exist.
    fn decoy_verifier(&self, route: &Route) -> Option<Verifier>;

    /// Where the branch's server listens. Called after authentication: wakes a suspended branch and
    /// waits, within bounds, while it starts or is reset. The session counts until the guard is
    /// dropped. `entry` is the result of [`Directory::lookup`], so that a client that has proved
    /// the password of one branch does not reach another that has taken its name meanwhile.
    /// `parameters` are the client's own settings. The future is dropped when the client
    /// disconnects meanwhile.
    ///
    /// # Errors
    /// A [`ConnectionRefusal`] the client sees.
    fn attach<'a>(
        &'a self,
        route: &'a Route,
        entry: &'a Entry,
        parameters: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Backend, ConnectionRefusal>>;
}

/// The credentials of a branch.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The branch; another one of the same name has another id.
    pub branch: BranchId,
    /// The role that the client has to name.
    pub role: String,
    /// What checks the password.
    pub verifier: Arc<Verifier>,
}

/// A branch's server, ready for a session.
pub struct Backend {
    /// The directory of its socket.
    pub socket_dir: PathBuf,
    /// The port in its socket's name.
    pub port: u16,
    /// The role to connect as.
    pub role: String,
    /// A session that was connected beforehand with just these parameters, where there is one.
    pub resident: Option<RawSession>,
    /// Counts the session while it lives.
    pub guard: Box<dyn Send>,
    /// Completes when the branch goes away; the session ends then.
    pub closed: BoxFuture<'static, ()>,
}

/// The refusal that a client receives: an ErrorResponse of severity FATAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRefusal {
    /// Five characters, see PostgreSQL's "Error Codes" appendix.
    pub sqlstate: &'static str,
    /// What is wrong, for the client.
    pub message: String,
    /// What the client can do about it.
    pub hint: Option<String>,
}

/// The SQLSTATE `invalid_catalog_name`: there is no such database.
pub(super) const NO_SUCH_DATABASE: &str = "3D000";

impl ConnectionRefusal {
    /// A refusal without a hint.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), hint: None }
    }

    /// The same with a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// SQLSTATE 53300: `what` has reached the proxy's limit `setting`.
    pub(super) fn too_many(what: &str, setting: &str, max: u32) -> Self {
        Self::new("53300", format!("too many {what}: limit proxy.{setting} is {max}"))
            .with_hint(format!("try again later, or raise proxy.{setting}"))
    }
}

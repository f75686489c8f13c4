//! The branches engine as the proxy's directory.
//!
//! A client writes `app@pr-42` for a branch of the default tenant and `app@pr-42.acme` for one of
//! tenant `acme`. Names of branches hold no dot, so the first one ends the branch's name.

use egret_base::lifecycle::BoxFuture;
use egret_base::{CodedError, Kind};
use egret_branches::model::{BranchName, DEFAULT_TENANT};
use egret_branches::{Branches, BranchesError, ClientRequest, ROLE};
use egret_postgres::cluster::SUPERUSER;

use egret_postgres::wire::scram::Verifier;

use super::directory::{Backend, ConnectionRefusal, Directory, Entry};
use super::route::Route;

/// Every branch of every tenant.
pub struct BranchDirectory(Branches);

impl BranchDirectory {
    /// A directory of an engine's branches.
    pub fn new(branches: Branches) -> Self {
        Self(branches)
    }
}

/// A database and its branch as a client writes them.
pub fn database_name(database: &str, branch: &BranchName, tenant: &str) -> String {
    match tenant {
        DEFAULT_TENANT => format!("{database}@{branch}"),
        tenant => format!("{database}@{branch}.{tenant}"),
    }
}

/// The tenant and the branch as a client wrote them, whether there can be such or not.
pub(super) fn split_tenant_and_branch(route: &Route) -> (&str, &str) {
    match route.branch.split_once('.') {
        Some((name, tenant)) => (tenant, name),
        None => (DEFAULT_TENANT, route.branch.as_str()),
    }
}

/// The tenant and the name in the branch of a route.
fn parse_branch(route: &Route) -> Result<(&str, BranchName), ConnectionRefusal> {
    let (tenant, name) = split_tenant_and_branch(route);
    match name.parse() {
        Ok(name) => Ok((tenant, name)),
        // The text says what a name looks like.
        Err(text) => Err(ConnectionRefusal::new("3D000", text).with_hint(
            "write database@branch, or database@branch.tenant for another tenant than the default one",
        )),
    }
}

impl Directory for BranchDirectory {
    fn lookup<'a>(
        &'a self,
        user: &'a str,
        route: &'a Route,
    ) -> BoxFuture<'a, Result<Entry, ConnectionRefusal>> {
        Box::pin(async move {
            let (tenant, name) = parse_branch(route)?;
            // The password of a branch, or that of the role where it was asked for with such, opens
            // it for every role but that of Egret's own sessions.
            let role = if user == SUPERUSER { ROLE } else { user };
            let verifier = self.0.verifier_of_role(tenant, &name, role).await;
            let (branch, verifier) = verifier.map_err(|error| connection_refusal(route, error))?;
            Ok(Entry { branch, role: role.to_owned(), verifier })
        })
    }

    fn decoy_verifier(&self, route: &Route) -> Option<Verifier> {
        // As of a branch that exists, the same for all ways to write its name, and for all roles.
        let identity = match parse_branch(route) {
            Ok((tenant, name)) => format!("{name}.{tenant}"),
            Err(_) => route.branch.clone(),
        };
        self.0.decoy_verifier(&identity).ok()
    }

    fn attach<'a>(
        &'a self,
        route: &'a Route,
        entry: &'a Entry,
        parameters: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Backend, ConnectionRefusal>> {
        Box::pin(async move {
            let (tenant, name) = parse_branch(route)?;
            let request =
                ClientRequest { role: &entry.role, database: &route.database, parameters };
            let attaching = self.0.attach_client(tenant, &name, entry.branch, request);
            let attached = attaching.await.map_err(|error| connection_refusal(route, error))?;
            Ok(Backend {
                socket_dir: attached.socket_dir,
                port: attached.port,
                role: entry.role.clone(),
                resident: attached.warm_session,
                guard: Box::new(attached.guard),
                closed: attached.closed,
            })
        })
    }
}

/// The refusal that a client receives: the branch as the client wrote it, a fitting SQLSTATE, what
/// to do.
fn connection_refusal(route: &Route, error: BranchesError) -> ConnectionRefusal {
    let branch = &route.branch;
    match &error {
        BranchesError::NotFound { .. } => {
            ConnectionRefusal::new("3D000", format!("branch \"{branch}\" does not exist"))
                .with_hint("`egret branch list` lists the existing branches")
        }
        BranchesError::Expired { at, .. } => {
            ConnectionRefusal::new("3D000", format!("branch \"{branch}\" expired at {at}"))
                .with_hint("create a new one with `egret branch create`")
        }
        BranchesError::WrongState { state, hint, .. } => ConnectionRefusal::new(
            "55000",
            format!("branch \"{branch}\" is {state}: {hint}"),
        )
        .with_hint(
            "`egret branch show` has details; `egret branch reset` may repair a failed branch",
        ),
        BranchesError::VolumeFull { free, needed } => ConnectionRefusal::new(
            "53100",
            format!(
                "branch \"{branch}\" cannot be resumed: the volume has {free} free, but {needed} \
                 are needed"
            ),
        )
        .with_hint("destroy branches"),
        BranchesError::Stopping => ConnectionRefusal::new("57P03", "egret is starting or stopping")
            .with_hint("connect again"),
        error => ConnectionRefusal::new(
            sqlstate_of(error.kind()),
            format!("branch \"{branch}\": {}", egret_base::error::chain(error)),
        )
        .with_hint("`egret branch show` and Egret's log have details"),
    }
}

fn sqlstate_of(kind: Kind) -> &'static str {
    match kind {
        Kind::NotFound => "3D000",
        Kind::Conflict | Kind::Mismatch | Kind::Gone => "55000",
        Kind::LimitReached | Kind::TooLarge => "53400",
        // The client may try again, as with a server that is starting up.
        Kind::Unavailable | Kind::TimedOut => "57P03",
        Kind::Unauthenticated | Kind::Denied => "28000",
        Kind::Invalid | Kind::Internal => "XX000",
    }
}

#[cfg(test)]
mod tests;

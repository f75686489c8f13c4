//! Finds out whether the server of a branch still lives after it has lost a session.

use std::time::Duration;

use egret_postgres::wire::{Session, Startup};

use crate::engine::{BranchSlot, Inner};
use crate::model::BranchId;
use crate::store::files::SOCKET_PORT;
use crate::store::prepare::ROLE;

/// How often a server that has lost a session is asked whether it answers.
const PROBES_MAX: u32 = 5;

/// How long one attempt may wait for the answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The wait between two attempts.
const PROBE_WAIT: Duration = Duration::from_millis(20);

impl Inner {
    /// Whether a branch's server answers; a refusal is an answer. When a server is killed, its
    /// sessions end before the end of the postmaster can be seen, so one attempt proves nothing.
    pub(super) async fn is_responding(&self, id: BranchId, slot: &BranchSlot) -> bool {
        let startup = Startup {
            user: ROLE.to_owned(),
            database: "postgres".to_owned(),
            parameters: vec![("application_name".to_owned(), "egret/branches".to_owned())],
        };
        let socket = self.paths.socket_dir(id);
        for _ in 0..PROBES_MAX {
            if slot.running_postmaster().is_none() {
                return false;
            }
            let opening = Session::connect(&socket, SOCKET_PORT, &startup);
            match tokio::time::timeout(PROBE_TIMEOUT, opening).await {
                Ok(Ok(_)) => return true,
                Ok(Err(error)) if error.server().is_some() => return true,
                // A trigger of its user may hold a session up; a server that has ended refuses at
                // once.
                Err(_) => return slot.running_postmaster().is_some(),
                // One that is opened while the server ends all of its sessions is ended too.
                Ok(Err(_)) => tokio::time::sleep(PROBE_WAIT).await,
            }
        }
        false
    }
}

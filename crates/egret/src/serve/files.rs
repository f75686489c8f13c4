//! How many files and connections may be open at a time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that Egret needs beside the connections to its HTTP door: logs, snapshots, sessions of the
/// proxy.
const OTHER_FILES: u64 = 1_024;

/// Raises the limit on open files as far as an ordinary user may: many systems begin with 1,024, so
/// that programs which cannot bear more need not, and a connection is a file.
pub(super) fn raise_limit(connections_max: u32) {
    let known = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: known.maximum, maximum: known.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
    let needed = u64::from(connections_max) + OTHER_FILES;
    if let Some(most) = getrlimit(Resource::Nofile).current.filter(|most| *most < needed) {
        tracing::warn!(
            most,
            "the limit on open files is too low for server.connections_max ({connections_max}): \
             raise the hard limit (ulimit -Hn, LimitNOFILE), or lower that setting"
        );
    }
}
